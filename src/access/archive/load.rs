//! Loads batches of blocks: from the cache of payloads or the source, and through the decoder.

use std::ops::Range;
use std::slice;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use super::Page;
use super::error::ArchiveError;
use super::layout::{BlockId, Layout};
use crate::access::cache::{Cache, CacheStatistics};
use crate::access::{Part, Source};
use crate::error::{Error, Place};
use crate::format::{BlockHeader, CHECKSUM_LEN, Fault, MAX_BLOCK_HEADER_LEN};
use crate::pipeline::DecodeOptions;
use crate::pipeline::buffer::zeroed;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{DecodeJob, Engine};
use crate::pipeline::memory::Cost;
use crate::pipeline::statistics::Counted;
use crate::stream::FrameEntry;

/// Compressed blocks, with their headers.
type Payload = Arc<Vec<u8>>;

/// Brings blocks from the source to their contents.
pub(super) struct Loader {
    source: Arc<dyn Source>,
    engine: Arc<dyn Engine>,
    pool: ThreadPool,
    payloads: Mutex<Cache<BlockId, Payload>>,
}

/// A block on its way.
struct Loading {
    id: BlockId,
    /// Where it lies in its frame.
    range: Range<u64>,
    place: Place,
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
        for frame in layout.frames() {
            let own = Cost::of_decoding(&*engine, &frame.header);
            cost.worker = cost.worker.max(own.worker);
            cost.block = cost.block.max(own.block);
        }
        let workers = cost.share(options.threads, options.max_memory)?.workers;
        let left = options.max_memory.saturating_sub(cost.fixed + cost.worker * workers as u64);
        let max_blocks = (left / cost.block).clamp(1, MAX_BLOCKS) as usize;
        let pool = ThreadPoolBuilder::new().num_threads(workers).build();
        let pool = pool.map_err(|error| Error::Io(std::io::Error::other(error)))?;
        let payloads = Mutex::new(Cache::new(budget));
        Ok((Self { source, engine, pool, payloads }, max_blocks))
    }

    fn payloads(&self) -> MutexGuard<'_, Cache<BlockId, Payload>> {
        self.payloads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn payload_statistics(&self) -> CacheStatistics {
        self.payloads().statistics()
    }

    /// The contents of each block, or why they could not be loaded.
    pub(super) fn load(
        &self,
        layout: &Layout,
        blocks: &[BlockId],
    ) -> Vec<Result<Page, ArchiveError>> {
        let format = |error| ArchiveError::format(self.source.uri(), error);
        let mut loading: Vec<_> =
            blocks.iter().map(|id| self.begin(layout, *id).map_err(format)).collect();
        if let Err(error) = self.fetch(&mut loading) {
            for block in loading.iter_mut().filter(|block| is_missing(block)) {
                *block = Err(error.clone());
            }
        }
        let decode = |block: Result<Loading, ArchiveError>| {
            let block = block?;
            let frame = &layout.frames()[block.id.frame];
            let page = self.decode(frame, &block).map_err(|fault| format(fault.at(block.place)))?;
            if block.is_fetched {
                let bytes = block.payload.len() as u64;
                self.payloads().insert(block.id, block.payload, bytes);
            }
            Ok(Arc::new(page))
        };
        self.pool.install(|| loading.into_par_iter().map(decode).collect())
    }

    /// Finds a block, and its payload if that is in the cache; else makes room for it.
    fn begin(&self, layout: &Layout, id: BlockId) -> Result<Loading, Error> {
        let index = layout.index(&*self.source, id.frame)?;
        let frame = &layout.frames()[id.frame];
        let Some(range) = index.block(id.number) else {
            return Err(Error::Internal { what: "a block beyond the index" });
        };
        let offset = frame.offset + range.start;
        let place = Place::new(id.frame as u64, offset).in_block(id.number);
        if let Some(payload) = self.payloads().get(&id) {
            let payload = Arc::clone(payload);
            return Ok(Loading { id, range, place, payload, is_fetched: false });
        }
        // Every block is shorter than its contents and a header together.
        let mut len = range.end - range.start;
        if len > frame.header.block_size() as u64 + MAX_BLOCK_HEADER_LEN as u64 {
            return Err(Fault::Corrupt("the block is too long").at(place));
        }
        // A checksum follows the only block of a single frame.
        if frame.header.single.is_some() {
            len += CHECKSUM_LEN as u64;
        }
        let payload = Arc::new(zeroed(len as usize).map_err(|fault| fault.at(place))?);
        Ok(Loading { id, range, place, payload, is_fetched: true })
    }

    /// Reads all missing payloads at once.
    fn fetch(&self, loading: &mut [Result<Loading, ArchiveError>]) -> Result<(), ArchiveError> {
        let missing = loading.iter_mut().flatten().filter(|block| block.is_fetched);
        let mut parts: Vec<_> = missing
            .filter_map(|block| {
                let offset = block.place.offset;
                Some(Part { offset, buffer: Arc::get_mut(&mut block.payload)? })
            })
            .collect();
        Ok(self.source.read_ranges(&mut parts)?)
    }

    fn decode(&self, frame: &FrameEntry, block: &Loading) -> Result<Vec<u8>, Fault> {
        let (header, payload) = open_block(frame, block)?;
        let mut contents = zeroed(header.content_len as usize)?;
        let payload = Some(payload);
        let mut job = DecodeJob { header, payload, contents: &mut contents, outcome: None };
        self.engine.decode(slice::from_mut(&mut job));
        job.outcome.unwrap_or(Err(Fault::Internal("a block was not decoded")))?;
        Ok(contents)
    }
}

fn is_missing(block: &Result<Loading, ArchiveError>) -> bool {
    block.as_ref().is_ok_and(|block| block.is_fetched)
}

/// The header of a block, and its payload.
fn open_block<'b>(
    frame: &FrameEntry,
    block: &'b Loading,
) -> Result<(BlockHeader, &'b [u8]), Fault> {
    let bytes = block.payload.as_slice();
    if let Some(single) = &frame.header.single {
        let (payload, checksum) = bytes.split_last_chunk().ok_or(Fault::Truncated)?;
        return Ok((single.sealed_block(&frame.header, payload, *checksum), payload));
    }
    let header = BlockHeader::parse(bytes)?;
    frame.check_block(&header, block.id.number, &block.range)?;
    Ok((header, bytes.get(header.len()..).unwrap_or_default()))
}
