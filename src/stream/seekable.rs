//! Random access through the index.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::Arc;

use super::decoder;
use super::directory::{FrameEntry, read_directory};
use super::distant::{Recent, Sources};
use super::places::{ReadAt, ReadAtCursor, sought};
use super::tasks::DecodeTask;
use crate::error::{Error, Place};
use crate::format::{BlockHeader, CHECKSUM_LEN, Fault, Index};
use crate::pipeline::DecodeOptions;
use crate::pipeline::buffer::Buffer;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::Engine;
use crate::pipeline::flow::Flow;
use crate::pipeline::memory::{Cost, Share};
use crate::pipeline::modules::LastModules;
use crate::pipeline::statistics::Counted;

/// Reads any part of the contents of a file of frames. Only decodes the blocks that hold it.
///
/// `Read` and `Seek` work on the contents; the reader keeps the last block. [`SeekableReader::copy_range`] decodes a
/// whole range in parallel, also on a GPU if the options name one, and reads adjacent blocks at once. Open sources with
/// slow reads, such as those over a network, with [`SeekableReader::open`].
///
/// ```
/// use std::io::{Cursor, Read, Seek, SeekFrom};
/// let contents: Vec<u8> = (0..1_000_000_u32).flat_map(u32::to_le_bytes).collect();
/// let compressed = pz::compress(&contents, &pz::Options::new().block_size(1 << 16))?;
/// let mut reader = pz::SeekableReader::new(Cursor::new(compressed), &pz::DecodeOptions::new())?;
/// assert_eq!((reader.len(), reader.block_size()), (4_000_000, 1 << 16));
/// reader.seek(SeekFrom::Start(4 * 123_456))?;
/// let mut number = [0; 4];
/// reader.read_exact(&mut number)?;
/// assert_eq!(u32::from_le_bytes(number), 123_456);
/// # Ok::<(), pz::Error>(())
/// ```
pub struct SeekableReader<R: Read + Seek> {
    reader: R,
    options: DecodeOptions,
    engine: Arc<dyn Engine>,
    frames: Vec<FrameEntry>,
    len: u64,
    position: u64,
    /// The last index used, and the number of its frame.
    index: Option<(usize, Index)>,
    /// The modules of the frame of the last block read.
    modules: LastModules,
    /// The last block read: the offset of its contents, and the block.
    block: Option<(u64, DecodeTask)>,
    /// Adjacent blocks that were read at once, and their offset in the file.
    run: (u64, Buffer),
    /// The most bytes of such a run.
    max_run: u64,
    /// Blocks that distant matches repeat.
    recent: Recent,
}

/// The most bytes to read at once, if memory permits.
const MAX_RUN: u64 = 8 << 20;

/// The place of a byte of the contents.
struct Spot {
    frame: usize,
    block: u64,
    /// Offset of the block's contents in the contents of the file.
    content_start: u64,
}

/// One block at a time, in the calling thread.
const ALONE: Share = Share { workers: 1, in_flight: 1 };

impl SeekableReader<ReadAtCursor> {
    /// Reads and checks the headers, indices and footers of all frames of `source`, which has `len` bytes. For a file
    /// of one frame, as [`Encoder`](crate::Encoder) writes it, that takes at most two reads of `source`. Then a range
    /// takes one read, if its blocks together have at most 8 MiB and the options permit the memory.
    ///
    /// # Errors
    /// The errors of [`SeekableReader::new`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// let compressed = pz::compress(b"one two three", &pz::Options::new())?;
    /// let len = compressed.len() as u64;
    /// let source: Arc<dyn pz::ReadAt> = Arc::new(compressed);
    /// let mut reader = pz::SeekableReader::open(source, len, &pz::DecodeOptions::new())?;
    /// let mut word = Vec::new();
    /// reader.copy_range(4..7, &mut word)?;
    /// assert_eq!(word, b"two");
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn open(source: Arc<dyn ReadAt>, len: u64, options: &DecodeOptions) -> Result<Self, Error> {
        Self::new(ReadAtCursor::new(source, len), options)
    }
}

