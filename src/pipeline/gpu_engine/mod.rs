//! The engine that runs batches of blocks on a device.
//!
//! The engine trusts nothing that a device returns. It checks contents and payloads against their checksums, and
//! decodes each block that the device encoded before the block is used. If the device declines a block, fails or
//! returns wrong bytes, the engine leaves the block untouched for the CPU. The output is therefore the same with any
//! device, and a failing device never fails the job.

mod attempt;
mod batch_limit;
mod known;
mod smallest;

use std::sync::OnceLock;

use rayon::iter::{IntoParallelRefIterator, ParallelIterator};
use rayon::{ThreadPool, ThreadPoolBuilder};

pub(crate) use self::batch_limit::AfterError;
use self::batch_limit::BatchLimit;
pub(super) use self::batch_limit::MAX_PATIENCE;
pub(super) use self::known::Passed;
use super::cpu::CpuEngine;
use super::engine::{DecodeJob, EncodeJob, Engine};
use super::statistics::{DeviceStatistics, Statistics};
use crate::codec::filter::Filter;
use crate::codec::{Codec, Recipe};
use crate::format::{Method, Pipeline};
use crate::gpu::coder::{BlockTask, CallerBuffers, CoderError, Decoder, Encoder, StageTime};
use crate::gpu::device::Device;
use crate::gpu::model::plan::{PlanError, Shape};
use crate::gpu::stages::forward_filter::Passes;
use crate::gpu::stages::pipelines;
use crate::sync::Mutex;

/// Runs one batch at a time on a device, and keeps the batch's device memory for the next one. Each slot of the device
/// has its own engine.
///
/// The engine leaves blocks that it could not do without an outcome; the CPU does them.
pub(crate) struct GpuEngine<'d> {
    device: &'d dyn Device,
    /// The most blocks in a batch, and the length of the longest block.
    max_shape: Shape,
    /// Whether encoded blocks are decoded again to check them.
    verifies: bool,
    statistics: Option<&'d Statistics>,
    /// Chooses filters, on the host.
    chooser: CpuEngine,
    /// Created on first use.
    helpers: OnceLock<Option<ThreadPool>>,
    state: Mutex<State<'d>>,
}

#[derive(Default)]
struct State<'d> {
    coder: Coder<'d>,
    /// Bytes of device memory that `coder` takes, as its kernels' costs predict.
    predicted: u64,
    /// Why this engine has stopped using the device.
    broken: Option<String>,
    /// Limits on the batch size, for each kind of work that ran out of device memory.
    limits: Vec<BatchLimit>,
    /// Batches encoded so far.
    encoded: u32,
    /// Batches in which the device returned wrong bytes.
    wrong: u32,
}

/// The kind of work that a coder was made for.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Encode(Recipe),
    Decode(Pipeline),
}

#[derive(Default)]
enum Coder<'d> {
    #[default]
    None,
    Encode(Recipe, Box<Encoder<'d>>, Option<Box<Decoder<'d>>>),
    Decode(Pipeline, Box<Decoder<'d>>),
}

/// Threads that read the blocks of a batch from the input and choose their filters: a single thread does so more slowly
/// than a device takes them.
pub(super) const HELPERS: usize = 4;

/// The engine retires a device that returned wrong bytes in this many batches.
const MAX_WRONG_BATCHES: u32 = 3;

/// In one of this many encoded batches, the CPU also decodes one block. This shows whether device and CPU agree on
/// which payloads are well-formed.
const CPU_CHECK_INTERVAL: u32 = 16;

impl<'d> GpuEngine<'d> {
    /// An engine for batches of at most `max_shape.blocks` blocks of at most `max_shape.slot` bytes. If `verifies` is
    /// set, it decodes every block again after encoding it.
    pub(crate) fn new(
        device: &'d dyn Device,
        max_shape: Shape,
        verifies: bool,
        statistics: Option<&'d Statistics>,
    ) -> Self {
        let (chooser, helpers, state) = Default::default();
        Self { device, max_shape, verifies, statistics, chooser, helpers, state }
    }

