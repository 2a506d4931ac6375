//! The inverse transform. Many walkers go backward from stored rows, so that their memory reads overlap.
//!
//! A walker's step leads from the row of the suffix at `p` to the row of the suffix at `p - 1`, and finds the byte in
//! between. Row numbers are one less than in the format, which leaves out the empty suffix: no step leads to it. The
//! walker of the block's end starts from the empty suffix; its link is stored in the place of the whole block's row,
//! which no walker reads, because each walk ends there.
//!
//! Steps are random reads. So for blocks up to 16 MiB a walker takes two steps at a time, through a table of four bytes
//! per entry: the row two steps on (24 bits), and the first of the two bytes. The second byte is the first byte of the
//! row arrived at, which follows from the sorted order of the rows.

use super::super::histogram::histogram;
use super::super::{OutOfMemory, reserve};
use super::Malformed;

/// Walkers that take turns on one core.
const WALKERS: usize = 16;
/// Bytes that a walker collects before it writes them, because the outputs of all walkers share cache sets.
const LINE: usize = 64;
/// The longest block whose row numbers leave a byte free in a 32-bit entry.
const MAX_PAIRED_LEN: usize = 1 << 24;

/// The tables for inverting a block, kept from one block to the next.
#[derive(Debug, Default)]
pub struct Inverse {
    links: Vec<u32>,
    pairs: Vec<u32>,
    /// For each range of `1 << shift` rows, the first byte of its first row.
    first_byte: Vec<u8>,
}

/// Ranges of rows in [`Inverse::first_byte`].
const RANGES: usize = 1 << 14;

/// The first byte of each row.
struct FirstBytes<'a> {
    ranges: &'a [u8; RANGES],
    shift: u32,
    /// For each byte, the first row after its rows. No row comes after those of the last byte.
    end: [u32; 256],
}

impl<'a> FirstBytes<'a> {
    /// Finds the first bytes of `len` rows. `end` has, for each byte, the first row after its rows. `ranges` is
    /// overwritten.
    fn new(len: usize, mut end: [u32; 256], ranges: &'a mut Vec<u8>) -> Self {
        end[255] = u32::MAX;
        let shift = (usize::BITS - (len - 1).leading_zeros()).saturating_sub(RANGES.ilog2());
        ranges.clear();
        let mut byte = 0u8;
        ranges.extend((0..RANGES).map(|range| {
            while u64::from(end[usize::from(byte)]) <= (range as u64) << shift {
                byte += 1;
            }
            byte
        }));
        let Some(ranges) = ranges.first_chunk() else {
            unreachable!("all ranges have just been filled");
        };
        Self { ranges, shift, end }
    }

    /// Handles the few ranges in which one byte's rows end and another's begin.
    #[cold]
    fn search(&self, row: u32) -> u8 {
        self.end.partition_point(|&end| end <= row) as u8
    }

    #[inline(always)]
    fn of(&self, row: u32) -> u8 {
        let byte = self.ranges[(row >> self.shift) as usize & (RANGES - 1)];
        if row < self.end[usize::from(byte)] { byte } else { self.search(row) }
    }
}

impl Inverse {
    /// Makes room for a block of `len` bytes.
    pub fn reserve(&mut self, len: usize) -> Result<(), OutOfMemory> {
        reserve(&mut self.links, len)?;
        if len <= MAX_PAIRED_LEN { reserve(&mut self.pairs, len) } else { Ok(()) }
    }

    /// Inverts the transform of a block of at least one byte into `block`, which has the same length.
    ///
    /// `rows[k]` is the row of the suffix at `k << start_log`, 1 to the block's length; see [`super::sort`].
    pub fn run(
        &mut self,
        bwt: &[u8],
        rows: &[u32],
        start_log: u32,
        block: &mut [u8],
    ) -> Result<(), Malformed> {
        let len = bwt.len();
        let paired = len <= MAX_PAIRED_LEN;
        let mut begin = [0u32; 256];
        let mut end = histogram(bwt);
        let mut sum = 0;
        for (begin, end) in begin.iter_mut().zip(&mut end) {
            *begin = sum;
            sum += *end;
            *end = sum;
        }
        let first_bytes = FirstBytes::new(len, end, &mut self.first_byte);

        super::fit(&mut self.links, len).expect(super::MEMORY);
        let whole = rows[0] as usize - 1;
        let shift = if paired { 8 } else { 0 };
        link(bwt, whole, shift, begin, &mut self.links);
        if paired {
            // Neighbouring rows with the same byte lead to nearly the same place, so only few cache lines are in use at
            // a time.
            super::fit(&mut self.pairs, len).expect(super::MEMORY);
            for (pair, &link) in self.pairs.iter_mut().zip(&self.links) {
                let then = self.links[(link >> 8) as usize];
                *pair = (then & !0xff) | (link & 0xff);
            }
        }

        let stretch = 1usize << start_log;
        let ends = rows.iter().skip(1).chain([&rows[0]]).map(|&row| row - 1);
        let (full, ragged) = block.split_at_mut(len & !(stretch - 1));
        let starts: Vec<u32> = ends.collect();
        let table = if paired { &self.pairs } else { &self.links };
        let walked = full.len() >> start_log;
        let is_right = if paired {
            walk_all::<true>(table, &first_bytes, &starts, rows, start_log, full)
        } else {
            walk_all::<false>(table, &first_bytes, &starts, rows, start_log, full)
        };
        if !is_right {
            return Err(WRONG_ROWS);
        }
        if !ragged.is_empty() {
            let mut row = starts[walked];
            for byte in ragged.iter_mut().rev() {
                row = self.links[row as usize] >> shift;
                *byte = first_bytes.of(row);
            }
            if row != rows[walked] - 1 {
                return Err(WRONG_ROWS);
            }
        }
        Ok(())
    }
}

