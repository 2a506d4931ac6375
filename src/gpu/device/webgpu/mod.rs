//! Devices through WebGPU (`wgpu`): Vulkan, Metal or Direct3D 12, whichever the system has.
//!
//! wgpu reports errors through error scopes, which are per thread, and ends the program if an error occurs outside
//! every scope. So every call here that creates or submits something runs in its own scope (`WebGpuDevice::scoped`).
//!
//! # Bounds
//! wgpu compiles kernels with its bounds checks. Where the hardware keeps accesses to storage buffers within the
//! binding (`robustBufferAccess2` on Vulkan, always on Direct3D 12), wgpu adds no code. Elsewhere, and for arrays in
//! workgroup memory, it clamps indices. So a malformed input can damage only the buffers of its own dispatch. wgpu adds
//! no counters to loops: every loop of our kernels is bounded by construction.

mod adapter;
mod memory;
mod program;
mod queue;
mod staging;
#[cfg(test)]
mod tests;
#[cfg(all(not(target_vendor = "apple"), any(target_arch = "x86_64", target_arch = "aarch64")))]
mod visible;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use pollster::block_on;

pub use adapter::{WebGpuCandidate, devices};
#[cfg(test)]
pub(crate) use tests::validate;

#[cfg(all(
    not(target_vendor = "apple"),
    any(target_arch = "x86_64", target_arch = "aarch64")
))]
use super::VisibleMemory;
use super::deadline::Deadline;
use super::program_cache::Cache;
use super::{Api, BufferId, Device, DeviceError, Dispatch, Kind, Limits, NativeBuffer, Queue};
use crate::gpu::model::plan::Plan;
use crate::sync::Mutex;
use program::{Pipeline, Programs};

/// What to do if there is no device.
pub const REMEDY: &str = if cfg!(target_os = "linux") {
    "install the driver of your GPU with its Vulkan part, and the loader (package libvulkan1 or vulkan-icd-loader)"
} else {
    "install the driver of your GPU"
};

/// Bytes of arguments that every device must support.
const MIN_IMMEDIATE_SIZE: u32 = 64;

/// The buffers of a device, by the number of their [`BufferId`].
type BufferMap = HashMap<u64, wgpu::Buffer>;

/// A device through wgpu.
pub struct WebGpuDevice {
    device: wgpu::Device,
    queue: wgpu::Queue,
    limits: Limits,
    max_groups: u32,
    max_immediates: u32,
    lost: Arc<AtomicBool>,
    /// Whether work has timed out. The device is then never waited for again.
    hung: AtomicBool,
    /// Held during each poll of a software device, whose waits are short and often time out (see [`twice`]).
    polling: Mutex<()>,
    buffers: Arc<Mutex<BufferMap>>,
    next_buffer: AtomicU64,
    programs: Programs,
}

