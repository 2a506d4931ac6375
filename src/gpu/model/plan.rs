//! The work for a device, as data.
//!
//! A plan handles one batch: `blocks` blocks in slots of equal size. It names its buffers and sizes each by the cost of
//! a kernel that uses it. Kernels that use the same name share one buffer and must state the same formula for it. The
//! kernels alone therefore determine a plan's memory, before the plan is made: see [`Shape::memory`].

use std::fmt;

use super::cost::{CostError, KernelCost};
use super::kernel::Kernel;

/// Slot sizes are multiples of this many bytes, so that each buffer is one contiguous array of aligned rows.
pub const SLOT_ALIGNMENT: u64 = 256;

/// The number of blocks in a plan, and their greatest length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// Size of each block's slot in bytes: the N of every formula. A multiple of [`SLOT_ALIGNMENT`].
    pub slot: u32,
}

impl Shape {
    /// The shape of a batch of `blocks` blocks of up to `block_len` bytes.
    pub fn new(blocks: u32, block_len: u32) -> Self {
        let slot = u64::from(block_len.max(1)).next_multiple_of(SLOT_ALIGNMENT);
        Self { blocks, slot: slot as u32 }
    }

    /// Size in bytes of the buffer `name` of `cost`, for the whole batch.
    pub fn bytes(&self, cost: &KernelCost, name: &str) -> Result<u64, CostError> {
        let block = cost.buffer(name)?.eval(u64::from(self.slot))?;
        block.checked_mul(u64::from(self.blocks)).ok_or_else(|| CostError::overflow(name))
    }

    /// Total size in bytes of all buffers of a plan made of `kernels`. Each name counts once.
    pub fn memory(&self, kernels: &[&Kernel]) -> Result<u64, CostError> {
        let mut names: Vec<&str> = Vec::new();
        let mut total = 0u64;
        for kernel in kernels {
            let cost = kernel.cost()?;
            for (name, _) in &cost.buffers {
                if !names.contains(&name.as_str()) {
                    names.push(name);
                    let bytes = self.bytes(cost, name)?;
                    total = total.checked_add(bytes).ok_or_else(|| CostError::overflow(name))?;
                }
            }
        }
        Ok(total)
    }
}

/// Why a plan could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// A kernel's cost is wrong, or a size computed from it overflows.
    Cost(CostError),
    /// The device cannot run the plan, though the CPU can do the work. The text says what the device lacks.
    Declined(String),
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cost(error) => error.fmt(f),
            Self::Declined(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for PlanError {}

impl From<CostError> for PlanError {
    fn from(error: CostError) -> Self {
        Self::Cost(error)
    }
}

/// A buffer of a plan: its index in [`Plan::buffers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer(pub usize);

/// A named buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanBuffer {
    /// Its name in the kernels' costs.
    pub name: &'static str,
    /// Size in bytes for the whole batch.
    pub bytes: u64,
}

/// A step of a plan.
#[derive(Debug, Clone)]
pub enum Step {
    /// Sets a whole buffer to 0.
    Clear(Buffer),
    /// Runs a kernel.
    Run(Run),
}

/// One launch of a kernel.
#[derive(Debug, Clone)]
pub struct Run {
    /// The name of the stage, as shown to users.
    pub stage: &'static str,
    /// The kernel file.
    pub kernel: &'static Kernel,
    /// The entry point.
    pub entry: &'static str,
    /// Constants to compile the kernel with.
    pub defines: Vec<(&'static str, u32)>,
    /// The kernel's buffers, in the order in which it declares them.
    pub buffers: Vec<Buffer>,
    /// The kernel's arguments, in the order in which it declares them.
    pub args: Vec<u32>,
    /// Number of workgroups.
    pub groups: u32,
    /// Work items per workgroup.
    pub threads: u32,
}

/// A list of buffers and of the steps that work on them.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The shape of the batch.
    pub shape: Shape,
    /// The buffers.
    pub buffers: Vec<PlanBuffer>,
    /// The steps, in order.
    pub steps: Vec<Step>,
    /// Kernels that do not run here, but whose buffers other plans in the same memory need.
    pub(crate) idle: Vec<&'static Kernel>,
}

impl Plan {
    /// An empty plan.
    pub fn new(shape: Shape) -> Self {
        Self { shape, buffers: Vec::new(), steps: Vec::new(), idle: Vec::new() }
    }

    /// The buffer that `kernel` calls `name`: adds it to the plan unless an earlier kernel already has.
    ///
    /// # Errors
    /// Fails if the kernel's cost lacks that name, or gives it another size than the kernel that named it first.
    pub fn buffer(&mut self, kernel: &Kernel, name: &'static str) -> Result<Buffer, CostError> {
        let bytes = self.shape.bytes(kernel.cost()?, name)?;
        if let Some(at) = self.buffers.iter().position(|buffer| buffer.name == name) {
            return if self.buffers[at].bytes == bytes {
                Ok(Buffer(at))
            } else {
                Err(CostError::disagrees(kernel.stem, name))
            };
        }
        self.buffers.push(PlanBuffer { name, bytes });
        Ok(Buffer(self.buffers.len() - 1))
    }

    /// Makes the steps so far use the buffer `to` instead of `from`.
    pub(crate) fn redirect(&mut self, from: Buffer, to: Buffer) {
        let used = self.steps.iter_mut().flat_map(|step| match step {
            Step::Clear(buffer) => std::slice::from_mut(buffer),
            Step::Run(run) => &mut run.buffers,
        });
        used.filter(|buffer| **buffer == from).for_each(|buffer| *buffer = to);
    }

    /// The kernel launches, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.steps.iter().filter_map(|step| match step {
            Step::Run(run) => Some(run),
            Step::Clear(_) => None,
        })
    }

    /// Every kernel that has buffers here, each once.
    #[cfg(test)]
    pub(crate) fn kernels(&self) -> Vec<&'static Kernel> {
        let mut kernels: Vec<&Kernel> = Vec::new();
        for kernel in self.runs().map(|run| run.kernel).chain(self.idle.iter().copied()) {
            if !kernels.iter().any(|other| other.stem == kernel.stem) {
                kernels.push(kernel);
            }
        }
        kernels
    }

    /// Total size of all buffers in bytes.
    pub fn memory(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.bytes).sum()
    }
}
