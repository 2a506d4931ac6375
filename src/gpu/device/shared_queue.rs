//! A queue that several owners use in turns.
//!
//! A driver has few hardware queues. If a kernel that never ends runs in one of them, every other queue that shares it
//! waits for that kernel. So an owner of several coders that uses one at a time gives them a single queue.

use std::sync::Arc;

use super::{Call, DeviceError, ForwardingQueue, Queue};
use crate::sync::Mutex;

/// A queue that several owners use in turns. Clones are the same queue.
#[derive(Clone)]
pub(crate) struct SharedQueue<'d>(Arc<Mutex<Option<Box<dyn Queue + 'd>>>>);

impl<'d> SharedQueue<'d> {
    /// Shares `queue`.
    pub(crate) fn new(queue: Box<dyn Queue + 'd>) -> Self {
        Self(Arc::new(Mutex::new(Some(queue))))
    }

    /// Drops the queue for all owners; later calls fail.
    pub(crate) fn end(&self) {
        *self.0.lock() = None;
    }
}

impl ForwardingQueue for SharedQueue<'_> {
    fn pass<T>(
        &mut self,
        _: Call,
        action: impl FnOnce(&mut dyn Queue) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        match &mut *self.0.lock() {
            Some(queue) => action(&mut **queue),
            None => Err(DeviceError::TimedOut),
        }
    }
}
