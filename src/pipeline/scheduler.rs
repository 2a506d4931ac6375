//! Blocks in, workers, blocks out in order; everything bounded.
//!
//! The thread that owns a [`Scheduler`] reads and writes; workers take tasks from one queue. Whoever submits keeps
//! the number of tasks in flight under its share, which bounds the queue, the finished tasks that wait for their turn,
//! and so the memory.
//!
//! Workers are rayon's. Each submitted task comes with a token on rayon's own queue; a worker that gets a token takes
//! the oldest task, if one is left. So an engine with a thread of its own (one that wants batches) can take tasks from
//! the same queue: the tokens of the tasks that it took find nothing to do.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rayon::{ThreadPool, ThreadPoolBuilder};

use super::engine::Engine;
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
    submitted: u64,
    taken: u64,
}

struct Shared<T> {
    engine: Arc<dyn Engine>,
    state: Mutex<State<T>>,
    finished: Condvar,
}

struct State<T> {
    queue: VecDeque<(u64, T)>,
    done: BTreeMap<u64, T>,
}

impl<T: Task> Scheduler<T> {
    /// A scheduler with `workers` workers, of which the calling thread is one if they are few; with one, or if the
    /// system refuses threads, everything runs in the calling thread.
    pub(crate) fn new(engine: Arc<dyn Engine>, workers: usize) -> Self {
        let state = State { queue: VecDeque::new(), done: BTreeMap::new() };
        let shared = Shared { engine, state: Mutex::new(state), finished: Condvar::new() };
        let helps = workers <= MOST_WITH_HELP;
        let pool = if workers < 2 { None } else { build_pool(workers - usize::from(helps)) };
        Self { shared: Arc::new(shared), pool, helps, submitted: 0, taken: 0 }
    }

    /// Workers, with the calling thread if it is one.
    fn workers(&self) -> usize {
        let threads = self.pool.as_ref().map_or(0, ThreadPool::current_num_threads);
        threads + usize::from(self.helps || threads == 0)
    }

    /// Prepares for work of another kind, with nothing in flight: the scheduler in `slot` is kept if it has workers
    /// enough, because threads are not made for nothing; then `share` is narrowed so that no more of them work at
    /// once than it permits.
    pub(crate) fn adapt(slot: &mut Option<Self>, share: &mut Share) {
        let workers = slot.as_ref().map_or(0, |scheduler| {
            scheduler.shared.engine.release();
            scheduler.workers()
        });
        if workers < share.workers {
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
        match &self.pool {
            None => {
                run(&mut task, &*self.shared.engine);
                self.shared.lock().done.insert(number, task);
            }
            Some(pool) => {
                self.shared.lock().queue.push_back((number, task));
                let shared = Arc::clone(&self.shared);
                pool.spawn(move || shared.run_one());
            }
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
                self.taken += 1;
                return Some(task);
            }
            if self.helps && !state.queue.is_empty() {
                drop(state);
                self.shared.run_one();
                state = self.shared.lock();
                continue;
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
        self.shared.lock().queue.clear();
    }
}

impl<T: Task> Shared<T> {
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Nothing that holds the lock runs a codec, and a task is whole at every point.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run_one(&self) {
        let Some((number, mut task)) = self.lock().queue.pop_front() else { return };
        run(&mut task, &*self.engine);
        self.lock().done.insert(number, task);
        self.finished.notify_one();
    }
}

/// Runs one task. A panic in a codec is a fault of ours, and must not leave its caller waiting for ever.
fn run<T: Task>(task: &mut T, engine: &dyn Engine) {
    let batch = std::slice::from_mut(task);
    if catch_unwind(AssertUnwindSafe(|| T::run(batch, engine))).is_err() {
        task.set_panicked();
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

    #[test]
    fn dropping_with_tasks_in_flight_does_not_hang() {
        let mut scheduler = Scheduler::new(Arc::new(CpuEngine::new()), 2);
        for value in 20..60 {
            scheduler.submit(Number { value, panicked: false });
        }
        drop(scheduler);
    }
}
