//! Brings blocks to a device: what its workers do for an archive.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::error::ArchiveError;
use super::layout::{BlockId, Layout, Placement};
use super::load::{Located, open_block};
use super::queue::{Batch, Limits, Queue, Waiter};
use super::ticket::{Claim, Priority, ReadOptions, Ticket};
use super::{Shared, Wanted};
use crate::access::Part;
use crate::access::device::{Core, Lane, LaneBlock, OnDevice, Requests, Run, Taken, Want};
use crate::format::{BlockHeader, Pipeline};
use crate::gpu::device::DeviceError;

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
const MIN_BATCH: u64 = 16;
const MIN_BATCH_BYTES: u64 = 16 << 20;

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
        let share = queue.queued().div_ceil(self.queue.core.workers());
        let max_batch = share.clamp(min_batch, max_batch);
        let batch = queue.take(&Limits { only_urgent, max_blocks: usize::MAX, max_batch })?;
        drop(queue);
        let (shared, queue) = (Arc::clone(&self.shared), Arc::clone(&self.queue));
        let is_urgent = batch.priority <= Priority::High;
        let run: Box<Run> = Box::new(move |lane| shared.bring(&queue, &batch, lane));
        Some(Taken { is_urgent, run })
    }
}

/// The blocks of a batch, of which each is delivered in the end, whatever happens.
struct InHand<'a> {
    queue: &'a DeviceQueue,
    batch: &'a Batch,
    /// For each block, those who wait for it; `None` until they are known, and after the delivery.
    waiters: Vec<Option<Vec<DeviceWaiter>>>,
    is_delivered: Vec<bool>,
    /// What those get to whom nothing was delivered.
    otherwise: ArchiveError,
}

impl<'a> InHand<'a> {
    fn new(queue: &'a DeviceQueue, batch: &'a Batch, otherwise: ArchiveError) -> Self {
        let count = batch.blocks.len();
        let waiters = std::iter::repeat_with(|| None).take(count).collect();
        Self { queue, batch, waiters, is_delivered: vec![false; count], otherwise }
    }

    /// Finds those who wait for block `number` of the batch. From now on the block may be written to their memory.
    fn claim(&mut self, number: usize) {
        let mut waiters = self.queue.lock().finish(self.batch.blocks[number]);
        waiters.retain(|waiter| waiter.ticket.begin_writing());
        self.waiters[number] = Some(waiters);
    }

