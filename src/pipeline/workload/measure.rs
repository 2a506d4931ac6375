//! Measures the CPU and devices on a workload.

use std::time::Duration;

use super::{Direction, Workload};
use crate::clock::Instant;
use crate::codec::{Codec, Recipe};
use crate::error::Error;
use crate::gpu::coder::BlockTask;
use crate::gpu::device::Device;
use crate::gpu::model::plan::Shape;
use crate::pipeline::gpu::Accelerator;
use crate::pipeline::gpu_engine::GpuEngine;
use crate::pipeline::sample::Sample;
use crate::pipeline::statistics::{DeviceStatistics, Statistics};
use crate::pipeline::{Gpu, Level, Options};

/// The result of measuring a device.
#[derive(Debug)]
pub(crate) struct Measured {
    /// The statistics of the measured batches.
    pub(crate) found: DeviceStatistics,
    /// Time to compile its kernels, or to fetch them from the cache.
    pub(crate) preparing: Duration,
}

/// Bytes of synthetic contents to measure the CPU with, if there is no sample. The slowest level takes a tenth of a
/// second for them.
const SYNTHETIC_BYTES: usize = 256 << 10;

/// A device is measured with ever larger batches until one takes about this long.
const MIN_MEASUREMENT: Duration = Duration::from_millis(100);

/// The most bytes of a batch to measure a device with.
const MAX_MEASURED_BYTES: u64 = 128 << 20;

impl Workload {
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
            Direction::Encode => (BlockTask::Encode { recipe, verify: true }, Codec::Store.into()),
            Direction::Decode => (BlockTask::Decode(pipeline), recipe),
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
}
