//! Devices by name, each opened once in a process.

use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use pyo3::prelude::*;
use pz::access::{DeviceMemory, DeviceMemoryOptions};
use pz::gpu::device::discovery::{self, DeviceEntry};
use pz::gpu::device::{Api, DeviceError};
use pz::internal::process::{Lock, PerProcess};
use pz::{Auto, Gpu};

use crate::dlpack;
use crate::error;

/// The choice that `device` and `device_memory` express.
#[derive(Clone)]
pub enum Device {
    /// The CPU alone.
    Cpu,
    /// A GPU where it should save time.
    Auto(Auto),
    /// This device beside the CPU.
    Named(Gpu),
}

impl Device {
    /// Returns the device with this name, and opens it if this process has not yet done so. It may take `memory` bytes
    /// of its own memory.
    pub fn new(py: Python<'_>, name: &str, memory: Option<u64>) -> PyResult<Self> {
        match name {
            "cpu" => Ok(Self::Cpu),
            "auto" => {
                let auto = opened().auto.get_or_insert_with(Auto::new).clone();
                Ok(Self::Auto(memory.map_or(auto.clone(), |bytes| auto.memory(bytes))))
            }
            _ => {
                let gpu = open(py, name)?;
                Ok(Self::Named(memory.map_or(gpu.clone(), |bytes| gpu.memory(bytes))))
            }
        }
    }
}

/// The memory that contents go to.
#[derive(Clone)]
pub enum Place {
    /// The host's memory.
    Host,
    /// The memory of a device, with its name.
    Device(DeviceMemory, String),
}

impl Place {
    /// Returns the memory of the device with this name, and opens the device if this process has not yet done so.
    /// `auto` is the first CUDA GPU or, without one, the host's memory.
    pub fn new(py: Python<'_>, name: &str) -> PyResult<Self> {
        let name = match name {
            "auto" if py.detach(has_cuda) => "cuda",
            "auto" | "cpu" => return Ok(Self::Host),
            name => name,
        };
        if let Some((_, memory, full)) = opened().memories.iter().find(|(other, ..)| other == name)
        {
            return Ok(Self::Device(memory.clone(), full.clone()));
        }
        // Open a separate device: buffers that the caller drops then go back to the driver at once, not to a pool.
        let (device, number) = py
            .detach(|| {
                let found = discovery::find(name)?;
                Ok((found.open()?, found.number()))
            })
            .map_err(|why| not_found(py, name, why))?;
        let memory = DeviceMemory::of_device(device, &DeviceMemoryOptions::new());
        let api = name.split(':').next().unwrap_or(name);
        let full = format!("{api}:{number}");
        let mut opened = opened();
        // Another thread may have opened it meanwhile.
        if let Some((_, memory, full)) = opened.memories.iter().find(|(_, _, other)| *other == full)
        {
            return Ok(Self::Device(memory.clone(), full.clone()));
        }
        opened.memories.push((name.to_string(), memory.clone(), full.clone()));
        Ok(Self::Device(memory, full))
    }

    /// Its name.
    pub fn name(&self) -> &str {
        match self {
            Self::Host => "cpu",
            Self::Device(_, name) => name,
        }
    }

    /// The memory.
    pub fn memory(&self) -> DeviceMemory {
        match self {
            Self::Host => DeviceMemory::host(),
            Self::Device(memory, _) => memory.clone(),
        }
    }

    /// Kind and number of the device, as DLPack counts them; the kind is 0 for devices that it does not have.
    pub fn dlpack(&self) -> (i32, i32) {
        match self {
            Self::Host => (dlpack::CPU, 0),
            Self::Device(_, name) => match name.strip_prefix("cuda:").map(str::parse) {
                Some(Ok(number)) => (dlpack::CUDA, number),
                _ => (0, 0),
            },
        }
    }
}

/// Whether this machine has a CUDA GPU.
fn has_cuda() -> bool {
    static FOUND: PerProcess<bool> = PerProcess::new();
    *FOUND.get_or_init(|| discovery::devices(Api::Cuda).is_ok())
}

/// The devices that this process has opened.
#[derive(Default)]
struct Opened {
    auto: Option<Auto>,
    /// By name.
    gpus: Vec<(String, Gpu)>,
    /// Memories by the name that the caller used, with their full names.
    memories: Vec<(String, DeviceMemory, String)>,
}

/// The devices of this process. Threads hold this lock only while they hold the interpreter's lock, so no thread waits
/// for it.
fn opened() -> MutexGuard<'static, Opened> {
    static OPENED: Lock<Opened> = Lock::new();
    OPENED.lock()
}

fn open(py: Python<'_>, name: &str) -> PyResult<Gpu> {
    if let Some((_, gpu)) = opened().gpus.iter().find(|(other, _)| other == name) {
        return Ok(gpu.clone());
    }
    let gpu = py.detach(|| {
        let found = discovery::find(name)?;
        let gpu = Gpu::opening(found.limits().clone(), move || found.open());
        gpu.device()?;
        Ok(gpu)
    });
    let gpu = gpu.map_err(|why| not_found(py, name, why))?;
    let mut opened = opened();
    // Another thread may have opened it meanwhile.
    let known = opened.gpus.iter().find(|(other, _)| other == name).map(|(_, gpu)| gpu.clone());
    Ok(known.unwrap_or_else(|| {
        opened.gpus.push((name.to_string(), gpu.clone()));
        gpu
    }))
}

/// The exception for a device that cannot be opened.
fn not_found(py: Python<'_>, name: &str, why: DeviceError) -> PyErr {
    match why {
        DeviceError::Unsupported(_) => {
            let known = "a device is auto, cpu, cuda[:N], opencl[:N] or webgpu[:N]";
            error::option(py, format!("there is no device {name:?}: {known}"))
        }
        DeviceError::Absent(why) if name.contains(':') => {
            error::device(py, name, &format!("{why}; libpz.devices() lists them"))
        }
        why => error::device(py, name, &why),
    }
}

/// A device, for `devices()`.
#[derive(IntoPyObject)]
pub struct DeviceInfo {
    device: String,
    api: String,
    name: String,
    driver: String,
    kind: &'static str,
    memory: u64,
    compute_units: u32,
}

/// The devices of this machine.
#[pyfunction]
#[pyo3(signature = ())]
pub fn devices(py: Python<'_>) -> Vec<DeviceInfo> {
    let info = |found: DeviceEntry| {
        let limits = found.limits();
        DeviceInfo {
            device: format!("{}:{}", found.api().name(), found.number()),
            api: limits.api.to_string(),
            name: limits.name.clone(),
            driver: limits.driver.clone(),
            kind: limits.kind.name(),
            memory: limits.memory,
            compute_units: limits.compute_units,
        }
    };
    py.detach(|| {
        let found = Api::ALL.into_iter().filter_map(|api| discovery::devices(api).ok());
        found.flatten().map(info).collect()
    })
}

/// How long to wait at exit for one call of a driver. Calls that compile a kernel take seconds on a slow machine.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Waits until no background thread calls a driver, and keeps them from calling one again: drivers crash if the process
/// ends meanwhile.
#[pyfunction]
#[pyo3(signature = ())]
pub fn finish_opening(py: Python<'_>) -> PyResult<()> {
    Gpu::stop_in_background();
    let begun = Instant::now();
    while Gpu::any_in_background() && begun.elapsed() < MAX_WAIT {
        py.detach(|| std::thread::sleep(Duration::from_millis(5)));
        py.check_signals()?;
    }
    Ok(())
}
