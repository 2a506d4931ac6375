//! An open device: its context, its buffers, and the objects that it cannot release yet.

use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use opencl3::command_queue::{
    CL_QUEUE_PROFILING_ENABLE, create_command_queue, enqueue_fill_buffer, flush,
    release_command_queue,
};
use opencl3::context::context::{create_context, release_context, retain_context};
use opencl3::memory::{
    CL_MEM_CONTEXT, CL_MEM_FLAGS, CL_MEM_OBJECT_BUFFER, CL_MEM_READ_ONLY, CL_MEM_READ_WRITE,
    CL_MEM_SIZE, CL_MEM_TYPE, CL_MEM_WRITE_ONLY, create_buffer, get_mem_object_info,
    release_mem_object, retain_mem_object,
};

use super::handle::{Handle, Raw, has_ended, wait};
use super::program::Programs;
use super::queue::{ClQueue, InFlight};
use super::staging::OfCaller;
use super::{Found, failure, failure_for};
use crate::gpu::device::deadline::Deadline;
use crate::gpu::device::program_cache::Cache;
use crate::gpu::device::{
    BufferId, DEADLINE, Device, DeviceError, HostMemory, Limits, NativeBuffer, Queue,
};
use crate::gpu::model::plan::Plan;

/// An open device.
#[derive(Debug)]
pub struct OpenClDevice {
    pub(super) shared: Arc<Shared>,
}

/// The state that a device shares with its queues.
#[derive(Debug)]
pub(super) struct Shared {
    pub limits: Limits,
    pub device: opencl3::device::Device,
    pub programs: Programs,
    pub cache: Cache,
    /// A queue that never runs a kernel, so its commands never wait for one. It is replaced after a failure, because
    /// some drivers refuse every later command in a failed queue.
    housekeeping: Mutex<Arc<Handle>>,
    buffers: RwLock<HashMap<BufferId, Memory>>,
    /// Pinned memory that callers hold: start address to end address.
    pinned: RwLock<BTreeMap<usize, usize>>,
    next: AtomicU64,
    given_up: Mutex<GivenUp>,
    // Dropped last, because the objects above belong to it.
    pub context: Handle,
}

/// A buffer.
#[derive(Debug, Clone)]
pub(super) struct Memory {
    pub handle: Arc<Handle>,
    pub bytes: u64,
}

/// Abandoned work that may still be running, and the buffers it may use. Releasing them could block forever, so they
/// are kept until the work has ended.
#[derive(Debug, Default)]
struct GivenUp {
    work: Vec<InFlight>,
    buffers: Vec<Memory>,
}

impl OpenClDevice {
    pub(super) fn open(found: &Found) -> Result<Self, DeviceError> {
        Self::open_with(found, Cache::of_user(&found.limits))
    }

    pub(super) fn open_with(found: &Found, cache: Cache) -> Result<Self, DeviceError> {
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
        let found = Found::of(opencl3::device::Device::new(device))?;
        let cache = Cache::of_user(&found.limits);
        Self::in_context(context, found.device, found.limits, cache)
    }

