//! The blocks of an archive that are wanted in the memory of a device.

use std::sync::{Arc, MutexGuard};

use super::completion::{Claim, Completion};
use super::error::ArchiveError;
use super::on_the_way::OnTheWay;
use super::options::{Priority, ReadOptions};
use super::queue::{Limits, Queue, Waiter};
use super::{Shared, Wanted};
use crate::access::device::{BatchKind, Core, Land, Lane, OnDevice, Requests, Run, Taken, Want};
use crate::format::Pipeline;
use crate::gpu::coder::RangeTask;
use crate::gpu::device::DeviceError;
use crate::stream::block::{BlockId, Layout, Placement};

/// The blocks that are wanted in the memory of one device.
pub(super) struct DeviceQueue {
    core: Arc<Core>,
    queue: Mutex<Queue<DeviceWaiter>>,
    /// The longest block that decoders are made for, in bytes of contents: no shorter than the archive's.
    pub(super) block_len: u32,
    /// What kind of batches the archive has.
    pub(super) kind: BatchKind,
    /// The most blocks of a batch.
    max_batch: usize,
    /// Batches of so many blocks are not divided further among workers.
    min_batch: usize,
    /// What the archive's blocks take.
    tasks: Vec<RangeTask>,
}

/// Who gets a block, and the parts of it that it wants.
pub(super) struct DeviceWaiter {
    pub(super) completion: Arc<Completion<()>>,
    pub(super) slot: usize,
    pub(super) wants: Vec<Want>,
}

impl Waiter for DeviceWaiter {
    fn is_abandoned(&self) -> bool {
        self.completion.is_abandoned()
    }
}

/// Batches of so many blocks, or of so many bytes of contents, are not divided further among workers, since each costs time
/// of its own.
const MIN_BATCH: u64 = 64;
const MIN_BATCH_BYTES: u64 = 16 << 20;

/// The batches of an archive that are begun without a wait for more blocks.
const FREE_BATCHES: u32 = 3;

/// So many blocks are queued before workers are told of them.
const QUEUED_AT_ONCE: usize = 256;

/// Decoders are made for blocks of at least this many bytes of contents.
const MIN_BLOCK_LEN: u64 = 1 << 16;

impl DeviceQueue {
    pub(super) fn new(core: &Arc<Core>, layout: &Layout) -> Self {
        // Archives of about the same size share decoders.
        let block_len = layout.max_block_size().next_power_of_two().max(MIN_BLOCK_LEN) as u32;
        let is_of_pipelines = |of: &[Pipeline]| {
            layout.frames().iter().any(|frame| of.contains(&frame.header.pipeline))
        };
        let tasks = [
            (
                RangeTask::Decode(Pipeline::Lzf),
                is_of_pipelines(&[Pipeline::Bwt, Pipeline::Lzh, Pipeline::Lzf, Pipeline::Fse]),
            ),
            (RangeTask::Decode(Pipeline::Bwt), is_of_pipelines(&[Pipeline::Bwt])),
            (RangeTask::Move, is_of_pipelines(&[Pipeline::Store])),
            (RangeTask::Restore, layout.frames().iter().any(|frame| frame.header.reach > 0)),
        ];
        let tasks = tasks.into_iter().filter(|(_, is_needed)| *is_needed);
        let tasks: Vec<_> = tasks.map(|(task, _)| task).collect();
        let kind = match tasks.contains(&RangeTask::Restore) {
            true => BatchKind::Repeating,
            false => BatchKind::Plain,
        };
        let most = tasks.iter().map(|task| core.batch_of(*task, block_len, kind));
        // What the device does not decode is only moved there.
        let most = most.filter(|most| *most > 0).min();
        let most = most.unwrap_or_else(|| core.batch_of(RangeTask::Move, block_len, kind));
        let max_batch = (most as usize).max(1);
        let few = (MIN_BATCH_BYTES / u64::from(block_len.max(1))).clamp(1, MIN_BATCH);
        let min_batch = max_batch.min(few as usize);
        let (core, queue) = (Arc::clone(core), Mutex::default());
        Self { core, queue, block_len, kind, max_batch, min_batch, tasks }
    }

