//! Plans that find the matches of LZ77: the same ones that the CPU finds.
//!
//! The steps sort the positions of each block by hash, which gives each position its candidates. Then a team parses
//! each segment. For up to four candidates per position, the sort uses only the upper bits of the hash; a team for each
//! value of these bits then finds the candidates in order. The results are in these buffers, block by block:
//!
//! | name | formula | |
//! |---|---|---|
//! | `matches` | `N*3` | the list of segment s, from entry s · segment length · 3 / 8 on |
//! | `match_counts` | `N/64` | a word for each segment: the number of entries in its list |
//!
//! An entry has two words: the start in the segment plus length · 2^16, and the offset.

use super::lz77_optimal;
use crate::codec::lz77::{Params, Search};
use crate::gpu::device::{Limits, Teams};
use crate::gpu::model::kernel::{
    Kernel, LZ77_DEEP_QUICK, LZ77_DEEP_THOROUGH, LZ77_GREEDY, LZ77_LATEST_FOUR, LZ77_LATEST_ONE,
    LZ77_LATEST_TWO, LZ77_LAZY_EIGHT, LZ77_LAZY_FOUR, LZ77_LAZY_TWO, LZ77_LINK, LZ77_SORT,
    LZ77_SORT_PLACES,
};
use crate::gpu::model::plan::{Buffer, Plan, PlanError, Run, Shape, Step};

/// Supported segment lengths, as base-2 logarithms of bytes.
const SEGMENT_LOGS: core::ops::RangeInclusive<u8> = 8..=15;

/// The longest segment of the thorough deep parse on a device that [ends long loops](Limits::ends_long_loops),
/// likewise.
const MAX_LIMITED_LOG: u8 = 13;

/// Bits in a digit of the sort.
const DIGIT_BITS: u32 = 8;

/// Positions per work item in the last step of [`Sort::append_latest`].
const GATHERED: u32 = 8;

/// A hash to sort by.
#[derive(Clone, Copy)]
pub(in crate::gpu) struct Hash {
    pub(in crate::gpu) bytes: u32,
    pub(in crate::gpu) bits: u32,
    /// Candidates per position.
    pub(in crate::gpu) candidates: u32,
}

/// The hash of the thorough deep parse that finds near matches.
const NEAR: Hash = Hash { bytes: 3, bits: 14, candidates: 1 };

/// A pass of the sort, by one digit.
struct Pass {
    /// Whether the pass reads the contents.
    is_first: bool,
    from: Buffer,
    to: Buffer,
    /// Optional output: the sorted index of each position.
    places: Option<Buffer>,
    bits: u32,
    /// Shift of the digit in the upper half of the hash's product.
    shift: u32,
}

/// Builds the part of a plan that sorts positions.
pub(in crate::gpu) struct Sort<'p> {
    pub(in crate::gpu) plan: &'p mut Plan,
    pub(in crate::gpu) limits: &'p Limits,
    pub(in crate::gpu) window_log: u32,
}

