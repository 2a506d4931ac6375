//! Encodes a block into its payload.

use super::directory::{ChunkEntry, Header};
use super::models::{Models, Streams};
use super::rows::{ChunkStreams, FseRows, WriteChunk};
use super::sequence_coder::SequenceCoder;
use super::sequences::{self, SHORT_RUN};
use super::spec::{BATCH, MIN_MATCH};
use crate::codec::lanes::{Backend, LANES};
use crate::codec::lz77::search::lazy::Match;
use crate::codec::lz77::search::parse::Parser;
use crate::codec::lz77::search::probe;
use crate::codec::lz77::{MAX_BLOCK, Params};
use crate::codec::{OutOfMemory, reserve};
use core::ops::Range;

/// Encodes blocks. It keeps its working memory, so use one encoder for many blocks.
pub struct Encoder {
    backend: Backend,
    parser: Parser,
    matches: Vec<Match>,
    streams: Streams,
    chunks: Vec<Chunk>,
    models: Models,
    fse: FseRows,
    words: Vec<u32>,
}

/// A chunk of the current group.
struct Chunk {
    /// Where the chunk's literals end among the group's.
    literals: usize,
    /// Number of the chunk's sequences.
    sequences: usize,
    /// The chunk's length in bytes.
    len: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder without working memory yet.
    pub fn new() -> Self {
        Self {
            parser: Parser::new(probe::Backend::detect()),
            ..Self::with_backend(Backend::detect())
        }
    }

    /// One encoder for each backend of this processor, for comparing them.
    #[doc(hidden)]
    pub fn each_backend() -> impl Iterator<Item = Self> {
        Backend::all().map(Self::with_backend)
    }

    /// An encoder that uses portable code only, for comparisons.
    #[doc(hidden)]
    pub fn portable() -> Self {
        Self::with_backend(Backend::PORTABLE)
    }

    fn with_backend(backend: Backend) -> Self {
        Self {
            backend,
            parser: Parser::new(probe::Backend::PORTABLE),
            matches: Vec::new(),
            streams: Streams::default(),
            chunks: Vec::new(),
            models: Models::new(),
            fse: FseRows::default(),
            words: Vec::new(),
        }
    }

    /// Bytes of working memory for a block of `block_len` bytes.
    pub fn memory(params: &Params, block_len: usize) -> u64 {
        let group = Header::new(params, block_len).group_len().min(block_len) as u64;
        // At worst there is a match or a run of literals every three bytes, which takes 12 bytes here and 16 in rows,
        // and every literal has a code of its own. Vectors grow to twice their contents.
        2 * (group + group / 3 * (12 + 16) + group * 4) + group + Parser::memory(params, block_len)
    }

    /// Makes room for encoding a block of `block_len` bytes, except for a payload longer than the block.
    pub(crate) fn reserve(&mut self, params: &Params, block_len: usize) -> Result<(), OutOfMemory> {
        let header = Header::new(params, block_len);
        let group = header.group_len().min(block_len);
        let chunk = block_len.min(1 << header.chunk_log);
        self.parser.reserve(params, block_len)?;
        // At worst every sequence has a match of the least length, except the last sequence, and those that cut a long
        // run of literals.
        let sequences = chunk / MIN_MATCH as usize + 2;
        reserve(&mut self.matches, sequences)?;
        reserve(&mut self.streams.literals, group + SHORT_RUN)?;
        let rows = group.div_ceil(1 << header.chunk_log) * sequences.div_ceil(BATCH);
        reserve(&mut self.streams.tokens.rows, rows)?;
        reserve(&mut self.streams.offsets.rows, rows)?;
        if params.fse {
            self.fse.reserve(chunk, sequences)?;
        }
        reserve(&mut self.words, chunk / 2 + 64 * LANES)
    }

    /// Appends the payload of `block` to `out`.
    ///
    /// # Panics
    /// If the block is longer than [`MAX_BLOCK`], or the system refuses memory.
    pub fn encode(&mut self, params: &Params, block: &[u8], out: &mut Vec<u8>) {
        if let Err(OutOfMemory { bytes }) = self.encode_below(params, block, out, usize::MAX) {
            panic!("the system refused {bytes} bytes of memory");
        }
    }

    /// Appends the payload of `block` to `out`. Gives up and returns false as soon as the payload is certain to have
    /// `limit` bytes or more; `out` may then have further bytes at its end.
    ///
    /// # Errors
    /// If the system refuses memory; `out` may then, too, have further bytes at its end.
    ///
    /// # Panics
    /// If the block is longer than [`MAX_BLOCK`].
    pub(crate) fn encode_below(
        &mut self,
        params: &Params,
        block: &[u8],
        out: &mut Vec<u8>,
        limit: usize,
    ) -> Result<bool, OutOfMemory> {
        assert!(block.len() <= MAX_BLOCK);
        let before = out.len();
        let header = Header::new(params, block.len());
        let mut entry = header.write(block.len(), out);
        self.parser.start(params, block)?;
        for group in header.groups(block.len()) {
            self.streams.clear();
            self.chunks.clear();
            for chunk in header.chunks(group) {
                self.matches.clear();
                let window_start = header.window_start(chunk.start);
                self.parser.parse(params, block, chunk.clone(), window_start, &mut self.matches);
                self.collect(block, chunk, 1 << params.segment_log);
            }
            self.models.choose(&self.streams, self.chunks.len(), params.fse);
            if out.len() - before + self.models.min_len() >= limit {
                self.parser.finish(block.len());
                return Ok(false);
            }
            entry = self.write_group(entry, out);
        }
        self.parser.finish(block.len());
        Ok(true)
    }

    /// Adds a chunk's literals and coded sequences to those of the group.
    #[inline(never)]
    fn collect(&mut self, block: &[u8], chunk: Range<usize>, segment: usize) {
        let len = chunk.len();
        let Streams { literals, tokens, offsets } = &mut self.streams;
        let mut coder = SequenceCoder::new(self.backend, tokens, offsets);
        sequences::cut(block, chunk, segment, &self.matches, literals, |s| coder.push(s));
        let count = coder.finish();
        self.chunks.push(Chunk { literals: literals.len(), sequences: count, len });
    }

    /// Writes the group's tables and its chunks' words. Returns where the next directory entry goes.
    fn write_group(&mut self, mut entry: usize, out: &mut Vec<u8>) -> usize {
        let mut record = out.len();
        self.models.assign_codes();
        self.models.write(out);
        out.resize(record + (out.len() - record).next_multiple_of(4), 0);
        let (mut literals, mut row) = (0, 0);
        for chunk in &self.chunks {
            self.words.clear();
            let streams = ChunkStreams {
                literals: &self.streams.literals[literals..chunk.literals],
                tokens: &self.streams.tokens.rows[row..],
                offsets: &self.streams.offsets.rows[row..],
                sequences: chunk.sequences,
                len: chunk.len,
            };
            let models = &self.models;
            self.fse.code(models, &streams);
            let (fse, words) = (&self.fse, &mut self.words);
            self.backend.run(WriteChunk { models, fse, streams, words });
            self.words.iter_mut().for_each(|w| *w = w.to_le());
            out.extend_from_slice(bytemuck::cast_slice(&self.words));
            let e = ChunkEntry {
                words: (out.len() - record) / 4,
                literals: chunk.literals - literals,
                sequences: chunk.sequences,
            };
            out[entry..][..ChunkEntry::BYTES].copy_from_slice(&e.pack().to_le_bytes());
            entry += ChunkEntry::BYTES;
            record = out.len();
            literals = chunk.literals;
            row += chunk.sequences.div_ceil(BATCH);
        }
        entry
    }
}
