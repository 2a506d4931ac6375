//! What a call compresses, and how it is divided into batches.

use std::io;
use std::ops::Range;
use std::sync::Arc;

use crate::access::device::core::{BufferHandle, DeviceCore};
use crate::codec::filter::Filter;
use crate::codec::{Codec, Recipe};
use crate::error::Error;
use crate::format::{FrameHeader, Method, ModuleTable};
use crate::gpu::coder::{BufferBytes, EncodedBlock, PayloadFeatures};
use crate::gpu::device::{BufferId, Device, DeviceError, Limits};
use crate::gpu::model::budget::{Batches, BlockCost};
use crate::gpu::model::plan::{PlanError, Shape};
use crate::gpu::stages::pipelines;
use crate::pipeline::Options;
use crate::pipeline::engine::Coded;
use crate::pipeline::statistics::Statistics;
use crate::stream::{EncodeBasis, ReadAt};

/// Bytes in a buffer of a device.
#[derive(Clone)]
pub(super) struct DeviceContents {
    pub(super) buffer: Arc<BufferHandle>,
    /// Their offset in the buffer.
    pub(super) start: u64,
    pub(super) len: u64,
}

impl DeviceContents {
    /// The buffer.
    pub(super) fn id(&self) -> BufferId {
        self.buffer.id()
    }
}

impl ReadAt for DeviceContents {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.len);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.buffer.copy_to_host(self.start + offset, into).map_err(io::Error::other)
    }
}

/// What a coder is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CoderKey {
    pub(super) recipe: Recipe,
    pub(super) block_len: u32,
    pub(super) verifies: bool,
}

impl CoderKey {
    /// The cost of encoding a block, with its part of the second outbox.
    pub(super) fn encoding(&self, limits: &Limits) -> Result<BlockCost, PlanError> {
        let Self { recipe, block_len, .. } = *self;
        let encode = BlockCost::of(|shape| pipelines::encode(limits, &recipe, shape), block_len)?;
        let outbox = self.outbox_bytes(limits, 1)?;
        Ok(BlockCost { memory: encode.memory + outbox, ..encode })
    }

    /// The cost of checking a block; `None` if blocks are not checked.
    pub(super) fn checking(&self, limits: &Limits) -> Result<Option<BlockCost>, PlanError> {
        let Self { recipe, block_len, verifies } = *self;
        let decoding = pipelines::decoding(&recipe);
        let plan = |shape| pipelines::decode(limits, decoding, shape, PayloadFeatures::default());
        verifies.then(|| BlockCost::of(plan, block_len)).transpose()
    }

    /// Whether the device encodes one batch at a time. Searches with many candidates keep the whole device busy, and
    /// are slower beside other kernels that use the cache. Other searches leave much of the device idle for other
    /// batches.
    pub(super) fn encodes_alone(&self) -> bool {
        matches!(self.recipe.codec, Codec::Lz77(params) if params.search.has_many_candidates())
    }

    /// Bytes of an outbox for `blocks` blocks: as many as an encoder needs for their payloads.
    pub(super) fn outbox_bytes(&self, limits: &Limits, blocks: u32) -> Result<u64, PlanError> {
        let Self { recipe, block_len, .. } = *self;
        let plan = pipelines::encode(limits, &recipe, Shape::new(blocks, block_len))?;
        Ok(BufferBytes::of(&plan, "packed").payloads)
    }
}

/// Bytes of contents of a piece, if blocks are not checked.
const PIECE: u64 = 64 << 20;

/// Pieces on the host at once: one that is being copied there, and one that is being written.
pub(super) const PIECES: u64 = 2;

/// Contents that the device compresses.
pub(super) struct CompressJob {
    pub(super) contents: DeviceContents,
    pub(super) header: FrameHeader,
    key: CoderKey,
    /// The method of blocks that the device encodes.
    method: Method,
    /// The batches that fit the device.
    fitting: Batches,
    /// The number of threads, and the most blocks of their batches.
    pub(super) slots: u32,
    pub(super) batch: u32,
    /// The most blocks of a piece.
    pub(super) piece: u32,
    /// The device memory of all batches.
    memory: u64,
    /// The bytes after the last whole word of the contents.
    pub(super) tail: Vec<u8>,
    pub(super) statistics: Option<Statistics>,
}

