//! The compact description of code lengths.

use super::{MAX_LEN, MAX_SYMBOLS, count_lengths};
use crate::bits::{BitReader, BitWriter};
use crate::codec::{Malformed, length_code};

/// Writes the lengths of one or more codes. A code of literals takes about 40 bytes.
///
/// # Panics
/// If the lengths of one code are not complete.
pub fn write_lengths(codes: &[&[u8]], out: &mut BitWriter<'_>) {
    for lengths in codes {
        assert!(count_lengths(lengths, MAX_LEN).is_ok(), "lengths fill the code space");
        length_code::write(lengths, out, |_, _| {});
    }
}

/// Bits that the description of a code takes.
pub fn description_bits(lengths: &[u8]) -> u64 {
    length_code::size(lengths)
}

/// Reads what [`write_lengths`] wrote. Each slice of `codes` has the size of its alphabet.
///
/// # Errors
/// If the input ends early, or a code's lengths do not fill the code space exactly with lengths of at
/// most `max_len`.
///
/// # Panics
/// If `max_len` exceeds [`MAX_LEN`], or an alphabet has more than [`MAX_SYMBOLS`] symbols.
pub fn read_lengths(
    input: &mut BitReader<'_>,
    max_len: u8,
    codes: &mut [&mut [u8]],
) -> Result<(), Malformed> {
    assert!(max_len <= MAX_LEN);
    for lengths in codes {
        let lengths = &mut **lengths;
        assert!(lengths.len() <= MAX_SYMBOLS);
        lengths.fill(0);
        let mut space = 1u32 << MAX_LEN;
        length_code::read(input, lengths.len(), |symbol, len, _| {
            if len > max_len {
                return Err(Malformed("a code is longer than its limit"));
            }
            space = space
                .checked_sub(1 << (MAX_LEN - len))
                .ok_or(Malformed("code lengths overfill the code space"))?;
            lengths[symbol] = len;
            Ok(space > 0)
        })?;
    }
    Ok(())
}
