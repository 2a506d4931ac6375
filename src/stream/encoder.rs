//! Compression of a stream.

use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::frame_writer::FrameWriter;
use super::places::ReadAt;
use super::tasks::{EncodeTask, Origin};
use crate::codec::Recipe;
use crate::error::Error;
use crate::format::{FrameHeader, MAX_BLOCKS};
use crate::gpu::coder::Work;
use crate::pipeline::auto_session::AutoSession;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::Engine;
use crate::pipeline::gpu::Accelerator;
use crate::pipeline::memory::{Cost, Share};
use crate::pipeline::scheduler::{Scheduler, Task};
use crate::pipeline::statistics::{Counted, Statistics};
use crate::pipeline::workload::Workload;
use crate::pipeline::{Gpu, Options};

/// Compresses what is written to it onto `W`.
///
/// Blocks are compressed by as many threads as the options say while the calling thread goes on writing. Nothing is
/// complete before [`Encoder::finish`]: an encoder that is dropped leaves a truncated file behind; see
/// [`Encoder::auto_finish`].
///
/// `flush` compresses what has been written so far and passes it on, so that whoever reads the output has all of it: the
/// present block ends short, and a frame with it. Many flushes make the output larger. Two things let it pass on whole
/// blocks only: [`Options::flush_ends_block`], and a length of more than a block that has been declared.
///
/// ```
/// use std::io::Write;
/// let mut encoder = pz::Encoder::new(Vec::new(), &pz::Options::new())?;
/// encoder.write_all(b"any number of times")?;
/// let compressed = encoder.finish()?;
/// assert_eq!(pz::decompress(&compressed, &pz::DecodeOptions::new())?, b"any number of times");
/// # Ok::<(), pz::Error>(())
/// ```
pub struct Encoder<W: Write> {
    writer: W,
    recipe: Recipe,
    block_size: usize,
    cost: Cost,
    memory: u64,
    verify: bool,
    share: Share,
    engine: Arc<dyn Engine>,
    accelerator: Option<Accelerator>,
    job: Option<AutoSession>,
    /// Made when a second block shows that there is work for it.
    scheduler: Option<Scheduler<EncodeTask>>,
    frames: FrameWriter,
    /// The block being filled, and how far it is.
    current: Option<EncodeTask>,
    filled: usize,
    /// Blocks that have been submitted since a frame began at a place that the caller chose.
    submitted: u64,
    idle: Vec<EncodeTask>,
    bytes_in: u64,
    declared: Option<u64>,
    flush_ends_block: bool,
    failed: bool,
    statistics: Option<Statistics>,
}

impl<W: Write> Encoder<W> {
    /// Prepares to write to `writer`; nothing is written yet.
    ///
    /// # Errors
    /// [`Error::InvalidBlockSize`], [`Error::InvalidWindow`], or [`Error::LimitMemory`] if one block at a time takes
    /// more than the options permit.
    pub fn new(writer: W, options: &Options) -> Result<Self, Error> {
        let plan = Plan::new(options, options.content_size)?;
        Ok(Self::with_plan(writer, plan, options))
    }

    pub(crate) fn with_plan(writer: W, plan: Plan, options: &Options) -> Self {
        Self {
            writer,
            recipe: plan.recipe,
            block_size: plan.header.block_size(),
            cost: plan.cost,
            memory: options.memory,
            verify: options.verify,
            share: plan.share,
            engine: plan.engine,
            accelerator: plan.accelerator,
            job: plan.job,
            scheduler: None,
            frames: FrameWriter::new(plan.header),
            current: None,
            filled: 0,
            submitted: 0,
            idle: Vec::new(),
            bytes_in: 0,
            declared: options.content_size,
            // A length in the header of a frame must hold.
            flush_ends_block: options.flush_ends_block && plan.header.content_size.is_none(),
            failed: false,
            statistics: plan.statistics,
        }
    }

