//! The lazy parse: take a match unless the next position has a better one.

use super::candidates::{LOOKAHEAD, Table, common_length, read32};
use core::ops::Range;

/// A repetition: `length` bytes from `start` on equal those `offset` bytes before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Match {
    pub start: u32,
    pub length: u32,
    pub offset: u32,
}

/// What finds matches for the lazy parse.
pub(crate) trait Finder {
    /// Enters `pos` without looking.
    fn enter(&mut self, data: &[u8], pos: usize);
    /// Enters `pos`, and returns the best match there (length, offset), or length 0. `reach` is how far back the
    /// window goes, `end` where matches must end.
    fn find(&mut self, data: &[u8], pos: usize, reach: u32, end: usize) -> (u32, u32);
}

/// Finds by hashes of `A` and of `B` bytes.
pub(crate) struct TwoHashes<const K: usize, const A: u32, const B: u32> {
    pub long: Table<K, A>,
    pub short: Table<K, B>,
}

pub(crate) struct OneHash<const K: usize, const A: u32>(pub Table<K, A>);

#[inline(always)]
fn gain(length: u32, offset: u32) -> i32 {
    4 * length as i32 - (offset + 3).ilog2() as i32
}

#[inline(always)]
fn worth(length: u32, offset: u32) -> bool {
    length >= 5 || (length == 4 && offset < 1 << 13)
}

impl<const K: usize, const A: u32, const B: u32> Finder for TwoHashes<K, A, B> {
    #[inline(always)]
    fn enter(&mut self, data: &[u8], pos: usize) {
        self.long.enter(data, pos);
        self.short.enter(data, pos);
    }

    #[inline(always)]
    fn find(&mut self, data: &[u8], pos: usize, reach: u32, end: usize) -> (u32, u32) {
        let long = self.long.exchange(data, pos);
        let short = self.short.exchange(data, pos);
        let (mut best, mut best_gain) = ((0, 0), 0);
        for offset in long.into_iter().chain(short) {
            if offset.wrapping_sub(1) < reach {
                let from = pos - offset as usize;
                if read32(data, from) == read32(data, pos) {
                    let length = common_length(data, from, pos, end) as u32;
                    if worth(length, offset) && gain(length, offset) > best_gain {
                        best = (length, offset);
                        best_gain = gain(length, offset);
                    }
                }
            }
        }
        best
    }
}

impl<const K: usize, const A: u32> Finder for OneHash<K, A> {
    #[inline(always)]
    fn enter(&mut self, data: &[u8], pos: usize) {
        self.0.enter(data, pos);
    }

    #[inline(always)]
    fn find(&mut self, data: &[u8], pos: usize, reach: u32, end: usize) -> (u32, u32) {
        let (mut best, mut best_gain) = ((0, 0), 0);
        for offset in self.0.exchange(data, pos) {
            if offset.wrapping_sub(1) < reach {
                let from = pos - offset as usize;
                if read32(data, from) == read32(data, pos) {
                    let length = common_length(data, from, pos, end) as u32;
                    if worth(length, offset) && gain(length, offset) > best_gain {
                        best = (length, offset);
                        best_gain = gain(length, offset);
                    }
                }
            }
        }
        best
    }
}

/// Parses one segment.
#[inline(always)]
pub(crate) fn parse<F: Finder, const LAZY: usize>(
    finder: &mut F,
    data: &[u8],
    segment: Range<usize>,
    window_start: usize,
    skip_log: u32,
    matches: &mut Vec<Match>,
) {
    let end = segment.end;
    let last = end.min(data.len().saturating_sub(LOOKAHEAD - 1));
    let mut recent = [0u32; 2];
    let (mut pos, mut anchor) = (segment.start, segment.start);
    // Positions before this one have been entered.
    let mut entered = pos;
    let at = |finder: &mut F, pos: usize, recent: &[u32; 2]| -> (u32, u32, i32) {
        let reach = (pos - window_start) as u32;
        let (mut length, mut offset) = finder.find(data, pos, reach, end);
        let mut g = if length > 0 { gain(length, offset) } else { 0 };
        for &r in recent {
            if r.wrapping_sub(1) < reach && pos + 4 <= end {
                let from = pos - r as usize;
                if read32(data, from) == read32(data, pos) {
                    let l = common_length(data, from, pos, end) as u32;
                    let rg = 4 * l as i32;
                    if l>=4 && rg >= g {
                        (length, offset, g) = (l, r, rg);
                    }
                }
            }
        }
        (length, offset, g)
    };
    while pos < last {
        while entered < pos {
            finder.enter(data, entered);
            entered += 1;
        }
        let (mut length, mut offset, mut g) = at(finder, pos, &recent);
        entered = pos + 1;
        if length == 0 {
            pos += 1 + ((pos - anchor) >> skip_log);
            continue;
        }
        let mut start = pos;
        let mut tries = 0;
        while tries < LAZY && start + 1 + tries < last && length < 64 {
            tries += 1;
            let p = start + tries;
            if entered > p { continue; }
            let (l2, o2, g2) = at(finder, p, &recent);
            entered = p + 1;
            if l2 > 0 && g2 > g + 1 + 3 * tries as i32 {
                (length, offset, g) = (l2, o2, g2);
                start = p;
                tries = 0;
            }
        }
        // backward
        while start > anchor && start - offset as usize > window_start && data[start - 1] == data[start - 1 - offset as usize] {
            start -= 1;
            length += 1;
        }
        matches.push(Match { start: start as u32, length, offset });
        if offset != recent[0] {
            recent = [offset, recent[0]];
        }
        pos = start + length as usize;
        anchor = pos;
    }
    let stop = last.max(entered);
    while entered < stop {
        finder.enter(data, entered);
        entered += 1;
    }
}
