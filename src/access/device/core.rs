//! A device with all that decoding on it needs, whatever threads work on it.

use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::Duration;

use super::batches::{BatchKind, Batches, Key};
use super::kept::KeptSources;
use super::options::DeviceMemoryOptions;
use crate::gpu::coder::{RangeDecoder, RangeTask};
use crate::gpu::device::pool::Pool;
use crate::gpu::device::{Api, BufferId, Device, DeviceError, budget_now};
use crate::process::Owner;
use crate::sync::Mutex;

/// A device and the memory that work on it shares.
pub(in crate::access) struct Core {
    /// The device behind the pool, for the buffers of callers.
    device: Arc<dyn Device>,
    pool: Arc<Pool<Arc<dyn Device>>>,
    /// Own bytes that blocks may repeat.
    kept: KeptSources,
    workers: usize,
    /// The lanes of a worker: one reads while another decodes.
    depth: usize,
    /// Device memory of a lane's decoders, in bytes.
    lane_budget: u64,
    batches: Batches,
    /// How long threads keep what they do not use.
    idle: Duration,
    /// Whether lanes load and allocate only while they are being prepared.
    only_prepared: bool,
    process: Owner,
    /// Why the device is not used any more.
    failed: Mutex<Option<DeviceError>>,
}

/// The most workers by default.
const MAX_WORKERS: usize = 16;
/// The same with OpenCL. More threads wait for each other in the driver.
const MAX_OPENCL_WORKERS: usize = 8;
/// The lanes of a worker.
const DEPTH: usize = 2;
/// The least device memory for which there is a worker by default, in bytes.
const MIN_BUDGET: u64 = 512 << 20;
/// The part of the memory in which own bytes are kept.
const KEPT: u64 = 8;

impl Core {
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
        // What is prepared for a kernel that runs is prepared once for each worker.
        let depth = if options.only_prepared { 1 } else { DEPTH };
        let pool = Arc::new(Pool::new(Arc::clone(&device)));
        let to_keep = if options.only_prepared { 0 } else { budget / KEPT };
        Arc::new(Self {
            kept: KeptSources::new(&pool, to_keep),
            pool,
            device,
            workers,
            depth,
            lane_budget: (budget - to_keep) / (workers * depth) as u64,
            batches: Batches::new(options.batch),
            idle: options.idle,
            only_prepared: options.only_prepared,
            process: Owner::here(),
            failed: Mutex::default(),
        })
    }

    pub(in crate::access) fn device(&self) -> &Arc<dyn Device> {
        &self.device
    }

    pub(super) fn pool(&self) -> &Pool<Arc<dyn Device>> {
        &self.pool
    }

    /// The most bytes of device memory to take.
    pub(super) fn budget(&self) -> u64 {
        self.lane_budget * self.lanes() as u64
    }

    /// Own bytes that blocks may repeat.
    pub(super) fn kept(&self) -> &KeptSources {
        &self.kept
    }

    /// Gives idle device memory back.
    pub(super) fn trim(&self) {
        self.kept.clear();
        self.pool.trim();
    }

    /// Device memory of a lane's decoders, in bytes.
    pub(super) fn lane_budget(&self) -> u64 {
        self.lane_budget
    }

    /// Device memory of a decoder, in bytes, as the costs of the kernels predict.
    pub(super) fn memory_of(&self, (task, block_len, blocks): Key) -> u64 {
        let cost = RangeDecoder::cost_of_block(self.device.limits(), task, block_len);
        cost.map_or(0, |cost| cost.memory * u64::from(blocks))
    }

    /// How long threads keep what they do not use.
    pub(super) fn idle(&self) -> Duration {
        self.idle
    }

    pub(super) fn only_prepared(&self) -> bool {
        self.only_prepared
    }

    /// How many threads bring blocks to the device.
    pub(super) fn workers(&self) -> usize {
        self.workers
    }

    /// How many lanes each of them has.
    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// How many batches can be on their way.
    fn lanes(&self) -> usize {
        self.workers * self.depth
    }

    /// The most batches of this kind that are on their way at once.
    pub(in crate::access) fn at_once(&self, kind: BatchKind) -> usize {
        self.lanes().min(Batches::at_once(self.device.limits(), kind))
    }

    /// The most blocks of up to `block_len` bytes that a lane decodes at once, as the costs of the kernels predict; 0
    /// if the device declines them, or if not even one fits.
    pub(in crate::access) fn batch_of(
        &self,
        task: RangeTask,
        block_len: u32,
        kind: BatchKind,
    ) -> u32 {
        self.batches.of(self.device.limits(), self.lane_budget, (task, block_len, kind))
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

    fn failed(&self) -> MutexGuard<'_, Option<DeviceError>> {
        self.failed.lock()
    }

    /// Notes that the device can no longer be used.
    pub(super) fn fail(&self, error: DeviceError) {
        self.failed().get_or_insert(error);
    }

    /// Checks that the device can be used.
    ///
    /// # Errors
    /// Fails if it has failed before, or if this process is a fork of the one that opened it.
    pub(in crate::access) fn check(&self) -> Result<(), DeviceError> {
        self.check_process()?;
        self.failed().clone().map_or(Ok(()), Err)
    }
}