    /// Allocates the memory for batches of `work`, so that the first batch need not. If that fails, the first batch
    /// tries again.
    pub(crate) fn make_ready(&self, work: &BlockTask) {
        let mut state = self.state.lock();
        let made = match work {
            BlockTask::Encode { recipe, .. } => {
                self.make_encoder(&mut state, recipe, self.max_shape)
            }
            BlockTask::Decode(pipeline) => self.make_decoder(&mut state, *pipeline, self.max_shape),
        };
        if made.is_err() {
            self.set_coder(&mut state, Coder::None, self.max_shape);
        }
    }

    /// Tells the device that the calling thread, which ends with the job, is this engine's.
    pub(crate) fn stay_on_thread(&self) {
        self.device.stay_on_thread();
    }

    /// Updates the device's statistics, if there are any.
    fn note(&self, take: impl FnOnce(&mut DeviceStatistics)) {
        if let Some(statistics) = self.statistics {
            statistics.on_device(take);
        }
    }

    fn note_line(&self, note: &str) {
        if let Some(statistics) = self.statistics {
            statistics.note_of_device(note);
        }
    }

    fn wants_stages(&self) -> bool {
        self.statistics.is_some_and(Statistics::wants_stages)
    }

    /// Adds the times of a batch's stages to the statistics, if they are wanted.
    fn note_stages(
        &self,
        take: impl FnOnce() -> Result<Vec<StageTime>, CoderError>,
    ) -> Result<(), CoderError> {
        if let Some(statistics) = self.statistics.filter(|_| self.wants_stages()) {
            statistics.device_stages(take()?);
        }
        Ok(())
    }

    /// Replaces the coder by one for batches of `shape`.
    fn set_coder(&self, state: &mut State<'d>, coder: Coder<'d>, shape: Shape) {
        state.coder = coder;
        let work = match &state.coder {
            Coder::None => None,
            Coder::Encode(recipe, _, checker) => {
                Some(BlockTask::Encode { recipe: *recipe, verify: checker.is_some() })
            }
            Coder::Decode(pipeline, _) => Some(BlockTask::Decode(*pipeline)),
        };
        let cost = work.and_then(|work| work.cost(self.device.limits(), shape.slot).ok());
        let predicted = cost.map_or(0, |cost| cost.memory * u64::from(shape.blocks));
        let before = std::mem::replace(&mut state.predicted, predicted);
        self.note(|device| device.takes(before, predicted));
    }

    /// Whether the device is broken, or could not do even a single block.
    pub(crate) fn is_disabled(&self) -> bool {
        let state = self.state.lock();
        state.broken.is_some() || state.limits.iter().any(|limit| limit.blocks == 0)
    }

    /// Blocks in the next batch, if `waiting` blocks are left; 0 if the device cannot do any.
    fn next_batch(&self, state: &mut State<'d>, kind: Kind, waiting: usize) -> u32 {
        if state.broken.is_some() {
            return 0;
        }
        let Some(limit) = state.limits.iter().find(|limit| limit.kind == kind) else {
            return self.max_shape.blocks;
        };
        let (before, blocks) = (limit.blocks, limit.next(waiting, self.max_shape.blocks));
        if blocks > before {
            // Free the smaller coder first: the larger one may need its memory.
            self.set_coder(state, Coder::None, self.max_shape);
        }
        blocks
    }

    /// If the device has no memory for a single block: how many batches others should do before this engine tries
    /// again.
    pub(crate) fn patience(&self) -> Option<u32> {
        let state = self.state.lock();
        if state.broken.is_some() || state.limits.iter().any(BatchLimit::is_declined) {
            return None;
        }
        let short = state.limits.iter().filter(|limit| limit.is_short());
        short.map(|limit| limit.patience).max()
    }

    /// Tries batches of a single block again where the device had no memory for one.
    pub(crate) fn try_again(&self) {
        let mut state = self.state.lock();
        let short = state.limits.iter_mut().filter(|limit| limit.is_short());
        short.for_each(BatchLimit::try_again);
    }

