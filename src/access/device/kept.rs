//! Keeps own bytes of blocks in a device's memory, for blocks that copy from them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::access::cache::Cache;
use crate::gpu::device::pool::Pool;
use crate::gpu::device::{BufferId, Device};
use crate::sync::Mutex;

/// The number of the archive, of the frame and of the block.
pub(in crate::access) type SourceId = (u64, usize, u64);

/// A buffer with the own bytes of a block.
pub(super) struct OwnBytes {
    pool: Arc<Pool<Arc<dyn Device>>>,
    pub(super) buffer: BufferId,
    /// The length of the buffer: no less than that of the own bytes.
    pub(super) bytes: u64,
    /// The bytes of all such buffers together.
    all: Arc<AtomicU64>,
}

impl Drop for OwnBytes {
    fn drop(&mut self) {
        self.pool.free(self.buffer);
        self.all.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The most recently used own bytes.
pub(super) struct KeptSources {
    pool: Arc<Pool<Arc<dyn Device>>>,
    budget: u64,
    /// The bytes of all buffers, including those that have left the cache but are in use.
    all: Arc<AtomicU64>,
    cache: Mutex<Cache<SourceId, Arc<OwnBytes>>>,
}

/// Lengths of buffers are powers of two from this one on, so that the pool can reuse them.
const LEAST: u64 = 1 << 16;

impl KeptSources {
    /// At most `budget` bytes of the device of `pool`.
    pub(super) fn new(pool: &Arc<Pool<Arc<dyn Device>>>, budget: u64) -> Self {
        let (pool, cache) = (Arc::clone(pool), Mutex::new(Cache::new(budget)));
        Self { pool, budget, all: Arc::default(), cache }
    }

    /// The own bytes of a block, if they are kept.
    pub(super) fn get(&self, id: SourceId) -> Option<Arc<OwnBytes>> {
        self.cache.lock().get(&id).map(Arc::clone)
    }

    /// A buffer for `own_len` own bytes. Drops others to make room; `None` if memory is short.
    pub(super) fn buffer(&self, own_len: u32) -> Option<Arc<OwnBytes>> {
        let bytes = u64::from(own_len).next_power_of_two().max(LEAST);
        while self.all.load(Ordering::Relaxed) + bytes > self.budget {
            // Dropped after the lock is released.
            let _oldest = self.cache.lock().remove_oldest()?;
        }
        let buffer = self.pool.allocate(bytes).ok()?;
        self.all.fetch_add(bytes, Ordering::Relaxed);
        let (pool, all) = (Arc::clone(&self.pool), Arc::clone(&self.all));
        Some(Arc::new(OwnBytes { pool, buffer, bytes, all }))
    }

    /// Keeps `own`, which now holds the own bytes of a block.
    pub(super) fn keep(&self, id: SourceId, own: Arc<OwnBytes>) {
        let bytes = own.bytes;
        self.cache.lock().insert(id, own, bytes);
    }

    /// Drops all own bytes.
    pub(super) fn clear(&self) {
        while self.cache.lock().remove_oldest().is_some() {}
    }
}
