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
//! The payloads are on the device, but compiling and launching the kernels depends on the payloads'
//! [features](PayloadFeatures). The host reads these first, from the headers of the payloads alone.

use crate::codec::lz77::stream::directory::{ChunkEntry, Header};
use crate::codec::lz77::{MAX_CHUNK_LOG, MIN_CHUNK_LOG};
use crate::gpu::device::{Api, Kind, Limits, Teams};
use crate::gpu::model::kernel::{
    LZ77_DECODE, LZ77_LAYOUT, LZ77_LITERALS, LZ77_ORDER, LZ77_TABLES, LZ77_WINDOWS,
};
use crate::gpu::model::plan::{Buffer, Plan, PlanError, Shape};
use crate::gpu::stages::filter::Undoing;
use crate::gpu::stages::lz77_code::UnsizedStep;

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
/// Malformed payloads have none: any plan rejects them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PayloadFeatures {
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

impl Default for PayloadFeatures {
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

impl PayloadFeatures {
    /// All features that payloads for blocks of up to `block_len` bytes may have, with or without FSE coded streams. A
    /// plan for these does much work that most payloads do not need.
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

    /// The usual features of payloads of the pipeline `fse`.
    pub fn literals() -> Self {
        Self { fse: true, chunk_log: MIN_CHUNK_LOG, group_log: 2, ..Self::default() }
    }

    /// The features of `payload` for a block of `block_len` bytes.
    pub fn of(payload: &[u8], block_len: usize) -> Self {
        let Ok((header, directory, mut records)) = Header::read(payload, block_len) else {
            return Self::default();
        };
        let chunks = header.window_log - header.chunk_log;
        // A block never needs more turns than it has chunks.
        let count = header.chunk_count(block_len).next_power_of_two().ilog2() as u8;
        let mut features = Self {
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
        let (entries, _) = directory.as_chunks::<{ ChunkEntry::BYTES }>();
        for (i, entry) in entries.iter().enumerate() {
            let ChunkEntry { words, literals, sequences } =
                ChunkEntry::unpack(u64::from_le_bytes(*entry));
            let start = i << header.chunk_log;
            let len = block_len.saturating_sub(start).min(1 << header.chunk_log);
            let spare = if start + len == block_len { SPARE_RECORDS } else { 0 };
            features.in_turns |= sequences > len / RECORDED_BYTES + spare;
            features.matches |= literals != len;
            let Some((record, rest)) = records.split_at_checked(4 * words) else { break };
            if i.is_multiple_of(1 << header.group_log) {
                let modes = record.first().copied().unwrap_or(0);
                features.fse |= (0..3).any(|model| modes >> (2 * model) & 3 == 3);
            }
            records = rest;
        }
        features
    }

    /// The features of payloads whose windows have several chunks, all recordable.
    #[cfg(test)]
    pub fn of_long_windows(fse: bool) -> Self {
        Self { fse, chunk_log: 18, max_log: 4, in_turns: false, ..Self::any(1, fse) }
    }

    /// Adds filters to undo.
    #[must_use]
    pub(crate) fn and_filters(self, filters: Undoing) -> Self {
        Self { filters: self.filters.and(filters), ..self }
    }

    /// The features for an encoder whose blocks take up to `passes` filter passes.
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

    /// The features of either.
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

/// Makes the plan for a batch of payloads that have at most `features`.
///
/// # Errors
/// Fails if a kernel's cost is wrong.
pub fn plan(limits: &Limits, shape: Shape, features: PayloadFeatures) -> Result<Plan, PlanError> {
    let mut decoding = Decoding::new(limits, shape, features)?;
    decoding.append_tables();
    if decoding.is_literals() {
        decoding.append_literals();
    } else if decoding.is_recorded() {
        decoding.append_windows();
    } else {
        decoding.append_turns();
    }
    Ok(decoding.plan)
}

/// A plan in the making, with the buffers and sizes that its steps share.
struct Decoding<'a> {
    plan: Plan,
    limits: &'a Limits,
    features: PayloadFeatures,
    max_chunks: u32,
    /// If every window has several chunks, a dispatch handles every `stride`-th chunk.
    stride: u32,
    turns: u32,
    /// Chunks of a block that a dispatch handles.
    per_block: u32,
    group_log: u32,
    contents: Buffer,
    jobs: Buffer,
    payload: Buffer,
    results: Buffer,
    chunks: Buffer,
    tables: Buffer,
    places: Buffer,
    distances: Buffer,
    starts: Buffer,
    order: Buffer,
}

impl<'a> Decoding<'a> {
    fn new(limits: &'a Limits, shape: Shape, features: PayloadFeatures) -> Result<Self, PlanError> {
        let mut plan = Plan::new(shape);
        let contents = plan.buffer(&LZ77_DECODE, "contents")?;
        let jobs = plan.buffer(&LZ77_LAYOUT, "jobs")?;
        let payload = plan.buffer(&LZ77_LAYOUT, "payload")?;
        let results = plan.buffer(&LZ77_LAYOUT, "results")?;
        let chunks = plan.buffer(&LZ77_LAYOUT, "lz77_chunks")?;
        let tables = plan.buffer(&LZ77_TABLES, "lz77_tables")?;
        // Every plan has these buffers, since memory is allocated before the features of the batches are known.
        let places = plan.buffer(&LZ77_DECODE, "lz77_places")?;
        let distances = plan.buffer(&LZ77_DECODE, "lz77_distances")?;
        let starts = plan.buffer(&LZ77_DECODE, "lz77_starts")?;
        let order = plan.buffer(&LZ77_DECODE, "lz77_order")?;
        let chunk_log = features.chunk_log.clamp(MIN_CHUNK_LOG, MAX_CHUNK_LOG);
        let max_chunks = shape.slot.div_ceil(1 << chunk_log);
        let stride = 1u32 << features.min_log.min(features.max_log);
        Ok(Self {
            plan,
            limits,
            features,
            max_chunks,
            stride,
            turns: 1 << features.max_log,
            per_block: max_chunks.div_ceil(stride),
            group_log: features.group_log.min(MAX_GROUP_LOG).into(),
            contents,
            jobs,
            payload,
            results,
            chunks,
            tables,
            places,
            distances,
            starts,
            order,
        })
    }

