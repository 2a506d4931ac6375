//! The optimal parse: the cheapest path through a segment, by the prices of its symbols.
//!
//! A forward dynamic program. Each position knows the cheapest path found so far to reach it, with the recent offsets
//! of that path and the literals since its last match. In order, each position tries a literal, the recent offsets and
//! its candidates, and thereby reaches later positions. In the last pass, the path to the end of the segment is the
//! parse. The first pass uses expected prices, each later pass the prices that follow from the pass before. All passes
//! but the last only parse a sample of the chunk's segments: the first one, and others at equal distances. If they
//! parsed all, files would be 0.2% smaller, but take 1.3 times as long.
//!
//! A GPU follows the same rule: all prices are integers, each pass parses each segment by itself, and passes only hand
//! on sums over the segments of a chunk.

use super::candidate_lists::{CandidateLists, Finders, LONGEST};
use super::candidates::{LOOKAHEAD, common_length, read32};
use super::lazy::Match;
use super::prices::{Counts, Prices};
use super::probe::{Probe, Task};
use super::segments::Chunk;
use crate::codec::lz77::Params;
use crate::codec::lz77::stream::spec::{self, MAX_LITERALS, MIN_MATCH, RECENT, Recent};
use crate::codec::{OutOfMemory, reserve};

/// How thoroughly to search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Effort {
    /// How often a chunk is parsed, samples included; at least 1.
    pub passes: u32,
    /// Matches of this length are taken without a search for a cheaper path.
    pub nice_length: u32,
    /// Within a match with at least this many bytes left, no other candidates are searched for.
    pub inherited_length: u32,
    /// All lengths up to this one are tried; above it, only those of the candidates.
    pub every_length: u32,
}

impl Effort {
    /// The effort of level 8.
    pub const LEVEL_8: Self =
        Self { passes: 2, nice_length: 128, inherited_length: 16, every_length: 64 };
}

/// The optimal parse of a chunk.
pub(crate) struct OptimalParse<'a> {
    pub(crate) optimal: &'a mut Optimal,
    pub(crate) effort: Effort,
    /// The distance between sampled segments, in segments.
    pub(crate) spacing: usize,
    pub(crate) chunk: Chunk<'a>,
}

impl Task for OptimalParse<'_> {
    #[inline(always)]
    fn run<P: Probe>(self) {
        self.optimal.parse::<P>(self.effort, self.spacing, self.chunk);
    }
}

/// The last step of the cheapest path found to a position.
#[derive(Clone, Copy)]
struct Arrival {
    price: u32,
    /// Length of the match that ends here; 0 for a literal.
    length: u32,
    offset: u32,
}

const UNREACHED: Arrival = Arrival { price: u32::MAX, length: 0, offset: 0 };

/// The rest of a position's state, known once its path is final.
#[derive(Clone, Copy)]
struct PathState {
    recent: Recent,
    /// Literals since the last match.
    run: u32,
}

/// Working memory of the parse.
#[derive(Default)]
pub(crate) struct Optimal {
    finders: Finders,
    lists: CandidateLists,
    arrivals: Vec<Arrival>,
    states: Vec<PathState>,
}

impl Optimal {
    /// Bytes of memory that a search keeps for blocks of `len` bytes.
    pub(crate) fn memory(params: &Params, len: usize) -> u64 {
        let (chunk, segment) = (1 << params.chunk_log, 1 << params.segment_log);
        let ways = (segment + 1) * (size_of::<Arrival>() + size_of::<PathState>());
        Finders::memory(len) + CandidateLists::memory(chunk) + ways as u64
    }

    /// Makes room for blocks, chunks and segments of these lengths.
    pub(crate) fn reserve(
        &mut self,
        block: usize,
        chunk: usize,
        segment: usize,
    ) -> Result<(), OutOfMemory> {
        self.finders.reserve(block)?;
        self.lists.reserve(chunk)?;
        reserve(&mut self.arrivals, segment + 1)?;
        reserve(&mut self.states, segment + 1)
    }

    /// Prepares for `block`.
    ///
    /// # Errors
    /// If the system refuses memory.
    pub(crate) fn start(&mut self, block: &[u8]) -> Result<(), OutOfMemory> {
        self.finders.start(block)
    }

    pub(crate) fn finish(&mut self, len: usize) {
        self.finders.finish(len);
    }

    /// Appends the matches of a chunk.
    #[inline(always)]
    fn parse<P: Probe>(&mut self, effort: Effort, spacing: usize, chunk: Chunk<'_>) {
        let Chunk { block: data, chunk, segment: segment_len, window_start, out, .. } = chunk;
        self.lists.find::<P>(
            &mut self.finders,
            data,
            chunk.clone(),
            window_start,
            effort.inherited_length,
        );
        let first = out.len();
        let mut prices = Counts::expected(&data[chunk.clone()]).prices();
        for pass in 1..=effort.passes {
            out.truncate(first);
            let mut counts = Counts::none();
            let spacing = if pass < effort.passes { spacing } else { 1 };
            for start in chunk.clone().step_by(spacing * segment_len) {
                let end = (start + segment_len).min(chunk.end);
                let segment = Segment { data, chunk_start: chunk.start, window_start, start, end };
                let before = out.len();
                self.parse_segment(&segment, effort, &prices, out);
                if pass < effort.passes {
                    self.count(&segment, &out[before..], &mut counts);
                }
            }
            if pass < effort.passes {
                prices = counts.prices();
            }
        }
    }

