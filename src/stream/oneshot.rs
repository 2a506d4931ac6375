//! Works on whole slices, and can keep its threads, tables and buffers from call to call.

use std::io::{Cursor, Write};
use std::sync::Arc;

use rayon::ThreadPool;
use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};

use super::bounded::Growing;
use super::decoder::Decoder;
use super::directory::read_directory;
use super::encoder::{EncodeBasis, EncodePlan, Encoder};
use super::frame_reader::{Event, FrameReader};
use super::frame_writer::FrameWriter;
use crate::codec::reserve;
use crate::error::{Error, Place};
use crate::format::{BlockHeader, FrameHeader, MAX_BLOCKS, MIN_BLOCK_LOG};
use crate::pipeline::auto_session::AutoSession;
use crate::pipeline::buffer::zeroed;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{Coded, DecodeJob, EncodeJob, Engine};
use crate::pipeline::memory::{Cost, Share, payload_capacity};
use crate::pipeline::modules::{FrameModules, LastModules, refusal};
use crate::pipeline::scheduler::thread_pool;
use crate::pipeline::statistics::Counted;
use crate::pipeline::workload::Workload;
use crate::pipeline::{DecodeOptions, Options};

/// Blocks that each worker of a [`Compressor`] gets before any is written, if memory permits.
const BLOCKS_PER_WORKER: usize = 8;

/// Up to this length, an input is one block, which [`Auto`](crate::Auto) leaves to the CPU, and takes too short a time
/// to learn from.
const MAX_UNASKED: usize = 1 << MIN_BLOCK_LOG;

/// Compresses `input`.
///
/// Many calls are faster with a [`Compressor`].
///
/// # Errors
/// [`Error::InvalidBlockSize`]; [`Error::InvalidWindow`]; [`Error::LimitMemory`] if one block at a time needs more than
/// the options permit; [`Error::Changed`] if the options declare a length that is not that of `input`.
///
/// ```
/// let input = b"to be or not to be, that is the question".repeat(100);
/// let compressed = pz::compress(&input, &pz::Options::new())?;
/// assert_eq!(pz::decompress(&compressed, &pz::DecodeOptions::new())?, input);
/// # Ok::<(), pz::Error>(())
/// ```
pub fn compress(input: &[u8], options: &Options) -> Result<Vec<u8>, Error> {
    let mut output = Vec::new();
    compress_into(input, &mut output, options)?;
    Ok(output)
}

/// Compresses `input` and appends the result to `output`. Returns the number of bytes appended.
///
/// # Errors
/// The errors of [`compress`]; then `output` is unchanged.
///
/// ```
/// let mut output = b"before".to_vec();
/// let len = pz::compress_into(b"some contents", &mut output, &pz::Options::new())?;
/// assert_eq!(output.len(), 6 + len);
/// # Ok::<(), pz::Error>(())
/// ```
pub fn compress_into(
    input: &[u8],
    output: &mut Vec<u8>,
    options: &Options,
) -> Result<usize, Error> {
    append(output, |writer| compress_to(input, writer, options))
}

/// Compresses `input` and writes the result to `writer`, such as memory of the caller's. Returns the number of bytes
/// written.
///
/// # Errors
/// The errors of [`compress`] and of writing; part of the result may then have been written.
///
/// ```
/// let mut memory = [0; 100];
/// let len = pz::compress_to(b"some contents", &mut memory[..], &pz::Options::new())?;
/// assert_eq!(pz::decompress(&memory[..len as usize], &pz::DecodeOptions::new())?, b"some contents");
/// # Ok::<(), pz::Error>(())
/// ```
pub fn compress_to(input: &[u8], writer: impl Write, options: &Options) -> Result<u64, Error> {
    let mut compressor = Compressor::new(options)?;
    // For a single call, an encoder with threads of its own is faster: it writes blocks while it encodes others.
    if input.len() > compressor.basis.header.block_size() && compressor.share()?.workers > 1 {
        return stream_to(input, writer, options);
    }
    compressor.compress_to(input, writer)
}

