//! A batch of blocks on its way to a device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::error::ArchiveError;
use super::load::{Located, Payload, open_block};
use super::queue::Batch;
use super::to_device::{DeviceQueue, DeviceWaiter};
use crate::access::device::{Flight, Lane, LaneBlock, Outcome, Want};
use crate::access::{Part, SourceError};
use crate::format::{BlockHeader, Fault, MAX_BLOCK_HEADER_LEN};
use crate::gpu::device::DeviceError;
use crate::pipeline::buffer::zeroed;

/// The blocks of a batch, of which each is delivered in the end, whatever happens.
struct InHand {
    queue: Arc<DeviceQueue>,
    batch: Batch,
    /// For each block, those who wait for it; `None` until they are known, and after the delivery.
    waiters: Vec<Option<Vec<DeviceWaiter>>>,
    is_delivered: Vec<bool>,
    /// What those get to whom nothing was delivered.
    otherwise: ArchiveError,
}

impl InHand {
    fn new(queue: Arc<DeviceQueue>, batch: Batch, otherwise: ArchiveError) -> Self {
        let count = batch.blocks.len();
        let waiters = std::iter::repeat_with(|| None).take(count).collect();
        Self { queue, batch, waiters, is_delivered: vec![false; count], otherwise }
    }

    /// Finds those who wait for block `number` of the batch, unless they are known, and what they want of it. From now on the
    /// block may be written to their memory.
    fn claim(&mut self, number: usize) -> Vec<Want> {
        let waiters = self.waiters[number].get_or_insert_with(|| {
            let mut waiters = self.queue.lock().finish(self.batch.blocks[number]);
            waiters.retain(|waiter| waiter.recipient.begin_writing());
            waiters
        });
        waiters.iter().flat_map(|waiter| &waiter.wants).cloned().collect()
    }

    /// Tells those who wait for block `number` what became of it.
    fn deliver(&mut self, number: usize, outcome: &Result<(), ArchiveError>) {
        if std::mem::replace(&mut self.is_delivered[number], true) {
            return;
        }
        let (waiters, are_written) = match self.waiters[number].take() {
            Some(waiters) => (waiters, true),
            None => (self.queue.lock().finish(self.batch.blocks[number]), false),
        };
        // Whoever waits may call back, so the queue is not locked now.
        for DeviceWaiter { recipient, slot, .. } in waiters {
            if are_written {
                recipient.end_writing();
            }
            recipient.deliver(slot, outcome.clone());
        }
    }
}

impl Drop for InHand {
    fn drop(&mut self) {
        for number in 0..self.batch.blocks.len() {
            self.deliver(number, &Err(self.otherwise.clone()));
        }
        self.queue.lock().end(&self.batch);
    }
}

/// A block of a batch on its way.
struct Staged {
    /// Its number in the batch.
    number: usize,
    block: Located,
    bytes: Bytes,
}

/// The bytes of a block.
enum Bytes {
    /// All of them, and whether they came from the source.
    InMemory(Payload, bool),
    /// They are read when they are uploaded. These are the first ones.
    InFile(Vec<u8>),
}

impl Shared {
    /// Finds the blocks of a batch, in the order of the file. Reads all of them from a server, where each read takes long. Of
    /// a local file it reads what comes first, and the lane reads the payloads, to the memory that they are uploaded from.
    fn stage(&self, in_hand: &mut InHand) -> Vec<Staged> {
        let mut found = Vec::new();
        for number in 0..in_hand.batch.blocks.len() {
            let located = self.loader.locate(&self.layout, in_hand.batch.blocks[number]);
            let staged = located.map_err(|error| ArchiveError::format(self.source.uri(), error));
            let staged = staged.and_then(|block| {
                let bytes = self.begin(&block)?;
                Ok(Staged { number, block, bytes })
            });
            match staged {
                Ok(staged) => found.push(staged),
                Err(error) => in_hand.deliver(number, &Err(error)),
            }
        }
        found.sort_by_key(|staged| staged.block.place.offset);
        let mut parts: Vec<_> = found
            .iter_mut()
            .filter_map(|staged| match &mut staged.bytes {
                Bytes::InMemory(bytes, true) => {
                    let offset = staged.block.place.offset;
                    Some(Part { offset, buffer: Arc::get_mut(bytes)? })
                }
                _ => None,
            })
            .collect();
        if parts.is_empty() {
            return found;
        }
        if let Err(error) = self.source.read_ranges(&mut parts) {
            let error = ArchiveError::from(error);
            found.retain(|staged| {
                let is_read = !matches!(staged.bytes, Bytes::InMemory(_, true));
                if !is_read {
                    in_hand.deliver(staged.number, &Err(error.clone()));
                }
                is_read
            });
        }
        found
    }

    /// The bytes of a block that are there, or memory for them.
    fn begin(&self, block: &Located) -> Result<Bytes, ArchiveError> {
        if let Some(kept) = self.loader.kept(block) {
            return Ok(Bytes::InMemory(kept, false));
        }
        if self.source.is_local() && !block.is_single() {
            let mut head = vec![0; block.len.min(MAX_BLOCK_HEADER_LEN)];
            let offset = block.place.offset;
            self.source.read_ranges(&mut [Part { offset, buffer: &mut head }])?;
            return Ok(Bytes::InFile(head));
        }
        let bytes = zeroed(block.len).map_err(|fault| self.fault(block, fault))?;
        Ok(Bytes::InMemory(Arc::new(bytes), true))
    }

