//! Finds distant matches.
//!
//! Positions whose preceding bytes have a certain hash are *samples* ([`samples`]), one position in 64, and equal
//! contents have equal samples. For each sample's hash, a table holds the place of the latest own bytes with it. The
//! finder compares the bytes at that place, and extends the match in both directions.
//!
//! Repetitions of earlier blocks are taken out first, then, if wanted, repetitions within the rest.
//!
//! Blocks are searched in order. The part of the work that depends on a block alone is its [`Survey`], which any thread
//! can make beforehand.

use std::collections::VecDeque;
use std::mem;

use super::samples::{self, SPACING_LOG, Sample};
use super::{DistantMatch, MAX_SOURCES, sources, take_out};
use crate::codec::{OutOfMemory, reserve, reserve_huge, reserve_zeroed};
use crate::pages::advise_huge_pages;

/// Shorter matches are not taken: the block's own codec may do as well, and every match cuts its data.
const MIN_QUICK: usize = 128;

/// The same where matches within a block are found, too. The Burrows-Wheeler transform codes a repetition more cheaply
/// the more copies there are. Of 192, 384 and 512, 384 gave the smallest sources and library; with 192, a corpus of
/// texts took 0.7% more.
const MIN_THOROUGH: usize = 384;

/// Shorter blocks have no matches of their own: few repetitions are that long, and messages must stay quick.
pub(crate) const MIN_NEAR_BLOCK: usize = 1 << 16;

/// For each hash, the latest own bytes with it.
///
/// From its highest bit, an entry has 32 bits for the number of the block, 5 low bits of the hash, so that few other
/// bytes pass for these, and 27 bits for the position where they end. An empty entry is 0.
struct Table(Vec<u64>);

impl Table {
    /// No block is longer than 2^26 bytes.
    const END_BITS: u32 = 27;

    fn slot(&self, hash: u64) -> usize {
        (hash >> (64 - self.0.len().ilog2())) as usize
    }

    fn entry(number: u32, hash: u64, end: usize) -> u64 {
        u64::from(number) << 32 | u64::from((hash as u32) << Self::END_BITS) | end as u64
    }

    /// Enters own bytes with this hash, which end before position `end` of their block.
    fn enter(&mut self, number: u32, hash: u64, end: usize) {
        let slot = self.slot(hash);
        self.0[slot] = Self::entry(number, hash, end);
    }

    /// The number of the block with own bytes of this hash, and where they end.
    fn place(&self, hash: u64) -> Option<(u32, usize)> {
        let found = self.0[self.slot(hash)];
        let number = (found >> 32) as u32;
        let end = (found & ((1 << Self::END_BITS) - 1)) as usize;
        (end > 0 && found == Self::entry(number, hash, end)).then_some((number, end))
    }
}

/// The part of the search for a block's matches that depends on the block alone.
#[derive(Default)]
pub(crate) struct Survey {
    samples: Vec<Sample>,
    /// The block's contents. The finder keeps the own bytes among them.
    contents: Vec<u8>,
}

impl Survey {
    /// Bytes of memory that the survey of a block of `block_size` bytes takes.
    pub(super) fn memory(block_size: usize) -> u64 {
        samples::memory(block_size) + block_size as u64
    }

    /// Replaces the survey by one of `block`.
    ///
    /// # Errors
    /// If the system has too little memory.
    pub(crate) fn take(&mut self, block: &[u8]) -> Result<(), OutOfMemory> {
        samples::take(block, &mut self.samples)?;
        self.contents.clear();
        reserve_huge(&mut self.contents, block.len())?;
        self.contents.extend_from_slice(block);
        Ok(())
    }
}

/// The finder of a stream's blocks. It keeps the own bytes that matches may repeat.
pub(crate) struct Finder {
    /// How many own bytes back a match may reach.
    reach: u64,
    /// The own bytes of the latest blocks, in order.
    own: VecDeque<Vec<u8>>,
    /// Their length.
    own_len: u64,
    /// Number of the next block in its frame.
    number: u32,
    table: Table,
    /// Whether to find repetitions within a block, too.
    is_near: bool,
    /// The fewest bytes of a match.
    least: usize,
    /// Own bytes of the present block during the search for matches within it, and those matches.
    searched: Vec<u8>,
    near: Vec<DistantMatch>,
}