    /// Compresses all of `reader`, read straight into the blocks' buffers; gives the number of bytes.
    ///
    /// # Errors
    /// Those of reading and writing, and [`Error::Changed`] if more comes than was declared. After any of them the
    /// encoder is of no more use.
    ///
    /// ```
    /// let mut encoder = pz::Encoder::new(Vec::new(), &pz::Options::new())?;
    /// assert_eq!(encoder.read_from(&mut &b"everything"[..])?, 10);
    /// # encoder.finish()?;
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn read_from(&mut self, reader: &mut (impl Read + ?Sized)) -> Result<u64, Error> {
        let mut total = 0;
        loop {
            if self.may_be_whole_frame() {
                // Whether the block is the whole frame shows only when the input goes on.
                let mut next = [0];
                self.failed = true;
                let n = fill(reader, &mut next)?;
                self.failed = false;
                if n == 0 {
                    return Ok(total);
                }
                self.write_all(&next)?;
                total += 1;
            }
            self.room()?;
            self.settle()?;
            let Some(task) = &mut self.current else { return Err(NO_BLOCK) };
            let from = self.filled;
            // A part of the input must not pass for the whole.
            self.failed = true;
            let begun = Instant::now();
            self.filled = task.contents.fill_from(reader, from)?;
            if let Some(statistics) = &self.statistics {
                statistics.read_since(begun);
            }
            self.failed = false;
            let n = (self.filled - from) as u64;
            total += n;
            self.count_in(n)?;
            if self.filled < self.block_size {
                return Ok(total);
            }
        }
    }

    /// Compresses `range` of `input`, whose blocks are read by the threads that compress them.
    ///
    /// # Errors
    /// Those of reading and writing, and [`Error::Changed`] if more comes than was declared. That a part cannot be read
    /// may show later. After any of them the encoder is of no more use.
    pub fn read_range(&mut self, input: &Arc<dyn ReadAt>, range: Range<u64>) -> Result<(), Error> {
        let Range { start: mut offset, end } = range;
        while offset < end {
            // A short range takes no more memory than it needs; `settle` makes room for what may follow it.
            self.room_for((end - offset).min(self.block_size as u64) as usize)?;
            self.settle()?;
            let Some(task) = &mut self.current else { return Err(NO_BLOCK) };
            let from = self.filled;
            let n = (end - offset).min((self.block_size - from) as u64);
            let filled = from + n as usize;
            if from == 0 {
                let (input, statistics) = (Arc::clone(input), self.statistics.clone());
                task.origin = Some(Origin { input, offset, statistics });
            } else {
                self.failed = true;
                input.read_exact_at(&mut task.contents[from..filled], offset)?;
                self.failed = false;
            }
            self.filled = filled;
            offset += n;
            self.count_in(n)?;
        }
        Ok(())
    }

    /// Compresses what is left, ends the last frame, flushes, and gives back the writer.
    ///
    /// # Errors
    /// Those of writing, and [`Error::Changed`] if less came than was declared.
    pub fn finish(mut self) -> Result<W, Error> {
        self.finish_by_ref()?;
        Ok(self.writer)
    }

    /// An encoder that finishes when it is dropped. Errors of finishing are lost then: call
    /// [`AutoFinishEncoder::finish`] where they matter.
    ///
    /// ```
    /// use std::io::Write;
    /// let mut compressed = Vec::new();
    /// {
    ///     let encoder = pz::Encoder::new(&mut compressed, &pz::Options::new())?;
    ///     encoder.auto_finish().write_all(b"some contents")?;
    /// }
    /// assert_eq!(pz::decompress(&compressed, &pz::DecodeOptions::new())?, b"some contents");
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn auto_finish(self) -> AutoFinishEncoder<W> {
        AutoFinishEncoder { encoder: Some(self) }
    }

    /// The same as [`Encoder::finish`]. After an error the encoder is of no more use.
    pub(crate) fn finish_by_ref(&mut self) -> Result<(), Error> {
        self.check_failed()?;
        if let Some(declared) = self.declared
            && declared != self.bytes_in
        {
            return Err(Error::Changed { declared, seen: self.bytes_in });
        }
        self.end_block()?;
        self.scheduler.iter_mut().for_each(Scheduler::end);
        self.emit_all()?;
        self.frames.finish(&mut self.writer)?;
        self.writer.flush()?;
        if let Some(job) = &self.job {
            job.learn();
        }
        Ok(())
    }

    /// Has the present block compressed as it is: its frame ends with it.
    fn end_block(&mut self) -> Result<(), Error> {
        let Some(mut task) = self.current.take() else { return Ok(()) };
        if self.filled == 0 {
            self.idle.push(task);
            return Ok(());
        }
        task.contents.truncate(self.filled);
        task.is_last = true;
        self.filled = 0;
        self.submitted = 0;
        if self.scheduler.is_some() || self.accelerator.is_some() {
            self.scheduler().submit(task);
            return Ok(());
        }
        EncodeTask::run(std::slice::from_mut(&mut task), &*self.engine);
        self.emit(task)
    }

