//! Plans that code LZ77 matches and literals: from `contents`, `matches` and `match_counts` to the payloads that
//! [`codec::lz77::Encoder`](crate::codec::lz77::Encoder) makes.
//!
//! | stage | |
//! |---|---|
//! | sequences | turns a chunk's matches into sequences, assigns symbols to offsets, collects literals |
//! | models | counts symbols, chooses the models of groups, and builds their tables and descriptions |
//! | states | where streams may be FSE coded: codes them, from the last symbol to the first |
//! | rows | writes the words of chunks |
//! | pack | assembles the payloads |

use crate::codec::lz77::{MAX_BLOCK, Params, Search};
use crate::gpu::device::{Limits, Teams};
use crate::gpu::model::kernel::{
    Kernel, LZ77_COUNTS, LZ77_MODELS, LZ77_NORMS, LZ77_PACK, LZ77_ROWS, LZ77_SEQUENCES, LZ77_STATES,
};
use crate::gpu::model::plan::{Buffer, Plan, PlanError, Run, Shape, Step};

/// Supported segment lengths, as base-2 logarithms of bytes.
const SEGMENT_LOGS: core::ops::RangeInclusive<u8> = 8..=15;

/// Bytes of literals that a workgroup counts, as a base-2 logarithm.
const PIECE_LOG: u8 = 15;

/// Work items per workgroup that is not made of teams.
const GROUP_THREADS: u32 = 256;

/// Models per group.
const MODELS: u32 = 3;

/// A buffer, and its words per block.
#[derive(Clone, Copy)]
struct StridedBuffer {
    buffer: Buffer,
    stride: u32,
}

impl StridedBuffer {
    fn of(plan: &mut Plan, kernel: &Kernel, name: &'static str) -> Result<Self, PlanError> {
        let buffer = plan.buffer(kernel, name)?;
        let words = plan.buffers[buffer.0].bytes / u64::from(plan.shape.blocks) / 4;
        let stride =
            u32::try_from(words).map_err(|_| PlanError::Declined("large blocks".into()))?;
        Ok(Self { buffer, stride })
    }
}

/// Appends to `plan` the steps that write `payload`, and `status` and `payload_len` of `results`. If a payload would
/// not be smaller than the contents, the steps write no payload and a status other than 0.
///
/// # Errors
/// [`PlanError::Declined`] if no kernels support these parameters on this device.
pub fn append(plan: &mut Plan, limits: &Limits, params: &Params) -> Result<(), PlanError> {
    let shape = plan.shape;
    if u64::from(shape.slot) > MAX_BLOCK as u64 {
        return Err(PlanError::Declined("blocks of up to 16 MiB only".into()));
    }
    let has_matches = params.search != Search::None;
    if has_matches
        && !(SEGMENT_LOGS.contains(&params.segment_log) && params.segment_log <= params.chunk_log)
    {
        return Err(PlanError::Declined("segments of 2^8 to 2^15 bytes only".into()));
    }
    let coding = Coding::new(plan, limits, params)?;
    plan.steps.push(Step::Clear(coding.counts.buffer));
    let team_threads = if limits.teams == Teams::Ptx { 64 } else { 32 };
    let mut stages = Stages { plan, team_threads };
    coding.append_sequences(&mut stages);
    coding.append_models(&mut stages);
    if params.fse {
        coding.append_states(&mut stages);
    }
    coding.append_rows(&mut stages);
    coding.append_pack(&mut stages);
    Ok(())
}

/// The buffers and sizes that the stages share.
struct Coding<'a> {
    params: &'a Params,
    teams: Teams,
    blocks: u32,
    slot: u32,
    chunks_per_block: u32,
    jobs: Buffer,
    contents: Buffer,
    tokens: StridedBuffer,
    offsets: StridedBuffer,
    chunks: StridedBuffer,
    counts: StridedBuffer,
    models: StridedBuffer,
    words: StridedBuffer,
    payload: Buffer,
    results: Buffer,
    matches: Buffer,
    match_counts: StridedBuffer,
    literals: StridedBuffer,
}

