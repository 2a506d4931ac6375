//! Pinned host memory: a buffer that the driver keeps in host memory, mapped for good.

use opencl3::command_queue::{enqueue_map_buffer, enqueue_unmap_mem_object};
use opencl3::memory::{
    CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, create_buffer,
    release_mem_object, retain_mem_object,
};

use super::driver::ClDriver;
use super::failure_for;
use super::handle::Handle;
use super::stream::ClStream;
use crate::gpu::device::DeviceError;
use crate::gpu::device::in_order::Pinned;

/// Pinned memory.
#[derive(Debug)]
pub(in crate::gpu::device) struct ClPinned {
    memory: Handle,
    at: *mut u8,
    len: usize,
    /// The device's housekeeping queue.
    housekeeping: ClStream,
}

// SAFETY: `at` points to memory that belongs to this object alone.
unsafe impl Send for ClPinned {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for ClPinned {}

impl ClPinned {
    /// Allocates `len` bytes, all 0.
    pub fn new(driver: &ClDriver, len: usize) -> Result<Self, DeviceError> {
        let error = |call: &'static str| move |code| failure_for(call, code, len as u64);
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        // SAFETY: the context is valid, and there is no host pointer.
        let memory =
            unsafe { create_buffer(driver.context.raw(), flags, len, std::ptr::null_mut()) };
        let memory = memory.map_err(error("clCreateBuffer"))?;
        // SAFETY: the buffer has just been made.
        let memory = unsafe { Handle::owning(memory, release_mem_object) };
        let housekeeping = driver.housekeeping();
        let mut at = std::ptr::null_mut();
        // SAFETY: queue and buffer are valid and of one context, and the range is the whole buffer. The map waits for
        // no kernel, because this queue never runs one.
        let mapped = unsafe {
            enqueue_map_buffer(
                housekeeping.raw(),
                memory.raw(),
                1,
                CL_MAP_READ | CL_MAP_WRITE,
                0,
                len,
                &mut at,
                0,
                std::ptr::null(),
            )
        };
        let mapped = mapped.map_err(error("clEnqueueMapBuffer"))?;
        // SAFETY: the event has just been made.
        drop(unsafe { Handle::event(mapped) });
        // Memory that is read before a copy must be initialised.
        // SAFETY: the mapping is `len` bytes long and writable.
        unsafe { at.cast::<u8>().write_bytes(0, len) };
        Ok(Self { memory, at: at.cast(), len, housekeeping })
    }
}

impl ClPinned {
    /// The address.
    pub fn at(&self) -> *mut u8 {
        self.at
    }

    /// Another reference to its buffer.
    pub fn buffer(&self) -> Result<Handle, DeviceError> {
        let raw = self.memory.raw();
        // SAFETY: the buffer is valid.
        unsafe { retain_mem_object(raw) }
            .map_err(|code| failure_for("clRetainMemObject", code, 0))?;
        // SAFETY: that reference is ours.
        Ok(unsafe { Handle::owning(raw, release_mem_object) })
    }
}

impl Pinned for ClPinned {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is mapped while `self` lives, is initialised, and is written only through `&mut self`. A
        // command can still write to it only if its wait timed out, and the documentation of `HostMemory` warns about
        // that.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for ClPinned {
    fn drop(&mut self) {
        // SAFETY: queue and buffer are valid, and the buffer is mapped at `at`.
        let unmapped = unsafe {
            enqueue_unmap_mem_object(
                self.housekeeping.raw(),
                self.memory.raw(),
                self.at.cast(),
                0,
                std::ptr::null(),
            )
        };
        if let Ok(event) = unmapped {
            // SAFETY: the event has just been made.
            drop(unsafe { Handle::event(event) });
        }
    }
}
