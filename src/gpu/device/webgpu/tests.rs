use super::*;
use crate::gpu::device::MemorySource;
use crate::gpu::device::deadline::{cores, processor_time};
use crate::gpu::model::kernel::{Kernel, TEST_BROKEN, TEST_DEVICE, TEST_TEAM, TEST_TURNS};
use crate::gpu::tests::import::codes_between_callers_buffers;
use crate::gpu::tests::testing::{counting, files_in};

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
fn what_does_not_end_in_time_is_given_up() {
    use std::time::Duration;
    for device in opened() {
        let buffer = device.allocate(1 << 20).unwrap();
        let mut queue = device.queue().unwrap();
        queue.set_deadline(Duration::from_micros(100));
        for _ in 0..20 {
            let args = [20_000, 1 << 18];
            queue
                .dispatch(&Dispatch {
                    kernel: &TEST_TURNS,
                    entry: "turns",
                    defines: &[],
                    buffers: &[buffer],
                    args: &args,
                    groups: args[1] / 32,
                    threads: 32,
                })
                .unwrap();
        }
        let (begun, before) = (std::time::Instant::now(), processor_time());
        assert_eq!(queue.finish(), Err(DeviceError::TimedOut));
        assert_eq!(queue.read(buffer, 0, &mut [0; 4]), Err(DeviceError::TimedOut));
        assert_eq!(queue.write(buffer, 0, &[0; 4]), Err(DeviceError::TimedOut));
        drop(queue);
        device.free(buffer);
        drop(device);
        // Other programs may use most of the processor, so measure processor time: waiting for a software device
        // would use minutes.
        let spent = processor_time().zip(before).map_or(begun.elapsed(), |(now, then)| now - then);
        assert!(spent < Duration::from_millis(200) * cores(), "{spent:?}");
    }
}

#[test]
fn what_the_caller_has_made_is_used_in_place() {
    for theirs in opened() {
        let ours = WebGpuDevice::from_wgpu(theirs.device.clone(), theirs.queue.clone()).unwrap();
        codes_between_callers_buffers(&theirs, ours, |buffer| {
            NativeBuffer::WebGpu(theirs.exported(buffer).unwrap())
        });
    }
}

#[test]
fn a_buffer_that_kernels_cannot_use_is_refused() {
    for found in devices().unwrap_or_default() {
        let [theirs, other] = [found.open().unwrap(), found.open().unwrap()];
        let ours = WebGpuDevice::from_wgpu(theirs.device.clone(), theirs.queue.clone()).unwrap();
        let made = |device: &WebGpuDevice, size, usage| {
            let mapped_at_creation = false;
            let label = None;
            let descriptor = wgpu::BufferDescriptor { label, size, usage, mapped_at_creation };
            device.device.create_buffer(&descriptor)
        };
        // SAFETY: nothing else uses the buffer.
        let import = |buffer| unsafe { ours.import(NativeBuffer::WebGpu(buffer)) };
        let buffer = made(&theirs, 128, USAGE);
        let id = import(buffer.clone()).unwrap();
        assert_eq!((ours.exported(id), ours.buffer_bytes(id)), (Some(buffer), Some(128)));
        ours.free(id);
        assert_eq!((ours.exported(id), ours.buffer_bytes(id)), (None, None));
        let usages = [wgpu::BufferUsages::STORAGE, wgpu::BufferUsages::COPY_SRC];
        let unfit = usages.map(|usage| made(&theirs, 128, USAGE.difference(usage)));
        let [odd, foreign] = [made(&theirs, 130, USAGE), made(&other, 128, USAGE)];
        for unfit in unfit.into_iter().chain([odd, foreign]) {
            let refused = import(unfit);
            assert!(matches!(refused, Err(DeviceError::Unsupported(_))), "{refused:?}");
        }
    }
}

/// The errors of wgpu's compiler for a kernel, without a device.
pub(crate) fn validate(source: &str, entry: &str) -> Result<(), String> {
    use wgpu::naga::{front::wgsl::parse_str, valid};
    let module = parse_str(source).map_err(|error| error.emit_to_string(source))?;
    let capabilities = valid::Capabilities::IMMEDIATES
        | valid::Capabilities::SUBGROUP
        | valid::Capabilities::SUBGROUP_BARRIER;
    valid::Validator::new(valid::ValidationFlags::all(), capabilities)
        .subgroup_stages(valid::ShaderStages::COMPUTE)
        .subgroup_operations(valid::SubgroupOperationSet::all())
        .validate(&module)
        .map_err(|error| error.emit_to_string(source))?;
    let is_there = module.entry_points.iter().any(|point| point.name == entry);
    is_there.then_some(()).ok_or_else(|| format!("there is no entry point {entry}"))
}

#[test]
fn a_kernel_that_is_not_valid_is_found() {
    use crate::gpu::device::Teams;
    use crate::gpu::tests::testing::made_up;
    let limits = Limits { api: Api::WebGpu, teams: Teams::Subgroup, ..made_up() };
    let source = |kernel: &Kernel| kernel.source(&limits, 128, &[]);
    assert_eq!(validate(&source(&TEST_TEAM), "team_functions"), Ok(()));
    assert!(validate(&source(&TEST_TEAM), "another").is_err());
    assert!(validate(&source(&TEST_BROKEN), "broken").is_err());
}

#[test]
fn programs_are_kept() {
    use crate::gpu::model::plan::{Plan, Shape, Step};
    let folder = std::env::temp_dir().join(format!("pz-test-pipelines-{}", std::process::id()));
    let files = || files_in(&folder);
    let run = |found: &WebGpuCandidate| {
        let device = found.open_with(|_| Cache::in_folder(folder.clone())).unwrap();
        let mut plan = Plan::new(Shape::new(1, 1));
        plan.steps.push(Step::Run(counting(32)));
        device.prepare(&[plan]).unwrap();
        let prepared = files();
        let buffer = device.allocate(128).unwrap();
        let mut queue = device.queue().unwrap();
        queue
            .dispatch(&Dispatch {
                kernel: &TEST_DEVICE,
                entry: "count_up",
                defines: &[],
                buffers: &[buffer],
                args: &[32, 2],
                groups: 1,
                threads: 32,
            })
            .unwrap();
        let mut back = [0; 128];
        queue.read(buffer, 0, &mut back).unwrap();
        assert_eq!(back[124], 62);
        assert_eq!(files(), prepared);
        prepared
    };
    for found in devices().unwrap_or_default() {
        let prepared = run(&found);
        if prepared.is_empty() {
            eprintln!("SKIPPED: {} does not give out what it compiles", found.limits().name);
            continue;
        }
        let [file] = &prepared[..] else { panic!("{prepared:?}") };
        let kept = std::fs::read(file).unwrap();
        run(&found);
        assert_eq!(std::fs::read(file).unwrap(), kept);
        // Data that the driver did not write, and data that is cut short.
        let nonsense = &kept[36..kept.len() - 1];
        let crc = crc32c::crc32c(nonsense).to_le_bytes();
        for damaged in [[&kept[..32], &crc, nonsense].concat(), kept[..20].to_vec(), Vec::new()] {
            std::fs::write(file, damaged).unwrap();
            run(&found);
            assert_eq!(std::fs::read(file).unwrap(), kept);
        }
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn a_device_is_lost_at_the_second_panic() {
    let mut polls = 0;
    let mut after = |panics| {
        polls = 0;
        let poll = || {
            polls += 1;
            assert!(polls > panics, "as wgpu does in a race");
            polls
        };
        super::twice(poll)
    };
    assert_eq!([0, 1, 2].map(&mut after), [Some(1), Some(2), None]);
}
