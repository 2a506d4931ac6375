//! Brings blocks to a device: what its workers do for an archive.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::ArchiveError;
use super::layout::{Layout, Placement};
use super::load::{Located, Payload, open_block};
use super::queue::{Batch, Limits, Queue, Waiter};
use super::ticket::{Claim, Priority, ReadOptions, Ticket};
use super::{Shared, Wanted};
use crate::access::device::{
    Core, Flight, Land, Lane, LaneBlock, OnDevice, Outcome, Requests, Run, Taken, Want,
};
use crate::access::{Part, SourceError};
use crate::format::{BlockHeader, Fault, MAX_BLOCK_HEADER_LEN, Pipeline};
use crate::gpu::device::DeviceError;
use crate::pipeline::buffer::zeroed;

/// The blocks that are wanted in the memory of one device.
pub(super) struct DeviceQueue {
    core: Arc<Core>,
    queue: Mutex<Queue<DeviceWaiter>>,
    /// The longest block that decoders are made for, in bytes of contents: no shorter than the archive's.
    block_len: u32,
    /// The most blocks of a batch.
    max_batch: usize,
    /// Batches of so many blocks are not divided further among workers.
    min_batch: usize,
    /// What the archive's blocks are decoded with.
    pipelines: Vec<Pipeline>,
}

/// A caller that waits for a block, and the parts of it that it wants.
struct DeviceWaiter {
    ticket: Arc<Ticket<()>>,
    slot: usize,
    wants: Vec<Want>,
}

impl Waiter for DeviceWaiter {
    fn is_abandoned(&self) -> bool {
        self.ticket.is_abandoned()
    }
}

/// Batches of so many blocks, or of so many bytes of contents, are not divided further among workers, since each costs time
/// of its own.
const MIN_BATCH: u64 = 64;
const MIN_BATCH_BYTES: u64 = 16 << 20;

/// So many blocks are queued before workers are told of them.
const QUEUED_AT_ONCE: usize = 256;

/// Decoders are made for blocks of at least this many bytes of contents.
const MIN_BLOCK_LEN: u64 = 1 << 16;

impl DeviceQueue {
    pub(super) fn new(core: &Arc<Core>, layout: &Layout) -> Self {
        // Archives of about the same size share decoders.
        let block_len = layout.max_block_size().next_power_of_two().max(MIN_BLOCK_LEN) as u32;
        let of_frame = |pipeline| match pipeline {
            Pipeline::Store => vec![Pipeline::Store],
            Pipeline::Bwt => vec![Pipeline::Bwt, Pipeline::Lzf],
            Pipeline::Lzh | Pipeline::Lzf | Pipeline::Fse => vec![Pipeline::Lzf],
        };
        let mut pipelines: Vec<_> =
            layout.frames().iter().flat_map(|frame| of_frame(frame.header.pipeline)).collect();
        pipelines.sort_unstable_by_key(|pipeline| pipeline.name());
        pipelines.dedup();
        let most = pipelines.iter().map(|pipeline| core.batch_of(*pipeline, block_len));
        // What the device does not decode is only moved there.
        let most = most.filter(|most| *most > 0).min();
        let most = most.unwrap_or_else(|| core.batch_of(Pipeline::Store, block_len));
        let max_batch = (most as usize).max(1);
        let few = (MIN_BATCH_BYTES / u64::from(block_len.max(1))).clamp(1, MIN_BATCH);
        let min_batch = max_batch.min(few as usize);
        let (core, queue) = (Arc::clone(core), Mutex::default());
        Self { core, queue, block_len, max_batch, min_batch, pipelines }
    }

    pub(super) fn is_of(&self, core: &Arc<Core>) -> bool {
        Arc::ptr_eq(&self.core, core)
    }

