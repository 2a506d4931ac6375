//! The lazy parse: take a match unless the next position has a better one.

use super::candidates::{LOOKAHEAD, Table, common_length, common_length_before, read64};
use core::ops::Range;

/// A repetition: `length` bytes from `start` on equal those `offset` bytes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Match {
    pub start: u32,
    pub length: u32,
    pub offset: u32,
}

/// What matches are searched for with.
pub(crate) trait Finder: Default {
    /// Its size in bytes.
    const MEMORY: u64;
    /// Several distances.
    type Distances: AsRef<[u32]>;
    /// Gets ready for a block of `len` bytes.
    fn start(&mut self, len: usize);
    /// Enters positions that are not looked at.
    fn enter(&mut self, data: &[u8], from: usize, to: usize);
    /// Enters `pos`, where `bytes` stand, and returns the distances back to its candidates.
    fn candidates(&mut self, bytes: u64, pos: usize) -> Self::Distances;
    /// Ends a block of `len` bytes.
    fn finish(&mut self, len: usize);
}

/// Finds by one hash of `A` bytes, its `K` most recent positions.
#[derive(Default)]
pub(crate) struct OneHash<const K: usize, const A: u32, const BITS: u32>(Table<K, A, BITS>);

impl<const K: usize, const A: u32, const BITS: u32> Finder for OneHash<K, A, BITS> {
    const MEMORY: u64 = Table::<K, A, BITS>::MEMORY;
    type Distances = [u32; K];

    fn start(&mut self, len: usize) {
        self.0.start(len);
    }

    #[inline(always)]
    fn enter(&mut self, data: &[u8], from: usize, to: usize) {
        self.0.enter(data, from, to);
    }

    #[inline(always)]
    fn candidates(&mut self, bytes: u64, pos: usize) -> [u32; K] {
        self.0.exchange(bytes, pos)
    }

    fn finish(&mut self, len: usize) {
        self.0.finish(len);
    }
}

/// Finds by hashes of `A` and of `B` bytes, the most recent position of each.
#[derive(Default)]
pub(crate) struct TwoHashes<const A: u32, const B: u32, const BITS: u32> {
    long: Table<1, A, BITS>,
    short: Table<1, B, BITS>,
}

impl<const A: u32, const B: u32, const BITS: u32> Finder for TwoHashes<A, B, BITS> {
    const MEMORY: u64 = Table::<1, A, BITS>::MEMORY + Table::<1, B, BITS>::MEMORY;
    type Distances = [u32; 2];

    fn start(&mut self, len: usize) {
        self.long.start(len);
        self.short.start(len);
    }

    #[inline(always)]
    fn enter(&mut self, data: &[u8], from: usize, to: usize) {
        self.long.enter(data, from, to);
        self.short.enter(data, from, to);
    }

    #[inline(always)]
    fn candidates(&mut self, bytes: u64, pos: usize) -> [u32; 2] {
        [self.long.exchange(bytes, pos)[0], self.short.exchange(bytes, pos)[0]]
    }

    fn finish(&mut self, len: usize) {
        self.long.finish(len);
        self.short.finish(len);
    }
}

/// A match that a position could take.
#[derive(Clone, Copy)]
struct Found {
    length: u32,
    offset: u32,
    /// Quarters of the bits saved, roughly: what matches are compared by. Positive, or 0 for no match.
    gain: i32,
}

impl Found {
    const NONE: Self = Self { length: 0, offset: 0, gain: 0 };
}

struct Segment<'a> {
    data: &'a [u8],
    window_start: usize,
    end: usize,
}

impl Segment<'_> {
    /// Enters `pos` and returns its best match, with the offset `recent` (0 for none) cheaper than others.
    #[inline(always)]
    fn find(&self, finder: &mut impl Finder, pos: usize, recent: u32) -> Found {
        let bytes = read64(self.data, pos);
        let reach = (pos - self.window_start) as u32;
        let distances = finder.candidates(bytes, pos);
        let mut best = Found::NONE;
        for &offset in distances.as_ref() {
            let difference = self.difference(bytes, pos, offset, reach);
            if difference as u32 == 0 {
                let length = self.length(difference, pos, offset);
                let gain = 4 * length as i32 - (offset + 3).ilog2() as i32;
                if gain > best.gain && (length >= 5 || (length == 4 && offset < 1 << 13)) {
                    best = Found { length, offset, gain };
                }
            }
        }
        let difference = self.difference(bytes, pos, recent, reach);
        if difference as u32 == 0 {
            let length = self.length(difference, pos, recent);
            let gain = 4 * length as i32;
            if gain >= best.gain && length >= 4 {
                best = Found { length, offset: recent, gain };
            }
        }
        best
    }

    /// The bits in which the eight bytes at `pos` differ from those `offset` before; all if that is out of reach.
    #[inline(always)]
    fn difference(&self, bytes: u64, pos: usize, offset: u32, reach: u32) -> u64 {
        let valid = offset.wrapping_sub(1) < reach;
        let from = if valid { pos - offset as usize } else { 0 };
        let difference = read64(self.data, from) ^ bytes;
        if valid { difference } else { u64::MAX }
    }

    /// The length of a match that begins with this difference.
    #[inline(always)]
    fn length(&self, difference: u64, pos: usize, offset: u32) -> u32 {
        let length = if difference != 0 {
            difference.trailing_zeros() as usize / 8
        } else if pos + 8 < self.end {
            8 + common_length(self.data, pos + 8 - offset as usize, pos + 8, self.end)
        } else {
            8
        };
        length.min(self.end - pos) as u32
    }
}

/// Length from which on a match is taken without looking for a better one.
const LONG_ENOUGH: u32 = 64;

/// Parses a segment, looking up to `LAZY` positions ahead for a better match, and appends its matches.
///
/// `skip_log` tells how quickly the search gives up on data without matches: the step from position to position grows
/// by one every `1 << skip_log` literals.
#[inline(always)]
pub(crate) fn parse<F: Finder, const LAZY: usize>(
    finder: &mut F,
    data: &[u8],
    range: Range<usize>,
    window_start: usize,
    skip_log: u32,
    matches: &mut Vec<Match>,
) {
    let segment = Segment { data, window_start, end: range.end };
    let last = range.end.min((data.len() + 1).saturating_sub(LOOKAHEAD));
    // The offsets of the last two different matches of the segment. Right behind a match its own offset does not match.
    let mut recent = [0; 2];
    let (mut pos, mut anchor) = (range.start, range.start);
    while pos < last {
        let mut found =
            segment.find(finder, pos, if pos == anchor { recent[1] } else { recent[0] });
        if found.gain == 0 {
            let next = pos + 1 + ((pos - anchor) >> skip_log);
            finder.enter(data, pos + 1, next.min(last));
            pos = next;
            continue;
        }
        let mut start = pos;
        let mut tried = pos;
        while tried < start + LAZY && tried + 1 < last && found.length < LONG_ENOUGH {
            tried += 1;
            let better = segment.find(finder, tried, recent[0]);
            // Each position further on costs another literal.
            if better.gain > found.gain + 1 + 3 * (tried - start) as i32 {
                found = better;
                start = tried;
            }
        }
        let from = start - found.offset as usize;
        let before = common_length_before(data, from, start, window_start, anchor);
        start -= before;
        found.length += before as u32;
        matches.push(Match { start: start as u32, length: found.length, offset: found.offset });
        if found.offset != recent[0] {
            recent = [found.offset, recent[0]];
        }
        pos = start + found.length as usize;
        anchor = pos;
        finder.enter(data, tried + 1, pos.min(last));
    }
}
