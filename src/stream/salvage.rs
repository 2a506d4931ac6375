//! Finds what is left of the structure of a damaged file.
//!
//! [`survey`] goes from structure to structure and, where there is none, searches for the next one: frame headers,
//! block headers and indices all begin with a marker and carry a checksum. [`lay_out`] then says which contents each
//! block holds and which are missing.

use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use crc32c::{crc32c, crc32c_append};

use crate::error::Error;
use crate::format::{
    BLOCK_MARKER, BlockHeader, CHECKSUM_LEN, CODED_LEN, FOOTER_LEN, Footer, FrameHeader,
    INDEX_MARKER, Index, MAGIC, MAX_BLOCKS, Method, Pipeline, Single,
};

/// Bytes that are searched at once.
const WINDOW: usize = 1 << 18;
/// No frame header is longer.
const MAX_FRAME_HEADER_LEN: usize = 1024;

/// Base-2 logarithm of the largest block size.
const MAX_BLOCK_LOG: u8 = Pipeline::Bwt.max_block_log();
/// Lengths that a block may have, header included.
const BLOCK_LENGTHS: Range<u32> = 20..(1 << MAX_BLOCK_LOG) + 28;

/// A structure, or what is left between two.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    start: u64,
    end: u64,
    what: What,
}

#[derive(Debug, Clone, Copy)]
enum What {
    Frame(FrameHeader),
    /// A whole frame of a single block, or of none. Its header agrees with its check; of the rest that is known only when
    /// it is decoded.
    Single {
        header: FrameHeader,
        single: Single,
        /// Length of the frame.
        len: u64,
    },
    /// Its header agrees with its checksum; of the payload that is known only when it is read.
    Block(BlockHeader),
    /// Index and footer.
    End(Footer),
    Damage,
}

/// Where something of a damaged file lies and which contents it holds.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Block {
        frame: u64,
        source: Range<u64>,
        header: BlockHeader,
        /// The header of its frame if that is of a single block, which has the block's checksums at its end.
        single: Option<FrameHeader>,
        range: Range<u64>,
    },
    Lost {
        frame: u64,
        source: Range<u64>,
        range: Option<Range<u64>>,
    },
}

/// Finds the structures of a file, in order, without a gap.
pub(super) fn survey<R: Read + Seek>(reader: &mut R) -> Result<Vec<Item>, Error> {
    let len = reader.seek(SeekFrom::End(0))?;
    let budget = len.saturating_mul(8).saturating_add(16 << 20);
    let mut file = File { reader, len, budget };
    let mut items: Vec<Item> = Vec::new();
    let mut next = file.structure(0)?;
    let mut at = 0;
    while at < len {
        let Some(mut item) = next else {
            let end = file.search(at + 1)?;
            items.push(Item { start: at, end, what: What::Damage });
            at = end;
            next = file.structure(at)?;
            continue;
        };
        next = file.structure(item.end)?;
        if let What::Block(header) = item.what
            && next.is_none()
            && item.end != len
            && !file.payload_is_sound(&item, &header)?
        {
            // Bytes were lost or put in: the next structure may begin before this one's end.
            item.end = file.search(item.start + header.len() as u64)?;
            next = file.structure(item.end)?;
        }
        if let What::Single { single, .. } = item.what
            && next.is_none()
            && item.end != len
            && !file.is_sound_stored(&item, &single)?
        {
            // Likewise; but what follows the frame may only be damaged.
            let payload = (item.end - single.tail_len()).min(len);
            item.end = file.search(payload)?.min(item.end);
            next = file.structure(item.end)?;
        }
        at = item.end;
        items.push(item);
        if let What::End(footer) = item.what {
            file.drop_strangers(&mut items, item, footer)?;
        }
    }
    Ok(items)
}

struct File<'a, R> {
    reader: &'a mut R,
    len: u64,
    /// Bytes that may yet be read to confirm what was found. Damage takes about as many as there are in the file;
    /// this keeps a hostile file, in which structures overlap, from taking a multiple for each of them.
    budget: u64,
}

