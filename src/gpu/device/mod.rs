//! The seam between plans and devices.
//!
//! A [`Device`] has limits, memory, and queues. A [`Queue`] takes uploads, dispatches and downloads in order. Two
//! queues of one device overlap where the device can. No call blocks the thread longer than its documentation says.
//! A device is never trusted: every call may fail, and a call that does not end is abandoned at a deadline.
//!
//! | module | |
//! |---|---|
//! | `queue` | the trait of queues, and how a queue passes calls on to another |
//! | `pool` | a device that reuses and counts its buffers |
//! | `run` | runs a plan on a device |
//! | `shared_queue` | one queue for several owners |
//! | `background` | threads that call drivers in the background, and how they end with the process |
//! | `deadline` | when to abandon a device that does not answer |
//! | [`discovery`] | which devices exist, and why an expected one is missing |
//! | `seen` | how many devices the last look found |
//! | `nvml` | how much memory of an NVIDIA GPU is free |
//! | `program`, `program_cache` | the backends' shared part of compilation; compiled programs, kept from run to run |
//! | `visible`, `write_combined` | memory that running kernels and the host share |
//! | `in_order` | the part that CUDA and OpenCL share: in-order queues and events |
//! | `cuda`, `opencl`, `webgpu` | the backends |

pub(crate) mod background;
#[cfg(feature = "cuda")]
pub(crate) mod cuda;
#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu", test))]
pub(crate) mod deadline;
pub mod discovery;
#[cfg(any(feature = "cuda", feature = "opencl"))]
mod in_order;
#[cfg(any(feature = "cuda", feature = "opencl"))]
mod nvml;
#[cfg(feature = "opencl")]
pub(crate) mod opencl;
pub(crate) mod pool;
#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
mod program;
#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
mod program_cache;
mod queue;
pub(crate) mod run;
mod seen;
pub(crate) mod shared_queue;
pub(crate) mod visible;
#[cfg(feature = "webgpu")]
pub(crate) mod webgpu;
mod write_combined;

use std::fmt;

use super::model::budget::{budget, budget_of};
use super::model::kernel::Kernel;
pub(crate) use super::model::limits::STAGING;
#[cfg(feature = "cuda")]
pub use cuda::CudaDevice;
#[cfg(feature = "opencl")]
pub use opencl::OpenClDevice;
pub use queue::Queue;
#[doc(hidden)]
pub use queue::Setting;
pub(crate) use queue::{Call, ForwardingQueue};
#[doc(hidden)]
pub use visible::{Bell, VisibleMemory};
#[cfg(feature = "webgpu")]
pub use webgpu::WebGpuDevice;

pub use super::model::limits::{Api, Kind, Limits, MemorySource, Teams};
use super::model::plan::Plan;

/// The default deadline of a queue: longer than any batch takes on a device that works.
#[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu", test))]
pub(crate) const DEADLINE: std::time::Duration = std::time::Duration::from_secs(60);

/// Why a call to a device failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceError {
    /// The system library, the driver or the device is missing.
    Absent(String),
    /// There is not enough memory for a buffer of this size.
    OutOfMemory {
        /// The size requested; 0 if the driver reports the failure only after it has accepted the work.
        bytes: u64,
    },
    /// A kernel does not compile on this device.
    Build {
        /// The kernel's stem.
        kernel: &'static str,
        /// The compiler's messages.
        log: String,
    },
    /// The device cannot run this at all, or cannot use a buffer of the caller's. The text says why.
    Unsupported(String),
    /// The device is gone.
    Lost,
    /// Work did not end in time. The queue can no longer be used.
    TimedOut,
    /// A process that this one was forked from has used the driver. Drivers do not survive a fork.
    Forked,
    /// Another failure: the name of the call and its result.
    Failed(String),
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Absent(what) | Self::Unsupported(what) | Self::Failed(what) => f.write_str(what),
            Self::OutOfMemory { bytes: 0 } => f.write_str("the device ran out of memory"),
            Self::OutOfMemory { bytes } => write!(f, "no device memory for {bytes} bytes"),
            Self::Build { kernel, log } => write!(f, "kernel {kernel} does not compile: {log}"),
            Self::Lost => f.write_str("the device is gone"),
            Self::Forked => f.write_str(
                "the process that this one was forked from has used the driver, which does not survive a fork",
            ),
            Self::TimedOut => f.write_str("the device did not finish in time"),
        }
    }
}

impl std::error::Error for DeviceError {}

/// A buffer of a device, valid until [`Device::free`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferId(pub u64);

