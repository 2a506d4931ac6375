//! The rules that encoder and decoder share: tokens, the log scale, histories and contexts.
//!
//! All of it is integer arithmetic on small numbers, so a GPU lane computes the same values.

/// The most runs of a segment. It bounds a lane's work on data without runs.
pub const MAX_SEGMENT_RUNS: usize = 8192;
/// Contexts of a rank.
pub const RANK_CONTEXTS: usize = 128;
/// Contexts of a run length.
pub const RUN_CONTEXTS: usize = 256;
/// Contexts of both in one numbering: first those of ranks, then those of run lengths.
pub const CONTEXTS: usize = RANK_CONTEXTS + RUN_CONTEXTS;
/// Columns of rank contexts, one for each step of the global average; see [`super::tables`].
pub const RANK_COLUMNS: usize = 4;
/// Columns of run-length contexts.
pub const RUN_COLUMNS: usize = 8;
/// Tokens of a rank.
pub const RANK_TOKENS: usize = 28;
/// Tokens of a run length.
pub const RUN_TOKENS: usize = 29;
/// The token of a run length that follows in 32 bits.
pub const LONG_RUN_TOKEN: usize = 28;
/// From this value on, run lengths (less one) use [`LONG_RUN_TOKEN`].
pub const LONG_RUN: u32 = 8192;
/// Frequencies of a table sum to `1 << FREQ_BITS`.
pub const FREQ_BITS: u32 = 12;

/// A value's token, and its raw bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token {
    pub token: u32,
    pub raw_bits: u32,
    pub raw: u32,
}

/// Token of a rank, 1 to 255. `v = rank - 1` is its own token below 8; from there on, each octave has four tokens.
#[inline(always)]
pub const fn rank_token(rank: u32) -> Token {
    let v = rank - 1;
    if v < 8 {
        return Token { token: v, raw_bits: 0, raw: 0 };
    }
    let e = v.ilog2();
    let raw_bits = e - 2;
    let token = 8 + 4 * (e - 3) + ((v >> raw_bits) & 3);
    Token { token, raw_bits, raw: v & ((1 << raw_bits) - 1) }
}

/// Token of a run length, at least 1. `v = run - 1` is its own token below 8; from there on, each octave has two
/// tokens.
#[inline(always)]
pub const fn run_token(run: u32) -> Token {
    let v = run - 1;
    if v < 8 {
        return Token { token: v, raw_bits: 0, raw: 0 };
    }
    if v >= LONG_RUN {
        return Token { token: LONG_RUN_TOKEN as u32, raw_bits: 32, raw: v };
    }
    let e = v.ilog2();
    let raw_bits = e - 1;
    let token = 8 + 2 * (e - 3) + ((v >> raw_bits) & 1);
    Token { token, raw_bits, raw: v & ((1 << raw_bits) - 1) }
}

/// First value and number of raw bits of each rank token.
pub const RANK_BASE: [(u8, u8); 32] = {
    let mut table = [(0, 0); 32];
    let mut rank = 255;
    while rank > 0 {
        let t = rank_token(rank);
        table[t.token as usize] = (rank as u8, t.raw_bits as u8);
        rank -= 1;
    }
    table
};

/// First value and number of raw bits of each run token below [`LONG_RUN_TOKEN`].
pub const RUN_BASE: [(u16, u8); 32] = {
    let mut table = [(0, 0); 32];
    let mut run = LONG_RUN;
    while run > 0 {
        let t = run_token(run);
        table[t.token as usize] = (run as u16, t.raw_bits as u8);
        run -= 1;
    }
    table
};

/// Logarithms with 16 steps an octave, linear within an octave: 0 to 127, for values from 1. Index 0 is unused.
const LOG_SCALE: [u8; 256] = {
    let mut table = [0; 256];
    let mut v = 1u32;
    while v < 256 {
        let e = v.ilog2();
        table[v as usize] = (16 * e + (((v << (7 - e)) & 127) >> 3)) as u8;
        v += 1;
    }
    table
};

