//! Steps that undo filters.
//!
//! | stage | |
//! |---|---|
//! | `unshuffle` | undoes transpositions, with zigzag or rotation; looks up elements in lists of values |
//! | `unfilter` | undoes zigzag and rotation elsewhere |
//! | `calls` | turns the absolute targets of calls in programs back into distances |
//! | `sum` | undoes differences, also those in lists of values, a workgroup for each unit |
//! | `module` | undoes a module, a work item for each lane |
//!
//! Each block's job lists the filters to undo. The plan has only the steps that some block needs. `unshuffle` goes from
//! one of the buffers `contents` and `filtered` to the other, and copies blocks without such a filter. Codecs write to
//! whichever buffer makes the last step end in `contents`. The other steps work in place, and skip blocks that do not
//! need them.

use super::job::Undo;
use crate::codec::filter::{FilterChain, Stage};
use crate::format::MAX_MODULES;
use crate::gpu::model::cost::CostError;
use crate::gpu::model::kernel::{
    FILTER_ADJACENT_SUMS, FILTER_CALLS, FILTER_ROW_SUMS, FILTER_SHUFFLE, FILTER_SUMS, FILTER_WORDS,
    Kernel,
};
use crate::gpu::model::limits::Limits;
use crate::gpu::model::plan::{Plan, Run, Step};

/// Work items per workgroup.
const THREADS: u32 = 256;
/// Bytes that a workgroup moves or changes.
const PIECE: u32 = 16_384;
/// Bytes of the shortest unit.
const MIN_UNIT: u32 = 1 << 18;

impl Undo {
    /// The undo steps for `chain`; `None` if the host must undo it. Devices round divisions differently, so the host
    /// undoes decimal floats, and modules other than `modules`.
    pub(crate) fn of(chain: &FilterChain, modules: &[ModuleStep]) -> Option<Self> {
        let mut undo = Self { unit_log: chain.unit_len().ilog2(), ..Self::default() };
        for (word, stage) in undo.stages.iter_mut().zip(chain.stages().rev()) {
            match stage {
                Stage::Decimal { .. }
                | Stage::NearDecimal { .. }
                | Stage::Dictionary { digits: Some(_), .. } => return None,
                Stage::Module(call) if usize::from(call.number) >= modules.len() => {
                    return None;
                }
                _ => *word = stage.to_word(),
            }
        }
        Some(undo)
    }
}

/// The kernel that undoes the stages of a module.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ModuleStep {
    /// The kernel made from the module.
    pub(crate) kernel: &'static Kernel,
    /// Its entry point.
    pub(crate) entry: &'static str,
    /// Work items of a workgroup.
    pub(crate) threads: u32,
    /// Base-2 logarithm of the fewest bytes per work item.
    pub(crate) item_log: u8,
    /// Base-2 logarithm of the bytes per lane.
    pub(crate) lane_log: u8,
    /// The fuel of a lane: the most iterations of its loops.
    pub(crate) fuel: u32,
    /// The most iterations of the kernel's loops per unit of fuel.
    pub(crate) turns: u32,
}

impl ModuleStep {
    /// Whether its dispatches are the same as those of `other`.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        let parameters = |step: &Self| (step.kernel.stem, step.lane_log, step.fuel);
        parameters(self) == parameters(other)
    }
}

/// Transpositions, which move bytes or bits.
const MOVES: u32 = 1;
/// Zigzag or rotation that no transposition undoes along the way.
const CHANGES: u32 = 2;
/// Differences, once and twice.
const SUMS: [u32; 2] = [4, 8];
/// Differences in lists of values, which `unshuffle` looks up afterwards.
const ENTRIES: u32 = 1 << 18;
/// Calls of programs.
const CALLS: u32 = 1 << 19;
/// The argument `turn` with which `sums` undoes them.
const ENTRIES_TURN: u32 = 2;
/// Differences of adjacent elements that fit a word, once and twice.
const ADJACENT_SUMS: [u32; 2] = [16, 32];
/// Periods, in words, of the rows whose differences `kernels/filter/row_sums` undoes.
const PERIODS: [u32; 6] = [1, 2, 3, 4, 6, 8];

