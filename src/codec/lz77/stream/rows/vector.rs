//! Reads a chunk's rows with vector instructions: one symbol for each lane at a time.

use super::{ALL_ACTIVE, Active, LITERAL_ROW, active_literals, active_sequences};
use crate::codec::Malformed;
use crate::codec::lanes::{Reader, Vector};
use crate::codec::lz77::stream::decode::{ReadRows, UNFINISHED};
use crate::codec::lz77::stream::execute::{Executor, SequenceBatch};
use crate::codec::lz77::stream::models::{Decoding, TABLE};
use crate::codec::lz77::stream::spec::{
    BATCH, LITERAL_ESCAPES, LITERALS_ESCAPE, MATCH_CODES, MAX_LITERALS, MAX_MATCH, RECENT,
};

impl<V: Vector> ReadRows for Reader<'_, V> {
    #[inline(always)]
    fn literals<const FSE: bool>(
        &mut self,
        model: &Decoding,
        grid: &mut [u8],
        shift: usize,
        end: usize,
    ) -> Result<(), Malformed> {
        if FSE {
            self.refill();
        }
        let mut symbols = Symbols::<V, FSE>::new(model, self);
        read_literals(self, &mut symbols, grid, shift, end);
        symbols.finish()
    }

    #[inline(always)]
    fn sequences<const FSE_TOKENS: bool, const FSE_OFFSETS: bool>(
        &mut self,
        tokens: &Decoding,
        offsets: &Decoding,
        count: usize,
        executor: &mut Executor<'_>,
    ) -> Result<(), Malformed> {
        if FSE_TOKENS || FSE_OFFSETS {
            self.refill();
        }
        let mut tokens = Symbols::<V, FSE_TOKENS>::new(tokens, self);
        let mut offsets = Symbols::<V, FSE_OFFSETS>::new(offsets, self);
        let mut batch = SequenceBatch::default();
        let mut left = count;
        while left > 0 {
            let n = left.min(BATCH);
            read_sequences(self, &mut tokens, &mut offsets, n, &mut batch);
            executor.run(&batch, n)?;
            left -= n;
        }
        tokens.finish()?;
        offsets.finish()
    }

    #[inline(always)]
    fn is_at_end(&self) -> bool {
        self.is_exhausted() && self.is_zero()
    }
}

/// A stream's decoder for all lanes.
struct Symbols<'a, V, const FSE: bool> {
    table: &'a [u32; TABLE],
    /// For FSE, each lane's state. Otherwise the shift that turns the next bits into a table index.
    state: V,
}

impl<'a, V: Vector, const FSE: bool> Symbols<'a, V, FSE> {
    /// For FSE, reads the states from the current row.
    #[inline(always)]
    fn new(model: &'a Decoding, reader: &mut Reader<'_, V>) -> Self {
        let log = u32::from(model.log);
        let shift = V::splat(32 - log);
        let mut state = shift;
        if FSE {
            state = reader.peek().shr(shift);
            reader.skip(V::splat(log));
        }
        Self { table: &model.table, state }
    }

    /// Each lane's symbol, and the number of `bits` it takes: none in inactive lanes.
    #[inline(always)]
    fn next(&mut self, bits: V, active: u32) -> (V, V) {
        let zero = V::splat(0);
        if FSE {
            let entry = V::gather(self.table, self.state);
            let count = entry.shr_by::<8>().and(V::splat(255));
            let state = entry.shr_by::<16>().add(bits.shr(V::splat(32).sub(count)));
            self.state = V::select(active, state, self.state);
            (entry.and(V::splat(255)), V::select(active, count, zero))
        } else {
            let entry = V::gather(self.table, bits.shr(self.state));
            (entry.and(V::splat(255)), V::select(active, entry.shr_by::<8>(), zero))
        }
    }

    #[inline(always)]
    fn finish(self) -> Result<(), Malformed> {
        if FSE && V::splat(0).lt(self.state) != 0 { Err(UNFINISHED) } else { Ok(()) }
    }
}

#[inline(always)]
fn read_literals<V: Vector, const FSE: bool>(
    reader: &mut Reader<'_, V>,
    symbols: &mut Symbols<'_, V, FSE>,
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
fn literal_row<V: Vector, const FSE: bool>(
    reader: &mut Reader<'_, V>,
    symbols: &mut Symbols<'_, V, FSE>,
    active: &Active,
) -> V {
    let low = literal_pair(reader, symbols, active[0], active[1]);
    let high = literal_pair(reader, symbols, active[2], active[3]);
    low.or(high.shl_by::<16>())
}

#[inline(always)]
fn literal_pair<V: Vector, const FSE: bool>(
    reader: &mut Reader<'_, V>,
    symbols: &mut Symbols<'_, V, FSE>,
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
fn read_sequences<V: Vector, const FSE_TOKENS: bool, const FSE_OFFSETS: bool>(
    reader: &mut Reader<'_, V>,
    tokens: &mut Symbols<'_, V, FSE_TOKENS>,
    offsets: &mut Symbols<'_, V, FSE_OFFSETS>,
    n: usize,
    batch: &mut SequenceBatch,
) {
    let zero = V::splat(0);
    batch.exceeds = 0;
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
        batch.exceeds |= active & (V::splat(MAX_LITERALS).lt(run) | V::splat(MAX_MATCH).lt(length));
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
        // The coded value is the offset plus 3; explicit offsets start at RECENT, to tell them from recent ones.
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
