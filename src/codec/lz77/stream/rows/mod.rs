//! Writes a chunk's symbols as rows of a lane stream.
//!
//! Literals come first, in rows of 128: lane `l` has the four from `4l` on, two before each of two refills. Their grid
//! is shifted so that the last literal ends at a multiple of four bytes of the chunk; a decoder that puts the literals
//! at the end of the chunk's own output thus stores whole words. Then come the sequences, 64 at a time: a row of tokens
//! and a row of offsets for the even ones (lane `l` has sequence `2l`), then the same for the odd ones.
//!
//! | module | reads such rows |
//! |---|---|
//! | [`scalar`] | lane after lane |
//! | [`vector`] | with vector instructions |

pub(super) mod scalar;
mod vector;

use crate::codec::lanes::{Kernel, LANES, Vector, Writer};
use crate::codec::lz77::stream::models::{Model, Models};
use crate::codec::lz77::stream::spec::{BATCH, Coded};
use crate::codec::{OutOfMemory, reserve};

/// Literals in a row.
pub(crate) const LITERAL_ROW: usize = 4 * LANES;

/// Unused places at the start of the grid of `literals` literals in a chunk of `len` bytes.
pub(crate) fn literal_shift(literals: usize, len: usize) -> usize {
    (len - literals) % 4
}

/// A stream's FSE codes, one for each symbol in its row, and the initial states of decoding.
#[derive(Default)]
pub(crate) struct StreamRows {
    codes: Vec<[u32; LANES]>,
    states: [u32; LANES],
    /// The table's logarithm; 0 without a table.
    log: u8,
}

impl StreamRows {
    /// Codes the symbols from last to first, as `symbols` yields them, each with its row and lane.
    fn code(
        &mut self,
        model: &Model,
        rows: usize,
        symbols: impl Iterator<Item = (usize, usize, u8)>,
    ) {
        self.log = 0;
        let Some(fse) = &model.fse else { return };
        self.log = fse.log;
        self.codes.resize(rows, [0; LANES]);
        self.states = [1 << fse.log; LANES];
        for (row, lane, symbol) in symbols {
            let (bits, count, next) = fse.table.encode(self.states[lane], symbol);
            // Two shifts, because there may be no bits.
            self.codes[row][lane] = (bits << 1) << (31 - count) | count;
            self.states[lane] = next;
        }
        self.states.iter_mut().for_each(|state| *state -= 1 << fse.log);
    }
}

/// The codes of a chunk's FSE-coded streams.
#[derive(Default)]
pub(crate) struct FseRows {
    literals: StreamRows,
    tokens: StreamRows,
    offsets: StreamRows,
}

impl FseRows {
    /// Makes room for a chunk of `len` bytes and `sequences` sequences.
    pub(crate) fn reserve(&mut self, len: usize, sequences: usize) -> Result<(), OutOfMemory> {
        reserve(&mut self.literals.codes, (len + 3).div_ceil(LITERAL_ROW) * 4)?;
        reserve(&mut self.tokens.codes, sequences.div_ceil(BATCH) * 2)?;
        reserve(&mut self.offsets.codes, sequences.div_ceil(BATCH) * 2)
    }

    /// Computes a chunk's codes.
    pub(crate) fn code(&mut self, models: &Models, chunk: &ChunkStreams<'_>) {
        let shift = literal_shift(chunk.literals.len(), chunk.len);
        let rows = (chunk.literals.len() + shift).div_ceil(LITERAL_ROW) * 4;
        let literals = chunk.literals.iter().enumerate().rev().map(|(i, &symbol)| {
            let place = i + shift;
            (place / LITERAL_ROW * 4 + place % 4, place % LITERAL_ROW / 4, symbol)
        });
        self.literals.code(&models.literals, rows, literals);
        for (stream, model, coded) in [
            (&mut self.tokens, &models.tokens, chunk.tokens),
            (&mut self.offsets, &models.offsets, chunk.offsets),
        ] {
            let symbols = (0..chunk.sequences).rev().map(|i| {
                let (row, lane) = (i / BATCH * 2 + i % 2, i / 2 % LANES);
                (row, lane, coded[row / 2][row % 2][lane].symbol() as u8)
            });
            stream.code(model, chunk.sequences.div_ceil(BATCH) * 2, symbols);
        }
    }
}