    fn lock(&self) -> MutexGuard<'_, Queue<DeviceWaiter>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn device_error(&self, error: DeviceError) -> ArchiveError {
        let device = self.core.device().limits().name.clone();
        ArchiveError::Device { device, error }
    }
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
        // All workers together bring what is queued, each about as much.
        let share = queue.queued().div_ceil(self.queue.core.lanes());
        let max_batch = share.clamp(min_batch, max_batch);
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
            waiters.retain(|waiter| waiter.ticket.begin_writing());
            waiters
        });
        waiters.iter().flat_map(|waiter| &waiter.wants).cloned().collect()
    }

    /// Tells those who wait for block `number` what became of it.
    fn deliver(&mut self, number: usize, outcome: &Result<(), ArchiveError>) {
        if std::mem::replace(&mut self.is_delivered[number], true) {
            return;
        }
        if let Some(waiters) = self.waiters[number].take() {
            for DeviceWaiter { ticket, slot, .. } in waiters {
                ticket.end_writing();
                ticket.deliver(slot, outcome.clone());
            }
        } else {
            for DeviceWaiter { ticket, slot, .. } in
                self.queue.lock().finish(self.batch.blocks[number])
            {
                ticket.deliver(slot, outcome.clone());
            }
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
    /// Asks for the blocks of `placements`, which have the memory of `core` as their destination, each with its place.
    pub(super) fn request_on(
        self: &Arc<Self>,
        core: &Arc<Core>,
        mut placements: Vec<Wanted>,
        options: &ReadOptions,
    ) -> Result<Claim<()>, ArchiveError> {
        let queue = self.device_queue(core);
        core.check().map_err(|error| queue.device_error(error))?;
        placements.sort_by_key(|(placement, _)| placement.block);
        let blocks: Vec<_> = placements.chunk_by(|a, b| a.0.block == b.0.block).collect();
        let ticket = Arc::new(Ticket::new(blocks.len()));
        let claim = Claim(Arc::clone(&ticket));
        for (number, some) in blocks.chunks(QUEUED_AT_ONCE).enumerate() {
            let mut queued = queue.lock();
            for (slot, placed) in (number * QUEUED_AT_ONCE..).zip(some) {
                let wants = placed.iter().map(|(_, want)| want.clone()).collect();
                let waiter = DeviceWaiter { ticket: Arc::clone(&ticket), slot, wants };
                queued.want(placed[0].0.block, options.priority, Some(waiter));
            }
            drop(queued);
            let requests = OfArchive { shared: Arc::clone(self), queue: Arc::clone(&queue) };
            let batches = some.len().div_ceil(queue.min_batch);
            let notified = core.notify(Arc::new(requests), batches);
            notified.map_err(|error| queue.device_error(error))?;
        }
        Ok(claim)
    }

    /// The bytes of contents of a whole batch on `core`, at most.
    pub(super) fn batch_bytes(&self, core: &Arc<Core>) -> u64 {
        let queue = self.device_queue(core);
        self.layout.len().min(queue.max_batch as u64 * self.layout.max_block_size())
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
            let queue = Arc::new(DeviceQueue::new(&on, &shared.layout));
            lane.prepare(&queue.pipelines, queue.block_len)?;
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
        let ticket = Arc::new(Ticket::new(count));
        let _claim = Claim(Arc::clone(&ticket));
        let mut placements = self.layout.placements(0..self.layout.len(), 0);
        let mut queued = queue.lock();
        for (slot, Placement { block, within, at: from, .. }) in
            placements.by_ref().take(count).enumerate()
        {
            let want = Want { within, buffer: Arc::clone(buffer), at: at + from as u64 };
            let (ticket, wants) = (Arc::clone(&ticket), vec![want]);
            queued.want(block, Priority::High, Some(DeviceWaiter { ticket, slot, wants }));
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
        let mut queues = self.devices.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = queues.iter().find(|queue| queue.is_of(core)) {
            return Arc::clone(queue);
        }
        let queue = Arc::new(DeviceQueue::new(core, &self.layout));
        queues.push(Arc::clone(&queue));
        queue
    }

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
struct OnTheWay {
    shared: Arc<Shared>,
    in_hand: InHand,
    opened: Vec<(Staged, BlockHeader)>,
    flight: Result<Flight, DeviceError>,
}

impl OnTheWay {
    /// Reads the blocks of a batch, and begins to decode them.
    fn begin(
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
    fn land(self, lane: &mut Lane<'_>) -> Result<(), DeviceError> {
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
