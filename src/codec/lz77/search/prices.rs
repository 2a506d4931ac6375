//! Prices of symbols, for the optimal parse.
//!
//! Integers only: prices decide the output, so they must be the same everywhere.

use super::candidate_lists::LONGEST;
use crate::codec::log2::{FRACTION_BITS, log2};
use crate::codec::lz77::stream::spec::{self, Coded, MAX_LITERALS, OFFSETS, RECENT, TOKENS};

/// One bit, in the unit of prices.
pub(crate) const BIT: u32 = 256;

/// Prices of all symbols of a chunk.
pub(crate) struct Prices {
    pub literals: [u32; 256],
    /// Indexed by a token's literal code and the match length. Includes the extra bits of the length, but not those of
    /// the run.
    pub lengths: Box<[[u32; LONGEST as usize + 1]; 8]>,
    /// For each offset symbol, extra bits included.
    pub offsets: [u32; OFFSETS],
    /// For each literal code of a token, for any match.
    runs: [u32; 8],
}

impl Prices {
    /// The estimated price of a run of literals before its match is known.
    #[inline(always)]
    pub(crate) fn run(&self, run: u32) -> u32 {
        let token = spec::token(run.min(MAX_LITERALS), 0);
        self.runs[token.symbol() >> 5] + (token.head >> 8) * BIT
    }

    /// The price of a run's extra bits.
    #[inline(always)]
    pub(crate) fn run_extra(&self, run: u32) -> u32 {
        (spec::token(run.min(MAX_LITERALS), 0).head >> 8) * BIT
    }
}

/// How often symbols occur.
pub(crate) struct Counts {
    pub literals: [u32; 256],
    pub tokens: [u32; TOKENS],
    pub offsets: [u32; OFFSETS],
}

impl Counts {
    /// Counts expected before a chunk is parsed: its bytes' counts as literals, and typical matches.
    pub(crate) fn expected(chunk: &[u8]) -> Self {
        /// Weights of the literal codes, and of the first match codes. The other match codes have weight 1.
        const RUNS: [u32; 8] = [48, 18, 10, 7, 5, 3, 3, 12];
        const LENGTHS: [u32; 32] = [
            0, 12, 20, 16, 13, 11, 9, 8, 7, 6, 5, 5, 4, 4, 4, 3, 3, 3, 3, 2, 12, 9, 5, 3, 2, 1, 1,
            0, 0, 0, 0, 0,
        ];
        let mut counts = Self { literals: [1; 256], tokens: [0; TOKENS], offsets: [0; OFFSETS] };
        for &byte in chunk {
            counts.literals[usize::from(byte)] += 1;
        }
        for (i, count) in counts.tokens.iter_mut().enumerate() {
            *count = RUNS[i >> 5] * LENGTHS[i & 31];
        }
        for (i, count) in counts.offsets.iter_mut().enumerate() {
            *count = match i {
                0 => 60,
                1 => 20,
                2 => 12,
                _ => 4 + (i as u32).min(28) / 3,
            };
        }
        counts
    }

    pub(crate) fn none() -> Self {
        Self { literals: [0; 256], tokens: [0; TOKENS], offsets: [0; OFFSETS] }
    }

    /// Counts literals, and returns their number.
    pub(crate) fn add_literals(&mut self, literals: &[u8]) -> u32 {
        for &byte in literals {
            self.literals[usize::from(byte)] += 1;
        }
        literals.len() as u32
    }

    /// Counts a match after a run of literals.
    pub(crate) fn add_match(&mut self, run: u32, length: u32, offset: Coded) {
        self.tokens[spec::token(run.min(MAX_LITERALS), length).symbol()] += 1;
        self.offsets[offset.symbol()] += 1;
    }

    pub(crate) fn prices(&self) -> Prices {
        let mut prices = Prices {
            literals: [0; 256],
            lengths: vec![[0; LONGEST as usize + 1]; 8].try_into().unwrap(),
            offsets: [0; OFFSETS],
            runs: [0; 8],
        };
        fill(&self.literals, &mut prices.literals);
        let mut tokens = [0; TOKENS];
        fill(&self.tokens, &mut tokens);
        for (tokens, lengths) in tokens.chunks(32).zip(prices.lengths.iter_mut()) {
            for (length, price) in lengths.iter_mut().enumerate() {
                let token = spec::match_token(length as u32);
                *price = tokens[token.symbol()] + (token.head >> 8) * BIT;
            }
        }
        fill(&self.offsets, &mut prices.offsets);
        for (i, price) in prices.offsets.iter_mut().enumerate().skip(RECENT) {
            *price += BIT * ((i - RECENT) as u32 / 2 + 1);
        }
        let mut runs = [0; 8];
        for (i, &n) in self.tokens.iter().enumerate() {
            runs[i >> 5] += n;
        }
        fill(&runs, &mut prices.runs);
        prices
    }
}

/// Prices from counts. A symbol that does not occur is priced as if it occurred half a time.
fn fill(counts: &[u32], prices: &mut [u32]) {
    let total: u32 = counts.iter().map(|&n| 2 * n + 1).sum();
    let log_total = log2(total);
    for (price, &n) in prices.iter_mut().zip(counts) {
        *price = (log_total - log2(2 * n + 1)) / ((1 << FRACTION_BITS) / BIT);
        // A Huffman code takes at least one bit; a tabled numeral system can take less.
        *price = (*price).max(BIT / 8);
    }
}
