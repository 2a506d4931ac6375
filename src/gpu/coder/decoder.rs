//! Decodes batches of payloads.

use super::BlockTask;
use super::StageTime;
use super::batch::Batch;
use super::{BufferBytes, CallerBuffers, CoderError};
use crate::codec::filter::FilterChain;
use crate::format::Pipeline;
use crate::gpu::device::{BufferId, Device, Limits};
use crate::gpu::model::budget::BlockCost;
use crate::gpu::model::plan::Shape;
use crate::gpu::stages::filter::{ModuleStep, Undoing};
use crate::gpu::stages::job::{Job, JobResult, Undo};
use crate::gpu::stages::lz77_decode::PayloadFeatures;
use crate::gpu::stages::pipelines;

/// Decodes batches on a device.
pub struct Decoder<'d> {
    batch: Batch<'d>,
    filled: u64,
    features: PayloadFeatures,
    /// For each block of the last batch, whether the host must undo its filters.
    still_filtered: Vec<bool>,
}

/// Where a payload is on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadPlace {
    /// Its offset among the batch's payloads: a multiple of 16.
    pub start: u64,
    /// Its length in bytes.
    pub payload_len: u32,
    /// Length of the block's contents in bytes.
    pub content_len: u32,
    /// Where the block begins in the contents of its frame, in bytes; only modules need it.
    pub position: u64,
    /// The block's filters, which the decoder undoes if the device can: see [`DecodedBlock::is_filtered`].
    pub filters: Option<FilterChain>,
}

/// The result of decoding a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodedBlock {
    /// Whether the payload was well-formed and is now decoded. If not, the contents of its slot are unspecified.
    pub is_decoded: bool,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// CRC-32C of the contents, for comparison with the recorded one: a damaged payload can still be well-formed.
    pub content_crc: u32,
    /// Whether the contents are still filtered. Devices cannot undo filters of decimal floats, and decoders that
    /// callers make cannot undo modules.
    pub is_filtered: bool,
}

impl<'d> Decoder<'d> {
    /// Makes a decoder for up to `blocks` blocks of `pipeline` at once, each with up to `block_len` bytes of contents.
    ///
    /// # Errors
    /// Fails if the device cannot run the decoder or has too little memory, or if a buffer of the caller's is too
    /// small.
    pub fn new(
        device: &'d dyn Device,
        pipeline: Pipeline,
        block_len: u32,
        blocks: u32,
        own: CallerBuffers,
    ) -> Result<Self, CoderError> {
        let needed = || Self::buffer_bytes(device.limits(), pipeline, block_len, blocks);
        own.check(device, needed)?;
        Self::in_buffers(device, pipeline, block_len, blocks, own)
    }

    /// Like [`Self::new`], for buffers already known to be large enough.
    pub(super) fn in_buffers(
        device: &'d dyn Device,
        pipeline: Pipeline,
        block_len: u32,
        blocks: u32,
        own: CallerBuffers,
    ) -> Result<Self, CoderError> {
        let planner = Box::new(move |limits: &Limits, shape, features, modules: &[ModuleStep]| {
            pipelines::decode_with(limits, pipeline, shape, features, modules)
        });
        let most = Shape::new(blocks, block_len);
        Ok(Self {
            batch: Batch::new(device, most, &own.named("payload"), planner)?,
            filled: 0,
            features: PayloadFeatures::default(),
            still_filtered: Vec::new(),
        })
    }

    /// Bytes of device memory that such a decoder takes, including the caller's buffers.
    ///
    /// # Errors
    /// Fails like [`Self::new`], except for errors of the device.
    pub fn memory_for(
        limits: &Limits,
        pipeline: Pipeline,
        block_len: u32,
        blocks: u32,
    ) -> Result<u64, CoderError> {
        let shape = Shape::new(blocks, block_len);
        Ok(pipelines::decode(limits, pipeline, shape, PayloadFeatures::default())?.memory())
    }

