//! Whole batches on a device: from contents to payloads and back, with nothing visiting the host in between.
//!
//! An [`Encoder`] or a [`Decoder`] owns the device memory of one batch and a queue. Its bytes come from the host
//! ([`Encoder::write`]) or lie on the device already: a caller can have them written where [`Encoder::contents`] says,
//! or bring buffers of its own. What either takes is known before it is made: [`Encoder::memory_for`].

use std::fmt;
use std::time::Duration;

use super::budget::BlockCost;
use super::cost::CostError;
use super::device::{BufferId, Device, DeviceError, Limits, Queue};
use super::job::{Job, JobResult};
use super::lz77_decode::Needs;
use super::pipelines;
use super::plan::{Plan, PlanError, Shape, Step};
use super::run::{Memory, submit};
use crate::error::Error;
use crate::format::Pipeline;
use crate::pipeline::Options;
use crate::pipeline::gpu::Work;
use crate::pipeline::level::Recipe;

/// Why a batch was not done.
#[derive(Debug)]
pub enum CoderError {
    /// The options make no sense.
    Options(Error),
    /// There is no plan for it on this device.
    Plan(PlanError),
    /// The device failed.
    Device(DeviceError),
}

impl fmt::Display for CoderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(error) => error.fmt(f),
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

/// A stage and how long it took on the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StageTime {
    /// Its name.
    pub stage: &'static str,
    /// All its dispatches together.
    pub time: Duration,
}

/// What makes plans for batches of any size up to the first.
type Planner<'d> = dyn Fn(&Limits, Shape, Needs) -> Result<Plan, PlanError> + Send + 'd;

/// The memory of a batch, and plans that run in it.
struct Batch<'d> {
    device: &'d dyn Device,
    queue: Box<dyn Queue + 'd>,
    memory: Memory<'d>,
    /// The plan for as many blocks as were in the last batch, and what these needed.
    plan: Plan,
    needs: Needs,
    most: Shape,
    planner: Box<Planner<'d>>,
}

