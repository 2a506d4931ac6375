//! A kind of work, what processor and devices deliver on it, and how long it therefore takes.

use std::time::{Duration, Instant};

use super::engine::{Coded, DecodeJob, EncodeJob, Engine};
use super::gpu::{Accelerator, Work};
use super::gpu_engine::GpuEngine;
use super::level::Recipe;
use super::memory::Share;
use super::rates::Rates;
use super::statistics::{DeviceStatistics, Statistics};
use super::{Gpu, Level, Options};
use crate::error::Error;
use crate::format::{BlockHeader, FrameHeader, Pipeline};
use crate::gpu::budget::MOST_SLOTS;
use crate::gpu::device::{Device, Limits};
use crate::gpu::lz77_decode::Needs;
use crate::gpu::pipelines;
use crate::gpu::plan::Shape;
use crate::gpu::predict::{Figures, StageWork, pair};
use crate::pipeline::cpu::CpuEngine;

/// A kind of work: blocks of one kind and size, one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Load {
    direction: Direction,
    block_size: u64,
    /// How blocks of that kind are encoded. For decoding only pipeline and level are known.
    options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    Encode,
    Decode,
}

/// Bytes of contents a second that a device computes.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ComputeRate {
    /// Bytes a second.
    pub rate: f64,
    /// Whether this work has been measured on the device; otherwise it is derived from what its kernels' costs say.
    pub is_measured: bool,
}

/// The two figures of a device, as rates: work items a second, and bytes of buffers a second.
const THREADS: &str = "work items";
/// See [`THREADS`].
const BYTES: &str = "bytes of buffers";

/// Bytes that the processor is measured with, which at the slowest level takes a tenth of a second.
const CPU_SAMPLE: usize = 256 << 10;

/// How long it is measured, about.
const CPU_TIME: Duration = Duration::from_millis(20);

/// How long the last of the runs that a device is measured with takes, about.
const LONG_ENOUGH: Duration = Duration::from_millis(100);

/// Bytes that a device is measured with at most.
const DEVICE_SAMPLE: u64 = 128 << 20;

impl Load {
    /// Encoding as `options` say.
    ///
    /// # Errors
    /// If the options make no sense.
    pub(crate) fn encoding(options: &Options) -> Result<Self, Error> {
        Ok(Self {
            direction: Direction::Encode,
            block_size: options.chosen_block_size()?,
            options: Options {
                level: options.level,
                pipeline: options.pipeline,
                block_size: options.block_size,
                window: options.window,
                ..Options::new()
            },
        })
    }

    /// Decoding a frame.
    pub(crate) fn decoding(header: &FrameHeader) -> Self {
        Self::decoding_of(header.pipeline, header.level, header.block_size() as u64)
    }

    /// Decoding blocks of `block_size` bytes of `pipeline`; `level` is 0 if it is not known.
    pub(crate) fn decoding_of(pipeline: Pipeline, level: u8, block_size: u64) -> Self {
        let level = Level::new(level.into()).unwrap_or_default();
        let options = Options::new().level(level).pipeline(pipeline).block_size(block_size);
        Self { direction: Direction::Decode, block_size, options }
    }

    /// Bytes of a block.
    pub(crate) fn block_size(&self) -> u64 {
        self.block_size
    }

    /// The name of its rate.
    pub(crate) fn name(&self) -> String {
        let direction = match self.direction {
            Direction::Encode => "encode",
            Direction::Decode => "decode",
        };
        let options = &self.options;
        let window = options.window.map(|w| format!(" -w {w}")).unwrap_or_default();
        format!(
            "{direction} {} -{} -b {}{window}",
            options.chosen_pipeline(),
            options.level,
            self.block_size
        )
    }

    /// The name of the rate of whole runs, with all reading and writing, on so many threads.
    pub(crate) fn name_with(&self, workers: usize) -> String {
        format!("{} -T{workers}", self.name())
    }

