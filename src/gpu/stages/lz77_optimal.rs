//! Plans for the optimal parse of LZ77, which finds the same matches as the CPU's parse.
//!
//! The first steps list the candidates of each position, by two hashes and the order of suffixes. Then each pass
//! computes the prices of each chunk's symbols and parses segments of it with them, one work item per segment. Every
//! pass but the last parses a sample of the segments, and also counts symbols for the next prices.

use super::bwt_encode;
use super::lz77_find::{Hash, Sort};
use crate::codec::lz77::{Effort, Params};
use crate::gpu::device::{Api, Limits, Teams};
use crate::gpu::model::kernel::{
    Kernel, LZ77_CANDIDATES, LZ77_LATEST_ONE, LZ77_OPTIMAL, LZ77_PRICES, LZ77_SUFFIXES,
};
use crate::gpu::model::plan::{Buffer, Plan, PlanError, Run, Shape, Step};

/// Supported segment lengths, as base-2 logarithms of bytes: the kernel's words can hold a path, and the buffer its
/// states.
const SEGMENT_LOGS: core::ops::RangeInclusive<u8> = 12..=14;

/// The most chunks that a workgroup's segments may come from: its memory holds a price table for each.
const MAX_CHUNKS: u32 = 2;

/// The longest chunk, as a base-2 logarithm of bytes, that a team can process in as many steps as every driver allows.
const MAX_CHUNK_LOG: u8 = 19;

/// The most lengths that the kernel tries for a match too short to be taken at once.
const MAX_LENGTHS: u32 = 66;

/// The longest length from which a match is taken at once, and how far it may exceed the longest length that is tried.
/// These bounds keep the difference of any two compared prices within the kernel's words.
const MAX_NICE: u32 = 128;
const MAX_BETWEEN: u32 = 65;

/// Positions of a segment per dispatch on a device that [ends long loops](Limits::ends_long_loops).
const LIMITED_POSITIONS: u32 = 256;

/// Bytes per workgroup that counts.
const PIECE: u32 = 1 << 15;

/// Work items per workgroup that is not made of teams.
const GROUP_THREADS: u32 = 256;

/// Appends to `plan` the steps from `jobs` and `contents` to `matches` and `match_counts`.
///
/// # Errors
/// [`PlanError::Declined`] if the kernels do not support such long segments or searches.
pub(in crate::gpu) fn append(
    plan: &mut Plan,
    limits: &Limits,
    params: &Params,
    effort: Effort,
) -> Result<(), PlanError> {
    let nice = effort.nice_length;
    let segments_log = params.chunk_log.saturating_sub(params.segment_log);
    let all = Segments::new(limits, segments_log, 0);
    let sample = Segments::new(limits, segments_log, params.sample_spacing_log());
    if !SEGMENT_LOGS.contains(&params.segment_log)
        || !(params.segment_log..=MAX_CHUNK_LOG).contains(&params.chunk_log)
        || all.chunks > MAX_CHUNKS
        || effort.every_length > MAX_LENGTHS
        || !(3..=MAX_NICE.min(effort.every_length + MAX_BETWEEN)).contains(&nice)
        || effort.inherited_length < 3
    {
        return Err(PlanError::Declined("segments or searches that are too large".into()));
    }
    let parsing = Parsing::new(plan, limits, params, effort)?;
    parsing.append_candidates(plan)?;
    parsing.append_passes(plan, sample, all);
    Ok(())
}

/// The buffers and sizes that the steps share.
struct Parsing<'a> {
    limits: &'a Limits,
    params: &'a Params,
    effort: Effort,
    slot: u32,
    blocks: u32,
    chunks_per_block: u32,
    /// Work items per workgroup of teams.
    team_threads: u32,
    jobs: Buffer,
    contents: Buffer,
    entries: Buffer,
    low: Buffer,
    high: Buffer,
    states: Buffer,
    symbols: Buffer,
    matches: Buffer,
    match_counts: Buffer,
}

impl<'a> Parsing<'a> {
    fn new(
        plan: &mut Plan,
        limits: &'a Limits,
        params: &'a Params,
        effort: Effort,
    ) -> Result<Self, PlanError> {
        let Shape { slot, blocks } = plan.shape;
        Ok(Self {
            limits,
            params,
            effort,
            slot,
            blocks,
            chunks_per_block: slot.div_ceil(1 << params.chunk_log),
            team_threads: if limits.teams == Teams::Local { 32 } else { 64 },
            jobs: plan.buffer(&LZ77_CANDIDATES, "jobs")?,
            contents: plan.buffer(&LZ77_CANDIDATES, "contents")?,
            entries: plan.buffer(&LZ77_CANDIDATES, "entries")?,
            low: plan.buffer(&LZ77_CANDIDATES, "lz77_low")?,
            high: plan.buffer(&LZ77_CANDIDATES, "lz77_high")?,
            states: plan.buffer(&LZ77_OPTIMAL, "lz77_states")?,
            symbols: plan.buffer(&LZ77_PRICES, "lz77_symbols")?,
            matches: plan.buffer(&LZ77_OPTIMAL, "matches")?,
            match_counts: plan.buffer(&LZ77_OPTIMAL, "match_counts")?,
        })
    }

