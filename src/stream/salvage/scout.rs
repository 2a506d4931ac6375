//! Looks ahead for the index of a damaged frame, and walks the frame by its index.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Seek};

use super::walk::{Holes, Tracker, Walk};
use super::{Item, What};
use crate::error::Error;
use crate::format::{BlockHeader, FOOTER_LEN, Footer, Index, MAX_BLOCK_HEADER_LEN};
use crate::stream::directory::{FrameEntry, index_entry};
use crate::stream::window::WINDOW;

/// Walks ahead. All searches together go through the file once.
pub(super) struct Scout {
    walk: Walk,
    tracker: Tracker,
    /// Damaged frames found ahead, in order. Of overlapping ones, only the one that begins first.
    claims: VecDeque<Claim>,
}

/// What the end of a damaged frame says about it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Claim {
    start: u64,
    index_start: u64,
    end: u64,
}

impl Scout {
    pub(super) fn new(file_len: u64, holes: Holes) -> Self {
        Self {
            walk: Walk::new(file_len, holes),
            tracker: Tracker::default(),
            claims: VecDeque::new(),
        }
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> u64 {
        (WINDOW + self.claims.capacity() * size_of::<Claim>()) as u64
    }

    /// Finds the end of the frame that begins at `start`, if it has one. Callers ask in the order of the frames.
    ///
    /// # Errors
    /// [`Error::LimitMemory`] if there are more damaged frames on the way than fit in `max_memory`.
    pub(super) fn claim_of(
        &mut self,
        start: u64,
        max_memory: u64,
        reader: &mut (impl Read + Seek),
    ) -> Result<Option<Claim>, Error> {
        while self.claims.front().is_some_and(|claim| claim.start < start) {
            self.claims.pop_front();
        }
        if let Some(&claim) = self.claims.front().filter(|claim| claim.start == start) {
            return Ok(Some(claim));
        }
        if self.walk.position() < start {
            self.walk.restart(start);
            self.tracker = Tracker::default();
        }
        while let Some(item) = self.walk.next(reader)? {
            let is_regular = self.tracker.observe(&item, &mut self.walk, reader)?;
            let What::End(footer) = item.what else { continue };
            if is_regular {
                continue;
            }
            let Some(claim) = Claim::of(&item, &footer).filter(|claim| claim.start >= start) else {
                continue;
            };
            if claim.frame(footer, &mut self.walk, reader)?.is_none() {
                continue;
            }
            // What looked like frames inside this one is part of a block's payload.
            while self.claims.back().is_some_and(|last| last.start >= claim.start) {
                self.claims.pop_back();
            }
            if self.claims.len() == self.claims.capacity() {
                let more = self.claims.len().max(64);
                let needed = ((self.claims.len() + more) * size_of::<Claim>()) as u64;
                if needed > max_memory {
                    return Err(Error::LimitMemory {
                        needed: needed.saturating_mul(4),
                        limit: max_memory.saturating_mul(4),
                    });
                }
                self.claims.try_reserve_exact(more).map_err(|_| Error::OutOfMemory { needed })?;
            }
            self.claims.push_back(claim);
            if claim.start == start {
                return Ok(Some(claim));
            }
        }
        Ok(None)
    }
}

impl Claim {
    fn of(end: &Item, footer: &Footer) -> Option<Self> {
        let start = end.end.checked_sub(footer.frame_len)?;
        Some(Self { start, index_start: end.start, end: end.end })
    }

    /// The frame that begins where `footer` says; `None` if index and footer cannot belong to it.
    fn frame(
        &self,
        footer: Footer,
        walk: &mut Walk,
        reader: &mut (impl Read + Seek),
    ) -> Result<Option<FrameEntry>, Error> {
        let Some((header, header_end)) = walk.frame_header(reader, self.start)? else {
            return Ok(None);
        };
        let is_length_declared = header.content_size.is_none_or(|size| size == footer.content_size);
        let (offset, header_len) = (self.start, header_end - self.start);
        let frame = FrameEntry { header, header_len, offset, footer, content_start: 0 };
        let count = frame.block_count();
        let index_len = self.end - self.index_start;
        if !is_length_declared || index_len != Index::len_with_footer(count) {
            return Ok(None);
        }
        let last = self.block_start(&frame, count.saturating_sub(1), walk, reader)?;
        let adds_up = match count {
            0 => last == self.index_start,
            _ => last < self.index_start,
        };
        Ok(adds_up.then_some(frame))
    }

    /// Offset of block `number`.
    fn block_start(
        &self,
        frame: &FrameEntry,
        number: u64,
        walk: &mut Walk,
        reader: &mut (impl Read + Seek),
    ) -> Result<u64, Error> {
        let mut start = frame.offset + frame.header_len;
        for before in 0..number {
            start += self.block_len(before, walk, reader)?;
        }
        Ok(start)
    }

    /// The length of block `number` from the index, which lists all blocks but the last.
    fn block_len(
        &self,
        number: u64,
        walk: &mut Walk,
        reader: &mut (impl Read + Seek),
    ) -> Result<u64, Error> {
        let len = index_entry(&mut walk.window, reader, self.index_start, number)?;
        len.ok_or(Error::Io(ErrorKind::UnexpectedEof.into()))
    }

    /// Goes on by the index from byte `offset` of the file, after `blocks` blocks. `None` if the index disagrees.
    pub(super) fn resume(
        self,
        blocks: u64,
        offset: u64,
        scout: &mut Scout,
        reader: &mut (impl Read + Seek),
    ) -> Result<Option<Indexed>, Error> {
        let walk = &mut scout.walk;
        let at = self.end - FOOTER_LEN as u64;
        let Some(bytes) = walk.window.at(reader, at, FOOTER_LEN)?.first_chunk() else {
            return Ok(None);
        };
        let (footer, _) = Footer::parse_unchecked(bytes);
        let Some(frame) = self.frame(footer, walk, reader)? else { return Ok(None) };
        // After the last block, an index does not help.
        if blocks >= frame.block_count() {
            return Ok(None);
        }
        let agrees = offset == self.block_start(&frame, blocks, walk, reader)?;
        Ok(agrees.then_some(Indexed { claim: self, frame, number: blocks, at: offset }))
    }
}

/// The rest of a damaged frame, as its index describes it.
pub(super) struct Indexed {
    claim: Claim,
    frame: FrameEntry,
    /// Number of the next block.
    number: u64,
    /// Offset of the next block.
    at: u64,
}

impl Indexed {
    /// The next block, or the damaged bytes in its place; after the last block, the frame's end.
    pub(super) fn next(
        &mut self,
        walk: &mut Walk,
        scout: &mut Scout,
        reader: &mut (impl Read + Seek),
    ) -> Result<Item, Error> {
        let (frame, number, count) = (&self.frame, self.number, self.frame.block_count());
        if number >= count {
            let (start, end) = (self.claim.index_start, self.claim.end);
            return Ok(Item { start, end, what: What::End(frame.footer) });
        }
        let start = self.at;
        self.at = match number + 1 == count {
            true => self.claim.index_start,
            false => start + self.claim.block_len(number, &mut scout.walk, reader)?,
        };
        let range = start - frame.offset..self.at - frame.offset;
        let header = BlockHeader::parse(walk.window.at(reader, start, MAX_BLOCK_HEADER_LEN)?);
        let header =
            header.and_then(|header| frame.check_block(&header, number, &range).map(|()| header));
        self.number += 1;
        let what = header.map_or(What::Damage, What::Block);
        Ok(Item { start, end: self.at, what })
    }
}
