//! A batch of blocks on its way to a device.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Shared;
use super::error::ArchiveError;
use super::layout::BlockId;
use super::load::{Located, Payload, open_block};
use super::queue::Batch;
use super::to_device::{DeviceQueue, DeviceWaiter};
use crate::access::device::{Flight, Lane, Outcome, Want};
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
            waiters.retain(|waiter| waiter.completion.begin_writing());
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
        for DeviceWaiter { completion, slot, .. } in waiters {
            if are_written {
                completion.end_writing();
            }
            completion.deliver(slot, outcome.clone());
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

/// A block on its way.
pub(super) struct Staged {
    /// Its number in the batch; of no meaning for a block that others repeat.
    number: usize,
    pub(super) block: Located,
    bytes: Bytes,
}

/// One whose header has been checked.
pub(super) struct Opened {
    pub(super) staged: Staged,
    pub(super) header: BlockHeader,
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
        self.read_missing(&mut found, |staged, error| {
            in_hand.deliver(staged.number, &Err(error.clone().into()));
        });
        found
    }

    /// Reads what is missing of blocks. Those that cannot be read are dropped, and `dropped` is told of each.
    fn read_missing(
        &self,
        found: &mut Vec<Staged>,
        mut dropped: impl FnMut(&Staged, &SourceError),
    ) {
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
            return;
        }
        if let Err(error) = self.source.read_ranges(&mut parts) {
            found.retain(|staged| {
                let is_read = !matches!(staged.bytes, Bytes::InMemory(_, true));
                if !is_read {
                    dropped(staged, &error);
                }
                is_read
            });
        }
    }

    /// Reads blocks that the batch's blocks repeat, which are in the order of the file, as [`stage`](Self::stage) does. Leaves
    /// out what cannot be read, or is damaged.
    pub(super) fn open_others(&self, blocks: Vec<BlockId>) -> Vec<Opened> {
        let stage = |id: BlockId| {
            let block = self.loader.locate(&self.layout, id).ok()?;
            let bytes = self.begin(&block).ok()?;
            Some(Staged { number: 0, block, bytes })
        };
        let mut found = blocks.into_iter().filter_map(stage).collect();
        self.read_missing(&mut found, |_, _| ());
        found.into_iter().filter_map(|staged| self.open_one(staged).ok()).collect()
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
    fn open(&self, in_hand: &mut InHand, staged: Vec<Staged>) -> Vec<Opened> {
        let mut opened = Vec::with_capacity(staged.len());
        for staged in staged {
            match self.open_one(staged) {
                Ok(one) => opened.push(one),
                Err((number, error)) => in_hand.deliver(number, &Err(error)),
            }
        }
        opened
    }

    /// Checks the header of a block. If it is damaged, the error comes with the block's number.
    fn open_one(&self, staged: Staged) -> Result<Opened, (usize, ArchiveError)> {
        let frame = &self.layout.frames()[staged.block.id.frame];
        match open_block(frame, &staged.block, staged.bytes.first()) {
            Ok((header, _)) => Ok(Opened { staged, header }),
            Err(fault) => Err((staged.number, self.fault(&staged.block, fault))),
        }
    }

    /// Reads the payload of a block from byte `at` on, as much as there is memory.
    pub(super) fn read_payload(
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

    /// Keeps the bytes of a block in the cache, if they came from a server.
    fn keep(&self, staged: Staged) {
        if let Bytes::InMemory(bytes, true) = staged.bytes
            && !self.source.is_local()
        {
            self.loader.keep(staged.block.id, bytes);
        }
    }

    /// Decodes a block that the device does not decode, and uploads what is wanted of it.
    fn decode_on_cpu(
        &self,
        Opened { staged, header }: &Opened,
        in_hand: &mut InHand,
        lane: &mut Lane<'_>,
    ) -> Result<(), ArchiveError> {
        let payload = zeroed(header.payload_len as usize);
        let mut payload = payload.map_err(|fault| self.fault(&staged.block, fault))?;
        self.read_payload(staged, header, 0, &mut payload)?;
        let loader = &self.loader;
        let contents = loader.decode_padded(&self.layout, &staged.block, *header, &payload)?;
        let wants = in_hand.claim(staged.number);
        let put = lane.put((in_hand.queue.block_len, in_hand.queue.kind), &contents, &wants);
        put.map_err(|error| in_hand.queue.device_error(error))
    }
}

/// A batch that a lane has begun.
pub(super) struct OnTheWay {
    shared: Arc<Shared>,
    in_hand: InHand,
    /// In the order of the flight's outcomes.
    opened: Vec<Opened>,
    /// The blocks that these repeat.
    others: Vec<Opened>,
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
        let of_archive = (queue.block_len, queue.kind);
        let mut in_hand = InHand::new(queue, batch, panicked);
        let staged = shared.stage(&mut in_hand);
        let opened = shared.open(&mut in_hand, staged);
        let repeating = shared.repeating(&opened);
        let others = shared.open_repeated(&opened, &repeating);
        let (todo, order) = shared.plan(of_archive, &opened, &others, &repeating);
        let claim = &mut |number: usize| in_hand.claim(opened[order[number]].staged.number);
        let flight = lane.begin(&todo, claim);
        drop(todo);
        let mut opened: Vec<_> = opened.into_iter().map(Some).collect();
        let opened = order.into_iter().filter_map(|number| opened[number].take()).collect();
        Self { shared, in_hand, opened, others, flight }
    }

    /// Waits for the blocks, and tells those who wait for them.
    pub(super) fn land(self, lane: &mut Lane<'_>) -> Result<(), DeviceError> {
        let Self { shared, mut in_hand, opened, others, flight } = self;
        let queue = Arc::clone(&in_hand.queue);
        let outcomes = flight.and_then(|flight| lane.finish(flight));
        let (outcomes, mut result) = match outcomes {
            Ok(outcomes) => (outcomes, Ok(())),
            Err(error) => (opened.iter().map(|_| Outcome::Left).collect(), Err(error)),
        };
        if outcomes.iter().all(|outcome| matches!(outcome, Outcome::Done)) {
            others.into_iter().for_each(|other| shared.keep(other.staged));
        }
        for (opened, outcome) in opened.into_iter().zip(outcomes) {
            let is_done = matches!(outcome, Outcome::Done);
            let outcome = match (&result, outcome) {
                (Ok(()), Outcome::Done) => Ok(()),
                (Ok(()), Outcome::Left) => shared.decode_on_cpu(&opened, &mut in_hand, lane),
                (Ok(()), Outcome::Unread(error)) => Err(error.into()),
                (Err(error), _) => Err(queue.device_error(error.clone())),
            };
            let number = opened.staged.number;
            if let Err(ArchiveError::Device { error, .. }) = &outcome
                && result.is_ok()
                && !matches!(error, DeviceError::OutOfMemory { .. } | DeviceError::Unsupported(_))
            {
                result = Err(error.clone());
            }
            if outcome.is_ok() {
                let count = if is_done { &shared.by_device } else { &shared.by_cpu };
                count.fetch_add(1, Ordering::Relaxed);
                shared.keep(opened.staged);
            }
            in_hand.deliver(number, &outcome);
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
