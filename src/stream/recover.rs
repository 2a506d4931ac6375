//! Saves what a damaged file still holds.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use super::salvage::{Salvage, Step};
use super::tasks::DecodeTask;
use crate::error::{Error, Place};
use crate::format::{BlockHeader, CHECKSUM_LEN, Fault, FrameHeader, Method, Pipeline};
use crate::pipeline::DecodeOptions;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{DecodeJob, Engine};
use crate::pipeline::memory::Cost;
use crate::pipeline::scheduler::Task;

/// A part of a damaged file, in file order.
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Piece<'a> {
    /// An undamaged block: both of its checksums agree.
    Block {
        /// Number of the block's frame, as far as frames can be told apart.
        frame: u64,
        /// Number of the block in its frame.
        number: u64,
        /// The block's header and payload in the file; for a single frame, the whole frame.
        source: Range<u64>,
        /// The place of the contents in the contents of the file, as far as the frames before are known.
        range: Range<u64>,
        /// The block's contents.
        contents: &'a [u8],
    },
    /// Contents that are lost.
    Lost {
        /// Number of the frame, as far as frames can be told apart.
        frame: u64,
        /// The damaged bytes of the file.
        source: Range<u64>,
        /// The lost bytes of the contents. `None` if their number cannot be known, or if none are lost because the
        /// damage only hit headers, index or footer.
        range: Option<Range<u64>>,
    },
}

/// Goes through a file, damaged or not, block by block.
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
    engine: CpuEngine,
    salvage: Salvage,
    task: DecodeTask,
    /// Pipeline and block size of the last block decoded. The options permit the memory for these.
    kind: Option<(Pipeline, u8)>,
}

/// The length of a damaged file's contents, as far as its structures tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Extent {
    /// Bytes of contents, lost ones included.
    pub declared: u64,
    /// The most that a file of this length could hold: what was found in it, and as many full blocks as would fit in
    /// the rest. Only a forged file, or one of which almost nothing is left, declares more.
    pub plausible: u64,
}

impl<R: Read + Seek> Recovery<R> {
    /// Finds the first structure that the file still has.
    ///
    /// # Errors
    /// The errors of reading, and [`Error::NotPz`] if nothing in the file belongs to a `.pz` file.
    pub fn new(mut reader: R, options: &DecodeOptions) -> Result<Self, Error> {
        let salvage = Salvage::new(&mut reader, options.max_memory)?;
        let salvage = salvage.ok_or(Error::NotPz { place: Place::default() })?;
        Ok(Self {
            reader,
            options: options.clone(),
            engine: CpuEngine::new(),
            salvage,
            task: DecodeTask::default(),
            kind: None,
        })
    }

    /// Goes through the structures of the whole file, without decoding blocks, and returns the length of the contents.
    /// Does not affect the next piece.
    ///
    /// # Errors
    /// The errors of reading and, as in [`next_piece`](Self::next_piece), of structures.
    pub fn extent(&mut self) -> Result<Extent, Error> {
        let salvage = Salvage::new(&mut self.reader, self.options.max_memory)?;
        let mut salvage = salvage.ok_or(Error::NotPz { place: Place::default() })?;
        let mut found = 0_u64;
        while let Some(step) = salvage.next(&mut self.reader)? {
            if let Step::Block { range, .. } = step {
                found = found.saturating_add(range.end - range.start);
            }
        }
        let plausible = found.saturating_add(salvage.plausible_loss());
        Ok(Extent { declared: salvage.content_len(), plausible })
    }

    /// Whether the end of a frame is missing, so that its length is unknown: contents may then be lost that no
    /// [`Piece::Lost`] reports. After the last piece this holds for the whole file.
    pub fn end_unknown(&self) -> bool {
        self.salvage.end_unknown()
    }

