//! The device memory of a batch, and the copies to and from it.

use super::CoderError;
use crate::gpu::device::run::{PlanMemory, submit};
use crate::gpu::device::{BufferId, Device, DeviceError, Limits, Queue};
use crate::gpu::model::plan::{Plan, PlanError, Shape};
use crate::gpu::model::predict::StageTime;
use crate::gpu::stages::filter::ModuleStep;
use crate::gpu::stages::job::{Job, JobResult};
use crate::gpu::stages::lz77_decode::PayloadFeatures;

/// Makes plans for batches of any size up to the first plan's.
pub(super) type Planner<'d> =
    dyn Fn(&Limits, Shape, PayloadFeatures, &[ModuleStep]) -> Result<Plan, PlanError> + Send + 'd;

/// The memory of a batch, and the plans that run in it.
pub(super) struct Batch<'d> {
    pub(super) device: &'d dyn Device,
    pub(super) queue: Box<dyn Queue + 'd>,
    pub(super) memory: PlanMemory<'d>,
    /// The plan of the last batch. It fits that batch's block count and features.
    pub(super) plan: Plan,
    pub(super) features: PayloadFeatures,
    pub(super) most: Shape,
    /// Submitted blocks whose results have not been read.
    submitted: usize,
    planner: Box<Planner<'d>>,
    /// The modules that the next batches need.
    modules: Vec<ModuleStep>,
    /// Whether the plan was made for other modules.
    is_stale: bool,
}

