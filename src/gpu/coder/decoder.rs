//! Batches of payloads, decoded.

use super::batch::{Batch, StageTime};
use super::{BufferBytes, Buffers, CoderError};
use crate::format::Pipeline;
use crate::gpu::budget::BlockCost;
use crate::gpu::device::{BufferId, Device, Limits};
use crate::gpu::job::{Job, JobResult};
use crate::gpu::lz77_decode::Needs;
use crate::gpu::pipelines;
use crate::gpu::plan::Shape;
use crate::pipeline::gpu::Work;

/// Decodes batches on a device.
pub struct Decoder<'d> {
    batch: Batch<'d>,
    filled: u64,
    needs: Needs,
}

/// A payload that lies on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadPlace {
    /// Where it begins among the batch's payloads: a multiple of 16.
    pub start: u64,
    /// Its length in bytes.
    pub payload_len: u32,
    /// Bytes of the block's contents.
    pub contents_len: u32,
}

/// What became of a payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecodedBlock {
    /// Whether the payload is well-formed and has been decoded. Otherwise its slot holds nothing of use.
    pub is_decoded: bool,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// CRC-32C of the contents, to be compared with the one that was recorded: a payload can be damaged and still
    /// well-formed.
    pub contents_crc: u32,
}

impl<'d> Decoder<'d> {
    /// A decoder of up to `blocks` blocks of `pipeline` at once, each with up to `block_len` bytes of contents.
    ///
    /// # Errors
    /// If the device cannot run it or has not got the memory.
    pub fn new(
        device: &'d dyn Device,
        pipeline: Pipeline,
        block_len: u32,
        blocks: u32,
        own: Buffers,
    ) -> Result<Self, CoderError> {
        let planner =
            Box::new(move |l: &Limits, shape, needs| pipelines::decode(l, pipeline, shape, needs));
        let most = Shape::new(blocks, block_len);
        Ok(Self {
            batch: Batch::new(device, most, &own.named("payload"), planner)?,
            filled: 0,
            needs: Needs::default(),
        })
    }

    /// Bytes of device memory that such a decoder takes, buffers of the caller's included.
    ///
    /// # Errors
    /// As those of [`Self::new`] that need no device.
    pub fn memory_for(
        limits: &Limits,
        pipeline: Pipeline,
        block_len: u32,
        blocks: u32,
    ) -> Result<u64, CoderError> {
        let shape = Shape::new(blocks, block_len);
        Ok(pipelines::decode(limits, pipeline, shape, Needs::default())?.memory())
    }

    /// How large buffers of the caller's must be for such a decoder.
    ///
    /// # Errors
    /// As those of [`Self::new`] that need no device.
    pub fn buffer_bytes(
        limits: &Limits,
        pipeline: Pipeline,
        block_len: u32,
        blocks: u32,
    ) -> Result<BufferBytes, CoderError> {
        let shape = Shape::new(blocks, block_len);
        let plan = pipelines::decode(limits, pipeline, shape, Needs::default())?;
        Ok(BufferBytes::of(&plan, "payload"))
    }

    /// What decoding takes for one block, from which the batches follow that a device is given.
    ///
    /// # Errors
    /// As those of [`Self::new`] that need no device.
    pub fn cost_of_block(
        limits: &Limits,
        pipeline: Pipeline,
        block_len: u32,
    ) -> Result<BlockCost, CoderError> {
        Ok(Work::Decode(pipeline).cost(limits, block_len)?)
    }

    /// Bytes of device memory that it takes, buffers of the caller's included.
    pub fn memory(&self) -> u64 {
        self.batch.memory.bytes()
    }

    /// Where the payloads belong, each from a multiple of 16 bytes on.
    pub fn payloads(&self) -> BufferId {
        self.batch.memory.named("payload")
    }

    /// Where the contents are after [`Self::decode`]: block b from byte b times [`Self::slot`] on.
    pub fn contents(&self) -> BufferId {
        self.batch.memory.named("contents")
    }

    /// Bytes from the beginning of one block's contents to the next one's.
    pub fn slot(&self) -> u32 {
        self.batch.most.slot
    }

    /// Forgets the payloads that were written.
    pub fn clear(&mut self) {
        self.filled = 0;
        self.needs = Needs::default();
    }

    /// Prepares for payloads that are on the device already, and need no more than this: see [`Needs::of`].
    pub fn expect(&mut self, needs: Needs) {
        self.needs = self.needs.and(needs);
    }

    /// Writes a payload from the host behind those written before, and says where it lies. `None` if it is too long:
    /// longer than the payload of `contents_len` bytes can be.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write(
        &mut self,
        payload: &[u8],
        contents_len: u32,
    ) -> Result<Option<PayloadPlace>, CoderError> {
        if payload.len() > contents_len as usize || contents_len > self.slot() {
            return Ok(None);
        }
        let places = self.write_all(&[(payload, contents_len)])?;
        Ok(places.into_iter().next())
    }

    /// Writes payloads with the lengths of their contents from the host behind those written before, and says where they
    /// lie. Each must be no longer than its contents, and these no longer than a slot.
    ///
    /// # Errors
    /// If the device fails.
    pub fn write_all(
        &mut self,
        payloads: &[(&[u8], u32)],
    ) -> Result<Vec<PayloadPlace>, CoderError> {
        let mut places = Vec::with_capacity(payloads.len());
        for &(payload, contents_len) in payloads {
            self.needs = self.needs.and(Needs::of(payload, contents_len as usize));
            let start = self.filled;
            self.filled = (start + payload.len() as u64).next_multiple_of(16);
            places.push(PayloadPlace { start, payload_len: payload.len() as u32, contents_len });
        }
        let parts =
            places.iter().zip(payloads).map(|(place, (payload, _))| (place.start, *payload));
        self.batch.write("payload", parts)?;
        Ok(places)
    }

    /// Decodes the payloads; block b is the b-th.
    ///
    /// # Errors
    /// If the device fails.
    pub fn decode(&mut self, payloads: &[PayloadPlace]) -> Result<Vec<DecodedBlock>, CoderError> {
        self.decode_while(payloads, || ())
    }

    /// The same; while the device is at it, `meanwhile` is run.
    ///
    /// # Errors
    /// If the device fails.
    pub fn decode_while(
        &mut self,
        payloads: &[PayloadPlace],
        meanwhile: impl FnOnce(),
    ) -> Result<Vec<DecodedBlock>, CoderError> {
        let job = |place: &PayloadPlace| Job {
            contents_len: place.contents_len,
            payload_len: place.payload_len,
            payload_start: (place.start / 16) as u32,
            ..Job::default()
        };
        let jobs: Vec<_> = payloads.iter().map(job).collect();
        let block = |result: &JobResult| DecodedBlock {
            is_decoded: result.status == 0,
            payload_crc: result.payload_crc,
            contents_crc: result.contents_crc,
        };
        Ok(self.batch.run(&jobs, self.needs, meanwhile)?.iter().map(block).collect())
    }

    /// Reads the contents of block `block` to the host, from their beginning on.
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

    /// Reads the contents of blocks, given as number and length in ascending order: `take` is given them piece by piece,
    /// with their places in `blocks`.
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

    /// From now on, measure how long the stages take.
    pub fn set_timing(&mut self, on: bool) {
        self.batch.queue.set_timing(on);
    }

    /// How long each stage of the last batch took on the device; empty if it cannot be measured.
    ///
    /// # Errors
    /// If the device fails.
    pub fn take_times(&mut self) -> Result<Vec<StageTime>, CoderError> {
        self.batch.take_times()
    }
}