impl Finder {
    /// Bytes of memory that a finder takes.
    pub(crate) fn memory(reach: u64, is_near: bool, block_size: usize) -> u64 {
        let block_size = block_size as u64;
        let table_reach = if is_near { reach.max(block_size) } else { reach };
        let table = 8 * Self::table_len(table_reach) as u64;
        let searched = if is_near { block_size } else { 0 };
        // A new block is added before the blocks that it displaces are dropped.
        reach.saturating_add(table + block_size + searched)
    }

    /// Entries of the table: one to two for each sample.
    fn table_len(reach: u64) -> usize {
        (reach >> (SPACING_LOG + 1)).clamp(1 << 10, 1 << 32).next_power_of_two() as usize * 2
    }

    /// A finder for matches that reach back up to `reach` own bytes, of earlier blocks only.
    pub(crate) fn new(reach: u64) -> Result<Self, OutOfMemory> {
        Self::with_table(reach, reach, false)
    }

    /// A finder for matches that also repeat parts of the same block, of up to `block_size` bytes.
    pub(crate) fn with_near(reach: u64, block_size: usize) -> Result<Self, OutOfMemory> {
        Self::with_table(reach, reach.max(block_size as u64), true)
    }

    fn with_table(reach: u64, table_reach: u64, is_near: bool) -> Result<Self, OutOfMemory> {
        let mut table = Table(Vec::new());
        reserve_zeroed(&mut table.0, Self::table_len(table_reach), 0)?;
        advise_huge_pages(&mut table.0);
        Ok(Self {
            reach,
            own: VecDeque::new(),
            own_len: 0,
            number: 0,
            table,
            is_near,
            least: if is_near { MIN_THOROUGH } else { MIN_QUICK },
            searched: Vec::new(),
            near: Vec::new(),
        })
    }

    /// Whether it also finds repetitions within a block.
    pub(crate) fn is_near(&self) -> bool {
        self.is_near
    }

    /// Begins a frame, whose blocks repeat nothing of earlier frames.
    pub(crate) fn begin_frame(&mut self) {
        self.own.clear();
        self.own_len = 0;
        // Before the first block the table is empty, and writing zeros would only commit its memory.
        if self.number > 0 {
            self.table.0.fill(0);
        }
        self.number = 0;
    }

    /// Finds the distant matches of the next block of the frame, and uses up its survey. At least one byte of the block
    /// remains its own.
    ///
    /// # Errors
    /// If the system has too little memory.
    pub(crate) fn find(&mut self, block: &mut Survey) -> Result<Vec<DistantMatch>, OutOfMemory> {
        let Survey { samples, contents } = block;
        let mut matches: Vec<DistantMatch> = Vec::new();
        let mut end = 0;
        for &Sample { last, hash } in &*samples {
            let at = last as usize;
            if at < end {
                continue;
            }
            if let Some(found) = self.match_at(contents, at, hash, end) {
                end = (found.start + found.len) as usize;
                matches.push(found);
            }
        }
        keep_most_useful(&mut matches);
        let matched: usize = matches.iter().map(|one| one.len as usize).sum();
        if let Some(first) = matches.first_mut().filter(|_| matched == contents.len()) {
            // A block keeps at least a byte of its own.
            (first.start, first.from, first.len) = (1, first.from + 1, first.len - 1);
        }
        if self.is_near && contents.len() >= MIN_NEAR_BLOCK {
            self.find_near(contents, samples, &mut matches)?;
        } else {
            self.enter(samples, &matches);
        }
        let own_len = take_out(&matches, contents);
        contents.truncate(own_len);
        self.keep(contents)?;
        Ok(matches)
    }