impl WebGpuDevice {
    /// Uses a device that the caller has made, so that kernels can work on its buffers in place ([`Device::import`]).
    ///
    /// The device needs [`wgpu::Features::IMMEDIATES`] and a `max_immediate_size` of at least 64 bytes. Teams are
    /// faster with [`wgpu::Features::SUBGROUP`] and `SUBGROUP_BARRIER`. Timing needs `TIMESTAMP_QUERY`. With
    /// `PIPELINE_CACHE`, compiled kernels are kept in the user's cache folder. This call sets the device-lost
    /// callback.
    ///
    /// # Errors
    /// Fails if the device lacks something that kernels need.
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
            polling: Mutex::default(),
            buffers: Arc::default(),
            next_buffer: AtomicU64::new(1),
            programs: Programs::new(cache),
        })
    }

    /// The wgpu buffer, for callers with their own wgpu code.
    pub fn exported(&self, buffer: BufferId) -> Option<wgpu::Buffer> {
        self.buffers.lock().get(&buffer.0).cloned()
    }

    /// Checks that kernels of this device can work on a caller's buffer.
    fn check(&self, buffer: &wgpu::Buffer) -> Result<(), DeviceError> {
        let unsuitable = |why: String| Err(DeviceError::Unsupported(format!("the buffer {why}")));
        let (usage, bytes) = (buffer.usage(), buffer.size());
        if !usage.contains(USAGE) {
            return unsuitable(format!("needs the usages {USAGE:?}, and has {usage:?}"));
        }
        if bytes == 0 || !bytes.is_multiple_of(4) || bytes > self.limits.max_buffer {
            let most = self.limits.max_buffer;
            return unsuitable(format!(
                "has {bytes} bytes; a multiple of 4 up to {most} can be bound"
            ));
        }
        // Record a command and discard it, only to see whether the buffer belongs to this device.
        let recorded = self.scoped(0, || {
            let mut encoder = self.device.create_command_encoder(&Default::default());
            encoder.clear_buffer(buffer, 0, Some(4));
            drop(encoder.finish());
        });
        match recorded {
            Err(DeviceError::Failed(why)) => unsuitable(format!("cannot be used: {why}")),
            recorded => recorded,
        }
    }

    fn keep(&self, buffer: wgpu::Buffer) -> BufferId {
        let id = self.next_buffer.fetch_add(1, Ordering::Relaxed);
        self.buffers.lock().insert(id, buffer);
        BufferId(id)
    }

    fn buffer(&self, buffer: BufferId) -> Result<wgpu::Buffer, DeviceError> {
        self.exported(buffer).ok_or_else(|| DeviceError::Failed("there is no such buffer".into()))
    }

    /// Runs `work` and returns its result, or the first error that wgpu reports for it. `bytes` is the size to name in
    /// an out-of-memory error.
    fn scoped<T>(&self, bytes: u64, work: impl FnOnce() -> T) -> Result<T, DeviceError> {
        self.alive()?;
        let memory = self.device.push_error_scope(wgpu::ErrorFilter::OutOfMemory);
        let validation = self.device.push_error_scope(wgpu::ErrorFilter::Validation);
        let internal = self.device.push_error_scope(wgpu::ErrorFilter::Internal);
        let done = work();
        // The futures are ready at once, so this does not block.
        let failed = [block_on(internal.pop()), block_on(validation.pop())];
        let memory = block_on(memory.pop());
        self.alive()?;
        if memory.is_some() {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        let Some(error) = failed.into_iter().flatten().next() else { return Ok(done) };
        // Objects created on a lost device are invalid. Polling reveals the loss.
        self.poll(wgpu::PollType::Poll)?;
        Err(DeviceError::Failed(error.to_string()))
    }

    fn pipeline(&self, work: &Dispatch<'_>) -> Result<Arc<Pipeline>, DeviceError> {
        self.programs.pipeline(self, work)
    }

    fn alive(&self) -> Result<(), DeviceError> {
        if self.lost.load(Ordering::Acquire) { Err(DeviceError::Lost) } else { Ok(()) }
    }

    /// Waits until `submission`, or everything submitted so far, has ended.
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
        let is_software = self.limits.kind == Kind::Software;
        let turn = is_software.then(|| self.polling.lock());
        let polled = twice(|| self.device.poll(how.clone()));
        drop(turn);
        if polled.is_none() {
            self.lost.store(true, Ordering::Release);
        }
        self.alive()?;
        match polled {
            Some(Ok(_)) => Ok(()),
            Some(Err(wgpu::PollError::Timeout)) => Err(DeviceError::TimedOut),
            Some(Err(error)) => Err(DeviceError::Failed(error.to_string())),
            None => Err(DeviceError::Lost),
        }
    }
}

/// The result of `poll`, which may panic once.
///
/// wgpu panics if the device is lost during a wait: then each poll panics. It also panics if a wait times out just
/// before another thread's poll finds that all work has ended: then the next poll succeeds.
fn twice<T>(mut poll: impl FnMut() -> T) -> Option<T> {
    (0..2).find_map(|_| catch_unwind(AssertUnwindSafe(&mut poll)).ok())
}

/// The usages of our buffers.
const USAGE: wgpu::BufferUsages = wgpu::BufferUsages::STORAGE
    .union(wgpu::BufferUsages::COPY_SRC)
    .union(wgpu::BufferUsages::COPY_DST);

impl Device for WebGpuDevice {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn has_driver(&self) -> bool {
        true
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
        let freed = self.buffers.lock().remove(&buffer.0);
        drop(freed);
    }

    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.exported(buffer).map(|buffer| buffer.size())
    }

    unsafe fn import(&self, buffer: NativeBuffer) -> Result<BufferId, DeviceError> {
        match buffer {
            NativeBuffer::WebGpu(buffer) => {
                self.check(&buffer)?;
                Ok(self.keep(buffer))
            }
            _ => Err(DeviceError::Unsupported("the buffer is not one of wgpu".into())),
        }
    }

    fn export(&self, buffer: BufferId) -> Option<NativeBuffer> {
        self.exported(buffer).map(NativeBuffer::WebGpu)
    }

    fn free_memory(&self) -> Option<u64> {
        let (bytes, source) = memory::of_device(&self.device)?;
        source.is_free().then_some(bytes)
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        self.alive()?;
        Ok(Box::new(queue::WebGpuQueue::new(self)))
    }

    #[cfg(all(not(target_vendor = "apple"), any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn visible_memory(&self, bytes: usize) -> Result<VisibleMemory, DeviceError> {
        visible::visible_memory(self, bytes)
    }

    fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
        self.programs.prepare(self, plans)
    }
}

impl Drop for WebGpuDevice {
    fn drop(&mut self) {
        if self.hung.load(Ordering::Acquire) {
            // When wgpu drops a queue, it waits for the queue's work without a limit, so leak it.
            std::mem::forget((self.device.clone(), self.queue.clone()));
        }
    }
}