    /// Counts the symbols of a segment's parse, as the segment sees them: the first run of literals does not begin in
    /// the previous segment, and recent offsets from there do not count.
    fn count(&self, segment: &Segment<'_>, matches: &[Match], counts: &mut Counts) {
        let mut pos = segment.start;
        for m in matches {
            let start = m.start as usize;
            let mut recent = self.states[start - segment.start].recent;
            let run = counts.add_literals(&segment.data[pos..start]);
            counts.add_match(run, m.length, recent.code(m.offset));
            pos = start + m.length as usize;
        }
        counts.add_literals(&segment.data[pos..segment.end]);
    }

    #[inline(always)]
    fn parse_segment(
        &mut self,
        segment: &Segment<'_>,
        effort: Effort,
        prices: &Prices,
        out: &mut Vec<Match>,
    ) {
        let Segment { data, chunk_start, window_start, start, end } = *segment;
        let len = end - start;
        let arrivals = &mut self.arrivals;
        arrivals.clear();
        arrivals.resize(len + 1, UNREACHED);
        let recent = if start == chunk_start { Recent::START } else { Recent([0; RECENT]) };
        self.states.clear();
        self.states.resize(len + 1, PathState { recent, run: 0 });
        arrivals[0].price = prices.run(0);
        let last = end.min((data.len() + 1).saturating_sub(LOOKAHEAD)).max(start) - start;
        let mut i = 0;
        while i < len {
            let arrival = arrivals[i];
            if arrival.price == u32::MAX {
                i += 1;
                continue;
            }
            let here = if i == 0 { self.states[0] } else { arrival.state(&self.states, i) };
            self.states[i] = here;
            let pos = start + i;
            // A path's price includes that of its open run of literals, which a token's price replaces later.
            let base = arrival.price - prices.run(here.run);
            let literal = base + prices.literals[usize::from(data[pos])] + prices.run(here.run + 1);
            if literal < arrivals[i + 1].price {
                arrivals[i + 1] = Arrival { price: literal, length: 0, offset: 0 };
            }
            if i >= last {
                i += 1;
                continue;
            }
            let base = base + prices.run(0);
            let lengths = &prices.lengths[spec::token(here.run.min(MAX_LITERALS), 0).symbol() >> 5];
            let base = base + prices.run_extra(here.run);
            // At an offset that costs more, only longer matches are worth trying.
            let mut tried = MIN_MATCH - 1;
            let bytes = read32(data, pos);
            let limit = end.min(pos + LONGEST as usize);
            for (slot, &offset) in here.recent.0.iter().enumerate() {
                if offset == 0 || offset as usize > pos - window_start {
                    continue;
                }
                let from = pos - offset as usize;
                if (read32(data, from) ^ bytes) << 8 != 0 {
                    continue;
                }
                let length = common_length(data, from, pos, limit) as u32;
                if length > tried {
                    let base = base + prices.offsets[slot];
                    reach(&mut arrivals[i..], tried + 1, length, offset, base, lengths, effort);
                    tried = length;
                }
            }
            for candidate in self.lists.get(pos - chunk_start) {
                let (offset, length) = (candidate.offset, candidate.length.min((len - i) as u32));
                if length > tried {
                    let base = base + prices.offsets[spec::offset(offset).symbol()];
                    reach(&mut arrivals[i..], tried + 1, length, offset, base, lengths, effort);
                    tried = length;
                }
            }
            i += if tried >= effort.nice_length { tried as usize } else { 1 };
        }
        push_path(arrivals, start, out);
    }
}

/// Appends the matches of the cheapest path through a segment that begins at `start`.
fn push_path(arrivals: &[Arrival], start: usize, out: &mut Vec<Match>) {
    let first = out.len();
    let mut i = arrivals.len() - 1;
    // Walking back along the path gives the matches in reverse.
    while i > 0 {
        let Arrival { length, offset, .. } = arrivals[i];
        i -= length.max(1) as usize;
        if length > 0 {
            out.push(Match { start: (start + i) as u32, length, offset });
        }
    }
    out[first..].reverse();
}

struct Segment<'a> {
    data: &'a [u8],
    chunk_start: usize,
    window_start: usize,
    start: usize,
    end: usize,
}

impl Arrival {
    /// The state of position `i` if this is its final arrival.
    #[inline(always)]
    fn state(&self, states: &[PathState], i: usize) -> PathState {
        if self.length == 0 {
            let before = states[i - 1];
            PathState { run: before.run + 1, ..before }
        } else {
            let mut recent = states[i - self.length as usize].recent;
            recent.record(self.offset);
            PathState { recent, run: 0 }
        }
    }
}

/// Tries matches of `shortest` to `longest` bytes. The path to the first of the arrivals costs `base`.
#[inline(always)]
fn reach(
    arrivals: &mut [Arrival],
    shortest: u32,
    longest: u32,
    offset: u32,
    base: u32,
    prices: &[u32; LONGEST as usize + 1],
    effort: Effort,
) {
    let mut from = shortest;
    if longest >= effort.nice_length {
        from = longest;
    }
    let mut attempt = |length: u32| {
        let price = base + prices[length as usize];
        let there = &mut arrivals[length as usize];
        if price < there.price {
            *there = Arrival { price, length, offset };
        }
    };
    for length in from..longest.min(effort.every_length + 1) {
        attempt(length);
    }
    attempt(longest);
}