/// Compresses one slice after another, and keeps threads, tables and buffers from call to call.
///
/// The first input of more than one block starts the threads. Results do not depend on earlier calls: they equal those
/// of [`compress`].
///
/// ```
/// let mut compressor = pz::Compressor::new(&pz::Options::new())?;
/// let mut decompressor = pz::Decompressor::new(&pz::DecodeOptions::new());
/// for message in ["one", "two", "three"] {
///     let compressed = compressor.compress(message.as_bytes())?;
///     assert_eq!(decompressor.decompress(&compressed)?, message.as_bytes());
/// }
/// # Ok::<(), pz::Error>(())
/// ```
pub struct Compressor {
    options: Options,
    basis: EncodeBasis,
    share: Option<Share>,
    pool: Option<ThreadPool>,
    /// Payloads of the blocks that are encoded at once.
    payloads: Vec<Vec<u8>>,
}

impl Compressor {
    /// Prepares to compress with `options`.
    ///
    /// # Errors
    /// [`Error::InvalidBlockSize`], [`Error::InvalidWindow`], or [`Error::LimitMemory`] if one block at a time needs
    /// more than the options permit.
    pub fn new(options: &Options) -> Result<Self, Error> {
        // Inputs with distant matches go to a stream encoder.
        let near = options.clone().long_distance(0);
        let basis = EncodeBasis::new(&near, options.statistics.as_ref())?;
        let (needed, limit) = (basis.cost.least(), options.memory);
        if needed > limit {
            return Err(Error::LimitMemory { needed, limit });
        }
        let options = options.clone();
        Ok(Self { options, basis, share: None, pool: None, payloads: Vec::new() })
    }

    /// Compresses `input`.
    ///
    /// # Errors
    /// The errors of [`Compressor::compress_into`].
    pub fn compress(&mut self, input: &[u8]) -> Result<Vec<u8>, Error> {
        let mut output = Vec::new();
        self.compress_into(input, &mut output)?;
        Ok(output)
    }

    /// Compresses `input` and appends the result to `output`. Returns the number of bytes appended.
    ///
    /// # Errors
    /// [`Error::Changed`] if the options declare a length that is not that of `input`. Then `output` is unchanged.
    pub fn compress_into(&mut self, input: &[u8], output: &mut Vec<u8>) -> Result<usize, Error> {
        append(output, |writer| self.compress_to(input, writer))
    }

    /// Compresses `input` and writes the result to `writer`. Returns the number of bytes written.
    ///
    /// # Errors
    /// The errors of [`Compressor::compress_into`] and of writing; part of the result may then have been written.
    pub fn compress_to(&mut self, input: &[u8], writer: impl Write) -> Result<u64, Error> {
        if let Some(declared) = self.options.content_size
            && declared != input.len() as u64
        {
            return Err(Error::Changed { declared, seen: input.len() as u64 });
        }
        let is_long = self.options.long > 0 && input.len() > self.basis.header.block_size();
        if self.options.gpu.is_some() || is_long || self.asks_auto(input.len()) {
            return stream_to(input, writer, &self.options);
        }
        self.encode_blocks(input, writer)
    }

    /// Whether an input of `len` bytes is one that [`Auto`](crate::Auto) may choose a device for, or learn from.
    fn asks_auto(&self, len: usize) -> bool {
        // Statistics tell what was chosen, and why.
        self.options.auto.is_some() && (len > MAX_UNASKED || self.options.statistics.is_some())
    }

    fn encode_blocks(&mut self, input: &[u8], mut writer: impl Write) -> Result<u64, Error> {
        const LOST: Error = Error::Internal { what: "a block could not be encoded" };
        let block_size = self.basis.header.block_size();
        let at_once = if input.len() <= block_size { 1 } else { self.blocks_at_once()? };
        if self.payloads.len() < at_once {
            self.payloads.resize_with(at_once, Vec::new);
        }
        let engine = &self.basis.engine;
        let recipe = &self.basis.recipe.hinted_by(input);
        let mut frames = FrameWriter::new(self.basis.header.clone());
        let mut left = input;
        // Blocks so far.
        let mut number = 0;
        while !left.is_empty() {
            let (now, later) = left.split_at(left.len().min(at_once * block_size));
            left = later;
            let mut jobs = Vec::with_capacity(at_once);
            for (contents, payload) in now.chunks(block_size).zip(&mut self.payloads) {
                let capacity = payload_capacity(contents.len());
                reserve(payload, capacity).map_err(|_| out_of_memory(capacity))?;
                payload.clear();
                let position = number % MAX_BLOCKS * block_size as u64;
                number += 1;
                jobs.push(EncodeJob::new(contents, position, payload));
            }
            match &self.pool {
                Some(pool) if jobs.len() > 1 => pool.install(|| {
                    jobs.par_iter_mut()
                        .for_each(|job| engine.encode(recipe, std::slice::from_mut(job)));
                }),
                _ => engine.encode(recipe, &mut jobs),
            }
            let refused = jobs.iter().find_map(|job| {
                let refused = job.refused.filter(|_| job.coded.is_none())?;
                Some(refusal(refused, frames.modules(), job.position / block_size as u64))
            });
            if let Some(error) = refused {
                return Err(error);
            }
            let coded: Vec<Option<Coded>> = jobs.into_iter().map(|job| job.coded).collect();
            let count = coded.len();
            let parts = now.chunks(block_size).zip(&self.payloads).zip(coded);
            for (i, ((contents, payload), coded)) in parts.enumerate() {
                let is_last = left.is_empty() && i + 1 == count;
                frames.block(&mut writer, coded.ok_or(LOST)?, contents, payload, is_last)?;
            }
        }
        frames.finish(&mut writer)?;
        Ok(frames.written())
    }

