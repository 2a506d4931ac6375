//! Finds the candidates for the matches of a whole segment at a time.
//!
//! A position's candidates come from the K most recent earlier positions in its window whose next bytes have the same
//! hash: those among them with the same *tag*, eight more bits of the hash. So the table alone rules out most positions
//! that do not match, without fetching their bytes. Every position is entered, whatever a parse does. Hence candidates
//! depend on the data alone, and a GPU finds the same ones by sorting positions by (hash, position).
//!
//! A position with fewer than [`LOOKAHEAD`](super::candidates::LOOKAHEAD) bytes left in the block neither has
//! candidates nor is one.

use super::candidates::{following, read64};
use super::probe::{BATCH, BATCH_BYTES, Probe, exchange, hash};
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
    /// Finds the candidates of the positions from `from` on, one position for each row of `found`, as distances back. A
    /// distance that reaches before the position's window is no candidate.
    fn find<P: Probe>(&mut self, data: &[u8], from: usize, found: &mut [[u32; N]]);
}

/// The usual length of a page of memory.
const PAGE: u64 = 4096;

/// Origins end here, so that a position with its origin fits into the 24 bits that a tag leaves.
pub(super) const MAX_END: usize = MAX_BLOCK + 1;

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

    /// Whether to prefetch slots before they are exchanged. With tables of a megabyte and more and 512 KiB of cache,
    /// this makes the search 4 to 18% faster; with 2 MiB, nothing changes. Small tables lose 8%.
    const LOOKS_AHEAD: bool = K > 1;

    fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        if self.slots.is_empty() {
            self.end = 1;
            // The first read of a page costs as much as the first write. So if most pages will be needed anyway, write
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

    /// Finds the candidates of the positions from `from` on, and writes them to the rows of `found`, from the `C`-th
    /// element of each on.
    #[inline(always)]
    fn find_columns<P: Probe, const C: usize, const N: usize>(
        &mut self,
        data: &[u8],
        from: usize,
        found: &mut [[u32; N]],
    ) {
        let slots = &mut self.slots[..1 << BITS];
        let mut pos = (self.origin + from) as u32;
        let mut rest = &data[from..];
        let (batches, last) = found.as_chunks_mut::<BATCH>();
        let mut next = [0; BATCH];
        if Self::LOOKS_AHEAD && !batches.is_empty() {
            next = hashes_of::<P, BYTES>(rest);
        }
        for batch in batches {
            let hashes = if Self::LOOKS_AHEAD { next } else { hashes_of::<P, BYTES>(rest) };
            rest = &rest[BATCH..];
            if Self::LOOKS_AHEAD && rest.len() >= BATCH_BYTES {
                next = hashes_of::<P, BYTES>(rest);
                for hash in next {
                    P::prefetch(&slots[(hash >> (32 - BITS)) as usize]);
                }
            }
            P::exchange::<K, BITS, N, C>(slots, &hashes, pos, batch);
            pos += BATCH as u32;
        }
        for ((row, bytes), pos) in last.iter_mut().zip(following(rest)).zip(pos..) {
            let candidates = exchange::<K, BITS>(slots, hash::<BYTES>(bytes), pos);
            row[C..C + K].copy_from_slice(&candidates);
        }
    }
}

impl<const K: usize, const BYTES: u32, const BITS: u32> Lookup<K> for Tagged<K, BYTES, BITS> {
    const MEMORY: u64 = Self::MEMORY;

    fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        self.reserve(positions)
    }

    fn start(&mut self, len: usize) {
        self.start(len);
    }

    #[inline(always)]
    fn find<P: Probe>(&mut self, data: &[u8], from: usize, found: &mut [[u32; K]]) {
        self.find_columns::<P, 0, K>(data, from, found);
    }
}

/// The hashes of the first [`BATCH`] positions of `data`.
#[inline(always)]
fn hashes_of<P: Probe, const BYTES: u32>(data: &[u8]) -> [u32; BATCH] {
    P::hashes::<BYTES>(data.first_chunk().expect("eight bytes follow each position"))
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

    #[inline(always)]
    fn find<P: Probe>(&mut self, data: &[u8], from: usize, found: &mut [[u32; 8]]) {
        self.long.find_columns::<P, 0, 8>(data, from, found);
        self.short.find_columns::<P, 4, 8>(data, from, found);
    }
}

/// Finds the candidates of the positions of two segments.
pub(crate) struct Candidates<const N: usize, L> {
    lookup: L,
    rows: Vec<[u32; N]>,
    /// A bit for each distance, set if it stays within the window.
    in_reach: Vec<[u8; BATCH / 8]>,
}

/// The candidates of positions.
#[derive(Clone, Copy)]
pub(crate) struct Found<'a, const N: usize> {
    /// The first position.
    from: usize,
    /// For each position, the distances to its candidates.
    rows: &'a [[u32; N]],
    in_reach: &'a [u8],
}

impl<const N: usize> Found<'_, N> {
    /// Positions that [`first`](Self::first) examines.
    pub(crate) const AT_ONCE: usize = 56 / N;

    /// The distances to a position's candidates.
    #[inline(always)]
    pub(crate) fn row(&self, pos: usize) -> &[u32; N] {
        &self.rows[pos - self.from]
    }

    /// The first of the positions from `pos` on, counted from there, that has a candidate in the window; at least
    /// [`AT_ONCE`](Self::AT_ONCE) if none of that many has.
    #[inline(always)]
    pub(crate) fn first(&self, pos: usize) -> usize {
        let bit = (pos - self.from) * N;
        let bits = read64(self.in_reach, bit / 8) >> (bit % 8);
        bits.trailing_zeros() as usize / N
    }
}

