//! The device calls behind the queues of [`in_order`](crate::gpu::device::in_order).

use std::time::Duration;

use opencl3::command_queue::{
    CL_QUEUE_PROFILING_ENABLE, create_command_queue, enqueue_copy_buffer, enqueue_fill_buffer,
    enqueue_nd_range_kernel, enqueue_read_buffer, enqueue_write_buffer, release_command_queue,
};
use opencl3::error_codes::CL_INVALID_WORK_GROUP_SIZE;
use opencl3::event::{
    CL_PROFILING_COMMAND_END, CL_PROFILING_COMMAND_START, get_event_profiling_info,
};
use opencl3::kernel::set_kernel_arg;

use super::handle::{Handle, Raw};
use super::pinned::ClPinned;
use super::program::ClPrograms;
use super::stream::{ClEvent, ClStream};
use super::{failure, failure_for, miscounts};
use crate::gpu::device::deadline::Deadline;
use crate::gpu::device::in_order::{Driver, SizedBuffer, Turn};
use crate::gpu::device::program_cache::Cache;
use crate::gpu::device::{DeviceError, Dispatch, Limits};
use crate::sync::{Lock, Mutex};

/// An open device.
#[derive(Debug)]
pub(in crate::gpu::device) struct ClDriver {
    pub limits: Limits,
    pub device: opencl3::device::Device,
    pub programs: ClPrograms,
    pub cache: Cache,
    /// A queue that never runs a kernel, so its commands never wait for one. It is replaced after a failure, because
    /// some drivers refuse every later command in a failed queue.
    housekeeping: Mutex<ClStream>,
    // Dropped last, because the objects above belong to it.
    pub context: Handle,
}

impl ClDriver {
    pub fn new(
        context: Handle,
        device: opencl3::device::Device,
        limits: Limits,
        cache: Cache,
    ) -> Result<Self, DeviceError> {
        let housekeeping = Mutex::new(new_stream(&context, &device, 0)?);
        Ok(Self { limits, device, programs: ClPrograms::default(), cache, housekeeping, context })
    }

    /// A stream that times nothing.
    pub fn new_stream(&self) -> Result<ClStream, DeviceError> {
        new_stream(&self.context, &self.device, 0)
    }

    /// The current housekeeping queue.
    pub fn housekeeping(&self) -> ClStream {
        self.housekeeping.lock().clone()
    }

    /// Replaces the housekeeping queue `failed`, unless another thread has already done so.
    pub fn renew_housekeeping(&self, failed: &ClStream) {
        let mut current = self.housekeeping.lock();
        if current.raw() == failed.raw()
            && let Ok(stream) = self.new_stream()
        {
            *current = stream;
        }
    }
}

/// A stream whose queue has `properties`.
fn new_stream(
    context: &Handle,
    device: &opencl3::device::Device,
    properties: u64,
) -> Result<ClStream, DeviceError> {
    // OpenCL 2.0 has a newer call for this, but 1.2 devices lack it. This call works on all devices.
    // SAFETY: context and device are valid.
    let queue = unsafe { create_command_queue(context.raw(), device.id(), properties) };
    let queue = queue.map_err(|code| failure_for("clCreateCommandQueue", code, 0))?;
    // SAFETY: the queue has just been made.
    Ok(ClStream::new(unsafe { Handle::owning(queue, release_command_queue) }))
}

impl Driver for ClDriver {
    type Buffer = Handle;
    type Stream = ClStream;
    type Event = ClEvent;
    type Pinned = ClPinned;
    type Kernel = Handle;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn pin(&self, len: usize) -> Result<ClPinned, DeviceError> {
        ClPinned::new(self, len)
    }

    unsafe fn upload(
        &self,
        stream: &ClStream,
        (memory, offset): (&SizedBuffer<Self>, u64),
        from: &[u8],
    ) -> Result<ClEvent, DeviceError> {
        let (queue, buffer) = (stream.raw(), memory.buffer.raw());
        let (source, none) = (from.as_ptr().cast(), std::ptr::null());
        // SAFETY: queue and buffer are valid and of one context. The caller promises the rest.
        let event = unsafe {
            enqueue_write_buffer(queue, buffer, 0, offset as usize, from.len(), source, 0, none)
        };
        let event =
            event.map_err(|code| failure_for("clEnqueueWriteBuffer", code, memory.bytes))?;
        // SAFETY: the event has just been made.
        Ok(unsafe { stream.newest(event) })
    }

    unsafe fn download(
        &self,
        stream: &ClStream,
        (memory, offset): (&SizedBuffer<Self>, u64),
        into: &mut [u8],
    ) -> Result<ClEvent, DeviceError> {
        let (queue, buffer) = (stream.raw(), memory.buffer.raw());
        let (to, none) = (into.as_mut_ptr().cast(), std::ptr::null());
        // SAFETY: queue and buffer are valid and of one context. The caller promises the rest.
        let event = unsafe {
            enqueue_read_buffer(queue, buffer, 0, offset as usize, into.len(), to, 0, none)
        };
        let event = event.map_err(|code| failure_for("clEnqueueReadBuffer", code, memory.bytes))?;
        // SAFETY: the event has just been made.
        Ok(unsafe { stream.newest(event) })
    }

