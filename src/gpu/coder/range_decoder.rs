//! Decodes batches of payloads, and moves parts of the contents to buffers of the caller's.
//!
//! ```text
//! payloads ─▶ payload ─▶ contents ─▶ buffers of the caller's
//!         upload     decode      place
//! ```
//!
//! After the upload, the device does the rest without the host. So the caller waits once per batch, and several
//! decoders can each have a batch in flight. Blocks that need no decoding are uploaded to `contents`.
//!
//! A block with distant matches takes two decoders with the same queue. One decodes the own bytes of the block and of
//! its sources, and moves them to the `contents` of the other. The other [restores](RangeTask::Restore) the block: it
//! computes the checksum of its contents, and moves the wanted parts.

use super::batch::Batch;
use super::{CoderError, DecodedBlock};
use crate::codec::filter::FilterChain;
use crate::format::Pipeline;
use crate::gpu::device::{BufferId, Device, DeviceError, Dispatch, Limits, Queue};
use crate::gpu::model::budget::BlockCost;
use crate::gpu::model::plan::{Plan, PlanError, Run, Shape};
use crate::gpu::stages::filter::{ModuleStep, Undoing};
use crate::gpu::stages::job::{Job, JobResult, Undo};
use crate::gpu::stages::lz77_decode::PayloadFeatures;
use crate::gpu::stages::moves::{self, Ends, Move};
use crate::gpu::stages::pipelines;

/// The task of a decoder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum RangeTask {
    /// Decodes payloads of this pipeline, which is not [`Pipeline::Store`].
    Decode(Pipeline),
    /// Moves uploaded bytes.
    Move,
    /// Moves contents that other decoders have assembled. The blocks have no payloads.
    Restore,
}

/// Decodes batches and moves their contents to any places.
pub(crate) struct RangeDecoder<'d> {
    batch: Batch<'d>,
    task: RangeTask,
    /// The most moves that are on the device at once.
    most_moves: usize,
    /// The buffer that payloads are uploaded to, and its size in bytes.
    into: &'static str,
    room: u64,
    /// For each block of the last batch, whether the host must undo its filters.
    still_filtered: Vec<bool>,
}

/// A block of a batch: an uploaded payload, or contents to restore, which have no payload.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct RawBlock {
    /// Its offset: a multiple of 16.
    pub(crate) payload_start: u32,
    /// Its length: no more than that of the contents.
    pub(crate) payload_len: u32,
    /// Length of the contents: no more than a slot.
    pub(crate) content_len: u32,
    /// Where the block begins in the contents of its frame, in bytes; only modules need it.
    pub(crate) position: u64,
    /// The filters to undo.
    pub(crate) filters: Option<FilterChain>,
    /// The features of the payload.
    pub(crate) features: PayloadFeatures,
}

/// Where the bytes of a part come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The contents of this block of the batch, from this offset on.
    Contents(u32, u32),
    /// The uploaded bytes, from this offset on.
    Raw(u32),
    /// A buffer: its id, its length in bytes, and the offset to start from.
    Buffer(BufferId, u32, u32),
    /// This byte, repeated.
    Fill(u8),
}

/// A part of the contents, and where it goes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct MovedPart {
    /// Where it comes from.
    pub(crate) origin: Origin,
    /// Number of bytes.
    pub(crate) bytes: u32,
    /// The caller's buffer.
    pub(crate) buffer: BufferId,
    /// The end of the range that may be written there, in bytes.
    pub(crate) buffer_end: u64,
    /// Offset in that buffer, in bytes.
    pub(crate) at: u64,
}

/// Moves that are uploaded together, and the runs that carry them out.
#[derive(Default)]
struct Placing {
    moves: Vec<Move>,
    runs: Vec<PlaceRun>,
}

/// Moves from one buffer to another.
struct PlaceRun {
    run: Run,
    source: BufferId,
    buffer: BufferId,
}

fn plan(
    limits: &Limits,
    task: RangeTask,
    shape: Shape,
    features: PayloadFeatures,
    modules: &[ModuleStep],
) -> Result<Plan, PlanError> {
    match task {
        RangeTask::Decode(pipeline) => {
            pipelines::decode_and_move(limits, pipeline, shape, features, modules)
        }
        RangeTask::Move => pipelines::moves_alone(shape),
        RangeTask::Restore => pipelines::restore(limits, shape),
    }
}

