//! Finds what is left of a damaged file's structure, in bounded memory, and in time that grows linearly with its
//! length.
//!
//! | module | what it does |
//! |---|---|
//! | `walk` | goes from structure to structure, searches where there is none, and tells what a decoder would accept |
//! | `scout` | looks ahead for the index of a frame that is damaged |
//! | `layout` | says which contents each block holds and which are missing |
//!
//! [`Salvage`] puts these together. It walks a frame block by block. When it meets something that does not belong
//! there, the scout looks for the frame's index. From then on the index says where the blocks lie. So a compressed file
//! inside the payload of a damaged block is not mistaken for a part of this file. Without an index, every structure
//! found counts.

mod layout;
mod scout;
mod walk;

use std::io::{Read, Seek};
use std::ops::Range;

use super::window::WINDOW;
use crate::error::{Error, Place};
use crate::format::{BlockHeader, Footer, FrameHeader, ModuleTable, Single, least_full_block_len};
use layout::ContentLayout;
use scout::{Indexed, Scout};
use walk::{Tracker, Walk};

pub(super) use walk::Holes;

/// A structure, or the bytes between two.
#[derive(Debug, Clone)]
struct Item {
    start: u64,
    end: u64,
    what: What,
}

impl Item {
    /// Whether a frame ends here.
    fn ends_frame(&self) -> bool {
        match &self.what {
            What::End(_) => true,
            What::Single { len, .. } => self.end - self.start == *len,
            What::Frame(_) | What::Block(_) | What::Damage => false,
        }
    }
}

#[derive(Debug, Clone)]
enum What {
    Frame(FrameHeader),
    /// A whole frame of at most one block. The header agrees with its check; the rest has not been checked.
    Single {
        header: FrameHeader,
        single: Single,
        /// Length of the frame if no byte is missing.
        len: u64,
    },
    /// The header agrees with its checksum. The payload has not been checked.
    Block(BlockHeader),
    /// Index and footer.
    End(Footer),
    Damage,
}

/// A part of a damaged file, and its contents.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Block {
        frame: u64,
        source: Range<u64>,
        header: BlockHeader,
        /// The frame's header, if this is a single frame. Its end tells the block's checksums.
        single: Option<FrameHeader>,
        /// The modules of the block's frame, if its header is known.
        modules: ModuleTable,
        /// Whether distant matches may repeat the block; `None` if the frame's header is lost.
        is_repeated: Option<bool>,
        range: Range<u64>,
    },
    Lost {
        frame: u64,
        source: Range<u64>,
        range: Option<Range<u64>>,
    },
}

/// Goes through a file, damaged or not, from its start to its end.
pub(super) struct Salvage {
    walk: Walk,
    tracker: Tracker,
    /// Made when first needed. A sound file needs none.
    scout: Option<Scout>,
    /// The places of the current frame's blocks, if the frame is damaged but its index is not.
    indexed: Option<Indexed>,
    /// Whether the index of the current frame has been looked for.
    has_looked: bool,
    layout: ContentLayout,
    /// Damage at the start of the file, before the first structure.
    pending: Option<Item>,
    is_at_end: bool,
    /// Whether the last item was the end of a frame, so that padding may follow.
    is_after_frame: bool,
    max_memory: u64,
    /// Base-2 logarithm of the largest block size so far.
    max_block_log: Option<u8>,
}

impl Salvage {
    /// Finds the first structure. [`Error::NotPz`] if there is none.
    pub(super) fn new(
        reader: &mut (impl Read + Seek),
        max_memory: u64,
        holes: &Holes,
    ) -> Result<Self, Error> {
        let len = reader.seek(std::io::SeekFrom::End(0))?;
        let mut walk = Walk::new(len, holes.clone());
        let pending = walk.next(reader)?;
        match &pending {
            Some(Item { what, end, .. }) if !matches!(what, What::Damage) || *end < len => {}
            _ => return Err(Error::NotPz { place: Place::default() }),
        }
        Ok(Self {
            walk,
            tracker: Tracker::default(),
            scout: None,
            indexed: None,
            has_looked: false,
            layout: ContentLayout::default(),
            pending,
            is_at_end: false,
            is_after_frame: false,
            max_memory,
            max_block_log: None,
        })
    }

