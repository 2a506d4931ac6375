//! Finding the matches of LZ77: the same ones as on the CPU.
//!
//! The positions of each block are sorted by hash, which gives each its candidates; then a team for each segment parses
//! it. Results are in these buffers, block by block:
//!
//! | name | formula | |
//! |---|---|---|
//! | `matches` | `N*2` | the list of segment s from entry s · segment length / 4 on; an entry is two words: start in the segment and length · 2^16; offset |
//! | `match_counts` | `N/64` | a word for each segment: entries of its list |

use super::device::{Limits, Teams};
use super::kernel::{Kernel, LZ77_DEEP, LZ77_FIND, LZ77_PARSE, LZ77_PARSE_TWO};
use super::plan::{Buffer, Plan, PlanError, Run, Shape, Step};
use crate::codec::lz77::{Params, Search};

/// Lengths of segments, as base-2 logarithms of bytes.
const SEGMENT_LOGS: core::ops::RangeInclusive<u8> = 8..=15;

/// A hash of the sort.
#[derive(Clone, Copy)]
struct Hash {
    bytes: u32,
    bits: u32,
    /// Candidates of a position by it.
    candidates: u32,
    /// The bits of the hash's product that tell candidates from others, besides the hash itself.
    tag: u32,
}

impl Hash {
    /// As in the CPU's `Tagged`.
    const fn tagged(bytes: u32, bits: u32, candidates: u32) -> Self {
        Self { bytes, bits, candidates, tag: 0xff }
    }

    /// As in the CPU's `Buckets`.
    const fn bucket(bytes: u32, bits: u32, candidates: u32) -> Self {
        Self { bytes, bits, candidates, tag: 0xff << (24 - bits) }
    }

    /// Appends the steps from `contents` to the sorted entries, and to what is found of each position.
    fn append(
        &self,
        plan: &mut Plan,
        limits: &Limits,
        window_log: u8,
        entries: Buffer,
        found: Buffer,
    ) -> Result<(), PlanError> {
        let jobs = plan.buffer(&LZ77_FIND, "jobs")?;
        let contents = plan.buffer(&LZ77_FIND, "contents")?;
        let histogram = plan.buffer(&LZ77_FIND, "sort_histogram")?;
        let digits = plan.buffer(&LZ77_FIND, "sort_digits")?;
        let first = plan.buffer(&LZ77_FIND, "entries_first")?;
        let Shape { slot, blocks } = plan.shape;
        // By the lower digit of the hash, and then by the upper one.
        let low_bits = self.bits - DIGIT_BITS;
        let passes =
            [(contents, first, low_bits, 32 - self.bits), (first, entries, DIGIT_BITS, 24)];
        for (pass, (from, to, bits, shift)) in passes.into_iter().enumerate() {
            // Workgroup memory holds a tile, and counts of all digits for each team.
            let (threads, tile) = match (limits.teams, bits) {
                (Teams::Local, ..=8) => (32, 1024),
                (Teams::Local, _) => (32, 2048),
                (_, ..=8) => (256, 2048),
                (_, _) => (128, 2048),
            };
            let tiles = slot.div_ceil(tile);
            let args = vec![slot, tiles, blocks, window_log.into()];
            let run = |entry, buffers, groups| {
                let defines = vec![
                    ("FIRST", u32::from(pass == 0)),
                    ("DIGIT_BITS", bits),
                    ("DIGIT_SHIFT", shift),
                    ("TILE", tile),
                    ("HASH_BYTES", self.bytes),
                    ("CANDIDATES", self.candidates),
                    ("SAME", self.same()),
                ];
                let (stage, kernel, args) = ("sort", &LZ77_FIND, args.clone());
                Step::Run(Run { stage, kernel, entry, defines, buffers, args, groups, threads })
            };
            let rows = (blocks << bits).div_ceil(threads / 32);
            plan.steps.extend([
                run("count", vec![jobs, from, histogram], blocks * tiles),
                run("scan", vec![histogram, digits], rows),
                run("place", vec![jobs, from, histogram, digits, to], blocks * tiles),
            ]);
            if pass == 1 {
                let groups = blocks * slot.div_ceil(threads);
                plan.steps.push(run("link", vec![jobs, entries, found], groups));
            }
        }
        Ok(())
    }

