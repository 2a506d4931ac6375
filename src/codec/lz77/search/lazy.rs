//! The lazy parse: takes the best match of a few neighbouring positions.
//!
//! The parse goes through a segment from its start. The possible matches of a position are those of its candidates and
//! of one cheap offset: that of the last match or, right after it, that of the last different match. A match goes on
//! while bytes are equal, up to the segment's end. The best match of a position is that of highest [`gain`], the first
//! of equals, but the cheap one if it is among them; a gain below [`MIN_GAIN`] counts as no match. At the first
//! position with a match, the parse also looks at up to `LAZY` further positions, one after the other. A later match
//! replaces the best so far if its gain is higher by more than one, plus three for each literal that would be added.
//! The remaining match is extended backward over the literals before it and taken, and the search continues after it. A
//! segment begins without offsets of earlier matches.

use super::candidates::{common_length_before, read32};
use super::probe::Probe;
use super::segments::{Parse, Segment};
use core::hint::select_unpredictable;

/// A repetition: `length` bytes from `start` on equal the bytes `offset` before them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Match {
    pub start: u32,
    pub length: u32,
    pub offset: u32,
}

/// A match that a position could take.
#[derive(Clone, Copy)]
struct RatedMatch {
    start: usize,
    length: usize,
    offset: usize,
    /// Roughly what the match saves, in quarters of a byte: the measure for comparing matches.
    gain: i32,
}

/// The gain of a match: four for each byte, less the bits of its offset.
#[inline(always)]
fn gain(length: usize, offset: u32) -> i32 {
    // Setting the lowest bit leaves the logarithm as it is, and keeps its argument from being 0 where a distance is out
    // of reach.
    4 * length as i32 - (offset.wrapping_add(3) | 1).ilog2() as i32
}

/// Matches with a smaller gain are not taken.
const MIN_GAIN: i32 = 3;

/// The best match of `pos` among those at distances `row` and at `recent` (0 for none). Its gain is 0 if there is none.
#[inline(always)]
fn best<P: Probe, const N: usize>(
    data: &[u8],
    window_start: usize,
    end: usize,
    pos: usize,
    row: &[u32; N],
    recent: usize,
) -> RatedMatch {
    let reach = pos - window_start;
    let (mut length, lengths) = P::lengths(data, pos, recent, row, reach, end);
    let mut offset = recent;
    let mut most = select_unpredictable(length >= 4, 4 * length as i32 + 1, MIN_GAIN - 1);
    for i in 0..N {
        let gain = gain(lengths[i], row[i]);
        let better = (lengths[i] >= 4) & (gain > most);
        length = select_unpredictable(better, lengths[i], length);
        offset = select_unpredictable(better, row[i] as usize, offset);
        most = select_unpredictable(better, gain, most);
    }
    let gain = select_unpredictable(most >= MIN_GAIN, most, 0);
    RatedMatch { start: pos, length, offset, gain }
}

/// The state of a segment's parse, which looks up to `LAZY` positions ahead for a better match.
pub(crate) struct Lazy<const LAZY: usize> {
    pos: usize,
    /// End of the last match.
    anchor: usize,
    /// The offsets of the last two different matches, the later one first.
    recent: [usize; 2],
}

impl<const N: usize, const LAZY: usize> Parse<N> for Lazy<LAZY> {
    #[inline(always)]
    fn new(start: usize) -> Self {
        Self { pos: start, anchor: start, recent: [0; 2] }
    }

    #[inline(always)]
    fn step<P: Probe>(&mut self, segment: &Segment<'_, N>, matches: &mut Vec<Match>) -> bool {
        let Segment { data, window_start, end, last, found, .. } = *segment;
        let Self { mut pos, anchor, recent } = *self;
        if pos >= last {
            return false;
        }
        let second =
            pos == anchor && recent[1] != 0 && read32(data, pos) == read32(data, pos - recent[1]);
        if !second {
            match segment.first::<P>(pos, recent[0]) {
                Ok((at, _)) => pos = at,
                Err(next) => {
                    self.pos = next;
                    return true;
                }
            }
        }
        let cheap = select_unpredictable(pos == anchor, recent[1], recent[0]);
        let mut m = best::<P, N>(data, window_start, end, pos, found.row(pos), cheap);
        if m.gain == 0 {
            self.pos = pos + 1;
            return true;
        }
        for ahead in 1..=LAZY {
            let at = pos + ahead;
            if at >= last {
                break;
            }
            let other = best::<P, N>(data, window_start, end, at, found.row(at), recent[0]);
            let better = other.gain > m.gain + 1 + 3 * (at - m.start) as i32;
            m.start = select_unpredictable(better, other.start, m.start);
            m.length = select_unpredictable(better, other.length, m.length);
            m.offset = select_unpredictable(better, other.offset, m.offset);
            m.gain = select_unpredictable(better, other.gain, m.gain);
        }
        let from = m.start - m.offset;
        let before = common_length_before(data, from, m.start, window_start, anchor);
        matches.push(Match {
            start: (m.start - before) as u32,
            length: (before + m.length) as u32,
            offset: m.offset as u32,
        });
        if m.offset != recent[0] {
            self.recent = [m.offset, recent[0]];
        }
        self.pos = m.start + m.length;
        self.anchor = self.pos;
        true
    }
}
