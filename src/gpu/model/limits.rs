//! The properties and limits of a device, as its driver reports them.

use std::fmt;

/// The most host memory that a queue uses for staging copies, in bytes.
pub(crate) const STAGING: u64 = 24 << 20;

/// The programming interface that drives a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Api {
    /// NVIDIA's CUDA.
    Cuda,
    /// OpenCL 1.2 or later.
    OpenCl,
    /// WebGPU on Vulkan, Metal or Direct3D 12.
    WebGpu,
}

/// A language in which kernels are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Language {
    /// OpenCL C. CUDA's compiler gets it behind a header that makes it CUDA C++.
    OpenClC,
    /// WebGPU's language.
    Wgsl,
}

impl Api {
    /// Every interface. Of those that drive the same GPUs, the faster come first.
    pub const ALL: [Self; 3] = [Self::Cuda, Self::OpenCl, Self::WebGpu];

    /// The language of the kernels that devices of this interface run.
    pub(crate) fn language(self) -> Language {
        match self {
            Self::Cuda | Self::OpenCl => Language::OpenClC,
            Self::WebGpu => Language::Wgsl,
        }
    }

    /// The name used in arguments and file names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::OpenCl => "opencl",
            Self::WebGpu => "webgpu",
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Cuda => "CUDA",
            Self::OpenCl => "OpenCL",
            Self::WebGpu => "WebGPU",
        })
    }
}

/// The kind of processor a device has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A GPU with its own memory.
    Discrete,
    /// A GPU that shares the processor's memory.
    Integrated,
    /// A driver that runs kernels on the processor. Good for tests; never used unless the user names it.
    Software,
    /// The driver does not say.
    Other,
}

impl Kind {
    /// Its name in lower case, such as `discrete`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Discrete => "discrete",
            Self::Integrated => "integrated",
            Self::Software => "software",
            Self::Other => "other",
        }
    }
}

/// The source of the figure for a device's memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySource {
    /// The driver reports the memory that is free now.
    Free,
    /// NVIDIA's management library (NVML) reports the memory that is free now.
    Nvml,
    /// Vulkan's `VK_EXT_memory_budget` reports the memory that is free now for this process.
    VulkanBudget,
    /// The driver reports the total memory.
    Total,
    /// The driver reports nothing; this assumes half of the largest buffer.
    Assumed,
}

impl MemorySource {
    /// Whether the figure is free memory rather than total memory.
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
    /// Workgroup memory and barriers. Each workgroup is then exactly one team.
    Local,
}

/// The properties and limits of a device.
#[derive(Debug, Clone)]
pub struct Limits {
    /// The interface.
    pub api: Api,
    /// The name that the driver reports.
    pub name: String,
    /// The driver and its version.
    pub driver: String,
    /// The kind of processor.
    pub kind: Kind,
    /// Device memory in bytes.
    pub memory: u64,
    /// Where [`Self::memory`] comes from.
    pub memory_source: MemorySource,
    /// The largest buffer that a kernel can use, in bytes.
    pub max_buffer: u64,
    /// Workgroup memory in bytes.
    pub local_memory: u32,
    /// The largest workgroup, in work items.
    pub max_workgroup: u32,
    /// How teams exchange values.
    pub teams: Teams,
    /// Number of compute units, which decides how much work fills the device.
    pub compute_units: u32,
    /// Whether the device can time dispatches.
    pub timing: bool,
}

impl Limits {
    /// Whether the device silently stops an invocation's loops after about 65,535 iterations in all, as Vulkan's
    /// software drivers do. Longer work must be divided, or done on the CPU.
    #[doc(hidden)]
    pub fn ends_long_loops(&self) -> bool {
        self.kind == Kind::Software && self.api == Api::WebGpu
    }

    /// Whether the device has a single queue, in which kernels run one after another. There, one long batch ends sooner
    /// than several short ones with the same blocks. On other devices short batches run side by side.
    pub(crate) fn has_one_queue(&self) -> bool {
        self.api == Api::WebGpu
    }

    /// The fuel for an invocation whose loops take up to `turns` iterations per unit. On a device that silently ends
    /// long loops, it may be less than `fuel`, so that the kernel reports the limit instead.
    pub(crate) fn loop_fuel(&self, turns: u32, fuel: u32) -> u32 {
        /// Iterations up to which no such device has ended an invocation's loops.
        const TURNS: u32 = 60_000;
        if self.ends_long_loops() { fuel.min((TURNS / turns).saturating_sub(1)) } else { fuel }
    }
}
