//! Blocks in, workers, blocks out in order; everything bounded.
//!
//! The thread that owns a [`Scheduler`] reads and writes; workers take tasks from one queue. Whoever submits keeps
//! the number of tasks in flight under its share, which bounds the queue, the finished tasks that wait for their turn,
//! and so the memory.
//!
//! Workers are rayon's. Each submitted task comes with a token on rayon's own queue; a worker that gets a token takes
//! the oldest task, and then others as long as there are any. So the threads of a device, which take tasks in batches, share
//! the queue with them: the tokens of the tasks that these took find nothing to do. As long as a device is at work, its
//! threads have cores of their own: fewer workers work. How many a device takes is decided by
//! [`shares`](super::batch_sizing). A device is opened and prepared while workers are at work already; what it leaves undone
//! comes back, for workers only.
//!
//! A device takes memory of the host: for its driver, for what is copied, for the blocks of its batches. Where it is decided later
//! whether there is one, workers have all of the memory until then. Before the device is looked for, some of them stop and blocks
//! that are not needed are given back; when it does nothing any more, it is the other way round ([`Room`]).

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
use super::memory::Share;

/// A block on its way, with the memory that it needs.
pub(crate) trait Task: Send + Sized + 'static {
    /// Runs a batch on `engine`.
    fn run(batch: &mut [Self], engine: &dyn Engine);

    /// Whether an engine has done its part.
    fn is_coded(&self) -> bool;

    /// Whether nothing is left to be done.
    fn is_done(&self) -> bool;

    /// Bytes of its contents.
    fn bytes(&self) -> u64;

    /// How much of the time that [`Task::run`] took went into writing.
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
    /// The most tasks in flight while workers have all of the memory, if that is for a time only.
    alone: Option<usize>,
    /// The most tasks in flight beside a device that is not at work: memory that is new is slow.
    narrow: usize,
    /// What runs at once after a device.
    afterwards: Share,
    /// Whether it was made for a device too.
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
    /// Wakes the thread that decides whether a device is opened. Not for each task: that would hold up the owner.
    turned: Condvar,
    /// Workers that are not the owner, and how many of them there is memory for beside a device.
    workers: usize,
    beside: usize,
    /// The most tasks in flight.
    window: usize,
}

struct State<T> {
    queue: VecDeque<(u64, T)>,
    /// Tasks that a device has left undone, before all others.
    left: VecDeque<(u64, T)>,
    done: BTreeMap<u64, T>,
    /// Workers at work that are not the owner, and how many may be.
    working: usize,
    most_working: usize,
    /// How many may be beside a device that is slow; as many for what a device has left, which is only to be written mostly.
    most_beside: usize,
    /// Threads of a device, and tasks and batches that they have.
    device_threads: usize,
    on_device: usize,
    batches: usize,
    rates: EngineRates,
    /// Blocks that workers have done.
    finished: u64,
    room: Room,
    /// Whether the owner can go on only when something is finished.
    is_awaited: bool,
    /// Whether nothing more will be submitted.
    is_ended: bool,
    is_closed: bool,
    /// Whether the device is at work, or has been.
    is_served: bool,
}

