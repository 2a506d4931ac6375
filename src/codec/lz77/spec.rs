//! The codes of LZ77 payloads: what encoder, decoder and kernels must agree on.
//!
//! A *sequence* is a run of literals followed by a match. Its two lengths share one *token*, a symbol of 256; its
//! offset is a symbol of 64. Lengths and offsets beyond what a symbol says exactly are the symbol's base plus extra
//! bits ("log2 codes").

/// Literals of a sequence, at most.
pub(crate) const MAX_LITERALS: u32 = 511;
/// Length of a match, at most. With [`MAX_LITERALS`] it keeps the bytes of 64 sequences below 64 KiB, so that a
/// decoder may sum them in 16 bits.
pub(crate) const MAX_MATCH: u32 = 512;
/// Length of a match, at least.
pub(crate) const MIN_MATCH: u32 = 3;

/// Symbols of the token alphabet and of the literal alphabet.
pub(crate) const TOKENS: usize = 256;
/// Symbols of the offset alphabet.
pub(crate) const OFFSETS: usize = 64;

/// Recent offsets that have a symbol of their own.
pub(crate) const RECENT: usize = 3;
/// The recent offsets at the start of a chunk, the most recent first.
pub(crate) const INITIAL_RECENT: [u32; RECENT] = [1, 4, 8];

/// The longest Huffman code of a literal or a token, and of an offset.
pub(crate) const SYMBOL_BITS: u8 = 10;
pub(crate) const OFFSET_BITS: u8 = 8;

/// Sequences in a group of rows: lane `l` has the `2l`-th and the `2l+1`-th.
pub(crate) const BATCH: usize = 64;

/// The token's literal code for a length that extra bits tell.
pub(crate) const LITERALS_ESCAPE: u32 = 7;
/// What follows an escaped literal code: three bits that choose a row of base and extra bits, as `base | bits << 16`.
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
/// The first match code with extra bits, and the one for [`MAX_MATCH`], which has none.
pub(crate) const MATCH_EXTRA: u32 = 20;
pub(crate) const MATCH_LONGEST: u32 = 26;

/// Base and extra bits of each match code, as `base | bits << 16`. Codes above [`MATCH_LONGEST`] are invalid, and read
/// as a match that is too long.
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

/// A symbol and its extra bits, right-aligned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Coded {
    pub symbol: u8,
    pub bits: u8,
    pub extra: u32,
}

/// What stands in the stream of offsets for a sequence without a match.
pub(crate) const NO_OFFSET: Coded = Coded { symbol: 0, bits: 0, extra: 0 };

/// The token of a run of `literals` and a match of `length` (0: no match).
#[inline(always)]
pub(crate) fn token(literals: u32, length: u32) -> Coded {
    debug_assert!(literals <= MAX_LITERALS && length <= MAX_MATCH && length != 1 && length != 2);
    let (mut literal_code, mut extra, mut bits) = (literals, 0, 0);
    if literals >= LITERALS_ESCAPE {
        literal_code = LITERALS_ESCAPE;
        let row = (literals - (LITERALS_ESCAPE - 1)).ilog2().min(7);
        let (base, k) = (LITERAL_ESCAPES[row as usize] & 0xffff, LITERAL_ESCAPES[row as usize] >> 16);
        extra = row << k | (literals - base);
        bits = 3 + k;
    }
    let match_code = if length < 22 {
        length.saturating_sub(2)
    } else if length == MAX_MATCH {
        MATCH_LONGEST
    } else {
        let x = length - 14;
        let k = x.ilog2();
        extra = extra << k | (x - (1 << k));
        bits += k;
        17 + k
    };
    Coded { symbol: (literal_code << 5 | match_code) as u8, bits: bits as u8, extra }
}

/// The symbol of an explicit offset.
#[inline(always)]
pub(crate) fn offset(offset: u32) -> Coded {
    debug_assert!(offset > 0 && offset <= 1 << 24);
    let x = offset + 3;
    let k = x.ilog2() - 1;
    let symbol = RECENT as u32 + 2 * (k - 1) + (x >> k & 1);
    Coded { symbol: symbol as u8, bits: k as u8, extra: x & ((1 << k) - 1) }
}

/// The offsets that a chunk's sequences named explicitly, the latest first: a queue.
///
/// Using a recent offset does not move it to the front, so a decoder finds the entry that a symbol means from the
/// count of explicit offsets before it, with no serial dependence.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recent(pub [u32; RECENT]);

impl Recent {
    pub(crate) const START: Self = Self(INITIAL_RECENT);

    /// The symbol of `offset`, which the queue then knows of.
    #[inline(always)]
    pub(crate) fn code(&mut self, offset: u32) -> Coded {
        match self.0.iter().position(|&o| o == offset) {
            Some(i) => Coded { symbol: i as u8, bits: 0, extra: 0 },
            None => {
                self.push(offset);
                self::offset(offset)
            }
        }
    }

    /// Puts an explicit offset in front.
    #[inline(always)]
    pub(crate) fn push(&mut self, offset: u32) {
        let [a, b, _] = self.0;
        self.0 = [offset, a, b];
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
                let code = MATCH_CODES[t.symbol as usize & 31];
                let match_bits = code >> 16;
                assert_eq!(length, (code & 0xffff) + (t.extra & ((1 << match_bits) - 1)));
                let mut run = u32::from(t.symbol) >> 5;
                let mut bits = match_bits;
                if run == LITERALS_ESCAPE {
                    let rest = t.extra >> match_bits;
                    let escape_bits = u32::from(t.bits) - match_bits - 3;
                    let row = LITERAL_ESCAPES[(rest >> escape_bits) as usize];
                    assert_eq!(row >> 16, escape_bits);
                    run = (row & 0xffff) + (rest & ((1 << escape_bits) - 1));
                    bits += 3 + escape_bits;
                }
                assert_eq!((run, bits), (literals, u32::from(t.bits)));
                assert!(bits + u32::from(SYMBOL_BITS) <= crate::codec::lanes::MAX_ROW_BITS);
            }
        }
    }

    #[test]
    fn every_offset_has_one_symbol_that_says_it() {
        for off in (1..5000).chain((12..=24).flat_map(|k| [(1 << k) - 3, (1 << k) - 1, 1 << k])) {
            let c = offset(off);
            let y = u32::from(c.symbol) - RECENT as u32;
            let k = (y >> 1) + 1;
            assert_eq!(k, u32::from(c.bits));
            assert_eq!(off, ((2 | (y & 1)) << k) + c.extra - 3);
            assert!(usize::from(c.symbol) < OFFSETS);
            assert!(k + u32::from(OFFSET_BITS) <= crate::codec::lanes::MAX_ROW_BITS);
        }
    }
}