    /// The match around the sample that ends with byte `at`; `anchor` is where the last match ended.
    fn match_at(&self, block: &[u8], at: usize, hash: u64, anchor: usize) -> Option<DistantMatch> {
        let (number, end) = self.table.place(hash)?;
        let back = self.number - number;
        let source = self.own.len().checked_sub(back as usize).and_then(|i| self.own.get(i))?;
        // Bytes that were own bytes when entered may have become part of a match that began before them.
        let after = equal(&block[at + 1..], source.get(end..)?);
        let before = equal_before(&block[anchor..=at], &source[..end]);
        let len = before + after;
        (len >= self.least).then_some(DistantMatch {
            start: (at + 1 - before) as u32,
            len: len as u32,
            back,
            from: (end - before) as u32,
        })
    }

    /// Finds own bytes that repeat earlier ones, adds those matches to the others, and enters the samples among the
    /// remaining own bytes.
    fn find_near(
        &mut self,
        block: &[u8],
        samples: &[Sample],
        matches: &mut Vec<DistantMatch>,
    ) -> Result<(), OutOfMemory> {
        let (mut own, mut near) = (mem::take(&mut self.searched), mem::take(&mut self.near));
        reserve(&mut own, block.len())?;
        own.clear();
        near.clear();
        let mut others = matches.iter().peekable();
        // Everything before `done` is in `own` or in a match.
        let mut done = 0;
        // The end of the last match.
        let mut anchor = 0;
        for &Sample { last, hash } in samples {
            let end = last as usize + 1;
            while let Some(other) = others.next_if(|one| (one.start + one.len) as usize <= end) {
                own.extend_from_slice(&block[done..other.start as usize]);
                done = (other.start + other.len) as usize;
                anchor = done;
            }
            let limit = others.peek().map_or(block.len(), |one| one.start as usize);
            if end <= done || end > limit {
                continue;
            }
            own.extend_from_slice(&block[done..end]);
            done = end;
            if let Some(found) = self.near_at(&own, &block[anchor..limit], end - anchor, hash) {
                let start = anchor + found.start as usize;
                own.truncate(own.len() - (end - start));
                done = start + found.len as usize;
                anchor = done;
                near.push(DistantMatch { start: start as u32, ..found });
            } else {
                self.table.enter(self.number, hash, own.len());
            }
        }
        reserve_more(matches, near.len())?;
        matches.extend_from_slice(&near);
        matches.sort_unstable_by_key(|one| one.start);
        (self.searched, self.near) = (own, near);
        Ok(())
    }

    /// Finds the match around the sample that ends before `end` of `part`, which lies between two matches. `own` has
    /// all own bytes up to there. The returned match's start is a position in `part`.
    fn near_at(&self, own: &[u8], part: &[u8], end: usize, hash: u64) -> Option<DistantMatch> {
        let (number, source_end) = self.table.place(hash)?;
        if number != self.number {
            return None;
        }
        // As above.
        let before = equal_before(&part[..end], own.get(..source_end)?);
        // The match's own bytes are no part of its source.
        let source = own[..own.len() - before].get(source_end..)?;
        let len = before + equal(&part[end..], source);
        (len >= self.least).then_some(DistantMatch {
            start: (end - before) as u32,
            len: len as u32,
            back: 0,
            from: (source_end - before) as u32,
        })
    }

    /// Enters the samples that are among the block's own bytes.
    fn enter(&mut self, samples: &[Sample], matches: &[DistantMatch]) {
        let mut matches = matches.iter().peekable();
        // Bytes of matches before the sample.
        let mut matched = 0;
        for &Sample { last: at, hash } in samples {
            while let Some(one) = matches.next_if(|one| one.start + one.len <= at) {
                matched += one.len;
            }
            if matches.peek().is_none_or(|one| at < one.start) {
                self.table.enter(self.number, hash, (at - matched + 1) as usize);
            }
        }
    }

