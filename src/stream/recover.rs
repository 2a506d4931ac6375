//! Saving what a damaged file still holds.
use std::io::{Read, Seek, Write};
use std::ops::Range;

use crate::DecodeOptions;
use crate::error::{Error, Place};

/// A part of a damaged file, in file order.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Piece<'a> {
    /// An undamaged block: both of its checksums agree.
    Block {
        /// Number of its frame, as far as frames could be told apart.
        frame: u64,
        /// Its number in the frame.
        number: u64,
        /// Where it lies in the file: header and payload.
        source: Range<u64>,
        /// Where its contents belong in the contents of the whole file, as far as the frames before it are known.
        range: Range<u64>,
        /// Its contents.
        contents: &'a [u8],
    },
    /// Contents that are lost.
    Lost {
        /// Number of the frame, as far as frames could be told apart.
        frame: u64,
        /// The bytes of the file that are damaged.
        source: Range<u64>,
        /// The bytes of the contents that are lost; `None` when how many cannot be known, or when none are (only
        /// headers, index or footer were hit).
        range: Option<Range<u64>>,
    },
}

/// Walks a file, damaged or not, block by block.
pub struct Recovery<R: Read + Seek> {
    inner: R,
}

impl<R: Read + Seek> Recovery<R> {
    /// Prepares to walk `inner`.
    pub fn new(inner: R, options: &DecodeOptions) -> Result<Self, Error> {
        let _ = options;
        Ok(Self { inner })
    }

    /// The next part of the file, `None` at its end.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, Error> {
        let _ = &mut self.inner;
        Err(Error::Unsupported { what: "everything", place: Place::default() })
    }
}

/// What [`recover`] saved and what it could not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Blocks saved.
    pub blocks: u64,
    /// Bytes of contents saved.
    pub bytes: u64,
    /// Ranges of the contents that are lost, in bytes, in order.
    pub lost: Vec<Range<u64>>,
    /// Ranges of the compressed file that are damaged, in bytes, in order.
    pub damaged: Vec<Range<u64>>,
    /// Whether some contents may be lost beyond [`lost`](Self::lost): the end of a frame is missing, so that nobody
    /// knows how long it was.
    pub end_unknown: bool,
}

/// Writes every undamaged block of `reader` to `writer`, in order, and reports what is lost. With `fill`, zeros take
/// the place of lost contents, so that what is saved keeps its offsets.
pub fn recover(
    reader: &mut (impl Read + Seek),
    writer: &mut (impl Write + ?Sized),
    fill: bool,
    options: &DecodeOptions,
) -> Result<RecoveryReport, Error> {
    let _ = (reader, writer, fill, options);
    Err(Error::Unsupported { what: "everything", place: Place::default() })
}
