//! What a worker decodes batches with.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use super::Core;
use super::buffer::OnDevice;
use super::payload::pipeline_of;
use super::readers;
use crate::access::SourceError;
use crate::format::{BlockHeader, Method, Pipeline};
use crate::gpu::coder::{CoderError, Origin, Part, RangeDecoder, RawBlock};
use crate::gpu::device::shared_queue::SharedQueue;
use crate::gpu::device::{Device, DeviceError, Queue};
use crate::pipeline::modules::FrameModules;

/// A part of a block's contents that somebody wants, and where.
#[derive(Clone)]
pub(in crate::access) struct Want {
    /// Bytes of the contents.
    pub(in crate::access) within: Range<usize>,
    pub(in crate::access) buffer: Arc<OnDevice>,
    /// Offset in that buffer.
    pub(in crate::access) at: u64,
}

/// A block of a batch.
pub(in crate::access) struct LaneBlock<'w> {
    pub(in crate::access) header: BlockHeader,
    /// What runs the modules of its frame, if that has some.
    pub(in crate::access) modules: Option<&'w FrameModules>,
    /// Reads its payload from some byte on, as much as there is memory.
    pub(in crate::access) read: Box<Read<'w>>,
}

/// Tells what is wanted of the block with this place in the batch: from now on it may be written there.
pub(in crate::access) type Claim<'w> = dyn FnMut(usize) -> Vec<Want> + 'w;

pub(in crate::access) type Read<'w> =
    dyn Fn(usize, &mut [u8]) -> Result<(), SourceError> + Sync + 'w;

/// What became of a block.
pub(in crate::access) enum Outcome {
    /// The CPU has to decode it.
    Left,
    /// Its contents are where they are wanted.
    Done,
    /// Its payload could not be read.
    Unread(SourceError),
}

/// A batch that a lane has begun.
pub(in crate::access) struct Flight {
    /// What has become of each block so far.
    outcomes: Vec<Outcome>,
    /// What is wanted of each, once that has been asked.
    wants: Vec<Option<Vec<Want>>>,
    submitted: Vec<Submitted>,
}

/// Blocks that a decoder has in hand.
struct Submitted {
    key: Key,
    blocks: Vec<Sent>,
}

/// One of them, by its place in the batch.
struct Sent {
    at: usize,
    payload_crc: u32,
    content_crc: u32,
}

/// Decoders of a worker, kept from batch to batch. While one lane's batch is decoded, the worker's other one reads the next.
pub(in crate::access) struct Lane<'c> {
    core: &'c Core,
    /// The queue of all decoders. Payloads are read to its pinned memory, and uploaded while the next ones are read.
    queue: Option<SharedQueue<'c>>,
    /// Those used last come first.
    decoders: VecDeque<(Key, RangeDecoder<'c>)>,
    /// Whether it may load and allocate.
    is_open: bool,
}

/// What a decoder was made for: pipeline, length of the longest block, and blocks.
type Key = (Pipeline, u32, u32);

/// The most decoders that a lane keeps: one for each kind of block.
const MAX_DECODERS: usize = 3;
/// The same where nothing is made later.
const MAX_PREPARED: usize = 12;

/// About as many bytes are uploaded at once: threads take turns in the driver, but to make pinned memory takes long too, which
/// more of them would need.
const RUN: u64 = 4 << 20;
/// The least pinned memory that a lane makes.
const SMALL: u64 = 1 << 20;

fn unprepared() -> DeviceError {
    DeviceError::Unsupported("a kernel is running, and this was not prepared before".into())
}

impl<'c> Lane<'c> {
    pub(super) fn new(core: &'c Core) -> Self {
        let is_open = !core.only_prepared();
        Self { core, queue: None, decoders: VecDeque::new(), is_open }
    }

