//! A device, the memory that all its workers share, and the sizes of batches.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::access::cache::Cache;
use crate::gpu::coder::{RangeDecoder, RangeTask, max_blocks};
use crate::gpu::device::pool::Pool;
use crate::gpu::device::{Api, BufferId, Device, DeviceError, budget_now};
use crate::process::Owner;
use crate::sync::Mutex;

/// Limits on the device memory and the threads that reads use. The setters chain.
///
/// ```
/// use pz::access::DeviceMemoryOptions;
/// let options = DeviceMemoryOptions::new().workers(8).batch(32 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceMemoryOptions {
    pub(super) memory: Option<u64>,
    pub(super) workers: usize,
    pub(super) batch: Option<u64>,
    pub(super) idle: Duration,
    pub(super) only_prepared: bool,
}

impl DeviceMemoryOptions {
    /// The defaults: the default share of the device's memory; a worker for each core, at most 16, with OpenCL at most
    /// 8; batches of 32 MiB, with WebGPU of 128 MiB unless blocks copy from others; idle memory is freed after 30
    /// seconds.
    pub fn new() -> Self {
        let idle = Duration::from_secs(30);
        Self { memory: None, workers: 0, batch: None, idle, only_prepared: false }
    }

    /// Sets the most bytes of device memory that decoders take. The buffers that hold results come on top.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Sets the number of workers: threads that read payloads and submit batches. 0 is the default.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets how long idle workers keep decoders, device memory and pinned memory. To make them again takes the next
    /// read some milliseconds.
    pub fn idle(mut self, time: Duration) -> Self {
        self.idle = time;
        self
    }

    /// Sets the most bytes of contents in a batch; a batch has at least one block. Each worker takes several times as
    /// much device memory, and pinned host memory for the payloads.
    pub fn batch(mut self, bytes: u64) -> Self {
        self.batch = Some(bytes);
        self
    }

    /// Lets workers compile and allocate only in [`Archive::prepare_on`](crate::access::Archive), for a device with a
    /// kernel that runs until it is told to stop. The CPU decodes blocks that need anything else. Workers never free
    /// what was prepared: they could not make it again, and freeing it would wait for the kernel.
    pub(crate) fn only_prepared(mut self) -> Self {
        self.only_prepared = true;
        self
    }
}

impl Default for DeviceMemoryOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A device, and the memory that all its workers share.
pub(in crate::access) struct DeviceCore {
    /// The device itself. It allocates the buffers of callers.
    pub(in crate::access) device: Arc<dyn Device>,
    pub(super) pool: Arc<Pool<Arc<dyn Device>>>,
    /// Own bytes that blocks may copy from.
    pub(super) kept: KeptSources,
    pub(super) options: DeviceMemoryOptions,
    /// The number of threads that decode on the device.
    pub(super) workers: usize,
    /// Decoder slots of a worker: while the device decodes one slot's batch, the worker reads the other's.
    pub(super) depth: usize,
    /// Device memory of a slot's decoders, in bytes.
    pub(super) slot_budget: u64,
    /// The results of [`Self::batch_of`] so far.
    batches: Mutex<HashMap<(RangeTask, u32, BatchKind), u32>>,
    process: Owner,
    /// Why the device is no longer used.
    failed: Mutex<Option<DeviceError>>,
}

/// The most workers by default.
const MAX_WORKERS: usize = 16;
/// The same with OpenCL. More threads would wait for each other in the driver.
const MAX_OPENCL_WORKERS: usize = 8;
/// Decoder slots of a worker.
const DEPTH: usize = 2;
/// By default there is at most one worker for each of these many bytes of device memory.
const MIN_BUDGET: u64 = 512 << 20;
/// One of this many parts of the memory keeps own bytes.
const KEPT: u64 = 8;

/// The kind of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::access) enum BatchKind {
    /// Blocks of an archive without distant matches.
    Plain,
    /// Blocks of an archive with distant matches.
    Repeating,
    /// Blocks that such blocks copy from.
    Sources,
}

