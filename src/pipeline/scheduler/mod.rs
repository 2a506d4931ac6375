//! Takes blocks, runs them on workers and on a device, and gives them back in order, with every queue bounded.
//!
//! The thread that owns a [`Scheduler`] reads the input and writes the output; workers take tasks from one queue. The
//! owner keeps the number of tasks in flight within its share. This bounds the queue, the finished tasks that wait for
//! their turn, and so the memory.
//!
//! Workers are rayon threads. For each submitted task the owner spawns a token on rayon's own queue. A worker that gets
//! a token takes the oldest task, and goes on until no tasks are left. The device's threads take batches of tasks from
//! the same queue; the tokens of those tasks find nothing to do. Fewer workers run while a device is at work, because
//! its threads need cores too. [`batch_sizing`](super::batch_sizing) decides how many blocks a device takes. The device
//! opens while the workers are already at work, and what it leaves undone comes back to them.
//! [`host_memory`](super::host_memory) says how many workers and blocks the host has memory for meanwhile.

mod serve;

use std::collections::{BTreeMap, VecDeque};
use std::mem;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::batch_sizing::EngineRates;
use super::engine::Engine;
use super::gpu::Accelerator;
use super::host_memory::{HostMemory, Limits};
use super::memory::Share;
use crate::clock::Instant;
use crate::process::Owner;
use crate::sync::{Condvar, Mutex};

/// A block to code, with the memory that it needs.
pub(crate) trait Task: Send + Sized + 'static {
    /// Runs a batch on `engine`.
    fn run(batch: &mut [Self], engine: &dyn Engine);

    /// Whether an engine has coded the block.
    fn is_coded(&self) -> bool;

    /// Whether the task needs no more work.
    fn is_done(&self) -> bool;

    /// Bytes of the block's contents.
    fn bytes(&self) -> u64;

    /// How much of the time in [`Task::run`] went into writing.
    fn writing(&self) -> Duration {
        Duration::ZERO
    }

    /// Records that [`Task::run`] panicked.
    fn set_panicked(&mut self);
}

/// Runs tasks on workers and gives them back in the order in which they were submitted.
pub(crate) struct Scheduler<T: Task> {
    shared: Arc<Shared<T>>,
    /// `None`: each task runs in the calling thread when it is submitted, unless there is a device.
    pool: Option<Arc<ThreadPool>>,
    /// Whether the calling thread is also a worker, and runs tasks instead of waiting.
    helps: bool,
    /// Whether this scheduler was made for a device.
    has_device: bool,
    /// The first thread of the device, which starts and joins the others.
    device: Option<JoinHandle<()>>,
    submitted: u64,
    taken: u64,
    process: Owner,
}

struct Shared<T> {
    engine: Arc<dyn Engine>,
    /// No codec runs under the lock, and every task is consistent whenever the lock is free.
    state: Mutex<State<T>>,
    finished: Condvar,
    /// Wakes the device's threads.
    queued: Condvar,
    /// Wakes the thread that decides whether to open a device. Submitting a task does not wake it: that would hold up
    /// the owner.
    progress: Condvar,
    /// Workers other than the owner.
    workers: usize,
    /// The most tasks in flight.
    window: usize,
}

struct State<T> {
    /// Waiting tasks.
    queue: VecDeque<(u64, T)>,
    /// Tasks that the device gave back undone; they come before the queue.
    returned: VecDeque<(u64, T)>,
    done: BTreeMap<u64, T>,
    /// Workers at work, other than the owner.
    working: usize,
    memory: HostMemory,
    device: DeviceLoad,
    rates: EngineRates,
    /// Blocks that workers have coded.
    finished: u64,
    /// Whether the owner is waiting for a block to finish.
    is_awaited: bool,
    /// Whether the owner has submitted its last task.
    is_ended: bool,
    is_closed: bool,
}

