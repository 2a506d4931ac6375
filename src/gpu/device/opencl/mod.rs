//! Devices through OpenCL 1.2 or later. The OpenCL library is loaded at run time.
//!
//! | module | |
//! |---|---|
//! | `handle` | references to OpenCL objects |
//! | `device` | an open device, and the caller's context and buffers |
//! | `driver` | the calls that in-order queues make |
//! | `stream` | command queues, and the events of their commands |
//! | `pinned` | pinned host memory |
//! | `visible` | memory that running kernels and the host share |
//! | `program` | compiled kernels |
//!
//! All calls to OpenCL are in this module.

mod device;
mod driver;
mod handle;
mod pinned;
mod program;
mod stream;
#[cfg(test)]
mod tests;
mod visible;

use opencl3::device::{
    CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV, CL_DEVICE_GLOBAL_FREE_MEMORY_AMD,
    CL_DEVICE_PCI_BUS_ID_NV, CL_DEVICE_PCI_SLOT_ID_NV, CL_DEVICE_TYPE_ALL, CL_DEVICE_TYPE_CPU,
    CL_DEVICE_TYPE_GPU, get_device_data,
};
use opencl3::error_codes::{
    CL_DEVICE_NOT_AVAILABLE, CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST, CL_INVALID_BUFFER_SIZE,
    CL_INVALID_COMMAND_QUEUE, CL_MEM_OBJECT_ALLOCATION_FAILURE, CL_OUT_OF_HOST_MEMORY,
    CL_OUT_OF_RESOURCES, CL_PLATFORM_NOT_FOUND_KHR, ClError, DLOPEN_FUNCTION_NOT_AVAILABLE,
    DLOPEN_RUNTIME_LOAD_FAILED, error_text,
};
use opencl3::platform::{Platform, get_platforms};

use super::nvml::{self, PciPlace, Uuid};
use super::{Api, DeviceError, Kind, Limits, MemorySource, Teams};
use crate::sync::Lock;

pub use device::OpenClDevice;

/// What to do if there is no device.
pub const REMEDY: &str = if cfg!(target_os = "linux") {
    "install the driver of your GPU with its OpenCL part, and the loader (package ocl-icd-libopencl1 or ocl-icd)"
} else {
    "install the driver of your GPU with its OpenCL part"
};

/// The lowest compute capability of NVIDIA devices with the instructions that teams use.
const PTX_TEAMS_FROM: u32 = 8;

/// NVIDIA's error code for a kernel that accessed memory outside its buffers. The context is unusable afterwards.
const NVIDIA_ILLEGAL_ACCESS: i32 = -9999;

/// A device that could be opened.
#[derive(Debug, Clone)]
pub struct ClCandidate {
    device: opencl3::device::Device,
    limits: Limits,
}

/// Lists the devices of all drivers, in the loader's order.
///
/// # Errors
/// [`DeviceError::Absent`] if there is no library, no driver or no device.
pub fn devices() -> Result<Vec<ClCandidate>, DeviceError> {
    // Drivers initialise themselves on the first call, and some cannot cope with two threads there.
    static FIRST: Lock<()> = Lock::new();
    let _one_at_a_time = FIRST.lock();
    let absent = |why: &str| Err(DeviceError::Absent(why.into()));
    let platforms = match get_platforms() {
        Ok(platforms) => platforms,
        Err(ClError(DLOPEN_RUNTIME_LOAD_FAILED)) => {
            return absent("the library of OpenCL is not there");
        }
        Err(ClError(DLOPEN_FUNCTION_NOT_AVAILABLE)) => {
            return absent("the library of OpenCL lacks functions");
        }
        Err(ClError(CL_PLATFORM_NOT_FOUND_KHR)) => return absent("there is no driver for OpenCL"),
        Err(ClError(code)) => return absent(&failure("clGetPlatformIDs", code).to_string()),
    };
    if platforms.is_empty() {
        return absent("there is no driver for OpenCL");
    }
    // Skip a driver that fails, or a device that cannot describe itself: others may work.
    let mut refused = None;
    let found: Vec<_> = platforms
        .iter()
        .filter_map(|platform| platform.get_devices(CL_DEVICE_TYPE_ALL).ok())
        .flatten()
        .filter_map(|device| match ClCandidate::of(opencl3::device::Device::new(device)) {
            Err(DeviceError::Unsupported(why)) => {
                refused = Some(why);
                None
            }
            found => found.ok(),
        })
        .collect();
    if found.is_empty() {
        let why = refused.as_deref();
        return absent(why.unwrap_or("no driver for OpenCL has a device that is available"));
    }
    Ok(found)
}

