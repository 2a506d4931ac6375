//! The threads that bring blocks to a device.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rayon::ThreadPoolBuilder;

use super::compress::Encoders;
use super::core::{Core, DeviceMemoryOptions};
use super::lane::Lane;
use super::payload;
use crate::gpu::device::{Device, DeviceError};
use crate::sync::{Condvar, Mutex};

/// The threads of a device, which all archives share that are read into its memory, and those that compress.
pub(in crate::access) struct Workers {
    core: Arc<Core>,
    state: Mutex<State>,
    /// Wakes workers.
    queued: Condvar,
    /// Those who bring contents back, compressed.
    encoders: Arc<Encoders>,
}

#[derive(Default)]
struct State {
    /// Archives for whose blocks somebody waits.
    pending: VecDeque<Arc<dyn Requests>>,
    /// Workers that have batches which are not urgent.
    busy: usize,
    has_started: bool,
    is_closed: bool,
}

/// The blocks that are wanted of one archive.
pub(in crate::access) trait Requests: Send + Sync {
    /// Whether both are requests of the same archive.
    fn key(&self) -> usize;

    /// Whether no block is queued.
    fn is_empty(&self) -> bool;

    /// Takes the next batch; `None` if there is nothing to do, or nothing urgent. The result is to be run.
    fn take(&self, only_urgent: bool) -> Option<Taken>;
}

/// Work that each worker does once. None begins it before all have taken it.
struct OnEachLane {
    make: Arc<Make>,
    meeting: Arc<Barrier>,
    /// Where those workers that have not taken it tell how it went.
    outcomes: Mutex<Vec<mpsc::Sender<Result<(), DeviceError>>>>,
}

