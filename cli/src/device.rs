//! `--device`: which processor does the work.

use std::fmt;
use std::str::FromStr;
use std::sync::atomic::{AtomicBool, Ordering};

use pz::Gpu;
use pz::gpu::device::discovery::{self, DeviceEntry};
use pz::gpu::device::{Api, DeviceError, Kind};

use crate::cleanup;
use crate::failure::Failure;
use crate::messages;

/// Whether a GPU has been opened.
static IN_USE: AtomicBool = AtomicBool::new(false);

/// Whether a GPU has been opened or is about to be.
#[cfg_attr(not(unix), allow(dead_code))]
pub fn is_in_use() -> bool {
    IN_USE.load(Ordering::Relaxed) || Gpu::any_in_background()
}

/// The values of `--device`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Device {
    /// Whatever is fastest: the CPU, with a GPU where it helps.
    #[default]
    Auto,
    /// The processor's cores.
    Cpu,
    /// A GPU through CUDA, by its number in `pz devices`.
    Cuda(Option<u32>),
    /// A GPU through OpenCL, by its number in `pz devices`.
    OpenCl(Option<u32>),
    /// A GPU through WebGPU, by its number in `pz devices`.
    WebGpu(Option<u32>),
}

impl Device {
    /// Opens this GPU; `None` for the CPU. Never opens another device than the one that the user named.
    pub fn open(self, memory: Option<u64>) -> Result<Option<Gpu>, Failure> {
        if matches!(self, Device::Auto | Device::Cpu) {
            return Ok(None);
        }
        let found = self.find()?;
        let gpu = self.in_use(Gpu::opening(found.limits().clone(), move || found.open()), memory);
        gpu.device().map_err(|error| Failure::environment(format!("device {self}: {error}")))?;
        Ok(Some(gpu))
    }

    /// Like [`open`](Self::open), but does not wait, so that the work can begin without the GPU. Ends the program
    /// if there is no such device.
    pub fn open_in_background(self, memory: Option<u64>) -> Option<Gpu> {
        if matches!(self, Device::Auto | Device::Cpu) {
            return None;
        }
        cleanup::watch();
        let gpu = Gpu::finding(move || {
            let found = self.find().map_err(|failure| give_up(&failure))?;
            let limits = found.limits().clone();
            let open = move || {
                found.open().inspect_err(|error| {
                    eprintln!("pz: device {self}: {error}; using the CPU alone");
                })
            };
            Ok((limits, open))
        });
        Some(self.in_use(gpu, memory))
    }

    fn in_use(self, gpu: Gpu, memory: Option<u64>) -> Gpu {
        // Never drop the GPU: at exit the system frees its resources faster than we could.
        std::mem::forget(gpu.clone());
        IN_USE.store(true, Ordering::Relaxed);
        memory.map_or(gpu.clone(), |bytes| gpu.clone().memory(bytes))
    }

    /// Whether the last search, perhaps in an earlier run, found this GPU.
    pub fn was_seen(self) -> bool {
        let seen =
            |(api, number): (_, Option<u32>)| discovery::seen(api) > number.unwrap_or(0) as usize;
        self.named().is_some_and(seen)
    }

    /// The API and number of this GPU; `None` for `auto` and `cpu`.
    fn named(self) -> Option<(Api, Option<u32>)> {
        match self {
            Device::Cuda(number) => Some((Api::Cuda, number)),
            Device::OpenCl(number) => Some((Api::OpenCl, number)),
            Device::WebGpu(number) => Some((Api::WebGpu, number)),
            Device::Auto | Device::Cpu => None,
        }
    }

    /// Finds this GPU.
    pub fn find(self) -> Result<DeviceEntry, Failure> {
        let Some((api, number)) = self.named() else {
            return Err(Failure::bug("find() was called for the CPU"));
        };
        let fail = |why: &dyn fmt::Display| Failure::environment(format!("device {self}: {why}"));
        let mut devices = discovery::devices(api);
        let at = match (&devices, number) {
            (Ok(devices), Some(number)) => Some(number as usize).filter(|at| *at < devices.len()),
            // The user asked for a GPU: a software device is better than none.
            (Ok(devices), None) => {
                devices.iter().position(|found| found.limits().kind != Kind::Software).or(Some(0))
            }
            (Err(absence), None) => return Err(fail(absence)),
            (Err(_), Some(_)) => None,
        };
        let (Some(at), Ok(devices)) = (at, &mut devices) else {
            return Err(fail(&"no such device; 'pz devices' lists the devices"));
        };
        Ok(devices.swap_remove(at))
    }
}

