//! Compresses a stream.
//!
//! | module | what |
//! |---|---|
//! | `plan` | what follows from the options, before anything is encoded |
//! | `boundaries` | where frames end if the contents decide |
//! | `auto_finish` | an encoder that finishes when it is dropped |

mod auto_finish;
mod boundaries;
mod plan;
#[cfg(test)]
mod tests;

use std::io::{self, Read, Write};
use std::ops::Range;
use std::sync::Arc;

use super::frame_writer::FrameWriter;
use super::places::ReadAt;
use super::tasks::{EncodeTask, Origin};
use super::turns::Turns;
use crate::clock::Instant;
use crate::codec::Recipe;
use crate::codec::filter::{Filter, LOOKED_AT};
use crate::error::Error;
use crate::format::MAX_BLOCKS;
use crate::gpu::coder::BlockTask;
use crate::pipeline::auto_session::AutoSession;
use crate::pipeline::flow::Flow;
use crate::pipeline::gpu::{Accelerator, Job};
use crate::pipeline::memory::Cost;
use crate::pipeline::scheduler::Task;
use crate::pipeline::{Gpu, Options};
use crate::process::Owner;

pub use auto_finish::AutoFinishEncoder;
pub(in crate::stream) use boundaries::MIN_BOUNDARY_DISTANCE;
use boundaries::{Boundaries, fill};
pub(crate) use plan::EncodeBasis;
pub(in crate::stream) use plan::EncodePlan;

/// Compresses all that is written to it, and writes the result to `W`.
///
/// Threads compress blocks while the calling thread goes on writing. Only [`Encoder::finish`] completes the output.
/// Dropping an encoder leaves a truncated file behind; see [`Encoder::auto_finish`].
///
/// `flush` compresses and writes all input so far, so that a reader of the output can have all of it. It ends the
/// current block and frame early, so many flushes make the output larger. `flush` only writes full blocks if
/// [`Options::flush_ends_block`] is off, or if a length of more than a block was declared.
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
    options: Options,
    recipe: Recipe,
    /// Whether a block has been submitted.
    has_begun: bool,
    block_size: usize,
    cost: Cost,
    /// Starts threads when a second block shows that there is work for them.
    flow: Flow<EncodeTask>,
    auto_session: Option<AutoSession>,
    frames: FrameWriter,
    /// The block being filled, and its length so far.
    current: Option<EncodeTask>,
    filled: usize,
    /// Blocks submitted since the start, or since the last flush that ended a frame.
    submitted: u64,
    bytes_in: u64,
    /// Finds the ends of frames, if the contents decide them.
    boundaries: Option<Boundaries>,
    failed: bool,
    owner: Owner,
    /// Gives each block its turn to look for distant matches, if there are to be any.
    turns: Option<Turns>,
}

impl<W: Write> Encoder<W> {
    /// Prepares to write to `writer`. Nothing is written yet.
    ///
    /// # Errors
    /// [`Error::InvalidBlockSize`], [`Error::InvalidWindow`], or [`Error::LimitMemory`] if one block at a time needs
    /// more memory than the options permit.
    pub fn new(writer: W, options: &Options) -> Result<Self, Error> {
        let plan = EncodePlan::new(options, options.content_size)?;
        Ok(Self::with_plan(writer, plan, options))
    }

    pub(crate) fn with_plan(writer: W, plan: EncodePlan, options: &Options) -> Self {
        let EncodePlan { header, recipe, cost, flow, auto_session, statistics, finder } = plan;
        let mut options = options.clone();
        // A flush must not end a frame before the length that its header declares.
        options.flush_ends_block &= header.content_size.is_none();
        options.resources.statistics = statistics;
        let boundaries = options.rsyncable.then(Boundaries::default);
        Self {
            writer,
            options,
            recipe,
            has_begun: false,
            block_size: header.block_size(),
            cost,
            flow,
            auto_session,
            frames: FrameWriter::new(header),
            current: None,
            filled: 0,
            submitted: 0,
            bytes_in: 0,
            boundaries,
            failed: false,
            owner: Owner::here(),
            turns: finder.map(Turns::new),
        }
    }