    /// Seconds that `workers` threads, each at `rate` bytes a second, take for `bytes` bytes of contents.
    pub(crate) fn cpu_seconds(&self, bytes: u64, workers: usize, rate: f64) -> f64 {
        let block = self.block_size.min(bytes.max(1));
        let rounds = bytes.div_ceil(block).div_ceil(workers.max(1) as u64);
        rounds as f64 * block as f64 / rate
    }

    /// Seconds that those threads take with a device beside them that joins them after `opening` seconds and then does `rate`
    /// bytes a second.
    pub(crate) fn shared_seconds(
        &self,
        bytes: u64,
        (workers, cpu_rate): (usize, f64),
        (opening, rate): (f64, f64),
    ) -> f64 {
        let cpu_rate = workers as f64 * cpu_rate;
        let left = (bytes as f64 - opening * cpu_rate).max(0.0);
        if left == 0.0 { bytes as f64 / cpu_rate } else { opening + left / (rate + cpu_rate) }
    }

    /// The same, but if whole runs at `whole` bytes a second are known, as long as these took.
    pub(crate) fn with_device_seconds(
        &self,
        bytes: u64,
        cpu: (usize, f64),
        device: (f64, f64),
        whole: Option<f64>,
    ) -> f64 {
        whole.map_or_else(
            || self.shared_seconds(bytes, cpu, device),
            |rate| (bytes as f64 / rate).max(device.0),
        )
    }

    /// The stages of its plan for one block on a device; nothing if the device does not do it.
    pub(crate) fn stages(&self, limits: &Limits) -> Vec<StageWork> {
        let shape = Shape::new(1, self.block_size as u32);
        let plan = match self.direction {
            Direction::Encode => match self.options.recipe() {
                Ok(recipe) => pipelines::encode(limits, &recipe, shape),
                Err(_) => return Vec::new(),
            },
            Direction::Decode => {
                let pipeline = self.options.chosen_pipeline();
                pipelines::decode(limits, pipeline, shape, Needs::default())
            }
        };
        plan.map_or_else(|_| Vec::new(), |plan| StageWork::of(&plan))
    }

    /// Bytes of contents a second of the device alone, whatever comes and goes: from the times that the stages of this work
    /// took, or else, less exactly, from the two figures of the device and what the kernels' costs say.
    pub(crate) fn compute_rate(&self, limits: &Limits, rates: &Rates) -> Option<ComputeRate> {
        let prefix = format!("{}: ", self.name());
        let stages = rates.iter().filter(|(name, _)| name.starts_with(&prefix));
        let measured: f64 = stages.map(|(_, rate)| 1.0 / rate).sum();
        if measured > 0.0 {
            return Some(ComputeRate { rate: 1.0 / measured, is_measured: true });
        }
        let inverse = |rate: Option<f64>| rate.map_or(0.0, |rate| 1.0 / rate);
        let (thread, byte) = (inverse(rates.get(THREADS)), inverse(rates.get(BYTES)));
        let figures = Figures { thread, byte };
        let seconds: f64 = self.stages(limits).iter().map(|work| figures.seconds(work)).sum();
        (seconds > 0.0)
            .then(|| ComputeRate { rate: self.block_size as f64 / seconds, is_measured: false })
    }

    /// Bytes a second of one thread of the processor.
    pub(crate) fn measure_cpu(&self) -> f64 {
        let engine = CpuEngine::new();
        let Ok(recipe) = self.recipe_of_sample() else { return 0.0 };
        let Some(sample) = Sample::new(CPU_SAMPLE.min(self.block_size as usize), &recipe) else {
            return 0.0;
        };
        let time = match self.direction {
            Direction::Encode => fastest(|| sample.encode(&engine, &recipe, 1)),
            Direction::Decode => fastest(|| sample.decode(&engine, 1)),
        };
        sample.contents.len() as f64 / time.as_secs_f64().max(1e-9)
    }