impl<'d> Batch<'d> {
    pub(super) fn new(
        device: &'d dyn Device,
        most: Shape,
        own: &[(&'static str, BufferId)],
        planner: Box<Planner<'d>>,
    ) -> Result<Self, CoderError> {
        Self::in_queue(device, None, most, own, planner)
    }

    /// Like [`Self::new`], but in `queue`, which may have other users; `None` makes a queue.
    pub(super) fn in_queue(
        device: &'d dyn Device,
        queue: Option<Box<dyn Queue + 'd>>,
        most: Shape,
        own: &[(&'static str, BufferId)],
        planner: Box<Planner<'d>>,
    ) -> Result<Self, CoderError> {
        let features = PayloadFeatures::default();
        let plan = planner(device.limits(), most, features, &[])?;
        let memory = PlanMemory::allocate_but(device, &plan, own)?;
        Ok(Self {
            device,
            queue: queue.map_or_else(|| device.queue(), Ok)?,
            memory,
            plan,
            features,
            most,
            submitted: 0,
            planner,
            modules: Vec::new(),
            is_stale: false,
        })
    }

    /// Sets the modules that batches need from now on.
    pub(super) fn set_modules(&mut self, modules: &[ModuleStep]) {
        let is_same = self.modules.len() == modules.len()
            && self.modules.iter().zip(modules).all(|(old, new)| old.is_like(new));
        if !is_same {
            self.modules = modules.to_vec();
            self.is_stale = true;
        }
    }

    /// The modules that batches need.
    pub(super) fn modules(&self) -> &[ModuleStep] {
        &self.modules
    }

    /// Makes the plan for a batch.
    fn plan_for(&mut self, jobs: usize, features: PayloadFeatures) -> Result<(), CoderError> {
        assert!(jobs > 0 && jobs <= self.most.blocks as usize);
        let is_other = jobs != self.plan.shape.blocks as usize || features != self.features;
        if is_other || self.is_stale {
            // Blocks keep their places, so a plan for fewer blocks runs in memory made for more.
            let shape = Shape { blocks: jobs as u32, ..self.most };
            self.plan = (self.planner)(self.device.limits(), shape, features, &self.modules)?;
            self.features = features;
            self.is_stale = false;
        }
        Ok(())
    }

    /// Whether a batch [runs at once](Device::runs_at_once).
    pub(super) fn runs_at_once(
        &mut self,
        jobs: usize,
        features: PayloadFeatures,
    ) -> Result<bool, CoderError> {
        self.plan_for(jobs, features)?;
        Ok(self.device.runs_at_once(&self.plan))
    }

    /// Uploads the jobs of a batch and starts it, without waiting for it.
    pub(super) fn submit(
        &mut self,
        jobs: &[Job],
        features: PayloadFeatures,
    ) -> Result<(), CoderError> {
        self.enqueue(jobs, features)?;
        Ok(self.queue.flush()?)
    }

    /// Uploads the jobs of a batch and queues its work, which a [flush](Queue::flush) starts.
    pub(super) fn enqueue(
        &mut self,
        jobs: &[Job],
        features: PayloadFeatures,
    ) -> Result<(), CoderError> {
        self.plan_for(jobs.len(), features)?;
        let memory = &self.memory;
        self.queue.write(memory.named("jobs"), 0, bytemuck::cast_slice(jobs))?;
        submit(&self.plan, memory, &mut *self.queue)?;
        self.submitted = jobs.len();
        Ok(())
    }

    /// Starts to read the results of the last batch. Only useful if no other work is queued before [`Self::wait`].
    pub(super) fn read_results_ahead(&mut self) -> Result<(), DeviceError> {
        let bytes = (self.submitted * size_of::<JobResult>()) as u64;
        self.queue.read_ahead(self.memory.named("results"), 0, bytes)
    }

    /// Waits for the last batch, and returns its results; none if no batch was submitted.
    pub(super) fn wait(&mut self) -> Result<Vec<JobResult>, CoderError> {
        let mut results = vec![JobResult::default(); std::mem::take(&mut self.submitted)];
        if results.is_empty() {
            return Ok(results);
        }
        let memory = &self.memory;
        let into = bytemuck::cast_slice_mut(&mut results);
        self.queue.read(memory.named("results"), 0, into)?;
        Ok(results)
    }

    /// The times of the last batch's stages, in the order in which they started.
    pub(super) fn take_times(&mut self) -> Result<Vec<StageTime>, CoderError> {
        let times = self.queue.take_times()?;
        let mut stages: Vec<StageTime> = Vec::new();
        for (stage, time) in self.plan.runs().map(|run| run.stage).zip(times) {
            match stages.iter_mut().find(|other| other.stage == stage) {
                Some(other) => other.time += time,
                None => stages.push(StageTime { stage, time }),
            }
        }
        Ok(stages)
    }

    /// Writes each of `parts` to a buffer of the batch at its offset; offsets ascend. Pads each part with zeros to a
    /// multiple of 16 bytes. Parts that are close to each other are copied together.
    pub(super) fn write<'p>(
        &mut self,
        name: &str,
        parts: impl IntoIterator<Item = (u64, &'p [u8])>,
    ) -> Result<(), DeviceError> {
        let buffer = self.memory.named(name);
        let mut run: Vec<&[u8]> = Vec::new();
        let (mut start, mut end) = (0, 0);
        for (offset, part) in parts {
            if offset != end && !run.is_empty() {
                self.queue.write_parts(buffer, start, &run)?;
                run.clear();
            }
            if run.is_empty() {
                start = offset;
            }
            let padded = part.len().next_multiple_of(16);
            run.extend([part, &[0; 16][..padded - part.len()]]);
            end = offset + padded as u64;
        }
        if run.is_empty() { Ok(()) } else { self.queue.write_parts(buffer, start, &run) }
    }

    /// Copies from a buffer of the batch to the host.
    pub(super) fn read_range(
        &mut self,
        name: &str,
        offset: u64,
        into: &mut [u8],
    ) -> Result<(), DeviceError> {
        if offset.is_multiple_of(4) && into.len().is_multiple_of(4) {
            return self.queue.read(self.memory.named(name), offset, into);
        }
        let mut done = 0;
        self.read(name, &[(offset, into.len())], |_, piece| {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })
    }

    /// Applies [`read_ranges`] to a buffer of the batch.
    pub(super) fn read(
        &mut self,
        name: &str,
        ranges: &[(u64, usize)],
        take: impl FnMut(usize, &[u8]),
    ) -> Result<(), DeviceError> {
        read_ranges(&mut *self.queue, self.memory.named(name), ranges, take)
    }
}

/// Copies `ranges` of a buffer to the host. A range is an offset and a length; they ascend. Calls `take` with the
/// number of a range and one piece of it after another. Ranges close to each other are copied together.
fn read_ranges(
    queue: &mut dyn Queue,
    buffer: BufferId,
    ranges: &[(u64, usize)],
    mut take: impl FnMut(usize, &[u8]),
) -> Result<(), DeviceError> {
    let mut first = 0;
    while first < ranges.len() {
        let start = ranges[first].0 & !3;
        let end_of = |&(offset, len): &(u64, usize)| offset + len as u64;
        let mut count = 1;
        while ranges[first + count..]
            .first()
            .is_some_and(|next| next.0 - end_of(&ranges[first + count - 1]) < MAX_BETWEEN)
        {
            count += 1;
        }
        let together = &ranges[first..first + count];
        let end = end_of(&together[count - 1]).next_multiple_of(4);
        let (mut at, mut number) = (start, 0);
        queue.read_with(buffer, start, end - start, &mut |piece| {
            let until = at + piece.len() as u64;
            while let Some(range) = together.get(number) {
                let from = range.0.max(at);
                let to = end_of(range).min(until);
                if from < to {
                    take(first + number, &piece[(from - at) as usize..(to - at) as usize]);
                }
                if end_of(range) > until {
                    break;
                }
                number += 1;
            }
            at = until;
        })?;
        first += count;
    }
    Ok(())
}

/// Ranges with a gap of at most this many bytes are copied together, gap included.
const MAX_BETWEEN: u64 = 16 << 10;