impl<R: Read + Seek> SeekableReader<R> {
    /// Reads and checks the headers, indices and footers of all frames.
    ///
    /// # Errors
    /// The errors of reading; the first fault of the file, with its place; [`Error::LimitMemory`] if a frame's blocks
    /// need more than the options permit; [`Error::LimitOutput`] if the contents are longer than they permit.
    pub fn new(mut reader: R, options: &DecodeOptions) -> Result<Self, Error> {
        let frames = read_directory(&mut reader, options.max_memory)?;
        let len = frames.last().map_or(0, |last| last.content_start + last.footer.content_size);
        if len > options.max_output {
            return Err(Error::LimitOutput { limit: options.max_output });
        }
        let seekable = Self {
            reader,
            options: options.clone(),
            engine: Counted::new(Arc::new(CpuEngine::new()), options.statistics.as_ref(), false),
            frames,
            len,
            position: 0,
            index: None,
            modules: LastModules::default(),
            block: None,
            run: (0, Buffer::default()),
            max_run: 0,
            recent: Recent::default(),
        };
        for frame in &seekable.frames {
            seekable.cost(frame).share(1, options.max_memory)?;
        }
        for (number, frame) in (0..).zip(&seekable.frames) {
            options.modules.check(&frame.header.modules, Place::new(number, frame.offset))?;
        }
        Ok(seekable)
    }

    /// Length in bytes of the contents of all frames together.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Length in bytes of the longest blocks' contents, or more if all are shorter: a read decodes whole blocks.
    pub fn block_size(&self) -> u64 {
        self.frames.iter().map(|frame| frame.header.block_size() as u64).max().unwrap_or(0)
    }

    /// Whether the contents are empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Writes bytes `range` of the contents to `writer`, decoding blocks in parallel. The position does not change.
    ///
    /// # Errors
    /// [`Error::InvalidRange`] if the range does not lie within the contents; errors of decoding and writing.
    ///
    /// ```
    /// let compressed = pz::compress(b"one two three", &pz::Options::new())?;
    /// let file = std::io::Cursor::new(compressed);
    /// let mut reader = pz::SeekableReader::new(file, &pz::DecodeOptions::new())?;
    /// let mut word = Vec::new();
    /// reader.copy_range(4..7, &mut word)?;
    /// assert_eq!(word, b"two");
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn copy_range(
        &mut self,
        range: Range<u64>,
        writer: &mut (impl Write + ?Sized),
    ) -> Result<(), Error> {
        let Range { start, end } = range;
        if start > end || end > self.len {
            return Err(Error::InvalidRange { start, end, len: self.len });
        }
        // The blocks in flight need its memory.
        self.block = None;
        let mut flow = Flow::new(Arc::clone(&self.engine), ALONE, None);
        // What the blocks in flight need, the frame of each, and the offset of its contents.
        let mut cost = None;
        let mut starts = VecDeque::new();
        let mut next = start;
        while next < end || !starts.is_empty() {
            let spot = if next < end { Some(self.locate(next)?) } else { None };
            let needed = spot.as_ref().map(|spot| self.cost(&self.frames[spot.frame]));
            // Blocks that need other memory wait until all others are done.
            let other = needed.is_some() && needed != cost;
            if let Some(spot) = spot
                && flow.has_room()
                && (!other || starts.is_empty())
            {
                if other && let Some(needed) = needed {
                    self.adapt(&mut flow, needed, spot.frame, end - start)?;
                    cost = Some(needed);
                }
                let idle = flow.take_idle();
                let mut task = idle.unwrap_or_else(|| DecodeTask::new(flow.pool()));
                let content_len = self.read_block(&spot, end, &mut task)?;
                starts.push_back((spot.frame, spot.content_start));
                next = spot.content_start + u64::from(content_len);
                flow.submit(task);
                if next >= end {
                    flow.end();
                }
                continue;
            }
            let (Some(mut task), Some((frame, content_start))) = (flow.next(), starts.pop_front())
            else {
                return Err(LOST);
            };
            self.finish(&mut task, frame)?;
            let part = &task.contents;
            let from = start.saturating_sub(content_start) as usize;
            let to = (end - content_start).min(part.len() as u64) as usize;
            writer.write_all(&part[from..to])?;
            task.release();
            flow.keep_idle(task);
            flow.give_back(0);
        }
        self.run = (0, Buffer::default());
        Ok(())
    }

