//! NVIDIA's management library (NVML), which says how much memory of a GPU is free: OpenCL tells only the total.
//!
//! The library comes with the driver and is loaded at run time. Where it is missing, nobody is told anything.

use std::ffi::{CString, c_char, c_int, c_void};
use std::sync::OnceLock;

use libloading::Library;

use super::PciPlace;

/// The library, set up once and for the whole life of the process.
struct Nvml {
    device_at: unsafe extern "C" fn(*const c_char, *mut Raw) -> c_int,
    memory_of: unsafe extern "C" fn(Raw, *mut NvmlMemory) -> c_int,
    // The last field: the functions are the library's.
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

/// Bytes of memory that are free at present on the GPU at `place`; `None` if NVML is missing or does not know the GPU.
pub(super) fn free_memory(place: PciPlace) -> Option<u64> {
    static NVML: OnceLock<Option<Nvml>> = OnceLock::new();
    NVML.get_or_init(Nvml::load).as_ref()?.free_memory(place)
}

impl Nvml {
    fn load() -> Option<Self> {
        const NAMES: &[&str] =
            if cfg!(windows) { &["nvml.dll"] } else { &["libnvidia-ml.so.1", "libnvidia-ml.so"] };
        // SAFETY: to load NVIDIA's library runs its initialisers, which ask nothing of the process.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok())?;
        // SAFETY: the types are those of `nvml.h`, which NVIDIA keeps for functions of these names. The pointers are
        // used only while the library is loaded: it is kept beside them.
        unsafe {
            let init = *library.get::<unsafe extern "C" fn() -> c_int>(b"nvmlInit_v2\0").ok()?;
            let device_at = *library.get(b"nvmlDeviceGetHandleByPciBusId_v2\0").ok()?;
            let memory_of = *library.get(b"nvmlDeviceGetMemoryInfo\0").ok()?;
            (init() == SUCCESS).then_some(Self { device_at, memory_of, _library: library })
        }
    }

    fn free_memory(&self, place: PciPlace) -> Option<u64> {
        let name = CString::new(place.to_string()).ok()?;
        let mut device = std::ptr::null_mut();
        // SAFETY: NVML is set up; the name ends with a 0, and there is room for a handle.
        if unsafe { (self.device_at)(name.as_ptr(), &raw mut device) } != SUCCESS {
            return None;
        }
        let mut memory = NvmlMemory::default();
        // SAFETY: the handle is NVML's, and there is room for what it tells.
        let told = unsafe { (self.memory_of)(device, &raw mut memory) };
        (told == SUCCESS && memory.free <= memory.total).then_some(memory.free)
    }
}
