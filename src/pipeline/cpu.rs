//! The engine that runs the codecs on CPU cores.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crc32c::crc32c;

use super::buffer::zeroed;
use super::engine::{Coded, DecodeJob, EncodeJob, Engine};
use super::memory::payload_capacity;
use super::modules::FrameModules;
use crate::codec::filter::{
    self, ApplyFault, Chooser, CodecTraits, Context, Filter, FilterChain, InvertFault, RunModule,
};
use crate::codec::{Codec, OutOfMemory, Recipe, Smallest, bwt, lz77, reserve};
use crate::format::{Fault, Method, Pipeline};
use crate::sync::Lock;

/// Runs codecs in the calling thread. A codec that panics is a bug in pz; it costs one block its outcome, but does not
/// end the program.
#[derive(Default)]
pub(crate) struct CpuEngine {
    /// Idle scratch memory: as many as were in use at once.
    idle: Lock<Vec<Scratch>>,
    /// Modules that filter the blocks that it encodes.
    modules: Option<Arc<FrameModules>>,
}

/// The scratch memory of each codec used so far, in boxes, because moving them would take as long as decoding a small
/// block.
#[derive(Default)]
struct Scratch {
    lz77_encoder: Option<Box<lz77::Encoder>>,
    lz77_decoder: Option<Box<lz77::Decoder>>,
    bwt_encoder: Option<Box<bwt::Encoder>>,
    bwt_decoder: Option<Box<bwt::Decoder>>,
    /// A block's filtered contents.
    filtered: Vec<u8>,
    /// Part of a block while filters work on it.
    unit: Vec<u8>,
    chooser: Chooser,
    /// The payload that is tried for [`Codec::Smallest`], or of a sample.
    trial: Vec<u8>,
}

impl CpuEngine {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Filters blocks with `modules` where the recipe's chain says so.
    pub(crate) fn with_modules(modules: Option<Arc<FrameModules>>) -> Self {
        Self { modules, ..Self::default() }
    }

    fn with_scratch<R>(&self, work: impl FnOnce(&mut Scratch) -> R) -> R {
        let idle = self.idle.lock().pop();
        let mut scratch = idle.unwrap_or_default();
        let result = work(&mut scratch);
        self.idle.lock().push(scratch);
        result
    }
}

