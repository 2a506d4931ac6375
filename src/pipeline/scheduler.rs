//! Blocks in, workers, blocks out in order; everything bounded.
//!
//! The thread that owns a [`Scheduler`] reads and writes; workers take tasks from one queue. Whoever submits keeps
//! the number of tasks in flight under its share, which bounds the queue, the finished tasks that wait for their turn,
//! and so the memory.
//!
//! Workers are rayon's. Each submitted task comes with a token on rayon's own queue; a worker that gets a token takes the oldest
//! task, and then others until there are none. The threads of a device take tasks from the same queue, in batches; the tokens of
//! those tasks find nothing to do. While a device is at work, fewer workers work, because its threads need cores, too.
//! [`batch_sizing`](super::batch_sizing) decides how many blocks a device takes. A device is opened while workers are at work
//! already; what it leaves undone comes back to the workers. [`host_memory`](super::host_memory) says how many workers and blocks
//! there is memory for meanwhile.

mod serve;

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::batch_sizing::EngineRates;
use super::engine::Engine;
use super::gpu::Accelerator;
use super::host_memory::{HostMemory, Limits};
use super::memory::Share;

/// A block on its way, with the memory that it needs.
pub(crate) trait Task: Send + Sized + 'static {
    /// Runs a batch on `engine`.
    fn run(batch: &mut [Self], engine: &dyn Engine);

    /// Whether an engine has coded it.
    fn is_coded(&self) -> bool;

    /// Whether nothing is left to do.
    fn is_done(&self) -> bool;

    /// Bytes of its contents.
    fn bytes(&self) -> u64;

    /// How much of [`Task::run`]'s time went into writing.
    fn writing(&self) -> Duration {
        Duration::ZERO
    }

    /// Notes that [`Task::run`] panicked.
    fn set_panicked(&mut self);
}

/// Runs tasks on workers and gives them back in the order in which they came.
pub(crate) struct Scheduler<T: Task> {
    shared: Arc<Shared<T>>,
    /// `None`: tasks run when they are submitted, in the calling thread, unless a device takes them.
    pool: Option<Arc<ThreadPool>>,
    /// Whether the calling thread is one of the workers: it works instead of waiting.
    helps: bool,
    /// Whether it was made for a device, too.
    has_device: bool,
    /// The first thread of a device, which starts and awaits the others.
    device: Option<JoinHandle<()>>,
    submitted: u64,
    taken: u64,
}

struct Shared<T> {
    engine: Arc<dyn Engine>,
    state: Mutex<State<T>>,
    finished: Condvar,
    /// Wakes the threads of a device.
    queued: Condvar,
    /// Wakes the thread that decides whether to open a device. Not for each task: that would hold up the owner.
    turned: Condvar,
    /// Workers that are not the owner.
    workers: usize,
    /// The most tasks in flight.
    window: usize,
}

struct State<T> {
    /// Tasks that wait, and those that a device gave back undone, which come first.
    queue: VecDeque<(u64, T)>,
    returned: VecDeque<(u64, T)>,
    done: BTreeMap<u64, T>,
    /// Workers at work that are not the owner.
    working: usize,
    memory: HostMemory,
    device: AtDevice,
    rates: EngineRates,
    /// Blocks that workers have finished.
    finished: u64,
    /// Whether the owner can go on only when something is finished.
    is_awaited: bool,
    /// Whether nothing more will be submitted.
    is_ended: bool,
    is_closed: bool,
}

/// What a device has.
#[derive(Default)]
struct AtDevice {
    threads: usize,
    tasks: usize,
    batches: usize,
    /// Whether it is at work, or has been.
    has_begun: bool,
}

impl<T: Task> Scheduler<T> {
    /// A scheduler with `workers` workers, of which the calling thread is one if they are few; with one, or if the
    /// system refuses threads, everything runs in the calling thread.
    pub(crate) fn new(engine: Arc<dyn Engine>, workers: usize) -> Self {
        Self::with_accelerator(engine, Share { workers, in_flight: usize::MAX }, None)
    }

