//! The codes of LZ77 payloads, on which encoder, decoder and kernels must agree.
//!
//! A *sequence* is a run of literals followed by a match. Its two lengths share one *token*, a symbol of 256; its
//! offset is a symbol of 48. Where there are too few symbols for exact values, a symbol stands for a base, and extra
//! bits are added to it ("log2 codes").

use core::hint::select_unpredictable;

/// The most literals of a sequence.
pub(crate) const MAX_LITERALS: u32 = 511;
/// The longest match. With [`MAX_LITERALS`] it keeps the bytes of 64 sequences below 64 KiB, so that a decoder can sum
/// them in 16 bits.
pub(crate) const MAX_MATCH: u32 = 512;
/// The shortest match.
pub(crate) const MIN_MATCH: u32 = 3;

/// Symbols of the token alphabet and of the literal alphabet.
pub(crate) const TOKENS: usize = 256;
/// Symbols of the offset alphabet: enough for a window of 2^24 bytes.
pub(crate) const OFFSETS: usize = 48;

/// Recent offsets that have a symbol of their own.
pub(crate) const RECENT: usize = 3;
/// The recent offsets at the start of a chunk, the most recent first.
pub(crate) const INITIAL_RECENT: [u32; RECENT] = [1, 4, 8];

/// The longest Huffman code of a literal or a token, and of an offset.
pub(crate) const SYMBOL_BITS: u8 = 10;
pub(crate) const OFFSET_BITS: u8 = 8;

/// Sequences in a group of rows: lane `l` has sequences `2l` and `2l + 1`.
pub(crate) const BATCH: usize = 64;

/// The literal code of a token whose run length is in extra bits.
pub(crate) const LITERALS_ESCAPE: u32 = 7;
/// After [`LITERALS_ESCAPE`], three bits choose one of these pairs of base and extra bits, as `base | bits << 16`.
pub(crate) const LITERAL_ESCAPES: [u32; 8] = [
    7,
    8 | 1 << 16,
    10 | 2 << 16,
    14 | 3 << 16,
    22 | 4 << 16,
    38 | 5 << 16,
    70 | 6 << 16,
    134 | 9 << 16,
];
/// The first match code with extra bits, and the code of [`MAX_MATCH`], which has none.
pub(crate) const MATCH_EXTRA: u32 = 20;
pub(crate) const MATCH_LONGEST: u32 = 26;

/// Base and extra bits of each match code, as `base | bits << 16`. Codes above [`MATCH_LONGEST`] are invalid; they
/// decode to a match that is too long.
pub(crate) const MATCH_CODES: [u32; 32] = {
    let mut codes = [0; 32];
    let mut code = 1;
    while code < 32 {
        codes[code as usize] = if code < MATCH_EXTRA {
            code + 2
        } else if code < MATCH_LONGEST {
            let bits = code - 17;
            (14 + (1 << bits)) | bits << 16
        } else if code == MATCH_LONGEST {
            MAX_MATCH
        } else {
            0xffff
        };
        code += 1;
    }
    codes
};

/// A symbol and its extra bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub(crate) struct Coded {
    /// `symbol | number of extra bits << 8`.
    pub head: u32,
    /// The extra bits, right-aligned.
    pub extra: u32,
}

impl Coded {
    const fn new(symbol: u32, bits: u32, extra: u32) -> Self {
        Self { head: symbol | bits << 8, extra }
    }

    pub(crate) fn symbol(self) -> usize {
        self.head as usize & 255
    }

    #[cfg(test)]
    fn bits(self) -> u32 {
        self.head >> 8
    }
}

/// The offset of a sequence without a match.
pub(crate) const NO_OFFSET: Coded = Coded::new(0, 0, 0);

/// The token of each run of literals without a match.
static LITERAL_TOKENS: [Coded; MAX_LITERALS as usize + 1] = {
    let mut tokens = [NO_OFFSET; MAX_LITERALS as usize + 1];
    let mut n = 0;
    while n <= MAX_LITERALS {
        tokens[n as usize] = if n < LITERALS_ESCAPE {
            Coded::new(n << 5, 0, 0)
        } else {
            let log = (n - (LITERALS_ESCAPE - 1)).ilog2();
            let row = if log < 7 { log } else { 7 };
            let escape = LITERAL_ESCAPES[row as usize];
            let (base, bits) = (escape & 0xffff, escape >> 16);
            Coded::new(LITERALS_ESCAPE << 5, 3 + bits, row << bits | (n - base))
        };
        n += 1;
    }
    tokens
};

