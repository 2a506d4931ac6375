//! The single frame, a frame of at most one block: its header holds the lengths, and one checksum at the end covers
//! everything.

use crc32c::{crc32c, crc32c_append, crc32c_combine};

use super::kinds::IS_FILTERED;
use super::{BlockHeader, CODED_LEN, Fault, FrameHeader, MIN_FRAME_HEADER_LEN, Method};
use crate::codec::filter::{DESCRIPTOR_LEN, FilterChain};

/// Length of the checksum at the end of the frame.
pub(crate) const CHECKSUM_LEN: usize = 4;
/// The longest contents of a single frame: their length, less 1, takes at most three bytes.
pub(crate) const MAX_CONTENT_LEN: usize = 1 << 24;

/// The description of a single frame's block in the frame header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Single {
    pub(crate) method: Method,
    /// The filters applied to the contents before the method.
    pub(crate) filters: Option<FilterChain>,
    /// Length of the contents; 0 if the frame has no block.
    pub(crate) content_len: u32,
    /// Length of the payload.
    pub(crate) payload_len: u32,
    /// CRC-32C of all bytes of the frame header. [`FrameHeader::read`] sets it; a writer leaves it 0.
    pub(crate) header_crc: u32,
}

/// The fewest bytes of a full block, in either form of frame: those of a block that repeats one byte.
pub(crate) const fn least_full_block_len(block_log: u8) -> u64 {
    let content_len = 1 << block_log;
    let (method, filters) = (Method::Fill, None);
    let single = Single { method, filters, content_len, payload_len: 1, header_crc: 0 };
    if content_len as usize > MAX_CONTENT_LEN {
        CODED_LEN as u64 + 1
    } else {
        // A frame header's checksum takes four bytes, the check of a single frame's header one.
        MIN_FRAME_HEADER_LEN as u64 - 3 + single.width() as u64 + single.tail_len()
    }
}

impl Single {
    /// Bytes of each length: as few as can hold the length of the contents, less 1.
    pub(crate) const fn width(&self) -> usize {
        match self.content_len {
            0 => 0,
            len => match len - 1 {
                0..=0xFF => 1,
                0x100..=0xFFFF => 2,
                _ => 3,
            },
        }
    }

    /// Bytes of the lengths, `width` bytes each, and of the filters, which follow `flags`. `kind` is the four bits of
    /// method and filters. Unknown methods are taken to have the fields of known ones: the check then shows whether the
    /// header is damaged.
    pub(crate) const fn fields_len(kind: u8, width: usize) -> usize {
        let lengths = if kind < 2 { width } else { 2 * width };
        lengths + if kind & IS_FILTERED != 0 { DESCRIPTOR_LEN } else { 0 }
    }

    /// Method and filters, as in the header.
    pub(crate) const fn kind(&self) -> u8 {
        self.method.id() | if self.filters.is_some() { IS_FILTERED } else { 0 }
    }

    /// Reads the lengths and the filters that follow `flags`.
    pub(crate) fn parse(kind: u8, width: usize, fields: &[u8]) -> Result<Self, Fault> {
        let method = Method::from_id(kind & !IS_FILTERED)?;
        let (lengths, filters) = match fields.split_last_chunk::<DESCRIPTOR_LEN>() {
            Some((lengths, filters)) if kind & IS_FILTERED != 0 => {
                let filters = FilterChain::from_bytes(filters);
                let unknown = Fault::Unsupported("a filter of the block is not known");
                (lengths, Some(filters.ok_or(unknown)?))
            }
            _ => (fields, None),
        };
        let number = |bytes: &[u8]| bytes.iter().rev().fold(0, |n, &b| n << 8 | u32::from(b));
        let (content, payload) = lengths.split_at(width);
        let content_len = if width == 0 { 0 } else { number(content) + 1 };
        let payload_len = match method {
            Method::Store => content_len,
            Method::Fill => 1,
            Method::Lz77 | Method::Bwt => number(payload) + 1,
        };
        let single = Self { method, filters, content_len, payload_len, header_crc: 0 };
        if single.width() != width || (width == 0 && method != Method::Store) {
            return Err(Fault::Corrupt("the block's length is not in its shortest form"));
        }
        Ok(single)
    }

    /// Appends the lengths and the filters.
    pub(crate) fn append_to(&self, bytes: &mut Vec<u8>) {
        let width = self.width();
        bytes.extend_from_slice(&self.content_len.wrapping_sub(1).to_le_bytes()[..width]);
        if !matches!(self.method, Method::Store | Method::Fill) {
            bytes.extend_from_slice(&(self.payload_len - 1).to_le_bytes()[..width]);
        }
        if let Some(filters) = self.filters {
            bytes.extend_from_slice(&filters.to_bytes());
        }
    }

    /// Length of the file's rest after the frame header: payload and checksum.
    pub(crate) const fn tail_len(&self) -> u64 {
        self.payload_len as u64 + CHECKSUM_LEN as u64
    }

