//! Reads that nobody waits for: whoever began one is told when it has ended.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::ArchiveError;
use super::ticket::{Priority, Recipient};
use super::to_device::{of_blocks, waiters, wanted};
use super::{Archive, Shared, Wanted};
use crate::access::device::{Core, DeviceSliceMut, SlicePlace};

/// What is called when nothing writes to the destination of a read any more.
pub(crate) type Done = Box<dyn FnOnce(Result<(), ArchiveError>) + Send>;

/// A range of the contents, the part of a device's buffer that it goes to, and what to call at the end, from any thread. The
/// caller keeps the buffer until then.
pub(crate) struct BackgroundRead<'a> {
    pub(crate) range: Range<u64>,
    pub(crate) destination: DeviceSliceMut<'a>,
    pub(crate) done: Done,
}

impl Archive {
    /// Begins reads, and returns. The first error of a read goes to its `done`.
    pub(crate) fn read_in_background(&self, reads: Vec<BackgroundRead<'_>>) {
        let mut of_devices: Vec<(Arc<Core>, Vec<Begun>)> = Vec::new();
        for BackgroundRead { range, destination, done } in reads {
            match self.shared.checked(&range, &destination) {
                Err(error) => done(Err(error)),
                Ok((_, wanted)) if wanted.is_empty() => done(Ok(())),
                Ok((core, wanted)) => {
                    let begun = Begun { wanted, done };
                    match of_devices.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &core)) {
                        Some((_, all)) => all.push(begun),
                        None => of_devices.push((core, vec![begun])),
                    }
                }
            }
        }
        for (core, reads) in of_devices {
            self.shared.queue_reads(&core, reads);
        }
    }
}

/// A read that has been checked.
struct Begun {
    wanted: Vec<Wanted>,
    done: Done,
}

impl Shared {
    fn checked(
        &self,
        range: &Range<u64>,
        destination: &DeviceSliceMut<'_>,
    ) -> Result<(Arc<Core>, Vec<Wanted>), ArchiveError> {
        self.layout.check(range)?;
        let (len, found) = (range.end - range.start, destination.len());
        if len != found {
            return Err(ArchiveError::DestinationLength { wanted: len, found });
        }
        let SlicePlace::Device { memory, buffer, start } = &destination.place else {
            return Err(self.internal("a background read into host memory"));
        };
        let core = memory.core().ok_or_else(|| self.internal("a device without workers"))?;
        let placements = self.layout.placements(range.clone(), 0);
        let wants = placements.map(|placement| wanted(placement, buffer, *start));
        Ok((Arc::clone(core), wants.collect()))
    }

    fn queue_reads(self: &Arc<Self>, core: &Arc<Core>, reads: Vec<Begun>) {
        let mut all = Vec::new();
        let mut completions = Vec::with_capacity(reads.len());
        for Begun { wanted, done } in reads {
            let wanted = of_blocks(wanted);
            let completion = Arc::new(Completion::new(wanted.len(), done));
            let recipient: Arc<dyn Recipient> = Arc::clone(&completion) as _;
            completions.push(completion);
            all.extend(waiters(wanted, &recipient));
        }
        if let Err(error) = self.queue_on(core, all, Priority::Normal) {
            for completion in completions {
                completion.abandon(&error);
            }
        }
    }
}

/// What is told of the blocks of a background read.
struct Completion(Mutex<State>);

struct State {
    missing: usize,
    /// Blocks that are being written to the destination.
    writing: usize,
    /// The first error.
    outcome: Result<(), ArchiveError>,
    is_abandoned: bool,
    done: Option<Done>,
}

impl Completion {
    /// Calls `done` after so many blocks.
    fn new(blocks: usize, done: Done) -> Self {
        let done = Some(done);
        let (writing, outcome, is_abandoned) = (0, Ok(()), false);
        Self(Mutex::new(State { missing: blocks, writing, outcome, is_abandoned, done }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the read with an error, once nothing writes to the destination any more.
    fn abandon(&self, error: &ArchiveError) {
        let mut state = self.lock();
        state.is_abandoned = true;
        if state.outcome.is_ok() {
            state.outcome = Err(error.clone());
        }
        Self::settle(state);
    }

    /// Calls `done` if the read has ended.
    fn settle(mut state: MutexGuard<'_, State>) {
        if state.writing > 0 || (state.missing > 0 && !state.is_abandoned) {
            return;
        }
        let (done, outcome) = (state.done.take(), state.outcome.clone());
        drop(state);
        if let Some(done) = done {
            done(outcome);
        }
    }
}

impl Recipient for Completion {
    fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned
    }

    fn begin_writing(&self) -> bool {
        let mut state = self.lock();
        let may_write = !state.is_abandoned;
        state.writing += usize::from(may_write);
        may_write
    }

    fn end_writing(&self) {
        let mut state = self.lock();
        state.writing -= 1;
        Self::settle(state);
    }

    fn deliver(&self, _: usize, outcome: Result<(), ArchiveError>) {
        let mut state = self.lock();
        // Each block is delivered once.
        state.missing = state.missing.saturating_sub(1);
        if state.outcome.is_ok() {
            // After an error the other blocks are of no use.
            state.is_abandoned |= outcome.is_err();
            state.outcome = outcome;
        }
        Self::settle(state);
    }
}
