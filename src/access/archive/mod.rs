//! Reads ranges of a compressed file's contents, for many callers at once.
//!
//! ```text
//! read ─▶ placements ─▶ contents cache ─▶ queue, by priority ─▶ batch ─▶ payload cache ─▶ source ─▶ decoder
//!   ▲                        │ hit                                            │ hit        (ranges   (all cores)
//!   └──── copied by the caller ◀──────────────── pages ◀──────────────────────┴──────────── coalesced)
//! ```
//!
//! - The layout of the file ([`block`](crate::stream::block)) turns a range into *placements*: which bytes of which block go
//!   where in the destination.
//! - [`to_device`] is the way to a device's buffer. The placements go to the device's decoder along with the payloads: see
//!   [`device`](crate::access::device), and [`on_the_way`] for a batch of them. [`restoring`] finds what blocks with distant
//!   matches consist of. A read into a device's buffer may go on in the [`background`]. The rest of this list is about host
//!   memory.
//! - [`queue`] holds the blocks that somebody waits for. Two callers that want the same block wait for one load. A loader
//!   takes many blocks of one priority at once: their payloads are one call of the source, in which neighbours share a
//!   request, and one batch of the decoder.
//! - [`load`] is that thread's work. A [`completion`] gets the blocks of a read: its caller gives up at a deadline or when it
//!   is cancelled, whatever the loaders do, and blocks that nobody waits for any more are not loaded.

mod background;
mod completion;
mod destination;
mod error;
mod load;
mod on_the_way;
mod options;
mod queue;
mod restoring;
mod to_device;

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread;

use crate::access::cache::{Cache, CacheStatistics};
use crate::access::device::{Core, DeviceMemory, DeviceSliceMut, SlicePlace, Want};
use crate::access::{Source, Traffic, Uri};
use crate::sync::{Condvar, Mutex};
pub(crate) use background::BackgroundRead;
use completion::{Claim, Completion};
pub use destination::{Destination, RangeRead};
pub use error::ArchiveError;
use load::{Loader, Page};
pub use options::{ArchiveOptions, CancelToken, Priority, ReadOptions};
use queue::{Limits, MAX_BATCH, Queue, Waiter};
use to_device::DeviceQueue;

use crate::stream::block::{BlockId, Placement};

/// What an archive has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ArchiveStatistics {
    /// The cache of decoded contents, asked once for each block of each read.
    pub contents: CacheStatistics,
    /// The cache of compressed blocks, asked for each block that is to be decoded.
    pub payloads: CacheStatistics,
    /// What the source was asked for.
    pub traffic: Traffic,
    /// Blocks that went to the memory of a device, and that the device decoded or moved there.
    pub blocks_by_device: u64,
    /// Blocks that went to the memory of a device, and that the CPU decoded: the device declined them, had no memory for
    /// them, or got them wrong.
    pub blocks_by_cpu: u64,
}

/// A compressed file whose contents can be read in any order, by several threads at once. The first read into host memory
/// starts four threads that load blocks, and as many that decode them as the options say.
///
/// ```
/// use pz::access::{Archive, ArchiveOptions, publish};
/// publish("numbers", pz::compress(&[7; 100_000], &pz::Options::new())?);
/// let archive = Archive::open("memio://numbers", &ArchiveOptions::new())?;
/// let mut part = [0; 10];
/// archive.read_into(5000..5010, &mut part)?;
/// assert_eq!(part, [7; 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Archive {
    shared: Arc<Shared>,
}

/// What callers and loaders share.
struct Shared {
    /// A number that no other archive of the process has.
    id: u64,
    /// For each device that the archive was read into.
    devices: Mutex<Vec<Arc<DeviceQueue>>>,
    /// Blocks that went to a device: decoded there, and decoded by the CPU.
    by_device: AtomicU64,
    by_cpu: AtomicU64,
    loader: Loader,
    state: Mutex<State>,
    /// Wakes loaders.
    queued: Condvar,
    /// How many blocks are loaded at once.
    max_blocks: usize,
    /// How many blocks a read asks for at once.
    step: usize,
    prefetch: usize,
}

/// A part of a block that goes to a device, and where.
type Wanted = (Placement, Want);

/// A place in the pages of a caller.
struct PageWaiter {
    completion: Arc<Completion<Page>>,
    slot: usize,
}

impl Waiter for PageWaiter {
    fn is_abandoned(&self) -> bool {
        self.completion.is_abandoned()
    }
}

struct State {
    queue: Queue<PageWaiter>,
    contents: Cache<BlockId, Page>,
    /// Where the latest reads ended.
    recent_ends: VecDeque<u64>,
    /// How many of the threads that load blocks have been started.
    loaders: usize,
    is_closed: bool,
}