impl<'d> RangeDecoder<'d> {
    /// Makes a decoder for up to `blocks` blocks at once, each with up to `block_len` bytes of contents, with a queue
    /// of `device`.
    ///
    /// # Errors
    /// Fails if the device cannot run the decoder, or has too little memory.
    pub(crate) fn new(
        device: &'d dyn Device,
        queue: Box<dyn Queue + 'd>,
        task: RangeTask,
        block_len: u32,
        blocks: u32,
    ) -> Result<Self, CoderError> {
        let planner = Box::new(move |limits: &Limits, shape, features, modules: &[ModuleStep]| {
            plan(limits, task, shape, features, modules)
        });
        let shape = Shape::new(blocks, block_len);
        let batch = Batch::in_queue(device, Some(queue), shape, &[], planner)?;
        let into = match task {
            RangeTask::Decode(_) => "payload",
            RangeTask::Move | RangeTask::Restore => "contents",
        };
        let buffer = batch.plan.buffers.iter().find(|buffer| buffer.name == into);
        let room = buffer.map_or(0, |buffer| buffer.bytes);
        let most_moves = moves::max_moves(&batch.plan);
        Ok(Self { batch, task, most_moves, into, room, still_filtered: Vec::new() })
    }

    /// The cost of one block. Batches are sized by it.
    ///
    /// # Errors
    /// Fails like [`Self::new`], except for errors of the device.
    pub(crate) fn cost_of_block(
        limits: &Limits,
        task: RangeTask,
        block_len: u32,
    ) -> Result<BlockCost, CoderError> {
        let plan = |shape| plan(limits, task, shape, PayloadFeatures::default(), &[]);
        Ok(BlockCost::of(plan, block_len)?)
    }

    /// Bytes of device memory that this decoder takes.
    pub(crate) fn memory(&self) -> u64 {
        self.batch.memory.bytes()
    }

    /// Sets how long [`Self::wait`] waits at most.
    #[cfg(test)]
    pub(crate) fn batch_deadline(&mut self, deadline: std::time::Duration) {
        self.batch.queue.set_deadline(deadline);
    }

    /// The most bytes that a batch can upload.
    pub(crate) fn room(&self) -> u64 {
        self.room
    }

    /// A part whose destination is byte `at` of block `block`'s contents here, for restoring. The decoder is for
    /// [`RangeTask::Restore`].
    pub(crate) fn restored_part(
        &self,
        origin: Origin,
        bytes: u32,
        (block, at): (u32, u32),
    ) -> MovedPart {
        let at = u64::from(block) * u64::from(self.batch.most.slot) + u64::from(at);
        MovedPart {
            origin,
            bytes,
            buffer: self.batch.memory.named(self.into),
            buffer_end: self.room,
            at,
        }
    }

    /// Sets the steps that undo modules in later batches, in the order of the modules' numbers.
    pub(crate) fn set_modules(&mut self, modules: &[ModuleStep]) {
        self.batch.set_modules(modules);
    }

    /// Has `fill` write bytes, and copies them to byte `at` of the payloads on the device. `bytes` says how many they
    /// are, and how many later calls may copy: see [`Queue::write_with`].
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn upload_with(
        &mut self,
        at: u64,
        bytes: (usize, usize),
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), CoderError> {
        Ok(self.batch.queue.write_with(self.batch.memory.named(self.into), at, bytes, fill)?)
    }

