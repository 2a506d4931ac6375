//! The deep lazy parse: takes the best of many candidates, unless a position soon after has a better match.
//!
//! The parse goes through a segment from its start. The possible matches of a position are those at the three offsets
//! that the decoder will know as recent, that of its nearest candidate by a hash of three bytes if the parse is
//! thorough, and those of its candidates in a bucket. Of these, the best is the match of highest gain, the first of
//! equals in this order. At the first position with a match, the parse also looks at some further positions, one after
//! the other. A later match replaces the best so far if its gain is higher by more than one, plus three for each
//! literal that would be added. The remaining match is extended backward over the literals before it and taken, and the
//! search continues after it. A segment begins without offsets of earlier matches.

use super::buckets::{Buckets, Rings};
use super::candidates::{LOOKAHEAD, Table, common_length, common_length_before, read32, read64};
use super::lazy::Match;
use super::probe::{Probe, RatedPosition, Task, gain};
use super::segments::Chunk;
use crate::codec::lz77::stream::spec::{MIN_MATCH, RECENT, Recent};
use core::ops::Range;

/// The nearest position for each hash of three bytes: finds the short matches that a longer hash misses.
pub(crate) type Near = Table<1, 3, 14>;

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

/// Limits on a parse's lookahead.
#[derive(Clone, Copy)]
struct Lookahead {
    /// A match of this length or longer is taken at once.
    long_enough: u32,
    /// Assumed cost of a literal in bits.
    literal_bits: u32,
}

impl Lookahead {
    /// For the quick parse. It overrates the cost of literals, and so looks ahead less. Its segments are longer, and
    /// with longer matches they would take more steps than software devices allow.
    const QUICK: Self = Self { long_enough: 64, literal_bits: 9 };
    /// For the thorough parse.
    const THOROUGH: Self = Self { long_enough: 128, literal_bits: 7 };

    /// The number of positions to look ahead from a match. If the literals up to a later match cost more than this
    /// match, it is better to take this one, and then the rest of the later one. The number is less than the match's
    /// length, so no position is searched twice.
    #[inline(always)]
    fn positions(self, found: RatedMatch) -> usize {
        let offset_bits = 4 * found.length - found.gain;
        ((offset_bits + MATCH_BITS) / self.literal_bits) as usize
    }
}

/// The bucket of a position is prefetched this many positions before it is used.
const AHEAD: usize = 16;

const SKIP_LOG: u32 = 6;

/// The gain that makes up for a literal.
const LITERAL_GAIN: u32 = 3;
/// Bits of a match besides those of its offset.
const MATCH_BITS: u32 = 6;

/// A match of three bytes at an offset that is not recent is only taken up to this distance.
const NEAR_REACH: u32 = 1 << 8;

/// Parses a chunk.
pub(crate) struct Deep<'a, B> {
    chunk: Chunk<'a>,
    buckets: &'a mut B,
    /// For a thorough parse.
    near: Option<&'a mut Near>,
}

impl<'a, B> Deep<'a, B> {
    pub(crate) fn new(chunk: Chunk<'a>, buckets: &'a mut B, near: Option<&'a mut Near>) -> Self {
        Self { chunk, buckets, near }
    }
}

impl<const G: usize, const BYTES: u32, const BITS: u32> Task for Deep<'_, Buckets<G, BYTES, BITS>> {
    #[inline(always)]
    fn run<P: Probe>(self) {
        let segments = self.chunk.segments();
        let Chunk { block: data, window_start, out, .. } = self.chunk;
        let mut parse = Parse { rings: self.buckets.open(), near: self.near, data, window_start };
        for segment in segments {
            parse.segment::<P>(segment, out);
        }
    }
}

/// A parse of segments of a block.
struct Parse<'a, const G: usize, const BYTES: u32, const BITS: u32> {
    rings: Rings<'a, G, BYTES, BITS>,
    near: Option<&'a mut Near>,
    data: &'a [u8],
    window_start: usize,
}

