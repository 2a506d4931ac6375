//! The static rANS tables of a block: how the encoder chooses them, and how they are described.
//!
//! A context's frequencies are powers of two in steps of a quarter octave, so a table is a list of small exponents.
//! Contexts form columns (those with one value of the global average) of 32 rows (the symbol's own average); tables
//! change slowly in both directions, so each is described by its differences from its neighbours above and to the
//! left. Rows that are nearly alike, or rarely used, share one table.

use super::Malformed;
use super::binary::{Bit, Coder};
use super::spec::FREQ_BITS;

/// Entries of a table in memory; tokens past the last have frequency 0.
pub const WIDTH: usize = 32;
/// Rows of a column.
const ROWS: usize = 32;
/// Steps of a frequency's exponent to an octave.
const STEPS: u32 = 4;
/// The largest exponent; exponent `q` stands for the weight 2^((q - 1) / STEPS), 0 for a token that does not occur.
const MAX_EXPONENT: u8 = (FREQ_BITS * STEPS + 1) as u8;
/// round(2^16 * 2^(i / STEPS)).
const WEIGHTS: [u64; STEPS as usize] = [65536, 77936, 92682, 110218];

/// Exponents of all tokens of one context.
pub type Exponents = [u8; WIDTH];
/// `starts[t]` is the sum of the frequencies of the tokens below `t`; from the last token on, 1 << FREQ_BITS.
pub type Starts = [u16; WIDTH];
/// How often each token occurred in one context.
pub type Counts = [u32; WIDTH];

/// Which set of tables: the number of tokens and of columns.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    pub tokens: usize,
    pub columns: usize,
}

/// The frequencies that exponents stand for.
///
/// Weights are scaled to the sum, rounded, raised to at least 1; what is then missing or too much goes to the most
/// frequent token, the first of several. A context without tokens, which no valid stream uses, gives all to token 0.
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
    // At most half a unit a token is missing, at most one and a half too much: less than the largest frequency.
    freq[best] += rest;
    let mut next = 0;
    freq.map(|f| {
        let start = next;
        next += f;
        start as u16
    })
}

/// log2 in units of 1/65536, for `x` at least 1; exact arithmetic, so that every machine chooses the same tables.
fn log2(x: u32) -> u64 {
    let e = x.ilog2();
    let mut y = u64::from(x) << (31 - e);
    let mut fraction = 0;
    for _ in 0..16 {
        y = (y * y) >> 31;
        fraction <<= 1;
        if y >> 32 != 0 {
            fraction |= 1;
            y >>= 1;
        }
    }
    u64::from(e) << 16 | fraction
}

/// Exponents nearest to the counts' proportions.
fn quantise(counts: &Counts) -> Exponents {
    let total: u32 = counts.iter().sum();
    counts.map(|c| match c {
        0 => 0,
        c => {
            let log = (log2(c) + (u64::from(FREQ_BITS) << 16)).saturating_sub(log2(total));
            1 + ((log * u64::from(STEPS) + (1 << 15)) >> 16) as u8
        }
    })
}

/// Bits, in 1/65536, to code the counted tokens with a table of their own, description included.
fn cost(counts: &Counts) -> u64 {
    let total: u32 = counts.iter().sum();
    if total == 0 {
        return 0;
    }
    let mut bits = u64::from(total) * log2(total);
    let mut described = 8;
    for &c in counts.iter().filter(|&&c| c > 0) {
        bits -= u64::from(c) * log2(c);
        described += 4;
    }
    bits + (described << 16)
}

/// Chooses the tables: which rows of each column share one, and its exponents. `fresh` marks a run's first row.
pub fn choose(shape: Shape, counts: &[Counts], exponents: &mut [Exponents], fresh: &mut [bool]) {
    for column in 0..shape.columns {
        let at = |row: usize| row * shape.columns + column;
        // best[j]: the least cost of rows 0..j, and where the last run of rows with one table begins.
        let mut best = [(0u64, 0usize); ROWS + 1];
        for end in 1..=ROWS {
            let mut sum = [0; WIDTH];
            best[end].0 = u64::MAX;
            for begin in (0..end).rev() {
                for (s, c) in sum.iter_mut().zip(&counts[at(begin)]) {
                    *s += c;
                }
                let total = best[begin].0 + cost(&sum);
                if total <= best[end].0 {
                    best[end] = (total, begin);
                }
            }
        }
        let mut end = ROWS;
        while end > 0 {
            let begin = best[end].1;
            let mut sum = [0; WIDTH];
            for row in begin..end {
                for (s, c) in sum.iter_mut().zip(&counts[at(row)]) {
                    *s += c;
                }
                fresh[at(row)] = false;
            }
            fresh[at(begin)] = sum.iter().any(|&c| c > 0);
            let table = quantise(&sum);
            for row in begin..end {
                exponents[at(row)] = table;
            }
            end = begin;
        }
    }
}

/// Models of the tables' description.
struct Models {
    fresh: [Bit; 4],
    present: [Bit; 8],
    zero: [Bit; 15],
    sign: [Bit; 15],
    more: [[Bit; 6]; 15],
}

/// Writes or reads the tables of one shape.
pub fn describe<C: Coder>(
    coder: &mut C,
    shape: Shape,
    exponents: &mut [Exponents],
    fresh: &mut [bool],
) -> Result<(), Malformed> {
    let mut models = Models {
        fresh: [Bit::NEW; 4],
        present: [Bit::NEW; 8],
        zero: [Bit::NEW; 15],
        sign: [Bit::NEW; 15],
        more: [[Bit::NEW; 6]; 15],
    };
    for column in 0..shape.columns {
        let mut above_fresh = false;
        for row in 0..ROWS {
            let at = row * shape.columns + column;
            let left = (column > 0).then(|| exponents[at - 1]);
            let above = (row > 0).then(|| exponents[at - shape.columns]);
            let left_fresh = column > 0 && fresh[at - 1];
            let model = &mut models.fresh[usize::from(above_fresh) * 2 + usize::from(left_fresh)];
            fresh[at] = coder.bit(model, fresh[at]);
            above_fresh = fresh[at];
            let near = above.or(left).unwrap_or([0; WIDTH]);
            if fresh[at] {
                let table = &mut exponents[at];
                describe_table(
                    coder,
                    &mut models,
                    shape.tokens,
                    &near,
                    &left.unwrap_or(near),
                    table,
                )?;
            } else {
                exponents[at] = near;
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