    /// What `gpu` delivers, by running batches: small ones to compile what is needed, then larger ones until one takes
    /// [`LONG_ENOUGH`]. `None` if it does not do this work.
    pub(crate) fn measure_device(&self, gpu: &Gpu) -> Option<DeviceStatistics> {
        let device = gpu.pool().ok()?;
        let recipe = self.recipe_of_sample().ok()?;
        let pipeline = self.options.chosen_pipeline();
        let (work, of_sample) = match self.direction {
            // What it is encoded to, the device will say.
            Direction::Encode => (Work::Encode { recipe, verify: true }, Recipe::Store),
            Direction::Decode => (Work::Decode(pipeline), recipe),
        };
        let block_len = self.block_size as u32;
        let host_blocks = u64::from(u32::MAX);
        let mut accelerator = Accelerator {
            gpu: gpu.clone(),
            work,
            block_len,
            host_blocks,
            alone: None,
            afterwards: Share { workers: 1, in_flight: 1 },
            most_slots: MOST_SLOTS,
            blocks: None,
            statistics: None,
        };
        let found = accelerator.batches(device.limits())?;
        // What does not compile is declined when it is used.
        let _ = device.prepare(&work.plans(device.limits(), Shape::new(1, block_len)));
        let most = (DEVICE_SAMPLE / self.block_size).clamp(1, found.batch.into()) as usize;
        let sample = Sample::new(self.block_size as usize, &of_sample)?;
        let mut blocks = 1;
        loop {
            let statistics = Statistics::new();
            accelerator.statistics = Some(statistics.clone());
            accelerator.join(&found);
            let shape = Shape::new(blocks as u32, block_len);
            let engine = GpuEngine::new(device, shape, true, Some(&statistics));
            let run = || {
                let begun = Instant::now();
                let done = match self.direction {
                    Direction::Encode => sample.encode(&engine, &recipe, blocks),
                    Direction::Decode => sample.decode(&engine, blocks),
                };
                let bytes = done as u64 * self.block_size;
                statistics.device_batch(begun, done as u64, bytes, device.high_water());
                let found = statistics.device().filter(|_| done == blocks)?;
                Some((begun.elapsed(), found))
            };
            // The first batch takes memory, and may compile.
            let (_, before) = run()?;
            let (time, found) = run()?;
            if time >= LONG_ENOUGH || blocks == most {
                return Some(found.since(&before));
            }
            let factor = LONG_ENOUGH.div_duration_f64(time).clamp(2.0, 16.0);
            blocks = ((blocks as f64 * factor) as usize).min(most);
        }
    }

    /// How the sample is encoded that is to be decoded: what the slow searches find decodes like what others do.
    fn options_of_sample(&self) -> Options {
        match self.direction {
            Direction::Encode => self.options.clone(),
            Direction::Decode => {
                let pipeline = self.options.chosen_pipeline();
                let level = self.options.level.min(Level::DEFAULT);
                Options::new().level(level).pipeline(pipeline).block_size(self.block_size)
            }
        }
    }

    fn recipe_of_sample(&self) -> Result<Recipe, Error> {
        self.options_of_sample().recipe()
    }

    /// The rates of a device for the parts of this work.
    pub(crate) fn set_device_rates(
        &self,
        rates: &mut Rates,
        limits: Option<&Limits>,
        found: &DeviceStatistics,
        learn: bool,
    ) {
        let name = self.name();
        let seconds = found.span.as_secs_f64();
        if seconds <= 0.0 || found.done.bytes == 0 {
            return;
        }
        if learn {
            rates.learn(&name, found.done.bytes as f64 / seconds);
        } else {
            rates.set(name.clone(), steady_rate(found));
        }
        if let Some(limits) = limits
            && rates.get(THREADS).is_none()
            && rates.get(BYTES).is_none()
        {
            let measured = pair(&self.stages(limits), found.done.blocks, &found.stages);
            if let Some(figures) = Figures::fit(&measured) {
                rates.set(THREADS, 1.0 / figures.thread);
                rates.set(BYTES, 1.0 / figures.byte);
            }
        }
        for stage in &found.stages {
            let seconds = stage.time.as_secs_f64();
            rates.set(format!("{name}: {}", stage.stage), found.done.bytes as f64 / seconds);
        }
    }
}

