//! The compact description of normalised counts.
//!
//! A norm from `2^(table_log - l)` up to twice that is like a code of length `l`, and these lengths are written like
//! those of Huffman codes. After each come the bits of the norm below its top bit, which tell it apart from other norms
//! of that length.

use super::tables::check_norm;
use super::{MAX_SYMBOLS, MAX_TABLE_LOG, MIN_TABLE_LOG};
use crate::bits::{BitReader, BitWriter};
use crate::codec::{Malformed, length_code};

/// The lengths that stand for the norms.
fn lengths(norm: &[u16], table_log: u8) -> [u8; MAX_SYMBOLS] {
    let mut lengths = [0; MAX_SYMBOLS];
    for (len, &n) in lengths.iter_mut().zip(norm) {
        assert!(n < 1 << table_log, "two symbols have states");
        *len = if n == 0 { 0 } else { table_log - n.ilog2() as u8 };
    }
    lengths
}

/// Writes normalised counts.
///
/// # Panics
/// If fewer than two symbols have states, the norms do not add up to `1 << table_log`, `table_log` is not between
/// [`MIN_TABLE_LOG`] and [`MAX_TABLE_LOG`], or there are more than [`MAX_SYMBOLS`] norms.
pub fn write_norm(norm: &[u16], table_log: u8, out: &mut BitWriter<'_>) {
    assert!((MIN_TABLE_LOG..=MAX_TABLE_LOG).contains(&table_log) && norm.len() <= MAX_SYMBOLS);
    assert!(check_norm(norm, table_log).is_ok(), "norms fill the table");
    length_code::write(&lengths(norm, table_log)[..norm.len()], out, |symbol, out| {
        let bits = norm[symbol].ilog2();
        out.write(u32::from(norm[symbol]) - (1 << bits), bits);
    });
}

/// Bits that [`write_norm`] takes.
///
/// # Panics
/// As [`write_norm`] does.
pub fn description_bits(norm: &[u16], table_log: u8) -> u64 {
    let details: u64 = norm.iter().map(|&n| u64::from(n.checked_ilog2().unwrap_or(0))).sum();
    length_code::size(&lengths(norm, table_log)[..norm.len()]) + details
}

/// Reads what [`write_norm`] wrote for the same `table_log` and alphabet size.
///
/// # Errors
/// If the input ends early, or the norms do not add up to `1 << table_log`.
///
/// # Panics
/// If `table_log` is not between [`MIN_TABLE_LOG`] and [`MAX_TABLE_LOG`], or the alphabet has more than
/// [`MAX_SYMBOLS`] symbols.
pub fn read_norm(
    input: &mut BitReader<'_>,
    table_log: u8,
    norm: &mut [u16],
) -> Result<(), Malformed> {
    assert!((MIN_TABLE_LOG..=MAX_TABLE_LOG).contains(&table_log) && norm.len() <= MAX_SYMBOLS);
    norm.fill(0);
    let mut states = 1u32 << table_log;
    length_code::read(input, norm.len(), |symbol, len, input| {
        let bits =
            table_log.checked_sub(len).ok_or(Malformed("a normalised count is below one"))?;
        let rest = input.read(bits.into()).ok_or(Malformed("normalised counts are cut short"))?;
        let n = 1 << bits | rest;
        states = states.checked_sub(n).ok_or(Malformed("normalised counts overfill the table"))?;
        norm[symbol] = n as u16;
        Ok(states > 0)
    })
}
