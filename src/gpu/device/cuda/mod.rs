//! Devices through NVIDIA's CUDA. The driver's library and the compiler's are loaded at run time.
//!
//! Kernels are the files in OpenCL C: see [`cuda_source`](crate::gpu::model::cuda_source). The compiler is NVRTC, which
//! does not come with the driver, but with the CUDA toolkit, with PyTorch and CuPy, and alone from PyPI.
//!
//! Devices use the primary context, as CUDA's runtime does. So pz can import pointers of PyTorch and CuPy, and work in
//! their streams.
//!
//! | module | |
//! |---|---|
//! | `api` | the functions of the driver's library, and the meaning of their error codes |
//! | `handle` | the context, streams, events, and memory: objects that are released when dropped |
//! | `device` | an open device, and the caller's buffers and streams |
//! | `bell` | waking a thread from a kernel, and memory that both share |
//! | `driver` | the calls that in-order queues make |
//! | `nvrtc` | the compiler |
//! | `library` | where libraries may be |
//! | `program` | compiled kernels |
//!
//! All calls to CUDA are in this module.

mod api;
mod bell;
mod device;
mod driver;
mod handle;
mod library;
mod nvrtc;
mod program;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::nvml::{self, Uuid};
use super::{Api, DeviceError, Kind, Limits, MemorySource, Teams};
use api::Cuda;
use handle::Context;
use nvrtc::Compiler;

use crate::sync::Lock;

pub use device::CudaDevice;

/// What to do if there is no driver, or no device.
const REMEDY: &str = "install the driver of your NVIDIA GPU";

/// What to do if there is a device, but no compiler.
const REMEDY_FOR_COMPILER: &str = "install the CUDA toolkit, or NVRTC alone ('pip install nvidia-cuda-nvrtc-cu12'), or \
    set PZ_NVRTC to the path of \
     its library";

/// The lowest compute capability with the instructions that teams use.
const PTX_TEAMS_FROM: i32 = 8;

/// A device that could be opened.
#[derive(Debug, Clone)]
pub struct CudaCandidate {
    cuda: &'static Cuda,
    /// CUDA's number of the device.
    ordinal: i32,
    compiler: Compiler,
    limits: Limits,
}

/// Why there is no device, and what to do about it.
type Missing = (DeviceError, &'static str);

/// Lists the devices, in CUDA's order.
///
/// # Errors
/// [`DeviceError::Absent`] if there is no driver, no device or no compiler.
pub fn devices() -> Result<Vec<CudaCandidate>, Missing> {
    // The driver initialises itself on the first call.
    static FIRST: Lock<()> = Lock::new();
    let _one_at_a_time = FIRST.lock();
    let no_device = |error| (error, REMEDY);
    let cuda = Cuda::get().map_err(no_device)?;
    let count = cuda.device_count().map_err(no_device)?;
    let mut refused = None;
    let mut found = Vec::new();
    for ordinal in 0..count {
        match CudaCandidate::of(cuda, ordinal) {
            Ok(device) => found.push(device),
            // Skip a device that cannot be used: others may work.
            Err(missing) => refused = Some(missing),
        }
    }
    if found.is_empty() {
        let none = || no_device(DeviceError::Absent("CUDA has no device".into()));
        return Err(refused.unwrap_or_else(none));
    }
    Ok(found)
}

impl CudaCandidate {
    /// The properties and limits of the device.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Opens the device. This takes time, and memory of the device.
    ///
    /// # Errors
    /// Fails if the driver does.
    pub fn open(&self) -> Result<CudaDevice, DeviceError> {
        CudaDevice::open(self)
    }

    fn of(cuda: &'static Cuda, ordinal: i32) -> Result<Self, Missing> {
        let usable = |error| (error, REMEDY);
        let device = cuda.device(ordinal).map_err(usable)?;
        let attribute = |what| cuda.attribute(device, what).map_err(usable);
        if attribute(api::COMPUTE_MODE)? == api::COMPUTE_MODE_PROHIBITED {
            return Err((
                DeviceError::Absent("the GPU's compute mode prohibits CUDA".into()),
                "permit it with 'nvidia-smi -c 0'",
            ));
        }
        let capability =
            (attribute(api::COMPUTE_CAPABILITY_MAJOR)?, attribute(api::COMPUTE_CAPABILITY_MINOR)?);
        let compiler = Compiler::of(cuda.version(), capability)
            .map_err(|error| (error, REMEDY_FOR_COMPILER))?;
        let total = cuda.total_memory(device).map_err(usable)?;
        let free = cuda.uuid(device).and_then(|uuid| nvml::free_memory(Some(Uuid(uuid)), None));
        let (memory, memory_source) =
            free.map_or((total, MemorySource::Total), |free| (free, MemorySource::Nvml));
        let positive = |what| attribute(what).map(|value| u32::try_from(value).unwrap_or(0));
        let limits = Limits {
            api: Api::Cuda,
            name: cuda.device_name(device).map_err(usable)?,
            driver: format!("CUDA {} with {compiler}", api::version_text(cuda.version())),
            kind: if attribute(api::INTEGRATED)? != 0 { Kind::Integrated } else { Kind::Discrete },
            memory,
            memory_source,
            // CUDA has no limit. This is the limit of NVIDIA's OpenCL, with which the kernels have been tested.
            max_buffer: total / 4,
            local_memory: positive(api::MAX_SHARED_MEMORY_PER_BLOCK)?,
            max_workgroup: positive(api::MAX_THREADS_PER_BLOCK)?,
            teams: if capability.0 >= PTX_TEAMS_FROM { Teams::Ptx } else { Teams::Local },
            compute_units: positive(api::MULTIPROCESSOR_COUNT)?,
            timing: true,
        };
        Ok(Self { cuda, ordinal, compiler, limits })
    }

    /// Creates the device's primary context, or joins it.
    fn context(&self) -> Result<Arc<Context>, DeviceError> {
        let device = self.cuda.device(self.ordinal)?;
        Ok(Arc::new(Context::primary(self.cuda, device)?))
    }
}