/// The most blocks of a batch.
const MAX_BATCH: u64 = 1024;
/// Bytes of contents of a batch by default.
const BATCH: u64 = 32 << 20;
/// The same for plain blocks on a device with a single queue, where every batch takes at least some milliseconds.
const BATCH_OF_ONE_QUEUE: u64 = 128 << 20;
/// The most batches of plain blocks at once on a device with a single queue: while it decodes one, workers read others.
const BATCHES_OF_ONE_QUEUE: usize = 4;
/// Batches of sources have up to this many times the bytes of other batches. A file of near-copies needs two to three
/// times: the own bytes of each block, and the two blocks that most of it comes from.
const SOURCES: u64 = 4;

/// What a decoder was made for: its task, the length of the longest block, and the number of blocks.
pub(super) type DecoderKey = (RangeTask, u32, u32);

impl DeviceCore {
    pub(super) fn new(device: Arc<dyn Device>, options: &DeviceMemoryOptions) -> Arc<Self> {
        let budget = budget_now(&device, options.memory);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let most = match device.limits().api {
            Api::OpenCl => MAX_OPENCL_WORKERS,
            Api::Cuda | Api::WebGpu => MAX_WORKERS,
        };
        let most = (budget / MIN_BUDGET).clamp(2, most as u64) as usize;
        let workers = match options.workers {
            0 => cores.clamp(2, most),
            workers => workers,
        };
        // With a kernel running, each worker prepares a single slot.
        let depth = if options.only_prepared { 1 } else { DEPTH };
        let pool = Arc::new(Pool::new(Arc::clone(&device)));
        let to_keep = if options.only_prepared { 0 } else { budget / KEPT };
        Arc::new(Self {
            kept: KeptSources::new(&pool, to_keep),
            pool,
            device,
            workers,
            depth,
            slot_budget: (budget - to_keep) / (workers * depth) as u64,
            options: *options,
            batches: Mutex::default(),
            process: Owner::here(),
            failed: Mutex::default(),
        })
    }

    /// The most bytes of device memory to take.
    pub(super) fn budget(&self) -> u64 {
        self.slot_budget * self.slots() as u64
    }

    /// Gives idle device memory back.
    pub(super) fn trim(&self) {
        self.kept.clear();
        self.pool.trim();
    }

    /// Device memory of a decoder, in bytes, as the costs of the kernels predict.
    pub(super) fn memory_of(&self, (task, block_len, blocks): DecoderKey) -> u64 {
        let cost = RangeDecoder::cost_of_block(self.device.limits(), task, block_len);
        cost.map_or(0, |cost| cost.memory * u64::from(blocks))
    }

    /// How many batches can be on their way.
    fn slots(&self) -> usize {
        self.workers * self.depth
    }

    /// The most batches of this kind that are on their way at once: all slots, or as many as the device has use for.
    pub(in crate::access) fn at_once(&self, kind: BatchKind) -> usize {
        match self.should_be_long(kind) {
            true => self.slots().min(BATCHES_OF_ONE_QUEUE),
            false => self.slots(),
        }
    }

    /// Whether batches of this kind should be few and long.
    fn should_be_long(&self, kind: BatchKind) -> bool {
        kind == BatchKind::Plain && self.device.limits().has_one_queue()
    }

    /// The most blocks of up to `block_len` bytes that a slot decodes at once, as the costs of the kernels predict; 0
    /// if the device declines them, or if not even one fits.
    pub(in crate::access) fn batch_of(
        &self,
        task: RangeTask,
        block_len: u32,
        kind: BatchKind,
    ) -> u32 {
        let mut known = self.batches.lock();
        let found = known.entry((task, block_len, kind));
        *found.or_insert_with(|| self.find_batch(task, block_len, kind))
    }