type Make = dyn Fn(&mut Lane<'_>) -> Result<(), DeviceError> + Send + Sync;

impl Requests for OnEachLane {
    fn key(&self) -> usize {
        Arc::as_ptr(&self.meeting).addr()
    }

    fn is_empty(&self) -> bool {
        self.outcomes.lock().is_empty()
    }

    fn take(&self, _: bool) -> Option<Taken> {
        let outcome = self.outcomes.lock().pop()?;
        let (make, meeting) = (Arc::clone(&self.make), Arc::clone(&self.meeting));
        let run: Box<Run> = Box::new(move |lane| {
            meeting.wait();
            let _ = outcome.send(make(lane));
            None
        });
        Some(Taken { is_urgent: true, run })
    }
}

/// A batch that a worker has taken.
pub(in crate::access) struct Taken {
    pub(in crate::access) is_urgent: bool,
    /// Brings its blocks to the device.
    pub(in crate::access) run: Box<Run>,
}

/// What a worker does next.
enum Next {
    /// This batch.
    Batch(Taken),
    /// There is nothing to begin, and a batch to end.
    Land,
    /// There has been nothing for a while.
    Idle,
    /// The device is closed.
    Closed,
}

/// Begins the work on a batch. What is returned, if more is to be done, ends it with the same lane.
pub(in crate::access) type Run = dyn FnOnce(&mut Lane<'_>) -> Option<Box<Land>> + Send;

/// Ends the work on a batch. Fails if the device can no longer be used.
pub(in crate::access) type Land = dyn FnOnce(&mut Lane<'_>) -> Result<(), DeviceError> + Send;

/// A batch that a worker has begun, and the number of its lane.
struct Begun {
    land: Box<Land>,
    lane: usize,
    is_urgent: bool,
}

/// How long a worker sleeps between two looks at what it waits for: each look is a call to the driver.
const NAP: Duration = Duration::from_micros(50);
/// The most time that a worker helps others. A batch that still has not ended takes unusually long: the worker then
/// only waits for it.
const PATIENCE: Duration = Duration::from_millis(100);

impl Workers {
    pub(super) fn new(device: Arc<dyn Device>, options: &DeviceMemoryOptions) -> Arc<Self> {
        let core = Core::new(device, options);
        let encoders = Encoders::new(&core);
        Arc::new(Self { core, state: Mutex::default(), queued: Condvar::new(), encoders })
    }

    /// The device.
    pub(in crate::access) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// The threads that compress.
    pub(super) fn encoders(&self) -> &Arc<Encoders> {
        &self.encoders
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Wakes workers for `requests`, which has new blocks: as many batches as they make.
    ///
    /// # Errors
    /// Fails if the device or its workers are gone.
    pub(in crate::access) fn notify(
        self: &Arc<Self>,
        requests: Arc<dyn Requests>,
        batches: usize,
    ) -> Result<(), DeviceError> {
        self.core.check_process()?;
        let mut state = self.lock();
        self.start(&mut state)?;
        if !state.pending.iter().any(|known| known.key() == requests.key()) {
            state.pending.push_back(requests);
        }
        drop(state);
        for _ in 0..batches.min(self.core.workers) {
            self.queued.notify_one();
        }
        Ok(())
    }

    /// Calls `make` once on a lane of each worker, and waits.
    ///
    /// # Errors
    /// An error of `make`, or that of [`Self::notify`].
    pub(in crate::access) fn on_each_lane(
        self: &Arc<Self>,
        make: impl Fn(&mut Lane<'_>) -> Result<(), DeviceError> + Send + Sync + 'static,
    ) -> Result<(), DeviceError> {
        let (sender, outcomes) = mpsc::channel();
        let workers = self.core.workers;
        let each = OnEachLane {
            make: Arc::new(make),
            meeting: Arc::new(Barrier::new(workers)),
            outcomes: Mutex::new(vec![sender; workers]),
        };
        self.notify(Arc::new(each), workers)?;
        // Ends when all workers have dropped their sender.
        outcomes.iter().collect()
    }

    fn start(self: &Arc<Self>, state: &mut State) -> Result<(), DeviceError> {
        self.core.check()?;
        if state.has_started {
            return Ok(());
        }
        let name = |number| format!("pz device {number}");
        // Those who wait for a worker that panics are told so, and the others go on.
        let threads = ThreadPoolBuilder::new().num_threads(self.core.workers).thread_name(name);
        let threads = threads.panic_handler(drop).build();
        let threads =
            threads.map_err(|error| DeviceError::Failed(format!("no thread: {error}")))?;
        let workers = Arc::clone(self);
        // The threads end with this, when the device is closed.
        threads.spawn_broadcast(move |_| workers.work());
        state.has_started = true;
        Ok(())
    }

    /// Ends the workers. One that waits for a server ends when that answers.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        // These refer to the device. Nobody waits for their blocks any more.
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        drop(pending);
        self.queued.notify_all();
        self.encoders.close();
    }

    /// Brings blocks to the device until it is closed.
    fn work(&self) {
        self.core.device.stay_on_thread();
        let mut lanes: Vec<_> = (0..self.core.depth).map(|_| Lane::new(&self.core)).collect();
        let mut begun: Option<Begun> = None;
        let mut lane = 0;
        let mut is_busy = false;
        loop {
            let is_empty = lanes.iter().all(Lane::is_empty);
            match self.next(is_empty, begun.is_some(), &mut is_busy) {
                Next::Batch(taken) => {
                    lane = (lane + 1) % lanes.len();
                    if begun.as_ref().is_some_and(|begun| begun.lane == lane) {
                        self.land(&mut lanes, &mut begun);
                    }
                    let is_urgent = taken.is_urgent;
                    // A source may be a caller's own code.
                    let run = catch_unwind(AssertUnwindSafe(|| (taken.run)(&mut lanes[lane])));
                    self.land(&mut lanes, &mut begun);
                    let land = self.checked(run.map(Ok), &mut lanes[lane]).flatten();
                    begun = land.map(|land| Begun { land, lane, is_urgent });
                }
                Next::Land => self.land(&mut lanes, &mut begun),
                Next::Idle => {
                    self.core.kept.clear();
                    lanes.iter_mut().for_each(Lane::release_all);
                }
                Next::Closed => return self.land(&mut lanes, &mut begun),
            }
            if is_busy && begun.as_ref().is_none_or(|begun| begun.is_urgent) {
                is_busy = false;
                self.lock().busy -= 1;
                // Another worker may have left blocks because this one was busy.
                self.queued.notify_one();
            }
        }
    }

    /// Ends a batch that was begun.
    fn land(&self, lanes: &mut [Lane<'_>], begun: &mut Option<Begun>) {
        let Some(Begun { land, lane, .. }) = begun.take() else { return };
        help_until(|| lanes[lane].has_ended());
        let landed = catch_unwind(AssertUnwindSafe(|| land(&mut lanes[lane])));
        let _ = self.checked(landed, &mut lanes[lane]);
    }

    /// The result of work on a lane, if it went well. Otherwise notes that the device has failed, or empties the lane.
    fn checked<T>(
        &self,
        done: thread::Result<Result<T, DeviceError>>,
        lane: &mut Lane<'_>,
    ) -> Option<T> {
        match done {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => self.core.fail(error),
            Err(_) => lane.settle(),
        }
        None
    }

    /// Waits for a batch, unless one `has_begun`. One worker only does what is urgent, so that it never waits for a
    /// slow source. `is_busy` tells whether this worker has a batch that is not urgent.
    fn next(&self, is_lane_empty: bool, has_begun: bool, is_busy: &mut bool) -> Next {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return Next::Closed;
            }
            let others = state.busy - usize::from(*is_busy);
            let workers = self.core.workers;
            let only_urgent = workers > 1 && others + 1 >= workers;
            state.pending.retain(|requests| !requests.is_empty());
            let found = state
                .pending
                .iter()
                .enumerate()
                .find_map(|(at, requests)| Some((at, requests.take(only_urgent)?)));
            if let Some((at, taken)) = found {
                // The next batch is another archive's.
                let last = state.pending.remove(at);
                state.pending.extend(last);
                if !taken.is_urgent && !std::mem::replace(is_busy, true) {
                    state.busy += 1;
                }
                return Next::Batch(taken);
            }
            if has_begun {
                return Next::Land;
            }
            // There is nothing that it could give back, or would be able to make again.
            if is_lane_empty || self.core.options.only_prepared {
                state = self.queued.wait(state);
                continue;
            }
            let (woken, has_timed_out) = self.queued.wait_timeout(state, self.core.options.idle);
            if has_timed_out {
                return Next::Idle;
            }
            state = woken;
        }
    }
}

/// Helps other workers until something `is_done`. Gives up after a while: then it does not end soon.
fn help_until(mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() && begun.elapsed() < PATIENCE {
        if !payload::help() {
            thread::sleep(NAP);
        }
    }
}
