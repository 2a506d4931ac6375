//! Turns the matches of a parse into the sequences of a chunk.

use super::spec::{MAX_LITERALS, MAX_MATCH, MIN_MATCH};
use crate::codec::lz77::search::candidates::common_length;
use crate::codec::lz77::search::lazy::Match;
use core::ops::Range;

/// A run of literals, then a match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sequence {
    pub literals: u32,
    /// Length of the match; 0 for none.
    pub length: u32,
    pub offset: u32,
}

/// Runs of at most this many literals are copied as if they were this long.
pub(super) const SHORT_RUN: usize = 16;

/// Cuts a chunk into sequences within the limits of the format, and appends its literals.
///
/// A match that continues the one before is joined to it. A parse ends every match at the end of its segment, at the
/// latest. Here, a match that ends there goes on while bytes are equal, and later matches lose the part that it covers.
/// `segment` is the length of a segment, a power of two.
#[inline(always)]
pub(crate) fn cut(
    block: &[u8],
    chunk: Range<usize>,
    segment: usize,
    matches: &[Match],
    literals: &mut Vec<u8>,
    mut emit: impl FnMut(Sequence),
) {
    let mut pos = chunk.start;
    let mut filled = literals.len();
    // Copying a short run also writes some bytes after it.
    literals.resize(filled + chunk.len() + SHORT_RUN, 0);
    let mut rest = matches.iter().copied().peekable();
    while let Some(m) = rest.next() {
        let Some(Match { start, length, offset }) = uncovered(m, pos as u32) else { continue };
        let start = start as usize;
        let mut end = start + length as usize;
        while let Some(next) =
            rest.next_if(|next| next.offset == offset && next.start as usize == end)
        {
            end += next.length as usize;
        }
        if end & (segment - 1) == 0 {
            end += common_length(block, end - offset as usize, end, chunk.end);
        }
        let run = &block[pos..start];
        // Copy a fixed size where there is room: most runs are short.
        match block.get(pos..pos + SHORT_RUN) {
            Some(chunk) if run.len() <= SHORT_RUN => {
                literals[filled..][..SHORT_RUN].copy_from_slice(chunk);
            }
            _ => literals[filled..][..run.len()].copy_from_slice(run),
        }
        filled += run.len();
        limited(run.len() as u32, (end - start) as u32, offset, &mut emit);
        pos = end;
    }
    literals.truncate(filled);
    if pos < chunk.end {
        literals.extend_from_slice(&block[pos..chunk.end]);
        limited((chunk.end - pos) as u32, 0, 0, &mut emit);
    }
}

/// The rest of a match from `pos` on, if that is long enough for a match.
#[inline(always)]
fn uncovered(m: Match, pos: u32) -> Option<Match> {
    let covered = pos.saturating_sub(m.start);
    let is_left = m.length >= covered + MIN_MATCH;
    is_left.then(|| Match { start: m.start + covered, length: m.length - covered, ..m })
}

/// Emits a sequence, as several if a length exceeds its limit.
#[inline(always)]
fn limited(mut literals: u32, mut length: u32, offset: u32, emit: &mut impl FnMut(Sequence)) {
    while literals > MAX_LITERALS {
        emit(Sequence { literals: MAX_LITERALS, length: 0, offset: 0 });
        literals -= MAX_LITERALS;
    }
    while length > MAX_MATCH {
        let rest = length - MAX_MATCH;
        let part = if rest < MIN_MATCH { MAX_MATCH - MIN_MATCH } else { MAX_MATCH };
        emit(Sequence { literals, length: part, offset });
        literals = 0;
        length -= part;
    }
    emit(Sequence { literals, length, offset });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Cuts a block whose segments have 8 bytes, and returns its sequences as literals, length and offset.
    fn cut_of(block: &[u8], matches: &[(u32, u32, u32)]) -> Vec<(u32, u32, u32)> {
        let matches: Vec<_> = matches
            .iter()
            .map(|&(start, length, offset)| Match { start, length, offset })
            .collect();
        let (mut literals, mut found) = (Vec::new(), Vec::new());
        cut(block, 0..block.len(), 8, &matches, &mut literals, |s| {
            found.push((s.literals, s.length, s.offset));
        });
        assert_eq!(literals.len() as u32, found.iter().map(|s| s.0).sum::<u32>());
        found
    }

    #[test]
    fn a_match_goes_on_beyond_its_segment() {
        let block = b"0123456789abcdef0123456789abcdef0123456789.....";
        let alone = [(16, 26, 16), (5, 0, 0)];
        assert_eq!(cut_of(block, &[(16, 8, 16)]), alone);
        // Other matches are covered by it, or continue it.
        assert_eq!(cut_of(block, &[(16, 8, 16), (25, 5, 1), (32, 8, 2), (41, 3, 1)]), alone);
        assert_eq!(cut_of(block, &[(16, 8, 16), (24, 8, 16), (34, 6, 2)]), alone);
        // One of the covered matches has enough left.
        let both = [(16, 26, 16), (0, 3, 1), (2, 0, 0)];
        assert_eq!(cut_of(block, &[(16, 8, 16), (30, 5, 2), (41, 4, 1)]), both);
    }

    #[test]
    fn a_match_inside_its_segment_does_not_go_on() {
        let block = b"0123456789abcdef0123456789abcdef";
        assert_eq!(cut_of(block, &[(16, 7, 16)]), [(16, 7, 16), (9, 0, 0)]);
        assert_eq!(cut_of(block, &[(17, 4, 16), (21, 3, 8)]), [(17, 4, 16), (0, 3, 8), (8, 0, 0)]);
    }
}
