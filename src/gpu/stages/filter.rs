//! Steps that undo filters.
//!
//! | stage | |
//! |---|---|
//! | `unshuffle` | moves bytes or bits back, and with them undoes zigzag or rotation |
//! | `unfilter` | undoes zigzag and rotation elsewhere |
//! | `sum` | undoes differences, a workgroup for each unit |
//!
//! Each block's job says what to undo. The plan only has the steps that some block needs. `unshuffle` goes from one of
//! the buffers `contents` and `filtered` to the other, and takes the other blocks along; codecs write to the one from
//! which this ends in `contents`. The other steps work in place, and do nothing for blocks that they do not concern.

use super::job::Undo;
use crate::codec::filter::{FilterChain, Stage};
use crate::gpu::model::cost::CostError;
use crate::gpu::model::kernel::{FILTER_SHUFFLE, FILTER_SUMS, FILTER_WORDS, Kernel};
use crate::gpu::model::plan::{Plan, Run, Step};

/// Work items per workgroup.
const THREADS: u32 = 256;
/// Bytes that a workgroup moves or changes.
const PIECE: u32 = 16_384;
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
        let mut moved = None;
        Self(undo.stages.map(|word| {
            let just_moved = moved.take();
            match Stage::from_word(word) {
                Some(Stage::Transpose { width }) => {
                    moved = Some(width);
                    [true, false, false, false]
                }
                Some(Stage::BitTranspose { .. }) => [true, false, false, false],
                Some(Stage::Zigzag { width } | Stage::Rotate { width, .. }) => {
                    [false, just_moved != Some(width), false, false]
                }
                Some(Stage::Delta { order, .. }) => [false, false, true, order > 1],
                Some(Stage::Xor { .. }) => [false, false, true, false],
                Some(Stage::Decimal { .. }) | None => [false; 4],
            }
        }))
    }

    /// Where codecs write, so that `contents` has the result.
    pub(crate) fn source(self) -> &'static str {
        let moves = self.0.iter().filter(|[shuffles, ..]| *shuffles).count();
        ["contents", "filtered"][moves % 2]
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

/// Adds the steps that undo filters. Add them after those that write `contents`, which then write to
/// [`Undoing::source`] instead.
///
/// # Errors
/// Fails if a kernel's cost is wrong.
pub(crate) fn append(plan: &mut Plan, undoing: Undoing) -> Result<(), CostError> {
    // Batches with filters and without run in the same memory.
    let contents = plan.buffer(&FILTER_SHUFFLE, "contents")?;
    let filtered = plan.buffer(&FILTER_SHUFFLE, "filtered")?;
    plan.idle.push(&FILTER_SHUFFLE);
    let (mut here, mut other) = ("contents", "filtered");
    if undoing.source() == other {
        plan.redirect(contents, filtered);
        std::mem::swap(&mut here, &mut other);
    }
    for (stage, [shuffles, changes, sums, sums_again]) in (0..).zip(undoing.0) {
        if shuffles {
            let buffers = ["jobs", here, other];
            add(plan, ("unshuffle", &FILTER_SHUFFLE, "unshuffle"), &buffers, PIECE, &[stage])?;
            std::mem::swap(&mut here, &mut other);
        }
        let buffers = ["jobs", here];
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
    // This kernel's cost names all of them.
    let buffers = buffers.iter().map(|name| plan.buffer(&FILTER_SHUFFLE, name));
    let buffers = buffers.collect::<Result<_, _>>()?;
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
