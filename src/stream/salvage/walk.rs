//! Goes from structure to structure, and decides whether a decoder would accept each. Frame headers, block headers and
//! indices all begin with a marker and have a checksum.

use std::io::{Read, Seek};
use std::ops::Range;
use std::sync::Arc;

use crc32c::{crc32c, crc32c_append};

use super::{Item, What};
use crate::error::Error;
use crate::format::{
    BLOCK_MARKER, BlockHeader, CHECKSUM_LEN, FOOTER_LEN, Fault, Footer, FrameHeader, INDEX_MARKER,
    IndexChecker, MAGIC, MAX_BLOCK_HEADER_LEN, MAX_BLOCKS, MIN_BLOCK_LOG, MIN_FRAME_HEADER_LEN,
    Method, Pipeline, Single,
};
use crate::stream::window::{ReadFrom, Window};

/// Base-2 logarithm of the largest block size.
const MAX_BLOCK_LOG: u8 = Pipeline::Bwt.max_block_log();
/// A search skips zeros, so no marker may begin with one.
const _: () = assert!(BLOCK_MARKER[0] != 0 && INDEX_MARKER[0] != 0 && MAGIC[0] != 0);
/// Possible lengths of a block, header included.
const BLOCK_LENGTHS: Range<u32> = 20..(1 << MAX_BLOCK_LOG) + MAX_BLOCK_HEADER_LEN as u32 + 1;

/// Knows where a sparse file has data: for an offset, the first one from there on that does not lie in a hole.
///
/// A search for structures skips holes, because reading terabytes of zeros would take too long.
#[derive(Clone, Default)]
pub(in crate::stream) struct Holes(Option<Arc<DataFrom>>);

type DataFrom = dyn Fn(u64) -> u64 + Send + Sync;

impl Holes {
    pub fn new(data_from: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self {
        Self(Some(Arc::new(data_from)))
    }

    pub(super) fn data_from(&self, offset: u64) -> u64 {
        self.0.as_ref().map_or(offset, |data_from| data_from(offset).max(offset))
    }
}

/// Finds the structures of a file, in order and without gaps.
pub(super) struct Walk {
    pub(super) window: Window,
    pub(super) holes: Holes,
    /// Offset of the next item.
    at: u64,
    /// The structure at that offset, if it has been looked for.
    ahead: Option<Option<Item>>,
    /// How many more bytes may be read to confirm structures. For ordinary damage, about the file's length suffices. A
    /// hostile file could make every one of many overlapping structures cost as much.
    budget: u64,
}

impl Walk {
    pub(super) fn new(file_len: u64, holes: Holes) -> Self {
        let budget = file_len.saturating_mul(8).saturating_add(16 << 20);
        Self { window: Window::new(file_len), holes, at: 0, ahead: None, budget }
    }

    pub(super) fn file_len(&self) -> u64 {
        self.window.file_len
    }

    /// Offset of the next item.
    pub(super) fn position(&self) -> u64 {
        self.at
    }

    /// Continues from `offset`.
    pub(super) fn restart(&mut self, offset: u64) {
        (self.at, self.ahead) = (offset, None);
    }

    /// The next structure, or the damaged bytes before it; `None` at the end of the file.
    pub(super) fn next(&mut self, reader: &mut (impl Read + Seek)) -> Result<Option<Item>, Error> {
        let at = self.at;
        if at >= self.file_len() {
            return Ok(None);
        }
        let found = match self.ahead.take() {
            Some(found) => found,
            None => self.structure(reader, at)?,
        };
        let Some(mut item) = found else {
            let (end, found) = self.search(reader, at + 1)?;
            (self.at, self.ahead) = (end, Some(found));
            return Ok(Some(Item { start: at, end, what: What::Damage }));
        };
        let mut next = self.structure(reader, item.end)?;
        if let What::Block(header) = item.what
            && next.is_none()
            && item.end != self.file_len()
            && !self.payload_is_sound(reader, &item, &header)?
        {
            // Bytes were lost or inserted, so the next structure may begin before this one ends.
            (item.end, next) = self.search(reader, item.start + header.len() as u64)?;
        }
        if let What::Single { single, .. } = item.what
            && next.is_none()
            && item.end != self.file_len()
            && !self.is_sound_stored(reader, &item, &single)?
        {
            // The same. But if no structure begins in the payload, the frame may be whole and only the bytes after it
            // damaged.
            let payload = item.end.saturating_sub(single.tail_len());
            let (end, found) = self.search(reader, payload)?;
            if end < item.end {
                (item.end, next) = (end, found);
            }
        }
        (self.at, self.ahead) = (item.end, Some(next));
        Ok(Some(item))
    }

    /// Whether the budget has sufficed so far.
    pub(super) fn has_budget(&self) -> bool {
        self.budget > 0
    }

