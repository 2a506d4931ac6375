//! The seam between plans and what they run on.
//!
//! A [`Device`] has limits, memory, and queues. A [`Queue`] takes uploads, dispatches and downloads in order; two
//! queues of one device overlap where the device can. All calls block the thread at most for as long as they say.
//! Nothing of a device is trusted: every call may fail, and a call that does not end is given up at a deadline.

use std::fmt;
use std::time::Duration;

use super::kernel::Kernel;
use super::plan::Plan;

/// How long a queue waits unless it is told otherwise: longer than any batch takes on a device that works.
pub const DEADLINE: Duration = Duration::from_secs(60);

/// Bytes of the host's memory that a queue copies through, at most.
pub(crate) const STAGING: u64 = 24 << 20;

/// The interface that a device is driven through.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// OpenCL 1.2 or later.
    OpenCl,
    /// WebGPU on Vulkan, Metal or Direct3D 12.
    WebGpu,
}

impl Api {
    /// Its name in arguments and in names of files.
    pub fn name(self) -> &'static str {
        match self {
            Self::OpenCl => "opencl",
            Self::WebGpu => "webgpu",
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::OpenCl => "OpenCL",
            Self::WebGpu => "WebGPU",
        })
    }
}

/// What a device's processor is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A GPU with memory of its own.
    Discrete,
    /// A GPU that shares the processor's memory.
    Integrated,
    /// A driver that runs kernels on the processor: right for tests, never chosen unless named.
    Software,
    /// The driver does not say.
    Other,
}

/// Where a figure of memory comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySource {
    /// The driver says what is free at present.
    Free,
    /// NVIDIA's management library (NVML) says what is free at present.
    Nvml,
    /// Vulkan's `VK_EXT_memory_budget` says what is free at present for this process.
    VulkanBudget,
    /// The driver says what there is in total.
    Total,
    /// The driver says nothing: half of the largest buffer is assumed.
    Assumed,
}

impl MemorySource {
    /// Whether the figure is what is free, and not what there is.
    pub fn is_free(self) -> bool {
        matches!(self, Self::Free | Self::Nvml | Self::VulkanBudget)
    }
}

/// How the 32 work items of a team exchange values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Teams {
    /// NVIDIA's warps, through inline PTX in OpenCL C.
    Ptx,
    /// Subgroups of exactly 32.
    Subgroup,
    /// Workgroup memory and barriers: a workgroup is then exactly one team.
    Local,
}

/// What a device is, and what it allows.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The interface.
    pub api: Api,
    /// The name that the driver gives it.
    pub name: String,
    /// The driver and its version.
    pub driver: String,
    /// What its processor is.
    pub kind: Kind,
    /// Bytes of memory.
    pub memory: u64,
    /// Where [`Self::memory`] comes from.
    pub memory_source: MemorySource,
    /// Bytes of the largest buffer that a kernel can be given.
    pub max_buffer: u64,
    /// Bytes of workgroup memory.
    pub local_memory: u32,
    /// Work items of the largest workgroup.
    pub max_workgroup: u32,
    /// How teams exchange values.
    pub teams: Teams,
    /// Compute units, by which a device is filled.
    pub compute_units: u32,
    /// Whether dispatches can be timed on the device.
    pub timing: bool,
}

impl Limits {
    /// Whether the device ends the loops of an invocation after about 65,535 iterations in all, and says nothing: Vulkan's
    /// drivers of software do. What needs more of them has to be divided, or left to others.
    pub(crate) fn ends_long_loops(&self) -> bool {
        self.kind == Kind::Software && self.api == Api::WebGpu
    }
}

/// Why a device did not do what it was asked to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceError {
    /// The system library, a driver or a device is not there.
    Absent(String),
    /// There is no memory for a buffer of so many bytes.
    OutOfMemory {
        /// Bytes that were asked for; 0 if the driver reports the lack only after it has accepted the work.
        bytes: u64,
    },
    /// A kernel does not compile on this device.
    Build {
        /// The kernel's stem.
        kernel: &'static str,
        /// What the compiler says.
        log: String,
    },
    /// The device cannot run this at all; says what it lacks.
    Unsupported(String),
    /// The device is gone.
    Lost,
    /// Work did not end in time. The queue is not usable any more.
    TimedOut,
    /// Another failure: the call and what it returned.
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
            Self::TimedOut => f.write_str("the device did not finish in time"),
        }
    }
}

