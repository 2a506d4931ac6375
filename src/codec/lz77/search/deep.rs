//! The deep lazy parse: takes the longest of many candidates, unless a position soon after has a better match.

use super::buckets::{Buckets, Rings};
use super::candidates::{LOOKAHEAD, common_length, common_length_before, read32, read64};
use super::lazy::Match;
use super::probe::{Here, Probe, Task, gain};
use super::segments::Chunk;
use core::ops::Range;

/// A match that a position could take.
#[derive(Clone, Copy)]
struct RatedMatch {
    length: u32,
    offset: u32,
    /// Roughly what the match saves, in quarters of a byte: the measure for comparing matches. 0 means no match.
    gain: u32,
}

impl RatedMatch {
    const NONE: Self = Self { length: 0, offset: 0, gain: 0 };
}

/// The bucket of a position is prefetched this many positions before it is used.
const AHEAD: usize = 16;

/// A match of at least this length is taken at once.
const LONG_ENOUGH: u32 = 64;

const SKIP_LOG: u32 = 6;

/// Parses a chunk, and looks up to `LAZY` positions ahead for a better match.
pub(crate) struct Deep<'a, B, const LAZY: usize> {
    chunk: Chunk<'a>,
    buckets: &'a mut B,
}

impl<'a, B, const LAZY: usize> Deep<'a, B, LAZY> {
    pub(crate) fn new(chunk: Chunk<'a>, buckets: &'a mut B) -> Self {
        Self { chunk, buckets }
    }
}

impl<const G: usize, const S: usize, const BYTES: u32, const BITS: u32, const LAZY: usize> Task
    for Deep<'_, Buckets<G, S, BYTES, BITS>, LAZY>
{
    #[inline(always)]
    fn run<P: Probe>(self) {
        let segments = self.chunk.segments();
        let Chunk { block: data, window_start, out, .. } = self.chunk;
        let mut parse = Parse { rings: self.buckets.open(), data, window_start };
        for segment in segments {
            parse.segment::<P, LAZY>(segment, out);
        }
    }
}

/// A parse of segments of a block.
struct Parse<'a, const G: usize, const S: usize, const BYTES: u32, const BITS: u32> {
    rings: Rings<'a, G, S, BYTES, BITS>,
    data: &'a [u8],
    window_start: usize,
}

impl<const G: usize, const S: usize, const BYTES: u32, const BITS: u32>
    Parse<'_, G, S, BYTES, BITS>
{
    /// Enters `pos` and returns its best match, which does not go beyond `end`, if its gain is more than `least`. The
    /// offset `recent` (0 for none) costs less than other offsets.
    #[inline(always)]
    fn find<P: Probe>(&mut self, pos: usize, end: usize, recent: u32, least: u32) -> RatedMatch {
        if let Some(bytes) = self.bytes_at(pos + AHEAD) {
            self.rings.prefetch::<P>(bytes);
        }
        let bytes = read64(self.data, pos);
        let reach = (pos - self.window_start) as u32;
        let here = Here { data: self.data, pos, reach, limit: end - pos };
        let mut best = RatedMatch { gain: least, ..RatedMatch::NONE };
        // The shortest match of a greater gain, at the shortest distance.
        let needed = (least as usize + 6) / 4;
        // Any longer match must equal the position's bytes here.
        let mut probe = 0;
        let long = if needed >= 8 {
            // Without a candidate, there may be no byte to probe.
            probe = if needed <= here.limit { needed - 4 } else { 0 };
            self.rings.with_equal::<P>(&here, needed - 4)
        } else {
            let (shorter, long) = self.rings.rate::<P>(&here);
            if let Some((gain, offset)) = shorter.filter(|&(gain, _)| gain > least) {
                best = RatedMatch { length: (gain + (offset + 3).ilog2()) / 4, offset, gain };
            }
            long
        };
        let mut probed = read32(self.data, pos + probe);
        for candidate in long {
            let offset = pos as u32 - candidate;
            if read32(self.data, pos + probe - offset as usize) != probed {
                continue;
            }
            let length = self.length(bytes, pos, offset, end);
            let gain = gain(length, offset);
            if gain > best.gain {
                best = RatedMatch { length, offset, gain };
                if pos + length as usize >= end {
                    break;
                }
                probe = length as usize - 3;
                probed = read32(self.data, pos + probe);
            }
        }
        self.rings.enter(bytes, pos);
        if recent.wrapping_sub(1) < reach
            && read32(self.data, pos - recent as usize) == bytes as u32
        {
            let length = self.length(bytes, pos, recent, end);
            let gain = 4 * length;
            if gain >= best.gain && length >= 4 {
                best = RatedMatch { length, offset: recent, gain };
            }
        }
        best
    }

    /// The length of the match at `pos`, where `bytes` stand.
    #[inline(always)]
    fn length(&self, bytes: u64, pos: usize, offset: u32, end: usize) -> u32 {
        let from = pos - offset as usize;
        let difference = read64(self.data, from) ^ bytes;
        let length = if difference != 0 {
            difference.trailing_zeros() as usize / 8
        } else if pos + 8 < end {
            8 + common_length(self.data, from + 8, pos + 8, end)
        } else {
            8
        };
        length.min(end - pos) as u32
    }

    /// Enters positions without looking up their candidates. Those of `to` will be looked up.
    #[inline(always)]
    fn enter<P: Probe>(&mut self, from: usize, to: usize) {
        for pos in from..to {
            if let Some(bytes) = self.bytes_at(pos + AHEAD) {
                if pos + AHEAD < to {
                    self.rings.prefetch_head::<P>(bytes);
                } else {
                    self.rings.prefetch::<P>(bytes);
                }
            }
            self.rings.enter(read64(self.data, pos), pos);
        }
    }

    /// The eight bytes from `pos` on, if there are so many.
    #[inline(always)]
    fn bytes_at(&self, pos: usize) -> Option<u64> {
        self.data.get(pos..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Parses a segment and appends its matches. Looks up to `LAZY` positions ahead for a better match.
    ///
    /// On data without matches, the step between positions grows by one every `1 << SKIP_LOG` literals.
    #[inline(always)]
    fn segment<P: Probe, const LAZY: usize>(
        &mut self,
        range: Range<usize>,
        matches: &mut Vec<Match>,
    ) {
        let Self { data, window_start, .. } = *self;
        let last = range.end.min((data.len() + 1).saturating_sub(LOOKAHEAD));
        // The offsets of the last two different matches of the segment. Right after a match, its own offset cannot match.
        let mut recent = [0; 2];
        let (mut pos, mut anchor) = (range.start, range.start);
        while pos < last {
            let mut found = self.find::<P>(
                pos,
                range.end,
                if pos == anchor { recent[1] } else { recent[0] },
                0,
            );
            if found.gain == 0 {
                let next = pos + 1 + ((pos - anchor) >> SKIP_LOG);
                self.enter::<P>(pos + 1, next.min(last));
                pos = next;
                continue;
            }
            let mut start = pos;
            let mut tried = pos;
            while tried < start + LAZY && tried + 1 < last && found.length < LONG_ENOUGH {
                tried += 1;
                // Each further position costs one more literal.
                let least = found.gain + 1 + 3 * (tried - start) as u32;
                let better = self.find::<P>(tried, range.end, recent[0], least);
                if better.gain > least {
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
            self.enter::<P>(tried + 1, pos.min(last));
        }
    }
}
