//! The device calls behind the queues of [`in_order`](crate::gpu::device::in_order).

use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

use super::handle::{Buffer, Context, CudaPinned, Event, Function, Stream};
use super::nvrtc::Compiler;
use super::program::CudaPrograms;
use crate::gpu::device::in_order::{Driver, SizedBuffer};
use crate::gpu::device::program_cache::Cache;
use crate::gpu::device::{DeviceError, Dispatch, Limits};

/// The most workgroups of a launch.
const MAX_GROUPS: u32 = i32::MAX as u32;

/// An open device.
pub(in crate::gpu::device) struct CudaDriver {
    pub limits: Limits,
    pub compiler: Compiler,
    pub programs: CudaPrograms,
    pub cache: Cache,
    pub context: Arc<Context>,
}

impl Driver for CudaDriver {
    type Buffer = Buffer;
    type Stream = Stream;
    type Event = Event;
    type Pinned = CudaPinned;
    type Kernel = Arc<Function>;

    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn pin(&self, len: usize) -> Result<CudaPinned, DeviceError> {
        CudaPinned::new(&self.context, len)
    }

    unsafe fn upload(
        &self,
        stream: &Stream,
        (memory, offset): (&SizedBuffer<Self>, u64),
        from: &[u8],
    ) -> Result<Event, DeviceError> {
        let cuda = self.context.cuda;
        let _current = self.context.enter()?;
        let (to, from, len) = (memory.buffer.address + offset, from.as_ptr().cast(), from.len());
        // SAFETY: stream and buffer are valid and of one context. The caller promises the rest.
        let code = unsafe { (cuda.cuMemcpyHtoDAsync_v2)(to, from, len, stream.raw()) };
        cuda.check("cuMemcpyHtoDAsync", code)?;
        Ok(Event::later(stream))
    }

    unsafe fn download(
        &self,
        stream: &Stream,
        (memory, offset): (&SizedBuffer<Self>, u64),
        into: &mut [u8],
    ) -> Result<Event, DeviceError> {
        let cuda = self.context.cuda;
        let _current = self.context.enter()?;
        Event::of(stream, false, || {
            let (from, to, len) =
                (memory.buffer.address + offset, into.as_mut_ptr().cast(), into.len());
            // SAFETY: stream and buffer are valid and of one context. The caller promises the rest.
            let code = unsafe { (cuda.cuMemcpyDtoHAsync_v2)(to, from, len, stream.raw()) };
            cuda.check("cuMemcpyDtoHAsync", code)
        })
    }

    unsafe fn clear(
        &self,
        stream: &Stream,
        (memory, offset): (&SizedBuffer<Self>, u64),
        bytes: u64,
    ) -> Result<Event, DeviceError> {
        let cuda = self.context.cuda;
        let _current = self.context.enter()?;
        let (at, words) = (memory.buffer.address + offset, bytes as usize / 4);
        // SAFETY: stream and buffer are valid and of one context. The caller promises that the range is within the
        // buffer.
        let code = unsafe { (cuda.cuMemsetD32Async)(at, 0, words, stream.raw()) };
        cuda.check("cuMemsetD32Async", code)?;
        Ok(Event::later(stream))
    }

    unsafe fn copy(
        &self,
        stream: &Stream,
        (from, start): (&SizedBuffer<Self>, u64),
        (to, offset): (&SizedBuffer<Self>, u64),
        bytes: u64,
    ) -> Result<Event, DeviceError> {
        let cuda = self.context.cuda;
        let _current = self.context.enter()?;
        let (from, to) = (from.buffer.address + start, to.buffer.address + offset);
        // SAFETY: stream and buffers are valid and of one context. The caller promises that the ranges are within the
        // buffers.
        let code = unsafe { (cuda.cuMemcpyDtoDAsync_v2)(to, from, bytes as usize, stream.raw()) };
        cuda.check("cuMemcpyDtoDAsync", code)?;
        Ok(Event::later(stream))
    }

    fn kernel(&self, work: &Dispatch<'_>) -> Result<Arc<Function>, DeviceError> {
        self.programs.function(self, work)
    }

    fn set_beside_others(&self, kernel: &Arc<Function>) -> Result<(), DeviceError> {
        kernel.set_half_aside()
    }

    unsafe fn launch(
        &self,
        stream: &Stream,
        kernel: &Arc<Function>,
        buffers: &[SizedBuffer<Self>],
        work: &Dispatch<'_>,
        timed: bool,
    ) -> Result<Event, DeviceError> {
        if work.groups > MAX_GROUPS {
            return Err(DeviceError::Unsupported(format!(
                "kernel {} ({}) has {} workgroups, and CUDA launches at most {MAX_GROUPS}",
                work.kernel.stem, work.entry, work.groups,
            )));
        }
        let addresses: Vec<u64> = buffers.iter().map(|memory| memory.buffer.address).collect();
        let addresses = addresses.iter().map(|address| (&raw const *address).cast::<c_void>());
        let args = work.args.iter().map(|arg| (&raw const *arg).cast::<c_void>());
        let mut parameters: Vec<*mut c_void> =
            addresses.chain(args).map(<*const _>::cast_mut).collect();
        let cuda = self.context.cuda;
        let _current = self.context.enter()?;
        let mut start = || {
            // SAFETY: stream, kernel and buffers are valid and of one context. The parameters point to as many values
            // of the kernel's types, which the call copies. The kernel accesses nothing outside its buffers; the
            // compiler cannot check that, but we have reviewed and tested every kernel for it.
            let code = unsafe {
                let (parameters, none) = (parameters.as_mut_ptr(), std::ptr::null_mut());
                let (groups, threads) = (work.groups, work.threads);
                (cuda.cuLaunchKernel)(
                    kernel.raw,
                    groups,
                    1,
                    1,
                    threads,
                    1,
                    1,
                    0,
                    stream.raw(),
                    parameters,
                    none,
                )
            };
            cuda.check(&format!("cuLaunchKernel({})", work.entry), code)
        };
        if timed { Event::of(stream, true, start) } else { start().map(|()| Event::later(stream)) }
    }

    fn mark(&self, event: &Event) -> Result<(), DeviceError> {
        event.record()
    }

    fn has_ended(&self, event: &Event) -> Result<bool, DeviceError> {
        event.has_ended()
    }

    fn time(&self, event: &Event) -> Result<Duration, DeviceError> {
        Ok(Duration::from_secs_f64(f64::from(event.milliseconds()?).max(0.0) / 1e3))
    }
}
