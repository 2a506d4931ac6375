//! The index: where each block of a frame begins.

use std::io::Read;

use crc32c::{crc32c, crc32c_append};

use super::{Fault, Footer, FrameHeader, INDEX_MARKER, Single, footer};
use crate::codec::{OutOfMemory, reserve};

/// Collects the index and the footer for an encoder, block by block.
#[derive(Debug, Clone, Default)]
pub(crate) struct IndexWriter {
    /// Little-endian lengths of the blocks so far.
    entries: Vec<u8>,
    /// Length of the contents so far.
    content_size: u64,
}

impl IndexWriter {
    /// Blocks so far.
    pub(crate) fn block_count(&self) -> u64 {
        self.entries.len() as u64 / 4
    }

    /// Length of the contents so far.
    pub(crate) fn content_size(&self) -> u64 {
        self.content_size
    }

    /// Adds a block of `block_len` bytes, header included, and `content_len` bytes of contents.
    pub(crate) fn push(&mut self, block_len: u32, content_len: u32) -> Result<(), OutOfMemory> {
        // Doubles the capacity when full, so that pushing takes constant time on average.
        let bytes = self.entries.len() as u64 + 4;
        self.entries.try_reserve(4).map_err(|_| OutOfMemory { bytes })?;
        self.entries.extend_from_slice(&block_len.to_le_bytes());
        self.content_size += u64::from(content_len);
        Ok(())
    }

    /// Returns index and footer as bytes, for a frame whose header and blocks take `frame_len` bytes, and starts over.
    pub(crate) fn finish(&mut self, frame_len: u64) -> Result<Vec<u8>, OutOfMemory> {
        let mut bytes = Vec::new();
        reserve(&mut bytes, INDEX_MARKER.len() + self.entries.len() + footer::LEN)?;
        bytes.extend_from_slice(&INDEX_MARKER);
        // The last block ends where the index begins.
        bytes.extend_from_slice(&self.entries[..self.entries.len().saturating_sub(4)]);
        let frame_len = frame_len + (bytes.len() + footer::LEN) as u64;
        Footer { content_size: self.content_size, frame_len }.append_to(&mut bytes);
        self.entries.clear();
        self.content_size = 0;
        Ok(bytes)
    }
}

/// Checks the index for a reader that goes from block to block: compares it with the blocks read, without keeping it in
/// memory.
#[derive(Debug)]
pub(crate) struct IndexChecker {
    /// CRC-32C of the marker and of every entry that the index must hold.
    checksum: u32,
    last: Option<u32>,
    block_count: u64,
    content_size: u64,
}

impl IndexChecker {
    pub(crate) fn new() -> Self {
        Self { checksum: crc32c(&INDEX_MARKER), last: None, block_count: 0, content_size: 0 }
    }

    /// Blocks so far.
    pub(crate) fn block_count(&self) -> u64 {
        self.block_count
    }

    /// Adds a block of `block_len` bytes, header included, and `content_len` bytes of contents. Refuses a block after
    /// one that is not full, and one block too many.
    pub(crate) fn push(
        &mut self,
        block_len: u32,
        content_len: u32,
        frame: &FrameHeader,
    ) -> Result<(), Fault> {
        if self.content_size != self.block_count << frame.block_log {
            return Err(Fault::Corrupt("a block follows one that is not full"));
        }
        if self.block_count == super::MAX_BLOCKS {
            return Err(Fault::Corrupt("the frame has more blocks than a frame may hold"));
        }
        if let Some(last) = self.last.replace(block_len) {
            self.checksum = crc32c_append(self.checksum, &last.to_le_bytes());
        }
        self.block_count += 1;
        self.content_size += u64::from(content_len);
        Ok(())
    }

    /// Reads everything after the index's marker, footer included, and compares it with the blocks seen. `frame_len` is
    /// the length of header and blocks.
    pub(crate) fn finish(
        &self,
        reader: &mut impl Read,
        frame: &FrameHeader,
        frame_len: u64,
    ) -> Result<(), Fault> {
        let mut checksum = crc32c(&INDEX_MARKER);
        let mut left = 4 * self.block_count.saturating_sub(1);
        let mut buffer = [0; 4096];
        let index_len = INDEX_MARKER.len() as u64 + left;
        while left > 0 {
            let part = &mut buffer[..left.min(4096) as usize];
            reader.read_exact(part)?;
            checksum = crc32c_append(checksum, part);
            left -= part.len() as u64;
        }
        if checksum != self.checksum {
            return Err(Fault::Corrupt("the index does not match the blocks"));
        }
        let footer = Footer::read(reader, checksum)?;
        let frame_len = frame_len + index_len + footer::LEN as u64;
        if footer.frame_len != frame_len {
            return Err(Fault::Corrupt("the frame's length does not match its footer"));
        }
        if footer.content_size != self.content_size
            || frame.content_size.is_some_and(|size| size != self.content_size)
        {
            return Err(Fault::Corrupt("the length of the contents is not the one recorded"));
        }
        Ok(())
    }
}

/// The index of a frame, in memory.
#[derive(Debug, Clone)]
pub(crate) struct Index {
    /// Offset from the start of the frame of each block, and then of the index.
    starts: Vec<u64>,
}

impl Index {
    /// Length of index and footer together in a frame of `block_count` blocks.
    pub(crate) const fn len_with_footer(block_count: u64) -> u64 {
        INDEX_MARKER.len() as u64 + 4 * block_count.saturating_sub(1) + footer::LEN as u64
    }

