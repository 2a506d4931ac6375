//! Reads blocks of an archive into the memory of a device, for callers that wait and for callers that are called back.

use std::sync::Arc;

use super::completion::{Claim, Completion};
use super::destination::RangeRead;
use super::device_batch::DeviceBatch;
use super::device_queue::{DeviceQueue, DeviceWaiter};
use super::error::ArchiveError;
use super::options::Priority;
use super::queue::QueueLimits;
use super::reader::Archive;
use super::shared::ArchiveShared;
use crate::access::device::{
    BeginBatch, BufferHandle, BufferPlace, CompleteBatch, DecoderSlot, DeviceMemory, Requests,
    TakenBatch, Workers,
};
use crate::gpu::device::DeviceError;

/// Up to this many batches of an archive, workers begin one without waiting for more blocks.
const FREE_BATCHES: u32 = 3;

/// Workers are notified after at most this many blocks have been queued.
const QUEUED_AT_ONCE: usize = 256;

impl Archive {
    /// Starts reads into buffers of `memory`, and returns at once. When a read has ended and nothing writes to its
    /// buffer any more, some thread calls the function paired with it, with the first error if there was one. The
    /// caller must keep the buffer until then.
    pub(crate) fn read_in_background<F>(
        &self,
        memory: &DeviceMemory,
        reads: Vec<(RangeRead<'_>, F)>,
    ) where
        F: FnOnce(Result<(), ArchiveError>) + Send + 'static,
    {
        let found = self.shared().and_then(|shared| {
            let other = || shared.internal("a background read into host memory");
            Ok((shared, memory.workers().ok_or_else(other)?))
        });
        let (shared, workers) = match found {
            Ok(found) => found,
            Err(error) => return reads.into_iter().for_each(|(_, done)| done(Err(error.clone()))),
        };
        let (mut waiters, mut completions) = (Vec::new(), Vec::with_capacity(reads.len()));
        for (read, done) in reads {
            let (buffer, start) = match shared.check_background(workers, &read) {
                Ok(_) if read.range.is_empty() => {
                    done(Ok(()));
                    continue;
                }
                Ok(place) => place,
                Err(error) => {
                    done(Err(error));
                    continue;
                }
            };
            let completion = Completion::new(Some(Box::new(done)));
            let placements = shared.loader.layout.placements(read.range.clone(), 0);
            waiters
                .extend(placements.map(|one| DeviceWaiter::new(one, buffer, start, &completion)));
            completions.push(completion);
        }
        if let Err(error) = shared.queue_on(workers, waiters, Priority::Normal) {
            for completion in completions {
                completion.fail(error.clone());
            }
        }
    }

    /// Prepares the workers of `memory` for reads of this archive. Later reads then compile and allocate nothing, which
    /// could block while a kernel runs on the device. Each worker decodes batches of the first blocks: of one block, of
    /// two, and so on up to a full batch.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub(crate) fn prepare_on(&self, memory: &DeviceMemory) -> Result<(), ArchiveError> {
        let Some(workers) = memory.workers() else { return Ok(()) };
        let shared = Arc::clone(self.shared()?);
        let queue = shared.device_queue(workers);
        let layout = &shared.loader.layout;
        let bytes = layout.len().min(queue.max_batch as u64 * layout.max_block_size());
        let scratch = memory.allocate(bytes).map_err(|error| queue.device_error(error))?;
        let BufferPlace::Device { buffer, .. } = &scratch.place else { return Ok(()) };
        let (buffer, on) = (Arc::clone(buffer), Arc::clone(workers));
        let prepare = move |slot: &mut DecoderSlot<'_>| {
            // A queue that only this worker takes blocks from.
            let queue = Arc::new(DeviceQueue::new(&on, &shared.loader.layout));
            slot.prepare(&queue.tasks, queue.block_len, queue.kind)?;
            // Batches with other numbers of blocks compile other kernels.
            let mut count = 1;
            while shared.bring_first(&queue, count, slot, &buffer)? {
                count = (2 * count).min(queue.max_batch);
            }
            Ok(())
        };
        let prepared = workers.on_each_slot(move |slot| slot.prepared(&prepare));
        prepared.map_err(|error| queue.device_error(error))
    }
}

/// The queued blocks of one archive for one device.
struct ArchiveRequests {
    shared: Arc<ArchiveShared>,
    queue: Arc<DeviceQueue>,
}

impl Requests for ArchiveRequests {
    fn key(&self) -> usize {
        Arc::as_ptr(&self.queue).addr()
    }

    fn is_empty(&self) -> bool {
        self.queue.lock().queued() == 0
    }

