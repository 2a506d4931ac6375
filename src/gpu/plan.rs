//! What to run on a device, as data.
//!
//! A plan handles a batch: `blocks` blocks in slots of equal size. It names its buffers, and takes the size of each from
//! the cost of a kernel that uses it. A name means one buffer in a plan: kernels that share a name share the buffer and
//! state the same formula for it. So what a plan takes is known from the kernels alone, before there is a plan:
//! [`Shape::memory`].

use std::fmt;

use super::cost::{CostError, KernelCost};
use super::kernel::Kernel;

/// Slots are multiples of so many bytes, so that buffers of all blocks are contiguous arrays of aligned rows.
pub const SLOT_ALIGNMENT: u64 = 256;

/// How many blocks a plan handles, and how long they may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shape {
    /// Number of blocks, at least 1.
    pub blocks: u32,
    /// Bytes of each block's slot: N of every formula. A multiple of [`SLOT_ALIGNMENT`].
    pub slot: u32,
}

impl Shape {
    /// A batch of `blocks` blocks of up to `block_len` bytes.
    pub fn new(blocks: u32, block_len: u32) -> Self {
        let slot = u64::from(block_len.max(1)).next_multiple_of(SLOT_ALIGNMENT);
        Self { blocks, slot: slot as u32 }
    }

    /// Bytes of the buffer that `cost` calls `name`, for the whole batch.
    pub fn bytes(&self, cost: &KernelCost, name: &str) -> Result<u64, CostError> {
        let block = cost.buffer(name)?.eval(u64::from(self.slot))?;
        block.checked_mul(u64::from(self.blocks)).ok_or_else(|| CostError::overflow(name))
    }

    /// Bytes of all buffers of a plan made of `kernels`, each name once.
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

/// Why there is no plan for what was asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlanError {
    /// A kernel's cost is wrong, or what it predicts cannot be counted.
    Cost(CostError),
    /// The device cannot run it; says what it lacks. The CPU can.
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

/// A buffer of a plan, by its place in [`Plan::buffers`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Buffer(pub usize);

/// A named buffer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanBuffer {
    /// Its name in the kernels' costs.
    pub name: &'static str,
    /// Bytes for the whole batch.
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

/// One use of a kernel.
#[derive(Debug, Clone)]
pub struct Run {
    /// The stage that users see it under.
    pub stage: &'static str,
    /// The file.
    pub kernel: &'static Kernel,
    /// The entry point.
    pub entry: &'static str,
    /// Constants that it is specialised by.
    pub defines: Vec<(&'static str, u32)>,
    /// Its buffers, in the order of its declarations.
    pub buffers: Vec<Buffer>,
    /// Its numbers, in the order of its declarations.
    pub args: Vec<u32>,
    /// Number of workgroups.
    pub groups: u32,
    /// Work items of a workgroup.
    pub threads: u32,
}

/// Buffers and steps.
#[derive(Debug, Clone)]
pub struct Plan {
    /// The batch.
    pub shape: Shape,
    /// What it needs.
    pub buffers: Vec<PlanBuffer>,
    /// What it does.
    pub steps: Vec<Step>,
}

impl Plan {
    /// A plan that does nothing.
    pub fn new(shape: Shape) -> Self {
        Self { shape, buffers: Vec::new(), steps: Vec::new() }
    }

    /// The buffer that `kernel` calls `name`: the one that has this name already, or a new one.
    ///
    /// # Errors
    /// If the kernel's cost does not name it, or states another size than the kernel that named it first.
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

    /// Its uses of kernels, in order.
    pub(crate) fn runs(&self) -> impl Iterator<Item = &Run> {
        self.steps.iter().filter_map(|step| match step {
            Step::Run(run) => Some(run),
            Step::Clear(_) => None,
        })
    }

    /// Bytes of all its buffers.
    pub fn memory(&self) -> u64 {
        self.buffers.iter().map(|buffer| buffer.bytes).sum()
    }
}
