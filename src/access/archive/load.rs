//! Loads blocks: takes them from the payload cache or the source, and decodes them.

use std::borrow::Cow;
use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use rayon::ThreadPool;
use rayon::prelude::*;

use super::error::ArchiveError;
use super::options::ArchiveOptions;
use crate::access::cache::Cache;
use crate::access::sources::{Source, SourceError, SourceReader};
use crate::error::Error;
use crate::format::{BlockHeader, MAX_BLOCK_HEADER_LEN};
use crate::pipeline::buffer::{Buffer, Pool, zeroed};
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::Engine;
use crate::pipeline::memory::Cost;
use crate::pipeline::modules::{FrameModules, LastModules};
use crate::pipeline::scheduler::build_pool;
use crate::pipeline::statistics::Counted;
use crate::stream::Part;
use crate::stream::block::{Block, BlockId, Layout, Located, Recent, Sources};
use crate::sync::Mutex;

/// A compressed block, with its header.
type CompressedBlock = Arc<Vec<u8>>;

/// The decoded contents of a block.
pub(super) type Page = Arc<BlockContents>;

/// The contents of a block. Dropping them returns their memory to a pool, because fresh memory costs about as much as
/// decoding into it.
pub(super) struct BlockContents {
    buffer: Buffer,
    idle: Pool,
}

impl Deref for BlockContents {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.buffer
    }
}

impl Drop for BlockContents {
    fn drop(&mut self) {
        self.idle.give(std::mem::take(&mut self.buffer));
    }
}

/// Loads the blocks of one archive.
pub(super) struct Loader {
    pub(super) source: Arc<dyn Source>,
    pub(super) layout: Layout,
    engine: Arc<dyn Engine>,
    /// The threads that decode, started by the first load; `None` if the system has no threads to spare.
    pool: OnceLock<Option<ThreadPool>>,
    workers: usize,
    pub(super) payloads: Mutex<Cache<BlockId, CompressedBlock>>,
    /// Memory of dropped contents, at most as much as the threads decode into at once.
    idle: Pool,
    /// Own bytes of blocks that distant matches copy from.
    own: Mutex<Cache<BlockId, Arc<Buffer>>>,
    /// For each frame that has modules, what runs them.
    modules: Vec<Option<Arc<FrameModules>>>,
}

/// A block that has been found and read: its place, its checked header, and its bytes.
pub(super) struct InHand {
    pub(super) block: Located,
    pub(super) header: BlockHeader,
    bytes: BlockBytes,
}

/// The bytes of a block.
enum BlockBytes {
    /// The whole block; the flag is set if it came from the source and not from the cache.
    InMemory(CompressedBlock, bool),
    /// Only the first bytes. The payload is read later, straight to where it is needed.
    InFile(Vec<u8>),
}

impl BlockBytes {
    /// The memory that the source must fill, if there is some.
    fn missing(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::InMemory(bytes, true) => Arc::get_mut(bytes).map(Vec::as_mut_slice),
            Self::InMemory(_, false) | Self::InFile(_) => None,
        }
    }
}

/// The most blocks that all loaders together load at once, if memory permits.
const MAX_BLOCKS: u64 = 256;

impl Loader {
    /// Opens the archive in `source`. Also returns how many blocks may be loaded at once within the limits of
    /// `options`.
    pub(super) fn new(
        source: Arc<dyn Source>,
        options: &ArchiveOptions,
    ) -> Result<(Self, usize), Error> {
        let decode = &options.decode;
        let mut reader = SourceReader::new(Arc::clone(&source));
        let layout = Layout::read(&mut reader, decode, usize::MAX)?;
        if layout.frames().len() == 1 {
            // The reader still holds the only index.
            layout.index(0, &mut |offset, into| {
                reader.seek(SeekFrom::Start(offset))?;
                reader.read_exact(into)
            })?;
        }
        let engine =
            Counted::new(Arc::new(CpuEngine::new()), decode.resources.statistics.as_ref(), false);
        let indices = layout.frames().iter().map(|frame| 8 * (frame.block_count() + 1));
        let fixed = layout.memory() + indices.sum::<u64>();
        let mut cost = Cost { fixed, worker: 0, block: 1 };
        let (mut last, mut modules) = (LastModules::default(), Vec::new());
        let mut of_own = 0;
        for (number, frame) in layout.frames().iter().enumerate() {
            let table = &frame.header.modules;
            modules.push(last.of(table, &decode.modules, layout.place(number))?);
            let kept = Recent::memory(&frame.header);
            let own = Cost::keeping(&*engine, &frame.header, kept);
            let block_size = frame.header.block_size() as u64;
            // A worker that restores a block holds its own bytes and those of one block that it copies from.
            let restoring = if frame.header.reach > 0 { 2 * block_size } else { 0 };
            of_own = of_own.max(if frame.header.reach > 0 { kept } else { 0 });
            cost.fixed = cost.fixed.max(own.fixed + fixed);
            cost.worker = cost.worker.max(own.worker + restoring);
            cost.block = cost.block.max(own.block);
        }
        let workers = cost.share(decode.resources.threads, decode.resources.memory)?.workers;
        let left =
            decode.resources.memory.saturating_sub(cost.fixed + cost.worker * workers as u64);
        let max_blocks = (left / cost.block).clamp(1, MAX_BLOCKS) as usize;
        let pool = OnceLock::new();
        let payloads = Mutex::new(Cache::new(options.payload_cache));
        let idle = Pool::of_at_most(workers.min(max_blocks));
        let own = Mutex::new(Cache::new(of_own));
        let loader = Self { source, layout, engine, pool, workers, payloads, idle, own, modules };
        Ok((loader, max_blocks))
    }

