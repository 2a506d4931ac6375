//! Finds the frames of a file from its end.

use std::io::{self, Cursor, Read, Seek, SeekFrom};
use std::ops::Range;

use super::frame_reader::{Event, FrameReader};
use super::window::{ReadFrom, Window};
use crate::error::{Error, Place};
use crate::format::{
    BlockHeader, FOOTER_LEN, Fault, Footer, FrameHeader, INDEX_MARKER, Index, MAX_BLOCKS,
    MIN_FRAME_HEADER_LEN,
};
use crate::pipeline::buffer::zeroed;

/// One frame of a file.
#[derive(Debug, Clone)]
pub(crate) struct FrameEntry {
    pub(crate) header: FrameHeader,
    pub(crate) header_len: u64,
    /// Offset of the frame in the file.
    pub(crate) offset: u64,
    pub(crate) footer: Footer,
    /// Offset of the frame's contents in the contents of the file.
    pub(crate) content_start: u64,
}

impl FrameEntry {
    /// Where the frame ends in the file.
    pub(crate) fn end(&self) -> u64 {
        self.offset + self.footer.frame_len
    }

    pub(crate) fn block_count(&self) -> u64 {
        self.header.block_count(self.footer.content_size)
    }

    /// Where the index begins. A single frame has no index; there, where the payload ends.
    pub(crate) fn index_start(&self) -> Result<u64, Fault> {
        if let Some(single) = &self.header.single {
            return Ok(self.offset + self.header_len + u64::from(single.payload_len));
        }
        // The frame is known to lie within the file. Check that the index lies within the frame.
        self.end()
            .checked_sub(Index::len_with_footer(self.block_count()))
            .filter(|start| *start >= self.offset + self.header_len)
            .filter(|_| self.block_count() <= MAX_BLOCKS)
            .ok_or(Fault::Corrupt("the index does not fit in its frame"))
    }

    /// Reads and checks the index. For a single frame, which has none, makes one of its payload. `read` fills a buffer
    /// with the bytes of the file from an offset on.
    pub(crate) fn index(
        &self,
        read: &mut dyn FnMut(u64, &mut [u8]) -> io::Result<()>,
    ) -> Result<Index, Fault> {
        if let Some(single) = &self.header.single {
            return Ok(Index::of_single(single, self.header_len));
        }
        // The index lies within the frame, and that within the file.
        let start = self.index_start()?;
        let mut bytes = zeroed((self.offset + self.footer.frame_len - start) as usize)?;
        read(start, &mut bytes)?;
        Index::parse(&bytes, self.footer, self.header_len)
    }

    /// Checks that `header` may belong to block `number`, which lies at `range` according to the index.
    pub(crate) fn check_block(
        &self,
        header: &BlockHeader,
        number: u64,
        range: &Range<u64>,
    ) -> Result<(), Fault> {
        header.check(&self.header, number)?;
        let content_start = number << self.header.block_log;
        let content_len =
            (self.footer.content_size - content_start).min(self.header.block_size() as u64);
        if u64::from(header.block_len()) != range.end - range.start
            || u64::from(header.content_len) != content_len
        {
            return Err(Fault::Corrupt("the block is not the one in the index"));
        }
        Ok(())
    }
}

/// The frames of a file, in order, after checking all headers, indices and footers.
///
/// It finds frames backward from the end of the file, or from its padding, by their footers. A single frame has no
/// footer. Where there is none, it finds the remaining frames from the start, block by block.
///
/// # Errors
/// The first fault of the file, with its place; [`Error::LimitMemory`] if listing the frames takes more than
/// `max_memory`.
pub(crate) fn read_directory(
    reader: &mut (impl Read + Seek),
    max_memory: u64,
) -> Result<Vec<FrameEntry>, Error> {
    let end = reader.seek(SeekFrom::End(0))?;
    let mut window = Window::new(end);
    let mut list = FrameList { max_memory, ..FrameList::default() };
    let mut next = last_frame(&mut window, reader)?;
    let mut at = end;
    loop {
        let Some(frame) = next else {
            if walk(at, &mut window, reader, |frame| list.push_first(frame))? != at {
                // What looked like frames at the end is part of earlier frames.
                list.last.clear();
            }
            break;
        };
        at = frame.offset;
        list.push_last(frame)?;
        if at == 0 {
            break;
        }
        next = frame_before(at, &mut window, reader)?;
    }
    list.in_order()
}

