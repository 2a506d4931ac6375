//! The encoder's choice of tables: which segments share a set, and which contexts of a set share a table.
//!
//! A decoder does not depend on anything here. All of it is integer arithmetic, so every machine makes the same choice.

use super::super::{OutOfMemory, reserve};
use super::spec::{CONTEXTS, FREQ_BITS};
use super::tables::{Exponents, MAX_SETS, RANKS, ROWS, RUNS, STEPS, Set, Shape, WIDTH};

/// How often each token occurred in one context.
pub type Counts = [u32; WIDTH];

/// Bits of a mantissa in [`log2`].
const LOG_BITS: u32 = 12;

/// log2(1 + i / 4096) in units of 1/65536, by repeated squaring.
static LOG: [u16; 1 << LOG_BITS] = {
    let mut table = [0; 1 << LOG_BITS];
    let mut i = 0;
    while i < table.len() {
        let mut y = ((1 << LOG_BITS) + i as u64) << (31 - LOG_BITS);
        let mut bit = 16;
        while bit > 0 {
            bit -= 1;
            y = (y * y) >> 31;
            if y >> 32 != 0 {
                table[i] |= 1 << bit;
                y >>= 1;
            }
        }
        i += 1;
    }
    table
};

/// log2 of `x`, at least 1, in units of 1/65536, from its first 13 bits.
fn log2(x: u32) -> u64 {
    let e = x.ilog2();
    let mantissa = (u64::from(x) << LOG_BITS >> e) as usize & (LOG.len() - 1);
    u64::from(e) << 16 | u64::from(LOG[mantissa])
}

/// The exponents nearest to the proportions of the counts.
fn quantise(counts: &Counts) -> Exponents {
    let total: u32 = counts.iter().sum();
    counts.map(|c| match c {
        0 => 0,
        c => {
            let log = (log2(c) + (u64::from(FREQ_BITS) << 16)).saturating_sub(log2(total));
            1 + ((log * u64::from(STEPS) + (1 << 15)) >> 16) as u8
        }
    })
}

/// The cost of coding the counted tokens with a table of their own, description included, in 1/65536 bit.
fn cost(counts: &Counts) -> u64 {
    let total: u32 = counts.iter().sum();
    if total == 0 {
        return 0;
    }
    let mut bits = u64::from(total) * log2(total);
    let mut described = 8;
    for &c in counts.iter().filter(|&&c| c > 0) {
        bits -= u64::from(c) * log2(c);
        described += 4;
    }
    bits + (described << 16)
}

fn add(sum: &mut Counts, counts: &Counts) {
    for (sum, count) in sum.iter_mut().zip(counts) {
        *sum += count;
    }
}

/// The tables of a set for these counts.
pub fn tables(counts: &[Counts; CONTEXTS]) -> Set {
    let mut set = Set::EMPTY;
    for shape in [RANKS, RUNS] {
        for column in 0..shape.columns {
            share_rows(shape, column, counts, &mut set);
        }
    }
    set
}

/// Cuts a column into ranges of rows that share a table, at the least total cost.
fn share_rows(shape: Shape, column: usize, counts: &[Counts; CONTEXTS], set: &mut Set) {
    let at = |row: usize| shape.first + row * shape.columns + column;
    // For each row, the least cost of the rows before it, and the start of the last range among those.
    let mut best = [(0u64, 0usize); ROWS + 1];
    for end in 1..=ROWS {
        let mut sum = [0; WIDTH];
        best[end].0 = u64::MAX;
        for begin in (0..end).rev() {
            add(&mut sum, &counts[at(begin)]);
            let total = best[begin].0 + cost(&sum);
            if total <= best[end].0 {
                best[end] = (total, begin);
            }
        }
    }
    let mut end = ROWS;
    while end > 0 {
        let begin = best[end].1;
        let mut sum = [0; WIDTH];
        for row in begin..end {
            add(&mut sum, &counts[at(row)]);
        }
        set.fresh[at(begin)] = sum.iter().any(|&c| c > 0);
        let table = quantise(&sum);
        for row in begin..end {
            set.exponents[at(row)] = table;
        }
        end = begin;
    }
}

/// Counts of every segment's tokens by context. Zero counts are left out.
#[derive(Debug)]
pub struct SegmentCounts {
    /// `(context * WIDTH + token) << 16 | count`. A count is at most the number of a segment's runs.
    cells: Vec<u32>,
    /// For each segment, the end of its cells and its runs per 64 KiB.
    segments: Vec<(usize, u64)>,
    /// The most cells to keep. Segments without room for their cells are in group 0; `rest` has the sum of their
    /// counts.
    limit: usize,
    rest: Box<[Counts; CONTEXTS]>,
}

impl Default for SegmentCounts {
    fn default() -> Self {
        let rest = Box::new([[0; WIDTH]; CONTEXTS]);
        Self { cells: Vec::new(), segments: Vec::new(), limit: 0, rest }
    }
}