    /// The next part; `None` at the end of the file.
    pub(super) fn next(&mut self, reader: &mut (impl Read + Seek)) -> Result<Option<Step>, Error> {
        loop {
            if let Some(step) = self.layout.take() {
                return Ok(Some(step));
            }
            if self.is_at_end {
                return Ok(None);
            }
            match self.next_item(reader)? {
                Some((item, is_regular)) => {
                    if !self.is_padding(&item, reader)? {
                        self.layout.add(&item, is_regular)?;
                    }
                    self.is_after_frame = item.ends_frame();
                }
                None => {
                    self.layout.finish(self.walk.file_len())?;
                    self.is_at_end = true;
                }
            }
        }
    }

    /// The next structure, and whether a decoder accepts it there.
    fn next_item(
        &mut self,
        reader: &mut (impl Read + Seek),
    ) -> Result<Option<(Item, bool)>, Error> {
        if let (Some(indexed), Some(scout)) = (&mut self.indexed, &mut self.scout) {
            let item = indexed.next(&mut self.walk, scout, reader)?;
            let mut is_regular = true;
            if matches!(item.what, What::End(_)) {
                self.indexed = None;
                self.tracker = Tracker::default();
                self.walk.restart(item.end);
                // The index may have been looked for only because the budget was too small to check a payload. Then the
                // frame may be irregular.
                is_regular = self.walk.has_budget();
            }
            return Ok(Some((item, is_regular)));
        }
        let item = match self.pending.take() {
            Some(item) => item,
            None => match self.walk.next(reader)? {
                Some(item) => item,
                None => return Ok(None),
            },
        };
        let log = match &item.what {
            What::Frame(header) | What::Single { header, .. } => Some(header.block_log),
            What::Block(header) => Some(header.block_log),
            What::End(_) | What::Damage => None,
        };
        self.max_block_log = self.max_block_log.max(log);
        let open = self.tracker.open_frame();
        let is_regular = self.tracker.observe(&item, &mut self.walk, reader)?;
        if matches!(item.what, What::Frame(_)) && open.is_none() {
            self.has_looked = false;
        } else if !is_regular
            && let Some(open) = open
            && !self.has_looked
        {
            self.has_looked = true;
            let len = self.walk.file_len();
            let holes = &self.walk.holes;
            let scout = self.scout.get_or_insert_with(|| Scout::new(len, holes.clone()));
            let claim = scout.claim_of(open.start, self.max_memory / 4, reader)?;
            if let Some(claim) = claim
                && let Some(indexed) = claim.resume(open.blocks, item.start, scout, reader)?
            {
                self.indexed = Some(indexed);
                return self.next_item(reader);
            }
        }
        if matches!(item.what, What::Frame(_)) {
            self.has_looked = false;
        }
        Ok(Some((item, is_regular)))
    }

    /// Whether these are the zeros that may follow the last frame.
    fn is_padding(&mut self, item: &Item, reader: &mut (impl Read + Seek)) -> Result<bool, Error> {
        let is_last = matches!(item.what, What::Damage) && item.end == self.walk.file_len();
        if !is_last || !self.is_after_frame {
            return Ok(false);
        }
        let mut at = item.start;
        while at < item.end {
            let bytes = self.walk.window.from(reader, at, 1)?;
            if bytes.is_empty() || bytes.iter().any(|&byte| byte != 0) {
                return Ok(false);
            }
            at = self.walk.holes.data_from(at + bytes.len() as u64);
        }
        Ok(true)
    }

    /// Whether the end of a frame is missing in the part seen so far.
    pub(super) fn is_end_unknown(&self) -> bool {
        self.layout.is_end_unknown()
    }

    /// Length of the contents so far, lost ones included.
    pub(super) fn content_len(&self) -> u64 {
        self.layout.content_len()
    }

    /// The most contents that may be lost: those of as many full blocks as fit in the file.
    pub(super) fn plausible_loss(&self) -> u64 {
        self.max_block_log.map_or(0, |log| {
            let blocks = self.walk.file_len() / least_full_block_len(log);
            blocks.saturating_mul(1 << log)
        })
    }

    /// Bytes `start..start + len` of the file, if they are in memory.
    pub(super) fn held(&self, start: u64, len: usize) -> Option<&[u8]> {
        self.walk.window.held(start, len)
    }

    /// Bytes of memory in use.
    pub(super) fn memory(&self) -> u64 {
        2 * WINDOW as u64 + self.scout.as_ref().map_or(0, Scout::memory)
    }
}