    fn window_log(&self) -> u32 {
        self.params.window_log.into()
    }

    fn chunk_log(&self) -> u32 {
        self.params.chunk_log.into()
    }

    /// Lists the candidates of each position, in the order of suffixes and by each hash.
    fn append_candidates(&self, plan: &mut Plan) -> Result<(), PlanError> {
        let Self { limits, slot, blocks, jobs, contents, entries, low, high, .. } = *self;
        let (team_threads, window_log) = (self.team_threads, self.window_log());
        bwt_encode::append_suffix_sort(plan, limits)?;
        let rank = plan.buffer(&LZ77_SUFFIXES, "sort_rank")?;
        let ordered = plan.buffer(&LZ77_SUFFIXES, "sort_position_a")?;
        let places = blocks * slot.div_ceil(GROUP_THREADS);
        let mut steps = Steps { plan, team_threads };
        let what = ("suffixes", &LZ77_SUFFIXES, "order");
        steps.of_groups(what, places, vec![], vec![jobs, rank, ordered], vec![slot, blocks]);
        let what = ("suffixes", &LZ77_SUFFIXES, "neighbours");
        let args = vec![slot, blocks, window_log];
        steps.of_groups(what, places, vec![], vec![jobs, ordered, low], args);

        // The hash of three bytes gives only one candidate.
        let hash = |bytes, bits, candidates| Hash { bytes, bits, candidates };
        let (three, four) = (hash(3, 14, 1), hash(4, 16, 4));
        let found = plan.buffer(&LZ77_CANDIDATES, "found")?;
        let positions = plan.buffer(&LZ77_CANDIDATES, "sorted_positions")?;
        let marks = plan.buffer(&LZ77_CANDIDATES, "sorted_marks")?;
        let sorted_places = plan.buffer(&LZ77_CANDIDATES, "sorted_places")?;
        let rows = plan.buffer(&LZ77_LATEST_ONE, "rows_one")?;
        let defines = vec![
            ("CANDIDATES", four.candidates),
            ("HASH_BITS", four.bits),
            ("INHERITED_LENGTH", self.effort.inherited_length),
        ];
        Sort { plan, limits, window_log }.append_latest(three, found, rows)?;
        Sort { plan, limits, window_log }.append_entries(four, entries)?;
        let mut steps = Steps { plan, team_threads };
        let what = ("candidates", &LZ77_CANDIDATES, "mark");
        let buffers = vec![jobs, entries, positions, marks, sorted_places];
        let args = vec![slot, blocks, window_log];
        steps.of_groups(what, places, defines.clone(), buffers, args);
        let args = vec![slot, blocks, self.chunk_log()];
        let what = ("candidates", &LZ77_CANDIDATES, "list");
        let sources = vec![jobs, contents, found, positions, marks, sorted_places, low, high];
        steps.of_groups(what, places, defines.clone(), sources, args);
        let what = ("candidates", &LZ77_CANDIDATES, "inherit");
        let args = vec![slot, self.chunks_per_block, blocks, self.chunk_log()];
        let all_chunks = blocks * self.chunks_per_block;
        steps.of_teams(what, all_chunks, defines, vec![jobs, low, high], args);
        Ok(())
    }

