//! The frame header: what a decoder must know before the first block.

use std::io::{self, Read};

use crc32c::crc32c;

use super::kinds::MIN_BLOCK_LOG;
use super::{Fault, MAGIC, Pipeline, VERSION, read_array};

/// Length of the part that every header has, without the checksum.
const FIXED: usize = 13;
/// Length of the shortest header.
pub(crate) const MIN_LEN: usize = FIXED + 4;
/// Length of the longest header.
const MAX_LEN: usize = FIXED + 8 + 256 + 256 + 4;

const HAS_CONTENT_SIZE: u8 = 1 << 0;
const HAS_FILTERS: u8 = 1 << 1;
const HAS_FIELDS: u8 = 1 << 2;
const KNOWN_FLAGS: u8 = HAS_CONTENT_SIZE | HAS_FILTERS | HAS_FIELDS;

/// From this identifier on, an optional field that is not known makes the frame unreadable.
const FIRST_CRITICAL_FIELD: u8 = 128;

/// A frame header that has been checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) pipeline: Pipeline,
    /// Base-2 logarithm of the block size.
    pub(crate) block_log: u8,
    /// The level that the frame was made with; for people only, 0 if not recorded.
    pub(crate) level: u8,
    /// Length of the frame's contents, if it was known when the frame was begun.
    pub(crate) content_size: Option<u64>,
}

impl FrameHeader {
    /// Length of the contents of every block but the last.
    pub(crate) const fn block_size(&self) -> usize {
        1 << self.block_log
    }

    /// Number of blocks of contents of `content_size` bytes.
    pub(crate) const fn block_count(&self, content_size: u64) -> u64 {
        content_size.div_ceil(1 << self.block_log)
    }

    /// The header as bytes.
    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MIN_LEN + 8);
        bytes.extend_from_slice(&MAGIC);
        let flags = if self.content_size.is_some() { HAS_CONTENT_SIZE } else { 0 };
        bytes.extend_from_slice(&[VERSION, self.pipeline.id(), self.block_log, self.level, flags]);
        if let Some(size) = self.content_size {
            bytes.extend_from_slice(&size.to_le_bytes());
        }
        let checksum = crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// Reads a header and gives it with its length in bytes; `None` if the input ends before its first byte.
    pub(crate) fn read(reader: &mut impl Read) -> Result<Option<(Self, usize)>, Fault> {
        let mut bytes = Vec::with_capacity(MIN_LEN + 8);
        reader.by_ref().take(MAGIC.len() as u64).read_to_end(&mut bytes)?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if !MAGIC.starts_with(&bytes) {
            return Err(Fault::NotPz);
        }
        if bytes.len() < MAGIC.len() {
            return Err(Fault::Truncated);
        }
        let [version, pipeline, block_log, level, flags] = read_array(reader)?;
        // Another version may be laid out in another way, checksum included.
        if version != VERSION {
            return Err(Fault::Unsupported("this version of the format is not known"));
        }
        bytes.extend_from_slice(&[version, pipeline, block_log, level, flags]);
        if flags & !KNOWN_FLAGS != 0 {
            return Err(Fault::Unsupported("a flag of the frame header is not known"));
        }
        let mut content_size = None;
        if flags & HAS_CONTENT_SIZE != 0 {
            let size: [u8; 8] = read_array(reader)?;
            bytes.extend_from_slice(&size);
            content_size = Some(u64::from_le_bytes(size));
        }
        let filters = read_list(reader, &mut bytes, flags & HAS_FILTERS != 0)?;
        let fields = read_list(reader, &mut bytes, flags & HAS_FIELDS != 0)?;
        if crc32c(&bytes) != u32::from_le_bytes(read_array(reader)?) {
            return Err(Fault::Corrupt("the frame header's checksum does not agree"));
        }

        let pipeline = Pipeline::from_id(pipeline)?;
        if !(MIN_BLOCK_LOG..=pipeline.max_block_log()).contains(&block_log) {
            return Err(Fault::Corrupt("the block size is not one that the pipeline permits"));
        }
        if filters.is_some() {
            return Err(Fault::Unsupported("a filter is not known"));
        }
        if let Some(fields) = fields {
            check_fields(&bytes[fields])?;
        }
        let header = Self { pipeline, block_log, level, content_size };
        if content_size.is_some_and(|size| header.block_count(size) > super::MAX_BLOCKS) {
            return Err(Fault::Corrupt("the frame declares more blocks than a frame may hold"));
        }
        let len = bytes.len() + 4;
        debug_assert!(len <= MAX_LEN);
        Ok(Some((header, len)))
    }
}

