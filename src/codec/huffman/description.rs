//! The compact description of code lengths.

use super::count_lengths;
use crate::bits::{BitReader, BitWriter};
use crate::codec::Malformed;

/// Writes the lengths of one or more codes.
pub fn write_lengths(codes: &[&[u8]], out: &mut BitWriter<'_>) {
    for lengths in codes {
        for &len in *lengths {
            out.write(u32::from(len), 4);
        }
    }
}

/// Reads what [`write_lengths`] wrote. Each slice of `codes` has its alphabet's size.
///
/// # Errors
/// If the input ends early, or a code's lengths do not fill the code space exactly with lengths of at
/// most `max_len`.
pub fn read_lengths(
    input: &mut BitReader<'_>,
    max_len: u8,
    codes: &mut [&mut [u8]],
) -> Result<(), Malformed> {
    for lengths in codes {
        for len in lengths.iter_mut() {
            *len = input.read(4).ok_or(Malformed("code lengths are cut short"))? as u8;
        }
        count_lengths(lengths, max_len)?;
    }
    Ok(())
}
