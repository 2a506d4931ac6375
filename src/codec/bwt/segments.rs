//! The second stage. Each segment's runs are one rANS stream with static tables, which the symbols' histories choose.
//!
//! rANS (Duda, "Asymmetric numeral systems", 2013) with a 64-bit state and 32-bit words. A state starts at 1 rather
//! than at the bottom of its interval, and the reader takes no word past the segment's last. That saves four bytes per
//! segment.

use core::ops::Range;

use super::Malformed;
use super::choose::Counts;
use super::runs::{SymbolRun, symbol_and_rank};
use super::spec::{
    CONTEXTS, FREQ_BITS, Globals, History, LONG_RUN, LONG_RUN_TOKEN, MAX_SEGMENT_RUNS, RANK_BASE,
    RANK_CONTEXTS, RUN_BASE, log_scale, rank_context, rank_token, run_context, run_token,
};
use super::tables::{Starts, Tables, WIDTH};

/// The most words of a segment: no run adds more than 62 bits.
pub const MAX_SEGMENT_WORDS: usize = 2 * MAX_SEGMENT_RUNS + 2;

/// The history that each symbol of `list` has at the start of a segment.
fn histories(list: &[u8; 256]) -> [History; 256] {
    let mut histories = [History::default(); 256];
    for (position, &symbol) in list.iter().enumerate() {
        histories[usize::from(symbol)] = History::at_start(position);
    }
    histories
}

/// Finds the contexts of a segment's runs, stores them in the runs, and counts the tokens of each context.
pub fn count(list: &[u8; 256], runs: &mut [SymbolRun], counts: &mut [Counts; CONTEXTS]) {
    let mut histories = histories(list);
    let mut globals = Globals::at_start();
    for run in runs {
        let (symbol, rank) = symbol_and_rank(*run);
        let history = histories[symbol];
        let rank_context = rank_context(history, globals);
        let run_context = run_context(history, globals);
        counts[rank_context][rank_token(rank).token as usize] += 1;
        counts[run_context][run_token(run[0]).token as usize] += 1;
        run[1] |= (rank_context as u32) << 16 | ((run_context - RANK_CONTEXTS) as u32) << 24;
        let (x, y) = (log_scale(rank), log_scale(run[0]));
        histories[symbol] = history.after(x, y);
        globals = globals.after(x, y);
    }
}

/// The words of a segment while it is written. The reader takes the last one first.
#[derive(Debug)]
pub struct Stack {
    words: Box<[u32; STACK]>,
    len: usize,
}

/// A power of two above [`MAX_SEGMENT_WORDS`].
const STACK: usize = 1 << 15;

impl Default for Stack {
    fn default() -> Self {
        Self { words: Box::new([0; STACK]), len: 0 }
    }
}

impl Stack {
    /// Moves a word out of the state if scaling by 2^bits / freq would take the state to 2^64 or beyond. No branch,
    /// because the outcome is hard to predict.
    #[inline(always)]
    fn make_room(&mut self, x: u64, freq: u64, bits: u32) -> u64 {
        let full = x >> (64 - bits) >= freq;
        self.words[self.len % STACK] = x as u32;
        self.len += usize::from(full);
        if full { x >> 32 } else { x }
    }
}

/// floor((2^64 - 1) / d) for frequencies d; index 0 is unused.
static RECIPROCALS: [u64; (1 << FREQ_BITS) + 1] = {
    let mut table = [0; (1 << FREQ_BITS) + 1];
    let mut d = 1;
    while d < table.len() {
        table[d] = u64::MAX / d as u64;
        d += 1;
    }
    table
};

/// Puts the token with this interval into the state.
#[inline(always)]
fn put(x: u64, start: u64, freq: u64) -> u64 {
    // The estimate of x / freq is exact or one too small.
    let reciprocal = RECIPROCALS[freq as usize];
    let mut quotient = ((u128::from(x) * u128::from(reciprocal)) >> 64) as u64;
    let mut rest = x - quotient * freq;
    if rest >= freq {
        quotient += 1;
        rest -= freq;
    }
    (quotient << FREQ_BITS) + rest + start
}

