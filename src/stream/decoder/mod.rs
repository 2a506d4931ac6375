//! Decompresses a stream.

#[cfg(test)]
mod tests;

use std::io::{self, BufRead, Read, Seek, Write};
use std::sync::Arc;

use super::block::History;
use super::frame_reader::{Event, FrameReader};
use super::places::{ReadAt, WriteAt};
use super::tasks::{DecodeTask, Origin};
use crate::clock::Instant;
use crate::error::{Error, Place};
use crate::format::{BlockHeader, FrameHeader, least_full_block_len};
use crate::gpu::coder::BlockTask;
use crate::pipeline::DecodeOptions;
use crate::pipeline::auto_session::AutoSession;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::flow::Flow;
use crate::pipeline::gpu::{Accelerator, Job};
use crate::pipeline::memory::{Cost, Share};
use crate::pipeline::modules::LastModules;
use crate::pipeline::statistics::Counted;
use crate::pipeline::workload::Workload;
use crate::process::Owner;

/// Decompresses all frames that it reads from `R`, up to the end of the input.
///
/// A decoder reads ahead: the calling thread reads blocks and uses finished ones, while threads decode others. It
/// checks each block before it passes the contents on, and index, footer and length at the end of each frame. So trust
/// the contents only once the end has been reached without an error. Errors of `Read` wrap an [`Error`].
///
/// ```
/// use std::io::Read;
/// let compressed = pz::compress(b"some contents", &pz::Options::new())?;
/// let mut decoder = pz::Decoder::new(&compressed[..], &pz::DecodeOptions::new())?;
/// let mut text = String::new();
/// decoder.read_to_string(&mut text)?;
/// assert_eq!(text, "some contents");
/// # Ok::<(), pz::Error>(())
/// ```
pub struct Decoder<R: Read> {
    frames: FrameReader<R>,
    options: DecodeOptions,
    /// Header of the current frame, and what decoding its blocks needs.
    header: FrameHeader,
    modules: LastModules,
    cost: Cost,
    flow: Flow<DecodeTask>,
    auto_session: Option<AutoSession>,
    /// Whether a GPU has been chosen. It joins when no block is in flight.
    is_joining: bool,
    /// A frame whose blocks need other memory. It waits until the last frame's blocks are done.
    waiting: Option<FrameHeader>,
    /// The block that the caller is reading, and how many of its bytes the caller has.
    current: Option<(DecodeTask, usize)>,
    /// What the distant matches of later blocks may repeat.
    history: History,
    /// Bytes of contents of all blocks read so far.
    promised: u64,
    bytes_out: u64,
    /// Where threads write the blocks that they decode.
    output: Option<Arc<dyn WriteAt>>,
    /// Where threads read the payloads of the blocks that they decode.
    payloads: Option<Payloads<R>>,
    input: InputState,
    owner: Owner,
}

/// Where other threads read the payloads that the calling thread skips.
struct Payloads<R> {
    input: Arc<dyn ReadAt>,
    /// Where in `input` the decoder began to read.
    start: u64,
    skip: fn(&mut FrameReader<R>, &BlockHeader, Place) -> Result<(), Error>,
}

/// The state of the input.
enum InputState {
    Open,
    Ended,
    /// Reading failed. The caller gets the error after the contents before it.
    Failed(Option<Error>),
}

