//! The encoder of a thread, and what brings its payloads to the host.

use std::ops::Range;

use crc32c::crc32c_append;

use super::job::{Attempt, Job};
use crate::access::device::Core;
use crate::codec::filter::{Filter, FilterChain};
use crate::codec::{self, Codec};
use crate::format::Method;
use crate::gpu::coder::{
    BufferBytes, Buffers, CoderError, Decoder, EncodedBlock, Encoder, Needs, PayloadPlace,
    read_ranges,
};
use crate::gpu::device::{BufferId, Device, DeviceError, Limits, Queue};
use crate::gpu::model::budget::BlockCost;
use crate::gpu::model::plan::{PlanError, Shape};
use crate::gpu::stages::pipelines;
use crate::pipeline::engine::Coded;

/// Encodes batches one after another. While one is being encoded, the payloads of the one before come to the host: the
/// device has copied them to another buffer, one of two outboxes, which the batches use in turns.
pub(super) struct Coder<'d> {
    key: Key,
    /// The most blocks at once.
    blocks: u32,
    encoder: Encoder<'d>,
    /// Copies from the outboxes.
    queue: Box<dyn Queue + 'd>,
    /// Decodes copies of what is in the outboxes.
    checker: Option<Decoder<'d>>,
    outboxes: [Outbox<'d>; 2],
    /// The one for the batch that was started last.
    last: usize,
    method: Method,
    filters: Option<FilterChain>,
}

/// What a coder is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) recipe: codec::Recipe,
    pub(super) block_len: u32,
    pub(super) verifies: bool,
}

/// A batch that has been encoded.
pub(super) struct Batch {
    encoded: Vec<EncodedBlock>,
    /// The number of its outbox.
    outbox: usize,
}

/// A buffer for the payloads of a batch, freed when dropped.
struct Outbox<'d> {
    device: &'d dyn Device,
    buffer: BufferId,
}

impl<'d> Outbox<'d> {
    fn new(device: &'d dyn Device, bytes: u64) -> Result<Self, DeviceError> {
        Ok(Self { device, buffer: device.allocate(bytes)? })
    }
}

impl Drop for Outbox<'_> {
    fn drop(&mut self) {
        self.device.free(self.buffer);
    }
}

impl Key {
    /// The cost of a block, its part of the outboxes included.
    pub(super) fn cost(&self, limits: &Limits) -> Result<BlockCost, PlanError> {
        let Self { recipe, block_len, verifies } = *self;
        let encode = BlockCost::of(|shape| pipelines::encode(limits, &recipe, shape), block_len)?;
        let outboxes = 2 * self.outbox_bytes(limits, 1)?;
        let encode = BlockCost { memory: encode.memory + outboxes, ..encode };
        if !verifies {
            return Ok(encode);
        }
        let decoding = pipelines::decoding(&recipe);
        let plan = |shape| pipelines::decode(limits, decoding, shape, Needs::default());
        Ok(encode.and(&BlockCost::of(plan, block_len)?))
    }

    /// Bytes of an outbox for `blocks` blocks: as many as an encoder has for their payloads.
    fn outbox_bytes(&self, limits: &Limits, blocks: u32) -> Result<u64, PlanError> {
        let Self { recipe, block_len, .. } = *self;
        let plan = pipelines::encode(limits, &recipe, Shape::new(blocks, block_len))?;
        Ok(BufferBytes::of(&plan, "packed").payloads)
    }
}

impl<'d> Coder<'d> {
    /// A coder for up to `blocks` blocks at once.
    pub(super) fn new(core: &'d Core, key: Key, blocks: u32) -> Result<Self, CoderError> {
        let Key { recipe, block_len, verifies } = key;
        let declined = |what: &str| CoderError::Plan(PlanError::Declined(what.into()));
        let method = match recipe.codec {
            Codec::Lz77(_) => Method::Lz77,
            Codec::Bwt(_) => Method::Bwt,
            Codec::Store | Codec::Smallest(_) => return Err(declined("several codecs, or none")),
        };
        let filters = match recipe.filter {
            Filter::Chain(chain) => Some(chain),
            Filter::None | Filter::Auto => None,
        };
        let device = core.pool();
        let shape = Shape::new(blocks, block_len);
        let encoder = Encoder::with_recipe(device, recipe, shape, Buffers::default())?;
        let decoding = pipelines::decoding(&recipe);
        let checker = match verifies {
            true => Some(Decoder::new(device, decoding, block_len, blocks, Buffers::default())?),
            false => None,
        };
        let bytes = key.outbox_bytes(device.limits(), blocks)?;
        let outbox = || Outbox::new(device, bytes);
        let outboxes = [outbox()?, outbox()?];
        let queue = device.queue()?;
        Ok(Self { key, blocks, encoder, queue, checker, outboxes, last: 0, method, filters })
    }