impl Sort<'_> {
    fn buffer(&mut self, name: &'static str) -> Result<Buffer, PlanError> {
        Ok(self.plan.buffer(&LZ77_SORT, name)?)
    }

    /// Work items per workgroup, and entries in its tile. Workgroup memory holds a tile, and a count of each digit
    /// for every team. Kernels in WGSL have four entries per work item of a subgroup.
    fn group(&self, bits: u32) -> (u32, u32) {
        #[cfg(test)]
        if let Some(group) = crate::gpu::tests::lz77_find::measured_group(self.limits.teams) {
            return group;
        }
        match (self.limits.teams, bits) {
            (Teams::Local, ..=8) => (32, 1024),
            (Teams::Local, _) => (32, 2048),
            (Teams::Subgroup, _) if self.limits.max_workgroup < 512 => (256, 1024),
            (Teams::Subgroup, _) => (512, 2048),
            (Teams::Ptx, ..=8) => (256, 2048),
            (Teams::Ptx, _) => (128, 2048),
        }
    }

    /// Appends the steps of a pass, and returns the number of entries in a tile.
    fn append_pass(&mut self, hash: Hash, pass: &Pass) -> Result<u32, PlanError> {
        let jobs = self.buffer("jobs")?;
        let histogram = self.buffer("sort_histogram")?;
        let digits = self.buffer("sort_digits")?;
        let Shape { slot, blocks } = self.plan.shape;
        let (threads, tile) = self.group(pass.bits);
        let tiles = slot.div_ceil(tile);
        let kernel = if pass.places.is_some() { &LZ77_SORT_PLACES } else { &LZ77_SORT };
        let mut place = vec![jobs, pass.from, histogram, digits, pass.to];
        place.extend(pass.places);
        let rows = (blocks << pass.bits).div_ceil(threads / 32);
        for (entry, buffers, groups) in [
            ("count", vec![jobs, pass.from, histogram], blocks * tiles),
            ("scan", vec![histogram, digits], rows),
            ("place", place, blocks * tiles),
        ] {
            self.plan.steps.push(Step::Run(Run {
                stage: "sort",
                kernel,
                entry,
                defines: vec![
                    ("FIRST", u32::from(pass.is_first)),
                    ("PLACES", u32::from(pass.places.is_some())),
                    ("DIGIT_BITS", pass.bits),
                    ("DIGIT_SHIFT", pass.shift),
                    ("TILE", tile),
                    ("HASH_BYTES", hash.bytes),
                ],
                buffers,
                args: vec![slot, tiles, blocks, self.window_log],
                groups,
                threads,
            }));
        }
        Ok(tile)
    }

    /// Appends the steps that find the candidates of each position: one, two or four.
    ///
    /// With one candidate, `places` holds its distance. With two, `rows` holds the distances. With four, `rows` holds
    /// them, and `places` holds the index of the position's row, with bit 24 set if the position has candidates.
    pub(in crate::gpu) fn append_latest(
        &mut self,
        hash: Hash,
        places: Buffer,
        rows: Buffer,
    ) -> Result<(), PlanError> {
        let Shape { slot, blocks } = self.plan.shape;
        // All positions of a window may have the same hash.
        if self.limits.ends_long_loops() && slot.min(1 << self.window_log) > 1 << 20 {
            return Err(PlanError::Declined("windows of up to 1 MiB only".into()));
        }
        let (from, to) = (self.buffer("contents")?, self.buffer("entries_first")?);
        let bits = DIGIT_BITS;
        let pass = Pass { is_first: true, from, to, places: Some(places), bits, shift: 32 - bits };
        let tile = self.append_pass(hash, &pass)?;
        let is_in_place = hash.candidates == 2;
        let mut tables = vec![self.buffer("sort_histogram")?, self.buffer("sort_digits")?, to];
        let jobs = self.buffer("jobs")?;
        let gathered = if is_in_place {
            vec![jobs, to, places, rows]
        } else {
            tables.push(rows);
            vec![jobs, rows, places]
        };
        // On processors that give a workgroup little memory, small workgroups fill it better.
        let threads = match self.limits.teams {
            Teams::Local => 32,
            Teams::Subgroup => 64,
            Teams::Ptx => 128,
        };
        let windows = ((slot - 1) >> self.window_log) + 1;
        let teams = (blocks * windows) << bits;
        let wide = if self.limits.teams == Teams::Local { 32 } else { 256 };
        for (entry, buffers, groups, threads) in [
            ("latest", tables, teams.div_ceil(threads / 32), threads),
            ("gather", gathered, blocks * slot.div_ceil(wide * GATHERED), wide),
        ] {
            self.plan.steps.push(Step::Run(Run {
                stage: "sort",
                kernel: kernel_of_latest(hash),
                entry,
                defines: vec![
                    ("CANDIDATES", hash.candidates),
                    ("TWO", u32::from(hash.candidates >= 2)),
                    ("FOUR", u32::from(hash.candidates == 4)),
                    ("IN_PLACE", u32::from(is_in_place)),
                    ("HASH_BITS", hash.bits),
                    ("DIGIT_BITS", bits),
                    ("TILE", tile),
                ],
                buffers,
                args: vec![slot, slot.div_ceil(tile), blocks, self.window_log],
                groups,
                threads,
            }));
        }
        Ok(())
    }

    /// Appends the steps that sort all entries.
    pub(in crate::gpu) fn append_entries(
        &mut self,
        hash: Hash,
        entries: Buffer,
    ) -> Result<(), PlanError> {
        let (contents, first) = (self.buffer("contents")?, self.buffer("entries_first")?);
        // Sort by the lower digit of the hash, then by the upper one.
        let (bits, shift) = (hash.bits - DIGIT_BITS, 32 - hash.bits);
        let pass = Pass { is_first: true, from: contents, to: first, places: None, bits, shift };
        self.append_pass(hash, &pass)?;
        let (bits, shift) = (DIGIT_BITS, 32 - DIGIT_BITS);
        let pass = Pass { is_first: false, from: first, to: entries, places: None, bits, shift };
        self.append_pass(hash, &pass)?;
        Ok(())
    }

    /// Appends the steps that sort all entries, and note the sorted index of each position.
    fn append_sorted(
        &mut self,
        hash: Hash,
        entries: Buffer,
        found: Buffer,
    ) -> Result<(), PlanError> {
        self.append_entries(hash, entries)?;
        let Shape { slot, blocks } = self.plan.shape;
        let threads = if self.limits.teams == Teams::Local { 32 } else { 256 };
        let buffers = vec![self.buffer("jobs")?, entries, found];
        self.plan.steps.push(Step::Run(Run {
            stage: "sort",
            kernel: &LZ77_LINK,
            entry: "link",
            defines: vec![
                ("CANDIDATES", hash.candidates),
                ("HASH_BITS", hash.bits),
                ("SAME", same_of_bucket(hash)),
            ],
            buffers,
            args: vec![slot, blocks, self.window_log],
            groups: blocks * slot.div_ceil(threads),
            threads,
        }));
        Ok(())
    }
}

