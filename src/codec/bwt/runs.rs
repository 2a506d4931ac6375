//! The encoder's view of a transformed block: runs with their ranks, cut into segments.
//!
//! The rank of a run is the number of other symbols that occur before its symbol occurs again (from the right end, as
//! in QLFC: Ghido, "QLFC: a compression algorithm using the Burrows-Wheeler transform", DCC 2005). So a decoder knows a
//! run's symbol before its rank: the symbol is at the front of the list.

use super::spec::MAX_SEGMENT_RUNS;

/// A run: its length, then `symbol | rank << 8 | rank context << 16 | run context << 24`.
pub type SymbolRun = [u32; 2];

/// The symbol and the rank of a run.
#[inline(always)]
pub fn symbol_and_rank(run: SymbolRun) -> (usize, u32) {
    ((run[1] & 255) as usize, run[1] >> 8 & 255)
}

/// A segment: the indices of its runs, and its start in the block.
#[derive(Debug, Clone)]
pub struct Segment {
    pub first_run: usize,
    pub begin: usize,
    /// The list of symbols at the segment's start; the next to occur comes first.
    pub list: [u8; 256],
}

/// Number of runs in `bwt`.
pub fn count(bwt: &[u8]) -> usize {
    usize::from(!bwt.is_empty()) + bwt.windows(2).filter(|w| w[0] != w[1]).count()
}

/// The symbols that occur, ascending, then all others, ascending; and the number that occur.
fn initial_list(bwt: &[u8]) -> ([u8; 256], usize) {
    let mut used = [false; 256];
    for &c in bwt {
        used[usize::from(c)] = true;
    }
    let mut list = [0; 256];
    let symbols = (0..=255u8).filter(|&c| used[usize::from(c)]);
    let others = (0..=255u8).filter(|&c| !used[usize::from(c)]);
    for (slot, c) in list.iter_mut().zip(symbols.chain(others)) {
        *slot = c;
    }
    (list, used.iter().filter(|&&u| u).count())
}

/// Fills `runs`, which has [`count`] entries, with lengths, symbols and ranks, and `segments` with the cuts: at the
/// first run boundary after at least `1 << segment_log` bytes, or after [`MAX_SEGMENT_RUNS`] runs. Returns how many
/// symbols occur.
pub fn split(
    bwt: &[u8],
    segment_log: u32,
    runs: &mut [SymbolRun],
    segments: &mut Vec<Segment>,
) -> usize {
    // Finds where each run begins. A run's end is hard to predict, so there is no branch: the slot of the next run
    // takes every position until one is the run's start.
    runs[0][0] = 0;
    let mut last = 0;
    for (i, pair) in bwt.windows(2).enumerate() {
        if let Some(next) = runs.get_mut(last + 1) {
            next[0] = i as u32 + 1;
        }
        last += usize::from(pair[0] != pair[1]);
    }
    segments.clear();
    let mut first_run = 0;
    while first_run < runs.len() {
        let begin = runs[first_run][0] as usize;
        segments.push(Segment { first_run, begin, list: [0; 256] });
        let most = &runs[first_run..(first_run + MAX_SEGMENT_RUNS).min(runs.len())];
        first_run += most.partition_point(|r| (r[0] as usize) < begin + (1 << segment_log));
    }

    let (mut list, used) = initial_list(bwt);
    let mut end = bwt.len() as u32;
    let mut last_run = runs.len();
    for segment in segments.iter_mut().rev() {
        for run in runs[segment.first_run..last_run].iter_mut().rev() {
            let begin = run[0];
            let symbol = bwt[begin as usize];
            let rank = to_front(&mut list, symbol).max(1);
            *run = [end - begin, u32::from(symbol) | u32::from(rank) << 8];
            end = begin;
        }
        segment.list = list;
        last_run = segment.first_run;
    }
    used
}

/// Moves a symbol to the front, and returns its previous position.
#[inline(always)]
fn to_front(list: &mut [u8; 256], symbol: u8) -> u8 {
    let mut carried = symbol;
    for (position, slot) in list.iter_mut().enumerate() {
        core::mem::swap(slot, &mut carried);
        if carried == symbol {
            return position as u8;
        }
    }
    unreachable!("the list is a permutation of all symbols")
}