impl CompressJob {
    /// The job of compressing `contents` on the device; `None` if the host must do it. `fitting` returns the batches
    /// that fit the device.
    pub(super) fn new(
        contents: &DeviceContents,
        core: &DeviceCore,
        options: &Options,
        fitting: impl FnOnce(&CoderKey, &BlockCost) -> Option<Batches>,
    ) -> Result<Option<Self>, Error> {
        let EncodeBasis { header, recipe, .. } = EncodeBasis::new(options, None)?;
        let block_len = header.block_size() as u32;
        let method = match recipe.codec {
            Codec::Lz77(_) => Method::Lz77,
            Codec::Bwt(_) => Method::Bwt,
            Codec::Store | Codec::Smallest(_) => return Ok(None),
        };
        let is_for_device = recipe.filter != Filter::Auto
            && options.chosen_long_distance() == 0
            && !options.rsyncable
            && contents.len > u64::from(block_len)
            && contents.start.is_multiple_of(4);
        if !is_for_device {
            return Ok(None);
        }
        core.check().map_err(failed)?;
        let limits = core.device.limits();
        let key = CoderKey { recipe, block_len, verifies: options.verify };
        let (Ok(encoding), Ok(checking)) = (key.encoding(limits), key.checking(limits)) else {
            return Ok(None);
        };
        let cost = checking.map_or(encoding, |checking| encoding.and(&checking));
        let Some(fitting) = fitting(&key, &cost) else { return Ok(None) };
        // If the host encodes a piece again while it is written, the piece takes its memory twice more.
        let in_memory = options.resources.memory / ((PIECES + 1) * u64::from(block_len));
        let slots = u64::from(fitting.slots).min(in_memory);
        if slots == 0 {
            return Ok(None);
        }
        let in_memory = in_memory / slots;
        // The device checks whole batches. A check of a few blocks would wait long beside the batch that is being
        // encoded.
        let (longest, piece) = match options.verify {
            true => (in_memory, in_memory),
            false => (u64::MAX, (PIECE / u64::from(block_len)).max(1)),
        };
        // All batches have the same length, and every thread gets one.
        let blocks = contents.len.div_ceil(block_len.into());
        let rounds = blocks.div_ceil(slots * u64::from(fitting.batch).min(longest));
        let batch = blocks.div_ceil(slots * rounds);
        let piece = piece.min(batch).min(in_memory);
        let checked = checking.map_or(0, |checking| checking.memory * piece);
        let memory = slots * (encoding.memory * batch + checked);
        let (slots, batch, piece) = (slots as u32, batch as u32, piece as u32);
        if let Some(statistics) = &options.resources.statistics {
            statistics.device_joins(limits, memory);
            statistics.on_device(|device| (device.slots, device.batch) = (slots, batch));
        }
        let mut tail = vec![0; (contents.len % 4) as usize];
        contents.read_exact_at(&mut tail, contents.len & !3)?;
        Ok(Some(Self {
            contents: contents.clone(),
            header,
            key,
            method,
            fitting,
            slots,
            batch,
            piece,
            memory,
            tail,
            statistics: options.resources.statistics.clone(),
        }))
    }

    /// What the threads keep for the next job.
    pub(super) fn kept(&self) -> (CoderKey, Batches, u64) {
        (self.key, self.fitting, self.memory)
    }

    pub(super) fn key(&self) -> CoderKey {
        self.key
    }

    pub(super) fn recipe(&self) -> Recipe {
        self.key.recipe
    }

    /// The modules that frames carry.
    pub(super) fn modules(&self) -> &ModuleTable {
        &self.header.modules
    }

    /// How many blocks there are.
    pub(super) fn blocks(&self) -> u64 {
        self.contents.len.div_ceil(self.key.block_len.into())
    }

    /// How many batches there are.
    pub(super) fn batches(&self) -> u64 {
        self.blocks().div_ceil(self.batch.into())
    }

    /// Bytes of contents in one batch of every thread.
    pub(super) fn round(&self) -> u64 {
        u64::from(self.slots) * u64::from(self.batch) * u64::from(self.key.block_len)
    }

    /// Whether a batch ends before block `number`.
    pub(super) fn ends_batch(&self, number: u64) -> bool {
        number.is_multiple_of(self.batch.into()) || number == self.blocks()
    }

    /// Offset and length of the contents of block `number`.
    pub(super) fn block(&self, number: u64) -> (u64, u32) {
        let offset = number * u64::from(self.key.block_len);
        (offset, (self.contents.len - offset).min(self.key.block_len.into()) as u32)
    }

    /// Lengths of the contents of these blocks.
    pub(super) fn lens(&self, numbers: Range<u64>) -> Vec<u32> {
        numbers.map(|number| self.block(number).1).collect()
    }

    /// The header fields of a block that the device has `encoded`.
    pub(super) fn coded(&self, encoded: &EncodedBlock) -> Coded {
        let EncodedBlock { payload, payload_crc, content_crc } = *encoded;
        match payload {
            None => Coded::stored(content_crc),
            Some(_) => {
                let (method, filters) = (self.method, self.key.recipe.filter.chain());
                Coded { method, filters, payload_crc, content_crc }
            }
        }
    }
}

/// The error of a device that has failed.
pub(super) fn failed(error: DeviceError) -> Error {
    Error::Io(io::Error::other(error))
}
