//! Turns sequences into coded symbols, a batch at a time.

use super::models::CodedRows;
use super::sequences::Sequence;
use super::spec::{self, BATCH, Recent};
use crate::codec::lanes::{Backend, Kernel, Vector};

/// Codes the sequences of a chunk.
pub(super) struct SequenceCoder<'a> {
    backend: Backend,
    tokens: &'a mut CodedRows,
    offsets: &'a mut CodedRows,
    recent: Recent,
    /// The sequences not yet coded come first.
    pending: [Sequence; BATCH],
    /// Sequences so far.
    count: usize,
}

impl<'a> SequenceCoder<'a> {
    /// A coder that adds the symbols to `tokens` and `offsets`.
    pub(super) fn new(
        backend: Backend,
        tokens: &'a mut CodedRows,
        offsets: &'a mut CodedRows,
    ) -> Self {
        let pending = [Sequence { literals: 0, length: 0, offset: 0 }; BATCH];
        Self { backend, tokens, offsets, recent: Recent::START, pending, count: 0 }
    }

    /// Adds a sequence.
    #[inline(always)]
    pub(super) fn push(&mut self, sequence: Sequence) {
        self.pending[self.count % BATCH] = sequence;
        self.count += 1;
        if self.count.is_multiple_of(BATCH) {
            self.code(BATCH);
        }
    }

    /// Ends the chunk. Returns its number of sequences.
    pub(super) fn finish(mut self) -> usize {
        if !self.count.is_multiple_of(BATCH) {
            self.code(self.count % BATCH);
        }
        self.count
    }

    /// Codes the first `n` of the pending sequences as a batch.
    #[inline(never)]
    fn code(&mut self, n: usize) {
        let Self { tokens, offsets, recent, pending, .. } = self;
        self.backend.run(CodeBatch { sequences: &pending[..n], recent, tokens, offsets });
    }
}

/// Codes a batch of sequences.
struct CodeBatch<'a> {
    sequences: &'a [Sequence],
    recent: &'a mut Recent,
    tokens: &'a mut CodedRows,
    offsets: &'a mut CodedRows,
}

impl Kernel for CodeBatch<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let mut recent = *self.recent;
        let (tokens, token_counts) = self.tokens.batch();
        let (offsets, offset_counts) = self.offsets.batch();
        for (i, s) in self.sequences.iter().enumerate() {
            let token = spec::token(s.literals, s.length);
            let offset = if s.length > 0 { recent.code(s.offset) } else { spec::NO_OFFSET };
            // Lane `l` has the sequences `2l` and `2l + 1`.
            tokens[i % 2][i / 2] = token;
            offsets[i % 2][i / 2] = offset;
            token_counts[token.symbol()] += 1;
            offset_counts[offset.symbol()] += 1;
        }
        *self.recent = recent;
    }
}
