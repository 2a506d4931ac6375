//! Reads a chunk's rows without vector instructions, lane after lane.
//!
//! Within a row, lanes affect each other only through the words that they take. So each lane can finish its row before
//! the next lane begins, and keeps its bits in one 64-bit register meanwhile.

use super::{ALL_ACTIVE, Active, LITERAL_ROW, active_literals, active_sequences};
use crate::codec::Malformed;
use crate::codec::lanes::LANES;
use crate::codec::lz77::stream::decode::{ReadRows, UNFINISHED};
use crate::codec::lz77::stream::execute::{Executor, SequenceBatch};
use crate::codec::lz77::stream::models::{Decoding, TABLE};
use crate::codec::lz77::stream::spec::{
    BATCH, LITERAL_ESCAPES, LITERALS_ESCAPE, MATCH_CODES, MAX_LITERALS, MAX_MATCH, RECENT,
};

/// Reads a lane stream.
pub(in crate::codec::lz77) struct ScalarReader<'a> {
    lanes: [Lane; LANES],
    words: &'a [u8],
    /// Bytes taken so far. May exceed the length of `words`.
    taken: usize,
}

#[derive(Clone, Copy, Default)]
struct Lane {
    /// The next bit is the top one. Bits not held are zero.
    bits: u64,
    /// Bits held.
    count: u32,
}

impl<'a> ScalarReader<'a> {
    /// A reader of little-endian words. The length of `words` is a multiple of 4.
    pub(in crate::codec::lz77) fn new(words: &'a [u8]) -> Self {
        Self { lanes: [Lane::default(); LANES], words, taken: 0 }
    }

    /// Reads a row: `take` gets each lane and its bits, at least 32, and returns how many it takes, at most 31.
    #[inline(always)]
    fn row(&mut self, mut take: impl FnMut(usize, u64) -> u32) {
        let mut last = [0; 4 * LANES];
        let rest = self.words.get(self.taken..).unwrap_or_default();
        let words = rest.first_chunk().unwrap_or_else(|| {
            last[..rest.len()].copy_from_slice(rest);
            &last
        });
        let (words, _) = words.as_chunks::<4>();
        let mut next = 0;
        for (l, lane) in self.lanes.iter_mut().enumerate() {
            let Lane { mut bits, mut count } = *lane;
            let need = u32::from(count < 32);
            let word = u32::from_le_bytes(words[next % LANES]);
            // If a lane needs no word, its top 32 bits are full, and the shift by at most 31 leaves them alone.
            bits |= (u64::from(word) << 32 >> (count & 31)) * u64::from(need);
            count += 32 * need;
            next += need as usize;
            let used = take(l, bits);
            *lane = Lane { bits: bits << (used & 31), count: count - used };
        }
        self.taken += 4 * next;
    }
}

/// A stream's decoder for all lanes.
struct Symbols<'a, const FSE: bool> {
    table: &'a [u32; TABLE],
    log: u32,
    states: [u32; LANES],
}

impl<'a, const FSE: bool> Symbols<'a, FSE> {
    fn new(model: &'a Decoding) -> Self {
        Self { table: &model.table, log: model.log.into(), states: [0; LANES] }
    }

    /// Takes a lane's state from `bits`, and returns how many bits the state takes.
    #[inline(always)]
    fn start(&mut self, lane: usize, bits: u64) -> u32 {
        if !FSE {
            return 0;
        }
        self.states[lane] = top(bits, self.log) as u32;
        self.log
    }

    /// A lane's symbol, and the number of `bits` it takes.
    #[inline(always)]
    fn next(&mut self, lane: usize, bits: u64) -> (u32, u32) {
        if FSE {
            let entry = self.table[self.states[lane] as usize % TABLE];
            let count = entry >> 8 & 255;
            self.states[lane] = (entry >> 16) + top(bits, count) as u32;
            (entry & 255, count)
        } else {
            let entry = self.table[top(bits, self.log) as usize % TABLE];
            (entry & 255, entry >> 8)
        }
    }

    fn finish(&self) -> Result<(), Malformed> {
        if FSE && self.states != [0; LANES] { Err(UNFINISHED) } else { Ok(()) }
    }
}

/// The top `n` bits; `n` is 0 to 63.
#[inline(always)]
fn top(bits: u64, n: u32) -> u64 {
    bits >> 1 >> ((63 - n) & 63)
}