/// Positions handled at a time: first the candidates of all are found, then those in reach are noted. Few enough to
/// stay in the cache, and enough that most have been written before they are read.
const PIECE: usize = 256;

impl<const N: usize, L: Lookup<N>> Default for Candidates<N, L> {
    fn default() -> Self {
        Self { lookup: L::default(), rows: Vec::new(), in_reach: Vec::new() }
    }
}

impl<const N: usize, L: Lookup<N>> Candidates<N, L> {
    /// Numbers of rows and of groups of bits for this many positions.
    const fn lengths(positions: usize) -> (usize, usize) {
        let rows = positions.next_multiple_of(PIECE);
        // Room for the extra bits of a whole read.
        (rows, rows * N / BATCH + 2)
    }

    /// Bytes of memory kept, for segments of `segment_len` bytes.
    pub(crate) fn memory(segment_len: u64) -> u64 {
        let (rows, bits) = Self::lengths(2 * segment_len as usize);
        L::MEMORY + (4 * N * rows + BATCH / 8 * bits) as u64
    }

    /// Makes room for the candidates of `positions` positions at a time.
    pub(crate) fn reserve(&mut self, positions: usize) -> Result<(), OutOfMemory> {
        let (rows, bits) = Self::lengths(positions);
        reserve(&mut self.rows, rows)?;
        reserve(&mut self.in_reach, bits)?;
        self.lookup.reserve(positions)
    }

    /// Prepares for a block of `len` bytes.
    pub(crate) fn start(&mut self, len: usize) {
        self.lookup.start(len);
    }

    /// Finds the candidates of the positions from `from` to `to`.
    #[inline(always)]
    pub(crate) fn find<P: Probe>(
        &mut self,
        data: &[u8],
        window_start: usize,
        from: usize,
        to: usize,
    ) -> Found<'_, N> {
        let (rows, bits) = Self::lengths(to - from);
        self.rows.resize(rows, [u32::MAX; N]);
        self.in_reach.resize(bits, [0; BATCH / 8]);
        let masks = self.in_reach.chunks_mut(PIECE * N / BATCH);
        let pieces = self.rows.chunks_mut(PIECE).zip(masks);
        for (pos, (piece, masks)) in (from..).step_by(PIECE).zip(pieces) {
            let (found, rest) = piece.split_at_mut(PIECE.min(to - pos));
            self.lookup.find::<P>(data, pos, found);
            rest.fill([u32::MAX; N]);
            let mut reach = pos - window_start;
            for (distances, mask) in piece.as_flattened().as_chunks().0.iter().zip(masks) {
                *mask = P::in_reach::<N>(distances, reach).to_le_bytes();
                reach += BATCH / N;
            }
        }
        Found { from, rows: &self.rows, in_reach: self.in_reach.as_flattened() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::lz77::search::candidates::{LOOKAHEAD, product};
    use crate::codec::lz77::search::parse::tests::samples;
    use crate::codec::lz77::search::probe::Portable;

    /// The entries that the table returns for a position's hash of `BYTES` bytes, found by a search of all positions
    /// before it.
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
                let found = candidates.find::<Portable>(data, 0, from, to);
                for pos in from..to {
                    let row = found.row(pos).iter().copied();
                    let valid: Vec<_> = row.filter(|&d| d as usize <= pos).collect();
                    assert_eq!(valid, expected(data, pos));
                    let has_valid = |pos| found.row(pos).iter().any(|&d| d as usize <= pos);
                    let first = (pos..to).position(has_valid);
                    let ahead = found.first(pos);
                    match first.filter(|&first| first < Found::<N>::AT_ONCE) {
                        Some(first) => assert_eq!(ahead, first),
                        None => assert!(ahead >= Found::<N>::AT_ONCE.min(to - pos)),
                    }
                }
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

    /// A table with many blocks behind it finds the same candidates as a new one, also when its origins start over.
    #[test]
    fn earlier_blocks_leave_no_candidates() {
        let block: Vec<u8> = (0..400_u32).map(|i| ((i * i) >> 3) as u8).collect();
        let last = block.len() + 1 - LOOKAHEAD;
        type Table = Candidates<4, Tagged<4, 5, 8>>;
        let found_by = |candidates: &mut Table, block: &[u8]| {
            candidates.reserve(last).unwrap();
            candidates.start(block.len());
            let found = candidates.find::<Portable>(block, 0, 0, last);
            let valid = |pos| found.row(pos).map(|d| if d as usize <= pos { d } else { 0 });
            (0..last).map(valid).collect()
        };
        let expected: Vec<[u32; 4]> = found_by(&mut Table::default(), &block);
        assert!(expected.as_flattened().iter().any(|&distance| distance > 0));
        let mut used = Table::default();
        for jump in [0, 0, MAX_BLOCK - 2000, 0, 0, MAX_BLOCK, MAX_BLOCK - 1, 0] {
            // A long block without any entries.
            used.start(jump);
            assert!(used.lookup.end <= MAX_END);
            assert!(found_by(&mut used, &block) == expected, "{jump}");
        }
    }
}
