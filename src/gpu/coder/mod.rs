//! Whole batches on a device: from contents to payloads and back. Nothing returns to the host in between.
//!
//! An [`Encoder`] or a [`Decoder`] owns a queue and the device memory of one batch. The input either comes from the
//! host ([`Encoder::write`]) or is on the device already: the caller can write it to [`Encoder::contents`] there, or
//! supply its own buffers. [`Encoder::memory_for`] computes in advance how much memory an encoder takes.
//!
//! # Between buffers of the caller's
//! pz can encode the output of the caller's own kernels in place, and decode into the buffers that they read:
//!
//! 1. Make a device in the caller's context: [`CudaDevice::with_ordinal`], [`OpenClDevice::from_context`] or
//!    [`WebGpuDevice::from_wgpu`]. With CUDA, it can work in a stream of the caller's: [`CudaDevice::on_stream`].
//! 2. Make buffers at least as large as [`Encoder::buffer_bytes`] or [`Decoder::buffer_bytes`] says, with the
//!    interface's own calls, and give them to [`Device::import`].
//! 3. Make the coder with these [`CallerBuffers`]. Block b of the contents begins at byte b · [`Encoder::slot`].
//! 4. Call [`Encoder::encode`] with the blocks' lengths; it returns where each payload lies. Or announce the features
//!    of the payloads ([`Decoder::expect`]), and call [`Decoder::decode`] with their places.
//!
//! The results are in the caller's buffers when the call returns. [`Encoder::submit`] and [`Decoder::submit`] only
//! start the work. The results are in the buffers after [`Encoder::wait`] or [`Decoder::wait`]. In a stream of the
//! caller's, work that the caller queues after `submit` finds them there without waiting.
//!
//! [`CudaDevice::with_ordinal`]: super::device::CudaDevice::with_ordinal
//! [`CudaDevice::on_stream`]: super::device::CudaDevice::on_stream
//! [`OpenClDevice::from_context`]: super::device::OpenClDevice::from_context
//! [`WebGpuDevice::from_wgpu`]: super::device::WebGpuDevice::from_wgpu

mod batch;
mod decoder;
mod range_decoder;
mod work;

use std::fmt;

pub use super::model::budget::BlockCost;
pub use super::model::cost::CostError;
pub use super::model::plan::PlanError;
pub use super::model::predict::StageTime;
pub use super::stages::lz77_decode::PayloadFeatures;
pub use decoder::{DecodedBlock, Decoder, PayloadPlace};
pub(crate) use range_decoder::{MovedPart, Origin, RangeDecoder, RangeTask, RawBlock, max_blocks};
pub(crate) use work::BlockTask;
pub use work::Encoding;

use batch::Batch;

use super::device::{BufferId, Device, DeviceError, Limits};
use super::model::plan::{Plan, Shape};
use super::stages::forward_filter::{Passes, why_not};
use super::stages::job::{Job, JobResult};
use super::stages::pipelines;
use crate::codec::Recipe;
use crate::codec::filter::{Filter, FilterChain};
use crate::format::Pipeline;

/// Why a batch failed.
#[derive(Debug)]
pub enum CoderError {
    /// The device has no plan for this work.
    Plan(PlanError),
    /// The device failed.
    Device(DeviceError),
}

