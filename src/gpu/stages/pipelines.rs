//! Plans of whole pipelines, chained from stages: from a raw batch to finished blocks, and back.

use super::checksum::{Direction, add_checksums, add_packing};
use super::filter::ModuleStep;
use super::forward_filter::{self, Passes, max_passes};
use super::lz77_decode::PayloadFeatures;
use super::{bwt_decode, bwt_encode, filter, lz77_code, lz77_decode, lz77_find, moves};
use crate::codec::filter::Filter;
use crate::codec::lz77::Search;
use crate::codec::{Codec, Recipe};
use crate::format::Pipeline;
use crate::gpu::device::Limits;
use crate::gpu::model::plan::{Plan, PlanError, Shape};

fn declined<T>(what: &str) -> Result<T, PlanError> {
    Err(PlanError::Declined(what.into()))
}

/// Returns `plan` if the device can run its workgroups.
fn runnable(plan: Plan, limits: &Limits) -> Result<Plan, PlanError> {
    for run in plan.runs() {
        let (stem, entry, name) = (run.kernel.stem, run.entry, &limits.name);
        if run.threads > limits.max_workgroup {
            let (threads, most) = (run.threads, limits.max_workgroup);
            return declined(&format!(
                "kernel {stem} ({entry}) has workgroups of {threads} work items, and {name} runs at most {most}"
            ));
        }
    }
    Ok(plan)
}

/// Makes the plan from `contents` to `packed`, with a result for each block. If the recipe has several
/// [parts](Recipe::parts), the plan is that of the first.
pub(crate) fn encode(limits: &Limits, recipe: &Recipe, shape: Shape) -> Result<Plan, PlanError> {
    encode_filtered(limits, recipe, shape, max_passes(&recipe.filter))
}

/// Like [`encode`], for blocks whose chains take at most `passes` passes.
pub(crate) fn encode_filtered(
    limits: &Limits,
    recipe: &Recipe,
    shape: Shape,
    passes: usize,
) -> Result<Plan, PlanError> {
    if let Filter::Chain(chain) = &recipe.filter
        && Passes::of(chain).is_none()
    {
        return Err(forward_filter::why_not(chain));
    }
    let mut plan = Plan::new(shape);
    match &recipe.codec.first() {
        Codec::Store | Codec::Smallest(_) => return declined("stored blocks are not encoded"),
        Codec::Lz77(params) => {
            if params.search != Search::None {
                lz77_find::append(&mut plan, limits, params)?;
            }
            lz77_code::append(&mut plan, limits, params)?;
        }
        Codec::Bwt(params) => plan = bwt_encode::plan(limits, shape, params)?,
    }
    if recipe.filter != Filter::None {
        forward_filter::prepend(&mut plan, passes)?;
    }
    add_checksums(&mut plan, limits, Direction::Encode)?;
    add_packing(&mut plan)?;
    runnable(plan, limits)
}

/// The pipeline that decodes payloads of `recipe`.
pub(crate) fn decoding(recipe: &Recipe) -> Pipeline {
    match recipe.codec {
        Codec::Store => Pipeline::Store,
        Codec::Lz77(_) => Pipeline::Lzf,
        Codec::Bwt(_) | Codec::Smallest(_) => Pipeline::Bwt,
    }
}

/// Makes the plan that decodes the payloads of [`encode`], to verify them. Counts only the memory beyond that of
/// [`encode`]: the two plans share `contents` and `payload`.
pub(crate) fn check(limits: &Limits, recipe: &Recipe, shape: Shape) -> Result<Plan, PlanError> {
    let mut plan = decode(limits, decoding(recipe), shape, PayloadFeatures::default())?;
    for buffer in &mut plan.buffers {
        if matches!(buffer.name, "contents" | "payload") {
            buffer.bytes = 0;
        }
    }
    Ok(plan)
}

/// Makes the plan from `payload` to `contents`, with a result for each block, for payloads with at most `features`.
pub(crate) fn decode(
    limits: &Limits,
    pipeline: Pipeline,
    shape: Shape,
    features: PayloadFeatures,
) -> Result<Plan, PlanError> {
    decode_with(limits, pipeline, shape, features, &[])
}

/// Like [`decode`], for blocks that may need `modules` undone.
pub(crate) fn decode_with(
    limits: &Limits,
    pipeline: Pipeline,
    shape: Shape,
    features: PayloadFeatures,
    modules: &[ModuleStep],
) -> Result<Plan, PlanError> {
    let mut plan = match pipeline {
        Pipeline::Store => return declined("stored blocks are not decoded"),
        Pipeline::Lzh | Pipeline::Lzf | Pipeline::Fse => {
            lz77_decode::plan(limits, shape, features)?
        }
        Pipeline::Bwt => bwt_decode::plan(limits, shape)?,
    };
    filter::append(&mut plan, features.filters(), modules, limits)?;
    add_checksums(&mut plan, limits, Direction::Decode)?;
    runnable(plan, limits)
}

/// Like [`decode_with`], with room for moves of contents to buffers of the caller's.
pub(crate) fn decode_and_move(
    limits: &Limits,
    pipeline: Pipeline,
    shape: Shape,
    features: PayloadFeatures,
    modules: &[ModuleStep],
) -> Result<Plan, PlanError> {
    let mut plan = decode_with(limits, pipeline, shape, features, modules)?;
    moves::add_moves(&mut plan)?;
    runnable(plan, limits)
}

/// A plan that computes the checksums of blocks that other plans' moves have assembled in `contents`.
pub(crate) fn restore(limits: &Limits, shape: Shape) -> Result<Plan, PlanError> {
    let mut plan = moves_alone(shape)?;
    add_checksums(&mut plan, limits, Direction::Restore)?;
    runnable(plan, limits)
}

/// A plan without steps, for moves alone.
pub(crate) fn moves_alone(shape: Shape) -> Result<Plan, PlanError> {
    let mut plan = Plan::new(shape);
    moves::add_contents(&mut plan)?;
    moves::add_moves(&mut plan)?;
    Ok(plan)
}