    fn in_context(
        context: Handle,
        device: opencl3::device::Device,
        limits: Limits,
        cache: Cache,
    ) -> Result<Self, DeviceError> {
        let housekeeping = Mutex::new(Arc::new(new_queue(&context, &device)?));
        let shared = Shared {
            cache,
            limits,
            device,
            programs: Programs::default(),
            housekeeping,
            buffers: RwLock::default(),
            pinned: RwLock::default(),
            next: AtomicU64::new(1),
            given_up: Mutex::default(),
            context,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Bytes of workgroup memory that the driver's compiler reserves for each of these entry points of `source`.
    #[cfg(all(test, feature = "webgpu"))]
    pub(crate) fn workgroup_memory(
        &self,
        source: &str,
        entries: &[&str],
    ) -> Result<Vec<u64>, DeviceError> {
        super::program::workgroup_memory(&self.shared, source, entries)
    }

    /// The `cl_mem` of a buffer, for callers with their own OpenCL code. It is valid until the buffer is freed.
    pub fn exported(&self, buffer: BufferId) -> Option<*mut std::ffi::c_void> {
        let memory = self.shared.memory(buffer, 0, 0).ok()?;
        Some(memory.handle.raw())
    }
}

/// An in-order queue whose commands can be timed.
pub(super) fn new_queue(
    context: &Handle,
    device: &opencl3::device::Device,
) -> Result<Handle, DeviceError> {
    // OpenCL 2.0 has a newer call for this, but 1.2 devices lack it. This call works on all devices.
    // SAFETY: context and device are valid.
    let queue =
        unsafe { create_command_queue(context.raw(), device.id(), CL_QUEUE_PROFILING_ENABLE) };
    let queue = queue.map_err(|code| failure_for("clCreateCommandQueue", code, 0))?;
    // SAFETY: the queue has just been made.
    Ok(unsafe { Handle::owning(queue, release_command_queue) })
}

/// Why a caller's buffer cannot be used.
fn unsuitable(why: &str) -> DeviceError {
    DeviceError::Unsupported(format!("the buffer {why}"))
}

impl Shared {
    fn enter(&self, memory: Memory) -> BufferId {
        let id = BufferId(self.next.fetch_add(1, Ordering::Relaxed));
        self.buffers.write().unwrap_or_else(PoisonError::into_inner).insert(id, memory);
        id
    }

    /// Enters a caller's buffer.
    ///
    /// # Safety
    /// `raw` is a valid memory object, and the caller keeps the promises of [`Device::import`].
    unsafe fn import(&self, raw: Raw) -> Result<BufferId, DeviceError> {
        let info = |what| {
            get_mem_object_info(raw, what).map_err(|code| failure("clGetMemObjectInfo", code))
        };
        if info(CL_MEM_TYPE)?.to_uint() != CL_MEM_OBJECT_BUFFER {
            return Err(unsuitable("is an image or a pipe"));
        }
        if info(CL_MEM_CONTEXT)?.to_ptr() != self.context.raw() as isize {
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
        Ok(self.enter(Memory { handle: Arc::new(handle), bytes }))
    }

    /// Looks up a buffer and checks that it holds `bytes` bytes from `offset` on.
    pub fn memory(&self, id: BufferId, offset: u64, bytes: u64) -> Result<Memory, DeviceError> {
        let buffers = self.buffers.read().unwrap_or_else(PoisonError::into_inner);
        let Some(memory) = buffers.get(&id) else {
            return Err(DeviceError::Failed(format!("there is no buffer {}", id.0)));
        };
        match offset.checked_add(bytes) {
            Some(end) if end <= memory.bytes => Ok(memory.clone()),
            _ => Err(DeviceError::Failed(format!(
                "{bytes} bytes from byte {offset} on are not within a buffer of {} bytes",
                memory.bytes,
            ))),
        }
    }

    /// Notes that a caller now holds pinned memory at `range`.
    pub fn enter_pinned(&self, range: Range<usize>) {
        let mut pinned = self.pinned.write().unwrap_or_else(PoisonError::into_inner);
        pinned.insert(range.start, range.end);
    }

    /// Notes that the caller has released that memory.
    pub fn leave_pinned(&self, range: Range<usize>) {
        self.pinned.write().unwrap_or_else(PoisonError::into_inner).remove(&range.start);
    }

    /// Whether all of `bytes` is in pinned memory that a caller holds.
    pub fn is_pinned(&self, bytes: &[u8]) -> bool {
        let pinned = self.pinned.read().unwrap_or_else(PoisonError::into_inner);
        let start = bytes.as_ptr() as usize;
        let before = pinned.range(..=start).next_back();
        before.is_some_and(|(_, end)| start + bytes.len() <= *end)
    }

    /// Whether abandoned work is still running.
    pub fn has_given_up(&self) -> bool {
        !self.given_up().work.is_empty()
    }

    /// Keeps `work`, and every buffer freed from now on, until `work` has ended.
    pub fn give_up(&self, work: InFlight) {
        self.given_up().work.push(work);
    }

    fn given_up(&self) -> MutexGuard<'_, GivenUp> {
        let mut given_up = self.given_up.lock().unwrap_or_else(PoisonError::into_inner);
        if !given_up.work.is_empty() && given_up.work.iter().all(InFlight::has_ended) {
            *given_up = GivenUp::default();
        }
        given_up
    }

    /// The current housekeeping queue.
    pub fn housekeeping(&self) -> Arc<Handle> {
        Arc::clone(&self.housekeeping.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the housekeeping queue `failed`, unless another thread has already done so.
    pub fn renew_housekeeping(&self, failed: &Arc<Handle>) {
        let mut current = self.housekeeping.lock().unwrap_or_else(PoisonError::into_inner);
        if Arc::ptr_eq(&current, failed)
            && let Ok(queue) = new_queue(&self.context, &self.device)
        {
            *current = Arc::new(queue);
        }
    }

    /// Makes the driver reserve the buffer's memory now. Some drivers wait until the first use.
    fn touch(&self, memory: &Memory) -> Result<(), DeviceError> {
        let queue = self.housekeeping();
        let touched = self.touch_in(&queue, memory);
        if touched.is_err() {
            self.renew_housekeeping(&queue);
        }
        touched.map_err(|error| match error {
            DeviceError::OutOfMemory { .. } => DeviceError::OutOfMemory { bytes: memory.bytes },
            error => error,
        })
    }

    fn touch_in(&self, queue: &Arc<Handle>, memory: &Memory) -> Result<(), DeviceError> {
        let failure = |call: &'static str| move |code| failure_for(call, code, memory.bytes);
        let zero = 0u32;
        // SAFETY: queue and buffer are valid and of one context; the pattern is copied before the call returns, and
        // the 4 bytes are within the buffer.
        let event = unsafe {
            let pattern = (&raw const zero).cast();
            enqueue_fill_buffer(
                queue.raw(),
                memory.handle.raw(),
                pattern,
                4,
                0,
                4,
                0,
                std::ptr::null(),
            )
        };
        // SAFETY: the event has just been made.
        let event = unsafe { Handle::event(event.map_err(failure("clEnqueueFillBuffer"))?) };
        flush(queue.raw()).map_err(failure("clFlush"))?;
        let ended = wait(&event, Deadline::after(DEADLINE, &self.limits));
        if ended == Err(DeviceError::TimedOut) {
            self.give_up(InFlight::unfinished(Arc::clone(queue), event));
            self.given_up().buffers.push(memory.clone());
        }
        ended
    }
}

impl Device for OpenClDevice {
    fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        let error = |code| failure_for("clCreateBuffer", code, bytes);
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(DeviceError::Failed(format!("a buffer of {bytes} bytes")));
        }
        let Some(size) =
            usize::try_from(bytes).ok().filter(|_| bytes <= self.shared.limits.max_buffer)
        else {
            return Err(DeviceError::OutOfMemory { bytes });
        };
        let context = self.shared.context.raw();
        // SAFETY: the context is valid, and there is no host pointer.
        let memory =
            unsafe { create_buffer(context, CL_MEM_READ_WRITE, size, std::ptr::null_mut()) };
        // SAFETY: the buffer has just been made.
        let handle = unsafe { Handle::owning(memory.map_err(error)?, release_mem_object) };
        let memory = Memory { handle: Arc::new(handle), bytes };
        self.shared.touch(&memory)?;
        Ok(self.shared.enter(memory))
    }

    fn free(&self, buffer: BufferId) {
        let mut buffers = self.shared.buffers.write().unwrap_or_else(PoisonError::into_inner);
        let memory = buffers.remove(&buffer);
        drop(buffers);
        let mut given_up = self.shared.given_up();
        if !given_up.work.is_empty() {
            given_up.buffers.extend(memory);
        }
    }

    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        Some(self.shared.memory(buffer, 0, 0).ok()?.bytes)
    }

    unsafe fn import(&self, buffer: NativeBuffer) -> Result<BufferId, DeviceError> {
        match buffer {
            // SAFETY: the caller promises that it is a valid memory object.
            NativeBuffer::OpenCl(raw) => unsafe { self.shared.import(raw) },
            #[cfg(feature = "webgpu")]
            NativeBuffer::WebGpu(_) => Err(unsuitable("is not one of OpenCL")),
        }
    }

    fn free_memory(&self) -> Option<u64> {
        super::free_memory(&self.shared.device).map(|(bytes, _)| bytes)
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        Ok(Box::new(ClQueue::new(Arc::clone(&self.shared))?))
    }

    fn host_memory(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        Ok(HostMemory(Box::new(OfCaller::new(&self.shared, bytes.max(1))?)))
    }

    fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
        self.shared.programs.prepare(&self.shared, plans)
    }
}

impl Drop for OpenClDevice {
    fn drop(&mut self) {
        if !self.shared.given_up().work.is_empty() {
            // Releasing a context may wait for the work in it, so a context with stuck work is leaked.
            std::mem::forget(Arc::clone(&self.shared));
        }
    }
}

/// Whether a command has ended, successfully or not.
pub(super) fn is_over(event: &Handle) -> bool {
    has_ended(event).unwrap_or(true)
}
