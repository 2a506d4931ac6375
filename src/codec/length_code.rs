//! Code lengths on disk: the common part of the descriptions of Huffman codes and of FSE norms.
//!
//! Neighbours in an alphabet have similar frequencies: letters stand together, and so do small numbers. So the two
//! lengths before a length choose one of 25 fixed prefix codes for it. These were made from the lengths of literals,
//! match lengths and offsets of many kinds of files. They need no set-up data, and reading a length is one lookup, for
//! a CPU and for a lane of a GPU.
//!
//! - After two lengths of zero, and at the beginning, comes the number of further zeros, plus one,
//!   as an Elias gamma code: as many zero bits as the number has bits after its first, then the number.
//!   The length after it is not zero.
//! - Every other length uses the prefix code numbered by [`Context::code`].
//! - The sequence ends as soon as the code or the norms are complete: a Huffman code when its code space is full, norms
//!   when they fill their table. The remaining lengths are zero.

use super::{Malformed, each_nonzero};
use crate::bits::{BitReader, BitWriter};

/// The greatest length.
pub(super) const MAX_LEN: u8 = 12;

const SYMBOLS: usize = MAX_LEN as usize + 1;

/// The longest word of the fixed codes, in bits.
const CODE_BITS: u32 = 7;

/// For each fixed code, the bits that it uses for each length. The codes are canonical: shorter words come first, and
/// words of equal size are in the order of the lengths they stand for.
const CODES: [[u8; SYMBOLS]; 25] = [
    [0, 6, 6, 5, 4, 5, 4, 5, 4, 4, 2, 2, 3],
    [1, 7, 6, 7, 6, 5, 6, 5, 5, 5, 3, 3, 4],
    [1, 3, 5, 3, 3, 5, 6, 7, 7, 7, 7, 7, 7],
    [4, 2, 2, 2, 4, 4, 6, 7, 7, 7, 7, 7, 7],
    [3, 5, 4, 3, 4, 1, 6, 5, 6, 7, 7, 7, 7],
    [6, 5, 4, 4, 1, 3, 3, 5, 6, 7, 7, 7, 7],
    [4, 7, 7, 2, 1, 4, 5, 6, 7, 5, 7, 7, 7],
    [5, 7, 7, 3, 1, 4, 4, 4, 4, 5, 5, 7, 7],
    [4, 7, 7, 3, 1, 3, 4, 4, 6, 7, 7, 7, 7],
    [6, 7, 7, 6, 2, 1, 3, 6, 6, 6, 6, 7, 7],
    [4, 7, 7, 6, 2, 2, 2, 4, 5, 6, 5, 7, 7],
    [6, 7, 7, 7, 4, 2, 1, 4, 5, 5, 7, 7, 7],
    [4, 7, 7, 7, 5, 3, 1, 3, 4, 5, 6, 6, 7],
    [5, 7, 7, 7, 5, 3, 2, 2, 3, 4, 4, 5, 7],
    [5, 7, 7, 7, 5, 4, 4, 1, 3, 4, 4, 5, 7],
    [5, 7, 7, 7, 5, 4, 3, 2, 2, 3, 4, 5, 7],
    [4, 7, 7, 6, 6, 5, 4, 4, 1, 3, 4, 5, 6],
    [4, 7, 7, 7, 7, 5, 5, 3, 3, 2, 2, 4, 5],
    [3, 7, 7, 7, 7, 6, 5, 5, 4, 1, 3, 4, 6],
    [4, 7, 7, 7, 7, 6, 6, 5, 4, 3, 1, 3, 5],
    [3, 7, 7, 7, 7, 7, 7, 5, 5, 3, 1, 3, 6],
    [3, 7, 7, 7, 7, 6, 6, 5, 5, 4, 3, 1, 4],
    [2, 7, 7, 7, 7, 7, 7, 6, 5, 5, 4, 1, 4],
    [3, 7, 7, 7, 7, 6, 6, 5, 5, 4, 4, 3, 1],
    [2, 7, 7, 7, 7, 6, 6, 6, 6, 5, 4, 4, 1],
];

/// The words of the fixed codes.
const CODE_WORDS: [[u8; SYMBOLS]; 25] = {
    let mut words = [[0; SYMBOLS]; 25];
    let mut code = 0;
    while code < 25 {
        let mut next = 0;
        let mut bits = 1;
        while bits <= CODE_BITS {
            next <<= 1;
            let mut len = 0;
            while len < SYMBOLS {
                if CODES[code][len] as u32 == bits {
                    words[code][len] = next as u8;
                    next += 1;
                }
                len += 1;
            }
            bits += 1;
        }
        assert!(next == 1 << CODE_BITS);
        code += 1;
    }
    words
};