/// Differences of rows with the period `PERIODS[at]`, once and twice.
const fn row_sums(at: usize) -> [u32; 2] {
    [1 << (6 + 2 * at), 1 << (7 + 2 * at)]
}

/// The steps that undo differences to the element `stride` before, once and twice.
fn sums_of(width: u8, stride: u16, is_xor: bool) -> [u32; 2] {
    if !is_xor && stride == 1 && width <= 4 {
        return ADJACENT_SUMS;
    }
    let period = match u32::from(width) * u32::from(stride) {
        1 | 2 | 4 => 1,
        3 | 6 | 12 => 3,
        row @ (8 | 16 | 24 | 32) => row / 4,
        _ => return SUMS,
    };
    PERIODS.iter().position(|known| *known == period).map_or(SUMS, row_sums)
}

/// The steps that a batch needs, for each place in a chain.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Undoing {
    steps: [u32; 3],
    /// For each place, the modules that undo a stage there: a bit for each number.
    modules: [u8; 3],
}

impl Undoing {
    /// Every step.
    #[cfg(test)]
    pub(crate) const ALL: Self = Self { steps: [0xf_ffff; 3], modules: [0; 3] };

    /// The steps that a block needs.
    pub(crate) fn of(undo: &Undo) -> Self {
        let mut moved = None;
        let modules = undo.stages.map(|word| match Stage::from_word(word) {
            Some(Stage::Module(call)) => 1u8.checked_shl(call.number.into()).unwrap_or(0),
            _ => 0,
        });
        let steps = undo.stages.map(|word| {
            let just_moved = moved.take();
            match Stage::from_word(word) {
                Some(Stage::Transpose { width }) => {
                    moved = Some(width);
                    MOVES
                }
                Some(Stage::BitTranspose { .. }) => MOVES,
                Some(Stage::Zigzag { width } | Stage::Rotate { width, .. }) => {
                    if just_moved == Some(width) { 0 } else { CHANGES }
                }
                Some(Stage::Delta { width, order, stride }) => {
                    let [once, twice] = sums_of(width, stride, false);
                    if order > 1 { once | twice } else { once }
                }
                Some(Stage::ZigzagDelta { width, order, stride }) => {
                    let [once, twice] = sums_of(width, stride, false);
                    let sums = if order > 1 { once | twice } else { once };
                    if just_moved == Some(width) { sums } else { sums | CHANGES }
                }
                Some(Stage::Xor { width, stride }) => sums_of(width, stride, true)[0],
                Some(Stage::Dictionary { .. }) => ENTRIES | MOVES,
                Some(Stage::Calls { .. }) => CALLS,
                // The module needs zeros where it writes.
                Some(Stage::Module(_)) => MOVES,
                Some(Stage::Decimal { .. } | Stage::NearDecimal { .. }) | None => 0,
            }
        });
        Self { steps, modules }
    }

    /// The steps that either of two blocks needs.
    pub(crate) fn and(self, other: Self) -> Self {
        let steps = std::array::from_fn(|stage| self.steps[stage] | other.steps[stage]);
        let modules = std::array::from_fn(|stage| self.modules[stage] | other.modules[stage]);
        Self { steps, modules }
    }

    /// The buffer that codecs write to, so that the result ends in `contents`.
    pub(crate) fn source(self) -> &'static str {
        let moves = self.steps.iter().filter(|steps| **steps & MOVES != 0).count();
        ["contents", "filtered"][moves % 2]
    }
}