    /// Begins to decode blocks of at most `block_len` bytes of contents on the device, and to move what is wanted of them to
    /// its place. [`Self::finish`] waits.
    ///
    /// # Errors
    /// Fails if the device does. A lack of memory is no failure: then fewer blocks are decoded at once, or none.
    pub(in crate::access) fn begin(
        &mut self,
        block_len: u32,
        blocks: &[LaneBlock<'_>],
        claim: &mut Claim<'_>,
    ) -> Result<Flight, DeviceError> {
        let none = || std::iter::repeat_with(|| None).take(blocks.len()).collect();
        let outcomes = blocks.iter().map(|_| Outcome::Left).collect();
        let mut flight = Flight { outcomes, wants: none(), submitted: Vec::new() };
        let mut most = blocks.len();
        let mut begin = 0;
        while begin < blocks.len() {
            let end = blocks.len().min(begin + most);
            match self.submit_some(block_len, (blocks, begin..end), &mut flight, claim) {
                Err(CoderError::Device(DeviceError::OutOfMemory { .. })) => {
                    self.release();
                    if end - begin > 1 {
                        most = (end - begin) / 2;
                        continue;
                    }
                }
                Err(CoderError::Device(
                    DeviceError::Unsupported(_) | DeviceError::Build { .. },
                ))
                | Err(CoderError::Plan(_))
                | Ok(()) => {}
                Err(CoderError::Device(error)) => return Err(error),
            }
            begin = end;
        }
        Ok(flight)
    }

    /// Whether [`Self::finish`] waits no more for the batch of the lane.
    pub(super) fn has_ended(&mut self) -> bool {
        self.queue.as_mut().is_none_or(|queue| queue.has_ended())
    }

    /// Waits for a batch, and tells what became of each block. Blocks that the device declines, or gets wrong, are left.
    ///
    /// # Errors
    /// Fails if the device does.
    pub(in crate::access) fn finish(
        &mut self,
        mut flight: Flight,
    ) -> Result<Vec<Outcome>, DeviceError> {
        match self.collect(&mut flight) {
            Ok(()) | Err(CoderError::Plan(_)) => {}
            Err(CoderError::Device(error)) => {
                self.settle();
                if !matches!(error, DeviceError::OutOfMemory { .. } | DeviceError::Unsupported(_)) {
                    return Err(error);
                }
            }
        }
        Ok(flight.outcomes)
    }

    /// Waits for what decoders have in hand.
    fn collect(&mut self, flight: &mut Flight) -> Result<(), CoderError> {
        for Submitted { key, blocks } in flight.submitted.drain(..) {
            let decoder = self.decoders.iter_mut().find(|(own, _)| *own == key);
            let Some((_, decoder)) = decoder else { continue };
            let decoded = decoder.wait()?;
            for (number, Sent { at, payload_crc, content_crc }) in blocks.into_iter().enumerate() {
                let is_right = decoded.get(number).is_none_or(|decoded| {
                    let is_right = (decoded.payload_crc, decoded.content_crc);
                    decoded.is_decoded
                        && !decoded.is_filtered
                        && is_right == (payload_crc, content_crc)
                });
                if is_right {
                    flight.outcomes[at] = Outcome::Done;
                }
            }
        }
        Ok(())
    }

    fn submit_some(
        &mut self,
        block_len: u32,
        (blocks, range): (&[LaneBlock<'_>], Range<usize>),
        flight: &mut Flight,
        claim: &mut Claim<'_>,
    ) -> Result<(), CoderError> {
        let core = self.core;
        let mut of_pipeline: [Vec<usize>; 3] = Default::default();
        for at in range {
            if let Some(pipeline) = pipeline_of(&blocks[at].header)
                && let Some(known) = PIPELINES.iter().position(|known| *known == pipeline)
            {
                of_pipeline[known].push(at);
            }
        }
        for (pipeline, numbers) in PIPELINES.into_iter().zip(of_pipeline) {
            let most = core.batch_of(pipeline, block_len) as usize;
            if most == 0 || numbers.is_empty() {
                continue;
            }
            // A batch has the modules of one frame, or of frames that share them.
            let modules = |number: usize| blocks[number].modules.map(std::ptr::from_ref);
            let of_frame = numbers.chunk_by(|a, b| modules(*a) == modules(*b));
            for some in of_frame.flat_map(|numbers| numbers.chunks(most)) {
                let key = (pipeline, block_len, most as u32);
                let submitted = self.submit_with(key, (blocks, some), flight, claim);
                if submitted.is_err() {
                    // What is in hand may end well.
                    let _ = self.collect(flight);
                    self.settle();
                }
                submitted?;
            }
        }
        Ok(())
    }

    /// Submits those of `blocks` whose numbers are `some`, which are all of one pipeline.
    fn submit_with(
        &mut self,
        key: Key,
        (blocks, some): (&[LaneBlock<'_>], &[usize]),
        flight: &mut Flight,
        claim: &mut Claim<'_>,
    ) -> Result<(), CoderError> {
        if !self.decoders.iter().any(|(own, _)| *own == key) {
            // A new decoder may take the place of one that is busy.
            self.collect(flight)?;
        }
        self.make_decoder(key)?;
        self.run_decoder(key, (blocks, some), flight, claim)
    }

    /// The same with the first of the decoders, which was made for `key`.
    fn run_decoder(
        &mut self,
        key: Key,
        (blocks, some): (&[LaneBlock<'_>], &[usize]),
        flight: &mut Flight,
        claim: &mut Claim<'_>,
    ) -> Result<(), CoderError> {
        if flight.submitted.iter().any(|submitted| submitted.key == key) {
            self.collect(flight)?;
        }
        let Some((_, decoder)) = self.decoders.front_mut() else { return Ok(()) };
        let Some(&first) = some.first() else { return Ok(()) };
        let padded = |at: &usize| u64::from(blocks[*at].header.payload_len).next_multiple_of(16);
        let bytes = some.iter().map(padded).sum::<u64>();
        if bytes > decoder.room() {
            return self.run_halves(key, (blocks, some), flight, claim);
        }
        let modules = blocks[first].modules;
        decoder.set_modules(modules.map_or(&[], FrameModules::on_devices));
        let mut uploaded = Vec::with_capacity(some.len());
        let mut raws = Vec::with_capacity(some.len());
        let mut seen = Vec::new();
        let ahead = if bytes > SMALL { RUN } else { SMALL };
        let (mut left, mut at) = (some, 0);
        while !left.is_empty() {
            let (mut count, mut bytes) = (1, padded(&left[0]));
            while let Some(next) = left.get(count).map(padded).filter(|next| bytes + next <= RUN) {
                (count, bytes) = (count + 1, bytes + next);
            }
            let (run, others) = left.split_at(count);
            decoder.upload_with(at, (bytes as usize, ahead as usize), &mut |memory| {
                seen.extend(readers::read(memory, blocks, run));
            })?;
            at += bytes;
            left = others;
        }
        let mut end = 0;
        for (&at, seen) in some.iter().zip(seen) {
            let header = &blocks[at].header;
            let raw = end as u32;
            end += padded(&at);
            let seen = match seen {
                Ok(Some(seen)) => seen,
                Ok(None) => continue,
                Err(error) => {
                    flight.outcomes[at] = Outcome::Unread(error);
                    continue;
                }
            };
            if key.0 != Pipeline::Store {
                raws.push(RawBlock {
                    payload_start: raw,
                    payload_len: header.payload_len,
                    content_len: header.content_len,
                    position: header.position(),
                    filters: header.filters,
                    needs: seen.needs,
                });
            }
            uploaded.push((at, raw, seen.first));
        }
        if !self.is_open && !decoder.runs_at_once(&raws)? {
            // Fewer blocks may need less.
            return self.run_halves(key, (blocks, some), flight, claim);
        }
        let mut parts = Vec::new();
        for (number, &(at, raw, first)) in uploaded.iter().enumerate() {
            for want in flight.wants[at].get_or_insert_with(|| claim(at)) {
                let from = want.within.start as u32;
                let origin = match blocks[at].header.method {
                    Method::Store => Origin::Raw(raw + from),
                    Method::Fill => Origin::Fill(first),
                    Method::Lz77 | Method::Bwt => Origin::Contents(number as u32, from),
                };
                let bytes = want.within.len() as u32;
                let (buffer, buffer_end) = (want.buffer.id(), want.buffer.end());
                parts.push(Part { origin, bytes, buffer, buffer_end, at: want.at });
            }
        }
        decoder.submit(&raws, &mut parts)?;
        let sent = |(at, ..): (usize, u32, u8)| {
            let BlockHeader { payload_crc, content_crc, .. } = blocks[at].header;
            Sent { at, payload_crc, content_crc }
        };
        let blocks = uploaded.into_iter().map(sent).collect();
        flight.submitted.push(Submitted { key, blocks });
        Ok(())
    }

    /// The same, one half after the other; nothing for a single block, which is not decoded then.
    fn run_halves(
        &mut self,
        key: Key,
        (blocks, some): (&[LaneBlock<'_>], &[usize]),
        flight: &mut Flight,
        claim: &mut Claim<'_>,
    ) -> Result<(), CoderError> {
        let (before, after) = some.split_at(some.len() / 2);
        if before.is_empty() {
            return Ok(());
        }
        self.run_decoder(key, (blocks, before), flight, claim)?;
        self.run_decoder(key, (blocks, after), flight, claim)
    }

    /// Moves what is wanted of a block to its place, whose contents the CPU has decoded. Their length is a multiple of 4.
    ///
    /// # Errors
    /// Fails if the device does.
    pub(in crate::access) fn put(
        &mut self,
        block_len: u32,
        contents: &[u8],
        wants: &[Want],
    ) -> Result<(), DeviceError> {
        let failed = |error| match error {
            CoderError::Device(error) => error,
            CoderError::Plan(error) => DeviceError::Unsupported(error.to_string()),
        };
        let most = self.core.batch_of(Pipeline::Store, block_len).max(1);
        let key = |blocks| (Pipeline::Store, block_len, blocks);
        match self.make_decoder(key(most)) {
            Err(CoderError::Device(DeviceError::OutOfMemory { .. })) => self.make_decoder(key(1)),
            made => made,
        }
        .map_err(failed)?;
        let Some((_, decoder)) = self.decoders.front_mut() else { return Ok(()) };
        let part = |want: &Want| Part {
            origin: Origin::Raw(want.within.start as u32),
            bytes: want.within.len() as u32,
            buffer: want.buffer.id(),
            buffer_end: want.buffer.end(),
            at: want.at,
        };
        let mut parts: Vec<_> = wants.iter().map(part).collect();
        let fill = &mut |into: &mut [u8]| into.copy_from_slice(contents);
        let uploaded = decoder.upload_with(0, (contents.len(), 0), fill);
        let placed = uploaded.and_then(|()| decoder.submit(&[], &mut parts));
        let done = placed.and_then(|()| decoder.wait());
        if done.is_err() {
            self.settle();
        }
        done.map(drop).map_err(failed)
    }

    /// After an error: waits for what was submitted before it, and drops what it was submitted with.
    pub(super) fn settle(&mut self) {
        if let Some(mut queue) = self.queue.take() {
            // Whatever this says, the queue is of no further use.
            let _ = queue.finish();
            queue.end();
        }
        self.decoders.clear();
    }

    /// Puts the decoder for `key` first.
    fn make_decoder(&mut self, key: Key) -> Result<(), CoderError> {
        if let Some(at) = self.decoders.iter().position(|(own, _)| *own == key) {
            self.decoders.swap(0, at);
            return Ok(());
        }
        if !self.is_open {
            return Err(CoderError::Device(unprepared()));
        }
        let most = if self.core.only_prepared() { MAX_PREPARED } else { MAX_DECODERS };
        self.decoders.truncate(most - 1);
        let (pipeline, block_len, blocks) = key;
        let core = self.core;
        let queue = match &self.queue {
            Some(queue) => queue.clone(),
            None => self.queue.insert(SharedQueue::new(core.pool().queue()?)).clone(),
        };
        let make =
            || RangeDecoder::new(core.pool(), Box::new(queue.clone()), pipeline, block_len, blocks);
        let decoder = match make() {
            Err(CoderError::Device(DeviceError::OutOfMemory { .. })) => {
                self.release();
                make()
            }
            made => made,
        }?;
        self.decoders.push_front((key, decoder));
        Ok(())
    }

    /// Calls `prepare`, which may make what later batches need.
    pub(in crate::access) fn prepared<T>(&mut self, prepare: impl FnOnce(&mut Self) -> T) -> T {
        let was_open = std::mem::replace(&mut self.is_open, true);
        let done = prepare(self);
        self.is_open = was_open;
        if let Some(queue) = &mut self.queue {
            queue.set_pinned_is_fixed(!was_open);
        }
        done
    }

    /// Makes what decoding blocks of up to `block_len` bytes of `pipelines` needs.
    ///
    /// # Errors
    /// Fails if the device does.
    pub(in crate::access) fn prepare(
        &mut self,
        pipelines: &[Pipeline],
        block_len: u32,
    ) -> Result<(), DeviceError> {
        for pipeline in pipelines {
            let most = self.core.batch_of(*pipeline, block_len);
            if most == 0 {
                continue;
            }
            let made = self.make_decoder((*pipeline, block_len, most)).and_then(|()| {
                // So it has pinned memory for all payloads.
                let Some((_, decoder)) = self.decoders.front_mut() else { return Ok(()) };
                let room = decoder.room() as usize;
                decoder.upload_with(0, (room, 0), &mut |memory| memory.fill(0))
            });
            match made {
                // Such blocks are the CPU's.
                Ok(()) | Err(CoderError::Plan(_)) => {}
                Err(CoderError::Device(error)) => return Err(error),
            }
        }
        // The CPU's blocks go through this.
        self.put(block_len, &[0; 4], &[])
    }

    /// Whether it holds no memory.
    pub(super) fn is_empty(&self) -> bool {
        self.decoders.is_empty() && self.queue.is_none()
    }

    /// Gives all memory back.
    pub(super) fn release_all(&mut self) {
        self.release();
        self.queue = None;
    }

    /// Gives the device memory back.
    fn release(&mut self) {
        self.decoders.clear();
        self.core.pool().trim();
    }
}

/// The pipelines that decoders are made for. `Store` is for blocks that only have to be moved.
const PIPELINES: [Pipeline; 3] = [Pipeline::Lzf, Pipeline::Bwt, Pipeline::Store];

impl Drop for Lane<'_> {
    fn drop(&mut self) {
        // Before the memory that its work uses.
        if let Some(queue) = &self.queue {
            queue.end();
        }
    }
}
