//! The head of a payload: the lengths of chunks, windows and groups, and the place of each chunk's record.

use crate::codec::Malformed;
use crate::codec::lz77::{MAX_BLOCK, MAX_CHUNK_LOG, MIN_CHUNK_LOG, Params};
use core::ops::Range;

/// The division of a block. On disk: four bytes, `chunk_log`, `window_log`, `group_log` and 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Header {
    /// Length of a chunk, the unit of lane streams.
    pub chunk_log: u8,
    /// Length of a window, which no match leaves; at least a chunk's.
    pub window_log: u8,
    /// Chunks that share tables.
    pub group_log: u8,
}

impl Header {
    pub(crate) const BYTES: usize = 4;

    pub(crate) fn new(params: &Params, block_len: usize) -> Self {
        // A short block needs no window longer than itself. Its header then shows how little memory it takes.
        let needed = (block_len.next_power_of_two().ilog2() as u8).max(MIN_CHUNK_LOG);
        let chunk_log = params.chunk_log.min(needed);
        Self {
            chunk_log,
            window_log: params.window_log.min(needed).max(chunk_log),
            group_log: params.group_log,
        }
    }

    pub(crate) fn chunk_count(&self, block_len: usize) -> usize {
        block_len.div_ceil(1 << self.chunk_log)
    }

    /// The start of the window of the chunk at `pos`.
    pub(crate) fn window_start(&self, pos: usize) -> usize {
        pos >> self.window_log << self.window_log
    }

    /// Bytes of a full group.
    pub(crate) fn group_len(&self) -> usize {
        1 << (self.chunk_log + self.group_log)
    }

    /// The groups of a block.
    pub(crate) fn groups(self, block_len: usize) -> impl Iterator<Item = Range<usize>> {
        let step = self.group_len();
        (0..block_len).step_by(step).map(move |s| s..(s + step).min(block_len))
    }

    /// The chunks of a group.
    pub(crate) fn chunks(self, group: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let (step, end) = (1 << self.chunk_log, group.end);
        group.step_by(step).map(move |s| s..(s + step).min(end))
    }

    /// Appends the header and an empty directory, and returns where the first entry goes.
    pub(crate) fn write(&self, block_len: usize, out: &mut Vec<u8>) -> usize {
        out.extend_from_slice(&[self.chunk_log, self.window_log, self.group_log, 0]);
        let first = out.len();
        out.resize(first + ChunkEntry::BYTES * self.chunk_count(block_len), 0);
        first
    }

    /// Reads the header. Returns it with the bytes of the directory and the records after it.
    pub(crate) fn read(
        payload: &[u8],
        block_len: usize,
    ) -> Result<(Self, &[u8], &[u8]), Malformed> {
        let Some((&[chunk_log, window_log, group_log, reserved], rest)) =
            payload.split_first_chunk::<{ Self::BYTES }>()
        else {
            return Err(Malformed("LZ77 header is cut short"));
        };
        let header = Self { chunk_log, window_log, group_log };
        let valid = reserved == 0
            && (MIN_CHUNK_LOG..=MAX_CHUNK_LOG).contains(&chunk_log)
            && (chunk_log..=MAX_BLOCK.ilog2() as u8).contains(&window_log)
            && group_log <= Params::MAX_GROUP_LOG;
        if !valid {
            return Err(Malformed("LZ77 header is invalid"));
        }
        let (directory, records) = rest
            .split_at_checked(header.chunk_count(block_len) * ChunkEntry::BYTES)
            .ok_or(Malformed("LZ77 directory is cut short"))?;
        Ok((header, directory, records))
    }
}

/// A chunk's entry in the directory. On disk: a little-endian word of 64 bits, with `words` in the low 22, `literals`
/// in the next 21, and `sequences` in the top 21.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ChunkEntry {
    /// Length of its record in 32-bit words.
    pub words: usize,
    pub literals: usize,
    pub sequences: usize,
}

impl ChunkEntry {
    pub(crate) const BYTES: usize = 8;

    pub(crate) fn pack(self) -> u64 {
        debug_assert!(self.words < 1 << 22 && self.literals < 1 << 21 && self.sequences < 1 << 21);
        self.words as u64 | (self.literals as u64) << 22 | (self.sequences as u64) << 43
    }

    pub(crate) fn unpack(x: u64) -> Self {
        let field = |low: u32, bits: u32| (x >> low & ((1 << bits) - 1)) as usize;
        Self { words: field(0, 22), literals: field(22, 21), sequences: field(43, 21) }
    }
}