impl<R: Read> Decoder<R> {
    /// Reads and checks the first frame's header.
    ///
    /// # Errors
    /// The errors of reading; [`Error::NotPz`] and the like if there is no valid header; [`Error::LimitMemory`] if the
    /// frame's blocks need more than the options permit.
    pub fn new(reader: R, options: &DecodeOptions) -> Result<Self, Error> {
        let mut frames = FrameReader::new(reader);
        let Event::Frame(header) = frames.next()? else {
            return Err(Error::Internal { what: "a file does not begin with a frame" });
        };
        let mut options = options.clone();
        let mut auto_session = AutoSession::new(&options.resources, Workload::decoding(&header));
        if let Some(session) = &auto_session {
            options.resources.statistics = Some(session.statistics().clone());
        }
        let statistics = options.resources.statistics.as_ref();
        let engine = Counted::new(Arc::new(CpuEngine::new()), statistics, false);
        let cost = Cost::of_decoding(&*engine, &header);
        let blocks = header.content_size.map(|size| header.block_count(size));
        let mut share =
            cost.share_for(blocks, options.resources.threads, options.resources.memory)?;
        if let Some(session) = &mut auto_session {
            // A header may claim any length. Do not look for a device for more than the input can hold.
            let size = header.content_size.zip(options.input_size);
            let size = size.map(|(declared, len)| declared.min(most_contents(&header, len)));
            options.resources.gpu =
                session.choose(options.resources.gpu.as_ref(), size, share.workers);
        }
        let accelerator = accelerator(&header, &cost, &mut share, &options);
        let mut decoder = Self {
            frames,
            options,
            header: header.clone(),
            modules: LastModules::default(),
            cost,
            flow: Flow::new(engine, share, accelerator),
            auto_session,
            is_joining: false,
            waiting: None,
            current: None,
            history: History::default(),
            promised: 0,
            bytes_out: 0,
            output: None,
            payloads: None,
            input: InputState::Open,
            owner: Owner::here(),
        };
        decoder.begin(header)?;
        Ok(decoder)
    }

    /// Writes the rest of the contents to `writer`, straight from the buffers into which blocks were decoded. Returns
    /// the number of bytes.
    ///
    /// # Errors
    /// The errors of decoding and writing.
    ///
    /// ```
    /// let compressed = pz::compress(b"some contents", &pz::Options::new())?;
    /// let mut contents = Vec::new();
    /// let mut decoder = pz::Decoder::new(&compressed[..], &pz::DecodeOptions::new())?;
    /// assert_eq!(decoder.copy_to(&mut contents)?, 13);
    /// assert_eq!(contents, b"some contents");
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn copy_to(&mut self, writer: &mut (impl Write + ?Sized)) -> Result<u64, Error> {
        let statistics = self.options.resources.statistics.clone();
        self.for_each_part(|part| {
            let begun = Instant::now();
            writer.write_all(part)?;
            if let Some(statistics) = &statistics {
                statistics.written_since(begun);
            }
            Ok(())
        })
    }

    /// Writes the rest of the contents to `output`, each part at its offset in the contents. The threads that decode
    /// blocks also write them. Calls `given` with the length of each written part, in order. Returns the total length.
    ///
    /// # Errors
    /// The errors of decoding and writing. `output` may then contain anything.
    pub fn copy_to_places(
        &mut self,
        output: &Arc<dyn WriteAt>,
        mut given: impl FnMut(u64),
    ) -> Result<u64, Error> {
        self.output = Some(Arc::clone(output));
        let mut total = 0;
        loop {
            let at = self.bytes_out;
            if self.part()?.is_none() {
                return Ok(total);
            }
            let Some((task, given_of_it)) = &mut self.current else { return Ok(total) };
            match task.written.take() {
                Some(written) => written?,
                // This block was submitted before threads were asked to write.
                None => output.write_all_at(&task.contents[*given_of_it..], at)?,
            }
            let n = task.contents.len() - *given_of_it;
            self.advance(n);
            total += n as u64;
            given(n as u64);
        }
    }

    /// Decodes and checks the rest without keeping it. Returns the number of bytes.
    ///
    /// # Errors
    /// The errors of decoding.
    ///
    /// ```
    /// let compressed = pz::compress(b"some contents", &pz::Options::new())?;
    /// let mut decoder = pz::Decoder::new(&compressed[..], &pz::DecodeOptions::new())?;
    /// assert_eq!(decoder.verify()?, 13);
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn verify(&mut self) -> Result<u64, Error> {
        self.for_each_part(|_| Ok(()))
    }

    /// Compressed bytes read so far, including payloads that other threads read, or will read.
    pub fn bytes_in(&self) -> u64 {
        self.frames.position()
    }

    /// Bytes of contents passed on so far.
    pub fn bytes_out(&self) -> u64 {
        self.bytes_out
    }

    /// The length in bytes of the current frame's contents, if its header records it.
    pub fn content_size(&self) -> Option<u64> {
        self.header.content_size
    }

    /// Returns the reader, which may be ahead of the contents passed on.
    pub fn into_inner(self) -> R {
        self.frames.into_inner()
    }

