//! The decoders of a worker.

use std::collections::VecDeque;
use std::ops::Range;

use super::core::{BatchKind, DecoderKey, DeviceCore};
use super::payload::{self, SeenPayload, SeenResult, task_of};
use super::slot_batch::{
    BlockOutcome, PartsOf, Sending, SlotBatch, SlotBlock, SubmittedBatch, SubmittedBlock,
};
use crate::format::{BlockHeader, Method, Pipeline};
use crate::gpu::coder::{CoderError, MovedPart, Origin, RangeDecoder, RangeTask, RawBlock};
use crate::gpu::device::shared_queue::SharedQueue;
use crate::gpu::device::{Device, DeviceError, Queue};
use crate::pipeline::gpu_engine::AfterError;
use crate::pipeline::modules::FrameModules;

/// Decoders that take one batch at a time, and stay for the next one. A worker has two slots: while the device decodes
/// the batch of one, the worker reads the next batch for the other.
pub(in crate::access) struct DecoderSlot<'c> {
    pub(super) core: &'c DeviceCore,
    /// The queue of all decoders. The worker reads payloads into its pinned memory. The queue uploads them while the
    /// worker reads the next ones.
    queue: Option<SharedQueue<'c>>,
    /// The most recently used come first.
    pub(super) decoders: VecDeque<(DecoderKey, RangeDecoder<'c>)>,
    /// Whether the slot may compile and allocate.
    pub(super) is_open: bool,
}

/// The most decoders that a slot keeps: one for each task, and others for the sources of restored blocks.
const MAX_DECODERS: usize = 6;
/// The same where decoders are made only in advance.
const MAX_PREPARED: usize = 12;

/// Bytes of an upload. Shorter uploads cost more turns in the driver; longer ones need more pinned memory, which takes
/// long to make.
const RUN: u64 = 4 << 20;
/// The least pinned memory that a slot makes.
const SMALL: u64 = 1 << 20;

pub(super) fn unprepared() -> DeviceError {
    DeviceError::Unsupported("a kernel is running, and this was not prepared before".into())
}

/// The device's error; work that it declines becomes [`DeviceError::Unsupported`].
fn device_error(error: CoderError) -> DeviceError {
    match error {
        CoderError::Device(error) => error,
        CoderError::Plan(error) => DeviceError::Unsupported(error.to_string()),
    }
}

/// Bytes that the payload of a block takes in an upload.
fn padded(block: &SlotBlock<'_>) -> u64 {
    u64::from(block.header.payload_len).next_multiple_of(16)
}

