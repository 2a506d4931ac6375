//! Memory that running kernels and the host share.
//!
//! WebGPU forbids mapping a buffer that a kernel uses, so this module goes below it, to Vulkan. In memory that is
//! "device-local" and "host-visible", running kernels and the host see each other's writes. Vulkan promises this only
//! for work that has ended. It holds earlier because on GPUs both sides meet in the GPU's cache, and on processors
//! there is only one memory. This module allocates and maps such memory, and hands wgpu a buffer for it.

use std::sync::Arc;

use ash::vk;
use wgpu::hal::api::Vulkan;
use wgpu::hal::vulkan;

use super::{USAGE, WebGpuDevice};
use crate::gpu::device::visible::VisibleMemory;
use crate::gpu::device::{BufferId, DeviceError};
use crate::sync::Mutex;

/// Required properties of the memory.
const NEEDED: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    vk::MemoryPropertyFlags::DEVICE_LOCAL.as_raw()
        | vk::MemoryPropertyFlags::HOST_VISIBLE.as_raw()
        | vk::MemoryPropertyFlags::HOST_COHERENT.as_raw(),
);
/// Permitted properties: other kinds of memory have conditions of their own.
const ALLOWED: vk::MemoryPropertyFlags = vk::MemoryPropertyFlags::from_raw(
    NEEDED.as_raw() | vk::MemoryPropertyFlags::HOST_CACHED.as_raw(),
);

/// Allocates `bytes` bytes of memory, shared by running kernels and the host.
pub(super) fn visible_memory(
    device: &WebGpuDevice,
    bytes: usize,
) -> Result<VisibleMemory, DeviceError> {
    let size = (bytes.max(16) as u64).next_multiple_of(16);
    if size > device.limits.max_buffer {
        return Err(DeviceError::OutOfMemory { bytes: size });
    }
    // SAFETY: the guard is used only here, and we destroy none of its objects.
    let hal = unsafe { device.device.as_hal::<Vulkan>() };
    let Some(hal) = hal else {
        return Err(DeviceError::Unsupported(format!(
            "a kernel that runs on {} sees what the host writes only through Vulkan, and not through {}",
            device.limits.name, device.limits.driver
        )));
    };
    let memory = Arc::new(Mapped::new(&hal, size, &device.limits.name)?);
    let kept = Arc::clone(&memory);
    let dropped = Box::new(move || drop(kept));
    let description =
        wgpu::BufferDescriptor { label: None, size, usage: USAGE, mapped_at_creation: false };
    let buffer = device.scoped(size, || {
        // SAFETY: the buffer is of this device, has this size and these usages, and is bound to initialised memory. It
        // lives until wgpu drops it.
        unsafe {
            let raw = vulkan::Buffer::from_raw_externally_owned(memory.buffer, dropped);
            device.device.create_buffer_from_hal::<Vulkan>(raw, &description)
        }
    })?;
    let id = device.keep(buffer);
    let (at, is_cached) = (memory.at, memory.is_cached);
    let owner = Owner {
        id,
        buffers: Arc::clone(&device.buffers),
        _memory: memory,
        _device: device.device.clone(),
    };
    // SAFETY: the memory is mapped, so its address is a multiple of 64; it is initialised and belongs to the owner
    // alone.
    let memory = unsafe { VisibleMemory::new(at, bytes, id, Box::new(owner)) };
    Ok(memory.write_combined(!is_cached))
}

/// Keeps the memory and the kernels' buffer for it.
struct Owner {
    id: BufferId,
    buffers: Arc<Mutex<super::BufferMap>>,
    _memory: Arc<Mapped>,
    /// The memory's device, dropped last.
    _device: wgpu::Device,
}

impl Drop for Owner {
    fn drop(&mut self) {
        let buffer = self.buffers.lock().remove(&self.id.0);
        drop(buffer);
    }
}