    pub(super) fn is_of(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Queue<DeviceWaiter>> {
        self.queue.lock()
    }

    pub(super) fn device_error(&self, error: DeviceError) -> ArchiveError {
        let device = self.core.device().limits().name.clone();
        ArchiveError::Device { device, error }
    }
}

/// The part of a block that goes to byte `start` of `buffer` and after, as its placement tells.
pub(super) fn wanted(placement: Placement, buffer: &Arc<OnDevice>, start: u64) -> Wanted {
    let (within, at) = (placement.within.clone(), start + placement.at as u64);
    (placement, Want { within, buffer: Arc::clone(buffer), at })
}

/// Brings together what is wanted of each block.
pub(super) fn of_blocks(mut wanted: Vec<Wanted>) -> Vec<(BlockId, Vec<Want>)> {
    wanted.sort_by_key(|(placement, _)| placement.block);
    let of_block = |placed: &[Wanted]| {
        let wants = placed.iter().map(|(_, want)| want.clone()).collect();
        Some((placed.first()?.0.block, wants))
    };
    wanted.chunk_by(|a, b| a.0.block == b.0.block).filter_map(of_block).collect()
}

/// Those who wait for blocks that `completion` gets, at the slots from 0 on.
pub(super) fn waiters(
    wanted: Vec<(BlockId, Vec<Want>)>,
    completion: &Arc<Completion<()>>,
) -> impl Iterator<Item = (BlockId, DeviceWaiter)> {
    wanted.into_iter().enumerate().map(|(slot, (block, wants))| {
        (block, DeviceWaiter { completion: Arc::clone(completion), slot, wants })
    })
}

/// An archive's blocks that are wanted in the memory of one device.
struct OfArchive {
    shared: Arc<Shared>,
    queue: Arc<DeviceQueue>,
}

impl Requests for OfArchive {
    fn key(&self) -> usize {
        Arc::as_ptr(&self.queue).addr()
    }

    fn is_empty(&self) -> bool {
        self.queue.lock().queued() == 0
    }

    fn take(&self, only_urgent: bool) -> Option<Taken> {
        let DeviceQueue { max_batch, min_batch, .. } = *self.queue;
        let mut queue = self.queue.lock();
        let queued = queue.queued();
        // A batch of one block takes about as long as one of a few. So while several are on the way, each further one has
        // twice as many blocks, up to as many as the device has use for. Whoever ends a batch looks again, so nothing waits
        // for ever. A server must not hold up what does not need it.
        let beyond_free = queue.batches().saturating_sub(FREE_BATCHES);
        let worth = 1usize.checked_shl(beyond_free).unwrap_or(usize::MAX);
        let at_once = self.queue.core.at_once(self.queue.kind);
        let can_wait = !queue.is_urgent() && self.shared.loader.source.is_local();
        let has_enough = queue.batches() as usize >= at_once;
        if can_wait && (has_enough || queued < worth.min(min_batch / 2)) {
            return None;
        }
        // All batches that are on their way at once bring what is queued, each about as much.
        let share = queued.div_ceil(at_once);
        let batches = queued.div_ceil(share.clamp(min_batch, max_batch));
        let max_batch = queued.div_ceil(batches.max(1));
        let batch = queue.take(&Limits { only_urgent, max_blocks: usize::MAX, max_batch })?;
        drop(queue);
        let (shared, queue) = (Arc::clone(&self.shared), Arc::clone(&self.queue));
        let is_urgent = batch.priority <= Priority::High;
        let run: Box<Run> = Box::new(move |lane| {
            let on_the_way = OnTheWay::begin(shared, queue, batch, lane);
            let land: Box<Land> = Box::new(move |lane| on_the_way.land(lane));
            Some(land)
        });
        Some(Taken { is_urgent, run })
    }
}

impl Shared {
    /// Asks for the blocks of `wanted`, which have the memory of `core` as their destination, each with its place.
    pub(super) fn request_on(
        self: &Arc<Self>,
        core: &Arc<Core>,
        wanted: Vec<Wanted>,
        options: &ReadOptions,
    ) -> Result<Claim<()>, ArchiveError> {
        let wanted = of_blocks(wanted);
        let claim = Claim(Arc::new(Completion::new(wanted.len())));
        self.queue_on(core, waiters(wanted, &claim.0), options.priority)?;
        Ok(claim)
    }