    /// The block's header without its checksums, which need the payload and the end of the frame.
    pub(crate) fn block(&self, frame: &FrameHeader) -> BlockHeader {
        BlockHeader {
            method: self.method,
            filters: self.filters,
            own: None,
            block_log: frame.block_log,
            number: 0,
            content_len: self.content_len,
            payload_len: self.payload_len,
            payload_crc: 0,
            content_crc: 0,
        }
    }

    /// The block's header with its checksums, computed from the payload and the checksum at the end of the frame.
    pub(crate) fn sealed_block(
        &self,
        frame: &FrameHeader,
        payload: &[u8],
        checksum: [u8; CHECKSUM_LEN],
    ) -> BlockHeader {
        let covered = self.has_own_payload().then(|| {
            let crc = crc32c(payload);
            (crc, append_crc(self.header_crc, payload, crc))
        });
        self.seal(frame, covered, checksum)
    }

    /// Like [`sealed_block`](Self::sealed_block), for a payload whose CRC-32C is known. A stored block's is ignored.
    pub(crate) fn sealed_block_of_crc(
        &self,
        frame: &FrameHeader,
        payload_crc: u32,
        checksum: [u8; CHECKSUM_LEN],
    ) -> BlockHeader {
        let covered = self.has_own_payload().then(|| {
            let before = crc32c_combine(self.header_crc, payload_crc, self.payload_len as usize);
            (payload_crc, before)
        });
        self.seal(frame, covered, checksum)
    }

    /// Whether the payload differs from the contents.
    pub(crate) const fn has_own_payload(&self) -> bool {
        !matches!(self.method, Method::Store)
    }

    /// `covered` is the CRC-32C of the payload, then that of header and payload; `None` if the payload is the contents.
    fn seal(
        &self,
        frame: &FrameHeader,
        covered: Option<(u32, u32)>,
        checksum: [u8; CHECKSUM_LEN],
    ) -> BlockHeader {
        let payload_crc = covered.map(|(payload_crc, _)| payload_crc);
        let before = covered.map_or(self.header_crc, |(_, before)| before);
        // Takes the contribution of the bytes before the contents out of the checksum.
        let content_crc = u32::from_le_bytes(checksum) ^ shift(before, self.content_len as usize);
        BlockHeader {
            payload_crc: payload_crc.unwrap_or(content_crc),
            content_crc,
            ..self.block(frame)
        }
    }
}

/// Extends `crc` by `part`, whose own CRC-32C is `part_crc`.
pub(crate) fn append_crc(crc: u32, part: &[u8], part_crc: u32) -> u32 {
    if part.len() <= ZEROS.len() {
        crc32c_append(crc, part)
    } else {
        crc32c_combine(crc, part_crc, part.len())
    }
}

/// The contribution of `crc` to the checksum of a text that goes on for `len` bytes.
fn shift(crc: u32, len: usize) -> u32 {
    match ZEROS.get(..len) {
        Some(zeros) => crc32c_append(crc, zeros) ^ crc32c(zeros),
        None => crc32c_combine(crc, 0, len),
    }
}

/// Up to this length, reading the bytes again is faster than combining checksums.
static ZEROS: [u8; 1 << 14] = [0; 1 << 14];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Pipeline;

    #[test]
    fn the_block_has_the_checksums_of_its_parts() {
        let contents: Vec<u8> = (0..70_000_u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        for (method, content_len, payload_len) in [
            (Method::Store, 70_000, 70_000),
            (Method::Lz77, 70_000, 40_000),
            (Method::Store, 300, 300),
            (Method::Lz77, 16_384, 200),
            (Method::Lz77, 16_385, 16_384),
        ] {
            let contents = &contents[..content_len as usize];
            let payload = &contents[..payload_len as usize];
            let (filters, header_crc) = (None, 0x1234);
            let single = Single { method, filters, content_len, payload_len, header_crc };
            let frame = FrameHeader {
                pipeline: Pipeline::Lzh,
                block_log: 20,
                level: 3,
                content_size: Some(content_len.into()),
                single: Some(single),
                reach: 0,
                modules: Default::default(),
            };
            let before = match method {
                Method::Store => single.header_crc,
                _ => append_crc(single.header_crc, payload, crc32c(payload)),
            };
            let checksum = append_crc(before, contents, crc32c(contents));
            assert_eq!(checksum, crc32c_append(before, contents));
            let block = single.sealed_block(&frame, payload, checksum.to_le_bytes());
            assert_eq!(block.content_crc, crc32c(contents));
            assert_eq!(block.payload_crc, crc32c(payload));
            let payload_crc = crc32c(payload);
            let again = single.sealed_block_of_crc(&frame, payload_crc, checksum.to_le_bytes());
            assert_eq!(again, block);
        }
    }
}