impl std::error::Error for DeviceError {}

/// A buffer of a device. It is the device's until [`Device::free`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct BufferId(pub u64);

/// One use of a kernel.
#[derive(Debug, Clone)]
pub struct Dispatch<'a> {
    /// The file.
    pub kernel: &'static Kernel,
    /// The entry point.
    pub entry: &'static str,
    /// Constants that the kernel is compiled with, besides those of the device.
    pub defines: &'a [(&'static str, u32)],
    /// What it works on, in the order of its declarations.
    pub buffers: &'a [BufferId],
    /// Numbers that it is given, in the order of its declarations.
    pub args: &'a [u32],
    /// Number of workgroups. A kernel may be run with a few more: it must do nothing in those.
    pub groups: u32,
    /// Work items of a workgroup; `THREADS` in the kernel.
    pub threads: u32,
}

/// Memory of the host: see [`Device::host_memory`].
///
/// After a call that [timed out](DeviceError::TimedOut) a copy that was given up may still be made, and change what is
/// there.
pub struct HostMemory(pub(crate) Box<dyn HostBytes>);

/// What is behind it.
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

/// Something that runs kernels.
pub trait Device: Send + Sync {
    /// What it is and allows.
    fn limits(&self) -> &Limits;

    /// A buffer of `bytes` bytes (a multiple of 4, not 0), with any contents.
    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError>;

    /// Bytes of its memory that are free at present; `None` if nobody says.
    fn free_memory(&self) -> Option<u64> {
        None
    }

    /// Gives a buffer back. Work that uses it must have ended or been given up.
    fn free(&self, buffer: BufferId);

    /// A queue of its own.
    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError>;

    /// `bytes` bytes of the host's memory, all 0, that the device copies from and to as fast as it can, where it can: what
    /// is given to a queue of this device out of there is not copied elsewhere first.
    fn host_memory(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        Ok(HostMemory(Box::new(vec![0; bytes])))
    }

    /// Compiles the kernels of `plans`, as far as there is something to compile, so that their first use does not wait.
    fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
        let _ = plans;
        Ok(())
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

            fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
                (**self).queue()
            }

            fn host_memory(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
                (**self).host_memory(bytes)
            }

            fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
                (**self).prepare(plans)
            }
        }
    )*};
}

// So that wrappers take a device however it is held.
device_through!(&D, Box<D>, std::sync::Arc<D>);

/// Work for a device, done in order.
pub trait Queue: Send {
    /// Copies `parts`, one close behind the other, to a buffer from byte `offset` on, in as few copies as the device
    /// permits; `offset` and the length of all parts together are multiples of 4. They may change once this returns.
    fn write_parts(
        &mut self,
        buffer: BufferId,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError>;

    /// Copies `data` to a buffer from byte `offset` on; both are multiples of 4. `data` may change once this returns.
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.write_parts(buffer, offset, &[data])
    }

    /// Sets `bytes` bytes of a buffer from byte `offset` on to 0; both are multiples of 4.
    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Runs a kernel.
    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError>;

    /// Begins what has been given so far, without waiting for it.
    fn flush(&mut self) -> Result<(), DeviceError>;

    /// Waits for all before it, at most until the deadline, and copies `bytes` bytes of a buffer from byte `offset` on,
    /// both multiples of 4. `take` is given one piece after another, while the next one is on its way.
    fn read_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError>;

    /// Waits for all before it, at most until the deadline, and copies from a buffer; `offset` and the length are
    /// multiples of 4.
    fn read(&mut self, buffer: BufferId, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let mut done = 0;
        self.read_with(buffer, offset, into.len() as u64, &mut |piece| {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })
    }

    /// Waits for all before it, at most until the deadline.
    fn finish(&mut self) -> Result<(), DeviceError>;

    /// How long [`Self::read`] and [`Self::finish`] wait.
    fn set_deadline(&mut self, deadline: Duration);

    /// From now on, measure how long dispatches take on the device.
    fn set_timing(&mut self, on: bool);

    /// The times of the dispatches that have finished since the last call, in order; empty if they are not measured.
    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError>;
}
