//! The candidates for the matches of a whole segment at a time.
//!
//! A position's candidates are taken from the K most recent earlier positions in its window whose next bytes have the
//! same hash: those that also have the same *tag*, eight more bits of the hash. So the table alone rules out most
//! positions that do not match, without fetching their bytes. Every position is entered, whatever a parse does. Hence
//! candidates depend on the data alone, and a GPU finds the same ones by sorting positions by (hash, position).
//!
//! A position with fewer than [`LOOKAHEAD`] bytes left in the block neither has candidates nor is one.

use super::candidates::{LOOKAHEAD, following, product};
use crate::codec::lz77::MAX_BLOCK;
use crate::codec::{OutOfMemory, reserve, reserve_zeroed};

/// A table that finds candidates: at most `N` for each position.
pub(crate) trait Lookup<const N: usize>: Default {
    /// The table's size in bytes.
    const MEMORY: u64;
    /// Allocates the table, for blocks of `positions` positions or more.
    fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory>;
    /// Prepares for a block of `len` bytes.
    fn start(&mut self, len: usize);
    /// Finds the candidates of the positions from `from` on, one position for each element of `found`, as distances
    /// back. A distance that reaches before the position's window is no candidate.
    fn find(&mut self, data: &[u8], from: usize, found: &mut [[u32; N]]);
}

/// The usual length of a page of memory.
const PAGE: u64 = 4096;

/// Origins end here, so that a position with its origin fits into the 24 bits that a tag leaves.
const MAX_END: usize = MAX_BLOCK + 1;

/// The `K` most recent positions for each hash of `BYTES` bytes in `BITS` bits.
///
/// The table adds an origin to each position, and the origin grows from block to block. Entries of earlier blocks are
/// therefore out of range, and a small block need not clear the whole table.
#[derive(Default)]
pub(crate) struct Tagged<const K: usize, const BYTES: u32, const BITS: u32> {
    /// Most recent first. The tag in the upper eight bits, plus the position with its origin. 0 for an empty entry.
    slots: Vec<[u32; K]>,
    /// The origin of the present block: at least 1.
    origin: usize,
    /// The origin of the next block.
    end: usize,
}

impl<const K: usize, const BYTES: u32, const BITS: u32> Tagged<K, BYTES, BITS> {
    const MEMORY: u64 = (4 * K as u64) << BITS;

    fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        if self.slots.is_empty() {
            self.end = 1;
            // The first look into a page costs as much as the first write. So if most pages will be needed anyway, write
            // to all of them first.
            if positions as u64 > Self::MEMORY / PAGE {
                reserve(&mut self.slots, 1 << BITS)?;
                self.slots.resize(1 << BITS, [0; K]);
            }
        }
        reserve_zeroed(&mut self.slots, 1 << BITS, [0; K])
    }

    fn start(&mut self, len: usize) {
        if self.slots.is_empty() || self.end + len > MAX_END {
            self.slots.clear();
            self.slots.resize(1 << BITS, [0; K]);
            self.end = 1;
        }
        self.origin = self.end;
        self.end += len;
    }

    /// Enters a position, given with its origin, where `bytes` stand, and returns its candidates.
    #[inline(always)]
    fn exchange(slots: &mut [[u32; K]], bytes: &[u8; LOOKAHEAD], pos: u32) -> [u32; K] {
        let hash = (product::<BYTES>(u64::from_le_bytes(*bytes)) >> 32) as u32;
        let entry = (hash << 24).wrapping_add(pos);
        let slot = &mut slots[(hash >> (32 - BITS)) as usize];
        let before = *slot;
        *slot = core::array::from_fn(|i| if i == 0 { entry } else { before[i - 1] });
        // Equal tags cancel out. Unequal ones leave more than a block's length, and entries of earlier blocks more than
        // the position in this block.
        before.map(|before| entry.wrapping_sub(before))
    }
}