    /// What runs the modules of frame `frame`, if it has some.
    pub(super) fn modules(&self, frame: usize) -> Option<&FrameModules> {
        self.modules.get(frame).and_then(Option::as_deref)
    }

    /// `error` as an error of this archive.
    pub(super) fn error(&self, error: Error) -> ArchiveError {
        ArchiveError::format(self.source.uri(), error)
    }

    /// Loads `blocks`. Calls `done` for each as soon as it is decoded or has failed, with its index in `blocks`.
    pub(super) fn load(
        &self,
        blocks: &[BlockId],
        done: impl Fn(usize, Result<Page, ArchiveError>) + Sync,
    ) {
        let fetched = self.fetch(blocks, false);
        let decode = |in_hand: InHand| {
            let mut contents = BlockContents { buffer: self.idle.take(), idle: self.idle.clone() };
            let len = in_hand.header.content_len as usize;
            let place = in_hand.block.place;
            let into = contents.buffer.set_len(len).map_err(|fault| fault.at(place))?;
            self.decode(&in_hand, into)?;
            self.keep(in_hand);
            Ok(Arc::new(contents))
        };
        let load = |(number, in_hand): (usize, Result<InHand, ArchiveError>)| {
            let decoded = in_hand.and_then(|one| decode(one).map_err(|error| self.error(error)));
            done(number, decoded);
        };
        match self.pool.get_or_init(|| build_pool(self.workers)) {
            Some(pool) => pool.install(|| fetched.into_par_iter().enumerate().for_each(load)),
            None => fetched.into_iter().enumerate().for_each(load),
        }
    }

    /// Finds blocks, reads those that are not in the cache from the source in one call, and checks their headers. If
    /// `may_stay` is set and the source is local, it reads only the header of each block.
    pub(super) fn fetch(
        &self,
        blocks: &[BlockId],
        may_stay: bool,
    ) -> Vec<Result<InHand, ArchiveError>> {
        let begin = |id: &BlockId| self.begin(*id, may_stay).map_err(|error| self.error(error));
        let mut begun: Vec<_> = blocks.iter().map(begin).collect();
        if let Err(error) = self.read_missing(begun.iter_mut().flatten()) {
            for one in &mut begun {
                if one.as_mut().is_ok_and(|(_, bytes)| bytes.missing().is_some()) {
                    *one = Err(error.clone().into());
                }
            }
        }
        let open = |(block, bytes)| self.open(block, bytes).map_err(|error| self.error(error));
        begun.into_iter().map(|begun| begun.and_then(open)).collect()
    }

    /// Finds a block. Returns its bytes from the cache, or memory to read them into.
    fn begin(&self, id: BlockId, may_stay: bool) -> Result<(Located, BlockBytes), Error> {
        let read = |offset, buffer: &mut [u8]| self.source.read_exact_at(buffer, offset);
        let block = self.layout.locate(id, &mut { read })?;
        let kept =
            self.payloads.lock().get(&id).map(Arc::clone).filter(|kept| kept.len() == block.len);
        let bytes = if let Some(kept) = kept {
            BlockBytes::InMemory(kept, false)
        } else if may_stay && self.source.is_local() && !block.is_single {
            let mut head = vec![0; block.len.min(MAX_BLOCK_HEADER_LEN)];
            read(block.place.offset, &mut head)?;
            BlockBytes::InFile(head)
        } else {
            let bytes = zeroed(block.len).map_err(|fault| fault.at(block.place))?;
            BlockBytes::InMemory(Arc::new(bytes), true)
        };
        Ok((block, bytes))
    }