    /// Sets the limit of one kind of work.
    fn set_limit(state: &mut State<'d>, limit: BatchLimit) {
        state.limits.retain(|other| other.kind != limit.kind);
        state.limits.push(limit);
    }

    /// Runs `attempt` on `jobs` in batches. Halves the batches each time the device runs out of memory, and doubles
    /// them again later.
    fn in_batches<J>(
        &self,
        kind: Kind,
        mut jobs: &mut [J],
        mut attempt: impl FnMut(&mut State<'d>, &mut [J], Shape) -> Result<(), CoderError>,
    ) {
        let mut state = self.state.lock();
        while !jobs.is_empty() {
            let blocks = self.next_batch(&mut state, kind, jobs.len());
            if blocks == 0 {
                return;
            }
            let count = jobs.len().min(blocks as usize);
            let shape = Shape { blocks, ..self.max_shape };
            let Err(error) = attempt(&mut state, &mut jobs[..count], shape) else {
                jobs = &mut jobs[count..];
                state.limits.iter_mut().filter(|limit| limit.kind == kind).for_each(|limit| {
                    limit.done(blocks);
                });
                continue;
            };
            self.set_coder(&mut state, Coder::None, shape);
            let limit = state.limits.iter_mut().find(|limit| limit.kind == kind);
            let max_blocks = match (AfterError::of(&error, blocks), limit) {
                (AfterError::Halved(_), Some(limit)) => {
                    limit.had_no_memory(blocks);
                    limit.blocks
                }
                (AfterError::Halved(half), None) => {
                    Self::set_limit(&mut state, BatchLimit::new(kind, half));
                    half
                }
                (AfterError::Declined, _) => {
                    Self::set_limit(&mut state, BatchLimit::declined(kind));
                    0
                }
                (AfterError::Broken, _) => {
                    state.broken = Some(error.to_string());
                    self.note_line(&format!("{error}: blocks go to the CPU"));
                    return;
                }
            };
            if max_blocks == 0 {
                self.note_line(&format!("declined, blocks go to the CPU: {error}"));
            }
        }
    }

    /// Encodes `jobs` by a recipe of a single part.
    fn encode_by(&self, recipe: &Recipe, jobs: &mut [&mut EncodeJob<'_>]) {
        self.in_batches(Kind::Encode(*recipe), jobs, |state, jobs, shape| {
            jobs.iter_mut().for_each(|job| job.payload.clear());
            self.try_encode(state, recipe, jobs, shape)
        });
    }

    /// Sets the filters of each block. Drops the blocks whose filters devices cannot apply: the CPU encodes these.
    fn choose_filters(&self, recipe: &Recipe, jobs: &mut Vec<&mut EncodeJob<'_>>) {
        let choose = |job: &EncodeJob<'_>| match recipe.filter {
            Filter::None => Some(None),
            Filter::Chain(chain) => Some(Some(chain)),
            Filter::Auto => self.chooser.choose_filter(recipe, job.contents),
        };
        let chosen: Vec<_> = match self.helpers().filter(|_| recipe.filter == Filter::Auto) {
            Some(helpers) => helpers.install(|| jobs.par_iter().map(|job| choose(job)).collect()),
            None => jobs.iter().map(|job| choose(job)).collect(),
        };
        let mut chosen = chosen.into_iter();
        jobs.retain_mut(|job| {
            let Some(filters) = chosen.next().flatten() else { return false };
            job.filters = filters;
            filters.is_none_or(|chain| Passes::of(&chain).is_some())
        });
    }

    /// Records a batch in which the device returned wrong bytes.
    fn note_wrong(&self, state: &mut State<'d>) {
        state.wrong += 1;
        self.note_line("a wrong result: the CPU does the block again");
        if state.wrong >= MAX_WRONG_BATCHES {
            state.broken = Some("it returns wrong results".into());
        }
    }

    /// Makes the encoder for batches of `recipe`, unless there already is one.
    fn make_encoder(
        &self,
        state: &mut State<'d>,
        recipe: &Recipe,
        shape: Shape,
    ) -> Result<(), CoderError> {
        if matches!(&state.coder, Coder::Encode(other, ..) if other == recipe) {
            return Ok(());
        }
        // Free the old coder first.
        self.set_coder(state, Coder::None, shape);
        let mut encoder =
            Encoder::with_recipe(self.device, *recipe, shape, CallerBuffers::default())?;
        encoder.set_timing(self.wants_stages());
        let checker = if self.verifies { checker(&encoder, recipe)? } else { None };
        self.set_coder(state, Coder::Encode(*recipe, Box::new(encoder), checker), shape);
        Ok(())
    }

    /// Makes the decoder for batches of `pipeline`, unless there already is one.
    fn make_decoder(
        &self,
        state: &mut State<'d>,
        pipeline: Pipeline,
        shape: Shape,
    ) -> Result<(), CoderError> {
        if matches!(&state.coder, Coder::Decode(other, _) if *other == pipeline) {
            return Ok(());
        }
        self.set_coder(state, Coder::None, shape);
        let own = CallerBuffers::default();
        let mut decoder = Decoder::new(self.device, pipeline, shape.slot, shape.blocks, own)?;
        decoder.set_timing(self.wants_stages());
        self.set_coder(state, Coder::Decode(pipeline, Box::new(decoder)), shape);
        Ok(())
    }
}

/// The decoder that checks what `encoder` encodes; `None` if the device declines its plan.
fn checker<'d>(
    encoder: &Encoder<'d>,
    recipe: &Recipe,
) -> Result<Option<Box<Decoder<'d>>>, CoderError> {
    match encoder.checker(pipelines::decoding(recipe)) {
        Ok(checker) => Ok(Some(Box::new(checker))),
        Err(CoderError::Plan(PlanError::Declined(_))) => Ok(None),
        Err(error) => Err(error),
    }
}