    /// Prepares `flow` for blocks of the frame with this number, which need `needed`. No block may be in flight.
    fn adapt(
        &mut self,
        flow: &mut Flow<DecodeTask>,
        needed: Cost,
        frame: usize,
        range_len: u64,
    ) -> Result<(), Error> {
        let (header, limit) = (&self.frames[frame].header, self.options.max_memory);
        self.max_run = (limit.saturating_sub(needed.least()) / 4).min(MAX_RUN);
        let with_run = Cost { fixed: needed.fixed + self.max_run, ..needed };
        let mut share = with_run.share(self.options.threads, limit)?;
        share.limit_to((range_len >> header.block_log) + 2);
        let accelerator = decoder::accelerator(header, &with_run, &mut share, &self.options);
        flow.adapt(share, accelerator);
        Ok(())
    }

    /// Returns the reader.
    pub fn into_inner(self) -> R {
        self.reader
    }

    fn cost(&self, frame: &FrameEntry) -> Cost {
        let frames = 2 * (self.frames.len() * size_of::<FrameEntry>()) as u64;
        // The index takes memory as read and as parsed. Round up, so that frames that differ little cost the same.
        let index = 12 * frame.block_count().next_multiple_of(1 << 12);
        let cost = Cost::keeping(&*self.engine, &frame.header, Recent::memory(&frame.header));
        Cost { fixed: cost.fixed + frames + index, ..cost }
    }

    /// Completes a block that has been decoded, of the frame with this number.
    fn finish(&mut self, task: &mut DecodeTask, frame: usize) -> Result<(), Error> {
        let recent = std::mem::take(&mut self.recent);
        let mut sources = BlocksBefore { reader: self, recent, frame };
        let finished = task.finish(&mut sources);
        self.recent = sources.recent;
        finished
    }

    /// Finds the place of byte `position` of the contents.
    fn locate(&self, position: u64) -> Result<Spot, Error> {
        // Frames without contents begin where the next frame does: take the last of them.
        let frame = self.frames.partition_point(|frame| frame.content_start <= position);
        let Some(frame) = frame.checked_sub(1) else {
            return Err(Error::Internal { what: "a position before the first frame" });
        };
        let entry = &self.frames[frame];
        let block = (position - entry.content_start) >> entry.header.block_log;
        let content_start = entry.content_start + (block << entry.header.block_log);
        Ok(Spot { frame, block, content_start })
    }

    /// Reads the block at `spot` into `task`, and returns the length of its contents. Also reads the blocks after it
    /// that hold contents up to byte `end`, because they are needed next.
    fn read_block(&mut self, spot: &Spot, end: u64, task: &mut DecodeTask) -> Result<u32, Error> {
        let entry = self.frames[spot.frame].clone();
        let place = Place::new(spot.frame as u64, entry.offset);
        if self.index.as_ref().is_none_or(|(frame, _)| *frame != spot.frame) {
            self.index = None;
            let index = entry.index(&mut self.reader).map_err(|fault| fault.at(place))?;
            self.index = Some((spot.frame, index));
        }
        let range = self.index.as_ref().and_then(|(_, index)| index.block(spot.block));
        let Some(range) = range else {
            return Err(Error::Internal { what: "a block beyond the index" });
        };
        let offset = entry.offset + range.start;
        let place = Place::new(spot.frame as u64, offset).in_block(spot.block);
        // Every block is shorter than its contents and a header together.
        let len = range.end - range.start;
        if len > entry.header.block_size() as u64 + crate::format::MAX_BLOCK_HEADER_LEN as u64 {
            return Err(Fault::Corrupt("the block is too long").at(place));
        }
        let run = self.run_with(spot, end, &range);
        let mut read = || {
            let payload = &mut task.payload;
            if let Some(run) = run {
                self.run.0 = u64::MAX;
                self.reader.seek(SeekFrom::Start(offset))?;
                // One read suffices, since the index bounds the length.
                self.reader.read_exact(self.run.1.set_len(run)?)?;
                self.run.0 = offset;
            }
            if let Some(bytes) = offset.checked_sub(self.run.0)
                && let Some(mut bytes) = self.run.1.get(bytes as usize..)
                && bytes.len() as u64 >= len
            {
                payload.read_exact(&mut bytes, len as usize)?;
            } else {
                self.reader.seek(SeekFrom::Start(offset))?;
                self.reader.read_exact(payload.set_len(len as usize)?)?;
            }
            let Some(single) = entry.header.single else {
                let header = BlockHeader::parse(payload)?;
                entry.check_block(&header, spot.block, &range)?;
                return Ok((header.len(), header));
            };
            let mut checksum = [0; CHECKSUM_LEN];
            self.reader.read_exact(&mut checksum)?;
            Ok((0, single.sealed_block(&entry.header, payload, checksum)))
        };
        let (start, header) = read().map_err(|fault: Fault| fault.at(place))?;
        task.set_payload_at(start, header, place);
        task.set_reach(entry.header.reach);
        let of_frame = Place::new(spot.frame as u64, entry.offset);
        let modules = self.modules.of(&entry.header.modules, &self.options.modules, of_frame)?;
        task.set_modules(modules);
        Ok(header.content_len)
    }

