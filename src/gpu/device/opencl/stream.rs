//! Command queues, and the events of their commands.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use opencl3::command_queue::flush;
use opencl3::event::{self, CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS};

use super::failure_for;
use super::handle::{Handle, Raw};
use crate::gpu::device::DeviceError;

/// A queue whose commands run in order, beginning when it is flushed. A flush takes the driver's lock, so flushing
/// after each command would cost as much as the command.
#[derive(Debug, Clone)]
pub(in crate::gpu::device) struct ClStream(Arc<OneStream>);

#[derive(Debug)]
struct OneStream {
    queue: Handle,
    /// How many commands have been queued.
    queued: AtomicU64,
    /// How many of these have been flushed.
    flushed: AtomicU64,
}

impl ClStream {
    pub fn new(queue: Handle) -> Self {
        Self(Arc::new(OneStream { queue, queued: AtomicU64::new(0), flushed: AtomicU64::new(0) }))
    }

    /// The queue, valid while `self` lives.
    pub fn raw(&self) -> Raw {
        self.0.queue.raw()
    }

    /// The event of the newest command, which a call has just made.
    ///
    /// # Safety
    /// `event` is valid, and the caller owns one reference to it.
    pub unsafe fn newest(&self, event: Raw) -> ClEvent {
        // SAFETY: the caller promises exactly this.
        let handle = unsafe { Handle::event(event) };
        let number = self.0.queued.fetch_add(1, Ordering::AcqRel) + 1;
        ClEvent(Arc::new(OneEvent { handle, stream: self.clone(), number }))
    }
}

/// The event of a command.
#[derive(Debug, Clone)]
pub(in crate::gpu::device) struct ClEvent(Arc<OneEvent>);

#[derive(Debug)]
struct OneEvent {
    handle: Handle,
    stream: ClStream,
    /// The command's number in its queue, from 1.
    number: u64,
}

impl ClEvent {
    /// The event, valid while `self` lives.
    pub fn raw(&self) -> Raw {
        self.0.handle.raw()
    }

    /// Makes sure that the command begins when those before it have ended.
    ///
    /// # Errors
    /// If the device fails.
    pub fn begin(&self) -> Result<(), DeviceError> {
        let OneStream { queue, queued, flushed } = &*self.0.stream.0;
        if flushed.load(Ordering::Acquire) < self.0.number {
            let begun = queued.load(Ordering::Acquire);
            flush(queue.raw()).map_err(|code| failure_for("clFlush", code, 0))?;
            flushed.fetch_max(begun, Ordering::AcqRel);
        }
        Ok(())
    }

    /// Whether the command has ended. Starts it first, if it has not been flushed.
    ///
    /// # Errors
    /// Fails if the command has failed. A driver that reserves memory on first use reports a lack of memory here,
    /// without the size.
    pub fn has_ended(&self) -> Result<bool, DeviceError> {
        self.begin()?;
        let status = event::get_event_info(self.raw(), CL_EVENT_COMMAND_EXECUTION_STATUS);
        ended(status.map_err(|code| failure_for("clGetEventInfo", code, 0))?.to_int())
    }
}

/// Interprets the status of a command's event.
pub(super) fn ended(status: i32) -> Result<bool, DeviceError> {
    if status < 0 {
        return Err(failure_for("a command on the device", status, 0));
    }
    Ok(status == CL_COMPLETE)
}
