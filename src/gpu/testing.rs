//! What tests of kernels and backends share: the devices that there are, and running a plan from inputs to outputs.
//!
//! | environment | |
//! |---|---|
//! | `PZ_TEST_DEVICE` | only the devices whose interface (`opencl`, `webgpu`) or name it is, or is a part of |
//! | `PZ_TEST_NO_SKIP=1` | a test that finds no device of an interface fails |

use std::sync::OnceLock;

use super::device::{Api, Device, DeviceError};
use super::plan::Plan;
use super::run::{Memory, submit};

/// What a plan's buffers hold before anything is written to them, so that nothing relies on their contents.
pub(crate) const GARBAGE: u8 = 0xa5;

type Opened = Result<Vec<Box<dyn Device>>, DeviceError>;

/// The devices of an interface, opened once, so that each kernel is compiled once.
fn devices(api: Api) -> &'static Opened {
    static OPENCL: OnceLock<Opened> = OnceLock::new();
    static WEBGPU: OnceLock<Opened> = OnceLock::new();
    match api {
        Api::OpenCl => OPENCL.get_or_init(opencl),
        Api::WebGpu => WEBGPU.get_or_init(webgpu),
    }
}

#[cfg(feature = "opencl")]
fn opencl() -> Opened {
    let open = |found: &super::opencl::Found| found.open().map(|d| Box::new(d) as Box<dyn Device>);
    super::opencl::devices()?.iter().map(open).collect()
}

#[cfg(not(feature = "opencl"))]
fn opencl() -> Opened {
    Err(DeviceError::Absent("this build is without the feature".into()))
}

#[cfg(feature = "webgpu")]
fn webgpu() -> Opened {
    let open = |found: &super::webgpu::Found| found.open().map(|d| Box::new(d) as Box<dyn Device>);
    super::webgpu::devices()?.iter().map(open).collect()
}

#[cfg(not(feature = "webgpu"))]
fn webgpu() -> Opened {
    Err(DeviceError::Absent("this build is without the feature".into()))
}

/// Runs `test` on every device of both interfaces, software ones included.
///
/// # Panics
/// If `test` does, or if it is not to be skipped and an interface that this build has is without devices.
pub(crate) fn each_device(test: impl Fn(&dyn Device)) {
    let wanted = std::env::var("PZ_TEST_DEVICE").ok().map(|wanted| wanted.to_lowercase());
    let no_skip = std::env::var_os("PZ_TEST_NO_SKIP").is_some_and(|value| value == "1");
    let apis = [(Api::OpenCl, cfg!(feature = "opencl")), (Api::WebGpu, cfg!(feature = "webgpu"))];
    for (api, is_built) in apis {
        let api_name = api.to_string().to_lowercase();
        let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| name.contains(wanted));
        let mut tested = 0;
        let why = match devices(api) {
            Ok(devices) => {
                for device in devices {
                    let limits = device.limits();
                    if is_wanted(&api_name) || is_wanted(&limits.name.to_lowercase()) {
                        println!("on {api}: {} ({})", limits.name, limits.driver);
                        test(&**device);
                        tested += 1;
                    }
                }
                "no device is the one that PZ_TEST_DEVICE asks for".to_string()
            }
            Err(error) => error.to_string(),
        };
        let is_excluded = wanted.is_some() && !is_wanted(&api_name);
        if tested == 0 && is_built && !is_excluded {
            eprintln!("\n*** SKIPPED on {api}: {why} ***\n");
            assert!(!no_skip, "a test was to run on {api}, and cannot: {why}");
        }
    }
}

/// Runs `plan` on `device`, whose buffers are filled with [`GARBAGE`] first: writes `inputs` to the beginnings of the
/// buffers of these names, and gives back the whole contents of those of `outputs`.
pub(crate) fn run_plan(
    device: &dyn Device,
    plan: &Plan,
    inputs: &[(&str, &[u8])],
    outputs: &[&str],
) -> Result<Vec<Vec<u8>>, DeviceError> {
    let memory = Memory::allocate(device, plan)?;
    let mut queue = device.queue()?;
    let garbage = vec![GARBAGE; 1 << 20];
    for buffer in &plan.buffers {
        let mut at = 0;
        while at < buffer.bytes {
            let len = (buffer.bytes - at).min(garbage.len() as u64);
            queue.write(memory.named(buffer.name), at, &garbage[..len as usize])?;
            at += len;
        }
    }
    for (name, bytes) in inputs {
        let mut padded = bytes.to_vec();
        padded.resize(bytes.len().next_multiple_of(4), GARBAGE);
        queue.write(memory.named(name), 0, &padded)?;
    }
    submit(plan, &memory, &mut *queue)?;
    let read = |name: &&str| {
        let buffer = plan.buffers.iter().find(|buffer| buffer.name == *name);
        let mut bytes = vec![0; buffer.map_or(0, |buffer| buffer.bytes as usize)];
        queue.read(memory.named(name), 0, &mut bytes)?;
        Ok(bytes)
    };
    outputs.iter().map(read).collect()
}
