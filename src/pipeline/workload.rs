//! A kind of work, and the measured rates of the CPU and devices on it.

use std::time::Duration;

use super::cpu::CpuEngine;
use super::gpu::Accelerator;
use super::gpu_engine::GpuEngine;
use super::memory::{Cost, Share};
use super::prediction::FrameKind;
use super::rate_cache::Rates;
use super::sample::Sample;
use super::statistics::{DeviceStatistics, Statistics};
use super::{Gpu, Level, Options};
use crate::clock::Instant;
use crate::codec::filter::Filter;
use crate::codec::{Codec, Recipe};
use crate::error::Error;
use crate::format::FrameHeader;
use crate::gpu::coder::Work;
use crate::gpu::device::{Device, Limits};
use crate::gpu::model::plan::Shape;
use crate::gpu::model::predict::{Figures, StageWork, pair};
use crate::gpu::stages::lz77_decode::Needs;
use crate::gpu::stages::pipelines;

/// A kind of work: encoding or decoding blocks of one kind and size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workload {
    direction: Direction,
    block_size: u64,
    /// How such blocks are encoded. For decoding, only pipeline and level are known.
    options: Options,
}

/// Limits on the host's part of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HostLimits {
    /// The number of workers; 0 means one for each core.
    pub(crate) threads: usize,
    /// Bytes of memory.
    pub(crate) memory: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Encode,
    Decode,
}

/// The result of measuring a device.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The statistics of the measured batches.
    pub(crate) found: DeviceStatistics,
    /// Time to compile its kernels, or to fetch them from the cache.
    pub(crate) preparing: Duration,
}

/// How many bytes of contents a device processes per second, not counting copies.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ComputeRate {
    /// Bytes a second.
    pub rate: f64,
    /// Whether this work was measured on the device; otherwise the rate is predicted from its kernels' costs.
    pub is_measured: bool,
}

/// Names of the two figures of a device: work items a second, and bytes of buffers a second.
const THREADS: &str = "work items";
const BYTES: &str = "bytes of buffers";

/// Bytes of synthetic contents to measure the CPU with, if there is no sample. The slowest level takes a tenth of a
/// second for them.
const SYNTHETIC_BYTES: usize = 256 << 10;

/// A device is measured with ever larger batches until one takes about this long.
const MIN_MEASUREMENT: Duration = Duration::from_millis(100);

/// The most bytes of a batch to measure a device with.
const MAX_MEASURED_BYTES: u64 = 128 << 20;

