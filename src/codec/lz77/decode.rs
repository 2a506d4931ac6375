//! From a payload to its block.

use super::directory::{Entry, Header};
use super::execute::{Batch, Executor};
use super::models::{Decoding, TABLE, Tables};
use super::rows::{LITERAL_ROW, active_literals, literal_shift};
use super::spec::{BATCH, LITERAL_ESCAPES, LITERALS_ESCAPE, MATCH_CODES, RECENT};
use crate::codec::Malformed;
use crate::codec::lanes::{Backend, Kernel, LANES, Reader, Vector};

/// Decodes payloads. It keeps its working memory: use one for many blocks.
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
    /// A decoder that has no working memory yet.
    pub fn new() -> Self {
        Self::with_backend(Backend::detect())
    }

    /// A decoder on portable code alone, to compare with.
    #[doc(hidden)]
    pub fn portable() -> Self {
        Self::with_backend(Backend::PORTABLE)
    }

    fn with_backend(backend: Backend) -> Self {
        Self { backend, tables: Tables::new(), literals: Vec::new() }
    }

    /// Decodes `payload` into `block`, whose length is that of the block that was encoded.
    ///
    /// # Errors
    /// If the payload breaks a rule of the format. `block` then holds bytes of no meaning.
    pub fn decode(&mut self, payload: &[u8], block: &mut [u8]) -> Result<(), Malformed> {
        let (header, directory, mut records) = Header::read(payload, block.len())?;
        let (entries, _) = directory.as_chunks::<{ Entry::BYTES }>();
        let mut entries = entries.iter();
        for group in header.groups(block.len()) {
            for (i, chunk) in header.chunks(group).enumerate() {
                let entry = entries.next().ok_or(Malformed("LZ77 directory is cut short"))?;
                let entry = Entry::unpack(u64::from_le_bytes(*entry));
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
    entry: Entry,
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
        let (nlit, len) = (self.entry.literals, self.end - self.start);
        let shift = literal_shift(nlit, len);
        let mut reader = Reader::<V>::new(self.words);
        if nlit > 0 {
            let mut literals = Huffman::new(self.tables.literals());
            read_literals(&mut reader, &mut literals, self.literals, shift, nlit + shift);
        }
        let mut executor = Executor::new(
            self.block,
            self.window_start,
            self.start..self.end,
            &self.literals[shift..],
            nlit,
        );
        let mut tokens = Huffman::new(self.tables.tokens());
        let mut offsets = Huffman::new(self.tables.offsets());
        let mut batch = Batch::default();
        let mut left = self.entry.sequences;
        while left > 0 {
            let n = left.min(BATCH);
            read_sequences(&mut reader, &mut tokens, &mut offsets, n, &mut batch);
            executor.run(&batch, n)?;
            left -= n;
        }
        if !reader.is_exhausted() {
            return Err(Malformed("a chunk has words that are not used"));
        }
        executor.finish()
    }
}

/// A model's decoder for all lanes.
trait SymbolReader<V: Vector> {
    /// Each lane's symbol, and the bits that it takes of `bits`.
    fn next(&mut self, bits: V) -> (V, V);
}

/// Huffman codes, and the modes that are written as one.
struct Huffman<'a, V> {
    table: &'a [u32; TABLE],
    shift: V,
}

impl<'a, V: Vector> Huffman<'a, V> {
    #[inline(always)]
    fn new(decoding: &'a Decoding) -> Self {
        Self { table: &decoding.table, shift: V::splat(32 - u32::from(decoding.log)) }
    }
}

impl<V: Vector> SymbolReader<V> for Huffman<'_, V> {
    #[inline(always)]
    fn next(&mut self, bits: V) -> (V, V) {
        let entry = V::gather(self.table, bits.shr(self.shift));
        (entry.shr_by::<8>(), entry.and(V::splat(15)))
    }
}