/// A buffer as an interface's own calls know it: see [`Device::import`] and [`Device::export`].
#[derive(Debug)]
#[non_exhaustive]
pub enum NativeBuffer {
    /// A `cl_mem`.
    OpenCl(*mut std::ffi::c_void),
    /// Memory of a CUDA device.
    Cuda {
        /// Where it is on the device (a `CUdeviceptr`, or the pointer that `cudaMalloc` gives): a multiple of 16.
        address: u64,
        /// Its size in bytes: a multiple of 4.
        bytes: u64,
    },
    /// A buffer of the wgpu device.
    #[cfg(feature = "webgpu")]
    WebGpu(wgpu::Buffer),
}

/// A queue of the caller's own work on a device: see [`Device::wait_for`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum NativeStream {
    /// A `CUstream` or `cudaStream_t`; null, 1 and 2 are CUDA's default streams.
    Cuda(*mut std::ffi::c_void),
    /// A `cl_command_queue`.
    OpenCl(*mut std::ffi::c_void),
}

/// One launch of a kernel.
#[doc(hidden)]
#[derive(Debug, Clone)]
pub struct Dispatch<'a> {
    /// The kernel file.
    pub kernel: &'static Kernel,
    /// The entry point.
    pub entry: &'static str,
    /// Constants to compile the kernel with, besides the device's own.
    pub defines: &'a [(&'static str, u32)],
    /// The kernel's buffers, in the order in which it declares them.
    pub buffers: &'a [BufferId],
    /// The kernel's arguments, in the order in which it declares them.
    pub args: &'a [u32],
    /// Number of workgroups. The backend may launch a few more; the kernel must do nothing in those.
    pub groups: u32,
    /// Work items per workgroup; `THREADS` in the kernel.
    pub threads: u32,
}

/// Host memory that a device can copy quickly: see [`Device::host_memory`].
///
/// After a call has [timed out](DeviceError::TimedOut), its copy may still happen later and change this memory.
pub struct HostMemory(pub(crate) Box<dyn HostBytes>);

/// The backend's part of [`HostMemory`].
pub(crate) trait HostBytes: Send + Sync {
    fn bytes(&self) -> &[u8];
    fn bytes_mut(&mut self) -> &mut [u8];
}

impl HostBytes for Vec<u8> {
    fn bytes(&self) -> &[u8] {
        self
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self
    }
}

impl std::ops::Deref for HostMemory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        self.0.bytes()
    }
}

impl std::ops::DerefMut for HostMemory {
    fn deref_mut(&mut self) -> &mut [u8] {
        self.0.bytes_mut()
    }
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HostMemory({} bytes)", self.len())
    }
}

/// A device that runs kernels. Only this crate implements it, because plans and kernels are not public.
pub trait Device: Send + Sync {
    /// The properties and limits of the device.
    fn limits(&self) -> &Limits;

    /// Allocates a buffer of `bytes` bytes (a multiple of 4, not 0). Its contents are unspecified.
    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError>;

    /// Bytes of device memory that are free now; `None` if the device cannot tell.
    fn free_memory(&self) -> Option<u64> {
        None
    }

    /// Frees a buffer. All work that uses it must have ended or been abandoned. An imported buffer stays the caller's.
    fn free(&self, buffer: BufferId);

