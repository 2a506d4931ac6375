//! Computes how many blocks a device works on at once, from the cost of the kernels and the limits of the device.
//!
//! ```text
//! budget    = the limit that the user sets, or a fraction of the device's memory
//! slots     = at most 6; each holds a block and its staging memory
//!                                                         read | upload | compute | download | check
//! in_flight = (budget - staging) / bytes of one block     blocks that fit on the device
//! batch     = in_flight / slots                           blocks of a slot, but at most
//!               largest buffer of the device / largest buffer of one block
//!               a slot's share of the work items that fill the compute units several times over
//!
//! Staging memory (at most [`STAGING`] bytes per slot) counts where it is allocated. On a GPU with its own memory, wgpu
//! allocates it from the device memory that the host can reach, so it counts here. OpenCL pins host memory for it, and
//! other devices have only host memory; there it counts against the limit for host memory.
//!
//! No figure here describes one particular device or kernel: [`Limits`] and `@pz_cost` state those.

use super::cost::CostError;
use super::limits::{Api, Kind, Limits, MemorySource, STAGING};
use super::plan::{Plan, PlanError, Run, Shape};

/// The most batches on a device at once, each with its own host thread. While some are computed, others are read,
/// copied and checked, which takes several times as long.
pub(crate) const MAX_SLOTS: u64 = 6;

/// Roughly how many work items run on a compute unit at once: 1,024 to 2,048 on today's GPUs.
const THREADS_PER_UNIT: u64 = 2048;

/// The same for a software device, whose compute units are CPU cores: a few vectors per core.
const THREADS_PER_CORE: u64 = 64;

/// How many times over all batches together fill the device. With a smaller number, the last blocks of a batch leave
/// much of the device idle. A larger one gains nothing and delays the results.
const TIMES_FULL: u64 = 4;

/// The cost of a pipeline for one block of a given length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockCost {
    /// Bytes of device memory.
    pub memory: u64,
    /// Bytes of its largest buffer.
    pub largest_buffer: u64,
    /// Work items of the smallest dispatch.
    pub threads: u64,
}

impl BlockCost {
    /// The cost of one block of `block_len` bytes by the plans that `planner` makes.
    ///
    /// # Errors
    /// Fails if `planner` does.
    pub fn of(
        planner: impl FnOnce(Shape) -> Result<Plan, PlanError>,
        block_len: u32,
    ) -> Result<Self, PlanError> {
        let plan = planner(Shape::new(1, block_len))?;
        let threads = |run: &Run| u64::from(run.groups) * u64::from(run.threads);
        // The stage with the fewest work items leaves the most of the device idle.
        Ok(Self {
            memory: plan.memory(),
            largest_buffer: plan.buffers.iter().map(|buffer| buffer.bytes).max().unwrap_or(0),
            threads: plan.runs().map(threads).min().unwrap_or(1),
        })
    }

    /// The cost of running both, one after the other, each with its own memory.
    pub(crate) fn and(&self, other: &Self) -> Self {
        Self {
            memory: self.memory.saturating_add(other.memory),
            largest_buffer: self.largest_buffer.max(other.largest_buffer),
            threads: self.threads.min(other.threads),
        }
    }

    /// The cost of running both, one after the other, in the same memory.
    pub(crate) fn max(&self, other: &Self) -> Self {
        Self { memory: self.memory.max(other.memory), ..self.and(other) }
    }
}

/// The number and size of the batches on a device at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Batches {
    /// Number of batches at once.
    pub slots: u32,
    /// Blocks in each batch.
    pub batch: u32,
}

impl Batches {
    /// Device memory that all batches take, in bytes.
    ///
    /// # Errors
    /// Fails if the total overflows.
    pub fn memory(&self, block: &BlockCost) -> Result<u64, CostError> {
        let blocks = u64::from(self.slots) * u64::from(self.batch);
        blocks.checked_mul(block.memory).ok_or_else(|| CostError::overflow("all batches"))
    }
}

