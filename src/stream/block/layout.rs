//! Finds the blocks of a file, tells which of them hold a range, and reads neighbouring blocks at once.

use std::collections::HashMap;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use super::restore::Block;
use crate::error::{Error, Place};
use crate::format::{BlockHeader, CHECKSUM_LEN, Fault, Index, MAX_BLOCK_HEADER_LEN};
use crate::pipeline::DecodeOptions;
use crate::pipeline::buffer::Buffer;
use crate::pipeline::modules::FrameModules;
use crate::stream::directory::{FrameEntry, read_directory, walk_directory};
use crate::stream::places::ReadAt;
use crate::sync::Mutex;

/// A block: the number of its frame, and its own number in the frame. Blocks are in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct BlockId {
    pub(crate) frame: usize,
    pub(crate) number: u64,
}

/// A part of a block's contents, and its place in one of a call's destinations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Placement {
    pub(crate) block: BlockId,
    /// Which bytes of the block's contents.
    pub(crate) within: Range<usize>,
    /// The number of the destination.
    pub(crate) destination: usize,
    /// Offset in the destination.
    pub(crate) at: usize,
}

/// Where a block lies.
pub(crate) struct Located {
    pub(crate) id: BlockId,
    /// Where it lies in its frame.
    range: Range<u64>,
    /// Where it lies in the file.
    pub(crate) place: Place,
    /// Its length in bytes, with the checksum of a single frame.
    pub(crate) len: usize,
    /// Whether it is the block of a single frame. Such a block has no header of its own, and a checksum follows it.
    pub(crate) is_single: bool,
}

impl Located {
    /// Bytes before the payload.
    pub(crate) fn header_len(&self, header: &BlockHeader) -> usize {
        if self.is_single { 0 } else { header.len() }
    }

    /// Checks and returns the header of this block of `frame`. `bytes` holds the block; its first bytes suffice unless
    /// it is single.
    pub(crate) fn open(&self, frame: &FrameEntry, bytes: &[u8]) -> Result<BlockHeader, Fault> {
        if let Some(single) = &frame.header.single {
            let (payload, checksum) = bytes.split_last_chunk().ok_or(Fault::Truncated)?;
            return Ok(single.sealed_block(&frame.header, payload, *checksum));
        }
        let header = BlockHeader::parse(bytes)?;
        frame.check_block(&header, self.id.number, &self.range)?;
        Ok(header)
    }

    /// Checks the header of this block of `frame`, and returns the block. `bytes` holds it, and `modules` runs the
    /// frame's modules.
    pub(crate) fn block<'a>(
        &self,
        frame: &FrameEntry,
        bytes: &'a [u8],
        modules: Option<&'a FrameModules>,
    ) -> Result<Block<'a>, Error> {
        let at = |fault: Fault| fault.at(self.place);
        let header = self.open(frame, bytes).map_err(at)?;
        let payload = bytes.get(self.header_len(&header)..);
        let payload = payload.and_then(|rest| rest.get(..header.payload_len as usize));
        let payload = payload.ok_or(Fault::Truncated).map_err(at)?;
        Ok(Block { header, payload: Some(payload), modules })
    }
}

/// Fills a buffer with the bytes of the file from an offset on.
pub(crate) type ReadPart<'r> = dyn FnMut(u64, &mut [u8]) -> io::Result<()> + 'r;

/// The frames of a file.
pub(crate) struct Layout {
    frames: Vec<FrameEntry>,
    len: u64,
    /// Indices read so far, up to `max_indices`; then it starts over.
    indices: Mutex<HashMap<usize, Arc<Index>>>,
    max_indices: usize,
}

impl Layout {
    /// Reads and checks headers, indices and footers. Keeps at most `max_indices` indices.
    pub(crate) fn read(
        reader: &mut (impl Read + Seek),
        options: &DecodeOptions,
        max_indices: usize,
    ) -> Result<Self, Error> {
        Self::of(read_directory(reader, options.resources.memory)?, options.max_output, max_indices)
    }