impl<'a> Coding<'a> {
    fn new(plan: &mut Plan, limits: &Limits, params: &'a Params) -> Result<Self, PlanError> {
        let Shape { slot, blocks } = plan.shape;
        let jobs = plan.buffer(&LZ77_SEQUENCES, "jobs")?;
        let contents = plan.buffer(&LZ77_SEQUENCES, "contents")?;
        let tokens = StridedBuffer::of(plan, &LZ77_SEQUENCES, "lz77_tokens")?;
        let offsets = StridedBuffer::of(plan, &LZ77_SEQUENCES, "lz77_offsets")?;
        let chunks = StridedBuffer::of(plan, &LZ77_SEQUENCES, "lz77_streams")?;
        let counts = StridedBuffer::of(plan, &LZ77_COUNTS, "lz77_counts")?;
        let models = StridedBuffer::of(plan, &LZ77_MODELS, "lz77_models")?;
        let words = StridedBuffer::of(plan, &LZ77_ROWS, "lz77_words")?;
        let payload = plan.buffer(&LZ77_PACK, "payload")?;
        let results = plan.buffer(&LZ77_PACK, "results")?;
        let matches = plan.buffer(&LZ77_SEQUENCES, "matches")?;
        let match_counts = StridedBuffer::of(plan, &LZ77_SEQUENCES, "match_counts")?;
        // Without matches, a chunk's literals are its contents. Otherwise they are collected where its payload will go.
        let literals = match params.search {
            Search::None => StridedBuffer { buffer: contents, stride: slot / 4 },
            _ => StridedBuffer { buffer: payload, stride: (slot + 256) / 4 },
        };
        let (teams, chunks_per_block) = (limits.teams, slot.div_ceil(1 << params.chunk_log));
        Ok(Self {
            params,
            teams,
            blocks,
            slot,
            chunks_per_block,
            jobs,
            contents,
            tokens,
            offsets,
            chunks,
            counts,
            models,
            words,
            payload,
            results,
            matches,
            match_counts,
            literals,
        })
    }

    fn all_chunks(&self) -> u32 {
        self.blocks * self.chunks_per_block
    }

    fn group_log(&self) -> u32 {
        self.params.group_log.into()
    }

    /// The arguments that kernels of chunks begin with, then `more`.
    fn chunk_args(&self, more: &[u32]) -> Vec<u32> {
        let first = [self.blocks, self.slot, self.params.chunk_log.into(), self.chunks_per_block];
        [&first[..], more].concat()
    }

    /// Sequences from matches, and their symbols.
    fn append_sequences(&self, stages: &mut Stages<'_>) {
        let Self { params, jobs, tokens, offsets, chunks, counts, .. } = self;
        let has_matches = params.search != Search::None;
        let args = self.chunk_args(&[
            self.literals.stride,
            params.segment_log.into(),
            self.match_counts.stride,
            tokens.stride,
            chunks.stride,
            self.group_log(),
            counts.stride,
        ]);
        let mut buffers = vec![*jobs];
        if has_matches {
            let Self { contents, matches, match_counts, literals, .. } = self;
            buffers.extend([*contents, *matches, match_counts.buffer, literals.buffer]);
        }
        buffers.extend([tokens.buffer, offsets.buffer, chunks.buffer]);
        let mut of_chunks = |entry, buffers| {
            let (stage, kernel) = ("sequences", &LZ77_SEQUENCES);
            let defines = vec![("MATCHES", u32::from(has_matches))];
            let args = args.clone();
            let step = UnsizedStep { stage, kernel, entry, defines, buffers, args };
            stages.of_teams(step, self.all_chunks());
        };
        of_chunks("cut", buffers);
        let buffers = vec![*jobs, tokens.buffer, offsets.buffer, chunks.buffer, counts.buffer];
        of_chunks("classify", buffers);
    }

    /// Counts of symbols, and the models and tables of groups.
    fn append_models(&self, stages: &mut Stages<'_>) {
        let Self { params, jobs, literals, chunks, counts, models, .. } = self;
        stages.of_groups(
            UnsizedStep {
                stage: "models",
                kernel: &LZ77_COUNTS,
                entry: "count",
                defines: vec![],
                buffers: vec![*jobs, literals.buffer, chunks.buffer, counts.buffer],
                args: self.chunk_args(&[
                    literals.stride,
                    self.group_log(),
                    chunks.stride,
                    counts.stride,
                ]),
            },
            self.all_chunks() << (params.chunk_log - PIECE_LOG),
        );
        let groups_per_block = self.chunks_per_block.div_ceil(1 << params.group_log);
        let args = vec![
            self.blocks,
            self.slot,
            params.chunk_log.into(),
            groups_per_block,
            self.group_log(),
            counts.stride,
            models.stride,
        ];
        let mut of_models = |kernel, entry, buffers| {
            let (stage, defines, args) = ("models", vec![], args.clone());
            let step = UnsizedStep { stage, kernel, entry, defines, buffers, args };
            stages.of_teams(step, self.blocks * groups_per_block * MODELS);
        };
        of_models(&LZ77_MODELS, "choose_lengths", vec![*jobs, counts.buffer, models.buffer]);
        if params.fse {
            of_models(&LZ77_NORMS, "choose_norms", vec![*jobs, counts.buffer, models.buffer]);
            of_models(&LZ77_NORMS, "tables_from_norms", vec![*jobs, models.buffer]);
        }
        of_models(&LZ77_MODELS, "tables_from_lengths", vec![*jobs, models.buffer]);
    }

