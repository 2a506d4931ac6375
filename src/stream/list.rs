//! Lists what a file of frames holds, without decoding it.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use crc32c::crc32c_append;

use super::directory::{FrameEntry, frame_before, index_entry, last_frame, next_frame, walk};
use super::frame_reader::FrameReader;
use super::window::{FIRST_STEP, ReadFrom, WINDOW, Window};
use crate::codec::filter::FilterChain;
use crate::error::{Error, Place};
use crate::format::{
    BlockHeader, CHECKSUM_LEN, Fault, MAX_BLOCK_HEADER_LEN, Method, ModuleRecord, Pipeline, VERSION,
};
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::memory::Cost;
use crate::pipeline::modules;
use crate::pipeline::{DecodeOptions, Level};

/// One frame of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameInfo {
    /// Number of the frame in the file, from 0.
    pub number: u64,
    /// Offset of the frame in the file, in bytes.
    pub offset: u64,
    /// Length of the frame in the file, in bytes: header, blocks, index and footer.
    pub compressed_size: u64,
    /// Length of the frame's contents, in bytes.
    pub content_size: u64,
    /// Version of the format.
    pub version: u8,
    /// The stages that the blocks went through.
    pub pipeline: Pipeline,
    /// The level that the frame was made with, if recorded.
    pub level: Option<Level>,
    /// Length of every block's contents but the last's, in bytes.
    pub block_size: u64,
    /// Number of blocks.
    pub block_count: u64,
    /// Host memory for decoding one block at a time, in bytes.
    pub decode_memory: u64,
    /// Whether the header records the length of the contents.
    pub size_in_header: bool,
    /// The modules that the frame carries, in the order of their numbers.
    pub modules: Vec<ModuleInfo>,
    /// The frame's blocks, in order; empty unless asked for.
    pub blocks: Vec<BlockInfo>,
}

/// A module of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModuleInfo {
    /// Its SHA-256.
    pub sha256: [u8; 32],
    /// Its length in bytes.
    pub size: u64,
    /// How often the loops of a lane may begin.
    pub fuel: u32,
    /// Bytes of contents that a lane stands for.
    pub lane_bytes: u32,
    /// Its name from its own section of names, if any. The author of the file chose it.
    pub name: Option<String>,
}

impl ModuleInfo {
    fn of(record: &ModuleRecord) -> Self {
        Self {
            sha256: record.sha256,
            size: record.bytes.len() as u64,
            fuel: record.fuel,
            lane_bytes: 1 << record.lane_log,
            name: modules::name(record),
        }
    }
}

/// One block of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockInfo {
    /// Number of the block in its frame, from 0.
    pub number: u64,
    /// How the block is coded.
    pub method: Method,
    /// The filters that were applied to the contents first, if any.
    pub filters: Option<FilterChain>,
    /// Offset of the block's header in the file, in bytes. In a single frame, whose block has no header, the offset of
    /// its payload.
    pub offset: u64,
    /// Length of the block's header, if it has one, and its payload, in bytes.
    pub compressed_size: u64,
    /// Offset of the payload in the file, in bytes.
    pub payload_offset: u64,
    /// Length of the payload, in bytes.
    pub payload_size: u64,
    /// Offset of the block's contents in the frame's contents, in bytes.
    pub content_offset: u64,
    /// Length of the block's contents, in bytes.
    pub content_size: u64,
    /// If the block repeats parts of earlier blocks, the length in bytes of the rest. Only that is coded by the method.
    pub own_size: Option<u64>,
    /// CRC-32C of the payload.
    pub payload_checksum: u32,
    /// CRC-32C of the contents.
    pub content_checksum: u32,
}

/// Lists the frames of a file. With `blocks`, also lists each frame's blocks, with one short read per block. For the
/// checksums of a single frame's block it reads the payload.
///
/// Checks headers, indices and footers, but not contents. The list takes memory for every frame and block: for
/// untrusted files use [`Listing`].
///
/// # Errors
/// The errors of reading, and the first fault of the file, with its place.
///
/// ```
/// use std::io::Cursor;
/// let compressed = pz::compress(&[1; 3_000_000], &pz::Options::new().block_size(1 << 20))?;
/// let frames = pz::list(&mut Cursor::new(&compressed), true)?;
/// assert_eq!(frames.len(), 1);
/// assert_eq!(frames[0].content_size, 3_000_000);
/// assert_eq!(frames[0].blocks.len(), 3);
/// assert_eq!(frames[0].blocks[1].content_offset, 1 << 20);
/// # Ok::<(), pz::Error>(())
/// ```
pub fn list(reader: &mut (impl Read + Seek), blocks: bool) -> Result<Vec<FrameInfo>, Error> {
    Listing::new(reader, &DecodeOptions::new())?.frames(blocks)
}

