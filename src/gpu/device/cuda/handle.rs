//! The context and its objects, released when dropped.
//!
//! Errors on release are ignored: they happen only when the object or its whole context is already gone.

use std::ffi::{c_int, c_void};
use std::sync::{Arc, OnceLock};

use super::api::{self, Cuda, FUNCTION_PERCENT_OF_SHARED_MEMORY, Raw};
use crate::gpu::device::DeviceError;
use crate::gpu::device::in_order::Pinned;
use crate::sync::Mutex;

/// A device's primary context, which all users of the device in this process share.
#[derive(Debug)]
pub(in crate::gpu::device) struct Context {
    pub(super) cuda: &'static Cuda,
    device: c_int,
    raw: Raw,
    /// Unused events without times. Creating and destroying one would take the driver's lock twice.
    events: Mutex<Vec<Raw>>,
}

/// How many events are kept for later.
const KEPT_EVENTS: usize = 256;

/// Keeps the context current on this thread. Dropping it restores the caller's context, if that was another.
pub(super) struct Current<'c>(Option<&'c Context>);

impl Context {
    pub(super) fn primary(cuda: &'static Cuda, device: c_int) -> Result<Self, DeviceError> {
        let mut raw = Raw::NULL;
        // SAFETY: there is room for the result, which we own a reference to.
        let code = unsafe { (cuda.cuDevicePrimaryCtxRetain)(&raw mut raw, device) };
        cuda.check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Self { cuda, device, raw, events: Mutex::default() })
    }

    /// CUDA's number of the device.
    pub(super) fn device(&self) -> c_int {
        self.device
    }

    /// Makes the context current on this thread while the result lives.
    pub(super) fn enter(&self) -> Result<Current<'_>, DeviceError> {
        let mut current = Raw::NULL;
        // SAFETY: there is room for the result.
        let code = unsafe { (self.cuda.cuCtxGetCurrent)(&raw mut current) };
        self.cuda.check("cuCtxGetCurrent", code)?;
        // Making a context current takes the driver's lock; looking does not.
        if current == self.raw {
            return Ok(Current(None));
        }
        // SAFETY: the context is valid while `self` lives.
        let code = unsafe { (self.cuda.cuCtxPushCurrent_v2)(self.raw) };
        self.cuda.check("cuCtxPushCurrent", code)?;
        Ok(Current(Some(self)))
    }

    /// Makes the context current on this thread, which is ours, until it ends.
    pub(super) fn stay(&self) {
        // SAFETY: the context is valid while `self` lives. If the call fails, `enter` does more each time.
        unsafe { (self.cuda.cuCtxSetCurrent)(self.raw) };
    }

    /// The device's free memory now, and its total memory, in bytes.
    pub(super) fn memory(&self) -> Result<(u64, u64), DeviceError> {
        let _current = self.enter()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: there is room for the results.
        let code = unsafe { (self.cuda.cuMemGetInfo_v2)(&raw mut free, &raw mut total) };
        self.cuda.check("cuMemGetInfo", code)?;
        Ok((free as u64, total as u64))
    }
}

impl Drop for Current<'_> {
    fn drop(&mut self) {
        let Some(context) = self.0 else { return };
        let mut ours = Raw::NULL;
        // SAFETY: this thread has pushed the context, and there is room for the result.
        unsafe { (context.cuda.cuCtxPopCurrent_v2)(&raw mut ours) };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let events = std::mem::take(&mut *self.events.lock());
        if let Ok(_current) = self.enter() {
            for event in events {
                // SAFETY: the event is valid, and nobody uses it.
                unsafe { (self.cuda.cuEventDestroy_v2)(event) };
            }
        }
        // SAFETY: we own the reference that this releases.
        unsafe { (self.cuda.cuDevicePrimaryCtxRelease_v2)(self.device) };
    }
}

/// A stream.
#[derive(Clone)]
pub(in crate::gpu::device) struct Stream(Arc<OneStream>);

struct OneStream {
    raw: Raw,
    is_ours: bool,
    context: Arc<Context>,
}

impl Stream {
    /// A stream that waits for no other.
    pub(super) fn new(context: &Arc<Context>) -> Result<Self, DeviceError> {
        let _current = context.enter()?;
        let mut raw = Raw::NULL;
        // SAFETY: there is room for the result.
        let code = unsafe { (context.cuda.cuStreamCreate)(&raw mut raw, api::STREAM_NON_BLOCKING) };
        context.cuda.check("cuStreamCreate", code)?;
        Ok(Self(Arc::new(OneStream { raw, is_ours: true, context: Arc::clone(context) })))
    }