/// Threads that load blocks. The first one does only what is urgent, so that it never waits for a slow load of others.
const LOADERS: usize = 4;
/// The most sequential readers that are recognised as such.
const MAX_STREAMS: usize = 8;
/// The most blocks that a read asks for at once.
const MAX_STEP: usize = 64;

impl Archive {
    /// Opens the archive that `uri` names, and checks its headers, indices and footers.
    ///
    /// # Errors
    /// [`ArchiveError::Source`] if it cannot be read, and [`ArchiveError::Format`] for the first fault in it or if the
    /// options permit too little memory.
    pub fn open(uri: &str, options: &ArchiveOptions) -> Result<Self, ArchiveError> {
        Self::of_source(crate::access::open(&Uri::parse(uri)?, &options.source)?, options)
    }

    /// Opens the archive that `source` holds.
    ///
    /// # Errors
    /// As for [`Archive::open`].
    pub fn of_source(
        source: Arc<dyn Source>,
        options: &ArchiveOptions,
    ) -> Result<Self, ArchiveError> {
        let loader = Loader::new(Arc::clone(&source), options);
        let (loader, max_blocks) =
            loader.map_err(|error| ArchiveError::format(source.uri(), error))?;
        let block_size = loader.layout.max_block_size().max(1);
        static ARCHIVES: AtomicU64 = AtomicU64::new(0);
        let shared = Arc::new(Shared {
            id: ARCHIVES.fetch_add(1, Ordering::Relaxed),
            loader,
            state: Mutex::new(State {
                queue: Queue::default(),
                contents: Cache::new(options.contents_cache),
                recent_ends: VecDeque::new(),
                loaders: 0,
                is_closed: false,
            }),
            queued: Condvar::new(),
            max_blocks,
            // Two steps are under way at once.
            step: (max_blocks / 2).clamp(1, MAX_STEP),
            prefetch: options.prefetch.min((options.contents_cache / 2 / block_size) as usize),
            devices: Mutex::default(),
            by_device: AtomicU64::new(0),
            by_cpu: AtomicU64::new(0),
        });
        Ok(Self { shared })
    }

    /// The URI, as messages show it.
    pub fn uri(&self) -> &str {
        self.shared.loader.source.uri()
    }

    /// Length of the contents in bytes.
    pub fn len(&self) -> u64 {
        self.shared.loader.layout.len()
    }

    /// Whether the contents are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that `range` lies within the contents.
    pub(super) fn check(&self, range: &Range<u64>) -> Result<(), ArchiveError> {
        self.shared.check(range)
    }

