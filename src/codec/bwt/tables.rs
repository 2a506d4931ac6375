//! The static rANS tables of a block, and their description. [`super::choose`] makes them for the encoder.
//!
//! Frequencies are powers of two in steps of a third of an octave, so a context's table is a list of small exponents.
//! Contexts form columns, one for each step of the global average, of 32 rows, one for each step of the symbol's own
//! average. Tables change slowly in both directions, so each is described by its differences from its neighbours above
//! and to the left. Rows that are nearly alike, or rarely used, share one table.

use super::Malformed;
use super::binary::{Bit, Coder};
use super::spec::{
    CONTEXTS, FREQ_BITS, RANK_COLUMNS, RANK_CONTEXTS, RANK_TOKENS, RUN_COLUMNS, RUN_TOKENS,
};

/// Entries of a table in memory. Tokens past the last have frequency 0.
pub const WIDTH: usize = 32;
/// Rows of a column.
pub const ROWS: usize = 32;
/// Steps of an exponent to an octave.
pub const STEPS: u32 = 3;
/// The largest exponent. Exponent `q` stands for the weight 2^((q - 1) / STEPS), and 0 for a token that does not occur.
const MAX_EXPONENT: u8 = (FREQ_BITS * STEPS + 1) as u8;
/// round(2^16 * 2^(i / STEPS)).
const WEIGHTS: [u64; STEPS as usize] = [65536, 82570, 104032];

/// The exponents of all tokens of one context.
pub type Exponents = [u8; WIDTH];
/// `starts[t]` is the sum of the frequencies of all tokens below `t`; past the last token it is 1 << FREQ_BITS.
pub type Starts = [u16; WIDTH];

/// The most sets of tables that a block may have.
pub const MAX_SETS: usize = 8;

/// The shape of a set's tables of ranks, or of those of run lengths.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// The first context; the rest follow row by row.
    pub first: usize,
    pub tokens: usize,
    pub columns: usize,
}

/// Tables of ranks.
pub const RANKS: Shape = Shape { first: 0, tokens: RANK_TOKENS, columns: RANK_COLUMNS };
/// Tables of run lengths.
pub const RUNS: Shape = Shape { first: RANK_CONTEXTS, tokens: RUN_TOKENS, columns: RUN_COLUMNS };

/// A set of tables in the form of its description: each context's exponents, and whether the context has a table of its
/// own.
#[derive(Debug, Clone)]
pub struct Set {
    pub exponents: [Exponents; CONTEXTS],
    pub fresh: [bool; CONTEXTS],
}

impl Set {
    pub const EMPTY: Self = Self { exponents: [[0; WIDTH]; CONTEXTS], fresh: [false; CONTEXTS] };

    /// The tables as coding uses them.
    pub fn tables(&self) -> Tables {
        core::array::from_fn(|context| starts(&self.exponents[context]))
    }
}

/// A set of tables as coding uses it.
pub type Tables = [Starts; CONTEXTS];

/// Turns exponents into frequencies, and sums these up.
///
/// Scales the weights so that they add up to `1 << FREQ_BITS`, rounds them, and raises them to at least 1. The most
/// frequent token, the first of several, takes the difference that is left. In a context without tokens, which no valid
/// stream uses, token 0 gets everything.
pub fn starts(exponents: &Exponents) -> Starts {
    let weight = |q: u8| match q {
        0 => 0,
        q => WEIGHTS[usize::from(q - 1) % STEPS as usize] << (u32::from(q - 1) / STEPS),
    };
    let sum: u64 = exponents.iter().map(|&q| weight(q)).sum();
    let total = 1i32 << FREQ_BITS;
    let mut freq = [0i32; WIDTH];
    let (mut rest, mut best) = (total, 0);
    for (t, &q) in exponents.iter().enumerate().filter(|&(_, &q)| q > 0) {
        freq[t] = ((((weight(q) << FREQ_BITS) + sum / 2) / sum) as i32).max(1);
        rest -= freq[t];
        if freq[t] > freq[best] {
            best = t;
        }
    }
    // Rounding loses at most half a unit per token, and adds at most one and a half: less than the largest frequency.
    freq[best] += rest;
    let mut next = 0;
    freq.map(|f| {
        let start = next;
        next += f;
        start as u16
    })
}