/// Reads the payloads of blocks `some`, and uploads each run of them while it reads the next. Returns what the host
/// sees of each payload.
fn upload(
    decoder: &mut RangeDecoder<'_>,
    blocks: &[SlotBlock<'_>],
    some: &[usize],
) -> Result<Vec<SeenResult>, CoderError> {
    let padded = |at: &usize| padded(&blocks[*at]);
    let ahead = if some.iter().map(padded).sum::<u64>() > SMALL { RUN } else { SMALL };
    let (mut left, mut at, mut seen) = (some, 0, Vec::with_capacity(some.len()));
    while !left.is_empty() {
        let (mut count, mut bytes) = (1, padded(&left[0]));
        while let Some(next) = left.get(count).map(padded).filter(|next| bytes + next <= RUN) {
            (count, bytes) = (count + 1, bytes + next);
        }
        let (run, others) = left.split_at(count);
        decoder.upload_with(at, (bytes as usize, ahead as usize), &mut |memory| {
            seen.extend(payload::read(memory, blocks, run));
        })?;
        at += bytes;
        left = others;
    }
    Ok(seen)
}

impl<'c> DecoderSlot<'c> {
    pub(super) fn new(core: &'c DeviceCore) -> Self {
        let is_open = !core.options.only_prepared;
        Self { core, queue: None, decoders: VecDeque::new(), is_open }
    }

    /// Submits a batch: the device decodes its blocks and moves the parts that are wanted to their places.
    /// [`Self::finish`] waits for it.
    ///
    /// # Errors
    /// Fails if the device does. If memory is short, the slot submits fewer blocks at once, or leaves them to the CPU.
    pub(in crate::access) fn begin(
        &mut self,
        batch: &SlotBatch<'_>,
        parts_of: &mut PartsOf<'_>,
    ) -> Result<SubmittedBatch, DeviceError> {
        let mut submitted = SubmittedBatch::new(batch);
        let SlotBatch { block_len, kind, ref blocks, ref restored, .. } = *batch;
        let sending = Sending { block_len, kind, blocks, restoring: None };
        self.as_memory_permits(0..blocks.len(), |slot, range| {
            slot.send(&range.collect::<Vec<_>>(), &sending, parts_of, &mut submitted)
        })?;
        self.as_memory_permits(0..restored.len(), |slot, range| {
            slot.restore(batch, range, parts_of, &mut submitted)
        })?;
        Ok(submitted)
    }

    /// Calls `submit` for all of `range`, or for one part after another if the device runs out of memory. Skips parts
    /// that the device declines.
    ///
    /// # Errors
    /// Fails if the device does.
    fn as_memory_permits(
        &mut self,
        range: Range<usize>,
        mut submit: impl FnMut(&mut Self, Range<usize>) -> Result<(), CoderError>,
    ) -> Result<(), DeviceError> {
        let mut most = range.len();
        let mut begin = range.start;
        while begin < range.end {
            let end = range.end.min(begin + most);
            if let Err(error) = submit(self, begin..end) {
                match AfterError::of(&error, (end - begin) as u32) {
                    AfterError::Halved(half) => {
                        self.release();
                        if half > 0 {
                            most = half as usize;
                            continue;
                        }
                    }
                    AfterError::Declined => {}
                    AfterError::Broken => return Err(device_error(error)),
                }
            }
            begin = end;
        }
        Ok(())
    }

    /// Whether the slot's batch has ended, so that [`Self::finish`] does not wait.
    pub(super) fn has_ended(&mut self) -> bool {
        self.queue.as_mut().is_none_or(|queue| queue.has_ended())
    }

    /// Waits for a batch, and returns the outcome of each block. Leaves blocks that the device declined or got wrong.
    ///
    /// # Errors
    /// Fails if the device does.
    pub(in crate::access) fn finish(
        &mut self,
        mut submitted: SubmittedBatch,
    ) -> Result<Vec<BlockOutcome>, DeviceError> {
        match self.collect(&mut submitted) {
            Ok(()) | Err(CoderError::Plan(_)) => {}
            Err(CoderError::Device(error)) => {
                self.settle();
                if !matches!(error, DeviceError::OutOfMemory { .. } | DeviceError::Unsupported(_)) {
                    return Err(error);
                }
            }
        }
        Ok(submitted.end(&self.core.kept))
    }

    /// Waits for all decoders that have blocks of the batch.
    fn collect(&mut self, submitted: &mut SubmittedBatch) -> Result<(), CoderError> {
        for (key, blocks) in std::mem::take(&mut submitted.in_decoders) {
            let decoder = self.decoders.iter_mut().find(|(own, _)| *own == key);
            let Some((_, decoder)) = decoder else { continue };
            let decoded = decoder.wait()?;
            submitted.note(blocks, &decoded);
        }
        Ok(())
    }

    /// Submits blocks `numbers` to decoders, by task, by modules, and in chunks that a decoder has room for.
    pub(super) fn send(
        &mut self,
        numbers: &[usize],
        sending: &Sending<'_, '_>,
        parts_of: &mut PartsOf<'_>,
        submitted: &mut SubmittedBatch,
    ) -> Result<(), CoderError> {
        let core = self.core;
        let Sending { block_len, kind, blocks, .. } = *sending;
        for task in TASKS {
            let most = core.batch_of(task, block_len, kind) as usize;
            let of_task = numbers.iter().copied();
            let of_task = of_task.filter(|&number| task_of(&blocks[number].header) == Some(task));
            let of_task: Vec<_> = of_task.collect();
            if most == 0 || of_task.is_empty() {
                continue;
            }
            // A decoder runs the modules of one frame, or of frames that share them.
            let modules = |number: usize| blocks[number].modules.map(std::ptr::from_ref);
            let of_frame = of_task.chunk_by(|a, b| modules(*a) == modules(*b));
            for some in of_frame.flat_map(|numbers| numbers.chunks(most)) {
                let key = (task, block_len, most as u32);
                if let Err(error) = self.run_decoder(key, some, sending, parts_of, submitted) {
                    self.drop_all(submitted);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Returns the decoder for `key` when it is idle. [`make_decoder`](Self::make_decoder) explains `kept`.
    pub(super) fn reserve_decoder(
        &mut self,
        key: DecoderKey,
        submitted: &mut SubmittedBatch,
        kept: Option<DecoderKey>,
    ) -> Result<&mut RangeDecoder<'c>, CoderError> {
        // A new decoder may need the memory of one that is busy.
        let is_known = self.decoders.iter().any(|(own, _)| *own == key);
        if !is_known || submitted.in_decoders.iter().any(|(own, _)| *own == key) {
            self.collect(submitted)?;
        }
        self.make_decoder(key, kept)
    }

    /// Submits blocks `some` to the decoder for `key`.
    fn run_decoder(
        &mut self,
        key: DecoderKey,
        some: &[usize],
        sending: &Sending<'_, '_>,
        parts_of: &mut PartsOf<'_>,
        submitted: &mut SubmittedBatch,
    ) -> Result<(), CoderError> {
        let (blocks, is_open) = (sending.blocks, self.is_open);
        let restorer = sending.restoring.map(|(_, key)| key);
        let decoder = self.reserve_decoder(key, submitted, restorer)?;
        if some.iter().map(|at| padded(&blocks[*at])).sum::<u64>() > decoder.room() {
            return self.run_halves(key, some, sending, parts_of, submitted);
        }
        let modules = some.first().and_then(|first| blocks[*first].modules);
        decoder.set_modules(modules.map_or(&[], FrameModules::on_devices));
        let mut uploaded = Vec::with_capacity(some.len());
        let mut raws = Vec::with_capacity(some.len());
        let mut end = 0;
        for (&at, seen) in some.iter().zip(upload(decoder, blocks, some)?) {
            let header = &blocks[at].header;
            let raw = end as u32;
            end += padded(&blocks[at]);
            let seen = match seen {
                Ok(Some(seen)) => seen,
                Ok(None) => continue,
                Err(error) => {
                    submitted.note_unread(sending.purpose(at), error);
                    continue;
                }
            };
            if key.0 != RangeTask::Move {
                raws.push(RawBlock {
                    payload_start: raw,
                    payload_len: header.payload_len,
                    content_len: header.content_len,
                    position: header.position(),
                    filters: header.filters,
                    features: seen.features,
                });
            }
            uploaded.push((at, raw, seen));
        }
        if !is_open && !decoder.runs_at_once(&raws)? {
            // Fewer blocks may run with what is loaded.
            return self.run_halves(key, some, sending, parts_of, submitted);
        }
        let mut parts = Vec::new();
        for (number, &(at, raw, SeenPayload { first, .. })) in uploaded.iter().enumerate() {
            let method = blocks[at].header.method;
            parts.extend(parts_of(at, &|from| match method {
                Method::Store => Origin::Raw(raw + from),
                Method::Fill => Origin::Fill(first),
                Method::Lz77 | Method::Bwt => Origin::Contents(number as u32, from),
            }));
        }
        decoder.submit(&raws, &mut parts)?;
        let sent = |(at, ..): (usize, u32, SeenPayload)| {
            let BlockHeader { payload_crc, content_crc, .. } = blocks[at].header;
            SubmittedBlock { purpose: sending.purpose(at), payload_crc, content_crc }
        };
        submitted.in_decoders.push((key, uploaded.into_iter().map(sent).collect()));
        Ok(())
    }

    /// Submits one half of `some` after the other. Leaves a single block to the CPU.
    fn run_halves(
        &mut self,
        key: DecoderKey,
        some: &[usize],
        sending: &Sending<'_, '_>,
        parts_of: &mut PartsOf<'_>,
        submitted: &mut SubmittedBatch,
    ) -> Result<(), CoderError> {
        let (before, after) = some.split_at(some.len() / 2);
        if before.is_empty() {
            return Ok(());
        }
        self.run_decoder(key, before, sending, parts_of, submitted)?;
        self.run_decoder(key, after, sending, parts_of, submitted)
    }

    /// Uploads contents that the CPU has decoded, and moves `parts` of them to their places. Their length is a multiple
    /// of 4.
    ///
    /// # Errors
    /// Fails if the device does.
    pub(in crate::access) fn put(
        &mut self,
        (block_len, kind): (u32, BatchKind),
        contents: &[u8],
        parts: &mut [MovedPart],
    ) -> Result<(), DeviceError> {
        let most = self.core.batch_of(RangeTask::Move, block_len, kind).max(1);
        let key = |blocks| (RangeTask::Move, block_len, blocks);
        let decoder = match self.make_decoder(key(most), None) {
            Err(CoderError::Device(DeviceError::OutOfMemory { .. })) => {
                self.make_decoder(key(1), None)
            }
            made => made,
        }
        .map_err(device_error)?;
        let fill = &mut |into: &mut [u8]| into.copy_from_slice(contents);
        let uploaded = decoder.upload_with(0, (contents.len(), 0), fill);
        let placed = uploaded.and_then(|()| decoder.submit(&[], parts));
        let done = placed.and_then(|()| decoder.wait());
        if done.is_err() {
            self.settle();
        }
        done.map(drop).map_err(device_error)
    }

    /// After an error: waits for the batch's blocks in all decoders, and drops the decoders.
    pub(super) fn drop_all(&mut self, submitted: &mut SubmittedBatch) {
        // Blocks that end well count.
        let _ = self.collect(submitted);
        self.settle();
    }

    /// After an error: waits for all submitted work, and drops the queue and the decoders.
    pub(super) fn settle(&mut self) {
        if let Some(mut queue) = self.queue.take() {
            // The queue is dropped even if this fails.
            let _ = queue.finish();
            queue.end();
        }
        self.decoders.clear();
    }

    /// Returns the decoder for `key`, which it makes unless there is one, and puts it first. If memory is needed, drops
    /// other decoders, but never the one for `kept`.
    fn make_decoder(
        &mut self,
        key: DecoderKey,
        kept: Option<DecoderKey>,
    ) -> Result<&mut RangeDecoder<'c>, CoderError> {
        if let Some(at) = self.decoders.iter().position(|(own, _)| *own == key) {
            self.decoders.make_contiguous()[..=at].rotate_right(1);
            return Ok(&mut self.decoders[0].1);
        }
        if !self.is_open {
            return Err(CoderError::Device(unprepared()));
        }
        let core = self.core;
        let (task, block_len, blocks) = key;
        let most = if core.options.only_prepared { MAX_PREPARED } else { MAX_DECODERS };
        // Prepared decoders stay: they could not be made again.
        let budget = if core.options.only_prepared { u64::MAX } else { core.slot_budget };
        let room = budget.saturating_sub(core.memory_of(key));
        let taken = |decoders: &VecDeque<(DecoderKey, RangeDecoder<'_>)>| {
            decoders.iter().map(|(_, decoder)| decoder.memory()).sum::<u64>()
        };
        while self.decoders.len() >= most || taken(&self.decoders) > room {
            let Some(last) = self.decoders.iter().rposition(|(own, _)| Some(*own) != kept) else {
                break;
            };
            self.decoders.remove(last);
        }
        let queue = match &self.queue {
            Some(queue) => queue.clone(),
            None => self.queue.insert(SharedQueue::new(core.pool.queue()?)).clone(),
        };
        let make =
            || RangeDecoder::new(&*core.pool, Box::new(queue.clone()), task, block_len, blocks);
        let decoder = match make() {
            Err(CoderError::Device(DeviceError::OutOfMemory { .. })) => {
                self.decoders.retain(|(own, _)| Some(*own) == kept);
                core.pool.trim();
                make()
            }
            made => made,
        }?;
        self.decoders.push_front((key, decoder));
        Ok(&mut self.decoders[0].1)
    }

    /// Calls `prepare`, during which the slot may compile and allocate.
    pub(in crate::access) fn prepared<T>(&mut self, prepare: impl FnOnce(&mut Self) -> T) -> T {
        let was_open = std::mem::replace(&mut self.is_open, true);
        let done = prepare(self);
        self.is_open = was_open;
        if let Some(queue) = &mut self.queue {
            queue.set_pinned_is_fixed(!was_open);
        }
        done
    }

    /// Makes the decoders and the pinned memory for `tasks` with blocks of up to `block_len` bytes.
    ///
    /// # Errors
    /// Fails if the device does.
    pub(in crate::access) fn prepare(
        &mut self,
        tasks: &[RangeTask],
        block_len: u32,
        kind: BatchKind,
    ) -> Result<(), DeviceError> {
        let core = self.core;
        let key = |kind| move |task| (task, block_len, core.batch_of(task, block_len, kind));
        let mut keys: Vec<_> = tasks.iter().copied().map(key(kind)).collect();
        if tasks.contains(&RangeTask::Restore) {
            let of_sources =
                TASKS.into_iter().filter(|task| *task == RangeTask::Move || tasks.contains(task));
            keys.extend(of_sources.map(key(BatchKind::Sources)));
        }
        for key in keys.into_iter().filter(|(.., most)| *most > 0) {
            let made = self.make_decoder(key, None).and_then(|decoder| {
                // This makes pinned memory for all payloads.
                let room = decoder.room() as usize;
                decoder.upload_with(0, (room, 0), &mut |memory| memory.fill(0))
            });
            match made {
                // The CPU decodes blocks of this task.
                Ok(()) | Err(CoderError::Plan(_)) => {}
                Err(CoderError::Device(error)) => return Err(error),
            }
        }
        // Blocks that the CPU decodes need this.
        self.put((block_len, kind), &[0; 4], &mut [])
    }

    /// Whether it holds no memory.
    pub(super) fn is_empty(&self) -> bool {
        self.decoders.is_empty() && self.queue.is_none()
    }

    /// Frees all memory.
    pub(super) fn release_all(&mut self) {
        self.release();
        self.queue = None;
    }

    /// Frees the device memory.
    fn release(&mut self) {
        self.decoders.clear();
        self.core.pool.trim();
    }
}

/// The tasks for blocks with a payload.
const TASKS: [RangeTask; 3] =
    [RangeTask::Decode(Pipeline::Lzf), RangeTask::Decode(Pipeline::Bwt), RangeTask::Move];

impl Drop for DecoderSlot<'_> {
    fn drop(&mut self) {
        // End the queue before the memory that its work uses goes.
        if let Some(queue) = &self.queue {
            queue.end();
        }
    }
}