/// Mapped memory with a buffer. wgpu and its owner both keep it, and both keep its device.
struct Mapped {
    device: ash::Device,
    buffer: vk::Buffer,
    memory: vk::DeviceMemory,
    at: *mut u8,
    /// Whether the host reads it through its caches.
    is_cached: bool,
}

// SAFETY: the pointer is only handed on, and Vulkan's objects may be used and destroyed by any thread, one at a time.
unsafe impl Send for Mapped {}
// SAFETY: as above.
unsafe impl Sync for Mapped {}

impl Mapped {
    /// Allocates `bytes` bytes, all 0.
    fn new(hal: &vulkan::Device, bytes: u64, name: &str) -> Result<Self, DeviceError> {
        let failed = |error| failed(error, bytes);
        let device = hal.raw_device().clone();
        let description = vk::BufferCreateInfo::default().size(bytes).usage(
            vk::BufferUsageFlags::STORAGE_BUFFER
                | vk::BufferUsageFlags::TRANSFER_SRC
                | vk::BufferUsageFlags::TRANSFER_DST,
        );
        // SAFETY: the description is complete.
        let buffer = unsafe { device.create_buffer(&description, None) }.map_err(failed)?;
        // From here on, dropping `made` destroys all parts.
        let (memory, at) = (vk::DeviceMemory::null(), std::ptr::null_mut());
        let mut made = Self { device, buffer, memory, at, is_cached: false };
        let device = &made.device;
        // SAFETY: the handles are of this device and instance.
        let (needs, all) = unsafe {
            let instance = hal.shared_instance().raw_instance();
            let physical = hal.raw_physical_device();
            let properties = instance.get_physical_device_memory_properties(physical);
            (device.get_buffer_memory_requirements(buffer), properties)
        };
        let types = all.memory_types.iter().take(all.memory_type_count as usize).zip(0u32..);
        let suitable = types.filter(|(kind, number)| {
            let flags = kind.property_flags;
            let is_whole = flags.contains(NEEDED) && ALLOWED.contains(flags);
            needs.memory_type_bits >> number & 1 != 0 && is_whole
        });
        let is_cached = |kind: &vk::MemoryType| {
            kind.property_flags.contains(vk::MemoryPropertyFlags::HOST_CACHED)
        };
        let Some((kind, number)) = suitable.max_by_key(|(kind, _)| is_cached(kind)) else {
            let what = format!("{name} has no memory that the host sees too");
            return Err(DeviceError::Unsupported(what));
        };
        let allocation =
            vk::MemoryAllocateInfo::default().allocation_size(needs.size).memory_type_index(number);
        made.is_cached = is_cached(kind);
        // SAFETY: the memory is of a type that the buffer can have, long enough, and can be mapped; it is mapped once.
        unsafe {
            made.memory = device.allocate_memory(&allocation, None).map_err(failed)?;
            device.bind_buffer_memory(buffer, made.memory, 0).map_err(failed)?;
            let flags = vk::MemoryMapFlags::empty();
            let at = device.map_memory(made.memory, 0, vk::WHOLE_SIZE, flags).map_err(failed)?;
            made.at = at.cast();
            made.at.write_bytes(0, bytes as usize);
        }
        Ok(made)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: both belong to this value, and wgpu has dropped its buffer, which it does when no work uses it.
        // Vulkan ignores null handles, and freeing memory unmaps it.
        unsafe {
            self.device.destroy_buffer(self.buffer, None);
            self.device.free_memory(self.memory, None);
        }
    }
}

fn failed(error: vk::Result, bytes: u64) -> DeviceError {
    match error {
        vk::Result::ERROR_OUT_OF_HOST_MEMORY
        | vk::Result::ERROR_OUT_OF_DEVICE_MEMORY
        | vk::Result::ERROR_TOO_MANY_OBJECTS => DeviceError::OutOfMemory { bytes },
        vk::Result::ERROR_DEVICE_LOST => DeviceError::Lost,
        error => {
            DeviceError::Failed(format!("Vulkan cannot make memory that the host sees: {error}"))
        }
    }
}