    /// Goes through a file in memory from its beginning, and also checks the headers of all blocks. Refuses contents of
    /// more than `limit` bytes.
    pub(crate) fn of_slice(file: &[u8], max_memory: u64, limit: u64) -> Result<Self, Error> {
        // A list of a few thousand frames is always permitted.
        Self::of(walk_directory(file, max_memory.max(1 << 20))?, limit, 1)
    }

    fn of(frames: Vec<FrameEntry>, limit: u64, max_indices: usize) -> Result<Self, Error> {
        let len = frames.last().map_or(0, |last| last.content_start + last.footer.content_size);
        if len > limit {
            return Err(Error::LimitOutput { limit });
        }
        Ok(Self { frames, len, indices: Mutex::default(), max_indices })
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn frames(&self) -> &[FrameEntry] {
        &self.frames
    }

    /// The size of the largest blocks, in bytes of contents.
    pub(crate) fn max_block_size(&self) -> u64 {
        let sizes = self
            .frames
            .iter()
            .map(|frame| frame.footer.content_size.min(frame.header.block_size() as u64));
        sizes.max().unwrap_or(0)
    }

    /// Host memory for the list of frames, in bytes.
    pub(crate) fn memory(&self) -> u64 {
        2 * (self.frames.len() * size_of::<FrameEntry>()) as u64
    }

    /// Whether a range lies within the contents.
    pub(crate) fn contains(&self, range: &Range<u64>) -> bool {
        range.start <= range.end && range.end <= self.len
    }

    /// The blocks that hold the contents from byte `start` on.
    pub(crate) fn blocks_from(&self, start: u64) -> impl Iterator<Item = BlockId> {
        self.placements(start.min(self.len)..self.len, 0).map(|placement| placement.block)
    }

    /// The block that holds the first byte of `range`, and which of its bytes belong to the range. `None` if the range
    /// is empty. It must lie within the contents.
    pub(crate) fn first(&self, range: &Range<u64>) -> Option<(BlockId, Range<usize>)> {
        if range.is_empty() {
            return None;
        }
        // An empty frame begins where the next one does, so take the last that begins here.
        let after = self.frames.partition_point(|frame| frame.content_start <= range.start);
        let frame = after.checked_sub(1)?;
        let entry = &self.frames[frame];
        let number = (range.start - entry.content_start) >> entry.header.block_log;
        let start = entry.content_start + (number << entry.header.block_log);
        let end = (start + entry.header.block_size() as u64)
            .min(entry.content_start + entry.footer.content_size)
            .min(range.end);
        let within = (range.start - start) as usize..(end - start) as usize;
        Some((BlockId { frame, number }, within))
    }

    /// Divides `range`, which must lie within the contents, into parts of blocks, for the destination with this number.
    pub(crate) fn placements(
        &self,
        range: Range<u64>,
        destination: usize,
    ) -> impl Iterator<Item = Placement> {
        let mut left = range.clone();
        std::iter::from_fn(move || {
            let (block, within) = self.first(&left)?;
            let at = (left.start - range.start) as usize;
            left.start += within.len() as u64;
            Some(Placement { block, within, destination, at })
        })
    }

    /// The place of a frame, for errors.
    pub(crate) fn place(&self, frame: usize) -> Place {
        Place::new(frame as u64, self.frames[frame].offset)
    }

    fn indices(&self) -> MutexGuard<'_, HashMap<usize, Arc<Index>>> {
        self.indices.lock()
    }

    /// The index of a frame. `read` reads it unless it is kept.
    pub(crate) fn index(&self, frame: usize, read: &mut ReadPart<'_>) -> Result<Arc<Index>, Error> {
        if let Some(index) = self.indices().get(&frame) {
            return Ok(Arc::clone(index));
        }
        let index = self.frames[frame].index(read).map_err(|fault| fault.at(self.place(frame)))?;
        let index = Arc::new(index);
        let mut indices = self.indices();
        if indices.len() >= self.max_indices {
            indices.clear();
        }
        indices.insert(frame, Arc::clone(&index));
        Ok(index)
    }

