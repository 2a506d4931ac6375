//! Counts reads that go on without a worker.

use std::sync::Arc;

use crate::sync::{Condvar, Mutex};

/// Counts reads that go on in the background.
#[derive(Default)]
pub(super) struct Background {
    count: Mutex<usize>,
    has_ended: Condvar,
}

impl Background {
    pub(super) fn count(&self) -> usize {
        *self.count.lock()
    }

    /// Waits until no read goes on.
    pub(super) fn finish(&self) {
        let mut count = self.count.lock();
        while *count > 0 {
            count = self.has_ended.wait(count);
        }
    }
}

/// One read in the background, until dropped.
pub(super) struct Counted(Arc<Background>);

impl Counted {
    pub(super) fn new(all: &Arc<Background>) -> Self {
        *all.count.lock() += 1;
        Self(Arc::clone(all))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut count = self.0.count.lock();
        *count -= 1;
        if *count == 0 {
            self.0.has_ended.notify_all();
        }
    }
}
