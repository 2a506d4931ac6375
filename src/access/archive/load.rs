//! Loads batches of blocks: from the cache of payloads or the source, and through the decoder.

use std::ops::{Deref, Range};
use std::slice;
use std::sync::{Arc, MutexGuard, OnceLock};

use rayon::ThreadPool;
use rayon::prelude::*;

use super::Page;
use super::error::ArchiveError;
use super::layout::{BlockId, Layout};
use crate::access::cache::{Cache, CacheStatistics};
use crate::access::{Part, Source};
use crate::error::{Error, Place};
use crate::format::{BlockHeader, CHECKSUM_LEN, Fault, MAX_BLOCK_HEADER_LEN};
use crate::pipeline::DecodeOptions;
use crate::pipeline::buffer::{Buffer, Pool, zeroed};
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{DecodeJob, Engine};
use crate::pipeline::memory::Cost;
use crate::pipeline::modules::{FrameModules, LastModules};
use crate::pipeline::scheduler::build_pool;
use crate::pipeline::statistics::Counted;
use crate::stream::{FrameEntry, Recent, Restoring, matches_of};
use crate::sync::Mutex;

/// Compressed blocks, with their headers.
pub(super) type Payload = Arc<Vec<u8>>;

/// The contents of a block. Their memory is used again: fresh memory costs about as much as decoding into it.
pub(super) struct Contents {
    buffer: Buffer,
    idle: Pool,
}

impl Deref for Contents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for Contents {
    fn drop(&mut self) {
        self.idle.give(std::mem::take(&mut self.buffer));
    }
}

/// Brings blocks from the source to their contents.
pub(super) struct Loader {
    source: Arc<dyn Source>,
    engine: Arc<dyn Engine>,
    /// The threads that decode, once there is something to decode; `None` if the system has none to spare.
    pool: OnceLock<Option<ThreadPool>>,
    workers: usize,
    payloads: Mutex<Cache<BlockId, Payload>>,
    /// Memory of contents that are no longer needed, as much as is decoded into at once.
    idle: Pool,
    /// Own bytes of blocks that distant matches repeat.
    own: Mutex<Cache<BlockId, Payload>>,
    /// For each frame, what runs its modules, if it has some.
    modules: Vec<Option<Arc<FrameModules>>>,
}

/// Where a block lies.
pub(super) struct Located {
    pub(super) id: BlockId,
    /// Where it lies in its frame.
    range: Range<u64>,
    /// Where it lies in the file.
    pub(super) place: Place,
    /// Its length in bytes, with the checksum of a single frame.
    pub(super) len: usize,
    is_single: bool,
}

impl Located {
    /// Whether it is the only block of a single frame, whose header is the frame's, and which a checksum follows.
    pub(super) fn is_single(&self) -> bool {
        self.is_single
    }

    /// Length of what comes before the payload, in bytes.
    pub(super) fn header_len(&self, header: &BlockHeader) -> usize {
        if self.is_single { 0 } else { header.len() }
    }
}

/// A block on its way.
struct Loading {
    block: Located,
    payload: Payload,
    is_fetched: bool,
}

/// The most blocks that are loaded at once, if memory permits.
const MAX_BLOCKS: u64 = 256;

impl Loader {
    /// Also returns how many blocks may be loaded at once within the limits of `options`.
    pub(super) fn new(
        source: Arc<dyn Source>,
        layout: &Layout,
        options: &DecodeOptions,
        budget: u64,
    ) -> Result<(Self, usize), Error> {
        let engine = Counted::new(Arc::new(CpuEngine::new()), options.statistics.as_ref(), false);
        let mut cost = Cost { fixed: layout.memory(), worker: 0, block: 1 };
        let (mut last, mut modules) = (LastModules::default(), Vec::new());
        let mut of_own = 0;
        for (number, frame) in layout.frames().iter().enumerate() {
            let table = &frame.header.modules;
            modules.push(last.of(table, &options.modules, layout.place(number))?);
            let kept = Recent::memory(&frame.header);
            let own = Cost::keeping(&*engine, &frame.header, kept);
            let block_size = frame.header.block_size() as u64;
            // A worker that restores a block has its own bytes and those of one that it repeats.
            let restoring = if frame.header.reach > 0 { 2 * block_size } else { 0 };
            of_own = of_own.max(if frame.header.reach > 0 { kept } else { 0 });
            cost.fixed = cost.fixed.max(own.fixed + layout.memory());
            cost.worker = cost.worker.max(own.worker + restoring);
            cost.block = cost.block.max(own.block);
        }
        let workers = cost.share(options.threads, options.max_memory)?.workers;
        let left = options.max_memory.saturating_sub(cost.fixed + cost.worker * workers as u64);
        let max_blocks = (left / cost.block).clamp(1, MAX_BLOCKS) as usize;
        let pool = OnceLock::new();
        let payloads = Mutex::new(Cache::new(budget));
        let idle = Pool::of_at_most(workers.min(max_blocks));
        let own = Mutex::new(Cache::new(of_own));
        Ok((Self { source, engine, pool, workers, payloads, idle, own, modules }, max_blocks))
    }

