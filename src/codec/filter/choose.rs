//! Chooses filters for a block by what it holds.
//!
//! Encoders on all machines must choose alike, so the rule is exact: integers only, places that depend on the block's
//! length alone, and sizes from the block's own codec.
//!
//! 1. A small sample shows whether the block is text, and whether bytes that lie 2, 4 or 8 apart, or pixels, resemble
//!    each other more than their neighbours. Most text, programs and archives end here, unfiltered.
//! 2. The entropy of the filtered sample's bytes ranks the candidates.
//! 3. The codec encodes 1/64 of the block with the best few, with those that a header [suggests](super::hints), and
//!    without a filter, then 1/16 with the best two, and with planes of bits instead of bytes where elements are small
//!    numbers.
//! 4. A codec that works on whole blocks, such as the Burrows-Wheeler transform, encodes a quarter of the block with
//!    the best and without a filter, unless the filter is far ahead.
//!
//! Samples do not show matches that reach farther than a piece, so the choice can be wrong for typed data that repeats
//! itself from afar.
//!
//! LZ77's entropy coder has tables for every 256 KiB, and the planes of a long unit mostly lie in parts of their own. So
//! it encodes a filtered sample in up to four parts, each a part of the planes.

use std::ops::Range;

use super::forward::apply_built_in as apply;
use super::{FilterChain, Hints, Stage, UNIT_LOG, decimal};
use crate::codec::log2::{FRACTION_BITS, log2};
use crate::codec::{OutOfMemory, reserve};

/// Shorter blocks are not filtered: there is too little to choose by.
const MIN_LEN: usize = 1 << 14;
/// Pieces of the first sample, and their length.
const GLANCES: usize = 8;
const GLANCE_LEN: usize = 1 << 11;
/// Base-2 logarithm of the bytes that share entropy tables at most levels.
const TABLE_LOG: u32 = 18;
/// Pieces of the samples that the codec encodes, and the most parts of them.
const PARTS: usize = 4;
/// A piece of the smaller sample is this part of a block.
const SMALLER: usize = 64 * PARTS;
/// The shortest such pieces.
const MIN_PIECES: [usize; 2] = [1 << 12, 1 << 14];
/// Candidates that the codec tries on the smaller sample.
const MAX_TRIED: usize = 4;

/// A chain that reaches no farther suffers little where a piece begins.
const MAX_IGNORED: usize = 64;

/// Memory to choose with.
#[derive(Default)]
pub(crate) struct Chooser {
    filtered: Vec<u8>,
    unit: Vec<u8>,
    sample: Vec<u8>,
    /// In how many parts the codec encodes a sample.
    parts: usize,
}

/// Bytes of the longest sample of a block of `block_len` bytes.
pub(crate) fn sample_len(block_len: usize) -> usize {
    (block_len / 16).max(PARTS * MIN_PIECES[1])
}