/// Adds the steps that undo filters. Add them after those that write `contents`, which then write to
/// [`Undoing::source`] instead.
///
/// # Errors
/// Fails if a kernel's cost is wrong.
pub(crate) fn append(
    plan: &mut Plan,
    undoing: Undoing,
    modules: &[ModuleStep],
    limits: &Limits,
) -> Result<(), CostError> {
    // Batches with and without filters run in the same memory.
    let contents = plan.buffer(&FILTER_SHUFFLE, "contents")?;
    let filtered = plan.buffer(&FILTER_SHUFFLE, "filtered")?;
    plan.idle.push(&FILTER_SHUFFLE);
    let (mut here, mut other) = ("contents", "filtered");
    if undoing.source() == other {
        plan.redirect(contents, filtered);
        std::mem::swap(&mut here, &mut other);
    }
    for ((stage, steps), used) in (0..).zip(undoing.steps).zip(undoing.modules) {
        if steps & ENTRIES != 0 {
            let args = [stage, ENTRIES_TURN];
            add(plan, ("sum", &FILTER_SUMS, "sums"), &["jobs", here], MIN_UNIT, &args, &[])?;
        }
        if steps & MOVES != 0 {
            let buffers = ["jobs", here, other];
            add(plan, ("unshuffle", &FILTER_SHUFFLE, "unshuffle"), &buffers, PIECE, &[stage], &[])?;
            for (number, module) in (0..MAX_MODULES as u32).zip(modules) {
                if used >> number & 1 != 0 {
                    let fuel = limits.loop_fuel(module.turns, module.fuel);
                    add_module(plan, module, fuel, [here, other], [stage, number])?;
                }
            }
            std::mem::swap(&mut here, &mut other);
        }
        let buffers = ["jobs", here];
        if steps & CALLS != 0 {
            add(plan, ("calls", &FILTER_CALLS, "calls"), &buffers, MIN_UNIT, &[stage], &[])?;
        }
        if steps & CHANGES != 0 {
            add(plan, ("unfilter", &FILTER_WORDS, "words"), &buffers, PIECE, &[stage], &[])?;
        }
        for (turn, (sum, adjacent)) in (0..).zip(SUMS.into_iter().zip(ADJACENT_SUMS)) {
            let args = [stage, turn];
            if steps & sum != 0 {
                add(plan, ("sum", &FILTER_SUMS, "sums"), &buffers, MIN_UNIT, &args, &[])?;
            }
            if steps & adjacent != 0 {
                let what = ("sum", &FILTER_ADJACENT_SUMS, "adjacent_sums");
                add(plan, what, &buffers, MIN_UNIT, &args, &[])?;
            }
            for (at, period) in PERIODS.into_iter().enumerate() {
                if steps & row_sums(at)[turn as usize] != 0 {
                    let what = ("sum", &FILTER_ROW_SUMS, "row_sums");
                    add(plan, what, &buffers, MIN_UNIT, &args, &periods(period))?;
                }
            }
        }
    }
    Ok(())
}

/// Adds a run that undoes module `number` at place `stage` of chains, with `fuel` for each lane.
fn add_module(
    plan: &mut Plan,
    module: &ModuleStep,
    fuel: u32,
    [before, after]: [&'static str; 2],
    [stage, number]: [u32; 2],
) -> Result<(), CostError> {
    let shape = plan.shape;
    let lanes = shape.slot.div_ceil(1 << module.item_log);
    let buffers = ["jobs", before, after, "results"];
    let buffers = buffers.map(|name| plan.buffer(module.kernel, name));
    let buffers = buffers.into_iter().collect::<Result<_, _>>()?;
    let args = [shape.blocks, shape.slot, lanes, stage, number, fuel];
    plan.steps.push(Step::Run(Run {
        stage: "module",
        kernel: module.kernel,
        entry: module.entry,
        defines: Vec::new(),
        buffers,
        args: [&args[..], &[module.lane_log.into()]].concat(),
        groups: (shape.blocks * lanes).div_ceil(module.threads),
        threads: module.threads,
    }));
    Ok(())
}

/// The constants that `row_sums` is compiled with for periods of `words` words.
fn periods(words: u32) -> [(&'static str, u32); 4] {
    let in_threes = words.is_multiple_of(3);
    [
        ("PERIOD", words),
        // Words per work item.
        ("WORDS", if in_threes { 12 } else { 8 }),
        // Whether a period may have several rows.
        ("IS_SPLIT", u32::from(words == 1 || words == 3)),
        ("IN_THREES", u32::from(in_threes)),
    ]
}

/// Adds a run with one workgroup per `bytes` bytes of a block.
fn add(
    plan: &mut Plan,
    (stage, kernel, entry): (&'static str, &'static Kernel, &'static str),
    buffers: &[&'static str],
    bytes: u32,
    args: &[u32],
    defines: &[(&'static str, u32)],
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
        defines: defines.to_vec(),
        buffers,
        args: [&[shape.blocks, shape.slot, count], args].concat(),
        groups: shape.blocks * count,
        threads: THREADS,
    }));
    Ok(())
}
