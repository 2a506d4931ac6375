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
use super::kernel::{Kernel, LZ77_DEEP, LZ77_FIND, LZ77_LATEST, LZ77_PARSE, LZ77_PARSE_TWO};
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

    /// Appends the steps from `contents` to what is found of each position, and to the sorted entries that it then names.
    fn append(&self, sort: &mut Sort<'_>, to: &Found) -> Result<(), PlanError> {
        if self.candidates == 1 && sort.can_take_windows() {
            self.append_latest(sort, to)
        } else {
            self.append_sorted(sort, to)
        }
    }

    /// By the upper digit of the hash; then teams find the latest position of each hash of their digit.
    fn append_latest(&self, sort: &mut Sort<'_>, to: &Found) -> Result<(), PlanError> {
        let (contents, first) = (sort.buffer("contents")?, sort.buffer("entries_first")?);
        let pass = Pass {
            is_first: true,
            from: contents,
            to: first,
            bits: FEW_BITS,
            shift: 32 - FEW_BITS,
        };
        let tile = sort.append_pass(self, &pass)?;
        let buffers = vec![
            sort.buffer("sort_histogram")?,
            sort.buffer("sort_digits")?,
            first,
            to.found(sort.plan)?,
        ];
        let Shape { slot, blocks } = sort.plan.shape;
        let threads = if sort.limits.teams == Teams::Local { 32 } else { 128 };
        let windows = ((slot - 1) >> sort.window_log) + 1;
        sort.plan.steps.push(Step::Run(Run {
            stage: "sort",
            kernel: &LZ77_LATEST,
            entry: "latest",
            defines: vec![("HASH_BITS", self.bits), ("DIGIT_BITS", FEW_BITS), ("TILE", tile)],
            buffers,
            args: vec![slot, slot.div_ceil(tile), blocks, sort.window_log],
            groups: ((blocks * windows) << FEW_BITS).div_ceil(threads / 32),
            threads,
        }));
        Ok(())
    }

    /// By the lower digit of the hash, and then by the upper one.
    fn append_sorted(&self, sort: &mut Sort<'_>, to: &Found) -> Result<(), PlanError> {
        let (contents, first) = (sort.buffer("contents")?, sort.buffer("entries_first")?);
        let (entries, found) = (to.entries(sort.plan)?, to.found(sort.plan)?);
        let low_bits = self.bits - DIGIT_BITS;
        sort.append_pass(
            self,
            &Pass {
                is_first: true,
                from: contents,
                to: first,
                bits: low_bits,
                shift: 32 - self.bits,
            },
        )?;
        let last = Pass { is_first: false, from: first, to: entries, bits: DIGIT_BITS, shift: 24 };
        sort.append_pass(self, &last)?;
        let (threads, tile) = sort.group(DIGIT_BITS);
        let groups = sort.plan.shape.blocks * sort.plan.shape.slot.div_ceil(threads);
        let buffers = vec![sort.buffer("jobs")?, entries, found];
        let run = sort.run(self, &last, "link", (threads, tile), buffers, groups);
        sort.plan.steps.push(run);
        Ok(())
    }

    /// The bits of an entry that are the same in candidates.
    fn same(&self) -> u32 {
        u32::MAX << (32 - self.bits) | self.tag
    }
}

/// Where what is found goes: buffers of a kernel.
struct Found {
    kernel: &'static Kernel,
    /// Names of the sorted entries, and of what is found.
    names: [&'static str; 2],
}

impl Found {
    fn entries(&self, plan: &mut Plan) -> Result<Buffer, PlanError> {
        Ok(plan.buffer(self.kernel, self.names[0])?)
    }