    /// Writes every block that has been handed to the workers.
    fn emit_all(&mut self) -> Result<(), Error> {
        while let Some(task) = self.scheduler.as_mut().and_then(Scheduler::next) {
            self.emit(task)?;
        }
        Ok(())
    }

    /// Bytes of contents taken so far.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in
    }

    /// Compressed bytes given to the writer so far.
    pub fn bytes_out(&self) -> u64 {
        self.frames.written()
    }

    /// The writer.
    pub fn get_ref(&self) -> &W {
        &self.writer
    }

    /// Whether the present block is full and would be the first of its frame: it is written in another way if it is the
    /// last, too.
    fn may_be_whole_frame(&self) -> bool {
        self.filled == self.block_size
            && self.current.is_some()
            && self.submitted.is_multiple_of(MAX_BLOCKS)
    }

    /// Makes sure that `current` has room for a byte.
    fn room(&mut self) -> Result<(), Error> {
        self.room_for(self.block_size)
    }

    /// Makes sure that `current` has room for a byte, and a new block for `len` bytes.
    fn room_for(&mut self, len: usize) -> Result<(), Error> {
        self.check_failed()?;
        if self.filled == self.block_size
            && let Some(task) = self.current.take()
        {
            self.submit(task)?;
        }
        if self.current.is_none() {
            let mut task = self.idle.pop().unwrap_or_default();
            task.reset();
            task.recipe = self.recipe;
            task.contents.set_len(len).map_err(|fault| fault.at(Default::default()))?;
            self.current = Some(task);
            self.filled = 0;
        }
        Ok(())
    }

    /// Reads what there is of the present block, if its contents are still to be read, so that more can follow.
    fn settle(&mut self) -> Result<(), Error> {
        let Some(task) = self.current.as_mut().filter(|task| task.origin.is_some()) else {
            return Ok(());
        };
        self.failed = true;
        // Growing loses what a buffer holds: it grows before it is read into.
        task.contents.set_len(self.block_size).map_err(|fault| fault.at(Default::default()))?;
        task.contents.truncate(self.filled);
        task.read();
        task.contents.set_len(self.block_size).map_err(|fault| fault.at(Default::default()))?;
        task.take_unreadable()?;
        self.failed = false;
        Ok(())
    }

    /// Hands a block to the workers, and what they have finished to the writer.
    fn submit(&mut self, task: EncodeTask) -> Result<(), Error> {
        self.submitted += 1;
        self.scheduler().submit(task);
        while let Some(scheduler) = &mut self.scheduler {
            // The block that is filled next is in flight too.
            let most = scheduler.most_in_flight(self.share.in_flight);
            let full = scheduler.in_flight() >= most;
            let finished = if full { scheduler.next() } else { scheduler.try_next() };
            match finished {
                Some(task) => self.emit(task)?,
                None => break,
            }
        }
        match self.job.as_mut().and_then(|job| job.look(self.bytes_in)) {
            Some(gpu) => self.join(&gpu),
            None => Ok(()),
        }
    }

    /// Goes on with a GPU beside the workers.
    fn join(&mut self, gpu: &Gpu) -> Result<(), Error> {
        self.emit_all()?;
        self.scheduler = None;
        let work = Work::Encode { recipe: self.recipe, verify: self.verify };
        let host = (&self.cost, &mut self.share, self.memory);
        let statistics = self.statistics.as_ref();
        self.accelerator = Accelerator::new(Some(gpu), work, self.block_size, host, statistics);
        Ok(())
    }

    fn scheduler(&mut self) -> &mut Scheduler<EncodeTask> {
        self.scheduler.get_or_insert_with(|| {
            let engine = Arc::clone(&self.engine);
            Scheduler::with_accelerator(engine, self.share, self.accelerator.as_ref())
        })
    }

    fn emit(&mut self, mut task: EncodeTask) -> Result<(), Error> {
        let begun = Instant::now();
        let coded = task.coded();
        let written = coded.and_then(|coded| {
            let (contents, payload) = (&task.contents, &task.payload);
            self.frames.block(&mut self.writer, coded, contents, payload, task.is_last)
        });
        if let Some(statistics) = &self.statistics {
            statistics.written_since(begun);
        }
        self.idle.push(task);
        if let Some(scheduler) = &self.scheduler
            && let Some(room) = scheduler.awaited_room()
            && scheduler.in_flight() < room
        {
            self.idle.truncate(room - scheduler.in_flight());
            scheduler.make_room();
        }
        self.failed |= written.is_err();
        written
    }

    fn count_in(&mut self, n: u64) -> Result<(), Error> {
        self.bytes_in += n;
        match self.declared {
            Some(declared) if self.bytes_in > declared => {
                self.failed = true;
                Err(Error::Changed { declared, seen: self.bytes_in })
            }
            _ => Ok(()),
        }
    }

    fn check_failed(&self) -> Result<(), Error> {
        match self.failed {
            true => Err(Error::Io(io::Error::other("the output is not whole: writing it failed"))),
            false => Ok(()),
        }
    }
}