const WRONG_ROWS: Malformed = Malformed("stored rows do not belong to the transform");

/// Writes each row's link: the row one step on and, if `shift` is 8, the byte in between in the low bits.
///
/// `next[c]` is the first row of byte `c`. `whole` is the row of the whole block.
fn link(bwt: &[u8], whole: usize, shift: u32, mut next: [u32; 256], links: &mut [u32]) {
    let low = (1u32 << shift) - 1;
    let mut one = |byte: u8| {
        let next = &mut next[usize::from(byte)];
        let link = *next << shift | u32::from(byte) & low;
        *next += 1;
        link
    };
    links[whole] = one(bwt[0]);
    let (before, after) = bwt[1..].split_at(whole);
    for (link, &byte) in links.iter_mut().zip(before) {
        *link = one(byte);
    }
    for (link, &byte) in links[whole + 1..].iter_mut().zip(after) {
        *link = one(byte);
    }
}

/// Fills `out`, a whole number of stretches of `1 << start_log` bytes, each backward from its start. Returns whether
/// each walk ended at its goal.
fn walk_all<const PAIRED: bool>(
    table: &[u32],
    first_bytes: &FirstBytes<'_>,
    starts: &[u32],
    goals: &[u32],
    start_log: u32,
    mut out: &mut [u8],
) -> bool {
    let mut walked = 0;
    while !out.is_empty() {
        let (starts, goals) = (&starts[walked..], &goals[walked..]);
        let count = match out.len() >> start_log {
            WALKERS.. => WALKERS,
            4.. => 4,
            _ => 1,
        };
        let group = out.split_off_mut(..count << start_log).unwrap_or_default();
        let is_right = match count {
            WALKERS => walk::<WALKERS, PAIRED>(table, first_bytes, starts, goals, group),
            4 => walk::<4, PAIRED>(table, first_bytes, starts, goals, group),
            _ => walk::<1, PAIRED>(table, first_bytes, starts, goals, group),
        };
        if !is_right {
            return false;
        }
        walked += count;
    }
    true
}

/// Fills `out`, as `W` equal stretches, each backward from its start. Returns whether each walk ended at its goal.
#[inline(always)]
fn walk<const W: usize, const PAIRED: bool>(
    table: &[u32],
    first_bytes: &FirstBytes,
    starts: &[u32],
    goals: &[u32],
    out: &mut [u8],
) -> bool {
    let stretch = out.len() / W;
    let mut row: [u32; W] = core::array::from_fn(|i| starts[i]);
    let mut lines = [[0; LINE]; W];
    for line in (0..stretch / LINE).rev() {
        if PAIRED {
            for step in (0..LINE / 2).rev() {
                for (row, bytes) in row.iter_mut().zip(&mut lines) {
                    let pair = table[*row as usize];
                    *row = pair >> 8;
                    bytes[2 * step + 1] = pair as u8;
                    bytes[2 * step] = first_bytes.of(*row);
                }
            }
        } else {
            for step in (0..LINE).rev() {
                for (row, bytes) in row.iter_mut().zip(&mut lines) {
                    *row = table[*row as usize];
                    bytes[step] = first_bytes.of(*row);
                }
            }
        }
        for (bytes, out) in lines.iter().zip(out.chunks_exact_mut(stretch)) {
            out[line * LINE..][..LINE].copy_from_slice(bytes);
        }
    }
    row.iter().zip(goals).all(|(row, goal)| *row == goal - 1)
}