    /// A stream of the caller's, which is not destroyed.
    pub(super) fn of_caller(context: &Arc<Context>, raw: Raw) -> Self {
        Self(Arc::new(OneStream { raw, is_ours: false, context: Arc::clone(context) }))
    }

    /// The driver's name for it.
    pub(super) fn raw(&self) -> Raw {
        self.0.raw
    }
}

impl Drop for OneStream {
    fn drop(&mut self) {
        if self.is_ours
            && let Ok(_current) = self.context.enter()
        {
            // SAFETY: the stream is valid. The call does not wait for work in it.
            unsafe { (self.context.cuda.cuStreamDestroy_v2)(self.raw) };
        }
    }
}

/// An event, recorded in a stream behind a command.
struct OneEvent {
    raw: Raw,
    flags: u32,
    context: Arc<Context>,
}

impl OneEvent {
    /// Records an event behind the work queued in `stream` so far. The context is current.
    fn record(stream: &Stream, flags: u32) -> Result<Self, DeviceError> {
        let context = Arc::clone(&stream.0.context);
        let kept =
            if flags == api::EVENT_WITHOUT_TIME { context.events.lock().pop() } else { None };
        let raw = if let Some(raw) = kept {
            raw
        } else {
            let mut raw = Raw::NULL;
            // SAFETY: there is room for the result.
            let code = unsafe { (context.cuda.cuEventCreate)(&raw mut raw, flags) };
            context.cuda.check("cuEventCreate", code)?;
            raw
        };
        let event = Self { raw, flags, context };
        // SAFETY: event and stream are valid and of one context.
        let code = unsafe { (event.context.cuda.cuEventRecord)(raw, stream.raw()) };
        event.context.cuda.check("cuEventRecord", code)?;
        Ok(event)
    }
}

impl Drop for OneEvent {
    fn drop(&mut self) {
        if self.flags == api::EVENT_WITHOUT_TIME {
            let mut events = self.context.events.lock();
            if events.len() < KEPT_EVENTS {
                return events.push(self.raw);
            }
        }
        if let Ok(_current) = self.context.enter() {
            // SAFETY: the event is valid. The call does not wait for it.
            unsafe { (self.context.cuda.cuEventDestroy_v2)(self.raw) };
        }
    }
}

/// An event that a thread can sleep on: see [`CudaBell`](super::bell::CudaBell).
pub(super) struct BlockingEvent(OneEvent);

impl BlockingEvent {
    /// Records it behind the work queued in `stream` so far. The context is current.
    pub(super) fn record(stream: &Stream) -> Result<Self, DeviceError> {
        let flags = api::EVENT_BLOCKING_SYNC | api::EVENT_WITHOUT_TIME;
        Ok(Self(OneEvent::record(stream, flags)?))
    }

    /// Sleeps until it has happened. The context is current.
    pub(super) fn wait(&self) -> Result<(), DeviceError> {
        let cuda = self.0.context.cuda;
        // SAFETY: the event is valid.
        let code = unsafe { (cuda.cuEventSynchronize)(self.0.raw) };
        cuda.check("cuEventSynchronize", code)
    }
}

/// The end of a command, and if it is timed, its beginning.
#[derive(Clone)]
pub(in crate::gpu::device) struct Event(Arc<Recorded>);

struct Recorded {
    stream: Stream,
    start: Option<OneEvent>,
    end: OnceLock<OneEvent>,
}

impl Event {
    /// Runs `command` in `stream`, and records its end. The context is current.
    pub(super) fn of(
        stream: &Stream,
        timed: bool,
        command: impl FnOnce() -> Result<(), DeviceError>,
    ) -> Result<Self, DeviceError> {
        let start = if timed { Some(OneEvent::record(stream, 0)?) } else { None };
        command()?;
        let flags = if timed { 0 } else { api::EVENT_WITHOUT_TIME };
        let end = OnceLock::from(OneEvent::record(stream, flags)?);
        Ok(Self(Arc::new(Recorded { stream: stream.clone(), start, end })))
    }

    /// The end of the work queued in `stream` so far, [recorded](Self::record) only when needed. Each call takes the
    /// driver's lock, so an event for every command would cost as much as the commands.
    pub(super) fn later(stream: &Stream) -> Self {
        let end = OnceLock::new();
        Self(Arc::new(Recorded { stream: stream.clone(), start: None, end }))
    }

    /// Records it behind the work queued in the stream by now, unless it is recorded already.
    pub(super) fn record(&self) -> Result<(), DeviceError> {
        self.recorded().map(drop)
    }

