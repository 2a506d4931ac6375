//! Parses a chunk segment by segment.
//!
//! Once their candidates are known, segments are independent of each other. They are parsed two at a time: each step of
//! a parse waits for the one before, and the processor can do a step of the other segment meanwhile.

use super::candidates::LOOKAHEAD;
use super::lazy::Match;
use super::probe::{Probe, Task};
use super::tagged::{Candidates, Found, Lookup};
use core::marker::PhantomData;
use core::ops::Range;

/// A segment and its candidates, as a parse sees them.
#[derive(Clone, Copy)]
pub(crate) struct Segment<'a, const N: usize> {
    /// The block.
    pub data: &'a [u8],
    pub window_start: usize,
    pub start: usize,
    pub end: usize,
    /// Positions from here on have no candidates.
    pub last: usize,
    /// The candidates of the positions before `last`.
    pub found: Found<'a, N>,
}

impl<const N: usize> Segment<'_, N> {
    /// Examines positions from `pos`, which is before `last`, for the first whose four bytes equal those `recent`
    /// before it (if that is not 0), or which has a candidate. Returns it, and whether its bytes are equal; or, if no
    /// examined position qualifies, the position to continue at.
    #[inline(always)]
    pub(crate) fn first<P: Probe>(
        &self,
        pos: usize,
        recent: usize,
    ) -> Result<(usize, bool), usize> {
        let limit = P::FOURS.min(Found::<N>::AT_ONCE).min(self.last - pos);
        let candidate = self.found.first(pos).min(limit);
        let repeats = P::repeats(self.data, pos, recent, limit.min(candidate + 1));
        let at = candidate.min(repeats);
        if at < limit { Ok((pos + at, repeats <= candidate)) } else { Err(pos + at) }
    }
}

/// The parse of one segment.
pub(crate) trait Parse<const N: usize> {
    /// A parse that is about to begin at `start`.
    fn new(start: usize) -> Self;
    /// Finds at most one more match. Returns false if there are no more; so do later calls.
    fn step<P: Probe>(&mut self, segment: &Segment<'_, N>, matches: &mut Vec<Match>) -> bool;
}

/// A chunk to parse.
pub(crate) struct Chunk<'a> {
    pub block: &'a [u8],
    pub chunk: Range<usize>,
    /// Length of a segment.
    pub segment: usize,
    pub window_start: usize,
    /// Receives the matches.
    pub out: &'a mut Vec<Match>,
    pub scratch: &'a mut Vec<Match>,
}

impl Chunk<'_> {
    /// The chunk's segments.
    #[inline(always)]
    pub(crate) fn segments(&self) -> impl Iterator<Item = Range<usize>> + use<> {
        let (len, end) = (self.segment, self.chunk.end);
        self.chunk.clone().step_by(len).map(move |start| start..(start + len).min(end))
    }
}

/// Parses a chunk with `Q`, a [`Parse`].
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
            let to = last.min(start + 2 * len);
            let found = self.candidates.find::<P>(data, window_start, start, to);
            let (middle, end) = (chunk.end.min(start + len), chunk.end.min(start + 2 * len));
            let a =
                Segment { data, window_start, start, end: middle, last: last.min(middle), found };
            let b = Segment { start: middle, end, last: last.min(end), ..a };
            let (mut first, mut second) = (Q::new(a.start), Q::new(b.start));
            scratch.clear();
            while first.step::<P>(&a, out) | second.step::<P>(&b, scratch) {}
            out.append(scratch);
        }
    }
}