impl Workload {
    /// Encoding with `options`.
    ///
    /// # Errors
    /// If the options are invalid.
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
        let (pipeline, block_size) = (header.pipeline, header.block_size() as u64);
        let level = Level::new(header.level.into()).ok();
        Self::decoding_of(FrameKind { pipeline, level, block_size })
    }

    /// Decoding frames of a kind.
    pub(crate) fn decoding_of(kind: FrameKind) -> Self {
        let FrameKind { pipeline, level, block_size } = kind;
        let level = level.unwrap_or_default();
        let options = Options::new().level(level).pipeline(pipeline).block_size(block_size);
        Self { direction: Direction::Decode, block_size, options }
    }

    /// Bytes of a block.
    pub(crate) fn block_size(&self) -> u64 {
        self.block_size
    }

    pub(crate) fn direction(&self) -> Direction {
        self.direction
    }

    /// The name under which its rate is kept.
    pub(crate) fn name(&self) -> String {
        let direction = match self.direction {
            Direction::Encode => "encode",
            Direction::Decode => "decode",
        };
        let options = &self.options;
        let window = options.window.map(|w| format!(" -w {w}")).unwrap_or_default();
        let filter = match options.filter {
            Filter::None => String::new(),
            filter => format!(" --filter {filter}"),
        };
        format!(
            "{direction} {} -{} -b {}{window}{filter}",
            options.chosen_pipeline(),
            options.level,
            self.block_size
        )
    }

    /// The stages of the plan for one block; none if the device declines it.
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

    /// Bytes of contents a second that the device computes, without copies. Uses the measured times of the stages or
    /// else, less exactly, the two figures of the device and the kernels' costs.
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

    /// The workers and blocks of a job of `bytes` bytes with `limits`, and the bytes of host memory that they take.
    pub(crate) fn host_share(
        &self,
        bytes: u64,
        limits: &HostLimits,
    ) -> Result<(Share, u64), Error> {
        let (engine, size) = (CpuEngine::new(), self.block_size as usize);
        let cost = match self.direction {
            Direction::Encode => Cost::of_encoding(&engine, &self.options.recipe()?, size),
            Direction::Decode => {
                Cost::of_decoding_blocks(&engine, self.options.chosen_pipeline(), size)
            }
        };
        let blocks = bytes.div_ceil(self.block_size);
        let share = cost.share_for(Some(blocks), limits.threads, limits.memory)?;
        Ok((share, cost.of(share)))
    }

    /// The most bytes of its own memory that the device may use; `None` if it does not do this work.
    pub(crate) fn device_memory(&self, gpu: &Gpu, limits: &Limits) -> Option<u64> {
        let work = match self.direction {
            Direction::Encode => Work::Encode { recipe: self.options.recipe().ok()?, verify: true },
            Direction::Decode => Work::Decode(self.options.chosen_pipeline()),
        };
        let block_len = self.block_size as u32;
        let batches = Accelerator::alone(gpu.clone(), work, block_len).on_device(limits).ok()?;
        batches.memory(&work.cost(limits, block_len).ok()?).ok()
    }

    /// Bytes a second of one of `workers` workers on the blocks of `sample`, or on synthetic contents if there are
    /// none.
    pub(crate) fn measure_cpu(&self, sample: Option<&Sample>, workers: usize) -> f64 {
        let synthetic;
        let (sample, recipe) = match sample.filter(|sample| !sample.is_empty()) {
            Some(sample) => (sample, self.options.recipe()),
            None => {
                synthetic = Sample::synthetic(SYNTHETIC_BYTES.min(self.block_size as usize));
                (&synthetic, self.recipe_of_synthetic())
            }
        };
        recipe.map_or(0.0, |recipe| sample.worker_rate(self.direction, &recipe, workers))
    }

    /// Measures `gpu` by running batches: small ones first to compile the kernels, then larger ones until one takes
    /// [`MIN_MEASUREMENT`].
    ///
    /// # Errors
    /// Why the device does not do this work.
    pub(crate) fn measure_device(
        &self,
        gpu: &Gpu,
        sample: Option<&Sample>,
    ) -> Result<Measured, String> {
        let device = gpu.pool().map_err(|error| error.to_string())?;
        let pipeline = self.options.chosen_pipeline();
        let synthetic;
        let (sample, recipe) = match sample.filter(|sample| !sample.is_empty()) {
            Some(sample) => (sample, self.options.recipe()),
            None => {
                synthetic = Sample::synthetic(self.block_size as usize);
                (&synthetic, self.recipe_of_synthetic())
            }
        };
        let recipe = recipe.map_err(|error| error.to_string())?;
        let (work, of_sample) = match self.direction {
            // The device makes the payloads itself.
            Direction::Encode => (Work::Encode { recipe, verify: true }, Codec::Store.into()),
            Direction::Decode => (Work::Decode(pipeline), recipe),
        };
        let encoded = sample.encoded(&of_sample, self.direction);
        let encoded = encoded.ok_or("the blocks do not shrink: there is nothing to decode")?;
        let block_len = self.block_size as u32;
        let mut accelerator = Accelerator::alone(gpu.clone(), work, block_len);
        let found = accelerator.on_device(device.limits())?;
        let begun = Instant::now();
        // If a kernel does not compile, the batch fails and says why.
        let _ = device.prepare(&work.plans(device.limits(), Shape::new(1, block_len)));
        let preparing = begun.elapsed();
        let most = (MAX_MEASURED_BYTES / self.block_size).clamp(1, found.batch.into()) as usize;
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
                    Direction::Encode => encoded.encode(&engine, &recipe, blocks),
                    Direction::Decode => encoded.decode(&engine, blocks),
                };
                let bytes = encoded.bytes(blocks);
                statistics.device_batch(begun, done as u64, bytes, device.high_water());
                let found = statistics.device().ok_or("it takes no part")?;
                if done == blocks {
                    Ok((begun.elapsed(), found))
                } else {
                    let why = found.notes.last().cloned();
                    Err(why.unwrap_or_else(|| "it leaves blocks to the CPU".into()))
                }
            };
            // The first batch allocates memory, and may compile kernels.
            let (_, before) = run()?;
            let (time, found) = run()?;
            if time >= MIN_MEASUREMENT || blocks == most {
                return Ok(Measured { found: found.since(&before), preparing });
            }
            let factor = MIN_MEASUREMENT.div_duration_f64(time).clamp(2.0, 16.0);
            blocks = ((blocks as f64 * factor) as usize).min(most);
        }
    }

    /// How to encode synthetic contents. For decoding, a quick search will do: the matches of slow searches decode at
    /// the same speed.
    fn recipe_of_synthetic(&self) -> Result<Recipe, Error> {
        match self.direction {
            Direction::Encode => self.options.recipe(),
            Direction::Decode => {
                let pipeline = self.options.chosen_pipeline();
                let level = self.options.level.min(Level::DEFAULT);
                Options::new().level(level).pipeline(pipeline).block_size(self.block_size).recipe()
            }
        }
    }

    /// Sets in `rates` the rates that a device with these limits showed, from memory to memory, for this work and its
    /// stages.
    pub(crate) fn set_measured_rates(
        &self,
        rates: &mut Rates,
        limits: &Limits,
        found: &DeviceStatistics,
    ) {
        if found.span.is_zero() || found.done.bytes == 0 {
            return;
        }
        rates.set(self.name(), steady_rate(found));
        if rates.get(THREADS).is_none() && rates.get(BYTES).is_none() {
            let measured = pair(&self.stages(limits), found.done.blocks, &found.stages);
            if let Some(figures) = Figures::fit(&measured) {
                rates.set(THREADS, 1.0 / figures.thread);
                rates.set(BYTES, 1.0 / figures.byte);
            }
        }
        self.set_stage_rates(rates, found);
    }

    /// Sets in `rates` how fast each stage of this work ran on a device.
    pub(crate) fn set_stage_rates(&self, rates: &mut Rates, found: &DeviceStatistics) {
        for stage in &found.stages {
            let rate = found.done.bytes as f64 / stage.time.as_secs_f64();
            rates.set(format!("{}: {}", self.name(), stage.stage), rate);
        }
    }
}

/// Bytes a second of a device in a long run, derived from a measurement of a few batches that hardly overlapped. The
/// slowest of copying in, computing and copying out limits the rate, and so does the time of the device's threads.
fn steady_rate(found: &DeviceStatistics) -> f64 {
    let [upload, compute, download, verify] =
        [found.upload, found.compute, found.download, found.verify].map(|time| time.as_secs_f64());
    let alone = (compute + verify).max(upload).max(download);
    let together = (upload + compute + download + verify) / f64::from(found.slots.max(1));
    let seconds = alone.max(together);
    let seconds = if seconds > 0.0 { seconds } else { found.span.as_secs_f64() };
    found.done.bytes as f64 / seconds
}
