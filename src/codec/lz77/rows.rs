//! A chunk's symbols as rows of a lane stream.
//!
//! First the literals, in rows of 128: lane `l` has the four from `4l` on, two before each of two refills. The row's
//! grid is shifted so that the last literal ends on a multiple of four bytes of the chunk: a decoder that puts the
//! literals at the end of the chunk's own output stores whole words. Then the sequences, 64 at a time: for the even
//! ones, lane `l` having the `2l`-th, a row of tokens and a row of offsets, then the same for the odd ones.

use super::models::Models;
use super::spec::{BATCH, Coded};
use crate::codec::lanes::{Kernel, LANES, Vector, Writer};

/// Literals in a row.
pub(crate) const LITERAL_ROW: usize = 4 * LANES;

/// Places left free at the start of the grid of `literals` literals in a chunk of `len` bytes.
pub(crate) fn literal_shift(literals: usize, len: usize) -> usize {
    (len - literals) % 4
}

/// The symbols of one chunk.
pub(crate) struct ChunkStreams<'a> {
    pub literals: &'a [u8],
    pub tokens: &'a [Coded],
    pub offsets: &'a [Coded],
    /// Bytes of the block.
    pub len: usize,
}

/// Writes a chunk's words.
pub(crate) struct WriteChunk<'a> {
    pub models: &'a Models,
    pub streams: ChunkStreams<'a>,
    pub words: &'a mut Vec<u32>,
}

impl Kernel for WriteChunk<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let ChunkStreams { literals, tokens, offsets, len } = self.streams;
        let mut writer = Writer::<V>::new(self.words);
        if !literals.is_empty() {
            write_literals(&mut writer, &self.models.literals.codes, literals, len);
        }
        for (tokens, offsets) in tokens.chunks(BATCH).zip(offsets.chunks(BATCH)) {
            for odd in 0..2 {
                sequence_row(&mut writer, &self.models.tokens.codes, tokens, odd);
                sequence_row(&mut writer, &self.models.offsets.codes, offsets, odd);
            }
        }
        writer.finish();
    }
}

#[inline(always)]
fn write_literals<V: Vector>(
    writer: &mut Writer<'_, V>,
    codes: &[u32; 256],
    literals: &[u8],
    len: usize,
) {
    let shift = literal_shift(literals.len(), len);
    let end = literals.len() + shift;
    for row in (0..end).step_by(LITERAL_ROW) {
        let whole = row.checked_sub(shift).and_then(|i| literals.get(i..)?.first_chunk());
        match whole {
            Some(symbols) => literal_row(writer, codes, V::load_bytes(symbols), |_| u32::MAX),
            None => {
                let mut symbols = [0; LITERAL_ROW];
                let (from, to) = (row.max(shift), end.min(row + LITERAL_ROW));
                symbols[from - row..to - row].copy_from_slice(&literals[from - shift..to - shift]);
                literal_row(writer, codes, V::load_bytes(&symbols), |j| {
                    active_literals(row, shift, end, j)
                });
            }
        }
    }
}

/// The lanes that have a `j`-th literal in the row from `row` on.
pub(crate) fn active_literals(row: usize, shift: usize, end: usize, j: usize) -> u32 {
    (0..LANES).fold(0, |mask, l| {
        mask | u32::from((shift..end).contains(&(row + 4 * l + j))) << l
    })
}

#[inline(always)]
fn literal_row<V: Vector>(
    writer: &mut Writer<'_, V>,
    codes: &[u32; 256],
    symbols: V,
    active: impl Fn(usize) -> u32,
) {
    let (zero, byte, len_mask) = (V::splat(0), V::splat(255), V::splat(31));
    let code = |symbols: V, j| {
        let code = V::gather(codes, symbols.and(byte));
        V::select(active(j), code, zero)
    };
    let pair = |a: V, b: V| {
        let (a_len, b_len) = (a.and(len_mask), b.and(len_mask));
        let bits = a.sub(a_len).or(b.sub(b_len).shr(a_len));
        (bits, a_len.add(b_len))
    };
    let (bits, len) = pair(code(symbols, 0), code(symbols.shr_by::<8>(), 1));
    writer.row(bits, len);
    let (bits, len) = pair(code(symbols.shr_by::<16>(), 2), code(symbols.shr_by::<24>(), 3));
    writer.row(bits, len);
}

/// Writes the symbols of the even or the odd sequences of a batch.
#[inline(always)]
fn sequence_row<V: Vector>(
    writer: &mut Writer<'_, V>,
    codes: &[u32; 256],
    symbols: &[Coded],
    odd: usize,
) {
    let (mut bits, mut lens) = ([0; LANES], [0; LANES]);
    let row = symbols.get(odd..).unwrap_or_default();
    for ((coded, bits), len) in row.iter().step_by(2).zip(&mut bits).zip(&mut lens) {
        let code = codes[usize::from(coded.symbol)];
        let total = (code & 31) + u32::from(coded.bits);
        *bits = (code & !31) | (u64::from(coded.extra) << (32 - total)) as u32;
        *len = total;
    }
    writer.row(V::load(&bits), V::load(&lens));
}