    /// Keeps the own bytes of the block, and drops the blocks that the next one cannot repeat.
    fn keep(&mut self, own: &mut Vec<u8>) -> Result<(), OutOfMemory> {
        self.number += 1;
        if own.len() as u64 > self.reach {
            self.own.clear();
            self.own_len = 0;
            return Ok(());
        }
        let mut kept = Vec::new();
        // Moving a few bytes takes less time than allocating for the next survey.
        if own.len() < own.capacity() / 2 {
            reserve(&mut kept, own.len())?;
            kept.extend_from_slice(own);
        } else {
            kept = mem::take(own);
            kept.shrink_to_fit();
        }
        self.own_len += kept.len() as u64;
        self.own.push_back(kept);
        while self.own_len > self.reach
            && let Some(dropped) = self.own.pop_front()
        {
            self.own_len -= dropped.len() as u64;
        }
        Ok(())
    }
}

/// Keeps the matches of the [`MAX_SOURCES`] blocks with the most bytes of matches.
fn keep_most_useful(matches: &mut Vec<DistantMatch>) {
    let mut sources = sources(matches);
    if sources.len() > MAX_SOURCES {
        let bytes = |back: u32| {
            let of = matches.iter().filter(|one| one.back == back);
            of.map(|one| u64::from(one.len)).sum::<u64>()
        };
        // Prefers the blocks that the most bytes repeat; of equal ones, the nearest.
        sources.sort_by_cached_key(|&back| (std::cmp::Reverse(bytes(back)), back));
        sources.truncate(MAX_SOURCES);
        matches.retain(|one| sources.contains(&one.back));
    }
}

/// Makes room for `more` elements, and keeps the present ones.
fn reserve_more<T>(vec: &mut Vec<T>, more: usize) -> Result<(), OutOfMemory> {
    let bytes = (more * size_of::<T>()) as u64;
    vec.try_reserve(more).map_err(|_| OutOfMemory { bytes })
}

/// The number of equal bytes at the beginnings.
fn equal(a: &[u8], b: &[u8]) -> usize {
    let eights = a.as_chunks::<8>().0.iter().zip(b.as_chunks::<8>().0);
    let same = 8 * eights.take_while(|(a, b)| a == b).count();
    same + a[same..].iter().zip(&b[same..]).take_while(|(a, b)| a == b).count()
}

/// The number of equal bytes at the ends.
fn equal_before(a: &[u8], b: &[u8]) -> usize {
    let eights = a.as_rchunks::<8>().1.iter().rev().zip(b.as_rchunks::<8>().1.iter().rev());
    let same = 8 * eights.take_while(|(a, b)| a == b).count();
    let (a, b) = (&a[..a.len() - same], &b[..b.len() - same]);
    same + a.iter().rev().zip(b.iter().rev()).take_while(|(a, b)| a == b).count()
}

#[cfg(test)]
mod tests {
    use super::super::{put_matches, put_own};
    use super::*;

    fn noise(len: usize, seed: u32) -> Vec<u8> {
        crate::test_data::noise(seed, len, 256)
    }

    /// Takes matches out of the blocks of `data` and puts them back. Returns the total length of own bytes.
    fn round_trip(data: &[u8], block_size: usize, reach: u64) -> usize {
        round_trip_by(Finder::new(reach).unwrap(), data, block_size, reach)
    }

    fn round_trip_by(mut finder: Finder, data: &[u8], block_size: usize, reach: u64) -> usize {
        let mut own: Vec<Vec<u8>> = Vec::new();
        let mut survey = Survey::default();
        for block in data.chunks(block_size) {
            let mut part = block.to_vec();
            survey.take(block).unwrap();
            let matches = finder.find(&mut survey).unwrap();
            let own_len = take_out(&matches, &mut part);
            assert!(own_len > 0);
            assert!(sources(&matches).len() <= MAX_SOURCES);
            let mut contents = vec![0; block.len()];
            put_own(&matches, &part[..own_len], &mut contents);
            put_matches(&matches, 0, &part[..own_len], &mut contents).unwrap();
            for back in sources(&matches) {
                let from = own.len() - back as usize;
                assert!(own[from..].iter().map(|own| own.len() as u64).sum::<u64>() <= reach);
                put_matches(&matches, back, &own[from], &mut contents).unwrap();
            }
            assert!(contents == block);
            own.push(part[..own_len].to_vec());
        }
        own.iter().map(Vec::len).sum()
    }

