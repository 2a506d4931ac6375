//! What a caller waits on, and who gets blocks without a wait.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, MutexGuard};
use std::time::{Duration, Instant};

use super::error::ArchiveError;

use crate::sync::{Condvar, Mutex};

/// What goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Priority {
    /// Before everything else. It has a loader of its own with [`Priority::High`], so that it waits for no other load.
    Realtime,
    /// Before normal reads, and with that loader too.
    High,
    /// In turn.
    #[default]
    Normal,
    /// When nothing else is to be loaded.
    Prefetch,
}

/// Ends reads that other threads wait for. Clones are the same token.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that cancels nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all reads that have this token, and those that get it later.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`CancelToken::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a read is treated. The setters chain.
///
/// ```
/// use std::time::{Duration, Instant};
/// use pz::access::{Priority, ReadOptions};
/// let soon = Instant::now() + Duration::from_millis(50);
/// let options = ReadOptions::new().priority(Priority::Realtime).deadline(soon);
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReadOptions {
    pub(super) priority: Priority,
    pub(super) deadline: Option<Instant>,
    pub(super) cancel: Option<CancelToken>,
}

impl ReadOptions {
    /// Normal priority, without a deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets what goes first.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the time at which the caller gives up. What is being loaded then still goes into the caches.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the token that can end the read. The reader looks at it every 20 ms.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
}

/// How long a caller waits between two looks at its token.
const LOOK: Duration = Duration::from_millis(20);

/// Who gets the blocks of a read whose destination is a device's memory.
pub(super) trait Recipient: Send + Sync {
    /// Whether nobody waits any more.
    fn is_abandoned(&self) -> bool;

    /// Notes that a block is about to be written to the destination, and returns true, unless nobody waits any more. Until
    /// [`Self::end_writing`] the destination stays what it is.
    fn begin_writing(&self) -> bool;

    /// Notes that such a block is no longer being written.
    fn end_writing(&self);

    /// Tells what became of the block that belongs at `slot`.
    fn deliver(&self, slot: usize, outcome: Result<(), ArchiveError>);
}

/// What a caller waits for: one delivery for each of its blocks.
pub(super) struct Ticket<T> {
    state: Mutex<Waited<T>>,
    changed: Condvar,
    /// Whether nobody waits any more.
    is_abandoned: AtomicBool,
}

struct Waited<T> {
    delivered: Vec<Option<T>>,
    missing: usize,
    /// Blocks that are being written to the caller's own memory.
    writing: usize,
    error: Option<ArchiveError>,
}

impl<T> Ticket<T> {
    /// A ticket for so many blocks.
    pub(super) fn new(blocks: usize) -> Self {
        let delivered = std::iter::repeat_with(|| None).take(blocks).collect();
        let state = Waited { delivered, missing: blocks, writing: 0, error: None };
        Self {
            state: Mutex::new(state),
            changed: Condvar::new(),
            is_abandoned: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waited<T>> {
        self.state.lock()
    }

    /// Delivers what belongs at `slot`, or why it could not be loaded.
    pub(super) fn deliver(&self, slot: usize, outcome: Result<T, ArchiveError>) {
        let mut state = self.lock();
        match outcome {
            Ok(value) => {
                if let Some(place @ None) = state.delivered.get_mut(slot) {
                    *place = Some(value);
                    state.missing -= 1;
                }
            }
            Err(error) => drop(state.error.get_or_insert(error)),
        }
        if state.missing == 0 || state.error.is_some() {
            self.changed.notify_all();
        }
    }

    pub(super) fn is_abandoned(&self) -> bool {
        self.is_abandoned.load(Ordering::Relaxed)
    }

    /// Waits until everything is delivered, and returns it in the order of the slots.
    fn wait(&self, options: &ReadOptions) -> Result<Vec<T>, ArchiveError> {
        let mut state = self.lock();
        loop {
            if let Some(error) = state.error.clone() {
                return Err(error);
            }
            if options.cancel.as_ref().is_some_and(CancelToken::is_cancelled) {
                return Err(ArchiveError::Cancelled);
            }
            if state.missing == 0 {
                return Ok(state.delivered.drain(..).flatten().collect());
            }
            let left = options.deadline.map(|end| end.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Err(ArchiveError::DeadlineExceeded);
            }
            let look = options.cancel.is_some().then_some(LOOK);
            state = match left.into_iter().chain(look).min() {
                None => self.changed.wait(state),
                Some(time) => self.changed.wait_timeout(state, time).0,
            };
        }
    }

    /// Notes that nobody waits any more, and waits until nothing writes to the caller's memory.
    fn abandon(&self) {
        let mut state = self.lock();
        self.is_abandoned.store(true, Ordering::Relaxed);
        while state.writing > 0 {
            state = self.changed.wait(state);
        }
    }
}

/// Its caller does not return while a block is being written.
impl Recipient for Ticket<()> {
    fn is_abandoned(&self) -> bool {
        self.is_abandoned()
    }

    fn begin_writing(&self) -> bool {
        let mut state = self.lock();
        let may_write = !self.is_abandoned() && state.error.is_none();
        state.writing += usize::from(may_write);
        may_write
    }

    fn end_writing(&self) {
        let mut state = self.lock();
        state.writing -= 1;
        if state.writing == 0 {
            self.changed.notify_all();
        }
    }

    fn deliver(&self, slot: usize, outcome: Result<(), ArchiveError>) {
        self.deliver(slot, outcome);
    }
}

/// The caller's end of a ticket. Blocks for which it was dropped are not loaded. When it is dropped, nothing writes to
/// the caller's memory any more.
pub(super) struct Claim<T>(pub(super) Arc<Ticket<T>>);

impl<T> Claim<T> {
    /// Waits until everything is delivered, and returns it in the order of the slots.
    pub(super) fn wait(&self, options: &ReadOptions) -> Result<Vec<T>, ArchiveError> {
        self.0.wait(options)
    }
}

impl<T> Drop for Claim<T> {
    fn drop(&mut self) {
        self.0.abandon();
    }
}