/// Makes room for one more item, and doubles the capacity when full.
fn reserve_one<T>(items: &mut Vec<T>) -> Result<(), Error> {
    let needed = (2 * items.len().max(4) * size_of::<T>()) as u64;
    items.try_reserve(1).map_err(|_| Error::OutOfMemory { needed })
}

/// Goes through a file frame by frame and block by block, in memory that does not grow with their number.
///
/// ```
/// use std::io::Cursor;
/// use pz::{DecodeOptions, Listing, Options};
/// let compressed = pz::compress(&[1; 3_000_000], &Options::new().block_size(1 << 20))?;
/// let mut listing = Listing::new(Cursor::new(&compressed), &DecodeOptions::new())?;
/// while let Some(frame) = listing.next_frame()? {
///     assert_eq!(frame.content_size, 3_000_000);
///     let mut lengths = Vec::new();
///     while let Some(block) = listing.next_block()? {
///         lengths.push(block.content_size);
///     }
///     assert_eq!(lengths, [1 << 20, 1 << 20, 3_000_000 - (2 << 20)]);
/// }
/// # Ok::<(), pz::Error>(())
/// ```
pub struct Listing<R> {
    reader: R,
    read_ahead: Option<PrefetchFn<R>>,
    window: Window,
    /// A second window on the file, at the index, while the first is at the blocks.
    index: Window,
    engine: CpuEngine,
    max_memory: u64,
    /// The end of the last frame without a footer, which is a single frame. Frames before it are walked forward, block
    /// by block.
    seam: u64,
    /// The end of every `stride`-th frame behind `seam`, from the file's last frame backward. These frames can only be
    /// found backward, by their footers. Marks keep each walk backward short.
    marks: Vec<u64>,
    stride: u64,
    /// Marks not yet passed.
    marks_ahead: usize,
    /// Ends of the frames up to the next mark, from the last one backward.
    ends: Vec<u64>,
    /// Number of the next frame.
    number: u64,
    /// Offset of the next frame.
    at: u64,
    /// Offset of the next frame's contents.
    content_start: u64,
    blocks: Option<UnlistedBlocks>,
}

/// Reads parts of the file that are needed next.
type PrefetchFn<R> = fn(&mut R, &[Range<u64>]) -> io::Result<()>;

/// How many block headers are read ahead at once.
const AHEAD: u64 = 256;

/// The blocks of a frame that have not been listed yet.
struct UnlistedBlocks {
    frame_number: u64,
    frame: FrameEntry,
    index_start: u64,
    /// Number of the next block.
    number: u64,
    /// Offset of the next block.
    at: u64,
    /// Number of the first block whose header has not been read ahead.
    ahead: u64,
}

/// The most marks to keep.
const MAX_MARKS: usize = 1 << 13;
/// Bytes that every listing takes.
const FIXED_MEMORY: u64 = 2 * WINDOW as u64 + 2 * 8 * MAX_MARKS as u64;

impl<R: Read + Seek> Listing<R> {
    /// Checks the headers, indices and footers of all frames.
    ///
    /// # Errors
    /// The errors of reading; the first fault of the file, with its place; [`Error::LimitMemory`] if the options permit
    /// less than 256 KiB.
    pub fn new(mut reader: R, options: &DecodeOptions) -> Result<Self, Error> {
        let max_memory = options.resources.memory;
        if max_memory < FIXED_MEMORY {
            return Err(Error::LimitMemory { needed: FIXED_MEMORY, limit: max_memory });
        }
        let len = reader.seek(SeekFrom::End(0))?;
        let mut window = Window::new(len);
        let (mut marks, mut stride) = (Vec::new(), 1);
        let mut next = last_frame(&mut window, &mut reader)?;
        let mut at = next.as_ref().map_or(len, FrameEntry::end);
        let (mut seam, mut content_size) = (0, Some(0_u64));
        for number in 0_u64.. {
            if number.is_multiple_of(stride) {
                if marks.len() == MAX_MARKS {
                    let mut is_kept = false;
                    marks.retain(|_| {
                        is_kept = !is_kept;
                        is_kept
                    });
                    stride *= 2;
                }
                reserve_one(&mut marks)?;
                marks.push(at);
            }
            let Some(frame) = next else {
                let mut first = Some(0_u64);
                seam = walk(at, &mut window, &mut reader, |frame| {
                    first = first.and_then(|sum| sum.checked_add(frame.footer.content_size));
                    Ok(())
                })?;
                let is_seam = seam == at;
                // If a frame ends here, it has no footer, so its mark goes. If none ends here, what looked like frames
                // with footers is part of earlier frames, so all marks go.
                let is_marked = number.is_multiple_of(stride);
                marks.truncate(if is_seam { marks.len() - usize::from(is_marked) } else { 0 });
                content_size = match is_seam {
                    true => content_size.zip(first).and_then(|(a, b)| a.checked_add(b)),
                    false => first,
                };
                break;
            };
            content_size = content_size.and_then(|sum| sum.checked_add(frame.footer.content_size));
            at = frame.offset;
            if at == 0 {
                break;
            }
            next = frame_before(at, &mut window, &mut reader)?;
        }
        let mut listing = Self {
            reader,
            read_ahead: None,
            window,
            index: Window::new(len),
            engine: CpuEngine::new(),
            max_memory,
            seam,
            marks_ahead: marks.len(),
            marks,
            stride,
            ends: Vec::new(),
            number: 0,
            at: 0,
            content_start: 0,
            blocks: None,
        };
        if content_size.is_none() {
            // Walk forward, so that the error names the frame that is one too many.
            while listing.next_frame()?.is_some() {}
        }
        Ok(listing)
    }