    fn recorded(&self) -> Result<&OneEvent, DeviceError> {
        let Recorded { stream, end, .. } = &*self.0;
        if let Some(end) = end.get() {
            return Ok(end);
        }
        let _current = stream.0.context.enter()?;
        let event = OneEvent::record(stream, api::EVENT_WITHOUT_TIME)?;
        Ok(end.get_or_init(|| event))
    }

    /// Whether it has ended. Records it first, if it is not recorded.
    pub(super) fn has_ended(&self) -> Result<bool, DeviceError> {
        let end = self.recorded()?;
        let context = &end.context;
        let _current = context.enter()?;
        // SAFETY: the event is valid.
        match unsafe { (context.cuda.cuEventQuery)(end.raw) } {
            api::NOT_READY => Ok(false),
            code => context.cuda.check("a command on the device", code).map(|()| true),
        }
    }

    /// Milliseconds from its beginning to its end; 0 if it is not timed.
    pub(super) fn milliseconds(&self) -> Result<f32, DeviceError> {
        let (Some(start), Some(end)) = (&self.0.start, self.0.end.get()) else { return Ok(0.0) };
        let context = &end.context;
        let _current = context.enter()?;
        let mut time = 0.0;
        // SAFETY: both events are valid, of one context, recorded and timed, and there is room for the result.
        let code = unsafe { (context.cuda.cuEventElapsedTime)(&raw mut time, start.raw, end.raw) };
        context.cuda.check("cuEventElapsedTime", code)?;
        Ok(time)
    }
}

/// Memory of the device.
pub(in crate::gpu::device) struct Buffer {
    pub(super) address: u64,
    is_ours: bool,
    context: Arc<Context>,
}

impl Buffer {
    pub(super) fn new(context: &Arc<Context>, bytes: u64) -> Result<Self, DeviceError> {
        let Ok(size) = usize::try_from(bytes) else {
            return Err(DeviceError::OutOfMemory { bytes });
        };
        let _current = context.enter()?;
        let mut address = 0;
        // SAFETY: there is room for the result.
        let code = unsafe { (context.cuda.cuMemAlloc_v2)(&raw mut address, size) };
        context.cuda.check_for("cuMemAlloc", code, bytes)?;
        Ok(Self { address, is_ours: true, context: Arc::clone(context) })
    }

    /// Memory of the caller's, which is not freed.
    pub(super) fn of_caller(context: &Arc<Context>, address: u64) -> Self {
        Self { address, is_ours: false, context: Arc::clone(context) }
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.is_ours
            && let Ok(_current) = self.context.enter()
        {
            // SAFETY: the memory is ours, and its owner has waited for the work that uses it.
            unsafe { (self.context.cuda.cuMemFree_v2)(self.address) };
        }
    }
}

/// Pinned host memory.
pub(in crate::gpu::device) struct CudaPinned {
    at: *mut u8,
    len: usize,
    context: Arc<Context>,
}

// SAFETY: `at` points to memory that belongs to this object alone.
unsafe impl Send for CudaPinned {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for CudaPinned {}

impl CudaPinned {
    /// Allocates `len` bytes, all 0.
    pub(super) fn new(context: &Arc<Context>, len: usize) -> Result<Self, DeviceError> {
        Self::with_flags(context, len, api::HOST_MEMORY_PORTABLE)
    }

    /// Allocates `len` bytes, all 0, and returns them with their address on the device.
    pub(super) fn mapped(context: &Arc<Context>, len: usize) -> Result<(Self, u64), DeviceError> {
        let flags = api::HOST_MEMORY_PORTABLE | api::HOST_MEMORY_MAPPED;
        let pinned = Self::with_flags(context, len, flags)?;
        let _current = context.enter()?;
        let mut address = 0;
        let cuda = context.cuda;
        // SAFETY: the memory is pinned and mapped, and there is room for the result.
        let code =
            unsafe { (cuda.cuMemHostGetDevicePointer_v2)(&raw mut address, pinned.at.cast(), 0) };
        cuda.check("cuMemHostGetDevicePointer", code)?;
        Ok((pinned, address))
    }

    /// The address.
    pub(super) fn at(&self) -> *mut u8 {
        self.at
    }

