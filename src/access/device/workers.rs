//! The threads that bring blocks to a device.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Barrier, MutexGuard, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rayon::ThreadPoolBuilder;

use super::compress::Encoders;
use super::core::{DeviceCore, DeviceMemoryOptions};
use super::decoder_slot::DecoderSlot;
use super::payload;
use crate::gpu::device::{Device, DeviceError};
use crate::sync::{Condvar, Mutex};

/// The threads of a device, which all archives share that are read into its memory, and those that compress.
pub(in crate::access) struct Workers {
    pub(in crate::access) core: Arc<DeviceCore>,
    state: Mutex<WorkersState>,
    /// Wakes workers.
    queued: Condvar,
    /// Those who bring contents back, compressed.
    pub(super) encoders: Arc<Encoders>,
}

#[derive(Default)]
struct WorkersState {
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
    fn take(&self, only_urgent: bool) -> Option<TakenBatch>;
}

/// Work that each worker does once. None begins it before all have taken it.
struct OnEachSlot {
    make: Arc<OnSlot>,
    meeting: Arc<Barrier>,
    /// Where those workers that have not taken it tell how it went.
    outcomes: Mutex<Vec<mpsc::Sender<Result<(), DeviceError>>>>,
}

type OnSlot = dyn Fn(&mut DecoderSlot<'_>) -> Result<(), DeviceError> + Send + Sync;

impl Requests for OnEachSlot {
    fn key(&self) -> usize {
        Arc::as_ptr(&self.meeting).addr()
    }

    fn is_empty(&self) -> bool {
        self.outcomes.lock().is_empty()
    }

    fn take(&self, _: bool) -> Option<TakenBatch> {
        let outcome = self.outcomes.lock().pop()?;
        let (make, meeting) = (Arc::clone(&self.make), Arc::clone(&self.meeting));
        let run: Box<BeginBatch> = Box::new(move |slot| {
            meeting.wait();
            let _ = outcome.send(make(slot));
            None
        });
        Some(TakenBatch { is_urgent: true, run })
    }
}

/// A batch that a worker has taken.
pub(in crate::access) struct TakenBatch {
    pub(in crate::access) is_urgent: bool,
    /// Brings its blocks to the device.
    pub(in crate::access) run: Box<BeginBatch>,
}

/// What a worker does next.
enum NextStep {
    /// This batch.
    Batch(TakenBatch),
    /// There is nothing to begin, and a batch to end.
    CompleteBatch,
    /// There has been nothing for a while.
    Idle,
    /// The device is closed.
    Closed,
}

/// Begins the work on a batch. What is returned, if more is to be done, ends it with the same slot.
pub(in crate::access) type BeginBatch =
    dyn FnOnce(&mut DecoderSlot<'_>) -> Option<Box<CompleteBatch>> + Send;

/// Ends the work on a batch. Fails if the device can no longer be used.
pub(in crate::access) type CompleteBatch =
    dyn FnOnce(&mut DecoderSlot<'_>) -> Result<(), DeviceError> + Send;

/// A batch that a worker has begun, and the number of its slot.
struct BegunBatch {
    complete: Box<CompleteBatch>,
    slot: usize,
    is_urgent: bool,
}

/// How long a worker sleeps between two looks at what it waits for: each look is a call to the driver.
const NAP: Duration = Duration::from_micros(50);
/// The most time that a worker helps others. A batch that still has not ended takes unusually long: the worker then
/// only waits for it.
const PATIENCE: Duration = Duration::from_millis(100);

impl Workers {
    pub(super) fn new(device: Arc<dyn Device>, options: &DeviceMemoryOptions) -> Arc<Self> {
        let core = DeviceCore::new(device, options);
        let encoders = Encoders::new(&core);
        Arc::new(Self { core, state: Mutex::default(), queued: Condvar::new(), encoders })
    }

    fn lock(&self) -> MutexGuard<'_, WorkersState> {
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

    /// Calls `make` once on a slot of each worker, and waits.
    ///
    /// # Errors
    /// An error of `make`, or that of [`Self::notify`].
    pub(in crate::access) fn on_each_slot(
        self: &Arc<Self>,
        make: impl Fn(&mut DecoderSlot<'_>) -> Result<(), DeviceError> + Send + Sync + 'static,
    ) -> Result<(), DeviceError> {
        let (sender, outcomes) = mpsc::channel();
        let workers = self.core.workers;
        let each = OnEachSlot {
            make: Arc::new(make),
            meeting: Arc::new(Barrier::new(workers)),
            outcomes: Mutex::new(vec![sender; workers]),
        };
        self.notify(Arc::new(each), workers)?;
        // Ends when all workers have dropped their sender.
        outcomes.iter().collect()
    }

    fn start(self: &Arc<Self>, state: &mut WorkersState) -> Result<(), DeviceError> {
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
        let mut slots: Vec<_> =
            (0..self.core.depth).map(|_| DecoderSlot::new(&self.core)).collect();
        let mut begun: Option<BegunBatch> = None;
        let mut slot = 0;
        let mut is_busy = false;
        loop {
            let is_empty = slots.iter().all(DecoderSlot::is_empty);
            match self.next(is_empty, begun.is_some(), &mut is_busy) {
                NextStep::Batch(taken) => {
                    slot = (slot + 1) % slots.len();
                    if begun.as_ref().is_some_and(|begun| begun.slot == slot) {
                        self.complete(&mut slots, &mut begun);
                    }
                    let is_urgent = taken.is_urgent;
                    // A source may be a caller's own code.
                    let run = catch_unwind(AssertUnwindSafe(|| (taken.run)(&mut slots[slot])));
                    self.complete(&mut slots, &mut begun);
                    let complete = self.checked(run.map(Ok), &mut slots[slot]).flatten();
                    begun = complete.map(|complete| BegunBatch { complete, slot, is_urgent });
                }
                NextStep::CompleteBatch => self.complete(&mut slots, &mut begun),
                NextStep::Idle => {
                    self.core.kept.clear();
                    slots.iter_mut().for_each(DecoderSlot::release_all);
                }
                NextStep::Closed => return self.complete(&mut slots, &mut begun),
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
    fn complete(&self, slots: &mut [DecoderSlot<'_>], begun: &mut Option<BegunBatch>) {
        let Some(BegunBatch { complete, slot, .. }) = begun.take() else { return };
        help_until(|| slots[slot].has_ended());
        let completed = catch_unwind(AssertUnwindSafe(|| complete(&mut slots[slot])));
        let _ = self.checked(completed, &mut slots[slot]);
    }

    /// The result of work on a slot, if it went well. Otherwise notes that the device has failed, or empties the slot.
    fn checked<T>(
        &self,
        done: thread::Result<Result<T, DeviceError>>,
        slot: &mut DecoderSlot<'_>,
    ) -> Option<T> {
        match done {
            Ok(Ok(value)) => return Some(value),
            Ok(Err(error)) => self.core.fail(error),
            Err(_) => slot.settle(),
        }
        None
    }

    /// Waits for a batch, unless one `has_begun`. One worker only does what is urgent, so that it never waits for a
    /// slow source. `is_busy` tells whether this worker has a batch that is not urgent.
    fn next(&self, is_slot_empty: bool, has_begun: bool, is_busy: &mut bool) -> NextStep {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return NextStep::Closed;
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
                return NextStep::Batch(taken);
            }
            if has_begun {
                return NextStep::CompleteBatch;
            }
            // There is nothing that it could give back, or would be able to make again.
            if is_slot_empty || self.core.options.only_prepared {
                state = self.queued.wait(state);
                continue;
            }
            let (woken, has_timed_out) = self.queued.wait_timeout(state, self.core.options.idle);
            if has_timed_out {
                return NextStep::Idle;
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