    unsafe fn clear(
        &self,
        stream: &ClStream,
        (memory, offset): (&SizedBuffer<Self>, u64),
        bytes: u64,
    ) -> Result<ClEvent, DeviceError> {
        let zero = 0u32;
        // SAFETY: queue and buffer are valid and of one context. The call copies the pattern before it returns. The
        // caller promises that the range is within the buffer.
        let event = unsafe {
            enqueue_fill_buffer(
                stream.raw(),
                memory.buffer.raw(),
                (&raw const zero).cast(),
                4,
                offset as usize,
                bytes as usize,
                0,
                std::ptr::null(),
            )
        };
        let event = event.map_err(|code| failure_for("clEnqueueFillBuffer", code, memory.bytes))?;
        // SAFETY: the event has just been made.
        Ok(unsafe { stream.newest(event) })
    }

    unsafe fn copy(
        &self,
        stream: &ClStream,
        (from, start): (&SizedBuffer<Self>, u64),
        (to, offset): (&SizedBuffer<Self>, u64),
        bytes: u64,
    ) -> Result<ClEvent, DeviceError> {
        // SAFETY: queue and buffers are valid and of one context. The caller promises that the ranges are within the
        // buffers.
        let event = unsafe {
            enqueue_copy_buffer(
                stream.raw(),
                from.buffer.raw(),
                to.buffer.raw(),
                start as usize,
                offset as usize,
                bytes as usize,
                0,
                std::ptr::null(),
            )
        };
        let event = event.map_err(|code| failure_for("clEnqueueCopyBuffer", code, bytes))?;
        // SAFETY: the event has just been made.
        Ok(unsafe { stream.newest(event) })
    }

    fn kernel(&self, work: &Dispatch<'_>) -> Result<Handle, DeviceError> {
        self.programs.kernel(self, work)
    }

    unsafe fn launch(
        &self,
        stream: &ClStream,
        kernel: &Handle,
        buffers: &[SizedBuffer<Self>],
        work: &Dispatch<'_>,
        _timed: bool,
    ) -> Result<ClEvent, DeviceError> {
        let mut index = 0;
        let mut set = |bytes: usize, value: *const std::ffi::c_void| {
            // SAFETY: the kernel is valid and its queue's alone. `value` has `bytes` bytes, which the call copies. If
            // the index or the type does not match the kernel, the call returns an error.
            let set = unsafe { set_kernel_arg(kernel.raw(), index, bytes, value) };
            let call = || format!("clSetKernelArg({}, {index})", work.entry);
            set.map_err(|code| failure(&call(), code))?;
            index += 1;
            Ok(())
        };
        for memory in buffers {
            let raw = memory.buffer.raw();
            set(size_of::<Raw>(), (&raw const raw).cast())?;
        }
        for arg in work.args {
            set(size_of::<u32>(), (&raw const *arg).cast())?;
        }
        let global = work.groups as usize * work.threads as usize;
        let local = work.threads as usize;
        // SAFETY: queue, kernel and buffers are valid and of one context, and there is one dimension. The kernel
        // accesses nothing outside its buffers; the compiler cannot check that, but we have reviewed and tested every
        // kernel for it.
        let event = unsafe {
            enqueue_nd_range_kernel(
                stream.raw(),
                kernel.raw(),
                1,
                std::ptr::null(),
                &raw const global,
                &raw const local,
                0,
                std::ptr::null(),
            )
        };
        let bytes = buffers.iter().map(|memory| memory.bytes).sum();
        let call = || format!("clEnqueueNDRangeKernel({})", work.entry);
        let event = event.map_err(|code| match code {
            CL_INVALID_WORK_GROUP_SIZE => DeviceError::Unsupported(format!(
                "kernel {} ({}) has workgroups of {local} work items, which {} does not run",
                work.kernel.stem, work.entry, self.limits.name,
            )),
            _ => failure_for(&call(), code, bytes),
        })?;
        // SAFETY: the event has just been made.
        Ok(unsafe { stream.newest(event) })
    }

    fn turn(&self, until: Deadline) -> Result<Turn<Self>, DeviceError> {
        static TURN: Lock<Vec<ClEvent>> = Lock::new();
        if !miscounts(&self.limits.driver) {
            return Ok(None);
        }
        let mut given_up = TURN.lock();
        given_up.retain(|event| self.wait(event, until) == Err(DeviceError::TimedOut));
        if given_up.is_empty() { Ok(Some(given_up)) } else { Err(DeviceError::TimedOut) }
    }

    fn timing_stream(&self) -> Result<Option<ClStream>, DeviceError> {
        new_stream(&self.context, &self.device, CL_QUEUE_PROFILING_ENABLE).map(Some)
    }

    fn mark(&self, event: &ClEvent) -> Result<(), DeviceError> {
        event.begin()
    }

    fn has_ended(&self, event: &ClEvent) -> Result<bool, DeviceError> {
        event.has_ended()
    }

    fn time(&self, event: &ClEvent) -> Result<Duration, DeviceError> {
        let time = |what| {
            let time = get_event_profiling_info(event.raw(), what);
            time.map_err(|code| failure_for("clGetEventProfilingInfo", code, 0))
        };
        let start = time(CL_PROFILING_COMMAND_START)?.to_ulong();
        let end = time(CL_PROFILING_COMMAND_END)?.to_ulong();
        Ok(Duration::from_nanos(end.saturating_sub(start)))
    }
}