/// Models of the tables' description.
struct Models {
    fresh: [Bit; 4],
    present: [Bit; 8],
    zero: [Bit; 15],
    sign: [Bit; 15],
    more: [[Bit; 6]; 15],
}

/// Writes or reads the tables of one shape, for all sets.
pub fn describe<C: Coder>(coder: &mut C, shape: Shape, sets: &mut [Set]) -> Result<(), Malformed> {
    let mut models = Models {
        fresh: [Bit::NEW; 4],
        present: [Bit::NEW; 8],
        zero: [Bit::NEW; 15],
        sign: [Bit::NEW; 15],
        more: [[Bit::NEW; 6]; 15],
    };
    for Set { exponents, fresh } in sets {
        for column in 0..shape.columns {
            for row in 0..ROWS {
                let at = shape.first + row * shape.columns + column;
                let above = row.checked_sub(1).map(|_| at - shape.columns);
                let left = column.checked_sub(1).map(|_| at - 1);
                let is_fresh = |near: Option<usize>| usize::from(near.is_some_and(|at| fresh[at]));
                let context = is_fresh(above) * 2 + is_fresh(left);
                fresh[at] = coder.bit(&mut models.fresh[context], fresh[at]);
                let table = |near: Option<usize>| near.map(|at| exponents[at]);
                let above = table(above).or(table(left)).unwrap_or([0; WIDTH]);
                if fresh[at] {
                    let left = table(left).unwrap_or(above);
                    let table = &mut exponents[at];
                    describe_table(coder, &mut models, shape.tokens, &above, &left, table)?;
                } else {
                    exponents[at] = above;
                }
            }
        }
    }
    Ok(())
}

fn describe_table<C: Coder>(
    coder: &mut C,
    models: &mut Models,
    tokens: usize,
    above: &Exponents,
    left: &Exponents,
    table: &mut Exponents,
) -> Result<(), Malformed> {
    let (mut before_present, mut before) = (true, 0i32);
    for t in 0..tokens {
        let (a, b) = (i32::from(above[t]), i32::from(left[t]));
        let context = usize::from(a > 0) * 4 + usize::from(b > 0) * 2 + usize::from(before_present);
        before_present = coder.bit(&mut models.present[context], table[t] > 0);
        if !before_present {
            table[t] = 0;
            continue;
        }
        let (guess, kind) = match (a, b) {
            (0, 0) => (4, 4),
            (0, q) | (q, 0) => (q, 3),
            (a, b) => ((a + b + 1) / 2, ((a - b).unsigned_abs() as usize + 1).ilog2().min(2)),
        };
        let context = kind as usize * 3 + before.unsigned_abs().min(2) as usize;
        let difference = i32::from(table[t]) - guess;
        let mut decoded = 0;
        if coder.bit(&mut models.zero[context], difference != 0) {
            let sign = kind as usize * 3 + (before.signum() + 1) as usize;
            let negative = coder.bit(&mut models.sign[sign], difference < 0);
            let size = difference.abs();
            let mut n = 1;
            while n < 7 && coder.bit(&mut models.more[context][n as usize - 1], size > n) {
                n += 1;
            }
            if n == 7 {
                n += coder.raw(6, (size - 7).max(0) as u32) as i32;
            }
            decoded = if negative { -n } else { n };
        }
        before = decoded;
        table[t] = u8::try_from(guess + decoded)
            .ok()
            .filter(|q| (1..=MAX_EXPONENT).contains(q))
            .ok_or(Malformed("table exponent out of range"))?;
    }
    table[tokens..].fill(0);
    Ok(())
}
