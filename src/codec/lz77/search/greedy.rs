//! The greedy parse: takes the first match it finds.
//!
//! The parse goes through a segment from its start. It compares the four bytes at a position with those at these
//! offsets before it, in this order: right after a match, the offset of the last different match; otherwise the offset
//! of the last match; then the distance to the candidate. The first offset with equal bytes gives the match. The match
//! extends forward while bytes are equal, up to the segment's end, and backward over the literals before it. It is
//! taken if it ends at least four bytes on, and the search continues after it. A segment begins without offsets of
//! earlier matches.

use super::candidates::{common_length_before, read32};
use super::lazy::Match;
use super::probe::Probe;
use super::segments::{Parse, Segment};
use core::hint::select_unpredictable;

/// The state of a segment's parse.
pub(crate) struct Greedy {
    pos: usize,
    /// End of the last match.
    anchor: usize,
    /// The offsets of the last two different matches, the later one first.
    recent: [usize; 2],
}

impl Parse<1> for Greedy {
    #[inline(always)]
    fn new(start: usize) -> Self {
        Self { pos: start, anchor: start, recent: [0; 2] }
    }

    #[inline(always)]
    fn step<P: Probe>(&mut self, segment: &Segment<'_, 1>, matches: &mut Vec<Match>) -> bool {
        let Segment { data, window_start, end, last, found, .. } = *segment;
        let Self { pos, anchor, recent } = *self;
        if pos >= last {
            return false;
        }
        let second =
            pos == anchor && recent[1] != 0 && read32(data, pos) == read32(data, pos - recent[1]);
        let (at, offset) = if second {
            (pos, recent[1])
        } else {
            match segment.first::<P>(pos, recent[0]) {
                Ok((at, repeats)) => {
                    (at, select_unpredictable(repeats, recent[0], found.row(at)[0] as usize))
                }
                Err(next) => {
                    self.pos = next;
                    return true;
                }
            }
        };
        let (length, []) = P::lengths(data, at, offset, &[], at - window_start, end);
        if length < 4 {
            self.pos = at + 1;
            return true;
        }
        let before = common_length_before(data, at - offset, at, window_start, anchor);
        matches.push(Match {
            start: (at - before) as u32,
            length: (before + length) as u32,
            offset: offset as u32,
        });
        if offset != recent[0] {
            self.recent = [offset, recent[0]];
        }
        self.pos = at + length;
        self.anchor = at + length;
        true
    }
}
