//! A batch of blocks that a device decodes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::device_queue::{DeviceQueue, DeviceWaiter};
use super::error::ArchiveError;
use super::load::InHand;
use super::queue::BlockBatch;
use super::shared::ArchiveShared;
use crate::access::device::{BlockOutcome, DecoderSlot, SubmittedBatch};
use crate::gpu::coder::{MovedPart, Origin};
use crate::gpu::device::DeviceError;

/// Delivers each block of a batch to its waiters exactly once, whatever happens.
struct Deliveries {
    queue: Arc<DeviceQueue>,
    batch: BlockBatch,
    /// The waiters of each block; `None` before they leave the queue, and after the delivery.
    waiters: Vec<Option<Vec<DeviceWaiter>>>,
    is_delivered: Vec<bool>,
    /// The error for blocks that are not delivered otherwise.
    otherwise: ArchiveError,
}

impl Deliveries {
    fn new(queue: Arc<DeviceQueue>, batch: BlockBatch, otherwise: ArchiveError) -> Self {
        let count = batch.blocks.len();
        let waiters = std::iter::repeat_with(|| None).take(count).collect();
        Self { queue, batch, waiters, is_delivered: vec![false; count], otherwise }
    }

    /// Returns the parts of block `number` of the batch that its waiters want. The first call takes the waiters from
    /// the queue. From then on, the device may write to their buffers.
    fn parts(&mut self, number: usize, origin: &dyn Fn(u32) -> Origin) -> Vec<MovedPart> {
        let waiters = self.waiters[number].get_or_insert_with(|| {
            let mut waiters = self.queue.lock().finish(self.batch.blocks[number]);
            waiters.retain(|waiter| waiter.completion.begin_writing());
            waiters
        });
        waiters.iter().map(|waiter| waiter.part(origin)).collect()
    }

    /// Tells the waiters of block `number` how its load ended.
    fn deliver(&mut self, number: usize, outcome: &Result<(), ArchiveError>) {
        if std::mem::replace(&mut self.is_delivered[number], true) {
            return;
        }
        let (waiters, are_written) = match self.waiters[number].take() {
            Some(waiters) => (waiters, true),
            None => (self.queue.lock().finish(self.batch.blocks[number]), false),
        };
        // A completion may call back, so the queue is not locked here.
        for DeviceWaiter { completion, slot, .. } in waiters {
            if are_written {
                completion.end_writing();
            }
            completion.deliver(slot, outcome.clone());
        }
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        for number in 0..self.batch.blocks.len() {
            self.deliver(number, &Err(self.otherwise.clone()));
        }
        self.queue.lock().end(&self.batch);
    }
}

/// A batch that a decoder slot has begun.
pub(super) struct DeviceBatch {
    shared: Arc<ArchiveShared>,
    deliveries: Deliveries,
    /// The blocks in the order of the slot's outcomes, with their numbers in the batch.
    wanted: Vec<(usize, InHand)>,
    /// Blocks outside the batch that these copy from.
    others: Vec<InHand>,
    submitted: Result<SubmittedBatch, DeviceError>,
}

