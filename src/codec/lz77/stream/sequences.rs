//! Turns the matches of a parse into the sequences of a chunk.

use super::spec::{MAX_LITERALS, MAX_MATCH, MIN_MATCH};
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
/// Matches that continue each other, as at the seam of two segments, are joined.
#[inline(always)]
pub(crate) fn cut(
    block: &[u8],
    chunk: Range<usize>,
    matches: &[Match],
    literals: &mut Vec<u8>,
    mut emit: impl FnMut(Sequence),
) {
    let mut pos = chunk.start;
    let mut filled = literals.len();
    // Copying a short run also writes some bytes after it.
    literals.resize(filled + chunk.len() + SHORT_RUN, 0);
    let mut rest = matches.iter().copied().peekable();
    while let Some(mut m) = rest.next() {
        while let Some(next) =
            rest.next_if(|next| next.offset == m.offset && next.start == m.start + m.length)
        {
            m.length += next.length;
        }
        let start = m.start as usize;
        let run = &block[pos..start];
        // Copy a fixed size where there is room: most runs are short.
        match block.get(pos..pos + SHORT_RUN) {
            Some(chunk) if run.len() <= SHORT_RUN => {
                literals[filled..][..SHORT_RUN].copy_from_slice(chunk);
            }
            _ => literals[filled..][..run.len()].copy_from_slice(run),
        }
        filled += run.len();
        limited(run.len() as u32, m.length, m.offset, &mut emit);
        pos = start + m.length as usize;
    }
    literals.truncate(filled);
    if pos < chunk.end {
        literals.extend_from_slice(&block[pos..chunk.end]);
        limited((chunk.end - pos) as u32, 0, 0, &mut emit);
    }
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