impl fmt::Display for CoderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plan(error) => error.fmt(f),
            Self::Device(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CoderError {}

impl From<PlanError> for CoderError {
    fn from(error: PlanError) -> Self {
        Self::Plan(error)
    }
}

impl From<CostError> for CoderError {
    fn from(error: CostError) -> Self {
        Self::Plan(PlanError::Cost(error))
    }
}

impl From<DeviceError> for CoderError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// The caller's own buffers, used instead of those that a coder would allocate: allocated on the device or
/// [imported](Device::import). Each must be at least as large as [`Encoder::buffer_bytes`] or [`Decoder::buffer_bytes`]
/// says; a smaller one is an error.
#[derive(Debug, Clone, Copy, Default)]
pub struct CallerBuffers {
    /// The contents of the blocks, slot after slot.
    pub contents: Option<BufferId>,
    /// Encoding: the payloads, one directly after another. Decoding: the payloads.
    pub payloads: Option<BufferId>,
}

impl CallerBuffers {
    fn named(&self, payloads: &'static str) -> Vec<(&'static str, BufferId)> {
        let contents = self.contents.map(|id| ("contents", id));
        contents.into_iter().chain(self.payloads.map(|id| (payloads, id))).collect()
    }

    /// Checks that `device` has these buffers, and that they are large enough.
    fn check(
        &self,
        device: &dyn Device,
        needed: impl FnOnce() -> Result<BufferBytes, CoderError>,
    ) -> Result<(), CoderError> {
        let Self { contents, payloads } = *self;
        if contents.is_none() && payloads.is_none() {
            return Ok(());
        }
        let unsuitable = |why: String| Err(DeviceError::Unsupported(why).into());
        if contents == payloads {
            return unsuitable("contents and payloads cannot share a buffer".into());
        }
        let needed = needed()?;
        for (what, buffer, needed) in
            [("contents", contents, needed.contents), ("payloads", payloads, needed.payloads)]
        {
            let Some(buffer) = buffer else { continue };
            match device.buffer_bytes(buffer) {
                None => return unsuitable(format!("the device has no buffer for the {what}")),
                Some(bytes) if bytes < needed => {
                    return unsuitable(format!(
                        "the buffer for the {what} has {bytes} bytes, and must have {needed}"
                    ));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

/// Sizes of the buffers that a caller can supply, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferBytes {
    /// See [`CallerBuffers::contents`].
    pub contents: u64,
    /// See [`CallerBuffers::payloads`].
    pub payloads: u64,
}

impl BufferBytes {
    pub(crate) fn of(plan: &Plan, payloads: &str) -> Self {
        let bytes = |name| {
            let buffer = plan.buffers.iter().find(|buffer| buffer.name == name);
            buffer.map_or(0, |buffer| buffer.bytes)
        };
        Self { contents: bytes("contents"), payloads: bytes(payloads) }
    }
}

/// Encodes batches on a device.
pub struct Encoder<'d> {
    batch: Batch<'d>,
    /// The chain for all blocks.
    filters: Option<FilterChain>,
    /// Lengths of the blocks of the last batch.
    lens: Vec<u32>,
}

/// The result of encoding a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedBlock {
    /// Offset of its payload among the batch's payloads, and its length in bytes. `None` if the payload would not be
    /// smaller than the contents: the caller should store the block.
    pub payload: Option<(u64, u32)>,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// CRC-32C of the contents.
    pub content_crc: u32,
}

impl<'d> Encoder<'d> {
    /// Makes an encoder for up to `blocks` blocks at once, each of up to `encoding`'s block size. At level 9 it encodes
    /// by the BWT alone: it does not try LZ77 as well. It applies the encoding's chain of filters to each block, but
    /// does not choose one.
    ///
    /// # Errors
    /// Fails if the device does not support such an encoding, or has too little memory, or if a buffer of the caller's
    /// is too small.
    pub fn new(
        device: &'d dyn Device,
        encoding: &Encoding,
        blocks: u32,
        own: CallerBuffers,
    ) -> Result<Self, CoderError> {
        let Encoding { recipe, block_len, .. } = *encoding;
        if recipe.filter == Filter::Auto {
            let what = "filters are chosen for each block on the host";
            return Err(PlanError::Declined(what.into()).into());
        }
        own.check(device, || Self::buffer_bytes(device.limits(), encoding, blocks))?;
        Self::with_recipe(device, recipe, Shape::new(blocks, block_len), own)
    }

    pub(crate) fn with_recipe(
        device: &'d dyn Device,
        recipe: Recipe,
        most: Shape,
        own: CallerBuffers,
    ) -> Result<Self, CoderError> {
        let planner =
            Box::new(move |limits: &Limits, shape, features: PayloadFeatures, _: &[_]| {
                pipelines::encode_filtered(limits, &recipe, shape, features.passes())
            });
        let batch = Batch::new(device, most, &own.named("packed"), planner)?;
        Ok(Self { batch, filters: recipe.filter.chain(), lens: Vec::new() })
    }

    /// Bytes of device memory that such an encoder takes, including the caller's buffers.
    ///
    /// # Errors
    /// Fails like [`Self::new`], except for errors of the device.
    pub fn memory_for(
        limits: &Limits,
        encoding: &Encoding,
        blocks: u32,
    ) -> Result<u64, CoderError> {
        let Encoding { recipe, block_len, .. } = *encoding;
        Ok(pipelines::encode(limits, &recipe, Shape::new(blocks, block_len))?.memory())
    }

    /// The sizes that the caller's buffers must have for such an encoder.
    ///
    /// # Errors
    /// Fails like [`Self::new`], except for errors of the device.
    pub fn buffer_bytes(
        limits: &Limits,
        encoding: &Encoding,
        blocks: u32,
    ) -> Result<BufferBytes, CoderError> {
        let Encoding { recipe, block_len, .. } = *encoding;
        let plan = pipelines::encode(limits, &recipe, Shape::new(blocks, block_len))?;
        Ok(BufferBytes::of(&plan, "packed"))
    }

    /// The cost of encoding one block, including verification if the encoding includes it. Batches are sized by it.
    ///
    /// # Errors
    /// Fails like [`Self::new`], except for errors of the device.
    pub fn cost_of_block(limits: &Limits, encoding: &Encoding) -> Result<BlockCost, CoderError> {
        let Encoding { recipe, block_len, verify } = *encoding;
        Ok(BlockTask::Encode { recipe, verify }.cost(limits, block_len)?)
    }

    /// Bytes of device memory that this encoder takes, including the caller's buffers.
    pub fn memory(&self) -> u64 {
        self.batch.memory.bytes()
    }

    /// The buffer for the contents. Block b begins at byte b · [`Self::slot`].
    pub fn contents(&self) -> BufferId {
        self.batch.memory.named("contents")
    }

    /// The buffer that holds the payloads after [`Self::encode`].
    pub fn payloads(&self) -> BufferId {
        self.batch.memory.named("packed")
    }

    /// Distance in bytes between the beginnings of two blocks' contents.
    pub fn slot(&self) -> u32 {
        self.batch.most.slot
    }

    /// Writes the contents of block `block` from the host.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write(&mut self, block: u32, contents: &[u8]) -> Result<(), CoderError> {
        let offset = u64::from(block) * u64::from(self.slot());
        Ok(self.batch.write("contents", [(offset, contents)])?)
    }

    /// Writes the contents of several blocks, beginning with block 0.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write_all<'c>(
        &mut self,
        contents: impl IntoIterator<Item = &'c [u8]>,
    ) -> Result<(), CoderError> {
        let slot = u64::from(self.slot());
        let parts = (0..).zip(contents).map(|(block, contents)| (block * slot, contents));
        Ok(self.batch.write("contents", parts)?)
    }

    /// Copies the contents of several blocks of these lengths, beginning with block 0, from another buffer of the
    /// device. There they lie one after another from byte `start` on, a multiple of 4. All blocks but the last fill
    /// their slots. `tail` holds the bytes after the last whole word.
    ///
    /// # Errors
    /// If the device fails, or the buffer is shorter.
    pub(crate) fn copy_from(
        &mut self,
        (buffer, start): (BufferId, u64),
        lens: &[u32],
        tail: &[u8],
    ) -> Result<(), CoderError> {
        let contents = self.contents();
        let queue = &mut self.batch.queue;
        let len: u64 = lens.iter().map(|&len| u64::from(len)).sum();
        let words = len & !3;
        if !len.is_multiple_of(16) {
            // As after a copy from the host, zeros follow the contents.
            queue.clear(contents, len & !15, 16)?;
        }
        queue.copy((buffer, start), (contents, 0), words)?;
        if !len.is_multiple_of(4) {
            let mut word = [0; 4];
            word.iter_mut().zip(tail).for_each(|(byte, own)| *byte = *own);
            queue.write(contents, words, &word)?;
        }
        Ok(())
    }

    /// Announces that other encoders run on the device at the same time: see
    /// [`set_beside_others`](crate::gpu::device::Queue::set_beside_others).
    pub(crate) fn set_beside_others(&mut self) {
        self.batch.queue.set_beside_others();
    }

    /// Encodes one block for each entry of `lens`, the length of its contents in bytes (at least 1).
    ///
    /// # Errors
    /// If the device fails.
    pub fn encode(&mut self, lens: &[u32]) -> Result<Vec<EncodedBlock>, CoderError> {
        self.encode_while(lens, || ())
    }

    /// Like [`Self::encode`], and runs `meanwhile` while the device works.
    ///
    /// # Errors
    /// If the device fails.
    pub fn encode_while(
        &mut self,
        lens: &[u32],
        meanwhile: impl FnOnce(),
    ) -> Result<Vec<EncodedBlock>, CoderError> {
        self.submit(lens)?;
        meanwhile();
        self.wait()
    }

    /// Starts to encode, like [`Self::encode`], without waiting; [`Self::wait`] waits. Work that the caller queues
    /// behind it in the same stream finds the results.
    ///
    /// Until [`Self::wait`] returns, nothing may write to the contents, and a second batch would replace the first.
    /// Other encoders may have batches in flight meanwhile.
    ///
    /// # Errors
    /// If the device fails.
    pub fn submit(&mut self, lens: &[u32]) -> Result<(), CoderError> {
        let filters = self.filters;
        self.submit_filtered(lens.iter().map(|len| (*len, filters)))
    }

    /// Like [`Self::submit`], for blocks that each have their own chain, or none. The encoder was made for
    /// [`Filter::Auto`], or for this chain in all blocks.
    ///
    /// # Errors
    /// If the device fails, or if devices cannot apply a chain.
    pub(crate) fn submit_filtered(
        &mut self,
        blocks: impl IntoIterator<Item = (u32, Option<FilterChain>)>,
    ) -> Result<(), CoderError> {
        self.lens.clear();
        let mut jobs = Vec::new();
        let mut most = 0;
        for (content_len, filters) in blocks {
            let mut job = Job { content_len, ..Job::default() };
            if let Some(chain) = filters {
                let passes = Passes::of(&chain).ok_or_else(|| why_not(&chain))?;
                most = most.max(passes.count());
                job.undo = passes.to_job();
            }
            self.lens.push(content_len);
            jobs.push(job);
        }
        self.batch.submit(&jobs, PayloadFeatures::of_passes(most))
    }

    /// Waits for the last batch, and returns its results; none if no batch was submitted.
    ///
    /// # Errors
    /// If the device fails.
    pub fn wait(&mut self) -> Result<Vec<EncodedBlock>, CoderError> {
        let results = self.batch.wait()?;
        let mut start = 0;
        let block = |(result, &len): (&JobResult, &u32)| {
            let is_smaller = result.status == 0 && result.payload_len < len;
            let payload = is_smaller.then_some((start, result.payload_len));
            if result.status == 0 {
                start += u64::from(result.payload_len).next_multiple_of(16);
            }
            let (payload_crc, content_crc) = (result.payload_crc, result.content_crc);
            EncodedBlock { payload, payload_crc, content_crc }
        };
        Ok(results.iter().zip(&self.lens).map(block).collect())
    }

    /// Copies from the payloads to the host.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read(&mut self, start: u64, into: &mut [u8]) -> Result<(), CoderError> {
        Ok(self.batch.read_range("packed", start, into)?)
    }

    /// Copies `ranges` of the payloads to the host. A range is a start and a length; they ascend. Calls `take` with the
    /// number of a range and one piece of it after another.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read_all(
        &mut self,
        ranges: &[(u64, usize)],
        take: impl FnMut(usize, &[u8]),
    ) -> Result<(), CoderError> {
        Ok(self.batch.read("packed", ranges, take)?)
    }

    /// Makes the encoder write payloads to `buffer` from now on. It was made with a caller's buffer of the same size.
    pub(crate) fn set_payloads(&mut self, buffer: BufferId) {
        self.batch.memory.replace("packed", buffer);
    }

    /// Makes a decoder that reads this encoder's payloads in place. It writes the contents to memory that the encoder
    /// has finished with, so each payload must be read or decoded before the next batch is encoded.
    ///
    /// # Errors
    /// Fails if the device cannot run the decoder or has too little memory.
    pub(crate) fn checker(&self, pipeline: Pipeline) -> Result<Decoder<'d>, CoderError> {
        let own = CallerBuffers {
            contents: Some(self.batch.memory.named("payload")),
            payloads: Some(self.payloads()),
        };
        let Shape { blocks, slot } = self.batch.most;
        Decoder::in_buffers(self.batch.device, pipeline, slot, blocks, own)
    }

    /// Turns the timing of stages on or off.
    pub fn set_timing(&mut self, on: bool) {
        self.batch.queue.set_timing(on);
    }

    /// How long each stage of the last batch took on the device; empty if the device cannot measure it.
    ///
    /// # Errors
    /// If the device fails.
    pub fn take_times(&mut self) -> Result<Vec<StageTime>, CoderError> {
        self.batch.take_times()
    }
}
