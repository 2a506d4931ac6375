//! Lists all matches worth considering at each position of a chunk, for the optimal parse.
//!
//! A position's candidates come from tables of two short hashes, which find near matches, and from the order of
//! suffixes, which finds the longest. A match is kept if it is longer than all matches at smaller offsets.

use super::buckets::{Buckets, Rings};
use super::candidates::{LOOKAHEAD, Table, common_length, read64};
use super::probe::Probe;
use super::suffixes::Suffixes;
use crate::codec::lz77::stream::spec::MIN_MATCH;
use crate::codec::{OutOfMemory, reserve};
use core::ops::Range;

/// A match that could start at a position, with this length or any shorter one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub offset: u32,
    pub length: u32,
}

/// Three finders, whose candidates are joined: one with a hash of 3 bytes, one with another hash, and the order of
/// suffixes.
#[derive(Default)]
pub(crate) struct Finders {
    three: Table<1, 3, 14>,
    short: Buckets<1, 32, 4, 16>,
    suffixes: Suffixes,
}

impl Finders {
    /// Bytes of memory for a block of `len` bytes.
    pub(crate) fn memory(len: usize) -> u64 {
        Table::<1, 3, 14>::MEMORY + Buckets::<1, 32, 4, 16>::MEMORY + Suffixes::memory(len)
    }

    /// Makes room for a block of `len` bytes.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<(), OutOfMemory> {
        self.three.reserve()?;
        self.short.reserve()?;
        self.suffixes.reserve(len)
    }

    /// Prepares for `block`.
    ///
    /// # Errors
    /// If the system refuses memory.
    pub(crate) fn start(&mut self, block: &[u8]) -> Result<(), OutOfMemory> {
        self.suffixes.sort(block)?;
        self.three.start(block.len());
        self.short.start(block.len());
        Ok(())
    }

    /// The finders, for the present block.
    #[inline(always)]
    fn open(&mut self) -> Open<'_> {
        let Self { three, short, suffixes } = self;
        Open { three, short: short.open(), suffixes }
    }

    /// Ends a block of `len` bytes.
    pub(crate) fn finish(&mut self, len: usize) {
        self.three.finish(len);
    }
}

/// The finders of [`Finders`].
struct Open<'a> {
    three: &'a mut Table<1, 3, 14>,
    short: Rings<'a, 1, 32, 4, 16>,
    suffixes: &'a Suffixes,
}

impl Open<'_> {
    /// Enters `pos`, where `bytes` stand, and appends the distances back to its candidates, those of the suffixes no
    /// farther than `window`. Returns how many distances come before those.
    #[inline(always)]
    fn exchange<P: Probe>(
        &mut self,
        bytes: u64,
        pos: usize,
        window: usize,
        out: &mut Vec<u32>,
    ) -> usize {
        out.extend_from_slice(&self.three.exchange(bytes, pos));
        out.extend(self.short.candidates::<P>(bytes).map(|p| (pos as u32).wrapping_sub(p)));
        self.short.enter(bytes, pos);
        let near = out.len();
        self.suffixes.candidates(pos, window, out);
        near
    }

    /// Brings what is kept for this position, where `bytes` stand, into the cache.
    #[inline(always)]
    fn touch(&self, bytes: u64, pos: usize) -> u32 {
        self.short.touch(bytes) ^ self.suffixes.touch(pos)
    }

    /// Enters positions without looking up their candidates.
    #[inline(always)]
    fn enter(&mut self, data: &[u8], from: usize, to: usize) {
        self.three.enter(data, from, to);
        self.short.enter_all(data, from, to);
    }
}

/// The most candidates that a position keeps: the nearest ones, except that the last gives way to any longer one.
pub(crate) const MAX_LIST: usize = 8;

/// Matches count as no longer than this. The rest of a longer match becomes further matches at the same offset, which
/// are joined later. Thus a candidate fits in a word, and a parse's lookahead fits in the memory of a GPU's workgroup.
pub(crate) const LONGEST: u32 = 256;

/// Beyond this offset a match of three bytes costs more than three literals.
const SHORT_REACH: u32 = 1 << 12;

/// Positions handled together: each step runs for all of them, so that their loads, most of them cache misses, overlap.
const BATCH: usize = 32;

/// The candidates of each position of a chunk.
#[derive(Default)]
pub(crate) struct CandidateLists {
    /// Where each position's list ends.
    ends: Vec<u32>,
    candidates: Vec<Candidate>,
    /// For the positions handled together: the distances to their candidates, and for each candidate the bits in which
    /// its first eight bytes differ from the position's.
    distances: Vec<u32>,
    differences: Vec<u64>,
}

