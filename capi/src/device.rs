//! Devices by name, each opened once in a process.

use pz::gpu::device::DeviceError;
use pz::gpu::device::discovery;
use pz::internal::process::Lock;
use pz::{Auto, Gpu};

use crate::status::{Failure, pz_status};

/// The device that works beside the threads.
pub enum Device {
    /// No device.
    Cpu,
    /// A GPU where it should save time.
    Auto(Auto),
    /// This device.
    Named(Gpu),
}

/// The devices that have been opened, by name.
static OPENED: Lock<Vec<(String, Gpu)>> = Lock::new();

impl Device {
    /// Sets this device in `options`, with their setters.
    pub fn set<T>(&self, options: T, auto: fn(T, &Auto) -> T, gpu: fn(T, Gpu) -> T) -> T {
        match self {
            Self::Cpu => options,
            Self::Auto(chooser) => auto(options, chooser),
            Self::Named(device) => gpu(options, device.clone()),
        }
    }

    /// The device with this name.
    pub fn named(name: &str) -> Result<Self, Failure> {
        match name {
            "cpu" => return Ok(Self::Cpu),
            "auto" => return Ok(Self::Auto(Auto::new())),
            _ => {}
        }
        // Other threads that want a device wait meanwhile: it may be the same device.
        let mut opened = OPENED.lock();
        if let Some((_, gpu)) = opened.iter().find(|(known, _)| known == name) {
            return Ok(Self::Named(gpu.clone()));
        }
        let open = || {
            let found = discovery::find(name)?;
            let gpu = Gpu::opening(found.limits().clone(), move || found.open());
            gpu.device()?;
            Ok(gpu)
        };
        let gpu = open().map_err(|error: DeviceError| {
            let status = match error {
                DeviceError::Unsupported(_) => pz_status::InvalidOption,
                _ => pz_status::NoDevice,
            };
            Failure::new(status, format!("device {name}: {error}"))
        })?;
        opened.push((name.to_string(), gpu.clone()));
        Ok(Self::Named(gpu))
    }
}
