//! Lists the devices.

use pollster::block_on;

use super::*;
use crate::gpu::device::{Kind, MemorySource, Teams};

/// A device that has been found but not opened.
pub struct WebGpuCandidate {
    adapter: wgpu::Adapter,
    limits: Limits,
}

/// Lists the devices that the system's drivers offer, including software devices.
///
/// # Errors
/// [`DeviceError::Absent`] if there is no device.
pub fn devices() -> Result<Vec<WebGpuCandidate>, DeviceError> {
    let instance = wgpu::Instance::new(wgpu::InstanceDescriptor {
        backends: wgpu::Backends::PRIMARY,
        flags: wgpu::InstanceFlags::DISCARD_HAL_LABELS,
        memory_budget_thresholds: wgpu::MemoryBudgetThresholds {
            // An allocation that does not fit must fail, not silently move to the processor's slow memory.
            for_resource_creation: Some(97),
            for_device_loss: None,
        },
        ..wgpu::InstanceDescriptor::new_without_display_handle()
    });
    let adapters = block_on(instance.enumerate_adapters(wgpu::Backends::PRIMARY));
    let found = adapters.into_iter().map(|adapter| {
        let mut limits = limits(&adapter.get_info(), &granted(&adapter), features(&adapter));
        if let Some((bytes, source)) = memory::of_adapter(&adapter) {
            (limits.memory, limits.memory_source) = (bytes, source);
        }
        WebGpuCandidate { adapter, limits }
    });
    let found: Vec<_> = found.collect();
    if found.is_empty() {
        return Err(DeviceError::Absent("no driver offers a device for WebGPU".into()));
    }
    Ok(found)
}

impl WebGpuCandidate {
    /// The properties and limits of the device.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Opens the device.
    ///
    /// # Errors
    /// Fails if the driver refuses, or the device lacks something that kernels need.
    pub fn open(&self) -> Result<WebGpuDevice, DeviceError> {
        self.open_with(Cache::of_user)
    }

    pub(super) fn open_with(
        &self,
        cache: impl FnOnce(&Limits) -> Cache,
    ) -> Result<WebGpuDevice, DeviceError> {
        let requested = self.adapter.request_device(&wgpu::DeviceDescriptor {
            label: None,
            required_features: features(&self.adapter),
            required_limits: granted(&self.adapter),
            experimental_features: wgpu::ExperimentalFeatures::disabled(),
            // We use few large buffers, so wgpu need not reserve memory in advance.
            memory_hints: wgpu::MemoryHints::MemoryUsage,
            trace: wgpu::Trace::Off,
        });
        let (device, queue) =
            block_on(requested).map_err(|error| DeviceError::Failed(error.to_string()))?;
        // Only errors outside every scope arrive here, and no caller waits for them.
        device.on_uncaptured_error(std::sync::Arc::new(|_| ()));
        WebGpuDevice::with_cache(device, queue, cache)
    }
}

/// The features to request, out of those the adapter has.
fn features(adapter: &wgpu::Adapter) -> wgpu::Features {
    let wanted = wgpu::Features::IMMEDIATES
        | wgpu::Features::SUBGROUP
        | wgpu::Features::SUBGROUP_BARRIER
        | wgpu::Features::TIMESTAMP_QUERY
        | wgpu::Features::PIPELINE_CACHE;
    adapter.features() & wanted
}

/// The limits to request: the adapter's own where they concern compute.
fn granted(adapter: &wgpu::Adapter) -> wgpu::Limits {
    let has = adapter.limits();
    wgpu::Limits {
        max_storage_buffer_binding_size: has.max_storage_buffer_binding_size,
        max_buffer_size: has.max_buffer_size,
        max_storage_buffers_per_shader_stage: has.max_storage_buffers_per_shader_stage,
        max_compute_workgroup_storage_size: has.max_compute_workgroup_storage_size,
        max_compute_invocations_per_workgroup: has.max_compute_invocations_per_workgroup,
        max_compute_workgroup_size_x: has.max_compute_workgroup_size_x,
        max_compute_workgroups_per_dimension: has.max_compute_workgroups_per_dimension,
        max_immediate_size: has.max_immediate_size.min(256),
        ..wgpu::Limits::default().or_worse_values_from(&has)
    }
}

/// Kernels in WGSL count bytes in 32 bits, and some drivers drop writes far into a large buffer.
const LARGEST_BUFFER: u64 = (1 << 31) - 1;

pub(super) fn limits(
    info: &wgpu::AdapterInfo,
    granted: &wgpu::Limits,
    features: wgpu::Features,
) -> Limits {
    let max_buffer = granted.max_buffer_size.min(granted.max_storage_buffer_binding_size);
    let max_buffer = max_buffer.min(LARGEST_BUFFER) & !3;
    let kind = match info.device_type {
        wgpu::DeviceType::DiscreteGpu => Kind::Discrete,
        wgpu::DeviceType::IntegratedGpu => Kind::Integrated,
        wgpu::DeviceType::Cpu => Kind::Software,
        wgpu::DeviceType::VirtualGpu | wgpu::DeviceType::Other => Kind::Other,
    };
    let subgroups = wgpu::Features::SUBGROUP | wgpu::Features::SUBGROUP_BARRIER;
    // Direct3D has no subgroup barrier.
    let is_team = (info.subgroup_min_size, info.subgroup_max_size) == (32, 32)
        && info.backend != wgpu::Backend::Dx12;
    let driver = [info.driver.as_str(), info.driver_info.as_str()].join(" ");
    Limits {
        api: Api::WebGpu,
        name: info.name.clone(),
        driver: format!("{} ({})", driver.trim(), info.backend),
        kind,
        memory: granted.max_buffer_size / 2,
        memory_source: MemorySource::Assumed,
        max_buffer,
        local_memory: granted.max_compute_workgroup_storage_size,
        max_workgroup: granted
            .max_compute_invocations_per_workgroup
            .min(granted.max_compute_workgroup_size_x),
        teams: if is_team && features.contains(subgroups) { Teams::Subgroup } else { Teams::Local },
        // WebGPU does not report this, so assume a number typical of the kind.
        compute_units: match kind {
            Kind::Discrete => 128,
            Kind::Integrated | Kind::Other => 16,
            Kind::Software => std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
        },
        timing: features.contains(wgpu::Features::TIMESTAMP_QUERY),
    }
}
