//! Encoding and decoding tables.

use super::{MAX_SYMBOLS, MAX_TABLE_LOG, MIN_TABLE_LOG};
use crate::codec::Malformed;

const MAX_STATES: usize = 1 << MAX_TABLE_LOG;

/// Checks that the norms fill the table exactly.
pub(super) fn check_norm(norm: &[u16], table_log: u8) -> Result<(), Malformed> {
    let sum: u64 = norm.iter().map(|&n| u64::from(n)).sum();
    if sum != 1 << table_log {
        return Err(Malformed("normalised counts do not fill the table"));
    }
    Ok(())
}

/// The preferred places of a symbol's occurrences, with 16 bits of fraction: the first, and the distance from each to
/// the next.
#[inline(always)]
fn preferred(n: u16, table_log: u8) -> (u32, u32) {
    let size = 1 << (u32::from(table_log) + 16);
    if n == 1 {
        return (size - 1, 0);
    }
    let distance = size / u32::from(n);
    (distance / 2, distance)
}

/// Calls `place(state, symbol, j)` for each occurrence `j` of each symbol and its state, by the rule of the
/// [module](super). The norms must fill the table.
#[inline(always)]
fn spread(norm: &[u16], table_log: u8, mut place: impl FnMut(usize, usize, usize)) {
    // A counting sort by whole places; symbols come in order.
    let size = 1usize << table_log;
    let mut next = [0u16; MAX_STATES];
    let next = &mut next[..size];
    for &n in norm.iter().filter(|&&n| n > 0) {
        let (mut position, distance) = preferred(n, table_log);
        for _ in 0..n {
            next[(position >> 16) as usize & (size - 1)] += 1;
            position = position.wrapping_add(distance);
        }
    }
    let mut begin = 0;
    for next in next.iter_mut() {
        let count = *next;
        *next = begin;
        begin += count;
    }
    for (symbol, &n) in norm.iter().enumerate().filter(|&(_, &n)| n > 0) {
        let (mut position, distance) = preferred(n, table_log);
        for j in 0..usize::from(n) {
            let next = &mut next[(position >> 16) as usize & (size - 1)];
            place(usize::from(*next), symbol, j);
            *next += 1;
            position = position.wrapping_add(distance);
        }
    }
}

/// An entry of a decoding table: `symbol | bits << 8 | base << 16`.
///
/// To decode a symbol in state `s`, take `let (symbol, bits, base) = decode_entry(table[s])`. The next state is `base`
/// plus the number in the next `bits` bits of the stream.
#[inline]
pub fn decode_entry(entry: u32) -> (u8, u8, u16) {
    (entry as u8, (entry >> 8) as u8, (entry >> 16) as u16)
}

/// Fills a decoding table; see [`decode_entry`].
///
/// # Errors
/// If the norms do not add up to `1 << table_log`.
///
/// # Panics
/// If `table` has fewer than `1 << table_log` entries, `table_log` is not between [`MIN_TABLE_LOG`] and
/// [`MAX_TABLE_LOG`], or there are more than [`MAX_SYMBOLS`] norms.
pub fn build_decode_table(norm: &[u16], table_log: u8, table: &mut [u32]) -> Result<(), Malformed> {
    assert!((MIN_TABLE_LOG..=MAX_TABLE_LOG).contains(&table_log) && norm.len() <= MAX_SYMBOLS);
    check_norm(norm, table_log)?;
    let size = 1usize << table_log;
    let table = &mut table[..size];
    spread(norm, table_log, |state, symbol, j| {
        let x = usize::from(norm[symbol]) + j;
        let bits = u32::from(table_log) - x.ilog2();
        let base = (x << bits) - size;
        table[state] = symbol as u32 | bits << 8 | (base as u32) << 16;
    });
    Ok(())
}

/// The constants for encoding a symbol.
#[derive(Debug, Clone, Copy, Default)]
struct Transform {
    /// Added to a state, gives in its upper half the number of bits to write.
    bits_delta: u32,
    /// Added to the rest of the state, gives the index of the next state.
    next_delta: i32,
}

/// An encoding table. Build it anew for each table of norms.
#[derive(Debug, Clone)]
pub struct EncodeTable {
    transforms: [Transform; MAX_SYMBOLS],
    /// Each symbol's states in order, symbol after symbol, plus the table's size.
    next: [u16; MAX_STATES],
}

impl Default for EncodeTable {
    fn default() -> Self {
        Self::new()
    }
}

impl EncodeTable {
    /// A table without symbols.
    pub fn new() -> Self {
        Self { transforms: [Transform::default(); MAX_SYMBOLS], next: [0; MAX_STATES] }
    }

    /// Makes this the inverse of the decoding table with the same norms.
    ///
    /// # Panics
    /// If the norms do not add up to `1 << table_log`, `table_log` is not between [`MIN_TABLE_LOG`] and
    /// [`MAX_TABLE_LOG`], or there are more than [`MAX_SYMBOLS`] norms.
    pub fn build(&mut self, norm: &[u16], table_log: u8) {
        assert!((MIN_TABLE_LOG..=MAX_TABLE_LOG).contains(&table_log) && norm.len() <= MAX_SYMBOLS);
        assert!(check_norm(norm, table_log).is_ok());
        let size = 1u32 << table_log;
        let mut begins = [0u16; MAX_SYMBOLS];
        let mut begin = 0;
        for (symbol, &n) in norm.iter().enumerate() {
            begins[symbol] = begin;
            if n > 0 {
                // States from `n << bits` on give up one more bit.
                let bits = u32::from(table_log) - u32::from(n - 1).max(1).ilog2();
                self.transforms[symbol] = Transform {
                    bits_delta: (bits << 16).wrapping_sub(u32::from(n) << bits),
                    next_delta: i32::from(begin) - i32::from(n),
                };
            }
            begin += n;
        }
        let next = &mut self.next[..size as usize];
        spread(norm, table_log, |state, symbol, j| {
            next[usize::from(begins[symbol]) + j] = state as u16 + size as u16;
        });
    }

    /// A state from which decoding first gives `symbol`. Encoding a message starts here instead of encoding its last
    /// symbol.
    ///
    /// An encoder's states are those of the decoder plus `1 << table_log`.
    #[inline]
    pub fn first_state(&self, symbol: u8) -> u32 {
        let transform = &self.transforms[usize::from(symbol)];
        // The smallest state that gives up the smaller number of bits: shifted, it leaves `n`.
        let bits = (transform.bits_delta + (1 << 15)) >> 16;
        let state = (bits << 16).wrapping_sub(transform.bits_delta);
        let index = (state >> bits).wrapping_add_signed(transform.next_delta);
        u32::from(self.next[index as usize % MAX_STATES])
    }

    /// Encodes `symbol` from `state`. Returns the bits to write, their number, and the next state. If the symbol's norm
    /// is 0, the result is meaningless.
    #[inline]
    pub fn encode(&self, state: u32, symbol: u8) -> (u32, u32, u32) {
        let transform = &self.transforms[usize::from(symbol)];
        let count = state.wrapping_add(transform.bits_delta) >> 16;
        let bits = state & ((1 << (count & 31)) - 1);
        let index = (state >> (count & 31)).wrapping_add_signed(transform.next_delta);
        (bits, count, u32::from(self.next[index as usize % MAX_STATES]))
    }
}
