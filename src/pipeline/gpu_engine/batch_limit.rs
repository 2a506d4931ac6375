//! The size of batches after a device has run out of memory.

use super::Kind;
use crate::gpu::coder::CoderError;
use crate::gpu::device::DeviceError;

/// What follows after a device failed to do a batch.
pub(crate) enum AfterError {
    /// It ran out of memory. The next batches have at most this many blocks; at 0, it has no memory for even one.
    Halved(u32),
    /// It declines the work, however short a batch is.
    Declined,
    /// It can no longer be used.
    Broken,
}

impl AfterError {
    /// What follows after a batch of `blocks` blocks ended with `error`.
    pub(crate) fn of(error: &CoderError, blocks: u32) -> Self {
        match error {
            CoderError::Device(DeviceError::OutOfMemory { .. }) => Self::Halved(blocks / 2),
            CoderError::Plan(_)
            | CoderError::Device(DeviceError::Unsupported(_) | DeviceError::Build { .. }) => {
                Self::Declined
            }
            CoderError::Device(_) => Self::Broken,
        }
    }
}

/// Limits the batches of one kind of work after the device ran out of memory.
///
/// After `patience` batches the engine tries one of twice the size, in case the memory is free again. Each failed trial
/// doubles the patience, up to [`MAX_PATIENCE`]; a trial that succeeds shortens it.
pub(super) struct BatchLimit {
    pub(super) kind: Kind,
    /// Blocks in a batch; 0 if the device cannot do even one.
    pub(super) blocks: u32,
    /// Batches done since `blocks` changed.
    done: u32,
    /// Batches to do before trying a larger one.
    pub(super) patience: u32,
    /// Whether the last change made batches larger.
    has_grown: bool,
    /// Whether the device declines the work: it will never do even one block.
    is_declined: bool,
}

/// Batches to do before the first trial of a larger one.
const PATIENCE: u32 = 4;

/// The most batches between trials, so that failed trials cost little.
pub(in crate::pipeline) const MAX_PATIENCE: u32 = 64;

impl BatchLimit {
    /// A limit of `blocks` blocks, to be exceeded after some batches.
    pub(super) fn new(kind: Kind, blocks: u32) -> Self {
        Self { kind, blocks, done: 0, patience: PATIENCE, has_grown: false, is_declined: false }
    }

    /// For work that the device declines.
    pub(super) fn declined(kind: Kind) -> Self {
        Self { is_declined: true, ..Self::new(kind, 0) }
    }

    /// Whether the device had no memory for a single block.
    pub(super) fn is_short(&self) -> bool {
        self.blocks == 0 && !self.is_declined
    }

    /// Whether the device declines the work.
    pub(super) fn is_declined(&self) -> bool {
        self.is_declined
    }

    /// Permits a batch of one block.
    pub(super) fn try_again(&mut self) {
        (self.blocks, self.done, self.has_grown) = (1, 0, true);
    }

    /// Blocks in the next batch, of `waiting` blocks, where a full batch has `planned` blocks.
    pub(super) fn next(&self, waiting: usize, planned: u32) -> u32 {
        let is_time = self.done >= self.patience && waiting > self.blocks as usize;
        if is_time { self.blocks.saturating_mul(2).min(planned) } else { self.blocks }
    }

    /// Records that the device did a batch of `blocks` blocks.
    pub(super) fn done(&mut self, blocks: u32) {
        self.done = self.done.saturating_add(1);
        if blocks > self.blocks {
            (self.blocks, self.done, self.has_grown) = (blocks, 0, true);
            self.patience = (self.patience / 4).max(PATIENCE);
        }
    }

    /// Records that the device had no memory for a batch of `blocks` blocks.
    pub(super) fn had_no_memory(&mut self, blocks: u32) {
        let is_trial = blocks > self.blocks;
        if is_trial || self.has_grown {
            self.patience = (2 * self.patience).min(MAX_PATIENCE);
        }
        if !is_trial {
            self.blocks = blocks / 2;
        }
        (self.done, self.has_grown) = (0, false);
    }
}