/// Number of groups for this many segments.
fn sets(segments: usize) -> usize {
    (segments / SEGMENTS_PER_SET).clamp(1, MAX_SETS)
}

impl SegmentCounts {
    /// Starts a block of `block_len` bytes and `segments` segments.
    pub fn start(&mut self, segments: usize, block_len: usize) -> Result<(), OutOfMemory> {
        self.cells.clear();
        self.segments.clear();
        *self.rest = [[0; WIDTH]; CONTEXTS];
        // A single group needs no cells. Real data yields about a tenth of a cell for each byte.
        self.limit = if sets(segments) == 1 { 0 } else { block_len / 4 };
        reserve(&mut self.cells, self.limit)
    }

    /// Takes the counts of the next segment, of `len` bytes, and sets them to zero.
    pub fn push(&mut self, counts: &mut [Counts; CONTEXTS], runs: usize, len: usize) {
        if self.cells.len() + CONTEXTS * WIDTH > self.limit {
            for (rest, counts) in self.rest.iter_mut().zip(counts.iter()) {
                add(rest, counts);
            }
            *counts = [[0; WIDTH]; CONTEXTS];
        } else {
            for (context, counts) in counts.iter_mut().enumerate() {
                if *counts == [0; WIDTH] {
                    continue;
                }
                for (token, count) in counts.iter_mut().enumerate().filter(|(_, c)| **c > 0) {
                    self.cells.push((((context * WIDTH + token) as u32) << 16) | *count);
                    *count = 0;
                }
            }
        }
        self.segments.push((self.cells.len(), ((runs as u64) << 16) / len as u64));
    }

    fn cells(&self, segment: usize) -> &[u32] {
        let begin = segment.checked_sub(1).map_or(0, |before| self.segments[before].0);
        &self.cells[begin..self.segments[segment].0]
    }

    /// Groups the segments by their cost with the tables of each group. Returns the sum of each group's counts, and
    /// sets each segment's group.
    pub fn group(&self, groups: &mut Vec<u8>) -> Vec<Box<[Counts; CONTEXTS]>> {
        let segments = self.segments.len();
        let sets = sets(segments);
        // Start with groups of similar run lengths.
        let mut order: Vec<usize> = (0..segments).collect();
        order.sort_by_key(|&i| (self.segments[i].1, i));
        groups.clear();
        groups.resize(segments, 0);
        for (place, &segment) in order.iter().enumerate() {
            let kept = !self.cells(segment).is_empty();
            groups[segment] = if kept { (place * sets / segments) as u8 } else { 0 };
        }
        let mut sums = self.sums(sets, groups);
        if sets > 1 {
            for _ in 0..ROUNDS {
                let costs: Vec<_> = sums.iter().map(|sums| token_costs(sums)).collect();
                for (segment, group) in groups.iter_mut().enumerate() {
                    let cells = self.cells(segment);
                    let cost = |costs: &[[u16; WIDTH]; CONTEXTS]| {
                        let costs = costs.as_flattened();
                        cells.iter().fold(0u64, |sum, &cell| {
                            sum + u64::from(costs[(cell >> 16) as usize]) * u64::from(cell & 0xffff)
                        })
                    };
                    let best = costs.iter().enumerate().min_by_key(|(_, costs)| cost(costs));
                    *group = best.map_or(0, |(i, _)| i as u8);
                }
                sums = self.sums(sets, groups);
            }
        }
        sums
    }

    fn sums(&self, sets: usize, groups: &[u8]) -> Vec<Box<[Counts; CONTEXTS]>> {
        let mut sums: Vec<_> = (0..sets).map(|_| Box::new([[0; WIDTH]; CONTEXTS])).collect();
        for (segment, &group) in groups.iter().enumerate() {
            let sums = sums[usize::from(group)].as_flattened_mut();
            for &cell in self.cells(segment) {
                sums[(cell >> 16) as usize] += cell & 0xffff;
            }
        }
        for (sums, rest) in sums[0].iter_mut().zip(self.rest.iter()) {
            add(sums, rest);
        }
        sums
    }
}

/// A set of tables takes about two kilobytes, which pays off for this many segments.
const SEGMENTS_PER_SET: usize = 48;
/// Rounds of grouping.
const ROUNDS: usize = 5;

/// The cost of each token in each context, in 1/256 bit. Half an occurrence is added to each token's count.
fn token_costs(counts: &[Counts; CONTEXTS]) -> Box<[[u16; WIDTH]; CONTEXTS]> {
    let mut costs = Box::new([[0; WIDTH]; CONTEXTS]);
    for (costs, counts) in costs.iter_mut().zip(counts) {
        let total = log2(2 * counts.iter().sum::<u32>() + WIDTH as u32);
        for (cost, count) in costs.iter_mut().zip(counts) {
            *cost = ((total - log2(2 * count + 1)) >> 8) as u16;
        }
    }
    costs
}
