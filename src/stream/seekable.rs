//! Random access through the index.

use std::collections::VecDeque;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;
use std::sync::Arc;

use super::block::{BlockId, Layout, Located, ReadRun, Recent};
use super::decoder;
use super::directory::FrameEntry;
use super::places::{ReadAt, ReadAtCursor, sought};
use super::tasks::DecodeTask;
use crate::error::Error;
use crate::pipeline::DecodeOptions;
use crate::pipeline::buffer::Buffer;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::Engine;
use crate::pipeline::flow::Flow;
use crate::pipeline::memory::{Cost, Share};
use crate::pipeline::modules::{FrameModules, LastModules};
use crate::pipeline::statistics::Counted;

/// Reads any part of the contents of a file. It only decodes the blocks that hold the part.
///
/// `Read` and `Seek` work on the contents; the reader keeps the last block. [`SeekableReader::copy_range`] decodes a
/// whole range in parallel, also on a GPU if the options name one, and reads adjacent blocks at once. If reads are
/// slow, as over a network, open the file with [`SeekableReader::open`].
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
    layout: Layout,
    position: u64,
    /// The modules of the frame of the last block read.
    modules: LastModules,
    /// The last block read.
    block: Option<(BlockId, DecodeTask)>,
    /// Neighbouring blocks that were read at once.
    run: ReadRun,
    /// The most bytes to read at once.
    max_run: u64,
    /// Blocks that distant matches repeat.
    recent: Recent,
}

/// The most bytes to read at once, if memory permits.
const MAX_RUN: u64 = 8 << 20;

impl SeekableReader<ReadAtCursor> {
    /// Reads and checks the headers, indices and footers of all frames of `source`. For a file of one frame, as
    /// [`Encoder`](crate::Encoder) writes it, that takes two reads of `source`, or three if the index is long. Then a
    /// range takes one read, if its blocks together have at most 8 MiB and the options permit the memory.
    ///
    /// # Errors
    /// The errors of [`SeekableReader::new`].
    ///
    /// ```
    /// use std::sync::Arc;
    /// let compressed = pz::compress(b"one two three", &pz::Options::new())?;
    /// let mut reader = pz::SeekableReader::open(Arc::new(compressed), &pz::DecodeOptions::new())?;
    /// let mut word = Vec::new();
    /// reader.copy_range(4..7, &mut word)?;
    /// assert_eq!(word, b"two");
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn open(source: Arc<dyn ReadAt>, options: &DecodeOptions) -> Result<Self, Error> {
        Self::new(ReadAtCursor::new(source), options)
    }
}

impl<R: Read + Seek> SeekableReader<R> {
    /// Reads and checks the headers, indices and footers of all frames.
    ///
    /// # Errors
    /// The errors of reading; the first fault of the file, with its place; [`Error::LimitMemory`] if a frame's blocks
    /// need more than the options permit; [`Error::LimitOutput`] if the contents are longer than they permit.
    pub fn new(mut reader: R, options: &DecodeOptions) -> Result<Self, Error> {
        let layout = Layout::read(&mut reader, options, 1)?;
        let seekable = Self {
            reader,
            options: options.clone(),
            engine: Counted::new(
                Arc::new(CpuEngine::new()),
                options.resources.statistics.as_ref(),
                false,
            ),
            layout,
            position: 0,
            modules: LastModules::default(),
            block: None,
            run: ReadRun::default(),
            max_run: 0,
            recent: Recent::default(),
        };
        for frame in seekable.layout.frames() {
            seekable.cost(frame).share(1, options.resources.memory)?;
        }
        for (number, frame) in seekable.layout.frames().iter().enumerate() {
            options.modules.check(&frame.header.modules, seekable.layout.place(number))?;
        }
        Ok(seekable)
    }

    /// Length in bytes of the contents of all frames together.
    pub fn len(&self) -> u64 {
        self.layout.len()
    }

    /// The largest block size of all frames, in bytes of contents. A read decodes whole blocks.
    pub fn block_size(&self) -> u64 {
        let sizes = self.layout.frames().iter().map(|frame| frame.header.block_size() as u64);
        sizes.max().unwrap_or(0)
    }