    /// Calls `read_ahead` with the places of many block headers before it reads them one by one. This saves time if
    /// each read waits, as for a server: see [`ReadAtCursor::read_ahead`](crate::ReadAtCursor::read_ahead).
    pub fn with_read_ahead(
        mut self,
        read_ahead: fn(&mut R, &[Range<u64>]) -> io::Result<()>,
    ) -> Self {
        self.read_ahead = Some(read_ahead);
        self
    }

    /// The frames that are left, with their blocks if `blocks` is set.
    ///
    /// # Errors
    /// The errors of reading, and the first fault of the file, with its place.
    pub fn frames(&mut self, blocks: bool) -> Result<Vec<FrameInfo>, Error> {
        let mut infos = Vec::new();
        while let Some(mut info) = self.next_frame()? {
            while blocks && let Some(block) = self.next_block()? {
                reserve_one(&mut info.blocks)?;
                info.blocks.push(block);
            }
            reserve_one(&mut infos)?;
            infos.push(info);
        }
        Ok(infos)
    }

    /// Starts again from the first frame.
    pub fn rewind(&mut self) {
        self.marks_ahead = self.marks.len();
        self.ends.clear();
        (self.number, self.at, self.content_start) = (0, 0, 0);
        self.blocks = None;
    }

    /// The next frame, without its blocks; `None` after the last one.
    ///
    /// # Errors
    /// The errors of reading; [`Error::LimitMemory`] if there are too many frames to put in order in the permitted
    /// memory.
    pub fn next_frame(&mut self) -> Result<Option<FrameInfo>, Error> {
        self.blocks = None;
        let frame = if self.at < self.seam {
            let (file_len, at) = (self.window.file_len, self.at);
            let (window, reader) = (&mut self.window, &mut self.reader);
            let mut frames = FrameReader::from(ReadFrom { window, reader, at }, self.number, at);
            next_frame(&mut frames, file_len)?.ok_or_else(changed)?
        } else {
            let Some(frame) = self.next_by_footer()? else { return Ok(None) };
            frame
        };
        let place = Place::new(self.number, frame.offset);
        let index_start = frame.index_start().map_err(|fault| fault.at(place))?;
        let needed = FIXED_MEMORY + frame.header.modules.bytes() as u64;
        if needed > self.max_memory {
            return Err(Error::LimitMemory { needed, limit: self.max_memory });
        }
        self.content_start = self
            .content_start
            .checked_add(frame.footer.content_size)
            .ok_or_else(|| Fault::Corrupt("the contents are too long").at(place))?;
        self.blocks = Some(UnlistedBlocks {
            frame_number: self.number,
            frame: frame.clone(),
            index_start,
            number: 0,
            at: frame.offset + frame.header_len,
            ahead: 0,
        });
        self.at = frame.end();
        self.number += 1;
        Ok(Some(FrameInfo {
            number: self.number - 1,
            offset: frame.offset,
            compressed_size: frame.footer.frame_len,
            content_size: frame.footer.content_size,
            version: VERSION,
            pipeline: frame.header.pipeline,
            level: Level::new(frame.header.level.into()).ok(),
            block_size: frame.header.block_size() as u64,
            block_count: frame.block_count(),
            decode_memory: Cost::of_decoding(&self.engine, &frame.header).least(),
            size_in_header: frame.header.content_size.is_some(),
            modules: frame.header.modules.records().iter().map(ModuleInfo::of).collect(),
            blocks: Vec::new(),
        }))
    }

