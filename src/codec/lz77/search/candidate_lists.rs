//! Lists all matches worth considering at each position of a chunk, for the optimal parse.
//!
//! A position's candidates come from tables of two short hashes, which find near matches, and from the order of
//! suffixes, which finds the longest. A match is kept if it is longer than all matches at smaller offsets.

use super::candidates::{LOOKAHEAD, Table, read64};
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

/// Room for a position's candidates, at most [`MAX_LIST`].
const LANES: usize = 8;

/// The distances back from a position to its candidates, in increasing order. Distances that are too far count as no
/// candidate.
type Distances = [u32; LANES];

/// `distances` with one more in place of the farthest.
#[inline(always)]
fn with(distances: Distances, one: u32) -> Distances {
    core::array::from_fn(|i| {
        let before = if i == 0 { 0 } else { distances[i - 1] };
        distances[i].min(one.max(before))
    })
}

/// Three finders, whose candidates are joined: one with a hash of 3 bytes, one with a hash of 4 bytes, and the order of
/// suffixes.
#[derive(Default)]
pub(crate) struct Finders {
    three: Table<1, 3, 14>,
    four: Table<4, 4, 16>,
    suffixes: Suffixes,
}

/// The most candidates of a position: one and four from the tables, and one from each side of its suffix.
const MAX_LIST: usize = 1 + 4 + 2;

impl Finders {
    /// Bytes of memory for a block of `len` bytes.
    pub(crate) fn memory(len: usize) -> u64 {
        Table::<1, 3, 14>::MEMORY + Table::<4, 4, 16>::MEMORY + Suffixes::memory(len)
    }

    /// Makes room for a block of `len` bytes.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<(), OutOfMemory> {
        self.three.reserve()?;
        self.four.reserve()?;
        self.suffixes.reserve(len)
    }

    /// Prepares for `block`.
    ///
    /// # Errors
    /// If the system refuses memory.
    pub(crate) fn start(&mut self, block: &[u8]) -> Result<(), OutOfMemory> {
        self.suffixes.sort(block)?;
        self.three.start(block.len());
        self.four.start(block.len());
        Ok(())
    }

    /// Ends a block of `len` bytes.
    pub(crate) fn finish(&mut self, len: usize) {
        self.three.finish(len);
        self.four.finish(len);
    }

    /// Enters `pos`, where `bytes` stand, and returns its candidates, those from the suffixes only up to `reach`.
    #[inline(always)]
    fn exchange(&mut self, bytes: u64, pos: usize, reach: usize) -> Distances {
        let mut distances = [u32::MAX; LANES];
        distances[..4].copy_from_slice(&self.four.exchange(bytes, pos));
        let [three] = self.three.exchange(bytes, pos);
        let [before, after] = self.suffixes.candidates(pos, reach);
        [three, before, after].into_iter().fold(distances, with)
    }

    /// Prefetches the entries for this position, where `bytes` stand.
    #[inline(always)]
    fn prefetch<P: Probe>(&self, bytes: u64, pos: usize) {
        self.four.prefetch::<P>(bytes);
        self.suffixes.prefetch::<P>(pos);
    }

    /// Enters positions without looking up their candidates.
    #[inline(always)]
    fn enter(&mut self, data: &[u8], from: usize, to: usize) {
        self.three.enter(data, from, to);
        self.four.enter(data, from, to);
    }
}

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
    /// The lists, and after them entries that later lists overwrite.
    candidates: Vec<Candidate>,
}

impl CandidateLists {
    /// Room for all lists of a chunk of `len` bytes. Each list is written with all lanes.
    const fn room(len: usize) -> usize {
        len * MAX_LIST + LANES
    }

    /// Bytes of memory for a chunk of `len` bytes.
    pub(crate) fn memory(len: usize) -> u64 {
        (4 * len + size_of::<Candidate>() * Self::room(len)) as u64
    }

