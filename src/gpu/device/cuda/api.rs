//! The functions of the driver's library, and the meaning of their error codes.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use libloading::Library;

use super::library;
use crate::gpu::device::DeviceError;
use crate::process::PerProcess;

/// An object of CUDA's: all its types are such pointers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
pub(super) struct Raw(pub *mut c_void);

// SAFETY: any thread may use CUDA's objects, and several may at once.
unsafe impl Send for Raw {}
// SAFETY: as above.
unsafe impl Sync for Raw {}

impl Raw {
    pub const NULL: Self = Self(std::ptr::null_mut());
}

/// Declares a library's functions: the required ones, and those that only newer versions have.
macro_rules! functions {
    (
        $(#[$doc:meta])* $library:ident;
        $(fn $name:ident($($arg:ty),* $(,)?);)*
        $(optional fn $optional:ident($($optional_arg:ty),* $(,)?);)*
    ) => {
        $(#[$doc])*
        #[allow(non_snake_case)]
        #[derive(Debug)]
        pub(super) struct $library {
            $(pub $name: unsafe extern "C" fn($($arg),*) -> std::ffi::c_int,)*
            $(pub $optional: Option<unsafe extern "C" fn($($optional_arg),*) -> std::ffi::c_int>,)*
            // Dropped last: the functions belong to the library.
            _library: libloading::Library,
        }

        impl $library {
            /// Looks up the functions; fails with the name of one that is missing.
            ///
            /// # Safety
            /// The library's functions with these names have these types.
            unsafe fn in_library(library: libloading::Library) -> Result<Self, &'static str> {
                // SAFETY: the caller promises the types. The functions are used only while the library is loaded,
                // because both are stored together.
                unsafe {
                    Ok(Self {
                        $($name: *library
                            .get(concat!(stringify!($name), "\0").as_bytes())
                            .map_err(|_| stringify!($name))?,)*
                        $($optional: library
                            .get(concat!(stringify!($optional), "\0").as_bytes())
                            .map(|function| *function)
                            .ok(),)*
                        _library: library,
                    })
                }
            }
        }
    };
}
pub(super) use functions;

functions! {
    /// The driver's functions.
    Functions;
    fn cuInit(c_uint);
    fn cuDriverGetVersion(*mut c_int);
    fn cuGetErrorName(c_int, *mut *const c_char);
    fn cuDeviceGetCount(*mut c_int);
    fn cuDeviceGet(*mut c_int, c_int);
    fn cuDeviceGetName(*mut c_char, c_int, c_int);
    fn cuDeviceGetAttribute(*mut c_int, c_int, c_int);
    fn cuDeviceTotalMem_v2(*mut usize, c_int);
    fn cuDevicePrimaryCtxRetain(*mut Raw, c_int);
    fn cuDevicePrimaryCtxRelease_v2(c_int);
    fn cuCtxPushCurrent_v2(Raw);
    fn cuCtxPopCurrent_v2(*mut Raw);
    fn cuCtxGetCurrent(*mut Raw);
    fn cuCtxSetCurrent(Raw);
    fn cuMemGetInfo_v2(*mut usize, *mut usize);
    fn cuMemAlloc_v2(*mut u64, usize);
    fn cuMemFree_v2(u64);
    fn cuMemHostAlloc(*mut *mut c_void, usize, c_uint);
    fn cuMemHostGetDevicePointer_v2(*mut u64, *mut c_void, c_uint);
    fn cuMemFreeHost(*mut c_void);
    fn cuMemcpyHtoDAsync_v2(u64, *const c_void, usize, Raw);
    fn cuMemcpyDtoHAsync_v2(*mut c_void, u64, usize, Raw);
    fn cuMemcpyDtoDAsync_v2(u64, u64, usize, Raw);
    fn cuMemsetD32Async(u64, c_uint, usize, Raw);
    fn cuPointerGetAttribute(*mut c_void, c_int, u64);
    fn cuStreamCreate(*mut Raw, c_uint);
    fn cuStreamDestroy_v2(Raw);
    fn cuEventCreate(*mut Raw, c_uint);
    fn cuEventRecord(Raw, Raw);
    fn cuEventQuery(Raw);
    fn cuEventSynchronize(Raw);
    fn cuEventElapsedTime(*mut f32, Raw, Raw);
    fn cuEventDestroy_v2(Raw);
    fn cuModuleLoadData(*mut Raw, *const c_void);
    fn cuModuleUnload(Raw);
    fn cuModuleGetFunction(*mut Raw, Raw, *const c_char);
    fn cuFuncGetAttribute(*mut c_int, c_int, Raw);
    fn cuLaunchKernel(
        Raw, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, Raw, *mut *mut c_void, *mut *mut c_void
    );
    optional fn cuDeviceGetUuid(*mut [u8; 16], c_int);
    optional fn cuFuncLoad(Raw);
    optional fn cuFuncSetAttribute(Raw, c_int, c_int);
    optional fn cuFuncGetParamInfo(Raw, usize, *mut usize, *mut usize);
    optional fn cuStreamWaitValue32_v2(Raw, u64, u32, c_uint);
}

// Attributes of devices.
pub(super) const MAX_THREADS_PER_BLOCK: c_int = 1;
pub(super) const MAX_SHARED_MEMORY_PER_BLOCK: c_int = 8;
pub(super) const MULTIPROCESSOR_COUNT: c_int = 16;
pub(super) const INTEGRATED: c_int = 18;
pub(super) const COMPUTE_MODE: c_int = 20;
pub(super) const COMPUTE_CAPABILITY_MAJOR: c_int = 75;
pub(super) const COMPUTE_CAPABILITY_MINOR: c_int = 76;
pub(super) const COMPUTE_MODE_PROHIBITED: c_int = 2;

// Attributes of functions.
pub(super) const FUNCTION_MAX_THREADS: c_int = 0;
pub(super) const FUNCTION_SHARED_MEMORY: c_int = 1;
pub(super) const FUNCTION_PERCENT_OF_SHARED_MEMORY: c_int = 9;

// Attributes of pointers.
pub(super) const POINTER_MEMORY_TYPE: c_int = 2;
pub(super) const POINTER_DEVICE: c_int = 9;
pub(super) const MEMORY_OF_DEVICE: c_uint = 2;

pub(super) const STREAM_NON_BLOCKING: c_uint = 1;
pub(super) const EVENT_WITHOUT_TIME: c_uint = 2;
pub(super) const EVENT_BLOCKING_SYNC: c_uint = 1;
/// Pinned memory is pinned for every context.
pub(super) const HOST_MEMORY_PORTABLE: c_uint = 1;
/// Pinned memory has an address on the device.
pub(super) const HOST_MEMORY_MAPPED: c_uint = 2;
/// A stream waits until a word is at least a value, or up to 2^31 ahead of it.
pub(super) const WAIT_VALUE_GEQ: c_uint = 0;

const SUCCESS: c_int = 0;
const INVALID_VALUE: c_int = 1;
const OUT_OF_MEMORY: c_int = 2;
const NO_DEVICE: c_int = 100;
const LAUNCH_OUT_OF_RESOURCES: c_int = 701;
pub(super) const NOT_READY: c_int = 600;

/// Errors after which the context is unusable: the driver is shutting down, the GPU has failed or gone, or a kernel has
/// made an illegal access.
const LOST: [c_int; 18] = [
    4,   // DEINITIALIZED
    46,  // DEVICE_UNAVAILABLE
    101, // INVALID_DEVICE
    201, // INVALID_CONTEXT
    214, // ECC_UNCORRECTABLE
    220, // NVLINK_UNCORRECTABLE
    226, // CONTAINED
    700, // ILLEGAL_ADDRESS
    702, // LAUNCH_TIMEOUT
    709, // CONTEXT_IS_DESTROYED
    710, // ASSERT
    714, // HARDWARE_STACK_ERROR
    715, // ILLEGAL_INSTRUCTION
    716, // MISALIGNED_ADDRESS
    717, // INVALID_ADDRESS_SPACE
    718, // INVALID_PC
    719, // LAUNCH_FAILED
    802, // SYSTEM_NOT_READY
];

/// The driver, initialised.
#[derive(Debug)]
pub(super) struct Cuda {
    functions: Functions,
    version: i32,
}

impl std::ops::Deref for Cuda {
    type Target = Functions;

    fn deref(&self) -> &Functions {
        &self.functions
    }
}

/// The version of an interface, which CUDA gives as 1000 times the major number plus 10 times the minor one.
pub(super) fn version_text(version: i32) -> String {
    format!("{}.{}", version / 1000, version % 1000 / 10)
}

impl Cuda {
    /// The driver, loaded and initialised once for the life of the process.
    pub fn get() -> Result<&'static Self, DeviceError> {
        static CUDA: PerProcess<Result<Cuda, DeviceError>> = PerProcess::new();
        CUDA.get_or_init(Self::load).as_ref().map_err(Clone::clone)
    }

    fn load() -> Result<Self, DeviceError> {
        let absent = |why: String| DeviceError::Absent(why);
        // SAFETY: loading NVIDIA's library runs its initialisers, which make no demands on the process.
        let load = |name: &&str| unsafe { Library::new(*name) }.ok();
        let library = library::DRIVER.iter().find_map(load);
        let library = library.ok_or_else(|| {
            absent(format!("the library of NVIDIA's driver ({}) is not there", library::DRIVER[0]))
        })?;
        // SAFETY: the types are those of `cuda.h`, which NVIDIA keeps stable for these names.
        let functions = unsafe { Functions::in_library(library) };
        let functions = functions
            .map_err(|name| absent(format!("NVIDIA's driver is too old: it lacks {name}")))?;
        let mut cuda = Self { functions, version: 0 };
        // SAFETY: the call takes no pointer.
        let code = unsafe { (cuda.cuInit)(0) };
        match code {
            SUCCESS => {}
            NO_DEVICE => return Err(absent("CUDA has no device".into())),
            _ => return Err(absent(cuda.text("cuInit", code))),
        }
        let mut version = 0;
        // SAFETY: there is room for the result.
        cuda.check("cuDriverGetVersion", unsafe { (cuda.cuDriverGetVersion)(&raw mut version) })?;
        cuda.version = version;
        Ok(cuda)
    }

    /// The newest version of CUDA that the driver supports: see [`version_text`].
    pub fn version(&self) -> i32 {
        self.version
    }

    pub fn device_count(&self) -> Result<i32, DeviceError> {
        let mut count = 0;
        // SAFETY: there is room for the result.
        self.check("cuDeviceGetCount", unsafe { (self.cuDeviceGetCount)(&raw mut count) })?;
        Ok(count)
    }

    pub fn device(&self, ordinal: i32) -> Result<c_int, DeviceError> {
        let mut device = 0;
        // SAFETY: there is room for the result.
        self.check("cuDeviceGet", unsafe { (self.cuDeviceGet)(&raw mut device, ordinal) })?;
        Ok(device)
    }

    pub fn device_name(&self, device: c_int) -> Result<String, DeviceError> {
        let mut name = [0u8; 256];
        // SAFETY: the call writes at most `name.len()` bytes, and ends them with a 0.
        let code = unsafe {
            (self.cuDeviceGetName)(name.as_mut_ptr().cast(), name.len() as c_int, device)
        };
        self.check("cuDeviceGetName", code)?;
        let name = CStr::from_bytes_until_nul(&name).unwrap_or_default();
        Ok(name.to_string_lossy().split_whitespace().collect::<Vec<_>>().join(" "))
    }

    pub fn attribute(&self, device: c_int, what: c_int) -> Result<c_int, DeviceError> {
        let mut value = 0;
        // SAFETY: there is room for the result.
        let code = unsafe { (self.cuDeviceGetAttribute)(&raw mut value, what, device) };
        self.check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }

    /// All memory of the device, in bytes.
    pub fn total_memory(&self, device: c_int) -> Result<u64, DeviceError> {
        let mut bytes = 0;
        // SAFETY: there is room for the result.
        let code = unsafe { (self.cuDeviceTotalMem_v2)(&raw mut bytes, device) };
        self.check("cuDeviceTotalMem", code)?;
        Ok(bytes as u64)
    }

    pub fn uuid(&self, device: c_int) -> Option<[u8; 16]> {
        let mut uuid = [0; 16];
        // SAFETY: there is room for the result.
        let code = unsafe { self.cuDeviceGetUuid?(&raw mut uuid, device) };
        (code == SUCCESS).then_some(uuid)
    }

    /// Interprets the result of a call.
    pub fn check(&self, call: &str, code: c_int) -> Result<(), DeviceError> {
        self.check_for(call, code, 0)
    }

    /// Interprets the result of a call that may reserve `bytes` bytes.
    pub fn check_for(&self, call: &str, code: c_int, bytes: u64) -> Result<(), DeviceError> {
        match code {
            SUCCESS => Ok(()),
            OUT_OF_MEMORY => Err(DeviceError::OutOfMemory { bytes }),
            LAUNCH_OUT_OF_RESOURCES => Err(DeviceError::Unsupported(self.text(call, code))),
            _ if LOST.contains(&code) => Err(DeviceError::Lost),
            _ => Err(DeviceError::Failed(self.text(call, code))),
        }
    }

    /// Whether the code says that the function has no parameter of this number.
    pub fn is_invalid(code: c_int) -> bool {
        code == INVALID_VALUE
    }

    fn text(&self, call: &str, code: c_int) -> String {
        let mut name = std::ptr::null();
        // SAFETY: there is room for the result, which is null or a text that the library keeps.
        let name = unsafe {
            (self.cuGetErrorName)(code, &raw mut name);
            if name.is_null() { c"unknown error" } else { CStr::from_ptr(name) }
        };
        format!("{call}: {} ({code})", name.to_string_lossy())
    }
}
