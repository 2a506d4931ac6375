//! The Burrows-Wheeler transform and its second stage.
//!
//! This gives the best ratio that still decodes in parallel. A block is transformed (`sort`); the transform is cut into
//! runs, and the runs into segments (`runs`). Each segment is one rANS stream (`segments`). Its tables (`tables`)
//! belong to the block; for each run, the earlier runs of its symbol in that segment choose one (`spec`). Segments
//! decode independently, up to a renaming of symbols, and the inverse transform (`inverse`) starts at many stored rows,
//! so a GPU has thousands of independent lanes in both stages. [`format::bwt`](mod@crate::format::bwt) describes the
//! payload.

mod binary;
mod choose;
mod inverse;
#[cfg(test)]
mod oracle;
mod payload;
mod runs;
mod segments;
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
mod simd;
pub(crate) mod sort;
mod spec;
mod tables;
#[cfg(test)]
mod tests;

use core::ops::Range;

use super::{Malformed, OutOfMemory, reserve};
use payload::{Layout, SegmentEntry};
use spec::CONTEXTS;
use tables::{Set, Tables, WIDTH};

/// The longest block that can be encoded, and the longest that a decoder accepts.
pub const MAX_BLOCK_LEN: usize = 64 << 20;

/// The parameters of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// A segment has at least `1 << segment_log` bytes, unless it has many runs. 10 to 16: small segments give a GPU
    /// more lanes, large ones compress better.
    pub segment_log: u8,
    /// One row is stored for every `1 << start_log` bytes. 8 to 23.
    pub start_log: u8,
}

impl Default for Params {
    fn default() -> Self {
        Self { segment_log: 14, start_log: 14 }
    }
}

/// Encodes blocks. It keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Encoder {
    /// First the suffix sorter's array, later two words for each run.
    scratch: Vec<i32>,
    bwt: Vec<u8>,
    rows: Vec<i32>,
    segments: Vec<runs::Segment>,
    counts: choose::SegmentCounts,
    groups: Vec<u8>,
    directory: Vec<SegmentEntry>,
    words: Vec<u32>,
    stack: segments::Stack,
}

impl Encoder {
    /// An encoder without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The most memory, in bytes, that encoding a block of this length takes, without the block and the payload.
    pub fn memory(params: &Params, block_len: usize) -> u64 {
        let len = block_len as u64;
        let segments = (len >> params.segment_log.min(13)) + 1;
        let rows = (len >> params.start_log) + 1;
        // Two words for each run (more than libsais needs), the transform, the coded words, the counts, each with room
        // to grow, and everything of fixed size.
        8 * len
            + len
            + 3 * len
            + 2 * len
            + segments * 2 * 400
            + rows * 4
            + (1 << 20)
            + sort::extra_memory(block_len)
    }

    /// Appends the payload of `block` to `out`.
    ///
    /// # Panics
    ///
    /// If the block is longer than [`MAX_BLOCK_LEN`], a parameter is outside its range, or the system refuses memory.
    pub fn encode(&mut self, params: &Params, block: &[u8], out: &mut Vec<u8>) {
        if let Err(OutOfMemory { bytes }) = self.try_encode(params, block, out) {
            panic!("the system refused {bytes} bytes of memory");
        }
    }

    /// Appends the payload of `block` to `out`. If the system refuses memory, leaves `out` as it was and returns an
    /// error.
    pub(crate) fn try_encode(
        &mut self,
        params: &Params,
        block: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), OutOfMemory> {
        assert!(block.len() <= MAX_BLOCK_LEN, "block too long for this codec");
        assert!((10..=16).contains(&params.segment_log), "segment_log out of range");
        assert!((8..=23).contains(&params.start_log), "start_log out of range");
        if block.is_empty() {
            return Ok(());
        }
        let len = block.len();
        fit(&mut self.bwt, len)?;
        if self.scratch.len() < sort::scratch_len(len) {
            fit(&mut self.scratch, sort::scratch_len(len))?;
        }
        let start_log = u32::from(params.start_log);
        sort::transform(block, start_log, &mut self.bwt, &mut self.rows, &mut self.scratch)?;

        let run_count = runs::count(&self.bwt);
        if self.scratch.len() < 2 * run_count {
            fit(&mut self.scratch, 2 * run_count)?;
        }
        // Enough even for data that does not shrink, with rare exceptions.
        reserve(&mut self.words, len / 4 + len / 32)?;
        reserve(&mut self.segments, (len >> params.segment_log) + 1)?;
        let runs: &mut [runs::SymbolRun] =
            bytemuck::cast_slice_mut(&mut self.scratch[..2 * run_count]);
        let segment_log = u32::from(params.segment_log);
        let used = runs::split(&self.bwt, segment_log, runs, &mut self.segments);

        let mut counts = Box::new([[0; WIDTH]; CONTEXTS]);
        self.counts.start(self.segments.len(), len)?;
        self.directory.clear();
        for (segment, range, end) in segments_of(&self.segments, run_count, len) {
            let runs = &mut runs[range];
            let bytes = end - segment.begin;
            segments::count(&segment.list, runs, &mut counts);
            self.counts.push(&mut counts, runs.len(), bytes);
            self.directory.push(SegmentEntry { len: bytes, words: 0, set: 0 });
        }
        let sums = self.counts.group(&mut self.groups);
        let mut sets: Vec<_> = sums.iter().map(|counts| choose::tables(counts)).collect();
        let tables: Vec<Tables> = sets.iter().map(Set::tables).collect();

        self.words.clear();
        for (i, (_, range, _)) in segments_of(&self.segments, run_count, len).enumerate() {
            let (before, set) = (self.words.len(), self.groups[i]);
            let tables = &tables[usize::from(set)];
            segments::write(&runs[range], tables, &mut self.words, &mut self.stack);
            self.directory[i].words = self.words.len() - before;
            self.directory[i].set = set;
        }
        let layout = Layout {
            params: *params,
            list: &self.segments[0].list[..used],
            rows: bytemuck::cast_slice(&self.rows),
            directory: &self.directory,
            sets: &mut sets,
        };
        layout.write(len, out);
        out.extend(self.words.iter().flat_map(|w| w.to_le_bytes()));
        Ok(())
    }
}