    /// Makes room for a chunk of `len` bytes.
    pub(crate) fn reserve(&mut self, len: usize) -> Result<(), OutOfMemory> {
        reserve(&mut self.ends, len)?;
        reserve(&mut self.candidates, Self::room(len))
    }

    /// Finds the candidates of `chunk`. The chunks of a block must come in order. Positions inherit a match with at
    /// least `inherited_length` bytes left.
    #[inline(always)]
    pub(crate) fn find<P: Probe>(
        &mut self,
        finders: &mut Finders,
        data: &[u8],
        chunk: Range<usize>,
        window_start: usize,
        inherited_length: u32,
    ) {
        self.ends.clear();
        if self.candidates.len() < Self::room(chunk.len()) {
            self.candidates.resize(Self::room(chunk.len()), Candidate { offset: 0, length: 0 });
        }
        let last = chunk.end.min((data.len() + 1).saturating_sub(LOOKAHEAD));
        let mut distances = [[0; LANES]; BATCH];
        for start in (chunk.start..last).step_by(BATCH) {
            let stop = last.min(start + BATCH);
            if self.inherit(start, stop, inherited_length) {
                finders.enter(data, start, stop);
                continue;
            }
            for pos in start..stop {
                finders.prefetch::<P>(read64(data, pos), pos);
            }
            for (pos, distances) in (start..stop).zip(&mut distances) {
                let reach = pos - window_start;
                *distances = finders.exchange(read64(data, pos), pos, reach);
                for &distance in &*distances {
                    let distance = distance as usize;
                    P::prefetch(&data[if distance <= reach { pos - distance } else { pos }]);
                }
            }
            for (pos, distances) in (start..stop).zip(&distances) {
                let end = chunk.end.min(pos + LONGEST as usize);
                let (_, lengths) = P::lengths(data, pos, 0, distances, pos - window_start, end);
                self.push(distances, &lengths);
            }
        }
        let end = self.end();
        self.ends.resize(chunk.len(), end);
    }

    /// Where the last list ends.
    #[inline(always)]
    fn end(&self) -> u32 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// If the longest candidate of the position before `start` leaves at least `shortest` bytes at each position up to
    /// `stop`, makes the rest of it these positions' only candidate.
    #[inline(always)]
    fn inherit(&mut self, start: usize, stop: usize, shortest: u32) -> bool {
        let Some(before) = self.ends.len().checked_sub(1) else { return false };
        let Some(&Candidate { offset, length }) = self.get(before).last() else { return false };
        let len = (stop - start) as u32;
        if length < len + shortest {
            return false;
        }
        let end = self.end();
        for i in 1..=len {
            self.candidates[(end + i) as usize - 1] = Candidate { offset, length: length - i };
            self.ends.push(end + i);
        }
        true
    }

    /// Makes the list of the next position from its candidates.
    #[inline(always)]
    fn push(&mut self, distances: &Distances, lengths: &[usize; LANES]) {
        let end = self.end();
        let list: &mut [Candidate; LANES] =
            self.candidates[end as usize..].first_chunk_mut().unwrap();
        // Which candidates are kept is unpredictable, so this has no branches.
        let (mut kept, mut longest) = (0, MIN_MATCH - 1);
        for (&offset, &length) in distances.iter().zip(lengths) {
            let length = length as u32;
            list[kept % LANES] = Candidate { offset, length };
            let is_kept = length > longest && (length > MIN_MATCH || offset <= SHORT_REACH);
            longest = if is_kept { length } else { longest };
            kept += usize::from(is_kept);
        }
        self.ends.push(end + kept as u32);
    }

    /// The candidates of the chunk's `i`-th position, in increasing order of offset and length.
    #[inline(always)]
    pub(crate) fn get(&self, i: usize) -> &[Candidate] {
        let start = if i == 0 { 0 } else { self.ends[i - 1] as usize };
        &self.candidates[start..self.ends[i] as usize]
    }
}
