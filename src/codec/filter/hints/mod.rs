//! Filters that a header at the beginning of the input suggests.
//!
//! Arrays, sound and pictures often come in files whose headers give the width of elements and the length of a row. A
//! row is longer than the pieces of [`super::choose`]'s glance, so a header helps. Hints are further candidates for the
//! choice, which tries them on each block; they exclude nothing. The bytes decide whether there is a header, never a
//! file name; a header that breaks a rule of its format is ignored.
//!
//! | module | headers of |
//! |---|---|
//! | [`arrays`] | `.npy`, safetensors, Parquet |
//! | [`media`] | WAV, BMP, TIFF |

mod arrays;
mod media;
#[cfg(test)]
mod tests;

use super::{FilterChain, Stage};

/// Bytes at the beginning of the input that are examined: at most the length of the smallest block.
pub(crate) const LOOKED_AT: usize = 1 << 16;
/// The most chains that a header suggests.
const MAX_HINTS: usize = 4;
/// The longest distance, in bytes, between two elements that a suggested chain compares.
pub(super) const MAX_REACH: usize = 1 << 16;

/// Chains that a header suggests, the most promising first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Hints {
    chains: [Option<FilterChain>; MAX_HINTS],
}

impl Hints {
    /// The chains that the beginning of an input suggests. Only the first [`LOOKED_AT`] bytes count.
    pub(crate) fn of(beginning: &[u8]) -> Self {
        let header = Bytes(&beginning[..beginning.len().min(LOOKED_AT)]);
        let mut hints = Self::default();
        // Each function checks its magic number first, so other data costs a few comparisons.
        let _: Option<()> = arrays::npy(header, &mut hints)
            .or_else(|| arrays::parquet(header, &mut hints))
            .or_else(|| media::wav(header, &mut hints))
            .or_else(|| media::bmp(header, &mut hints))
            .or_else(|| media::tiff(header, &mut hints))
            .or_else(|| arrays::safetensors(header, &mut hints));
        hints
    }

    pub(super) fn chains(&self) -> impl Iterator<Item = FilterChain> {
        self.chains.into_iter().flatten()
    }

    /// Adds a chain, unless it is invalid, already there, or reaches too far, or there is no room for it.
    fn add(&mut self, stages: &[Stage]) {
        let Some(chain) = FilterChain::new(stages) else { return };
        if chain.reach() <= MAX_REACH
            && !self.chains().any(|known| known == chain)
            && let Some(place) = self.chains.iter_mut().find(|place| place.is_none())
        {
            *place = Some(chain);
        }
    }

    /// Adds chains for elements in rows.
    fn add_rows(&mut self, rows: Rows) {
        let Rows { element, pixel, row } = rows;
        let before = |stride| element.delta(stride);
        let ends = element.transpose();
        if element.is_float && element.is_in_words() {
            self.add_stages([Some(Stage::Rotate { width: element.width, bits: 1 }), ends, None]);
        }
        if row > pixel && before(row).is_some() {
            self.add_stages([before(row), element.signed_delta(pixel), ends]);
            self.add_stages([before(row), element.zigzag(), ends]);
        }
        if before(pixel).is_some() {
            self.add_stages([before(pixel), element.zigzag(), ends]);
        }
        if element.width > 1 && !element.is_in_words() {
            self.add_stages([ends, None, None]);
        }
    }

    fn add_stages(&mut self, stages: [Option<Stage>; 3]) {
        let stages: Vec<_> = stages.into_iter().flatten().collect();
        self.add(&stages);
    }
}

/// Numbers of one type.
#[derive(Clone, Copy)]
struct Element {
    /// In bytes.
    width: u8,
    is_float: bool,
    /// Whether the numbers are little-endian, and begin at multiples of their width in the input.
    is_native: bool,
}

impl Element {
    /// Whether stages can work on whole numbers instead of bytes.
    const fn is_in_words(self) -> bool {
        self.is_native && matches!(self.width, 1 | 2 | 4 | 8)
    }

    /// The difference to the element `stride` before; `None` if no stage reaches that far.
    fn delta(self, stride: u64) -> Option<Stage> {
        let (width, stride) = match self.is_in_words() {
            true => (self.width, stride),
            false => (1, stride.checked_mul(self.width.into())?),
        };
        Some(Stage::Delta { width, order: 1, stride: u16::try_from(stride).ok()? })
    }

    /// The same, with zigzag where that is useful.
    fn signed_delta(self, stride: u64) -> Option<Stage> {
        match self.delta(stride)? {
            Stage::Delta { width, order, stride } if self.zigzag().is_some() => {
                Some(Stage::ZigzagDelta { width, order, stride })
            }
            delta => Some(delta),
        }
    }

    /// `None` for bytes: coders take small differences of either sign as they are.
    fn zigzag(self) -> Option<Stage> {
        let is_useful = self.width > 1 && self.is_in_words();
        is_useful.then_some(Stage::Zigzag { width: self.width })
    }

    fn transpose(self) -> Option<Stage> {
        (self.width > 1).then_some(Stage::Transpose { width: self.width })
    }
}

/// Elements in rows. Distances are in elements.
struct Rows {
    element: Element,
    /// Distance to the same channel of the pixel before.
    pixel: u64,
    /// Distance to the same pixel of the row before; 0 if there are no rows.
    row: u64,
}

/// Reads numbers from a header, which may be cut short.
#[derive(Clone, Copy)]
struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn at(self, offset: u64) -> Option<Self> {
        self.0.get(usize::try_from(offset).ok()?..).map(Self)
    }

    fn array<const N: usize>(self, offset: u64) -> Option<[u8; N]> {
        self.at(offset)?.0.first_chunk().copied()
    }

    fn u16(self, offset: u64) -> Option<u64> {
        self.array(offset).map(|bytes| u16::from_le_bytes(bytes).into())
    }

    fn u32(self, offset: u64) -> Option<u64> {
        self.array(offset).map(|bytes| u32::from_le_bytes(bytes).into())
    }

    /// The bytes after `prefix`; `None` if the header has other bytes there.
    fn after(self, prefix: &[u8]) -> Option<&'a [u8]> {
        self.0.strip_prefix(prefix)
    }
}