impl Engine for GpuEngine<'_> {
    fn encode(&self, recipe: &Recipe, batch: &mut [EncodeJob<'_>]) {
        let fits = |job: &mut &mut EncodeJob<'_>| {
            (1..=self.max_shape.slot as usize).contains(&job.contents.len())
                && !CpuEngine::encode_fill(job)
        };
        let mut jobs: Vec<_> = batch.iter_mut().collect();
        jobs.retain_mut(fits);
        self.choose_filters(recipe, &mut jobs);
        match &recipe.codec {
            Codec::Smallest(smallest) => self.encode_smallest(recipe, smallest, &mut jobs),
            _ => self.encode_by(recipe, &mut jobs),
        }
    }

    fn decode(&self, batch: &mut [DecodeJob<'_>]) {
        batch.iter_mut().for_each(CpuEngine::decode_simple);
        for (pipeline, method) in [(Pipeline::Lzf, Method::Lz77), (Pipeline::Bwt, Method::Bwt)] {
            let fits = |job: &&mut DecodeJob<'_>| {
                let len = job.contents.len();
                job.header.method == method
                    && len <= self.max_shape.slot as usize
                    && job.payload.is_some_and(|payload| payload.len() <= len)
            };
            let mut jobs: Vec<_> = batch.iter_mut().filter(fits).collect();
            self.in_batches(Kind::Decode(pipeline), &mut jobs, |state, jobs, shape| {
                self.try_decode(state, pipeline, jobs, shape)
            });
        }
    }

    fn has_time_to_write(&self) -> bool {
        // The device would be idle meanwhile.
        false
    }

    fn helpers(&self) -> Option<&ThreadPool> {
        let name = |i| format!("pz reads {i}");
        let build = || ThreadPoolBuilder::new().num_threads(HELPERS).thread_name(name).build().ok();
        self.helpers.get_or_init(build).as_ref()
    }

    fn release(&self) {
        self.chooser.release();
        self.set_coder(&mut self.state.lock(), Coder::None, self.max_shape);
    }

    fn encode_memory(&self, _: &Recipe, _: usize) -> u64 {
        0
    }

    fn decode_memory(&self, _: Pipeline, _: usize) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