/// Reads a list (its length in one byte, then its bytes) onto the end of `bytes` and gives where it lies.
fn read_list(
    reader: &mut impl Read,
    bytes: &mut Vec<u8>,
    present: bool,
) -> Result<Option<std::ops::Range<usize>>, Fault> {
    if !present {
        return Ok(None);
    }
    let [len] = read_array(reader)?;
    bytes.push(len);
    let start = bytes.len();
    bytes.resize(start + usize::from(len), 0);
    reader.read_exact(&mut bytes[start..])?;
    Ok(Some(start..bytes.len()))
}

/// Walks the optional fields: each is an identifier, a length and that many bytes. None is known yet.
fn check_fields(mut fields: &[u8]) -> Result<(), Fault> {
    if fields.is_empty() {
        return Err(Fault::Corrupt("the list of optional fields is empty"));
    }
    while !fields.is_empty() {
        let cut = |_: io::Error| Fault::Corrupt("an optional field is cut short");
        let mut head = [0; 2];
        fields.read_exact(&mut head).map_err(cut)?;
        let [id, len] = head;
        fields = fields
            .get(usize::from(len)..)
            .ok_or(Fault::Corrupt("an optional field is cut short"))?;
        if id >= FIRST_CRITICAL_FIELD {
            return Err(Fault::Unsupported("a field of the frame header is not known"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> FrameHeader {
        FrameHeader { pipeline: Pipeline::Lzh, block_log: 20, level: 3, content_size: None }
    }

    fn read(mut bytes: &[u8]) -> Result<Option<(FrameHeader, usize)>, Fault> {
        FrameHeader::read(&mut bytes)
    }

    /// The bytes of a header with the given parts and a right checksum.
    fn craft(fixed: [u8; 5], tail: &[u8]) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&fixed);
        bytes.extend_from_slice(tail);
        let checksum = crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    #[test]
    fn round_trip() {
        for content_size in [None, Some(0), Some(1), Some(1 << 30)] {
            for pipeline in Pipeline::ALL {
                let header = FrameHeader { pipeline, content_size, ..sample() };
                let bytes = header.to_bytes();
                assert_eq!(read(&bytes).unwrap(), Some((header, bytes.len())));
            }
        }
        assert_eq!(sample().to_bytes().len(), MIN_LEN);
        assert!(read(b"").unwrap().is_none());
    }

    #[test]
    fn optional_parts_are_skipped_or_refused() {
        let skipped = craft([VERSION, 1, 20, 3, HAS_FIELDS], &[5, 127, 3, 1, 2, 3]);
        assert_eq!(read(&skipped).unwrap(), Some((sample(), skipped.len())));
        let refused: [(&str, Vec<u8>); 11] = [
            ("critical field", craft([VERSION, 1, 20, 3, HAS_FIELDS], &[2, 128, 0])),
            ("field cut short", craft([VERSION, 1, 20, 3, HAS_FIELDS], &[3, 1, 2, 0])),
            ("no field", craft([VERSION, 1, 20, 3, HAS_FIELDS], &[0])),
            ("a filter", craft([VERSION, 1, 20, 3, HAS_FILTERS], &[2, 1, 0])),
            ("no filter", craft([VERSION, 1, 20, 3, HAS_FILTERS], &[0])),
            ("flag", craft([VERSION, 1, 20, 3, 8], &[])),
            ("version", craft([VERSION + 1, 1, 20, 3, 0], &[])),
            ("pipeline", craft([VERSION, 5, 20, 3, 0], &[])),
            ("small block", craft([VERSION, 1, 15, 3, 0], &[])),
            ("large block", craft([VERSION, 1, 25, 3, 0], &[])),
            ("size", craft([VERSION, 1, 16, 3, HAS_CONTENT_SIZE], &u64::MAX.to_le_bytes())),
        ];
        for (what, bytes) in refused {
            assert!(
                matches!(read(&bytes), Err(Fault::Corrupt(_) | Fault::Unsupported(_))),
                "{what}"
            );
        }
    }

    #[test]
    fn any_flipped_bit_or_cut_is_refused() {
        let bytes = FrameHeader { content_size: Some(77), ..sample() }.to_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(read(&damaged).is_err(), "bit {bit}");
        }
        for len in 1..bytes.len() {
            assert!(matches!(read(&bytes[..len]), Err(Fault::Truncated)), "{len}");
        }
    }
}