    /// Compresses all of `reader`, reading straight into the blocks' buffers. Returns the number of bytes.
    ///
    /// # Errors
    /// The errors of reading and writing, and [`Error::Changed`] if the input exceeds its declared length. After an
    /// error the encoder is unusable.
    ///
    /// ```
    /// let mut encoder = pz::Encoder::new(Vec::new(), &pz::Options::new())?;
    /// assert_eq!(encoder.read_from(&mut &b"everything"[..])?, 10);
    /// # encoder.finish()?;
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn read_from(&mut self, reader: &mut (impl Read + ?Sized)) -> Result<u64, Error> {
        let mut total = 0;
        if self.boundaries.is_some() {
            return self.write_from(|buffer| fill(reader, buffer));
        }
        loop {
            if self.may_be_whole_frame() {
                // Look for more input: without any, the block is the whole frame.
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
            self.make_room(self.block_size)?;
            let Some(task) = &mut self.current else { return Err(NO_BLOCK) };
            let from = self.filled;
            // After an error of reading, `finish` must not take the part read so far for the whole input.
            self.failed = true;
            let begun = Instant::now();
            self.filled = task.contents.fill_from(reader, from)?;
            if let Some(statistics) = &self.options.resources.statistics {
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

    /// Compresses `range` of `input`. The threads that compress its blocks also read them.
    ///
    /// # Errors
    /// The errors of reading and writing, and [`Error::Changed`] if the input exceeds its declared length. Later calls
    /// may return errors of reading this range. After an error the encoder is unusable.
    pub fn read_range(&mut self, input: &Arc<dyn ReadAt>, range: Range<u64>) -> Result<(), Error> {
        let Range { start: mut offset, end } = range;
        if self.boundaries.is_some() {
            self.write_from(|buffer| {
                let n = (end.saturating_sub(offset)).min(buffer.len() as u64) as usize;
                input.read_exact_at(&mut buffer[..n], offset)?;
                offset += n as u64;
                Ok(n)
            })?;
            return Ok(());
        }
        while offset < end {
            // A short range gets a short buffer. If more input follows, `settle` enlarges it.
            self.make_room((end - offset).min(self.block_size as u64) as usize)?;
            let Some(task) = &mut self.current else { return Err(NO_BLOCK) };
            let from = self.filled;
            let n = (end - offset).min((self.block_size - from) as u64);
            let filled = from + n as usize;
            if from == 0 {
                let (input, statistics) =
                    (Arc::clone(input), self.options.resources.statistics.clone());
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

    /// Compresses the remaining input, ends the last frame, flushes, and returns the writer.
    ///
    /// # Errors
    /// The errors of writing, and [`Error::Changed`] if the input is shorter than its declared length.
    pub fn finish(mut self) -> Result<W, Error> {
        self.finish_by_ref()?;
        Ok(self.writer)
    }

    /// Turns this into an encoder that finishes when it is dropped. Dropping loses errors: call
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

    /// Like [`Encoder::finish`]. After an error the encoder is unusable.
    pub(crate) fn finish_by_ref(&mut self) -> Result<(), Error> {
        self.check_failed()?;
        if let Some(declared) = self.options.content_size
            && declared != self.bytes_in
        {
            return Err(Error::Changed { declared, seen: self.bytes_in });
        }
        self.end_block()?;
        self.flow.end();
        self.emit_all()?;
        self.frames.finish(&mut self.writer)?;
        self.writer.flush()?;
        if let Some(session) = &self.auto_session {
            session.learn();
        }
        Ok(())
    }

    /// Ends the frame with the current block, if there is one.
    fn last_block(&mut self) -> Option<EncodeTask> {
        let mut task = self.current.take()?;
        if self.filled == 0 {
            self.flow.keep_idle(task);
            return None;
        }
        task.contents.truncate(self.filled);
        task.is_last = true;
        self.filled = 0;
        Some(task)
    }

    /// Submits the current block as it is, or encodes it here. Its frame ends with it.
    fn end_block(&mut self) -> Result<(), Error> {
        let Some(mut task) = self.last_block() else { return Ok(()) };
        self.set_recipe(&mut task);
        self.set_place(&mut task);
        self.submitted = 0;
        if self.flow.has_begun() {
            self.flow.submit(task);
            return Ok(());
        }
        EncodeTask::run(std::slice::from_mut(&mut task), &**self.flow.engine());
        self.emit(task)
    }

    /// Writes all blocks that have been submitted.
    fn emit_all(&mut self) -> Result<(), Error> {
        while let Some(task) = self.flow.next() {
            self.emit(task)?;
        }
        Ok(())
    }

    /// Bytes of contents received so far.
    pub fn bytes_in(&self) -> u64 {
        self.bytes_in
    }

    /// Compressed bytes written so far.
    pub fn bytes_out(&self) -> u64 {
        self.frames.written()
    }

    /// The writer.
    pub fn get_ref(&self) -> &W {
        &self.writer
    }

    /// Whether the current block is full and may be a whole frame, which would be written in another form.
    fn may_be_whole_frame(&self) -> bool {
        self.filled == self.block_size
            && self.current.is_some()
            && self.submitted.is_multiple_of(MAX_BLOCKS)
    }

    /// Makes room for at least one byte in `current`, whose contents so far are in memory afterwards. A new block gets
    /// room for `len` bytes.
    fn make_room(&mut self, len: usize) -> Result<(), Error> {
        self.check_failed()?;
        if self.filled == self.block_size
            && let Some(task) = self.current.take()
        {
            self.submit(task)?;
        }
        if self.current.is_none() {
            let mut task = self.flow.take_idle().unwrap_or_default();
            task.reset();
            task.contents.set_len(len).map_err(|fault| fault.at(Default::default()))?;
            self.current = Some(task);
            self.filled = 0;
        }
        self.settle()
    }

    /// Reads the current block's contents so far if a worker was to read them, so that more input can follow.
    fn settle(&mut self) -> Result<(), Error> {
        let Some(task) = self.current.as_mut().filter(|task| task.origin.is_some()) else {
            return Ok(());
        };
        self.failed = true;
        // Growing a buffer loses its contents, so grow it before reading into it.
        task.contents.set_len(self.block_size).map_err(|fault| fault.at(Default::default()))?;
        task.contents.truncate(self.filled);
        task.read();
        task.contents.set_len(self.block_size).map_err(|fault| fault.at(Default::default()))?;
        task.take_unprepared()?;
        self.failed = false;
        Ok(())
    }

    /// Sets how to encode a block. The first block decides it for all.
    fn set_recipe(&mut self, task: &mut EncodeTask) {
        if !self.has_begun && self.recipe.filter == Filter::Auto {
            self.recipe = match &task.origin {
                None => self.recipe.hinted_by(&task.contents),
                // A worker will read the block. If this read fails, so will the worker's, which reports the error.
                Some(Origin { input, offset, .. }) => {
                    let mut beginning = vec![0; task.contents.len().min(LOOKED_AT)];
                    match input.read_exact_at(&mut beginning, *offset) {
                        Ok(()) => self.recipe.hinted_by(&beginning),
                        Err(_) => self.recipe,
                    }
                }
            };
        }
        self.has_begun = true;
        task.recipe = self.recipe;
    }

    /// Sets the block's place in its frame, and gives it its turn to look for distant matches.
    fn set_place(&mut self, task: &mut EncodeTask) {
        task.number = self.submitted % MAX_BLOCKS;
        task.position = task.number * self.block_size as u64;
        task.turn = self.turns.as_mut().map(Turns::give);
    }

    /// Submits a block to the workers, and writes blocks that they have finished.
    fn submit(&mut self, mut task: EncodeTask) -> Result<(), Error> {
        self.set_recipe(&mut task);
        self.set_place(&mut task);
        self.submitted = if task.is_last { 0 } else { self.submitted + 1 };
        self.flow.submit(task);
        // The block that the caller fills next counts as one in flight.
        while let Some(task) = self.flow.next_if_due() {
            self.emit(task)?;
        }
        match self.auto_session.as_mut().and_then(|session| session.look(self.bytes_in)) {
            Some(gpu) => self.join(&gpu),
            None => Ok(()),
        }
    }

    /// Lets a GPU join the workers.
    fn join(&mut self, gpu: &Gpu) -> Result<(), Error> {
        self.emit_all()?;
        let Self { recipe, block_size, cost, flow, options, .. } = self;
        let job = Job {
            work: BlockTask::Encode { recipe: *recipe, verify: options.verify },
            block_len: *block_size as u32,
            bytes: None,
            cost,
            memory: options.resources.memory,
            statistics: options.resources.statistics.as_ref(),
            learned: None,
        };
        flow.join(|share| Accelerator::new(gpu, job, share));
        Ok(())
    }

    fn emit(&mut self, mut task: EncodeTask) -> Result<(), Error> {
        let begun = Instant::now();
        let coded = task.coded(self.frames.modules());
        let written = coded.and_then(|coded| {
            let (contents, payload) = (&task.contents, &task.payload);
            let (writer, is_last) = (&mut self.writer, task.is_last);
            match task.taken_out() {
                None => self.frames.block(writer, coded, contents, payload, is_last),
                Some(taken) => {
                    self.frames.own_bytes(writer, coded, contents, payload, taken, is_last)
                }
            }
        });
        if let Some(statistics) = &self.options.resources.statistics {
            statistics.written_since(begun);
        }
        self.flow.keep_idle(task);
        // The caller fills one of them next.
        self.flow.give_back(1);
        self.failed |= written.is_err();
        written
    }

    fn count_in(&mut self, n: u64) -> Result<(), Error> {
        self.bytes_in += n;
        match self.options.content_size {
            Some(declared) if self.bytes_in > declared => {
                self.failed = true;
                Err(Error::Changed { declared, seen: self.bytes_in })
            }
            _ => Ok(()),
        }
    }

    fn check_failed(&self) -> Result<(), Error> {
        if !self.owner.is_here() {
            return Err(Error::Forked);
        }
        match self.failed {
            true => Err(Error::Io(io::Error::other(
                "the output is incomplete, because writing it failed",
            ))),
            false => Ok(()),
        }
    }
}

const NO_BLOCK: Error = Error::Internal { what: "there is no block to fill" };

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        self.make_room(self.block_size)?;
        let Some(task) = &mut self.current else { return Err(NO_BLOCK.into()) };
        let room = buf.len().min(self.block_size - self.filled);
        let found = self.boundaries.as_mut().and_then(|places| places.find(&buf[..room]));
        let n = found.unwrap_or(room);
        task.contents[self.filled..self.filled + n].copy_from_slice(&buf[..n]);
        self.filled += n;
        self.count_in(n as u64)?;
        if found.is_some()
            && let Some(task) = self.last_block()
        {
            self.submit(task)?;
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.check_failed()?;
        if self.options.flush_ends_block {
            self.end_block()?;
        }
        self.emit_all()?;
        self.writer.flush()
    }
}
