//! Saving what a damaged file still holds.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::Arc;

use super::salvage::{Step, has_structure, lay_out, survey};
use super::tasks::DecodeTask;
use crate::error::{Error, Place};
use crate::format::{BlockHeader, CHECKSUM_LEN, Fault, FrameHeader, Method, Pipeline};
use crate::pipeline::DecodeOptions;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::Engine;
use crate::pipeline::memory::Cost;
use crate::pipeline::scheduler::Task;

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
    options: DecodeOptions,
    engine: Arc<dyn Engine>,
    steps: std::vec::IntoIter<Step>,
    end_unknown: bool,
    task: DecodeTask,
}

impl<R: Read + Seek> Recovery<R> {
    /// Finds the structures that are left of the file; this reads the headers of all blocks, and searches the parts
    /// that are damaged.
    ///
    /// # Errors
    /// Those of reading, and [`Error::NotPz`] if there is nothing of a `.pz` file in it.
    pub fn new(mut reader: R, options: &DecodeOptions) -> Result<Self, Error> {
        let items = survey(&mut reader)?;
        if !has_structure(&items) {
            return Err(Error::NotPz { place: Place::default() });
        }
        let (steps, end_unknown) = lay_out(&items);
        Ok(Self {
            reader,
            options: options.clone(),
            engine: Arc::new(CpuEngine::new()),
            steps: steps.into_iter(),
            end_unknown,
            task: DecodeTask::default(),
        })
    }

    /// Whether the end of a frame is missing, so that nobody knows how long it was: then contents may be lost that no
    /// [`Piece::Lost`] tells of.
    pub fn end_unknown(&self) -> bool {
        self.end_unknown
    }

    /// The next part of the file, `None` at its end.
    ///
    /// # Errors
    /// Those of reading, and [`Error::LimitMemory`] if a block needs more than the options permit.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, Error> {
        Ok(match self.steps.next() {
            None => None,
            Some(Step::Lost { frame, source, range }) => Some(Piece::Lost { frame, source, range }),
            Some(Step::Block { frame, source, header, single, range }) => {
                match self.decode(frame, &source, &header, single) {
                    Ok(()) => Some(Piece::Block {
                        frame,
                        number: header.number.into(),
                        source,
                        range,
                        contents: &self.task.contents,
                    }),
                    Err(Error::Corrupt { .. } | Error::Truncated { .. }) => {
                        Some(Piece::Lost { frame, source, range: Some(range) })
                    }
                    Err(error) => return Err(error),
                }
            }
        })
    }

    fn decode(
        &mut self,
        frame: u64,
        source: &Range<u64>,
        header: &BlockHeader,
        single: Option<FrameHeader>,
    ) -> Result<(), Error> {
        let place = Place::new(frame, source.start).in_block(header.number.into());
        // The frame's header may be lost; the block tells as much.
        let pipeline = match header.method {
            Method::Store | Method::Fill => Pipeline::Store,
            Method::Lz77 => Pipeline::Lzh,
            Method::Bwt => Pipeline::Bwt,
        };
        if header.block_log > pipeline.max_block_log() {
            return Err(Fault::Corrupt("the block size is out of range").at(place));
        }
        let block_log = header.block_log;
        let like = FrameHeader { pipeline, block_log, level: 0, content_size: None, single: None };
        Cost::of_decoding(&*self.engine, &like).share(1, self.options.max_memory)?;
        self.task.release();
        let buffer = self.task.set_block(*header, place);
        let mut read = || {
            let tail = single.and_then(|frame| Some((frame, frame.single?)));
            let tail_len = tail.map_or(header.payload_len.into(), |(_, single)| single.tail_len());
            self.reader.seek(SeekFrom::Start(source.end - tail_len))?;
            buffer.read_exact(&mut self.reader, header.payload_len as usize)?;
            let Some((frame, single)) = tail else { return Ok(*header) };
            let mut checksum = [0; CHECKSUM_LEN];
            self.reader.read_exact(&mut checksum)?;
            Ok(single.sealed_block(&frame, buffer, checksum))
        };
        let header = read().map_err(|fault: Fault| fault.at(place))?;
        self.task.set_header(header);
        DecodeTask::run(std::slice::from_mut(&mut self.task), &*self.engine);
        self.task.finish()
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
///
/// # Errors
/// Those of [`Recovery`] and of writing, and [`Error::LimitOutput`] if more than the options permit would be written.
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
    let mut report =
        RecoveryReport { end_unknown: recovery.end_unknown(), ..RecoveryReport::default() };
    let limit = options.max_output;
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
                if let Some(range) = range {
                    if fill {
                        take(range.end - range.start)?;
                        io::copy(&mut io::repeat(0).take(range.end - range.start), writer)?;
                    }
                    append(&mut report.lost, range);
                }
                if !source.is_empty() {
                    append(&mut report.damaged, source);
                }
            }
        }
    }
    Ok(report)
}

/// Appends a range, joined with the last one if they touch.
fn append(ranges: &mut Vec<Range<u64>>, range: Range<u64>) {
    match ranges.last_mut() {
        Some(last) if last.end == range.start => last.end = range.end,
        _ => ranges.push(range),
    }
}