    fn found(&self, plan: &mut Plan) -> Result<Buffer, PlanError> {
        Ok(plan.buffer(self.kernel, self.names[1])?)
    }
}

/// A pass of the sort, by one digit.
struct Pass {
    /// Whether it is from the contents.
    is_first: bool,
    from: Buffer,
    to: Buffer,
    bits: u32,
    /// Of the digit in the upper half of the hash's product.
    shift: u32,
}

/// A plan that positions are sorted in.
struct Sort<'p> {
    plan: &'p mut Plan,
    limits: &'p Limits,
    window_log: u32,
}

impl Sort<'_> {
    fn buffer(&mut self, name: &'static str) -> Result<Buffer, PlanError> {
        Ok(self.plan.buffer(&LZ77_FIND, name)?)
    }

    /// Whether a team can go through all entries of a digit and a window. Some drivers end an invocation after 65,535
    /// iterations, and a digit may have all positions of a window.
    fn can_take_windows(&self) -> bool {
        let positions = self.plan.shape.slot.min(1 << self.window_log);
        self.limits.teams != Teams::Local || positions <= 1 << 20
    }

    /// Work items of a workgroup, and entries of its tile: workgroup memory holds a tile, and counts of all digits for each
    /// team.
    fn group(&self, bits: u32) -> (u32, u32) {
        match (self.limits.teams, bits) {
            (Teams::Local, ..=8) => (32, 1024),
            (Teams::Local, _) => (32, 2048),
            (Teams::Subgroup, ..=FEW_BITS) => (256, 1024),
            (_, ..=8) => (256, 2048),
            (_, _) => (128, 2048),
        }
    }

    fn run(
        &self,
        hash: &Hash,
        pass: &Pass,
        entry: &'static str,
        (threads, tile): (u32, u32),
        buffers: Vec<Buffer>,
        groups: u32,
    ) -> Step {
        let Shape { slot, blocks } = self.plan.shape;
        let defines = vec![
            ("FIRST", u32::from(pass.is_first)),
            ("DIGIT_BITS", pass.bits),
            ("DIGIT_SHIFT", pass.shift),
            ("TILE", tile),
            ("HASH_BYTES", hash.bytes),
            ("CANDIDATES", hash.candidates),
            ("SAME", hash.same()),
        ];
        let args = vec![slot, slot.div_ceil(tile), blocks, self.window_log];
        let (stage, kernel) = ("sort", &LZ77_FIND);
        Step::Run(Run { stage, kernel, entry, defines, buffers, args, groups, threads })
    }

    /// Appends the steps of a pass, and returns how many entries a tile has.
    fn append_pass(&mut self, hash: &Hash, pass: &Pass) -> Result<u32, PlanError> {
        let jobs = self.buffer("jobs")?;
        let histogram = self.buffer("sort_histogram")?;
        let digits = self.buffer("sort_digits")?;
        let Shape { slot, blocks } = self.plan.shape;
        let group @ (threads, tile) = self.group(pass.bits);
        let tiles = blocks * slot.div_ceil(tile);
        let rows = (blocks << pass.bits).div_ceil(threads / 32);
        let placed = vec![jobs, pass.from, histogram, digits, pass.to];
        for (entry, buffers, groups) in [
            ("count", vec![jobs, pass.from, histogram], tiles),
            ("scan", vec![histogram, digits], rows),
            ("place", placed, tiles),
        ] {
            let run = self.run(hash, pass, entry, group, buffers, groups);
            self.plan.steps.push(run);
        }
        Ok(tile)
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

/// Bits of the digit of a sort of one pass.
const FEW_BITS: u32 = 6;

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
    let mut of_hashes = vec![(hash, Found { kernel, names: ["entries", "found"] })];
    of_hashes.extend(
        second.map(|hash| (hash, Found { kernel, names: ["entries_second", "found_second"] })),
    );
    for (hash, to) in of_hashes {
        // The costs of the kernels state both, whether they are used or not.
        to.entries(plan)?;
        hash.append(&mut Sort { plan, limits, window_log: params.window_log.into() }, &to)?;
        if entry != "greedy" {
            buffers.push(to.entries(plan)?);
        }
        buffers.push(to.found(plan)?);
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