impl CandidateLists {
    /// Makes room for a chunk of `len` bytes.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<(), OutOfMemory> {
        reserve(&mut self.ends, len)?;
        reserve(&mut self.candidates, len * MAX_LIST)
    }

    /// Finds the candidates of `chunk`. The chunks of a block must come in order.
    #[inline(always)]
    pub(crate) fn find<P: Probe>(
        &mut self,
        finders: &mut Finders,
        data: &[u8],
        chunk: Range<usize>,
        window_start: usize,
        nice_length: u32,
    ) {
        let mut finders = finders.open();
        self.ends.clear();
        self.candidates.clear();
        let last = chunk.end.min((data.len() + 1).saturating_sub(LOOKAHEAD));
        let mut ends = [(0, 0); BATCH];
        for start in (chunk.start..last).step_by(BATCH) {
            let stop = last.min(start + BATCH);
            if self.inherit(start, stop, nice_length) {
                finders.enter(data, start, stop);
                continue;
            }
            let touched = (start..stop).fold(0, |t, pos| t ^ finders.touch(read64(data, pos), pos));
            core::hint::black_box(touched);
            self.distances.clear();
            self.differences.clear();
            for (pos, end) in (start..stop).zip(&mut ends) {
                let bytes = read64(data, pos);
                let near =
                    finders.exchange::<P>(bytes, pos, pos - window_start, &mut self.distances);
                *end = (near, self.distances.len());
            }
            let mut first = 0;
            for (pos, &(_, end)) in (start..stop).zip(&ends) {
                let bytes = read64(data, pos);
                let reach = (pos - window_start) as u32;
                self.differences.extend(self.distances[first..end].iter().map(|&distance| {
                    let valid = distance.wrapping_sub(1) < reach;
                    let from = if valid { pos - distance as usize } else { pos };
                    let unequal = if valid { 0 } else { u64::MAX };
                    read64(data, from) ^ bytes | unequal
                }));
                first = end;
            }
            let mut first = 0;
            for (pos, &(near, end)) in (start..stop).zip(&ends) {
                self.list(data, pos, chunk.end, first..near, near..end);
                first = end;
            }
        }
        self.ends.resize(chunk.len(), self.candidates.len() as u32);
    }

    /// If the longest candidate of the position before `start` is so long that what is left of it has at least
    /// `nice_length` bytes at each position up to `stop`, makes the rest of it these positions' only candidate.
    #[inline(always)]
    fn inherit(&mut self, start: usize, stop: usize, nice_length: u32) -> bool {
        let Some(&Candidate { offset, length }) = self.candidates.last() else { return false };
        let is_of_last =
            self.ends.len() >= 2 && self.ends[self.ends.len() - 2] < self.ends[self.ends.len() - 1];
        let len = (stop - start) as u32;
        if !is_of_last || length < len + nice_length {
            return false;
        }
        for i in 1..=len {
            self.candidates.push(Candidate { offset, length: length - i });
            self.ends.push(self.candidates.len() as u32);
        }
        true
    }

    /// Makes the list of the next position from its candidates, given as two runs of increasing distance.
    #[inline(always)]
    fn list(
        &mut self,
        data: &[u8],
        pos: usize,
        chunk_end: usize,
        mut near: Range<usize>,
        mut far: Range<usize>,
    ) {
        let previous = self.ends.len().checked_sub(2).map_or(0, |i| self.ends[i] as usize);
        let first = self.candidates.len();
        let end = chunk_end.min(pos + LONGEST as usize);
        let mut longest = MIN_MATCH - 1;
        // Each kept match must be longer than all nearer ones.
        loop {
            let nearer = match (near.is_empty(), far.is_empty()) {
                (true, true) => break,
                (empty, false)
                    if empty || self.distances[far.start] < self.distances[near.start] =>
                {
                    &mut far
                }
                _ => &mut near,
            };
            let i = nearer.start;
            nearer.start += 1;
            let (offset, difference) = (self.distances[i], self.differences[i]);
            let length = if difference != 0 || end - pos <= 8 {
                (difference.trailing_zeros() / 8).min((end - pos) as u32)
            } else {
                let probe = pos + (longest as usize).saturating_sub(7);
                if probe + 8 > end || read64(data, probe) != read64(data, probe - offset as usize) {
                    continue;
                }
                // A match that the previous position already has continues here, so it need not be compared again.
                let known = self.candidates[previous..first].iter().find(|c| c.offset == offset);
                let equal = known.map_or(8, |c| c.length as usize - 1).max(8).min(end - pos);
                let from = pos + equal;
                (equal + common_length(data, from - offset as usize, from, end)) as u32
            };
            if length > longest && (length > MIN_MATCH || offset <= SHORT_REACH) {
                if self.candidates.len() - first == MAX_LIST {
                    self.candidates.pop();
                }
                self.candidates.push(Candidate { offset, length });
                longest = length;
                if pos + length as usize >= end {
                    break;
                }
            }
        }
        self.ends.push(self.candidates.len() as u32);
    }

    /// The candidates of the chunk's `i`-th position, in increasing order of offset and length.
    #[inline(always)]
    pub(crate) fn get(&self, i: usize) -> &[Candidate] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.candidates[start..self.ends[i] as usize]
    }
}