impl ClCandidate {
    /// The properties and limits of the device.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Opens the device. This takes time, and on some devices memory.
    ///
    /// # Errors
    /// Fails if the driver does.
    pub fn open(&self) -> Result<OpenClDevice, DeviceError> {
        OpenClDevice::open(self)
    }

    fn of(device: opencl3::device::Device) -> Result<Self, DeviceError> {
        let limits = limits(&device).map_err(|ClError(code)| failure("clGetDeviceInfo", code))?;
        match limits {
            Some(limits) if miscompiles(&limits.driver, std::env::var_os(POCL_METHOD)) => {
                Err(DeviceError::Unsupported(format!(
                    "{} compiles barriers in branches wrongly; with {POCL_METHOD}=cbs in the environment it does not",
                    limits.driver
                )))
            }
            Some(limits) => Ok(Self { device, limits }),
            None => Err(DeviceError::Absent("the device is not available at present".into())),
        }
    }
}

/// The environment variable that selects how PoCL merges a workgroup's work items into one function.
const POCL_METHOD: &str = "POCL_WORK_GROUP_METHOD";

/// Whether a driver's compiler is known to be wrong. PoCL 5.0 (with LLVM 16) makes loops over work items between
/// barriers. It miscompiles barriers in branches that all work items take alike: results are wrong, or an assertion in
/// PoCL ends the process. Its method `cbs` compiles the same kernels correctly, and so does PoCL 3.1 with loops.
/// PoCL 6.0 ends the process in the same place.
fn miscompiles(driver: &str, method: Option<std::ffi::OsString>) -> bool {
    let version = driver.strip_prefix("Portable Computing Language ");
    let is_wrong =
        version.is_some_and(|version| version.starts_with("5.") || version.starts_with("6."));
    is_wrong && method.is_none_or(|name| name != "cbs")
}

/// Whether a driver may end the process when a kernel runs in two sizes at once, or when its program is read back while
/// it runs: when a kernel ends, PoCL before 6.0 may lower the count of uses of another of its compiled variants.
fn miscounts(driver: &str) -> bool {
    let version = driver.strip_prefix("Portable Computing Language ");
    let major = version.and_then(|version| version.split('.').next()?.parse::<u32>().ok());
    major.is_some_and(|major| major < 6)
}

/// Queries the limits of a device; `None` if pz cannot use it.
fn limits(device: &opencl3::device::Device) -> opencl3::Result<Option<Limits>> {
    // Kernels and the host share words without conversion, so the device must be little-endian.
    if !(device.available()? && device.compiler_available()? && device.endian_little()?) {
        return Ok(None);
    }
    let platform = Platform::new(device.platform()?);
    let is_nvidia = platform.vendor()?.contains("NVIDIA");
    let of_type = device.dev_type()?;
    let kind = if of_type & CL_DEVICE_TYPE_CPU != 0 {
        Kind::Software
    } else if of_type & CL_DEVICE_TYPE_GPU == 0 {
        Kind::Other
    } else if device.host_unified_memory()? {
        Kind::Integrated
    } else {
        Kind::Discrete
    };
    let has_team_instructions = || {
        let major = get_device_data(device.id(), CL_DEVICE_COMPUTE_CAPABILITY_MAJOR_NV).ok();
        let major = major.and_then(|bytes| Some(u32::from_ne_bytes(bytes.try_into().ok()?)));
        major.is_some_and(|major| major >= PTX_TEAMS_FROM)
    };
    let teams = if is_nvidia && has_team_instructions() { Teams::Ptx } else { Teams::Local };
    let (memory, memory_source) = match free_memory(device) {
        Some(found) => found,
        None => (device.global_mem_size()?, MemorySource::Total),
    };
    let (platform, driver) = (platform.name()?, device.driver_version()?);
    Ok(Some(Limits {
        api: Api::OpenCl,
        name: tidy(&device.name()?),
        driver: tidy(&format!("{platform} {driver}")),
        kind,
        memory,
        memory_source,
        max_buffer: device.max_mem_alloc_size()?,
        local_memory: u32::try_from(device.local_mem_size()?).unwrap_or(u32::MAX),
        max_workgroup: u32::try_from(device.max_work_group_size()?).unwrap_or(u32::MAX),
        teams,
        compute_units: device.max_compute_units()?,
        timing: true,
    }))
}