    /// Whether it is made for this, and for at least so many blocks.
    pub(super) fn is_for(&self, key: &Key, blocks: u32) -> bool {
        self.key == *key && self.blocks >= blocks
    }

    /// Starts to encode the blocks `numbers`. The payloads go to an outbox, from which the batch before the last has been
    /// fetched.
    pub(super) fn start(&mut self, job: &Job, numbers: Range<u64>) -> Result<(), CoderError> {
        let lens: Vec<_> = numbers.clone().map(|number| job.block(number).1).collect();
        let start = job.contents.start + job.block(numbers.start).0;
        self.encoder.copy_from((job.contents.buffer.id(), start), &lens, &job.tail)?;
        self.encoder.submit(&lens)?;
        self.last = 1 - self.last;
        // All that payloads may take: how much they do, the host does not know yet.
        self.encoder.copy_payloads(self.outboxes[self.last].buffer)
    }

    /// Waits for the batch that was started last.
    pub(super) fn wait(&mut self) -> Result<Batch, CoderError> {
        Ok(Batch { encoded: self.encoder.wait()?, outbox: self.last })
    }

    /// Copies the payloads of a batch to `bytes`. Returns what has become of each of its blocks, whose contents have these
    /// lengths.
    pub(super) fn fetch(
        &mut self,
        Batch { encoded, outbox }: &Batch,
        lens: impl Iterator<Item = u32>,
        bytes: &mut Vec<u8>,
    ) -> Result<Vec<Attempt>, CoderError> {
        let (method, filters) = (self.method, self.filters);
        let ranges: Vec<_> = encoded
            .iter()
            .filter_map(|block| block.payload.map(|(start, len)| (start, len as usize)))
            .collect();
        let total: usize = ranges.iter().map(|(_, len)| len).sum();
        let refused = |_| DeviceError::OutOfMemory { bytes: total as u64 };
        codec::reserve_huge(bytes, total).map_err(refused)?;
        let mut crcs = vec![0; ranges.len()];
        let outbox = self.outboxes[*outbox].buffer;
        read_ranges(&mut *self.queue, outbox, &ranges, |number, piece| {
            bytes.extend_from_slice(piece);
            crcs[number] = crc32c_append(crcs[number], piece);
        })?;
        let mut crcs = crcs.into_iter();
        let mut at = 0;
        let (mut results, mut places, mut owns) = (Vec::new(), Vec::new(), Vec::new());
        for (EncodedBlock { payload, payload_crc, content_crc }, content_len) in
            encoded.iter().copied().zip(lens)
        {
            let Some((start, payload_len)) = payload else {
                results.push(Some((Coded::stored(content_crc), at..at)));
                continue;
            };
            let own = at..at + payload_len as usize;
            at = own.end;
            let coded = Coded { method, filters, payload_crc, content_crc };
            // What arrived is what the device has.
            let is_right = crcs.next() == Some(payload_crc) && own.end <= bytes.len();
            places.push(PayloadPlace { start, payload_len, content_len, position: 0, filters });
            owns.push(own.clone());
            results.push(is_right.then_some((coded, own)));
        }
        let Some(checker) = self.checker.as_mut().filter(|_| !places.is_empty()) else {
            return Ok(results);
        };
        checker.clear();
        for (own, place) in owns.into_iter().zip(&mut places) {
            let payload = bytes.get(own).unwrap_or_default();
            checker.expect(Needs::of(payload, place.content_len as usize));
        }
        checker.take(outbox, &mut places)?;
        let mut decoded = checker.decode(&places)?.into_iter();
        for result in &mut results {
            let is_stored = matches!(result, Some((coded, _)) if coded.method == Method::Store);
            let Some(decoded) = (if is_stored { None } else { decoded.next() }) else { continue };
            let is_sound = |coded: &Coded| {
                decoded.is_decoded
                    && (decoded.payload_crc, decoded.content_crc)
                        == (coded.payload_crc, coded.content_crc)
            };
            if !result.as_ref().is_some_and(|(coded, _)| is_sound(coded)) {
                *result = None;
            }
        }
        Ok(results)
    }
}