    /// What is wanted of block `number`.
    fn wants(&self, number: usize) -> Vec<&Want> {
        self.waiters[number].iter().flatten().flat_map(|waiter| &waiter.wants).collect()
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

impl Drop for InHand<'_> {
    fn drop(&mut self) {
        for number in 0..self.batch.blocks.len() {
            self.deliver(number, &Err(self.otherwise.clone()));
        }
        self.queue.lock().end(self.batch);
    }
}

/// A block of a batch whose bytes are in the lane's memory.
struct Staged {
    /// Its number in the batch.
    number: usize,
    block: Located,
    /// Where its bytes are.
    at: usize,
    /// Whether they came from the source.
    is_fetched: bool,
}

/// Space between blocks that do not touch in the file is up to this many bytes, so that each begins at a multiple.
const ALIGNMENT: usize = 16;

impl Shared {
    /// Asks for the blocks of `placements`, which have the memory of `core` as their destination, each with its place.
    pub(super) fn request_on(
        self: &Arc<Self>,
        core: &Arc<Core>,
        placements: Vec<Wanted>,
        options: &ReadOptions,
    ) -> Result<Claim<()>, ArchiveError> {
        let queue = self.device_queue(core);
        core.check().map_err(|error| queue.device_error(error))?;
        let mut blocks: BTreeMap<BlockId, Vec<Want>> = BTreeMap::new();
        for (placement, want) in placements {
            blocks.entry(placement.block).or_default().push(want);
        }
        let ticket = Arc::new(Ticket::new(blocks.len()));
        let claim = Claim(Arc::clone(&ticket));
        let count = blocks.len();
        let mut queued = queue.lock();
        for (slot, (block, wants)) in blocks.into_iter().enumerate() {
            let ticket = Arc::clone(&ticket);
            queued.want(block, options.priority, Some(DeviceWaiter { ticket, slot, wants }));
        }
        drop(queued);
        if count > 0 {
            let requests = OfArchive { shared: Arc::clone(self), queue: Arc::clone(&queue) };
            let batches = count.div_ceil(queue.min_batch);
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
            let queue = DeviceQueue::new(&on, &shared.layout);
            lane.prepare(&queue.pipelines, queue.block_len, queue.max_batch)?;
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
        &self,
        queue: &DeviceQueue,
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
            self.bring(queue, &batch, lane)?;
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

    /// Brings the blocks of a batch to the device, and tells those who wait.
    fn bring(
        &self,
        queue: &DeviceQueue,
        batch: &Batch,
        lane: &mut Lane<'_>,
    ) -> Result<(), DeviceError> {
        let panicked = self.internal("bringing a block to a device panicked");
        let mut in_hand = InHand::new(queue, batch, panicked);
        let staged = match self.stage(&mut in_hand, lane) {
            Ok(staged) => staged,
            Err(error) => {
                // Without pinned memory, only this batch fails.
                in_hand.otherwise = queue.device_error(error);
                return Ok(());
            }
        };
        let opened = self.open(&mut in_hand, lane.staged(), staged);
        opened.iter().for_each(|(staged, _)| in_hand.claim(staged.number));
        let block_len = queue.block_len;
        let mut blocks: Vec<_> = opened
            .iter()
            .map(|(staged, header)| LaneBlock {
                header: *header,
                modules: self.loader.modules(staged.block.id.frame),
                payload: staged.payload(header),
                wants: in_hand.wants(staged.number),
                is_done: false,
            })
            .collect();
        let decoded = lane.decode(block_len, &mut blocks);
        let is_done: Vec<_> = blocks.iter().map(|block| block.is_done).collect();
        drop(blocks);
        let mut result = decoded;
        for ((staged, header), is_done) in opened.iter().zip(is_done) {
            let outcome = match &result {
                Ok(()) if is_done => Ok(()),
                Ok(()) => self.decode_on_cpu(staged, header, &in_hand, lane),
                Err(error) => Err(queue.device_error(error.clone())),
            };
            if let Err(ArchiveError::Device { error, .. }) = &outcome
                && result.is_ok()
                && !matches!(error, DeviceError::OutOfMemory { .. } | DeviceError::Unsupported(_))
            {
                result = Err(error.clone());
            }
            if outcome.is_ok() {
                let count = if is_done { &self.by_device } else { &self.by_cpu };
                count.fetch_add(1, Ordering::Relaxed);
                if staged.is_fetched && !self.source.is_local() {
                    let bytes = &lane.staged()[staged.range()];
                    self.loader.keep(staged.block.id, bytes);
                }
            }
            in_hand.deliver(staged.number, &outcome);
        }
        if let Err(error) = &result {
            in_hand.otherwise = queue.device_error(error.clone());
        }
        result
    }

    /// Finds the blocks of a batch, and brings their bytes to the lane's memory, in the order of the file.
    fn stage(
        &self,
        in_hand: &mut InHand<'_>,
        lane: &mut Lane<'_>,
    ) -> Result<Vec<Staged>, DeviceError> {
        let mut found = Vec::new();
        for (number, id) in in_hand.batch.blocks.iter().enumerate() {
            match self.loader.locate(&self.layout, *id) {
                Ok(block) => found.push(Staged { number, block, at: 0, is_fetched: true }),
                Err(error) => {
                    let error = ArchiveError::format(self.source.uri(), error);
                    in_hand.deliver(number, &Err(error));
                }
            }
        }
        found.sort_by_key(|staged| staged.block.place.offset);
        let mut used = 0usize;
        let mut end_in_file = None;
        for staged in &mut found {
            let offset = staged.block.place.offset;
            staged.at =
                if end_in_file == Some(offset) { used } else { used.next_multiple_of(ALIGNMENT) };
            used = staged.at + staged.block.len;
            end_in_file = Some(offset + staged.block.len as u64);
        }
        let memory = lane.staging(used)?;
        for staged in &mut found {
            if let Some(payload) = self.loader.kept(&staged.block) {
                memory[staged.at..][..payload.len()].copy_from_slice(&payload);
                staged.is_fetched = false;
            }
        }
        if let Err(error) = self.fetch_into(&found, memory) {
            for staged in found.iter().filter(|staged| staged.is_fetched) {
                in_hand.deliver(staged.number, &Err(error.clone()));
            }
            found.retain(|staged| !staged.is_fetched);
        }
        Ok(found)
    }

    /// Reads the blocks that are not cached. Those that touch are one part.
    fn fetch_into(&self, found: &[Staged], memory: &mut [u8]) -> Result<(), ArchiveError> {
        let mut parts: Vec<Part<'_>> = Vec::new();
        let mut rest = memory;
        let mut taken = 0;
        let fetched: Vec<_> = found.iter().filter(|staged| staged.is_fetched).collect();
        let touch = |a: &&Staged, b: &&Staged| {
            a.at + a.block.len == b.at && a.file_end() == b.block.place.offset
        };
        for run in fetched.chunk_by(touch) {
            let (Some(first), Some(last)) = (run.first(), run.last()) else { continue };
            let (start, end) = (first.at, last.at + last.block.len);
            let (part, after) = rest.split_at_mut(end - taken);
            parts.push(Part {
                offset: first.block.place.offset,
                buffer: &mut part[start - taken..],
            });
            (rest, taken) = (after, end);
        }
        Ok(self.source.read_ranges(&mut parts)?)
    }

    /// Checks the headers of the blocks, and delivers the errors of those that are damaged.
    fn open(
        &self,
        in_hand: &mut InHand<'_>,
        memory: &[u8],
        staged: Vec<Staged>,
    ) -> Vec<(Staged, BlockHeader)> {
        let mut opened = Vec::with_capacity(staged.len());
        for staged in staged {
            let frame = &self.layout.frames()[staged.block.id.frame];
            match open_block(frame, &staged.block, &memory[staged.range()]) {
                Ok((header, _)) => opened.push((staged, header)),
                Err(fault) => {
                    let error = fault.at(staged.block.place);
                    let error = ArchiveError::format(self.source.uri(), error);
                    in_hand.deliver(staged.number, &Err(error));
                }
            }
        }
        opened
    }

    /// Decodes a block that the device does not decode, and uploads what is wanted of it.
    fn decode_on_cpu(
        &self,
        staged: &Staged,
        header: &BlockHeader,
        in_hand: &InHand<'_>,
        lane: &mut Lane<'_>,
    ) -> Result<(), ArchiveError> {
        let wants = in_hand.wants(staged.number);
        let payload = &lane.staged()[staged.payload(header)];
        let loader = &self.loader;
        let contents = loader.decode_padded(&self.layout, &staged.block, *header, payload)?;
        let put = lane.put(in_hand.queue.block_len, &contents, &wants);
        put.map_err(|error| in_hand.queue.device_error(error))
    }
}

impl Staged {
    fn file_end(&self) -> u64 {
        self.block.place.offset + self.block.len as u64
    }

    /// Where its bytes lie in the lane's memory.
    fn range(&self) -> std::ops::Range<usize> {
        self.at..self.at + self.block.len
    }

    /// Where its payload does.
    fn payload(&self, header: &BlockHeader) -> std::ops::Range<usize> {
        let start = self.at + self.block.header_len(header);
        start..start + header.payload_len as usize
    }
}