    /// Takes `n` bytes off the budget. Returns whether it sufficed.
    fn spend(&mut self, n: usize) -> bool {
        let left = self.budget.checked_sub(n as u64);
        self.budget = left.unwrap_or(0);
        left.is_some()
    }

    /// The structure at `start`, if there is one.
    fn structure(
        &mut self,
        reader: &mut (impl Read + Seek),
        start: u64,
    ) -> Result<Option<Item>, Error> {
        let head = self.window.at(reader, start, MAX_BLOCK_HEADER_LEN)?;
        if head.starts_with(&BLOCK_MARKER) {
            let Ok(header) = BlockHeader::parse(head) else { return Ok(None) };
            let end = start + u64::from(header.block_len());
            let is_known = u64::from(header.number) < MAX_BLOCKS;
            return Ok(is_known.then_some(Item { start, end, what: What::Block(header) }));
        }
        if head.starts_with(&INDEX_MARKER) {
            return self.index(reader, start);
        }
        if head.starts_with(&MAGIC) {
            let header = self.frame_header(reader, start)?;
            return Ok(header.map(|(header, end)| match header.single {
                None => Item { start, end, what: What::Frame(header) },
                Some(single) => {
                    let end = end + single.tail_len();
                    let len = end - start;
                    Item { start, end, what: What::Single { header, single, len } }
                }
            }));
        }
        Ok(None)
    }

    /// The frame header at `start`, and its end.
    pub(super) fn frame_header(
        &mut self,
        reader: &mut (impl Read + Seek),
        start: u64,
    ) -> Result<Option<(FrameHeader, u64)>, Error> {
        let mut bytes = ReadFrom { window: &mut self.window, reader, at: start };
        match FrameHeader::read(&mut bytes) {
            Ok(Some((header, len))) => {
                // In a hostile file, overlapping headers may each have long modules.
                let is_affordable = header.modules.is_empty() || self.spend(header.modules.bytes());
                Ok(is_affordable.then_some((header, start + len as u64)))
            }
            Err(Fault::Io(error)) => Err(error.into()),
            _ => Ok(None),
        }
    }

    /// The index and footer at `start`. The number of blocks is unknown, so it looks for the footer whose checksum
    /// agrees.
    fn index(
        &mut self,
        reader: &mut (impl Read + Seek),
        start: u64,
    ) -> Result<Option<Item>, Error> {
        let mut checksum = crc32c(&INDEX_MARKER);
        // Sum of the entries so far.
        let mut blocks_len = 0;
        for entries in 0..MAX_BLOCKS {
            let len = INDEX_MARKER.len() as u64 + 4 * entries;
            let Some(&bytes) = self.window.at(reader, start + len, FOOTER_LEN)?.first_chunk()
            else {
                return Ok(None);
            };
            if !self.spend(4) {
                return Ok(None);
            }
            let (footer, expected) = Footer::parse_unchecked(&bytes);
            let len = len + FOOTER_LEN as u64;
            // This is cheaper to test than the checksum, and rarely true by chance.
            let is_likely = match footer.content_size {
                0 => entries == 0,
                size => (entries << MIN_BLOCK_LOG..=(entries + 1) << MAX_BLOCK_LOG).contains(&size),
            };
            if is_likely
                && footer.frame_len >= MIN_FRAME_HEADER_LEN as u64 + blocks_len + len
                && crc32c_append(checksum, &bytes[..FOOTER_LEN - 4]) == expected
            {
                return Ok(Some(Item { start, end: start + len, what: What::End(footer) }));
            }
            let entry = [bytes[0], bytes[1], bytes[2], bytes[3]];
            let block_len = u32::from_le_bytes(entry);
            if !BLOCK_LENGTHS.contains(&block_len) {
                return Ok(None);
            }
            blocks_len += u64::from(block_len);
            checksum = crc32c_append(checksum, &entry);
        }
        Ok(None)
    }

    /// The next structure at `from` or later, with its offset; if there is none, the end of the file.
    fn search(
        &mut self,
        reader: &mut (impl Read + Seek),
        mut from: u64,
    ) -> Result<(u64, Option<Item>), Error> {
        while from < self.file_len() {
            let bytes = self.window.from(reader, from, 2)?;
            if bytes.iter().all(|byte| *byte == 0) {
                // No marker begins with a zero.
                from = self.holes.data_from(from + bytes.len() as u64);
                continue;
            }
            // Two bytes rule out most coincidences.
            let candidate = bytes.windows(2).position(|pair| {
                *pair == BLOCK_MARKER || *pair == INDEX_MARKER || *pair == MAGIC[..2]
            });
            from += match candidate {
                Some(at) => {
                    let at = at as u64;
                    if let Some(item) = self.structure(reader, from + at)? {
                        return Ok((from + at, Some(item)));
                    }
                    at + 1
                }
                None if bytes.len() < 2 => break,
                // The last byte may begin a marker.
                None => bytes.len() as u64 - 1,
            };
        }
        Ok((self.file_len(), None))
    }

