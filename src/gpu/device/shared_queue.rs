//! A queue that several owners use in turns.
//!
//! A driver has few hardware queues. A queue that shares one with a kernel that does not end waits for that kernel. So
//! an owner of several coders that uses one at a time gives them a single queue.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::{BufferId, DeviceError, Dispatch, Queue};

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
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Box<dyn Queue + 'd>>> {
        self.0.lock()
    }

    fn with<T>(
        &self,
        action: impl FnOnce(&mut dyn Queue) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        match &mut *self.lock() {
            Some(queue) => action(&mut **queue),
            None => Err(DeviceError::TimedOut),
        }
    }
}

impl Queue for SharedQueue<'_> {
    fn write_parts(
        &mut self,
        buffer: BufferId,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError> {
        self.with(|queue| queue.write_parts(buffer, offset, parts))
    }

    fn write_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: (usize, usize),
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceError> {
        self.with(|queue| queue.write_with(buffer, offset, bytes, fill))
    }

    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.with(|queue| queue.clear(buffer, offset, bytes))
    }

    fn copy(
        &mut self,
        from: (BufferId, u64),
        to: (BufferId, u64),
        bytes: u64,
    ) -> Result<(), DeviceError> {
        self.with(|queue| queue.copy(from, to, bytes))
    }

    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        self.with(|queue| queue.dispatch(work))
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.with(|queue| queue.flush())
    }

    fn read_ahead(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.with(|queue| queue.read_ahead(buffer, offset, bytes))
    }

    fn read_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        self.with(|queue| queue.read_with(buffer, offset, bytes, take))
    }

    fn read(&mut self, buffer: BufferId, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.with(|queue| queue.read(buffer, offset, into))
    }

    fn has_ended(&mut self) -> bool {
        self.lock().as_mut().is_none_or(|queue| queue.has_ended())
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.with(|queue| queue.finish())
    }

    fn set_deadline(&mut self, deadline: Duration) {
        if let Some(queue) = &mut *self.lock() {
            queue.set_deadline(deadline);
        }
    }

    fn set_timing(&mut self, on: bool) {
        if let Some(queue) = &mut *self.lock() {
            queue.set_timing(on);
        }
    }

    fn set_pinned_is_fixed(&mut self, is_fixed: bool) {
        if let Some(queue) = &mut *self.lock() {
            queue.set_pinned_is_fixed(is_fixed);
        }
    }

    fn set_beside_others(&mut self) {
        if let Some(queue) = &mut *self.lock() {
            queue.set_beside_others();
        }
    }

    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError> {
        self.with(|queue| queue.take_times())
    }
}
