//! Steps that undo filters, in place in `contents`.
//!
//! | stage | |
//! |---|---|
//! | `unshuffle` | moves bytes or bits back, by way of `filtered` |
//! | `unfilter` | undoes zigzag and rotation |
//! | `sum` | undoes differences, a workgroup for each unit |
//!
//! Each block's job says what to undo. A step does nothing for blocks that it does not concern, and the plan only has
//! the steps that some block needs.

use super::job::Undo;
use crate::codec::filter::{FilterChain, Stage};
use crate::gpu::model::cost::CostError;
use crate::gpu::model::kernel::{FILTER_SHUFFLE, FILTER_SUMS, FILTER_WORDS, Kernel};
use crate::gpu::model::plan::{Plan, Run, Step};

/// Work items per workgroup.
const THREADS: u32 = 256;
/// Bytes that a workgroup moves or changes.
const PIECE: u32 = 4096;
/// Bytes of the shortest unit.
const MIN_UNIT: u32 = 1 << 18;

impl Undo {
    /// What to undo after `chain`; `None` if that is left to the host. Devices round divisions as they like, so decimal
    /// floats are.
    pub(crate) fn of(chain: &FilterChain) -> Option<Self> {
        let mut undo = Self { unit_log: chain.unit_len().ilog2(), ..Self::default() };
        for (word, stage) in undo.stages.iter_mut().zip(chain.stages().rev()) {
            if matches!(stage, Stage::Decimal { .. }) {
                return None;
            }
            *word = stage.to_word();
        }
        Some(undo)
    }
}

/// The steps that a batch needs: for each place in a chain, whether to shuffle, to change words, and to sum once and
/// twice.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Undoing([[bool; 4]; 3]);

impl Undoing {
    /// Every step.
    #[cfg(test)]
    pub(crate) const ALL: Self = Self([[true; 4]; 3]);

    /// What a block needs.
    pub(crate) fn of(undo: &Undo) -> Self {
        Self(undo.stages.map(|word| match Stage::from_word(word) {
            Some(Stage::Transpose { .. } | Stage::BitTranspose { .. }) => {
                [true, false, false, false]
            }
            Some(Stage::Zigzag { .. } | Stage::Rotate { .. }) => [false, true, false, false],
            Some(Stage::Delta { order, .. }) => [false, false, true, order > 1],
            Some(Stage::Xor { .. }) => [false, false, true, false],
            Some(Stage::Decimal { .. }) | None => [false; 4],
        }))
    }

    /// What two blocks need.
    pub(crate) fn and(self, other: Self) -> Self {
        let mut both = self;
        for (steps, more) in both.0.as_flattened_mut().iter_mut().zip(other.0.as_flattened()) {
            *steps |= more;
        }
        both
    }
}

/// Adds the steps that undo filters. Add them after those that write `contents`.
///
/// # Errors
/// Fails if a kernel's cost is wrong.
pub(crate) fn append(plan: &mut Plan, undoing: Undoing) -> Result<(), CostError> {
    // Batches with filters and without run in the same memory.
    plan.buffer(&FILTER_SHUFFLE, "filtered")?;
    plan.idle.push(&FILTER_SHUFFLE);
    for (stage, [shuffles, changes, sums, sums_again]) in (0..).zip(undoing.0) {
        if shuffles {
            let buffers = ["jobs", "contents", "filtered"];
            add(plan, ("unshuffle", &FILTER_SHUFFLE, "save"), &buffers, PIECE, &[stage])?;
            let buffers = ["jobs", "filtered", "contents"];
            add(plan, ("unshuffle", &FILTER_SHUFFLE, "restore"), &buffers, PIECE, &[stage])?;
        }
        let buffers = ["jobs", "contents"];
        if changes {
            add(plan, ("unfilter", &FILTER_WORDS, "words"), &buffers, PIECE, &[stage])?;
        }
        for (turn, is_needed) in (0..).zip([sums, sums_again]) {
            if is_needed {
                add(plan, ("sum", &FILTER_SUMS, "sums"), &buffers, MIN_UNIT, &[stage, turn])?;
            }
        }
    }
    Ok(())
}

/// Adds a run with a workgroup for each `bytes` of a block.
fn add(
    plan: &mut Plan,
    (stage, kernel, entry): (&'static str, &'static Kernel, &'static str),
    buffers: &[&'static str],
    bytes: u32,
    args: &[u32],
) -> Result<(), CostError> {
    let shape = plan.shape;
    let count = shape.slot.div_ceil(bytes);
    let buffers = buffers.iter().map(|name| plan.buffer(kernel, name)).collect::<Result<_, _>>()?;
    plan.steps.push(Step::Run(Run {
        stage,
        kernel,
        entry,
        defines: Vec::new(),
        buffers,
        args: [&[shape.blocks, shape.slot, count], args].concat(),
        groups: shape.blocks * count,
        threads: THREADS,
    }));
    Ok(())
}