    /// Parses `sample` in all passes but the last, which parses `all`.
    fn append_passes(&self, plan: &mut Plan, sample: Segments, all: Segments) {
        let Self { params, effort, slot, blocks, jobs, contents, entries, low, high, .. } = *self;
        let Self { chunks_per_block, states, symbols, matches, match_counts, .. } = *self;
        let (window_log, chunk_log) = (self.window_log(), self.chunk_log());
        let mut steps = Steps { plan, team_threads: self.team_threads };
        steps.plan.steps.push(Step::Clear(symbols));
        let stride = (steps.plan.buffers[symbols.0].bytes / u64::from(blocks) / 4) as u32;
        let pieces = slot.div_ceil(PIECE);
        let what = ("prices", &LZ77_PRICES, "count_bytes");
        let args = vec![slot, chunk_log, pieces, blocks, stride];
        let first = |is_first: bool| vec![("FIRST", u32::from(is_first))];
        steps.of_groups(what, blocks * pieces, first(true), vec![jobs, contents, symbols], args);
        // The parse also visits the end of a segment.
        let positions = (1 << params.segment_log) + 1;
        let part = if self.limits.ends_long_loops() { LIMITED_POSITIONS } else { positions };
        let state_stride = (steps.plan.buffers[states.0].bytes / u64::from(blocks) / 16) as u32;
        for pass in 1..=effort.passes {
            let Segments { spacing_log, lanes, chunks: of_group } =
                if pass < effort.passes { sample } else { all };
            let segments = slot.div_ceil(1 << (params.segment_log + spacing_log));
            let groups = blocks * segments.div_ceil(lanes);
            let what = ("prices", &LZ77_PRICES, "prices");
            let args = vec![slot, chunk_log, chunks_per_block, blocks, stride];
            let all_chunks = blocks * chunks_per_block;
            steps.of_teams(what, all_chunks, first(pass == 1), vec![jobs, symbols], args);
            let defines = vec![
                ("SEGMENT_LOG", params.segment_log.into()),
                ("SPACING_LOG", spacing_log.into()),
                ("CHUNKS", of_group),
                ("NICE_LENGTH", effort.nice_length),
                ("EVERY_LENGTH", effort.every_length),
                ("COUNT", u32::from(pass < effort.passes)),
            ];
            for begin in (0..positions).step_by(part as usize) {
                let buffers =
                    vec![jobs, contents, low, high, symbols, entries, states, match_counts];
                let size = vec![slot, segments, blocks, window_log, chunk_log, stride];
                let args = [size, vec![state_stride, begin, part]].concat();
                let what = ("parse", &LZ77_OPTIMAL, "parse");
                steps.push(what, (groups, lanes), defines.clone(), buffers, args);
            }
            let mut buffers = vec![jobs, entries, matches, match_counts];
            if pass < effort.passes {
                buffers.extend([contents, symbols]);
            }
            let args = vec![slot, segments, blocks, chunk_log, stride];
            let what = ("parse", &LZ77_OPTIMAL, "trace");
            steps.push(what, (groups, lanes), defines, buffers, args);
        }
    }
}

/// The segments that a pass parses.
#[derive(Clone, Copy)]
struct Segments {
    /// Base-2 logarithm of the number of segments from one of them to the next.
    spacing_log: u8,
    /// Work items per workgroup, each with its own segment.
    lanes: u32,
    /// The most chunks that a workgroup's segments come from.
    chunks: u32,
}

impl Segments {
    /// `segments_log` is the base-2 logarithm of the number of a chunk's segments, at least `spacing_log`.
    fn new(limits: &Limits, segments_log: u8, spacing_log: u8) -> Self {
        let of_chunk_log = (segments_log - spacing_log).min(5);
        let lanes = lanes(limits).min(MAX_CHUNKS << of_chunk_log);
        Self { spacing_log, lanes, chunks: (lanes >> of_chunk_log).max(1) }
    }
}

/// The most work items per parsing workgroup. They wait for each other and for memory. Many small
/// workgroups wait less, and through WebGPU there are few segments at once.
fn lanes(limits: &Limits) -> u32 {
    #[cfg(test)]
    if let Some(lanes) = crate::gpu::tests::lz77_find::measured_optimal_lanes() {
        return lanes;
    }
    match limits.api {
        Api::Cuda | Api::OpenCl => 16,
        Api::WebGpu => 8,
    }
}

/// Stage, kernel and entry point.
type What = (&'static str, &'static Kernel, &'static str);

type Defines = Vec<(&'static str, u32)>;

/// Appends steps to a plan.
struct Steps<'p> {
    plan: &'p mut Plan,
    /// Work items per workgroup of teams.
    team_threads: u32,
}

impl Steps<'_> {
    /// Appends a step with `teams` teams.
    fn of_teams(
        &mut self,
        what: What,
        teams: u32,
        defines: Defines,
        buffers: Vec<Buffer>,
        args: Vec<u32>,
    ) {
        let groups = teams.div_ceil(self.team_threads / 32);
        self.push(what, (groups, self.team_threads), defines, buffers, args);
    }

    /// Appends a step with `groups` workgroups.
    fn of_groups(
        &mut self,
        what: What,
        groups: u32,
        defines: Defines,
        buffers: Vec<Buffer>,
        args: Vec<u32>,
    ) {
        self.push(what, (groups, GROUP_THREADS), defines, buffers, args);
    }

    fn push(
        &mut self,
        (stage, kernel, entry): What,
        (groups, threads): (u32, u32),
        defines: Defines,
        buffers: Vec<Buffer>,
        args: Vec<u32>,
    ) {
        let run = Run { stage, kernel, entry, defines, buffers, args, groups, threads };
        self.plan.steps.push(Step::Run(run));
    }
}