/// Bytes of a device's memory that are free now, and the source of that figure; `None` if there is no source.
fn free_memory(device: &opencl3::device::Device) -> Option<(u64, MemorySource)> {
    let extensions = device.extensions().ok()?;
    let has = |name| extensions.split(' ').any(|other| other == name);
    if has("cl_amd_device_attribute_query") {
        return Some((free_memory_amd(device)?, MemorySource::Free));
    }
    if has("cl_nv_device_attribute_query") {
        return Some((nvml::free_memory(uuid(device), pci_place(device))?, MemorySource::Nvml));
    }
    None
}

/// The UUID of a device with the extension `cl_khr_device_uuid`.
fn uuid(device: &opencl3::device::Device) -> Option<Uuid> {
    /// `CL_DEVICE_UUID_KHR`.
    const UUID: u32 = 0x106a;
    Some(Uuid(get_device_data(device.id(), UUID).ok()?.try_into().ok()?))
}

/// The place of an NVIDIA device on the bus.
fn pci_place(device: &opencl3::device::Device) -> Option<PciPlace> {
    /// `CL_DEVICE_PCI_DOMAIN_ID_NV`, which older drivers lack.
    const DOMAIN: u32 = 0x400a;
    let number = |what| {
        let bytes = get_device_data(device.id(), what).ok()?;
        Some(u32::from_ne_bytes(bytes.try_into().ok()?))
    };
    let slot = number(CL_DEVICE_PCI_SLOT_ID_NV)?;
    Some(PciPlace::from_slot(number(DOMAIN), number(CL_DEVICE_PCI_BUS_ID_NV)?, slot))
}

/// Reads the free memory that AMD's driver reports: kilobytes in total, and in the largest piece.
fn free_memory_amd(device: &opencl3::device::Device) -> Option<u64> {
    let data = get_device_data(device.id(), CL_DEVICE_GLOBAL_FREE_MEMORY_AMD).ok()?;
    let (kilobytes, _) = data.split_first_chunk::<{ size_of::<usize>() }>()?;
    (usize::from_ne_bytes(*kilobytes) as u64).checked_mul(1024).filter(|free| *free > 0)
}

/// Joins the text into one line with single spaces.
fn tidy(text: &str) -> String {
    let text = text.replace('\0', " ");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Converts the error code of a call.
fn failure(call: &str, code: i32) -> DeviceError {
    match code {
        CL_DEVICE_NOT_AVAILABLE | NVIDIA_ILLEGAL_ACCESS => DeviceError::Lost,
        _ => DeviceError::Failed(format!("{call}: {} ({code})", error_text(code))),
    }
}

/// Converts the error code of a call that may reserve `bytes` bytes, or of a command in a queue.
///
/// NVIDIA's driver reserves a buffer when a command first uses it. If memory is short, that command fails, and later
/// commands in the queue fail with other codes. The driver may also report an illegal access by a kernel as a lack of
/// resources. Such a kernel fails again with the smallest batch, and then pz gives up the device.
fn failure_for(call: &str, code: i32, bytes: u64) -> DeviceError {
    match code {
        CL_MEM_OBJECT_ALLOCATION_FAILURE
        | CL_OUT_OF_RESOURCES
        | CL_OUT_OF_HOST_MEMORY
        | CL_INVALID_BUFFER_SIZE
        | CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST
        | CL_INVALID_COMMAND_QUEUE => DeviceError::OutOfMemory { bytes },
        _ => failure(call, code),
    }
}
