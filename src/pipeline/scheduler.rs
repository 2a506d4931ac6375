//! Blocks in, workers, blocks out in order; everything bounded.
//!
//! The thread that owns a [`Scheduler`] reads and writes; workers take tasks from one queue. Whoever submits keeps
//! the number of tasks in flight under its share, which bounds the queue, the finished tasks that wait for their turn,
//! and so the memory.
//!
//! Workers are rayon's. Each submitted task comes with a token on rayon's own queue; a worker that gets a token takes
//! the oldest task, if one is left. So the threads of a device, which take tasks in batches, share the queue with them:
//! the tokens of the tasks that these took find nothing to do. A device comes first: as long as one of its threads waits
//! for a batch, workers leave it one.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::engine::Engine;
use super::gpu::{Accelerator, Gpu, GpuEngine};
use super::memory::Share;

/// A block on its way, with the memory that it needs.
pub(crate) trait Task: Send + Sized + 'static {
    /// Runs a batch on `engine`.
    fn run(batch: &mut [Self], engine: &dyn Engine);

    /// Notes that [`Task::run`] panicked.
    fn set_panicked(&mut self);
}

/// Runs tasks on workers and gives them back in the order in which they came.
pub(crate) struct Scheduler<T: Task> {
    shared: Arc<Shared<T>>,
    /// `None`: tasks run when they are submitted, in the calling thread.
    pool: Option<ThreadPool>,
    /// Whether the calling thread is one of the workers: it works instead of waiting.
    helps: bool,
    /// The threads of a device.
    device: Vec<JoinHandle<()>>,
    submitted: u64,
    taken: u64,
}

struct Shared<T> {
    engine: Arc<dyn Engine>,
    state: Mutex<State<T>>,
    finished: Condvar,
    /// Wakes the threads of a device.
    queued: Condvar,
    /// Blocks of a device's batch.
    batch: usize,
}

struct State<T> {
    queue: VecDeque<(u64, T)>,
    done: BTreeMap<u64, T>,
    /// Threads of a device, and those of them that wait for a batch.
    device_threads: usize,
    idle_device_threads: usize,
    /// Whether the owner can go on only when something is finished.
    is_awaited: bool,
    is_closed: bool,
}

impl<T: Task> Scheduler<T> {
    /// A scheduler with `workers` workers, of which the calling thread is one if they are few; with one, or if the
    /// system refuses threads, everything runs in the calling thread.
    pub(crate) fn new(engine: Arc<dyn Engine>, workers: usize) -> Self {
        Self::with_accelerator(engine, workers, None)
    }

    /// A scheduler whose tasks may also run on a device, in batches. With one worker besides they do so only if the
    /// device cannot be used.
    pub(crate) fn with_accelerator(
        engine: Arc<dyn Engine>,
        workers: usize,
        accelerator: Option<&Accelerator>,
    ) -> Self {
        let state = State {
            queue: VecDeque::new(),
            done: BTreeMap::new(),
            device_threads: 0,
            idle_device_threads: 0,
            is_awaited: false,
            is_closed: false,
        };
        let shared = Arc::new(Shared {
            engine,
            state: Mutex::new(state),
            finished: Condvar::new(),
            queued: Condvar::new(),
            batch: accelerator.map_or(1, |accelerator| accelerator.batch.max(1)),
        });
        let device = accelerator.map_or_else(Vec::new, |accelerator| {
            let start = |i| Shared::serve_with(&shared, accelerator.gpu.clone(), i);
            (0..accelerator.slots).filter_map(start).collect()
        });
        // With a device, the calling thread had better keep it busy.
        let helps = workers <= MOST_WITH_HELP && device.is_empty();
        let pool = if workers < 2 { None } else { build_pool(workers - usize::from(helps)) };
        Self { shared, pool, helps, device, submitted: 0, taken: 0 }
    }

    /// Workers, with the calling thread if it is one.
    fn workers(&self) -> usize {
        let threads = self.pool.as_ref().map_or(0, ThreadPool::current_num_threads);
        threads + usize::from(self.helps || threads == 0)
    }

    /// Prepares for work of another kind, with nothing in flight: the scheduler in `slot` is kept if it has workers
    /// enough and no device, because threads are not made for nothing; then `share` is narrowed so that no more of them work at
    /// once than it permits.
    pub(crate) fn adapt(slot: &mut Option<Self>, share: &mut Share) {
        let workers = slot.as_ref().map_or(0, |scheduler| {
            scheduler.shared.engine.release();
            scheduler.workers()
        });
        let has_device = slot.as_ref().is_some_and(|scheduler| !scheduler.device.is_empty());
        if workers < share.workers || has_device {
            *slot = None;
        } else if workers > share.workers {
            share.in_flight = share.in_flight.min(share.workers);
        }
    }

