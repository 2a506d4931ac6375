//! The frame header: everything a decoder must know before the first block.

use std::io::{self, Read};

use crc32c::{crc32c, crc32c_append};

use super::kinds::MIN_BLOCK_LOG;
use super::{Fault, MAGIC, MAX_BLOCKS, ModuleTable, Pipeline, Single, VERSION, read_array};
use crate::codec::filter::DESCRIPTOR_LEN;

/// Length of the part that all headers have, without the checksum.
const FIXED: usize = 13;
/// Length of the shortest header.
pub(crate) const MIN_LEN: usize = FIXED + 4;
/// Length of the longest header, without the modules after it.
const MAX_LEN: usize = FIXED + 6 + DESCRIPTOR_LEN + 256 + 256 + 4;

const HAS_CONTENT_SIZE: u8 = 1 << 0;
const HAS_FILTERS: u8 = 1 << 1;
const HAS_FIELDS: u8 = 1 << 2;
const IS_SINGLE: u8 = 1 << 3;
/// The lowest bit, in a single frame's flags, of the lengths' width.
const WIDTH_SHIFT: u8 = 4;
const KNOWN_FLAGS: u8 = HAS_CONTENT_SIZE | HAS_FILTERS | HAS_FIELDS;
const KNOWN_FLAGS_OF_SINGLE: u8 = HAS_FILTERS | HAS_FIELDS | IS_SINGLE | 3 << WIDTH_SHIFT;

/// An unknown optional field makes the frame unreadable if its identifier is this or higher.
const FIRST_CRITICAL_FIELD: u8 = 128;

/// The optional field with the reach of distant matches.
const REACH_FIELD: u8 = 128;
/// Length of that field, with identifier and length.
const REACH_FIELD_LEN: u8 = 10;

/// No reach is longer than the longest contents of a frame.
const MAX_REACH: u64 = MAX_BLOCKS << 26;