/// The symbols of one chunk.
pub(crate) struct ChunkStreams<'a> {
    pub literals: &'a [u8],
    /// Rows of tokens. Those of the chunk come first.
    pub tokens: &'a [[[Coded; LANES]; 2]],
    pub offsets: &'a [[[Coded; LANES]; 2]],
    pub sequences: usize,
    /// Length of the chunk in bytes.
    pub len: usize,
}

/// Writes a chunk's words.
pub(crate) struct WriteChunk<'a> {
    pub models: &'a Models,
    /// The codes of streams whose model is FSE.
    pub fse: &'a FseRows,
    pub streams: ChunkStreams<'a>,
    pub words: &'a mut Vec<u32>,
}

impl Kernel for WriteChunk<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let ChunkStreams { literals, tokens, offsets, sequences, len } = self.streams;
        let Models { literals: literal_model, tokens: token_model, offsets: offset_model } =
            self.models;
        let FseRows { literals: literal_rows, tokens: token_rows, offsets: offset_rows } = self.fse;
        let mut writer = Writer::<V>::new(self.words);
        if !literals.is_empty() {
            write_states(&mut writer, &[literal_rows]);
            write_literals(&mut writer, &Codes::new(literal_model, literal_rows), literals, len);
        }
        if sequences > 0 {
            write_states(&mut writer, &[token_rows, offset_rows]);
        }
        let token_codes = Codes::new(token_model, token_rows);
        let offset_codes = Codes::new(offset_model, offset_rows);
        let batches = tokens.iter().zip(offsets).take(sequences.div_ceil(BATCH));
        for (i, (tokens, offsets)) in batches.enumerate() {
            let left = sequences - i * BATCH;
            for odd in 0..2 {
                let active = active_sequences(left, odd);
                coded_row(&mut writer, &token_codes, 2 * i + odd, &tokens[odd], active);
                coded_row(&mut writer, &offset_codes, 2 * i + odd, &offsets[odd], active);
            }
        }
        writer.finish();
    }
}

/// The source of symbols' codes.
struct Codes<'a> {
    table: &'a [u32; 256],
    /// For FSE, whose codes are computed from last to first: a row for each time that every lane codes a symbol.
    rows: Option<&'a [[u32; LANES]]>,
}

impl<'a> Codes<'a> {
    fn new(model: &'a Model, rows: &'a StreamRows) -> Self {
        Self { table: &model.codes, rows: model.fse.is_some().then_some(&rows.codes) }
    }

    /// The codes of the lanes' symbols in row `i`.
    #[inline(always)]
    fn get<V: Vector>(&self, i: usize, symbols: V) -> V {
        match self.rows {
            None => V::gather(self.table, symbols),
            Some(rows) => V::load(&rows[i]),
        }
    }
}

/// Writes the initial states of decoding, all states of a lane in one row.
#[inline(always)]
fn write_states<V: Vector>(writer: &mut Writer<'_, V>, streams: &[&StreamRows]) {
    let (mut bits, mut total) = (V::splat(0), 0);
    for stream in streams.iter().filter(|stream| stream.log > 0) {
        let log = u32::from(stream.log);
        bits = bits.or(V::load(&stream.states).shl(V::splat(32 - log - total)));
        total += log;
    }
    if total > 0 {
        writer.row(bits, V::splat(total));
    }
}

