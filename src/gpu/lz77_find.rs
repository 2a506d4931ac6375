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
use super::kernel::{LZ77_FIND, LZ77_PARSE};
use super::plan::{Plan, PlanError, Run, Step};
use crate::codec::lz77::{Params, Search};

/// Lengths of segments, as base-2 logarithms of bytes.
const SEGMENT_LOGS: core::ops::RangeInclusive<u8> = 8..=15;

/// How a search uses the kernels.
struct Method {
    hash_bytes: u32,
    hash_bits: u32,
    /// Candidates of a position.
    candidates: u32,
    /// Further positions that are looked at for a better match; none where the first match is taken.
    lazy: u32,
}

impl Method {
    fn of(search: Search) -> Result<Self, PlanError> {
        let (hash_bytes, hash_bits, candidates, lazy) = match search {
            Search::Greedy => (6, 15, 1, 0),
            Search::GreedyLarge => (6, 16, 1, 0),
            Search::Double => (6, 16, 2, 1),
            _ => return Err(PlanError::Declined(format!("no kernels search as {search:?} does"))),
        };
        Ok(Self { hash_bytes, hash_bits, candidates, lazy })
    }
}

/// Bits of a digit of the sort.
const DIGIT_BITS: u32 = 8;

/// Appends to `plan` the steps from `jobs` and `contents` to `matches` and `match_counts`.
///
/// # Errors
/// [`PlanError::Declined`] if there are no kernels for these parameters on such a device.
pub fn append(plan: &mut Plan, limits: &Limits, params: &Params) -> Result<(), PlanError> {
    let method = Method::of(params.search)?;
    if !SEGMENT_LOGS.contains(&params.segment_log) {
        return Err(PlanError::Declined("segments of 2^8 to 2^15 bytes only".into()));
    }
    let shape = plan.shape;
    if u64::from(shape.slot) > crate::codec::lz77::MAX_BLOCK as u64 {
        return Err(PlanError::Declined("blocks of up to 16 MiB only".into()));
    }
    let [jobs, contents, histogram, digits, first, entries, found] =
        ["jobs", "contents", "sort_histogram", "sort_digits", "entries_first", "entries", "found"]
            .map(|name| plan.buffer(&LZ77_FIND, name));
    let (jobs, contents, histogram) = (jobs?, contents?, histogram?);
    let (digits, first, entries, found) = (digits?, first?, entries?, found?);
    let [matches, counts] = ["matches", "match_counts"].map(|name| plan.buffer(&LZ77_PARSE, name));
    let (matches, counts) = (matches?, counts?);

    let whole_teams = |threads| if limits.teams == Teams::Local { 32 } else { threads };
    let (slot, blocks) = (shape.slot, shape.blocks);

    // The sort, by the lower digit of the hash and then by the upper one.
    let threads = whole_teams(256);
    let tile = if limits.teams == Teams::Local { 1024 } else { 2048 };
    let tiles = slot.div_ceil(tile);
    let low_bits = method.hash_bits - DIGIT_BITS;
    let passes =
        [(contents, first, low_bits, 32 - method.hash_bits), (first, entries, DIGIT_BITS, 24)];
    for (pass, (from, to, bits, shift)) in passes.into_iter().enumerate() {
        let defines = vec![
            ("FIRST", u32::from(pass == 0)),
            ("DIGIT_BITS", bits),
            ("DIGIT_SHIFT", shift),
            ("TILE", tile),
            ("HASH_BYTES", method.hash_bytes),
            ("HASH_BITS", method.hash_bits),
            ("CANDIDATES", method.candidates),
        ];
        let args = vec![slot, tiles, blocks, params.window_log.into()];
        let run = |entry, buffers, groups| {
            let (defines, args, kernel) = (defines.clone(), args.clone(), &LZ77_FIND);
            Step::Run(Run { stage: "sort", kernel, entry, defines, buffers, args, groups, threads })
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

    let threads = whole_teams(128);
    let segments = slot.div_ceil(1 << params.segment_log);
    let mut defines =
        vec![("SEGMENT_LOG", params.segment_log.into()), ("CANDIDATES", method.candidates)];
    let (entry, buffers) = if method.lazy == 0 {
        ("greedy", vec![jobs, contents, found, matches, counts])
    } else {
        defines.push(("LAZY", method.lazy));
        ("lazy", vec![jobs, contents, entries, found, matches, counts])
    };
    plan.steps.push(Step::Run(Run {
        stage: "parse",
        kernel: &LZ77_PARSE,
        entry,
        defines,
        buffers,
        args: vec![slot, segments, blocks, params.window_log.into()],
        groups: (blocks * segments).div_ceil(threads / 32),
        threads,
    }));
    Ok(())
}