    /// Whether the contents are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
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
        if !self.layout.contains(&range) {
            return Err(Error::InvalidRange { start, end, len: self.len() });
        }
        // Free its memory for the blocks in flight.
        self.block = None;
        let mut flow = Flow::new(Arc::clone(&self.engine), Share::ALONE, None);
        // The cost of the blocks in flight, and which of their bytes are wanted.
        let (mut cost, mut wanted) = (None, VecDeque::new());
        let mut left = range;
        while !left.is_empty() || !wanted.is_empty() {
            let first = self.layout.first(&left);
            let frame = first.as_ref().map(|(id, _)| &self.layout.frames()[id.frame]);
            let needed = frame.map(|frame| self.cost(frame));
            // A block that needs other memory waits until all earlier ones are done.
            let other = needed.is_some() && needed != cost;
            if let Some((id, within)) = first
                && flow.has_room()
                && (!other || wanted.is_empty())
            {
                if other && let Some(needed) = needed {
                    self.adapt(&mut flow, needed, id.frame, end - start)?;
                    cost = Some(needed);
                }
                let idle = flow.take_idle();
                let mut task = idle.unwrap_or_else(|| DecodeTask::new(flow.pool()));
                self.read_block(id, end, &mut task)?;
                left.start += within.len() as u64;
                wanted.push_back((id.frame, within));
                flow.submit(task);
                if left.is_empty() {
                    flow.end();
                }
                continue;
            }
            let (Some(mut task), Some((frame, within))) = (flow.next(), wanted.pop_front()) else {
                return Err(LOST);
            };
            self.finish(&mut task, frame)?;
            writer.write_all(task.contents.get(within).ok_or(LOST)?)?;
            task.release();
            flow.keep_idle(task);
            flow.give_back(0);
        }
        self.run.clear();
        Ok(())
    }

    /// Prepares `flow` for blocks of this frame, which cost `needed`. No block may be in flight.
    fn adapt(
        &mut self,
        flow: &mut Flow<DecodeTask>,
        needed: Cost,
        frame: usize,
        range_len: u64,
    ) -> Result<(), Error> {
        let (header, limit) = (&self.layout.frames()[frame].header, self.options.resources.memory);
        self.max_run = (limit.saturating_sub(needed.least()) / 4).min(MAX_RUN);
        let with_run = Cost { fixed: needed.fixed + self.max_run, ..needed };
        let mut share = with_run.share(self.options.resources.threads, limit)?;
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
        // The index is in memory as read and as parsed. Round up, so that similar frames cost the same.
        let index = 12 * frame.block_count().next_multiple_of(1 << 12);
        let cost = Cost::keeping(&*self.engine, &frame.header, Recent::memory(&frame.header));
        Cost { fixed: cost.fixed + self.layout.memory() + index, ..cost }
    }

    /// Completes a decoded block of this frame.
    fn finish(&mut self, task: &mut DecodeTask, frame: usize) -> Result<(), Error> {
        let mut recent = std::mem::take(&mut self.recent);
        let finished = task.finish(&mut recent.sources(frame as u64, |number| {
            let mut bytes = Buffer::default();
            let block = self.fetch(BlockId { frame, number }, 0, &mut bytes)?;
            let modules = self.modules(frame)?;
            let of_frame = &self.layout.frames()[frame];
            let own = block.block(of_frame, &bytes, modules.as_deref())?.own_bytes(&*self.engine);
            own.map_err(|fault| fault.at(block.place))
        }));
        self.recent = recent;
        finished
    }

    /// Reads a block to `bytes`, and with the same read later blocks that hold contents before byte `end`. Returns
    /// where the block lies.
    fn fetch(&mut self, id: BlockId, end: u64, bytes: &mut Buffer) -> Result<Located, Error> {
        let Self { reader, layout, run, max_run, .. } = self;
        let read = &mut |offset, into: &mut [u8]| {
            reader.seek(SeekFrom::Start(offset))?;
            reader.read_exact(into)
        };
        let block = layout.locate(id, read)?;
        let len = layout.run_len(&block, end, *max_run);
        run.fetch(&block, len, reader, bytes).map_err(|fault| fault.at(block.place))?;
        Ok(block)
    }

    /// Makes what runs the modules of this frame, if it has any.
    fn modules(&mut self, frame: usize) -> Result<Option<Arc<FrameModules>>, Error> {
        let (table, place) =
            (&self.layout.frames()[frame].header.modules, self.layout.place(frame));
        self.modules.of(table, &self.options.modules, place)
    }

    /// Reads a block, as [`fetch`](Self::fetch) does, and gives it to `task`.
    fn read_block(&mut self, id: BlockId, end: u64, task: &mut DecodeTask) -> Result<(), Error> {
        let block = self.fetch(id, end, &mut task.payload)?;
        let frame = &self.layout.frames()[id.frame];
        let header = block.open(frame, &task.payload).map_err(|fault| fault.at(block.place))?;
        task.set_payload_at(block.header_len(&header), header, block.place);
        task.reach = frame.header.reach;
        task.modules = self.modules(id.frame)?;
        Ok(())
    }

    /// The contents from the position to the end of its block.
    fn part(&mut self) -> Result<&[u8], Error> {
        let Some((id, within)) = self.layout.first(&(self.position..self.len())) else {
            return Ok(&[]);
        };
        if self.block.as_ref().is_none_or(|(held, _)| *held != id) {
            let mut task = self.block.take().map(|(_, task)| task).unwrap_or_default();
            self.read_block(id, 0, &mut task)?;
            let mut flow = Flow::new(Arc::clone(&self.engine), Share::ALONE, None);
            flow.submit(task);
            let mut task = flow.next().ok_or(LOST)?;
            self.finish(&mut task, id.frame)?;
            self.block = Some((id, task));
        }
        Ok(self.block.as_ref().map_or(&[], |(_, task)| &task.contents[within.start..]))
    }
}

const LOST: Error = Error::Internal { what: "a block was lost" };

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
        self.position = sought(to, self.len(), self.position)?;
        Ok(self.position)
    }
}
