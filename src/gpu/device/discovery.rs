//! Lists the devices, and explains why an expected device is missing.

use std::fmt;
use std::sync::Arc;

use super::seen::Seen;
use super::{Api, Device, DeviceError, Kind, Limits};
use crate::gpu::model::kernel::{self, Kernel};
use crate::process::PerProcess;

/// A device that has been found but not opened.
pub struct DeviceEntry {
    number: usize,
    backend: Backend,
}

enum Backend {
    #[cfg(feature = "cuda")]
    Cuda(super::cuda::CudaCandidate),
    #[cfg(feature = "opencl")]
    OpenCl(super::opencl::ClCandidate),
    #[cfg(feature = "webgpu")]
    WebGpu(super::webgpu::WebGpuCandidate),
}

/// Why an interface has no device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absence {
    /// The interface.
    pub api: Api,
    /// What is missing.
    pub why: String,
    /// What a user can do about it.
    pub remedy: &'static str,
}

impl fmt::Display for Absence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.why, self.remedy)
    }
}

impl std::error::Error for Absence {}

impl DeviceEntry {
    /// The interface.
    pub fn api(&self) -> Api {
        self.limits().api
    }

    /// The device's number among those of its interface, from 0.
    pub fn number(&self) -> usize {
        self.number
    }

    /// The properties and limits of the device.
    pub fn limits(&self) -> &Limits {
        self.backend.limits()
    }

    /// Opens the device. This takes time, and on some devices memory.
    ///
    /// # Errors
    /// Fails if the driver does, if the device lacks something that kernels need, or if a kernel file does not state
    /// its cost: then the error names file, line and column.
    pub fn open(&self) -> Result<Arc<dyn Device>, DeviceError> {
        self.open_for(kernel::ALL)
    }

    /// Opens the device to run `kernels`.
    fn open_for(&self, kernels: &[&Kernel]) -> Result<Arc<dyn Device>, DeviceError> {
        for kernel in kernels {
            kernel.cost().map_err(|error| DeviceError::Failed(error.to_string()))?;
        }
        match self.backend {
            #[cfg(feature = "cuda")]
            Backend::Cuda(ref found) => Ok(Arc::new(found.open()?)),
            #[cfg(feature = "opencl")]
            Backend::OpenCl(ref found) => Ok(Arc::new(found.open()?)),
            #[cfg(feature = "webgpu")]
            Backend::WebGpu(ref found) => Ok(Arc::new(found.open()?)),
        }
    }
}

impl Backend {
    fn limits(&self) -> &Limits {
        match *self {
            #[cfg(feature = "cuda")]
            Self::Cuda(ref found) => found.limits(),
            #[cfg(feature = "opencl")]
            Self::OpenCl(ref found) => found.limits(),
            #[cfg(feature = "webgpu")]
            Self::WebGpu(ref found) => found.limits(),
        }
    }
}

/// Moves software devices to the end, so that number 0 is a GPU wherever there is one. The order is otherwise kept.
fn software_last<T>(devices: &mut [T], kind: impl Fn(&T) -> Kind) {
    devices.sort_by_key(|device| kind(device) == Kind::Software);
}

impl fmt::Debug for DeviceEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceEntry")
            .field("number", &self.number)
            .field("limits", self.limits())
            .finish()
    }
}

/// Lists the devices of an interface in the driver's order, with software devices last. The list is not empty.
///
/// # Errors
/// Says why if there is no device.
pub fn devices(api: Api) -> Result<Vec<DeviceEntry>, Absence> {
    static CUDA: PerProcess<()> = PerProcess::new();
    static OPENCL: PerProcess<()> = PerProcess::new();
    static WEBGPU: PerProcess<()> = PerProcess::new();
    let seen = Seen::of_user();
    let (asked, list): (_, fn() -> Backends) = match api {
        Api::Cuda => (&CUDA, cuda),
        Api::OpenCl => (&OPENCL, opencl),
        Api::WebGpu => (&WEBGPU, webgpu),
    };
    let absence =
        |(error, remedy): (DeviceError, _)| Absence { api, why: error.to_string(), remedy };
    if asked.is_elsewhere() {
        let remedy = "start the process anew, as Python's multiprocessing does with `spawn`";
        return Err(absence((DeviceError::Forked, remedy)));
    }
    asked.get_or_init(|| ());
    let mut backends = list().map_err(absence)?;
    software_last(&mut backends, |backend| backend.limits().kind);
    seen.note(api, backends.len());
    let number = |(number, backend)| DeviceEntry { number, backend };
    Ok(backends.into_iter().enumerate().map(number).collect())
}