/// Whether there is memory of the host for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Room {
    /// Workers and their blocks have all.
    Taken,
    /// The device's thread waits for workers to stop, and for the owner to have no more blocks than there may be.
    Awaited,
    Made,
    /// The device does nothing any more. Workers wait for the owner to have no more blocks than there may be beside them.
    Returning,
    Returned,
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
        let helps = share.workers <= MOST_WITH_HELP && accelerator.is_none();
        let alone = accelerator.and_then(|accelerator| accelerator.alone);
        let afterwards = accelerator.map_or(share, |accelerator| accelerator.afterwards);
        let workers = alone.map_or(afterwards.workers, |alone| alone.workers).max(share.workers);
        let pool = if workers < 2 { None } else { build_pool(workers - usize::from(helps)) };
        let state = State {
            queue: VecDeque::new(),
            left: VecDeque::new(),
            done: BTreeMap::new(),
            working: 0,
            most_working: if alone.is_some() { workers } else { share.workers },
            most_beside: 0,
            device_threads: 0,
            on_device: 0,
            batches: 0,
            rates: EngineRates::default(),
            finished: 0,
            room: if alone.is_some() { Room::Taken } else { Room::Made },
            is_awaited: false,
            is_ended: false,
            is_closed: false,
            is_served: false,
        };
        let shared = Arc::new(Shared {
            engine,
            state: Mutex::new(state),
            finished: Condvar::new(),
            queued: Condvar::new(),
            turned: Condvar::new(),
            workers: pool.as_ref().map_or(0, ThreadPool::current_num_threads),
            beside: share.workers,
            window: share.in_flight,
        });
        let of_device = accelerator.map_or(0, |accelerator| accelerator.host_blocks as usize);
        let narrow = share.in_flight.saturating_sub(of_device).max(1);
        let pool = pool.map(Arc::new);
        let device = accelerator
            .and_then(|accelerator| Shared::start(&shared, accelerator.clone(), pool.clone()));
        if device.is_none() && alone.is_none() {
            let mut state = shared.lock();
            (state.room, state.most_working) = (Room::Returned, afterwards.workers);
        }
        let alone = alone.map(|alone| alone.in_flight);
        let has_device = accelerator.is_some();
        let (submitted, taken) = (0, 0);
        Self {
            shared,
            pool,
            helps,
            alone,
            narrow,
            afterwards,
            has_device,
            device,
            submitted,
            taken,
        }
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
        match state.room {
            Room::Taken => self.alone.unwrap_or(most),
            Room::Made if state.device_threads > 0 => most,
            Room::Awaited | Room::Made => most.min(self.narrow),
            Room::Returning | Room::Returned => self.afterwards.in_flight,
        }
    }

    /// The most blocks that the owner may have from now on, with those that are idle, if a device waits for it to have no more, or
    /// workers after a device do.
    pub(crate) fn awaited_room(&self) -> Option<usize> {
        self.device.as_ref()?;
        match self.shared.lock().room {
            Room::Awaited => Some(self.narrow),
            Room::Returning => Some(self.afterwards.in_flight),
            Room::Taken | Room::Made | Room::Returned => None,
        }
    }

    /// Says that the owner has no more than [`Self::awaited_room`].
    pub(crate) fn make_room(&self) {
        let mut state = self.shared.lock();
        if state.room == Room::Returning {
            (state.room, state.most_working) = (Room::Returned, self.afterwards.workers);
            let waiting = state.queue.len().min(self.afterwards.workers);
            drop(state);
            if let Some(pool) = &self.pool {
                (0..waiting).for_each(|_| Shared::spawn_one(&self.shared, pool));
            }
        } else {
            state.room = Room::Made;
            drop(state);
            self.shared.turned.notify_all();
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

    /// Whether the owner works instead of waiting: as one of the workers, or where there are none and a device is not
    /// there yet, or no more, or came late, or has left something.
    fn is_to_work(&self, state: &State<T>) -> bool {
        let left = !state.left.is_empty();
        let queued = !state.queue.is_empty();
        let alone = self.pool.is_none();
        let is_worker = state.device_threads == 0 || state.rates.knows_worker();
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
        state.left.clear();
        state.is_closed = true;
        let is_served = state.is_served;
        drop(state);
        self.shared.queued.notify_all();
        self.shared.turned.notify_all();
        // A thread that has still to wait for the device ends after that.
        if let Some(thread) = self.device.take().filter(|_| is_served) {
            // It has caught what it could; what it was to do is not needed.
            let _ = thread.join();
        }
    }
}

impl<T> State<T> {
    /// How many workers may be at work now.
    fn may_work(&self) -> usize {
        let of_left = if self.left.is_empty() { 0 } else { self.most_beside };
        self.most_working.max(of_left)
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

    /// Runs tasks until there are none, or workers are too many. So there need not be a token for each task: as long as there
    /// are tasks, as many workers as may are at work.
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
            if !is_done && state.left.is_empty() && state.queue.is_empty() {
                break;
            }
        }
        state.working -= 1;
        if state.room != Room::Taken && self.beside < self.workers {
            self.turned.notify_all();
        }
    }

    /// Runs the oldest task; says whether there was one.
    fn run_one(&self) -> bool {
        let mut state = self.lock();
        let State { queue, left, .. } = &mut *state;
        let of_device = left.pop_front();
        let is_left = of_device.is_some();
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
            if !is_left {
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
#[path = "scheduler_tests.rs"]
mod tests;