impl<R: Read + Seek> File<'_, R> {
    /// Reads at `offset`, as much as there is.
    fn read_at(&mut self, offset: u64, buf: &mut [u8]) -> Result<usize, Error> {
        if offset >= self.len {
            return Ok(0);
        }
        self.reader.seek(SeekFrom::Start(offset))?;
        let mut filled = 0;
        while filled < buf.len() {
            match self.reader.read(&mut buf[filled..]) {
                Ok(0) => break,
                Ok(n) => filled += n,
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(filled)
    }

    /// Takes `n` bytes off the budget; whether there were as many.
    fn spend(&mut self, n: usize) -> bool {
        let left = self.budget.checked_sub(n as u64);
        self.budget = left.unwrap_or(0);
        left.is_some()
    }

    /// The structure that begins at `start`, if one does.
    fn structure(&mut self, start: u64) -> Result<Option<Item>, Error> {
        let mut bytes = [0; MAX_FRAME_HEADER_LEN];
        let n = self.read_at(start, &mut bytes[..CODED_LEN])?;
        let head = &bytes[..n];
        if head.starts_with(&BLOCK_MARKER) {
            let Ok(header) = BlockHeader::parse(head) else { return Ok(None) };
            let end = start + u64::from(header.block_len());
            let known = u64::from(header.number) < MAX_BLOCKS;
            return Ok(known.then_some(Item { start, end, what: What::Block(header) }));
        }
        if head.starts_with(&INDEX_MARKER) {
            return self.index(start);
        }
        if head.starts_with(&MAGIC) {
            let n = self.read_at(start, &mut bytes)?;
            let Ok(Some((header, len))) = FrameHeader::read(&mut &bytes[..n]) else {
                return Ok(None);
            };
            let end = start + len as u64;
            return Ok(Some(match header.single {
                None => Item { start, end, what: What::Frame(header) },
                Some(single) => {
                    let len = len as u64 + single.tail_len();
                    Item { start, end: start + len, what: What::Single { header, single, len } }
                }
            }));
        }
        Ok(None)
    }

    /// The index and footer that begin at `start`. How many blocks there were is not known: the footer is where its
    /// checksum agrees.
    fn index(&mut self, start: u64) -> Result<Option<Item>, Error> {
        let most = Index::len_with_footer(MAX_BLOCKS);
        let mut bytes = Vec::new();
        let mut checksum = crc32c(&INDEX_MARKER);
        let mut at = INDEX_MARKER.len();
        loop {
            if at + FOOTER_LEN > bytes.len() {
                let old = bytes.len();
                bytes.resize((2 * old).clamp(256, most as usize), 0);
                let n = self.read_at(start + old as u64, &mut bytes[old..])?;
                bytes.truncate(old + n);
                if !self.spend(n) {
                    return Ok(None);
                }
                if at + FOOTER_LEN > bytes.len() {
                    return Ok(None);
                }
            }
            let Some(candidate) = bytes[at..].first_chunk() else { return Ok(None) };
            let (footer, expected) = Footer::parse_unchecked(candidate);
            let end = start + (at + FOOTER_LEN) as u64;
            // Cheap enough to ask before the checksum, and seldom so by chance.
            if footer.content_size <= MAX_BLOCKS << MAX_BLOCK_LOG
                && crc32c_append(checksum, &candidate[..FOOTER_LEN - 4]) == expected
            {
                return Ok(Some(Item { start, end, what: What::End(footer) }));
            }
            let entry = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
            if !BLOCK_LENGTHS.contains(&u32::from_le_bytes(entry)) {
                return Ok(None);
            }
            checksum = crc32c_append(checksum, &entry);
            at += 4;
            if (at + FOOTER_LEN) as u64 > most {
                return Ok(None);
            }
        }
    }

    /// Where the next structure begins, `from` or later, or the end of the file.
    fn search(&mut self, mut from: u64) -> Result<u64, Error> {
        let mut window = vec![0; WINDOW];
        while from < self.len {
            let n = self.read_at(from, &mut window)?;
            // Every marker has a first byte that the others' lack, and two bytes tell most chances apart.
            let candidates = window[..n]
                .windows(2)
                .enumerate()
                .filter(|(_, pair)| {
                    *pair == BLOCK_MARKER || *pair == INDEX_MARKER || **pair == MAGIC[..2]
                })
                .map(|(at, _)| from + at as u64);
            for candidate in candidates {
                if self.structure(candidate)?.is_some() {
                    return Ok(candidate);
                }
            }
            if n < 2 {
                break;
            }
            // The last byte may be the first of a marker.
            from += n as u64 - 1;
        }
        Ok(self.len)
    }

    fn payload_is_sound(&mut self, item: &Item, header: &BlockHeader) -> Result<bool, Error> {
        let payload = item.start + header.len() as u64..item.end;
        Ok(self.checksum_of(payload, 0)? == Some(header.payload_crc))
    }

    /// Whether a frame of a single block is stored and its checksum agrees: what looks like structures within it is its
    /// contents.
    fn is_sound_stored(&mut self, item: &Item, single: &Single) -> Result<bool, Error> {
        if single.method != Method::Store {
            return Ok(false);
        }
        let payload = item.end - single.tail_len()..item.end - CHECKSUM_LEN as u64;
        let mut expected = [0; CHECKSUM_LEN];
        let n = self.read_at(payload.end, &mut expected)?;
        let expected = Some(u32::from_le_bytes(expected)).filter(|_| n == CHECKSUM_LEN);
        Ok(expected.is_some() && self.checksum_of(payload, single.header_crc)? == expected)
    }

    /// The CRC-32C of a part of the file, appended to `checksum`; `None` if it is not all there.
    fn checksum_of(&mut self, part: Range<u64>, mut checksum: u32) -> Result<Option<u32>, Error> {
        if part.end > self.len {
            return Ok(None);
        }
        let mut at = part.start;
        let mut bytes = vec![0; WINDOW];
        while at < part.end {
            let n = (part.end - at).min(WINDOW as u64) as usize;
            let n = self.read_at(at, &mut bytes[..n])?;
            if n == 0 || !self.spend(n) {
                return Ok(None);
            }
            checksum = crc32c_append(checksum, &bytes[..n]);
            at += n as u64;
        }
        Ok(Some(checksum))
    }

    /// Takes out of a frame whose end has been found everything that its index does not know: what was found in the
    /// payload of a damaged block may be structures of another file, which that block holds.
    fn drop_strangers(
        &mut self,
        items: &mut Vec<Item>,
        end: Item,
        footer: Footer,
    ) -> Result<(), Error> {
        let Some(frame_start) = end.end.checked_sub(footer.frame_len) else { return Ok(()) };
        let Ok(first) = items.binary_search_by_key(&frame_start, |item| item.start) else {
            return Ok(());
        };
        let What::Frame(_) = items[first].what else { return Ok(()) };
        let mut bytes = vec![0; (end.end - end.start) as usize];
        let n = self.read_at(end.start, &mut bytes)?;
        let header_len = items[first].end - frame_start;
        let Ok(index) = Index::parse(&bytes[..n], footer, header_len) else { return Ok(()) };
        let starts: Vec<u64> = (0..index.block_count())
            .filter_map(|number| index.block(number))
            .map(|range| frame_start + range.start)
            .collect();
        let found: Vec<Item> = items.drain(first + 1..).collect();
        for mut item in found {
            let belongs = match item.what {
                What::Block(_) => starts.binary_search(&item.start).is_ok(),
                What::End(_) => item.start == end.start,
                What::Frame(_) | What::Single { .. } | What::Damage => false,
            };
            if !belongs {
                item.what = What::Damage;
            }
            match (items.last_mut(), item.what) {
                (Some(last @ Item { what: What::Damage, .. }), What::Damage) => last.end = item.end,
                _ => items.push(item),
            }
        }
        Ok(())
    }
}

/// Says which contents each block holds, which are missing, and whether some may be missing at the end of a frame
/// without a trace.
pub(super) fn lay_out(items: &[Item]) -> (Vec<Step>, bool) {
    let mut layout = Layout::default();
    for item in items {
        layout.add(item);
    }
    let end = items.last().map_or(0, |item| item.end);
    layout.close(None, end);
    layout.flush_damage(None);
    (layout.steps, layout.end_unknown)
}

/// Whether there is anything of a `.pz` file at all.
pub(super) fn has_structure(items: &[Item]) -> bool {
    items.iter().any(|item| !matches!(item.what, What::Damage))
}

#[derive(Default)]
struct Layout {
    steps: Vec<Step>,
    end_unknown: bool,
    /// Frames before the present one.
    frames: u64,
    /// Contents of the frames before the present one.
    base: u64,
    open: Option<Open>,
    /// Damaged bytes that have not been reported.
    damage: Option<Range<u64>>,
}

/// The frame at hand.
#[derive(Default)]
struct Open {
    block_log: Option<u8>,
    declared: Option<u64>,
    /// Number of the next block.
    number: u64,
    /// End of the contents so far.
    at: u64,
}

impl Layout {
    fn add(&mut self, item: &Item) {
        match item.what {
            What::Damage => {
                let start = self.damage.take().map_or(item.start, |damage| damage.start);
                self.damage = Some(start..item.end);
            }
            What::Frame(header) => {
                self.close(None, item.start);
                self.flush_damage(None);
                self.open = Some(Open {
                    block_log: Some(header.block_log),
                    declared: header.content_size,
                    ..Open::default()
                });
            }
            What::Single { header, single, len } => {
                self.close(None, item.start);
                self.flush_damage(None);
                self.open = Some(Open::default());
                if single.content_len > 0 {
                    self.add_block(item, single.block(&header), len, Some(header));
                }
                self.close(Some(single.content_len.into()), item.end);
            }
            What::Block(header) => {
                self.add_block(item, header, u64::from(header.block_len()), None);
            }
            What::End(footer) => {
                self.open.get_or_insert_default();
                self.close(Some(footer.content_size), item.start);
                self.flush_damage(None);
            }
        }
    }

    /// Adds a block that takes `len` bytes of the file, if nothing is missing.
    fn add_block(
        &mut self,
        item: &Item,
        header: BlockHeader,
        len: u64,
        single: Option<FrameHeader>,
    ) {
        let number = u64::from(header.number);
        let fits = |open: &Open| {
            open.block_log.is_none_or(|log| log == header.block_log) && open.number <= number
        };
        if !self.open.as_ref().is_some_and(fits) {
            // The header of its frame is lost, and perhaps the end of the one before.
            self.close(None, item.start);
        }
        let open = self.open.get_or_insert_default();
        let start = number << header.block_log;
        let missing = (open.at < start).then(|| self.base + open.at..self.base + start);
        open.block_log = Some(header.block_log);
        open.number = number + 1;
        open.at = start + u64::from(header.content_len);
        let range = self.base + start..self.base + open.at;
        match missing {
            Some(missing) => self.lose(missing, item.start),
            None => self.flush_damage(None),
        }
        let (frame, source) = (self.frames, item.start..item.end);
        if source.end - source.start == len {
            self.steps.push(Step::Block { frame, source, header, single, range });
        } else {
            self.steps.push(Step::Lost { frame, source, range: Some(range) });
        }
    }

    /// Ends the frame at hand, whose contents are `total` bytes if that is known; `offset` is where it ends.
    fn close(&mut self, total: Option<u64>, offset: u64) {
        let Some(open) = self.open.take() else { return };
        match total.or(open.declared) {
            Some(total) if total > open.at => {
                self.lose(self.base + open.at..self.base + total, offset);
                self.base += total;
            }
            Some(_) => self.base += open.at,
            None => {
                self.end_unknown = true;
                self.base += open.at;
            }
        }
        self.flush_damage(None);
        self.frames += 1;
    }

    /// Notes that contents are lost, and with them the damaged bytes before `offset`, if there are any.
    fn lose(&mut self, range: Range<u64>, offset: u64) {
        self.damage.get_or_insert(offset..offset);
        self.flush_damage(Some(range));
    }

    fn flush_damage(&mut self, range: Option<Range<u64>>) {
        if let Some(source) = self.damage.take() {
            self.steps.push(Step::Lost { frame: self.frames, source, range });
        }
    }
}