    /// The FSE codes of streams. They take the place of the matches, which are no longer needed.
    fn append_states(&self, stages: &mut Stages<'_>) {
        let Self { jobs, literals, tokens, offsets, chunks, models, .. } = self;
        let group_log = self.group_log();
        let args = self.chunk_args(&[
            literals.stride,
            group_log,
            tokens.stride,
            chunks.stride,
            models.stride,
        ]);
        let step = |entry, buffers| {
            let (stage, kernel, defines, args) = ("states", &LZ77_STATES, vec![], args.clone());
            UnsizedStep { stage, kernel, entry, defines, buffers, args }
        };
        // The teams of a workgroup share tables.
        let max_log = if self.teams == Teams::Local { 0 } else { 2 };
        let teams = 1 << group_log.min(max_log);
        let groups = self.blocks * self.chunks_per_block.div_ceil(teams);
        let buffers = vec![*jobs, models.buffer, literals.buffer, self.matches, chunks.buffer];
        stages.push(step("literal_states", buffers), groups, 32 * teams);
        let buffers = vec![*jobs, models.buffer, tokens.buffer, offsets.buffer, chunks.buffer];
        stages.of_teams(step("sequence_states", buffers), self.all_chunks());
    }

    /// The words of chunks.
    fn append_rows(&self, stages: &mut Stages<'_>) {
        let Self { params, jobs, literals, tokens, offsets, chunks, models, words, .. } = self;
        let mut buffers = vec![*jobs, models.buffer, literals.buffer];
        buffers.extend(params.fse.then_some(self.matches));
        buffers.extend([tokens.buffer, offsets.buffer, chunks.buffer, words.buffer]);
        let strides = [tokens.stride, chunks.stride, models.stride, words.stride];
        let args = [&[literals.stride, self.group_log()], &strides[..]].concat();
        stages.of_teams(
            UnsizedStep {
                stage: "rows",
                kernel: &LZ77_ROWS,
                entry: "write_words",
                defines: vec![("FSE", u32::from(params.fse))],
                buffers,
                args: self.chunk_args(&args),
            },
            self.all_chunks(),
        );
    }

    /// The payloads.
    fn append_pack(&self, stages: &mut Stages<'_>) {
        let Self { params, jobs, chunks, models, words, payload, results, .. } = self;
        let strides = [chunks.stride, models.stride, words.stride];
        let args = [&[self.group_log(), params.window_log.into()], &strides[..]].concat();
        let step = |entry, buffers| {
            let (stage, kernel, defines) = ("pack", &LZ77_PACK, vec![]);
            let args = self.chunk_args(&args);
            UnsizedStep { stage, kernel, entry, defines, buffers, args }
        };
        let buffers = vec![*jobs, models.buffer, chunks.buffer, *results];
        stages.of_teams(step("measure", buffers), self.blocks);
        let buffers = vec![*jobs, models.buffer, chunks.buffer, words.buffer, *results, *payload];
        stages.of_groups(step("pack", buffers), self.all_chunks());
    }
}

/// A step without its launch size.
pub(super) struct UnsizedStep {
    pub(super) stage: &'static str,
    pub(super) kernel: &'static Kernel,
    pub(super) entry: &'static str,
    pub(super) defines: Vec<(&'static str, u32)>,
    pub(super) buffers: Vec<Buffer>,
    pub(super) args: Vec<u32>,
}

impl UnsizedStep {
    /// The step with `groups` workgroups of `threads` work items.
    pub(super) fn of_size(self, groups: u32, threads: u32) -> Step {
        let Self { stage, kernel, entry, defines, buffers, args } = self;
        Step::Run(Run { stage, kernel, entry, defines, buffers, args, groups, threads })
    }
}

/// Appends steps to a plan.
struct Stages<'p> {
    plan: &'p mut Plan,
    /// Work items per workgroup of teams.
    team_threads: u32,
}

impl Stages<'_> {
    /// Appends a step with `teams` teams.
    fn of_teams(&mut self, work: UnsizedStep, teams: u32) {
        self.push(work, teams.div_ceil(self.team_threads / 32), self.team_threads);
    }

    /// Appends a step with `groups` workgroups.
    fn of_groups(&mut self, work: UnsizedStep, groups: u32) {
        self.push(work, groups, GROUP_THREADS);
    }

    fn push(&mut self, work: UnsizedStep, groups: u32, threads: u32) {
        self.plan.steps.push(work.of_size(groups, threads));
    }
}