    /// Tasks submitted and not yet taken.
    pub(crate) fn in_flight(&self) -> usize {
        (self.submitted - self.taken) as usize
    }

    /// Hands `task` to the workers.
    pub(crate) fn submit(&mut self, mut task: T) {
        let number = self.submitted;
        self.submitted += 1;
        if self.pool.is_none() && self.device.is_empty() {
            run(std::slice::from_mut(&mut task), &*self.shared.engine);
            self.shared.lock().done.insert(number, task);
            return;
        }
        self.shared.lock().queue.push_back((number, task));
        self.shared.queued.notify_one();
        if let Some(pool) = &self.pool {
            let shared = Arc::clone(&self.shared);
            pool.spawn(move || shared.run_one(Who::Worker));
        }
    }

    /// Waits for the oldest task in flight; `None` if there is none.
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.in_flight() == 0 {
            return None;
        }
        let mut state = self.shared.lock();
        loop {
            if let Some(task) = state.done.remove(&self.taken) {
                state.is_awaited = false;
                self.taken += 1;
                return Some(task);
            }
            // Workers may have left tasks to a device that is there no more.
            let helps = self.helps || (!self.device.is_empty() && state.device_threads == 0);
            if helps && !state.queue.is_empty() {
                drop(state);
                self.shared.run_one(Who::Owner);
                state = self.shared.lock();
                continue;
            }
            if !state.is_awaited {
                state.is_awaited = true;
                self.shared.queued.notify_all();
            }
            state = self.shared.finished.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The oldest task in flight, if it is finished.
    pub(crate) fn try_next(&mut self) -> Option<T> {
        let task = self.shared.lock().done.remove(&self.taken)?;
        self.taken += 1;
        Some(task)
    }
}

impl<T: Task> Drop for Scheduler<T> {
    fn drop(&mut self) {
        // Nobody waits for them any more.
        let mut state = self.shared.lock();
        state.queue.clear();
        state.is_closed = true;
        drop(state);
        self.shared.queued.notify_all();
        for thread in self.device.drain(..) {
            // It has caught what it could; what it was to do is not needed.
            let _ = thread.join();
        }
    }
}

impl<T: Task> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that holds the lock runs a codec, and a task is whole at every point.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_one(&self, who: Who) {
        let mut state = self.lock();
        let left = if state.is_awaited { 0 } else { state.idle_device_threads * self.batch };
        if who == Who::Worker && state.queue.len() <= left {
            return;
        }
        let Some((number, mut task)) = state.queue.pop_front() else { return };
        drop(state);
        run(std::slice::from_mut(&mut task), &*self.engine);
        self.lock().done.insert(number, task);
        self.finished.notify_one();
    }

    /// Starts a thread that runs batches on `gpu`; `None` if the system refuses.
    fn serve_with(shared: &Arc<Self>, gpu: Gpu, number: usize) -> Option<JoinHandle<()>> {
        shared.lock().device_threads += 1;
        let serving = Arc::clone(shared);
        let thread = thread::Builder::new().name(format!("pz device {number}"));
        let started = thread.spawn(move || {
            let work = AssertUnwindSafe(|| serving.serve(&gpu));
            // A backend that panics is a device that fails.
            let _ = catch_unwind(work);
            serving.lock().device_threads -= 1;
            serving.finished.notify_one();
        });
        if started.is_err() {
            shared.lock().device_threads -= 1;
        }
        started.ok()
    }

    /// Runs batches on `gpu` until there are no more, or it fails.
    fn serve(&self, gpu: &Gpu) {
        let engine = GpuEngine::new(gpu, self.batch as u32, Arc::clone(&self.engine));
        while let Some((numbers, mut tasks)) = self.take_batch() {
            let on_device = catch_unwind(AssertUnwindSafe(|| T::run(&mut tasks, &engine)));
            if on_device.is_err() {
                // A backend that panics is a device that fails: the batch is done again without it.
                run(&mut tasks, &*self.engine);
            }
            self.lock().done.extend(numbers.into_iter().zip(tasks));
            self.finished.notify_one();
            if on_device.is_err() || engine.broken().is_some() {
                return;
            }
        }
    }

