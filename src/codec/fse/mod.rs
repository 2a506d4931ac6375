//! Finite state entropy (tabled asymmetric numeral systems): normalised counts, encoding and decoding
//! tables and their compact description.
//!
//! A coder is a *state* in `0..1 << table_log`. Decoding looks the state up: the entry gives a symbol
//! and the part of the next state that is known, to which the next bits are added. Encoding undoes
//! these steps from the last symbol to the first. How many of the states belong to a symbol is its
//! *norm*, its share of the message in units of `2^-table_log` (Duda, "Asymmetric numeral systems",
//! 2013; the tables are laid out in the way of Collet's FSE).
//!
//! Which states belong to which symbol is a rule that needs no serial pass. The `n` states of a symbol
//! are to be evenly spaced, so occurrence `j` would like to be at `(j + 1/2) / n` of the table; but a
//! symbol with a single state would like the last, because as a rule it is rarer than even that one
//! says, and the higher a state, the more bits it takes to leave it. All occurrences, sorted by these
//! positions and then by symbol, get the states in order. A GPU can sort them, or count, scan and
//! place; and because a symbol's occurrences keep their order, an entry's rank within its symbol is
//! known without looking at the other entries.

mod description;
mod normalize;
mod tables;

pub use description::{description_bits, read_norm, write_norm};
pub use normalize::normalize;
pub use tables::{EncodeTable, build_decode_table, decode_entry};

use crate::codec::log2::{FRACTION_BITS, log2};

/// The largest table, as the base 2 logarithm of its number of states.
pub const MAX_TABLE_LOG: u8 = 12;

/// The smallest table.
pub const MIN_TABLE_LOG: u8 = 5;

/// The most symbols that an alphabet can have.
pub const MAX_SYMBOLS: usize = 256;

/// The size in bits, rounded up, of a message with these symbol counts, or `None` if a symbol that
/// occurs has no state. The coder's real size is within a fraction of a percent.
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