impl Engine for CpuEngine {
    fn encode(&self, recipe: &Recipe, batch: &mut [EncodeJob<'_>]) {
        self.with_scratch(|scratch| {
            for job in batch {
                let work = || match job.coded.filter(|_| job.is_unverified) {
                    Some(coded) if restores(scratch, &coded, job.contents, job.payload) => {
                        Ok(coded)
                    }
                    _ => {
                        let modules = self.modules.as_deref().map(|one| one as &dyn RunModule);
                        let context = Context { modules, position: job.position };
                        encode(scratch, recipe, job.contents, context, job.payload)
                    }
                };
                let outcome = catch_unwind(AssertUnwindSafe(work)).ok();
                job.refused = outcome.and_then(Result::err);
                job.coded = outcome.and_then(Result::ok);
                job.is_unverified = false;
            }
        });
    }

    fn decode(&self, batch: &mut [DecodeJob<'_>]) {
        self.with_scratch(|scratch| {
            for job in batch {
                let outcome = catch_unwind(AssertUnwindSafe(|| decode(scratch, job)));
                job.outcome = Some(outcome.unwrap_or(Err(Fault::Internal("a decoder panicked"))));
            }
        });
    }

    fn release(&self) {
        self.idle.lock().clear();
    }

    fn encode_memory(&self, recipe: &Recipe, block_size: usize) -> u64 {
        codec_memory(&recipe.codec, block_size).saturating_add(recipe.filter.memory(block_size))
    }

    fn decode_memory(&self, pipeline: Pipeline, block_size: usize) -> u64 {
        let codec = match pipeline {
            Pipeline::Store => return 0,
            Pipeline::Lzh | Pipeline::Lzf | Pipeline::Fse => lz77::Decoder::memory(block_size),
            Pipeline::Bwt => {
                let lz77 = lz77::Decoder::memory(block_size.min(lz77::MAX_BLOCK));
                bwt::Decoder::memory(block_size) + lz77
            }
        };
        codec.saturating_add(FilterChain::scratch_len(block_size) as u64)
    }
}

/// Bytes of memory that an encoder takes for `len` bytes.
fn codec_memory(codec: &Codec, len: usize) -> u64 {
    match codec {
        Codec::Store => 0,
        Codec::Lz77(params) => lz77::Encoder::memory(params, len),
        Codec::Bwt(params) => bwt::Encoder::memory(params, len),
        Codec::Smallest(Smallest { bwt, quick, best }) => {
            let quick = lz77::Encoder::memory(quick, len);
            let bwt = bwt::Encoder::memory(bwt, len);
            let best = lz77::Encoder::memory(best, len);
            quick + bwt.max(best)
        }
    }
}

fn encode(
    scratch: &mut Scratch,
    recipe: &Recipe,
    contents: &[u8],
    context: Context<'_>,
    payload: &mut Vec<u8>,
) -> Result<Coded, ApplyFault> {
    payload.clear();
    let content_crc = crc32c(contents);
    if is_fill(contents) {
        payload.push(contents[0]);
        let (method, payload_crc) = (Method::Fill, crc32c(payload));
        return Ok(Coded { method, filters: None, payload_crc, content_crc });
    }
    // The filters borrow their memory from the scratch, whose codecs run after them.
    let mut filtered = std::mem::take(&mut scratch.filtered);
    let filters = apply_filter(scratch, recipe, contents, context, &mut filtered);
    let coded = filters.and_then(|filters| {
        let source = if filters.is_some() { &filtered[..] } else { contents };
        let method = run_codec(scratch, &recipe.codec, source, payload)?;
        if method == Method::Store || payload.len() >= contents.len() {
            payload.clear();
            return Ok(Coded::stored(content_crc));
        }
        Ok(Coded { method, filters, payload_crc: crc32c(payload), content_crc })
    });
    scratch.filtered = filtered;
    coded
}

/// Filters the contents, and returns the filters used; `None` if the contents stay as they are.
fn apply_filter(
    scratch: &mut Scratch,
    recipe: &Recipe,
    contents: &[u8],
    context: Context<'_>,
    filtered: &mut Vec<u8>,
) -> Result<Option<FilterChain>, ApplyFault> {
    let chain = match recipe.filter {
        Filter::None => None,
        Filter::Auto => choose_filter(scratch, recipe, contents)?,
        Filter::Chain(chain) => Some(chain),
    };
    let Some(chain) = chain else { return Ok(None) };
    let fits = filter::apply(&chain, contents, filtered, &mut scratch.unit, context)?;
    Ok(fits.then_some(chain))
}

/// The filters that suit the contents and the codec; `None` if none do.
fn choose_filter(
    scratch: &mut Scratch,
    recipe: &Recipe,
    contents: &[u8],
) -> Result<Option<FilterChain>, OutOfMemory> {
    let mut chooser = std::mem::take(&mut scratch.chooser);
    let mut tried = std::mem::take(&mut scratch.trial);
    let (hints, codec) = (&recipe.hints, recipe.codec.first());
    let traits = match codec {
        Codec::Lz77(params) => CodecTraits {
            has_tables: true,
            is_fast: !params.fse,
            has_matches: params.search != lz77::Search::None,
        },
        _ => CodecTraits { has_tables: false, is_fast: false, has_matches: true },
    };
    let chosen = chooser.choose(contents, hints, traits, |part| {
        reserve(&mut tried, payload_capacity(part.len()))?;
        tried.clear();
        match run_codec(scratch, &codec, part, &mut tried)? {
            Method::Store => Ok(part.len()),
            _ => Ok(part.len().min(tried.len())),
        }
    });
    (scratch.chooser, scratch.trial) = (chooser, tried);
    chosen
}

/// Encodes `source`. Returns [`Method::Store`] if the codec cannot make it smaller.
fn run_codec(
    scratch: &mut Scratch,
    codec: &Codec,
    source: &[u8],
    payload: &mut Vec<u8>,
) -> Result<Method, OutOfMemory> {
    match codec {
        Codec::Store => Ok(Method::Store),
        Codec::Lz77(params) => match encode_lz77(scratch, params, source, payload, source.len())? {
            true => Ok(Method::Lz77),
            false => Ok(Method::Store),
        },
        Codec::Bwt(params) => {
            encode_bwt(scratch, params, source, payload)?;
            Ok(Method::Bwt)
        }
        Codec::Smallest(smallest) => encode_smallest(scratch, smallest, source, payload),
    }
}

/// Sets `payload` to that of `contents` and returns true, unless it has `limit` bytes or more.
fn encode_lz77(
    scratch: &mut Scratch,
    params: &lz77::Params,
    contents: &[u8],
    payload: &mut Vec<u8>,
    limit: usize,
) -> Result<bool, OutOfMemory> {
    payload.clear();
    let encoder = scratch.lz77_encoder.get_or_insert_default();
    encoder.reserve(params, contents.len())?;
    Ok(encoder.encode_below(params, contents, payload, limit)? && payload.len() < limit)
}

fn encode_bwt(
    scratch: &mut Scratch,
    params: &bwt::Params,
    contents: &[u8],
    payload: &mut Vec<u8>,
) -> Result<(), OutOfMemory> {
    scratch.bwt_encoder.get_or_insert_default().try_encode(params, contents, payload)
}

/// Sets `payload` to the smallest payload, and returns its method. Frees the memory of either codec before the other
/// takes it.
fn encode_smallest(
    scratch: &mut Scratch,
    smallest: &Smallest,
    contents: &[u8],
    payload: &mut Vec<u8>,
) -> Result<Method, OutOfMemory> {
    let Smallest { bwt, quick, best } = smallest;
    scratch.lz77_encoder = None;
    encode_bwt(scratch, bwt, contents, payload)?;
    let mut trial = std::mem::take(&mut scratch.trial);
    reserve(&mut trial, contents.len())?;
    let limit = contents.len().min(Smallest::quick_limit(payload.len()));
    let mut is_smaller = false;
    if encode_lz77(scratch, quick, contents, &mut trial, limit)? {
        scratch.bwt_encoder = None;
        let limit = contents.len().min(payload.len());
        is_smaller = encode_lz77(scratch, best, contents, &mut trial, limit)?;
    }
    if is_smaller {
        payload.clear();
        payload.extend_from_slice(&trial);
    }
    scratch.trial = trial;
    Ok(if is_smaller { Method::Lz77 } else { Method::Bwt })
}

/// Whether a payload decodes to the contents it was made from. A checksum that a device took of its own payload does
/// not show that the payload is right.
fn restores(scratch: &mut Scratch, coded: &Coded, contents: &[u8], payload: &[u8]) -> bool {
    // Without the memory to check the block, encode it again.
    let Ok(mut restored) = zeroed(contents.len()) else { return false };
    let header = coded.header(contents.len(), payload.len());
    // A device encodes no blocks that modules filter.
    let mut job = DecodeJob::new(header, None, Some(payload), &mut restored);
    decode(scratch, &mut job).is_ok()
}

impl CpuEngine {
    /// Whether a payload decodes to its contents, with scratch memory of its own.
    pub(crate) fn restores(coded: &Coded, contents: &[u8], payload: &[u8]) -> bool {
        let check = || restores(&mut Scratch::default(), coded, contents, payload);
        catch_unwind(AssertUnwindSafe(check)).unwrap_or(false)
    }

    /// Bytes of memory that [`Self::choose_filter`] takes for a block of `block_len` bytes.
    pub(crate) fn choosing_memory(recipe: &Recipe, block_len: usize) -> u64 {
        match recipe.filter {
            // It encodes a quarter of the block at most.
            Filter::Auto => {
                let codec = codec_memory(&recipe.codec.first(), block_len / 4);
                codec.saturating_add(recipe.filter.memory(block_len))
            }
            Filter::None | Filter::Chain(_) => 0,
        }
    }

    /// The filters that suit these contents and the codec of `recipe`, if any; `None` if the choice cannot be made.
    pub(crate) fn choose_filter(
        &self,
        recipe: &Recipe,
        contents: &[u8],
    ) -> Option<Option<FilterChain>> {
        self.with_scratch(|scratch| {
            let choose = || choose_filter(scratch, recipe, contents);
            catch_unwind(AssertUnwindSafe(choose)).ok()?.ok()
        })
    }

    /// Encodes the block if its contents are one repeated byte; returns whether the block is coded.
    pub(crate) fn encode_fill(job: &mut EncodeJob<'_>) -> bool {
        if is_fill(job.contents) {
            let (recipe, scratch) = (Recipe::default(), &mut Scratch::default());
            let context = Context::default();
            job.coded = encode(scratch, &recipe, job.contents, context, job.payload).ok();
        }
        job.coded.is_some()
    }

    /// Decodes the block if it is stored or one repeated byte. That takes no scratch memory.
    pub(crate) fn decode_simple(job: &mut DecodeJob<'_>) {
        if matches!(job.header.method, Method::Store | Method::Fill) {
            job.outcome = Some(decode(&mut Scratch::default(), job));
        }
    }
}

/// Whether the contents are one repeated byte.
fn is_fill(contents: &[u8]) -> bool {
    contents.len() > 1 && contents[1..] == contents[..contents.len() - 1]
}

fn decode(scratch: &mut Scratch, job: &mut DecodeJob<'_>) -> Result<(), Fault> {
    let header = &job.header;
    if let Some(payload) = job.payload {
        if crc32c(payload) != header.payload_crc {
            return Err(Fault::Corrupt("the block's checksum does not agree"));
        }
        match header.method {
            Method::Store => job.contents.copy_from_slice(payload),
            Method::Fill => job.contents.fill(payload[0]),
            Method::Lz77 => {
                let decoder = scratch.lz77_decoder.get_or_insert_default();
                decoder.reserve(job.contents.len())?;
                decoder.decode(payload, job.contents)?;
            }
            Method::Bwt => {
                let decoder = scratch.bwt_decoder.get_or_insert_default();
                decoder.reserve(payload.len(), job.contents.len())?;
                decoder.decode(payload, job.contents)?;
            }
        }
        if let Some(filters) = &header.filters {
            let context = job.context();
            let inverted = filter::invert(filters, job.contents, &mut scratch.unit, context);
            inverted.map_err(|fault| match fault {
                InvertFault::OutOfMemory(refused) => Fault::from(refused),
                InvertFault::Malformed(malformed) => malformed.into(),
            })?;
        }
    }
    if crc32c(job.contents) != header.content_crc {
        return Err(Fault::Corrupt("the checksum of the block's contents does not agree"));
    }
    Ok(())
}
