//! References to OpenCL's objects, and waiting for its events.

use std::ffi::c_void;
use std::time::{Duration, Instant};

use opencl3::event::{self, CL_COMPLETE, CL_EVENT_COMMAND_EXECUTION_STATUS};

use super::super::deadline::Deadline;
use super::super::device::DeviceError;
use super::failure_for;

/// An object of OpenCL: all its types are such pointers.
pub(super) type Raw = *mut c_void;

/// A reference to an object, released when dropped.
///
/// A release that fails is passed over: it happens only where the object, or its whole context, is gone already.
#[derive(Debug)]
pub(super) struct Handle {
    raw: Raw,
    release: unsafe fn(Raw) -> Result<(), i32>,
}

// SAFETY: OpenCL's objects may be used by several threads at once (OpenCL 1.2, A.2). Kernels are the exception while
// their arguments are being set: those are reached only through the `&mut` of one queue.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Takes over a reference.
    ///
    /// # Safety
    /// `raw` is a valid object, one reference to it is the caller's, and `release` gives that back.
    pub unsafe fn owning(raw: Raw, release: unsafe fn(Raw) -> Result<(), i32>) -> Self {
        Self { raw, release }
    }

    /// Takes over an event that a call has just made.
    ///
    /// # Safety
    /// `raw` is a valid event, and one reference to it is the caller's.
    pub unsafe fn event(raw: Raw) -> Self {
        // SAFETY: what the caller promises is what is asked for.
        unsafe { Self::owning(raw, event::release_event) }
    }

    /// The object, valid for as long as `self` is.
    pub fn raw(&self) -> Raw {
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the object is valid, and the reference that is given back is ours.
        let _ = unsafe { (self.release)(self.raw) };
    }
}

/// Whether the command of `event` has ended.
///
/// # Errors
/// If it has failed. A driver that reserves memory only when it is used reports here that there is none; for how many
/// bytes, it does not say.
pub(super) fn has_ended(event: &Handle) -> Result<bool, DeviceError> {
    let status = event::get_event_info(event.raw(), CL_EVENT_COMMAND_EXECUTION_STATUS)
        .map_err(|code| failure_for("clGetEventInfo", code, 0))?
        .to_int();
    ended(status)
}

/// What the status of a command's event means.
pub(super) fn ended(status: i32) -> Result<bool, DeviceError> {
    if status < 0 {
        return Err(failure_for("a command on the device", status, 0));
    }
    Ok(status == CL_COMPLETE)
}

/// Waits for the command of `event`.
///
/// This asks again and again instead of calling `clWaitForEvents`, which cannot be told to give up. The command must
/// have been flushed.
///
/// # Errors
/// [`DeviceError::TimedOut`], or if the command has failed.
pub(super) fn wait(event: &Handle, until: Deadline) -> Result<(), DeviceError> {
    /// A thread that sleeps wakes about so much too late, so shorter times are waited for awake.
    const AWAKE: Duration = Duration::from_micros(60);
    let start = Instant::now();
    while !has_ended(event)? {
        if until.has_passed() {
            return Err(DeviceError::TimedOut);
        }
        let waited = start.elapsed();
        if waited < AWAKE {
            std::thread::yield_now();
        } else {
            let nap = (waited / 8).clamp(Duration::from_micros(20), Duration::from_millis(1));
            std::thread::sleep(nap);
        }
    }
    Ok(())
}