/// The device that a name stands for: `cuda`, `opencl` or `webgpu`, and its number after a colon. Without a number it
/// is the interface's first GPU, or its first software device if it has no GPU.
///
/// # Errors
/// [`DeviceError::Unsupported`] if the text is no such name; [`DeviceError::Absent`] if there is no such device.
pub fn find(name: &str) -> Result<DeviceEntry, DeviceError> {
    let (api, number) = match name.split_once(':') {
        None => (name, None),
        Some((api, number)) => (api, Some(number.parse::<usize>().ok())),
    };
    let known = Api::ALL.into_iter().find(|known| known.name() == api);
    let (Some(api), None | Some(Some(_))) = (known, number) else {
        return Err(DeviceError::Unsupported("there is no such name of a device".into()));
    };
    let found = devices(api).map_err(|absence| DeviceError::Absent(absence.to_string()))?;
    let is_gpu = |found: &DeviceEntry| found.limits().kind != Kind::Software;
    let first = || found.iter().position(is_gpu).unwrap_or(0);
    let (at, count) = (number.flatten().unwrap_or_else(first), found.len());
    let beyond = || DeviceError::Absent(format!("{api} has {count} devices, from number 0 on"));
    found.into_iter().nth(at).ok_or_else(beyond)
}

/// How many devices of an interface were found when this user last listed them, since the system started and with the
/// same environment settings; 0 if they were never listed. This reads a note instead of asking the drivers, so it is
/// quick.
pub fn seen(api: Api) -> usize {
    Seen::of_user().count(api)
}

/// The devices of an interface, or why there are none and what to do about it.
type Backends = Result<Vec<Backend>, (DeviceError, &'static str)>;

#[cfg(feature = "cuda")]
fn cuda() -> Backends {
    Ok(super::cuda::devices()?.into_iter().map(Backend::Cuda).collect())
}

#[cfg(feature = "opencl")]
fn opencl() -> Backends {
    let found = super::opencl::devices().map_err(|error| (error, super::opencl::REMEDY))?;
    Ok(found.into_iter().map(Backend::OpenCl).collect())
}

#[cfg(feature = "webgpu")]
fn webgpu() -> Backends {
    let found = super::webgpu::devices().map_err(|error| (error, super::webgpu::REMEDY))?;
    Ok(found.into_iter().map(Backend::WebGpu).collect())
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Backends {
    not_in_this_build("install a build with the feature 'cuda'")
}

#[cfg(not(feature = "opencl"))]
fn opencl() -> Backends {
    not_in_this_build("install a build with the feature 'opencl'")
}

#[cfg(not(feature = "webgpu"))]
fn webgpu() -> Backends {
    not_in_this_build("install a build with the feature 'webgpu'")
}

#[cfg(not(all(feature = "cuda", feature = "opencl", feature = "webgpu")))]
fn not_in_this_build(remedy: &'static str) -> Backends {
    Err((DeviceError::Absent("not in this build".into()), remedy))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::model::kernel::{TEST_DEVICE, TEST_MALFORMED, TEST_MISSING};

    #[test]
    fn no_device_is_opened_for_a_kernel_without_a_cost() {
        for found in Api::ALL.into_iter().filter_map(|api| devices(api).ok()) {
            assert!(found[0].open_for(&[&TEST_DEVICE]).is_ok());
            for (kernel, what) in [
                (
                    &TEST_MALFORMED,
                    "kernels/test/malformed.cl:4:17: '1x' is not an integer of 64 bits",
                ),
                (&TEST_MISSING, "kernels/test/missing.cl:1:1: there is no cost block"),
            ] {
                let error = found[0].open_for(&[&TEST_DEVICE, kernel]).err().unwrap();
                assert_eq!(error.to_string(), what);
            }
        }
    }

    #[test]
    fn software_comes_last() {
        use Kind::{Discrete, Integrated, Other, Software};
        let mut kinds = [(0, Software), (1, Integrated), (2, Software), (3, Other), (4, Discrete)];
        software_last(&mut kinds, |(_, kind)| *kind);
        assert_eq!(kinds.map(|(number, _)| number), [1, 3, 4, 0, 2]);
    }

    #[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
    #[test]
    fn devices_have_names() {
        for name in ["", "cuda:", "opencl:x", "opencl:-1", "vulkan", "cpu", "auto"] {
            assert!(matches!(find(name), Err(DeviceError::Unsupported(_))), "{name}");
        }
        for api in Api::ALL {
            let all = devices(api).unwrap_or_default();
            for (number, found) in all.iter().enumerate() {
                let named = find(&format!("{}:{number}", api.name())).unwrap();
                assert_eq!((named.number(), &named.limits().name), (number, &found.limits().name));
            }
            assert_eq!(find(api.name()).is_ok(), !all.is_empty());
            let beyond = find(&format!("{}:{}", api.name(), all.len()));
            assert!(matches!(beyond, Err(DeviceError::Absent(_))));
        }
    }

    #[test]
    fn there_are_devices_or_there_is_a_reason() {
        for api in Api::ALL {
            match devices(api) {
                Ok(found) => {
                    assert!(!found.is_empty());
                    for (number, found) in found.iter().enumerate() {
                        assert_eq!((found.api(), found.number()), (api, number));
                        let opened = found.open().unwrap();
                        assert_eq!(opened.limits().name, found.limits().name);
                    }
                }
                Err(absence) => {
                    assert_eq!(absence.api, api);
                    assert!(!absence.why.is_empty() && !absence.remedy.is_empty());
                    assert!(!absence.why.contains(absence.remedy), "{absence}");
                }
            }
        }
    }
}