fn kernel_of_latest(hash: Hash) -> &'static Kernel {
    match hash.candidates {
        1 => &LZ77_LATEST_ONE,
        2 => &LZ77_LATEST_TWO,
        _ => &LZ77_LATEST_FOUR,
    }
}

/// The bits of an entry's first word that candidates have in common: the hash, and the tag as in the CPU's `Buckets`.
fn same_of_bucket(hash: Hash) -> u32 {
    u32::MAX << (32 - hash.bits) | 0xff << (24 - hash.bits)
}

/// The result of searching by one hash, in two named buffers. A parse with one candidate per position reads the first,
/// a parse with two reads the second, and every other parse reads both.
struct HashMatches {
    hash: Hash,
    places: &'static str,
    rows: &'static str,
}

/// The kernel and hashes of a search.
struct Method {
    kernel: &'static Kernel,
    entry: &'static str,
    /// One for each hash. The candidates of the first hash come first.
    found: Vec<HashMatches>,
    /// How many further positions the parse tries for a better match; 0 if the kernel fixes it.
    lazy: u32,
}

impl Method {
    fn of(search: Search) -> Result<Self, PlanError> {
        let found = |rows, (bytes, bits, candidates)| HashMatches {
            hash: Hash { bytes, bits, candidates },
            places: "found",
            rows,
        };
        let greedy = |hash| {
            let found = vec![found("rows_one", hash)];
            Self { kernel: &LZ77_GREEDY, entry: "greedy", found, lazy: 0 }
        };
        let lazy = |kernel, found, lazy| Self { kernel, entry: "lazy", found, lazy };
        let deep = |kernel, hash| {
            let found = vec![found("entries", hash)];
            Self { kernel, entry: "deep", found, lazy: 0 }
        };
        Ok(match search {
            Search::Greedy => greedy((6, 15, 1)),
            Search::GreedyLarge => greedy((6, 16, 1)),
            Search::Double => lazy(&LZ77_LAZY_TWO, vec![found("found_two", (6, 17, 2))], 1),
            Search::Lazy4 => lazy(&LZ77_LAZY_FOUR, vec![found("rows_four", (5, 17, 4))], 2),
            Search::Lazy8 => {
                let second =
                    HashMatches { places: "found_second", ..found("rows_four_second", (5, 17, 4)) };
                lazy(&LZ77_LAZY_EIGHT, vec![found("rows_four", (8, 17, 4)), second], 3)
            }
            Search::Lazy32 => deep(&LZ77_DEEP_QUICK, (5, 16, 32)),
            Search::Lazy64 => deep(&LZ77_DEEP_THOROUGH, (6, 16, 64)),
            Search::None | Search::Optimal(_) => {
                return Err(PlanError::Declined(format!("no kernels search as {search:?} does")));
            }
        })
    }

