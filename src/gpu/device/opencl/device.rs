//! An open device, and the caller's context and buffers.

use std::sync::Arc;

use opencl3::command_queue::{
    enqueue_marker_with_wait_list, release_command_queue, retain_command_queue,
};
use opencl3::context::context::{create_context, release_context, retain_context};
use opencl3::memory::{
    CL_MEM_CONTEXT, CL_MEM_FLAGS, CL_MEM_OBJECT_BUFFER, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE,
    CL_MEM_SIZE, CL_MEM_TYPE, CL_MEM_WRITE_ONLY, create_buffer, get_mem_object_info,
    release_mem_object, retain_mem_object,
};

use super::driver::ClDriver;
use super::handle::{Handle, Raw};
use super::stream::ClStream;
use super::{ClCandidate, failure, failure_for};
use crate::gpu::device::deadline::Deadline;
use crate::gpu::device::in_order::{
    CallerPinned, Driver, InFlight, InOrderQueue, Shared, SizedBuffer,
};
use crate::gpu::device::program_cache::Cache;
use crate::gpu::device::{
    BufferId, DEADLINE, Device, DeviceError, HostMemory, Limits, NativeBuffer, NativeStream, Queue,
    VisibleMemory,
};
use crate::gpu::model::plan::Plan;

/// An open device.
#[derive(Debug)]
pub struct OpenClDevice {
    pub(super) shared: Arc<Shared<ClDriver>>,
}

impl OpenClDevice {
    pub(super) fn open(found: &ClCandidate) -> Result<Self, DeviceError> {
        Self::open_with(found, Cache::of_user(&found.limits))
    }

    pub(super) fn open_with(found: &ClCandidate, cache: Cache) -> Result<Self, DeviceError> {
        let device = found.device;
        let context = create_context(&[device.id()], std::ptr::null(), None, std::ptr::null_mut())
            .map_err(|code| failure("clCreateContext", code))?;
        // SAFETY: the context has just been made.
        let context = unsafe { Handle::owning(context, release_context) };
        Self::in_context(context, device, found.limits.clone(), cache)
    }

    /// Makes a device in the caller's own context, so that kernels can work on the caller's buffers in place
    /// ([`Device::import`]).
    ///
    /// # Errors
    /// Fails if the device is unusable or not part of the context.
    ///
    /// # Safety
    /// `context` is a valid `cl_context`, and `device` a valid `cl_device_id` of it. They need not outlive this call:
    /// the new device keeps a reference.
    pub unsafe fn from_context(
        context: *mut std::ffi::c_void,
        device: *mut std::ffi::c_void,
    ) -> Result<Self, DeviceError> {
        // SAFETY: the caller promises that it is valid.
        unsafe { retain_context(context) }.map_err(|code| failure("clRetainContext", code))?;
        // SAFETY: that reference is ours.
        let context = unsafe { Handle::owning(context, release_context) };
        let found = ClCandidate::of(opencl3::device::Device::new(device))?;
        let cache = Cache::of_user(&found.limits);
        Self::in_context(context, found.device, found.limits, cache)
    }

    fn in_context(
        context: Handle,
        device: opencl3::device::Device,
        limits: Limits,
        cache: Cache,
    ) -> Result<Self, DeviceError> {
        let driver = ClDriver::new(context, device, limits, cache)?;
        Ok(Self { shared: Arc::new(Shared::new(driver)) })
    }

    /// Bytes of workgroup memory that the driver's compiler reserves for each of these entry points of `source`.
    #[cfg(all(test, feature = "webgpu"))]
    pub(crate) fn workgroup_memory(
        &self,
        source: &str,
        entries: &[&str],
    ) -> Result<Vec<u64>, DeviceError> {
        super::program::workgroup_memory(&self.shared.driver, source, entries)
    }

    /// The `cl_mem` of a buffer, for callers with their own OpenCL code. It is valid until the buffer is freed.
    pub fn exported(&self, buffer: BufferId) -> Option<*mut std::ffi::c_void> {
        let memory = self.shared.memory(buffer, 0, 0).ok()?;
        Some(memory.buffer.raw())
    }
}

/// Why a caller's buffer cannot be used.
fn unsuitable(why: &str) -> DeviceError {
    DeviceError::Unsupported(format!("the buffer {why}"))
}

impl OpenClDevice {
    /// Imports a caller's buffer.
    ///
    /// # Safety
    /// `raw` is a valid memory object, and the caller keeps the promises of [`Device::import`].
    unsafe fn import_raw(&self, raw: Raw) -> Result<BufferId, DeviceError> {
        let info = |what| {
            get_mem_object_info(raw, what).map_err(|code| failure("clGetMemObjectInfo", code))
        };
        if info(CL_MEM_TYPE)?.to_uint() != CL_MEM_OBJECT_BUFFER {
            return Err(unsuitable("is an image or a pipe"));
        }
        if info(CL_MEM_CONTEXT)?.to_ptr() != self.shared.driver.context.raw() as isize {
            return Err(unsuitable("belongs to another context"));
        }
        if info(CL_MEM_FLAGS)?.to_ulong() & (CL_MEM_READ_ONLY | CL_MEM_WRITE_ONLY) != 0 {
            return Err(unsuitable("is not one that kernels may both read and write"));
        }
        let bytes = info(CL_MEM_SIZE)?.to_size() as u64;
        // Take our own reference: the caller may release its own while work goes on.
        // SAFETY: the caller promises that it is valid.
        unsafe { retain_mem_object(raw) }.map_err(|code| failure("clRetainMemObject", code))?;
        // SAFETY: that reference is ours.
        let handle = unsafe { Handle::owning(raw, release_mem_object) };
        Ok(self.shared.enter(SizedBuffer { buffer: Arc::new(handle), bytes }))
    }

