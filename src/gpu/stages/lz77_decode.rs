//! The plan that decodes LZ77 payloads ([`codec::lz77`](crate::codec::lz77)) on a device.
//!
//! There are three main kernels. `lz77_layout` checks the headers of payloads and finds the chunks' records,
//! `lz77_tables` builds the decoding tables of groups, and `lz77_decode` decodes chunks. A chunk refers to earlier
//! chunks of its window, so one dispatch decodes the first chunk of every window, the next one the second, and so on.
//!
//! With long windows, few teams would have work. There `lz77_decode` only records the sequences, for all chunks at
//! once, and then `lz77_windows` writes each window with a whole workgroup.
//!
//! `lz77_literals` decodes chunks that hold only FSE coded literals.
//!
//! The payloads are on the device, but compiling and launching the kernels depends on the payloads' [needs](Needs). The
//! host determines these first, from the headers of the payloads alone.

use crate::codec::lz77::stream::directory::{Entry, Header};
use crate::codec::lz77::{MAX_CHUNK_LOG, MIN_CHUNK_LOG};
use crate::gpu::device::{Api, Kind, Limits, Teams};
use crate::gpu::model::kernel::{
    Kernel, LZ77_DECODE, LZ77_LAYOUT, LZ77_LITERALS, LZ77_ORDER, LZ77_TABLES, LZ77_WINDOWS,
};
use crate::gpu::model::plan::{Plan, PlanError, Run, Shape, Step};
use crate::gpu::stages::filter::Undoing;

/// The longest chunk whose sequences can be recorded, as a base-2 logarithm; the bytes of a chunk per record; and the
/// additional records for the last chunk of a block.
const RECORDED_CHUNK_LOG: u8 = 19;
const RECORDED_BYTES: usize = 4;
const SPARE_RECORDS: usize = 256;

/// The most chunks that may share tables, as a base-2 logarithm.
const MAX_GROUP_LOG: u8 = 4;

/// Work items that write a window: on software devices, which run them one after another; in general; and where there
/// are too few windows to keep the compute units busy.
const WINDOW_THREADS: [u32; 3] = [256, 512, 1024];

/// Work items that sort chunks.
const ORDER_THREADS: u32 = 1024;

/// The features of payloads that decide how a plan decodes them.
///
/// Malformed payloads have no needs: any plan rejects them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needs {
    /// Whether a stream is FSE coded.
    fse: bool,
    /// The shortest chunk, as a base-2 logarithm.
    chunk_log: u8,
    /// The fewest and the most chunks in a window of any payload, as base-2 logarithms.
    min_log: u8,
    max_log: u8,
    /// Whether the sequences of some chunk cannot be recorded.
    in_turns: bool,
    /// Whether some chunk has fewer literals than bytes.
    matches: bool,
    /// The fewest chunks that share tables, as a base-2 logarithm.
    group_log: u8,
    /// The filters to undo.
    filters: Undoing,
    /// For an encoder: the number of passes that apply filters.
    passes: u8,
}

impl Default for Needs {
    fn default() -> Self {
        Self {
            fse: false,
            chunk_log: MAX_CHUNK_LOG,
            min_log: u8::MAX,
            max_log: 0,
            in_turns: false,
            matches: false,
            group_log: u8::MAX,
            filters: Undoing::default(),
            passes: 0,
        }
    }
}

impl Needs {
    /// The greatest needs of payloads for blocks of up to `block_len` bytes, with or without FSE coded streams. A plan
    /// for these does much work that most payloads do not need.
    pub fn any(block_len: u32, fse: bool) -> Self {
        let chunks = block_len.div_ceil(1 << MIN_CHUNK_LOG).max(1);
        let max_log = chunks.next_power_of_two().ilog2() as u8;
        Self {
            fse,
            chunk_log: MIN_CHUNK_LOG,
            min_log: 0,
            max_log,
            in_turns: true,
            matches: true,
            group_log: 0,
            filters: Undoing::default(),
            passes: 0,
        }
    }

    /// The usual needs of payloads of the pipeline `fse`.
    pub fn literals() -> Self {
        Self { fse: true, chunk_log: MIN_CHUNK_LOG, group_log: 2, ..Self::default() }
    }

