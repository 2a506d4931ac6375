//! Parsing a chunk segment by segment.
//!
//! Segments are parsed independently of each other once their candidates are known, by two at a time: each step of a
//! parse waits for the one before it, and a processor does the steps of the other segment meanwhile.

use super::candidates::LOOKAHEAD;
use super::lazy::Match;
use super::probe::{Probe, Task};
use super::tagged::{Candidates, Lookup};
use core::marker::PhantomData;
use core::ops::Range;

/// What a parse knows of a segment.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a, const N: usize> {
    /// The block.
    pub data: &'a [u8],
    pub window_start: usize,
    pub start: usize,
    pub end: usize,
    /// Positions from here on have no candidates.
    pub last: usize,
    /// Distances from each position from `start` on to its candidates, and behind them padding.
    pub found: &'a [[u32; N]],
}

/// The parse of one segment.
pub(crate) trait Parse<const N: usize> {
    /// A parse that has come to `start`.
    fn new(start: usize) -> Self;
    /// Finds at most one more match. False if there are none, also when called again then.
    fn step<P: Probe>(&mut self, segment: &Segment<'_, N>, matches: &mut Vec<Match>) -> bool;
}

/// Chunks to be parsed.
pub(crate) struct Chunk<'a> {
    pub block: &'a [u8],
    pub chunk: Range<usize>,
    /// Length of a segment.
    pub segment: usize,
    pub window_start: usize,
    /// Gets the matches.
    pub out: &'a mut Vec<Match>,
    pub scratch: &'a mut Vec<Match>,
}

impl Chunk<'_> {
    /// Its segments.
    #[inline(always)]
    pub(crate) fn segments(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (len, end) = (self.segment, self.chunk.end);
        self.chunk.clone().step_by(len).map(move |start| start..(start + len).min(end))
    }
}

/// Parses a chunk with [`Parse`] `Q`.
pub(crate) struct Segments<'a, const N: usize, L, Q> {
    chunk: Chunk<'a>,
    candidates: &'a mut Candidates<N, L>,
    parse: PhantomData<Q>,
}

impl<'a, const N: usize, L: Lookup<N>, Q> Segments<'a, N, L, Q> {
    pub(crate) fn new(chunk: Chunk<'a>, candidates: &'a mut Candidates<N, L>) -> Self {
        Self { chunk, candidates, parse: PhantomData }
    }
}

impl<const N: usize, L: Lookup<N>, Q: Parse<N>> Task for Segments<'_, N, L, Q> {
    #[inline(always)]
    fn run<P: Probe>(self) {
        let Chunk { block: data, chunk, segment: len, window_start, out, scratch } = self.chunk;
        let last = chunk.end.min((data.len() + 1).saturating_sub(LOOKAHEAD));
        for start in (chunk.start..last).step_by(2 * len) {
            let found = self.candidates.find(data, start, last.min(start + 2 * len));
            let (middle, end) = (chunk.end.min(start + len), chunk.end.min(start + 2 * len));
            let a =
                Segment { data, window_start, start, end: middle, last: last.min(middle), found };
            let b = Segment { start: middle, end, last: last.min(end), ..a };
            let b = Segment { found: &found[(b.last - start).min(len)..], ..b };
            let (mut first, mut second) = (Q::new(a.start), Q::new(b.start));
            scratch.clear();
            while first.step::<P>(&a, out) | second.step::<P>(&b, scratch) {}
            out.append(scratch);
        }
    }
}
