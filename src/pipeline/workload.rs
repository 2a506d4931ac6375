//! A kind of work, and what the CPU and devices deliver when they are measured with it.

use std::time::{Duration, Instant};

use super::cpu::CpuEngine;
use super::gpu::{Accelerator, Work};
use super::gpu_engine::GpuEngine;
use super::level::Recipe;
use super::memory::Cost;
use super::rate_cache::Rates;
use super::sample::Sample;
use super::statistics::{DeviceStatistics, Statistics};
use super::{Gpu, Level, Options};
use crate::error::Error;
use crate::format::{FrameHeader, Pipeline};
use crate::gpu::device::{Device, Limits};
use crate::gpu::lz77_decode::Needs;
use crate::gpu::pipelines;
use crate::gpu::plan::Shape;
use crate::gpu::predict::{Figures, StageWork, pair};

/// A kind of work: blocks of one kind and size, one way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Workload {
    direction: Direction,
    block_size: u64,
    /// How blocks of that kind are encoded. For decoding only pipeline and level are known.
    options: Options,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    Encode,
    Decode,
}

/// What a measurement of a device found.
#[derive(Debug)]
pub(crate) struct Measured {
    pub(crate) found: DeviceStatistics,
    /// How long its kernels took to be compiled, or fetched from the cache.
    pub(crate) preparing: Duration,
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

/// Bytes that the CPU is measured with if there is no file, which at the slowest level takes a tenth of a second.
const MADE_UP: usize = 256 << 10;

/// How long the last of the runs that a device is measured with takes, about.
const LONG_ENOUGH: Duration = Duration::from_millis(100);

/// Bytes that a device is measured with at most.
const DEVICE_SAMPLE: u64 = 128 << 20;

impl Workload {
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

    pub(crate) fn direction(&self) -> Direction {
        self.direction
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

    /// The name for what whole runs showed, with all reading and writing, on so many threads.
    pub(crate) fn name_with(&self, workers: usize) -> String {
        format!("{} -T{workers}", self.name())
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

    /// Bytes that so many workers take, with their blocks.
    pub(crate) fn cpu_memory(&self, workers: usize) -> u64 {
        let (engine, size) = (CpuEngine::new(), self.block_size as usize);
        let cost = match self.direction {
            Direction::Encode => match self.options.recipe() {
                Ok(recipe) => Cost::of_encoding(&engine, &recipe, size),
                Err(_) => return 0,
            },
            Direction::Decode => {
                let pipeline = self.options.chosen_pipeline();
                let block_log = self.block_size.trailing_zeros() as u8;
                let header =
                    FrameHeader { pipeline, block_log, level: 0, content_size: None, single: None };
                Cost::of_decoding(&engine, &header)
            }
        };
        let Ok(share) = cost.share(workers, u64::MAX) else { return 0 };
        cost.fixed + cost.worker * share.workers as u64 + cost.block * share.in_flight as u64
    }

    /// Bytes of its own memory that a device with such limits is given at most; `None` if it does not do this work.
    pub(crate) fn device_memory(&self, gpu: &Gpu, limits: &Limits) -> Option<u64> {
        let work = match self.direction {
            Direction::Encode => Work::Encode { recipe: self.options.recipe().ok()?, verify: true },
            Direction::Decode => Work::Decode(self.options.chosen_pipeline()),
        };
        let block_len = self.block_size as u32;
        let batches = Accelerator::alone(gpu.clone(), work, block_len).on_device(limits).ok()?;
        batches.memory(&work.cost(limits, block_len).ok()?).ok()
    }

    /// Bytes a second of one of `workers` workers on the blocks of `sample`, or on something made up.
    pub(crate) fn measure_cpu(&self, sample: Option<&Sample>, workers: usize) -> f64 {
        let made_up;
        let (sample, recipe) = match sample.filter(|sample| !sample.is_empty()) {
            Some(sample) => (sample, self.options.recipe()),
            None => {
                made_up = Sample::made_up(MADE_UP.min(self.block_size as usize));
                (&made_up, self.recipe_of_made_up())
            }
        };
        recipe.map_or(0.0, |recipe| sample.worker_rate(self.direction, &recipe, workers))
    }

    /// What `gpu` delivers, by running batches: small ones to compile what is needed, then larger ones until one takes
    /// [`LONG_ENOUGH`].
    ///
    /// # Errors
    /// Why it does not do this work.
    pub(crate) fn measure_device(
        &self,
        gpu: &Gpu,
        sample: Option<&Sample>,
    ) -> Result<Measured, String> {
        let device = gpu.pool().map_err(ToString::to_string)?;
        let pipeline = self.options.chosen_pipeline();
        let made_up;
        let (sample, recipe) = match sample.filter(|sample| !sample.is_empty()) {
            Some(sample) => (sample, self.options.recipe()),
            None => {
                made_up = Sample::made_up(self.block_size as usize);
                (&made_up, self.recipe_of_made_up())
            }
        };
        let recipe = recipe.map_err(|error| error.to_string())?;
        let (work, of_sample) = match self.direction {
            // What it is encoded to, the device will say.
            Direction::Encode => (Work::Encode { recipe, verify: true }, Recipe::Store),
            Direction::Decode => (Work::Decode(pipeline), recipe),
        };
        let encoded = sample.encoded(&of_sample, self.direction);
        let encoded = encoded.ok_or("the blocks do not shrink, and are only copied")?;
        let block_len = self.block_size as u32;
        let mut accelerator = Accelerator::alone(gpu.clone(), work, block_len);
        let found = accelerator.on_device(device.limits())?;
        let begun = Instant::now();
        // A kernel that does not compile makes the batch fail, and the batch says why.
        let _ = device.prepare(&work.plans(device.limits(), Shape::new(1, block_len)));
        let preparing = begun.elapsed();
        let most = (DEVICE_SAMPLE / self.block_size).clamp(1, found.batch.into()) as usize;
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
            // The first batch takes memory, and may compile.
            let (_, before) = run()?;
            let (time, found) = run()?;
            if time >= LONG_ENOUGH || blocks == most {
                return Ok(Measured { found: found.since(&before), preparing });
            }
            let factor = LONG_ENOUGH.div_duration_f64(time).clamp(2.0, 16.0);
            blocks = ((blocks as f64 * factor) as usize).min(most);
        }
    }

    /// How made-up contents are encoded: what slow searches find decodes like what the quick ones find.
    fn recipe_of_made_up(&self) -> Result<Recipe, Error> {
        match self.direction {
            Direction::Encode => self.options.recipe(),
            Direction::Decode => {
                let pipeline = self.options.chosen_pipeline();
                let level = self.options.level.min(Level::DEFAULT);
                Options::new().level(level).pipeline(pipeline).block_size(self.block_size).recipe()
            }
        }
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
