//! The blocks of an archive that are wanted in the memory of a device.

use std::sync::{Arc, MutexGuard};

use super::completion::Completion;
use super::error::ArchiveError;
use super::queue::{Queue, Waiter};
use crate::access::device::{BatchKind, OnDevice, Want, Workers};
use crate::format::Pipeline;
use crate::gpu::coder::RangeTask;
use crate::gpu::device::{Device, DeviceError};
use crate::stream::block::{BlockId, Layout, Placement};
use crate::sync::Mutex;

/// The blocks that are wanted in the memory of one device.
pub(super) struct DeviceQueue {
    workers: Arc<Workers>,
    queue: Mutex<Queue<DeviceWaiter>>,
    /// The longest block that decoders are made for, in bytes of contents: no shorter than the archive's.
    pub(super) block_len: u32,
    /// What kind of batches the archive has.
    pub(super) kind: BatchKind,
    /// The most blocks of a batch.
    pub(super) max_batch: usize,
    /// Batches of so many blocks are not divided further among workers.
    pub(super) min_batch: usize,
    /// What the archive's blocks take.
    pub(super) tasks: Vec<RangeTask>,
}

/// Who gets a block, and the parts of it that it wants.
pub(super) struct DeviceWaiter {
    pub(super) completion: Arc<Completion<()>>,
    pub(super) slot: usize,
    pub(super) wants: Vec<Want>,
}

impl Waiter for DeviceWaiter {
    fn is_abandoned(&self) -> bool {
        self.completion.is_abandoned()
    }
}

/// Batches of so many blocks, or of so many bytes of contents, are not divided further among workers, since each costs
/// time of its own.
const MIN_BATCH: u64 = 64;
const MIN_BATCH_BYTES: u64 = 16 << 20;

/// Decoders are made for blocks of at least this many bytes of contents.
const MIN_BLOCK_LEN: u64 = 1 << 16;

impl DeviceQueue {
    pub(super) fn new(workers: &Arc<Workers>, layout: &Layout) -> Self {
        let core = workers.core();
        // Archives of about the same size share decoders.
        let block_len = layout.max_block_size().next_power_of_two().max(MIN_BLOCK_LEN) as u32;
        let is_of_pipelines = |of: &[Pipeline]| {
            layout.frames().iter().any(|frame| of.contains(&frame.header.pipeline))
        };
        let tasks = [
            (
                RangeTask::Decode(Pipeline::Lzf),
                is_of_pipelines(&[Pipeline::Bwt, Pipeline::Lzh, Pipeline::Lzf, Pipeline::Fse]),
            ),
            (RangeTask::Decode(Pipeline::Bwt), is_of_pipelines(&[Pipeline::Bwt])),
            (RangeTask::Move, is_of_pipelines(&[Pipeline::Store])),
            (RangeTask::Restore, layout.frames().iter().any(|frame| frame.header.reach > 0)),
        ];
        let tasks = tasks.into_iter().filter(|(_, is_needed)| *is_needed);
        let tasks: Vec<_> = tasks.map(|(task, _)| task).collect();
        let kind = match tasks.contains(&RangeTask::Restore) {
            true => BatchKind::Repeating,
            false => BatchKind::Plain,
        };
        let most = tasks.iter().map(|task| core.batch_of(*task, block_len, kind));
        // What the device does not decode is only moved there.
        let most = most.filter(|most| *most > 0).min();
        let most = most.unwrap_or_else(|| core.batch_of(RangeTask::Move, block_len, kind));
        let max_batch = (most as usize).max(1);
        let few = (MIN_BATCH_BYTES / u64::from(block_len.max(1))).clamp(1, MIN_BATCH);
        let min_batch = max_batch.min(few as usize);
        let (workers, queue) = (Arc::clone(workers), Mutex::default());
        Self { workers, queue, block_len, kind, max_batch, min_batch, tasks }
    }

    pub(super) fn is_of(&self, workers: &Arc<Workers>) -> bool {
        Arc::ptr_eq(&self.workers, workers)
    }

    /// How many batches can be on their way at once.
    pub(super) fn at_once(&self) -> usize {
        self.workers.core().at_once(self.kind)
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Queue<DeviceWaiter>> {
        self.queue.lock()
    }

    pub(super) fn device_error(&self, error: DeviceError) -> ArchiveError {
        let device = self.workers.core().device().limits().name.clone();
        ArchiveError::Device { device, error }
    }
}

/// The part of a block that goes to byte `start` of `buffer` and after, as its placement tells.
pub(super) fn wanted(placement: Placement, buffer: &Arc<OnDevice>, start: u64) -> (BlockId, Want) {
    let Placement { block, within, at, .. } = placement;
    (block, Want { within, buffer: Arc::clone(buffer), at: start + at as u64 })
}

/// Brings together what is wanted of each block.
pub(super) fn of_blocks(mut wanted: Vec<(BlockId, Want)>) -> Vec<(BlockId, Vec<Want>)> {
    wanted.sort_by_key(|(block, _)| *block);
    let of_block = |placed: &[(BlockId, Want)]| {
        let wants = placed.iter().map(|(_, want)| want.clone()).collect();
        Some((placed.first()?.0, wants))
    };
    wanted.chunk_by(|a, b| a.0 == b.0).filter_map(of_block).collect()
}

/// Those who wait for blocks that `completion` gets, at the slots from 0 on.
pub(super) fn waiters(
    wanted: Vec<(BlockId, Vec<Want>)>,
    completion: &Arc<Completion<()>>,
) -> impl Iterator<Item = (BlockId, DeviceWaiter)> {
    wanted.into_iter().enumerate().map(|(slot, (block, wants))| {
        (block, DeviceWaiter { completion: Arc::clone(completion), slot, wants })
    })
}