/// For each position from `from` on with an element in `found`: that element, the bytes there, and the position with its
/// origin.
#[inline(always)]
fn places<'a, const N: usize>(
    data: &'a [u8],
    from: usize,
    origin: usize,
    found: &'a mut [[u32; N]],
) -> impl Iterator<Item = ((&'a mut [u32; N], &'a [u8; LOOKAHEAD]), u32)> {
    let bytes = following(&data[from..][..found.len() + LOOKAHEAD - 1]);
    found.iter_mut().zip(bytes).zip((origin + from) as u32..)
}

impl<const K: usize, const BYTES: u32, const BITS: u32> Lookup<K> for Tagged<K, BYTES, BITS> {
    const MEMORY: u64 = Self::MEMORY;

    fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        self.reserve(positions)
    }

    fn start(&mut self, len: usize) {
        self.start(len);
    }

    #[inline(never)]
    fn find(&mut self, data: &[u8], from: usize, found: &mut [[u32; K]]) {
        let slots = &mut self.slots[..1 << BITS];
        for ((found, bytes), pos) in places(data, from, self.origin, found) {
            *found = Self::exchange(slots, bytes, pos);
        }
    }
}

/// Two hashes, of `A` and of `B` bytes, with the four most recent positions for each.
#[derive(Default)]
pub(crate) struct Double4<const A: u32, const B: u32, const BITS: u32> {
    long: Tagged<4, A, BITS>,
    short: Tagged<4, B, BITS>,
}

impl<const A: u32, const B: u32, const BITS: u32> Lookup<8> for Double4<A, B, BITS> {
    const MEMORY: u64 = Tagged::<4, A, BITS>::MEMORY + Tagged::<4, B, BITS>::MEMORY;

    fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        self.long.reserve(positions)?;
        self.short.reserve(positions)
    }

    fn start(&mut self, len: usize) {
        self.long.start(len);
        self.short.start(len);
    }

    #[inline(never)]
    fn find(&mut self, data: &[u8], from: usize, found: &mut [[u32; 8]]) {
        let long = &mut self.long.slots[..1 << BITS];
        let short = &mut self.short.slots[..1 << BITS];
        // Both tables have seen the same blocks.
        for ((found, bytes), pos) in places(data, from, self.long.origin, found) {
            let [a, b, c, d] = Tagged::<4, A, BITS>::exchange(long, bytes, pos);
            let [e, f, g, h] = Tagged::<4, B, BITS>::exchange(short, bytes, pos);
            *found = [a, b, c, d, e, f, g, h];
        }
    }
}

/// The candidates of the positions of two segments.
pub(crate) struct Candidates<const N: usize, L> {
    lookup: L,
    found: Vec<[u32; N]>,
}

impl<const N: usize, L: Lookup<N>> Default for Candidates<N, L> {
    fn default() -> Self {
        Self { lookup: L::default(), found: Vec::new() }
    }
}

impl<const N: usize, L: Lookup<N>> Candidates<N, L> {
    /// Bytes of memory kept, for segments of `segment_len` bytes.
    pub(crate) fn memory(segment_len: u64) -> u64 {
        L::MEMORY + 4 * (2 * N as u64 * segment_len + PADDING as u64)
    }

    /// Makes room for the candidates of `positions` positions at a time.
    pub(crate) fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        reserve(&mut self.found, positions + PADDING.div_ceil(N))?;
        self.lookup.reserve(positions)
    }

    /// Prepares for a block of `len` bytes.
    pub(crate) fn start(&mut self, len: usize) {
        self.lookup.start(len);
    }

    /// Finds the candidates of the positions from `from` to `to`, and appends [`PADDING`] distances that are no
    /// candidates.
    #[inline(always)]
    pub(crate) fn find(&mut self, data: &[u8], from: usize, to: usize) -> &[[u32; N]] {
        let n = to - from;
        self.found.resize(n + PADDING.div_ceil(N), [u32::MAX; N]);
        let (found, rest) = self.found.split_at_mut(n);
        self.lookup.find(data, from, found);
        rest.fill([u32::MAX; N]);
        &self.found
    }
}

