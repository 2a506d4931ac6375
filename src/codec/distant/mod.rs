//! Long-distance matching: takes out of a block the parts that repeat earlier blocks, or the block itself.
//!
//! A **distant match** is a part of a block's contents that equals part of an earlier block, or an earlier part of the
//! same block. The bytes outside distant matches are the block's *own bytes*. Distant matches repeat own bytes only, so
//! restoring a block takes the own bytes of a few blocks, and never a chain of them. The own bytes of a block are
//! compressed like the contents of any other block.
//!
//! LZ77 finds repetitions within a block anyway. The Burrows-Wheeler transform codes them byte by byte, each at a small
//! price, which adds up.
//!
//! | module | |
//! |---|---|
//! | `finder` | finds the distant matches of one block after another |
//! | `samples` | the positions of a block whose bytes it looks up |
//! | `list` | the matches of a block as bytes |
//! | `coded` | these bytes, coded |

mod coded;
mod finder;
mod list;
mod samples;

pub(crate) use coded::{code, decode};
pub(crate) use finder::{Finder, MIN_NEAR_BLOCK, Survey};
pub(crate) use list::{Bounds, parse, write};

use super::{Malformed, OutOfMemory};

/// The fewest bytes of a distant match that the format permits.
pub(crate) const MIN_LEN: u32 = 32;

/// The most different blocks that the matches of one block may repeat.
pub(crate) const MAX_SOURCES: usize = 16;

/// Bytes of memory for finding and listing a block's matches, without the memory of the finder.
pub(crate) fn memory_of_block(block_size: usize, is_near: bool) -> u64 {
    let coding = if is_near { coded::memory(block_size) } else { 0 };
    Survey::memory(block_size).max(coding)
}

/// A part of a block's contents that repeats own bytes of an earlier block, or of the same block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DistantMatch {
    /// Where it begins in the contents.
    pub(crate) start: u32,
    /// Its length in bytes.
    pub(crate) len: u32,
    /// Distance to the repeated block, in blocks; 0 for this block itself.
    pub(crate) back: u32,
    /// Where the repeated part begins in the own bytes of that block.
    pub(crate) from: u32,
}

/// The different earlier blocks that `matches` repeat, as distances in blocks, the farthest first.
pub(crate) fn sources(matches: &[DistantMatch]) -> Vec<u32> {
    let mut sources = Vec::with_capacity(MAX_SOURCES);
    for one in matches.iter().filter(|one| one.back > 0) {
        if let Err(place) = sources.binary_search_by(|&back| one.back.cmp(&back)) {
            sources.insert(place, one.back);
        }
    }
    sources
}

/// Moves a block's own bytes to its beginning, and returns their length.
pub(crate) fn take_out(matches: &[DistantMatch], block: &mut [u8]) -> usize {
    let (mut own, mut at) = (0, 0);
    for one in matches {
        let start = one.start as usize;
        block.copy_within(at..start, own);
        own += start - at;
        at = start + one.len as usize;
    }
    let len = block.len();
    block.copy_within(at..len, own);
    own + len - at
}

/// Puts a block's own bytes in their places among its contents. The matches must be valid for the block, as [`parse`]
/// returns them.
pub(crate) fn put_own(matches: &[DistantMatch], mut own: &[u8], contents: &mut [u8]) {
    let mut at = 0;
    for one in matches {
        let (part, rest) = own.split_at(one.start as usize - at);
        contents[at..one.start as usize].copy_from_slice(part);
        own = rest;
        at = (one.start + one.len) as usize;
    }
    contents[at..].copy_from_slice(own);
}

/// Fills in the matches of the block `back` blocks before, whose own bytes are `source`. With 0, that is the block
/// itself.
///
/// # Errors
/// If a match reaches beyond `source`.
pub(crate) fn put_matches(
    matches: &[DistantMatch],
    back: u32,
    source: &[u8],
    contents: &mut [u8],
) -> Result<(), Malformed> {
    for one in matches.iter().filter(|one| one.back == back) {
        let from = one.from as usize;
        let part = source
            .get(from..from + one.len as usize)
            .ok_or(Malformed("a distant match reaches beyond the own bytes of its block"))?;
        contents[one.start as usize..][..part.len()].copy_from_slice(part);
    }
    Ok(())
}
