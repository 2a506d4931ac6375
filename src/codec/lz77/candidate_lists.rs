//! All matches worth considering at each position of a chunk, for the optimal parse.
//!
//! A position's candidates are those of several tables with hashes of different lengths: short hashes find what is
//! near, long ones what is far. Of the matches they lead to, those remain that are longer than every one at a smaller
//! offset.

use super::candidates::{LOOKAHEAD, Table, common_length, read64};
use super::spec::{MAX_MATCH, MIN_MATCH};
use core::ops::Range;

/// A match that a position could take, of its length or any shorter one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub offset: u32,
    pub length: u32,
}

/// Tables whose candidates are taken together.
pub(crate) trait Tables: Default {
    /// Their size in bytes.
    const MEMORY: u64;
    /// Several distances.
    type Distances: AsRef<[u32]> + Default + Copy;
    /// As many differences.
    type Differences: AsRef<[u64]> + AsMut<[u64]> + Default + Copy;
    /// Gets ready for a block of `len` bytes.
    fn start(&mut self, len: usize);
    /// Enters `pos`, where `bytes` stand, and returns the distances back to its candidates.
    fn exchange(&mut self, bytes: u64, pos: usize) -> Self::Distances;
    /// Ends a block of `len` bytes.
    fn finish(&mut self, len: usize);
}

/// An array with a default of any length.
#[derive(Clone, Copy)]
pub(crate) struct Array<T, const N: usize>([T; N]);

impl<T: Default + Copy, const N: usize> Default for Array<T, N> {
    fn default() -> Self {
        Self([T::default(); N])
    }
}

impl<T, const N: usize> AsRef<[T]> for Array<T, N> {
    fn as_ref(&self) -> &[T] {
        &self.0
    }
}

impl<T, const N: usize> AsMut<[T]> for Array<T, N> {
    fn as_mut(&mut self) -> &mut [T] {
        &mut self.0
    }
}

/// Hashes of 3 bytes (the latest position), 4 bytes (the latest `A`), 6 bytes (`B`) and 8 bytes (`C`).
#[derive(Default)]
pub(crate) struct FourHashes<const A: usize, const B: usize, const C: usize, const N: usize> {
    three: Table<1, 3, 14>,
    four: Table<A, 4, 16>,
    six: Table<B, 6, 17>,
    eight: Table<C, 8, 17>,
}

impl<const A: usize, const B: usize, const C: usize, const N: usize> Tables
    for FourHashes<A, B, C, N>
{
    const MEMORY: u64 = Table::<1, 3, 14>::MEMORY
        + Table::<A, 4, 16>::MEMORY
        + Table::<B, 6, 17>::MEMORY
        + Table::<C, 8, 17>::MEMORY;
    type Distances = Array<u32, N>;
    type Differences = Array<u64, N>;

    fn start(&mut self, len: usize) {
        self.three.start(len);
        self.four.start(len);
        self.six.start(len);
        self.eight.start(len);
    }

    #[inline(always)]
    fn exchange(&mut self, bytes: u64, pos: usize) -> Array<u32, N> {
        const { assert!(N == 1 + A + B + C) }
        let mut all = [0; N];
        all[0] = self.three.exchange(bytes, pos)[0];
        all[1..=A].copy_from_slice(&self.four.exchange(bytes, pos));
        all[1 + A..][..B].copy_from_slice(&self.six.exchange(bytes, pos));
        all[1 + A + B..].copy_from_slice(&self.eight.exchange(bytes, pos));
        Array(all)
    }

    fn finish(&mut self, len: usize) {
        self.three.finish(len);
        self.four.finish(len);
        self.six.finish(len);
        self.eight.finish(len);
    }
}

/// Beyond this offset a match of three bytes costs more than three literals.
const SHORT_REACH: u32 = 1 << 12;

/// Positions looked at together: each step is done for all of them, so that their loads, most of them cache misses, go
/// on at the same time.
const BATCH: usize = 32;

/// The candidates of each position of a chunk.
#[derive(Default)]
pub(crate) struct CandidateLists {
    /// Where each position's list ends.
    ends: Vec<u32>,
    candidates: Vec<Candidate>,
}