/// The log scale of a rank or run length. From 255 on it is 127.
#[inline(always)]
pub fn log_scale(value: u32) -> u32 {
    u32::from(LOG_SCALE[value.min(255) as usize])
}

/// A symbol's recent past: decaying averages of its ranks (low half) and run lengths (high half), on the log scale.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct History(u32);

impl History {
    /// The history, at the start of a segment, of the symbol at `position` of the list.
    #[inline(always)]
    pub fn at_start(position: usize) -> Self {
        Self((log_scale(position as u32 + 1) << 8) | (8 << 24))
    }

    /// The history after a run whose rank and length have these log scales.
    #[inline(always)]
    pub fn after(self, rank_log: u32, run_log: u32) -> Self {
        // The halves cannot borrow from or carry into each other: each stays at most 127 << 8 | 255.
        Self(self.0 - ((self.0 >> 3) & 0x1fff_1fff) + ((rank_log << 5) | (run_log << 21)))
    }

    #[inline(always)]
    fn rank(self) -> u32 {
        self.0 & 0xffff
    }

    #[inline(always)]
    fn run(self) -> u32 {
        self.0 >> 16
    }
}

/// The same averages over all symbols in the segment so far.
#[derive(Debug, Clone, Copy)]
pub struct Globals {
    rank: u32,
    run: u32,
}

impl Globals {
    /// The averages at the start of every segment.
    #[inline(always)]
    pub fn at_start() -> Self {
        Self { rank: 24 << 8, run: 10 << 8 }
    }

    /// The averages after a run.
    #[inline(always)]
    pub fn after(self, rank_log: u32, run_log: u32) -> Self {
        Self {
            rank: self.rank - (self.rank >> 3) + (rank_log << 5),
            run: self.run - (self.run >> 3) + (run_log << 5),
        }
    }
}

/// The context of the next run's rank, if its symbol has the history `h`.
#[inline(always)]
pub fn rank_context(h: History, g: Globals) -> usize {
    let mean = ((h.rank() * 6 + g.rank * 2) >> 13).min(31);
    (mean * 4 + (g.rank >> 13).min(3)) as usize
}

/// The context of the next run's length, if its symbol has the history `h`.
#[inline(always)]
pub fn run_context(h: History, g: Globals) -> usize {
    let mean = ((h.run() * 7 + g.run) >> 12).min(31);
    RANK_CONTEXTS + (mean * 8 + (h.rank() >> 11).min(7)) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_and_bases_agree() {
        for rank in 1..256 {
            let t = rank_token(rank);
            let (base, bits) = RANK_BASE[t.token as usize];
            assert_eq!((u32::from(base) + t.raw, u32::from(bits)), (rank, t.raw_bits));
            assert!((t.token as usize) < RANK_TOKENS);
        }
        for run in 1..=LONG_RUN {
            let t = run_token(run);
            let (base, bits) = RUN_BASE[t.token as usize];
            assert_eq!((u32::from(base) + t.raw, u32::from(bits)), (run, t.raw_bits));
            assert!((t.token as usize) < LONG_RUN_TOKEN);
        }
        assert_eq!(run_token(LONG_RUN + 1).token as usize, LONG_RUN_TOKEN);
    }

    #[test]
    fn histories_stay_in_their_halves() {
        for (rank_log, run_log) in [(127, 127), (0, 127), (127, 0), (0, 0)] {
            let (mut h, mut g) = (History::at_start(255), Globals::at_start());
            for _ in 0..1000 {
                h = h.after(rank_log, run_log);
                g = g.after(rank_log, run_log);
                assert!(h.rank() <= 127 << 8 | 255 && h.run() <= 127 << 8 | 255);
                assert!(rank_context(h, g) < RANK_CONTEXTS);
                assert!((RANK_CONTEXTS..CONTEXTS).contains(&run_context(h, g)));
            }
        }
    }
}
