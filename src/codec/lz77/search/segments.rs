//! Parses a chunk segment by segment.
//!
//! Once their candidates are known, segments are independent of each other. They are parsed two at a time, because each
//! step of a parse waits for the one before it, and a processor can do a step of the other segment meanwhile.

use super::candidates::LOOKAHEAD;
use super::lazy::Match;
use super::probe::{Probe, Task};
use super::tagged::{Candidates, Lookup};
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
    /// For each position from `start` on, the distances to its candidates; then padding.
    pub found: &'a [[u32; N]],
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
    /// The matches go here.
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
