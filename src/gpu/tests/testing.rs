//! Shared by tests of kernels and backends: the devices, and a way to run a plan from inputs to outputs.
//!
//! | environment | |
//! |---|---|
//! | `PZ_TEST_DEVICE` | use only devices whose interface (`cuda`, `opencl`, `webgpu`) or name contains this |
//! | `PZ_TEST_NO_SKIP=1` | fail a test that finds no device of an interface that has software devices |

#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

#[cfg(any(feature = "cuda", feature = "opencl"))]
use crate::gpu::device::Dispatch;
use crate::gpu::device::pool::Pool;
use crate::gpu::device::run::{PlanMemory, submit};
use crate::gpu::device::{
    Api, BufferId, Device, DeviceError, Kind, Limits, MemorySource, Queue, Teams,
};
#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
use crate::gpu::model::kernel::TEST_DEVICE;
#[cfg(any(feature = "cuda", feature = "opencl"))]
use crate::gpu::model::kernel::TEST_TURNS;
use crate::gpu::model::plan::Plan;
#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
use crate::gpu::model::plan::Run;

/// Every buffer is filled with this byte first, so that tests notice code that relies on old contents.
pub(crate) const GARBAGE: u8 = 0xa5;

type Opened = Result<Vec<Box<dyn Device>>, DeviceError>;

/// The devices of an interface. They are opened only once, so that each kernel is compiled once.
fn devices(api: Api) -> &'static Opened {
    static CUDA: OnceLock<Opened> = OnceLock::new();
    static OPENCL: OnceLock<Opened> = OnceLock::new();
    static WEBGPU: OnceLock<Opened> = OnceLock::new();
    match api {
        Api::Cuda => CUDA.get_or_init(|| open(api)),
        Api::OpenCl => OPENCL.get_or_init(|| open(api)),
        Api::WebGpu => WEBGPU.get_or_init(|| open(api)),
    }
}

fn open(api: Api) -> Opened {
    match api {
        Api::Cuda => cuda(),
        Api::OpenCl => opencl(),
        Api::WebGpu => webgpu(),
    }
}