    fn fse(&self) -> (&'static str, u32) {
        ("FSE", self.features.fse.into())
    }

    fn is_literals(&self) -> bool {
        self.features.fse && !self.features.matches
    }

    /// Whether sequences are recorded first, and windows written from the records.
    fn is_recorded(&self) -> bool {
        (self.turns > 1 || measured("PZ_RECORDS", 0) != 0)
            && !self.features.in_turns
            && self.limits.max_workgroup >= WINDOW_THREADS[0]
    }

    /// Limits the registers of a work item. With 56, 36 teams run at once on a multiprocessor of the H200. A higher
    /// limit or more teams are slower.
    fn registers(&self) -> (&'static str, u32) {
        ("MAX_REGISTERS", if self.features.fse { 64 } else { 56 })
    }

    /// Teams in a workgroup: as many as its memory allows, up to `max`. Through WebGPU a single team is fastest.
    fn teams(&self, max: u32) -> u32 {
        let one = self.limits.teams == Teams::Local || self.limits.api == Api::WebGpu;
        if one { 1 } else { max }
    }

    /// Whether `work` teams leave some compute units idle. Long windows leave few teams.
    fn are_few(&self, work: u32) -> bool {
        work <= 4 * self.limits.compute_units
    }

    /// Teams in a workgroup that decodes. Few teams are spread over all compute units.
    fn decoding_teams(&self, work: u32) -> u32 {
        let max = if self.features.fse { 2 } else { 4 };
        if self.are_few(work) { 1 } else { self.teams(max) }
    }

    /// Appends a step of `work` teams, `teams` in each workgroup.
    fn push(&mut self, step: UnsizedStep, work: u32, teams: u32) {
        self.plan.steps.push(step.of_size(work.div_ceil(teams), 32 * teams));
    }

    /// Finds the records of chunks, and builds the tables of groups.
    fn append_tables(&mut self) {
        let Self { max_chunks, group_log, jobs, payload, results, chunks, tables, .. } = *self;
        let Shape { slot, blocks } = self.plan.shape;
        let payload_units = (self.plan.buffers[payload.0].bytes / 16) as u32;
        let layout = UnsizedStep {
            stage: "layout",
            kernel: &LZ77_LAYOUT,
            entry: "lz77_layout",
            defines: vec![],
            buffers: vec![jobs, payload, results, chunks],
            args: vec![blocks, max_chunks, slot, payload_units, group_log],
        };
        self.push(layout, blocks, self.teams(4));
        let groups = max_chunks.div_ceil(1 << group_log);
        let teams = match self.limits.teams {
            Teams::Ptx => 4,
            Teams::Subgroup if self.limits.local_memory >= 32 << 10 => 2,
            _ => 1,
        };
        let build = UnsizedStep {
            stage: "tables",
            kernel: &LZ77_TABLES,
            entry: "lz77_tables",
            defines: vec![self.fse(), ("LITERALS", self.is_literals().into())],
            buffers: vec![payload, results, chunks, tables],
            args: vec![blocks, max_chunks, groups],
        };
        self.push(build, blocks * groups, teams);
    }