impl<const G: usize, const BYTES: u32, const BITS: u32> Parse<'_, G, BYTES, BITS> {
    /// Enters `pos` and returns its best match, which ends at `end` at the latest, if its gain exceeds `least`;
    /// otherwise a match of length 0.
    #[inline(always)]
    fn find<P: Probe>(
        &mut self,
        pos: usize,
        end: usize,
        recent: &Recent,
        least: u32,
    ) -> RatedMatch {
        if let Some(bytes) = self.bytes_at(pos + AHEAD) {
            self.rings.prefetch::<P>(bytes);
        }
        let bytes = read64(self.data, pos);
        let reach = (pos - self.window_start) as u32;
        let mut best = RatedMatch { gain: least, ..RatedMatch::NONE };
        // The recent offsets first: the more they gain, the fewer candidates need to be compared.
        for offset in recent.0 {
            if offset.wrapping_sub(1) < reach && self.repeats(bytes, pos, offset) {
                let length = self.length(bytes, pos, offset, end);
                if length >= MIN_MATCH && 4 * length > best.gain {
                    best = RatedMatch { length, offset, gain: 4 * length };
                }
            }
        }
        if let Some(near) = &mut self.near {
            let [offset] = near.exchange(bytes, pos);
            if offset.wrapping_sub(1) < reach && self.repeats(bytes, pos, offset) {
                let length = self.length(bytes, pos, offset, end);
                let gain = gain(length, offset);
                let is_short = length < MIN_MATCH || (length == MIN_MATCH && offset > NEAR_REACH);
                if !is_short && gain > best.gain {
                    best = RatedMatch { length, offset, gain };
                }
            }
        }
        let here = RatedPosition { data: self.data, pos, reach, limit: end - pos };
        // The length of the shortest match with a greater gain, if it were at the shortest distance.
        let needed = (best.gain as usize + 6) / 4;
        // Place of bytes that any longer match must have in common with the position.
        let mut probe = 0;
        let long = if needed >= 8 {
            // If `needed` exceeds the limit, there are no candidates, and no bytes to probe.
            probe = if needed <= here.limit { needed - 4 } else { 0 };
            self.rings.with_equal::<P>(&here, needed - 4)
        } else {
            let (shorter, long) = self.rings.rate::<P>(&here);
            if let Some((gain, offset)) = shorter.filter(|&(gain, _)| gain > best.gain) {
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
        best
    }

    /// Whether the bytes of a shortest match at `pos`, where `bytes` stand, equal those `offset` before.
    #[inline(always)]
    fn repeats(&self, bytes: u64, pos: usize, offset: u32) -> bool {
        (read32(self.data, pos - offset as usize) ^ bytes as u32) << (32 - 8 * MIN_MATCH) == 0
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

    /// Enters positions without looking up their candidates. Prefetches the bucket of `to`, which is looked up next.
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
        if let Some(near) = &mut self.near {
            near.enter(self.data, from, to);
        }
    }

    /// The eight bytes from `pos` on, if the block has them.
    #[inline(always)]
    fn bytes_at(&self, pos: usize) -> Option<u64> {
        self.data.get(pos..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    }

    /// Parses a segment and appends its matches.
    ///
    /// On data without matches, the step between positions grows by one every `1 << SKIP_LOG` literals.
    #[inline(always)]
    fn segment<P: Probe>(&mut self, range: Range<usize>, matches: &mut Vec<Match>) {
        let Self { data, window_start, .. } = *self;
        let lookahead = if self.near.is_some() { Lookahead::THOROUGH } else { Lookahead::QUICK };
        let last = range.end.min((data.len() + 1).saturating_sub(LOOKAHEAD));
        let mut recent = Recent([0; RECENT]);
        let (mut pos, mut anchor) = (range.start, range.start);
        while pos < last {
            let mut found = self.find::<P>(pos, range.end, &recent, 0);
            if found.length == 0 {
                let next = pos + 1 + ((pos - anchor) >> SKIP_LOG);
                self.enter::<P>(pos + 1, next.min(last));
                pos = next;
                continue;
            }
            let (mut start, mut tried) = (pos, pos);
            let mut until = start + lookahead.positions(found);
            while tried < until && tried + 1 < last && found.length < lookahead.long_enough {
                tried += 1;
                let least = found.gain + 1 + LITERAL_GAIN * (tried - start) as u32;
                let better = self.find::<P>(tried, range.end, &recent, least);
                if better.length > 0 {
                    (found, start) = (better, tried);
                    until = start + lookahead.positions(found);
                }
            }
            let from = start - found.offset as usize;
            let before = common_length_before(data, from, start, window_start, anchor);
            start -= before;
            found.length += before as u32;
            matches.push(Match { start: start as u32, length: found.length, offset: found.offset });
            recent.record(found.offset);
            pos = start + found.length as usize;
            anchor = pos;
            self.enter::<P>(tried + 1, pos.min(last));
        }
    }
}