    /// The size of a buffer in bytes; `None` if the device has no such buffer, or cannot tell.
    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        let _ = buffer;
        None
    }

    /// Makes the caller's buffer usable on this device, in place and without a copy, until [`Self::free`]. The device
    /// keeps a reference of its own where the interface has references. [`Encoder`] and [`Decoder`] take imported
    /// buffers as [`CallerBuffers`](crate::gpu::coder::CallerBuffers).
    ///
    /// To share buffers with the caller's own code, the device must use the same context or wgpu device: make it with
    /// `CudaDevice::with_ordinal`, `OpenClDevice::from_context` or `WebGpuDevice::from_wgpu`.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if the buffer is not of this interface, or not of the same context or wgpu device,
    /// or if kernels may not read and write it. A wgpu buffer needs the usages `STORAGE`, `COPY_SRC` and `COPY_DST`.
    ///
    /// # Safety
    /// - A `cl_mem` is a valid memory object. CUDA's memory has as many bytes as the caller says, and stays valid until
    ///   [`Self::free`]: it has no references. A wgpu buffer comes from the device's own `wgpu::Instance`: wgpu cannot
    ///   tell instances apart.
    /// - While a call to a coder or a queue that uses the buffer runs, nothing else writes to it, and nothing else
    ///   reads what the call writes. So the caller waits for its own work on the buffer before such a call. The call's
    ///   work has ended when it returns, unless it returns an error.
    /// - No other imported buffer shares memory with it.
    ///
    /// [`Encoder`]: crate::gpu::coder::Encoder
    /// [`Decoder`]: crate::gpu::coder::Decoder
    unsafe fn import(&self, buffer: NativeBuffer) -> Result<BufferId, DeviceError> {
        let _ = buffer;
        Err(DeviceError::Unsupported("this device imports no buffers".into()))
    }

    /// The buffer as its interface knows it, valid until it is freed; `None` if there is no such buffer, or if the
    /// device shows none.
    fn export(&self, buffer: BufferId) -> Option<NativeBuffer> {
        let _ = buffer;
        None
    }

    /// Waits for all work queued in `stream` so far, so that the next call may use its buffers.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if the stream is not of this interface; otherwise if its work fails, or takes too
    /// long.
    ///
    /// # Safety
    /// `stream` is a valid stream of the device's context.
    unsafe fn wait_for(&self, stream: NativeStream) -> Result<(), DeviceError> {
        let _ = stream;
        Err(DeviceError::Unsupported("the stream is not one of this device's interface".into()))
    }

    /// Makes a new queue.
    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError>;

    /// Allocates `bytes` bytes of zeroed host memory, pinned where the device supports it. A queue of this device
    /// copies from and to such memory directly, without staging.
    fn host_memory(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        Ok(HostMemory(Box::new(vec![0; bytes])))
    }

    /// Allocates `bytes` bytes of zeroed memory that the host and a running kernel share. To kernels it is a buffer.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if running kernels of this device do not see the host's writes.
    #[doc(hidden)]
    fn visible_memory(&self, bytes: usize) -> Result<VisibleMemory, DeviceError> {
        let _ = bytes;
        let Limits { api, name, .. } = self.limits();
        Err(DeviceError::Unsupported(format!(
            "a kernel that runs on {name} through {api} does not see what the host writes"
        )))
    }

    /// A bell that rings when the first word of `counter` goes up; `None` if the device cannot wake a thread.
    ///
    /// # Errors
    /// Fails if the device does.
    #[doc(hidden)]
    fn bell(&self, counter: BufferId) -> Result<Option<Box<dyn Bell>>, DeviceError> {
        let _ = counter;
        Ok(None)
    }

    /// Whether a driver compiles its kernels, whose compiler may be wrong.
    #[doc(hidden)]
    fn has_driver(&self) -> bool {
        false
    }

    /// Prepares this thread, one of pz's own, for many calls to the device.
    #[doc(hidden)]
    fn stay_on_thread(&self) {}

    /// Compiles the kernels of `plans` that are not compiled yet, so that their first use does not wait.
    #[doc(hidden)]
    fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
        let _ = plans;
        Ok(())
    }

    /// Whether `plan` can run beside a kernel that does not end by itself. Where loading a program waits for running
    /// kernels, the answer is whether all programs of the plan are loaded.
    #[doc(hidden)]
    fn runs_at_once(&self, plan: &Plan) -> bool {
        let _ = plan;
        true
    }
}

macro_rules! device_through {
    ($($pointer:ty),*) => {$(
        impl<D: Device + ?Sized> Device for $pointer {
            fn limits(&self) -> &Limits {
                (**self).limits()
            }

            fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
                (**self).allocate(bytes)
            }

            fn free_memory(&self) -> Option<u64> {
                (**self).free_memory()
            }

            fn free(&self, buffer: BufferId) {
                (**self).free(buffer);
            }

            fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
                (**self).buffer_bytes(buffer)
            }

            unsafe fn import(&self, buffer: NativeBuffer) -> Result<BufferId, DeviceError> {
                // SAFETY: the caller promises the same.
                unsafe { (**self).import(buffer) }
            }

            fn export(&self, buffer: BufferId) -> Option<NativeBuffer> {
                (**self).export(buffer)
            }

            unsafe fn wait_for(&self, stream: NativeStream) -> Result<(), DeviceError> {
                // SAFETY: the caller promises the same.
                unsafe { (**self).wait_for(stream) }
            }

            fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
                (**self).queue()
            }

            fn host_memory(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
                (**self).host_memory(bytes)
            }

            fn visible_memory(&self, bytes: usize) -> Result<VisibleMemory, DeviceError> {
                (**self).visible_memory(bytes)
            }

            fn bell(&self, counter: BufferId) -> Result<Option<Box<dyn Bell>>, DeviceError> {
                (**self).bell(counter)
            }

            fn has_driver(&self) -> bool {
                (**self).has_driver()
            }

            fn stay_on_thread(&self) {
                (**self).stay_on_thread();
            }

            fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
                (**self).prepare(plans)
            }

            fn runs_at_once(&self, plan: &Plan) -> bool {
                (**self).runs_at_once(plan)
            }
        }
    )*};
}

// Lets wrappers take a device by reference, in a `Box` or in an `Arc`.
device_through!(&D, Box<D>, std::sync::Arc<D>);

/// Like [`budget`], for an open device, which may report how much memory is free now.
pub fn budget_now(device: &dyn Device, permitted: Option<u64>) -> u64 {
    let limits = device.limits();
    match device.free_memory() {
        Some(free) if limits.memory_source.is_free() => {
            budget_of(free, limits.memory_source, permitted)
        }
        _ => budget(limits, permitted),
    }
}
