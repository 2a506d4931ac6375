//! The engine that runs batches of blocks on a device.
//!
//! Nothing that a device says is trusted: contents and payloads are checked by their checksums, and what is encoded is
//! decoded again before it is used. A block that the device declines, fails or gets wrong is left as it was, for the CPU.
//! So the output is the same with any device, and a device's failure is never the user's.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Instant;

use crc32c::{crc32c, crc32c_append};
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::cpu::CpuEngine;
use super::engine::{Coded, DecodeJob, EncodeJob, Engine};
use super::gpu::Work;
use super::level::Recipe;
use super::statistics::{DeviceStatistics, Statistics};
use crate::format::{BlockHeader, Method, Pipeline};
use crate::gpu::coder::{Buffers, CoderError, Decoder, Encoder, PayloadPlace};
use crate::gpu::device::{Device, DeviceError};
use crate::gpu::lz77_decode::Needs;
use crate::gpu::pipelines;
use crate::gpu::plan::{PlanError, Shape};

/// Runs batches on a device, in memory that it keeps from one to the next. One for each batch that is to be on the
/// device at a time: a batch waits for the one before.
///
/// Blocks that it has not done have no outcome afterwards; they are the CPU's.
pub(crate) struct GpuEngine<'d> {
    device: &'d dyn Device,
    /// The most blocks of a batch, and the longest block.
    most: Shape,
    /// Whether what is encoded is decoded again.
    verifies: bool,
    statistics: Option<&'d Statistics>,
    /// Made when there is something for them to do.
    helpers: OnceLock<Option<ThreadPool>>,
    state: Mutex<State<'d>>,
}

#[derive(Default)]
struct State<'d> {
    coder: Coder<'d>,
    /// Bytes of device memory that it takes, as the costs of its kernels predict.
    predicted: u64,
    /// Why the device is not used any more.
    broken: Option<String>,
    /// How small batches are where the device did not do larger ones.
    limits: Vec<BatchLimit>,
    /// Batches encoded so far.
    encoded: u32,
    /// Batches in which something was wrong.
    wrong: u32,
}

/// What a coder has been made for.
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

/// Batches of a kind of work are smaller than planned, because the device had no memory for larger ones.
///
/// After some batches one of twice as many blocks is tried, for the memory may be there again. Each time that it is not, the
/// next trial comes after twice as many batches, up to [`MAX_PATIENCE`]; where it is, the next one comes sooner.
struct BatchLimit {
    kind: Kind,
    /// Blocks of a batch; 0 if the device cannot do even one.
    blocks: u32,
    /// Batches done since that changed.
    done: u32,
    /// Batches after which a larger one is tried.
    patience: u32,
    /// Whether the last change was to larger batches.
    has_grown: bool,
}

/// So many smaller batches are done before a larger one is tried for the first time.
const PATIENCE: u32 = 4;

/// Smaller batches between trials, at most: what a failed trial costs is then little.
const MAX_PATIENCE: u32 = 64;

impl BatchLimit {
    /// Blocks of the next batch, if there are `waiting` blocks and `planned` are the most.
    fn next(&self, waiting: usize, planned: u32) -> u32 {
        let is_time = self.done >= self.patience && waiting > self.blocks as usize;
        if is_time { self.blocks.saturating_mul(2).min(planned) } else { self.blocks }
    }

    /// A batch of `blocks` blocks was done.
    fn done(&mut self, blocks: u32) {
        self.done = self.done.saturating_add(1);
        if blocks > self.blocks {
            (self.blocks, self.done, self.has_grown) = (blocks, 0, true);
            self.patience = (self.patience / 4).max(PATIENCE);
        }
    }

    /// There was no memory for a batch of `blocks` blocks.
    fn had_no_memory(&mut self, blocks: u32) {
        let is_trial = blocks > self.blocks;
        if is_trial || self.has_grown {
            self.patience = (2 * self.patience).min(MAX_PATIENCE);
        }
        if !is_trial {
            self.blocks = blocks / 2;
        }
        (self.done, self.has_grown) = (0, false);
    }
}