/// A valid frame header, with the modules after it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FrameHeader {
    pub(crate) pipeline: Pipeline,
    /// Base-2 logarithm of the block size.
    pub(crate) block_log: u8,
    /// The level that the writer was asked for, 0 if not recorded. For information only.
    pub(crate) level: u8,
    /// Length of the frame's contents, if the writer knew it when it began the frame.
    pub(crate) content_size: Option<u64>,
    /// For a single frame, the description of its only block.
    pub(crate) single: Option<Single>,
    /// How far back distant matches may reach, in own bytes of blocks; 0 if no block has distant matches.
    pub(crate) reach: u64,
    /// The programs that undo the frame's own filters.
    pub(crate) modules: ModuleTable,
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

    /// The header and the modules as bytes.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(MIN_LEN + 8);
        bytes.extend_from_slice(&MAGIC);
        let of_modules = if self.modules.is_empty() { 0 } else { HAS_FILTERS };
        if let Some(single) = self.single {
            let level = self.level | single.kind() << 4;
            let flags = IS_SINGLE | (single.width() as u8) << WIDTH_SHIFT | of_modules;
            bytes.extend_from_slice(&[VERSION, self.pipeline.id(), self.block_log, level, flags]);
            single.append_to(&mut bytes);
            self.modules.append_list(&mut bytes);
            bytes.push(short_check(&bytes));
            self.modules.append_modules(&mut bytes);
            return bytes;
        }
        let of_size = if self.content_size.is_some() { HAS_CONTENT_SIZE } else { 0 };
        let of_fields = if self.reach > 0 { HAS_FIELDS } else { 0 };
        let flags = of_modules | of_size | of_fields;
        bytes.extend_from_slice(&[VERSION, self.pipeline.id(), self.block_log, self.level, flags]);
        if let Some(size) = self.content_size {
            bytes.extend_from_slice(&size.to_le_bytes());
        }
        self.modules.append_list(&mut bytes);
        if self.reach > 0 {
            bytes.extend_from_slice(&[REACH_FIELD_LEN, REACH_FIELD, 8]);
            bytes.extend_from_slice(&self.reach.to_le_bytes());
        }
        let checksum = crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        self.modules.append_modules(&mut bytes);
        bytes
    }

    /// Reads a header and its modules, and returns them with their length in bytes; `None` if the input ends before the
    /// first byte.
    pub(crate) fn read(reader: &mut impl Read) -> Result<Option<(Self, usize)>, Fault> {
        let mut bytes = Vec::with_capacity(MIN_LEN + 8);
        if !read_magic(reader, &mut bytes)? {
            return Ok(None);
        }
        let [version, pipeline, block_log, level, flags] = read_array(reader)?;
        // Another version may have another layout, even of its checksum.
        if version != VERSION {
            return Err(Fault::Unsupported("this version of the format is not known"));
        }
        bytes.extend_from_slice(&[version, pipeline, block_log, level, flags]);
        let is_single = flags & IS_SINGLE != 0;
        if flags & !(if is_single { KNOWN_FLAGS_OF_SINGLE } else { KNOWN_FLAGS }) != 0 {
            return Err(Fault::Unsupported("a flag of the frame header is not known"));
        }
        let kind = level >> 4;
        if is_single {
            let width = usize::from(flags >> WIDTH_SHIFT);
            read_more(reader, &mut bytes, Single::fields_len(kind, width))?;
        }
        let fields_of_single = FIXED..bytes.len();
        let mut content_size = None;
        if flags & HAS_CONTENT_SIZE != 0 {
            let size: [u8; 8] = read_array(reader)?;
            bytes.extend_from_slice(&size);
            content_size = Some(u64::from_le_bytes(size));
        }
        let filters = read_list(reader, &mut bytes, flags & HAS_FILTERS != 0)?;
        let fields = read_list(reader, &mut bytes, flags & HAS_FIELDS != 0)?;
        let agrees = if is_single {
            let [check] = read_array(reader)?;
            let agrees = short_check(&bytes) == check;
            bytes.push(check);
            agrees
        } else {
            let checksum = read_array(reader)?;
            let agrees = crc32c(&bytes) == u32::from_le_bytes(checksum);
            bytes.extend_from_slice(&checksum);
            agrees
        };
        if !agrees {
            return Err(Fault::Corrupt("the frame header's checksum does not agree"));
        }

        let pipeline = Pipeline::from_id(pipeline)?;
        if !(MIN_BLOCK_LOG..=pipeline.max_block_log()).contains(&block_log) {
            return Err(Fault::Corrupt("the block size is not one that the pipeline permits"));
        }
        let reach = fields.map_or(Ok(0), |fields| read_fields(&bytes[fields]))?;
        if is_single && reach > 0 {
            return Err(Fault::Corrupt("a single frame has no distant matches"));
        }
        let modules = match filters {
            Some(filters) => ModuleTable::read(&bytes[filters], reader)?,
            None => ModuleTable::default(),
        };
        let len = bytes.len() + modules.bytes();
        let single = None;
        let mut header = Self { pipeline, block_log, level, content_size, single, reach, modules };
        if content_size.is_some_and(|size| header.block_count(size) > MAX_BLOCKS) {
            return Err(Fault::Corrupt("the frame declares more blocks than a frame may hold"));
        }
        if is_single {
            let width = usize::from(flags >> WIDTH_SHIFT);
            let mut single = Single::parse(kind, width, &bytes[fields_of_single])?;
            let modules = header.modules.records().iter();
            single.header_crc =
                modules.fold(crc32c(&bytes), |crc, module| crc32c_append(crc, &module.bytes));
            if single.content_len > 0 {
                let block = single.block(&header);
                block.check_lengths()?;
                block.check(&header, 0)?;
            }
            header.level = level & 15;
            header.content_size = Some(single.content_len.into());
            header.single = Some(single);
        }
        debug_assert!(bytes.len() <= MAX_LEN);
        Ok(Some((header, len)))
    }
}

/// Reads the magic and appends it to `bytes`. Returns false if the input ends before its first byte.
fn read_magic(reader: &mut impl Read, bytes: &mut Vec<u8>) -> Result<bool, Fault> {
    reader.by_ref().take(MAGIC.len() as u64).read_to_end(bytes)?;
    if bytes.is_empty() {
        return Ok(false);
    }
    if !MAGIC.starts_with(bytes) {
        return Err(Fault::NotPz);
    }
    if bytes.len() < MAGIC.len() {
        return Err(Fault::Truncated);
    }
    Ok(true)
}

/// The one-byte check of a single frame's header: it reveals damage to the lengths before they are used. The checksum
/// at the end of the frame covers the header again.
fn short_check(bytes: &[u8]) -> u8 {
    crc32c(bytes) as u8
}

/// Reads `len` bytes and appends them to `bytes`.
fn read_more(reader: &mut impl Read, bytes: &mut Vec<u8>, len: usize) -> Result<(), Fault> {
    let start = bytes.len();
    bytes.resize(start + len, 0);
    Ok(reader.read_exact(&mut bytes[start..])?)
}

/// Reads a list (its length in one byte, then its bytes), appends it to `bytes`, and returns where the list lies there.
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
    read_more(reader, bytes, len.into())?;
    Ok(Some(start..bytes.len()))
}