    /// Parses index and footer from `bytes`, the end of a frame with a header of `header_len` bytes. The caller has
    /// read `footer` from its last bytes to know how long they are.
    pub(crate) fn parse(bytes: &[u8], footer: Footer, header_len: u64) -> Result<Self, Fault> {
        let (entries, end) = Self::check(bytes, footer, header_len)?;
        let mut starts = Vec::new();
        reserve(&mut starts, entries.len() + 2)?;
        starts.push(header_len);
        starts.extend(entries.iter().scan(header_len, |start, entry| {
            *start += u64::from(u32::from_le_bytes(*entry));
            Some(*start)
        }));
        if footer.content_size > 0 {
            starts.push(end);
        }
        Ok(Self { starts })
    }

    /// Checks what [`parse`](Self::parse) parses. Returns the lengths of all blocks but the last, in little-endian
    /// order of bytes, and where the index begins in its frame.
    pub(crate) fn check(
        bytes: &[u8],
        footer: Footer,
        header_len: u64,
    ) -> Result<(&[[u8; 4]], u64), Fault> {
        let Some(index_len) = bytes.len().checked_sub(footer::LEN) else {
            return Err(Fault::Truncated);
        };
        let (index, mut tail) = bytes.split_at(index_len);
        if Footer::read(&mut tail, crc32c(index))? != footer {
            return Err(Fault::Corrupt("the footer changed while it was read"));
        }
        let Some(entries) = index.strip_prefix(&INDEX_MARKER) else {
            return Err(Fault::Corrupt("there is no index here"));
        };
        let end = footer
            .frame_len
            .checked_sub(bytes.len() as u64)
            .filter(|&end| end >= header_len)
            .ok_or(Fault::Corrupt("the frame's length is out of range"))?;
        let (entries, _) = entries.as_chunks();
        let lens = entries.iter().map(|entry| u64::from(u32::from_le_bytes(*entry)));
        let last_start = lens.fold(header_len, u64::saturating_add);
        // The last block ends where the index begins.
        let adds_up = if footer.content_size > 0 { last_start <= end } else { last_start == end };
        if !adds_up {
            return Err(Fault::Corrupt("the index does not add up to the frame's length"));
        }
        Ok((entries, end))
    }

    /// The payload's place in a single frame, which has no index.
    pub(crate) fn of_single(single: &Single, header_len: u64) -> Self {
        let mut starts = vec![header_len];
        if single.content_len > 0 {
            starts.push(header_len + u64::from(single.payload_len));
        }
        Self { starts }
    }

    /// Number of blocks.
    pub(crate) fn block_count(&self) -> u64 {
        self.starts.len() as u64 - 1
    }

    /// The range of block `number`, header included, in bytes from the start of the frame.
    pub(crate) fn block(&self, number: u64) -> Option<std::ops::Range<u64>> {
        let number = usize::try_from(number).ok()?;
        Some(*self.starts.get(number)?..*self.starts.get(number + 1)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Pipeline;

    const FRAME: FrameHeader = FrameHeader {
        pipeline: Pipeline::Store,
        block_log: 16,
        level: 0,
        content_size: None,
        single: None,
        reach: 0,
        modules: crate::format::ModuleTable::NONE,
    };

    fn written(blocks: &[(u32, u32)]) -> (Vec<u8>, u64) {
        let mut writer = IndexWriter::default();
        let mut frame_len = 17;
        for &(block_len, content_len) in blocks {
            writer.push(block_len, content_len).unwrap();
            frame_len += u64::from(block_len);
        }
        (writer.finish(frame_len).unwrap(), frame_len)
    }

    fn checked(bytes: &[u8], blocks: &[(u32, u32)], frame_len: u64) -> Result<(), Fault> {
        let mut checker = IndexChecker::new();
        for &(block_len, content_len) in blocks {
            checker.push(block_len, content_len, &FRAME)?;
        }
        checker.finish(&mut bytes.strip_prefix(&INDEX_MARKER).unwrap(), &FRAME, frame_len)
    }

    #[test]
    fn both_readers_agree_with_the_writer() {
        let full = (100, 1 << 16);
        for blocks in [vec![], vec![(30, 5)], vec![full; 2000], vec![full, full, (40, 9)]] {
            let (bytes, frame_len) = written(&blocks);
            let whole = frame_len + bytes.len() as u64;
            assert_eq!(bytes.len() as u64, Index::len_with_footer(blocks.len() as u64));
            checked(&bytes, &blocks, frame_len).unwrap();
            let content_size = blocks.iter().map(|b| u64::from(b.1)).sum();
            let footer = Footer { content_size, frame_len: whole };
            let index = Index::parse(&bytes, footer, 17).unwrap();
            assert_eq!(index.block_count(), blocks.len() as u64);
            let mut start = 17;
            for (i, block) in blocks.iter().enumerate() {
                assert_eq!(index.block(i as u64), Some(start..start + u64::from(block.0)));
                start += u64::from(block.0);
            }
            assert_eq!(index.block(blocks.len() as u64), None);
            for bit in 16..bytes.len().min(50) * 8 {
                let mut damaged = bytes.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(checked(&damaged, &blocks, frame_len).is_err());
                assert!(Index::parse(&damaged, footer, 17).is_err());
            }
        }
    }

    #[test]
    fn an_index_that_does_not_add_up_is_refused() {
        // The checksum is right, the sums are not: entries reach beyond the frame.
        let mut bytes = INDEX_MARKER.to_vec();
        bytes.extend_from_slice(&u32::MAX.to_le_bytes());
        let footer = Footer { content_size: 1 << 17, frame_len: 500 };
        footer.append_to(&mut bytes);
        assert!(Index::parse(&bytes, footer, 17).is_err());
        assert!(Index::parse(&bytes[..10], footer, 17).is_err());
    }

    #[test]
    fn blocks_after_a_short_one_are_refused() {
        let mut checker = IndexChecker::new();
        checker.push(50, 65_535, &FRAME).unwrap();
        assert!(checker.push(50, 1, &FRAME).is_err());
    }
}
