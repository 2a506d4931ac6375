//! Threads that call drivers in the background, and how they end with the process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The number of background threads at work.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// Whether they are to begin nothing more.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Counts one background thread while it exists.
pub(crate) struct Busy(());

impl Busy {
    pub(crate) fn new() -> Self {
        BUSY.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether any background thread is at work.
pub(crate) fn is_busy() -> bool {
    BUSY.load(Ordering::Acquire) > 0
}

/// Whether background threads are to begin nothing more.
pub(crate) fn is_ending() -> bool {
    IS_ENDING.load(Ordering::Acquire)
}

/// Has background threads begin nothing more.
pub(crate) fn end() {
    IS_ENDING.store(true, Ordering::Release);
}

/// Counts no threads of the process that this one was forked from: they do not exist here.
pub(crate) fn forget() {
    BUSY.store(0, Ordering::Release);
}
