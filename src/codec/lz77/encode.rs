//! From a block to its payload.

use super::directory::{Entry, Header};
use super::lazy::Match;
use super::models::{Models, Streams};
use super::parse::Parser;
use super::rows::{ChunkStreams, WriteChunk};
use super::sequences::{self, Sequence};
use super::spec::{self, Recent};
use super::{MAX_BLOCK, Params};
use crate::codec::lanes::Backend;

/// Encodes blocks. It keeps its working memory: use one for many blocks.
pub struct Encoder {
    backend: Backend,
    parser: Parser,
    matches: Vec<Match>,
    streams: Streams,
    chunks: Vec<Chunk>,
    words: Vec<u32>,
}

/// A chunk of the group at hand.
struct Chunk {
    /// Where its literals and its sequences end in the group's.
    literals: usize,
    sequences: usize,
    /// Bytes of the block.
    len: usize,
}

impl Default for Encoder {
    fn default() -> Self {
        Self::new()
    }
}

impl Encoder {
    /// An encoder that has no working memory yet.
    pub fn new() -> Self {
        Self::with_backend(Backend::detect())
    }

    /// An encoder on portable code alone, to compare with.
    #[doc(hidden)]
    pub fn portable() -> Self {
        Self::with_backend(Backend::PORTABLE)
    }

    fn with_backend(backend: Backend) -> Self {
        Self {
            backend,
            parser: Parser::new(),
            matches: Vec::new(),
            streams: Streams::default(),
            chunks: Vec::new(),
            words: Vec::new(),
        }
    }

    /// Appends the payload of `block` to `out`.
    ///
    /// # Panics
    /// If the block is longer than [`MAX_BLOCK`].
    pub fn encode(&mut self, params: &Params, block: &[u8], out: &mut Vec<u8>) {
        assert!(block.len() <= MAX_BLOCK);
        let header = Header::new(params, block.len());
        let mut entry = header.write(block.len(), out);
        self.parser.start(params, block.len());
        for group in header.groups(block.len()) {
            self.streams.clear();
            self.chunks.clear();
            for chunk in header.chunks(group) {
                self.matches.clear();
                let window_start = header.window_start(chunk.start);
                self.parser.parse(params, block, chunk.clone(), window_start, &mut self.matches);
                self.collect(block, chunk.start, chunk.end);
            }
            entry = self.write_group(params, entry, out);
        }
        self.parser.finish(block.len());
    }

    /// Adds a chunk's literals and coded sequences to the group's.
    fn collect(&mut self, block: &[u8], start: usize, end: usize) {
        let Streams { literals, tokens, offsets } = &mut self.streams;
        let mut recent = Recent::START;
        sequences::cut(block, start..end, &self.matches, literals, |s: Sequence| {
            tokens.push(spec::token(s.literals, s.length));
            offsets.push(if s.length > 0 { recent.code(s.offset) } else { spec::NO_OFFSET });
        });
        self.chunks.push(Chunk {
            literals: literals.len(),
            sequences: tokens.len(),
            len: end - start,
        });
    }

    /// Writes the group's tables and its chunks' words, and returns where the next directory entry goes.
    fn write_group(&mut self, params: &Params, mut entry: usize, out: &mut Vec<u8>) -> usize {
        let mut record = out.len();
        let models = Models::choose(&self.streams, self.chunks.len(), params.fse);
        models.write(out);
        out.resize(record + (out.len() - record).next_multiple_of(4), 0);
        let (mut literals, mut sequences) = (0, 0);
        for chunk in &self.chunks {
            self.words.clear();
            let streams = ChunkStreams {
                literals: &self.streams.literals[literals..chunk.literals],
                tokens: &self.streams.tokens[sequences..chunk.sequences],
                offsets: &self.streams.offsets[sequences..chunk.sequences],
                len: chunk.len,
            };
            self.backend.run(WriteChunk { models: &models, streams, words: &mut self.words });
            self.words.iter_mut().for_each(|w| *w = w.to_le());
            out.extend_from_slice(bytemuck::cast_slice(&self.words));
            let e = Entry {
                words: (out.len() - record) / 4,
                literals: chunk.literals - literals,
                sequences: chunk.sequences - sequences,
            };
            out[entry..][..Entry::BYTES].copy_from_slice(&e.pack().to_le_bytes());
            entry += Entry::BYTES;
            record = out.len();
            (literals, sequences) = (chunk.literals, chunk.sequences);
        }
        entry
    }
}
