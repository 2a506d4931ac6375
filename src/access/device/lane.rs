//! What a worker decodes batches with.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append, crc32c_combine};

use super::Core;
use super::buffer::OnDevice;
use crate::format::{BlockHeader, Method, Pipeline};
use crate::gpu::coder::{CoderError, DecodedBlock, Needs, Origin, Part, RangeDecoder, RawBlock};
use crate::gpu::device::{Device, DeviceError, HostMemory};
use crate::pipeline::modules::FrameModules;

/// A part of a block's contents that somebody wants, and where.
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
    /// Where its payload lies in the lane's host memory. Blocks of a batch are in this order.
    pub(in crate::access) payload: Range<usize>,
    pub(in crate::access) wants: Vec<&'w Want>,
    /// Set when the block's contents are where they are wanted. If it stays unset, the CPU has to decode the block.
    pub(in crate::access) is_done: bool,
}

/// Decoders and memory of a worker, kept from batch to batch.
pub(in crate::access) struct Lane<'c> {
    core: &'c Core,
    /// Pinned memory for the bytes of a batch.
    staging: Option<HostMemory>,
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
/// The least pinned memory that a lane allocates, in bytes.
const MIN_STAGING: usize = 1 << 20;
/// A lane that needs more than that allocates enough for batches of this ratio at once: to pin memory stops all others.
const LEAST_RATIO: u64 = 2;

fn unprepared() -> DeviceError {
    DeviceError::Unsupported("a kernel is running, and this was not prepared before".into())
}

impl<'c> Lane<'c> {
    pub(super) fn new(core: &'c Core) -> Self {
        let is_open = !core.only_prepared();
        Self { core, staging: None, decoders: VecDeque::new(), is_open }
    }

    /// Host memory for `bytes` bytes of a batch, rounded up to a multiple of 4. What it holds is unspecified.
    ///
    /// # Errors
    /// Fails if there is no such memory.
    pub(in crate::access) fn staging(&mut self, bytes: usize) -> Result<&mut [u8], DeviceError> {
        let bytes = bytes.next_multiple_of(4);
        if self.staging.as_ref().is_none_or(|staging| staging.len() < bytes) {
            if !self.is_open {
                return Err(unprepared());
            }
            // Free the smaller memory first.
            self.staging = None;
            let least = match bytes > MIN_STAGING {
                true => (self.core.batch() / LEAST_RATIO) as usize,
                false => MIN_STAGING,
            };
            let size = bytes.max(least).next_power_of_two();
            self.staging = Some(self.core.device().host_memory(size)?);
        }
        let staging = self.staging.as_mut().and_then(|staging| staging.get_mut(..bytes));
        staging.ok_or(DeviceError::OutOfMemory { bytes: bytes as u64 })
    }

    /// The bytes of the batch.
    pub(in crate::access) fn staged(&self) -> &[u8] {
        self.staging.as_deref().unwrap_or_default()
    }

