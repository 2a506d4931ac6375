//! Decodes blocks. Those with distant matches are restored from their own bytes and those of earlier blocks.
//!
//! An engine decodes the own bytes of such a block like the contents of any other block, in any order. Then the
//! repeated parts are copied in, from [`History`](super::History) in a stream, or else from blocks that are decoded on
//! demand. In a stream the thread that decoded the block copies them if the history already has what it repeats;
//! otherwise the calling thread does when it passes the block on.

use std::slice;

use crc32c::crc32c;

use crate::codec::Malformed;
use crate::codec::distant::{self, Bounds, DistantMatch};
use crate::error::{Error, Place};
use crate::format::{BlockHeader, Fault};
use crate::pipeline::buffer::Buffer;
use crate::pipeline::engine::{DecodeJob, Engine};
use crate::pipeline::modules::FrameModules;

/// What is wrong with a block that no engine has decoded.
pub(crate) const NOT_DECODED: Fault = Fault::Internal("a block could not be decoded");

/// A block in memory, whose header has been checked.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub(crate) header: BlockHeader,
    /// `None` if the block is stored and already lies where its contents go.
    pub(crate) payload: Option<&'a [u8]>,
    /// Runs the modules of its frame, if the frame has any.
    pub(crate) modules: Option<&'a FrameModules>,
}

impl<'a> Block<'a> {
    /// The engine's job for a block without distant matches.
    pub(crate) fn job(self, contents: &'a mut [u8]) -> DecodeJob<'a> {
        let Self { header, payload, modules } = self;
        DecodeJob::new(header, modules, payload, contents)
    }

    /// Splits the block into a block of its own bytes and the list of its distant matches; `None` if it has no list.
    pub(crate) fn split(self) -> (Self, Option<&'a [u8]>) {
        match self.payload.and_then(|payload| self.header.split(payload)) {
            Some((list, header, coded)) => {
                (Self { header, payload: Some(coded), ..self }, Some(list))
            }
            None => (self, None),
        }
    }

    /// Decodes a block without distant matches, in the calling thread.
    pub(crate) fn decode(self, engine: &dyn Engine, contents: &mut [u8]) -> Result<(), Fault> {
        let mut job = self.job(contents);
        engine.decode(slice::from_mut(&mut job));
        job.outcome.unwrap_or(Err(NOT_DECODED))
    }

    /// Decodes the block's own bytes, in the calling thread.
    pub(crate) fn own_bytes(self, engine: &dyn Engine) -> Result<Buffer, Fault> {
        let (block, _) = self.split();
        let mut own = Buffer::default();
        block.decode(engine, own.set_len(block.header.content_len as usize)?)?;
        Ok(own)
    }

    /// Decodes any block, in the calling thread. `own` is memory for its own bytes if it repeats `sources`.
    pub(crate) fn restore(
        self,
        place: Place,
        engine: &dyn Engine,
        contents: &mut [u8],
        own: &mut Buffer,
        sources: &mut impl Sources,
    ) -> Result<(), Error> {
        let at = |fault: Fault| fault.at(place);
        let (block, Some(list)) = self.split() else {
            return self.decode(engine, contents).map_err(at);
        };
        let own_len = block.header.content_len;
        let own = own.set_len(own_len as usize).map_err(at)?;
        block.decode(engine, own).map_err(at)?;
        let matches = matches_of(&self.header, own_len, list).map_err(at)?;
        put_together(&self.header, place, &matches, own, contents, sources)
    }
}

/// The distant matches of a block with this header and `own_len` own bytes; `list` is the list of them as it is stored.
///
/// # Errors
/// Fails if the list breaks a rule, or if the system refuses memory.
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

/// Where the own bytes of earlier blocks of a frame come from.
pub(crate) trait Sources {
    /// The own bytes of block `number`, which are all of its contents if it has no distant matches. `None` if it is too
    /// far back.
    fn own_bytes(&mut self, number: u64) -> Result<Option<&[u8]>, Error>;
}

/// Puts the block at `place` together from its own bytes and those of the blocks that it repeats, and checks the
/// result. `matches` are what [`matches_of`] returned for the block. The checksums of the list and of the own bytes
/// have been checked. `contents` has the length of the contents.
pub(crate) fn put_together(
    header: &BlockHeader,
    place: Place,
    matches: &[DistantMatch],
    own: &[u8],
    contents: &mut [u8],
    sources: &mut impl Sources,
) -> Result<(), Error> {
    let corrupt = |what| Fault::Corrupt(what).at(place);
    let malformed = |malformed: Malformed| Fault::from(malformed).at(place);
    distant::put_own(matches, own, contents);
    distant::put_matches(matches, 0, own, contents).map_err(malformed)?;
    for number in source_numbers(header, matches) {
        let own = sources.own_bytes(number)?;
        let too_far = || corrupt("a distant match reaches back farther than its frame permits");
        let back = header.number - number as u32;
        let put = distant::put_matches(matches, back, own.ok_or_else(too_far)?, contents);
        put.map_err(malformed)?;
    }
    if crc32c(contents) != header.content_crc {
        return Err(corrupt("the checksum of the block's contents does not agree"));
    }
    Ok(())
}