    /// Reads the missing bytes of blocks, in one call of the source.
    fn read_missing<'b>(
        &self,
        begun: impl Iterator<Item = &'b mut (Located, BlockBytes)>,
    ) -> Result<(), SourceError> {
        let part = |(block, bytes): &'b mut (Located, BlockBytes)| {
            Some(Part { offset: block.place.offset, buffer: bytes.missing()? })
        };
        let mut parts: Vec<_> = begun.filter_map(part).collect();
        if parts.is_empty() {
            return Ok(());
        }
        self.source.read_ranges(&mut parts).map_err(|error| self.source_error(&error))
    }

    fn source_error(&self, error: &io::Error) -> SourceError {
        SourceError::of_io(self.source.uri(), error)
    }

    fn open(&self, block: Located, bytes: BlockBytes) -> Result<InHand, Error> {
        let first = match &bytes {
            BlockBytes::InMemory(bytes, _) => &bytes[..],
            BlockBytes::InFile(head) => head,
        };
        let header = block.open(&self.layout.frames()[block.id.frame], first);
        let header = header.map_err(|fault| fault.at(block.place))?;
        Ok(InHand { block, header, bytes })
    }

    /// Puts the bytes of a block in the cache if they came from the source.
    pub(super) fn keep(&self, in_hand: InHand) {
        if let BlockBytes::InMemory(bytes, true) = in_hand.bytes {
            let len = bytes.len() as u64;
            self.payloads.lock().insert(in_hand.block.id, bytes, len);
        }
    }

    /// Fills `into` with the payload of a block from byte `at` on.
    pub(super) fn read_payload(
        &self,
        in_hand: &InHand,
        at: usize,
        into: &mut [u8],
    ) -> Result<(), SourceError> {
        let start = in_hand.block.header_len(&in_hand.header) + at;
        match &in_hand.bytes {
            BlockBytes::InMemory(bytes, _) => {
                match bytes.get(start..start + into.len()) {
                    Some(payload) => into.copy_from_slice(payload),
                    // A block that is too short is damaged. Its checksum reports it.
                    None => into.fill(0),
                }
                Ok(())
            }
            BlockBytes::InFile(_) => {
                let offset = in_hand.block.place.offset + start as u64;
                let read = self.source.read_exact_at(into, offset);
                read.map_err(|error| self.source_error(&error))
            }
        }
    }

    /// The payload of a block, in memory.
    fn payload<'b>(&self, in_hand: &'b InHand) -> Result<Cow<'b, [u8]>, Error> {
        let len = in_hand.header.payload_len as usize;
        if let BlockBytes::InMemory(bytes, _) = &in_hand.bytes {
            let start = in_hand.block.header_len(&in_hand.header);
            return Ok(bytes.get(start..start + len).unwrap_or_default().into());
        }
        let mut payload = zeroed(len).map_err(|fault| fault.at(in_hand.block.place))?;
        self.read_payload(in_hand, 0, &mut payload)?;
        Ok(payload.into())
    }

    /// Decodes a block in the calling thread. Zeros follow the contents, up to a multiple of 4 bytes.
    pub(super) fn decode_padded(&self, in_hand: &InHand) -> Result<Vec<u8>, Error> {
        let len = in_hand.header.content_len as usize;
        let contents = zeroed(len.next_multiple_of(4));
        let mut contents = contents.map_err(|fault| fault.at(in_hand.block.place))?;
        self.decode(in_hand, &mut contents[..len])?;
        Ok(contents)
    }

    /// Decodes a block in the calling thread.
    fn decode(&self, in_hand: &InHand, contents: &mut [u8]) -> Result<(), Error> {
        let InHand { block: Located { id, place, .. }, header, .. } = in_hand;
        let payload = self.payload(in_hand)?;
        let modules = self.modules(id.frame);
        let block = Block { header: *header, payload: Some(&payload), modules };
        let mut sources = SourcesOf { loader: self, id: *id, latest: None };
        block.restore(*place, &*self.engine, contents, &mut Buffer::default(), &mut sources)
    }

    /// The own bytes of a block. Without distant matches these are its contents.
    fn own_bytes(&self, id: BlockId) -> Result<Arc<Buffer>, Error> {
        let lock = || self.own.lock();
        if let Some(own) = lock().get(&id) {
            return Ok(Arc::clone(own));
        }
        let mut begun = self.begin(id, false)?;
        self.read_missing([&mut begun].into_iter())?;
        let in_hand = self.open(begun.0, begun.1)?;
        let payload = self.payload(&in_hand)?;
        let (header, modules) = (in_hand.header, self.modules(id.frame));
        let own = Block { header, payload: Some(&payload), modules }.own_bytes(&*self.engine);
        let own = Arc::new(own.map_err(|fault| fault.at(in_hand.block.place))?);
        let bytes = own.len() as u64;
        lock().insert(id, Arc::clone(&own), bytes);
        Ok(own)
    }
}

/// Finds the own bytes that a block copies from.
struct SourcesOf<'l> {
    loader: &'l Loader,
    id: BlockId,
    latest: Option<Arc<Buffer>>,
}

impl Sources for SourcesOf<'_> {
    fn own_bytes(&mut self, number: u64) -> Result<Option<&[u8]>, Error> {
        let own = self.loader.own_bytes(BlockId { number, ..self.id })?;
        Ok(Some(self.latest.insert(own)))
    }
}
