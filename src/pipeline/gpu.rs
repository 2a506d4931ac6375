//! The engine that runs batches of blocks on a device.
//!
//! Nothing that a device says is trusted: contents and payloads are checked by their checksums, and a block that the
//! device declines, fails or gets wrong is done again by the CPU. So the output is the same with any device, and a
//! device's failure is never the user's.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crc32c::crc32c;

use super::engine::{Coded, DecodeJob, EncodeJob, Engine};
use super::level::Recipe;
use super::statistics::Statistics;
use crate::format::{BlockHeader, Method, Pipeline};
use crate::gpu::budget::{BlockCost, batches, budget};
use crate::gpu::coder::{Buffers, CoderError, Decoder, Encoder, StageTime};
use crate::gpu::device::{Device, DeviceError};
use crate::gpu::lz77_decode::Needs;
use crate::gpu::pipelines;
use crate::gpu::plan::Shape;
use crate::gpu::pool::Pool;

/// A device to run blocks on, and how much of its memory may be taken.
#[derive(Clone)]
pub struct Gpu {
    pub(crate) device: Arc<dyn Device>,
    /// The same: what it allocates is counted, and used again from one file to the next.
    pool: Arc<Pool<Arc<dyn Device>>>,
    pub(crate) memory: Option<u64>,
    pub(crate) statistics: Option<Statistics>,
}

impl Gpu {
    /// All of `device`'s memory that is sensible to take.
    pub fn new(device: Arc<dyn Device>) -> Self {
        let pool = Arc::new(Pool::new(device));
        Self { device: pool.clone(), pool, memory: None, statistics: None }
    }

    /// The device. What it allocates is counted and used again.
    pub fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    /// Sets the most bytes of device memory to take.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }
}

/// A device at work on blocks of one kind, in threads of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Accelerator {
    pub(crate) gpu: Gpu,
    /// Batches that are on the device at once: one is computed while others are copied.
    pub(crate) slots: usize,
    /// Blocks of a batch.
    pub(crate) batch: usize,
    /// Bytes of device memory that all of them take.
    pub(crate) memory: u64,
}

impl Accelerator {
    /// How `gpu` encodes blocks; `None` if it cannot. `share` is widened by the blocks that it is given, as far as
    /// `limit` bytes of host memory permit.
    pub(crate) fn for_encoding(
        gpu: Option<&Gpu>,
        recipe: &Recipe,
        block_size: usize,
        widen: impl FnOnce(u64) -> u64,
    ) -> Option<Self> {
        let limits = gpu?.device.limits();
        let planner = |shape| pipelines::encode(limits, recipe, shape);
        Self::new(gpu?, BlockCost::of(planner, block_size as u32).ok()?, widen)
    }

    /// How `gpu` decodes blocks, likewise.
    pub(crate) fn for_decoding(
        gpu: Option<&Gpu>,
        pipeline: Pipeline,
        block_size: usize,
        widen: impl FnOnce(u64) -> u64,
    ) -> Option<Self> {
        let limits = gpu?.device.limits();
        let planner = |shape| pipelines::decode(limits, pipeline, shape, Needs::default());
        Self::new(gpu?, BlockCost::of(planner, block_size as u32).ok()?, widen)
    }

    fn new(gpu: &Gpu, block: BlockCost, widen: impl FnOnce(u64) -> u64) -> Option<Self> {
        let limits = gpu.device.limits();
        let found = batches(limits, budget(limits, gpu.memory), &block)?;
        // On the host, a further batch is read and one is written while those are on the device.
        let given = widen(u64::from(found.slots + 2) * u64::from(found.batch));
        let batch = u64::from(found.batch).min(given / u64::from(found.slots + 2)).max(1);
        let memory = u64::from(found.slots) * batch * block.memory;
        let (slots, batch) = (found.slots as usize, batch as usize);
        Some(Self { gpu: gpu.clone(), slots, batch, memory })
    }

    /// Has what the device does counted.
    pub(crate) fn count_in(mut self, statistics: Option<&Statistics>) -> Self {
        if let Some(statistics) = statistics {
            statistics.device_joins(self.gpu.device.limits(), self.memory);
            self.gpu.statistics = Some(statistics.clone());
        }
        self
    }
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = &self.device.limits().name;
        f.debug_struct("Gpu").field("device", name).field("memory", &self.memory).finish()
    }
}

impl PartialEq for Gpu {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.device, &other.device) && self.memory == other.memory
    }
}

impl Eq for Gpu {}

/// Runs batches on a device, in memory that it keeps from one to the next. One for each batch that is to be on the
/// device at a time: a batch waits for the one before.
pub(crate) struct GpuEngine<'d> {
    gpu: &'d Gpu,
    device: &'d dyn Device,
    /// The most blocks of a batch.
    batch: u32,
    cpu: Arc<dyn Engine>,
    state: Mutex<State<'d>>,
}

#[derive(Default)]
struct State<'d> {
    coder: Coder<'d>,
    /// Why the device is not used any more.
    broken: Option<String>,
    /// What it cannot run, which the CPU then does at once.
    declined: Vec<Work>,
}

