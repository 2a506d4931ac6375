//! The workers and blocks in flight that a memory limit permits.

use std::num::NonZero;

use super::buffer::Buffer;
use super::engine::Engine;
use crate::codec::{Codec, Recipe};
use crate::error::Error;
use crate::format::{FrameHeader, MAX_BLOCKS, Pipeline};

/// A job's number of workers and blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Share {
    /// Workers. With one, everything runs in the calling thread.
    pub(crate) workers: usize,
    /// Blocks that exist at any time: being filled, waiting, being coded, or waiting for their turn to be written.
    pub(crate) in_flight: usize,
}

impl Share {
    /// One block at a time, in the calling thread.
    pub(crate) const ALONE: Self = Self { workers: 1, in_flight: 1 };

    /// Drops the workers that a job of `blocks` blocks would leave idle.
    pub(crate) fn limit_to(&mut self, blocks: u64) {
        self.workers = self.workers.min(usize::try_from(blocks).unwrap_or(usize::MAX)).max(1);
        if self.workers == 1 {
            self.in_flight = 1;
        }
    }
}

/// The host memory that the parts of a job take, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Cost {
    /// For the whole job.
    pub(crate) fixed: u64,
    /// Per worker.
    pub(crate) worker: u64,
    /// Per block in flight.
    pub(crate) block: u64,
}

impl Cost {
    /// The memory to encode blocks of `block_size` bytes.
    pub(crate) fn of_encoding(engine: &dyn Engine, recipe: &Recipe, block_size: usize) -> Self {
        let size = block_size as u64;
        let trial = if matches!(recipe.codec, Codec::Smallest(_)) { size } else { 0 };
        Self {
            // The index of blocks.
            fixed: 4 * MAX_BLOCKS,
            worker: engine.encode_memory(recipe, block_size),
            block: size + payload_capacity(block_size) as u64 + trial + size_of::<Buffer>() as u64,
        }
    }

    /// The memory to decode the blocks of a frame in order.
    pub(crate) fn of_decoding(engine: &dyn Engine, frame: &FrameHeader) -> Self {
        Self::keeping(engine, frame, u64::MAX)
    }

    /// The memory to decode blocks of a frame, and to keep up to `most` bytes of blocks that distant matches repeat.
    pub(crate) fn keeping(engine: &dyn Engine, frame: &FrameHeader, most: u64) -> Self {
        let most = most.min(frame.content_size.unwrap_or(u64::MAX));
        let block_size = frame.block_size() as u64;
        let (distant, restored) = match frame.reach.min(most) {
            0 => (0, 0),
            // Besides the kept blocks, one more. Each block has own bytes, contents, and the list of matches, which is
            // shorter.
            kept => (kept.saturating_add(block_size), 2 * block_size),
        };
        let blocks = Self::of_decoding_blocks(engine, frame.pipeline, frame.block_size());
        Self {
            fixed: super::modules::memory(&frame.modules).saturating_add(distant),
            block: blocks.block + restored,
            ..blocks
        }
    }

    /// The memory to decode blocks of up to `block_size` bytes, without the memory of modules.
    pub(crate) fn of_decoding_blocks(
        engine: &dyn Engine,
        pipeline: Pipeline,
        block_size: usize,
    ) -> Self {
        Self {
            fixed: 0,
            worker: engine.decode_memory(pipeline, block_size),
            block: 2 * (block_size + size_of::<Buffer>()) as u64,
        }
    }

    /// The memory for one block at a time.
    pub(crate) fn least(&self) -> u64 {
        self.of(Share::ALONE)
    }

    /// The memory for the workers and blocks of `share`.
    pub(crate) fn of(&self, share: Share) -> u64 {
        let workers = self.worker.saturating_mul(share.workers as u64);
        let blocks = self.block.saturating_mul(share.in_flight as u64);
        self.fixed.saturating_add(workers).saturating_add(blocks)
    }