    /// The sizes that the caller's buffers must have for such a decoder.
    ///
    /// # Errors
    /// Fails like [`Self::new`], except for errors of the device.
    pub fn buffer_bytes(
        limits: &Limits,
        pipeline: Pipeline,
        block_len: u32,
        blocks: u32,
    ) -> Result<BufferBytes, CoderError> {
        let shape = Shape::new(blocks, block_len);
        let plan = pipelines::decode(limits, pipeline, shape, PayloadFeatures::default())?;
        Ok(BufferBytes::of(&plan, "payload"))
    }

    /// The cost of decoding one block. Batches are sized by it.
    ///
    /// # Errors
    /// Fails like [`Self::new`], except for errors of the device.
    pub fn cost_of_block(
        limits: &Limits,
        pipeline: Pipeline,
        block_len: u32,
    ) -> Result<BlockCost, CoderError> {
        Ok(BlockTask::Decode(pipeline).cost(limits, block_len)?)
    }

    /// Bytes of device memory that this decoder takes, including the caller's buffers.
    pub fn memory(&self) -> u64 {
        self.batch.memory.bytes()
    }

    /// The buffer for the payloads. Each begins at a multiple of 16 bytes.
    pub fn payloads(&self) -> BufferId {
        self.batch.memory.named("payload")
    }

    /// The buffer that holds the contents after [`Self::decode`]. Block b begins at byte b · [`Self::slot`].
    pub fn contents(&self) -> BufferId {
        self.batch.memory.named("contents")
    }

    /// Distance in bytes between the beginnings of two blocks' contents.
    pub fn slot(&self) -> u32 {
        self.batch.most.slot
    }

    /// Sets the steps that undo modules in later batches, in the order of the modules' numbers.
    pub(crate) fn set_modules(&mut self, modules: &[ModuleStep]) {
        self.batch.set_modules(modules);
    }

    /// Forgets the payloads written so far.
    pub fn clear(&mut self) {
        self.filled = 0;
        self.features = PayloadFeatures::default();
    }

    /// Prepares for payloads that are on the device already and have at most `features`: see
    /// [`PayloadFeatures::of`].
    pub fn expect(&mut self, features: PayloadFeatures) {
        self.features = self.features.and(features);
    }