/// Makes a vector `len` long, with no more memory than that needs. Its contents are not kept.
fn fit<T: Copy + Default>(vec: &mut Vec<T>, len: usize) -> Result<(), OutOfMemory> {
    reserve(vec, len)?;
    vec.resize(len, T::default());
    Ok(())
}

/// The panic message where [`Decoder::reserve`] must have made room.
const MEMORY: &str = "the system gives the memory that a decoder needs";

/// Each segment with the range of its runs and its end in the block.
fn segments_of(
    segments: &[runs::Segment],
    run_count: usize,
    len: usize,
) -> impl Iterator<Item = (&runs::Segment, Range<usize>, usize)> {
    let ends = segments.iter().skip(1).map(|s| (s.first_run, s.begin)).chain([(run_count, len)]);
    segments.iter().zip(ends).map(|(s, (last_run, end))| (s, s.first_run..last_run, end))
}

/// Decodes payloads. It keeps its memory from one to the next.
#[derive(Debug, Default)]
pub struct Decoder {
    bwt: Vec<u8>,
    words: Vec<u32>,
    rows: Vec<u32>,
    directory: Vec<SegmentEntry>,
    inverse: inverse::Inverse,
}

impl Decoder {
    /// A decoder without memory yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The most memory, in bytes, that decoding a block of this length takes, without the block and the payload.
    pub fn memory(block_len: usize) -> u64 {
        let len = block_len as u64;
        // Links and pairs, the transform, the words of a payload (which is shorter than the block), rows, directory,
        // and everything of fixed size.
        8 * len + len + len + len / 64 + len / 16 + (1 << 20)
    }

    /// Makes room for decoding a payload of `payload_len` bytes into a block of `len` bytes.
    pub(crate) fn reserve(&mut self, payload_len: usize, len: usize) -> Result<(), OutOfMemory> {
        reserve(&mut self.words, payload_len / 4)?;
        reserve(&mut self.bwt, len)?;
        self.inverse.reserve(len)
    }

    /// Decodes a payload into `block`, which must have the block's exact length.
    ///
    /// # Panics
    ///
    /// If the system refuses memory.
    ///
    /// # Errors
    ///
    /// If the payload breaks a rule of the format. The contents of `block` are then unspecified.
    pub fn decode(&mut self, payload: &[u8], block: &mut [u8]) -> Result<(), Malformed> {
        let len = block.len();
        if len > MAX_BLOCK_LEN {
            return Err(Malformed("block too long for the BWT codec"));
        }
        if len == 0 {
            return if payload.is_empty() {
                Ok(())
            } else {
                Err(Malformed("empty block has a payload"))
            };
        }
        let start_log = self.read_transform(payload, len, segments::fastest())?;
        self.inverse.run(&self.bwt, &self.rows, start_log, block)
    }

    /// Reads everything except the block: the transform and the rows. Returns the base-2 logarithm of the distance
    /// between stored rows.
    fn read_transform(
        &mut self,
        payload: &[u8],
        len: usize,
        read: segments::Read,
    ) -> Result<u32, Malformed> {
        let header = payload::read(payload, len, &mut self.rows, &mut self.directory)?;
        let tables: Vec<Tables> = header.sets.iter().map(Set::tables).collect();
        fit(&mut self.words, header.words.len() / 4).expect(MEMORY);
        for (word, bytes) in self.words.iter_mut().zip(header.words.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        fit(&mut self.bwt, len).expect(MEMORY);
        let mut list = header.list;
        let (mut begin, mut word) = (0, 0);
        for entry in &self.directory {
            let words = &self.words[word..word + entry.words];
            let end = begin + entry.len;
            read(words, &tables[usize::from(entry.set)], &mut list, &mut self.bwt, begin..end)?;
            (begin, word) = (end, word + entry.words);
        }
        Ok(u32::from(header.params.start_log))
    }
}