/// The word of each length and its bits. Room for 32 codes of 16 lengths, so that masked indices need no check.
static WRITING: [[(u8, u8); 16]; 32] = {
    let mut tables = [[(0, 0); 16]; 32];
    let mut code = 0;
    while code < 25 {
        let mut len = 0;
        while len < SYMBOLS {
            tables[code][len] = (CODE_WORDS[code][len], CODES[code][len]);
            len += 1;
        }
        code += 1;
    }
    tables
};

/// The fixed codes for reading: indexed by the next seven bits, the length and the bits to skip, as `len << 3 | bits`.
static DECODING: [[u8; 1 << CODE_BITS]; 25] = {
    let mut tables = [[0; 1 << CODE_BITS]; 25];
    let mut code = 0;
    while code < 25 {
        let mut len = 0;
        while len < SYMBOLS {
            let bits = CODES[code][len];
            if bits > 0 {
                let shift = CODE_BITS - bits as u32;
                let first = (CODE_WORDS[code][len] as usize) << shift;
                let mut i = 0;
                while i < 1 << shift {
                    tables[code][first + i] = (len as u8) << 3 | bits;
                    i += 1;
                }
            }
            len += 1;
        }
        code += 1;
    }
    tables
};

/// The two previous lengths, the nearer one first.
#[derive(Clone, Copy)]
struct Context(u8, u8);

impl Context {
    const START: Self = Self(0, 0);

    fn after_run(self) -> bool {
        self.0 == 0 && self.1 == 0
    }

    /// Which of the fixed codes to use.
    fn code(self) -> usize {
        usize::from(match self {
            Self(0, 0) => 0,
            Self(0, _) => 1,
            Self(near, 0) => 2 * near,
            Self(near, far) => near + far,
        })
    }

    fn push(&mut self, len: u8) {
        *self = Self(len, self.0);
    }

    /// Takes the next length, and returns its word in the fixed code and the word's length in bits.
    fn write(&mut self, len: u8) -> (u32, u32) {
        let (word, bits) = WRITING[self.code() % 32][usize::from(len) % 16];
        self.push(len);
        (u32::from(word), u32::from(bits))
    }
}

/// Codes lengths up to the last that is not zero, by calls of `emit(value, bits, done)`. `done` is the position of a
/// nonzero length once its code is complete.
#[inline(always)]
fn code(lengths: &[u8], mut emit: impl FnMut(u32, u32, Option<usize>)) {
    let mut context = Context::START;
    let mut next = 0;
    each_nonzero(lengths, |place, len| {
        while next < place && !context.after_run() {
            let (word, bits) = context.write(0);
            emit(word, bits, None);
            next += 1;
        }
        if context.after_run() {
            let run = (place - next) as u32 + 1;
            emit(run, 2 * run.ilog2() + 1, None);
        }
        let (word, bits) = context.write(len);
        emit(word, bits, Some(place));
        next = place + 1;
    });
}

/// Writes lengths up to the last that is not zero. After each nonzero length, `detail` may write more; it gets the
/// length's position.
pub(super) fn write(
    lengths: &[u8],
    out: &mut BitWriter<'_>,
    mut detail: impl FnMut(usize, &mut BitWriter<'_>),
) {
    code(lengths, |value, bits, done| {
        out.write(value, bits);
        if let Some(place) = done {
            detail(place, out);
        }
    });
}

/// Bits that [`write()`] takes, without details.
pub(super) fn size(lengths: &[u8]) -> u64 {
    let mut sum = 0;
    code(lengths, |_, bits, _| sum += u64::from(bits));
    sum
}

/// Reads what [`write()`] wrote for an alphabet of `size` symbols. `take` gets each nonzero length and its position,
/// reads what `detail` wrote, and returns whether more lengths follow.
pub(super) fn read(
    input: &mut BitReader<'_>,
    size: usize,
    mut take: impl FnMut(usize, u8, &mut BitReader<'_>) -> Result<bool, Malformed>,
) -> Result<(), Malformed> {
    let short = Malformed("code lengths are cut short");
    let long = Malformed("there are more code lengths than symbols");
    let mut context = Context::START;
    let mut place = 0;
    loop {
        let next = input.peek(32);
        let mut used = 0;
        if context.after_run() {
            let zeros = next.leading_zeros();
            // Alphabets have at most 256 symbols.
            if zeros > 8 {
                return Err(long);
            }
            used = 2 * zeros + 1;
            place += (next >> (32 - used)) as usize - 1;
        }
        if place >= size {
            return Err(long);
        }
        let entry = DECODING[context.code()][(next << used >> (32 - CODE_BITS)) as usize];
        input.skip(used + u32::from(entry & 7)).ok_or(short)?;
        let len = entry >> 3;
        if len > 0 && !take(place, len, input)? {
            return Ok(());
        }
        context.push(len);
        place += 1;
    }
}