/// How much of a device's memory pz may take, in bytes: the user's limit, up to all of the memory, or by default a
/// fraction that leaves room for other programs.
pub fn budget(limits: &Limits, permitted: Option<u64>) -> u64 {
    budget_of(limits.memory, limits.memory_source, permitted)
}

/// [`budget`] for a device with `memory` bytes, according to `source`.
pub(crate) fn budget_of(memory: u64, source: MemorySource, permitted: Option<u64>) -> u64 {
    let part = match source {
        MemorySource::Total => memory / 4 * 3,
        MemorySource::Assumed => memory,
        _ => memory / 8 * 7,
    };
    permitted.map_or(part, |bytes| bytes.min(memory))
}

/// Device memory for the staging of one slot, in bytes.
fn staging(limits: &Limits) -> u64 {
    let has_own_memory = matches!(limits.kind, Kind::Discrete | Kind::Other);
    if limits.api == Api::WebGpu && has_own_memory { STAGING } else { 0 }
}

/// Sizes the batches for blocks of this cost within `budget` bytes; `None` if not even one block fits.
pub fn batches(limits: &Limits, budget: u64, block: &BlockCost) -> Option<Batches> {
    batches_of(limits, budget, block, (MAX_SLOTS, TIMES_FULL))
}

/// [`batches`], but one batch at a time, with up to `times` as many blocks as all batches together would have.
pub(crate) fn one_batch(
    limits: &Limits,
    budget: u64,
    block: &BlockCost,
    times: u64,
) -> Option<Batches> {
    batches_of(limits, budget, block, (1, times * TIMES_FULL))
}