    /// How many bytes to read at once from the block at `spot`, which lies at `range` of its frame. `None` if the block
    /// has been read, or if no other block is needed.
    fn run_with(&self, spot: &Spot, end: u64, range: &Range<u64>) -> Option<usize> {
        let entry = &self.frames[spot.frame];
        let offset = entry.offset + range.start;
        let run_end = self.run.0.saturating_add(self.run.1.len() as u64);
        if entry.header.single.is_some()
            || (self.run.0..run_end).contains(&(offset + (range.end - range.start) - 1))
                && self.run.0 <= offset
        {
            return None;
        }
        let (_, index) = self.index.as_ref()?;
        let last = (end.saturating_sub(entry.content_start + 1)) >> entry.header.block_log;
        let mut run_end = range.end;
        for number in spot.block + 1..=last.min(index.block_count().saturating_sub(1)) {
            let next = index.block(number)?.end;
            if next - range.start > self.max_run {
                break;
            }
            run_end = next;
        }
        (run_end > range.end).then_some((run_end - range.start) as usize)
    }

    /// The contents from the position to the end of its block.
    fn part(&mut self) -> Result<&[u8], Error> {
        if self.position >= self.len {
            return Ok(&[]);
        }
        let spot = self.locate(self.position)?;
        if self.block.as_ref().is_none_or(|(start, _)| *start != spot.content_start) {
            let mut task = self.block.take().map(|(_, task)| task).unwrap_or_default();
            self.read_block(&spot, spot.content_start, &mut task)?;
            let mut flow = Flow::new(Arc::clone(&self.engine), ALONE, None);
            flow.submit(task);
            let mut task = flow.next().ok_or(LOST)?;
            self.finish(&mut task, spot.frame)?;
            self.block = Some((spot.content_start, task));
        }
        let from = (self.position - spot.content_start) as usize;
        Ok(self.block.as_ref().map_or(&[], |(_, task)| &task.contents[from..]))
    }
}

const LOST: Error = Error::Internal { what: "a block was lost" };

/// Where a block finds what it repeats.
struct BlocksBefore<'a, R: Read + Seek> {
    reader: &'a mut SeekableReader<R>,
    recent: Recent,
    /// Number of the block's frame.
    frame: usize,
}

impl<R: Read + Seek> Sources for BlocksBefore<'_, R> {
    fn own_bytes(&mut self, number: u64) -> Result<Option<&[u8]>, Error> {
        let Self { reader, recent, frame } = self;
        let own = recent.get_or_load(*frame as u64, number, || {
            let spot = Spot { frame: *frame, block: number, content_start: 0 };
            let mut task = DecodeTask::default();
            reader.read_block(&spot, 0, &mut task)?;
            task.into_own_bytes(&*reader.engine)
        })?;
        Ok(Some(own))
    }
}

impl<R: Read + Seek> Read for SeekableReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let part = self.part()?;
        let n = part.len().min(buf.len());
        buf[..n].copy_from_slice(&part[..n]);
        self.position += n as u64;
        Ok(n)
    }
}

impl<R: Read + Seek> Seek for SeekableReader<R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = sought(to, self.len, self.position)?;
        Ok(self.position)
    }
}