    #[test]
    fn repetitions_of_earlier_blocks_are_found() {
        let data = noise(300_000, 1);
        let twice = [&data[..], &data].concat();
        for reach in [330_000, 1 << 24] {
            let own = round_trip(&twice, 1 << 16, reach);
            assert!((300_000..302_000).contains(&own), "{own}");
        }
        // Out of reach.
        assert_eq!(round_trip(&twice, 1 << 16, 131_072), 600_000);
        // Many copies, with changes between; the block repeats its own bytes.
        let mut many = Vec::new();
        for i in 0..20 {
            many.extend_from_slice(&data[..150_000 + 77 * i]);
            many.extend_from_slice(&noise(1000, 7 + i as u32));
        }
        let own = round_trip(&many, 1 << 16, 300_000);
        assert!(own < 200_000, "{own}");
    }

    #[test]
    fn a_block_repeats_few_others_and_has_a_byte_of_its_own() {
        let block = 1 << 12;
        let data = noise(40 * block, 3);
        // The last block has pieces of 20 blocks.
        let pieces: Vec<u8> =
            (0..20).flat_map(|i| &data[2 * i * block..][..block / 20]).copied().collect();
        round_trip(&[&data[..], &pieces].concat(), block, 1 << 20);
        // Exactly repeated blocks.
        let own = round_trip(&[&data[..], &data].concat(), block, 1 << 20);
        assert!(own < 40 * block + 40 * 300, "{own}");
        for period in [1, 2, 7, 100, 5000] {
            let periodic: Vec<u8> = noise(period, 5).into_iter().cycle().take(100_000).collect();
            round_trip(&periodic, 1 << 14, 3 << 14);
        }
        round_trip(&noise(1000, 5), 100, 300);
    }

    #[test]
    fn repetitions_within_a_block_are_found() {
        let near = |data: &[u8], block_size, reach| {
            let finder = Finder::with_near(reach, block_size).unwrap();
            round_trip_by(finder, data, block_size, reach)
        };
        let data = noise(40_000, 1);
        // Twice in a block, with changes; then a block that also repeats the one before.
        let mut again = data.clone();
        (0..again.len()).step_by(5000).for_each(|at| again[at] ^= 1);
        let block = [&data[..], &again, &noise(1000, 3), &data[7..39_000]].concat();
        let own = near(&block, 1 << 17, 0);
        assert!((41_000..44_000).contains(&own), "{own}");
        let own = near(&[&block[..], &block].concat(), block.len(), 1 << 20);
        assert!((41_000..45_000).contains(&own), "{own}");
        // Matches that begin before bytes that were entered as own, and periods, whose copies overlap.
        for period in [1, 2, 7, 100, 300, 5000, 50_000] {
            let periodic: Vec<u8> = noise(period, 5).into_iter().cycle().take(200_000).collect();
            for (block_size, reach) in [(1 << 16, 0), (1 << 16, 1 << 20), (200_000, 1)] {
                near(&periodic, block_size, reach);
            }
        }
        let mut mixed = Vec::new();
        for i in 0..400 {
            mixed.extend_from_slice(&data[i * 37 % 20_000..][..i % 600]);
            mixed.extend_from_slice(&noise(i % 90, i as u32));
        }
        near(&mixed, 1 << 16, 0);
        near(&mixed, 1 << 16, 1 << 17);
        near(&mixed, mixed.len(), 1);
    }

    #[test]
    fn a_frame_repeats_nothing_of_another() {
        let mut finder = Finder::new(1 << 16).unwrap();
        let data = noise(1 << 14, 9);
        let mut survey = Survey::default();
        for (is_new, repeats) in [(false, false), (false, true), (true, false), (false, true)] {
            if is_new {
                finder.begin_frame();
            }
            survey.take(&data).unwrap();
            let matches = finder.find(&mut survey).unwrap();
            assert_eq!(!matches.is_empty(), repeats);
        }
    }
}
