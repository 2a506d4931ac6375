//! The deep lazy parse: takes the longest of many candidates, unless a position soon after has a better match.

use super::buckets::Finder;
use super::candidates::{LOOKAHEAD, common_length, common_length_before, read32, read64};
use super::lazy::Match;
use super::probe::{Probe, Task};
use super::segments::Chunk;
use core::ops::Range;

/// A match that a position could take.
#[derive(Clone, Copy)]
struct RatedMatch {
    length: u32,
    offset: u32,
    /// Roughly what the match saves, in quarters of a byte: the measure for comparing matches. 0 means no match.
    gain: i32,
}

impl RatedMatch {
    const NONE: Self = Self { length: 0, offset: 0, gain: 0 };
}

struct Segment<'a> {
    data: &'a [u8],
    window_start: usize,
    end: usize,
}

impl Segment<'_> {
    /// Enters `pos` and returns its best match. The offset `recent` (0 for none) costs less than other offsets.
    #[inline(always)]
    fn find<P: Probe>(&self, finder: &mut impl Finder, pos: usize, recent: u32) -> RatedMatch {
        prefetch::<P>(finder, self.data, pos);
        let bytes = read64(self.data, pos);
        let reach = (pos - self.window_start) as u32;
        let distances = finder.candidates(bytes, pos);
        let mut best = RatedMatch::NONE;
        // Any longer match must equal the position's bytes here.
        let mut probe = 0;
        let mut probed = bytes as u32;
        for &offset in distances.as_ref() {
            if offset.wrapping_sub(1) >= reach
                || read32(self.data, pos + probe - offset as usize) != probed
            {
                continue;
            }
            let length = self.length(bytes, pos, offset);
            let gain = 4 * length as i32 - (offset + 3).ilog2() as i32;
            if gain > best.gain && (length >= 5 || (length == 4 && offset < 1 << 13)) {
                best = RatedMatch { length, offset, gain };
                if pos + length as usize >= self.end {
                    break;
                }
                probe = length as usize - 3;
                probed = read32(self.data, pos + probe);
            }
        }
        if recent.wrapping_sub(1) < reach
            && read32(self.data, pos - recent as usize) == bytes as u32
        {
            let length = self.length(bytes, pos, recent);
            let gain = 4 * length as i32;
            if gain >= best.gain && length >= 4 {
                best = RatedMatch { length, offset: recent, gain };
            }
        }
        best
    }

    /// The length of the match at `pos`, where `bytes` stand.
    #[inline(always)]
    fn length(&self, bytes: u64, pos: usize, offset: u32) -> u32 {
        let from = pos - offset as usize;
        let difference = read64(self.data, from) ^ bytes;
        let length = if difference != 0 {
            difference.trailing_zeros() as usize / 8
        } else if pos + 8 < self.end {
            8 + common_length(self.data, from + 8, pos + 8, self.end)
        } else {
            8
        };
        length.min(self.end - pos) as u32
    }
}

/// Begins to bring what the finder keeps for a position soon after `pos` into the cache.
#[inline(always)]
fn prefetch<P: Probe>(finder: &impl Finder, data: &[u8], pos: usize) {
    if let Some(bytes) = data.get(pos + AHEAD..).and_then(|d| d.first_chunk()) {
        finder.prefetch::<P>(u64::from_le_bytes(*bytes));
    }
}

/// Enters positions without looking up their candidates.
#[inline(always)]
fn enter<P: Probe>(finder: &mut impl Finder, data: &[u8], from: usize, to: usize) {
    for pos in from..to {
        prefetch::<P>(finder, data, pos);
        finder.enter(data, pos, pos + 1);
    }
}

/// The bucket of a position is prefetched this many positions before it is used.
const AHEAD: usize = 16;

/// A match of at least this length is taken at once.
const LONG_ENOUGH: u32 = 64;

const SKIP_LOG: u32 = 6;

/// Parses a chunk, and looks up to `LAZY` positions ahead for a better match.
pub(crate) struct Deep<'a, F, const LAZY: usize> {
    chunk: Chunk<'a>,
    finder: &'a mut F,
}

impl<'a, F: Finder, const LAZY: usize> Deep<'a, F, LAZY> {
    pub(crate) fn new(chunk: Chunk<'a>, finder: &'a mut F) -> Self {
        Self { chunk, finder }
    }
}

impl<F: Finder, const LAZY: usize> Task for Deep<'_, F, LAZY> {
    #[inline(always)]
    fn run<P: Probe>(self) {
        for segment in self.chunk.segments() {
            let Chunk { block, window_start, .. } = self.chunk;
            parse::<P, F, LAZY>(self.finder, block, segment, window_start, self.chunk.out);
        }
    }
}

/// Parses a segment and appends its matches. Looks up to `LAZY` positions ahead for a better match.
///
/// On data without matches, the step between positions grows by one every `1 << SKIP_LOG` literals.
#[inline(always)]
fn parse<P: Probe, F: Finder, const LAZY: usize>(
    finder: &mut F,
    data: &[u8],
    range: Range<usize>,
    window_start: usize,
    matches: &mut Vec<Match>,
) {
    let segment = Segment { data, window_start, end: range.end };
    let last = range.end.min((data.len() + 1).saturating_sub(LOOKAHEAD));
    // The offsets of the last two different matches of the segment. Right after a match, its own offset cannot match.
    let mut recent = [0; 2];
    let (mut pos, mut anchor) = (range.start, range.start);
    while pos < last {
        let mut found =
            segment.find::<P>(finder, pos, if pos == anchor { recent[1] } else { recent[0] });
        if found.gain == 0 {
            let next = pos + 1 + ((pos - anchor) >> SKIP_LOG);
            enter::<P>(finder, data, pos + 1, next.min(last));
            pos = next;
            continue;
        }
        let mut start = pos;
        let mut tried = pos;
        while tried < start + LAZY && tried + 1 < last && found.length < LONG_ENOUGH {
            tried += 1;
            let better = segment.find::<P>(finder, tried, recent[0]);
            // Each further position costs one more literal.
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
        enter::<P>(finder, data, tried + 1, pos.min(last));
    }
}
