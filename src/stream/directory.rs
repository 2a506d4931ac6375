//! Where the frames of a file lie, found from its end.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

use super::frame_reader::{Event, FrameReader};
use crate::error::{Error, Place};
use crate::format::{
    BlockHeader, FOOTER_LEN, Fault, Footer, FrameHeader, Index, MAX_BLOCKS, MIN_FRAME_HEADER_LEN,
};

/// One frame of a file.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FrameEntry {
    pub(crate) header: FrameHeader,
    pub(crate) header_len: u64,
    /// Where it begins in the file.
    pub(crate) offset: u64,
    pub(crate) footer: Footer,
    /// Where its contents begin in the contents of the file.
    pub(crate) content_start: u64,
}

impl FrameEntry {
    pub(crate) fn block_count(&self) -> u64 {
        self.header.block_count(self.footer.content_size)
    }

    /// Reads and checks the index. Of a frame of a single block, which has none, it gives where the payload lies.
    pub(crate) fn index(&self, reader: &mut (impl Read + Seek)) -> Result<Index, Fault> {
        if let Some(single) = &self.header.single {
            return Ok(Index::of_single(single, self.header_len));
        }
        let len = Index::len_with_footer(self.block_count());
        // The frame's length is within the file, and the index within the frame.
        let start = (self.offset + self.footer.frame_len)
            .checked_sub(len)
            .filter(|_| self.block_count() <= MAX_BLOCKS)
            .ok_or(Fault::Corrupt("the index does not fit in its frame"))?;
        if start < self.offset + self.header_len {
            return Err(Fault::Corrupt("the index does not fit in its frame"));
        }
        reader.seek(SeekFrom::Start(start))?;
        let mut bytes = vec![0; len as usize];
        reader.read_exact(&mut bytes)?;
        Index::parse(&bytes, self.footer, self.header_len)
    }

    /// Checks that `header` may be that of block `number`, which the index says lies at `range`.
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

/// The frames of a file, in order; headers, indices and footers have been checked.
///
/// Frames are found from the end of the file, by their footers. A frame of a single block has none: where there is no
/// footer, the frames before that place are found from the start, block by block.
///
/// # Errors
/// The first fault of the file, with its place. [`Error::LimitMemory`] if there are more frames than `max_memory` can
/// list.
pub(crate) fn read_directory(
    reader: &mut (impl Read + Seek),
    max_memory: u64,
) -> Result<Vec<FrameEntry>, Error> {
    let end = reader.seek(SeekFrom::End(0))?;
    let mut frames = Vec::new();
    let mut at = end;
    while at > 0 || frames.is_empty() {
        match read_last(reader, at) {
            Ok(frame) => {
                at = frame.offset;
                frames.push(frame);
            }
            Err(Fault::Io(error)) => return Err(error.into()),
            Err(_) => {
                let (first, is_at_seam) = walk(reader, at, max_memory)?;
                if !is_at_seam {
                    // What looked like frames at the end is part of those that begin before.
                    frames.clear();
                }
                frames.extend(first.into_iter().rev());
                break;
            }
        }
        check_number(&frames, max_memory)?;
    }
    check_number(&frames, max_memory)?;
    frames.reverse();
    let mut content_start = 0_u64;
    for (number, frame) in (0..).zip(&mut frames) {
        frame.content_start = content_start;
        content_start = content_start.checked_add(frame.footer.content_size).ok_or_else(|| {
            Fault::Corrupt("the contents are too long").at(Place::new(number, frame.offset))
        })?;
    }
    Ok(frames)
}

/// The frame that ends at offset `end`.
fn read_last(reader: &mut (impl Read + Seek), end: u64) -> Result<FrameEntry, Fault> {
    let least = (MIN_FRAME_HEADER_LEN as u64) + Index::len_with_footer(0);
    if end < least {
        return Err(Fault::Truncated);
    }
    reader.seek(SeekFrom::Start(end - FOOTER_LEN as u64))?;
    let mut bytes = [0; FOOTER_LEN];
    reader.read_exact(&mut bytes)?;
    let (footer, _) = Footer::parse_unchecked(&bytes);
    if !(least..=end).contains(&footer.frame_len) {
        return Err(Fault::Corrupt("the frame's length is out of range"));
    }
    let offset = end - footer.frame_len;
    reader.seek(SeekFrom::Start(offset))?;
    let Some((header, header_len)) = FrameHeader::read(reader)? else {
        return Err(Fault::Truncated);
    };
    let header_len = header_len as u64;
    if header.single.is_some() {
        return Err(Fault::Corrupt("a frame of a single block has no footer"));
    }
    if header.content_size.is_some_and(|size| size != footer.content_size) {
        return Err(Fault::Corrupt("the length of the contents is not the one recorded"));
    }
    let frame = FrameEntry { header, header_len, offset, footer, content_start: 0 };
    frame.index(reader)?;
    Ok(frame)
}

/// Refuses more frames than `max_memory` can list.
fn check_number(frames: &[FrameEntry], max_memory: u64) -> Result<(), Error> {
    // A vector may have grown to twice what it holds.
    let needed = 2 * size_of_val(frames) as u64;
    if needed > max_memory {
        return Err(Error::LimitMemory { needed, limit: max_memory });
    }
    Ok(())
}

/// Walks all structures from the start, until a frame ends at `stop` or the file ends. Gives the frames, and whether one
/// ended at `stop`.
fn walk(
    reader: &mut (impl Read + Seek),
    stop: u64,
    max_memory: u64,
) -> Result<(Vec<FrameEntry>, bool), Error> {
    reader.seek(SeekFrom::Start(0))?;
    let mut frames = FrameReader::new(io::BufReader::new(reader));
    let mut entries: Vec<FrameEntry> = Vec::new();
    let mut offset = 0;
    loop {
        match frames.next()? {
            Event::Frame(header) => entries.push(FrameEntry {
                header,
                header_len: frames.position() - offset,
                offset,
                footer: Footer { content_size: 0, frame_len: 0 },
                content_start: 0,
            }),
            Event::Block(header, place) => {
                frames.skip_payload(&header, place)?;
                if let Some(entry) = entries.last_mut() {
                    entry.footer.content_size += u64::from(header.content_len);
                }
            }
            Event::FrameEnd => {
                if let Some(entry) = entries.last_mut() {
                    entry.footer.frame_len = frames.position() - offset;
                }
                check_number(&entries, max_memory)?;
                offset = frames.position();
                if offset == stop {
                    return Ok((entries, true));
                }
            }
            Event::End => return Ok((entries, false)),
        }
    }
}
