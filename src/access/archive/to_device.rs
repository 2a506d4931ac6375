//! Brings blocks of an archive to the memory of a device.

use std::sync::Arc;

use super::completion::{Claim, Completion};
use super::device_queue::{DeviceQueue, DeviceWaiter, of_blocks, waiters};
use super::error::ArchiveError;
use super::on_the_way::OnTheWay;
use super::options::{Priority, ReadOptions};
use super::queue::Limits;
use super::shared::Shared;
use crate::access::device::{Land, Lane, OnDevice, Requests, Run, Taken, Want, Workers};
use crate::gpu::device::DeviceError;
use crate::stream::block::{BlockId, Placement};

/// The batches of an archive that are begun without a wait for more blocks.
const FREE_BATCHES: u32 = 3;

/// So many blocks are queued before workers are told of them.
const QUEUED_AT_ONCE: usize = 256;

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
        // A batch of one block takes about as long as one of a few. So while several are on the way, each further one
        // has twice as many blocks, up to as many as the device has use for. Whoever ends a batch looks again, so
        // nothing waits for ever. A server must not hold up what does not need it.
        let beyond_free = queue.batches().saturating_sub(FREE_BATCHES);
        let worth = 1usize.checked_shl(beyond_free).unwrap_or(usize::MAX);
        let at_once = self.queue.at_once();
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
    /// Asks for the blocks of `wanted`, which have the memory of `workers` as their destination, each with its place.
    pub(super) fn request_on(
        self: &Arc<Self>,
        workers: &Arc<Workers>,
        wanted: Vec<(BlockId, Want)>,
        options: &ReadOptions,
    ) -> Result<Claim<()>, ArchiveError> {
        let wanted = of_blocks(wanted);
        let claim = Claim(Arc::new(Completion::new(wanted.len())));
        self.queue_on(workers, waiters(wanted, &claim.0), options.priority)?;
        Ok(claim)
    }

    /// Queues blocks for those who wait for them, and wakes workers.
    ///
    /// # Errors
    /// Fails if the device or its workers are gone. Some blocks may be queued, then.
    pub(super) fn queue_on(
        self: &Arc<Self>,
        workers: &Arc<Workers>,
        waiters: impl IntoIterator<Item = (BlockId, DeviceWaiter)>,
        priority: Priority,
    ) -> Result<(), ArchiveError> {
        let queue = self.device_queue(workers);
        workers.core().check().map_err(|error| queue.device_error(error))?;
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
            let notified =
                workers.notify(Arc::new(requests), usize::div_ceil(count, queue.min_batch));
            notified.map_err(|error| queue.device_error(error))?;
        }
    }

    /// The bytes of contents of a whole batch of `workers`, at most.
    pub(super) fn batch_bytes(&self, workers: &Arc<Workers>) -> u64 {
        let queue = self.device_queue(workers);
        self.loader.layout.len().min(queue.max_batch as u64 * self.loader.layout.max_block_size())
    }

    /// Makes each of `workers` decode batches of this archive's first blocks, up to a whole one, to byte `at` of
    /// `scratch`. So it has all that it needs.
    pub(super) fn prepare_on(
        self: &Arc<Self>,
        workers: &Arc<Workers>,
        scratch: &Arc<OnDevice>,
        at: u64,
    ) -> Result<(), ArchiveError> {
        let (shared, scratch, on) = (Arc::clone(self), Arc::clone(scratch), Arc::clone(workers));
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
        let prepared = workers.on_each_lane(move |lane| lane.prepared(&prepare));
        prepared.map_err(|error| self.device_queue(workers).device_error(error))
    }

    /// Brings the first `count` blocks to byte `at` of a buffer. Returns whether there are more blocks, and a batch can
    /// have more.
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

    fn device_queue(&self, workers: &Arc<Workers>) -> Arc<DeviceQueue> {
        let mut queues = self.devices.lock();
        if let Some(queue) = queues.iter().find(|queue| queue.is_of(workers)) {
            return Arc::clone(queue);
        }
        let queue = Arc::new(DeviceQueue::new(workers, &self.loader.layout));
        queues.push(Arc::clone(&queue));
        queue
    }
}
