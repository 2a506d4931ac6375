//! Looks up many candidates for each position; those that do not match cost little. For the levels that search long.

use super::candidates::{LOOKAHEAD, following};
use super::probe::Probe;
use crate::codec::{OutOfMemory, reserve};
use core::marker::PhantomData;

/// A table that finds candidates.
pub(crate) trait Finder: Default {
    /// The table's size in bytes.
    const MEMORY: u64;
    /// Several distances, the smallest first.
    type Distances: AsRef<[u32]>;
    /// Allocates the table.
    fn reserve(&mut self) -> Result<(), OutOfMemory>;
    /// Prepares for a block of `len` bytes.
    fn start(&mut self, len: usize);
    /// Begins to bring what is kept for these bytes into the cache.
    fn prefetch<P: Probe>(&self, bytes: u64);
    /// Enters positions without looking up their candidates.
    fn enter(&mut self, data: &[u8], from: usize, to: usize);
    /// Reads the entries that [`candidates`](Self::candidates) will read for these bytes, which brings them into the
    /// cache. Called for several positions in a row, so that their cache misses overlap. The result has no meaning.
    fn touch(&self, bytes: u64) -> u32;
    /// Enters `pos`, where `bytes` stand, and returns the distances back to its candidates.
    fn candidates(&mut self, bytes: u64, pos: usize) -> Self::Distances;
    /// Ends a block of `len` bytes.
    fn finish(&mut self, len: usize);
}

/// Distances back to candidates, the most recent first.
#[derive(Clone, Copy)]
pub(crate) struct Distances<const K: usize> {
    distances: [u32; K],
    len: usize,
}

impl<const K: usize> AsRef<[u32]> for Distances<K> {
    #[inline(always)]
    fn as_ref(&self) -> &[u32] {
        &self.distances[..self.len]
    }
}

/// Rows that begin where a line of the cache does, or several in a line: no row lies in more lines than it must.
struct Lines<T> {
    lines: Vec<Line>,
    row: PhantomData<T>,
}

#[derive(Clone, Copy, bytemuck::Zeroable, bytemuck::Pod)]
#[repr(C, align(64))]
struct Line([u8; 64]);

impl<T> Default for Lines<T> {
    fn default() -> Self {
        Self { lines: Vec::new(), row: PhantomData }
    }
}

impl<T: bytemuck::Pod> Lines<T> {
    fn reserve(&mut self, rows: usize) -> Result<(), OutOfMemory> {
        reserve(&mut self.lines, rows * size_of::<T>() / size_of::<Line>())
    }

    /// Makes `rows` rows of zeros.
    fn zero(&mut self, rows: usize) {
        self.lines.clear();
        self.lines.resize(rows * size_of::<T>() / size_of::<Line>(), Line([0; 64]));
    }

    #[inline(always)]
    fn row(&self, row: usize) -> &T {
        &bytemuck::cast_slice(&self.lines)[row]
    }

    #[inline(always)]
    fn row_mut(&mut self, row: usize) -> &mut T {
        &mut bytemuck::cast_slice_mut(&mut self.lines)[row]
    }
}

/// The `8 * G` most recent positions for each hash of `BYTES` bytes in `BITS` bits.
///
/// Beside each position stands a *tag*, eight more bits of the hash. A position with another tag cannot match, and
/// eight tags are compared at a time, without fetching the bytes at those positions.
#[derive(Default)]
pub(crate) struct Buckets<const G: usize, const K: usize, const BYTES: u32, const BITS: u32> {
    tags: Lines<[u64; G]>,
    positions: Lines<[u32; K]>,
    /// Index of each bucket's oldest position.
    heads: Vec<u8>,
    origin: u32,
}

impl<const G: usize, const K: usize, const BYTES: u32, const BITS: u32> Buckets<G, K, BYTES, BITS> {
    /// The bucket and the tag of the bytes at a position.
    #[inline(always)]
    fn hash(bytes: u64) -> (usize, u8) {
        const PRIME: u64 = 0x9e37_79b1_85eb_ca87;
        let x = (bytes << (64 - 8 * BYTES)).wrapping_mul(PRIME);
        ((x >> (64 - BITS)) as usize, (x >> (56 - BITS)) as u8)
    }