impl ReadRows for ScalarReader<'_> {
    fn literals<const FSE: bool>(
        &mut self,
        model: &Decoding,
        grid: &mut [u8],
        shift: usize,
        end: usize,
    ) -> Result<(), Malformed> {
        let mut symbols = Symbols::<FSE>::new(model);
        if FSE {
            self.row(|l, bits| symbols.start(l, bits));
        }
        let (rows, _) = grid.as_chunks_mut::<LITERAL_ROW>();
        for (i, row) in rows[..end.div_ceil(LITERAL_ROW)].iter_mut().enumerate() {
            let start = i * LITERAL_ROW;
            if start >= shift && start + LITERAL_ROW <= end {
                self.literal_row(&mut symbols, row, &ALL_ACTIVE);
            } else {
                self.literal_row(&mut symbols, row, &active_literals(start, shift, end));
            }
        }
        symbols.finish()
    }

    fn sequences<const FSE_TOKENS: bool, const FSE_OFFSETS: bool>(
        &mut self,
        tokens: &Decoding,
        offsets: &Decoding,
        count: usize,
        executor: &mut Executor<'_>,
    ) -> Result<(), Malformed> {
        let mut tokens = Symbols::<FSE_TOKENS>::new(tokens);
        let mut offsets = Symbols::<FSE_OFFSETS>::new(offsets);
        if FSE_TOKENS || FSE_OFFSETS {
            self.row(|l, bits| {
                let used = tokens.start(l, bits);
                used + offsets.start(l, bits << used)
            });
        }
        let mut batch = SequenceBatch::default();
        let mut left = count;
        while left > 0 {
            let n = left.min(BATCH);
            self.read_sequences(&mut tokens, &mut offsets, n, &mut batch);
            executor.run(&batch, n)?;
            left -= n;
        }
        tokens.finish()?;
        offsets.finish()
    }

    fn is_at_end(&self) -> bool {
        self.taken >= self.words.len() && self.lanes.iter().all(|lane| lane.bits == 0)
    }
}

impl ScalarReader<'_> {
    #[inline(always)]
    fn literal_row<const FSE: bool>(
        &mut self,
        symbols: &mut Symbols<'_, FSE>,
        row: &mut [u8; LITERAL_ROW],
        active: &Active,
    ) {
        let (quads, _) = row.as_chunks_mut::<4>();
        for half in 0..2 {
            self.row(|l, bits| {
                let mut used = 0;
                for j in 2 * half..2 * half + 2 {
                    if active[j] >> l & 1 != 0 {
                        let (symbol, count) = symbols.next(l, bits << used);
                        quads[l][j] = symbol as u8;
                        used += count;
                    }
                }
                used
            });
        }
    }

    /// Reads the `n` sequences of a batch.
    #[inline(always)]
    fn read_sequences<const FSE_TOKENS: bool, const FSE_OFFSETS: bool>(
        &mut self,
        tokens: &mut Symbols<'_, FSE_TOKENS>,
        offsets: &mut Symbols<'_, FSE_OFFSETS>,
        n: usize,
        batch: &mut SequenceBatch,
    ) {
        batch.exceeds = 0;
        for odd in 0..2 {
            let active = active_sequences(n, odd);
            self.row(|l, bits| {
                if active >> l & 1 == 0 {
                    return 0;
                }
                let (token, mut used) = tokens.next(l, bits);
                let mut run = token >> 5;
                if run == LITERALS_ESCAPE {
                    let escape = LITERAL_ESCAPES[top(bits << used, 3) as usize % 8];
                    used += 3;
                    run = (escape & 0xffff) + top(bits << used, escape >> 16) as u32;
                    used += escape >> 16;
                }
                let code = MATCH_CODES[token as usize % MATCH_CODES.len()];
                let length = (code & 0xffff) + top(bits << used, code >> 16) as u32;
                batch.exceeds |= u32::from(run > MAX_LITERALS || length > MAX_MATCH);
                batch.lengths[odd][l] = run | length << 16;
                used + (code >> 16)
            });
            self.row(|l, bits| {
                if active >> l & 1 == 0 {
                    return 0;
                }
                let (symbol, used) = offsets.next(l, bits);
                let Some(y) = symbol.checked_sub(RECENT as u32) else {
                    batch.offsets[odd][l] = symbol;
                    return used;
                };
                let k = (y >> 1) + 1;
                let extra = top(bits << used, k) as u32;
                // The coded value is the offset plus 3; explicit offsets start at RECENT, to tell them from recent
                // ones.
                batch.offsets[odd][l] = ((2 | y & 1) << k) + extra - 3 + (RECENT as u32 - 1);
                used + k
            });
        }
    }
}