/// Distances that may be read past those of a segment.
pub(crate) const PADDING: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::lz77::search::candidates::read64;
    use crate::codec::lz77::search::parse::tests::samples;

    /// The table entries that a position finds by its hash of `BYTES` bytes, by a search of all positions before it.
    fn by_search<const BYTES: u32, const BITS: u32>(data: &[u8], pos: usize, k: usize) -> Vec<u32> {
        let hash = |p| (product::<BYTES>(read64(data, p)) >> 32) as u32;
        let slot = |p| hash(p) >> (32 - BITS);
        let same_slot = (0..pos).rev().filter(|&p| slot(p) == slot(pos)).take(k);
        let same_tag = same_slot.filter(|&p| hash(p) & 255 == hash(pos) & 255);
        same_tag.map(|p| (pos - p) as u32).collect()
    }

    fn agrees<const N: usize, L: Lookup<N>>(expected: impl Fn(&[u8], usize) -> Vec<u32>) {
        let mut candidates = Candidates::<N, L>::default();
        for data in samples() {
            let data = &data[..data.len().min(3000)];
            let last = (data.len() + 1).saturating_sub(LOOKAHEAD);
            candidates.start(data.len());
            for from in (0..last).step_by(1000) {
                let to = last.min(from + 1000);
                let found = candidates.find(data, from, to);
                for pos in from..to {
                    let row = found[pos - from].iter().copied();
                    let valid: Vec<_> = row.filter(|&d| d as usize <= pos).collect();
                    assert_eq!(valid, expected(data, pos));
                }
                let rest = &found[to - from..];
                assert!(rest.as_flattened().len() >= PADDING);
                assert!(rest.as_flattened().iter().all(|&d| d == u32::MAX));
            }
        }
    }

    #[test]
    fn candidates_are_the_most_recent_positions_of_the_same_hash() {
        agrees::<1, Tagged<1, 6, 9>>(|data, pos| by_search::<6, 9>(data, pos, 1));
        agrees::<2, Tagged<2, 6, 8>>(|data, pos| by_search::<6, 8>(data, pos, 2));
        agrees::<4, Tagged<4, 5, 8>>(|data, pos| by_search::<5, 8>(data, pos, 4));
        agrees::<8, Double4<8, 5, 8>>(|data, pos| {
            [by_search::<8, 8>(data, pos, 4), by_search::<5, 8>(data, pos, 4)].concat()
        });
    }

    /// A table that has seen many blocks finds what a new one finds, also when its origins start over.
    #[test]
    fn earlier_blocks_leave_no_candidates() {
        let block: Vec<u8> = (0..400_u32).map(|i| ((i * i) >> 3) as u8).collect();
        let last = block.len() + 1 - LOOKAHEAD;
        type Found = Candidates<4, Tagged<4, 5, 8>>;
        let found_by = |candidates: &mut Found, block: &[u8]| {
            candidates.reserve(last).unwrap();
            candidates.start(block.len());
            let found = candidates.find(block, 0, last).iter().enumerate();
            found.map(|(pos, row)| row.map(|d| if d as usize <= pos { d } else { 0 })).collect()
        };
        let expected: Vec<[u32; 4]> = found_by(&mut Found::default(), &block);
        assert!(expected.as_flattened().iter().any(|&distance| distance > 0));
        let mut used = Found::default();
        for jump in [0, 0, MAX_BLOCK - 2000, 0, 0, MAX_BLOCK, MAX_BLOCK - 1, 0] {
            // A long block of which nothing was entered.
            used.start(jump);
            assert!(used.lookup.end <= MAX_END);
            assert!(found_by(&mut used, &block) == expected, "{jump}");
        }
    }
}
