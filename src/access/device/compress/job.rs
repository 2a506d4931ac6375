//! Contents of a buffer that the device compresses, and what a coder for them is made for.

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

/// Bytes of a buffer of a device.
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
    /// What it takes to encode a block, its part of the second outbox included.
    pub(super) fn encoding(&self, limits: &Limits) -> Result<BlockCost, PlanError> {
        let Self { recipe, block_len, .. } = *self;
        let encode = BlockCost::of(|shape| pipelines::encode(limits, &recipe, shape), block_len)?;
        let outbox = self.outbox_bytes(limits, 1)?;
        Ok(BlockCost { memory: encode.memory + outbox, ..encode })
    }

    /// What it takes to check a block; `None` if none is to be.
    pub(super) fn checking(&self, limits: &Limits) -> Result<Option<BlockCost>, PlanError> {
        let Self { recipe, block_len, verifies } = *self;
        let decoding = pipelines::decoding(&recipe);
        let plan = |shape| pipelines::decode(limits, decoding, shape, PayloadFeatures::default());
        verifies.then(|| BlockCost::of(plan, block_len)).transpose()
    }

    /// Whether the device is to have one batch at a time. Searches with many candidates keep all of it busy, and are
    /// slower beside other kernels, which need the cache too. The others leave much of it idle, which other batches can
    /// use.
    pub(super) fn encodes_alone(&self) -> bool {
        matches!(self.recipe.codec, Codec::Lz77(params) if params.search.has_many_candidates())
    }

    /// Bytes of an outbox for `blocks` blocks: as many as an encoder has for their payloads.
    pub(super) fn outbox_bytes(&self, limits: &Limits, blocks: u32) -> Result<u64, PlanError> {
        let Self { recipe, block_len, .. } = *self;
        let plan = pipelines::encode(limits, &recipe, Shape::new(blocks, block_len))?;
        Ok(BufferBytes::of(&plan, "packed").payloads)
    }
}

/// Bytes of contents of blocks that come to the host at once, if they are not checked.
const PIECE: u64 = 64 << 20;

/// How many pieces are on the host at once: one that is copied there, and one that is written.
pub(super) const PIECES: u64 = 2;

/// Contents that the device compresses.
pub(super) struct CompressJob {
    pub(super) contents: DeviceContents,
    pub(super) header: FrameHeader,
    key: CoderKey,
    /// The method of blocks that the device encodes.
    method: Method,
    /// What fits the device.
    fitting: Batches,
    /// How many threads encode, and the most blocks of their batches.
    pub(super) slots: u32,
    pub(super) batch: u32,
    /// The most blocks that come to the host at once.
    pub(super) piece: u32,
    /// The device memory of all batches.
    memory: u64,
    /// What follows the last whole word of the contents.
    pub(super) tail: Vec<u8>,
    pub(super) statistics: Option<Statistics>,
}

impl CompressJob {
    /// `None` if the host is to compress these contents. `fitting` finds out what fits the device.
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
        // While a piece is written, it may be there twice more, if the host makes it anew.
        let in_memory = options.memory / ((PIECES + 1) * u64::from(block_len));
        let slots = u64::from(fitting.slots).min(in_memory);
        if slots == 0 {
            return Ok(None);
        }
        let in_memory = in_memory / slots;
        // The device checks whole batches: a few blocks would wait long beside the batch that it encodes.
        let (longest, piece) = match options.verify {
            true => (in_memory, in_memory),
            false => (u64::MAX, (PIECE / u64::from(block_len)).max(1)),
        };
        // Batches are equally long, and each thread has something to do.
        let blocks = contents.len.div_ceil(block_len.into());
        let rounds = blocks.div_ceil(slots * u64::from(fitting.batch).min(longest));
        let batch = blocks.div_ceil(slots * rounds);
        let piece = piece.min(batch).min(in_memory);
        let checked = checking.map_or(0, |checking| checking.memory * piece);
        let memory = slots * (encoding.memory * batch + checked);
        let (slots, batch, piece) = (slots as u32, batch as u32, piece as u32);
        if let Some(statistics) = &options.statistics {
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
            statistics: options.statistics.clone(),
        }))
    }

    /// What of the device is kept for the next job.
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

    /// Bytes of contents of a batch of each thread.
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

    /// What the header of a block says that the device has `encoded`.
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

/// The device has failed.
pub(super) fn failed(error: DeviceError) -> Error {
    Error::Io(io::Error::other(error))
}