    /// Starts to decode `blocks`, and to move `parts` of their contents and of the uploaded bytes. [`Self::wait`]
    /// waits.
    ///
    /// Parts of damaged blocks move as well: the caller checks the results.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn submit(
        &mut self,
        blocks: &[RawBlock],
        parts: &mut [MovedPart],
    ) -> Result<(), CoderError> {
        self.still_filtered.clear();
        let placings = self.placings(parts);
        // Upload the first moves before the kernels: a copy behind them would wait, and other queues' copies might wait
        // for it. Usually all moves fit at once.
        let (now, later) = placings.split_at(placings.len().min(1));
        now.iter().try_for_each(|placing| self.write_moves(placing))?;
        if !blocks.is_empty() {
            self.decode(blocks)?;
        }
        now.iter().try_for_each(|placing| self.place(placing))?;
        for placing in later {
            self.write_moves(placing)?;
            self.place(placing)?;
        }
        if !blocks.is_empty() {
            self.batch.read_results_ahead()?;
        }
        Ok(self.batch.queue.flush()?)
    }

    /// Whether `blocks` [run at once](Device::runs_at_once), together.
    ///
    /// # Errors
    /// If the device cannot run them at all.
    pub(crate) fn runs_at_once(&mut self, blocks: &[RawBlock]) -> Result<bool, CoderError> {
        if blocks.is_empty() {
            return Ok(true);
        }
        let features = blocks.iter().fold(PayloadFeatures::default(), |features, block| {
            let undo = self.undo_of(block).flatten().unwrap_or_default();
            features.and(block.features).and_filters(Undoing::of(&undo))
        });
        self.batch.runs_at_once(blocks.len(), features)
    }

    /// How to undo a block's filters: `None` if it has none, `Some(None)` if the host must undo them.
    fn undo_of(&self, block: &RawBlock) -> Option<Option<Undo>> {
        block.filters.as_ref().map(|chain| Undo::of(chain, self.batch.modules()))
    }

    fn decode(&mut self, blocks: &[RawBlock]) -> Result<(), CoderError> {
        let mut features = PayloadFeatures::default();
        let mut jobs = Vec::with_capacity(blocks.len());
        for block in blocks {
            let undo = self.undo_of(block);
            self.still_filtered.push(undo == Some(None));
            let undo = undo.flatten().unwrap_or_default();
            features = features.and(block.features).and_filters(Undoing::of(&undo));
            let RawBlock { payload_len, content_len, .. } = *block;
            let payload_start = block.payload_start / 16;
            let position = (block.position >> 16) as u32;
            jobs.push(Job { content_len, payload_len, payload_start, undo, position });
        }
        self.batch.enqueue(&jobs, features)
    }

    /// Builds the moves for `parts`, whose order does not matter.
    fn placings(&self, parts: &mut [MovedPart]) -> Vec<Placing> {
        let Batch { memory, most, .. } = &self.batch;
        let (uploaded, contents) = (memory.named(self.into), memory.find("contents"));
        let slot = most.slot;
        let source = |part: &MovedPart| match part.origin {
            Origin::Contents(..) => contents.unwrap_or(uploaded),
            Origin::Raw(_) | Origin::Fill(_) => uploaded,
            Origin::Buffer(buffer, ..) => buffer,
        };
        let run_of = |part: &MovedPart| (part.buffer.0, source(part).0);
        parts.sort_by_key(run_of);
        let mut placings = Vec::new();
        for at_once in parts.chunks(self.most_moves) {
            let mut placing = Placing::default();
            for some in at_once.chunk_by(|a, b| run_of(a) == run_of(b)) {
                let Some(first) = some.first() else { continue };
                let start = placing.moves.len() as u32;
                placing.moves.extend(some.iter().map(|part| match part.origin {
                    Origin::Contents(block, offset) => {
                        Move::new(block * slot + offset, part.bytes, part.at)
                    }
                    Origin::Raw(offset) | Origin::Buffer(_, _, offset) => {
                        Move::new(offset, part.bytes, part.at)
                    }
                    Origin::Fill(byte) => Move::fill(byte, part.bytes, part.at),
                }));
                let longest = some.iter().map(|part| part.bytes).max().unwrap_or(0);
                let ends = Ends {
                    source: match first.origin {
                        Origin::Contents(..) => most.blocks * slot,
                        Origin::Buffer(_, bytes, _) => bytes,
                        Origin::Raw(_) | Origin::Fill(_) => self.room as u32,
                    },
                    destination: first.buffer_end,
                };
                let run = moves::run(start..placing.moves.len() as u32, longest, ends);
                let (source, buffer) = (source(first), first.buffer);
                placing.runs.push(PlaceRun { run, source, buffer });
            }
            placings.push(placing);
        }
        placings
    }

    fn write_moves(&mut self, placing: &Placing) -> Result<(), DeviceError> {
        let moves = self.batch.memory.named("moves");
        self.batch.queue.write(moves, 0, bytemuck::cast_slice(&placing.moves))
    }

    /// Queues the runs whose moves have been written.
    fn place(&mut self, placing: &Placing) -> Result<(), DeviceError> {
        let moves = self.batch.memory.named("moves");
        placing.runs.iter().try_for_each(|PlaceRun { run, source, buffer }| {
            self.batch.queue.dispatch(&Dispatch {
                kernel: run.kernel,
                entry: run.entry,
                defines: &run.defines,
                buffers: &[*source, moves, *buffer],
                args: &run.args,
                groups: run.groups,
                threads: run.threads,
            })
        })
    }

    /// Waits for the submitted work, and returns the results of its blocks. The parts are then in their places.
    ///
    /// # Errors
    /// If the device fails.
    pub(crate) fn wait(&mut self) -> Result<Vec<DecodedBlock>, CoderError> {
        if self.still_filtered.is_empty() {
            self.batch.queue.finish()?;
            return Ok(Vec::new());
        }
        let block = |(result, is_filtered): (&JobResult, &bool)| DecodedBlock {
            // Blocks without payloads get no status.
            is_decoded: self.task == RangeTask::Restore || result.status == 0,
            payload_crc: result.payload_crc,
            content_crc: result.content_crc,
            is_filtered: *is_filtered,
        };
        Ok(self.batch.wait()?.iter().zip(&self.still_filtered).map(block).collect())
    }
}

/// The most blocks of a batch whose offsets in `raw` and `contents` fit in 32 bits.
pub(crate) fn max_blocks(block_len: u32) -> u32 {
    let slot = Shape::new(1, block_len).slot;
    (u32::MAX / (slot + 256)).max(1)
}
