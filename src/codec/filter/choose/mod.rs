//! Chooses filters for a block by its contents.
//!
//! Encoders on all machines must choose alike, so the rule is exact: it uses integers only, samples at places that
//! depend only on the block's length, and sizes from the block's own codec.
//! 1. A [`glance`] of 15 KiB shows whether the block is text and whether its elements have few values. Half of it shows
//!    the likely width of elements, and whether bytes resemble those of the pixel before. Most text, programs and
//!    archives end here, unfiltered. Programs get addresses instead of distances in their calls, if [calls](programs)
//!    of the same functions are frequent.
//! 2. The candidates of these widths are ranked by the entropy of that half's bytes after each.
//! 3. The codec encodes 1/64 of the block without a filter, with the best few candidates, and with those that a header
//!    [suggests](super::hints). If the first candidate is no help at all, the block stays as it is. If one saves a
//!    ninth, the fastest codecs take it at once, unless many numbers of the block [repeat](repeats) distant ones, out
//!    of the samples' reach. Blocks whose elements seem to have few values are also tried with [lists](listed) of the
//!    values, and bytes and words that seem to lie in [rows] with differences between rows.
//! 4. The codec encodes 1/32 of the block without a filter, with the best candidate, and, for LZ77, with planes of bits
//!    instead of bytes where these look as good and hide no repetitions.
//! 5. A codec that works on whole blocks, such as the Burrows-Wheeler transform, encodes a quarter of the block with
//!    the best and without a filter, unless the filter is far behind.
//!
//! Samples do not show matches that reach farther than a piece, and filters break such matches. But if the larger
//! sample takes fewer bytes for its length than the smaller one did, the block will take fewer still: the choice
//! assumes the same factor again, and after a quarter of the block a quarter of that.
//!
//! LZ77's entropy coder has tables for every 256 KiB, and the planes of a long unit mostly lie in parts of their own.
//! So it encodes a filtered sample in up to four parts, each a part of the planes.

mod glance;
mod listed;
mod programs;
mod repeats;
mod rows;

use std::ops::Range;

use super::forward::apply_built_in as apply;
use super::{FilterChain, Hints, Stage, UNIT_LOG};
use crate::codec::histogram::histogram;
use crate::codec::log2::{FRACTION_BITS, log2};
use crate::codec::{OutOfMemory, reserve};

/// Shorter blocks are not filtered: they show too little to choose by.
const MIN_LEN: usize = 1 << 14;
/// Samples begin at multiples of this many bytes, so that numbers are whole, and records of most widths.
const ALIGNMENT: usize = 960;
/// Pieces of the glance, and their length.
const GLANCES: usize = 8;
const GLANCE_LEN: usize = 2 * ALIGNMENT;
/// Base-2 logarithm of the bytes that share entropy tables at most levels.
const TABLE_LOG: u32 = 18;
/// The most parts in which the codec encodes a sample. Each piece is cut into as many for that.
const PARTS: usize = 4;
/// Samples that the codec encodes.
const SMALL: Sample = Sample { part: 64, least: 1 << 14 };
const LARGE: Sample = Sample { part: 32, least: 1 << 16 };
/// The longest one: see [`Chooser::best_of_quarter`].
const QUARTER: Sample = Sample { part: 4, least: 1 << 16 };
/// Pieces of such a sample: many, because few would not show how much the parts of a block differ.
const PIECES: usize = 16;
/// Candidates that a codec tries, besides those of headers.
const MAX_TRIED: usize = 3;
/// The same for the fastest codecs.
const MAX_TRIED_FAST: usize = 2;

/// Chains with at most this reach lose little at the start of a piece.
const MAX_IGNORED: usize = 64;

/// The properties of the block's codec that a choice depends on.
#[derive(Clone, Copy)]
pub(crate) struct CodecTraits {
    /// It has tables for each part of a block.
    pub has_tables: bool,
    /// It is one of the fastest, for which choosing must be fast too.
    pub is_fast: bool,
    /// It looks for matches. Filters may break these.
    pub has_matches: bool,
}