    /// A scheduler of `share`'s workers, whose tasks may also run on a device, in batches. A single worker works only
    /// until the device is there, and for it where it fails.
    pub(crate) fn with_accelerator(
        engine: Arc<dyn Engine>,
        share: Share,
        accelerator: Option<&Accelerator>,
    ) -> Self {
        // With a device, the calling thread had better keep it busy.
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
        let most_workers = accelerator.map_or(share.workers, |accelerator| {
            accelerator.alone.unwrap_or(accelerator.afterwards).workers.max(share.workers)
        });
        let threads = most_workers - usize::from(helps);
        let pool = if most_workers < 2 { None } else { build_pool(threads) };
        let state = State {
            queue: VecDeque::new(),
            returned: VecDeque::new(),
            done: BTreeMap::new(),
            working: 0,
            memory,
            device: AtDevice::default(),
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
            turned: Condvar::new(),
            workers: pool.as_ref().map_or(0, ThreadPool::current_num_threads),
            window: share.in_flight,
        });
        let pool = pool.map(Arc::new);
        let device = accelerator
            .and_then(|accelerator| Shared::start(&shared, accelerator.clone(), pool.clone()));
        if device.is_none() {
            shared.lock().memory.has_no_device();
        }
        let has_device = accelerator.is_some();
        let (submitted, taken) = (0, 0);
        Self { shared, pool, helps, has_device, device, submitted, taken }
    }

    /// Workers, with the calling thread if it is one.
    fn workers(&self) -> usize {
        let threads = self.shared.workers;
        threads + usize::from(self.helps || threads == 0)
    }

    /// Prepares for work of another kind, with nothing in flight: the scheduler in `slot` is kept if it has workers
    /// enough and was not made for a device, because threads are not made for nothing; then `share` is narrowed so that no more of
    /// them work at once than it permits.
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

    /// Tasks submitted and not yet taken.
    pub(crate) fn in_flight(&self) -> usize {
        (self.submitted - self.taken) as usize
    }

    /// The most tasks that should be in flight now, of `most` that may be.
    pub(crate) fn most_in_flight(&self, most: usize) -> usize {
        if !self.has_device {
            return most;
        }
        let state = self.shared.lock();
        state.memory.blocks(state.device.threads > 0)
    }

    /// The most blocks that the owner may have from now on, with those that are idle, if somebody waits for that: a device, or the
    /// workers after a device.
    pub(crate) fn awaited_room(&self) -> Option<usize> {
        self.device.as_ref()?;
        self.shared.lock().memory.awaited_blocks()
    }

    /// Says that the owner has no more than [`Self::awaited_room`].
    pub(crate) fn make_room(&self) {
        let mut state = self.shared.lock();
        state.memory.owner_has_made_room();
        let waiting = state.queue.len().min(state.memory.workers(false));
        drop(state);
        self.shared.turned.notify_all();
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
            self.shared.lock().done.insert(number, task);
            return;
        }
        self.shared.lock().queue.push_back((number, task));
        self.shared.queued.notify_one();
        if let Some(pool) = &self.pool {
            Shared::spawn_one(&self.shared, pool);
        }
    }

    /// Says that nothing more will be submitted, so that engines share what is left.
    pub(crate) fn end(&mut self) {
        self.shared.lock().is_ended = true;
        self.shared.queued.notify_all();
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
            if self.is_to_work(&state) {
                drop(state);
                self.shared.run_one();
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

    /// Whether the owner works instead of waiting: as one of the workers, or where there are no workers and no device at work, or one
    /// that came late or gave blocks back.
    fn is_to_work(&self, state: &State<T>) -> bool {
        let left = !state.returned.is_empty();
        let queued = !state.queue.is_empty();
        let alone = self.pool.is_none();
        let is_worker = state.device.threads == 0 || state.rates.knows_worker();
        self.helps && (left || queued) || alone && (left || queued && is_worker)
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
        state.returned.clear();
        state.is_closed = true;
        let has_begun = state.device.has_begun;
        drop(state);
        self.shared.queued.notify_all();
        self.shared.turned.notify_all();
        // A thread that still waits for its device ends by itself.
        if let Some(thread) = self.device.take().filter(|_| has_begun) {
            // It has caught what it could; what it was to do is not needed.
            let _ = thread.join();
        }
    }
}

impl<T> State<T> {
    /// How many workers may be at work now.
    fn may_work(&self) -> usize {
        self.memory.workers(!self.returned.is_empty())
    }
}

impl<T: Task> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that holds the lock runs a codec, and a task is whole at every point.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a worker run a task.
    fn spawn_one(shared: &Arc<Self>, pool: &ThreadPool) {
        let shared = Arc::clone(shared);
        pool.spawn(move || shared.work());
    }

    /// Runs tasks until there are none, or too many workers. So not every task needs a token: while there are tasks, as many workers
    /// are at work as may be.
    fn work(&self) {
        let mut state = self.lock();
        if state.working >= state.may_work() {
            return;
        }
        state.working += 1;
        while state.working <= state.may_work() {
            drop(state);
            let is_done = self.run_one();
            state = self.lock();
            // Nothing comes between a last look and leaving.
            if !is_done && state.returned.is_empty() && state.queue.is_empty() {
                break;
            }
        }
        state.working -= 1;
        if !state.memory.is_for_workers_only() {
            self.turned.notify_all();
        }
    }

    /// Runs the oldest task; says whether there was one.
    fn run_one(&self) -> bool {
        let mut state = self.lock();
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
        let mut state = self.lock();
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

/// Runs tasks. A panic in a codec is a fault of ours, and must not leave its caller waiting for ever.
fn run<T: Task>(batch: &mut [T], engine: &dyn Engine) {
    if catch_unwind(AssertUnwindSafe(|| T::run(batch, engine))).is_err() {
        batch.iter_mut().for_each(Task::set_panicked);
    }
}

/// The most workers of which the calling thread is one. As long as it works it neither reads nor writes, so there must
/// be enough blocks in flight for the others to go on; with more workers than this there are not, and one thread too
/// many does little harm.
const MAX_WITH_HELP: usize = 4;

/// Threads for `workers` workers; `None` if the calling thread is to do the work.
pub(crate) fn thread_pool(workers: usize) -> Option<ThreadPool> {
    if workers < 2 { None } else { build_pool(workers) }
}

/// As many of `threads` threads as the system gives, or half, a quarter and so on of them.
fn build_pool(threads: usize) -> Option<ThreadPool> {
    let fewer = std::iter::successors(Some(threads), |threads| Some(threads / 2));
    fewer.take_while(|&threads| threads > 0).find_map(|threads| {
        // A thread that gets no memory for its signal stack aborts the process, so the memory for all is tried first.
        memmap2::MmapMut::map_anon(threads.saturating_mul(OF_THREAD)).ok()?;
        let name = |i| format!("pz worker {i}");
        ThreadPoolBuilder::new().num_threads(threads).thread_name(name).build().ok()
    })
}

/// Bytes of addresses that a thread takes: its stack, that for signals, and its share of the allocator's books.
const OF_THREAD: usize = (2 << 20) + (256 << 10);

#[cfg(test)]
#[path = "scheduler_tests.rs"]
mod tests;