/// The frames of a file in memory. It finds all of them from the start, and so also checks the headers of all blocks.
pub(crate) fn walk_directory(file: &[u8], max_memory: u64) -> Result<Vec<FrameEntry>, Error> {
    let mut list = FrameList { max_memory, ..FrameList::default() };
    let mut frames = FrameReader::new(Cursor::new(file));
    while let Some(frame) = next_frame(&mut frames, file.len() as u64)? {
        list.push_first(frame)?;
    }
    list.in_order()
}

/// Frames in the order in which they are found, within a memory limit.
#[derive(Default)]
struct FrameList {
    /// Frames found from the start, in order.
    first: Vec<FrameEntry>,
    /// Frames found from the end; the file's last frame comes first.
    last: Vec<FrameEntry>,
    /// Bytes of the modules of all frames. Neighbouring frames share equal modules.
    modules: u64,
    max_memory: u64,
}

impl FrameList {
    fn push_first(&mut self, mut frame: FrameEntry) -> Result<(), Error> {
        self.modules += share_modules(&mut frame, self.first.last());
        self.make_room()?;
        self.first.push(frame);
        Ok(())
    }

    fn push_last(&mut self, mut frame: FrameEntry) -> Result<(), Error> {
        self.modules += share_modules(&mut frame, self.last.last());
        self.make_room()?;
        self.last.push(frame);
        Ok(())
    }

    /// Makes room for one more frame in either list.
    fn make_room(&mut self) -> Result<(), Error> {
        // A vector may grow to twice its contents.
        let number = self.first.len() + self.last.len() + 1;
        let needed = 2 * (number * size_of::<FrameEntry>()) as u64 + self.modules;
        if needed > self.max_memory {
            return Err(Error::LimitMemory { needed, limit: self.max_memory });
        }
        let room = self.first.try_reserve(1).and_then(|()| self.last.try_reserve(1));
        room.map_err(|_| Error::OutOfMemory { needed })
    }

    /// The frames in file order, with the places of their contents.
    fn in_order(mut self) -> Result<Vec<FrameEntry>, Error> {
        self.last.reverse();
        let mut frames = self.first;
        if frames.is_empty() {
            frames = self.last;
        } else {
            let needed = (self.last.len() * size_of::<FrameEntry>()) as u64;
            frames.try_reserve(self.last.len()).map_err(|_| Error::OutOfMemory { needed })?;
            frames.append(&mut self.last);
        }
        let mut content_start = 0_u64;
        for (number, frame) in (0..).zip(&mut frames) {
            frame.content_start = content_start;
            content_start =
                content_start.checked_add(frame.footer.content_size).ok_or_else(|| {
                    Fault::Corrupt("the contents are too long").at(Place::new(number, frame.offset))
                })?;
        }
        Ok(frames)
    }
}

/// Makes a frame share the modules of its neighbour if they are equal. Otherwise returns the bytes that its own take.
fn share_modules(frame: &mut FrameEntry, neighbour: Option<&FrameEntry>) -> u64 {
    match neighbour.filter(|other| other.header.modules == frame.header.modules) {
        Some(other) => {
            frame.header.modules = other.header.modules.clone();
            0
        }
        None => frame.header.modules.bytes() as u64,
    }
}

/// The length of block `number`, from the index at `index_start`; `None` if the file ends there. The last block of a
/// frame has no entry.
pub(super) fn index_entry(
    window: &mut Window,
    reader: &mut (impl Read + Seek),
    index_start: u64,
    number: u64,
) -> Result<Option<u64>, Error> {
    let at = index_start + INDEX_MARKER.len() as u64 + 4 * number;
    let entry = window.at(reader, at, 4)?.first_chunk();
    Ok(entry.map(|entry| u32::from_le_bytes(*entry).into()))
}

/// The length of the shortest frame with a footer.
const MIN_FRAME_LEN: u64 = MIN_FRAME_HEADER_LEN as u64 + Index::len_with_footer(0);

/// How many bytes at the end of a footer may be zeros: the checksum, and all but the lowest byte of the frame's length.
const MAX_ZEROS_IN_FOOTER: u64 = 11;