    /// Waits for a batch: a full one, or what there is if the owner waits for it. `None` at the end.
    fn take_batch(&self) -> Option<(Vec<u64>, Vec<T>)> {
        let mut state = self.lock();
        state.idle_device_threads += 1;
        loop {
            let there = state.queue.len();
            if state.is_closed || there >= self.batch || (state.is_awaited && there > 0) {
                state.idle_device_threads -= 1;
                let batch = state.queue.drain(..there.min(self.batch));
                let batch: (Vec<_>, Vec<_>) = batch.unzip();
                return (!batch.0.is_empty()).then_some(batch);
            }
            state = self.queued.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Who wants to run a task.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    /// A worker, which leaves tasks to a device.
    Worker,
    /// The owner, who waits for them.
    Owner,
}

/// Runs tasks. A panic in a codec is a fault of ours, and must not leave its caller waiting for ever.
fn run<T: Task>(batch: &mut [T], engine: &dyn Engine) {
    if catch_unwind(AssertUnwindSafe(|| T::run(batch, engine))).is_err() {
        batch.iter_mut().for_each(Task::set_panicked);
    }
}

/// The most workers of which the calling thread is one. As long as it works it neither reads nor writes, so there must
/// be enough blocks in flight for the others to go on; with more workers than this there are not, and one thread too
/// many does little harm.
const MOST_WITH_HELP: usize = 4;

/// Threads for `workers` workers; `None` if the calling thread is to do the work.
pub(crate) fn thread_pool(workers: usize) -> Option<ThreadPool> {
    if workers < 2 { None } else { build_pool(workers) }
}

fn build_pool(threads: usize) -> Option<ThreadPool> {
    let name = |i| format!("pz worker {i}");
    ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::device::{
        Api, BufferId, Device, DeviceError, Kind, Limits, MemorySource, Queue, Teams,
    };
    use crate::pipeline::cpu::CpuEngine;
    use std::time::Duration;

    #[derive(Debug, PartialEq)]
    struct Number {
        value: u64,
        panicked: bool,
    }

    impl Task for Number {
        fn run(batch: &mut [Self], _: &dyn Engine) {
            for task in batch {
                assert!(task.value != 13);
                // Later tasks finish sooner.
                std::thread::sleep(Duration::from_micros(300 - (task.value % 3) * 100));
                task.value *= 2;
            }
        }

        fn set_panicked(&mut self) {
            self.panicked = true;
        }
    }

    #[test]
    fn order_is_kept_and_panics_are_reported() {
        for workers in [1, 2, 5] {
            let mut scheduler = Scheduler::new(Arc::new(CpuEngine::new()), workers);
            let mut out = Vec::new();
            for value in 0..100 {
                if scheduler.in_flight() == 8 {
                    out.extend(scheduler.next());
                }
                scheduler.submit(Number { value, panicked: false });
                out.extend(scheduler.try_next());
            }
            while let Some(task) = scheduler.next() {
                out.push(task);
            }
            assert_eq!(out.len(), 100);
            for (i, task) in (0..).zip(&out) {
                let panicked = i == 13;
                assert_eq!(*task, Number { value: if panicked { 13 } else { 2 * i }, panicked });
            }
            assert!(scheduler.next().is_none());
        }
    }

    /// A device that can nothing: its threads take batches all the same.
    struct Nothing(Limits);

    impl Device for Nothing {
        fn limits(&self) -> &Limits {
            &self.0
        }

        fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
            Err(DeviceError::OutOfMemory { bytes })
        }

        fn free(&self, _: BufferId) {}

        fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
            Err(DeviceError::Lost)
        }
    }

    fn nothing() -> Gpu {
        let limits = Limits {
            api: Api::OpenCl,
            name: "nothing".into(),
            driver: String::new(),
            kind: Kind::Other,
            memory: 0,
            memory_source: MemorySource::Assumed,
            max_buffer: 0,
            local_memory: 0,
            max_workgroup: 0,
            teams: Teams::Local,
            compute_units: 0,
            timing: false,
        };
        Gpu::new(Arc::new(Nothing(limits)))
    }

    #[test]
    fn the_threads_of_a_device_take_batches() {
        for (workers, slots, batch) in [(1, 1, 1), (1, 2, 3), (2, 1, 4), (3, 3, 2), (2, 2, 100)] {
            let accelerator = Accelerator { gpu: nothing(), slots, batch, memory: 0 };
            let cpu = Arc::new(CpuEngine::new());
            let mut scheduler = Scheduler::with_accelerator(cpu, workers, Some(&accelerator));
            let mut out = Vec::new();
            for value in 20..220 {
                if scheduler.in_flight() == 12 {
                    out.extend(scheduler.next());
                }
                scheduler.submit(Number { value, panicked: false });
                out.extend(scheduler.try_next());
            }
            while let Some(task) = scheduler.next() {
                out.push(task);
            }
            let values: Vec<_> = out.iter().map(|task| task.value).collect();
            assert_eq!(values, (20..220).map(|value| 2 * value).collect::<Vec<_>>());
        }
    }

    #[test]
    fn dropping_with_tasks_in_flight_does_not_hang() {
        let mut scheduler = Scheduler::new(Arc::new(CpuEngine::new()), 2);
        for value in 20..60 {
            scheduler.submit(Number { value, panicked: false });
        }
        drop(scheduler);
    }
}