    /// Decodes chunks that hold only literals.
    fn append_literals(&mut self) {
        let Self { max_chunks, contents, payload, results, chunks, tables, .. } = *self;
        let Shape { slot, blocks } = self.plan.shape;
        // The teams of a workgroup share a table.
        let max_log = measured("PZ_LITERAL_TEAMS_LOG", 2);
        let teams = match self.limits.teams {
            Teams::Local => 1,
            _ => 1 << self.group_log.min(max_log),
        };
        let per_block = max_chunks.div_ceil(teams);
        // This limit lets 48 teams run at once on a multiprocessor of the H200.
        let registers = ("MAX_REGISTERS", measured("PZ_LITERAL_REGISTERS", 40));
        let literals = UnsizedStep {
            stage: "decode",
            kernel: &LZ77_LITERALS,
            entry: "lz77_literals",
            defines: vec![self.fse(), ("LITERALS", 1), registers],
            buffers: vec![contents, payload, results, chunks, tables],
            args: vec![blocks, max_chunks, slot, per_block],
        };
        self.push(literals, blocks * per_block * teams, teams);
    }

    /// Records the sequences of all chunks at once, then writes windows.
    fn append_windows(&mut self) {
        let Self { max_chunks, contents, payload, results, chunks, tables, .. } = *self;
        let Self { stride, per_block, places, distances, starts, .. } = *self;
        let Shape { slot, blocks } = self.plan.shape;
        let work = blocks * max_chunks;
        let record = UnsizedStep {
            stage: "decode",
            kernel: &LZ77_DECODE,
            entry: "lz77_decode",
            defines: vec![self.fse(), self.registers(), ("RECORDS", 1)],
            buffers: vec![contents, payload, results, chunks, tables, places, distances, starts],
            args: vec![blocks, max_chunks, slot, max_chunks, 1, 0, 0],
        };
        self.push(record, work, self.decoding_teams(work));
        // On a software device, limit how much one dispatch does.
        let is_software = self.limits.kind == Kind::Software;
        let windows = blocks * per_block;
        // A multiprocessor of the H200 runs two workgroups of 512 at once; through WebGPU one of 1024 is as fast.
        let alone = if self.limits.api == Api::WebGpu { 3 } else { 1 };
        let is_few = windows <= alone * self.limits.compute_units;
        let most = if is_software { 0 } else { 1 + usize::from(is_few) };
        let threads = measured("PZ_WINDOW_THREADS", WINDOW_THREADS[most]);
        let threads = threads.min(1 << self.limits.max_workgroup.ilog2());
        let each = if is_software { 1 } else { self.turns };
        for turn in (0..self.turns).step_by(each as usize) {
            let write = UnsizedStep {
                stage: "windows",
                kernel: &LZ77_WINDOWS,
                entry: "lz77_windows",
                defines: vec![("MAX_REGISTERS", 64), ("LANE_BYTES", 4)],
                buffers: vec![contents, results, chunks, places, distances, starts],
                args: vec![blocks, max_chunks, slot, per_block, stride, turn, each],
            };
            self.push(write, windows * (threads / 32), threads / 32);
        }
    }

    /// Decodes the first chunk of every window, then the second, and so on.
    fn append_turns(&mut self) {
        let Self { max_chunks, contents, payload, results, chunks, tables, .. } = *self;
        let Self { stride, turns, per_block, order, .. } = *self;
        let Shape { slot, blocks } = self.plan.shape;
        let work = blocks * per_block;
        let teams = self.decoding_teams(work);
        // Where compute units have several teams each, an order of the chunks lets them share the work equally.
        let is_ordered = turns == 1 && !self.are_few(work);
        if is_ordered {
            let of_order = (ORDER_THREADS.min(1 << self.limits.max_workgroup.ilog2()) / 32).max(1);
            let round = (teams * self.limits.compute_units).max(1);
            let sort = UnsizedStep {
                stage: "layout",
                kernel: &LZ77_ORDER,
                entry: "lz77_order",
                defines: vec![],
                buffers: vec![chunks, order],
                args: vec![work, max_chunks, per_block, stride, round],
            };
            self.push(sort, of_order, of_order);
        }
        for turn in 0..turns {
            let is_ordered = u32::from(is_ordered);
            let decode = UnsizedStep {
                stage: "decode",
                kernel: &LZ77_DECODE,
                entry: "lz77_decode",
                defines: vec![self.fse(), self.registers()],
                buffers: vec![contents, payload, results, chunks, tables, order],
                args: vec![blocks, max_chunks, slot, per_block, stride, turn, is_ordered],
            };
            self.push(decode, work, teams);
        }
    }
}