/// Bytes a second that follow from a measurement of a few batches, in which they hardly overlapped: that of what takes
/// longest of copies in, computing and copies out, and no more than the device's threads together can handle.
fn steady_rate(found: &DeviceStatistics) -> f64 {
    let [upload, compute, download, verify] =
        [found.upload, found.compute, found.download, found.verify].map(|time| time.as_secs_f64());
    let alone = (compute + verify).max(upload).max(download);
    let together = (upload + compute + download + verify) / f64::from(found.slots.max(1));
    let seconds = alone.max(together);
    let seconds = if seconds > 0.0 { seconds } else { found.span.as_secs_f64() };
    found.done.bytes as f64 / seconds
}

/// The time of the fastest of some runs: the first touches memory that is new. One that takes long stays alone.
fn fastest(run: impl Fn() -> usize) -> Duration {
    let begun = Instant::now();
    let mut best = Duration::MAX;
    while best == Duration::MAX || begun.elapsed() < CPU_TIME {
        let start = Instant::now();
        std::hint::black_box(run());
        best = best.min(start.elapsed());
    }
    best
}

/// A block that is encoded or decoded over and over again.
struct Sample {
    contents: Vec<u8>,
    payload: Vec<u8>,
    coded: Coded,
}

impl Sample {
    fn new(len: usize, recipe: &Recipe) -> Option<Self> {
        let contents = sample(len);
        let mut payload = Vec::new();
        let mut job = EncodeJob::new(&contents, &mut payload);
        CpuEngine::new().encode(recipe, std::slice::from_mut(&mut job));
        let coded = job.coded?;
        Some(Self { contents, payload, coded })
    }

    fn header(&self) -> BlockHeader {
        BlockHeader {
            method: self.coded.method,
            block_log: 0,
            number: 0,
            content_len: self.contents.len() as u32,
            payload_len: self.payload.len() as u32,
            payload_crc: self.coded.payload_crc,
            content_crc: self.coded.content_crc,
        }
    }

    /// Encodes it so many times; gives how often that was done.
    fn encode(&self, engine: &dyn Engine, recipe: &Recipe, times: usize) -> usize {
        let mut payloads = vec![Vec::with_capacity(self.payload.len()); times];
        let job = |payload| EncodeJob::new(&self.contents, payload);
        let mut jobs: Vec<_> = payloads.iter_mut().map(job).collect();
        engine.encode(recipe, &mut jobs);
        jobs.iter().filter(|job| job.coded.is_some()).count()
    }

    /// Decodes it so many times; gives how often that was done.
    fn decode(&self, engine: &dyn Engine, times: usize) -> usize {
        let mut all = vec![0; times * self.contents.len()];
        let job = |contents| {
            let (header, payload) = (self.header(), Some(&self.payload[..]));
            DecodeJob { header, payload, contents, outcome: None }
        };
        let mut jobs: Vec<_> = all.chunks_mut(self.contents.len()).map(job).collect();
        engine.decode(&mut jobs);
        jobs.iter().filter(|job| matches!(job.outcome, Some(Ok(())))).count()
    }
}

/// Contents to measure with: lines of words, some of which come often, that shrink to about a third.
fn sample(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let words: Vec<Vec<u8>> = (0..2048)
        .map(|_| {
            let bits = random();
            (0..2 + bits % 9).map(|i| b'a' + ((bits >> (8 + 5 * i)) % 26) as u8).collect()
        })
        .collect();
    let mut bytes = Vec::with_capacity(len + 64);
    while bytes.len() < len {
        let bits = random();
        // Small numbers more often than large ones.
        let word = ((bits & 2047) * (bits >> 11 & 2047) * (bits >> 22 & 2047)) >> 22;
        bytes.extend_from_slice(&words[word as usize]);
        bytes.push(if bits >> 40 & 15 == 0 { b'\n' } else { b' ' });
    }
    bytes.truncate(len);
    bytes
}