/// The token of each match without literals. Lengths 1 and 2 have none.
static MATCH_TOKENS: [Coded; MAX_MATCH as usize + 1] = {
    let mut tokens = [NO_OFFSET; MAX_MATCH as usize + 1];
    let mut n = MIN_MATCH;
    while n < MAX_MATCH {
        tokens[n as usize] = if n < 22 {
            Coded::new(n - 2, 0, 0)
        } else {
            let bits = (n - 14).ilog2();
            Coded::new(17 + bits, bits, n - 14 - (1 << bits))
        };
        n += 1;
    }
    tokens[MAX_MATCH as usize] = Coded::new(MATCH_LONGEST, 0, 0);
    tokens
};

/// The token of a run of `literals` and a match of `length` (0: no match).
#[inline(always)]
pub(crate) fn token(literals: u32, length: u32) -> Coded {
    debug_assert!(length != 1 && length != 2);
    let (run, m) = (LITERAL_TOKENS[literals as usize], MATCH_TOKENS[length as usize]);
    Coded { head: run.head + m.head, extra: run.extra << (m.head >> 8) | m.extra }
}

/// The token of a match of `length` with no literals before it.
pub(crate) fn match_token(length: u32) -> Coded {
    MATCH_TOKENS[length as usize]
}

/// The symbol of an explicit offset.
#[inline(always)]
pub(crate) fn offset(offset: u32) -> Coded {
    debug_assert!(offset > 0 && offset <= 1 << 24);
    let x = offset + 3;
    let k = x.ilog2() - 1;
    // The top two bits of `x` are 2 or 3.
    let top = x >> k;
    Coded::new(RECENT as u32 + 2 * k + top - 4, k, x - (top << k))
}

/// The latest explicit offsets of a chunk, as a queue, the newest first.
///
/// Using a recent offset does not move it to the front. So a decoder finds the entry of a symbol by counting the
/// explicit offsets before it, with no serial dependence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recent(pub [u32; RECENT]);

impl Recent {
    pub(crate) const START: Self = Self(INITIAL_RECENT);

    /// Returns the symbol of `offset`, and records the offset if it is explicit.
    #[inline(always)]
    pub(crate) fn code(&mut self, offset: u32) -> Coded {
        // No branches: which of the three matches is nearly unpredictable.
        let [a, b, c] = self.0;
        let known = (offset == a) | (offset == b) | (offset == c);
        let index = select_unpredictable(offset == a, 0, select_unpredictable(offset == b, 1, 2));
        self.0[0] = select_unpredictable(known, a, offset);
        self.0[1] = select_unpredictable(known, b, a);
        self.0[2] = select_unpredictable(known, c, b);
        let explicit = self::offset(offset);
        Coded {
            head: select_unpredictable(known, index, explicit.head),
            extra: select_unpredictable(known, 0, explicit.extra),
        }
    }

    /// Puts the offset in front, if it is explicit.
    #[inline(always)]
    pub(crate) fn record(&mut self, offset: u32) {
        let [a, b, c] = self.0;
        if ![a, b, c].contains(&offset) {
            self.0 = [offset, a, b];
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_one_token_that_says_it() {
        for literals in 0..=MAX_LITERALS {
            for length in (0..=MAX_MATCH).filter(|l| !(1..MIN_MATCH).contains(l)) {
                let t = token(literals, length);
                let code = MATCH_CODES[t.symbol() & 31];
                let match_bits = code >> 16;
                assert_eq!(length, (code & 0xffff) + (t.extra & ((1 << match_bits) - 1)));
                let mut run = t.symbol() as u32 >> 5;
                let mut bits = match_bits;
                if run == LITERALS_ESCAPE {
                    let rest = t.extra >> match_bits;
                    let escape_bits = t.bits() - match_bits - 3;
                    let row = LITERAL_ESCAPES[(rest >> escape_bits) as usize];
                    assert_eq!(row >> 16, escape_bits);
                    run = (row & 0xffff) + (rest & ((1 << escape_bits) - 1));
                    bits += 3 + escape_bits;
                }
                assert_eq!((run, bits), (literals, t.bits()));
                assert!(bits + u32::from(SYMBOL_BITS) <= crate::codec::lanes::MAX_ROW_BITS);
            }
        }
    }

    #[test]
    fn every_offset_has_one_symbol_that_says_it() {
        for off in (1..5000).chain((12..=24).flat_map(|k| [(1 << k) - 3, (1 << k) - 1, 1 << k])) {
            let c = offset(off);
            let y = c.symbol() as u32 - RECENT as u32;
            let k = (y >> 1) + 1;
            assert_eq!(k, c.bits());
            assert_eq!(off, ((2 | (y & 1)) << k) + c.extra - 3);
            assert!(c.symbol() < OFFSETS);
            assert!(k + u32::from(OFFSET_BITS) <= crate::codec::lanes::MAX_ROW_BITS);
        }
    }
}
