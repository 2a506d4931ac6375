//! A device at work on the blocks of one job.

use super::{Gpu, Work};
use crate::gpu::budget::{Batches, MOST_SLOTS, batches, budget, budget_now};
use crate::gpu::device::{Limits, STAGING};
use crate::pipeline::auto::Auto;
use crate::pipeline::memory::{Cost, Share};
use crate::pipeline::statistics::Statistics;
use crate::pipeline::throughput::{Throughput, WithDevice};
use crate::pipeline::workload::Workload;

/// A device at work on blocks of one kind, in threads of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accelerator {
    pub(crate) gpu: Gpu,
    pub(crate) work: Work,
    /// Bytes of the longest block.
    pub(crate) block_len: u32,
    /// Blocks for which there is room on the host, besides those of the CPU's workers.
    pub(crate) host_blocks: u64,
    /// What runs at once until the device is looked for, if it is still to be decided whether it is.
    pub(crate) alone: Option<Share>,
    /// What runs at once when the device does nothing any more, with what its driver has taken.
    pub(crate) afterwards: Share,
    /// The most batches at once for which there is room on the host: each is copied through memory of its own.
    pub(crate) most_slots: u64,
    /// All blocks of the job, if it is known how many.
    pub(crate) blocks: Option<u64>,
    pub(crate) statistics: Option<Statistics>,
    /// The CPU's workers without a device.
    pub(crate) workers: usize,
    /// Where it is known what the device delivers on such work.
    pub(crate) learned: Option<(Auto, Workload)>,
}

impl Accelerator {
    /// How `gpu` does `work` where nothing else is to be done, and as much of it at once as it likes.
    pub(crate) fn alone(gpu: Gpu, work: Work, block_len: u32) -> Self {
        Self {
            gpu,
            work,
            block_len,
            host_blocks: u64::from(u32::MAX),
            alone: None,
            afterwards: Share { workers: 1, in_flight: 1 },
            most_slots: MOST_SLOTS,
            blocks: None,
            statistics: None,
            workers: 1,
            learned: None,
        }
    }

    /// How `gpu` does `work`, counted in `statistics`; `None` if it is known that it cannot, and they say why. `share` is
    /// widened by the blocks that it is given, as far as `limit` bytes of host memory permit, and by as many as these permit
    /// if it is not known yet what it is. That is how much runs at once beside the device.
    pub(crate) fn new(
        gpu: Option<&Gpu>,
        work: Work,
        block_size: usize,
        (cost, share, limit): (&Cost, &mut Share, u64),
        statistics: Option<&Statistics>,
    ) -> Option<Self> {
        let mut accelerator = Self {
            host_blocks: 0,
            most_slots: (limit / PART_TO_COPY_THROUGH / STAGING).clamp(1, MOST_SLOTS),
            statistics: statistics.cloned(),
            workers: share.workers,
            ..Self::alone(gpu?.clone(), work, block_size as u32)
        };
        let limit = limit - DRIVER.min(limit / 2);
        let limit = limit.saturating_sub(accelerator.most_slots * STAGING);
        let shared = &accelerator.gpu.shared;
        let limits = match (shared.opened.get(), shared.found.get()) {
            (Some(Ok(opened)), _) => Ok(Some(opened.device.limits())),
            (Some(Err(error)), _) | (None, Some(Err(error))) => Err(error.to_string()),
            (None, Some(Ok(limits))) => Ok(Some(limits)),
            (None, None) => Ok(None),
        };
        let most = limits
            .and_then(|limits| limits.map(|limits| accelerator.on_device(limits)).transpose());
        let wanted = match most {
            Ok(Some(most)) => HOST_BATCHES * accelerator.slots(&most) * u64::from(most.batch),
            Ok(None) => u64::from(u32::MAX),
            Err(why) => {
                accelerator.is_idle(&why);
                return None;
            }
        };
        let is_for_later = matches!(work, Work::Decode(_)) && accelerator.gpu.is_unsought();
        accelerator.alone = is_for_later.then_some(*share);
        accelerator.afterwards =
            cost.share(share.workers, limit).unwrap_or(Share { workers: 1, in_flight: 1 });
        accelerator.host_blocks = cost.widen(share, wanted, limit);
        Some(accelerator)
    }

    /// Says how many bytes of contents there are, if it is known.
    pub(crate) fn of_bytes(mut self, bytes: Option<u64>) -> Self {
        self.blocks = bytes.map(|bytes| bytes.div_ceil(self.block_len.into()));
        self
    }

    /// Says where it is known what the device delivers.
    pub(crate) fn learned_by(mut self, auto: Option<&Auto>, workload: Workload) -> Self {
        self.learned = auto.map(|auto| (auto.clone(), workload));
        self
    }

    /// What the device adds to what the CPU delivers now, as far as it is known.
    pub(crate) fn with_device(&self, cpu: &Throughput) -> WithDevice {
        let limits = self.gpu.limits();
        let known = self.learned.as_ref().zip(limits).and_then(|((auto, workload), limits)| {
            let cpu = Throughput { workers: self.workers, ..*cpu };
            auto.knowledge().device(workload, limits, &cpu)
        });
        known.unwrap_or_else(|| WithDevice::unknown(limits.map(|limits| limits.api)))
    }

    /// The device stays closed because of what is known of it.
    pub(crate) fn stays_closed(&self) {
        if let (Some((auto, workload)), Some(limits)) = (&self.learned, self.gpu.limits()) {
            auto.knowledge().fade(workload, limits, self.workers);
        }
    }

    /// Says in the statistics why the device does nothing, unless it takes part later on.
    pub(crate) fn is_idle(&self, why: &str) {
        if let Some(statistics) = &self.statistics {
            let found = self.gpu.shared.found.get();
            statistics.device_is_idle(found.and_then(|found| found.as_ref().ok()), why);
        }
    }

    /// The batches that a device with such limits would be given; otherwise why it cannot be given any.
    pub(crate) fn on_device(&self, limits: &Limits) -> Result<Batches, String> {
        let cost = self.work.cost(limits, self.block_len).map_err(|why| why.to_string())?;
        // Once it is open, it knows what is free now.
        let budget = match self.gpu.shared.opened.get() {
            Some(Ok(opened)) => budget_now(&opened.device, self.gpu.memory),
            _ => budget(limits, self.gpu.memory),
        };
        batches(limits, budget, &cost).ok_or_else(|| {
            let mib = |bytes: u64| bytes.div_ceil(1 << 20);
            format!(
                "a block takes {} MiB of its memory, {} of them in one buffer, and it may have {} and {}",
                mib(cost.memory),
                mib(cost.largest_buffer),
                budget >> 20,
                limits.max_buffer >> 20,
            )
        })
    }

    /// Says in the statistics that the device takes part, with such batches.
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

    /// The batches that a device with such limits is given; `None` if it cannot be given any.
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

/// On the host there is room for so many batches for each that is on the device: others wait to be taken, and wait for their
/// turn to be written.
const HOST_BATCHES: u64 = 2;

/// Bytes of the host's memory that a driver takes for itself and for compiling kernels, roughly; they are no more than half of what may
/// be taken.
const DRIVER: u64 = 64 << 20;

/// Host memory without which no device is looked for, unless the user names it: a driver may take half of it.
pub(in crate::pipeline) const LEAST_MEMORY: u64 = 2 * DRIVER;

/// Of the memory that may be taken on the host, no more than one in so many parts is what devices' queues copy through.
const PART_TO_COPY_THROUGH: u64 = 4;
