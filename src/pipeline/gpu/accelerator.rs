//! A device's part in one job.

use super::Gpu;
use crate::gpu::coder::BlockTask;
use crate::gpu::device::{Limits, STAGING, budget_now};
use crate::gpu::model::budget::{Batches, MAX_SLOTS, batches, budget};
use crate::pipeline::auto::Auto;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::gpu_engine::HELPERS;
use crate::pipeline::memory::{Cost, Share};
use crate::pipeline::statistics::Statistics;
use crate::pipeline::throughput::{Throughput, WithDevice};
use crate::pipeline::workload::Workload;

/// A device with the work that it does in one job, and the host memory it may use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accelerator {
    pub(crate) gpu: Gpu,
    pub(crate) work: BlockTask,
    /// The length of the longest block.
    pub(crate) block_len: u32,
    /// Blocks that the host has memory for, besides those of the workers.
    pub(crate) host_blocks: u64,
    /// The workers and blocks until the device is opened; `None` if it is open, or sure to be.
    pub(crate) alone: Option<Share>,
    /// The workers and blocks after the device has stopped. Its driver keeps some memory.
    pub(crate) afterwards: Share,
    /// The most batches that the host has staging memory for.
    pub(crate) most_slots: u64,
    /// The number of blocks in the job, if known.
    pub(crate) blocks: Option<u64>,
    pub(crate) statistics: Option<Statistics>,
    /// Workers of the same job without a device.
    pub(crate) workers: usize,
    /// The rates learned so far, with the kind of work to look up.
    pub(crate) learned: Option<(Auto, Workload)>,
}

/// A job's work for a device, and the host memory that the device may use.
pub(crate) struct Job<'a> {
    pub(crate) work: BlockTask,
    /// The length of the longest block.
    pub(crate) block_len: u32,
    /// Bytes of the contents, if known.
    pub(crate) bytes: Option<u64>,
    /// The host memory of workers and blocks.
    pub(crate) cost: &'a Cost,
    /// The most bytes of host memory.
    pub(crate) memory: u64,
    pub(crate) statistics: Option<&'a Statistics>,
    /// The rates learned so far, with the kind of work to look up.
    pub(crate) learned: Option<(Auto, Workload)>,
}

impl Accelerator {
    /// `gpu` alone, with as many blocks of host memory as it likes.
    pub(crate) fn alone(gpu: Gpu, work: BlockTask, block_len: u32) -> Self {
        Self {
            gpu,
            work,
            block_len,
            host_blocks: u64::from(u32::MAX),
            alone: None,
            afterwards: Share::ALONE,
            most_slots: MAX_SLOTS,
            blocks: None,
            statistics: None,
            workers: 1,
            learned: None,
        }
    }

    /// `gpu` beside the workers of `share`. Widens `share` by the blocks that the device gets, as far as the job's
    /// memory permits. If the device's limits are still unknown, it gets all blocks that the memory permits. Returns
    /// `None` if the device cannot do the work, and says why in the statistics.
    pub(crate) fn new(gpu: &Gpu, job: Job<'_>, share: &mut Share) -> Option<Self> {
        let Job { work, block_len, bytes, cost, memory, statistics, learned } = job;
        let of_slot = STAGING + choosing_memory(&work, block_len);
        let mut accelerator = Self {
            host_blocks: 0,
            most_slots: (memory / STAGING_FRACTION / of_slot).clamp(1, MAX_SLOTS),
            blocks: bytes.map(|bytes| bytes.div_ceil(block_len.into())),
            statistics: statistics.cloned(),
            workers: share.workers,
            learned,
            ..Self::alone(gpu.clone(), work, block_len)
        };
        let left = memory - DRIVER_MEMORY.min(memory / 2);
        let left = left.saturating_sub(accelerator.most_slots * of_slot);
        let most = (accelerator.gpu.known().map_err(|error| error.to_string()))
            .and_then(|limits| limits.map(|limits| accelerator.on_device(limits)).transpose());
        let wanted = match most {
            Ok(Some(most)) => HOST_BATCHES * accelerator.slots(&most) * u64::from(most.batch),
            Ok(None) => u64::from(u32::MAX),
            Err(why) => {
                accelerator.is_idle(&why);
                return None;
            }
        };
        accelerator.afterwards = cost.share(share.workers, left).unwrap_or(Share::ALONE);
        accelerator.alone = match work {
            // Drivers are asked late, so workers have all memory until then.
            BlockTask::Decode(_) => gpu.is_unsought().then_some(*share),
            // Drivers are asked at once, so their memory counts from the start. If the length is unknown, the device is
            // sure to be opened, and an owner that waits for input could not make room for it.
            BlockTask::Encode { .. } => {
                (bytes.is_some() && gpu.is_closed()).then_some(accelerator.afterwards)
            }
        };
        accelerator.host_blocks = cost.widen(share, wanted, left);
        Some(accelerator)
    }