/// Reads until `buffer` is full or the input ends; gives the number of bytes.
fn fill(reader: &mut (impl Read + ?Sized), buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match reader.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(n) => filled += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

/// An encoder that finishes when it is dropped; [`Encoder::auto_finish`] makes it.
pub struct AutoFinishEncoder<W: Write> {
    /// `None` when it has been finished.
    encoder: Option<Encoder<W>>,
}

impl<W: Write> AutoFinishEncoder<W> {
    /// Finishes now; gives back the writer.
    ///
    /// # Errors
    /// Those of [`Encoder::finish`].
    pub fn finish(mut self) -> Result<W, Error> {
        self.encoder.take().ok_or(NO_ENCODER)?.finish()
    }
}

impl<W: Write> Write for AutoFinishEncoder<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.encoder.as_mut().ok_or(NO_ENCODER)?.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.as_mut().ok_or(NO_ENCODER)?.flush()
    }
}

impl<W: Write> Drop for AutoFinishEncoder<W> {
    fn drop(&mut self) {
        if let Some(mut encoder) = self.encoder.take() {
            // Nobody is there to be told of an error.
            let _ = encoder.finish_by_ref();
        }
    }
}

const NO_ENCODER: Error = Error::Internal { what: "the encoder has been finished" };
const NO_BLOCK: Error = Error::Internal { what: "there is no block to fill" };

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.room()?;
        self.settle()?;
        let Some(task) = &mut self.current else { return Err(NO_BLOCK.into()) };
        let n = buf.len().min(self.block_size - self.filled);
        task.contents[self.filled..self.filled + n].copy_from_slice(&buf[..n]);
        self.filled += n;
        self.count_in(n as u64)?;
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check_failed()?;
        if self.flush_ends_block {
            self.end_block()?;
        }
        self.emit_all()?;
        self.writer.flush()
    }
}

/// What the options lead to, whatever the input.
pub(crate) struct Basis {
    pub(crate) header: FrameHeader,
    pub(crate) recipe: Recipe,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) cost: Cost,
}

impl Basis {
    /// What the engine does is counted in `statistics`.
    pub(crate) fn new(options: &Options, statistics: Option<&Statistics>) -> Result<Self, Error> {
        let pipeline = options.chosen_pipeline();
        let block_size = options.chosen_block_size()?;
        let header = FrameHeader {
            pipeline,
            block_log: block_size.trailing_zeros() as u8,
            level: options.level.get(),
            // What fits in one block says its length anyway.
            content_size: options.content_size.filter(|&size| size > block_size),
            single: None,
        };
        let recipe = options.recipe()?;
        let engine = Counted::new(Arc::new(CpuEngine::new()), statistics, true);
        let cost = Cost::of_encoding(&*engine, &recipe, header.block_size());
        Ok(Self { header, recipe, engine, cost })
    }
}

/// What the options lead to.
pub(crate) struct Plan {
    pub(crate) header: FrameHeader,
    pub(crate) recipe: Recipe,
    pub(crate) cost: Cost,
    pub(crate) share: Share,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) accelerator: Option<Accelerator>,
    pub(crate) job: Option<AutoSession>,
    pub(crate) statistics: Option<Statistics>,
}

