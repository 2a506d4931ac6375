//! NVIDIA's management library (NVML), which reports the free memory of a GPU. OpenCL reports only the total, and CUDA
//! must open the device first.
//!
//! The library comes with the driver and is loaded at run time. Without it, the free memory is unknown.

use std::ffi::{CString, c_char, c_int, c_void};
use std::fmt;

use libloading::Library;

use crate::process::PerProcess;

/// The identity of a GPU, which every interface of its driver gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Uuid(pub [u8; 16]);

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("GPU")?;
        let mut bytes = self.0.iter();
        for len in [4, 2, 2, 2, 6] {
            f.write_str("-")?;
            for byte in bytes.by_ref().take(len) {
                write!(f, "{byte:02x}")?;
            }
        }
        Ok(())
    }
}

/// A GPU's place on the PCI bus, by which other libraries know it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PciPlace {
    domain: u32,
    bus: u32,
    device: u32,
    function: u32,
}

impl PciPlace {
    /// Decodes a slot: the device's number times 8, plus the function's number.
    #[cfg(feature = "opencl")]
    pub fn from_slot(domain: Option<u32>, bus: u32, slot: u32) -> Self {
        Self { domain: domain.unwrap_or(0), bus, device: slot >> 3, function: slot & 7 }
    }
}

impl fmt::Display for PciPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        write!(f, "{domain:08x}:{bus:02x}:{device:02x}.{function}")
    }
}

/// The loaded library, initialised once for the life of the process.
struct Nvml {
    device_called: unsafe extern "C" fn(*const c_char, *mut Raw) -> c_int,
    device_at: unsafe extern "C" fn(*const c_char, *mut Raw) -> c_int,
    memory_of: unsafe extern "C" fn(Raw, *mut NvmlMemory) -> c_int,
    // Dropped last: the functions belong to the library.
    _library: Library,
}

/// A device's handle, which NVML owns.
type Raw = *mut c_void;

const SUCCESS: c_int = 0;

/// `nvmlMemory_t`.
#[repr(C)]
#[derive(Default)]
struct NvmlMemory {
    total: u64,
    free: u64,
    used: u64,
}

/// Memory that is free now on a GPU, in bytes. NVML looks the GPU up by its UUID, then by its place on the bus; `None`
/// if NVML is missing or knows it by neither.
pub(super) fn free_memory(uuid: Option<Uuid>, place: Option<PciPlace>) -> Option<u64> {
    static NVML: PerProcess<Option<Nvml>> = PerProcess::new();
    NVML.get_or_init(Nvml::load).as_ref()?.free_memory(uuid, place)
}

impl Nvml {
    fn load() -> Option<Self> {
        const NAMES: &[&str] =
            if cfg!(windows) { &["nvml.dll"] } else { &["libnvidia-ml.so.1", "libnvidia-ml.so"] };
        // SAFETY: loading NVIDIA's library runs its initialisers, which make no demands on the process.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        // SAFETY: the types match `nvml.h`, which NVIDIA keeps stable for these names. The pointers are used only while
        // the library is loaded, because both are stored together.
        unsafe {
            let init = *library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0").ok()?;
            let device_called = *library.get(b"nvmlDeviceGetHandleByUUID\0").ok()?;
            let device_at = *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok()?;
            let memory_of = *library.get(b"nvmlDeviceGetMemoryInfo\0").ok()?;
            (init() == SUCCESS).then_some(Self {
                device_called,
                device_at,
                memory_of,
                _library: library,
            })
        }
    }

    fn free_memory(&self, uuid: Option<Uuid>, place: Option<PciPlace>) -> Option<u64> {
        let names = [
            (self.device_called, uuid.map(|uuid| uuid.to_string())),
            (self.device_at, place.map(|place| place.to_string())),
        ];
        let device = names.into_iter().find_map(|(find, name)| {
            let name = CString::new(name?).ok()?;
            let mut device = std::ptr::null_mut();
            // SAFETY: NVML is set up; the name ends with a 0, and there is room for a handle.
            let found = unsafe { find(name.as_ptr(), &raw mut device) };
            (found == SUCCESS).then_some(device)
        })?;
        let mut memory = NvmlMemory::default();
        // SAFETY: the handle comes from NVML, and there is room for the result.
        let told = unsafe { (self.memory_of)(device, &raw mut memory) };
        (told == SUCCESS && memory.free <= memory.total).then_some(memory.free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg(feature = "opencl")]
    fn a_place_on_the_bus_is_named_as_nvml_names_it() {
        let place = PciPlace::from_slot(None, 0x18, 0);
        assert_eq!(place.to_string(), "00000000:18:00.0");
        let place = PciPlace::from_slot(Some(1), 0xaf, 0x1f << 3 | 5);
        assert_eq!(place.to_string(), "00000001:af:1f.5");
    }

    #[test]
    fn an_identity_is_written_as_nvml_writes_it() {
        let bytes = std::array::from_fn(|i| (i * 17) as u8);
        assert_eq!(Uuid(bytes).to_string(), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