/// Memory to choose with.
#[derive(Default)]
pub(crate) struct Chooser {
    filtered: Vec<u8>,
    unit: Vec<u8>,
    sample: Vec<u8>,
    glances: Vec<u8>,
    listed: listed::Listed,
    /// The number of parts in which the codec encodes a sample.
    parts: usize,
}

/// Properties of elements, found in the glance.
#[derive(Default)]
struct Seen {
    /// If the glance shows few different elements of 4 or 8 bytes: their width, and the number of values.
    of_few_values: Option<(u8, usize)>,
    /// The smallest of the likely widths, if it is 1 or 2: the one with which rows are searched for.
    narrow: Option<u8>,
}

/// Pieces of a block that stand for all of it.
#[derive(Clone, Copy)]
struct Sample {
    /// The sample is this part of a block, but not shorter than `least`.
    part: usize,
    least: usize,
}

impl Sample {
    /// Bytes of a piece.
    fn piece_len(self, block_len: usize) -> usize {
        ((block_len / self.part).max(self.least) / PIECES).min(block_len) / PARTS * PARTS
    }

    fn len(self, block_len: usize) -> usize {
        PIECES * self.piece_len(block_len)
    }
}

/// A sample's layout for the codec.
#[derive(Clone, Copy)]
struct Shape {
    /// Bytes of a piece, a multiple of [`PARTS`].
    piece_len: usize,
    /// The number of parts in which the codec encodes the sample: a divisor of [`PARTS`].
    parts: usize,
    /// Bytes of a part. Zeros follow the pieces in it.
    part_len: usize,
}

/// Bytes of the longest sample of a block of `block_len` bytes.
pub(crate) fn sample_len(block_len: usize) -> usize {
    QUARTER.len(block_len)
}