impl<'d> Batch<'d> {
    fn new(
        device: &'d dyn Device,
        most: Shape,
        own: &[(&'static str, BufferId)],
        planner: Box<Planner<'d>>,
    ) -> Result<Self, CoderError> {
        let needs = Needs::default();
        let plan = planner(device.limits(), most, needs)?;
        let memory = Memory::allocate_but(device, &plan, own)?;
        Ok(Self { device, queue: device.queue()?, memory, plan, needs, most, planner })
    }

    /// Gives the device the jobs of a batch, runs it, does something else meanwhile, and waits for what became of them.
    fn run(
        &mut self,
        jobs: &[Job],
        needs: Needs,
        meanwhile: impl FnOnce(),
    ) -> Result<Vec<JobResult>, CoderError> {
        assert!(!jobs.is_empty() && jobs.len() <= self.most.blocks as usize);
        if jobs.len() != self.plan.shape.blocks as usize || needs != self.needs {
            // The parts of blocks lie where they lay: a plan for fewer runs in the memory of one for more.
            let shape = Shape { blocks: jobs.len() as u32, ..self.most };
            self.plan = (self.planner)(self.device.limits(), shape, needs)?;
            self.needs = needs;
        }
        let memory = &self.memory;
        self.queue.write(memory.named("jobs"), 0, bytemuck::cast_slice(jobs))?;
        submit(&self.plan, memory, &mut *self.queue)?;
        self.queue.flush()?;
        meanwhile();
        let mut results = vec![JobResult::default(); jobs.len()];
        let into = bytemuck::cast_slice_mut(&mut results);
        self.queue.read(memory.named("results"), 0, into)?;
        Ok(results)
    }

    /// The stages of the last batch in the order in which they began.
    fn take_times(&mut self) -> Result<Vec<StageTime>, CoderError> {
        let times = self.queue.take_times()?;
        let runs = self.plan.steps.iter().filter_map(|step| match step {
            Step::Run(run) => Some(run.stage),
            Step::Clear(_) => None,
        });
        let mut stages: Vec<StageTime> = Vec::new();
        for (stage, time) in runs.zip(times) {
            match stages.iter_mut().find(|other| other.stage == stage) {
                Some(other) => other.time += time,
                None => stages.push(StageTime { stage, time }),
            }
        }
        Ok(stages)
    }

    /// Writes to a buffer of the batch: each of `parts` from its offset on, in ascending order, and zeros behind it up to
    /// a multiple of 16 bytes. Parts that are close to each other go together.
    fn write<'p>(
        &mut self,
        name: &str,
        parts: impl IntoIterator<Item = (u64, &'p [u8])>,
    ) -> Result<(), DeviceError> {
        let buffer = self.memory.named(name);
        let mut run: Vec<&[u8]> = Vec::new();
        let (mut start, mut end) = (0, 0);
        for (offset, part) in parts {
            if offset != end && !run.is_empty() {
                self.queue.write_parts(buffer, start, &run)?;
                run.clear();
            }
            if run.is_empty() {
                start = offset;
            }
            let padded = part.len().next_multiple_of(16);
            run.extend([part, &[0; 16][..padded - part.len()]]);
            end = offset + padded as u64;
        }
        if run.is_empty() { Ok(()) } else { self.queue.write_parts(buffer, start, &run) }
    }

    /// Reads from a buffer of the batch.
    fn read_range(&mut self, name: &str, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        if offset.is_multiple_of(4) && into.len().is_multiple_of(4) {
            return self.queue.read(self.memory.named(name), offset, into);
        }
        let mut done = 0;
        self.read(name, &[(offset, into.len())], |_, piece| {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })
    }

    /// Reads `ranges` of a buffer of the batch, given as offset and length in ascending order: `take` is given them piece
    /// by piece, with their numbers. Ranges that are close to each other go together.
    fn read(
        &mut self,
        name: &str,
        ranges: &[(u64, usize)],
        mut take: impl FnMut(usize, &[u8]),
    ) -> Result<(), DeviceError> {
        let buffer = self.memory.named(name);
        let mut first = 0;
        while first < ranges.len() {
            let start = ranges[first].0 & !3;
            let end_of = |&(offset, len): &(u64, usize)| offset + len as u64;
            let mut count = 1;
            while ranges[first + count..]
                .first()
                .is_some_and(|next| next.0 - end_of(&ranges[first + count - 1]) < MOST_BETWEEN)
            {
                count += 1;
            }
            let together = &ranges[first..first + count];
            let end = end_of(&together[count - 1]).next_multiple_of(4);
            let (mut at, mut number) = (start, 0);
            self.queue.read_with(buffer, start, end - start, &mut |piece| {
                let until = at + piece.len() as u64;
                while let Some(range) = together.get(number) {
                    let from = range.0.max(at);
                    let to = end_of(range).min(until);
                    if from < to {
                        take(first + number, &piece[(from - at) as usize..(to - at) as usize]);
                    }
                    if end_of(range) > until {
                        break;
                    }
                    number += 1;
                }
                at = until;
            })?;
            first += count;
        }
        Ok(())
    }
}

/// What is copied for nothing between two ranges rather than that they are copied one by one, in bytes.
const MOST_BETWEEN: u64 = 16 << 10;

/// Buffers of the caller's that take the place of those that a coder would allocate: each must be of the device, and at
/// least as large as [`Encoder::buffer_bytes`] or [`Decoder::buffer_bytes`] says.
#[derive(Debug, Clone, Copy, Default)]
pub struct Buffers {
    /// The contents of the blocks, slot after slot.
    pub contents: Option<BufferId>,
    /// Encoding: the payloads, one close behind the other. Decoding: the payloads.
    pub payloads: Option<BufferId>,
}

impl Buffers {
    fn named(&self, payloads: &'static str) -> Vec<(&'static str, BufferId)> {
        let contents = self.contents.map(|id| ("contents", id));
        contents.into_iter().chain(self.payloads.map(|id| (payloads, id))).collect()
    }
}

/// Bytes of the buffers that a caller can bring.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferBytes {
    /// See [`Buffers::contents`].
    pub contents: u64,
    /// See [`Buffers::payloads`].
    pub payloads: u64,
}

impl BufferBytes {
    fn of(plan: &Plan, payloads: &str) -> Self {
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
}

/// What became of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EncodedBlock {
    /// Its payload: where it begins among the batch's payloads, and its length in bytes. `None` if the payload would
    /// not be smaller than the contents: the block is to be stored.
    pub payload: Option<(u64, u32)>,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// CRC-32C of the contents.
    pub contents_crc: u32,
}

fn recipe_of(options: &Options) -> Result<(Recipe, u32), CoderError> {
    let block = options.chosen_block_size().map_err(CoderError::Options)?;
    let block = u32::try_from(block).map_err(|_| PlanError::Declined("blocks of 4 GiB".into()))?;
    Ok((options.recipe().map_err(CoderError::Options)?, block))
}

impl<'d> Encoder<'d> {
    /// An encoder of up to `blocks` blocks at once, each of up to `options`' block size.
    ///
    /// # Errors
    /// If the options make no sense, the device cannot run what they ask for, or has not got the memory.
    pub fn new(
        device: &'d dyn Device,
        options: &Options,
        blocks: u32,
        own: Buffers,
    ) -> Result<Self, CoderError> {
        let (recipe, block) = recipe_of(options)?;
        Self::with_recipe(device, recipe, Shape::new(blocks, block), own)
    }

