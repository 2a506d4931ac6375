//! Own bytes of blocks, kept in a device's memory for those that repeat them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::cache::Cache;
use crate::gpu::device::pool::Pool;
use crate::gpu::device::{BufferId, Device};
use crate::sync::Mutex;

/// Which block it is: numbers of the archive, of the frame and of the block.
pub(in crate::access) type SourceId = (u64, usize, u64);

/// Own bytes of a block in a buffer.
pub(super) struct OwnBytes {
    pool: Arc<Pool<Arc<dyn Device>>>,
    pub(super) buffer: BufferId,
    /// The length of the buffer: no less than that of the own bytes.
    pub(super) bytes: u64,
    /// The bytes of all such buffers.
    all: Arc<AtomicU64>,
}

impl Drop for OwnBytes {
    fn drop(&mut self) {
        self.pool.free(self.buffer);
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The own bytes that were used last.
pub(super) struct KeptSources {
    pool: Arc<Pool<Arc<dyn Device>>>,
    budget: u64,
    /// The bytes of all buffers, also of those that have left the cache and are in use.
    all: Arc<AtomicU64>,
    cache: Mutex<Cache<SourceId, Arc<OwnBytes>>>,
}

/// Buffers have one of few lengths, so that the pool can use them again: powers of two from this one on.
const LEAST: u64 = 1 << 16;

impl KeptSources {
    /// At most `budget` bytes of the device of `pool`.
    pub(super) fn new(pool: &Arc<Pool<Arc<dyn Device>>>, budget: u64) -> Self {
        let (pool, cache) = (Arc::clone(pool), Mutex::new(Cache::new(budget)));
        Self { pool, budget, all: Arc::default(), cache }
    }

    /// The own bytes of a block, if they are there.
    pub(super) fn get(&self, id: SourceId) -> Option<Arc<OwnBytes>> {
        self.cache.lock().get(&id).map(Arc::clone)
    }

    /// A buffer for so many own bytes, for which others go; `None` if there is too little memory.
    pub(super) fn buffer(&self, own_len: u32) -> Option<Arc<OwnBytes>> {
        let bytes = u64::from(own_len).next_power_of_two().max(LEAST);
        while self.all.load(Ordering::Relaxed) + bytes > self.budget {
            // It goes when the lock is free again.
            let _oldest = self.cache.lock().remove_oldest()?;
        }
        let buffer = self.pool.allocate(bytes).ok()?;
        self.all.fetch_add(bytes, Ordering::Relaxed);
        let (pool, all) = (Arc::clone(&self.pool), Arc::clone(&self.all));
        Some(Arc::new(OwnBytes { pool, buffer, bytes, all }))
    }

    /// Keeps what `own` now holds.
    pub(super) fn keep(&self, id: SourceId, own: Arc<OwnBytes>) {
        let bytes = own.bytes;
        self.cache.lock().insert(id, own, bytes);
    }

    /// Gives all up.
    pub(super) fn clear(&self) {
        while self.cache.lock().remove_oldest().is_some() {}
    }
}