    fn fault(&self, block: &Located, fault: Fault) -> ArchiveError {
        ArchiveError::format(self.source.uri(), fault.at(block.place))
    }

    /// Checks the headers of the blocks, and delivers the errors of those that are damaged.
    fn open(&self, in_hand: &mut InHand, staged: Vec<Staged>) -> Vec<(Staged, BlockHeader)> {
        let mut opened = Vec::with_capacity(staged.len());
        for staged in staged {
            let frame = &self.layout.frames()[staged.block.id.frame];
            let header = open_block(frame, &staged.block, staged.bytes.first());
            match header.map(|(header, _)| header) {
                Ok(header) => opened.push((staged, header)),
                Err(fault) => {
                    let error = self.fault(&staged.block, fault);
                    in_hand.deliver(staged.number, &Err(error));
                }
            }
        }
        opened
    }

    /// Reads the payload of a block from byte `at` on, as much as there is memory.
    fn read_payload(
        &self,
        staged: &Staged,
        header: &BlockHeader,
        at: usize,
        into: &mut [u8],
    ) -> Result<(), SourceError> {
        let start = staged.block.header_len(header) + at;
        match &staged.bytes {
            Bytes::InMemory(bytes, _) => {
                match bytes.get(start..start + into.len()) {
                    Some(payload) => into.copy_from_slice(payload),
                    // What is shorter is damaged.
                    None => into.fill(0),
                }
                Ok(())
            }
            Bytes::InFile(_) => {
                let offset = staged.block.place.offset + start as u64;
                self.source.read_ranges(&mut [Part { offset, buffer: into }])
            }
        }
    }

    /// Decodes a block that the device does not decode, and uploads what is wanted of it.
    fn decode_on_cpu(
        &self,
        staged: &Staged,
        header: &BlockHeader,
        in_hand: &mut InHand,
        lane: &mut Lane<'_>,
    ) -> Result<(), ArchiveError> {
        let payload = zeroed(header.payload_len as usize);
        let mut payload = payload.map_err(|fault| self.fault(&staged.block, fault))?;
        self.read_payload(staged, header, 0, &mut payload)?;
        let loader = &self.loader;
        let contents = loader.decode_padded(&self.layout, &staged.block, *header, &payload)?;
        let wants = in_hand.claim(staged.number);
        let put = lane.put(in_hand.queue.block_len, &contents, &wants);
        put.map_err(|error| in_hand.queue.device_error(error))
    }
}

/// A batch that a lane has begun.
pub(super) struct OnTheWay {
    shared: Arc<Shared>,
    in_hand: InHand,
    opened: Vec<(Staged, BlockHeader)>,
    flight: Result<Flight, DeviceError>,
}

impl OnTheWay {
    /// Reads the blocks of a batch, and begins to decode them.
    pub(super) fn begin(
        shared: Arc<Shared>,
        queue: Arc<DeviceQueue>,
        batch: Batch,
        lane: &mut Lane<'_>,
    ) -> Self {
        let panicked = shared.internal("bringing a block to a device panicked");
        let block_len = queue.block_len;
        let mut in_hand = InHand::new(queue, batch, panicked);
        let staged = shared.stage(&mut in_hand);
        let opened = shared.open(&mut in_hand, staged);
        let blocks: Vec<_> = opened
            .iter()
            .map(|(staged, header)| LaneBlock {
                header: *header,
                modules: shared.loader.modules(staged.block.id.frame),
                read: Box::new(|at, into| shared.read_payload(staged, header, at, into)),
            })
            .collect();
        let claim = &mut |at: usize| in_hand.claim(opened[at].0.number);
        let flight = lane.begin(block_len, &blocks, claim);
        drop(blocks);
        Self { shared, in_hand, opened, flight }
    }

    /// Waits for the blocks, and tells those who wait for them.
    pub(super) fn land(self, lane: &mut Lane<'_>) -> Result<(), DeviceError> {
        let Self { shared, mut in_hand, opened, flight } = self;
        let queue = Arc::clone(&in_hand.queue);
        let outcomes = flight.and_then(|flight| lane.finish(flight));
        let (outcomes, mut result) = match outcomes {
            Ok(outcomes) => (outcomes, Ok(())),
            Err(error) => (opened.iter().map(|_| Outcome::Left).collect(), Err(error)),
        };
        for ((staged, header), outcome) in opened.into_iter().zip(outcomes) {
            let is_done = matches!(outcome, Outcome::Done);
            let outcome = match (&result, outcome) {
                (Ok(()), Outcome::Done) => Ok(()),
                (Ok(()), Outcome::Left) => {
                    shared.decode_on_cpu(&staged, &header, &mut in_hand, lane)
                }
                (Ok(()), Outcome::Unread(error)) => Err(error.into()),
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
                if let Bytes::InMemory(bytes, true) = staged.bytes
                    && !shared.source.is_local()
                {
                    shared.loader.keep(staged.block.id, bytes);
                }
            }
            in_hand.deliver(staged.number, &outcome);
        }
        if let Err(error) = &result {
            in_hand.otherwise = queue.device_error(error.clone());
        }
        result
    }
}

impl Bytes {
    /// Those that are there: at least the header.
    fn first(&self) -> &[u8] {
        match self {
            Self::InMemory(bytes, _) => bytes,
            Self::InFile(head) => head,
        }
    }
}