    #[inline(always)]
    fn put(&mut self, bucket: usize, tag: u8, pos: usize) {
        let head = &mut self.heads[bucket];
        let i = usize::from(*head) % K;
        *head = head.wrapping_add(1);
        let shift = i % 8 * 8;
        let word = &mut self.tags.row_mut(bucket)[i / 8];
        *word = *word & !(255 << shift) | u64::from(tag) << shift;
        self.positions.row_mut(bucket)[i] = self.origin + pos as u32;
    }
}

impl<const G: usize, const K: usize, const BYTES: u32, const BITS: u32> Finder
    for Buckets<G, K, BYTES, BITS>
{
    const MEMORY: u64 = ((8 * G + 4 * K + 1) as u64) << BITS;
    type Distances = Distances<K>;

    fn reserve(&mut self) -> Result<(), OutOfMemory> {
        self.tags.reserve(1 << BITS)?;
        self.positions.reserve(1 << BITS)?;
        reserve(&mut self.heads, 1 << BITS)
    }

    fn start(&mut self, len: usize) {
        const { assert!(8 * G == K && 256 % K == 0) }
        if self.heads.is_empty() || self.origin > u32::MAX / 2 - len as u32 {
            self.tags.zero(1 << BITS);
            self.positions.zero(1 << BITS);
            self.heads.clear();
            self.heads.resize(1 << BITS, 0);
            self.origin = 1;
        }
    }

    #[inline(always)]
    fn enter(&mut self, data: &[u8], from: usize, to: usize) {
        if from >= to {
            return;
        }
        for (bytes, pos) in following(&data[from..to + LOOKAHEAD - 1]).zip(from..) {
            let (bucket, tag) = Self::hash(u64::from_le_bytes(*bytes));
            self.put(bucket, tag, pos);
        }
    }

    #[inline(always)]
    fn prefetch<P: Probe>(&self, bytes: u64) {
        let (bucket, _) = Self::hash(bytes);
        P::prefetch(self.tags.row(bucket));
        for line in self.positions.row(bucket).chunks(16) {
            P::prefetch(&line[0]);
        }
    }

    #[inline(always)]
    fn touch(&self, bytes: u64) -> u32 {
        let (bucket, _) = Self::hash(bytes);
        let positions = self.positions.row(bucket);
        self.tags.row(bucket)[0] as u32 ^ positions[0] ^ positions[K / 2] ^ positions[K - 1]
    }

    #[inline(always)]
    fn candidates(&mut self, bytes: u64, pos: usize) -> Distances<K> {
        let (bucket, tag) = Self::hash(bytes);
        let mut equal = 0u64;
        for (g, &word) in self.tags.row(bucket).iter().enumerate() {
            const LOW: u64 = 0x7f7f_7f7f_7f7f_7f7f;
            let x = word ^ (u64::from(tag) * 0x0101_0101_0101_0101);
            // The top bit of each zero byte, then these bits side by side.
            let zero = !(((x & LOW) + LOW) | x | LOW) >> 7;
            equal |= (zero.wrapping_mul(0x0102_0408_1020_4080) >> 56) << (8 * g);
        }
        // Most recent first: turn the bits so that bit i is the i-th oldest position, and take the highest bit first.
        let head = u32::from(self.heads[bucket]) % K as u32;
        let bits = K as u32;
        let mut equal = (equal << ((bits - head) % 64) | equal >> head) & (u64::MAX >> (64 - bits));
        let mut found = Distances { distances: [0; K], len: 0 };
        let here = self.origin + pos as u32;
        while equal != 0 {
            let i = equal.ilog2();
            equal ^= 1 << i;
            found.distances[found.len % K] =
                here.wrapping_sub(self.positions.row(bucket)[((i + head) % bits) as usize]);
            found.len += 1;
        }
        self.put(bucket, tag, pos);
        found
    }

    fn finish(&mut self, len: usize) {
        self.origin += len as u32;
    }
}