    /// Queues blocks for those who wait for them, and wakes workers.
    ///
    /// # Errors
    /// Fails if the device or its workers are gone. Some blocks may be queued, then.
    pub(super) fn queue_on(
        self: &Arc<Self>,
        core: &Arc<Core>,
        waiters: impl IntoIterator<Item = (BlockId, DeviceWaiter)>,
        priority: Priority,
    ) -> Result<(), ArchiveError> {
        let queue = self.device_queue(core);
        core.check().map_err(|error| queue.device_error(error))?;
        let mut waiters = waiters.into_iter();
        loop {
            let mut queued = queue.lock();
            let mut count = 0;
            for (block, waiter) in waiters.by_ref().take(QUEUED_AT_ONCE) {
                queued.want(block, priority, Some(waiter));
                count += 1;
            }
            drop(queued);
            if count == 0 {
                return Ok(());
            }
            let requests = OfArchive { shared: Arc::clone(self), queue: Arc::clone(&queue) };
            let notified = core.notify(Arc::new(requests), usize::div_ceil(count, queue.min_batch));
            notified.map_err(|error| queue.device_error(error))?;
        }
    }

    /// The bytes of contents of a whole batch on `core`, at most.
    pub(super) fn batch_bytes(&self, core: &Arc<Core>) -> u64 {
        let queue = self.device_queue(core);
        self.loader.layout.len().min(queue.max_batch as u64 * self.loader.layout.max_block_size())
    }

    /// Makes each worker of `core` decode batches of this archive's first blocks, up to a whole one, to byte `at` of
    /// `scratch`. So it has all that it needs.
    pub(super) fn prepare_on(
        self: &Arc<Self>,
        core: &Arc<Core>,
        scratch: &Arc<OnDevice>,
        at: u64,
    ) -> Result<(), ArchiveError> {
        let (shared, scratch, on) = (Arc::clone(self), Arc::clone(scratch), Arc::clone(core));
        let prepare = move |lane: &mut Lane<'_>| {
            // A queue of the worker's own, so that it gets these blocks.
            let queue = Arc::new(DeviceQueue::new(&on, &shared.loader.layout));
            lane.prepare(&queue.tasks, queue.block_len, queue.kind)?;
            // What is compiled depends on how many blocks there are in a batch.
            let mut count = 1;
            while shared.bring_first(&queue, count, lane, (&scratch, at))? {
                count = (2 * count).min(queue.max_batch);
            }
            Ok(())
        };
        let prepared = core.on_each_lane(move |lane| lane.prepared(&prepare));
        prepared.map_err(|error| self.device_queue(core).device_error(error))
    }

    /// Brings the first `count` blocks to byte `at` of a buffer. Returns whether there are more blocks, and a batch can have
    /// more.
    fn bring_first(
        self: &Arc<Self>,
        queue: &Arc<DeviceQueue>,
        count: usize,
        lane: &mut Lane<'_>,
        (buffer, at): (&Arc<OnDevice>, u64),
    ) -> Result<bool, DeviceError> {
        let claim = Claim(Arc::new(Completion::new(count)));
        let mut placements = self.loader.layout.placements(0..self.loader.layout.len(), 0);
        let mut queued = queue.lock();
        for (slot, Placement { block, within, at: from, .. }) in
            placements.by_ref().take(count).enumerate()
        {
            let want = Want { within, buffer: Arc::clone(buffer), at: at + from as u64 };
            let (completion, wants) = (Arc::clone(&claim.0), vec![want]);
            queued.want(block, Priority::High, Some(DeviceWaiter { completion, slot, wants }));
        }
        let limits =
            Limits { only_urgent: false, max_blocks: usize::MAX, max_batch: queue.max_batch };
        let batch = queued.take(&limits);
        drop(queued);
        if let Some(batch) = batch {
            // What is wrong with a block is said when it is read.
            OnTheWay::begin(Arc::clone(self), Arc::clone(queue), batch, lane).land(lane)?;
        }
        Ok(placements.next().is_some() && count < queue.max_batch)
    }

    fn device_queue(&self, core: &Arc<Core>) -> Arc<DeviceQueue> {
        let mut queues = self.devices.lock();
        if let Some(queue) = queues.iter().find(|queue| queue.is_of(core)) {
            return Arc::clone(queue);
        }
        let queue = Arc::new(DeviceQueue::new(core, &self.loader.layout));
        queues.push(Arc::clone(&queue));
        queue
    }
}