    fn payloads(&self) -> MutexGuard<'_, Cache<BlockId, Payload>> {
        self.payloads.lock()
    }

    pub(super) fn payload_statistics(&self) -> CacheStatistics {
        self.payloads().statistics()
    }

    /// Hands the contents of each block to `done`, with its number among `blocks`, as soon as they are there, or why they could
    /// not be loaded.
    pub(super) fn load(
        &self,
        layout: &Layout,
        blocks: &[BlockId],
        done: impl Fn(usize, Result<Page, ArchiveError>) + Sync,
    ) {
        let format = |error| ArchiveError::format(self.source.uri(), error);
        let mut loading: Vec<_> =
            blocks.iter().map(|id| self.begin(layout, *id).map_err(format)).collect();
        if let Err(error) = self.fetch(&mut loading) {
            for block in loading.iter_mut().filter(|block| is_missing(block)) {
                *block = Err(error.clone());
            }
        }
        let decode = |block: Result<Loading, ArchiveError>| {
            let Loading { block, payload, is_fetched } = block?;
            let frame = &layout.frames()[block.id.frame];
            let page = self.decode(layout, frame, &block, &payload)?;
            if is_fetched {
                let bytes = payload.len() as u64;
                self.payloads().insert(block.id, payload, bytes);
            }
            Ok(Arc::new(page))
        };
        let load = |(number, block)| done(number, decode(block));
        match self.pool.get_or_init(|| build_pool(self.workers)) {
            Some(pool) => pool.install(|| loading.into_par_iter().enumerate().for_each(load)),
            None => loading.into_iter().enumerate().for_each(load),
        }
    }

    /// Finds a block.
    pub(super) fn locate(&self, layout: &Layout, id: BlockId) -> Result<Located, Error> {
        let index = layout.index(&*self.source, id.frame)?;
        let frame = &layout.frames()[id.frame];
        let Some(range) = index.block(id.number) else {
            return Err(Error::Internal { what: "a block beyond the index" });
        };
        let offset = frame.offset + range.start;
        let place = Place::new(id.frame as u64, offset).in_block(id.number);
        // Every block is shorter than its contents and a header together.
        let mut len = range.end - range.start;
        if len > frame.header.block_size() as u64 + MAX_BLOCK_HEADER_LEN as u64 {
            return Err(Fault::Corrupt("the block is too long").at(place));
        }
        // A checksum follows the only block of a single frame.
        let is_single = frame.header.single.is_some();
        if is_single {
            len += CHECKSUM_LEN as u64;
        }
        Ok(Located { id, range, place, len: len as usize, is_single })
    }

    /// What runs the modules of the frame with this number, if it has some.
    pub(super) fn modules(&self, frame: usize) -> Option<&FrameModules> {
        self.modules.get(frame).and_then(Option::as_deref)
    }

    /// The bytes of a block, if they are in the cache.
    pub(super) fn kept(&self, block: &Located) -> Option<Payload> {
        self.payloads().get(&block.id).map(Arc::clone).filter(|kept| kept.len() == block.len)
    }

    /// Keeps the bytes of a block in the cache.
    pub(super) fn keep(&self, id: BlockId, bytes: Payload) {
        let len = bytes.len() as u64;
        self.payloads().insert(id, bytes, len);
    }

    /// Finds a block, and its payload if that is in the cache; else makes room for it.
    fn begin(&self, layout: &Layout, id: BlockId) -> Result<Loading, Error> {
        let block = self.locate(layout, id)?;
        if let Some(payload) = self.kept(&block) {
            return Ok(Loading { block, payload, is_fetched: false });
        }
        let payload = zeroed(block.len).map_err(|fault| fault.at(block.place))?;
        Ok(Loading { block, payload: Arc::new(payload), is_fetched: true })
    }

    /// Reads all missing payloads at once.
    fn fetch(&self, loading: &mut [Result<Loading, ArchiveError>]) -> Result<(), ArchiveError> {
        let missing = loading.iter_mut().flatten().filter(|block| block.is_fetched);
        let mut parts: Vec<_> = missing
            .filter_map(|block| {
                let offset = block.block.place.offset;
                Some(Part { offset, buffer: Arc::get_mut(&mut block.payload)? })
            })
            .collect();
        Ok(self.source.read_ranges(&mut parts)?)
    }

    fn decode(
        &self,
        layout: &Layout,
        frame: &FrameEntry,
        block: &Located,
        bytes: &[u8],
    ) -> Result<Contents, ArchiveError> {
        let opened = open_block(frame, block, bytes);
        let (header, payload) = opened.map_err(|fault| self.fault_in(block, fault))?;
        let mut contents = Contents { buffer: self.idle.take(), idle: self.idle.clone() };
        let bytes = contents.buffer.set_len(header.content_len as usize);
        let bytes = bytes.map_err(|fault| self.fault_in(block, fault))?;
        self.decode_into(layout, block, header, payload, bytes)?;
        Ok(contents)
    }

    /// Decodes a block in the calling thread. Zeros follow the contents, up to a multiple of 4 bytes.
    pub(super) fn decode_padded(
        &self,
        layout: &Layout,
        block: &Located,
        header: BlockHeader,
        payload: &[u8],
    ) -> Result<Vec<u8>, ArchiveError> {
        let len = header.content_len as usize;
        let contents = zeroed(len.next_multiple_of(4));
        let mut contents = contents.map_err(|fault| self.fault_in(block, fault))?;
        self.decode_into(layout, block, header, payload, &mut contents[..len])?;
        Ok(contents)
    }

    fn decode_into(
        &self,
        layout: &Layout,
        block: &Located,
        header: BlockHeader,
        payload: &[u8],
        contents: &mut [u8],
    ) -> Result<(), ArchiveError> {
        let Some((list, own_header, coded)) = header.split(payload) else {
            let decoded = self.decode_coded(block, header, payload, contents);
            return decoded.map_err(|fault| self.fault_in(block, fault));
        };
        let format = |error| ArchiveError::format(self.source.uri(), error);
        let own = zeroed(own_header.content_len as usize).and_then(|mut own| {
            self.decode_coded(block, own_header, coded, &mut own)?;
            Ok(own)
        });
        let own = own.map_err(|fault| self.fault_in(block, fault))?;
        let matches = matches_of(&header, own_header.content_len, list)
            .map_err(|fault| self.fault_in(block, fault))?;
        let restoring = Restoring::begin(&header, &matches, &own, contents, block.place);
        let mut restoring = restoring.map_err(format)?;
        for number in restoring.sources() {
            let source = self.own_bytes(layout, BlockId { number, ..block.id })?;
            restoring.put(number, Some(&source)).map_err(format)?;
        }
        restoring.end().map_err(format)
    }

    /// The own bytes of a block; all of the contents are, if it has no distant matches.
    fn own_bytes(&self, layout: &Layout, id: BlockId) -> Result<Payload, ArchiveError> {
        let lock = || self.own.lock();
        if let Some(own) = lock().get(&id) {
            return Ok(Arc::clone(own));
        }
        let mut loading = [self
            .begin(layout, id)
            .map_err(|error| ArchiveError::format(self.source.uri(), error))];
        self.fetch(&mut loading)?;
        let [loading] = loading;
        let Loading { block, payload, .. } = loading?;
        let decode = || {
            let (header, payload) = open_block(&layout.frames()[id.frame], &block, &payload)?;
            let (header, payload) = match header.split(payload) {
                Some((_, own_header, coded)) => (own_header, coded),
                None => (header, payload),
            };
            let mut own = zeroed(header.content_len as usize)?;
            self.decode_coded(&block, header, payload, &mut own)?;
            Ok(Arc::new(own))
        };
        let own = decode().map_err(|fault| self.fault_in(&block, fault))?;
        let bytes = own.len() as u64;
        lock().insert(id, Arc::clone(&own), bytes);
        Ok(own)
    }

    /// Decodes what an engine does, in the calling thread.
    fn decode_coded(
        &self,
        block: &Located,
        header: BlockHeader,
        payload: &[u8],
        contents: &mut [u8],
    ) -> Result<(), Fault> {
        let modules = self.modules(block.id.frame);
        let payload = Some(payload);
        let mut job = DecodeJob { header, modules, payload, contents, outcome: None };
        self.engine.decode(slice::from_mut(&mut job));
        job.outcome.unwrap_or(Err(Fault::Internal("a block was not decoded")))
    }

    fn fault_in(&self, block: &Located, fault: Fault) -> ArchiveError {
        ArchiveError::format(self.source.uri(), fault.at(block.place))
    }
}

fn is_missing(block: &Result<Loading, ArchiveError>) -> bool {
    block.as_ref().is_ok_and(|block| block.is_fetched)
}

/// The header of a block, and its payload.
pub(super) fn open_block<'b>(
    frame: &FrameEntry,
    block: &Located,
    bytes: &'b [u8],
) -> Result<(BlockHeader, &'b [u8]), Fault> {
    if let Some(single) = &frame.header.single {
        let (payload, checksum) = bytes.split_last_chunk().ok_or(Fault::Truncated)?;
        return Ok((single.sealed_block(&frame.header, payload, *checksum), payload));
    }
    let header = BlockHeader::parse(bytes)?;
    frame.check_block(&header, block.id.number, &block.range)?;
    Ok((header, bytes.get(header.len()..).unwrap_or_default()))
}
