//! Whole slices at once.

use std::io::{self, Cursor, Write};
use std::sync::Arc;

use rayon::iter::{IntoParallelRefMutIterator, ParallelIterator};

use super::decoder::Decoder;
use super::encoder::{Encoder, Plan};
use super::frame_reader::{Event, FrameReader};
use super::frame_writer::FrameWriter;
use crate::codec::{OutOfMemory, reserve};
use crate::error::{Error, Place};
use crate::format::{BlockHeader, FrameHeader};
use crate::pipeline::auto_session::AutoSession;
use crate::pipeline::buffer::zeroed;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{DecodeJob, EncodeJob, Engine};
use crate::pipeline::memory::{Cost, payload_capacity};
use crate::pipeline::scheduler::thread_pool;
use crate::pipeline::statistics::Counted;
use crate::pipeline::workload::Workload;
use crate::pipeline::{DecodeOptions, Options};

/// Compresses `input`.
///
/// # Errors
/// [`Error::InvalidBlockSize`]; [`Error::InvalidWindow`]; [`Error::LimitMemory`] if one block at a time takes more than the options permit;
/// [`Error::Changed`] if the options declare another length than that of `input`.
///
/// ```
/// let input = b"to be or not to be, that is the question".repeat(100);
/// let compressed = pz::compress(&input, &pz::Options::new())?;
/// assert_eq!(pz::decompress(&compressed, &pz::DecodeOptions::new())?, input);
/// # Ok::<(), pz::Error>(())
/// ```
pub fn compress(input: &[u8], options: &Options) -> Result<Vec<u8>, Error> {
    let mut plan = Plan::new(options, Some(input.len() as u64))?;
    if let Some(declared) = options.content_size
        && declared != input.len() as u64
    {
        return Err(Error::Changed { declared, seen: input.len() as u64 });
    }
    let block_size = plan.header.block_size();
    let in_parallel = plan.share.workers > 1 && input.len() > block_size;
    if in_parallel || plan.accelerator.is_some() {
        let mut encoder = Encoder::with_plan(Growing(Vec::new()), plan, options);
        encoder.read_from(&mut &input[..])?;
        return Ok(encoder.finish()?.0);
    }
    let mut out = Growing(Vec::new());
    let mut frames = FrameWriter::new(plan.header);
    let mut payload = Vec::new();
    let capacity = payload_capacity(block_size.min(input.len()));
    reserve(&mut payload, capacity).map_err(|_| out_of_memory(capacity))?;
    for contents in input.chunks(block_size) {
        let mut job = EncodeJob::new(contents, &mut payload);
        plan.engine.encode(&plan.recipe, std::slice::from_mut(&mut job));
        if let Some(OutOfMemory { bytes }) = job.refused {
            return Err(Error::OutOfMemory { needed: bytes });
        }
        let coded = job.coded.ok_or(Error::Internal { what: "a block could not be encoded" })?;
        frames.block(&mut out, coded, contents, &payload)?;
    }
    frames.finish(&mut out)?;
    if let Some(job) = plan.job.take() {
        job.learn();
    }
    Ok(out.0)
}

/// A vector to write to that says so when the system refuses memory.
struct Growing(Vec<u8>);

impl Write for Growing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let needed = self.0.len() + bytes.len();
        self.0.try_reserve(bytes.len()).map_err(|_| out_of_memory(needed))?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn out_of_memory(bytes: usize) -> Error {
    Error::OutOfMemory { needed: bytes as u64 }
}