    pub(crate) fn with_recipe(
        device: &'d dyn Device,
        recipe: Recipe,
        most: Shape,
        own: Buffers,
    ) -> Result<Self, CoderError> {
        let planner =
            Box::new(move |limits: &Limits, shape, _| pipelines::encode(limits, &recipe, shape));
        Ok(Self { batch: Batch::new(device, most, &own.named("packed"), planner)? })
    }

    /// Bytes of device memory that such an encoder takes, buffers of the caller's included.
    ///
    /// # Errors
    /// As those of [`Self::new`] that need no device.
    pub fn memory_for(limits: &Limits, options: &Options, blocks: u32) -> Result<u64, CoderError> {
        let (recipe, block) = recipe_of(options)?;
        Ok(pipelines::encode(limits, &recipe, Shape::new(blocks, block))?.memory())
    }

    /// How large buffers of the caller's must be for such an encoder.
    ///
    /// # Errors
    /// As those of [`Self::new`] that need no device.
    pub fn buffer_bytes(
        limits: &Limits,
        options: &Options,
        blocks: u32,
    ) -> Result<BufferBytes, CoderError> {
        let (recipe, block) = recipe_of(options)?;
        let plan = pipelines::encode(limits, &recipe, Shape::new(blocks, block))?;
        Ok(BufferBytes::of(&plan, "packed"))
    }

    /// What encoding takes for one block, verification included if the options ask for it, from which the batches follow that a device is given.
    ///
    /// # Errors
    /// As those of [`Self::new`] that need no device.
    pub fn cost_of_block(limits: &Limits, options: &Options) -> Result<BlockCost, CoderError> {
        let (recipe, block) = recipe_of(options)?;
        let work = Work::Encode { recipe, verify: options.verify };
        Ok(work.cost(limits, block)?)
    }

    /// Bytes of device memory that it takes, buffers of the caller's included.
    pub fn memory(&self) -> u64 {
        self.batch.memory.bytes()
    }

    /// Where the contents belong: block b from byte b times [`Self::slot`] on.
    pub fn contents(&self) -> BufferId {
        self.batch.memory.named("contents")
    }

    /// Where the payloads are after [`Self::encode`].
    pub fn payloads(&self) -> BufferId {
        self.batch.memory.named("packed")
    }

    /// Bytes from the beginning of one block's contents to the next one's.
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

    /// Writes the contents of blocks from the first one on.
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

    /// Encodes as many blocks as there are lengths, in bytes of their contents, each at least 1.
    ///
    /// # Errors
    /// If the device fails.
    pub fn encode(&mut self, lens: &[u32]) -> Result<Vec<EncodedBlock>, CoderError> {
        self.encode_while(lens, || ())
    }

    /// The same; while the device is at it, `meanwhile` is run.
    ///
    /// # Errors
    /// If the device fails.
    pub fn encode_while(
        &mut self,
        lens: &[u32],
        meanwhile: impl FnOnce(),
    ) -> Result<Vec<EncodedBlock>, CoderError> {
        let job = |&contents_len: &u32| Job { contents_len, ..Job::default() };
        let jobs: Vec<_> = lens.iter().map(job).collect();
        let results = self.batch.run(&jobs, Needs::default(), meanwhile)?;
        let mut start = 0;
        let block = |(result, &len): (&JobResult, &u32)| {
            let is_smaller = result.status == 0 && result.payload_len < len;
            let payload = is_smaller.then_some((start, result.payload_len));
            if result.status == 0 {
                start += u64::from(result.payload_len).next_multiple_of(16);
            }
            let (payload_crc, contents_crc) = (result.payload_crc, result.contents_crc);
            EncodedBlock { payload, payload_crc, contents_crc }
        };
        Ok(results.iter().zip(lens).map(block).collect())
    }

    /// Reads from the payloads to the host.
    ///
    /// # Errors
    /// If the device fails.
    pub fn read(&mut self, start: u64, into: &mut [u8]) -> Result<(), CoderError> {
        Ok(self.batch.read_range("packed", start, into)?)
    }

    /// Reads `ranges` of the payloads, given as start and length in ascending order: `take` is given them piece by piece,
    /// with their numbers.
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

    /// A decoder of this encoder's payloads, where they lie. It writes contents to memory that the encoder has done with:
    /// a payload is to be read or decoded before the next batch is encoded.
    ///
    /// # Errors
    /// If the device cannot run it or has not got the memory.
    pub(crate) fn checker(&self, pipeline: Pipeline) -> Result<Decoder<'d>, CoderError> {
        let own = Buffers {
            contents: Some(self.batch.memory.named("payload")),
            payloads: Some(self.payloads()),
        };
        let Shape { blocks, slot } = self.batch.most;
        Decoder::new(self.batch.device, pipeline, slot, blocks, own)
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
