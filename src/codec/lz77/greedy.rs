//! The greedy parse: the first match found is taken.
//!
//! A segment is gone through from its start. At each position there is a match if the four bytes there equal those one
//! of these offsets before, the first of them counting: right behind a match, the offset of the last different one
//! before it; else the offset of the last match; the distance to the candidate. A match goes on while bytes are equal,
//! up to the segment's end, and is extended backward over the literals before it. It is taken if it ends at least four
//! bytes on, and the search goes on behind it. A segment begins without offsets of earlier matches.

use super::candidates::{LOOKAHEAD, common_length_before, read32};
use super::lazy::Match;
use super::probe::Probe;
use super::tagged::{Candidates, Lookup};
use core::ops::Range;

/// Parses a segment and appends its matches.
#[inline(always)]
pub(crate) fn parse<P: Probe, L: Lookup<1>>(
    candidates: &mut Candidates<1, L>,
    data: &[u8],
    range: Range<usize>,
    window_start: usize,
    matches: &mut Vec<Match>,
) {
    let last = range.end.min((data.len() + 1).saturating_sub(LOOKAHEAD));
    if last <= range.start {
        return;
    }
    let found = candidates.find(data, range.start, last);
    let (mut pos, mut anchor) = (range.start, range.start);
    let mut recent = [0usize; 2];
    let mut second = false;
    while pos < last {
        let ahead = &found[pos - range.start..];
        let (at, offset) = if second {
            (pos, recent[1])
        } else {
            match P::first(data, window_start, pos, ahead, recent[0]) {
                Ok(at) if at >= last => break,
                Ok(at) => {
                    let repeats =
                        recent[0] != 0 && read32(data, at) == read32(data, at - recent[0]);
                    let distance = ahead[at - pos][0] as usize;
                    (at, core::hint::select_unpredictable(repeats, recent[0], distance))
                }
                Err(next) => {
                    pos = next;
                    continue;
                }
            }
        };
        second = false;
        let [length] = P::lengths(data, at, [offset], range.end);
        if length < 4 {
            pos = at + 1;
            continue;
        }
        let end = at + length;
        let start = at - common_length_before(data, at - offset, at, window_start, anchor);
        let length = (end - start) as u32;
        matches.push(Match { start: start as u32, length, offset: offset as u32 });
        if offset != recent[0] {
            recent = [offset, recent[0]];
        }
        (pos, anchor) = (end, end);
        if end < last {
            second = recent[1] != 0 && read32(data, end) == read32(data, end - recent[1]);
        }
    }
}
