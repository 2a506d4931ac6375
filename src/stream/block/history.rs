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

/// The own bytes of the latest blocks that have been passed on, where blocks come in order. Clones share them.
#[derive(Debug, Clone, Default)]
pub(crate) struct History(Arc<Mutex<Latest>>);

#[derive(Debug, Default)]
struct Latest {
    frame: u64,
    /// Number of the block after the latest.
    next: u64,
    own: VecDeque<Passed>,
    /// Length of the own bytes of all blocks that have been here.
    end: u64,
}

/// The own bytes of a block, and where they begin among those of all blocks.
#[derive(Debug)]
struct Passed {
    own: Arc<Buffer>,
    start: u64,
}

impl History {
    fn lock(&self) -> MutexGuard<'_, Latest> {
        self.0.lock()
    }

    /// Adds the own bytes of a block, and gives `pool` buffers that are no longer needed: those of blocks that are out
    /// of `reach` for the one after it.
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
        // Memory takes a while to give back. A thread that still reads such a buffer drops it.
        for old in dropped.into_iter().filter_map(|old| Arc::into_inner(old.own)) {
            if old.capacity() - old.len() <= SLACK {
                pool.give(old);
            }
        }
        Ok(())
    }

    /// What is here of the blocks with these numbers, for the block after the latest.
    pub(crate) fn known(&self, numbers: &[u64]) -> Known {
        let latest = self.lock();
        let of = |&number| latest.get(number).map(|passed| (number, Arc::clone(&passed.own)));
        Known(numbers.iter().filter_map(of).collect())
    }

    /// The own bytes of the blocks with these numbers, for a block at `place`, if all of them are here and surely
    /// within `reach` of it. Blocks have up to `block_size` bytes.
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

/// Own bytes to keep, in no more memory than they take. Gives `pool` a buffer that has much more.
pub(crate) fn without_slack(own: Buffer, pool: &Pool) -> Result<Buffer, Fault> {
    if own.capacity() - own.len() <= SLACK {
        return Ok(own);
    }
    let mut kept = Buffer::default();
    kept.set_len(own.len())?.copy_from_slice(&own);
    pool.give(own);
    Ok(kept)
}

/// What a buffer may have beyond the bytes that are kept.
const SLACK: usize = 1 << 12;

/// The own bytes of blocks of a file that were needed lately, where blocks come in any order.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    /// The latest last: number of the frame, number of the block, own bytes.
    own: Vec<(u64, u64, Buffer)>,
}

impl Recent {
    /// The most blocks that are kept: as many as a block may repeat.
    pub(crate) const MAX_BLOCKS: usize = distant::MAX_SOURCES;

    /// The most bytes that these blocks take, of a frame with this header.
    pub(crate) const fn memory(frame: &FrameHeader) -> u64 {
        (Self::MAX_BLOCKS * frame.block_size()) as u64
    }

    /// The own bytes of the blocks of a frame; `load` decodes those that are not here.
    pub(crate) fn sources<L>(&mut self, frame: u64, load: L) -> impl Sources
    where
        L: FnMut(u64) -> Result<Buffer, Error>,
    {
        RecentOr { recent: self, frame, load }
    }
}

/// The own bytes of a frame's blocks: recent ones, or those that `load` decodes.
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
