use super::*;
use crate::gpu::device::{MemorySource, Teams};
use crate::gpu::kernel::{ALL, Kernel, TEST_DEVICE, TEST_TEAM};

fn opened() -> Vec<WebGpuDevice> {
    let found = devices().unwrap_or_default();
    if found.is_empty() {
        assert!(std::env::var_os("PZ_TEST_NO_SKIP").is_none(), "there is no device");
        eprintln!("SKIPPED: there is no device for WebGPU");
    }
    found.iter().map(|found| found.open().unwrap()).collect()
}

#[test]
fn limits_are_what_the_device_says() {
    for found in devices().unwrap_or_default() {
        let (before, device) = (found.limits(), found.open().unwrap());
        let after = device.limits();
        assert_eq!(before.name, after.name);
        assert_eq!(before.max_buffer, after.max_buffer);
        assert_eq!(before.teams, after.teams);
        if cfg!(target_os = "linux") {
            assert_ne!(after.memory_source, MemorySource::Assumed);
        }
        assert!(after.memory > 64 << 20 && after.max_buffer >= 64 << 20);
    }
}

#[test]
fn a_device_that_is_lost_says_so() {
    for device in opened() {
        let buffer = device.allocate(64).unwrap();
        let mut queue = device.queue().unwrap();
        queue.write(buffer, 0, &[1; 64]).unwrap();
        device.device.destroy();
        let mut back = [0; 64];
        assert_eq!(queue.read(buffer, 0, &mut back), Err(DeviceError::Lost));
        assert_eq!(queue.finish(), Err(DeviceError::Lost));
        assert_eq!(device.allocate(64), Err(DeviceError::Lost));
    }
}

#[test]
fn what_the_caller_has_made_is_used_in_place() {
    for device in opened() {
        let (theirs, submissions) = (device.device.clone(), device.queue.clone());
        let ours = WebGpuDevice::from_wgpu(theirs.clone(), submissions).unwrap();
        let buffer = theirs.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 128,
            usage: USAGE,
            mapped_at_creation: false,
        });
        let id = ours.import(buffer.clone()).unwrap();
        assert_eq!(ours.exported(id), Some(buffer));
        let mut queue = ours.queue().unwrap();
        queue
            .dispatch(&Dispatch {
                kernel: &TEST_DEVICE,
                entry: "count_up",
                defines: &[],
                buffers: &[id],
                args: &[32, 2],
                groups: 1,
                threads: 32,
            })
            .unwrap();
        let mut back = [0; 128];
        queue.read(id, 0, &mut back).unwrap();
        assert_eq!(back[124], 62);
        let unfit = theirs.create_buffer(&wgpu::BufferDescriptor {
            label: None,
            size: 128,
            usage: wgpu::BufferUsages::STORAGE,
            mapped_at_creation: false,
        });
        assert!(matches!(ours.import(unfit), Err(DeviceError::Unsupported(_))));
    }
}

/// Compiles a kernel as far as can be without a device.
fn validate(kernel: &Kernel, teams: Teams, threads: u32) {
    use wgpu::naga;
    let limits = Limits {
        api: Api::WebGpu,
        name: String::new(),
        driver: String::new(),
        kind: crate::gpu::device::Kind::Other,
        memory: 0,
        memory_source: MemorySource::Assumed,
        max_buffer: 0,
        local_memory: 0,
        max_workgroup: 0,
        teams,
        compute_units: 0,
        timing: false,
    };
    let source = kernel.source(&limits, threads, &[]);
    let module = naga::front::wgsl::parse_str(&source)
        .unwrap_or_else(|e| panic!("{}, {teams:?}: {}", kernel.stem, e.emit_to_string(&source)));
    let capabilities = naga::valid::Capabilities::IMMEDIATES
        | naga::valid::Capabilities::SUBGROUP
        | naga::valid::Capabilities::SUBGROUP_BARRIER;
    let mut validator =
        naga::valid::Validator::new(naga::valid::ValidationFlags::all(), capabilities);
    validator
        .subgroup_stages(naga::valid::ShaderStages::COMPUTE)
        .subgroup_operations(naga::valid::SubgroupOperationSet::all());
    if let Err(error) = validator.validate(&module) {
        panic!("{}, {teams:?}: {}", kernel.stem, error.emit_to_string(&source));
    }
}

#[test]
fn kernels_are_valid_for_every_kind_of_team() {
    for kernel in ALL.iter().copied().chain([&TEST_DEVICE, &TEST_TEAM]) {
        validate(kernel, Teams::Subgroup, 128);
        validate(kernel, Teams::Local, 32);
    }
}
