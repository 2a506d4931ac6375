//! Decodes a payload into its block.

use super::directory::{ChunkEntry, Header};
use super::execute::Executor;
use super::models::{Decoding, Mode, TABLE, Tables};
use super::rows::scalar::ScalarReader;
use super::rows::{LITERAL_ROW, literal_shift};
use crate::codec::lanes::{Backend, Kernel, Reader, Vector};
use crate::codec::lz77::{MAX_CHUNK_LOG, MIN_CHUNK_LOG};
use crate::codec::{Malformed, OutOfMemory, reserve};

/// Decodes payloads. It keeps its working memory, so use one decoder for many blocks.
pub struct Decoder {
    backend: Backend,
    tables: Tables,
    literals: Vec<u8>,
}

impl Default for Decoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Decoder {
    /// A decoder without working memory yet.
    pub fn new() -> Self {
        Self::with_backend(Backend::detect())
    }

    /// One decoder for each backend of this processor, for comparing them.
    #[doc(hidden)]
    pub fn each_backend() -> impl Iterator<Item = Self> {
        Backend::all().map(Self::with_backend)
    }

    /// A decoder that uses portable code only, for comparisons.
    #[doc(hidden)]
    pub fn portable() -> Self {
        Self::with_backend(Backend::PORTABLE)
    }

    fn with_backend(backend: Backend) -> Self {
        Self { backend, tables: Tables::new(), literals: Vec::new() }
    }

    /// Bytes of working memory for a block of `block_len` bytes.
    pub fn memory(block_len: usize) -> u64 {
        // Three tables, and the literals of a chunk.
        (3 * 4 * TABLE + block_len.clamp(1 << MIN_CHUNK_LOG, 1 << MAX_CHUNK_LOG) + 2 * LITERAL_ROW)
            as u64
    }

    /// Makes room for decoding a block of `block_len` bytes.
    pub(crate) fn reserve(&mut self, block_len: usize) -> Result<(), OutOfMemory> {
        let chunk = block_len.clamp(1 << MIN_CHUNK_LOG, 1 << MAX_CHUNK_LOG);
        reserve(&mut self.literals, chunk + 2 * LITERAL_ROW)
    }

    /// Decodes `payload` into `block`, which must have the length of the original block.
    ///
    /// # Errors
    /// If the payload breaks a rule of the format. The contents of `block` are then unspecified.
    pub fn decode(&mut self, payload: &[u8], block: &mut [u8]) -> Result<(), Malformed> {
        let (header, directory, mut records) = Header::read(payload, block.len())?;
        let (entries, _) = directory.as_chunks::<{ ChunkEntry::BYTES }>();
        let mut entries = entries.iter();
        for group in header.groups(block.len()) {
            for (i, chunk) in header.chunks(group).enumerate() {
                let entry = entries.next().ok_or(Malformed("LZ77 directory is cut short"))?;
                let entry = ChunkEntry::unpack(u64::from_le_bytes(*entry));
                let len = chunk.len();
                if entry.literals > len || entry.sequences > len {
                    return Err(Malformed("a chunk has more symbols than bytes"));
                }
                let (record, rest) = records
                    .split_at_checked(4 * entry.words)
                    .ok_or(Malformed("a chunk's record is cut short"))?;
                records = rest;
                let words = if i == 0 { &record[self.tables.read(record)?..] } else { record };
                self.literals.resize((1 << header.chunk_log) + 2 * LITERAL_ROW, 0);
                self.backend.run(ReadChunk {
                    tables: &self.tables,
                    words,
                    entry,
                    literals: &mut self.literals,
                    block: &mut *block,
                    window_start: header.window_start(chunk.start),
                    start: chunk.start,
                    end: chunk.end,
                })?;
            }
        }
        if !records.is_empty() {
            return Err(Malformed("bytes after the last chunk"));
        }
        Ok(())
    }
}

/// Decodes a chunk.
struct ReadChunk<'a> {
    tables: &'a Tables,
    words: &'a [u8],
    entry: ChunkEntry,
    literals: &'a mut [u8],
    block: &'a mut [u8],
    window_start: usize,
    start: usize,
    end: usize,
}

impl Kernel for ReadChunk<'_> {
    type Output = Result<(), Malformed>;

    #[inline(always)]
    fn run<V: Vector>(self) -> Result<(), Malformed> {
        let reader = Reader::<V>::new(self.words);
        self.decode(reader)
    }

    fn run_portable(self) -> Result<(), Malformed> {
        let reader = ScalarReader::new(self.words);
        self.decode(reader)
    }
}

/// Reads a chunk's symbols in rows.
pub(in crate::codec::lz77) trait ReadRows {
    /// Reads literals into the places from `shift` to `end` of the grid. `FSE` is the model's mode.
    fn literals<const FSE: bool>(
        &mut self,
        model: &Decoding,
        grid: &mut [u8],
        shift: usize,
        end: usize,
    ) -> Result<(), Malformed>;

    /// Reads and executes `count` sequences.
    fn sequences<const FSE_TOKENS: bool, const FSE_OFFSETS: bool>(
        &mut self,
        tokens: &Decoding,
        offsets: &Decoding,
        count: usize,
        executor: &mut Executor<'_>,
    ) -> Result<(), Malformed>;

    /// Whether every word has been taken and all bits left in lanes are zero.
    fn is_at_end(&self) -> bool;
}

/// The error for a chunk whose final FSE states are not an encoder's initial ones.
pub(in crate::codec::lz77) const UNFINISHED: Malformed = Malformed("FSE states do not end at zero");

impl ReadChunk<'_> {
    #[inline(always)]
    fn decode(self, mut reader: impl ReadRows) -> Result<(), Malformed> {
        if self.words.ends_with(&[0; 4]) {
            return Err(Malformed("a chunk's last word is zero"));
        }
        let (nlit, len) = (self.entry.literals, self.end - self.start);
        let shift = literal_shift(nlit, len);
        if nlit > 0 {
            let (model, end) = (self.tables.literals(), nlit + shift);
            if model.mode == Mode::Fse {
                reader.literals::<true>(model, self.literals, shift, end)?;
            } else {
                reader.literals::<false>(model, self.literals, shift, end)?;
            }
        }
        let mut executor = Executor::new(
            self.block,
            self.window_start,
            self.start..self.end,
            &self.literals[shift..],
            nlit,
        );
        let (tokens, offsets) = (self.tables.tokens(), self.tables.offsets());
        let (n, to) = (self.entry.sequences, &mut executor);
        if n > 0 {
            match [tokens, offsets].map(|model| model.mode == Mode::Fse) {
                [false, false] => reader.sequences::<false, false>(tokens, offsets, n, to)?,
                [true, false] => reader.sequences::<true, false>(tokens, offsets, n, to)?,
                [false, true] => reader.sequences::<false, true>(tokens, offsets, n, to)?,
                [true, true] => reader.sequences::<true, true>(tokens, offsets, n, to)?,
            }
        }
        if !reader.is_at_end() {
            return Err(Malformed("a chunk has words or bits that are not used"));
        }
        executor.finish()
    }
}
