//! A kind of work: what it takes of the host and of a device.
//!
//! | module | |
//! |---|---|
//! | [`rates`] | the rates of devices on it, kept from run to run |
//! | [`measure`] | measures the CPU and devices on it |

mod measure;
mod rates;

pub use rates::ComputeRate;

use super::cpu::CpuEngine;
use super::gpu::Accelerator;
use super::memory::{Cost, Share};
use super::prediction::FrameKind;
use super::{Gpu, Level, Options};
use crate::codec::filter::Filter;
use crate::error::Error;
use crate::format::FrameHeader;
use crate::gpu::coder::BlockTask;
use crate::gpu::device::Limits;
use crate::gpu::model::plan::Shape;
use crate::gpu::model::predict::StageWork;
use crate::gpu::stages::lz77_decode::PayloadFeatures;
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
                pipelines::decode(limits, pipeline, shape, PayloadFeatures::default())
            }
        };
        plan.map_or_else(|_| Vec::new(), |plan| StageWork::of(&plan))
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
            Direction::Encode => {
                BlockTask::Encode { recipe: self.options.recipe().ok()?, verify: true }
            }
            Direction::Decode => BlockTask::Decode(self.options.chosen_pipeline()),
        };
        let block_len = self.block_size as u32;
        let batches = Accelerator::alone(gpu.clone(), work, block_len).on_device(limits).ok()?;
        batches.memory(&work.cost(limits, block_len).ok()?).ok()
    }
}
