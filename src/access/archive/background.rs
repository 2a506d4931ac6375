//! Reads that nobody waits for: whoever began one is told when it has ended.

use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use super::error::ArchiveError;
use super::layout::BlockId;
use super::ticket::{Priority, Recipient};
use super::to_device::{of_blocks, waiters, wanted};
use super::{Archive, Shared};
use crate::access::device::{Core, DeviceMemory, DeviceSliceMut, SlicePlace, Want};
use crate::sync::Mutex;

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
    /// Begins reads into buffers of `memory`, and returns. The first error of a read goes to its `done`.
    pub(crate) fn read_in_background(&self, memory: &DeviceMemory, reads: Vec<BackgroundRead<'_>>) {
        let Some(core) = memory.core() else {
            let host = || Err(self.shared.internal("a background read into host memory"));
            return reads.into_iter().for_each(|read| (read.done)(host()));
        };
        let mut all = Vec::new();
        let mut completions = Vec::with_capacity(reads.len());
        for BackgroundRead { range, destination, done } in reads {
            match self.shared.checked(core, &range, &destination) {
                Err(error) => done(Err(error)),
                Ok(wanted) if wanted.is_empty() => done(Ok(())),
                Ok(wanted) => {
                    let completion = Arc::new(Completion::new(wanted.len(), done));
                    let recipient: Arc<dyn Recipient> = Arc::clone(&completion) as _;
                    completions.push(completion);
                    all.extend(waiters(wanted, &recipient));
                }
            }
        }
        if let Err(error) = self.shared.queue_on(core, all, Priority::Normal) {
            for completion in completions {
                completion.fail(error.clone());
            }
        }
    }
}

impl Shared {
    /// What a background read wants of each block.
    fn checked(
        &self,
        core: &Arc<Core>,
        range: &Range<u64>,
        destination: &DeviceSliceMut<'_>,
    ) -> Result<Vec<(BlockId, Vec<Want>)>, ArchiveError> {
        self.check_read(range, destination.len())?;
        match &destination.place {
            SlicePlace::Device { memory, buffer, start }
                if memory.core().is_some_and(|own| Arc::ptr_eq(own, core)) =>
            {
                let placements = self.layout.placements(range.clone(), 0);
                Ok(of_blocks(
                    placements.map(|placement| wanted(placement, buffer, *start)).collect(),
                ))
            }
            _ => Err(self.internal("a background read into other memory")),
        }
    }
}

/// What is told of the blocks of a background read.
struct Completion(Mutex<State>);

struct State {
    missing: usize,
    /// Blocks that are being written to the destination.
    writing: usize,
    /// The first error. After it the other blocks are of no use.
    outcome: Result<(), ArchiveError>,
    done: Option<Done>,
}

impl Completion {
    /// Calls `done` after so many blocks.
    fn new(blocks: usize, done: Done) -> Self {
        let (writing, outcome, done) = (0, Ok(()), Some(done));
        Self(Mutex::new(State { missing: blocks, writing, outcome, done }))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }

    /// Ends the read with an error, once nothing writes to the destination any more.
    fn fail(&self, error: ArchiveError) {
        let mut state = self.lock();
        if state.outcome.is_ok() {
            state.outcome = Err(error);
        }
        Self::settle(state);
    }

    /// Calls `done` if the read has ended.
    fn settle(mut state: MutexGuard<'_, State>) {
        if state.writing > 0 || (state.missing > 0 && state.outcome.is_ok()) {
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
        self.lock().outcome.is_err()
    }

    fn begin_writing(&self) -> bool {
        let mut state = self.lock();
        let may_write = state.outcome.is_ok();
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
            state.outcome = outcome;
        }
        Self::settle(state);
    }
}