    /// Makes the driver reserve the buffer's memory now. Some drivers wait until the first use.
    fn touch(&self, memory: &SizedBuffer<ClDriver>) -> Result<(), DeviceError> {
        let stream = self.shared.driver.housekeeping();
        let touched = self.touch_in(&stream, memory);
        if touched.is_err() {
            self.shared.driver.renew_housekeeping(&stream);
        }
        touched.map_err(|error| match error {
            DeviceError::OutOfMemory { .. } => DeviceError::OutOfMemory { bytes: memory.bytes },
            error => error,
        })
    }

    fn touch_in(
        &self,
        stream: &ClStream,
        memory: &SizedBuffer<ClDriver>,
    ) -> Result<(), DeviceError> {
        let driver = &self.shared.driver;
        // SAFETY: queue and buffer are of one device, and the 4 bytes are within the buffer.
        let event = unsafe { driver.clear(stream, (memory, 0), 4)? };
        let until = Deadline::after(DEADLINE, self.limits());
        let ended = driver.wait(&event, until);
        if ended == Err(DeviceError::TimedOut) {
            let work = InFlight::unfinished(Arc::new(stream.clone()), event);
            self.shared.give_up_with(work, memory.clone());
        }
        ended
    }
}

impl Device for OpenClDevice {
    fn limits(&self) -> &Limits {
        &self.shared.driver.limits
    }

    fn has_driver(&self) -> bool {
        true
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        let error = |code| failure_for("clCreateBuffer", code, bytes);
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(DeviceError::Failed(format!("a buffer of {bytes} bytes")));
        }
        let Some(size) = usize::try_from(bytes).ok().filter(|_| bytes <= self.limits().max_buffer)
        else {
            return Err(DeviceError::OutOfMemory { bytes });
        };
        let context = self.shared.driver.context.raw();
        // SAFETY: the context is valid, and there is no host pointer.
        let memory =
            unsafe { create_buffer(context, CL_MEM_READ_WRITE, size, std::ptr::null_mut()) };
        // SAFETY: the buffer has just been made.
        let handle = unsafe { Handle::owning(memory.map_err(error)?, release_mem_object) };
        let memory = SizedBuffer { buffer: Arc::new(handle), bytes };
        self.touch(&memory)?;
        Ok(self.shared.enter(memory))
    }

    fn free(&self, buffer: BufferId) {
        self.shared.free(buffer);
    }

    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.shared.buffer_bytes(buffer)
    }

    unsafe fn import(&self, buffer: NativeBuffer) -> Result<BufferId, DeviceError> {
        match buffer {
            // SAFETY: the caller promises that it is a valid memory object.
            NativeBuffer::OpenCl(raw) => unsafe { self.import_raw(raw) },
            _ => Err(unsuitable("is not one of OpenCL")),
        }
    }

    fn export(&self, buffer: BufferId) -> Option<NativeBuffer> {
        self.exported(buffer).map(NativeBuffer::OpenCl)
    }

    unsafe fn wait_for(&self, stream: NativeStream) -> Result<(), DeviceError> {
        let NativeStream::OpenCl(queue) = stream else {
            return Err(DeviceError::Unsupported("the stream is not one of OpenCL".into()));
        };
        // SAFETY: the caller promises that the queue is valid.
        let marker = unsafe { enqueue_marker_with_wait_list(queue, 0, std::ptr::null()) };
        let marker = marker.map_err(|code| failure("clEnqueueMarkerWithWaitList", code))?;
        // SAFETY: the queue is valid.
        unsafe { retain_command_queue(queue) }
            .map_err(|code| failure("clRetainCommandQueue", code))?;
        // SAFETY: that reference is ours, and the event has just been made.
        let marker =
            unsafe { ClStream::new(Handle::owning(queue, release_command_queue)).newest(marker) };
        self.shared.driver.wait(&marker, Deadline::after(DEADLINE, self.limits()))
    }

    fn free_memory(&self) -> Option<u64> {
        super::free_memory(&self.shared.driver.device).map(|(bytes, _)| bytes)
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        let stream = self.shared.driver.new_stream()?;
        Ok(Box::new(InOrderQueue::new(Arc::clone(&self.shared), stream)))
    }

    fn host_memory(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        Ok(HostMemory(Box::new(CallerPinned::new(&self.shared, bytes.max(1))?)))
    }

    fn visible_memory(&self, bytes: usize) -> Result<VisibleMemory, DeviceError> {
        super::visible::visible_memory(&self.shared, bytes)
    }

    fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
        self.shared.driver.programs.prepare(&self.shared.driver, plans)
    }
}

impl Drop for OpenClDevice {
    fn drop(&mut self) {
        self.shared.leak_if_busy();
    }
}