/// Threads that read a batch: one copies less than a device takes.
const HELPERS: usize = 4;

/// A device that gives wrong bytes in so many batches is not used any more.
const MOST_WRONG: u32 = 3;

/// A block of one in so many batches that are encoded is decoded by the CPU as well: device and CPU are to agree on what
/// is well-formed.
const CHECKED_BY_CPU: u32 = 16;

impl<'d> GpuEngine<'d> {
    /// An engine for batches of up to `most.blocks` blocks of up to `most.slot` bytes. If it `verifies`, all that it
    /// encodes it decodes again.
    pub(crate) fn new(
        device: &'d dyn Device,
        most: Shape,
        verifies: bool,
        statistics: Option<&'d Statistics>,
    ) -> Self {
        let (helpers, state) = Default::default();
        Self { device, most, verifies, statistics, helpers, state }
    }

    /// Takes the memory for batches of `work`, so that the first of them need not. What fails is tried again with that.
    pub(crate) fn make_ready(&self, work: &Work) {
        let mut state = self.lock();
        let made = match work {
            Work::Encode { recipe, .. } => self.make_encoder(&mut state, recipe, self.most),
            Work::Decode(pipeline) => self.make_decoder(&mut state, *pipeline, self.most),
        };
        if made.is_err() {
            self.set_coder(&mut state, Coder::None, self.most);
        }
    }

    /// Takes note of something, if anybody wants to know it.
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

    /// Takes another coder, for batches of that shape.
    fn set_coder(&self, state: &mut State<'d>, coder: Coder<'d>, most: Shape) {
        state.coder = coder;
        let work = match &state.coder {
            Coder::None => None,
            Coder::Encode(recipe, _, checker) => {
                Some(Work::Encode { recipe: *recipe, verify: checker.is_some() })
            }
            Coder::Decode(pipeline, _) => Some(Work::Decode(*pipeline)),
        };
        let cost = work.and_then(|work| work.cost(self.device.limits(), most.slot).ok());
        let predicted = cost.map_or(0, |cost| cost.memory * u64::from(most.blocks));
        let before = std::mem::replace(&mut state.predicted, predicted);
        self.note(|device| device.takes(before, predicted));
    }

    /// Whether the device is broken, or has turned out to be unable to do even one block of what it was given.
    pub(crate) fn is_disabled(&self) -> bool {
        let state = self.lock();
        state.broken.is_some() || state.limits.iter().any(|limit| limit.blocks == 0)
    }

    /// Blocks of the next batch, if `waiting` blocks are left; 0 if the device cannot do any.
    fn next_batch(&self, state: &mut State<'d>, kind: Kind, waiting: usize) -> u32 {
        if state.broken.is_some() {
            return 0;
        }
        let Some(limit) = state.limits.iter().find(|limit| limit.kind == kind) else {
            return self.most.blocks;
        };
        let (before, blocks) = (limit.blocks, limit.next(waiting, self.most.blocks));
        if blocks > before {
            // What is there is too small; its memory is part of what is tried.
            self.set_coder(state, Coder::None, self.most);
        }
        blocks
    }

    /// Batches of `kind` have at most `blocks` blocks from now on.
    fn limit(state: &mut State<'d>, kind: Kind, blocks: u32) {
        state.limits.retain(|limit| limit.kind != kind);
        let (done, patience, has_grown) = (0, PATIENCE, false);
        state.limits.push(BatchLimit { kind, blocks, done, patience, has_grown });
    }

