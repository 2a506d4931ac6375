//! Scales symbol counts to a table's size.

use core::cmp::Ordering;

use super::{MAX_SYMBOLS, MAX_TABLE_LOG, MIN_TABLE_LOG};

/// `ln(1 + 1 / n)` in units of `2^-32`: the worth of one more state to a symbol with `n` states, each time the symbol
/// occurs. It always falls as `n` grows; differences of rounded logarithms would not.
const WORTH: [u32; 1 << MAX_TABLE_LOG] = {
    let mut worth = [u32::MAX; 1 << MAX_TABLE_LOG];
    let mut n = 1;
    while n < worth.len() {
        // 2 artanh(1 / (2 n + 1)), by its series.
        let y = 2 * n as u128 + 1;
        let terms = [y, 3 * y.pow(3), 5 * y.pow(5), 7 * y.pow(7)];
        let mut i = 0;
        let mut sum = 0;
        while i < terms.len() {
            sum += (1 << 33) / terms[i];
            i += 1;
        }
        worth[n] = sum as u32;
        n += 1;
    }
    worth
};

/// A symbol's loss without its last state, and its gain from one more.
#[derive(Clone, Copy)]
struct Margin {
    /// `u64::MAX` if the last state is the only one.
    loss: u64,
    gain: u64,
}

impl Margin {
    fn new(freq: u32, n: u16) -> Self {
        let worth =
            |n: u16| WORTH.get(usize::from(n)).map_or(0, |&w| u64::from(freq) * u64::from(w));
        Self { loss: if n == 1 { u64::MAX } else { worth(n - 1) }, gain: worth(n) }
    }
}

/// Shares out the `1 << table_log` states of a table among the symbols that occur, at least one each, so that a message
/// with these counts becomes as short as possible. If no symbol occurs, every norm is 0; a lone symbol gets the whole
/// table.
///
/// # Panics
/// If `table_log` is not between [`MIN_TABLE_LOG`] and [`MAX_TABLE_LOG`], more symbols occur than
/// there are states, there are more than [`MAX_SYMBOLS`] counts, or `freqs` and `norm` differ in length.
pub fn normalize(freqs: &[u32], table_log: u8, norm: &mut [u16]) {
    assert!((MIN_TABLE_LOG..=MAX_TABLE_LOG).contains(&table_log));
    assert!(freqs.len() <= MAX_SYMBOLS && norm.len() == freqs.len());
    norm.fill(0);
    let size = 1u64 << table_log;
    let mut present = [0u8; MAX_SYMBOLS];
    let mut count = 0;
    for (symbol, &freq) in freqs.iter().enumerate() {
        present[count & 0xff] = symbol as u8;
        count += usize::from(freq > 0);
    }
    let present = &present[..count];
    assert!(count as u64 <= size);
    if count == 0 {
        return;
    }
    let sum = approximate(freqs, present, size, norm);
    settle(freqs, present, size, sum, norm);
}

/// Gives each symbol its share of the states, rounded, at least one. Returns the sum.
fn approximate(freqs: &[u32], present: &[u8], size: u64, norm: &mut [u16]) -> u64 {
    let freq_of = |symbol: u8| freqs[usize::from(symbol)];
    // Rare symbols deserve less than the one state they must have. The other symbols pay for the difference, which may
    // turn more of them rare.
    let mut total: u64 = present.iter().map(|&symbol| u64::from(freq_of(symbol))).sum();
    let mut states = size;
    loop {
        let (total_before, states_before) = (total, states);
        for &symbol in present {
            let freq = u64::from(freq_of(symbol));
            if norm[usize::from(symbol)] == 0 && freq * states_before <= total_before {
                norm[usize::from(symbol)] = 1;
                total -= freq;
                states -= 1;
            }
        }
        if states == states_before || total == 0 {
            break;
        }
    }
    let mut sum = size - states;
    for &symbol in present {
        let n = &mut norm[usize::from(symbol)];
        if *n == 0 {
            *n = ((u64::from(freq_of(symbol)) * states + total / 2) / total).max(1) as u16;
            sum += u64::from(*n);
        }
    }
    sum
}

/// Adds, removes and moves states, one at a time, until the norms, whose sum is `sum`, add up to `size` and no move
/// makes the message shorter. Its size is a sum of convex functions, so once moving any single state gains nothing, it
/// is the best possible.
fn settle(freqs: &[u32], present: &[u8], size: u64, mut sum: u64, norm: &mut [u16]) {
    let freq_of = |symbol: u8| freqs[usize::from(symbol)];
    let mut margins = [Margin { loss: u64::MAX, gain: 0 }; MAX_SYMBOLS];
    let margins = &mut margins[..present.len()];
    for (margin, &symbol) in margins.iter_mut().zip(present) {
        *margin = Margin::new(freq_of(symbol), norm[usize::from(symbol)]);
    }
    loop {
        let (mut cheapest, mut dearest) = (0, 0);
        for (i, margin) in margins.iter().enumerate() {
            if margin.loss < margins[cheapest].loss {
                cheapest = i;
            }
            if margin.gain > margins[dearest].gain {
                dearest = i;
            }
        }
        let misplaced = margins[dearest].gain > margins[cheapest].loss;
        if sum == size && !misplaced {
            break;
        }
        let mut change = |i: usize, by: i16| {
            let n = &mut norm[usize::from(present[i])];
            *n = n.wrapping_add_signed(by);
            margins[i] = Margin::new(freq_of(present[i]), *n);
        };
        if sum >= size {
            change(cheapest, -1);
        }
        if sum <= size {
            change(dearest, 1);
        }
        match sum.cmp(&size) {
            Ordering::Less => sum += 1,
            Ordering::Equal => {}
            Ordering::Greater => sum -= 1,
        }
    }
}
