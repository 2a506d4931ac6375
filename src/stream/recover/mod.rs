//! Saves what a damaged file still holds.

mod earlier;
mod read_ahead;
mod stretch;

use std::io::{self, Read, Seek, Write};
use std::ops::Range;

use super::salvage::{Holes, Salvage, Step};
use crate::error::Error;
use crate::pipeline::DecodeOptions;
use read_ahead::ReadAhead;

/// A part of a damaged file.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Piece<'a> {
    /// An undamaged block: both of its checksums agree.
    Block {
        /// Number of the block's frame, if frames can be told apart.
        frame: u64,
        /// Number of the block in its frame.
        number: u64,
        /// The block's header and payload in the file; for a single frame, the whole frame.
        source: Range<u64>,
        /// Where the contents lie in the contents of the file, if the earlier frames are known.
        range: Range<u64>,
        /// The block's contents.
        contents: &'a [u8],
    },
    /// Contents that are lost.
    Lost {
        /// Number of the frame, if frames can be told apart.
        frame: u64,
        /// The damaged bytes of the file.
        source: Range<u64>,
        /// The lost bytes of the contents. `None` if their number is unknown, or if the damage only hit headers, index
        /// or footer.
        range: Option<Range<u64>>,
    },
}

/// Goes through a file, damaged or not, block by block.
///
/// It reads ahead: several threads decode blocks, and pieces still come in order.
///
/// ```
/// use std::io::Cursor;
/// use pz::{DecodeOptions, Options, Piece, Recovery};
/// let contents: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
/// let mut damaged = pz::compress(&contents, &Options::new().block_size(1 << 16))?;
/// damaged[100] ^= 1;
/// let mut recovery = Recovery::new(Cursor::new(damaged), &DecodeOptions::new())?;
/// let mut lost = Vec::new();
/// while let Some(piece) = recovery.next_piece()? {
///     match piece {
///         Piece::Block { range, contents: part, .. } => {
///             assert_eq!(part, &contents[range.start as usize..range.end as usize]);
///         }
///         Piece::Lost { range, .. } => lost.extend(range),
///         _ => {}
///     }
/// }
/// assert_eq!(lost, [0..65_536]);
/// # Ok::<(), pz::Error>(())
/// ```
pub struct Recovery<R: Read + Seek> {
    reader: R,
    holes: Holes,
    max_memory: u64,
    ahead: ReadAhead,
}

/// The length of a damaged file's contents, according to the structures that are left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Bytes of contents, lost ones included.
    pub declared: u64,
    /// The most that a file of this length could hold: what was found in it, and as many full blocks as would fit in
    /// the rest. Only a forged file, or one with almost nothing left, declares more.
    pub plausible: u64,
}

impl<R: Read + Seek> Recovery<R> {
    /// Finds the first structure that is left of the file.
    ///
    /// # Errors
    /// The errors of reading, and [`Error::NotPz`] if nothing in the file belongs to a `.pz` file.
    pub fn new(reader: R, options: &DecodeOptions) -> Result<Self, Error> {
        Self::with_holes(reader, options, Holes::default())
    }

    /// Like [`new`](Self::new), for a file that may have holes, which it does not read. For an offset, `data_from`
    /// returns the first offset from there on that does not lie in a hole, or the length of the file if there is none.
    ///
    /// # Errors
    /// Those of [`new`](Self::new).
    pub fn sparse(
        reader: R,
        options: &DecodeOptions,
        data_from: impl Fn(u64) -> u64 + Send + Sync + 'static,
    ) -> Result<Self, Error> {
        Self::with_holes(reader, options, Holes::new(data_from))
    }

    fn with_holes(mut reader: R, options: &DecodeOptions, holes: Holes) -> Result<Self, Error> {
        let salvage = Salvage::new(&mut reader, options.resources.memory, &holes)?;
        let (max_memory, ahead) = (options.resources.memory, ReadAhead::new(salvage, options));
        Ok(Self { reader, holes, max_memory, ahead })
    }

    /// Goes through the structures of the whole file, without decoding blocks, and returns the length of the contents.
    /// Does not affect the next piece.
    ///
    /// # Errors
    /// The errors of reading and, as in [`next_piece`](Self::next_piece), of structures.
    pub fn extent(&mut self) -> Result<Extent, Error> {
        let mut salvage = Salvage::new(&mut self.reader, self.max_memory, &self.holes)?;
        let mut found = 0_u64;
        while let Some(step) = salvage.next(&mut self.reader)? {
            if let Step::Block { range, .. } = step {
                found = found.saturating_add(range.end - range.start);
            }
        }
        let plausible = found.saturating_add(salvage.plausible_loss());
        Ok(Extent { declared: salvage.content_len(), plausible })
    }