/// The device's threads and what they are working on.
#[derive(Default)]
struct DeviceLoad {
    threads: usize,
    /// Tasks in its batches.
    tasks: usize,
    batches: usize,
    /// Batches done so far.
    done: u64,
    /// Whether it has begun to take batches.
    has_begun: bool,
}

impl<T: Task> Scheduler<T> {
    /// A scheduler with `workers` workers and no device.
    #[cfg(test)]
    pub(crate) fn new(engine: Arc<dyn Engine>, workers: usize) -> Self {
        Self::with_accelerator(engine, Share { workers, in_flight: usize::MAX }, None)
    }

    /// A scheduler with the workers of `share`. If there are few, the calling thread is one of them. With one worker,
    /// or if the system refuses threads, everything runs in the calling thread. With an accelerator, a device takes
    /// batches of tasks; a single worker then works only until the device is ready, and again if it fails.
    pub(crate) fn with_accelerator(
        engine: Arc<dyn Engine>,
        share: Share,
        accelerator: Option<&Accelerator>,
    ) -> Self {
        // With a device, the calling thread is better used to keep the device supplied.
        let helps = share.workers <= MAX_WITH_HELP && accelerator.is_none();
        let memory = match accelerator {
            None => HostMemory::of_workers(share),
            Some(accelerator) => HostMemory::for_device(Limits {
                alone: accelerator.alone,
                beside: share,
                blocks_before_device: share
                    .in_flight
                    .saturating_sub(accelerator.host_blocks as usize)
                    .max(1),
                afterwards: accelerator.afterwards,
            }),
        };
        let max_workers = accelerator.map_or(share.workers, |accelerator| {
            accelerator.alone.unwrap_or(accelerator.afterwards).workers.max(share.workers)
        });
        let threads = max_workers - usize::from(helps);
        let pool = if max_workers < 2 { None } else { build_pool(threads) };
        let state = State {
            queue: VecDeque::new(),
            returned: VecDeque::new(),
            done: BTreeMap::new(),
            working: 0,
            memory,
            device: DeviceLoad::default(),
            rates: EngineRates::default(),
            finished: 0,
            is_awaited: false,
            is_ended: false,
            is_closed: false,
        };
        let shared = Arc::new(Shared {
            engine,
            state: Mutex::new(state),
            finished: Condvar::new(),
            queued: Condvar::new(),
            progress: Condvar::new(),
            workers: pool.as_ref().map_or(0, ThreadPool::current_num_threads),
            window: share.in_flight,
        });
        let pool = pool.map(Arc::new);
        let device = accelerator
            .and_then(|accelerator| Shared::start(&shared, accelerator.clone(), pool.clone()));
        if device.is_none() {
            shared.state.lock().memory.has_no_device();
        }
        let has_device = accelerator.is_some();
        let (submitted, taken, process) = (0, 0, Owner::here());
        Self { shared, pool, helps, has_device, device, submitted, taken, process }
    }

    /// The number of workers, with the calling thread if it is one.
    fn workers(&self) -> usize {
        let threads = self.shared.workers;
        threads + usize::from(self.helps || threads == 0)
    }

    /// Prepares for another kind of work, with nothing in flight. Keeps the scheduler in `slot`, to reuse its threads,
    /// if it has enough workers and was not made for a device. If it has more workers than `share`, narrows `share` so
    /// that no more of them run at once than `share` permits.
    pub(crate) fn adapt(slot: &mut Option<Self>, share: &mut Share) {
        let workers = slot.as_ref().map_or(0, |scheduler| {
            scheduler.shared.engine.release();
            scheduler.workers()
        });
        let has_device = slot.as_ref().is_some_and(|scheduler| scheduler.has_device);
        if workers < share.workers || has_device {
            *slot = None;
        } else if workers > share.workers {
            share.in_flight = share.in_flight.min(share.workers);
        }
    }

    /// The number of tasks submitted and not yet taken.
    pub(crate) fn in_flight(&self) -> usize {
        (self.submitted - self.taken) as usize
    }