    /// The next frame, found by its footer.
    fn next_by_footer(&mut self) -> Result<Option<FrameEntry>, Error> {
        if self.ends.is_empty() {
            let Some(next) = self.marks_ahead.checked_sub(1) else { return Ok(None) };
            self.marks_ahead = next;
            let mut end = self.marks[next];
            let most = (self.max_memory - FIXED_MEMORY) / 8;
            while end > self.at {
                if self.ends.len() as u64 >= most.max(1) {
                    let needed = FIXED_MEMORY + self.stride.saturating_mul(8);
                    return Err(Error::LimitMemory { needed, limit: self.max_memory });
                }
                reserve_one(&mut self.ends)?;
                self.ends.push(end);
                if self.stride == 1 {
                    break;
                }
                end = self.footed(end)?.offset;
            }
        }
        let Some(end) = self.ends.pop() else { return Err(changed()) };
        // Fills the window forward, with several frames if they are short.
        self.window.from(&mut self.reader, self.at, 1)?;
        let frame = self.footed(end)?;
        if frame.offset != self.at {
            return Err(changed());
        }
        Ok(Some(frame))
    }

    /// The frame that ends at `end`, where [`Listing::new`] found one.
    fn footed(&mut self, end: u64) -> Result<FrameEntry, Error> {
        frame_before(end, &mut self.window, &mut self.reader)?.ok_or_else(changed)
    }

    /// The next block of the last frame returned, after reading and checking its header; `None` after its last block.
    ///
    /// # Errors
    /// The errors of reading, and a fault of the block's header, with its place.
    pub fn next_block(&mut self) -> Result<Option<BlockInfo>, Error> {
        let Some(blocks) = &mut self.blocks else { return Ok(None) };
        let (frame, number, offset) = (&blocks.frame, blocks.number, blocks.at);
        let count = frame.block_count();
        if number >= count {
            return Ok(None);
        }
        if let Some(read_ahead) = self.read_ahead
            && number == blocks.ahead
            && frame.header.single.is_none()
        {
            blocks.ahead = count.min(number + AHEAD);
            let (mut places, mut at) = (Vec::new(), offset);
            for next in number..blocks.ahead {
                places.push(at..(at + FIRST_STEP as u64).min(blocks.index_start));
                if next + 1 < blocks.ahead {
                    at += block_len(&mut self.index, &mut self.reader, blocks.index_start, next)?;
                }
            }
            read_ahead(&mut self.reader, &places)?;
        }
        let end = if number + 1 == count {
            blocks.index_start
        } else {
            offset + block_len(&mut self.index, &mut self.reader, blocks.index_start, number)?
        };
        (blocks.number, blocks.at) = (number + 1, end);
        let range = offset - frame.offset..end - frame.offset;
        let len = (end - offset).min(MAX_BLOCK_HEADER_LEN as u64) as usize;
        let place = Place::new(blocks.frame_number, offset).in_block(number);
        let header = if let Some(single) = &frame.header.single {
            // The payload tells the block's checksums.
            let (mut crc, mut at) = (0, if single.has_own_payload() { offset } else { end });
            while at < end {
                let bytes = self.window.from(&mut self.reader, at, 1)?;
                let n = bytes.len().min((end - at) as usize);
                if n == 0 {
                    return Err(changed());
                }
                crc = crc32c_append(crc, &bytes[..n]);
                at += n as u64;
            }
            let checksum = self.window.at(&mut self.reader, end, CHECKSUM_LEN)?.first_chunk();
            single.sealed_block_of_crc(&frame.header, crc, *checksum.ok_or_else(changed)?)
        } else {
            BlockHeader::parse(self.window.at(&mut self.reader, offset, len)?)
                .and_then(|header| frame.check_block(&header, number, &range).map(|()| header))
                .map_err(|fault| fault.at(place))?
        };
        Ok(Some(BlockInfo {
            number,
            method: header.method,
            filters: header.filters,
            offset,
            compressed_size: end - offset,
            payload_offset: end - u64::from(header.payload_len),
            payload_size: header.payload_len.into(),
            content_offset: number << frame.header.block_log,
            content_size: header.content_len.into(),
            own_size: header.own.map(|own| own.len.into()),
            payload_checksum: header.payload_crc,
            content_checksum: header.content_crc,
        }))
    }

    /// Returns the reader.
    pub fn into_inner(self) -> R {
        self.reader
    }
}

/// The length of a block of a frame, as its index says.
fn block_len(
    index: &mut Window,
    reader: &mut (impl Read + Seek),
    index_start: u64,
    number: u64,
) -> Result<u64, Error> {
    index_entry(index, reader, index_start, number)?.ok_or_else(changed)
}

/// The error if something that was found in the file is no longer there.
fn changed() -> Error {
    Error::Io(io::Error::other("the file changed while it was read"))
}