    fn lock(&self) -> MutexGuard<'_, State<'d>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `attempt` on parts of `jobs`. Halves them each time that the device has no memory, and doubles them again later.
    fn in_batches<J>(
        &self,
        kind: Kind,
        mut jobs: &mut [J],
        mut attempt: impl FnMut(&mut State<'d>, &mut [J], Shape) -> Result<(), CoderError>,
    ) {
        let mut state = self.lock();
        while !jobs.is_empty() {
            let blocks = self.next_batch(&mut state, kind, jobs.len());
            if blocks == 0 {
                return;
            }
            let count = jobs.len().min(blocks as usize);
            let shape = Shape { blocks, ..self.most };
            let Err(error) = attempt(&mut state, &mut jobs[..count], shape) else {
                jobs = &mut jobs[count..];
                state.limits.iter_mut().filter(|limit| limit.kind == kind).for_each(|limit| {
                    limit.done(blocks);
                });
                continue;
            };
            self.set_coder(&mut state, Coder::None, shape);
            let limit = state.limits.iter_mut().find(|limit| limit.kind == kind);
            let most = match (&error, limit) {
                (CoderError::Device(DeviceError::OutOfMemory { .. }), Some(limit)) => {
                    limit.had_no_memory(blocks);
                    limit.blocks
                }
                (CoderError::Device(DeviceError::OutOfMemory { .. }), None) => {
                    Self::limit(&mut state, kind, blocks / 2);
                    blocks / 2
                }
                (
                    CoderError::Options(_)
                    | CoderError::Plan(_)
                    | CoderError::Device(DeviceError::Unsupported(_) | DeviceError::Build { .. }),
                    _,
                ) => {
                    Self::limit(&mut state, kind, 0);
                    0
                }
                (CoderError::Device(_), _) => {
                    state.broken = Some(error.to_string());
                    self.note_line(&format!("{error}: blocks go to the CPU"));
                    return;
                }
            };
            if most == 0 {
                self.note_line(&format!("declined, blocks go to the CPU: {error}"));
            }
        }
    }

    /// Takes note of a batch in which the device got something wrong.
    fn note_wrong(&self, state: &mut State<'d>) {
        state.wrong += 1;
        self.note_line("a wrong result: it is done again by the CPU");
        if state.wrong >= MOST_WRONG {
            state.broken = Some("it gives wrong results".into());
        }
    }

    /// Makes the encoder that batches of `recipe` need, unless it is there.
    fn make_encoder(
        &self,
        state: &mut State<'d>,
        recipe: &Recipe,
        most: Shape,
    ) -> Result<(), CoderError> {
        if matches!(&state.coder, Coder::Encode(other, ..) if other == recipe) {
            return Ok(());
        }
        // The old one's memory goes first.
        self.set_coder(state, Coder::None, most);
        let mut encoder = Encoder::with_recipe(self.device, *recipe, most, Buffers::default())?;
        encoder.set_timing(self.wants_stages());
        let checker = if self.verifies { checker(&encoder, recipe)? } else { None };
        self.set_coder(state, Coder::Encode(*recipe, Box::new(encoder), checker), most);
        Ok(())
    }

    /// Makes the decoder that batches of `pipeline` need, unless it is there.
    fn make_decoder(
        &self,
        state: &mut State<'d>,
        pipeline: Pipeline,
        most: Shape,
    ) -> Result<(), CoderError> {
        if matches!(&state.coder, Coder::Decode(other, _) if *other == pipeline) {
            return Ok(());
        }
        self.set_coder(state, Coder::None, most);
        let own = Buffers::default();
        let mut decoder = Decoder::new(self.device, pipeline, most.slot, most.blocks, own)?;
        decoder.set_timing(self.wants_stages());
        self.set_coder(state, Coder::Decode(pipeline, Box::new(decoder)), most);
        Ok(())
    }

    /// Encodes `jobs` on the device, or some of them: those with `coded` set are done.
    fn try_encode(
        &self,
        state: &mut State<'d>,
        recipe: &Recipe,
        jobs: &mut [&mut EncodeJob<'_>],
        most: Shape,
    ) -> Result<(), CoderError> {
        self.make_encoder(state, recipe, most)?;
        let State { coder: Coder::Encode(_, encoder, checker), encoded, .. } = state else {
            return Ok(());
        };
        let begun = Instant::now();
        encoder.write_all(jobs.iter().map(|job| job.contents))?;
        let lens: Vec<_> = jobs.iter().map(|job| job.contents.len() as u32).collect();
        let uploaded = Instant::now();
        let mut crcs = Vec::new();
        let blocks = encoder.encode_while(&lens, || {
            crcs = jobs.iter().map(|job| crc32c(job.contents)).collect();
        })?;

        let computed = Instant::now();
        let mut sent = Vec::with_capacity(jobs.len());
        let mut places = Vec::with_capacity(jobs.len());
        let mut is_wrong = false;
        for ((job, block), content_crc) in jobs.iter_mut().zip(blocks).zip(crcs) {
            if block.contents_crc != content_crc {
                // What the device had was not what was sent.
                is_wrong = true;
                continue;
            }
            let Some((start, payload_len)) = block.payload else {
                let payload_crc = content_crc;
                job.coded = Some(Coded { method: Method::Store, payload_crc, content_crc });
                continue;
            };
            let method = match recipe {
                Recipe::Bwt(_) => Method::Bwt,
                _ => Method::Lz77,
            };
            let contents_len = job.contents.len() as u32;
            places.push(PayloadPlace { start, payload_len, contents_len });
            sent.push((job, Coded { method, payload_crc: block.payload_crc, content_crc }));
        }
        let ranges: Vec<_> =
            places.iter().map(|place| (place.start, place.payload_len as usize)).collect();
        encoder.read_all(&ranges, |i, piece| sent[i].0.payload.extend_from_slice(piece))?;

        let downloaded = Instant::now();
        let mut is_sound = vec![true; sent.len()];
        let is_turn = self.verifies && checker.is_some() && encoded.is_multiple_of(CHECKED_BY_CPU);
        let by_cpu = (is_turn && !sent.is_empty()).then(|| *encoded as usize % sent.len());
        let mut on_host = || {
            for (sound, (job, coded)) in is_sound.iter_mut().zip(&sent) {
                *sound = crc32c(job.payload) == coded.payload_crc;
            }
            if let Some(at) = by_cpu {
                let (job, coded) = &sent[at];
                is_sound[at] &= CpuEngine::restores(coded, job.contents, job.payload);
            }
        };
        match checker.as_deref_mut().filter(|_| !sent.is_empty()) {
            None => on_host(),
            Some(checker) => {
                checker.clear();
                for (job, _) in &sent {
                    checker.expect(Needs::of(job.payload, job.contents.len()));
                }
                let decoded = checker.decode_while(&places, on_host)?;
                for ((sound, block), (_, coded)) in is_sound.iter_mut().zip(decoded).zip(&sent) {
                    *sound &= block.is_decoded
                        && block.payload_crc == coded.payload_crc
                        && block.contents_crc == coded.content_crc;
                }
            }
        }
        let needs_check = self.verifies && checker.is_none();
        for ((job, coded), is_sound) in sent.into_iter().zip(is_sound) {
            if is_sound {
                job.coded = Some(coded);
                job.is_unverified = needs_check;
            } else {
                is_wrong = true;
            }
        }
        *encoded += 1;
        self.note(|device| {
            device.upload += uploaded - begun;
            device.compute += computed - uploaded;
            device.download += downloaded - computed;
            device.verify += downloaded.elapsed();
        });
        if let Some(statistics) = self.statistics.filter(|statistics| statistics.wants_stages()) {
            statistics.device_stages(encoder.take_times()?);
        }
        if is_wrong {
            self.note_wrong(state);
        }
        Ok(())
    }

    /// Decodes `jobs` on the device, or some of them: those with an outcome are done, and right.
    fn try_decode(
        &self,
        state: &mut State<'d>,
        pipeline: Pipeline,
        jobs: &mut [&mut DecodeJob<'_>],
        most: Shape,
    ) -> Result<(), CoderError> {
        self.make_decoder(state, pipeline, most)?;
        let Coder::Decode(_, decoder) = &mut state.coder else { return Ok(()) };
        let begun = Instant::now();
        decoder.clear();
        let payloads: Vec<_> = jobs
            .iter()
            .map(|job| (job.payload.unwrap_or_default(), job.contents.len() as u32))
            .collect();
        let places = decoder.write_all(&payloads)?;
        let uploaded = Instant::now();
        let blocks = decoder.decode(&places)?;
        let computed = Instant::now();
        let mut right = Vec::with_capacity(jobs.len());
        let mut ranges = Vec::with_capacity(jobs.len());
        for ((number, job), block) in (0..).zip(jobs.iter_mut()).zip(blocks) {
            let BlockHeader { payload_crc, content_crc, .. } = job.header;
            // Whatever is the matter with another block, the CPU says it.
            if block.is_decoded
                && (block.payload_crc, block.contents_crc) == (payload_crc, content_crc)
            {
                ranges.push((number, job.contents.len()));
                right.push((job, 0, 0));
            }
        }
        decoder.read_all(&ranges, |i, piece| {
            let (job, done, crc) = &mut right[i];
            let place = &mut job.contents[*done..*done + piece.len()];
            place.copy_from_slice(piece);
            *crc = crc32c_append(*crc, place);
            *done += piece.len();
        })?;
        let mut is_wrong = false;
        for (job, done, crc) in right {
            if done == job.contents.len() && crc == job.header.content_crc {
                job.outcome = Some(Ok(()));
            } else {
                is_wrong = true;
            }
        }
        self.note(|device| {
            device.upload += uploaded - begun;
            device.compute += computed - uploaded;
            device.download += computed.elapsed();
        });
        if let Some(statistics) = self.statistics.filter(|statistics| statistics.wants_stages()) {
            statistics.device_stages(decoder.take_times()?);
        }
        if is_wrong {
            self.note_wrong(state);
        }
        Ok(())
    }
}

/// What decodes again what `encoder` encodes; nothing if the device cannot.
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
            (1..=self.most.slot as usize).contains(&job.contents.len())
                && !CpuEngine::encode_fill(job)
        };
        let mut jobs: Vec<_> = batch.iter_mut().collect();
        jobs.retain_mut(fits);
        self.in_batches(Kind::Encode(*recipe), &mut jobs, |state, jobs, most| {
            jobs.iter_mut().for_each(|job| job.payload.clear());
            self.try_encode(state, recipe, jobs, most)
        });
    }