    /// Decodes blocks of at most `block_len` bytes of contents on the device, and moves what is wanted of them to its
    /// place. Leaves blocks that the device declines, or gets wrong.
    ///
    /// # Errors
    /// Fails if the device does. A lack of memory is no failure: then fewer blocks are decoded at once, or none.
    pub(in crate::access) fn decode(
        &mut self,
        block_len: u32,
        blocks: &mut [LaneBlock<'_>],
    ) -> Result<(), DeviceError> {
        let mut most = blocks.len();
        let mut left = blocks;
        while !left.is_empty() {
            let count = left.len().min(most);
            match self.decode_some(block_len, &mut left[..count]) {
                Err(CoderError::Device(DeviceError::OutOfMemory { .. })) if count > 1 => {
                    self.release();
                    most = count / 2;
                    continue;
                }
                Err(CoderError::Device(DeviceError::OutOfMemory { .. })) => self.release(),
                Err(CoderError::Device(
                    DeviceError::Unsupported(_) | DeviceError::Build { .. },
                ))
                | Err(CoderError::Plan(_))
                | Ok(()) => {}
                Err(CoderError::Device(error)) => return Err(error),
            }
            left = &mut left[count..];
        }
        Ok(())
    }

    fn decode_some(
        &mut self,
        block_len: u32,
        blocks: &mut [LaneBlock<'_>],
    ) -> Result<(), CoderError> {
        let core = self.core;
        let mut of_pipeline: [Vec<usize>; 3] = Default::default();
        for (number, block) in blocks.iter().enumerate() {
            let payload = self.staged().get(block.payload.clone()).unwrap_or_default();
            if let Some(pipeline) = pipeline_of(&block.header, payload)
                && let Some(at) = PIPELINES.iter().position(|known| *known == pipeline)
            {
                of_pipeline[at].push(number);
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
            let batches: Vec<_> = of_frame.flat_map(|numbers| numbers.chunks(most)).collect();
            for some in batches {
                self.decode_with((pipeline, block_len, most as u32), blocks, some)?;
            }
        }
        Ok(())
    }

    /// Decodes those of `blocks` whose numbers are `some`, which are all of one pipeline.
    fn decode_with(
        &mut self,
        key: Key,
        blocks: &mut [LaneBlock<'_>],
        some: &[usize],
    ) -> Result<(), CoderError> {
        self.make_decoder(key)?;
        let done = self.run_decoder(key, blocks, some);
        if done.is_err()
            && let Some((_, mut decoder)) = self.decoders.pop_front()
        {
            decoder.settle();
        }
        done
    }

    /// The same with the first of the decoders, which was made for `key`.
    fn run_decoder(
        &mut self,
        key: Key,
        blocks: &mut [LaneBlock<'_>],
        some: &[usize],
    ) -> Result<(), CoderError> {
        let Some((_, decoder)) = self.decoders.front_mut() else { return Ok(()) };
        let staged = self.staging.as_deref().unwrap_or_default();
        let (Some(first), Some(last)) = (some.first(), some.last()) else { return Ok(()) };
        let start = blocks[*first].payload.start / 16 * 16;
        let end = blocks[*last].payload.end.next_multiple_of(4);
        // Blocks of other pipelines may lie between these.
        if (end - start) as u64 > decoder.raw_bytes() {
            return self.run_halves(key, blocks, some);
        }
        let modules = blocks[*first].modules;
        decoder.set_modules(modules.map_or(&[], FrameModules::on_devices));
        let mut raws = Vec::with_capacity(some.len());
        let mut parts = Vec::new();
        for (number, block) in some.iter().map(|&at| &blocks[at]).enumerate() {
            let BlockHeader { method, content_len, filters, .. } = block.header;
            let payload = &staged[block.payload.clone()];
            let raw = (block.payload.start - start) as u32;
            if key.0 != Pipeline::Store {
                raws.push(RawBlock {
                    payload_start: raw,
                    payload_len: payload.len() as u32,
                    content_len,
                    position: block.header.position(),
                    filters,
                    needs: Needs::of(payload, content_len as usize),
                });
            }
            for want in &block.wants {
                let from = want.within.start as u32;
                let origin = match method {
                    Method::Store => Origin::Raw(raw + from),
                    Method::Fill => Origin::Fill(payload.first().copied().unwrap_or_default()),
                    Method::Lz77 | Method::Bwt => Origin::Contents(number as u32, from),
                };
                let bytes = want.within.len() as u32;
                let (buffer, buffer_end) = (want.buffer.id(), want.buffer.end());
                parts.push(Part { origin, bytes, buffer, buffer_end, at: want.at });
            }
        }
        if !self.is_open && !decoder.runs_at_once(&raws)? {
            // Fewer blocks may need less.
            return self.run_halves(key, blocks, some);
        }
        decoder.upload(&staged[start..end])?;
        decoder.submit(&raws, &mut parts)?;
        let decoded = decoder.wait()?;
        for (number, &at) in some.iter().enumerate() {
            let block = &mut blocks[at];
            block.is_done = decoded.get(number).is_none_or(|decoded| {
                let DecodedBlock { is_decoded, payload_crc, content_crc, is_filtered } = *decoded;
                let header = &block.header;
                let is_right =
                    (payload_crc, content_crc) == (header.payload_crc, header.content_crc);
                is_decoded && !is_filtered && is_right
            });
        }
        Ok(())
    }

    /// The same, one half after the other; nothing for a single block, which is not decoded then.
    fn run_halves(
        &mut self,
        key: Key,
        blocks: &mut [LaneBlock<'_>],
        some: &[usize],
    ) -> Result<(), CoderError> {
        let (before, after) = some.split_at(some.len() / 2);
        if before.is_empty() {
            return Ok(());
        }
        self.run_decoder(key, blocks, before)?;
        self.run_decoder(key, blocks, after)
    }

    /// Moves what is wanted of a block to its place, whose contents the CPU has decoded. Their length is a multiple of 4.
    ///
    /// # Errors
    /// Fails if the device does.
    pub(in crate::access) fn put(
        &mut self,
        block_len: u32,
        contents: &[u8],
        wants: &[&Want],
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
        let Some((key, mut decoder)) = self.decoders.pop_front() else { return Ok(()) };
        let part = |want: &&Want| Part {
            origin: Origin::Raw(want.within.start as u32),
            bytes: want.within.len() as u32,
            buffer: want.buffer.id(),
            buffer_end: want.buffer.end(),
            at: want.at,
        };
        let mut parts: Vec<_> = wants.iter().map(part).collect();
        let uploaded = decoder.upload(contents);
        let placed = uploaded.and_then(|()| decoder.submit(&[], &mut parts));
        match placed.and_then(|()| decoder.wait()) {
            Ok(_) => {
                self.decoders.push_front((key, decoder));
                Ok(())
            }
            Err(error) => {
                decoder.settle();
                Err(failed(error))
            }
        }
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
        let make = || RangeDecoder::new(core.pool(), pipeline, block_len, blocks);
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
        for (_, decoder) in &mut self.decoders {
            decoder.set_pinned_is_fixed(!was_open);
        }
        done
    }

    /// Makes what decoding blocks of up to `block_len` bytes of `pipelines` needs, in batches of up to `blocks`.
    ///
    /// # Errors
    /// Fails if the device does.
    pub(in crate::access) fn prepare(
        &mut self,
        pipelines: &[Pipeline],
        block_len: u32,
        blocks: usize,
    ) -> Result<(), DeviceError> {
        // No payload is longer than its contents.
        self.staging(blocks * (block_len as usize + 64))?;
        for pipeline in pipelines {
            let most = self.core.batch_of(*pipeline, block_len);
            if most == 0 {
                continue;
            }
            match self.make_decoder((*pipeline, block_len, most)) {
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
        self.decoders.is_empty() && self.staging.is_none()
    }

    /// Gives all memory back.
    pub(super) fn release_all(&mut self) {
        self.staging = None;
        self.release();
    }

    /// Gives the device memory back.
    fn release(&mut self) {
        self.decoders.clear();
        self.core.pool().trim();
    }
}

/// The pipelines that decoders are made for. `Store` is for blocks that only have to be moved.
const PIPELINES: [Pipeline; 3] = [Pipeline::Lzf, Pipeline::Bwt, Pipeline::Store];

/// What a block needs; `None` if the device does not do it, or if its checksum is wrong.
fn pipeline_of(header: &BlockHeader, payload: &[u8]) -> Option<Pipeline> {
    if header.own.is_some() {
        return None;
    }
    let fits = !payload.is_empty() && payload.len() <= header.content_len as usize;
    match header.method {
        Method::Lz77 if fits => Some(Pipeline::Lzf),
        Method::Bwt if fits => Some(Pipeline::Bwt),
        // There is nothing to decode, so the host can check them while they are in its cache.
        Method::Store if header.filters.is_none() => {
            (crc32c(payload) == header.content_crc).then_some(Pipeline::Store)
        }
        Method::Fill if header.filters.is_none() => {
            let is_right = crc32c(payload) == header.payload_crc
                && payload.first().is_some_and(|byte| {
                    crc_of_fill(*byte, header.content_len) == header.content_crc
                });
            is_right.then_some(Pipeline::Store)
        }
        _ => None,
    }
}

/// CRC-32C of `len` times the same byte: of a block's contents, which are not empty.
fn crc_of_fill(byte: u8, len: u32) -> u32 {
    // Doubles the bytes for each bit of the length after the first.
    let mut crc = crc32c(&[byte]);
    let mut so_far = 1;
    for bit in (0..len.checked_ilog2().unwrap_or(0)).rev() {
        crc = crc32c_combine(crc, crc, so_far);
        so_far *= 2;
        if len >> bit & 1 == 1 {
            crc = crc32c_append(crc, &[byte]);
            so_far += 1;
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_of_repeated_bytes() {
        for len in (1..100).chain([4095, 4096, 4097, 65_536, 1_000_003]) {
            assert_eq!(crc_of_fill(7, len), crc32c(&vec![7; len as usize]), "{len} bytes");
        }
    }
}
