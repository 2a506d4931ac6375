//! What a coder is made for, and what it takes.

use crate::codec::{Codec, Recipe};
use crate::gpu::coder::{BufferBytes, PayloadFeatures};
use crate::gpu::device::Limits;
use crate::gpu::model::budget::BlockCost;
use crate::gpu::model::plan::{PlanError, Shape};
use crate::gpu::stages::pipelines;

/// What a coder is made for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Key {
    pub(super) recipe: Recipe,
    pub(super) block_len: u32,
    pub(super) verifies: bool,
}

impl Key {
    /// What it takes to encode a block, its part of the second outbox included.
    pub(super) fn encoding(&self, limits: &Limits) -> Result<BlockCost, PlanError> {
        let Self { recipe, block_len, .. } = *self;
        let encode = BlockCost::of(|shape| pipelines::encode(limits, &recipe, shape), block_len)?;
        let outbox = self.outbox_bytes(limits, 1)?;
        Ok(BlockCost { memory: encode.memory + outbox, ..encode })
    }

    /// What it takes to check a block; `None` if none is to be.
    pub(super) fn checking(&self, limits: &Limits) -> Result<Option<BlockCost>, PlanError> {
        let Self { recipe, block_len, verifies } = *self;
        let decoding = pipelines::decoding(&recipe);
        let plan = |shape| pipelines::decode(limits, decoding, shape, PayloadFeatures::default());
        verifies.then(|| BlockCost::of(plan, block_len)).transpose()
    }

    /// Whether the device is to have one batch at a time. Searches with many candidates keep all of it busy, and are
    /// slower beside other kernels, which need the cache too. The others leave much of it idle, which other batches can
    /// use.
    pub(super) fn encodes_alone(&self) -> bool {
        matches!(self.recipe.codec, Codec::Lz77(params) if params.search.has_many_candidates())
    }

    /// Bytes of an outbox for `blocks` blocks: as many as an encoder has for their payloads.
    pub(super) fn outbox_bytes(&self, limits: &Limits, blocks: u32) -> Result<u64, PlanError> {
        let Self { recipe, block_len, .. } = *self;
        let plan = pipelines::encode(limits, &recipe, Shape::new(blocks, block_len))?;
        Ok(BufferBytes::of(&plan, "packed").payloads)
    }
}
