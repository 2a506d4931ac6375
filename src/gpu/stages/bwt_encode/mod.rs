//! Plans that encode with the BWT codec ([`crate::codec::bwt`]).
//!
//! A radix sort and prefix doubling sort the suffixes of all blocks of a batch at once. Then the second stage runs on
//! the arrays of the sort. How many rounds of doubling a block needs depends on its bytes. A plan has enough rounds for
//! a block of equal bytes, and a kernel without work returns at once. Encoding takes about 34.4 bytes of device memory
//! per byte of a block, plus 1.5 MB per block.

mod second_stage;

use crate::codec::bwt::Params;
use crate::gpu::device::{Api, Limits, Teams};
use crate::gpu::model::cost::CostError;
use crate::gpu::model::kernel::{
    BWT_SORT, BWT_SORT_FINISH, BWT_SORT_GATHER, BWT_SORT_REFINE, Kernel,
};
use crate::gpu::model::plan::{Plan, PlanError, Run, Shape, Step};

/// Elements in a tile of the radix sort: `TILE` in the kernel.
const SORT_TILE: u32 = 4096;
/// Elements in a tile of the refining kernels: `TILE` there.
const REFINE_TILE: u32 = 1024 - (1 << GROUP_LOG);
/// log2 of the largest small group. A large group's rank is sorted without its lowest `GROUP_LOG` bits, since two large
/// groups always differ in the other bits.
const GROUP_LOG: u32 = 7;
/// How many bytes the first sort looks at.
const FIRST_DEPTH: u32 = 8;
/// Registers per work item that moves elements. With more, multiprocessors would run too few work items at once.
const SCATTER_REGISTERS: u32 = 80;
/// Registers per work item that finds groups.
const REFINE_REGISTERS: u32 = 48;
/// The most workgroups per block in a step that reads or writes at random.
const MAX_GATHERS: u32 = 1024;
/// Rounds of prefix doubling that usually have a lot of work.
const BUSY_ROUNDS: u32 = 5;

/// Makes the plan for encoding: from `jobs` and `contents` to `payload`, and the status and length in `results`.
///
/// # Errors
/// Fails if the kernels' costs are wrong, or no kernels fit this device or these parameters.
pub fn plan(limits: &Limits, shape: Shape, params: &Params) -> Result<Plan, PlanError> {
    if params.segment_log < 13 {
        return Err(PlanError::Declined("segments are too short for the encoder's kernels".into()));
    }
    check_length(limits, shape)?;
    let mut plan = Plan::new(shape);
    let mut builder = Builder::new(limits, &mut plan);
    builder.sort_suffixes()?;
    builder.finish(params.start_log)?;
    builder.second_stage(params)?;
    Ok(plan)
}

/// Makes the plan for the forward transform alone.
///
/// Its results are the buffers `transform` (block b begins at byte b · N) and `start_rows` (block b begins at byte
/// b · (N/64 + 4)). A start row is a word: the row of the suffix at a multiple of `1 << start_log`, where `start_log`
/// is 8 to 23.
///
/// # Errors
/// Fails if the kernels' costs are wrong.
#[cfg(test)]
pub(crate) fn transform(limits: &Limits, shape: Shape, start_log: u8) -> Result<Plan, CostError> {
    let mut plan = Plan::new(shape);
    let mut builder = Builder::new(limits, &mut plan);
    builder.sort_suffixes()?;
    builder.finish(start_log)?;
    Ok(plan)
}

/// Appends to `plan` the steps from `jobs` and `contents` to each suffix's rank in `sort_rank`.
///
/// # Errors
/// Fails if the kernels' costs are wrong, or if the device stops long loops and blocks are too long for it.
pub(super) fn append_suffix_sort(plan: &mut Plan, limits: &Limits) -> Result<(), PlanError> {
    check_length(limits, plan.shape)?;
    Ok(Builder::new(limits, plan).sort_suffixes()?)
}

fn check_length(limits: &Limits, shape: Shape) -> Result<(), PlanError> {
    if limits.ends_long_loops() && shape.slot > 1 << 22 {
        return Err(PlanError::Declined("blocks of up to 4 MiB only".into()));
    }
    Ok(())
}

/// The copy of the lists' elements that a step reads. It writes the other copy.
#[derive(Clone, Copy)]
struct Elements {
    high: &'static str,
    low: &'static str,
    position: &'static str,
}

const COPIES: [Elements; 2] = [
    Elements { high: "sort_high_a", low: "sort_low_a", position: "sort_position_a" },
    Elements { high: "sort_high_b", low: "sort_low_b", position: "sort_position_b" },
];