    /// Whether the job is long enough to look for the device, judged by earlier runs; `None` without such runs.
    pub(crate) fn is_known_to_pay(&self) -> Option<bool> {
        let (auto, workload) = self.learned.as_ref()?;
        let bytes = self.blocks? as f64 * f64::from(self.block_len);
        let cpu = auto.knowledge().known_cpu(workload, self.workers)?;
        Some(cpu.pays(bytes, &self.with_device(&cpu)))
    }

    /// The expected contribution of the device beside `cpu`.
    pub(crate) fn with_device(&self, cpu: &Throughput) -> WithDevice {
        let limits = self.gpu.limits();
        let known = self.learned.as_ref().zip(limits).and_then(|((auto, workload), limits)| {
            let cpu = Throughput { workers: self.workers, ..*cpu };
            auto.knowledge().device(workload, limits, &cpu)
        });
        known.unwrap_or_else(|| WithDevice::unknown(limits.map(|limits| limits.api)))
    }

    /// Records that the device stays closed because of its learned rates.
    pub(crate) fn stays_closed(&self) {
        if let (Some((auto, workload)), Some(limits)) = (&self.learned, self.gpu.limits()) {
            auto.knowledge().fade(workload, limits, self.workers);
        }
    }

    /// Says in the statistics why the device does nothing so far.
    pub(crate) fn is_idle(&self, why: &str) {
        if let Some(statistics) = &self.statistics {
            statistics.device_is_idle(self.gpu.found_so_far(), why);
        }
    }

    /// The batches for a device with these limits, as far as its own memory goes, or why it can have none.
    pub(crate) fn on_device(&self, limits: &Limits) -> Result<Batches, String> {
        let cost = self.work.cost(limits, self.block_len).map_err(|why| why.to_string())?;
        // An open device knows how much of its memory is free now.
        let budget = match self.gpu.opened_so_far() {
            Some(opened) => budget_now(&opened.device, self.gpu.memory),
            _ => budget(limits, self.gpu.memory),
        };
        batches(limits, budget, &cost).ok_or_else(|| {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            format!(
                "a block takes {} MiB of its memory, {} MiB of it in one buffer, and the limits are {} and {} MiB",
                mib(cost.memory),
                mib(cost.largest_buffer),
                budget >> 20,
                limits.max_buffer >> 20,
            )
        })
    }

    /// Says in the statistics that the device takes part, with `batches`.
    pub(crate) fn join(&self, batches: &Batches) {
        let (Some(statistics), Some(limits)) = (&self.statistics, self.gpu.limits()) else {
            return;
        };
        let cost = self.work.cost(limits, self.block_len).ok();
        let predicted = cost.and_then(|cost| batches.memory(&cost).ok());
        statistics.device_joins(limits, predicted.unwrap_or(0));
        statistics.on_device(|device| {
            device.opening = self.gpu.opening_time().unwrap_or_default();
            (device.slots, device.batch) = (batches.slots, batches.batch);
        });
    }

    /// The batches for a device with these limits, as far as host memory goes too; `None` if it can have none.
    pub(crate) fn batches(&self, limits: &Limits) -> Option<Batches> {
        let most = self.on_device(limits).map_err(|why| self.is_idle(&why)).ok()?;
        let slots = self.slots(&most);
        let given = self.host_blocks / (HOST_BATCHES * slots);
        let batch = u64::from(most.batch).min(given.max(1));
        Some(Batches { slots: slots as u32, batch: batch as u32 })
    }

    fn slots(&self, most: &Batches) -> u64 {
        self.most_slots.min(most.slots.into())
    }
}

/// Batches on the host for each slot of the device: one on the device, and one that waits to be taken or written.
const HOST_BATCHES: u64 = 2;

/// Host memory that a driver takes for itself and for compiling kernels, roughly. No more than half of the limit is set
/// aside for it.
const DRIVER_MEMORY: u64 = 64 << 20;

/// With less host memory than this, a job looks for no device unless the user names one: the driver may take half of
/// it.
pub(in crate::pipeline) const MIN_HOST_MEMORY: u64 = 2 * DRIVER_MEMORY;

/// Host memory in which a slot chooses filters.
fn choosing_memory(work: &BlockTask, block_len: u32) -> u64 {
    match work {
        BlockTask::Encode { recipe, .. } => {
            HELPERS as u64 * CpuEngine::choosing_memory(recipe, block_len as usize)
        }
        BlockTask::Decode(_) => 0,
    }
}

/// Staging buffers, and memory to choose filters in, take at most this fraction of the host memory.
const STAGING_FRACTION: u64 = 4;