impl DeviceBatch {
    /// Reads the blocks of a batch, and begins to decode them. From a local file, the slot later reads each payload
    /// straight into upload memory. From a server, where each read takes long, one call reads all blocks.
    pub(super) fn begin(
        shared: Arc<ArchiveShared>,
        queue: Arc<DeviceQueue>,
        mut batch: BlockBatch,
        slot: &mut DecoderSlot<'_>,
    ) -> Self {
        let panicked = shared.internal("bringing a block to a device panicked");
        let of_archive = (queue.block_len, queue.kind);
        // Sorts the blocks into the order of the file.
        batch.blocks.sort_unstable();
        let mut deliveries = Deliveries::new(queue, batch, panicked);
        let fetched = shared.loader.fetch(&deliveries.batch.blocks, true);
        let (mut numbers, mut opened) = (Vec::new(), Vec::new());
        for (number, fetched) in fetched.into_iter().enumerate() {
            match fetched {
                Ok(in_hand) => {
                    numbers.push(number);
                    opened.push(in_hand);
                }
                Err(error) => deliveries.deliver(number, &Err(error)),
            }
        }
        let repeating = shared.repeating(&opened);
        let others = shared.open_repeated(&opened, &repeating);
        let (todo, order) = shared.plan(of_archive, &opened, &others, &repeating);
        let parts_of = &mut |number: usize, origin: &dyn Fn(u32) -> Origin| {
            deliveries.parts(numbers[order[number]], origin)
        };
        let submitted = slot.begin(&todo, parts_of);
        drop(todo);
        let mut opened: Vec<_> = numbers.into_iter().zip(opened).map(Some).collect();
        let wanted = order.into_iter().filter_map(|number| opened[number].take()).collect();
        Self { shared, deliveries, wanted, others, submitted }
    }

    /// Waits for the device, and delivers each block to its waiters.
    pub(super) fn complete(self, slot: &mut DecoderSlot<'_>) -> Result<(), DeviceError> {
        let Self { shared, mut deliveries, wanted, others, submitted } = self;
        let queue = Arc::clone(&deliveries.queue);
        let outcomes = submitted.and_then(|submitted| slot.finish(submitted));
        let (outcomes, mut result) = match outcomes {
            Ok(outcomes) => (outcomes, Ok(())),
            Err(error) => (wanted.iter().map(|_| BlockOutcome::Left).collect(), Err(error)),
        };
        if outcomes.iter().all(|outcome| matches!(outcome, BlockOutcome::Done)) {
            others.into_iter().for_each(|other| shared.keep(other));
        }
        for ((number, in_hand), outcome) in wanted.into_iter().zip(outcomes) {
            let is_done = matches!(outcome, BlockOutcome::Done);
            let outcome = match (&result, outcome) {
                (Ok(()), BlockOutcome::Done) => Ok(()),
                (Ok(()), BlockOutcome::Left) => {
                    let parts = || deliveries.parts(number, &Origin::Raw);
                    shared.decode_on_cpu(&in_hand, &queue, slot, parts)
                }
                (Ok(()), BlockOutcome::Unread(error)) => Err(error.into()),
                (Err(error), _) => Err(queue.device_error(error.clone())),
            };
            if let Err(ArchiveError::Device { error, .. }) = &outcome
                && result.is_ok()
                && !matches!(error, DeviceError::OutOfMemory { .. } | DeviceError::Unsupported(_))
            {
                result = Err(error.clone());
            }
            if outcome.is_ok() {
                let count = if is_done { &shared.by_device } else { &shared.by_cpu };
                count.fetch_add(1, Ordering::Relaxed);
                shared.keep(in_hand);
            }
            deliveries.deliver(number, &outcome);
        }
        if let Err(error) = &result {
            deliveries.otherwise = queue.device_error(error.clone());
        }
        result
    }
}

impl ArchiveShared {
    /// Puts the bytes of a block in the cache if they came from a server.
    fn keep(&self, in_hand: InHand) {
        if !self.loader.source.is_local() {
            self.loader.keep(in_hand);
        }
    }

    /// Decodes a block that the device left, and uploads the parts that are wanted.
    fn decode_on_cpu(
        &self,
        in_hand: &InHand,
        queue: &DeviceQueue,
        slot: &mut DecoderSlot<'_>,
        parts: impl FnOnce() -> Vec<MovedPart>,
    ) -> Result<(), ArchiveError> {
        let contents = self.loader.decode_padded(in_hand);
        let contents = contents.map_err(|error| self.loader.error(error))?;
        let put = slot.put((queue.block_len, queue.kind), &contents, &mut parts());
        put.map_err(|error| queue.device_error(error))
    }
}
