//! Collects the blocks of a read, and wakes its caller or calls it back at the end.

use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::error::ArchiveError;
use super::options::{CancelToken, ReadOptions};
use crate::sync::{Condvar, Mutex};

/// Called by any thread when a read has ended and nothing writes to its destination any more.
pub(crate) type Done = Box<dyn FnOnce(Result<(), ArchiveError>) + Send>;

/// How often a waiting caller checks its cancel token.
const LOOK: Duration = Duration::from_millis(20);

/// Gets one delivery for each block of a read.
pub(super) struct Completion<T> {
    progress: Mutex<Progress<T>>,
    changed: Condvar,
}

struct Progress<T> {
    delivered: Vec<Option<T>>,
    missing: usize,
    /// Blocks that a device is writing to the destination.
    writing: usize,
    /// The first error. After it, the read needs no other block.
    error: Option<ArchiveError>,
    has_given_up: bool,
    /// Called at the end of a read that no thread waits for.
    done: Option<Done>,
}

impl<T> Progress<T> {
    fn is_complete(&self) -> bool {
        self.missing == 0 || self.error.is_some()
    }

    fn is_abandoned(&self) -> bool {
        self.has_given_up || self.error.is_some()
    }
}

impl<T> Completion<T> {
    /// The completion of a read without blocks. At its end it calls `done`; without `done`, a caller waits through a
    /// [`Claim`].
    pub(super) fn new(done: Option<Done>) -> Arc<Self> {
        let (delivered, missing, writing, error, has_given_up) = Default::default();
        let progress = Progress { delivered, missing, writing, error, has_given_up, done };
        Arc::new(Self { progress: Mutex::new(progress), changed: Condvar::new() })
    }

    /// Adds a slot for a block, and returns its number. All slots are added before the first block is queued.
    pub(super) fn add_slot(&self) -> usize {
        let mut progress = self.lock();
        progress.delivered.push(None);
        progress.missing += 1;
        progress.delivered.len() - 1
    }

    fn lock(&self) -> MutexGuard<'_, Progress<T>> {
        self.progress.lock()
    }

    /// Whether the read no longer needs the blocks that are missing.
    pub(super) fn is_abandoned(&self) -> bool {
        self.lock().is_abandoned()
    }

    /// Records that a device begins to write a block to the destination. Returns false if the read no longer needs the
    /// block. The destination stays valid until [`Self::end_writing`].
    pub(super) fn begin_writing(&self) -> bool {
        let mut progress = self.lock();
        let may_write = !progress.is_abandoned();
        progress.writing += usize::from(may_write);
        may_write
    }

    /// Records that the device no longer writes such a block.
    pub(super) fn end_writing(&self) {
        let mut progress = self.lock();
        progress.writing -= 1;
        self.settle(progress);
    }

    /// Delivers the block of slot `slot`, or the error of its load.
    pub(super) fn deliver(&self, slot: usize, outcome: Result<T, ArchiveError>) {
        let mut progress = self.lock();
        match outcome {
            Ok(value) => {
                if let Some(place @ None) = progress.delivered.get_mut(slot) {
                    *place = Some(value);
                    progress.missing -= 1;
                }
            }
            Err(error) => drop(progress.error.get_or_insert(error)),
        }
        self.settle(progress);
    }

    /// Ends the read with an error.
    pub(super) fn fail(&self, error: ArchiveError) {
        let mut progress = self.lock();
        progress.error.get_or_insert(error);
        self.settle(progress);
    }

    /// If the read has ended, wakes its caller, and calls it back once nothing writes to the destination any more.
    fn settle(&self, mut progress: MutexGuard<'_, Progress<T>>) {
        if !progress.is_complete() && !progress.has_given_up {
            return;
        }
        self.changed.notify_all();
        if progress.writing == 0
            && let Some(done) = progress.done.take()
        {
            let outcome = progress.error.clone().map_or(Ok(()), Err);
            drop(progress);
            done(outcome);
        }
    }
}

/// The caller's handle on a completion. Dropping it gives up the blocks that are missing, and waits until nothing
/// writes to the caller's memory any more.
pub(super) struct Claim<T>(pub(super) Arc<Completion<T>>);

impl<T> Claim<T> {
    /// Waits for all blocks, and returns them in the order of their slots.
    ///
    /// # Errors
    /// The first error that was delivered, [`ArchiveError::Cancelled`] or [`ArchiveError::DeadlineExceeded`].
    pub(super) fn wait(&self, options: &ReadOptions) -> Result<Vec<T>, ArchiveError> {
        let mut progress = self.0.lock();
        loop {
            if let Some(error) = progress.error.clone() {
                return Err(error);
            }
            if options.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                return Err(ArchiveError::Cancelled);
            }
            if progress.missing == 0 {
                return Ok(progress.delivered.drain(..).flatten().collect());
            }
            let left = options.deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ArchiveError::DeadlineExceeded);
            }
            let look = options.cancel.is_some().then_some(LOOK);
            progress = match left.into_iter().chain(look).min() {
                None => self.0.changed.wait(progress),
                Some(time) => self.0.changed.wait_timeout(progress, time).0,
            };
        }
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        let mut progress = self.0.lock();
        progress.has_given_up = true;
        while progress.writing > 0 {
            progress = self.0.changed.wait(progress);
        }
    }
}
