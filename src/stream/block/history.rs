//! Own bytes of blocks that later ones may repeat.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, MutexGuard};

use super::restore::Sources;
use crate::codec::distant;
use crate::error::{Error, Place};
use crate::format::{Fault, FrameHeader};
use crate::pipeline::buffer::{Buffer, Pool};
use crate::sync::Mutex;

/// Own bytes of blocks, by number.
pub(crate) struct Known(Vec<(u64, Arc<Buffer>)>);

impl Sources for Known {
    fn own_bytes(&mut self, number: u64) -> Result<Option<&[u8]>, Error> {
        Ok(self.0.iter().find(|known| known.0 == number).map(|known| &known.1[..]))
    }
}

/// Keeps the own bytes of the latest blocks of a stream, after the decoder has passed the blocks on. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct History(Arc<Mutex<Latest>>);

#[derive(Debug, Default)]
struct Latest {
    frame: u64,
    /// Number of the block after the latest.
    next: u64,
    own: VecDeque<Passed>,
    /// Length of the own bytes of all blocks added so far.
    end: u64,
}

/// The own bytes of a block, and their offset among those of all blocks.
#[derive(Debug)]
struct Passed {
    own: Arc<Buffer>,
    start: u64,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Latest> {
        self.0.lock()
    }

    /// Adds the own bytes of a block. Drops blocks that the next one cannot reach, and gives their buffers to `pool`.
    pub(crate) fn push(
        &self,
        place: Place,
        own: Buffer,
        reach: u64,
        pool: &Pool,
    ) -> Result<(), Error> {
        let own = without_slack(own, pool).map_err(|fault| fault.at(place))?;
        let number = place.block.unwrap_or(0);
        let mut latest = self.lock();
        let is_next = (place.frame, number) == (latest.frame, latest.next);
        let mut dropped = if is_next { VecDeque::new() } else { mem::take(&mut latest.own) };
        (latest.frame, latest.next) = (place.frame, number + 1);
        let start = latest.end;
        latest.end += own.len() as u64;
        latest.own.push_back(Passed { own: Arc::new(own), start });
        while let Some(first) = latest.own.front()
            && latest.end - first.start > reach
        {
            dropped.extend(latest.own.pop_front());
        }
        drop(latest);
        // Freeing memory takes a while, so the lock is released first. If a thread still reads a buffer, that thread
        // frees it.
        for old in dropped.into_iter().filter_map(|old| Arc::into_inner(old.own)) {
            if old.capacity() - old.len() <= SLACK {
                pool.give(old);
            }
        }
        Ok(())
    }

    /// The own bytes of those of these blocks that are kept, for the block after the latest.
    pub(crate) fn known(&self, numbers: &[u64]) -> Known {
        let latest = self.lock();
        let of = |&number| latest.get(number).map(|passed| (number, Arc::clone(&passed.own)));
        Known(numbers.iter().filter_map(of).collect())
    }

    /// The own bytes of these blocks, for a block at `place`; `None` unless all are kept and are within `reach` however
    /// long the blocks in between turn out to be. Blocks have up to `block_size` bytes.
    pub(crate) fn known_early(
        &self,
        numbers: &[u64],
        place: Place,
        reach: u64,
        block_size: u64,
    ) -> Option<Known> {
        let latest = self.lock();
        let between = place.block?.checked_sub(latest.next)?.checked_mul(block_size)?;
        let of = |&number| {
            let is_here = |passed: &&Passed| {
                place.frame == latest.frame && latest.end - passed.start + between <= reach
            };
            let passed = latest.get(number).filter(is_here)?;
            Some((number, Arc::clone(&passed.own)))
        };
        numbers.iter().map(of).collect::<Option<_>>().map(Known)
    }

    /// Frees all memory.
    pub(crate) fn clear(&self) {
        self.lock().own = VecDeque::new();
    }
}

impl Latest {
    /// The own bytes of block `number`.
    fn get(&self, number: u64) -> Option<&Passed> {
        let back = self.next.checked_sub(number)?;
        self.own.get(self.own.len().checked_sub(back as usize)?)
    }
}

/// Copies own bytes to a buffer of their size if theirs is much larger, and then gives that one to `pool`.
pub(crate) fn without_slack(own: Buffer, pool: &Pool) -> Result<Buffer, Fault> {
    if own.capacity() - own.len() <= SLACK {
        return Ok(own);
    }
    let mut kept = Buffer::default();
    kept.set_len(own.len())?.copy_from_slice(&own);
    pool.give(own);
    Ok(kept)
}

/// How much larger a kept buffer may be than the bytes in it.
const SLACK: usize = 1 << 12;

/// Caches own bytes for readers that decode blocks in any order.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// Number of the frame, number of the block, own bytes; the most recently used last.
    own: Vec<(u64, u64, Buffer)>,
}

impl Recent {
    /// The most blocks in the cache: as many as one block may repeat.
    pub(crate) const MAX_BLOCKS: usize = distant::MAX_SOURCES;

    /// The most bytes in the cache for a frame with this header.
    pub(crate) const fn memory(frame: &FrameHeader) -> u64 {
        (Self::MAX_BLOCKS * frame.block_size()) as u64
    }

    /// The own bytes of a frame's blocks. `load` decodes those that are not in the cache.
    pub(crate) fn sources<L>(&mut self, frame: u64, load: L) -> impl Sources
    where
        L: FnMut(u64) -> Result<Buffer, Error>,
    {
        RecentOr { recent: self, frame, load }
    }
}

/// Takes own bytes from the cache, and lets `load` decode the others.
struct RecentOr<'a, L> {
    recent: &'a mut Recent,
    frame: u64,
    load: L,
}

impl<L: FnMut(u64) -> Result<Buffer, Error>> Sources for RecentOr<'_, L> {
    fn own_bytes(&mut self, number: u64) -> Result<Option<&[u8]>, Error> {
        let all = &mut self.recent.own;
        let found = all.iter().position(|own| (own.0, own.1) == (self.frame, number));
        let own = match found {
            Some(at) => all.remove(at),
            None => {
                if all.len() == Recent::MAX_BLOCKS {
                    all.remove(0);
                }
                (self.frame, number, (self.load)(number)?)
            }
        };
        all.push(own);
        Ok(all.last().map(|own| &own.2[..]))
    }
}
