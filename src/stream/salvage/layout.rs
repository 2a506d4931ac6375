//! Works out which contents each block holds, and which contents are missing.

use std::collections::VecDeque;
use std::ops::Range;

use super::{Item, Step, What};
use crate::error::{Error, Place};
use crate::format::{BlockHeader, Fault, FrameHeader, MAX_BLOCKS, ModuleTable};

/// Turns structures into steps, a few at a time.
#[derive(Default)]
pub(super) struct ContentLayout {
    /// Steps not taken yet, of at most one structure.
    steps: VecDeque<Step>,
    is_end_unknown: bool,
    /// Number of frames before the current one.
    frames: u64,
    /// Length of the contents of the frames before the current one.
    base: u64,
    open: Option<PartialFrame>,
    /// Damaged bytes not reported yet.
    damage: Option<Range<u64>>,
    /// Whether anything of the last finished frame has been reported.
    last_is_reported: bool,
}

/// The current frame.
#[derive(Default)]
struct PartialFrame {
    /// `None` if the header is lost.
    header: Option<FrameHeader>,
    /// Its modules, unless the header is lost.
    modules: ModuleTable,
    block_log: Option<u8>,
    /// Number of the next block.
    number: u64,
    /// End of the contents so far.
    at: u64,
    /// Whether anything of this frame has been reported as damaged or lost.
    is_reported: bool,
}

impl PartialFrame {
    /// Whether this block may be the frame's next.
    fn fits(&self, header: &BlockHeader) -> bool {
        self.block_log.is_none_or(|log| log == header.block_log)
            && self.header.as_ref().is_none_or(|frame| frame.pipeline.permits(header.method))
            && self.number <= u64::from(header.number)
    }
}

impl ContentLayout {
    /// The next step, if there is one.
    pub(super) fn take(&mut self) -> Option<Step> {
        self.steps.pop_front()
    }

    pub(super) fn is_end_unknown(&self) -> bool {
        self.is_end_unknown
    }

    /// Length of the contents so far, lost ones included.
    pub(super) fn content_len(&self) -> u64 {
        self.base + self.open.as_ref().map_or(0, |open| open.at)
    }

    /// Adds the next structure. `is_regular` tells whether a decoder would accept it there.
    ///
    /// # Errors
    /// [`Error::Corrupt`] if the contents are longer than any file.
    pub(super) fn add(&mut self, item: &Item, is_regular: bool) -> Result<(), Error> {
        match &item.what {
            What::Damage => {
                let start = self.damage.take().map_or(item.start, |damage| damage.start);
                self.damage = Some(start..item.end);
            }
            What::Frame(header) => {
                self.close(None, item.start)?;
                self.flush_damage(None);
                self.open = Some(PartialFrame {
                    header: Some(header.clone()),
                    modules: header.modules.clone(),
                    block_log: Some(header.block_log),
                    ..PartialFrame::default()
                });
            }
            What::Single { header, single, len } => {
                self.close(None, item.start)?;
                self.flush_damage(None);
                let modules = header.modules.clone();
                self.open = Some(PartialFrame { modules, ..PartialFrame::default() });
                if single.content_len > 0 {
                    self.add_block(item, single.block(header), *len, Some(header.clone()))?;
                }
                self.close(Some(single.content_len.into()), item.end)?;
                if !is_regular && !self.last_is_reported {
                    self.report(item.start..item.end, None);
                }
            }
            What::Block(header) => {
                self.add_block(item, *header, u64::from(header.block_len()), None)?;
            }
            What::End(footer) => {
                if self.open.is_none() {
                    self.open_without_header(item.start);
                }
                self.close(Some(footer.content_size), item.start)?;
                if !is_regular && !self.last_is_reported {
                    self.report(item.start..item.end, None);
                }
            }
        }
        Ok(())
    }

    /// Ends the file after `len` bytes.
    pub(super) fn finish(&mut self, len: u64) -> Result<(), Error> {
        self.close(None, len)?;
        self.flush_damage(None);
        Ok(())
    }

    /// Adds a block, which would take `len` bytes of the file if no byte were missing.
    fn add_block(
        &mut self,
        item: &Item,
        header: BlockHeader,
        len: u64,
        single: Option<FrameHeader>,
    ) -> Result<(), Error> {
        if self.open.as_ref().is_none_or(|open| !open.fits(&header)) {
            // The header of the block's frame is lost, and perhaps the end of the previous frame.
            self.close(None, item.start)?;
            self.open_without_header(item.start);
        }
        let open = self.open.get_or_insert_default();
        let number = u64::from(header.number);
        let start = number << header.block_log;
        let missing = (open.at < start).then(|| self.base + open.at..self.base + start);
        open.block_log = Some(header.block_log);
        open.number = number + 1;
        open.at = start + u64::from(header.content_len);
        let range = self.base + start..self.base + open.at;
        let modules = open.modules.clone();
        let frame = open.header.as_ref().or(single.as_ref());
        let is_repeated = frame.map(|frame| frame.reach > 0);
        match missing {
            Some(missing) => self.lose(missing, item.start),
            None => self.flush_damage(None),
        }
        if item.end - item.start == len {
            let (frame, source) = (self.frames, item.start..item.end);
            let step = Step::Block { frame, source, header, single, modules, is_repeated, range };
            self.steps.push_back(step);
        } else {
            self.report(item.start..item.end, Some(range));
        }
        Ok(())
    }

    /// Begins a frame whose header is lost.
    fn open_without_header(&mut self, offset: u64) {
        self.open = Some(PartialFrame::default());
        // Report the damage even if nothing is left of the header.
        self.damage.get_or_insert(offset..offset);
    }

    /// Ends the current frame at `offset`. `total` is the length of its contents; `None` if its end is lost.
    fn close(&mut self, total: Option<u64>, offset: u64) -> Result<(), Error> {
        self.last_is_reported = false;
        let Some(open) = &self.open else { return Ok(()) };
        let (base, at) = (self.base, open.at);
        let declared = open.header.as_ref().and_then(|header| header.content_size);
        let len = total.or(declared);
        self.is_end_unknown |= len.is_none();
        let end = base.checked_add(len.unwrap_or(0).max(at));
        // No frame is longer. This bound keeps sums within a frame from overflowing.
        let end = end.filter(|end| *end <= u64::MAX - (MAX_BLOCKS << 27));
        let place = Place::new(self.frames, offset);
        let end = end.ok_or_else(|| Fault::Corrupt("the contents are too long").at(place))?;
        if total.is_none() {
            self.damage.get_or_insert(offset..offset);
        }
        if base + at < end {
            self.lose(base + at..end, offset);
        } else {
            self.flush_damage(None);
        }
        self.last_is_reported = self.open.take().is_some_and(|open| open.is_reported);
        self.base = end;
        self.frames += 1;
        Ok(())
    }

    /// Reports lost contents, with the damaged bytes before `offset`, if there are any.
    fn lose(&mut self, range: Range<u64>, offset: u64) {
        self.damage.get_or_insert(offset..offset);
        self.flush_damage(Some(range));
    }

    fn flush_damage(&mut self, range: Option<Range<u64>>) {
        if let Some(source) = self.damage.take() {
            self.report(source, range);
        }
    }

    fn report(&mut self, source: Range<u64>, range: Option<Range<u64>>) {
        if let Some(open) = &mut self.open {
            open.is_reported = true;
        }
        self.steps.push_back(Step::Lost { frame: self.frames, source, range });
    }
}
