//! The state of an archive that its callers share with the threads that load blocks.

use std::collections::VecDeque;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, MutexGuard};
use std::thread;

use super::completion::{Claim, Completion};
use super::destination::RangeRead;
use super::device_queue::DeviceQueue;
use super::error::ArchiveError;
use super::load::{Loader, Page};
use super::options::{ArchiveOptions, Priority, ReadOptions};
use super::queue::{BlockQueue, MAX_BATCH, QueueLimits, Waiter};
use crate::access::cache::Cache;
use crate::access::sources::Source;
use crate::stream::block::{BlockId, Placement};
use crate::sync::{Condvar, Mutex};

/// What the callers of an archive and its loaders share.
pub(super) struct ArchiveShared {
    /// The archive's number, unique in the process.
    pub(super) id: u64,
    /// The queue of each device that the archive was read into.
    pub(super) devices: Mutex<Vec<Arc<DeviceQueue>>>,
    /// Blocks that went to a device: those decoded there, and those decoded by the CPU.
    pub(super) by_device: AtomicU64,
    pub(super) by_cpu: AtomicU64,
    pub(super) loader: Loader,
    state: Mutex<LoadState>,
    /// Wakes loaders.
    queued: Condvar,
    /// How many blocks are loaded at once.
    pub(super) max_blocks: usize,
    /// How many blocks a read asks for at once.
    pub(super) step: usize,
    pub(super) prefetch: usize,
}

/// A caller that waits for a page: its completion, and the slot there.
struct PageWaiter {
    completion: Arc<Completion<Page>>,
    slot: usize,
}

impl Waiter for PageWaiter {
    fn is_abandoned(&self) -> bool {
        self.completion.is_abandoned()
    }
}

pub(super) struct LoadState {
    queue: BlockQueue<PageWaiter>,
    pub(super) contents: Cache<BlockId, Page>,
    /// Where the latest reads ended.
    recent_ends: VecDeque<u64>,
    /// Loader threads started so far.
    loaders: usize,
    is_closed: bool,
}

/// Threads that load blocks. The first one takes only urgent blocks, so these never wait behind a slow load.
const LOADERS: usize = 4;
/// The most sequential readers that are recognised at a time.
const MAX_STREAMS: usize = 8;
/// The most blocks that a read asks for at once.
const MAX_STEP: usize = 64;

impl ArchiveShared {
    /// Opens the archive in `source`.
    pub(super) fn new(
        source: Arc<dyn Source>,
        options: &ArchiveOptions,
    ) -> Result<Self, ArchiveError> {
        let loader = Loader::new(Arc::clone(&source), options);
        let (loader, max_blocks) =
            loader.map_err(|error| ArchiveError::format(source.uri(), error))?;
        let block_size = loader.layout.max_block_size().max(1);
        static ARCHIVES: AtomicU64 = AtomicU64::new(0);
        Ok(Self {
            id: ARCHIVES.fetch_add(1, Ordering::Relaxed),
            loader,
            state: Mutex::new(LoadState {
                queue: BlockQueue::default(),
                contents: Cache::new(options.contents_cache),
                recent_ends: VecDeque::new(),
                loaders: 0,
                is_closed: false,
            }),
            queued: Condvar::new(),
            max_blocks,
            // A read loads two steps at once.
            step: (max_blocks / 2).clamp(1, MAX_STEP),
            prefetch: options.prefetch.min((options.contents_cache / 2 / block_size) as usize),
            devices: Mutex::default(),
            by_device: AtomicU64::new(0),
            by_cpu: AtomicU64::new(0),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, LoadState> {
        self.state.lock()
    }

    /// Ends the loader threads.
    pub(super) fn close(&self) {
        self.lock().is_closed = true;
        self.queued.notify_all();
    }

    pub(super) fn check(&self, range: &Range<u64>) -> Result<(), ArchiveError> {
        if self.loader.layout.contains(range) {
            return Ok(());
        }
        let Range { start, end } = *range;
        Err(ArchiveError::InvalidRange { start, end, len: self.loader.layout.len() })
    }

    /// Checks that a range lies within the contents, and that its destination has the same length.
    pub(super) fn check_read(&self, read: &RangeRead<'_>) -> Result<(), ArchiveError> {
        self.check(&read.range)?;
        let (wanted, found) = (read.range.end - read.range.start, read.destination.len());
        if wanted != found {
            return Err(ArchiveError::DestinationLength { wanted, found });
        }
        Ok(())
    }

    pub(super) fn internal(&self, what: &'static str) -> ArchiveError {
        self.loader.error(crate::Error::Internal { what })
    }

    /// Starts the loader threads if they are not running. Reads into device memory do not need them.
    pub(super) fn start_loaders(self: &Arc<Self>) -> Result<(), ArchiveError> {
        let mut state = self.lock();
        for number in state.loaders..LOADERS {
            let shared = Arc::clone(self);
            let only_urgent = number == 0;
            // Reserves one block for the loader of urgent blocks.
            let max_blocks = self.max_blocks - usize::from(!only_urgent && self.max_blocks > 1);
            let limits = QueueLimits { only_urgent, max_blocks, max_batch: MAX_BATCH };
            thread::Builder::new()
                .name("pz access".into())
                .spawn(move || shared.work(&limits))
                .map_err(|error| self.loader.error(error.into()))?;
            state.loaders += 1;
        }
        Ok(())
    }

    /// Requests the blocks of `step`, each once, in order.
    pub(super) fn request(&self, step: &[Placement], options: &ReadOptions) -> Claim<Page> {
        let mut blocks: Vec<_> = step.iter().map(|placement| placement.block).collect();
        blocks.dedup();
        let claim = Claim(Completion::new(None));
        let slots: Vec<_> = blocks.iter().map(|_| claim.0.add_slot()).collect();
        let mut state = self.lock();
        for (slot, block) in slots.into_iter().zip(blocks) {
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

    /// Called after a read of `range`. If the read began where another ended, queues the next blocks.
    pub(super) fn prefetch_after(&self, range: &Range<u64>) {
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

    /// Queues the blocks that are not in the cache, as many as half of the cache can hold.
    pub(super) fn load_ahead(&self, blocks: impl Iterator<Item = BlockId>) {
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

    /// Delivers a loaded block to its waiters.
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

    /// Loads queued blocks until the archive is closed.
    fn work(&self, limits: &QueueLimits) {
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
            // A source may be the caller's code. If it panics, the waiters get an error.
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
            // Other loaders may have waited for room.
            self.queued.notify_all();
        }
    }
}
