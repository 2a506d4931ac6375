//! The work that a device does on blocks.

use crate::codec::Recipe;
use crate::codec::lz77::MAX_BLOCK;
use crate::format::Pipeline;
use crate::gpu::device::Limits;
use crate::gpu::model::budget::BlockCost;
use crate::gpu::model::plan::{Plan, PlanError, Shape};
use crate::gpu::stages::lz77_decode::PayloadFeatures;
use crate::gpu::stages::pipelines;

/// How blocks are encoded: a codec with its parameters, the block size, and whether the result is verified.
/// [`Options::encoding`](crate::Options::encoding) makes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding {
    pub(crate) recipe: Recipe,
    /// Bytes of the longest block.
    pub(crate) block_len: u32,
    /// Whether blocks are decoded again, for verification.
    pub(crate) verify: bool,
}

/// The work that a device does on blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockTask {
    /// Encodes them, and decodes them again if `verify` is set.
    Encode { recipe: Recipe, verify: bool },
    /// Decodes them.
    Decode(Pipeline),
}

impl BlockTask {
    /// The device memory for a block of `block_len` bytes: the maximum over the parts of the work, which run one after
    /// another.
    pub(crate) fn cost(&self, limits: &Limits, block_len: u32) -> Result<BlockCost, PlanError> {
        let mut most: Option<BlockCost> = None;
        for part in self.parts(block_len) {
            let cost = part.cost_of_part(limits, block_len)?;
            most = Some(most.map_or(cost, |most| most.max(&cost)));
        }
        most.ok_or_else(|| PlanError::Declined("there is nothing to do".into()))
    }

    /// Splits the work into parts of one codec each.
    fn parts(&self, block_len: u32) -> Vec<Self> {
        match *self {
            Self::Encode { recipe, verify } => {
                recipe.parts().map(|recipe| Self::Encode { recipe, verify }).collect()
            }
            Self::Decode(Pipeline::Bwt) if block_len as usize <= MAX_BLOCK => {
                vec![Self::Decode(Pipeline::Bwt), Self::Decode(Pipeline::Lzf)]
            }
            work => vec![work],
        }
    }

    fn cost_of_part(&self, limits: &Limits, block_len: u32) -> Result<BlockCost, PlanError> {
        match self {
            Self::Decode(pipeline) => BlockCost::of(
                |shape| pipelines::decode(limits, *pipeline, shape, PayloadFeatures::default()),
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
        let parts = self.parts(shape.slot);
        parts.iter().flat_map(|part| part.plans_of_part(limits, shape)).collect()
    }

    fn plans_of_part(&self, limits: &Limits, shape: Shape) -> Vec<Plan> {
        let plans = match self {
            Self::Decode(pipeline) => {
                // Payloads with FSE-coded streams need other variants of the kernels.
                let of = |features| pipelines::decode(limits, *pipeline, shape, features);
                let fse = match pipeline {
                    Pipeline::Fse => PayloadFeatures::literals(),
                    _ => PayloadFeatures::any(shape.slot, true),
                };
                vec![of(PayloadFeatures::default()), of(fse)]
            }
            Self::Encode { recipe, verify } => {
                let mut plans = vec![pipelines::encode(limits, recipe, shape)];
                if *verify {
                    plans.extend(
                        Self::Decode(pipelines::decoding(recipe))
                            .plans_of_part(limits, shape)
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
