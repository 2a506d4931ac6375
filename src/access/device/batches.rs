//! How long batches of blocks are.

use std::collections::HashMap;

use crate::gpu::coder::{RangeDecoder, RangeTask, max_blocks};
use crate::gpu::device::Limits;
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
/// The most batches of plain blocks that are on their way at once to a device with a single queue: while one is
/// decoded, others are read.
const BATCHES_OF_ONE_QUEUE: usize = 4;
/// How many times as many bytes the sources of a batch may have that are decoded at once. Copies with small changes
/// have two to three: the own bytes of a block, and the two blocks that most of it lies in.
const SOURCES: u64 = 4;

/// What a decoder was made for: its task, length of the longest block, and blocks.
pub(super) type Key = (RangeTask, u32, u32);

/// How long batches are: bytes of contents if that is not the default, and what [`Batches::of`] has found.
pub(super) struct Batches {
    bytes: Option<u64>,
    known: Mutex<HashMap<(RangeTask, u32, BatchKind), u32>>,
}

/// Whether batches of this kind should be few and long.
fn should_be_long(limits: &Limits, kind: BatchKind) -> bool {
    kind == BatchKind::Plain && limits.has_one_queue()
}

impl Batches {
    pub(super) fn new(bytes: Option<u64>) -> Self {
        Self { bytes, known: Mutex::default() }
    }

    /// The most batches of this kind that a device has use for at once.
    pub(super) fn at_once(limits: &Limits, kind: BatchKind) -> usize {
        if should_be_long(limits, kind) { BATCHES_OF_ONE_QUEUE } else { usize::MAX }
    }

    /// The most blocks of a task, a length and a kind that a lane decodes at once, with `lane_budget` bytes of device
    /// memory for its decoders; 0 if the device declines them, or if not even one fits.
    pub(super) fn of(
        &self,
        limits: &Limits,
        lane_budget: u64,
        blocks: (RangeTask, u32, BatchKind),
    ) -> u32 {
        let mut known = self.known.lock();
        *known.entry(blocks).or_insert_with(|| self.find(limits, lane_budget, blocks))
    }

    fn find(
        &self,
        limits: &Limits,
        lane_budget: u64,
        (task, block_len, kind): (RangeTask, u32, BatchKind),
    ) -> u32 {
        let Ok(cost) = RangeDecoder::cost_of_block(limits, task, block_len) else { return 0 };
        let usual = if should_be_long(limits, kind) { BATCH_OF_ONE_QUEUE } else { BATCH };
        let bytes = self.bytes.unwrap_or(usual);
        let bytes = if kind == BatchKind::Sources { SOURCES * bytes } else { bytes };
        let wanted = (bytes / u64::from(block_len.max(1))).clamp(1, MAX_BATCH);
        // Blocks to restore and their sources are in memory together.
        let with_sources = kind == BatchKind::Sources || task == RangeTask::Restore;
        let shares = if with_sources { 2 } else { 1 };
        let in_memory = lane_budget / shares / cost.memory.max(1);
        let in_buffer = limits.max_buffer / cost.largest_buffer.max(1);
        let counted = u64::from(max_blocks(block_len));
        wanted.min(in_memory).min(in_buffer).min(counted) as u32
    }
}