    fn find_batch(&self, task: RangeTask, block_len: u32, kind: BatchKind) -> u32 {
        let limits = self.device.limits();
        let Ok(cost) = RangeDecoder::cost_of_block(limits, task, block_len) else { return 0 };
        let usual = if self.should_be_long(kind) { BATCH_OF_ONE_QUEUE } else { BATCH };
        let bytes = self.options.batch.unwrap_or(usual);
        let bytes = if kind == BatchKind::Sources { SOURCES * bytes } else { bytes };
        let wanted = (bytes / u64::from(block_len.max(1))).clamp(1, MAX_BATCH);
        // Blocks to restore and their sources are in memory together.
        let with_sources = kind == BatchKind::Sources || task == RangeTask::Restore;
        let shares = if with_sources { 2 } else { 1 };
        let in_memory = self.slot_budget / shares / cost.memory.max(1);
        let in_buffer = limits.max_buffer / cost.largest_buffer.max(1);
        let counted = u64::from(max_blocks(block_len));
        wanted.min(in_memory).min(in_buffer).min(counted) as u32
    }

    /// Allocates a buffer for a caller. It does not count as memory of decoders.
    pub(super) fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        self.check_process()?;
        match self.device.allocate(bytes) {
            Err(DeviceError::OutOfMemory { .. }) => {
                self.trim();
                self.device.allocate(bytes)
            }
            allocated => allocated,
        }
    }

    /// Checks that this process opened the device.
    pub(super) fn check_process(&self) -> Result<(), DeviceError> {
        if self.is_here() { Ok(()) } else { Err(DeviceError::Forked) }
    }

    /// Whether this process opened the device.
    pub(super) fn is_here(&self) -> bool {
        self.process.is_here()
    }

    /// Notes that the device can no longer be used.
    pub(super) fn fail(&self, error: DeviceError) {
        self.failed.lock().get_or_insert(error);
    }

    /// Checks that the device can be used.
    ///
    /// # Errors
    /// Fails if it has failed before, or if this process is a fork of the one that opened it.
    pub(in crate::access) fn check(&self) -> Result<(), DeviceError> {
        self.check_process()?;
        self.failed.lock().clone().map_or(Ok(()), Err)
    }
}

/// A buffer of a device. Dropping it frees the buffer, or releases one that was imported.
pub(in crate::access) struct BufferHandle {
    core: Arc<DeviceCore>,
    id: BufferId,
    /// The offset at which the caller's bytes end.
    end: u64,
}

impl BufferHandle {
    pub(super) fn new(core: Arc<DeviceCore>, id: BufferId, end: u64) -> Self {
        Self { core, id, end }
    }

    /// Copies bytes from `start` on to the host.
    pub(super) fn copy_to_host(&self, start: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let (from, end) = (start, start + into.len() as u64);
        let (aligned, skipped) = (from & !3, (from % 4) as usize);
        let mut at = 0;
        self.core.check_process()?;
        let wanted = skipped..skipped + into.len();
        let mut queue = self.core.device.queue()?;
        queue.read_with(self.id, aligned, end.next_multiple_of(4) - aligned, &mut |piece| {
            let (first, last) = (wanted.start.max(at), wanted.end.min(at + piece.len()));
            if first < last {
                into[first - skipped..last - skipped]
                    .copy_from_slice(&piece[first - at..last - at]);
            }
            at += piece.len();
        })
    }

    /// Copies at least one byte of the host to the buffer, from `start` on.
    pub(super) fn copy_from_host(&self, start: u64, from: &[u8]) -> Result<(), DeviceError> {
        let (begin, end) = (start, start + from.len() as u64);
        let aligned = begin & !3..end.next_multiple_of(4);
        self.core.check_process()?;
        let mut queue = self.core.device.queue()?;
        // A device copies whole words. Read the words at both ends first, to keep their other bytes.
        let (mut first, mut last) = ([0; 4], [0; 4]);
        let (before, after) = ((begin - aligned.start) as usize, (aligned.end - end) as usize);
        if before > 0 {
            queue.read(self.id, aligned.start, &mut first)?;
        }
        if after > 0 {
            queue.read(self.id, aligned.end - 4, &mut last)?;
        }
        let parts = [&first[..before], from, &last[4 - after..]];
        queue.write_parts(self.id, aligned.start, &parts)?;
        queue.finish()
    }

    pub(in crate::access) fn end(&self) -> u64 {
        self.end
    }

    pub(in crate::access) fn id(&self) -> BufferId {
        self.id
    }
}

impl Drop for BufferHandle {
    fn drop(&mut self) {
        if self.core.is_here() {
            self.core.device.free(self.id);
        }
    }
}

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
