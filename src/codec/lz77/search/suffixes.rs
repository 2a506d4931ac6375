//! Candidates by the order of suffixes: earlier positions whose suffixes are next to a position's own.
//!
//! In that order, the farther away a suffix, the fewer bytes it has in common. So the first earlier position on one of
//! the two sides has the longest match there is, and among those behind it only nearer ones are of use: their matches
//! are shorter, but their offsets cost less. This needs no table and no hash, and finds every length.

use crate::codec::{OutOfMemory, reserve_huge, suffix_order};

/// How many suffixes to look at on each side.
const REACH: usize = 32;

/// The most candidates on each side.
pub(crate) const PER_SIDE: usize = 2;

/// Suffixes that are compared at a time.
const AT_ONCE: usize = 8;

/// The order of a block's suffixes, both ways.
#[derive(Default)]
pub(crate) struct Suffixes {
    /// Positions, from the least suffix to the greatest, between [`REACH`] entries that are no candidates.
    order: Vec<i32>,
    /// Where each position is in `order`.
    places: Vec<u32>,
}

/// No earlier position: greater than any.
const NONE: i32 = i32::MAX;

impl Suffixes {
    /// Bytes of memory for a block of `len` bytes.
    pub(crate) fn memory(len: usize) -> u64 {
        8 * (len + 2 * REACH) as u64 + suffix_order::memory(len)
    }

    /// Makes room for a block of `len` bytes.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<(), OutOfMemory> {
        reserve_huge(&mut self.order, len + 2 * REACH)?;
        reserve_huge(&mut self.places, len)
    }

    /// Sorts the suffixes of `block`.
    ///
    /// # Errors
    /// If the system refuses memory.
    pub(crate) fn sort(&mut self, block: &[u8]) -> Result<(), OutOfMemory> {
        self.reserve(block.len())?;
        self.order.clear();
        self.order.resize(block.len() + 2 * REACH, NONE);
        let order = &mut self.order[REACH..][..block.len()];
        suffix_order::sort(block, order)?;
        self.places.clear();
        self.places.resize(block.len(), 0);
        for (place, &position) in (REACH as u32..).zip(&*order) {
            self.places[position as usize] = place;
        }
        Ok(())
    }

    /// Begins to bring what [`candidates`](Self::candidates) reads for `position` into the cache. The result has no
    /// meaning.
    #[inline(always)]
    pub(crate) fn touch(&self, position: usize) -> u32 {
        // Both sides together are four or five lines of a cache.
        let sides = &self.order[self.places[position] as usize - REACH..][..2 * REACH];
        (sides[REACH / 4] ^ sides[REACH / 4 * 3] ^ sides[REACH / 4 * 5] ^ sides[REACH / 4 * 7])
            as u32
    }

    /// Appends the distances back from `position` to its candidates that are no farther than `window`, the smallest
    /// first.
    #[inline(always)]
    pub(crate) fn candidates(&self, position: usize, window: usize, out: &mut Vec<u32>) {
        let place = self.places[position] as usize;
        let (before, after) =
            (&self.order[place - REACH..place], &self.order[place + 1..][..REACH]);
        let reversed = |several: &[i32; AT_ONCE]| std::array::from_fn(|i| several[AT_ONCE - 1 - i]);
        let (after, _) = after.as_chunks();
        let (_, before) = before.as_rchunks();
        let position = position as i32;
        let earliest = position - window as i32;
        let mut found = [0; 2 * PER_SIDE];
        let count = nearer(after.iter().copied(), position, earliest, &mut found[..PER_SIDE]);
        let before = before.iter().rev().map(reversed);
        let total = count + nearer(before, position, earliest, &mut found[count..][..PER_SIDE]);
        found[..total].sort_unstable();
        out.extend_from_slice(&found[..total]);
    }
}

/// Takes the positions of one side, the next suffix first, and puts the distances from `position` to those that are
/// earlier, but not before `earliest` and nearer than all before them, into `found` until it is full. Returns their
/// number.
#[inline(always)]
fn nearer(
    side: impl Iterator<Item = [i32; AT_ONCE]>,
    position: i32,
    earliest: i32,
    found: &mut [u32],
) -> usize {
    let (mut nearest, mut count) = (earliest - 1, 0);
    for several in side {
        let earlier = several.map(|p| if p < position { p } else { -1 });
        if earlier.into_iter().fold(-1, i32::max) <= nearest {
            continue;
        }
        for p in earlier {
            if p > nearest {
                nearest = p;
                found[count] = (position - p) as u32;
                count += 1;
                if count == found.len() {
                    return count;
                }
            }
        }
    }
    count
}
