//! The candidates for a position's match.
//!
//! A position's candidates are the K most recent earlier positions in its window whose next bytes have the same hash.
//! Every position of a block is entered, whatever the parse does. So candidates depend on the data alone, and a GPU
//! finds the same ones by sorting positions by (hash, position).
//!
//! A window begins at a multiple of its length and ends a window length later. A position with fewer than [`LOOKAHEAD`]
//! bytes left in the block neither has candidates nor is one.

use super::probe::Probe;
use crate::codec::{OutOfMemory, reserve};

/// Bytes that must follow a position for it to take part in matching.
pub(crate) const LOOKAHEAD: usize = 8;

/// The 8 bytes from `pos`, little-endian.
#[inline(always)]
pub(crate) fn read64(data: &[u8], pos: usize) -> u64 {
    u64::from_le_bytes(*data[pos..].first_chunk().unwrap())
}

/// The 4 bytes from `pos`, little-endian.
#[inline(always)]
pub(crate) fn read32(data: &[u8], pos: usize) -> u32 {
    u32::from_le_bytes(*data[pos..].first_chunk().unwrap())
}

/// The bytes that follow each position of `data` that takes part in matching.
#[inline(always)]
pub(crate) fn following(data: &[u8]) -> impl Iterator<Item = &[u8; LOOKAHEAD]> {
    data.windows(LOOKAHEAD).map(|bytes| bytes.first_chunk().unwrap())
}

/// The number of equal bytes from `a` and from `b` on, where `a < b`. Comparing stops when `b` reaches `end`.
#[inline(always)]
pub(crate) fn common_length(data: &[u8], a: usize, b: usize, end: usize) -> usize {
    let max = end - b;
    let (mut earlier, mut later) = (&data[a..][..max], &data[b..][..max]);
    let mut n = 0;
    while let (Some((x, rest_x)), Some((y, rest_y))) =
        (earlier.split_first_chunk::<8>(), later.split_first_chunk::<8>())
    {
        let difference = u64::from_le_bytes(*x) ^ u64::from_le_bytes(*y);
        if difference != 0 {
            return n + difference.trailing_zeros() as usize / 8;
        }
        n += 8;
        (earlier, later) = (rest_x, rest_y);
    }
    n + earlier.iter().zip(later).take_while(|(x, y)| x == y).count()
}

/// The number of equal bytes before `a` and before `b`, where `a < b`. Comparing stops at `a_start` and `b_start`.
#[inline(always)]
pub(crate) fn common_length_before(
    data: &[u8],
    a: usize,
    b: usize,
    a_start: usize,
    b_start: usize,
) -> usize {
    let max = (a - a_start).min(b - b_start);
    // Most lengths are below eight and hard to predict, so do without a branch for each byte.
    let mut n = 0;
    if a >= LOOKAHEAD {
        let difference = read64(data, a - 8) ^ read64(data, b - 8);
        n = (difference.leading_zeros() as usize / 8).min(max);
        if n < 8 {
            return n;
        }
    }
    while n < max && data[a - n - 1] == data[b - n - 1] {
        n += 1;
    }
    n
}

/// A product whose upper bits serve as hashes of the lowest `BYTES` (3 to 8) bytes of `x`.
#[inline(always)]
pub(crate) fn product<const BYTES: u32>(x: u64) -> u64 {
    x.wrapping_mul(factor::<BYTES>())
}

/// The other factor of [`product`]. It also shifts out the bytes that do not count.
#[inline(always)]
pub(crate) fn factor<const BYTES: u32>() -> u64 {
    0x9e37_79b1_85eb_ca87 << (64 - 8 * BYTES)
}

/// The hash of the lowest `BYTES` bytes of `x`, in `bits` bits.
#[inline(always)]
fn hash<const BYTES: u32>(x: u64, bits: u32) -> usize {
    (product::<BYTES>(x) >> (64 - bits)) as usize
}

/// The slot with `entry` put in front and its last entry dropped.
#[inline(always)]
pub(super) fn shifted<const K: usize>(slot: [u32; K], entry: u32) -> [u32; K] {
    core::array::from_fn(|i| if i == 0 { entry } else { slot[i - 1] })
}

/// The K most recent positions for each hash of `BYTES` bytes in `BITS` bits.
///
/// Positions are kept with an origin added that grows from block to block. Thus entries of earlier blocks are out of
/// range, and the table need not be cleared.
pub(crate) struct Table<const K: usize, const BYTES: u32, const BITS: u32> {
    slots: Vec<[u32; K]>,
    origin: u32,
}

impl<const K: usize, const BYTES: u32, const BITS: u32> Default for Table<K, BYTES, BITS> {
    fn default() -> Self {
        // The first block allocates the slots.
        Self { slots: Vec::new(), origin: u32::MAX }
    }
}

impl<const K: usize, const BYTES: u32, const BITS: u32> Table<K, BYTES, BITS> {
    /// The table's size in bytes.
    pub(crate) const MEMORY: u64 = (4 * K as u64) << BITS;

    /// Allocates the table.
    pub(crate) fn reserve(&mut self) -> Result<(), OutOfMemory> {
        reserve(&mut self.slots, 1 << BITS)
    }

    /// Prepares for a block of `len` bytes.
    pub(crate) fn start(&mut self, len: usize) {
        if self.origin > u32::MAX / 2 - len as u32 {
            self.slots.clear();
            self.slots.resize(1 << BITS, [0; K]);
            self.origin = 1;
        }
    }

    /// Ends the block begun by [`start`](Self::start): its positions are out of range from then on.
    pub(crate) fn finish(&mut self, len: usize) {
        self.origin += len as u32;
    }

    /// Enters positions `from..to`. Each must be entered once, in order.
    #[inline(always)]
    pub(crate) fn enter(&mut self, data: &[u8], from: usize, to: usize) {
        if from >= to {
            return;
        }
        let slots: &mut [[u32; K]] = &mut self.slots[..1 << BITS];
        let mut entry = self.origin + from as u32;
        let mut rest = &data[from..to + LOOKAHEAD - 1];
        let mut enter = |bytes: &[u8; LOOKAHEAD], entry| {
            let slot = &mut slots[hash::<BYTES>(u64::from_le_bytes(*bytes), BITS)];
            *slot = shifted(*slot, entry);
        };
        while let Some(bytes) = rest.first_chunk::<{ LOOKAHEAD + 3 }>() {
            for (i, bytes) in following(bytes).enumerate() {
                enter(bytes, entry + i as u32);
            }
            entry += 4;
            rest = &rest[4..];
        }
        for bytes in following(rest) {
            enter(bytes, entry);
            entry += 1;
        }
    }

    /// Prefetches the slot of these bytes.
    #[inline(always)]
    pub(crate) fn prefetch<P: Probe>(&self, bytes: u64) {
        P::prefetch(&self.slots[..1 << BITS][hash::<BYTES>(bytes, BITS)]);
    }

    /// Enters a position, where `bytes` stand, and returns the previous entries, most recent first, as distances back
    /// from it. A distance of 0, or one that reaches before the position's window, is no candidate.
    #[inline(always)]
    pub(crate) fn exchange(&mut self, bytes: u64, pos: usize) -> [u32; K] {
        let entry = self.origin + pos as u32;
        let slot = &mut self.slots[..1 << BITS][hash::<BYTES>(bytes, BITS)];
        let before = *slot;
        *slot = shifted(before, entry);
        before.map(|e| entry.wrapping_sub(e))
    }
}