#[inline(always)]
fn read_literals<V: Vector>(
    reader: &mut Reader<'_, V>,
    symbols: &mut impl SymbolReader<V>,
    out: &mut [u8],
    shift: usize,
    end: usize,
) {
    let (rows, _) = out.as_chunks_mut::<LITERAL_ROW>();
    for (i, row) in rows[..end.div_ceil(LITERAL_ROW)].iter_mut().enumerate() {
        let start = i * LITERAL_ROW;
        let quads = if start >= shift && start + LITERAL_ROW <= end {
            literal_row(reader, symbols, |_| u32::MAX)
        } else {
            literal_row(reader, symbols, |j| active_literals(start, shift, end, j))
        };
        quads.store_bytes(row);
    }
}

#[inline(always)]
fn literal_row<V: Vector>(
    reader: &mut Reader<'_, V>,
    symbols: &mut impl SymbolReader<V>,
    active: impl Fn(usize) -> u32,
) -> V {
    let zero = V::splat(0);
    let mut pair = |j| {
        reader.refill();
        let bits = reader.peek();
        let (a, a_len) = symbols.next(bits);
        let a_len = V::select(active(j), a_len, zero);
        let (b, b_len) = symbols.next(bits.shl(a_len));
        let b_len = V::select(active(j + 1), b_len, zero);
        reader.skip(a_len.add(b_len));
        a.or(b.shl_by::<8>())
    };
    let (low, high) = (pair(0), pair(2));
    low.or(high.shl_by::<16>())
}

/// Reads the `n` sequences of a batch.
#[inline(always)]
fn read_sequences<V: Vector>(
    reader: &mut Reader<'_, V>,
    tokens: &mut impl SymbolReader<V>,
    offsets: &mut impl SymbolReader<V>,
    n: usize,
    batch: &mut Batch,
) {
    let zero = V::splat(0);
    for odd in 0..2 {
        // Lane l has sequence 2l + odd.
        let lanes = (n + 1 - odd) / 2;
        let active = if lanes == LANES { u32::MAX } else { (1 << lanes) - 1 };

        reader.refill();
        let bits = reader.peek();
        let (token, used) = tokens.next(bits);
        let bits = bits.shl(used);
        let run = token.shr_by::<5>();
        let escaped = V::splat(LITERALS_ESCAPE - 1).lt(run);
        let row = V::lookup(&ESCAPES, bits.shr_by::<29>());
        let row_bits = row.shr_by::<16>();
        let long_run =
            row.and(V::splat(0xffff)).add(bits.shl_by::<3>().shr(V::splat(32).sub(row_bits)));
        let run_bits = V::select(escaped, row_bits.add(V::splat(3)), zero);
        let run = V::select(escaped, long_run, run);
        let bits = bits.shl(run_bits);
        let code = V::lookup(&MATCH_CODES, token);
        let match_bits = code.shr_by::<16>();
        let length = code.and(V::splat(0xffff)).add(bits.shr(V::splat(32).sub(match_bits)));
        reader.skip(V::select(active, used.add(run_bits).add(match_bits), zero));
        V::select(active, run.or(length.shl_by::<16>()), zero).store(&mut batch.lengths[odd]);

        reader.refill();
        let bits = reader.peek();
        let (symbol, used) = offsets.next(bits);
        let bits = bits.shl(used);
        let explicit = V::splat(RECENT as u32 - 1).lt(symbol);
        let y = symbol.sub(V::splat(RECENT as u32));
        let k = y.shr_by::<1>().add(V::splat(1));
        let extra = bits.shr(V::splat(32).sub(k));
        let offset = V::splat(2).or(y.and(V::splat(1))).shl(k).add(extra);
        let extra_bits = V::select(explicit, k, zero);
        reader.skip(V::select(active, used.add(extra_bits), zero));
        // The offset that is coded is 3 less; explicit ones are told from recent ones by starting at RECENT.
        let value = offset.sub(V::splat(3)).add(V::splat(RECENT as u32 - 1));
        V::select(explicit, value, symbol).store(&mut batch.offsets[odd]);
    }
}

const ESCAPES: [u32; 32] = {
    let mut rows = [0; 32];
    let mut i = 0;
    while i < 8 {
        rows[i] = LITERAL_ESCAPES[i];
        i += 1;
    }
    rows
};
