//! The plans of whole pipelines: stages chained, from a raw batch to finished blocks and back.

use super::device::Limits;
use super::plan::{Plan, PlanError, Shape};
use crate::format::Pipeline;
use crate::pipeline::level::Recipe;

fn declined<T>(what: &str) -> Result<T, PlanError> {
    Err(PlanError::Declined(what.into()))
}

/// From `contents` to `packed`, with a result for each block.
pub(crate) fn encode(limits: &Limits, recipe: &Recipe, shape: Shape) -> Result<Plan, PlanError> {
    let _ = (limits, shape);
    match recipe {
        Recipe::Store => declined("stored blocks are not encoded"),
        Recipe::Lz77(_) => declined("no kernel encodes LZ77 yet"),
        Recipe::Bwt(_) => declined("no kernel encodes the BWT yet"),
    }
}

/// From `payload` to `contents`, with a result for each block.
pub(crate) fn decode(limits: &Limits, pipeline: Pipeline, shape: Shape) -> Result<Plan, PlanError> {
    let _ = (limits, shape);
    match pipeline {
        Pipeline::Store => declined("stored blocks are not decoded"),
        Pipeline::Lzh | Pipeline::Lzf | Pipeline::Fse => declined("no kernel decodes LZ77 yet"),
        Pipeline::Bwt => declined("no kernel decodes the BWT yet"),
    }
}