impl Chooser {
    /// The filters for `contents`; `None` if they are best left as they are. `size` encodes its argument with the
    /// block's codec, and returns the size of the result. `has_tables` tells whether that codec has tables for each part
    /// of a block.
    pub(crate) fn choose(
        &mut self,
        contents: &[u8],
        hints: &Hints,
        has_tables: bool,
        mut size: impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<Option<FilterChain>, OutOfMemory> {
        if contents.len() < MIN_LEN {
            return Ok(None);
        }
        let tables = contents.len().min(1 << UNIT_LOG) >> TABLE_LOG;
        self.parts = if has_tables { 1 << tables.clamp(1, PARTS).ilog2() } else { 1 };
        let glances: Vec<_> = pieces(contents, GLANCES, GLANCE_LEN).collect();
        if is_text(&glances) {
            return Ok(None);
        }
        let candidates = if looks_typed(&glances) { candidates(&glances) } else { Vec::new() };
        let mut ranked = Vec::new();
        for chain in candidates {
            if let Some(bits) = self.entropy(&chain, &glances)? {
                ranked.push((bits, chain));
            }
        }
        ranked.sort_by_key(|(bits, _)| *bits);
        let plain = self.plain_entropy(&glances);
        ranked.retain(|(bits, _)| *bits < plain - plain / 32);
        ranked.truncate(MAX_TRIED);
        let mut tried: Vec<_> = ranked.into_iter().map(|(_, chain)| Some(chain)).collect();
        for chain in hints.chains() {
            if !tried.contains(&Some(chain)) {
                tried.push(Some(chain));
            }
        }
        if tried.is_empty() {
            return Ok(None);
        }
        tried.push(None);
        let mut clear = Vec::new();
        for (parts, least) in [(SMALLER, MIN_PIECES[0]), (16 * PARTS, MIN_PIECES[1])] {
            let piece = (contents.len() / parts).max(least);
            let mut scored = Vec::new();
            for chain in tried {
                let bytes = self.encoded(chain.as_ref(), contents, piece, &mut size)?;
                // A filter must be worth its time; and samples do not show matches from afar, of which filters leave
                // fewer. Tables for planes of bits take more of a sample than of a block, whose planes are longer.
                let is_dear = has_tables && chain.as_ref().is_some_and(has_bits);
                let bytes = if is_dear { bytes - bytes / 128 } else { bytes };
                scored.push((if chain.is_some() { bytes + bytes / 32 } else { bytes }, chain));
            }
            scored.sort_by_key(|(bytes, _)| *bytes);
            if let Some(&(plain, _)) = scored.iter().find(|(_, chain)| chain.is_none()) {
                clear = scored.iter().filter(|(bytes, _)| bytes / 2 < plain / 3).copied().collect();
            }
            scored.truncate(2);
            if matches!(scored[..], [(_, None), ..]) {
                return Ok(None);
            }
            tried = scored.into_iter().map(|(_, chain)| chain).collect();
            // The smaller sample would not show what planes of bits gain.
            if parts == SMALLER
                && let Some(bits) = tried.iter().flatten().find_map(with_bits)
            {
                // Three take too long where the codec is fast.
                if has_tables && tried.iter().all(Option::is_some) {
                    tried.truncate(1);
                }
                tried.push(Some(bits));
            }
        }
        let Some(chain) = tried.swap_remove(0) else { return Ok(None) };
        let is_clear = clear.iter().any(|(_, other)| *other == Some(chain));
        if has_tables || is_clear || self.helps_a_quarter(&chain, contents, size)? {
            return Ok(Some(chain));
        }
        Ok(None)
    }

    /// Whether a quarter of `contents` takes less with `chain` than without.
    fn helps_a_quarter(
        &mut self,
        chain: &FilterChain,
        contents: &[u8],
        mut size: impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<bool, OutOfMemory> {
        let len = contents.len() / 4;
        let quarter = &contents[(contents.len() - len) / 2 / 64 * 64..][..len];
        let fits = apply(chain, quarter, &mut self.filtered, &mut self.unit)?;
        let (plain, filtered) = (size(quarter)?, size(&self.filtered)?);
        Ok(fits && filtered + filtered / 32 < plain)
    }

    /// Bytes that pieces of `contents` take with `chain`, each piece filtered alone, or with what it depends on.
    fn encoded(
        &mut self,
        chain: Option<&FilterChain>,
        contents: &[u8],
        piece: usize,
        size: &mut impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<usize, OutOfMemory> {
        let quarter = piece.min(contents.len()) / PARTS;
        let len = PARTS * PARTS * quarter;
        reserve(&mut self.sample, len)?;
        self.sample.clear();
        self.sample.resize(len, 0);
        let has_planes =
            chain.is_some_and(|chain| chain.stages().any(|stage| stage.is_transposition()));
        for (i, place) in places(contents, PARTS, PARTS * quarter).enumerate() {
            let mut piece = &contents[place.clone()];
            if let Some(chain) = chain {
                if !self.filter(chain, contents, place)? {
                    return Ok(usize::MAX / 2);
                }
                piece = &self.filtered;
            }
            // Quarters of the same planes go together.
            for (j, bytes) in piece.chunks_exact(quarter).enumerate() {
                let at = if has_planes { j * PARTS + i } else { i * PARTS + j };
                self.sample[at * quarter..][..quarter].copy_from_slice(bytes);
            }
        }
        let mut total = 0;
        for part in self.sample.chunks_exact(len / self.parts) {
            total += size(part)?;
        }
        Ok(total)
    }

    /// Filters the piece of `contents` at `place` as in the middle of a unit. Returns false if the chain does not fit
    /// it.
    fn filter(
        &mut self,
        chain: &FilterChain,
        contents: &[u8],
        place: Range<usize>,
    ) -> Result<bool, OutOfMemory> {
        let reach = chain.reach();
        let stages: Vec<_> = chain.stages().collect();
        let in_place = stages.iter().take_while(|stage| !stage.is_transposition()).count();
        let (Some(first), true) = (FilterChain::new(&stages[..in_place]), reach > MAX_IGNORED)
        else {
            return apply(chain, &contents[place], &mut self.filtered, &mut self.unit);
        };
        let before = reach.next_multiple_of(64).min(place.start);
        let around = &contents[place.start - before..place.end];
        if !apply(&first, around, &mut self.filtered, &mut self.unit)? {
            return Ok(false);
        }
        self.filtered.drain(..before);
        let Some(then) = FilterChain::new(&stages[in_place..]) else { return Ok(true) };
        let piece = std::mem::take(&mut self.filtered);
        apply(&then, &piece, &mut self.filtered, &mut self.unit)
    }

    /// Bits that the filtered pieces take by the frequencies of their bytes, those of each plane apart. `None` if the
    /// chain does not fit them.
    fn entropy(
        &mut self,
        chain: &FilterChain,
        pieces: &[&[u8]],
    ) -> Result<Option<u64>, OutOfMemory> {
        let last = chain.stages().next_back();
        let planes = match last {
            Some(Stage::Transpose { width }) => usize::from(width),
            _ => 1,
        };
        let mut counts = vec![[0; 256]; planes];
        for piece in pieces {
            if !apply(chain, piece, &mut self.filtered, &mut self.unit)? {
                return Ok(None);
            }
            let plane_len = self.filtered.len() / planes;
            for (counts, plane) in counts.iter_mut().zip(self.filtered.chunks_exact(plane_len)) {
                count(counts, plane);
            }
        }
        Ok(Some(counts.iter().map(bits).sum()))
    }

    fn plain_entropy(&self, pieces: &[&[u8]]) -> u64 {
        let mut counts = [0; 256];
        pieces.iter().for_each(|piece| count(&mut counts, piece));
        bits(&counts)
    }
}

/// `count` pieces of `len` bytes, from the beginning to the end of `contents`, which are at least as long as a piece.
/// Each begins at a multiple of 64 bytes, so that elements are whole.
fn pieces(contents: &[u8], count: usize, len: usize) -> impl Iterator<Item = &[u8]> {
    places(contents, count, len).map(|place| &contents[place])
}

/// Where [`pieces`] lie.
fn places(contents: &[u8], count: usize, len: usize) -> impl Iterator<Item = Range<usize>> {
    let len = len.min(contents.len());
    let last = contents.len() - len;
    (0..count).map(move |i| last / (count - 1) * i / 64 * 64).map(move |at| at..at + len)
}

fn count(counts: &mut [u32; 256], bytes: &[u8]) {
    bytes.iter().for_each(|&byte| counts[usize::from(byte)] += 1);
}

/// Bits that bytes with these counts take, and a bit and a half for each byte's place in a table.
fn bits(counts: &[u32; 256]) -> u64 {
    let total: u32 = counts.iter().sum();
    let used = counts.iter().filter(|&&count| count > 0);
    let of_table = 3 * used.clone().count() as u64 / 2;
    let saved: u64 = used.map(|&count| u64::from(count) * u64::from(log2(count))).sum();
    let all = u64::from(total) * u64::from(log2(total));
    (all.saturating_sub(saved) >> FRACTION_BITS) + of_table
}

/// Whether the pieces are text: hardly a control character, and mostly printable ones of ASCII, or UTF-8.
fn is_text(pieces: &[&[u8]]) -> bool {
    let mut counts = [0; 256];
    pieces.iter().for_each(|piece| count(&mut counts, piece));
    let sum = |range: std::ops::Range<usize>| counts[range].iter().sum::<u32>();
    let all = sum(0..256);
    let spaces = sum(9..11) + counts[13];
    let controls = sum(0..32) - spaces;
    let printable = sum(32..127) + spaces;
    controls <= all / 512
        && (printable >= all / 4 * 3 || (printable >= all / 8 && is_utf_8(pieces)))
}

/// Whether nearly all bytes that are not ASCII are in characters of UTF-8: a leading one with others after it.
fn is_utf_8(pieces: &[&[u8]]) -> bool {
    let (mut pairs, mut wrong) = (0, 0);
    let continues = |byte: u8| (0x80..0xc0).contains(&byte);
    for (&first, &second) in pieces.iter().flat_map(|piece| piece.iter().zip(&piece[1..])) {
        if first < 0x80 && second < 0x80 {
            continue;
        }
        pairs += 1;
        // After a leading byte comes one that continues it; before one that continues comes one that is no ASCII.
        let is_wrong = if continues(second) { first < 0x80 } else { first >= 0xc0 };
        wrong += u32::from(is_wrong);
    }
    wrong <= pairs / 16
}

/// Whether bytes depend on their place in elements, or resemble those of the pixel before.
fn looks_typed(pieces: &[&[u8]]) -> bool {
    let mut planes = [[0_u32; 256]; 8];
    for piece in pieces {
        for element in piece.as_chunks::<8>().0 {
            planes
                .iter_mut()
                .zip(element)
                .for_each(|(counts, &byte)| counts[usize::from(byte)] += 1);
        }
    }
    // The counts of planes of 4, 2 and 1 bytes.
    let joined = |step: usize| {
        let of = |first: usize| {
            let mut sum = [0; 256];
            for plane in planes.iter().skip(first).step_by(step) {
                sum.iter_mut().zip(plane).for_each(|(sum, count)| *sum += count);
            }
            bits(&sum)
        };
        (0..step).map(of).sum::<u64>()
    };
    let plain = joined(1);
    let is_less = |bits: u64| bits < plain - plain / 16;
    if [2, 4, 8].into_iter().any(|step| is_less(joined(step))) {
        return true;
    }
    [1, 2, 3, 4].into_iter().any(|distance| {
        let mut counts = [0; 256];
        for piece in pieces {
            for (byte, before) in piece[distance..].iter().zip(*piece) {
                counts[usize::from(byte.wrapping_sub(*before))] += 1;
            }
        }
        is_less(bits(&counts))
    })
}

/// The chains to consider.
fn candidates(pieces: &[&[u8]]) -> Vec<FilterChain> {
    let mut chains = Vec::new();
    let mut add = |stages: &[Stage]| chains.extend(FilterChain::new(stages));
    for width in [2, 4, 8] {
        let transpose = Stage::Transpose { width };
        let zigzag = Stage::Zigzag { width };
        add(&[transpose]);
        add(&[Stage::Rotate { width, bits: 1 }, transpose]);
        add(&[Stage::Xor { width, stride: 1 }, transpose]);
        for stride in [1, 2, 3] {
            add(&[Stage::Delta { width, order: 1, stride }, zigzag, transpose]);
        }
        add(&[Stage::Delta { width, order: 2, stride: 1 }, zigzag, transpose]);
        if let Some(digits) = digits(width, pieces) {
            let decimal = Stage::Decimal { width, digits };
            add(&[decimal, transpose]);
            add(&[decimal, zigzag, transpose]);
            add(&[decimal, Stage::Delta { width, order: 1, stride: 1 }, transpose]);
        }
    }
    for stride in [1, 2, 3, 4] {
        add(&[Stage::Delta { width: 1, order: 1, stride }]);
    }
    // Pixels, and sound of 24 bits.
    let transpose = Stage::Transpose { width: 3 };
    add(&[transpose]);
    add(&[Stage::Delta { width: 1, order: 1, stride: 3 }, transpose]);
    if let Some(width) = record_width(pieces) {
        add(&[Stage::Transpose { width }]);
        if width.is_multiple_of(4) {
            let stride = u16::from(width / 4);
            let delta = Stage::Delta { width: 4, order: 1, stride };
            add(&[delta, Stage::Transpose { width }]);
        }
    }
    chains
}

/// Whether the chain makes planes of bits.
fn has_bits(chain: &FilterChain) -> bool {
    chain.stages().any(|stage| matches!(stage, Stage::BitTranspose { .. }))
}

/// The chain with bits transposed instead of bytes, if elements are small numbers.
fn with_bits(chain: &FilterChain) -> Option<FilterChain> {
    let mut stages: Vec<_> = chain.stages().collect();
    match stages[..] {
        [.., Stage::Zigzag { .. }, ref mut last @ Stage::Transpose { width }] => {
            *last = Stage::BitTranspose { width };
            FilterChain::new(&stages)
        }
        _ => None,
    }
}

/// How many digits behind the point nearly all floats of `width` bytes have; `None` if they have too many.
fn digits(width: u8, pieces: &[&[u8]]) -> Option<u8> {
    let max = decimal::max_digits(width)?;
    (0..=max.min(6)).find(|&digits| {
        let (mut decimals, mut all) = (0, 0);
        for piece in pieces {
            let piece = &piece[..piece.len().min(256)];
            if width == 4 {
                for bytes in piece.as_chunks().0 {
                    let bits = u32::from_le_bytes(*bytes);
                    let code = decimal::of_f32(bits, digits);
                    decimals += u32::from(bits == 0 || code.is_some_and(|code| code != bits));
                    all += 1;
                }
            } else {
                for bytes in piece.as_chunks().0 {
                    let bits = u64::from_le_bytes(*bytes);
                    let code = decimal::of_f64(bits, digits);
                    decimals += u32::from(bits == 0 || code.is_some_and(|code| code != bits));
                    all += 1;
                }
            }
        }
        decimals >= all - all / 8
    })
}

/// The distance at which bytes are most often equal, if that is often: the width of records.
fn record_width(pieces: &[&[u8]]) -> Option<u8> {
    let equal = |distance: usize| -> usize {
        let of =
            |piece: &&[u8]| piece[distance..].iter().zip(*piece).filter(|(a, b)| a == b).count();
        pieces.iter().map(of).sum()
    };
    let widths = (3..=64).filter(|width| !matches!(width, 4 | 8));
    // Of several with the same count, the narrowest.
    let best = widths.map(|width| (equal(width), std::cmp::Reverse(width))).max()?;
    (best.0 > GLANCES * GLANCE_LEN / 8).then_some(best.1.0 as u8)
}
