//! Restores blocks with distant matches, from their own bytes and those of earlier blocks.
//!
//! Engines decode the own bytes of such a block like the contents of any other, in any order. What repeats other blocks is
//! put in afterwards, where blocks are in order ([`History`]) or where any block can be decoded when it is needed. Where
//! blocks are in order, the thread that decoded one puts it in, if the others have been passed on by then.

use std::collections::VecDeque;
use std::mem;
use std::sync::{Arc, MutexGuard};

use crc32c::crc32c;

use crate::codec::distant::{self, Bounds, DistantMatch};
use crate::error::{Error, Place};
use crate::format::{BlockHeader, Fault, FrameHeader};
use crate::pipeline::buffer::{Buffer, Pool};
use crate::sync::Mutex;

/// The distant matches of a block with this header and so many own bytes; `list` is the list of them as it is stored.
///
/// # Errors
/// The rule that the list breaks, or that the system has too little memory.
pub(crate) fn matches_of(
    header: &BlockHeader,
    own_len: u32,
    list: &[u8],
) -> Result<Vec<DistantMatch>, Fault> {
    let BlockHeader { number, content_len, .. } = *header;
    let list = distant::decode::<Fault>(list, content_len)?;
    distant::parse(&list, &Bounds { number, content_len, own_len })
}

/// Numbers of the blocks that a block with this header and these matches repeats.
pub(crate) fn source_numbers(header: &BlockHeader, matches: &[DistantMatch]) -> Vec<u64> {
    let backs = distant::sources(matches).into_iter();
    backs.map(|back| u64::from(header.number - back)).collect()
}

/// A block whose contents are being restored.
pub(crate) struct Restoring<'a> {
    header: &'a BlockHeader,
    place: Place,
    matches: &'a [DistantMatch],
    contents: &'a mut [u8],
}

impl<'a> Restoring<'a> {
    /// Begins with the block's own bytes. The matches must be those of the block, as [`matches_of`] returns them, and own
    /// bytes and list those that their checksums belong to. `contents` has the length of the contents.
    pub(crate) fn begin(
        header: &'a BlockHeader,
        matches: &'a [DistantMatch],
        own: &[u8],
        contents: &'a mut [u8],
        place: Place,
    ) -> Result<Self, Error> {
        distant::put_own(matches, own, contents);
        distant::put_matches(matches, 0, own, contents)
            .map_err(|malformed| Fault::from(malformed).at(place))?;
        Ok(Self { header, place, matches, contents })
    }

    /// Numbers of the blocks that this one repeats. Each is to be [put](Self::put).
    pub(crate) fn sources(&self) -> Vec<u64> {
        source_numbers(self.header, self.matches)
    }

    /// Puts in what repeats block `number`, whose own bytes are `own`; `None` if it is too far back.
    pub(crate) fn put(&mut self, number: u64, own: Option<&[u8]>) -> Result<(), Error> {
        let Some(own) = own else {
            let fault =
                Fault::Corrupt("a distant match reaches back farther than its frame permits");
            return Err(fault.at(self.place));
        };
        let back = self.header.number - number as u32;
        let put = distant::put_matches(self.matches, back, own, self.contents);
        put.map_err(|malformed| Fault::from(malformed).at(self.place))
    }

    /// Checks the contents.
    pub(crate) fn end(self) -> Result<(), Error> {
        if crc32c(self.contents) == self.header.content_crc {
            return Ok(());
        }
        let fault = Fault::Corrupt("the checksum of the block's contents does not agree");
        Err(fault.at(self.place))
    }
}

/// Where the own bytes of earlier blocks of a frame come from.
pub(crate) trait Sources {
    /// The own bytes of block `number`; all of the contents are, if the block has no distant matches. `None` if it is too
    /// far back.
    fn own_bytes(&mut self, number: u64) -> Result<Option<&[u8]>, Error>;
}

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

    /// Adds the own bytes of a block, and gives `pool` buffers that are no longer needed: those of blocks that are out of
    /// `reach` for the one after it.
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

    /// The own bytes of the blocks with these numbers, for a block at `place`, if all of them are here and surely within
    /// `reach` of it. Blocks have up to `block_size` bytes.
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
    pub(crate) const MOST: usize = distant::MAX_SOURCES;

    /// The most bytes that these blocks take, of a frame with this header.
    pub(crate) const fn memory(frame: &FrameHeader) -> u64 {
        (Self::MOST * frame.block_size()) as u64
    }

    /// The own bytes of a block; `load` decodes them if they are not here.
    pub(crate) fn get_or_load(
        &mut self,
        frame: u64,
        number: u64,
        load: impl FnOnce() -> Result<Buffer, Error>,
    ) -> Result<&[u8], Error> {
        let found = self.own.iter().position(|own| (own.0, own.1) == (frame, number));
        let own = match found {
            Some(at) => self.own.remove(at),
            None => {
                if self.own.len() == Self::MOST {
                    self.own.remove(0);
                }
                (frame, number, load()?)
            }
        };
        self.own.push(own);
        Ok(self.own.last().map_or(&[], |own| &own.2[..]))
    }
}