    /// Work items that parse a segment together: the fastest number on an NVIDIA H200, but at least one for each
    /// candidate offset of a position.
    fn lanes(&self) -> u32 {
        let candidates: u32 = self.found.iter().map(|found| found.hash.candidates).sum();
        let (least, best) = match candidates {
            0..=2 => (4, 8),
            3..=7 => (8, 16),
            8.. => (16, 16),
        };
        #[cfg(test)]
        if let Some(measured) = crate::gpu::tests::lz77_find::measured_lanes() {
            return measured.max(least);
        }
        best.max(least)
    }
}

/// Appends to `plan` the steps from `jobs` and `contents` to `matches` and `match_counts`.
///
/// # Errors
/// [`PlanError::Declined`] if no kernels support these parameters on this device.
pub fn append(plan: &mut Plan, limits: &Limits, params: &Params) -> Result<(), PlanError> {
    if !SEGMENT_LOGS.contains(&params.segment_log) {
        return Err(PlanError::Declined("segments of 2^8 to 2^15 bytes only".into()));
    }
    let Shape { slot, blocks } = plan.shape;
    if u64::from(slot) > crate::codec::lz77::MAX_BLOCK as u64 {
        return Err(PlanError::Declined("blocks of up to 16 MiB only".into()));
    }
    if let Search::Optimal(effort) = params.search {
        return lz77_optimal::append(plan, limits, params, effort);
    }
    let is_thorough = params.search == Search::Lazy64;
    if limits.ends_long_loops() && is_thorough && params.segment_log > MAX_LIMITED_LOG {
        return Err(PlanError::Declined("segments of up to 2^13 bytes in this search only".into()));
    }
    let method = Method::of(params.search)?;
    let Method { kernel, entry, ref found, lazy } = method;
    let mut buffers = vec![plan.buffer(kernel, "jobs")?, plan.buffer(kernel, "contents")?];
    let mut defines = Vec::new();
    let is_deep = entry == "deep";
    for (number, &HashMatches { hash, places, rows }) in found.iter().enumerate() {
        let of = if is_deep || number > 0 { kernel } else { kernel_of_latest(hash) };
        let (places, rows) = (plan.buffer(of, places)?, plan.buffer(of, rows)?);
        let mut sort = Sort { plan, limits, window_log: params.window_log.into() };
        if is_deep {
            buffers.extend([rows, places]);
            if is_thorough {
                // The distances go to the buffer `rows_one`. Their rows go to `places`, which is free until later.
                let near = sort.plan.buffer(kernel, "rows_one")?;
                sort.append_latest(NEAR, near, places)?;
                buffers.push(near);
            }
            sort.append_sorted(hash, rows, places)?;
            defines.push(("SAME", same_of_bucket(hash)));
            defines.push(("THOROUGH", u32::from(is_thorough)));
            continue;
        }
        sort.append_latest(hash, places, rows)?;
        match hash.candidates {
            1 => buffers.push(places),
            2 => buffers.push(rows),
            _ => buffers.extend([places, rows]),
        }
    }
    defines.push(("CANDIDATES", found[0].hash.candidates));
    if lazy > 0 {
        let is_four = u32::from(found[0].hash.candidates == 4);
        let is_double = u32::from(found.len() == 2);
        defines.extend([("LAZY", lazy), ("FOUR", is_four), ("TWO_HASHES", is_double)]);
    }
    buffers.extend([plan.buffer(kernel, "matches")?, plan.buffer(kernel, "match_counts")?]);

    let threads = if limits.teams == Teams::Local { 32 } else { 128 };
    let segments = slot.div_ceil(1 << params.segment_log);
    let lanes = if is_deep { 32 } else { method.lanes() };
    defines.extend([("LANES", lanes), ("WIDE", u32::from(lanes == 32))]);
    plan.steps.push(Step::Run(Run {
        stage: "parse",
        kernel,
        entry,
        defines,
        buffers,
        args: vec![slot, segments, blocks, params.window_log.into(), params.segment_log.into()],
        groups: (blocks * segments).div_ceil(threads / lanes),
        threads,
    }));
    Ok(())
}