/// Writes a segment whose runs [`count`] has seen, by appending its words to `words`.
pub fn write(runs: &[SymbolRun], tables: &Tables, words: &mut Vec<u32>, stack: &mut Stack) {
    stack.len = 0;
    let mut x = 1u64;
    for run in runs.iter().rev() {
        let (_, rank) = symbol_and_rank(*run);
        let rank = rank_token(rank);
        let length = run_token(run[0]);
        let (rank_start, rank_freq) = interval(&tables[(run[1] >> 16 & 0xff) as usize], rank.token);
        let run_context = RANK_CONTEXTS + (run[1] >> 24) as usize;
        let (run_start, run_freq) = interval(&tables[run_context], length.token);
        if length.raw_bits > 0 {
            x = stack.make_room(x, 1, length.raw_bits);
            x = x << length.raw_bits | u64::from(length.raw);
        }
        x = stack.make_room(x, rank_freq * run_freq, 2 * FREQ_BITS + rank.raw_bits);
        x = put(x, run_start, run_freq);
        x = x << rank.raw_bits | u64::from(rank.raw);
        x = put(x, rank_start, rank_freq);
    }
    let rest = [(x >> 32) as u32, x as u32];
    words.extend(rest.iter().skip_while(|&&word| word == 0));
    words.extend(stack.words[..stack.len].iter().rev());
}

fn interval(starts: &Starts, token: u32) -> (u64, u64) {
    let start = starts[token as usize];
    (u64::from(start), u64::from(starts[token as usize + 1] - start))
}

/// The operations of [`read_on`] that vector instructions speed up.
pub trait Machine: Copy {
    /// The first symbols of a list. The rest stays in memory.
    type Front: Copy;

    fn load(self, list: &[u8; 256]) -> Self::Front;
    fn store(self, front: Self::Front, list: &mut [u8; 256]);
    fn first(self, front: Self::Front, list: &[u8; 256]) -> u8;
    /// Moves the first symbol, `symbol`, back to position `rank`.
    fn first_to(
        self,
        front: Self::Front,
        list: &mut [u8; 256],
        symbol: u8,
        rank: u8,
    ) -> Self::Front;
    /// The number of starts that are at most `v`.
    fn starts_to(self, starts: &Starts, v: u16) -> u32;
}

/// Plain code.
#[derive(Debug, Clone, Copy)]
pub struct Portable;

impl Machine for Portable {
    type Front = ();

    fn load(self, _: &[u8; 256]) {}

    fn store(self, (): (), _: &mut [u8; 256]) {}

    #[inline(always)]
    fn first(self, (): (), list: &[u8; 256]) -> u8 {
        list[0]
    }

    #[inline(always)]
    fn first_to(self, (): (), list: &mut [u8; 256], symbol: u8, rank: u8) {
        list.copy_within(1..usize::from(rank) + 1, 0);
        list[usize::from(rank)] = symbol;
    }

    #[inline(always)]
    fn starts_to(self, starts: &Starts, v: u16) -> u32 {
        u32::from(starts.iter().map(|&start| u16::from(start <= v)).sum::<u16>())
    }
}

/// The token whose interval contains the low bits of the state, and the state after it.
#[inline(always)]
fn token<M: Machine>(machine: M, starts: &Starts, x: u64) -> (usize, u64) {
    let v = x & ((1 << FREQ_BITS) - 1);
    // The first start is 0, so at least one start is at most `v`. The last is 1 << FREQ_BITS, which exceeds `v`.
    let token = machine.starts_to(starts, v as u16).wrapping_sub(1) as usize % WIDTH;
    let start = starts[token];
    let freq = starts[(token + 1) % WIDTH].wrapping_sub(start);
    (token, (x >> FREQ_BITS) * u64::from(freq) + v - u64::from(start))
}

/// Reads one segment: decodes its words to a range of `out`, and turns the list at its start into the list at its end.
///
/// May overwrite bytes of `out` after the range.
pub type Read =
    fn(&[u32], &Tables, &mut [u8; 256], out: &mut [u8], Range<usize>) -> Result<(), Malformed>;