    /// Calls `sink` with each part of the remaining contents, in order.
    fn for_each_part(
        &mut self,
        mut sink: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<u64, Error> {
        let mut total = 0;
        while let Some(part) = self.part()? {
            sink(part)?;
            let n = part.len();
            total += n as u64;
            self.advance(n);
        }
        Ok(total)
    }

    /// Decoded contents that have not been passed on; `None` at the end.
    fn part(&mut self) -> Result<Option<&[u8]>, Error> {
        if self.current.as_ref().is_none_or(|(task, given)| *given == task.contents.len()) {
            if let Some((mut task, _)) = self.current.take() {
                task.release_to(&self.history)?;
                self.flow.keep_idle(task);
            }
            self.current = self.next_block()?.map(|task| (task, 0));
        }
        Ok(self.current.as_ref().map(|(task, given)| &task.contents[*given..]))
    }

    fn advance(&mut self, n: usize) {
        if let Some((_, given)) = &mut self.current {
            *given += n;
        }
        self.bytes_out += n as u64;
    }

    /// The next decoded block; `None` at the end.
    fn next_block(&mut self) -> Result<Option<DecodeTask>, Error> {
        if !self.owner.is_here() {
            return Err(Error::Forked);
        }
        self.read_ahead();
        match self.flow.next() {
            Some(mut task) => match task.finish_from(&self.history) {
                Ok(()) => Ok(Some(task)),
                Err(error) => {
                    // Pass on nothing after the faulty block.
                    self.flow.stop();
                    self.input = InputState::Failed(None);
                    Err(error)
                }
            },
            None => match &mut self.input {
                InputState::Failed(error) => {
                    let again = || Error::Io(io::Error::other("decoding failed earlier"));
                    Err(error.take().unwrap_or_else(again))
                }
                InputState::Open | InputState::Ended => {
                    if let Some(session) = self.auto_session.take() {
                        session.learn();
                    }
                    Ok(None)
                }
            },
        }
    }

    /// Reads blocks until the permitted number is in flight.
    fn read_ahead(&mut self) {
        self.flow.give_back(0);
        while matches!(self.input, InputState::Open) {
            let is_waiting = self.waiting.is_some() || self.is_joining;
            if !self.flow.has_room() || (is_waiting && self.flow.in_flight() > 0) {
                return;
            }
            if self.is_joining {
                self.is_joining = false;
                let Self { header, cost, options, flow, .. } = self;
                flow.join(|share| accelerator(header, cost, share, options));
            } else if let Some(gpu) =
                self.auto_session.as_mut().and_then(|session| session.look(self.promised))
            {
                self.options.resources.gpu = Some(gpu);
                self.is_joining = true;
                continue;
            }
            if let Err(error) = self.read_one() {
                self.input = InputState::Failed(Some(error));
            }
            if !matches!(self.input, InputState::Open) {
                self.flow.end();
            }
        }
    }

    fn read_one(&mut self) -> Result<(), Error> {
        if let Some(header) = self.waiting.take() {
            self.cost = Cost::of_decoding(&**self.flow.engine(), &header);
            let mut share =
                self.cost.share(self.options.resources.threads, self.options.resources.memory)?;
            let accelerator = accelerator(&header, &self.cost, &mut share, &self.options);
            self.flow.adapt(share, accelerator);
            self.history.clear();
            return self.begin(header);
        }
        let begun = Instant::now();
        match self.frames.next()? {
            Event::Frame(header) => {
                if Cost::of_decoding(&**self.flow.engine(), &header) == self.cost {
                    self.begin(header)?;
                } else {
                    self.waiting = Some(header);
                }
            }
            Event::Block(header, place) => {
                self.promise(u64::from(header.content_len))?;
                self.promised += u64::from(header.content_len);
                let idle = self.flow.take_idle();
                let mut task = idle.unwrap_or_else(|| DecodeTask::new(self.flow.pool()));
                self.give_block(header, place, &mut task)?;
                task.modules = self.modules.latest();
                task.reach = self.header.reach;
                task.history = Some((self.history.clone(), self.header.block_size() as u64));
                let start = self.promised - u64::from(header.content_len);
                task.set_destination(self.output.as_ref().map(|output| (output.clone(), start)));
                if let Some(statistics) = &self.options.resources.statistics {
                    statistics.read_since(begun);
                }
                self.flow.submit(task);
            }
            Event::FrameEnd => {}
            Event::End => self.input = InputState::Ended,
        }
        Ok(())
    }

    /// Gives `task` the block whose header has just been read, and its payload or where to read that.
    fn give_block(
        &mut self,
        header: BlockHeader,
        place: Place,
        task: &mut DecodeTask,
    ) -> Result<(), Error> {
        match &self.payloads {
            // A single frame's checksum follows the payload, so read both here.
            Some(payloads) if self.header.single.is_none() => {
                let input = Arc::clone(&payloads.input);
                let offset = payloads.start + self.frames.position();
                let statistics = self.options.resources.statistics.clone();
                (payloads.skip)(&mut self.frames, &header, place)?;
                task.set_unread_block(header, place, Origin { input, offset, statistics });
            }
            _ => {
                let payload = task.set_block(header, place);
                let header = self.frames.payload(&header, place, payload)?;
                task.set_header(header);
            }
        }
        Ok(())
    }

    /// Prepares for the blocks of a new frame.
    fn begin(&mut self, header: FrameHeader) -> Result<(), Error> {
        let place = self.frames.place();
        self.modules.of(&header.modules, &self.options.modules, place)?;
        let content_size = header.content_size.unwrap_or(0);
        self.header = header;
        self.promise(content_size)
    }

    /// Refuses `more` bytes of contents if they exceed the limit.
    fn promise(&self, more: u64) -> Result<(), Error> {
        let limit = self.options.max_output;
        match self.promised.checked_add(more) {
            Some(total) if total <= limit => Ok(()),
            _ => Err(Error::LimitOutput { limit }),
        }
    }
}

impl<R: Read + Seek> Decoder<R> {
    /// Lets the threads that decode blocks also read their payloads from `input`, which holds the same bytes as the
    /// reader. The decoder began to read at byte `start` of it. From now on the calling thread reads what lies between
    /// payloads and seeks past them. It still reads the payloads of single-block frames in their short form.
    ///
    /// ```
    /// use std::io::Cursor;
    /// use std::sync::Arc;
    /// let contents = b"some contents".repeat(10_000);
    /// let compressed = pz::compress(&contents, &pz::Options::new().block_size(1 << 16))?;
    /// let input: Arc<dyn pz::ReadAt> = Arc::new(compressed.clone());
    /// let mut decoder = pz::Decoder::new(Cursor::new(compressed), &pz::DecodeOptions::new())?;
    /// decoder.read_from_places(&input, 0);
    /// assert_eq!(decoder.verify()?, contents.len() as u64);
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn read_from_places(&mut self, input: &Arc<dyn ReadAt>, start: u64) {
        let (input, skip) = (Arc::clone(input), FrameReader::skip_payload);
        self.payloads = Some(Payloads { input, start, skip });
    }
}

/// The accelerator that decodes a frame's blocks on the device that `options` names. Gives `share` more blocks in
/// flight for it.
pub(super) fn accelerator(
    header: &FrameHeader,
    cost: &Cost,
    share: &mut Share,
    options: &DecodeOptions,
) -> Option<Accelerator> {
    let held = options.input_size.map_or(u64::MAX, |len| most_contents(header, len));
    let learned = options.resources.auto.clone().map(|auto| (auto, Workload::decoding(header)));
    let job = Job {
        work: BlockTask::Decode(header.pipeline),
        block_len: header.block_size() as u32,
        bytes: header.content_size.map(|declared| declared.min(held)),
        cost,
        memory: options.resources.memory,
        statistics: options.resources.statistics.as_ref(),
        learned,
    };
    Accelerator::new(options.resources.gpu.as_ref()?, job, share)
}

/// The most contents that `len` bytes of such a frame can hold: those of full blocks that repeat one byte.
fn most_contents(header: &FrameHeader, len: u64) -> u64 {
    let blocks = len.div_ceil(least_full_block_len(header.block_log));
    blocks.saturating_mul(header.block_size() as u64)
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return Ok(0);
        }
        let Some(part) = self.part()? else { return Ok(0) };
        let n = part.len().min(buf.len());
        buf[..n].copy_from_slice(&part[..n]);
        self.advance(n);
        Ok(n)
    }
}

impl<R: Read> BufRead for Decoder<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Ok(self.part()?.unwrap_or_default())
    }

    fn consume(&mut self, amount: usize) {
        self.advance(amount);
    }
}