#[inline(always)]
fn write_literals<V: Vector>(
    writer: &mut Writer<'_, V>,
    codes: &Codes<'_>,
    literals: &[u8],
    len: usize,
) {
    let shift = literal_shift(literals.len(), len);
    let end = literals.len() + shift;
    for row in (0..end).step_by(LITERAL_ROW) {
        let whole = row.checked_sub(shift).and_then(|i| literals.get(i..)?.first_chunk());
        match whole {
            Some(symbols) => literal_row(writer, codes, row, V::load_bytes(symbols), &ALL_ACTIVE),
            None => {
                let mut symbols = [0; LITERAL_ROW];
                let (from, to) = (row.max(shift), end.min(row + LITERAL_ROW));
                symbols[from - row..to - row].copy_from_slice(&literals[from - shift..to - shift]);
                let active = active_literals(row, shift, end);
                literal_row(writer, codes, row, V::load_bytes(&symbols), &active);
            }
        }
    }
}

/// For each of the four literals of a lane in a row, the lanes that have it.
pub(crate) type Active = [u32; 4];

/// For a row in the middle.
pub(crate) const ALL_ACTIVE: Active = [u32::MAX; 4];

/// For the row that starts at `row`, if the grid has literals from `shift` to `end`.
pub(crate) fn active_literals(row: usize, shift: usize, end: usize) -> Active {
    // The lanes whose literal `j` lies in the row before `place`.
    let before = |place: usize, j: usize| {
        let lanes = (place.saturating_sub(row) + 3 - j) / 4;
        ((1_u64 << lanes.min(LANES)) - 1) as u32
    };
    core::array::from_fn(|j| before(end, j) & !before(shift, j))
}

#[inline(always)]
fn literal_row<V: Vector>(
    writer: &mut Writer<'_, V>,
    codes: &Codes<'_>,
    row: usize,
    symbols: V,
    active: &Active,
) {
    let first = row / LANES;
    literal_pair(writer, codes, first, symbols, active[0], active[1]);
    literal_pair(writer, codes, first + 2, symbols.shr_by::<16>(), active[2], active[3]);
}

/// Writes the symbols in the lowest two bytes of each lane.
#[inline(always)]
fn literal_pair<V: Vector>(
    writer: &mut Writer<'_, V>,
    codes: &Codes<'_>,
    first: usize,
    symbols: V,
    active_a: u32,
    active_b: u32,
) {
    let (zero, byte, len_mask) = (V::splat(0), V::splat(255), V::splat(31));
    let a = V::select(active_a, codes.get(first, symbols.and(byte)), zero);
    let b = V::select(active_b, codes.get(first + 1, symbols.shr_by::<8>().and(byte)), zero);
    let (a_len, b_len) = (a.and(len_mask), b.and(len_mask));
    writer.row(a.sub(a_len).or(b.sub(b_len).shr(a_len)), a_len.add(b_len));
}

/// The lanes that have an even (`odd` is 0) or odd (1) sequence in a batch of `n`, or of [`BATCH`] if `n` is more.
#[inline(always)]
pub(crate) fn active_sequences(n: usize, odd: usize) -> u32 {
    let lanes = (n.min(BATCH) + 1 - odd) / 2;
    ((1u64 << lanes) - 1) as u32
}

/// Writes one symbol and its extra bits in each active lane.
#[inline(always)]
fn coded_row<V: Vector>(
    writer: &mut Writer<'_, V>,
    codes: &Codes<'_>,
    index: usize,
    row: &[Coded; LANES],
    active: u32,
) {
    let (head, extra) = V::load_pairs(bytemuck::cast_ref(row));
    let code = codes.get(index, head.and(V::splat(255)));
    let len = code.and(V::splat(31));
    let total = len.add(head.shr_by::<8>());
    let bits = code.sub(len).or(extra.shl(V::splat(32).sub(total)));
    let zero = V::splat(0);
    writer.row(V::select(active, bits, zero), V::select(active, total, zero));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn active_literals_are_those_of_the_grid() {
        for shift in 0..4 {
            for end in shift + 1..3 * LITERAL_ROW {
                for row in (0..end).step_by(LITERAL_ROW) {
                    let expected: Active = core::array::from_fn(|j| {
                        let has = |l: usize| (shift..end).contains(&(row + 4 * l + j));
                        (0..LANES).fold(0, |mask, l| mask | u32::from(has(l)) << l)
                    });
                    assert_eq!(active_literals(row, shift, end), expected, "{shift} {end} {row}");
                }
            }
        }
    }
}