    /// The bits of an entry that are the same in candidates.
    fn same(&self) -> u32 {
        u32::MAX << (32 - self.bits) | self.tag
    }
}

/// How a search uses the kernels.
struct Method {
    kernel: &'static Kernel,
    entry: &'static str,
    hash: Hash,
    /// Another hash, whose candidates come after those of the first.
    second: Option<Hash>,
    /// Further positions that are looked at for a better match; 0 if the kernel knows.
    lazy: u32,
}

impl Method {
    fn of(search: Search) -> Result<Self, PlanError> {
        let greedy = |hash| {
            let kernel = &LZ77_PARSE;
            Self { kernel, entry: "greedy", hash, second: None, lazy: 0 }
        };
        let lazy = |hash, second: Option<Hash>, lazy| {
            let kernel = if second.is_some() { &LZ77_PARSE_TWO } else { &LZ77_PARSE };
            Self { kernel, entry: "lazy", hash, second, lazy }
        };
        let deep = |candidates| {
            let hash = Hash::bucket(5, 16, candidates);
            Self { kernel: &LZ77_DEEP, entry: "deep", hash, second: None, lazy: 0 }
        };
        Ok(match search {
            Search::Greedy => greedy(Hash::tagged(6, 15, 1)),
            Search::GreedyLarge => greedy(Hash::tagged(6, 16, 1)),
            Search::Double => lazy(Hash::tagged(6, 16, 2), None, 1),
            Search::Lazy4 => lazy(Hash::tagged(5, 17, 4), None, 2),
            Search::Lazy8 => lazy(Hash::tagged(8, 16, 4), Some(Hash::tagged(5, 16, 4)), 3),
            Search::Lazy16 => deep(16),
            Search::Lazy64 => deep(64),
            Search::None | Search::Optimal(_) => {
                return Err(PlanError::Declined(format!("no kernels search as {search:?} does")));
            }
        })
    }
}

/// Bits of a digit of the sort; those of the lower one may be one more.
const DIGIT_BITS: u32 = 8;

/// Appends to `plan` the steps from `jobs` and `contents` to `matches` and `match_counts`.
///
/// # Errors
/// [`PlanError::Declined`] if there are no kernels for these parameters.
pub fn append(plan: &mut Plan, limits: &Limits, params: &Params) -> Result<(), PlanError> {
    let Method { kernel, entry, hash, second, lazy } = Method::of(params.search)?;
    if !SEGMENT_LOGS.contains(&params.segment_log) {
        return Err(PlanError::Declined("segments of 2^8 to 2^15 bytes only".into()));
    }
    let Shape { slot, blocks } = plan.shape;
    if u64::from(slot) > crate::codec::lz77::MAX_BLOCK as u64 {
        return Err(PlanError::Declined("blocks of up to 16 MiB only".into()));
    }
    let mut buffers = vec![plan.buffer(kernel, "jobs")?, plan.buffer(kernel, "contents")?];
    let entries = plan.buffer(kernel, "entries")?;
    let found = plan.buffer(kernel, "found")?;
    hash.append(plan, limits, params.window_log, entries, found)?;
    if entry != "greedy" {
        buffers.push(entries);
    }
    buffers.push(found);
    if let Some(second) = second {
        let entries = plan.buffer(kernel, "entries_second")?;
        let found = plan.buffer(kernel, "found_second")?;
        second.append(plan, limits, params.window_log, entries, found)?;
        buffers.extend([entries, found]);
    }
    buffers.extend([plan.buffer(kernel, "matches")?, plan.buffer(kernel, "match_counts")?]);

    let mut defines = vec![("SEGMENT_LOG", params.segment_log.into())];
    match entry {
        "lazy" => defines.extend([("CANDIDATES", hash.candidates), ("LAZY", lazy)]),
        "deep" => defines.extend([("CANDIDATES", hash.candidates), ("SAME", hash.same())]),
        _ => {}
    }
    if second.is_some() {
        defines.push(("TWO", 1));
    }
    let threads = if limits.teams == Teams::Local { 32 } else { 128 };
    let segments = slot.div_ceil(1 << params.segment_log);
    plan.steps.push(Step::Run(Run {
        stage: "parse",
        kernel,
        entry,
        defines,
        buffers,
        args: vec![slot, segments, blocks, params.window_log.into()],
        groups: (blocks * segments).div_ceil(threads / 32),
        threads,
    }));
    Ok(())
}
