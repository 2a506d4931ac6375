//! What a device does with blocks.

use crate::codec::Recipe;
use crate::format::Pipeline;
use crate::gpu::device::Limits;
use crate::gpu::model::budget::BlockCost;
use crate::gpu::model::plan::{Plan, PlanError, Shape};
use crate::gpu::stages::lz77_decode::Needs;
use crate::gpu::stages::pipelines;

/// How blocks are encoded: a codec with its parameters, the block size, and whether the result is verified.
/// [`Options::encoding`](crate::Options::encoding) makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    pub(crate) recipe: Recipe,
    /// Bytes of the longest block.
    pub(crate) block_len: u32,
    /// Whether blocks are decoded again.
    pub(crate) verify: bool,
}

/// What a device does with blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Encodes them, and decodes them again if `verify` is set.
    Encode { recipe: Recipe, verify: bool },
    /// Decodes them.
    Decode(Pipeline),
}

impl Work {
    /// The device memory for a block of `block_len` bytes.
    pub(crate) fn cost(&self, limits: &Limits, block_len: u32) -> Result<BlockCost, PlanError> {
        match self {
            Self::Decode(pipeline) => BlockCost::of(
                |shape| pipelines::decode(limits, *pipeline, shape, Needs::default()),
                block_len,
            ),
            Self::Encode { recipe, verify } => {
                let cost =
                    BlockCost::of(|shape| pipelines::encode(limits, recipe, shape), block_len)?;
                let checked = (*verify).then(|| {
                    let plan = |shape| pipelines::check(limits, recipe, shape);
                    BlockCost::of(plan, block_len).ok()
                });
                Ok(checked.flatten().map_or(cost, |checker| cost.and(&checker)))
            }
        }
    }

    /// The plans for batches of `shape`.
    pub(crate) fn plans(&self, limits: &Limits, shape: Shape) -> Vec<Plan> {
        let plans = match self {
            Self::Decode(pipeline) => {
                // Payloads with FSE-coded streams need other variants of the kernels.
                let of = |needs| pipelines::decode(limits, *pipeline, shape, needs);
                let fse = match pipeline {
                    Pipeline::Fse => Needs::literals(),
                    _ => Needs::any(shape.slot, true),
                };
                vec![of(Needs::default()), of(fse)]
            }
            Self::Encode { recipe, verify } => {
                let mut plans = vec![pipelines::encode(limits, recipe, shape)];
                if *verify {
                    plans.extend(
                        Self::Decode(pipelines::decoding(recipe))
                            .plans(limits, shape)
                            .into_iter()
                            .map(Ok),
                    );
                }
                plans
            }
        };
        plans.into_iter().flatten().collect()
    }
}
