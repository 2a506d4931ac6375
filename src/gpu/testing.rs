//! What tests of kernels and backends share: the devices that there are, and running a plan from inputs to outputs.
//!
//! | environment | |
//! |---|---|
//! | `PZ_TEST_DEVICE` | only the devices whose interface (`opencl`, `webgpu`) or name it is, or is a part of |
//! | `PZ_TEST_NO_SKIP=1` | a test that finds no device of an interface fails |

#[cfg(any(feature = "opencl", feature = "webgpu"))]
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::device::{Api, BufferId, Device, DeviceError, Kind, Limits, MemorySource, Queue, Teams};
use super::kernel::Kernel;
#[cfg(any(feature = "opencl", feature = "webgpu"))]
use super::kernel::TEST_DEVICE;
use super::plan::Plan;
#[cfg(any(feature = "opencl", feature = "webgpu"))]
use super::plan::Run;
use super::pool::Pool;
use super::run::{Memory, submit};

/// What a plan's buffers hold before anything is written to them, so that nothing relies on their contents.
pub(crate) const GARBAGE: u8 = 0xa5;

type Opened = Result<Vec<Box<dyn Device>>, DeviceError>;

/// The devices of an interface, opened once, so that each kernel is compiled once.
fn devices(api: Api) -> &'static Opened {
    static OPENCL: OnceLock<Opened> = OnceLock::new();
    static WEBGPU: OnceLock<Opened> = OnceLock::new();
    match api {
        Api::OpenCl => OPENCL.get_or_init(|| open(api)),
        Api::WebGpu => WEBGPU.get_or_init(|| open(api)),
    }
}

fn open(api: Api) -> Opened {
    match api {
        Api::OpenCl => opencl(),
        Api::WebGpu => webgpu(),
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
    each_of(|api, run| run(devices(api)), test);
}

/// The same, on devices that are opened for this, which `test` may leave in any state.
pub(crate) fn each_new_device(test: impl Fn(&dyn Device)) {
    each_of(|api, run| run(&open(api)), test);
}

fn each_of(opened: impl Fn(Api, &dyn Fn(&Opened)), test: impl Fn(&dyn Device)) {
    let wanted = std::env::var("PZ_TEST_DEVICE").ok().map(|wanted| wanted.to_lowercase());
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| name.contains(wanted));
    let no_skip = std::env::var_os("PZ_TEST_NO_SKIP").is_some_and(|value| value == "1");
    let apis = [(Api::OpenCl, cfg!(feature = "opencl")), (Api::WebGpu, cfg!(feature = "webgpu"))];
    for (api, is_built) in apis {
        let api_name = api.to_string().to_lowercase();
        let run = |opened: &Opened| {
            let mut tested = 0;
            for device in opened.iter().flatten() {
                let limits = device.limits();
                if is_wanted(&api_name) || is_wanted(&limits.name.to_lowercase()) {
                    println!("on {api}: {} ({})", limits.name, limits.driver);
                    test(&**device);
                    tested += 1;
                }
            }
            if tested == 0 && is_built && is_wanted(&api_name) {
                let why = opened.as_ref().err().map_or("no device".into(), ToString::to_string);
                eprintln!("\n*** SKIPPED on {api}: {why} ***\n");
                assert!(!no_skip, "a test was to run on {api}, and cannot: {why}");
            }
        };
        opened(api, &run);
    }
}

/// What a made-up device says of itself. Tests change what matters to them.
pub(crate) fn made_up() -> Limits {
    Limits {
        api: Api::OpenCl,
        name: String::new(),
        driver: String::new(),
        kind: Kind::Discrete,
        memory: 8 << 30,
        memory_source: MemorySource::Total,
        max_buffer: 2 << 30,
        local_memory: 48 << 10,
        max_workgroup: 1024,
        teams: Teams::Local,
        compute_units: 100,
        timing: false,
    }
}

/// A device that can do nothing: what it is given has to be done by others in the end.
pub(crate) struct Nothing(pub(crate) Limits);

impl Device for Nothing {
    fn limits(&self) -> &Limits {
        &self.0
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        Err(DeviceError::OutOfMemory { bytes })
    }

    fn free(&self, _: BufferId) {}

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        Err(DeviceError::Lost)
    }
}

/// A use of a kernel that counts up.
#[cfg(any(feature = "opencl", feature = "webgpu"))]
pub(crate) fn counting(threads: u32) -> Run {
    Run {
        stage: "count",
        kernel: &TEST_DEVICE,
        entry: "count_up",
        defines: Vec::new(),
        buffers: Vec::new(),
        args: Vec::new(),
        groups: 1,
        threads,
    }
}

/// What is in a folder, sorted; nothing, if it is not there.
#[cfg(any(feature = "opencl", feature = "webgpu"))]
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs `plan` on `device`, whose buffers are filled with [`GARBAGE`] first: writes `inputs` to the beginnings of the
/// buffers of these names, and gives back the whole contents of those of `outputs`.
///
/// # Panics
/// If the plan has not taken exactly the memory that the costs of its kernels say.
pub(crate) fn run_plan(
    device: &dyn Device,
    plan: &Plan,
    inputs: &[(&str, &[u8])],
    outputs: &[&str],
) -> Result<Vec<Vec<u8>>, DeviceError> {
    let pool = Pool::new(device).filled_with(GARBAGE);
    let memory = Memory::allocate(&pool, plan)?;
    let mut queue = pool.queue()?;
    // A software device may take a minute to compile a kernel where other tests run beside this one.
    queue.set_deadline(std::time::Duration::from_secs(600));
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
    let outputs = outputs.iter().map(read).collect();
    let kernels: Vec<&Kernel> = plan.runs().map(|run| run.kernel).collect();
    assert_eq!(pool.high_water(), plan.shape.memory(&kernels).unwrap(), "memory of the plan");
    outputs
}