    fn with_flags(context: &Arc<Context>, len: usize, flags: u32) -> Result<Self, DeviceError> {
        let _current = context.enter()?;
        let mut at: *mut c_void = std::ptr::null_mut();
        // SAFETY: there is room for the result.
        let code = unsafe { (context.cuda.cuMemHostAlloc)(&raw mut at, len, flags) };
        context.cuda.check_for("cuMemHostAlloc", code, len as u64)?;
        // Memory that is read before a copy must be initialised.
        // SAFETY: there are `len` bytes, which are ours.
        unsafe { at.cast::<u8>().write_bytes(0, len) };
        Ok(Self { at: at.cast(), len, context: Arc::clone(context) })
    }
}

impl Pinned for CudaPinned {
    fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is there while `self` lives, is initialised, and is written only through `&mut self`. A
        // command can still write to it only if its wait timed out, and the documentation of `HostMemory` warns about
        // that.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for CudaPinned {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: the memory is ours, and its owner has waited for the copies that use it.
            unsafe { (self.context.cuda.cuMemFreeHost)(self.at.cast()) };
        }
    }
}

/// A compiled entry point.
pub(in crate::gpu::device) struct Function {
    pub(super) raw: Raw,
    module: Raw,
    context: Arc<Context>,
}

impl Function {
    /// Loads a program and its entry point.
    ///
    /// # Safety
    /// The program is unchanged output of CUDA's compiler. PTX ends with a 0.
    pub(super) unsafe fn load(
        context: &Arc<Context>,
        program: &[u8],
        entry: &str,
    ) -> Result<Self, DeviceError> {
        let Ok(name) = std::ffi::CString::new(entry) else {
            return Err(DeviceError::Failed(format!("{entry:?} is no entry point")));
        };
        let _current = context.enter()?;
        let cuda = context.cuda;
        let mut module = Raw::NULL;
        // SAFETY: there is room for the result; the caller promises that the program is valid.
        let code = unsafe { (cuda.cuModuleLoadData)(&raw mut module, program.as_ptr().cast()) };
        cuda.check("cuModuleLoadData", code)?;
        let mut function = Self { raw: Raw::NULL, module, context: Arc::clone(context) };
        // SAFETY: the module is valid, the name ends with a 0, and there is room for the result.
        let code =
            unsafe { (cuda.cuModuleGetFunction)(&raw mut function.raw, module, name.as_ptr()) };
        cuda.check("cuModuleGetFunction", code)?;
        if let Some(load) = cuda.cuFuncLoad {
            // Otherwise the driver may load it at its first launch, which then waits for kernels that are running.
            // SAFETY: the function is valid.
            cuda.check("cuFuncLoad", unsafe { load(function.raw) })?;
        }
        Ok(function)
    }

    pub(super) fn attribute(&self, what: c_int) -> Result<c_int, DeviceError> {
        let _current = self.context.enter()?;
        let mut value = 0;
        let cuda = self.context.cuda;
        // SAFETY: the function is valid, and there is room for the result.
        let code = unsafe { (cuda.cuFuncGetAttribute)(&raw mut value, what, self.raw) };
        cuda.check("cuFuncGetAttribute", code)?;
        Ok(value)
    }

    /// Makes multiprocessors that run this function set aside half of their memory as shared memory; the rest is cache.
    /// By default they set aside what the kernel needs. But a multiprocessor runs two kernels side by side only if both
    /// need the same split. With 24 batches at a time, an H200 compresses 7% faster at level 3 if all their kernels ask
    /// for half, and 10% slower if only some do. A kernel that runs alone is up to 3% slower with half.
    pub(super) fn set_half_aside(&self) -> Result<(), DeviceError> {
        let cuda = self.context.cuda;
        let Some(set) = cuda.cuFuncSetAttribute else { return Ok(()) };
        let _current = self.context.enter()?;
        // SAFETY: the function is valid.
        let code = unsafe { set(self.raw, FUNCTION_PERCENT_OF_SHARED_MEMORY, 50) };
        cuda.check("cuFuncSetAttribute", code)
    }

    /// The sizes of its parameters in bytes; `None` if the driver cannot tell.
    pub(super) fn parameters(&self) -> Option<Vec<usize>> {
        let info = self.context.cuda.cuFuncGetParamInfo?;
        let _current = self.context.enter().ok()?;
        let mut sizes = Vec::new();
        loop {
            let (mut offset, mut size) = (0, 0);
            // SAFETY: the function is valid, and there is room for the results.
            let code = unsafe { info(self.raw, sizes.len(), &raw mut offset, &raw mut size) };
            if Cuda::is_invalid(code) {
                return Some(sizes);
            }
            self.context.cuda.check("cuFuncGetParamInfo", code).ok()?;
            sizes.push(size);
        }
    }
}

impl Drop for Function {
    fn drop(&mut self) {
        if let Ok(_current) = self.context.enter() {
            // SAFETY: the module is ours, and nothing runs its function any more.
            unsafe { (self.context.cuda.cuModuleUnload)(self.module) };
        }
    }
}