/// The fastest [`Read`] of this processor.
pub fn fastest() -> Read {
    #[cfg(all(feature = "simd", target_arch = "x86_64"))]
    if super::simd::Avx2::detect().is_some() {
        return super::simd::read;
    }
    read
}

/// A [`Read`] for any processor.
pub fn read(
    words: &[u32],
    tables: &Tables,
    list: &mut [u8; 256],
    out: &mut [u8],
    range: Range<usize>,
) -> Result<(), Malformed> {
    read_on(Portable, words, tables, list, out, range)
}

/// Like [`read`], with the given operations.
#[inline(always)]
pub fn read_on<M: Machine>(
    machine: M,
    words: &[u32],
    tables: &Tables,
    list: &mut [u8; 256],
    out: &mut [u8],
    range: Range<usize>,
) -> Result<(), Malformed> {
    let mut histories = histories(list);
    let mut globals = Globals::at_start();
    let mut front = machine.load(list);
    let mut next = 0;
    let mut refill = |x: u64| match words.get(next) {
        Some(&word) if x >> 32 == 0 => {
            next += 1;
            x << 32 | u64::from(word)
        }
        _ => x,
    };
    let mut x = refill(0);
    x = refill(x);
    let mut at = range.start;
    for _ in 0..MAX_SEGMENT_RUNS {
        let symbol = machine.first(front, list);
        let history = histories[usize::from(symbol)];
        let rank_table = &tables[rank_context(history, globals)];
        let run_table = &tables[run_context(history, globals)];

        let (rank_token, rest) = token(machine, rank_table, x);
        let (base, bits) = RANK_BASE[rank_token];
        // 256 wraps to 0, as the format says.
        let rank = base.wrapping_add(rest as u8 & ((1u8 << bits) - 1));
        let (run_token, rest) = token(machine, run_table, rest >> bits);
        x = refill(rest);
        let mut length = run_token as u32 + 1;
        if run_token >= 8 {
            let (base, bits) = RUN_BASE[run_token];
            length = u32::from(base) + (x as u32 & ((1 << bits) - 1));
            if run_token == LONG_RUN_TOKEN {
                length = (x as u32).saturating_add(1);
                if length <= LONG_RUN {
                    return Err(Malformed("long run is short"));
                }
                x >>= 32;
            }
            x = refill(x >> bits);
        }

        let (rank_log, run_log) = (log_scale(u32::from(rank)), log_scale(length));
        histories[usize::from(symbol)] = history.after(rank_log, run_log);
        globals = globals.after(rank_log, run_log);
        front = machine.first_to(front, list, symbol, rank);

        let length = length as usize;
        if length > range.end - at {
            return Err(Malformed("run longer than its segment"));
        }
        // Most runs are short. Store a fixed length; the next run overwrites the excess.
        if length <= 32
            && let Some(chunk) = out.get_mut(at..at + 32)
        {
            chunk.fill(symbol);
        } else {
            out[at..at + length].fill(symbol);
        }
        at += length;
        if at == range.end {
            machine.store(front, list);
            return if x == 1 && next == words.len() {
                Ok(())
            } else {
                Err(Malformed("segment ends before or after its words"))
            };
        }
    }
    Err(Malformed("too many runs in a segment"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn put_divides_exactly() {
        for freq in 1..=1u64 << FREQ_BITS {
            let most = u64::MAX >> FREQ_BITS;
            // `most` is the largest quotient. Try states at the edges of quotients.
            for quotient in [0, 1, 2, 3, 1 << 20, most - 1, most] {
                for rest in [0, 1, freq / 2, freq - 1].map(|rest| rest.min(freq - 1)) {
                    let Some(x) = quotient.checked_mul(freq).and_then(|x| x.checked_add(rest))
                    else {
                        continue;
                    };
                    assert_eq!(put(x, 0, freq), (quotient << FREQ_BITS) + rest, "{x} / {freq}");
                }
            }
        }
    }
}