impl Chooser {
    /// The filters for `contents`; `None` if filtering does not pay. `size` encodes its argument with the block's
    /// codec, and returns the size of the result.
    pub(crate) fn choose(
        &mut self,
        contents: &[u8],
        hints: &Hints,
        CodecTraits { has_tables, is_fast, has_matches }: CodecTraits,
        mut size: impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<Option<FilterChain>, OutOfMemory> {
        if contents.len() < MIN_LEN {
            return Ok(None);
        }
        if let Some(machine) = programs::machine(contents, &mut self.unit) {
            return Ok(FilterChain::new(&[Stage::Calls { machine }]));
        }
        let tables = contents.len().min(1 << UNIT_LOG) >> TABLE_LOG;
        self.parts = if has_tables { 1 << tables.clamp(1, PARTS).ilog2() } else { 1 };
        let (mut tried, seen) = self.candidates(contents, hints, is_fast)?;
        let ranked = tried.len();
        if let Some((width, values)) = seen.of_few_values {
            let digits = glance::digits_for_lists(width, &self.glances);
            let index = if values > 256 { 2 } else { 1 };
            tried.extend(self.chains_with_lists(contents, width, index, digits, has_tables)?);
        }
        if let Some(width) = seen.narrow {
            tried.extend(rows::chains(contents, width));
        }
        if tried.is_empty() {
            return Ok(None);
        }
        let plain = self.encoded(None, contents, SMALL, &mut size)?;
        let mut best: Option<(usize, FilterChain)> = None;
        let mut without_lists: Option<(usize, FilterChain)> = None;
        for &chain in &tried {
            let bytes = self.encoded(Some(&chain), contents, SMALL, &mut size)?;
            let is_first = best.is_none();
            if best.is_none_or(|(least, _)| bytes < least) {
                best = Some((bytes, chain));
            }
            if !chain.has_dictionary() && without_lists.is_none_or(|(least, _)| bytes < least) {
                without_lists = Some((bytes, chain));
            }
            let has_others = tried.len() > ranked || hints.chains().next().is_some();
            if is_first && bytes > plain + plain / 16 && !has_others {
                return Ok(None);
            }
        }
        let Some((small, mut chain)) = best.filter(|(bytes, _)| *bytes < plain) else {
            return Ok(None);
        };
        if chain.has_dictionary() && !has_tables {
            // Small samples show too little of the contexts of places in a list.
            let alone = tried.iter().find(|chain| chain.has_dictionary() && chain.has_one_stage());
            let other = without_lists.map(|(_, chain)| chain);
            let best = [Some(chain), other, alone.copied().filter(|alone| *alone != chain)];
            return self.best_of_quarter(best, contents, size);
        }
        let mut bits = with_bits(&chain).filter(|_| has_tables);
        if let Some(chain) = &bits
            && self.encoded(Some(chain), contents, SMALL, &mut size)? >= small + small / 32
        {
            bits = None;
        }
        let is_clear = is_fast && small + small / 8 < plain && !repeats::come_from_afar(contents)?;
        if is_clear && bits.is_none() {
            return Ok(Some(chain));
        }
        let mut large = self.encoded(Some(&chain), contents, LARGE, &mut size)?;
        if let Some(bits) = bits {
            let bytes = self.encoded(Some(&bits), contents, LARGE, &mut size)?;
            // Samples flatter planes of bits, and do not show the far repetitions that such planes hide.
            if bytes + bytes / 64 < large
                && (!has_matches || bytes < repeats::without_far_bytes(large, contents)?)
            {
                (large, chain) = (bytes, bits);
            }
        }
        if is_clear {
            return Ok(Some(chain));
        }
        let large_plain = self.encoded(None, contents, LARGE, &mut size)?;
        let lens = [SMALL, LARGE].map(|sample| sample.len(contents.len()));
        let filtered = expected([small, large], lens);
        let mut plain = expected([plain, large_plain], lens);
        if chain.has_dictionary() && has_matches {
            // Each unit has a list of its own, so equal bytes of two units become different places.
            plain = repeats::without_other_units(plain, contents)?;
        }
        let helps = if has_tables || filtered > plain + plain / 8 {
            // A filter must be worth its time.
            filtered + filtered / 32 < plain
        } else {
            let Some([filtered, plain]) = self.of_quarter(&chain, contents, size)? else {
                return Ok(None);
            };
            // Contexts have learned most by now, so extrapolate only a quarter of the saving.
            let lens = [lens[1], contents.len() / 4];
            let of_all = |large, quarter: usize| {
                quarter - quarter.saturating_sub(expected([large, quarter], lens)) / 4
            };
            let filtered = of_all(large, filtered);
            filtered + filtered / 128 < of_all(large_plain, plain)
        };
        Ok(helps.then_some(chain))
    }

    /// Chains to try, the best by a glance and those of the header, and the other findings of the glance.
    fn candidates(
        &mut self,
        contents: &[u8],
        hints: &Hints,
        is_fast: bool,
    ) -> Result<(Vec<FilterChain>, Seen), OutOfMemory> {
        let mut glances = std::mem::take(&mut self.glances);
        glances.clear();
        for half in 0..2 {
            for place in places(contents.len(), GLANCES, GLANCE_LEN) {
                let [start, len] = [place.start + half * GLANCE_LEN / 2, GLANCE_LEN / 2];
                glances.extend_from_slice(&contents[start..start + len]);
            }
        }
        let chosen = self.candidates_of(&glances, hints, is_fast);
        self.glances = glances;
        chosen
    }

    fn candidates_of(
        &mut self,
        glances: &[u8],
        hints: &Hints,
        is_fast: bool,
    ) -> Result<(Vec<FilterChain>, Seen), OutOfMemory> {
        let mut seen = Seen::default();
        if glance::is_text(glances) {
            return Ok((Vec::new(), seen));
        }
        let half = &glances[..glances.len() / 2];
        let plain = Frequencies::of(half).bits();
        let mut ranked = Vec::new();
        if let Some(widths) = glance::widths(half) {
            seen.narrow = widths.first().copied().filter(|&width| width <= 2);
            seen.of_few_values = widths
                .iter()
                .rev()
                .filter(|&&width| matches!(width, 4 | 8))
                .find_map(|&width| Some((width, glance::few_values(glances, width)?)));
            for chain in glance::candidates(half, &widths) {
                if let Some(bits) = self.entropy(&chain, half)? {
                    ranked.push((bits, chain));
                }
            }
        }
        ranked.retain(|(bits, _)| *bits < plain - plain / 32);
        ranked.sort_by_key(|(bits, _)| *bits);
        ranked.truncate(if is_fast { MAX_TRIED_FAST } else { MAX_TRIED });
        let mut tried: Vec<_> = ranked.into_iter().map(|(_, chain)| chain).collect();
        for chain in hints.chains() {
            if !tried.contains(&chain) {
                tried.push(chain);
            }
        }
        Ok((tried, seen))
    }

    /// The best of these chains, judged by a quarter of `contents`; `None` if it does not help.
    fn best_of_quarter(
        &mut self,
        chains: [Option<FilterChain>; 3],
        contents: &[u8],
        mut size: impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<Option<FilterChain>, OutOfMemory> {
        let mut best = (usize::MAX, None);
        for chain in chains.into_iter().flatten() {
            let bytes = self.encoded(Some(&chain), contents, QUARTER, &mut size)?;
            if bytes < best.0 {
                best = (bytes, Some(chain));
            }
        }
        let plain = self.encoded(None, contents, QUARTER, &mut size)?;
        Ok(best.1.filter(|_| best.0 + best.0 / 128 < plain))
    }

    /// Bytes that a quarter of `contents` takes with `chain` and without; `None` if the chain does not fit it.
    fn of_quarter(
        &mut self,
        chain: &FilterChain,
        contents: &[u8],
        mut size: impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<Option<[usize; 2]>, OutOfMemory> {
        let len = contents.len() / 4;
        let quarter = &contents[(contents.len() - len) / 2 / ALIGNMENT * ALIGNMENT..][..len];
        if !apply(chain, quarter, &mut self.filtered, &mut self.unit)? {
            return Ok(None);
        }
        Ok(Some([size(&self.filtered)?, size(quarter)?]))
    }

    /// Bytes that pieces of `contents` take with `chain`. Each piece is filtered alone, or with the elements that it
    /// depends on.
    fn encoded(
        &mut self,
        chain: Option<&FilterChain>,
        contents: &[u8],
        sample: Sample,
        size: &mut impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<usize, OutOfMemory> {
        let len = contents.len();
        let bytes = match chain.filter(|chain| chain.has_dictionary()) {
            Some(chain) => self.encoded_with_lists(chain, len, sample, size)?,
            None => {
                let (piece_len, part_len) = (sample.piece_len(len), sample.len(len) / self.parts);
                let shape = Shape { piece_len, parts: self.parts, part_len };
                self.encoded_pieces(chain, contents, shape, size)?
            }
        };
        Ok(bytes.unwrap_or(usize::MAX / 8))
    }

    /// Bytes that the codec takes for pieces of `contents`, each filtered with `chain`, in a sample of this shape.
    /// `None` if the chain does not fit one of them.
    fn encoded_pieces(
        &mut self,
        chain: Option<&FilterChain>,
        contents: &[u8],
        Shape { piece_len, parts, part_len }: Shape,
        size: &mut impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<Option<usize>, OutOfMemory> {
        let quarter = piece_len / PARTS;
        let used = PIECES * piece_len / parts;
        reserve(&mut self.sample, parts * part_len)?;
        self.sample.clear();
        self.sample.resize(parts * part_len, 0);
        let has_planes = chain.is_some_and(FilterChain::has_transposition);
        for (i, place) in places(contents.len(), PIECES, piece_len).enumerate() {
            let mut piece = &contents[place.clone()];
            if let Some(chain) = chain {
                if !self.filter(chain, contents, place)? {
                    return Ok(None);
                }
                piece = &self.filtered;
            }
            // Puts the same quarters of all pieces, which lie in the same planes, in one part.
            for (j, bytes) in piece.chunks_exact(quarter).enumerate() {
                let at = quarter * if has_planes { j * PIECES + i } else { i * PARTS + j };
                let at = at / used * part_len + at % used;
                self.sample[at..][..quarter].copy_from_slice(bytes);
            }
        }
        let mut total = 0;
        for part in self.sample.chunks_exact(part_len) {
            total += size(part)?;
        }
        Ok(Some(total))
    }

    /// Filters the piece of `contents` at `place` as if in the middle of a unit. Returns false if the chain does not
    /// fit it.
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
        let before = reach.next_multiple_of(ALIGNMENT).min(place.start);
        let around = &contents[place.start - before..place.end];
        if !apply(&first, around, &mut self.filtered, &mut self.unit)? {
            return Ok(false);
        }
        self.filtered.drain(..before);
        let Some(then) = FilterChain::new(&stages[in_place..]) else { return Ok(true) };
        let piece = std::mem::take(&mut self.filtered);
        apply(&then, &piece, &mut self.filtered, &mut self.unit)
    }

    /// Bits that the filtered glance takes by the frequencies of its bytes, counted separately for each plane. `None`
    /// if the chain does not fit the glance.
    fn entropy(&mut self, chain: &FilterChain, glance: &[u8]) -> Result<Option<u64>, OutOfMemory> {
        if !apply(chain, glance, &mut self.filtered, &mut self.unit)? {
            return Ok(None);
        }
        let planes = match chain.stages().next_back() {
            Some(Stage::Transpose { width }) => usize::from(width),
            _ => 1,
        };
        let planes = self.filtered.chunks_exact(glance.len() / planes);
        Ok(Some(planes.map(|plane| Frequencies::of(plane).bits()).sum()))
    }
}

/// The expected size of the block, scaled to the length of the second of two samples. The second takes fewer bytes for
/// its length than the first by some factor; the block is expected to take fewer than the second by the same factor.
fn expected([first, second]: [usize; 2], lens: [usize; 2]) -> usize {
    let [first, second] = [first as u128, second as u128];
    let scaled = first * lens[1] as u128 / lens[0] as u128;
    (second * second / scaled.max(second).max(1)) as usize
}

/// The ranges of `count` pieces of `len` bytes, spread over `all` bytes from the beginning to the end. `all` is at
/// least `len`.
fn places(all: usize, count: usize, len: usize) -> impl Iterator<Item = Range<usize>> {
    let last = all - len;
    (0..count)
        .map(move |i| last / (count - 1) * i / ALIGNMENT * ALIGNMENT)
        .map(move |at| at..at + len)
}

/// How often bytes occur.
struct Frequencies([u32; 256]);

impl Default for Frequencies {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl Frequencies {
    fn of(bytes: &[u8]) -> Self {
        Self(histogram(bytes))
    }

    fn join(&mut self, other: &Self) {
        self.0.iter_mut().zip(other.0).for_each(|(sum, count)| *sum += count);
    }

    /// Bits that the bytes take, plus one and a half for each byte's place in a table.
    fn bits(&self) -> u64 {
        let total: u32 = self.0.iter().sum();
        let used = self.0.iter().filter(|&&count| count > 0);
        let of_table = 3 * used.clone().count() as u64 / 2;
        let saved: u64 = used.map(|&count| u64::from(count) * u64::from(log2(count))).sum();
        let all = u64::from(total) * u64::from(log2(total));
        (all.saturating_sub(saved) >> FRACTION_BITS) + of_table
    }
}

/// The chain with bits transposed instead of bytes, if its elements are no records.
fn with_bits(chain: &FilterChain) -> Option<FilterChain> {
    let mut stages: Vec<_> = chain.stages().collect();
    match stages.last_mut() {
        Some(last @ &mut Stage::Transpose { width }) => {
            *last = Stage::BitTranspose { width };
            FilterChain::new(&stages)
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_that_saves_much_does_not_promise_all() {
        let lens = [1 << 14, 1 << 16];
        assert_eq!(expected([1000, 4000], lens), 4000, "nothing saved");
        assert_eq!(expected([1000, 2000], lens), 1000, "half, and half again");
        assert_eq!(expected([1000, 5000], lens), 5000, "no loss is expected");
        assert_eq!(expected([0, 0], lens), 0);
        // A wave with a period of twelve pieces: differences take less than a seventh of it in the small sample.
        assert!(expected([716, 1988], lens) < expected([5768, 8628], lens));
        expected([usize::MAX / 8; 2], lens);
    }
}
