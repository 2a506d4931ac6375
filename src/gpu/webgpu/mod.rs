//! Devices through WebGPU: Vulkan, Metal or Direct3D 12, whichever the system has, by way of `wgpu`.
//!
//! wgpu reports what goes wrong through error scopes, which are per thread, and ends the program on an error outside of
//! any scope. So whatever creates or submits here stands in a scope of its own (`WebGpuDevice::scoped`).
//!
//! # Bounds
//! Kernels are compiled with the bounds checks of wgpu: where the hardware keeps accesses of storage buffers within the
//! binding (`robustBufferAccess2` on Vulkan, always on Direct3D 12), none are added to the code; elsewhere, and for arrays in
//! workgroup memory, indices are clamped. So a malformed input can disturb nothing but the buffers of its own dispatch.
//! Loops get no counters of wgpu's: every loop of our kernels is bounded by construction.

mod adapter;
mod memory;
mod program;
mod queue;
mod staging;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pollster::block_on;

pub use adapter::{Found, devices};
#[cfg(test)]
pub(crate) use tests::validate;

use super::deadline::Deadline;
use super::device::{Api, BufferId, Device, DeviceError, Dispatch, Limits, Queue};
use super::plan::Plan;
use super::program_cache::Cache;
use program::{Pipeline, Programs};

/// What to do where there is no device.
pub const REMEDY: &str = if cfg!(target_os = "linux") {
    "install the driver of your GPU with its Vulkan part, and the loader (package libvulkan1 or vulkan-icd-loader)"
} else {
    "install the driver of your GPU"
};

/// Bytes of arguments that every device must take.
const MIN_IMMEDIATE_SIZE: u32 = 64;

/// A device through wgpu.
pub struct WebGpuDevice {
    device: wgpu::Device,
    queue: wgpu::Queue,
    limits: Limits,
    max_groups: u32,
    max_immediates: u32,
    lost: Arc<AtomicBool>,
    /// Whether work did not end in time: then the device is never waited for again.
    hung: AtomicBool,
    buffers: Mutex<HashMap<u64, wgpu::Buffer>>,
    next_buffer: AtomicU64,
    programs: Programs,
}

impl WebGpuDevice {
    /// A device that the caller has made already, so that buffers of its own can be worked on in place ([`Self::import`]).
    ///
    /// It must have been made with [`wgpu::Features::IMMEDIATES`] and a `max_immediate_size` of at least 64 bytes. Teams
    /// are faster with [`wgpu::Features::SUBGROUP`] and `SUBGROUP_BARRIER`; times need `TIMESTAMP_QUERY`; compiled kernels
    /// are kept in the user's cache folder with `PIPELINE_CACHE`. Sets the callback for the loss of the device.
    ///
    /// # Errors
    /// If it lacks what kernels need.
    pub fn from_wgpu(device: wgpu::Device, queue: wgpu::Queue) -> Result<Self, DeviceError> {
        Self::with_cache(device, queue, Cache::of_user)
    }

