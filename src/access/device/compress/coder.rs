//! The encoder of a thread, and the decoder that checks its payloads.

use std::ops::Range;

use super::job::{CoderKey, CompressJob};
use crate::access::device::core::DeviceCore;
use crate::gpu::coder::{
    CallerBuffers, CoderError, Decoder, EncodedBlock, Encoder, PayloadFeatures, PayloadPlace,
};
use crate::gpu::device::{BufferId, Device, DeviceError, HostMemory, Queue};
use crate::gpu::model::plan::Shape;
use crate::gpu::stages::pipelines;

/// Pinned memory is allocated in multiples of this many bytes.
const PAGES: usize = 4 << 20;

/// Encodes batches one after another. While it encodes one, the payloads of the one before are copied to the host.
/// Batches therefore use two outboxes in turn.
pub(super) struct Coder<'d> {
    key: CoderKey,
    most: Lengths,
    encoder: Encoder<'d>,
    device: &'d dyn Device,
    /// Copies payloads from the outboxes.
    queue: Box<dyn Queue + 'd>,
    /// Decodes copies of the payloads, to check them.
    checker: Option<Decoder<'d>>,
    outboxes: [Outbox<'d>; 2],
    /// The outbox of the batch that was started last.
    last: usize,
    /// Idle memory for pieces of batches, kept between jobs.
    pub(super) pinned: Vec<HostMemory>,
}

/// The most blocks of a batch, and of a piece: the part of a batch that is copied to the host at once.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lengths {
    pub(super) batch: u32,
    pub(super) piece: u32,
}

/// The encoded blocks of a batch that are left in an outbox, and the number of that outbox.
pub(super) struct Encoded {
    blocks: Vec<EncodedBlock>,
    outbox: usize,
}

/// Blocks of a batch on the host.
pub(super) struct FetchedPiece {
    /// The blocks; `None` where the device got one wrong. Offsets of payloads count in `bytes`.
    pub(super) blocks: Vec<Option<EncodedBlock>>,
    pub(super) bytes: HostMemory,
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

impl<'d> Coder<'d> {
    /// A coder for batches and pieces of up to `most` blocks.
    pub(super) fn new(
        core: &'d DeviceCore,
        key: CoderKey,
        most: Lengths,
    ) -> Result<Self, CoderError> {
        let CoderKey { recipe, block_len, verifies } = key;
        let device: &dyn Device = &*core.pool;
        let shape = Shape::new(most.batch, block_len);
        let bytes = key.outbox_bytes(device.limits(), most.batch)?;
        let outbox = || Outbox::new(device, bytes);
        let outboxes = [outbox()?, outbox()?];
        let payloads =
            CallerBuffers { payloads: Some(outboxes[0].buffer), ..CallerBuffers::default() };
        let mut encoder = Encoder::with_recipe(device, recipe, shape, payloads)?;
        if !key.encodes_alone() {
            encoder.set_beside_others();
        }
        let decoding = pipelines::decoding(&recipe);
        let checker =
            || Decoder::new(device, decoding, block_len, most.piece, CallerBuffers::default());
        let checker = verifies.then(checker).transpose()?;
        let queue = device.queue()?;
        let (last, pinned) = (0, Vec::new());
        Ok(Self { key, most, encoder, device, queue, checker, outboxes, last, pinned })
    }

    /// Whether the coder was made for `key` and for at least `most` blocks.
    pub(super) fn is_for(&self, key: &CoderKey, most: Lengths) -> bool {
        self.key == *key && self.most.batch >= most.batch && self.most.piece >= most.piece
    }

    /// Starts to encode blocks `numbers`. The payloads go to the other outbox, whose batch has been fetched.
    pub(super) fn start(
        &mut self,
        job: &CompressJob,
        numbers: Range<u64>,
    ) -> Result<(), CoderError> {
        let start = job.contents.start + job.block(numbers.start).0;
        let lens = job.lens(numbers);
        self.last = 1 - self.last;
        self.encoder.set_payloads(self.outboxes[self.last].buffer);
        self.encoder.copy_from((job.contents.id(), start), &lens, &job.tail)?;
        self.encoder.submit(&lens)
    }

    /// Waits for the batch that was started last.
    pub(super) fn wait(&mut self) -> Result<Encoded, CoderError> {
        Ok(Encoded { blocks: self.encoder.wait()?, outbox: self.last })
    }

    /// Takes the next blocks of a batch; `lens` are the lengths of their contents. Copies their payloads to pinned
    /// memory, and decodes them on the device if they are to be checked.
    pub(super) fn fetch(
        &mut self,
        Encoded { blocks, outbox }: &mut Encoded,
        lens: &[u32],
    ) -> Result<FetchedPiece, CoderError> {
        let outbox = self.outboxes[*outbox].buffer;
        let blocks: Vec<_> = blocks.drain(..lens.len()).collect();
        let places = || blocks.iter().filter_map(|block| block.payload);
        let start = places().map(|(start, _)| start).min().unwrap_or(0) & !3;
        let end = places().map(|(start, len)| start + u64::from(len)).max().unwrap_or(0);
        let len = end.saturating_sub(start).next_multiple_of(4) as usize;
        let mut bytes = match self.pinned.pop().filter(|bytes| bytes.len() >= len) {
            Some(bytes) => bytes,
            None => self.device.host_memory(len.next_multiple_of(PAGES))?,
        };
        if len > 0 {
            self.queue.read(outbox, start, &mut bytes[..len])?;
        }
        let sound = self.check(outbox, &blocks, lens, (start, &bytes))?;
        let here = |block: &EncodedBlock| {
            let payload = block.payload.map(|(at, len)| (at - start, len));
            EncodedBlock { payload, ..*block }
        };
        let blocks =
            blocks.iter().zip(sound).map(|(block, is_sound)| is_sound.then(|| here(block)));
        Ok(FetchedPiece { blocks: blocks.collect(), bytes })
    }

    /// Decodes payloads in an outbox on the device. Returns for each block whether its payload is right. `bytes` is the
    /// host's copy of the outbox from offset `from` on.
    fn check(
        &mut self,
        outbox: BufferId,
        blocks: &[EncodedBlock],
        lens: &[u32],
        (from, bytes): (u64, &[u8]),
    ) -> Result<Vec<bool>, CoderError> {
        let Some(checker) = &mut self.checker else { return Ok(vec![true; blocks.len()]) };
        checker.clear();
        let (position, filters) = (0, self.key.recipe.filter.chain());
        let mut places = Vec::with_capacity(blocks.len());
        for (block, &content_len) in blocks.iter().zip(lens) {
            let Some((start, payload_len)) = block.payload else { continue };
            places.push(PayloadPlace { start, payload_len, content_len, position, filters });
            let payload = &bytes[(start - from) as usize..][..payload_len as usize];
            checker.expect(PayloadFeatures::of(payload, content_len as usize));
        }
        if places.is_empty() {
            return Ok(vec![true; blocks.len()]);
        }
        checker.take(outbox, &mut places)?;
        let mut decoded = checker.decode(&places)?.into_iter();
        let is_sound = |block: &EncodedBlock| {
            block.payload.is_none()
                || decoded.next().is_some_and(|decoded| {
                    decoded.is_decoded
                        && (decoded.payload_crc, decoded.content_crc)
                            == (block.payload_crc, block.content_crc)
                })
        };
        Ok(blocks.iter().map(is_sound).collect())
    }
}