#[cfg(feature = "cuda")]
fn cuda() -> Opened {
    let open = |found: &crate::gpu::device::cuda::CudaCandidate| {
        found.open().map(|d| Box::new(d) as Box<dyn Device>)
    };
    crate::gpu::device::cuda::devices().map_err(|(error, _)| error)?.iter().map(open).collect()
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Opened {
    Err(DeviceError::Absent("this build is without the feature".into()))
}

#[cfg(feature = "opencl")]
fn opencl() -> Opened {
    let open = |found: &crate::gpu::device::opencl::ClCandidate| {
        found.open().map(|d| Box::new(d) as Box<dyn Device>)
    };
    crate::gpu::device::opencl::devices()?.iter().map(open).collect()
}

#[cfg(not(feature = "opencl"))]
fn opencl() -> Opened {
    Err(DeviceError::Absent("this build is without the feature".into()))
}

#[cfg(feature = "webgpu")]
fn webgpu() -> Opened {
    let open = |found: &crate::gpu::device::webgpu::WebGpuCandidate| {
        found.open().map(|d| Box::new(d) as Box<dyn Device>)
    };
    crate::gpu::device::webgpu::devices()?.iter().map(open).collect()
}

#[cfg(not(feature = "webgpu"))]
fn webgpu() -> Opened {
    Err(DeviceError::Absent("this build is without the feature".into()))
}

/// Longer than any work takes, even on a busy machine whose drivers compile all kernels first.
pub(crate) const PATIENCE: Duration = Duration::from_secs(600);

/// Runs `test` on every device of all interfaces, including software devices.
///
/// # Panics
/// If `test` panics, or if skipping is forbidden and an interface of this build has no device.
pub(crate) fn each_device(test: impl Fn(&dyn Device)) {
    fn opened(api: Api, run: &dyn Fn(&Opened)) {
        run(devices(api));
    }
    each_of(opened, &test);
}

/// Like [`each_device`], for tests that keep the device.
pub(crate) fn each_static_device(test: impl Fn(&'static dyn Device)) {
    each_device(|device| {
        let mut all = Api::ALL.into_iter().flat_map(|api| devices(api).iter().flatten());
        let same = all.find(|known| std::ptr::addr_eq(&raw const ***known, device));
        test(&**same.unwrap());
    });
}

/// Like [`each_device`], on newly opened devices, which `test` may leave in any state.
pub(crate) fn each_new_device(test: impl Fn(&dyn Device)) {
    fn opened(api: Api, run: &dyn Fn(&Opened)) {
        run(&open(api));
    }
    each_of(opened, &test);
}

// The test is a reference, so the compiler does not instantiate this function for each test.
fn each_of(opened: impl Fn(Api, &dyn Fn(&Opened)), test: &dyn Fn(&dyn Device)) {
    let wanted = std::env::var("PZ_TEST_DEVICE").ok().map(|wanted| wanted.to_lowercase());
    let is_wanted = |name: &str| wanted.as_ref().is_none_or(|wanted| name.contains(wanted));
    let no_skip = std::env::var_os("PZ_TEST_NO_SKIP").is_some_and(|value| value == "1");
    // CUDA has no software device, so a machine without a CUDA device is no failure.
    let mut apis = [
        (Api::Cuda, false),
        (Api::OpenCl, cfg!(feature = "opencl")),
        (Api::WebGpu, cfg!(feature = "webgpu")),
    ];
    // A driver compiles one kernel at a time. Every second test begins with the last driver, so that two tests do not
    // wait for each other.
    static TESTS: AtomicUsize = AtomicUsize::new(0);
    if TESTS.fetch_add(1, Ordering::Relaxed) % 2 == 1 {
        apis.reverse();
    }
    for (api, is_expected) in apis {
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
            let is_built = is_expected || cfg!(feature = "cuda");
            if tested == 0 && is_built && is_wanted(&api_name) {
                let why = opened.as_ref().err().map_or("no device".into(), ToString::to_string);
                eprintln!("\n*** SKIPPED on {api}: {why} ***\n");
                assert!(!(no_skip && is_expected), "a test was to run on {api}, and cannot: {why}");
            }
        };
        opened(api, &run);
    }
}

/// The limits of an imaginary device. Tests change the fields that matter to them.
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

/// A device that fails every call, so the CPU must do all its work in the end.
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

/// A device that reports other limits.
pub(crate) struct WithLimits<D>(pub(crate) D, pub(crate) Limits);

impl<D: Device> Device for WithLimits<D> {
    fn limits(&self) -> &Limits {
        &self.1
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        self.0.allocate(bytes)
    }

    fn free(&self, buffer: BufferId) {
        self.0.free(buffer);
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        self.0.queue()
    }
}

/// A dispatch of the counting kernel.
#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
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

/// Queues the kernel that turns each of `args[1]` words `args[0]` times.
#[cfg(any(feature = "cuda", feature = "opencl"))]
pub(crate) fn turns(
    queue: &mut dyn Queue,
    buffer: BufferId,
    args: [u32; 2],
) -> Result<(), DeviceError> {
    queue.dispatch(&Dispatch {
        kernel: &TEST_TURNS,
        entry: "turns",
        defines: &[],
        buffers: &[buffer],
        args: &args,
        groups: args[1].div_ceil(32),
        threads: 32,
    })
}

/// The sorted contents of a folder; empty if there is none.
#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
pub(crate) fn files_in(folder: &Path) -> Vec<PathBuf> {
    let files = std::fs::read_dir(folder).into_iter().flatten();
    let mut files: Vec<_> = files.map(|file| file.unwrap().path()).collect();
    files.sort();
    files
}

/// Runs `plan` on `device`. Fills its buffers with [`GARBAGE`], writes `inputs` to the beginnings of the buffers with
/// these names, and returns the whole contents of the buffers named in `outputs`.
///
/// # Panics
/// If the plan takes more or less memory than the costs of its kernels state.
pub(crate) fn run_plan(
    device: &dyn Device,
    plan: &Plan,
    inputs: &[(&str, &[u8])],
    outputs: &[&str],
) -> Result<Vec<Vec<u8>>, DeviceError> {
    let pool = Pool::new(device).filled_with(GARBAGE);
    let memory = PlanMemory::allocate(&pool, plan)?;
    let mut queue = pool.queue()?;
    // A software device may take a minute to compile a kernel while other tests run.
    queue.set_deadline(PATIENCE);
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
    assert_eq!(
        pool.high_water(),
        plan.shape.memory(&plan.kernels()).unwrap(),
        "memory of the plan"
    );
    outputs
}