    fn with_cache(
        device: wgpu::Device,
        queue: wgpu::Queue,
        cache: impl FnOnce(&Limits) -> Cache,
    ) -> Result<Self, DeviceError> {
        let granted = device.limits();
        let features = device.features();
        if !features.contains(wgpu::Features::IMMEDIATES)
            || granted.max_immediate_size < MIN_IMMEDIATE_SIZE
        {
            return Err(DeviceError::Unsupported(format!(
                "the device takes {} bytes of immediates, and kernels need {MIN_IMMEDIATE_SIZE}",
                granted.max_immediate_size
            )));
        }
        let mut limits = adapter::limits(&device.adapter_info(), &granted, features);
        if let Some((bytes, source)) = memory::of_device(&device) {
            (limits.memory, limits.memory_source) = (bytes, source);
        }
        let cache = cache(&limits);
        let lost = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&lost);
        device.set_device_lost_callback(move |_, _| flag.store(true, Ordering::Release));
        Ok(Self {
            device,
            queue,
            limits,
            max_groups: granted.max_compute_workgroups_per_dimension,
            max_immediates: granted.max_immediate_size,
            lost,
            hung: AtomicBool::new(false),
            buffers: Mutex::default(),
            next_buffer: AtomicU64::new(1),
            programs: Programs::new(cache),
        })
    }

    /// A buffer of the caller's, to be used like those that are allocated here. [`Device::free`] drops this reference to it.
    ///
    /// # Errors
    /// If its usages lack `STORAGE`, `COPY_SRC` or `COPY_DST`.
    pub fn import(&self, buffer: wgpu::Buffer) -> Result<BufferId, DeviceError> {
        if !buffer.usage().contains(USAGE) {
            return Err(DeviceError::Unsupported(format!(
                "a buffer to be imported needs the usages {USAGE:?}, and has {:?}",
                buffer.usage()
            )));
        }
        Ok(self.keep(buffer))
    }

    /// The buffer itself, for callers with wgpu code of their own.
    pub fn exported(&self, buffer: BufferId) -> Option<wgpu::Buffer> {
        locked(&self.buffers).get(&buffer.0).cloned()
    }

    fn keep(&self, buffer: wgpu::Buffer) -> BufferId {
        let id = self.next_buffer.fetch_add(1, Ordering::Relaxed);
        locked(&self.buffers).insert(id, buffer);
        BufferId(id)
    }

    fn buffer(&self, buffer: BufferId) -> Result<wgpu::Buffer, DeviceError> {
        self.exported(buffer).ok_or_else(|| DeviceError::Failed("there is no such buffer".into()))
    }

    /// Does `work` and returns what it gives, or the first error that wgpu reports of it. `bytes` is what an error of memory
    /// speaks of.
    fn scoped<T>(&self, bytes: u64, work: impl FnOnce() -> T) -> Result<T, DeviceError> {
        self.alive()?;
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let done = work();
        // The futures are ready at once: this waits for nothing.
        let failed = [block_on(internal.pop()), block_on(validation.pop())];
        let memory = block_on(memory.pop());
        self.alive()?;
        if memory.is_some() {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        let Some(error) = failed.into_iter().flatten().next() else { return Ok(done) };
        // On a device that is gone, all that is made is invalid; that it is gone is told when it is asked.
        self.poll(wgpu::PollType::Poll)?;
        Err(DeviceError::Failed(error.to_string()))
    }

    fn pipeline(&self, work: &Dispatch<'_>) -> Result<Arc<Pipeline>, DeviceError> {
        self.programs.pipeline(self, work)
    }

    fn alive(&self) -> Result<(), DeviceError> {
        if self.lost.load(Ordering::Acquire) { Err(DeviceError::Lost) } else { Ok(()) }
    }

    /// Waits until `submission`, or all that has been submitted, has ended.
    fn wait(
        &self,
        submission: Option<wgpu::SubmissionIndex>,
        until: Deadline,
    ) -> Result<(), DeviceError> {
        loop {
            let timeout = Some(until.next_look());
            let submission_index = submission.clone();
            match self.poll(wgpu::PollType::Wait { submission_index, timeout }) {
                Err(DeviceError::TimedOut) if !until.has_passed() => {}
                Err(DeviceError::TimedOut) => {
                    self.hung.store(true, Ordering::Release);
                    return Err(DeviceError::TimedOut);
                }
                result => return result,
            }
        }
    }

    fn poll(&self, how: wgpu::PollType) -> Result<(), DeviceError> {
        self.alive()?;
        // wgpu panics if the device is lost while it waits.
        let polled = catch_unwind(AssertUnwindSafe(|| self.device.poll(how)));
        if polled.is_err() {
            self.lost.store(true, Ordering::Release);
        }
        self.alive()?;
        match polled {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(wgpu::PollError::Timeout)) => Err(DeviceError::TimedOut),
            Ok(Err(error)) => Err(DeviceError::Failed(error.to_string())),
            Err(_) => Err(DeviceError::Lost),
        }
    }
}

/// How buffers are used.
const USAGE: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

impl Device for WebGpuDevice {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        if bytes > self.limits.max_buffer {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        let buffer = self.scoped(bytes, || {
            self.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: bytes,
                usage: USAGE,
                mapped_at_creation: false,
            })
        })?;
        Ok(self.keep(buffer))
    }

    fn free(&self, buffer: BufferId) {
        let freed = locked(&self.buffers).remove(&buffer.0);
        drop(freed);
    }

    fn free_memory(&self) -> Option<u64> {
        let (bytes, source) = memory::of_device(&self.device)?;
        source.is_free().then_some(bytes)
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        self.alive()?;
        Ok(Box::new(queue::WebGpuQueue::new(self)))
    }

    fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
        self.programs.prepare(self, plans)
    }
}

impl Drop for WebGpuDevice {
    fn drop(&mut self) {
        if self.hung.load(Ordering::Acquire) {
            // wgpu waits without a limit for what a queue does when it drops the queue.
            std::mem::forget((self.device.clone(), self.queue.clone()));
        }
    }
}

/// What is behind a mutex. Nothing here is left half-done by a panic.
fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