impl Plan {
    /// For an input of `len` bytes, if that is known.
    pub(crate) fn new(options: &Options, len: Option<u64>) -> Result<Self, Error> {
        let mut job = match options.auto.as_ref() {
            Some(auto) => Some(AutoSession::new(
                auto,
                Workload::encoding(options)?,
                options.memory,
                options.statistics.as_ref(),
            )),
            None => None,
        };
        let of_job = job.as_ref().map(AutoSession::statistics);
        let statistics = options.statistics.as_ref().or(of_job).cloned();
        let Basis { header, recipe, engine, cost } = Basis::new(options, statistics.as_ref())?;
        let mut share = cost.share(options.threads, options.memory)?;
        if let Some(size) = options.content_size {
            share.limit_to(header.block_count(size));
        }
        let named = options.gpu.as_ref();
        let gpu = match &mut job {
            Some(job) => job.choose(named, len, share.workers),
            None => named.cloned(),
        };
        let work = Work::Encode { recipe, verify: options.verify };
        let size = header.block_size();
        let host = (&cost, &mut share, options.memory);
        let accelerator = Accelerator::new(gpu.as_ref(), work, size, host, statistics.as_ref())
            .map(|accelerator| accelerator.of_bytes(len));
        let learned = Workload::encoding(options)?;
        let accelerator =
            accelerator.map(|accelerator| accelerator.learned_by(options.auto.as_ref(), learned));
        Ok(Self { header, recipe, cost, share, engine, accelerator, job, statistics })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeOptions, SeekableReader, decompress, list};
    use std::io::Cursor;

    /// Bytes that several threads read; behind their end there is nothing.
    struct Bytes(Vec<u8>);

    impl ReadAt for Bytes {
        fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            let part = self.0.get(offset as usize..).unwrap_or_default();
            let part = part.get(..buffer.len()).ok_or(io::ErrorKind::UnexpectedEof)?;
            buffer.copy_from_slice(part);
            Ok(())
        }
    }

    #[test]
    fn ranges_and_what_is_written_follow_each_other() {
        let contents: Vec<u8> = (0..900_000_u32).map(|i| (i / 999 * i) as u8).collect();
        let input: Arc<dyn ReadAt> = Arc::new(Bytes(contents.clone()));
        for threads in [1, 2, 6] {
            let options = Options::new().block_size(1 << 16).threads(threads);
            let whole = crate::compress(&contents, &options).unwrap();
            for cuts in [[0, 900_000], [131_072, 500_000], [77_777, 77_778], [100_000, 420_000]] {
                let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
                encoder.read_range(&input, 0..cuts[0]).unwrap();
                let (from, to) = (cuts[0] as usize, cuts[1] as usize);
                encoder.write_all(&contents[from..to]).unwrap();
                encoder.read_range(&input, cuts[1]..900_000).unwrap();
                assert_eq!(encoder.bytes_in(), 900_000);
                let file = encoder.finish().unwrap();
                assert!(decompress(&file, &DecodeOptions::new()).unwrap() == contents);
                assert_eq!(file.len().abs_diff(whole.len()) / 64, 0, "{cuts:?}");
            }
            let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
            let read = encoder.read_range(&input, 0..900_001);
            let error = read.and_then(|()| encoder.finish().map(drop)).unwrap_err();
            assert!(matches!(error, Error::Io(e) if e.kind() == io::ErrorKind::UnexpectedEof));
        }
    }

    #[test]
    fn a_full_frame_is_followed_by_another() {
        let contents: Vec<u8> = (0..500_000_u32).map(|i| (i / 999) as u8).collect();
        for declared in [None, Some(contents.len() as u64)] {
            let mut options = Options::new().block_size(1 << 16);
            options.content_size = declared;
            let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
            encoder.frames.set_max_blocks(3);
            encoder.write_all(&contents).unwrap();
            assert_eq!(encoder.bytes_in(), contents.len() as u64);
            let file = encoder.finish().unwrap();
            assert!(decompress(&file, &DecodeOptions::new()).unwrap() == contents);
            let frames = list(&mut Cursor::new(&file), true).unwrap();
            assert_eq!(frames.len(), 3);
            assert_eq!(frames[2].content_size, contents.len() as u64 - (6 << 16));
            assert!(frames.iter().all(|f| f.size_in_header == declared.is_some()));
            let mut reader =
                SeekableReader::new(Cursor::new(&file), &DecodeOptions::new()).unwrap();
            let mut part = Vec::new();
            reader.copy_range(190_000..400_000, &mut part).unwrap();
            assert!(part == contents[190_000..400_000]);
        }
    }
}