/// Ends the program because a device that the user named is missing, whatever other threads are doing.
fn give_up(failure: &Failure) -> DeviceError {
    messages::report(None, failure);
    let _list = pz::internal::output::remove_all();
    messages::end_at_once(failure.exit as u8)
}

/// The processors that `pz bench` compares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Several {
    /// The CPU and every GPU, without software devices.
    All,
    /// These.
    These(Vec<Device>),
}

impl Several {
    /// Opens each of them; `None` is the CPU.
    pub fn open(&self, memory: Option<u64>) -> Result<Vec<(Device, Option<Gpu>)>, Failure> {
        let devices = match self {
            Several::These(devices) => devices.clone(),
            Several::All => std::iter::once(Device::Cpu).chain(gpus()).collect(),
        };
        devices.into_iter().map(|device| Ok((device, device.open(memory)?))).collect()
    }
}

/// Every GPU of the machine, without software devices.
fn gpus() -> Vec<Device> {
    let of = |api, device: fn(Option<u32>) -> Device| {
        let found = discovery::devices(api).unwrap_or_default();
        let found = found.into_iter().filter(|found| found.limits().kind != Kind::Software);
        found.map(move |found| device(Some(found.number() as u32))).collect::<Vec<_>>()
    };
    [of(Api::Cuda, Device::Cuda), of(Api::OpenCl, Device::OpenCl), of(Api::WebGpu, Device::WebGpu)]
        .concat()
}

impl FromStr for Several {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Several::All),
            _ => Ok(Several::These(text.split(',').map(str::parse).collect::<Result<_, _>>()?)),
        }
    }
}

impl FromStr for Device {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (backend, number) = match text.split_once(':') {
            None => (text, None),
            Some((backend, number)) => {
                let wrong = |_| format!("'{text}': expected a device number after ':'");
                (backend, Some(number.parse::<u32>().map_err(wrong)?))
            }
        };
        match (backend, number) {
            ("auto", None) => Ok(Device::Auto),
            ("cpu", None) => Ok(Device::Cpu),
            ("cuda", number) => Ok(Device::Cuda(number)),
            ("opencl", number) => Ok(Device::OpenCl(number)),
            ("webgpu", number) => Ok(Device::WebGpu(number)),
            _ => Err("a device is auto, cpu, cuda[:N], opencl[:N] or webgpu[:N]".into()),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (backend, number) = match self {
            Device::Auto => ("auto", None),
            Device::Cpu => ("cpu", None),
            Device::Cuda(number) => ("cuda", *number),
            Device::OpenCl(number) => ("opencl", *number),
            Device::WebGpu(number) => ("webgpu", *number),
        };
        f.write_str(backend)?;
        number.map_or(Ok(()), |number| write!(f, ":{number}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists() {
        assert_eq!("all".parse(), Ok(Several::All));
        let three = vec![Device::Cpu, Device::OpenCl(Some(1)), Device::WebGpu(None)];
        assert_eq!("cpu,opencl:1,webgpu".parse(), Ok(Several::These(three)));
        assert!("cpu,all".parse::<Several>().is_err());
        assert!("cpu,".parse::<Several>().is_err());
    }

    #[test]
    fn names() {
        for (text, device) in [
            ("auto", Some(Device::Auto)),
            ("cpu", Some(Device::Cpu)),
            ("opencl", Some(Device::OpenCl(None))),
            ("opencl:1", Some(Device::OpenCl(Some(1)))),
            ("webgpu:0", Some(Device::WebGpu(Some(0)))),
            ("cpu:0", None),
            ("opencl:", None),
            ("opencl:-1", None),
            ("cuda", Some(Device::Cuda(None))),
            ("cuda:2", Some(Device::Cuda(Some(2)))),
            ("metal", None),
            ("", None),
        ] {
            assert_eq!(text.parse::<Device>().ok(), device, "{text:?}");
            if let Some(device) = device {
                assert_eq!(device.to_string(), text);
            }
        }
    }
}