    fn payload_is_sound(
        &mut self,
        reader: &mut (impl Read + Seek),
        item: &Item,
        header: &BlockHeader,
    ) -> Result<bool, Error> {
        let payload = item.start + header.len() as u64..item.end;
        Ok(self.checksum_of(reader, payload, 0)? == Some(header.payload_crc))
    }

    /// Whether a single frame is stored and its checksum agrees. Then apparent structures within it are its contents.
    fn is_sound_stored(
        &mut self,
        reader: &mut (impl Read + Seek),
        item: &Item,
        single: &Single,
    ) -> Result<bool, Error> {
        if single.method != Method::Store || item.end > self.file_len() {
            return Ok(false);
        }
        let payload = item.end - single.tail_len()..item.end - CHECKSUM_LEN as u64;
        let expected = self.window.at(reader, payload.end, CHECKSUM_LEN)?.first_chunk();
        let expected = expected.map(|bytes| u32::from_le_bytes(*bytes));
        let checksum = self.checksum_of(reader, payload, single.header_crc)?;
        Ok(checksum.is_some() && checksum == expected)
    }

    /// Extends `checksum` by the CRC-32C of a part of the file. `None` if the file ends in it, or the budget does not
    /// suffice.
    fn checksum_of(
        &mut self,
        reader: &mut (impl Read + Seek),
        part: Range<u64>,
        mut checksum: u32,
    ) -> Result<Option<u32>, Error> {
        if part.end > self.file_len() {
            return Ok(None);
        }
        let mut at = part.start;
        while at < part.end {
            let bytes = self.window.from(reader, at, 1)?;
            let n = bytes.len().min((part.end - at) as usize);
            checksum = crc32c_append(checksum, &bytes[..n]);
            if n == 0 || !self.spend(n) {
                return Ok(None);
            }
            at += n as u64;
        }
        Ok(Some(checksum))
    }
}

/// Checks each structure by the rules of a decoder, with the decoder's own code.
#[derive(Default)]
pub(super) struct Tracker {
    open: Option<Tracked>,
}

struct Tracked {
    start: u64,
    header: FrameHeader,
    index: IndexChecker,
    /// Whether a decoder would have accepted all structures so far.
    is_regular: bool,
}

/// A frame whose end has not been reached.
#[derive(Debug, Clone, Copy)]
pub(super) struct OpenFrame {
    pub(super) start: u64,
    /// Regular blocks so far.
    pub(super) blocks: u64,
}

impl Tracker {
    pub(super) fn open_frame(&self) -> Option<OpenFrame> {
        let open = self.open.as_ref()?;
        Some(OpenFrame { start: open.start, blocks: open.index.block_count() })
    }

    /// Notes the next structure, and returns whether a decoder would accept it there.
    pub(super) fn observe(
        &mut self,
        item: &Item,
        walk: &mut Walk,
        reader: &mut (impl Read + Seek),
    ) -> Result<bool, Error> {
        match (&item.what, &mut self.open) {
            (What::Frame(header), open) => {
                let is_regular = open.is_none();
                let index = IndexChecker::new();
                let header = header.clone();
                *open = Some(Tracked { start: item.start, header, index, is_regular: true });
                Ok(is_regular)
            }
            (What::Single { single, len, .. }, open) => {
                let is_between = open.take().is_none();
                let is_whole = item.end - item.start == *len;
                if !is_whole || single.content_len > 0 {
                    // The block itself is checked when it is decoded.
                    return Ok(is_between && is_whole);
                }
                let at = item.end - CHECKSUM_LEN as u64;
                let checksum = walk.window.at(reader, at, CHECKSUM_LEN)?;
                Ok(is_between && checksum == single.header_crc.to_le_bytes())
            }
            (What::Block(header), Some(open)) if open.is_regular => {
                let number = open.index.block_count();
                let is_whole = item.end - item.start == u64::from(header.block_len());
                open.is_regular = is_whole
                    && header.check(&open.header, number).is_ok()
                    && open
                        .index
                        .push(header.block_len(), header.content_len, &open.header)
                        .is_ok();
                Ok(open.is_regular)
            }
            (What::End(_), Some(open)) if open.is_regular => {
                let at = item.start + INDEX_MARKER.len() as u64;
                let before = item.start - open.start;
                let mut index = ReadFrom { window: &mut walk.window, reader, at };
                let outcome = open.index.finish(&mut index, &open.header, before);
                self.open = None;
                match outcome {
                    Ok(()) => Ok(true),
                    Err(Fault::Io(error)) => Err(error.into()),
                    Err(_) => Ok(false),
                }
            }
            (What::End(_), open) => {
                *open = None;
                Ok(false)
            }
            (What::Block(_) | What::Damage, open) => {
                if let Some(open) = open {
                    open.is_regular = false;
                }
                Ok(false)
            }
        }
    }
}