    /// Finds a block. `read` reads the index of its frame unless it is kept.
    pub(crate) fn locate(&self, id: BlockId, read: &mut ReadPart<'_>) -> Result<Located, Error> {
        let index = self.index(id.frame, read)?;
        let frame = &self.frames[id.frame];
        let Some(range) = index.block(id.number) else {
            return Err(Error::Internal { what: "a block beyond the index" });
        };
        let place = Place::new(id.frame as u64, frame.offset + range.start).in_block(id.number);
        // Every block is shorter than its contents and a header together.
        let mut len = range.end - range.start;
        if len > frame.header.block_size() as u64 + MAX_BLOCK_HEADER_LEN as u64 {
            return Err(Fault::Corrupt("the block is too long").at(place));
        }
        let is_single = frame.header.single.is_some();
        if is_single {
            len += CHECKSUM_LEN as u64;
        }
        Ok(Located { id, range, place, len: len as usize, is_single })
    }

    /// A block of `file`, which is the whole file, and its place. `modules` runs the frame's modules.
    pub(crate) fn block_in<'a>(
        &self,
        id: BlockId,
        file: &'a [u8],
        modules: Option<&'a FrameModules>,
    ) -> Result<(Block<'a>, Place), Error> {
        let located = self.locate(id, &mut |offset, into| file.read_exact_at(into, offset))?;
        let bytes = file.get(located.place.offset as usize..).unwrap_or_default();
        let bytes = &bytes[..bytes.len().min(located.len)];
        Ok((located.block(&self.frames[id.frame], bytes, modules)?, located.place))
    }

    /// How many bytes to read at once from this block on: up to the end of the last block that holds contents before
    /// byte `end`, but no more than `most` unless this block alone is longer.
    pub(crate) fn run_len(&self, block: &Located, end: u64, most: u64) -> usize {
        let entry = &self.frames[block.id.frame];
        let index = self.indices().get(&block.id.frame).map(Arc::clone);
        let Some(index) = index.filter(|_| !block.is_single) else { return block.len };
        let last = end.saturating_sub(entry.content_start + 1) >> entry.header.block_log;
        let numbers = block.id.number + 1..=last.min(index.block_count().saturating_sub(1));
        let lens = numbers.filter_map(|number| Some(index.block(number)?.end - block.range.start));
        lens.take_while(|len| *len <= most).last().map_or(block.len, |len| len as usize)
    }
}

/// Neighbouring blocks from one read.
#[derive(Debug, Default)]
pub(crate) struct ReadRun {
    /// Where they begin in the file.
    start: u64,
    bytes: Buffer,
}

impl ReadRun {
    /// Frees its memory.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The bytes of a block, if the read brought them.
    fn held(&self, block: &Located) -> Option<&[u8]> {
        let from = usize::try_from(block.place.offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(block.len)?)
    }

    /// Copies the bytes of a block to `into`. If the last read did not bring them, reads `len` bytes from the block on,
    /// because the next blocks are needed soon.
    pub(crate) fn fetch(
        &mut self,
        block: &Located,
        len: usize,
        reader: &mut (impl Read + Seek),
        into: &mut Buffer,
    ) -> Result<(), Fault> {
        let is_here = self.held(block).is_some();
        if !is_here {
            reader.seek(SeekFrom::Start(block.place.offset))?;
        }
        if !is_here && len > block.len {
            self.start = u64::MAX;
            // The index bounds the length, so the buffer can have its full length at once.
            reader.read_exact(self.bytes.set_len(len)?)?;
            self.start = block.place.offset;
        }
        match self.held(block) {
            Some(mut bytes) => into.read_exact(&mut bytes, block.len),
            None => Ok(reader.read_exact(into.set_len(block.len)?)?),
        }
    }
}