    /// Reads bytes `range` of the contents into `destination`, which is as long: host memory, or a
    /// [`DeviceBuffer`](crate::access::DeviceBuffer).
    ///
    /// # Errors
    /// As for [`Archive::read`].
    pub fn read_into<'a>(
        &self,
        range: Range<u64>,
        destination: impl Into<Destination<'a>>,
    ) -> Result<(), ArchiveError> {
        self.read(&mut [RangeRead::new(range, destination)], &ReadOptions::new())
    }

    /// Reads several parts of the contents. Their blocks are loaded together, so that neighbours share requests.
    ///
    /// When it returns, with or without an error, nothing writes to the destinations any more.
    ///
    /// # Errors
    /// The first error that happened; what the destinations then hold is unspecified. [`ArchiveError::InvalidRange`] and
    /// [`ArchiveError::DestinationLength`] come before anything is read; [`ArchiveError::DeadlineExceeded`] and
    /// [`ArchiveError::Cancelled`] come soon, even if the source does not answer. A batch that a device is decoding into
    /// the destination is waited for.
    pub fn read(
        &self,
        reads: &mut [RangeRead<'_>],
        options: &ReadOptions,
    ) -> Result<(), ArchiveError> {
        let shared = &*self.shared;
        let mut placements = Vec::new();
        let mut on_devices: Vec<(&Arc<Core>, Vec<Wanted>)> = Vec::new();
        for (number, read) in reads.iter().enumerate() {
            shared.check_read(&read.range, read.destination.len())?;
            let own = shared.loader.layout.placements(read.range.clone(), number);
            let Destination::Device(DeviceSliceMut {
                place: SlicePlace::Device { memory, buffer, start },
                ..
            }) = &read.destination
            else {
                placements.extend(own);
                continue;
            };
            let Some(core) = memory.core() else { continue };
            let own = own.map(|placement| to_device::wanted(placement, buffer, *start));
            match on_devices.iter_mut().find(|(known, _)| Arc::ptr_eq(known, core)) {
                Some((_, wants)) => wants.extend(own),
                None => on_devices.push((core, own.collect())),
            }
        }
        let mut claims = Vec::new();
        for (core, wants) in on_devices {
            claims.push(self.shared.request_on(core, wants, options)?);
        }
        self.read_on_host(placements, reads, options)?;
        for claim in claims {
            claim.wait(options)?;
        }
        Ok(())
    }

    /// Reads those parts whose destinations are host memory.
    fn read_on_host(
        &self,
        mut placements: Vec<Placement>,
        reads: &mut [RangeRead<'_>],
        options: &ReadOptions,
    ) -> Result<(), ArchiveError> {
        let shared = &*self.shared;
        if !placements.is_empty() {
            self.shared.start_loaders()?;
        }
        placements.sort_by_key(|placement| placement.block);
        // While the pages of one step are copied, those of the next are being loaded.
        let mut waiting = VecDeque::new();
        let mut left = &placements[..];
        loop {
            while waiting.len() < 2 && !left.is_empty() {
                let (step, rest) = first_blocks(left, shared.step);
                left = rest;
                waiting.push_back((step, shared.request(step, options)));
            }
            let Some((step, claim)) = waiting.pop_front() else { break };
            let pages = claim.wait(options)?;
            let mut pages = pages.iter();
            let mut current = None;
            for placement in step {
                let Placement { block, within, destination, at } = placement;
                if current.is_none_or(|(known, _)| known != block) {
                    current = pages.next().map(|page| (block, page));
                }
                let bytes = current.and_then(|(_, page)| page.get(within.clone()));
                let bytes = bytes.ok_or_else(|| shared.internal("a block has another length"))?;
                let destination = reads[*destination].destination.on_host();
                let destination =
                    destination.ok_or_else(|| shared.internal("a destination has moved"))?;
                destination[*at..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        for read in reads.iter_mut().filter_map(|read| {
            read.destination.on_host()?;
            Some(&read.range)
        }) {
            shared.prefetch_after(read);
        }
        Ok(())
    }

    /// Begins to load the blocks of `range` into the cache of contents, after everything that somebody waits for, and
    /// returns at once. What then fails, fails when it is read. Does nothing for what the cache cannot hold.
    ///
    /// # Errors
    /// [`ArchiveError::InvalidRange`], and if the system has no thread to spare.
    pub fn prefetch(&self, range: Range<u64>) -> Result<(), ArchiveError> {
        self.shared.check(&range)?;
        self.shared.start_loaders()?;
        self.shared.load_ahead(
            self.shared.loader.layout.placements(range, 0).map(|placement| placement.block),
        );
        Ok(())
    }

    /// Makes everything that reads into `memory` need, so that later ones compile and allocate nothing: with a kernel running
    /// on the device they could wait for it.
    ///
    /// # Errors
    /// As for [`Self::read`].
    pub(crate) fn prepare_on(&self, memory: &DeviceMemory) -> Result<(), ArchiveError> {
        let Some(core) = memory.core() else { return Ok(()) };
        let scratch = memory.allocate(self.shared.batch_bytes(core));
        let mut scratch = scratch.map_err(|error| {
            let device = core.device().limits().name.clone();
            ArchiveError::Device { device, error }
        })?;
        match DeviceSliceMut::from(&mut scratch).place {
            SlicePlace::Device { buffer, start, .. } => self.shared.prepare_on(core, buffer, start),
            SlicePlace::Host(_) => Ok(()),
        }
    }

    /// What the archive has done so far.
    pub fn statistics(&self) -> ArchiveStatistics {
        ArchiveStatistics {
            contents: self.shared.lock().contents.statistics(),
            payloads: self.shared.loader.payload_statistics(),
            traffic: self.shared.loader.source.traffic(),
            blocks_by_device: self.shared.by_device.load(Ordering::Relaxed),
            blocks_by_cpu: self.shared.by_cpu.load(Ordering::Relaxed),
        }
    }
}

/// Ends the loaders. One that waits for a server ends when that answers, or at the limit of
/// [`SourceOptions`](crate::access::SourceOptions).
impl Drop for Archive {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        self.shared.queued.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    fn check(&self, range: &Range<u64>) -> Result<(), ArchiveError> {
        if self.loader.layout.contains(range) {
            return Ok(());
        }
        let Range { start, end } = *range;
        Err(ArchiveError::InvalidRange { start, end, len: self.loader.layout.len() })
    }

    /// Checks that a range lies within the contents, and is as long as its destination.
    fn check_read(&self, range: &Range<u64>, found: u64) -> Result<(), ArchiveError> {
        self.check(range)?;
        let wanted = range.end - range.start;
        if wanted != found {
            return Err(ArchiveError::DestinationLength { wanted, found });
        }
        Ok(())
    }

    fn internal(&self, what: &'static str) -> ArchiveError {
        self.loader.error(crate::Error::Internal { what })
    }

    /// Starts the threads that load blocks, unless they are there. Reads to devices do without them.
    fn start_loaders(self: &Arc<Self>) -> Result<(), ArchiveError> {
        let mut state = self.lock();
        for number in state.loaders..LOADERS {
            let shared = Arc::clone(self);
            let only_urgent = number == 0;
            // One block stays for the loader that does only what is urgent.
            let max_blocks = self.max_blocks - usize::from(!only_urgent && self.max_blocks > 1);
            let limits = Limits { only_urgent, max_blocks, max_batch: MAX_BATCH };
            thread::Builder::new()
                .name("pz access".into())
                .spawn(move || shared.work(&limits))
                .map_err(|error| self.loader.error(error.into()))?;
            state.loaders += 1;
        }
        Ok(())
    }

    /// Asks for the blocks of `step`, each once, in order.
    fn request(&self, step: &[Placement], options: &ReadOptions) -> Claim<Page> {
        let mut blocks: Vec<_> = step.iter().map(|placement| placement.block).collect();
        blocks.dedup();
        let claim = Claim(Arc::new(Completion::new(blocks.len())));
        let mut state = self.lock();
        for (slot, block) in blocks.into_iter().enumerate() {
            match state.contents.get(&block) {
                Some(page) => claim.0.deliver(slot, Ok(Page::clone(page))),
                None => {
                    let waiter = PageWaiter { completion: Arc::clone(&claim.0), slot };
                    state.queue.want(block, options.priority, Some(waiter));
                }
            }
        }
        drop(state);
        self.queued.notify_all();
        claim
    }

    /// After a read of `range`: if it began where another ended, loads the next blocks.
    fn prefetch_after(&self, range: &Range<u64>) {
        if self.prefetch == 0 || range.is_empty() {
            return;
        }
        let mut state = self.lock();
        let before = state.recent_ends.iter().position(|end| *end == range.start);
        match before {
            Some(stream) => drop(state.recent_ends.remove(stream)),
            None if state.recent_ends.len() == MAX_STREAMS => drop(state.recent_ends.pop_front()),
            None => {}
        }
        state.recent_ends.push_back(range.end);
        drop(state);
        if before.is_some() {
            self.load_ahead(self.loader.layout.blocks_from(range.end).take(self.prefetch));
        }
    }

    /// Queues those blocks that are not in the cache, if it can hold them.
    fn load_ahead(&self, blocks: impl Iterator<Item = BlockId>) {
        let mut state = self.lock();
        let room =
            (state.contents.budget() / 2 / self.loader.layout.max_block_size().max(1)) as usize;
        for block in blocks.take(room) {
            if !state.contents.contains(&block) {
                state.queue.want(block, Priority::Prefetch, None);
            }
        }
        drop(state);
        self.queued.notify_all();
    }

    /// Hands the contents of a block that was loaded to those who wait for it.
    fn deliver(&self, block: BlockId, outcome: &Result<Page, ArchiveError>) {
        let mut state = self.lock();
        if let Ok(page) = outcome {
            state.contents.insert(block, Page::clone(page), page.len() as u64);
        }
        let waiters = state.queue.finish(block);
        drop(state);
        for PageWaiter { completion, slot } in waiters {
            completion.deliver(slot, outcome.clone());
        }
    }

    /// Loads what is queued until the archive is closed.
    fn work(&self, limits: &Limits) {
        let mut state = self.lock();
        loop {
            if state.is_closed {
                return;
            }
            let Some(batch) = state.queue.take(limits) else {
                state = self.queued.wait(state);
                continue;
            };
            drop(state);
            let is_delivered: Vec<_> =
                batch.blocks.iter().map(|_| AtomicBool::new(false)).collect();
            let done = |number: usize, outcome| {
                is_delivered[number].store(true, Ordering::Relaxed);
                self.deliver(batch.blocks[number], &outcome);
            };
            // A source may be a caller's own code. Whatever happens there, nobody must wait in vain.
            let load = || self.loader.load(&batch.blocks, done);
            if catch_unwind(AssertUnwindSafe(load)).is_err() {
                let left = batch.blocks.iter().zip(&is_delivered);
                for (block, _) in
                    left.filter(|(_, is_delivered)| !is_delivered.load(Ordering::Relaxed))
                {
                    self.deliver(*block, &Err(self.internal("loading a block panicked")));
                }
            }
            state = self.lock();
            state.queue.end(&batch);
            // Others may have waited for room.
            self.queued.notify_all();
        }
    }
}

/// Splits placements, which are in the order of their blocks, after the first `most` blocks.
fn first_blocks(placements: &[Placement], most: usize) -> (&[Placement], &[Placement]) {
    let mut blocks = 0;
    let mut last = None;
    let end = placements.iter().position(|placement| {
        blocks += usize::from(last.replace(placement.block) != Some(placement.block));
        blocks > most
    });
    placements.split_at(end.unwrap_or(placements.len()))
}