    fn take(&self, only_urgent: bool) -> Option<TakenBatch> {
        let DeviceQueue { max_batch, min_batch, .. } = *self.queue;
        let mut queue = self.queue.lock();
        let queued = queue.queued();
        // A batch of one block takes about as long as one of a few. Beyond the free batches, a worker therefore begins
        // the next batch only when twice as many blocks are queued as for the one before. A worker that completes a
        // batch looks at the queue again, so no block waits for ever. Reads from servers never wait: they would hold up
        // blocks that are already there.
        let beyond_free = queue.batches().saturating_sub(FREE_BATCHES);
        let worth = 1usize.checked_shl(beyond_free).unwrap_or(usize::MAX);
        let at_once = self.queue.workers.core.at_once(self.queue.kind);
        let can_wait = !queue.is_urgent() && self.shared.loader.source.is_local();
        let has_enough = queue.batches() as usize >= at_once;
        if can_wait && (has_enough || queued < worth.min(min_batch / 2)) {
            return None;
        }
        // Divides the queued blocks evenly among the batches that run at once.
        let share = queued.div_ceil(at_once);
        let batches = queued.div_ceil(share.clamp(min_batch, max_batch));
        let max_batch = queued.div_ceil(batches.max(1));
        let batch = queue.take(&QueueLimits { only_urgent, max_blocks: usize::MAX, max_batch })?;
        drop(queue);
        let (shared, queue) = (Arc::clone(&self.shared), Arc::clone(&self.queue));
        let is_urgent = batch.priority <= Priority::High;
        let run: Box<BeginBatch> = Box::new(move |slot| {
            let device_batch = DeviceBatch::begin(shared, queue, batch, slot);
            let complete: Box<CompleteBatch> = Box::new(move |slot| device_batch.complete(slot));
            Some(complete)
        });
        Some(TakenBatch { is_urgent, run })
    }
}

impl ArchiveShared {
    /// Checks a background read. Returns its buffer, and the offset of its destination there.
    fn check_background<'r>(
        &self,
        workers: &Arc<Workers>,
        read: &'r RangeRead<'_>,
    ) -> Result<(&'r Arc<BufferHandle>, u64), ArchiveError> {
        self.check_read(read)?;
        match read.destination.on_device() {
            Some((own, buffer, start)) if Arc::ptr_eq(own, workers) => Ok((buffer, start)),
            _ => Err(self.internal("a background read into other memory")),
        }
    }

    /// Queues the blocks of `waiters`, and wakes workers.
    ///
    /// # Errors
    /// Fails if the device or its workers are gone. Some blocks may be queued by then.
    pub(super) fn queue_on(
        self: &Arc<Self>,
        workers: &Arc<Workers>,
        waiters: impl IntoIterator<Item = DeviceWaiter>,
        priority: Priority,
    ) -> Result<(), ArchiveError> {
        let queue = self.device_queue(workers);
        workers.core.check().map_err(|error| queue.device_error(error))?;
        let mut waiters = waiters.into_iter();
        loop {
            let mut queued = queue.lock();
            let mut count = 0;
            for waiter in waiters.by_ref().take(QUEUED_AT_ONCE) {
                queued.want(waiter.block, priority, Some(waiter));
                count += 1;
            }
            drop(queued);
            if count == 0 {
                return Ok(());
            }
            let requests = ArchiveRequests { shared: Arc::clone(self), queue: Arc::clone(&queue) };
            let notified =
                workers.notify(Arc::new(requests), usize::div_ceil(count, queue.min_batch));
            notified.map_err(|error| queue.device_error(error))?;
        }
    }

    /// Decodes the first `count` blocks to the beginning of `buffer`. Returns whether the archive has more blocks and
    /// a batch may have more.
    fn bring_first(
        self: &Arc<Self>,
        queue: &Arc<DeviceQueue>,
        count: usize,
        slot: &mut DecoderSlot<'_>,
        buffer: &Arc<BufferHandle>,
    ) -> Result<bool, DeviceError> {
        let claim = Claim(Completion::new(None));
        let mut placements = self.loader.layout.placements(0..self.loader.layout.len(), 0);
        let mut queued = queue.lock();
        for placement in placements.by_ref().take(count) {
            let waiter = DeviceWaiter::new(placement, buffer, 0, &claim.0);
            queued.want(waiter.block, Priority::High, Some(waiter));
        }
        let limits =
            QueueLimits { only_urgent: false, max_blocks: usize::MAX, max_batch: queue.max_batch };
        let batch = queued.take(&limits);
        drop(queued);
        if let Some(batch) = batch {
            // Reads report damaged blocks.
            DeviceBatch::begin(Arc::clone(self), Arc::clone(queue), batch, slot).complete(slot)?;
        }
        Ok(placements.next().is_some() && count < queue.max_batch)
    }

    fn device_queue(&self, workers: &Arc<Workers>) -> Arc<DeviceQueue> {
        let mut queues = self.devices.lock();
        if let Some(queue) = queues.iter().find(|queue| Arc::ptr_eq(&queue.workers, workers)) {
            return Arc::clone(queue);
        }
        let queue = Arc::new(DeviceQueue::new(workers, &self.loader.layout));
        queues.push(Arc::clone(&queue));
        queue
    }
}
