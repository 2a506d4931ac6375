//! Threads that call drivers in the background, and how they end with the process.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::process::PerProcess;

/// The number of background threads at work.
fn busy() -> &'static AtomicUsize {
    static BUSY: PerProcess<AtomicUsize> = PerProcess::new();
    BUSY.get_or_init(AtomicUsize::default)
}

/// Whether background threads must start nothing new.
static IS_ENDING: AtomicBool = AtomicBool::new(false);

/// Counts one background thread while it exists.
pub(crate) struct Busy(());

impl Busy {
    pub(crate) fn new() -> Self {
        busy().fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        busy().fetch_sub(1, Ordering::AcqRel);
    }
}

/// Whether any background thread is at work.
pub(crate) fn is_busy() -> bool {
    busy().load(Ordering::Acquire) > 0
}

/// Whether background threads must start nothing new.
pub(crate) fn is_ending() -> bool {
    IS_ENDING.load(Ordering::Acquire)
}

/// Tells background threads to start nothing new.
pub(crate) fn end() {
    IS_ENDING.store(true, Ordering::Release);
}