    /// The needs of `payload` for a block of `block_len` bytes.
    pub fn of(payload: &[u8], block_len: usize) -> Self {
        let Ok((header, directory, mut records)) = Header::read(payload, block_len) else {
            return Self::default();
        };
        let chunks = header.window_log - header.chunk_log;
        // A block never needs more turns than it has chunks.
        let count = header.chunk_count(block_len).next_power_of_two().ilog2() as u8;
        let mut needs = Self {
            fse: false,
            chunk_log: header.chunk_log,
            min_log: chunks.min(count),
            max_log: chunks.min(count),
            in_turns: header.chunk_log > RECORDED_CHUNK_LOG,
            matches: false,
            group_log: header.group_log,
            filters: Undoing::default(),
            passes: 0,
        };
        let (entries, _) = directory.as_chunks::<{ Entry::BYTES }>();
        for (i, entry) in entries.iter().enumerate() {
            let Entry { words, literals, sequences } = Entry::unpack(u64::from_le_bytes(*entry));
            let start = i << header.chunk_log;
            let len = block_len.saturating_sub(start).min(1 << header.chunk_log);
            let spare = if start + len == block_len { SPARE_RECORDS } else { 0 };
            needs.in_turns |= sequences > len / RECORDED_BYTES + spare;
            needs.matches |= literals != len;
            let Some((record, rest)) = records.split_at_checked(4 * words) else { break };
            if i.is_multiple_of(1 << header.group_log) {
                let modes = record.first().copied().unwrap_or(0);
                needs.fse |= (0..3).any(|model| modes >> (2 * model) & 3 == 3);
            }
            records = rest;
        }
        needs
    }

    /// The needs of payloads whose windows have several chunks, all recordable.
    #[cfg(test)]
    pub fn of_long_windows(fse: bool) -> Self {
        Self { fse, chunk_log: 18, max_log: 4, in_turns: false, ..Self::any(1, fse) }
    }

    /// Adds filters to undo.
    #[must_use]
    pub(crate) fn and_filters(self, filters: Undoing) -> Self {
        Self { filters: self.filters.and(filters), ..self }
    }

    /// The needs of an encoder whose blocks take up to `passes` filter passes.
    pub(crate) fn of_passes(passes: usize) -> Self {
        Self { passes: passes as u8, ..Self::default() }
    }

    /// The number of passes that apply filters.
    pub(crate) fn passes(&self) -> usize {
        self.passes.into()
    }

    /// The filters to undo.
    pub(crate) fn filters(&self) -> Undoing {
        self.filters
    }

    /// The union of both needs.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            fse: self.fse || other.fse,
            chunk_log: self.chunk_log.min(other.chunk_log),
            min_log: self.min_log.min(other.min_log),
            max_log: self.max_log.max(other.max_log),
            in_turns: self.in_turns || other.in_turns,
            matches: self.matches || other.matches,
            group_log: self.group_log.min(other.group_log),
            filters: self.filters.and(other.filters),
            passes: self.passes.max(other.passes),
        }
    }
}

/// In tests, the value of the environment variable `name` if it is set; otherwise `usual`.
fn measured(name: &str, usual: u32) -> u32 {
    let asked = if cfg!(test) { std::env::var(name).ok() } else { None };
    asked.and_then(|value| value.parse().ok()).unwrap_or(usual)
}