/// The last frame before the padding, found by its footer; `None` if no footer is there.
pub(super) fn last_frame(
    window: &mut Window,
    reader: &mut (impl Read + Seek),
) -> Result<Option<FrameEntry>, Error> {
    let mut end = window.file_len;
    while end > 0 {
        let bytes = window.before(reader, end, MIN_FRAME_LEN as usize)?;
        let zeros = bytes.iter().rev().take_while(|&&byte| byte == 0).count();
        end -= zeros as u64;
        if zeros < bytes.len() {
            break;
        }
        if zeros == 0 {
            // The file has become shorter.
            return Ok(None);
        }
    }
    for end in end..=window.file_len.min(end + MAX_ZEROS_IN_FOOTER) {
        if let Some(frame) = frame_before(end, window, reader)? {
            return Ok(Some(frame));
        }
    }
    Ok(None)
}

/// The frame that ends at offset `end`, found by its footer; `None` if no frame ends there.
pub(super) fn frame_before(
    end: u64,
    window: &mut Window,
    reader: &mut (impl Read + Seek),
) -> Result<Option<FrameEntry>, Error> {
    match read_last(end, window, reader) {
        Ok(frame) => Ok(Some(frame)),
        Err(Fault::Io(error)) => Err(error.into()),
        Err(_) => Ok(None),
    }
}

/// Visits the frames from the start of the file, block by block, until one ends at `stop` or the file ends. Returns
/// where the last one ended.
///
/// # Errors
/// The errors of `visit`, and the first fault of the file, with its place.
pub(super) fn walk(
    stop: u64,
    window: &mut Window,
    reader: &mut (impl Read + Seek),
    mut visit: impl FnMut(FrameEntry) -> Result<(), Error>,
) -> Result<u64, Error> {
    let file_len = window.file_len;
    let mut frames = FrameReader::new(ReadFrom { window, reader, at: 0 });
    let mut end = 0;
    while let Some(frame) = next_frame(&mut frames, file_len)? {
        end = frame.end();
        visit(frame)?;
        if end == stop {
            break;
        }
    }
    Ok(end)
}

/// Goes through the next frame of a file of `file_len` bytes, block by block; `None` at the end of the file, or at its
/// padding.
///
/// # Errors
/// The first fault of the frame, with its place.
pub(super) fn next_frame(
    frames: &mut FrameReader<impl Read + Seek>,
    file_len: u64,
) -> Result<Option<FrameEntry>, Error> {
    let offset = frames.position();
    let Event::Frame(header) = frames.next()? else { return Ok(None) };
    let header_len = frames.position() - offset;
    let mut content_size = 0;
    while let Event::Block(header, place) = frames.next()? {
        frames.skip_payload(&header, place)?;
        if frames.position() > file_len {
            return Err(Fault::Truncated.at(place));
        }
        content_size += u64::from(header.content_len);
    }
    let footer = Footer { content_size, frame_len: frames.position() - offset };
    Ok(Some(FrameEntry { header, header_len, offset, footer, content_start: 0 }))
}

fn read_last(
    end: u64,
    window: &mut Window,
    reader: &mut (impl Read + Seek),
) -> Result<FrameEntry, Fault> {
    if end < MIN_FRAME_LEN {
        return Err(Fault::Truncated);
    }
    window.before(reader, end, MIN_FRAME_LEN as usize).map_err(io::Error::from)?;
    let mut bytes = [0; FOOTER_LEN];
    ReadFrom { window, reader, at: end - FOOTER_LEN as u64 }.read_exact(&mut bytes)?;
    let (footer, _) = Footer::parse_unchecked(&bytes);
    if !(MIN_FRAME_LEN..=end).contains(&footer.frame_len) {
        return Err(Fault::Corrupt("the frame's length is out of range"));
    }
    let offset = end - footer.frame_len;
    let header = FrameHeader::read(&mut ReadFrom { window, reader, at: offset })?;
    let (header, header_len) = header.ok_or(Fault::Truncated)?;
    let header_len = header_len as u64;
    if header.single.is_some() {
        return Err(Fault::Corrupt("a frame of a single block has no footer"));
    }
    if header.content_size.is_some_and(|size| size != footer.content_size) {
        return Err(Fault::Corrupt("the length of the contents is not the one recorded"));
    }
    let frame = FrameEntry { header, header_len, offset, footer, content_start: 0 };
    let at = frame.index_start()?;
    match window.held(at, (end - at) as usize) {
        Some(bytes) => Index::check(bytes, footer, header_len).map(drop)?,
        None => {
            // A single read, because reads of some sources take long.
            let mut bytes = zeroed((end - at) as usize)?;
            reader.seek(SeekFrom::Start(at))?;
            reader.read_exact(&mut bytes)?;
            Index::check(&bytes, footer, header_len).map(drop)?;
        }
    }
    Ok(frame)
}