impl CandidateLists {
    /// Finds the candidates of `chunk`, whose chunks come in order.
    #[inline(never)]
    pub(crate) fn find<T: Tables>(
        &mut self,
        tables: &mut T,
        data: &[u8],
        chunk: Range<usize>,
        window_start: usize,
    ) {
        self.ends.clear();
        self.candidates.clear();
        let last = chunk.end.min((data.len() + 1).saturating_sub(LOOKAHEAD));
        let mut found = [(T::Distances::default(), T::Differences::default()); BATCH];
        for start in (chunk.start..last).step_by(BATCH) {
            let batch = &mut found[..BATCH.min(last - start)];
            for (i, (distances, _)) in batch.iter_mut().enumerate() {
                *distances = tables.exchange(read64(data, start + i), start + i);
            }
            for (i, (distances, differences)) in batch.iter_mut().enumerate() {
                let pos = start + i;
                let bytes = read64(data, pos);
                let reach = (pos - window_start) as u32;
                for (&distance, difference) in distances.as_ref().iter().zip(differences.as_mut()) {
                    let valid = distance.wrapping_sub(1) < reach;
                    let from = if valid { pos - distance as usize } else { pos };
                    let unequal = if valid { 0 } else { u64::MAX };
                    *difference = read64(data, from) ^ bytes | unequal;
                }
            }
            for (i, (distances, differences)) in batch.iter().enumerate() {
                self.list(data, start + i, chunk.end, distances.as_ref(), differences.as_ref());
            }
        }
        self.ends.resize(chunk.len(), self.candidates.len() as u32);
    }

    /// Makes the list of the next position from the distances of its candidates and the bits in which their first eight
    /// bytes differ.
    #[inline(always)]
    fn list(
        &mut self,
        data: &[u8],
        pos: usize,
        chunk_end: usize,
        distances: &[u32],
        differences: &[u64],
    ) {
        let previous = self.ends.len().checked_sub(2).map_or(0, |i| self.ends[i] as usize);
        let first = self.candidates.len();
        let mut list = List { candidates: [Candidate { offset: 0, length: 0 }; 32], len: 0 };
        let end = chunk_end.min(pos + MAX_MATCH as usize);
        for (&offset, &difference) in distances.iter().zip(differences) {
            if difference << 40 != 0 {
                continue;
            }
            let length = if difference != 0 {
                (difference.trailing_zeros() / 8).min((end - pos) as u32)
            } else {
                // A match goes on as it did a position before, and so without being compared again.
                let known = self.candidates[previous..first].iter().find(|c| c.offset == offset);
                let equal = known.map_or(8, |c| c.length as usize - 1).max(8).min(end - pos);
                let from = pos + equal;
                (equal + common_length(data, from - offset as usize, from, end)) as u32
            };
            if length > MIN_MATCH || (length == MIN_MATCH && offset <= SHORT_REACH) {
                list.insert(Candidate { offset, length });
            }
        }
        self.candidates.extend_from_slice(&list.candidates[..list.len]);
        self.ends.push(self.candidates.len() as u32);
    }

    /// The candidates of the chunk's `i`-th position, by increasing offset and length.
    #[inline(always)]
    pub(crate) fn get(&self, i: usize) -> &[Candidate] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.candidates[start..self.ends[i] as usize]
    }
}

/// A list in the making.
struct List {
    candidates: [Candidate; 32],
    len: usize,
}

impl List {
    /// Adds a candidate, unless it is no longer than one at a smaller offset, and drops those that it makes useless.
    #[inline(always)]
    fn insert(&mut self, new: Candidate) {
        let mut place = self.len;
        while place > 0 && self.candidates[place - 1].offset > new.offset {
            place -= 1;
        }
        if place > 0 && self.candidates[place - 1].length >= new.length {
            return;
        }
        let mut kept = place;
        while kept < self.len && self.candidates[kept].length <= new.length {
            kept += 1;
        }
        let rest = kept..self.len;
        self.len = place + 1 + rest.len();
        self.candidates.copy_within(rest, place + 1);
        self.candidates[place] = new;
    }
}