/// What a coder has been made for.
#[derive(Clone, Copy, PartialEq)]
enum Work {
    Encode(Recipe, u32),
    Decode(Pipeline, u32),
}

#[derive(Default)]
enum Coder<'d> {
    #[default]
    None,
    Encode(Recipe, Box<Encoder<'d>>),
    Decode(Pipeline, Box<Decoder<'d>>),
}

impl<'d> GpuEngine<'d> {
    /// An engine for batches of up to `batch` blocks.
    pub(crate) fn new(gpu: &'d Gpu, batch: u32, cpu: Arc<dyn Engine>) -> Self {
        let (device, state) = (&*gpu.device, Mutex::new(State::default()));
        Self { gpu, device, batch: batch.max(1), cpu, state }
    }

    /// Counts a batch that the device has run since `begun`, and how long each of its stages took there.
    fn count(
        &self,
        begun: Instant,
        done: impl Iterator<Item = usize>,
        take_times: impl FnOnce() -> Result<Vec<StageTime>, CoderError>,
    ) {
        let Some(statistics) = &self.gpu.statistics else { return };
        let (blocks, bytes) = done.fold((0, 0), |(n, sum), len| (n + 1, sum + len as u64));
        statistics.device_batch(begun, blocks, bytes, self.gpu.pool.high_water());
        if statistics.wants_stages()
            && let Ok(times) = take_times()
        {
            statistics.device_stages(times);
        }
    }

    fn wants_stages(&self) -> bool {
        self.gpu.statistics.as_ref().is_some_and(Statistics::wants_stages)
    }

    /// Why the device is of no more use, if it is not.
    pub(crate) fn broken(&self) -> Option<String> {
        self.lock().broken.clone()
    }

    fn lock(&self) -> MutexGuard<'_, State<'d>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes note of an error. A device without memory or a plan may still do other work.
    fn note(&self, state: &mut State<'d>, work: Work, error: &CoderError) {
        state.coder = Coder::None;
        match error {
            CoderError::Options(_)
            | CoderError::Plan(_)
            | CoderError::Device(DeviceError::OutOfMemory { .. })
            | CoderError::Device(DeviceError::Unsupported(_))
            | CoderError::Device(DeviceError::Build { .. }) => state.declined.push(work),
            CoderError::Device(_) => state.broken = Some(error.to_string()),
        }
    }

    fn shape(&self, longest: usize) -> Shape {
        Shape::new(self.batch, longest as u32)
    }

    /// Encodes `jobs` on the device, or some of them: those with `coded` set are done.
    fn try_encode(
        &self,
        state: &mut State<'d>,
        recipe: &Recipe,
        jobs: &mut [&mut EncodeJob<'_>],
        most: Shape,
    ) -> Result<(), CoderError> {
        let begun = Instant::now();
        let fits = matches!(&state.coder, Coder::Encode(r, encoder)
            if r == recipe && encoder.slot() >= most.slot);
        if !fits {
            // The old one's memory goes first.
            state.coder = Coder::None;
            let mut encoder = Encoder::with_recipe(self.device, *recipe, most, Buffers::default())?;
            encoder.set_timing(self.wants_stages());
            state.coder = Coder::Encode(*recipe, Box::new(encoder));
        }
        let Coder::Encode(_, encoder) = &mut state.coder else { return Ok(()) };
        let mut lens = Vec::with_capacity(jobs.len());
        for (number, job) in (0..).zip(jobs.iter()) {
            encoder.write(number, job.contents)?;
            lens.push(job.contents.len() as u32);
        }
        let blocks = encoder.encode(&lens)?;
        for (job, block) in jobs.iter_mut().zip(blocks) {
            let content_crc = crc32c(job.contents);
            if block.contents_crc != content_crc {
                continue; // What the device had was not what was sent.
            }
            let Some((start, len)) = block.payload else {
                job.coded =
                    Some(Coded { method: Method::Store, payload_crc: content_crc, content_crc });
                continue;
            };
            job.payload.resize(len as usize, 0);
            encoder.read(start, job.payload)?;
            if crc32c(job.payload) != block.payload_crc {
                continue;
            }
            let method = match recipe {
                Recipe::Bwt(_) => Method::Bwt,
                _ => Method::Lz77,
            };
            let payload_crc = block.payload_crc;
            let coded = Coded { method, payload_crc, content_crc };
            if self.restores(coded, job) {
                job.coded = Some(coded);
            }
        }
        let done = jobs.iter().filter(|job| job.coded.is_some()).map(|job| job.contents.len());
        self.count(begun, done, || encoder.take_times());
        Ok(())
    }

    /// Whether the CPU decodes the payload to the contents: a checksum that the device made of what it wrote says
    /// nothing of whether it wrote the right thing.
    fn restores(&self, coded: Coded, job: &EncodeJob<'_>) -> bool {
        let header = BlockHeader {
            method: coded.method,
            block_log: 0,
            number: 0,
            content_len: job.contents.len() as u32,
            payload_len: job.payload.len() as u32,
            payload_crc: coded.payload_crc,
            content_crc: coded.content_crc,
        };
        let mut contents = vec![0; job.contents.len()];
        let payload = Some(&job.payload[..]);
        let mut decode = DecodeJob { header, payload, contents: &mut contents, outcome: None };
        self.cpu.decode(std::slice::from_mut(&mut decode));
        matches!(decode.outcome, Some(Ok(())))
    }

    /// Decodes `jobs` on the device, or some of them: those with an outcome are done, and right.
    fn try_decode(
        &self,
        state: &mut State<'d>,
        pipeline: Pipeline,
        jobs: &mut [&mut DecodeJob<'_>],
        most: Shape,
    ) -> Result<(), CoderError> {
        let begun = Instant::now();
        let fits = matches!(&state.coder, Coder::Decode(p, decoder)
            if *p == pipeline && decoder.slot() >= most.slot);
        if !fits {
            state.coder = Coder::None;
            let buffers = Buffers::default();
            let mut decoder = Decoder::new(self.device, pipeline, most.slot, most.blocks, buffers)?;
            decoder.set_timing(self.wants_stages());
            state.coder = Coder::Decode(pipeline, Box::new(decoder));
        }
        let Coder::Decode(_, decoder) = &mut state.coder else { return Ok(()) };
        decoder.clear();
        let mut places = Vec::with_capacity(jobs.len());
        let mut sent = Vec::with_capacity(jobs.len());
        for job in jobs.iter_mut() {
            let payload = job.payload.unwrap_or_default();
            if let Some(place) = decoder.write(payload, job.contents.len() as u32)? {
                places.push(place);
                sent.push(job);
            }
        }
        if sent.is_empty() {
            return Ok(());
        }
        let blocks = decoder.decode(&places)?;
        for ((number, job), block) in (0..).zip(sent).zip(blocks) {
            let header = &job.header;
            // Whatever else it may be, the CPU says it.
            if !block.is_decoded
                || block.payload_crc != header.payload_crc
                || block.contents_crc != header.content_crc
            {
                continue;
            }
            decoder.read(number, job.contents)?;
            if crc32c(job.contents) == header.content_crc {
                job.outcome = Some(Ok(()));
            }
        }
        let done = jobs.iter().filter(|job| job.outcome.is_some()).map(|job| job.contents.len());
        self.count(begun, done, || decoder.take_times());
        Ok(())
    }
}

impl Engine for GpuEngine<'_> {
    fn encode(&self, recipe: &Recipe, batch: &mut [EncodeJob<'_>]) {
        let mut state = self.lock();
        let mut jobs: Vec<_> = batch.iter_mut().filter(|job| !is_fill(job.contents)).collect();
        for jobs in jobs.chunks_mut(self.batch as usize) {
            let longest = jobs.iter().map(|job| job.contents.len()).max().unwrap_or(0);
            let most = self.shape(longest);
            let work = Work::Encode(*recipe, most.slot);
            if longest == 0 || state.broken.is_some() || state.declined.contains(&work) {
                continue;
            }
            if let Err(error) = self.try_encode(&mut state, recipe, jobs, most) {
                self.note(&mut state, work, &error);
            }
        }
        drop(state);
        for job in batch.iter_mut().filter(|job| job.coded.is_none()) {
            self.cpu.encode(recipe, std::slice::from_mut(job));
        }
    }

    fn decode(&self, batch: &mut [DecodeJob<'_>]) {
        let mut state = self.lock();
        for (pipeline, method) in [(Pipeline::Lzf, Method::Lz77), (Pipeline::Bwt, Method::Bwt)] {
            let mut jobs: Vec<_> = batch
                .iter_mut()
                .filter(|job| job.header.method == method && job.payload.is_some())
                .collect();
            for jobs in jobs.chunks_mut(self.batch as usize) {
                let longest = jobs.iter().map(|job| job.contents.len()).max().unwrap_or(0);
                let most = self.shape(longest);
                let work = Work::Decode(pipeline, most.slot);
                if state.broken.is_some() || state.declined.contains(&work) {
                    continue;
                }
                if let Err(error) = self.try_decode(&mut state, pipeline, jobs, most) {
                    self.note(&mut state, work, &error);
                }
            }
        }
        drop(state);
        for job in batch.iter_mut().filter(|job| job.outcome.is_none()) {
            self.cpu.decode(std::slice::from_mut(job));
        }
    }

    fn release(&self) {
        self.lock().coder = Coder::None;
        self.cpu.release();
    }

    fn encode_memory(&self, recipe: &Recipe, block_size: usize) -> u64 {
        self.cpu.encode_memory(recipe, block_size)
    }

    fn decode_memory(&self, pipeline: Pipeline, block_size: usize) -> u64 {
        self.cpu.decode_memory(pipeline, block_size)
    }
}

/// Whether the contents are one byte, repeated: nothing for a device.
fn is_fill(contents: &[u8]) -> bool {
    contents.len() > 1 && contents[1..] == contents[..contents.len() - 1]
}