    /// Whether the end of a frame is missing in the pieces so far. Its length is then unknown, and contents may be lost
    /// that no [`Piece::Lost`] reports. After the last piece this holds for the whole file.
    pub fn end_unknown(&self) -> bool {
        self.ahead.is_end_unknown()
    }

    /// The next part of the file; `None` at its end.
    ///
    /// # Errors
    /// The errors of reading; [`Error::LimitMemory`] if a block needs more than the options permit; [`Error::Corrupt`]
    /// if the contents are longer than any file.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, Error> {
        match self.ahead.stretch(&mut self.reader) {
            Some(stretch) => stretch.take(),
            None => Ok(None),
        }
    }
}

/// What [`recover`] saved, and what it could not save.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecoveryReport {
    /// Blocks saved.
    pub blocks: u64,
    /// Bytes of contents saved.
    pub bytes: u64,
    /// Ranges of the contents that are lost, in bytes, in order.
    pub lost: Vec<Range<u64>>,
    /// Ranges of the compressed file that are damaged, in bytes, in order. An empty range marks where a frame's header
    /// or end is missing.
    pub damaged: Vec<Range<u64>>,
    /// Whether the end of a frame is missing. Its length is then unknown, and more contents than [`lost`](Self::lost)
    /// may be missing.
    pub end_unknown: bool,
}

/// Writes every undamaged block of `reader` to `writer`, in order, and reports what is lost. With `fill`, zeros replace
/// lost contents, so that saved bytes keep their offsets.
///
/// A few bytes can declare 16 TiB of lost contents. So with `fill`, this first goes through the file's structures. It
/// writes nothing if the output would exceed [`DecodeOptions::max_output`] or, without that limit, what a file of this
/// length [could hold](Extent::plausible).
///
/// # Errors
/// The errors of [`Recovery`] and of writing; [`Error::LimitOutput`] if the output would be too long;
/// [`Error::LimitMemory`] if the report would take more than half of the permitted memory.
///
/// ```
/// use std::io::Cursor;
/// let contents: Vec<u8> = (0..50_000_u32).flat_map(u32::to_le_bytes).collect();
/// let mut damaged = pz::compress(&contents, &pz::Options::new().block_size(1 << 16))?;
/// damaged[100] ^= 1;
/// let mut saved = Vec::new();
/// let report =
///     pz::recover(&mut Cursor::new(damaged), &mut saved, false, &pz::DecodeOptions::new())?;
/// assert_eq!(report.lost, [0..65_536]);
/// assert_eq!(saved, &contents[65_536..]);
/// # Ok::<(), pz::Error>(())
/// ```
pub fn recover(
    reader: &mut (impl Read + Seek),
    writer: &mut (impl Write + ?Sized),
    fill: bool,
    options: &DecodeOptions,
) -> Result<RecoveryReport, Error> {
    let mut recovery = Recovery::new(reader, options)?;
    let mut report = RecoveryReport::default();
    let limit = options.max_output;
    if fill {
        let Extent { declared, plausible } = recovery.extent()?;
        let limit = if limit == u64::MAX { plausible } else { limit };
        if declared > limit {
            return Err(Error::LimitOutput { limit });
        }
    }
    let mut left = limit;
    let mut take = |n: u64| {
        left = left.checked_sub(n).ok_or(Error::LimitOutput { limit })?;
        Ok::<_, Error>(())
    };
    while let Some(piece) = recovery.next_piece()? {
        match piece {
            Piece::Block { contents, .. } => {
                take(contents.len() as u64)?;
                writer.write_all(contents)?;
                report.blocks += 1;
                report.bytes += contents.len() as u64;
            }
            Piece::Lost { source, range, .. } => {
                if !source.is_empty() || range.is_none() {
                    append(&mut report.damaged, source, options.resources.memory / 4)?;
                }
                if let Some(range) = range {
                    if fill {
                        take(range.end - range.start)?;
                        io::copy(&mut io::repeat(0).take(range.end - range.start), writer)?;
                    }
                    append(&mut report.lost, range, options.resources.memory / 4)?;
                }
            }
        }
    }
    report.end_unknown = recovery.end_unknown();
    Ok(report)
}

/// Appends a range, or extends the last one if they touch.
fn append(ranges: &mut Vec<Range<u64>>, range: Range<u64>, max_memory: u64) -> Result<(), Error> {
    if let Some(last) = ranges.last_mut()
        && last.end == range.start
    {
        last.end = range.end;
        return Ok(());
    }
    if ranges.len() == ranges.capacity() {
        let more = ranges.len().max(4);
        let needed = ((ranges.len() + more) * size_of::<Range<u64>>()) as u64;
        if needed > max_memory {
            let (needed, limit) = (needed.saturating_mul(4), max_memory.saturating_mul(4));
            return Err(Error::LimitMemory { needed, limit });
        }
        ranges.try_reserve_exact(more).map_err(|_| Error::OutOfMemory { needed })?;
    }
    ranges.push(range);
    Ok(())
}
