//! The memory size of a device. WebGPU does not report it, but Vulkan below it does.

use crate::gpu::device::MemorySource;

/// The size in bytes, and its source.
type HeapSize = Option<(u64, MemorySource)>;

#[cfg(target_vendor = "apple")]
pub(super) fn of_adapter(_: &wgpu::Adapter) -> HeapSize {
    None
}

#[cfg(target_vendor = "apple")]
pub(super) fn of_device(_: &wgpu::Device) -> HeapSize {
    None
}

#[cfg(not(target_vendor = "apple"))]
pub(super) use vulkan::{of_adapter, of_device};

#[cfg(not(target_vendor = "apple"))]
mod vulkan {
    use ash::vk;
    use wgpu::hal::api::Vulkan;

    use super::{HeapSize, MemorySource};

    pub(in super::super) fn of_adapter(adapter: &wgpu::Adapter) -> HeapSize {
        // SAFETY: the handles are only queried, and only while the guard holds them.
        let adapter = unsafe { adapter.as_hal::<Vulkan>() }?;
        let has_budget =
            adapter.physical_device_capabilities().supports_extension(vk::EXT_MEMORY_BUDGET_NAME);
        let instance = adapter.shared_instance().raw_instance();
        of(instance, adapter.raw_physical_device(), has_budget)
    }

    pub(in super::super) fn of_device(device: &wgpu::Device) -> HeapSize {
        // SAFETY: as above.
        let device = unsafe { device.as_hal::<Vulkan>() }?;
        let has_budget = device.enabled_device_extensions().contains(&vk::EXT_MEMORY_BUDGET_NAME);
        of(device.shared_instance().raw_instance(), device.raw_physical_device(), has_budget)
    }

    /// Reads the size of the largest device-local heap.
    fn of(instance: &ash::Instance, device: vk::PhysicalDevice, has_budget: bool) -> HeapSize {
        // SAFETY: the handle belongs to this instance.
        if unsafe { instance.get_physical_device_properties(device) }.api_version
            < vk::API_VERSION_1_1
        {
            return None;
        }
        let mut budget = vk::PhysicalDeviceMemoryBudgetPropertiesEXT::default();
        let mut properties = vk::PhysicalDeviceMemoryProperties2::default();
        if has_budget {
            properties = properties.push_next(&mut budget);
        }
        // SAFETY: the handle belongs to this instance, which has Vulkan 1.1, and the structures are chained correctly.
        unsafe { instance.get_physical_device_memory_properties2(device, &mut properties) };
        let heaps = properties.memory_properties;
        let (at, heap) = heaps.memory_heaps[..heaps.memory_heap_count as usize]
            .iter()
            .enumerate()
            .filter(|(_, heap)| heap.flags.contains(vk::MemoryHeapFlags::DEVICE_LOCAL))
            .max_by_key(|(_, heap)| heap.size)?;
        let free = budget.heap_budget[at].saturating_sub(budget.heap_usage[at]);
        if has_budget && budget.heap_budget[at] > 0 {
            Some((free.min(heap.size), MemorySource::VulkanBudget))
        } else {
            Some((heap.size, MemorySource::Total))
        }
    }
}