    fn share(&mut self) -> Result<Share, Error> {
        Ok(match self.share {
            Some(share) => share,
            None => *self
                .share
                .insert(self.basis.cost.share(self.options.threads, self.options.memory)?),
        })
    }

    /// The number of blocks to encode before writing them. Starts the threads.
    fn blocks_at_once(&mut self) -> Result<usize, Error> {
        let share = self.share()?;
        if share.workers < 2 {
            return Ok(1);
        }
        if self.pool.is_none() {
            self.pool = thread_pool(share.workers);
        }
        // Contents lie in the caller's memory, so more blocks fit than a stream has in flight.
        let Cost { fixed, worker, .. } = self.basis.cost;
        let workers = share.workers as u64;
        let taken = fixed.saturating_add(worker.saturating_mul(workers));
        let left = self.options.memory.saturating_sub(taken);
        let fit = left / payload_capacity(self.basis.header.block_size()) as u64;
        let most = (BLOCKS_PER_WORKER * share.workers) as u64;
        Ok(fit.min(most).max(share.in_flight as u64) as usize)
    }
}

/// Compresses `input` with a stream encoder, and writes the result to `writer`.
fn stream_to(input: &[u8], writer: impl Write, options: &Options) -> Result<u64, Error> {
    let len = input.len() as u64;
    let options = options.for_len(len);
    let plan = EncodePlan::new(&options, Some(len))?;
    let mut encoder = Encoder::with_plan(writer, plan, &options);
    encoder.read_from(&mut &input[..])?;
    encoder.finish_by_ref()?;
    Ok(encoder.bytes_out())
}