    /// Copies a payload from the host to the device, after those written before, and returns its place. Returns `None`
    /// if it is longer than a payload of `content_len` bytes can be.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write(
        &mut self,
        payload: &[u8],
        content_len: u32,
    ) -> Result<Option<PayloadPlace>, CoderError> {
        if payload.len() > content_len as usize || content_len > self.slot() {
            return Ok(None);
        }
        let places = self.write_all(&[(payload, content_len)])?;
        Ok(places.into_iter().next())
    }

    /// Copies payloads, each with the length of its contents, from the host to the device after those written before,
    /// and returns their places. No payload may be longer than its contents, and no contents longer than a slot.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write_all(
        &mut self,
        payloads: &[(&[u8], u32)],
    ) -> Result<Vec<PayloadPlace>, CoderError> {
        let mut places = Vec::with_capacity(payloads.len());
        for &(payload, content_len) in payloads {
            self.features = self.features.and(PayloadFeatures::of(payload, content_len as usize));
            let start = self.filled;
            self.filled = (start + payload.len() as u64).next_multiple_of(16);
            let payload_len = payload.len() as u32;
            let (position, filters) = (0, None);
            places.push(PayloadPlace { start, payload_len, content_len, position, filters });
        }
        let parts =
            places.iter().zip(payloads).map(|(place, (payload, _))| (place.start, *payload));
        self.batch.write("payload", parts)?;
        Ok(places)
    }

    /// Copies payloads from another buffer of the device, at `places`, which ascend, and replaces these by the new
    /// places.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn take(
        &mut self,
        from: BufferId,
        places: &mut [PayloadPlace],
    ) -> Result<(), CoderError> {
        let payloads = self.payloads();
        let padded = |place: &PayloadPlace| u64::from(place.payload_len).next_multiple_of(16);
        for run in places.chunk_by_mut(|one, next| one.start + padded(one) == next.start) {
            let (start, to) = (run[0].start, self.filled);
            for place in &mut *run {
                place.start = self.filled;
                self.filled += padded(place);
            }
            self.batch.queue.copy((from, start), (payloads, to), self.filled - to)?;
        }
        Ok(())
    }

    /// Decodes the payloads. Payload b becomes block b.
    ///
    /// # Errors
    /// If the device fails.
    pub fn decode(&mut self, payloads: &[PayloadPlace]) -> Result<Vec<DecodedBlock>, CoderError> {
        self.decode_while(payloads, || ())
    }

    /// Like [`Self::decode`], and runs `meanwhile` while the device works.
    ///
    /// # Errors
    /// If the device fails.
    pub fn decode_while(
        &mut self,
        payloads: &[PayloadPlace],
        meanwhile: impl FnOnce(),
    ) -> Result<Vec<DecodedBlock>, CoderError> {
        self.submit(payloads)?;
        meanwhile();
        self.wait()
    }

    /// Starts to decode, like [`Self::decode`], without waiting; [`Self::wait`] waits. Work that the caller queues
    /// behind it in the same stream finds the contents.
    ///
    /// Until [`Self::wait`] returns, nothing may write to the payloads, and a second batch would replace the first.
    /// Other decoders may have batches in flight meanwhile.
    ///
    /// # Errors
    /// If the device fails.
    pub fn submit(&mut self, payloads: &[PayloadPlace]) -> Result<(), CoderError> {
        let mut features = self.features;
        let mut jobs = Vec::with_capacity(payloads.len());
        self.still_filtered.clear();
        for place in payloads {
            let undo = place.filters.as_ref().map(|chain| Undo::of(chain, self.batch.modules()));
            self.still_filtered.push(undo == Some(None));
            let undo = undo.flatten().unwrap_or_default();
            features = features.and_filters(Undoing::of(&undo));
            jobs.push(Job {
                content_len: place.content_len,
                payload_len: place.payload_len,
                payload_start: (place.start / 16) as u32,
                undo,
                position: (place.position >> 16) as u32,
            });
        }
        self.batch.submit(&jobs, features)
    }

    /// Waits for the last batch, and returns its results; none if no batch was submitted.
    ///
    /// # Errors
    /// If the device fails.
    pub fn wait(&mut self) -> Result<Vec<DecodedBlock>, CoderError> {
        let block = |(result, is_filtered): (&JobResult, &bool)| DecodedBlock {
            is_decoded: result.status == 0,
            payload_crc: result.payload_crc,
            content_crc: result.content_crc,
            is_filtered: *is_filtered,
        };
        Ok(self.batch.wait()?.iter().zip(&self.still_filtered).map(block).collect())
    }

    /// Copies the contents of block `block`, from their beginning, to the host.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read(&mut self, block: u32, into: &mut [u8]) -> Result<(), CoderError> {
        let (offset, _) = self.place(block, into.len());
        Ok(self.batch.read_range("contents", offset, into)?)
    }

    fn place(&self, block: u32, len: usize) -> (u64, usize) {
        (u64::from(block) * u64::from(self.slot()), len)
    }

    /// Copies the contents of several blocks to the host. `blocks` lists their numbers, ascending, and lengths. Calls
    /// `take` with an index into `blocks` and one piece of that block after another.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read_all(
        &mut self,
        blocks: &[(u32, usize)],
        take: impl FnMut(usize, &[u8]),
    ) -> Result<(), CoderError> {
        let ranges: Vec<_> = blocks.iter().map(|&(block, len)| self.place(block, len)).collect();
        Ok(self.batch.read("contents", &ranges, take)?)
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
