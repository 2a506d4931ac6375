//! The threads that decode blocks on a device.

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

/// The threads of a device: those that decode for all archives, and those that compress.
pub(in crate::access) struct Workers {
    pub(in crate::access) core: Arc<DeviceCore>,
    state: Mutex<WorkersState>,
    /// Wakes workers.
    queued: Condvar,
    /// The threads that compress.
    pub(super) encoders: Arc<Encoders>,
}

#[derive(Default)]
struct WorkersState {
    /// Archives with queued blocks, in turn.
    pending: VecDeque<Arc<dyn Requests>>,
    /// Workers that have a batch which is not urgent.
    busy: usize,
    has_started: bool,
    is_closed: bool,
}

/// The queued blocks of one archive.
pub(in crate::access) trait Requests: Send + Sync {
    /// Equal for requests of the same archive.
    fn key(&self) -> usize;

    /// Whether no block is queued.
    fn is_empty(&self) -> bool;

    /// Takes the next batch, if there is one; with `only_urgent`, an urgent one. The caller must run it.
    fn take(&self, only_urgent: bool) -> Option<TakenBatch>;
}

/// Work that each worker does once. No worker begins before all have taken it.
struct OnEachSlot {
    make: Arc<OnSlot>,
    meeting: Arc<Barrier>,
    /// For each worker that has not taken it, where it sends the result.
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
    /// Begins the batch.
    pub(in crate::access) run: Box<BeginBatch>,
}

/// What a worker does next.
enum NextStep {
    /// This batch.
    Batch(TakenBatch),
    /// Complete the batch that was begun, since there is none to begin.
    CompleteBatch,
    /// Free memory: there was nothing to do for a while.
    Idle,
    /// End: the device is closed.
    Closed,
}

/// Begins a batch on a slot. Returns what completes it on the same slot, if anything is left to do.
pub(in crate::access) type BeginBatch =
    dyn FnOnce(&mut DecoderSlot<'_>) -> Option<Box<CompleteBatch>> + Send;

/// Completes a batch. Fails if the device can no longer be used.
pub(in crate::access) type CompleteBatch =
    dyn FnOnce(&mut DecoderSlot<'_>) -> Result<(), DeviceError> + Send;

/// A batch that a worker has begun, and the number of its slot.
struct BegunBatch {
    complete: Box<CompleteBatch>,
    slot: usize,
    is_urgent: bool,
}

/// How long a waiting worker sleeps before it asks the driver again.
const NAP: Duration = Duration::from_micros(50);
/// The most time for which a worker helps others while it waits for its own batch. After that, it only waits.
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

    /// Wakes up to `batches` workers for the new blocks of `requests`.
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

    /// Calls `make` once on a slot of each worker, and waits for all calls.
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
        // The iterator ends when all workers have dropped their senders.
        outcomes.iter().collect()
    }

    fn start(self: &Arc<Self>, state: &mut WorkersState) -> Result<(), DeviceError> {
        self.core.check()?;
        if state.has_started {
            return Ok(());
        }
        let name = |number| format!("pz device {number}");
        // If a worker panics, its waiters get an error and the other workers go on.
        let threads = ThreadPoolBuilder::new().num_threads(self.core.workers).thread_name(name);
        let threads = threads.panic_handler(drop).build();
        let threads =
            threads.map_err(|error| DeviceError::Failed(format!("no thread: {error}")))?;
        let workers = Arc::clone(self);
        // The threads end when this returns, after the device is closed.
        threads.spawn_broadcast(move |_| workers.work());
        state.has_started = true;
        Ok(())
    }

    /// Ends the workers. One that waits for a server ends when the server answers.
    pub(super) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        // Requests refer to the device, so drop them. Nobody waits for their blocks any more.
        let pending = std::mem::take(&mut state.pending);
        drop(state);
        drop(pending);
        self.queued.notify_all();
        self.encoders.close();
    }

    /// Runs batches until the device is closed.
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
                    // A source may be the caller's code and panic.
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
                // Another worker may have left blocks while this one was busy.
                self.queued.notify_one();
            }
        }
    }

    /// Completes the batch that was begun, if there is one.
    fn complete(&self, slots: &mut [DecoderSlot<'_>], begun: &mut Option<BegunBatch>) {
        let Some(BegunBatch { complete, slot, .. }) = begun.take() else { return };
        help_until(|| slots[slot].has_ended());
        let completed = catch_unwind(AssertUnwindSafe(|| complete(&mut slots[slot])));
        let _ = self.checked(completed, &mut slots[slot]);
    }

    /// Returns the result of work on a slot. After an error, records that the device has failed; after a panic, empties
    /// the slot.
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

    /// Returns the worker's next step. Waits for a batch unless one `has_begun`. The last worker that is not busy takes
    /// only urgent batches, so these never wait for a slow source. `is_busy` is set while this worker has a batch that
    /// is not urgent.
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
                // Archives take turns.
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
            // The worker has no memory to free, or could not make it again.
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

/// Helps other workers until `is_done`, but not for ever.
fn help_until(mut is_done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_done() && begun.elapsed() < PATIENCE {
        if !payload::help() {
            thread::sleep(NAP);
        }
    }
}