    /// Widens `share` by up to `blocks` blocks in flight for a device, as far as `limit` permits; returns how many. If
    /// memory is short, drops workers to make room for up to half of `limit`: a worker takes more memory than a block,
    /// and does less with it.
    pub(crate) fn widen(&self, share: &mut Share, blocks: u64, limit: u64) -> u64 {
        let for_device = blocks.saturating_mul(self.block).min(limit / 2);
        while share.workers > 1 && self.of(*share).saturating_add(for_device) > limit {
            share.workers -= 1;
            share.in_flight -= 1;
        }
        let left = limit.saturating_sub(self.of(*share));
        let more = blocks.min(left / self.block.max(1));
        share.in_flight = share.in_flight.saturating_add(more as usize);
        more
    }

    /// The [share](Self::share) for a job of `blocks` blocks, if their number is known.
    ///
    /// # Errors
    /// As for [`Self::share`].
    pub(crate) fn share_for(
        &self,
        blocks: Option<u64>,
        threads: usize,
        limit: u64,
    ) -> Result<Share, Error> {
        // Counting the cores takes longer than coding a small block.
        let is_single = blocks.is_some_and(|blocks| blocks < 2);
        let mut share = self.share(if is_single { 1 } else { threads }, limit)?;
        if let Some(blocks) = blocks {
            share.limit_to(blocks);
        }
        Ok(share)
    }

    /// The largest share of at most `threads` workers that stays within `limit`; 0 threads means one for each core.
    ///
    /// # Errors
    /// [`Error::LimitMemory`] if even one block at a time exceeds `limit`.
    pub(crate) fn share(&self, threads: usize, limit: u64) -> Result<Share, Error> {
        if self.least() > limit {
            return Err(Error::LimitMemory { needed: self.least(), limit });
        }
        let threads = match threads {
            0 => cores(),
            n => n.min(MAX_WORKERS),
        };
        // Each worker has a block. Besides, one block is being filled or written, one waits for a worker, and some wait
        // for an earlier block to finish. A worker is not worth its memory if it leaves no room for the first of these.
        let shares = (2..=threads).rev().flat_map(|workers| {
            (workers + 1..=workers + 2 + workers / 4)
                .rev()
                .map(move |in_flight| Share { workers, in_flight })
        });
        Ok(shares.into_iter().find(|&share| self.of(share) <= limit).unwrap_or(Share::ALONE))
    }
}

/// The number of cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// The most workers, more than any machine has cores.
const MAX_WORKERS: usize = 1024;

/// Capacity for a block's payload during encoding: a codec notices that a block does not shrink only after it has
/// written about as much.
pub(crate) const fn payload_capacity(block_size: usize) -> usize {
    block_size + block_size / 8 + 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_make_room_for_a_device() {
        let cost = Cost { fixed: 0, worker: 100, block: 10 };
        let full = Share { workers: 16, in_flight: 18 };
        // Plenty of memory.
        let mut share = full;
        assert_eq!(cost.widen(&mut share, 50, 10_000), 50);
        assert_eq!((share.workers, share.in_flight), (16, 68));
        // Scarce: half of it is for the device.
        let mut share = full;
        assert_eq!(cost.widen(&mut share, 500, 2_000), 110);
        assert_eq!((share.workers, share.in_flight), (8, 120));
        assert!(cost.of(share) <= 2_000);
        // Workers make only as much room as the device needs.
        let mut share = full;
        assert_eq!(cost.widen(&mut share, 20, 2_000), 20);
        assert_eq!(share.workers, 16);
    }

    #[test]
    fn shares_fit_the_limit() {
        let cost = Cost { fixed: 10, worker: 100, block: 20 };
        assert_eq!(cost.share(1, 130).unwrap(), Share { workers: 1, in_flight: 1 });
        assert!(matches!(cost.share(4, 129), Err(Error::LimitMemory { needed: 130, limit: 129 })));
        for threads in 0..20 {
            for limit in 130..3000 {
                let share = cost.share(threads, limit).unwrap();
                assert!(cost.of(share) <= limit);
                assert!(threads == 0 || share.workers <= threads);
                assert!((share.workers == 1) == (share.in_flight == 1));
            }
        }
        let plenty = cost.share(8, u64::MAX).unwrap();
        assert_eq!(plenty, Share { workers: 8, in_flight: 12 });
        let huge = Cost { fixed: u64::MAX, worker: u64::MAX, block: u64::MAX };
        assert!(huge.share(4, u64::MAX - 1).is_err());
    }
}