    fn decode(&self, batch: &mut [DecodeJob<'_>]) {
        batch.iter_mut().for_each(CpuEngine::decode_simple);
        for (pipeline, method) in [(Pipeline::Lzf, Method::Lz77), (Pipeline::Bwt, Method::Bwt)] {
            let fits = |job: &&mut DecodeJob<'_>| {
                let len = job.contents.len();
                job.header.method == method
                    && len <= self.most.slot as usize
                    && job.payload.is_some_and(|payload| payload.len() <= len)
            };
            let mut jobs: Vec<_> = batch.iter_mut().filter(fits).collect();
            self.in_batches(Kind::Decode(pipeline), &mut jobs, |state, jobs, most| {
                self.try_decode(state, pipeline, jobs, most)
            });
        }
    }

    fn has_time_to_write(&self) -> bool {
        // The device would wait.
        false
    }

    fn helpers(&self) -> Option<&ThreadPool> {
        let name = |i| format!("pz reads {i}");
        let build = || ThreadPoolBuilder::new().num_threads(HELPERS).thread_name(name).build().ok();
        self.helpers.get_or_init(build).as_ref()
    }

    fn release(&self) {
        self.set_coder(&mut self.lock(), Coder::None, self.most);
    }

    fn encode_memory(&self, _: &Recipe, _: usize) -> u64 {
        0
    }

    fn decode_memory(&self, _: Pipeline, _: usize) -> u64 {
        0
    }
}

#[cfg(test)]
#[path = "gpu_engine_tests.rs"]
mod tests;