/// Has `write` append to `output`, which stays as it was after an error. Returns the number of bytes appended.
fn append(
    output: &mut Vec<u8>,
    write: impl FnOnce(Growing<'_>) -> Result<u64, Error>,
) -> Result<usize, Error> {
    let start = output.len();
    let written = write(Growing(output));
    if written.is_err() {
        output.truncate(start);
    }
    written.map(|_| output.len() - start)
}

fn out_of_memory(bytes: usize) -> Error {
    Error::OutOfMemory { needed: bytes as u64 }
}

/// Decompresses `input`, which is one or more frames in a row.
///
/// Checks headers, indices and footers of the whole input before it allocates anything; then decodes blocks in
/// parallel, each to its place. Many calls are faster with a [`Decompressor`].
///
/// # Errors
/// [`Error::NotPz`], [`Error::Truncated`], [`Error::Corrupt`] and [`Error::Unsupported`] say what is wrong with the
/// input, and where. [`Error::LimitOutput`] and [`Error::LimitMemory`] say that it needs more than the options permit.
pub fn decompress(input: &[u8], options: &DecodeOptions) -> Result<Vec<u8>, Error> {
    Decompressor::new(options).decompress(input)
}

/// Decompresses `input` to the beginning of `output`. Returns the length of the contents.
///
/// # Errors
/// The errors of [`decompress`], and [`Error::LimitOutput`] if the contents are longer than `output`. `output` may then
/// contain anything.
///
/// ```
/// let compressed = pz::compress(b"some contents", &pz::Options::new())?;
/// let mut output = [0; 20];
/// let len = pz::decompress_into(&compressed, &mut output, &pz::DecodeOptions::new())?;
/// assert_eq!(&output[..len], b"some contents");
/// # Ok::<(), pz::Error>(())
/// ```
pub fn decompress_into(
    input: &[u8],
    output: &mut [u8],
    options: &DecodeOptions,
) -> Result<usize, Error> {
    Decompressor::new(options).decompress_into(input, output)
}

/// The length in bytes of the contents of `input`, which is one or more frames in a row. Nothing is decoded.
///
/// # Errors
/// The first fault of headers, indices and footers, with its place. If the input is untrusted, compare the result with
/// a limit before you allocate that many bytes.
///
/// ```
/// let compressed = pz::compress(b"some contents", &pz::Options::new())?;
/// assert_eq!(pz::content_size(&compressed)?, 13);
/// # Ok::<(), pz::Error>(())
/// ```
pub fn content_size(input: &[u8]) -> Result<u64, Error> {
    let frames = read_directory(&mut Cursor::new(input), u64::MAX)?;
    Ok(frames.last().map_or(0, |last| last.content_start + last.footer.content_size))
}

/// Decompresses one slice after another, and keeps threads, tables and buffers from call to call.
///
/// The first input of more than one block starts the threads. See [`Compressor`] for an example.
pub struct Decompressor {
    options: DecodeOptions,
    engine: Arc<dyn Engine>,
    /// The threads, and their number.
    pool: Option<(usize, ThreadPool)>,
}

impl Decompressor {
    /// Prepares to decompress with `options`.
    pub fn new(options: &DecodeOptions) -> Self {
        let engine = Counted::new(Arc::new(CpuEngine::new()), options.statistics.as_ref(), false);
        Self { options: options.clone(), engine, pool: None }
    }

    /// Decompresses `input`.
    ///
    /// # Errors
    /// The errors of [`decompress`].
    pub fn decompress(&mut self, input: &[u8]) -> Result<Vec<u8>, Error> {
        self.decompress_with(input, |len| zeroed(len).map_err(|fault| fault.at(Place::default())))
    }

    /// Decompresses `input` to memory that `allocate` returns for the length of the contents. Calls it once, after
    /// checking headers, indices and footers.
    ///
    /// # Errors
    /// The errors of [`decompress`] and of `allocate`, and [`Error::LimitOutput`] if its memory is too short.
    ///
    /// ```
    /// let compressed = pz::compress(b"some contents", &pz::Options::new())?;
    /// let mut decompressor = pz::Decompressor::new(&pz::DecodeOptions::new());
    /// let contents = decompressor.decompress_with(&compressed, |len| Ok(vec![0; len].into_boxed_slice()))?;
    /// assert_eq!(&contents[..], b"some contents");
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn decompress_with<T: AsMut<[u8]>>(
        &mut self,
        input: &[u8],
        allocate: impl FnOnce(usize) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let survey = self.survey(input, u64::MAX)?;
        let needed = survey.total;
        let len = usize::try_from(needed).map_err(|_| Error::OutOfMemory { needed })?;
        let mut memory = allocate(len)?;
        let output = memory.as_mut();
        let limit = output.len() as u64;
        let output = output.get_mut(..len).ok_or(Error::LimitOutput { limit })?;
        self.decode(input, survey, output)?;
        Ok(memory)
    }

    /// Decompresses `input` to the beginning of `output`. Returns the length of the contents.
    ///
    /// # Errors
    /// The errors of [`decompress_into`].
    pub fn decompress_into(&mut self, input: &[u8], output: &mut [u8]) -> Result<usize, Error> {
        let survey = self.survey(input, output.len() as u64)?;
        let output = &mut output[..survey.total as usize];
        self.decode(input, survey, output)?;
        Ok(output.len())
    }

    /// Goes through all structures of `input`, whose contents may take `room` bytes.
    fn survey<'a>(&self, input: &'a [u8], room: u64) -> Result<Survey<'a>, Error> {
        let limit = self.options.max_output.min(room);
        let mut frames = FrameReader::new(input);
        let (mut last, mut modules) = (LastModules::default(), None);
        let mut survey = Survey { header: None, blocks: Vec::new(), total: 0, cost: NO_COST };
        loop {
            match frames.next()? {
                Event::Frame(header) => {
                    modules = last.of(&header.modules, &self.options.modules, frames.place())?;
                    // Contents and payloads lie in the caller's memory.
                    let cost = Cost { block: 0, ..Cost::of_decoding(&*self.engine, &header) };
                    let (needed, limit) = (cost.least(), self.options.max_memory);
                    if needed > limit {
                        return Err(Error::LimitMemory { needed, limit });
                    }
                    if needed > survey.cost.least() {
                        survey.cost = cost;
                    }
                    survey.header.get_or_insert(header);
                }
                Event::Block(header, place) => {
                    survey.total = survey.total.saturating_add(u64::from(header.content_len));
                    if survey.total > limit {
                        return Err(Error::LimitOutput { limit });
                    }
                    let (header, payload) = frames.payload_in_place(&header, place)?;
                    let room = (survey.blocks.len() + 1) * size_of::<Block<'_>>();
                    survey.blocks.try_reserve(1).map_err(|_| out_of_memory(room))?;
                    let modules = modules.clone();
                    survey.blocks.push(Block { header, place, payload, modules });
                }
                Event::FrameEnd => {}
                Event::End => return Ok(survey),
            }
        }
    }

    /// Decodes the surveyed blocks to `output`, which has the length of the contents.
    fn decode(&mut self, input: &[u8], survey: Survey<'_>, output: &mut [u8]) -> Result<(), Error> {
        let Survey { header, blocks, total, cost } = survey;
        // Counting the cores takes longer than decoding a small block.
        let permitted = if blocks.len() > 1 || self.options.auto.is_some() {
            cost.share(self.options.threads, self.options.max_memory)?.workers
        } else {
            1
        };
        let is_long = blocks.iter().any(|block| block.header.own.is_some());
        if self.options.gpu.is_some() || self.options.auto.is_some() || is_long {
            let mut options = self.options.clone();
            // The length is known here, even if no header records it.
            if let (None, Some(auto), Some(header)) = (&options.gpu, options.auto.take(), &header) {
                let mut job = AutoSession::new(
                    &auto,
                    Workload::decoding(header),
                    options.max_memory,
                    options.statistics.as_ref(),
                );
                options.gpu = job.choose(None, Some(total), permitted);
            }
            if options.gpu.is_some() || is_long {
                // A decoder's threads can hand batches to a device, and it keeps what distant matches repeat.
                Decoder::new(input, &options)?.copy_to(&mut Cursor::new(output))?;
                return Ok(());
            }
        }
        let mut rest = output;
        let mut jobs = Vec::new();
        let room = blocks.len() * size_of::<(DecodeJob<'_>, Place)>();
        reserve(&mut jobs, blocks.len()).map_err(|_| out_of_memory(room))?;
        for block in &blocks {
            let (contents, later) = rest.split_at_mut(block.header.content_len as usize);
            rest = later;
            let (header, payload) = (block.header, Some(block.payload));
            let modules = block.modules.as_deref();
            let job = DecodeJob { header, modules, payload, contents, outcome: None };
            jobs.push((job, block.place));
        }
        let engine = &*self.engine;
        let workers = permitted.min(jobs.len());
        // Keep the pool if it is large enough, and not larger than the input's memory permits (unless the input has too
        // few blocks to use it).
        let is_usable = |threads: usize| {
            threads >= workers && (threads <= permitted || jobs.len() <= permitted)
        };
        if workers > 1 && !self.pool.as_ref().is_some_and(|(threads, _)| is_usable(*threads)) {
            self.pool = None;
            self.pool = thread_pool(workers).map(|pool| (workers, pool));
        }
        match &self.pool {
            Some((_, pool)) if workers > 1 => pool.install(|| {
                jobs.par_iter_mut().try_for_each(|(job, place)| decode_one(engine, job, *place))
            }),
            _ => jobs.iter_mut().try_for_each(|(job, place)| decode_one(engine, job, *place)),
        }
    }
}

/// The cost of an input without frames.
const NO_COST: Cost = Cost { fixed: 0, worker: 0, block: 0 };

/// A block of the input.
struct Block<'a> {
    header: BlockHeader,
    place: Place,
    payload: &'a [u8],
    modules: Option<Arc<FrameModules>>,
}

/// The structures of an input.
struct Survey<'a> {
    /// Header of the first frame.
    header: Option<FrameHeader>,
    blocks: Vec<Block<'a>>,
    /// Length of the contents.
    total: u64,
    /// The cost of the frame whose blocks need the most memory.
    cost: Cost,
}

fn decode_one(engine: &dyn Engine, job: &mut DecodeJob<'_>, place: Place) -> Result<(), Error> {
    engine.decode(std::slice::from_mut(job));
    match job.outcome.take() {
        Some(outcome) => outcome.map_err(|fault| fault.at(place)),
        None => Err(Error::Internal { what: "a block could not be decoded" }),
    }
}
