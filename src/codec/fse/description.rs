//! The compact description of normalised counts.

use super::tables::check_norm;
use crate::bits::{BitReader, BitWriter};
use crate::codec::Malformed;

/// Writes normalised counts.
pub fn write_norm(norm: &[u16], table_log: u8, out: &mut BitWriter<'_>) {
    for &n in norm {
        out.write(u32::from(n), u32::from(table_log) + 1);
    }
}

/// Reads what [`write_norm`] wrote for the same `table_log` and size of alphabet.
///
/// # Errors
/// If the input ends early, or the norms do not add up to `1 << table_log`.
pub fn read_norm(
    input: &mut BitReader<'_>,
    table_log: u8,
    norm: &mut [u16],
) -> Result<(), Malformed> {
    for n in norm.iter_mut() {
        let value = input.read(u32::from(table_log) + 1);
        *n = value.ok_or(Malformed("normalised counts are cut short"))? as u16;
    }
    check_norm(norm, table_log)
}
