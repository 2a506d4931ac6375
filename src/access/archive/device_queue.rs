//! The queue of an archive's blocks for one device.

use std::ops::Range;
use std::sync::{Arc, MutexGuard};

use super::completion::Completion;
use super::error::ArchiveError;
use super::queue::{BlockQueue, Waiter};
use crate::access::device::{BatchKind, BufferHandle, Workers};
use crate::format::Pipeline;
use crate::gpu::coder::{MovedPart, Origin, RangeTask};
use crate::gpu::device::{Device, DeviceError};
use crate::stream::block::{BlockId, Layout, Placement};
use crate::sync::Mutex;

/// The queue of an archive's blocks for one device, and how its batches are sized.
pub(super) struct DeviceQueue {
    pub(super) workers: Arc<Workers>,
    queue: Mutex<BlockQueue<DeviceWaiter>>,
    /// The length of the longest block that decoders are made for, in bytes of contents. The archive's blocks are no
    /// longer.
    pub(super) block_len: u32,
    /// The kind of the archive's batches.
    pub(super) kind: BatchKind,
    /// The most blocks of a batch.
    pub(super) max_batch: usize,
    /// Batches of up to this many blocks are not divided among workers.
    pub(super) min_batch: usize,
    /// The tasks that decode the archive's blocks.
    pub(super) tasks: Vec<RangeTask>,
}

/// A read that waits for a part of a block, and where that part goes.
pub(super) struct DeviceWaiter {
    pub(super) block: BlockId,
    pub(super) completion: Arc<Completion<()>>,
    pub(super) slot: usize,
    /// Bytes of the block's contents.
    within: Range<usize>,
    buffer: Arc<BufferHandle>,
    /// Offset in that buffer.
    at: u64,
}

impl DeviceWaiter {
    /// A waiter with a new slot of `completion`. The read's destination begins at byte `start` of `buffer`.
    pub(super) fn new(
        placement: Placement,
        buffer: &Arc<BufferHandle>,
        start: u64,
        completion: &Arc<Completion<()>>,
    ) -> Self {
        let Placement { block, within, at, .. } = placement;
        let (buffer, at, slot) = (Arc::clone(buffer), start + at as u64, completion.add_slot());
        Self { block, completion: Arc::clone(completion), slot, within, buffer, at }
    }

    /// The part as a decoder moves it. `origin` returns where a byte of the contents is.
    pub(super) fn part(&self, origin: &dyn Fn(u32) -> Origin) -> MovedPart {
        MovedPart {
            origin: origin(self.within.start as u32),
            bytes: self.within.len() as u32,
            buffer: self.buffer.id(),
            buffer_end: self.buffer.end(),
            at: self.at,
        }
    }
}

impl Waiter for DeviceWaiter {
    fn is_abandoned(&self) -> bool {
        self.completion.is_abandoned()
    }
}

/// Batches of up to this many blocks and bytes of contents are not divided among workers, since each batch has fixed
/// costs.
const MIN_BATCH: u64 = 64;
const MIN_BATCH_BYTES: u64 = 16 << 20;

/// Decoders are made for blocks of at least this many bytes of contents.
const MIN_BLOCK_LEN: u64 = 1 << 16;

impl DeviceQueue {
    pub(super) fn new(workers: &Arc<Workers>, layout: &Layout) -> Self {
        let core = &workers.core;
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
        // If the device decodes none of the archive's blocks, it only moves what the CPU decoded.
        let most = most.filter(|most| *most > 0).min();
        let most = most.unwrap_or_else(|| core.batch_of(RangeTask::Move, block_len, kind));
        let max_batch = (most as usize).max(1);
        let few = (MIN_BATCH_BYTES / u64::from(block_len.max(1))).clamp(1, MIN_BATCH);
        let min_batch = max_batch.min(few as usize);
        let (workers, queue) = (Arc::clone(workers), Mutex::default());
        Self { workers, queue, block_len, kind, max_batch, min_batch, tasks }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, BlockQueue<DeviceWaiter>> {
        self.queue.lock()
    }

    pub(super) fn device_error(&self, error: DeviceError) -> ArchiveError {
        let device = self.workers.core.device.limits().name.clone();
        ArchiveError::Device { device, error }
    }
}
