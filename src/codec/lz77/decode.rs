//! From a payload to its block.

use super::directory::{Entry, Header};
use super::execute::{Batch, Executor};
use super::models::{Decoding, Mode, TABLE, Tables};
use super::rows::{
    ALL_ACTIVE, Active, LITERAL_ROW, active_literals, active_sequences, literal_shift,
};
use super::spec::{BATCH, LITERAL_ESCAPES, LITERALS_ESCAPE, MATCH_CODES, RECENT};
use super::{MAX_CHUNK_LOG, MIN_CHUNK_LOG};
use crate::codec::Malformed;
use crate::codec::lanes::{Backend, Kernel, Reader, Vector};

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

    /// A decoder on each of the backends that this processor has, to compare them.
    #[doc(hidden)]
    pub fn each_backend() -> impl Iterator<Item = Self> {
        Backend::all().map(Self::with_backend)
    }

    /// A decoder on portable code alone, to compare with.
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
            let end = nlit + shift;
            let model = self.tables.literals();
            if model.mode == Mode::Fse {
                reader.refill();
                let mut literals = Fse::new(model, &mut reader);
                read_literals(&mut reader, &mut literals, self.literals, shift, end);
            } else {
                let mut literals = Huffman::new(model);
                read_literals(&mut reader, &mut literals, self.literals, shift, end);
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
        let n = self.entry.sequences;
        if n > 0 {
            let states = [tokens, offsets].map(|model| model.mode == Mode::Fse);
            if states != [false, false] {
                reader.refill();
            }
            match states {
                [false, false] => {
                    let (t, o) = (Huffman::new(tokens), Huffman::new(offsets));
                    run_sequences(&mut reader, t, o, n, &mut executor)?;
                }
                [true, false] => {
                    let (t, o) = (Fse::new(tokens, &mut reader), Huffman::new(offsets));
                    run_sequences(&mut reader, t, o, n, &mut executor)?;
                }
                [false, true] => {
                    let (t, o) = (Huffman::new(tokens), Fse::new(offsets, &mut reader));
                    run_sequences(&mut reader, t, o, n, &mut executor)?;
                }
                [true, true] => {
                    let t = Fse::new(tokens, &mut reader);
                    let o = Fse::new(offsets, &mut reader);
                    run_sequences(&mut reader, t, o, n, &mut executor)?;
                }
            }
        }
        if !reader.is_exhausted() {
            return Err(Malformed("a chunk has words that are not used"));
        }
        executor.finish()
    }
}

/// Reads and carries out `left` sequences.
#[inline(always)]
fn run_sequences<V: Vector>(
    reader: &mut Reader<'_, V>,
    mut tokens: impl SymbolReader<V>,
    mut offsets: impl SymbolReader<V>,
    mut left: usize,
    executor: &mut Executor<'_>,
) -> Result<(), Malformed> {
    let mut batch = Batch::default();
    while left > 0 {
        let n = left.min(BATCH);
        read_sequences(reader, &mut tokens, &mut offsets, n, &mut batch);
        executor.run(&batch, n)?;
        left -= n;
    }
    Ok(())
}

/// A model's decoder for all lanes.
trait SymbolReader<V: Vector> {
    /// Each lane's symbol, and the bits that it takes of `bits`: none in lanes that are not active.
    fn next(&mut self, bits: V, active: u32) -> (V, V);
}

/// Huffman codes, and the modes that are written as one.
struct Huffman<'a, V> {
    table: &'a [u32; TABLE],
    shift: V,
}

impl<'a, V: Vector> Huffman<'a, V> {
    #[inline(always)]
    fn new(model: &'a Decoding) -> Self {
        Self { table: &model.table, shift: V::splat(32 - u32::from(model.log)) }
    }
}

impl<V: Vector> SymbolReader<V> for Huffman<'_, V> {
    #[inline(always)]
    fn next(&mut self, bits: V, active: u32) -> (V, V) {
        let entry = V::gather(self.table, bits.shr(self.shift));
        (entry.and(V::splat(255)), V::select(active, entry.shr_by::<8>(), V::splat(0)))
    }
}

/// FSE: a state in each lane.
struct Fse<'a, V> {
    table: &'a [u32; TABLE],
    state: V,
}

impl<'a, V: Vector> Fse<'a, V> {
    /// Takes the states from the row at hand.
    #[inline(always)]
    fn new(model: &'a Decoding, reader: &mut Reader<'_, V>) -> Self {
        let log = u32::from(model.log);
        let state = reader.peek().shr(V::splat(32 - log));
        reader.skip(V::splat(log));
        Self { table: &model.table, state }
    }
}

impl<V: Vector> SymbolReader<V> for Fse<'_, V> {
    #[inline(always)]
    fn next(&mut self, bits: V, active: u32) -> (V, V) {
        let entry = V::gather(self.table, self.state);
        let count = entry.shr_by::<8>().and(V::splat(255));
        let state = entry.shr_by::<16>().add(bits.shr(V::splat(32).sub(count)));
        self.state = V::select(active, state, self.state);
        (entry.and(V::splat(255)), V::select(active, count, V::splat(0)))
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
            literal_row(reader, symbols, &ALL_ACTIVE)
        } else {
            literal_row(reader, symbols, &active_literals(start, shift, end))
        };
        quads.store_bytes(row);
    }
}

#[inline(always)]
fn literal_row<V: Vector>(
    reader: &mut Reader<'_, V>,
    symbols: &mut impl SymbolReader<V>,
    active: &Active,
) -> V {
    let low = literal_pair(reader, symbols, active[0], active[1]);
    let high = literal_pair(reader, symbols, active[2], active[3]);
    low.or(high.shl_by::<16>())
}

#[inline(always)]
fn literal_pair<V: Vector>(
    reader: &mut Reader<'_, V>,
    symbols: &mut impl SymbolReader<V>,
    active_a: u32,
    active_b: u32,
) -> V {
    reader.refill();
    let bits = reader.peek();
    let (a, a_len) = symbols.next(bits, active_a);
    let (b, b_len) = symbols.next(bits.shl(a_len), active_b);
    reader.skip(a_len.add(b_len));
    a.or(b.shl_by::<8>())
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
        let active = active_sequences(n, odd);

        reader.refill();
        let bits = reader.peek();
        let (token, used) = tokens.next(bits, active);
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
        let (symbol, used) = offsets.next(bits, active);
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
