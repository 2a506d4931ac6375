//! Length-limited canonical Huffman codes: lengths, codes, decoding tables and their compact
//! description.
//!
//! A code is fully determined by its lengths: a symbol's *length* is 0 if it does not occur, shorter codes come before
//! longer ones, and of codes of equal length the smaller symbol's comes first. Codes are written top bit first, so in a
//! table indexed by the next bits every code owns one run of entries, and these runs follow each other in code order. A
//! GPU can fill such a table with one search per entry.
//!
//! A message of fewer than two distinct symbols needs no code. So every code here has at least two symbols, and its
//! lengths fill the code space exactly.

mod description;
mod lengths;

pub use description::{description_bits, read_lengths, write_lengths};
pub use lengths::{Occurring, code_lengths};

use crate::codec::{Malformed, each_nonzero};

/// The longest code allowed, in bits.
pub const MAX_LEN: u8 = 12;

/// The most symbols that an alphabet can have.
pub const MAX_SYMBOLS: usize = 256;

/// Checks that `lengths` fill the code space exactly with lengths of at most `max_len`, and counts the codes of each
/// length.
fn count_lengths(lengths: &[u8], max_len: u8) -> Result<[u16; MAX_LEN as usize + 1], Malformed> {
    assert!(max_len <= MAX_LEN && lengths.len() <= MAX_SYMBOLS);
    let mut counts = [0u16; MAX_LEN as usize + 1];
    let mut space = 0;
    let mut is_too_long = false;
    each_nonzero(lengths, |_, len| {
        if len > max_len {
            is_too_long = true;
        } else {
            counts[usize::from(len)] += 1;
            space += 1u32 << (MAX_LEN - len);
        }
    });
    if is_too_long {
        return Err(Malformed("a code is longer than its limit"));
    }
    if space != 1 << MAX_LEN {
        return Err(Malformed("code lengths do not fill the code space"));
    }
    Ok(counts)
}

/// Assigns the canonical code of each symbol, right-aligned in `codes[s]`: its low `lengths[s]` bits are the code, to
/// be written top bit first. Symbols without a code get 0.
///
/// # Panics
/// If a length exceeds [`MAX_LEN`], or `codes` is shorter than `lengths`.
pub fn assign_codes(lengths: &[u8], codes: &mut [u16]) {
    let codes = &mut codes[..lengths.len()];
    codes.fill(0);
    each_code(lengths, |symbol, code, _| codes[symbol] = code);
}

/// Calls `take` with each symbol that has a code, its canonical code, right-aligned, and the code's length.
///
/// # Panics
/// If a length exceeds [`MAX_LEN`].
pub fn each_code(lengths: &[u8], mut take: impl FnMut(usize, u16, u8)) {
    let mut counts = [0u16; MAX_LEN as usize + 1];
    each_nonzero(lengths, |_, len| counts[usize::from(len)] += 1);
    let mut next = [0u16; MAX_LEN as usize + 1];
    for len in 1..next.len() {
        next[len] = (next[len - 1] + counts[len - 1]) << 1;
    }
    each_nonzero(lengths, |symbol, len| {
        let next = &mut next[usize::from(len)];
        take(symbol, *next, len);
        *next += 1;
    });
}

/// Fills a decoding table: the entry at the next `table_log` bits is `symbol << 4 | length`.
///
/// # Errors
/// If a length exceeds `table_log`, or the lengths do not fill the code space exactly.
///
/// # Panics
/// If `table` has fewer than `1 << table_log` entries, `table_log` exceeds [`MAX_LEN`], or there are
/// more than [`MAX_SYMBOLS`] lengths.
pub fn build_table(lengths: &[u8], table_log: u8, table: &mut [u16]) -> Result<(), Malformed> {
    build_table_of(lengths, table_log, table, |symbol, len| u16::from(symbol) << 4 | u16::from(len))
}

/// Fills a decoding table like [`build_table`], but with the entries that `entry` makes from each symbol and its
/// length.
///
/// # Errors
/// As for [`build_table`].
///
/// # Panics
/// As for [`build_table`].
pub fn build_table_of<T: Copy>(
    lengths: &[u8],
    table_log: u8,
    table: &mut [T],
    mut entry: impl FnMut(u8, u8) -> T,
) -> Result<(), Malformed> {
    let counts = count_lengths(lengths, table_log)?;
    let table = &mut table[..1 << table_log];
    // Index of the next code of each length.
    let mut next = [0usize; MAX_LEN as usize + 1];
    for len in 1..usize::from(table_log) {
        next[len + 1] = next[len] + (usize::from(counts[len]) << (usize::from(table_log) - len));
    }
    each_nonzero(lengths, |symbol, len| {
        let begin = next[usize::from(len)];
        let end = begin + (1 << (table_log - len));
        table[begin..end].fill(entry(symbol as u8, len));
        next[usize::from(len)] = end;
    });
    Ok(())
}

#[cfg(test)]
mod tests;