struct Builder<'p> {
    plan: &'p mut Plan,
    shape: Shape,
    threads: u32,
    /// The most workgroups per block in a step with a lot of work, and in one with little. `None`: one per tile.
    max_parts: Option<[u32; 2]>,
    /// Whether kernels can store bytes.
    bytes: bool,
}

/// A round of prefix doubling.
struct Round {
    /// The copy that the elements are in.
    from: usize,
    parity: u32,
    /// Bytes by which suffixes are sorted so far.
    depth: u32,
    /// Whether there is a lot of work.
    busy: bool,
}

/// Constants of the refining kernels.
fn refine(initial: bool) -> [(&'static str, u32); 3] {
    [("GROUP_LOG", GROUP_LOG), ("INITIAL", initial.into()), ("MAX_REGISTERS", REFINE_REGISTERS)]
}

impl<'p> Builder<'p> {
    fn new(limits: &Limits, plan: &'p mut Plan) -> Self {
        let local = limits.teams == Teams::Local;
        Self {
            shape: plan.shape,
            plan,
            bytes: limits.api != Api::WebGpu,
            threads: if local { 32 } else { 256 },
            // Where a workgroup is a single team, loops over tiles must be short, since some devices stop long loops.
            max_parts: (!local).then_some([256, 32]),
        }
    }

    /// Workgroups per block in a step over tiles of `tile` elements.
    fn parts(&self, tile: u32, busy: bool) -> u32 {
        let tiles = self.shape.slot.div_ceil(tile);
        self.max_parts.map_or(tiles, |most| tiles.min(most[usize::from(!busy)]))
    }

    /// Like [`Self::parts`] for a step that reads or writes at random. It uses more workgroups per block, so that
    /// fewer blocks run at once and their data stays in the device's cache.
    fn gathers(&self, tile: u32, busy: bool) -> u32 {
        let tiles = self.shape.slot.div_ceil(tile);
        match self.max_parts {
            Some(_) if busy => tiles.min(MAX_GATHERS),
            _ => self.parts(tile, busy),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "a dispatch has as many properties")]
    fn run(
        &mut self,
        stage: &'static str,
        kernel: &'static Kernel,
        entry: &'static str,
        defines: &[(&'static str, u32)],
        buffers: &[&'static str],
        args: &[u32],
        parts: u32,
    ) -> Result<(), CostError> {
        let buffers: Result<_, _> =
            buffers.iter().map(|name| self.plan.buffer(kernel, name)).collect();
        self.plan.steps.push(Step::Run(Run {
            stage,
            kernel,
            entry,
            defines: defines.to_vec(),
            buffers: buffers?,
            args: args.to_vec(),
            groups: self.shape.blocks * parts,
            threads: self.threads,
        }));
        Ok(())
    }

    /// Adds the steps from `jobs` and `contents` to each suffix's rank in `sort_rank`.
    fn sort_suffixes(&mut self) -> Result<(), CostError> {
        let slot = self.shape.slot;
        let parts = self.parts(SORT_TILE, true);
        self.run(
            "sort",
            &BWT_SORT,
            "keys",
            &[],
            &["jobs", "contents", COPIES[0].high, COPIES[0].low, COPIES[0].position, "sort_state"],
            &[slot, parts],
            parts,
        )?;
        let digits =
            [false, true].iter().flat_map(|&high| [0, 8, 16, 24].map(|shift| (high, shift)));
        let mut from = 0;
        for (high, shift) in digits {
            self.pass("sort", from, 0, high, shift, true)?;
            from ^= 1;
        }
        self.classify(from, 0, true, true)?;
        let mut parity = 1;
        // A list's elements stay in the copy that they were written to.
        from ^= 1;

        // Keys go up to the slot's length, ranks stay below it.
        let key_digits = (u32::BITS - slot.leading_zeros()).div_ceil(8);
        let mut rank_digits = (u32::BITS - ((slot - 1) >> GROUP_LOG).leading_zeros()).div_ceil(8);
        // An odd number of passes ends in the copy that does not hold the gathered keys.
        if (key_digits + rank_digits).is_multiple_of(2) {
            rank_digits += 1;
        }
        let mut depth = FIRST_DEPTH;
        let mut round = 0;
        while depth < slot {
            let busy = round < BUSY_ROUNDS;
            self.double(Round { from, parity, depth, busy }, key_digits, rank_digits)?;
            from ^= 1;
            parity ^= 1;
            depth *= 2;
            round += 1;
        }
        Ok(())
    }

    /// Adds a round of prefix doubling. The large lists' keys have `key_digits` digits, and their ranks `rank_digits`.
    fn double(
        &mut self,
        Round { from, parity, depth, busy }: Round,
        key_digits: u32,
        rank_digits: u32,
    ) -> Result<(), CostError> {
        let slot = self.shape.slot;
        let (x, y) = (COPIES[from], COPIES[from ^ 1]);
        let group = refine(false);
        let gathers = self.gathers(SORT_TILE, busy);
        self.run(
            "gather",
            &BWT_SORT_GATHER,
            "gather_small",
            &[],
            &[x.position, "sort_rank", x.low, "sort_state"],
            &[slot, gathers, parity, depth],
            gathers,
        )?;
        self.run(
            "gather",
            &BWT_SORT_GATHER,
            "gather_large",
            &[],
            &[x.high, x.position, y.high, y.low, y.position, "sort_rank", "sort_state"],
            &[slot, gathers, parity, depth],
            gathers,
        )?;
        let parts = self.gathers(REFINE_TILE, busy);
        self.run(
            "small groups",
            &BWT_SORT_REFINE,
            "order_small",
            &group,
            &[x.high, x.low, x.position, y.high, y.position, "sort_rank", "sort_state"],
            &[slot, parts, parity],
            parts,
        )?;
        let mut at = from ^ 1;
        for digit in 0..key_digits + rank_digits {
            let high = digit >= key_digits;
            let shift = if high { GROUP_LOG + 8 * (digit - key_digits) } else { 8 * digit };
            self.pass("large groups", at, parity, high, shift, busy)?;
            at ^= 1;
        }
        debug_assert_eq!(at, from);
        self.classify(from, parity, false, busy)
    }

    /// Adds a pass of the radix sort over the large lists.
    fn pass(
        &mut self,
        stage: &'static str,
        from: usize,
        parity: u32,
        high: bool,
        shift: u32,
        busy: bool,
    ) -> Result<(), CostError> {
        let (kernel, slot) = (&BWT_SORT, self.shape.slot);
        let parts = self.parts(SORT_TILE, busy);
        let (x, y) = (COPIES[from], COPIES[from ^ 1]);
        let which = 2 + 2 * parity;
        let shift = shift.min(31);
        // The digits come from the first word.
        let keys = |copy: Elements| match high {
            true => [copy.high, copy.low, copy.position],
            false => [copy.low, copy.high, copy.position],
        };
        let (from, to) = (keys(x), keys(y));
        let buffers = [from[0], "sort_counts", "sort_state"];
        self.run(stage, kernel, "histogram", &[], &buffers, &[slot, parts, which, shift], parts)?;
        let digit_groups = 32;
        let buffers = ["sort_counts", "sort_state"];
        let args = [slot, digit_groups, which];
        self.run(stage, kernel, "scan", &[], &buffers, &args, digit_groups)?;
        let buffers = [&from[..], &to, &["sort_counts", "sort_state"]].concat();
        let registers = [("MAX_REGISTERS", SCATTER_REGISTERS)];
        self.run(
            stage,
            kernel,
            "scatter",
            &registers,
            &buffers,
            &[slot, parts, which, shift],
            parts,
        )
    }

    fn classify(
        &mut self,
        from: usize,
        parity: u32,
        initial: bool,
        busy: bool,
    ) -> Result<(), CostError> {
        let parts = self.gathers(REFINE_TILE, busy);
        let (x, y) = (COPIES[from], COPIES[from ^ 1]);
        self.run(
            "groups",
            &BWT_SORT_REFINE,
            "classify",
            &refine(initial),
            &[x.high, x.low, x.position, y.high, y.position, "sort_rank", "sort_state"],
            &[self.shape.slot, parts, parity],
            parts,
        )
    }

    fn finish(&mut self, start_log: u8) -> Result<(), CostError> {
        let slot = self.shape.slot;
        let (stage, kernel, parts) = ("transform", &BWT_SORT_FINISH, self.gathers(SORT_TILE, true));
        let args = [slot, parts, u32::from(start_log)];
        if self.bytes {
            let buffers = ["jobs", "contents", "sort_rank", "transform"];
            self.run(stage, kernel, "place", &[], &buffers, &args[..2], parts)?;
            let buffers = ["jobs", "sort_rank", "start_rows"];
            self.run(stage, kernel, "start_rows", &[], &buffers, &args, parts)
        } else {
            let buffers = ["jobs", "contents", "sort_rank", "sort_low_b"];
            self.run(stage, kernel, "place", &[], &buffers, &args[..2], parts)?;
            let buffers = ["jobs", "sort_rank", "sort_low_b", "transform", "start_rows"];
            self.run(stage, kernel, "pack", &[], &buffers, &args, parts)
        }
    }
}

#[cfg(test)]
mod tests;
