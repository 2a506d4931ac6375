//! Recovers a whole file, and reports what is lost.

use std::io::{self, Read, Seek, Write};
use std::ops::Range;

use super::{Extent, Piece, Recovery};
use crate::error::Error;
use crate::pipeline::DecodeOptions;

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
    /// Ranges of the compressed file that are damaged, in bytes, in order. An empty range is a place where a frame's
    /// header or end is missing.
    pub damaged: Vec<Range<u64>>,
    /// Whether more contents than [`lost`](Self::lost) may be missing: the end of a frame is missing, so its length is
    /// unknown.
    pub end_unknown: bool,
}

/// Writes every undamaged block of `reader` to `writer`, in order, and reports what is lost. With `fill`, zeros replace
/// lost contents, so that saved bytes keep their offsets.
///
/// A few bytes can declare 16 TiB of lost contents. So with `fill`, this first goes through the file's structures, and
/// writes nothing if the output would exceed [`DecodeOptions::max_output`] or, if that is not set (or `u64::MAX`), what
/// a file of this length [could hold](Extent::plausible).
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
                    append(&mut report.damaged, source, options.max_memory / 4)?;
                }
                if let Some(range) = range {
                    if fill {
                        take(range.end - range.start)?;
                        io::copy(&mut io::repeat(0).take(range.end - range.start), writer)?;
                    }
                    append(&mut report.lost, range, options.max_memory / 4)?;
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