    /// The most tasks to have in flight now, where `most` is the limit without a device.
    pub(crate) fn max_in_flight(&self, most: usize) -> usize {
        if !self.has_device {
            return most;
        }
        let state = self.shared.state.lock();
        state.memory.blocks(state.device.threads > 0)
    }

    /// How many idle blocks the owner should keep at most, if another part of the job waits for its memory: the device
    /// before it opens, or the workers after it has stopped. `None` if nothing waits, or if too many blocks are in
    /// flight. When it has dropped the other blocks, the owner calls [`Self::gave_back`].
    pub(crate) fn idle_to_keep(&self) -> Option<usize> {
        self.device.as_ref()?;
        let blocks = self.shared.state.lock().memory.awaited_blocks()?;
        blocks.checked_sub(self.in_flight())
    }

    /// Says that the owner has dropped the idle blocks that [`Self::idle_to_keep`] does not let it keep.
    pub(crate) fn gave_back(&self) {
        let mut state = self.shared.state.lock();
        state.memory.owner_has_made_room();
        let waiting = state.queue.len().min(state.memory.workers(false));
        drop(state);
        self.shared.progress.notify_all();
        if let Some(pool) = &self.pool {
            (0..waiting).for_each(|_| Shared::spawn_one(&self.shared, pool));
        }
    }

    /// Hands `task` to the workers.
    pub(crate) fn submit(&mut self, mut task: T) {
        let number = self.submitted;
        self.submitted += 1;
        if self.pool.is_none() && self.device.is_none() {
            run(std::slice::from_mut(&mut task), &*self.shared.engine);
            self.shared.state.lock().done.insert(number, task);
            return;
        }
        self.shared.state.lock().queue.push_back((number, task));
        self.shared.queued.notify_one();
        if let Some(pool) = &self.pool {
            Shared::spawn_one(&self.shared, pool);
        }
    }

    /// Says that no more tasks will be submitted, so that workers and device divide what is left.
    pub(crate) fn end(&mut self) {
        self.shared.state.lock().is_ended = true;
        self.shared.queued.notify_all();
    }

    /// Waits for the oldest task in flight and returns it; `None` if no task is in flight.
    pub(crate) fn next(&mut self) -> Option<T> {
        if self.in_flight() == 0 {
            return None;
        }
        let mut state = self.shared.state.lock();
        loop {
            if let Some(task) = state.done.remove(&self.taken) {
                state.is_awaited = false;
                self.taken += 1;
                return Some(task);
            }
            if self.owner_should_work(&state) {
                drop(state);
                self.shared.run_one();
                state = self.shared.state.lock();
                continue;
            }
            if !state.is_awaited {
                state.is_awaited = true;
                self.shared.queued.notify_all();
            }
            state = self.shared.finished.wait(state);
        }
    }

    /// Whether the owner runs a task instead of waiting. It does so if it is one of the workers. Without workers it
    /// also does so for blocks that the device gave back, while no device is at work, and beside a device that came
    /// late.
    fn owner_should_work(&self, state: &State<T>) -> bool {
        let left = !state.returned.is_empty();
        let queued = !state.queue.is_empty();
        let alone = self.pool.is_none();
        let is_worker = state.device.threads == 0 || state.rates.knows_worker();
        self.helps && (left || queued) || alone && (left || queued && is_worker)
    }

    /// The oldest task in flight, if it has finished.
    pub(crate) fn try_next(&mut self) -> Option<T> {
        let task = self.shared.state.lock().done.remove(&self.taken)?;
        self.taken += 1;
        Some(task)
    }
}

impl<T: Task> Drop for Scheduler<T> {
    fn drop(&mut self) {
        if !self.process.is_here() {
            // The threads that these are shared with are another process's.
            mem::forget((Arc::clone(&self.shared), self.pool.take(), self.device.take()));
            return;
        }
        // No caller will ask for the tasks that are left.
        let mut state = self.shared.state.lock();
        state.queue.clear();
        state.returned.clear();
        state.is_closed = true;
        let has_begun = state.device.has_begun;
        drop(state);
        self.shared.queued.notify_all();
        self.shared.progress.notify_all();
        // A thread that still waits for its device to open ends by itself.
        if let Some(thread) = self.device.take().filter(|_| has_begun) {
            // The thread catches its own panics, and no caller needs its result.
            let _ = thread.join();
        }
    }
}

