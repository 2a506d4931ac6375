//! Restores blocks with distant matches, from their own bytes and those of earlier blocks.
//!
//! Engines decode the own bytes of such a block like the contents of any other, in any order. What repeats other blocks is
//! put in afterwards, where blocks are in order ([`History`]) or where any block can be decoded when it is needed.

use std::collections::VecDeque;

use crc32c::crc32c;

use crate::codec::distant::{self, Bounds, DistantMatch};
use crate::error::{Error, Place};
use crate::format::{BlockHeader, Fault, FrameHeader};
use crate::pipeline::buffer::{Buffer, Pool};

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

/// A block whose contents are being restored.
pub(crate) struct Restoring<'a> {
    header: &'a BlockHeader,
    place: Place,
    matches: Vec<DistantMatch>,
    contents: &'a mut [u8],
}

impl<'a> Restoring<'a> {
    /// Begins with the block's own bytes. `list` is the list of its matches; list and own bytes must be those that their
    /// checksums belong to. `contents` has the length of the contents.
    pub(crate) fn begin(
        header: &'a BlockHeader,
        list: &[u8],
        own: &[u8],
        contents: &'a mut [u8],
        place: Place,
    ) -> Result<Self, Error> {
        let matches =
            matches_of(header, own.len() as u32, list).map_err(|fault| fault.at(place))?;
        distant::put_own(&matches, own, contents);
        distant::put_matches(&matches, 0, own, contents)
            .map_err(|malformed| Fault::from(malformed).at(place))?;
        Ok(Self { header, place, matches, contents })
    }

    /// Numbers of the blocks that this one repeats. Each is to be [put](Self::put).
    pub(crate) fn sources(&self) -> Vec<u64> {
        let backs = distant::sources(&self.matches).into_iter();
        backs.map(|back| u64::from(self.header.number - back)).collect()
    }

    /// Puts in what repeats block `number`, whose own bytes are `own`; `None` if it is too far back.
    pub(crate) fn put(&mut self, number: u64, own: Option<&[u8]>) -> Result<(), Error> {
        let Some(own) = own else {
            let fault =
                Fault::Corrupt("a distant match reaches back farther than its frame permits");
            return Err(fault.at(self.place));
        };
        let back = self.header.number - number as u32;
        let put = distant::put_matches(&self.matches, back, own, self.contents);
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

/// The own bytes of the latest blocks, where blocks come in order.
#[derive(Debug, Default)]
pub(crate) struct History {
    frame: u64,
    /// Number of the block after the latest.
    next: u64,
    own: VecDeque<Buffer>,
    /// Length of all of them.
    len: u64,
}

impl History {
    /// Adds the own bytes of a block, and gives `pool` buffers that are no longer needed: those of blocks that are out of
    /// `reach` for the one after it.
    pub(crate) fn push(
        &mut self,
        place: Place,
        own: Buffer,
        reach: u64,
        pool: &Pool,
    ) -> Result<(), Error> {
        let number = place.block.unwrap_or(0);
        if (place.frame, number) != (self.frame, self.next) {
            self.own.drain(..).for_each(|old| pool.give(old));
            self.len = 0;
        }
        (self.frame, self.next) = (place.frame, number + 1);
        self.len += own.len() as u64;
        let mut kept = Buffer::default();
        if own.capacity() - own.len() > SLACK {
            let room = kept.set_len(own.len()).map_err(|fault| fault.at(place))?;
            room.copy_from_slice(&own);
            pool.give(own);
        } else {
            kept = own;
        }
        self.own.push_back(kept);
        while self.len > reach
            && let Some(old) = self.own.pop_front()
        {
            self.len -= old.len() as u64;
            if old.capacity() - old.len() <= SLACK {
                pool.give(old);
            }
        }
        Ok(())
    }

    /// Frees all memory.
    pub(crate) fn clear(&mut self) {
        self.own = VecDeque::new();
        self.len = 0;
    }
}

/// What a buffer may have beyond the bytes that are kept.
const SLACK: usize = 1 << 12;

impl Sources for History {
    fn own_bytes(&mut self, number: u64) -> Result<Option<&[u8]>, Error> {
        let back = self.next.checked_sub(number).map(|back| back as usize);
        let own = back.and_then(|back| self.own.get(self.own.len().checked_sub(back)?));
        Ok(own.map(|own| &own[..]))
    }
}

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
