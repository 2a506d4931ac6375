//! References to OpenCL objects.

use std::ffi::c_void;

use opencl3::event;

/// An OpenCL object: all its types are such pointers.
pub(super) type Raw = *mut c_void;

/// A reference to an object, released when dropped.
///
/// Errors on release are ignored: they happen only when the object or its whole context is already gone.
#[derive(Debug)]
pub(in crate::gpu::device) struct Handle {
    raw: Raw,
    release: unsafe fn(Raw) -> Result<(), i32>,
}

// SAFETY: several threads may use an OpenCL object at once (OpenCL 1.2, A.2), except a kernel while its arguments are
// being set. A kernel is reached only through the `&mut` of one queue.
unsafe impl Send for Handle {}
// SAFETY: as above.
unsafe impl Sync for Handle {}

impl Handle {
    /// Takes ownership of a reference.
    ///
    /// # Safety
    /// `raw` is a valid object, the caller owns one reference to it, and `release` releases that reference.
    pub unsafe fn owning(raw: Raw, release: unsafe fn(Raw) -> Result<(), i32>) -> Self {
        Self { raw, release }
    }

    /// Takes ownership of an event that a call has just made.
    ///
    /// # Safety
    /// `raw` is a valid event, and the caller owns one reference to it.
    pub unsafe fn event(raw: Raw) -> Self {
        // SAFETY: the caller promises exactly this.
        unsafe { Self::owning(raw, event::release_event) }
    }

    /// The object, valid while `self` lives.
    pub fn raw(&self) -> Raw {
        self.raw
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the object is valid, and we own the reference that this releases.
        let _ = unsafe { (self.release)(self.raw) };
    }
}
