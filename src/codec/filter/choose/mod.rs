//! Chooses filters for a block by its contents.
//!
//! Encoders on all machines must choose alike, so the rule is exact: it uses integers only, samples at places that
//! depend only on the block's length, and sizes from the block's own codec.
//! 1. A [`glance`] of 15 KiB shows whether the block is text and whether its elements have few values. Half of it shows
//!    the likely width of elements, and whether bytes resemble those of the pixel before. Most text, programs and
//!    archives end here, unfiltered. Programs get addresses instead of distances in their calls, if [calls](programs)
//!    of the same functions are frequent.
//! 2. The candidates of these widths are ranked by the entropy of that half's bytes after each.
//! 3. Headers [suggest](super::hints) more candidates. Blocks whose elements seem to have few values also get some with
//!    [lists](listed) of the values, and bytes and words that seem to lie in [rows] some with differences between rows.
//! 4. The [`ladder`] lets the candidates and the block without a filter compete on ever larger samples, which the
//!    block's codec encodes.
//!
//! LZ77's entropy coder has tables for every 256 KiB, and the planes of a long unit mostly lie in parts of their own.
//! So it encodes a filtered sample in up to four parts, each a part of the planes.

mod glance;
mod ladder;
mod listed;
mod programs;
mod repeats;
mod rows;

use std::ops::Range;

use self::ladder::Candidates;
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
/// The most parts in which the codec encodes a sample. Each piece is cut into this many.
const PARTS: usize = 4;
/// Pieces of a sample: many, because few would not show how much the parts of a block differ.
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
    /// It is one of the fastest, so choosing must be fast too.
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
    /// The smallest of the likely widths, if it is 1 or 2: the search for rows uses it.
    narrow: Option<u8>,
}

/// Part of a block that stands for all of it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sample {
    /// [`PIECES`] pieces from all over the block: together this part of it, but not less than `min` bytes.
    Pieces { part: usize, min: usize },
    /// The middle quarter, in one piece.
    Middle,
}

impl Sample {
    const SMALL: Self = Self::Pieces { part: 64, min: 1 << 14 };
    const LARGE: Self = Self::Pieces { part: 32, min: 1 << 16 };
    const QUARTER: Self = Self::Pieces { part: 4, min: 1 << 16 };

    /// Bytes of a piece.
    fn piece_len(self, block_len: usize) -> usize {
        match self {
            Self::Pieces { part, min } => {
                ((block_len / part).max(min) / PIECES).min(block_len) / PARTS * PARTS
            }
            Self::Middle => block_len / 4,
        }
    }

    fn len(self, block_len: usize) -> usize {
        match self {
            Self::Pieces { .. } => PIECES * self.piece_len(block_len),
            Self::Middle => self.piece_len(block_len),
        }
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
    Sample::QUARTER.len(block_len)
}

impl Chooser {
    /// The filters for `contents`; `None` if filtering does not pay. `size` encodes its argument with the block's
    /// codec, and returns the size of the result.
    pub(crate) fn choose(
        &mut self,
        contents: &[u8],
        hints: &Hints,
        codec: CodecTraits,
        mut size: impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<Option<FilterChain>, OutOfMemory> {
        if contents.len() < MIN_LEN {
            return Ok(None);
        }
        if let Some(machine) = programs::machine(contents, &mut self.unit) {
            return Ok(FilterChain::new(&[Stage::Calls { machine }]));
        }
        let tables = contents.len().min(1 << UNIT_LOG) >> TABLE_LOG;
        self.parts = if codec.has_tables { 1 << tables.clamp(1, PARTS).ilog2() } else { 1 };
        let candidates = self.candidates(contents, hints, codec)?;
        ladder::climb(self, contents, codec, &candidates, &mut size)
    }

    /// The chains to choose from: the best by a glance, those of the header, and those with lists and rows.
    fn candidates(
        &mut self,
        contents: &[u8],
        hints: &Hints,
        codec: CodecTraits,
    ) -> Result<Candidates, OutOfMemory> {
        let mut glances = std::mem::take(&mut self.glances);
        glances.clear();
        for half in 0..2 {
            for place in places(contents.len(), GLANCES, GLANCE_LEN) {
                let [start, len] = [place.start + half * GLANCE_LEN / 2, GLANCE_LEN / 2];
                glances.extend_from_slice(&contents[start..start + len]);
            }
        }
        let found = self.candidates_of(&glances, hints, codec.is_fast);
        self.glances = glances;
        let (mut chains, seen) = found?;
        let known = chains.len();
        if let Some((width, values)) = seen.of_few_values {
            let digits = glance::digits_for_lists(width, &self.glances);
            let index = if values > 256 { 2 } else { 1 };
            let lists = self.chains_with_lists(contents, width, index, digits, codec.has_tables)?;
            chains.extend(lists);
        }
        if let Some(width) = seen.narrow {
            chains.extend(rows::chains(contents, width));
        }
        let has_others = chains.len() > known || hints.chains().next().is_some();
        Ok(Candidates { chains, has_others })
    }

    /// Chains to try, the best by a glance and those of the header, and the other findings of the glance.
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

    /// Bytes that a sample of `contents` takes with `chain`. Each piece is filtered alone, or with the elements that it
    /// depends on. A chain that does not fit takes more than any block.
    fn encoded(
        &mut self,
        chain: Option<&FilterChain>,
        contents: &[u8],
        sample: Sample,
        size: &mut impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<usize, OutOfMemory> {
        let len = contents.len();
        let bytes = match chain.filter(|chain| chain.has_dictionary()) {
            _ if sample == Sample::Middle => self.encoded_middle(chain, contents, size)?,
            Some(chain) => self.encoded_with_lists(chain, len, sample, size)?,
            None => {
                let (piece_len, part_len) = (sample.piece_len(len), sample.len(len) / self.parts);
                let shape = Shape { piece_len, parts: self.parts, part_len };
                self.encoded_pieces(chain, contents, shape, size)?
            }
        };
        Ok(bytes.unwrap_or(usize::MAX / 8))
    }

    /// Bytes that the codec takes for the middle quarter of `contents`; `None` if the chain does not fit it.
    fn encoded_middle(
        &mut self,
        chain: Option<&FilterChain>,
        contents: &[u8],
        size: &mut impl FnMut(&[u8]) -> Result<usize, OutOfMemory>,
    ) -> Result<Option<usize>, OutOfMemory> {
        let len = Sample::Middle.len(contents.len());
        let mut quarter = &contents[(contents.len() - len) / 2 / ALIGNMENT * ALIGNMENT..][..len];
        if let Some(chain) = chain {
            if !apply(chain, quarter, &mut self.filtered, &mut self.unit)? {
                return Ok(None);
            }
            quarter = &self.filtered;
        }
        size(quarter).map(Some)
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
