//! Compresses whole slices, and can keep its threads, tables and buffers from call to call.

use std::io::{self, Write};

use rayon::ThreadPool;
use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};

use super::encoder::{EncodeBasis, EncodePlan, Encoder, MIN_BOUNDARY_DISTANCE};
use super::frame_writer::FrameWriter;
use crate::codec::distant::MIN_NEAR_BLOCK;
use crate::codec::reserve;
use crate::error::Error;
use crate::format::{MAX_BLOCKS, MIN_BLOCK_LOG};
use crate::pipeline::Options;
use crate::pipeline::engine::{Coded, EncodeJob};
use crate::pipeline::memory::{Cost, Share, payload_capacity};
use crate::pipeline::modules::refusal;
use crate::pipeline::scheduler::thread_pool;
use crate::process::PerProcess;

/// How many blocks per worker a [`Compressor`] encodes before it writes any, if memory permits.
const BLOCKS_PER_WORKER: usize = 8;

/// An input up to this length is one block. [`Auto`](crate::Auto) leaves it to the CPU, and it takes too little time to
/// learn from.
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
    pool: PerProcess<Option<ThreadPool>>,
    /// Payloads of the blocks that are being encoded.
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
        let basis = EncodeBasis::new(&near, options.resources.statistics.as_ref())?;
        let (needed, limit) = (basis.cost.least(), options.resources.memory);
        if needed > limit {
            return Err(Error::LimitMemory { needed, limit });
        }
        let options = options.clone();
        Ok(Self { options, basis, share: None, pool: PerProcess::new(), payloads: Vec::new() })
    }

    /// The options that it was made with.
    pub fn options(&self) -> &Options {
        &self.options
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
        let is_long = self.options.chosen_long_distance() > 0
            && input.len() > self.basis.header.block_size()
            || self.options.is_near() && input.len() >= MIN_NEAR_BLOCK;
        let is_cut = self.options.rsyncable && input.len() >= MIN_BOUNDARY_DISTANCE;
        if self.options.resources.gpu.is_some() || is_long || is_cut || self.asks_auto(input.len())
        {
            return stream_to(input, writer, &self.options);
        }
        self.encode_blocks(input, writer)
    }

    /// Whether an input of `len` bytes is one that [`Auto`](crate::Auto) may choose a device for, or learn from.
    fn asks_auto(&self, len: usize) -> bool {
        // A caller who counts wants to know what was chosen, and why.
        self.options.resources.auto.is_some()
            && (len > MAX_UNASKED || self.options.resources.statistics.is_some())
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
                reserve(payload, payload_capacity(contents.len()))?;
                payload.clear();
                let position = number % MAX_BLOCKS * block_size as u64;
                number += 1;
                jobs.push(EncodeJob::new(contents, position, payload));
            }
            match self.pool.get() {
                Some(Some(pool)) if jobs.len() > 1 => pool.install(|| {
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
            None => *self.share.insert(
                self.basis
                    .cost
                    .share(self.options.resources.threads, self.options.resources.memory)?,
            ),
        })
    }

    /// The number of blocks to encode before writing them. Starts the threads.
    fn blocks_at_once(&mut self) -> Result<usize, Error> {
        let share = self.share()?;
        if share.workers < 2 {
            return Ok(1);
        }
        self.pool.get_or_init(|| thread_pool(share.workers));
        // Contents lie in the caller's memory, so more blocks fit than in a stream.
        let Cost { fixed, worker, .. } = self.basis.cost;
        let workers = share.workers as u64;
        let taken = fixed.saturating_add(worker.saturating_mul(workers));
        let left = self.options.resources.memory.saturating_sub(taken);
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

/// Appends what `write` writes to `output`, and nothing if it fails. Returns the number of bytes appended.
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

/// Writes to the caller's memory. It also accepts what does not fit, so that the caller learns how long the result is.
pub struct Bounded<'a>(pub &'a mut [u8]);

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.0.len());
        let (place, rest) = std::mem::take(&mut self.0).split_at_mut(fits);
        place.copy_from_slice(&bytes[..fits]);
        self.0 = rest;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A vector to write to. A write returns an error when the system refuses memory.
#[derive(Debug)]
pub struct Growing<'a>(pub &'a mut Vec<u8>);

impl Write for Growing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let needed = (self.0.len() + bytes.len()) as u64;
        self.0.try_reserve(bytes.len()).map_err(|_| Error::OutOfMemory { needed })?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