/// Sizes up to `most` batches, which together fill the device up to `times_full` times over.
fn batches_of(
    limits: &Limits,
    budget: u64,
    block: &BlockCost,
    (most, times_full): (u64, u64),
) -> Option<Batches> {
    let in_buffer = limits.max_buffer / block.largest_buffer.max(1);
    if block.memory > budget || in_buffer == 0 {
        return None;
    }
    // A budget with room for just one block may lack room for its staging, but few copies use all of the staging
    // memory.
    let of_slot = block.memory.saturating_add(staging(limits)).max(1);
    let slots = (budget / of_slot).clamp(1, most);
    let for_blocks = budget.saturating_sub(slots * staging(limits));
    let in_flight = (for_blocks / block.memory.max(1)).max(slots);
    let room = if limits.kind == Kind::Software { THREADS_PER_CORE } else { THREADS_PER_UNIT };
    let full = u64::from(limits.compute_units.max(1)) * room * times_full / slots;
    let batch = (in_flight / slots).min(in_buffer).min(full.div_ceil(block.threads.max(1)));
    // A plan counts the blocks of a batch, and the bytes before each, in 32 bits.
    Some(Batches { slots: slots as u32, batch: batch.clamp(1, 1 << 20) as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::device::{BufferId, Device, DeviceError, Queue, budget_now};
    use crate::gpu::tests::testing::made_up;

    fn device(memory: u64, max_buffer: u64) -> Limits {
        Limits { memory, max_buffer, local_memory: 32 << 10, ..made_up() }
    }

    #[test]
    fn batches_follow_the_memory() {
        const MIB: u64 = 1 << 20;
        for memory in [256 * MIB, 1024 * MIB, 8 << 30, 139 << 30] {
            for max_buffer in [128 * MIB, 2048 * MIB, u64::MAX] {
                let limits = device(memory, max_buffer);
                let budget = budget(&limits, None);
                let mut fewer = u64::MAX;
                for log in 16..=24 {
                    let n = 1u64 << log;
                    let block = BlockCost {
                        memory: 12 * n + 4096,
                        largest_buffer: 4 * n,
                        threads: n / 1024,
                    };
                    let Some(found) = batches(&limits, budget, &block) else {
                        assert!(block.memory > budget || block.largest_buffer > max_buffer);
                        continue;
                    };
                    assert!(found.memory(&block).unwrap() <= budget);
                    assert!(u64::from(found.batch) * block.largest_buffer <= max_buffer);
                    let blocks = u64::from(found.slots * found.batch);
                    assert!((1..=fewer).contains(&blocks), "{limits:?} {block:?} {found:?}");
                    fewer = blocks;
                }
            }
        }
    }

    #[test]
    fn what_fills_a_gpu_is_too_much_for_cores() {
        let gpu = Limits { kind: Kind::Discrete, ..device(8 << 30, u64::MAX) };
        let cores = Limits { kind: Kind::Software, ..gpu.clone() };
        let block = BlockCost { memory: 1 << 20, largest_buffer: 1 << 20, threads: 64 };
        let batch = |limits| batches(limits, 64 << 30, &block).unwrap().batch;
        assert!(batch(&gpu) > 20 * batch(&cores), "{} {}", batch(&gpu), batch(&cores));
    }

    #[test]
    fn what_copies_go_through_counts_where_it_lies() {
        const MIB: u64 = 1 << 20;
        let block = BlockCost { memory: 10 * MIB, largest_buffer: MIB, threads: 1 };
        let of = |api, kind| {
            let limits = Limits { api, kind, ..device(8 << 30, u64::MAX) };
            batches(&limits, 240 * MIB, &block).map(|found| (found.slots, found.batch))
        };
        assert_eq!(of(Api::OpenCl, Kind::Discrete), Some((6, 4)));
        assert_eq!(of(Api::WebGpu, Kind::Integrated), Some((6, 4)));
        assert_eq!(of(Api::WebGpu, Kind::Software), Some((6, 4)));
        // 6 x 24 MiB go to staging.
        assert_eq!(of(Api::WebGpu, Kind::Discrete), Some((6, 1)));
        let gpu = Limits { api: Api::WebGpu, kind: Kind::Discrete, ..device(8 << 30, u64::MAX) };
        let of = |budget| batches(&gpu, budget, &block).map(|found| (found.slots, found.batch));
        assert_eq!(of(10 * MIB - 1), None);
        assert_eq!(of(10 * MIB), Some((1, 1)));
        assert_eq!(of(68 * MIB), Some((2, 1)));
        assert_eq!(of(1144 * MIB), Some((6, 16)));
    }

    /// A device whose memory other programs have mostly taken.
    struct Taken(Limits, Option<u64>);

    impl Device for Taken {
        fn limits(&self) -> &Limits {
            &self.0
        }
        fn free_memory(&self) -> Option<u64> {
            self.1
        }
        fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
            Err(DeviceError::OutOfMemory { bytes })
        }
        fn free(&self, _: BufferId) {}
        fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
            Err(DeviceError::Lost)
        }
    }

    #[test]
    fn what_is_free_by_now_counts() {
        let limits = Limits { memory_source: MemorySource::Nvml, ..device(80 << 30, u64::MAX) };
        let taken = Taken(limits.clone(), Some(8 << 30));
        assert_eq!(budget(&limits, None), 70 << 30);
        assert_eq!(budget_now(&taken, None), 7 << 30);
        assert_eq!(budget_now(&taken, Some(20 << 30)), 8 << 30);
        assert_eq!(budget_now(&taken, Some(1 << 30)), 1 << 30);
        assert_eq!(budget_now(&Taken(limits, None), None), 70 << 30);
    }

    #[test]
    fn a_limit_of_the_users_is_kept() {
        let limits = device(8 << 30, u64::MAX);
        let block = BlockCost { memory: 100 << 20, largest_buffer: 40 << 20, threads: 1 };
        assert_eq!(batches(&limits, budget(&limits, Some(99 << 20)), &block), None);
        let one = Some(Batches { slots: 1, batch: 1 });
        assert_eq!(batches(&limits, budget(&limits, Some(100 << 20)), &block), one);
        let four = Some(Batches { slots: 4, batch: 1 });
        assert_eq!(batches(&limits, budget(&limits, Some(450 << 20)), &block), four);
        let many = batches(&limits, budget(&limits, Some(1900 << 20)), &block).unwrap();
        assert_eq!((many.slots, many.batch), (6, 3));
        assert_eq!(budget(&limits, Some(9 << 30)), 8 << 30);
        assert_eq!(budget(&limits, None), 6 << 30);
    }
}
