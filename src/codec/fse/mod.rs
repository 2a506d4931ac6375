//! Finite state entropy (tabled asymmetric numeral systems): normalised counts, encoding and decoding
//! tables and their compact description.
//!
//! A coder is a *state* in `0..1 << table_log`. Decoding looks the state up: the entry holds a symbol and the known
//! part of the next state, to which the next bits are added. Encoding undoes these steps from the last symbol to the
//! first. A symbol's *norm* is the number of states it owns: its share of the message, in units of `2^-table_log`
//! (Duda, "Asymmetric numeral systems", 2013; the tables are laid out in the way of Collet's FSE).
//!
//! A rule without a serial pass gives the states to symbols. A symbol's `n` states should be evenly spaced, so
//! occurrence `j` prefers the place `(j + 1/2) / n` of the table. But a symbol with one state prefers the last place:
//! it is usually rarer than even one state says, and the higher a state, the more bits it takes to leave it. All
//! occurrences, sorted by these places and then by symbol, get the states in order. A GPU can sort them, or count, scan
//! and place. And because a symbol's occurrences keep their order, an entry's rank within its symbol is known without a
//! look at other entries.

mod description;
mod normalize;
mod tables;

pub use description::{description_bits, read_norm, write_norm};
pub use normalize::normalize;
pub use tables::{EncodeTable, build_decode_table, decode_entry};

use crate::codec::log2::{FRACTION_BITS, log2};

/// The largest table, as the base-2 logarithm of its number of states.
pub const MAX_TABLE_LOG: u8 = 12;

/// The smallest table.
pub const MIN_TABLE_LOG: u8 = 5;

/// The most symbols that an alphabet can have.
pub const MAX_SYMBOLS: usize = 256;

/// The size in bits, rounded up, of a message with these symbol counts, or `None` if a symbol that occurs has no state.
/// Real coding comes within a fraction of a percent of this.
pub fn coded_bits(freqs: &[u32], norm: &[u16], table_log: u8) -> Option<u64> {
    let mut bits = 0;
    for (symbol, &freq) in freqs.iter().enumerate() {
        let n = norm.get(symbol).copied().unwrap_or(0);
        if freq > 0 {
            if n == 0 {
                return None;
            }
            let price = (u32::from(table_log) << FRACTION_BITS).saturating_sub(log2(u32::from(n)));
            bits += u64::from(freq) * u64::from(price);
        }
    }
    Some(bits.div_ceil(1 << FRACTION_BITS))
}

#[cfg(test)]
mod tests;