/// Makes the plan for a batch of payloads that need at most `needs`.
///
/// # Errors
/// Fails if a kernel's cost is wrong.
pub fn plan(limits: &Limits, shape: Shape, needs: Needs) -> Result<Plan, PlanError> {
    let mut plan = Plan::new(shape);
    let contents = plan.buffer(&LZ77_DECODE, "contents")?;
    let jobs = plan.buffer(&LZ77_LAYOUT, "jobs")?;
    let payload = plan.buffer(&LZ77_LAYOUT, "payload")?;
    let results = plan.buffer(&LZ77_LAYOUT, "results")?;
    let chunks = plan.buffer(&LZ77_LAYOUT, "lz77_chunks")?;
    let tables = plan.buffer(&LZ77_TABLES, "lz77_tables")?;
    // Every plan has these buffers, since memory is allocated before the needs of the batches are known.
    let places = plan.buffer(&LZ77_DECODE, "lz77_places")?;
    let offsets = plan.buffer(&LZ77_DECODE, "lz77_distances")?;
    let starts = plan.buffer(&LZ77_DECODE, "lz77_starts")?;
    let order = plan.buffer(&LZ77_DECODE, "lz77_order")?;

    let chunk_log = needs.chunk_log.clamp(MIN_CHUNK_LOG, MAX_CHUNK_LOG);
    let max_chunks = shape.slot.div_ceil(1 << chunk_log);
    // If every window has several chunks, a dispatch handles every `stride`-th chunk.
    let stride = 1u32 << needs.min_log.min(needs.max_log);
    let turns = 1u32 << needs.max_log;
    let per_block = max_chunks.div_ceil(stride);
    let group_log = u32::from(needs.group_log.min(MAX_GROUP_LOG));
    let groups = max_chunks.div_ceil(1 << group_log);
    let payload_units = (plan.buffers[payload.0].bytes / 16) as u32;
    let fse = ("FSE", u32::from(needs.fse));
    let is_literals = needs.fse && !needs.matches;
    // Put as many teams in a workgroup as its memory allows; through WebGPU a single team is fastest.
    let one = limits.teams == Teams::Local || limits.api == Api::WebGpu;
    let teams = |most: u32| if one { 1 } else { most };
    let mut run = |kernel: &'static Kernel,
                   stage,
                   entry,
                   defines: &[_],
                   buffers: &[_],
                   args: &[u32],
                   work: u32,
                   teams: u32| {
        plan.steps.push(Step::Run(Run {
            stage,
            kernel,
            entry,
            defines: defines.to_vec(),
            buffers: buffers.to_vec(),
            args: args.to_vec(),
            groups: work.div_ceil(teams),
            threads: 32 * teams,
        }));
    };

    run(
        &LZ77_LAYOUT,
        "layout",
        "lz77_layout",
        &[],
        &[jobs, payload, results, chunks],
        &[shape.blocks, max_chunks, shape.slot, payload_units, group_log],
        shape.blocks,
        teams(4),
    );
    run(
        &LZ77_TABLES,
        "tables",
        "lz77_tables",
        &[fse, ("LITERALS", u32::from(is_literals))],
        &[payload, results, chunks, tables],
        &[shape.blocks, max_chunks, groups],
        shape.blocks * groups,
        match limits.teams {
            Teams::Ptx => 4,
            Teams::Subgroup if limits.local_memory >= 32 << 10 => 2,
            _ => 1,
        },
    );
    if is_literals {
        // The teams of a workgroup share a table.
        let max_log = measured("PZ_LITERAL_TEAMS_LOG", 2);
        let teams = if limits.teams == Teams::Local { 1 } else { 1 << group_log.min(max_log) };
        let per_block = max_chunks.div_ceil(teams);
        // This limit lets 48 teams run at once on a multiprocessor of the H200.
        let registers = ("MAX_REGISTERS", measured("PZ_LITERAL_REGISTERS", 40));
        let defines = [fse, ("LITERALS", 1), registers];
        run(
            &LZ77_LITERALS,
            "decode",
            "lz77_literals",
            &defines,
            &[contents, payload, results, chunks, tables],
            &[shape.blocks, max_chunks, shape.slot, per_block],
            shape.blocks * per_block * teams,
            teams,
        );
        return Ok(plan);
    }
    // With 56 registers, 36 teams run at once on a multiprocessor of the H200. A higher limit or more teams are slower.
    let registers = ("MAX_REGISTERS", if needs.fse { 64 } else { 56 });
    // Long windows leave few teams; spread those over all compute units.
    let are_few = |work: u32| work <= 4 * limits.compute_units;
    let in_group = |work: u32| {
        if are_few(work) { 1 } else { teams(if needs.fse { 2 } else { 4 }) }
    };
    let is_recorded = (turns > 1 || measured("PZ_RECORDS", 0) != 0)
        && !needs.in_turns
        && limits.max_workgroup >= WINDOW_THREADS[0];
    if is_recorded {
        let work = shape.blocks * max_chunks;
        run(
            &LZ77_DECODE,
            "decode",
            "lz77_decode",
            &[fse, registers, ("RECORDS", 1)],
            &[contents, payload, results, chunks, tables, places, offsets, starts],
            &[shape.blocks, max_chunks, shape.slot, max_chunks, 1, 0, 0],
            work,
            in_group(work),
        );
        // On a software device, limit how much one dispatch does.
        let is_software = limits.kind == Kind::Software;
        let windows = shape.blocks * per_block;
        // A multiprocessor of the H200 runs two workgroups of 512 at once; through WebGPU one of 1024 is as fast.
        let alone = if limits.api == Api::WebGpu { 3 } else { 1 };
        let is_few = windows <= alone * limits.compute_units;
        let most = if is_software { 0 } else { 1 + usize::from(is_few) };
        let threads = measured("PZ_WINDOW_THREADS", WINDOW_THREADS[most]);
        let threads = threads.min(1 << limits.max_workgroup.ilog2());
        let each = if is_software { 1 } else { turns };
        for turn in (0..turns).step_by(each as usize) {
            run(
                &LZ77_WINDOWS,
                "windows",
                "lz77_windows",
                &[("MAX_REGISTERS", 64), ("LANE_BYTES", 4)],
                &[contents, results, chunks, places, offsets, starts],
                &[shape.blocks, max_chunks, shape.slot, per_block, stride, turn, each],
                windows * (threads / 32),
                threads / 32,
            );
        }
        return Ok(plan);
    }
    let work = shape.blocks * per_block;
    // Where compute units have several teams each, an order of the chunks lets them share the work equally.
    let is_ordered = turns == 1 && !are_few(work);
    if is_ordered {
        let of_order = (ORDER_THREADS.min(1 << limits.max_workgroup.ilog2()) / 32).max(1);
        let round = (in_group(work) * limits.compute_units).max(1);
        run(
            &LZ77_ORDER,
            "layout",
            "lz77_order",
            &[],
            &[chunks, order],
            &[work, max_chunks, per_block, stride, round],
            of_order,
            of_order,
        );
    }
    for turn in 0..turns {
        run(
            &LZ77_DECODE,
            "decode",
            "lz77_decode",
            &[fse, registers],
            &[contents, payload, results, chunks, tables, order],
            &[shape.blocks, max_chunks, shape.slot, per_block, stride, turn, u32::from(is_ordered)],
            work,
            in_group(work),
        );
    }
    Ok(plan)
}
