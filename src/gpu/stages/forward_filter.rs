//! Steps that apply filters, before a codec.
//!
//! A *pass* reads all elements of the blocks from one buffer and writes them to another. It does one stage of a chain,
//! or two where the elements are in registers anyway. Each block's job lists its passes; a pass that a block lacks
//! copies it. The contents stay unchanged, for the checksum: passes go from `contents` to `filtered`, or by way of
//! `payload`, which the codec fills only later.

use super::job::Undo;
use crate::codec::filter::{Filter, FilterChain, MAX_STAGES, Stage};
use crate::gpu::model::cost::CostError;
use crate::gpu::model::kernel::FILTER_FORWARD;
use crate::gpu::model::plan::{Plan, PlanError, Run, Step};

/// Work items per workgroup.
const THREADS: u32 = 256;
/// Bytes of a block per workgroup.
const PIECE: u32 = 16_384;
/// In a pass's word: zigzag too.
const ZIGZAG: u32 = 1 << 6;
/// In a transposition's word: rotation too, by the parameter.
const ROTATION: u32 = 1 << 7;

/// The passes that apply a chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Passes {
    unit_log: u32,
    /// One word per pass: its stage as in a block's header, plus `ZIGZAG` or `ROTATION`; 0 after the last.
    words: [u32; MAX_STAGES],
}

impl Passes {
    /// The passes of `chain`; `None` if the host must apply it. Devices round divisions differently, so the host
    /// handles decimal floats. Lists of values need a hash table. And an encoder runs a module only where it compares
    /// the result at once, on the CPU.
    pub(crate) fn of(chain: &FilterChain) -> Option<Self> {
        let mut passes = Self { unit_log: chain.unit_len().ilog2(), words: [0; MAX_STAGES] };
        let mut stages = chain.stages().peekable();
        for word in &mut passes.words {
            let Some(stage) = stages.next() else { break };
            if matches!(
                stage,
                Stage::Decimal { .. }
                    | Stage::NearDecimal { .. }
                    | Stage::Dictionary { .. }
                    | Stage::Module(_)
            ) {
                return None;
            }
            let together = stages.peek().and_then(|next| together(stage, *next));
            if together.is_some() {
                stages.next();
            }
            *word = together.unwrap_or(stage.to_word());
        }
        Some(passes)
    }

    /// The number of passes.
    pub(crate) fn count(&self) -> usize {
        self.words.iter().filter(|word| **word != 0).count()
    }

    /// The form that a block's job stores.
    pub(crate) fn to_job(self) -> Undo {
        Undo { unit_log: self.unit_log, stages: self.words }
    }
}

/// The error for a chain that devices cannot apply.
pub(crate) fn why_not(chain: &FilterChain) -> PlanError {
    let what = match chain.modules().next() {
        Some(_) => "modules filter blocks on the CPU",
        None => "filters of decimal floats and lists of values are not for devices",
    };
    PlanError::Declined(what.into())
}

/// The word of a pass that does both stages, if one pass can.
fn together(first: Stage, second: Stage) -> Option<u32> {
    let is_same_width = first.width() == second.width();
    match (first, second) {
        (Stage::Zigzag { .. }, Stage::Transpose { .. }) if is_same_width => {
            Some(second.to_word() | ZIGZAG)
        }
        (Stage::Rotate { bits, .. }, Stage::Transpose { .. }) if is_same_width => {
            Some(second.to_word() | ROTATION | u32::from(bits) << 16)
        }
        (Stage::Delta { .. }, Stage::Zigzag { .. }) if is_same_width => {
            Some(first.to_word() | ZIGZAG)
        }
        _ => None,
    }
}

/// The passes that blocks of `filter` may take, before each block's chain is known.
pub(crate) fn max_passes(filter: &Filter) -> usize {
    match filter {
        Filter::None => 0,
        Filter::Chain(chain) => Passes::of(chain).map_or(0, |passes| passes.count()),
        Filter::Auto => MAX_STAGES,
    }
}

/// Puts `passes` passes over `contents` before the steps of `plan`, which then read the result.
///
/// # Errors
/// Fails if a kernel's cost is wrong.
pub(crate) fn prepend(plan: &mut Plan, passes: usize) -> Result<(), CostError> {
    // Batches with few passes run in the memory of those with many.
    let jobs = plan.buffer(&FILTER_FORWARD, "jobs")?;
    let contents = plan.buffer(&FILTER_FORWARD, "contents")?;
    let filtered = plan.buffer(&FILTER_FORWARD, "filtered")?;
    let payload = plan.buffer(&FILTER_FORWARD, "payload")?;
    plan.idle.push(&FILTER_FORWARD);
    if passes == 0 {
        return Ok(());
    }
    plan.redirect(contents, filtered);
    let shape = plan.shape;
    let count = shape.slot.div_ceil(PIECE);
    // The last pass writes `filtered`.
    let to = |pass: usize| [filtered, payload][(passes - 1 - pass) % 2];
    let run = |pass: usize| {
        let from = if pass == 0 { contents } else { to(pass - 1) };
        Step::Run(Run {
            stage: "filter",
            kernel: &FILTER_FORWARD,
            entry: "forward",
            defines: Vec::new(),
            buffers: vec![jobs, from, to(pass)],
            args: vec![shape.blocks, shape.slot, count, pass as u32],
            groups: shape.blocks * count,
            threads: THREADS,
        })
    };
    plan.steps.splice(0..0, (0..passes).map(run));
    Ok(())
}
