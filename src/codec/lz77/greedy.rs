//! The greedy parse: the first match found is taken.

use super::candidates::{LOOKAHEAD, Table, common_length, common_length_before, read64};
use super::lazy::Match;
use core::ops::Range;

/// Parses a segment and appends its matches.
///
/// At each position a repetition of the last offset counts first (right behind a match, of the one before it), from
/// four equal bytes on; then the most recent position with the same hash, from five on. A match is extended backward
/// over the literals before it. On data without matches the step from position to position grows by one every
/// `1 << skip_log` literals.
#[inline(never)]
pub(crate) fn parse<const BYTES: u32, const BITS: u32>(
    table: &mut Table<1, BYTES, BITS>,
    data: &[u8],
    range: Range<usize>,
    window_start: usize,
    skip_log: u32,
    matches: &mut Vec<Match>,
) {
    let last = range.end.min((data.len() + 1).saturating_sub(LOOKAHEAD));
    let (mut pos, mut anchor) = (range.start, range.start);
    let mut recent = [0usize; 2];
    while pos < last {
        let bytes = read64(data, pos);
        let [distance] = table.exchange(bytes, pos);
        let repeat = if pos == anchor { recent[1] } else { recent[0] };
        let mut difference = read64(data, pos - repeat) ^ bytes;
        let mut offset = repeat;
        if difference as u32 != 0 || repeat == 0 {
            offset = distance as usize;
            let valid = offset.wrapping_sub(1) < pos - window_start;
            difference = read64(data, if valid { pos - offset } else { 0 }) ^ bytes;
            if difference << 24 != 0 || !valid {
                let next = pos + 1 + ((pos - anchor) >> skip_log);
                if next > pos + 1 {
                    table.enter(data, pos + 1, next.min(last));
                }
                pos = next;
                continue;
            }
        }
        let mut end = if difference != 0 {
            pos + difference.trailing_zeros() as usize / 8
        } else {
            let from = pos + 8;
            if from < range.end {
                from + common_length(data, from - offset, from, range.end)
            } else {
                from
            }
        };
        if end > range.end {
            end = range.end;
            if end - pos < 4 {
                pos += 1;
                continue;
            }
        }
        let start = pos - common_length_before(data, pos - offset, pos, window_start, anchor);
        matches.push(Match {
            start: start as u32,
            length: (end - start) as u32,
            offset: offset as u32,
        });
        if offset != recent[0] {
            recent = [offset, recent[0]];
        }
        table.enter(data, pos + 1, end.min(last));
        pos = end;
        anchor = end;
    }
}