impl<T> State<T> {
    /// How many workers may work now.
    fn worker_limit(&self) -> usize {
        self.memory.workers(!self.returned.is_empty())
    }
}

impl<T: Task> Shared<T> {
    /// Spawns a token for a worker.
    fn spawn_one(shared: &Arc<Self>, pool: &ThreadPool) {
        let shared = Arc::clone(shared);
        pool.spawn(move || shared.work());
    }

    /// Runs tasks until none are left or too many workers run. Some tasks therefore need no token: while there are
    /// tasks, as many workers run as may.
    fn work(&self) {
        let mut state = self.state.lock();
        if state.working >= state.worker_limit() {
            return;
        }
        state.working += 1;
        while state.working <= state.worker_limit() {
            drop(state);
            let is_done = self.run_one();
            state = self.state.lock();
            // The lock is held from this check until the worker is counted out, so no task is missed.
            if !is_done && state.returned.is_empty() && state.queue.is_empty() {
                break;
            }
        }
        state.working -= 1;
        if !state.memory.is_for_workers_only() {
            self.progress.notify_all();
        }
    }

    /// Runs the oldest task; returns whether there was one.
    fn run_one(&self) -> bool {
        let mut state = self.state.lock();
        let State { queue, returned, .. } = &mut *state;
        let of_device = returned.pop_front();
        let is_returned = of_device.is_some();
        let Some((number, mut task)) = of_device.or_else(|| queue.pop_front()) else {
            return false;
        };
        drop(state);
        let begun = Instant::now();
        let is_coded = task.is_coded();
        run(std::slice::from_mut(&mut task), &*self.engine);
        let mut state = self.state.lock();
        if !is_coded {
            state.finished += 1;
            if !is_returned {
                state.rates.worker_took(begun.elapsed(), task.writing());
            }
        }
        state.done.insert(number, task);
        drop(state);
        self.finished.notify_one();
        true
    }
}

/// Runs tasks. A panic in a codec is a bug in pz, and must not leave the caller waiting for ever.
fn run<T: Task>(batch: &mut [T], engine: &dyn Engine) {
    if catch_unwind(AssertUnwindSafe(|| T::run(batch, engine))).is_err() {
        batch.iter_mut().for_each(Task::set_panicked);
    }
}

/// The most workers with which the calling thread is one of them. While it codes a block it neither reads nor writes,
/// so enough blocks must be in flight to keep the other workers busy. With more workers there are too few blocks for
/// that, and one extra thread does little harm.
const MAX_WITH_HELP: usize = 4;

/// Threads for `workers` workers; `None` if the calling thread does the work itself.
pub(crate) fn thread_pool(workers: usize) -> Option<ThreadPool> {
    if workers < 2 { None } else { build_pool(workers) }
}

/// A pool of `threads` threads. If the system refuses them, a pool of half as many, a quarter and so on.
pub(crate) fn build_pool(threads: usize) -> Option<ThreadPool> {
    let fewer = std::iter::successors(Some(threads), |threads| Some(threads / 2));
    fewer.take_while(|&threads| threads > 0).find_map(|threads| {
        // A thread that gets no memory for its signal stack aborts the process. Check first that the memory for all
        // threads is there.
        memmap2::MmapMut::map_anon(threads.saturating_mul(THREAD_BYTES)).ok()?;
        let name = |i| format!("pz worker {i}");
        ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build().ok()
    })
}

/// Address space of a thread: its stack, its signal stack, and its share of the allocator's data.
const THREAD_BYTES: usize = (2 << 20) + (256 << 10);

#[cfg(test)]
mod tests;
