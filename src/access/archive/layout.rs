//! Where the blocks of an archive lie, and which parts of them a range is made of.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use super::error::ArchiveError;
use crate::access::{Part, Source, SourceReader};
use crate::error::{Error, Place};
use crate::format::{Fault, Index};
use crate::pipeline::DecodeOptions;
use crate::stream::{FrameEntry, read_directory};
use crate::sync::Mutex;

/// A block: the number of its frame, and its own number in the frame. Blocks are in the order of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct BlockId {
    pub(super) frame: usize,
    pub(super) number: u64,
}

/// A part of a block, and where it goes: to one of the destinations of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Placement {
    pub(super) block: BlockId,
    /// Bytes of the block's contents.
    pub(super) within: Range<usize>,
    /// The number of the destination.
    pub(super) destination: usize,
    /// Offset in the destination.
    pub(super) at: usize,
}

/// The frames of an archive.
pub(super) struct Layout {
    frames: Vec<FrameEntry>,
    len: u64,
    /// Those that have been needed so far.
    indices: Mutex<HashMap<usize, Arc<Index>>>,
}

impl Layout {
    /// Reads and checks headers, indices and footers.
    pub(super) fn read(source: &Arc<dyn Source>, options: &DecodeOptions) -> Result<Self, Error> {
        let mut reader = SourceReader::new(Arc::clone(source));
        let frames = read_directory(&mut reader, options.max_memory)?;
        let len = frames.last().map_or(0, |last| last.content_start + last.footer.content_size);
        if len > options.max_output {
            return Err(Error::LimitOutput { limit: options.max_output });
        }
        let layout = Self { frames, len, indices: Mutex::default() };
        if let [only] = &layout.frames[..] {
            // The reader still has it.
            let index = only.index(&mut reader).map_err(|fault| fault.at(layout.place(0)))?;
            layout.keep(0, index);
        }
        Ok(layout)
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }

    pub(super) fn frames(&self) -> &[FrameEntry] {
        &self.frames
    }

    /// The size of the largest blocks, in bytes of contents.
    pub(super) fn max_block_size(&self) -> u64 {
        let sizes = self
            .frames
            .iter()
            .map(|frame| frame.footer.content_size.min(frame.header.block_size() as u64));
        sizes.max().unwrap_or(0)
    }

    /// Host memory for frames and all indices, in bytes.
    pub(super) fn memory(&self) -> u64 {
        let indices: u64 = self.frames.iter().map(|frame| 8 * (frame.block_count() + 1)).sum();
        2 * (self.frames.len() * size_of::<FrameEntry>()) as u64 + indices
    }

    pub(super) fn check(&self, range: &Range<u64>) -> Result<(), ArchiveError> {
        let Range { start, end } = *range;
        if start > end || end > self.len {
            return Err(ArchiveError::InvalidRange { start, end, len: self.len });
        }
        Ok(())
    }

    /// The blocks that hold the contents from byte `start` on.
    pub(super) fn blocks_from(&self, start: u64) -> impl Iterator<Item = BlockId> {
        self.placements(start.min(self.len)..self.len, 0).map(|placement| placement.block)
    }

    /// The parts that `range`, which must lie within the contents, is made of. They go to the destination of this number.
    pub(super) fn placements(
        &self,
        range: Range<u64>,
        destination: usize,
    ) -> impl Iterator<Item = Placement> {
        let mut next = range.start;
        std::iter::from_fn(move || {
            if next >= range.end {
                return None;
            }
            // Frames without contents begin where the next frame does: take the last of them.
            let after = self.frames.partition_point(|frame| frame.content_start <= next);
            let frame = after.checked_sub(1)?;
            let entry = &self.frames[frame];
            let number = (next - entry.content_start) >> entry.header.block_log;
            let block_start = entry.content_start + (number << entry.header.block_log);
            let block_end = (block_start + entry.header.block_size() as u64)
                .min(entry.content_start + entry.footer.content_size);
            let end = block_end.min(range.end);
            let within = (next - block_start) as usize..(end - block_start) as usize;
            let at = (next - range.start) as usize;
            next = end;
            Some(Placement { block: BlockId { frame, number }, within, destination, at })
        })
    }

    /// The place of a frame, for errors.
    pub(super) fn place(&self, frame: usize) -> Place {
        Place::new(frame as u64, self.frames[frame].offset)
    }

    fn keep(&self, frame: usize, index: Index) -> Arc<Index> {
        let index = Arc::new(index);
        let mut indices = self.indices.lock();
        indices.insert(frame, Arc::clone(&index));
        index
    }

    /// The index of a frame, read from `source` the first time.
    pub(super) fn index(&self, source: &dyn Source, frame: usize) -> Result<Arc<Index>, Error> {
        let indices = self.indices.lock();
        if let Some(index) = indices.get(&frame) {
            return Ok(Arc::clone(index));
        }
        drop(indices);
        let entry = &self.frames[frame];
        let at = |fault: Fault| fault.at(self.place(frame));
        if let Some(single) = &entry.header.single {
            return Ok(self.keep(frame, Index::of_single(single, entry.header_len)));
        }
        let end = entry.offset + entry.footer.frame_len;
        let offset = entry.index_start().map_err(at)?;
        let mut bytes = crate::pipeline::buffer::zeroed((end - offset) as usize).map_err(at)?;
        source.read_ranges(&mut [Part { offset, buffer: &mut bytes }])?;
        let index = Index::parse(&bytes, entry.footer, entry.header_len).map_err(at)?;
        Ok(self.keep(frame, index))
    }
}

/// Splits placements, which are in the order of their blocks, after the first `most` blocks.
pub(super) fn first_blocks(placements: &[Placement], most: usize) -> (&[Placement], &[Placement]) {
    let mut blocks = 0;
    let mut last = None;
    let end = placements.iter().position(|placement| {
        blocks += usize::from(last.replace(placement.block) != Some(placement.block));
        blocks > most
    });
    placements.split_at(end.unwrap_or(placements.len()))
}