/// Decompresses `input`, which is one or more frames, one after another.
///
/// Headers, indices and footers of the whole input are checked before anything is allocated; then blocks are decoded
/// in parallel, each to its place.
///
/// # Errors
/// [`Error::NotPz`], [`Error::Truncated`], [`Error::Corrupt`], [`Error::Unsupported`] say what is wrong with the
/// input and where; [`Error::LimitOutput`] and [`Error::LimitMemory`] that it asks for more than the options permit.
pub fn decompress(input: &[u8], options: &DecodeOptions) -> Result<Vec<u8>, Error> {
    let engine = Counted::new(Arc::new(CpuEngine::new()), options.statistics.as_ref(), false);
    let Survey { header, blocks, workers } = survey(input, options, &*engine)?;
    let total: u64 = blocks.iter().map(|block| u64::from(block.header.content_len)).sum();
    let len = usize::try_from(total).map_err(|_| Error::OutOfMemory { needed: total })?;
    let mut output = zeroed(len).map_err(|fault| fault.at(Place::default()))?;
    let mut options = options.clone();
    // The length is known here, whether the header records it or not.
    if let (None, Some(auto), Some(header)) = (&options.gpu, options.auto.take(), header) {
        let mut job = AutoSession::new(
            &auto,
            Workload::decoding(&header),
            options.max_memory,
            options.statistics.as_ref(),
        );
        options.gpu = job.choose(None, Some(total), workers);
    }
    if options.gpu.is_some() {
        // Batches go through a decoder's threads.
        Decoder::new(input, &options)?.copy_to(&mut Cursor::new(&mut output[..]))?;
        return Ok(output);
    }

    let mut rest = &mut output[..];
    let mut jobs = Vec::new();
    let room = blocks.len() * size_of::<(DecodeJob<'_>, Place)>();
    reserve(&mut jobs, blocks.len()).map_err(|_| out_of_memory(room))?;
    for block in blocks {
        let (contents, later) = rest.split_at_mut(block.header.content_len as usize);
        rest = later;
        let job = DecodeJob {
            header: block.header,
            payload: Some(block.payload),
            contents,
            outcome: None,
        };
        jobs.push((job, block.place));
    }
    match thread_pool(workers.min(jobs.len())) {
        Some(pool) => pool.install(|| {
            jobs.par_iter_mut().try_for_each(|(job, place)| decode_one(&*engine, job, *place))
        })?,
        None => {
            jobs.iter_mut().try_for_each(|(job, place)| decode_one(&*engine, job, *place))?;
        }
    }
    Ok(output)
}

/// A block of the input.
struct Block<'a> {
    header: BlockHeader,
    place: Place,
    payload: &'a [u8],
}

/// What an input holds.
struct Survey<'a> {
    /// That of the first frame.
    header: Option<FrameHeader>,
    blocks: Vec<Block<'a>>,
    /// How many may decode them.
    workers: usize,
}

/// Walks all structures of `input`.
fn survey<'a>(
    input: &'a [u8],
    options: &DecodeOptions,
    engine: &dyn Engine,
) -> Result<Survey<'a>, Error> {
    let mut frames = FrameReader::new(input);
    let mut blocks = Vec::new();
    let mut total = 0_u64;
    let mut workers = usize::MAX;
    let mut first = None;
    loop {
        match frames.next()? {
            Event::Frame(header) => {
                first.get_or_insert(header);
                // Contents and payloads lie in the caller's memory.
                let cost = Cost { block: 0, ..Cost::of_decoding(engine, &header) };
                workers = workers.min(cost.share(options.threads, options.max_memory)?.workers);
            }
            Event::Block(header, place) => {
                total = total.saturating_add(u64::from(header.content_len));
                if total > options.max_output {
                    return Err(Error::LimitOutput { limit: options.max_output });
                }
                let payload = frames.payload_in_place(&header, place)?;
                let room = (blocks.len() + 1) * size_of::<Block<'_>>();
                blocks.try_reserve(1).map_err(|_| out_of_memory(room))?;
                blocks.push(Block { header, place, payload });
            }
            Event::FrameEnd => {}
            Event::End => return Ok(Survey { header: first, blocks, workers }),
        }
    }
}

fn decode_one(engine: &dyn Engine, job: &mut DecodeJob<'_>, place: Place) -> Result<(), Error> {
    engine.decode(std::slice::from_mut(job));
    match job.outcome.take() {
        Some(outcome) => outcome.map_err(|fault| fault.at(place)),
        None => Err(Error::Internal { what: "a block could not be decoded" }),
    }
}