    /// The next part of the file; `None` at its end.
    ///
    /// # Errors
    /// The errors of reading; [`Error::LimitMemory`] if a block needs more than the options permit; [`Error::Corrupt`]
    /// if the contents are longer than any file.
    pub fn next_piece(&mut self) -> Result<Option<Piece<'_>>, Error> {
        Ok(match self.salvage.next(&mut self.reader)? {
            None => None,
            Some(Step::Lost { frame, source, range }) => Some(Piece::Lost { frame, source, range }),
            Some(Step::Block { frame, source, header, single, range }) => {
                match self.decode(frame, &source, header, single) {
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

    /// Decodes the block at `source`. `single` is the frame's header if the block is that of a single frame.
    fn decode(
        &mut self,
        frame: u64,
        source: &Range<u64>,
        mut header: BlockHeader,
        single: Option<FrameHeader>,
    ) -> Result<(), Error> {
        let place = Place::new(frame, source.start).in_block(header.number.into());
        // The frame's header may be lost; the block says enough.
        let pipeline = match header.method {
            Method::Store | Method::Fill => Pipeline::Store,
            Method::Lz77 => Pipeline::Lzh,
            Method::Bwt => Pipeline::Bwt,
        };
        // Every pipeline has stored blocks, including the one with the largest blocks.
        if pipeline != Pipeline::Store && header.block_log > pipeline.max_block_log() {
            return Err(Fault::Corrupt("the block size is out of range").at(place));
        }
        self.make_room(pipeline, header.block_log)?;
        let payload_len = header.payload_len as usize;
        let tail = single.and_then(|frame| Some((frame, frame.single?)));
        let tail_len = payload_len + tail.map_or(0, |_| CHECKSUM_LEN);
        let start = source.end - tail_len as u64;
        let mut held = self.salvage.held(start, tail_len);
        if let (Some((frame, single)), Some(bytes)) = (&tail, held)
            && let Some((payload, checksum)) = bytes.split_last_chunk()
        {
            header = single.sealed_block(frame, payload, *checksum);
            held = Some(payload);
        }
        if let (Pipeline::Store, Some(payload)) = (pipeline, held) {
            let contents = self.task.contents.set_len(header.content_len as usize);
            let contents = contents.map_err(|fault| fault.at(place))?;
            let payload = Some(payload);
            let mut job = DecodeJob { header, payload, contents, outcome: None };
            CpuEngine::decode_simple(&mut job);
            let outcome = job.outcome.unwrap_or(Err(Fault::Internal("a block was not decoded")));
            return outcome.map_err(|fault| fault.at(place));
        }
        self.task.release();
        let buffer = self.task.set_block(header, place);
        let mut read = || {
            if let Some(mut payload) = held {
                return buffer.read_exact(&mut payload, payload_len);
            }
            self.reader.seek(SeekFrom::Start(start))?;
            buffer.read_exact(&mut self.reader, payload_len)?;
            if let Some((frame, single)) = &tail {
                let mut checksum = [0; CHECKSUM_LEN];
                self.reader.read_exact(&mut checksum)?;
                header = single.sealed_block(frame, buffer, checksum);
            }
            Ok(())
        };
        read().map_err(|fault: Fault| fault.at(place))?;
        self.task.set_header(header);
        DecodeTask::run(std::slice::from_mut(&mut self.task), &self.engine);
        self.task.finish()
    }

    /// Checks that the options permit enough memory to decode blocks of this kind.
    fn make_room(&mut self, pipeline: Pipeline, block_log: u8) -> Result<(), Error> {
        let like = FrameHeader { pipeline, block_log, level: 0, content_size: None, single: None };
        let mut cost = Cost::of_decoding(&self.engine, &like);
        cost.fixed = cost.fixed.saturating_add(self.salvage.memory());
        cost.share(1, self.options.max_memory)?;
        if self.kind != Some((pipeline, block_log)) {
            // Release the memory for another kind of block.
            self.engine.release();
            self.task = DecodeTask::default();
            self.kind = Some((pipeline, block_log));
        }
        Ok(())
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
