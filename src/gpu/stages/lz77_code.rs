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
use crate::gpu::model::plan::{Buffer, Plan, PlanError, Run, Step};

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
    let (literals, literal_stride) =
        if has_matches { (payload, (shape.slot + 256) / 4) } else { (contents, shape.slot / 4) };

    let (blocks, slot) = (shape.blocks, shape.slot);
    let (chunk_log, group_log) = (u32::from(params.chunk_log), u32::from(params.group_log));
    let chunks_per_block = slot.div_ceil(1 << chunk_log);
    let groups_per_block = chunks_per_block.div_ceil(1 << group_log);
    let team_threads = if limits.teams == Teams::Ptx { 64 } else { 32 };
    let all_chunks = blocks * chunks_per_block;
    let fse = ("FSE", u32::from(params.fse));

    let mut cut_buffers = vec![jobs];
    if has_matches {
        cut_buffers.extend([contents, matches, match_counts.buffer, literals]);
    }
    cut_buffers.extend([tokens.buffer, offsets.buffer, chunks.buffer]);
    let chunk_args = [blocks, slot, chunk_log, chunks_per_block];
    let args = |more: &[u32]| [&chunk_args[..], more].concat();

    let sequence_args = args(&[
        literal_stride,
        params.segment_log.into(),
        match_counts.stride,
        tokens.stride,
        chunks.stride,
        group_log,
        counts.stride,
    ]);

    plan.steps.push(Step::Clear(counts.buffer));
    let mut stages = Stages { plan, team_threads };
    stages.of_teams(
        UnsizedStep {
            stage: "sequences",
            kernel: &LZ77_SEQUENCES,
            entry: "cut",
            defines: vec![("MATCHES", u32::from(has_matches))],
            buffers: cut_buffers,
            args: sequence_args.clone(),
        },
        all_chunks,
    );
    stages.of_teams(
        UnsizedStep {
            stage: "sequences",
            kernel: &LZ77_SEQUENCES,
            entry: "classify",
            defines: vec![("MATCHES", u32::from(has_matches))],
            buffers: vec![jobs, tokens.buffer, offsets.buffer, chunks.buffer, counts.buffer],
            args: sequence_args,
        },
        all_chunks,
    );
    stages.of_groups(
        UnsizedStep {
            stage: "models",
            kernel: &LZ77_COUNTS,
            entry: "count",
            defines: vec![],
            buffers: vec![jobs, literals, chunks.buffer, counts.buffer],
            args: args(&[literal_stride, group_log, chunks.stride, counts.stride]),
        },
        all_chunks << (params.chunk_log - PIECE_LOG),
    );
    let all_models = blocks * groups_per_block * MODELS;
    let model_args =
        vec![blocks, slot, chunk_log, groups_per_block, group_log, counts.stride, models.stride];
    let mut of_models = |kernel, entry, buffers| {
        let args = model_args.clone();
        let work = UnsizedStep { stage: "models", kernel, entry, defines: vec![], buffers, args };
        stages.of_teams(work, all_models);
    };
    of_models(&LZ77_MODELS, "choose_lengths", vec![jobs, counts.buffer, models.buffer]);
    if params.fse {
        of_models(&LZ77_NORMS, "choose_norms", vec![jobs, counts.buffer, models.buffer]);
        of_models(&LZ77_NORMS, "tables_from_norms", vec![jobs, models.buffer]);
    }
    of_models(&LZ77_MODELS, "tables_from_lengths", vec![jobs, models.buffer]);
    let mut row_buffers = vec![jobs, models.buffer, literals];
    if params.fse {
        // The matches are no longer needed.
        row_buffers.push(matches);
        let state_args =
            args(&[literal_stride, group_log, tokens.stride, chunks.stride, models.stride]);
        let of_literals = vec![jobs, models.buffer, literals, matches, chunks.buffer];
        let of_sequences = vec![jobs, models.buffer, tokens.buffer, offsets.buffer, chunks.buffer];
        for (entry, buffers) in [("literal_states", of_literals), ("sequence_states", of_sequences)]
        {
            let (stage, kernel, args) = ("states", &LZ77_STATES, state_args.clone());
            let work = UnsizedStep { stage, kernel, entry, defines: vec![], buffers, args };
            if entry == "literal_states" {
                // The teams of a workgroup share tables.
                let max_log = if limits.teams == Teams::Local { 0 } else { 2 };
                let teams = 1 << group_log.min(max_log);
                stages.push(work, blocks * chunks_per_block.div_ceil(teams), 32 * teams);
            } else {
                stages.of_teams(work, all_chunks);
            }
        }
    }
    row_buffers.extend([tokens.buffer, offsets.buffer, chunks.buffer, words.buffer]);
    stages.of_teams(
        UnsizedStep {
            stage: "rows",
            kernel: &LZ77_ROWS,
            entry: "write_words",
            defines: vec![fse],
            buffers: row_buffers,
            args: args(&[
                literal_stride,
                group_log,
                tokens.stride,
                chunks.stride,
                models.stride,
                words.stride,
            ]),
        },
        all_chunks,
    );
    let pack_args =
        args(&[group_log, params.window_log.into(), chunks.stride, models.stride, words.stride]);
    stages.of_teams(
        UnsizedStep {
            stage: "pack",
            kernel: &LZ77_PACK,
            entry: "measure",
            defines: vec![],
            buffers: vec![jobs, models.buffer, chunks.buffer, results],
            args: pack_args.clone(),
        },
        blocks,
    );
    stages.of_groups(
        UnsizedStep {
            stage: "pack",
            kernel: &LZ77_PACK,
            entry: "pack",
            defines: vec![],
            buffers: vec![jobs, models.buffer, chunks.buffer, words.buffer, results, payload],
            args: pack_args,
        },
        all_chunks,
    );
    Ok(())
}

/// A step without its launch size.
struct UnsizedStep {
    stage: &'static str,
    kernel: &'static Kernel,
    entry: &'static str,
    defines: Vec<(&'static str, u32)>,
    buffers: Vec<Buffer>,
    args: Vec<u32>,
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
        let UnsizedStep { stage, kernel, entry, defines, buffers, args } = work;
        let run = Run { stage, kernel, entry, defines, buffers, args, groups, threads };
        self.plan.steps.push(Step::Run(run));
    }
}
