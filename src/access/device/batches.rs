//! How long batches of blocks are.

use std::collections::HashMap;

use super::Core;
use crate::gpu::coder::{RangeDecoder, RangeTask, max_blocks};
use crate::sync::Mutex;

/// What kind of batch blocks belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(in crate::access) enum BatchKind {
    /// Blocks of an archive in which none repeats others.
    Plain,
    /// Blocks of an archive in which some do.
    Repeating,
    /// What such blocks repeat.
    Sources,
}

/// The most blocks of a batch.
const MAX_BATCH: u64 = 1024;
/// Bytes of contents of a batch by default.
const BATCH: u64 = 32 << 20;
/// The same of plain blocks on a device with a single queue. A batch of any length takes some milliseconds there.
const BATCH_OF_ONE_QUEUE: u64 = 128 << 20;
/// The most batches of plain blocks that are on their way at once to a device with a single queue: while one is decoded, others
/// are read.
const BATCHES_OF_ONE_QUEUE: usize = 4;
/// How many times as many bytes the sources of a batch may have that are decoded at once. Copies with small changes have two to
/// three: the own bytes of a block, and the two blocks that most of it lies in.
const SOURCES: u64 = 4;

/// How long batches are: bytes of contents if that is not the default, and what [`Core::batch_of`] has found.
pub(super) struct Batches {
    bytes: Option<u64>,
    known: Mutex<HashMap<(RangeTask, u32, BatchKind), u32>>,
}

impl Batches {
    pub(super) fn new(bytes: Option<u64>) -> Self {
        Self { bytes, known: Mutex::default() }
    }
}

impl Core {
    /// Whether batches of this kind should be few and long.
    fn prefers_long(&self, kind: BatchKind) -> bool {
        kind == BatchKind::Plain && self.device().limits().has_one_queue()
    }

    /// The most batches of this kind that are on their way at once.
    pub(in crate::access) fn at_once(&self, kind: BatchKind) -> usize {
        let most = if self.prefers_long(kind) { BATCHES_OF_ONE_QUEUE } else { usize::MAX };
        self.lanes().min(most)
    }

    /// The most blocks of up to `block_len` bytes that a lane decodes at once, as the costs of the kernels predict; 0 if
    /// the device declines them, or if not even one fits.
    pub(in crate::access) fn batch_of(
        &self,
        task: RangeTask,
        block_len: u32,
        kind: BatchKind,
    ) -> u32 {
        let mut known = self.batches.known.lock();
        let find = || self.find_batch_of(task, block_len, kind);
        *known.entry((task, block_len, kind)).or_insert_with(find)
    }

    fn find_batch_of(&self, task: RangeTask, block_len: u32, kind: BatchKind) -> u32 {
        let limits = self.device().limits();
        let Ok(cost) = RangeDecoder::cost_of_block(limits, task, block_len) else { return 0 };
        let usual = if self.prefers_long(kind) { BATCH_OF_ONE_QUEUE } else { BATCH };
        let bytes = self.batches.bytes.unwrap_or(usual);
        let bytes = if kind == BatchKind::Sources { SOURCES * bytes } else { bytes };
        let wanted = (bytes / u64::from(block_len.max(1))).clamp(1, MAX_BATCH);
        // Blocks to restore and their sources are in memory together.
        let with_sources = kind == BatchKind::Sources || task == RangeTask::Restore;
        let shares = if with_sources { 2 } else { 1 };
        let in_memory = self.lane_budget() / shares / cost.memory.max(1);
        let in_buffer = limits.max_buffer / cost.largest_buffer.max(1);
        let counted = u64::from(max_blocks(block_len));
        wanted.min(in_memory).min(in_buffer).min(counted) as u32
    }
}
