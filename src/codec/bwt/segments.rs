//! The second stage: each segment's runs as one rANS stream with static tables chosen by the symbols' histories.
//!
//! rANS (Duda, "Asymmetric numeral systems", 2013) with a 64-bit state and 32-bit words. A state starts at 1, not at
//! the bottom of its interval, and the reader takes no word past the segment's last: that saves four bytes a segment.

use super::Malformed;
use super::runs::{Run, symbol_and_rank};
use super::spec::{
    FREQ_BITS, Globals, History, LONG_RUN, LONG_RUN_TOKEN, MAX_SEGMENT_RUNS, RANK_BASE,
    RANK_CONTEXTS, RUN_BASE, RUN_CONTEXTS, log_scale, rank_context, rank_token, run_context,
    run_token,
};
use super::tables::{Counts, Starts};

/// The tables of a block.
#[derive(Debug, Clone)]
pub struct Tables {
    pub rank: Box<[Starts; RANK_CONTEXTS]>,
    pub run: Box<[Starts; RUN_CONTEXTS]>,
}

/// Most words that a segment can take: no run adds more than 62 bits.
pub const MAX_SEGMENT_WORDS: usize = 2 * MAX_SEGMENT_RUNS + 2;

/// The history that each symbol of `list` has at the start of a segment.
fn histories(list: &[u8; 256]) -> [History; 256] {
    let mut histories = [History::default(); 256];
    for (position, &symbol) in list.iter().enumerate() {
        histories[usize::from(symbol)] = History::at_start(position);
    }
    histories
}

/// Finds the contexts of a segment's runs, notes them in the runs, and counts tokens in them.
pub fn count(
    list: &[u8; 256],
    runs: &mut [Run],
    ranks: &mut [Counts; RANK_CONTEXTS],
    lengths: &mut [Counts; RUN_CONTEXTS],
) {
    let mut histories = histories(list);
    let mut globals = Globals::at_start();
    for run in runs {
        let (symbol, rank) = symbol_and_rank(*run);
        let history = histories[symbol];
        let rank_context = rank_context(history, globals);
        let run_context = run_context(history, globals);
        ranks[rank_context][rank_token(rank).token as usize] += 1;
        lengths[run_context][run_token(run[0]).token as usize] += 1;
        run[1] |= (rank_context as u32) << 16 | (run_context as u32) << 24;
        let (x, y) = (log_scale(rank), log_scale(run[0]));
        histories[symbol] = history.after(x, y);
        globals = globals.after(x, y);
    }
}

/// Writes a segment whose runs [`count`] has seen: appends its words to `words`.
pub fn write(runs: &[Run], tables: &Tables, words: &mut Vec<u32>, stack: &mut Vec<u32>) {
    stack.clear();
    let mut x = 1u64;
    let mut room = |x: &mut u64, freq: u64, bits: u32| {
        // The state must stay below 2^64 when scaled by 2^bits / freq.
        if *x >> (64 - bits) >= freq {
            stack.push(*x as u32);
            *x >>= 32;
        }
    };
    for run in runs.iter().rev() {
        let (_, rank) = symbol_and_rank(*run);
        let rank = rank_token(rank);
        let length = run_token(run[0]);
        let (rank_start, rank_freq) =
            interval(&tables.rank[(run[1] >> 16 & 127) as usize], rank.token);
        let (run_start, run_freq) = interval(&tables.run[(run[1] >> 24) as usize], length.token);
        if length.raw_bits > 0 {
            room(&mut x, 1, length.raw_bits);
            x = x << length.raw_bits | u64::from(length.raw);
        }
        room(&mut x, rank_freq * run_freq, 2 * FREQ_BITS + rank.raw_bits);
        x = ((x / run_freq) << FREQ_BITS) + x % run_freq + run_start;
        x = x << rank.raw_bits | u64::from(rank.raw);
        x = ((x / rank_freq) << FREQ_BITS) + x % rank_freq + rank_start;
    }
    stack.push(x as u32);
    if x >> 32 != 0 {
        stack.push((x >> 32) as u32);
    }
    words.extend(stack.iter().rev());
}

fn interval(starts: &Starts, token: u32) -> (u64, u64) {
    let start = starts[token as usize];
    (u64::from(start), u64::from(starts[token as usize + 1] - start))
}

/// The token whose interval holds `v`, its start and its frequency.
#[inline(always)]
fn find(starts: &Starts, v: u32) -> (usize, u64, u64) {
    let below: u16 = starts.iter().map(|&s| u16::from(s <= v as u16)).sum();
    let token = usize::from(below.wrapping_sub(1)) & 31;
    let start = starts[token];
    (token, u64::from(start), u64::from(starts[(token + 1) & 31].wrapping_sub(start)))
}

/// Reads one segment: its `words` give `out[begin..end]`. `list` goes from the segment's start to the next one's.
///
/// Bytes of `out` from `end` on may be overwritten.
#[inline(always)]
pub fn read(
    words: &[u32],
    tables: &Tables,
    list: &mut [u8; 256],
    out: &mut [u8],
    begin: usize,
    end: usize,
) -> Result<(), Malformed> {
    let mut histories = histories(list);
    let mut globals = Globals::at_start();
    let mut next = 0;
    let mut x = 0u64;
    let mut refill = |x: u64| {
        let word = words.get(next).copied();
        match word {
            Some(word) if x >> 32 == 0 => {
                next += 1;
                x << 32 | u64::from(word)
            }
            _ => x,
        }
    };
    x = refill(x);
    x = refill(x);
    let mut at = begin;
    for _ in 0..MAX_SEGMENT_RUNS {
        let symbol = list[0];
        let history = histories[usize::from(symbol)];
        let rank_table = &tables.rank[rank_context(history, globals)];
        let run_table = &tables.run[run_context(history, globals)];

        let (token, start, freq) = find(rank_table, x as u32 & 0xfff);
        x = (x >> FREQ_BITS) * freq + (x & 0xfff) - start;
        let (base, bits) = RANK_BASE[token];
        let rank = u32::from(base) + (x as u32 & ((1 << bits) - 1));
        x >>= bits;

        let (token, start, freq) = find(run_table, x as u32 & 0xfff);
        x = (x >> FREQ_BITS) * freq + (x & 0xfff) - start;
        x = refill(x);
        let mut length = token as u32 + 1;
        if token >= 8 {
            let (base, bits) = RUN_BASE[token];
            length = u32::from(base) + (x as u32 & ((1 << bits) - 1));
            if token == LONG_RUN_TOKEN {
                length = (x as u32).saturating_add(1);
                if length <= LONG_RUN {
                    return Err(Malformed("long run is short"));
                }
                x >>= 32;
            }
            x >>= bits;
            x = refill(x);
        }

        let (rank_log, run_log) = (log_scale(rank), log_scale(length));
        histories[usize::from(symbol)] = history.after(rank_log, run_log);
        globals = globals.after(rank_log, run_log);

        let rank = rank as usize & 255;
        list.copy_within(1..rank + 1, 0);
        list[rank] = symbol;

        let length = length as usize;
        if length > end - at {
            return Err(Malformed("run longer than its segment"));
        }
        if length <= 32
            && let Some(chunk) = out.get_mut(at..at + 32)
        {
            chunk.fill(symbol);
        } else {
            out[at..at + length].fill(symbol);
        }
        at += length;
        if at == end {
            return if x == 1 && next == words.len() {
                Ok(())
            } else {
                Err(Malformed("segment does not end with its words"))
            };
        }
    }
    Err(Malformed("too many runs in a segment"))
}