/// Reads the optional fields: each is an identifier, a length and that many bytes. Returns the reach of distant
/// matches, 0 if no field gives it.
fn read_fields(mut fields: &[u8]) -> Result<u64, Fault> {
    if fields.is_empty() {
        return Err(Fault::Corrupt("the list of optional fields is empty"));
    }
    let mut reach = 0;
    while !fields.is_empty() {
        let cut = |_: io::Error| Fault::Corrupt("an optional field is cut short");
        let mut head = [0; 2];
        fields.read_exact(&mut head).map_err(cut)?;
        let [id, len] = head;
        let (field, rest) = fields
            .split_at_checked(len.into())
            .ok_or(Fault::Corrupt("an optional field is cut short"))?;
        fields = rest;
        if id == REACH_FIELD {
            let bytes = field.try_into().map(u64::from_le_bytes).unwrap_or(0);
            if reach != 0 || !(1..=MAX_REACH).contains(&bytes) {
                return Err(Fault::Corrupt("the reach of distant matches is out of range"));
            }
            reach = bytes;
        } else if id >= FIRST_CRITICAL_FIELD {
            return Err(Fault::Unsupported("a field of the frame header is not known"));
        }
    }
    Ok(reach)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::filter::FilterChain;
    use crate::format::Method;

    fn sample() -> FrameHeader {
        FrameHeader {
            pipeline: Pipeline::Lzh,
            block_log: 20,
            level: 3,
            content_size: None,
            single: None,
            reach: 0,
            modules: ModuleTable::default(),
        }
    }

    /// The header of a single frame, and its bytes.
    fn sample_of_single(
        pipeline: Pipeline,
        method: Method,
        filters: Option<FilterChain>,
        content_len: u32,
        payload_len: u32,
    ) -> (FrameHeader, Vec<u8>) {
        let single = Single { method, filters, content_len, payload_len, header_crc: 0 };
        let mut header = FrameHeader {
            pipeline,
            block_log: 24,
            content_size: Some(content_len.into()),
            single: Some(single),
            ..sample()
        };
        let bytes = header.to_bytes();
        header.single = Some(Single { header_crc: crc32c(&bytes), ..single });
        (header, bytes)
    }

    /// The list with the field for the reach of distant matches.
    fn reach_field(reach: u64) -> Vec<u8> {
        [&[REACH_FIELD_LEN, REACH_FIELD, 8][..], &reach.to_le_bytes()].concat()
    }

    /// The bytes of a single frame's header, with the right check.
    fn craft_single(fixed: [u8; 5], tail: &[u8]) -> Vec<u8> {
        let mut bytes = [&MAGIC[..], &fixed, tail].concat();
        bytes.push(short_check(&bytes));
        bytes
    }

    #[test]
    fn single_blocks_round_trip_in_few_bytes() {
        let chain = FilterChain::from_name("rotate4,transpose4");
        for (method, pipeline, filters) in [
            (Method::Store, Pipeline::Lzh, None),
            (Method::Fill, Pipeline::Store, None),
            (Method::Lz77, Pipeline::Fse, None),
            (Method::Bwt, Pipeline::Bwt, None),
            (Method::Bwt, Pipeline::Bwt, chain),
            (Method::Lz77, Pipeline::Lzh, chain),
        ] {
            for (content_len, width) in
                [(2, 1), (256, 1), (257, 2), (65_536, 2), (65_537, 3), (1 << 24, 3)]
            {
                let (payload_len, lengths) = match method {
                    Method::Store => (content_len, 1),
                    Method::Fill => (1, 1),
                    _ => (content_len - 1, 2),
                };
                let (header, bytes) =
                    sample_of_single(pipeline, method, filters, content_len, payload_len);
                let len_of_filters = filters.map_or(0, |_| DESCRIPTOR_LEN);
                assert_eq!(bytes.len(), FIXED + lengths * width + len_of_filters + 1);
                assert!(bytes.len() + super::super::CHECKSUM_LEN <= 24 + len_of_filters);
                assert_eq!(read(&bytes).unwrap(), Some((header, bytes.len())));
                for len in 1..bytes.len() {
                    assert!(matches!(read(&bytes[..len]), Err(Fault::Truncated)), "{len}");
                }
                for bit in 0..bytes.len() * 8 {
                    let mut damaged = bytes.clone();
                    damaged[bit / 8] ^= 1 << (bit % 8);
                    assert!(read(&damaged).is_err(), "{method} {content_len} bit {bit}");
                }
            }
        }
        let (header, bytes) = sample_of_single(Pipeline::Lzh, Method::Store, None, 0, 0);
        assert_eq!(bytes.len() + super::super::CHECKSUM_LEN, 18);
        assert_eq!(read(&bytes).unwrap(), Some((header, bytes.len())));
    }

    #[test]
    fn single_blocks_that_break_a_rule_are_refused() {
        let width = |width: u8| IS_SINGLE | width << WIDTH_SHIFT;
        let lz77 = 3 | 2 << 4;
        let good = craft_single([VERSION, 1, 20, lz77, width(1)], &[9, 8]);
        assert!(read(&good).is_ok());
        let with_field =
            craft_single([VERSION, 1, 20, 3, width(1) | HAS_FIELDS], &[9, 5, 127, 3, 1, 2, 3]);
        assert!(read(&with_field).is_ok());
        let of_reach = [&[9][..], &reach_field(1)].concat();
        let refused: [(&str, Vec<u8>); 14] = [
            ("reach", craft_single([VERSION, 1, 20, 3, width(1) | HAS_FIELDS], &of_reach)),
            ("no gain", craft_single([VERSION, 1, 20, lz77, width(1)], &[9, 9])),
            ("wide", craft_single([VERSION, 1, 20, 3, width(2)], &[255, 0])),
            ("wider", craft_single([VERSION, 1, 20, 3, width(3)], &[255, 255, 0])),
            ("no contents, coded", craft_single([VERSION, 1, 20, lz77, width(0)], &[])),
            ("fill of 1", craft_single([VERSION, 1, 20, 3 | 1 << 4, width(1)], &[0])),
            ("method", craft_single([VERSION, 1, 20, 3 | 4 << 4, width(1)], &[9, 8])),
            ("bwt in lzh", craft_single([VERSION, 1, 20, 3 | 3 << 4, width(1)], &[9, 8])),
            ("long", craft_single([VERSION, 1, 16, 3, width(3)], &[0, 0, 1])),
            ("size", craft_single([VERSION, 1, 20, 3, width(1) | 1], &[9, 0, 0, 0, 0, 0, 0, 0, 0])),
            ("flag", craft_single([VERSION, 1, 20, 3, width(1) | 64], &[9])),
            ("width alone", craft([VERSION, 1, 20, 3, 1 << WIDTH_SHIFT], &[])),
            ("field", craft_single([VERSION, 1, 20, 3, width(1) | HAS_FIELDS], &[9, 2, 129, 0])),
            ("filter", craft_single([VERSION, 1, 20, 3, width(1) | HAS_FILTERS], &[9, 1, 0])),
        ];
        for (what, bytes) in refused {
            assert!(
                matches!(read(&bytes), Err(Fault::Corrupt(_) | Fault::Unsupported(_))),
                "{what}"
            );
        }
    }

    fn read(mut bytes: &[u8]) -> Result<Option<(FrameHeader, usize)>, Fault> {
        FrameHeader::read(&mut bytes)
    }

    /// The bytes of a header with the given parts and the right checksum.
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
                for reach in [0, 1, MAX_REACH] {
                    let header = FrameHeader { pipeline, content_size, reach, ..sample() };
                    let bytes = header.to_bytes();
                    assert_eq!(read(&bytes).unwrap(), Some((header, bytes.len())));
                }
            }
        }
        assert_eq!(sample().to_bytes().len(), MIN_LEN);
        assert!(read(b"").unwrap().is_none());
    }

    #[test]
    fn optional_parts_are_skipped_or_refused() {
        let skipped = craft([VERSION, 1, 20, 3, HAS_FIELDS], &[5, 127, 3, 1, 2, 3]);
        assert_eq!(read(&skipped).unwrap(), Some((sample(), skipped.len())));
        let refused: [(&str, Vec<u8>); 15] = [
            ("critical field", craft([VERSION, 1, 20, 3, HAS_FIELDS], &[2, 129, 0])),
            ("short reach", craft([VERSION, 1, 20, 3, HAS_FIELDS], &[3, 128, 1, 1])),
            ("no reach", craft([VERSION, 1, 20, 3, HAS_FIELDS], &reach_field(0))),
            ("far reach", craft([VERSION, 1, 20, 3, HAS_FIELDS], &reach_field(MAX_REACH + 1))),
            (
                "two reaches",
                craft(
                    [VERSION, 1, 20, 3, HAS_FIELDS],
                    &[&[20][..], &reach_field(1)[1..], &reach_field(1)[1..]].concat(),
                ),
            ),
            ("field cut short", craft([VERSION, 1, 20, 3, HAS_FIELDS], &[3, 1, 2, 0])),
            ("no field", craft([VERSION, 1, 20, 3, HAS_FIELDS], &[0])),
            ("a filter", craft([VERSION, 1, 20, 3, HAS_FILTERS], &[2, 1, 0])),
            ("no filter", craft([VERSION, 1, 20, 3, HAS_FILTERS], &[0])),
            ("flag", craft([VERSION, 1, 20, 3, 128], &[])),
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
