//! The block header. It suffices to decode the block alone, and to find it in a damaged file.

use std::io::Read;

use crc32c::{crc32c, crc32c_combine};

use super::kinds::{HAS_DISTANT, IS_FILTERED, MIN_BLOCK_LOG};
use super::{BLOCK_MARKER, Fault, FrameHeader, Method, read_array};
use crate::codec::distant;
use crate::codec::filter::{DESCRIPTOR_LEN, FilterChain};

/// Length of the part that every block header has.
const COMMON: usize = 11;
/// Length of a stored block's header.
pub(crate) const STORE_LEN: usize = COMMON + 8;
/// Length of the header of a block of any other method.
pub(crate) const CODED_LEN: usize = COMMON + 16;
/// Length of the further fields of a block with distant matches.
const DISTANT_LEN: usize = 12;
/// Length of the longest header, that of a filtered block with distant matches.
pub(crate) const MAX_LEN: usize = CODED_LEN + DESCRIPTOR_LEN + DISTANT_LEN;

/// The longest contents of a block of method [`Method::Lz77`].
const MAX_LZ77_LEN: u32 = 1 << 24;

/// The fields for the own bytes, in the header of a block with distant matches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OwnBytes {
    /// Their length, at least 1.
    pub(crate) len: u32,
    /// Their CRC-32C.
    pub(crate) crc: u32,
    /// Length of the list of matches at the beginning of the payload.
    pub(crate) list_len: u32,
}

/// A block header that is valid by itself; [`BlockHeader::check`] compares it with its frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BlockHeader {
    pub(crate) method: Method,
    /// The filters applied to the contents before the method.
    pub(crate) filters: Option<FilterChain>,
    /// For a block with distant matches, its own bytes: method and filters apply to them.
    pub(crate) own: Option<OwnBytes>,
    /// Base-2 logarithm of the frame's block size.
    pub(crate) block_log: u8,
    /// Number of the block in its frame, from 0.
    pub(crate) number: u32,
    /// Length of the contents, at least 1.
    pub(crate) content_len: u32,
    /// Length of the payload.
    pub(crate) payload_len: u32,
    /// CRC-32C of the payload.
    pub(crate) payload_crc: u32,
    /// CRC-32C of the contents.
    pub(crate) content_crc: u32,
}

/// A header as bytes, on the stack.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HeaderBytes {
    bytes: [u8; MAX_LEN],
    len: usize,
}

impl std::ops::Deref for HeaderBytes {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl BlockHeader {
    /// Length of the header in bytes.
    pub(crate) const fn len(&self) -> usize {
        header_len(self.kind())
    }

    /// The method, and bits for the optional fields, as in the header.
    const fn kind(&self) -> u8 {
        let filtered = if self.filters.is_some() { IS_FILTERED } else { 0 };
        let distant = if self.own.is_some() { HAS_DISTANT } else { 0 };
        self.method.id() | filtered | distant
    }

    /// Where the block begins in the contents of its frame, in bytes.
    pub(crate) fn position(&self) -> u64 {
        u64::from(self.number) << self.block_log
    }

    /// Length of header and payload in bytes: what the index records.
    pub(crate) fn block_len(&self) -> u32 {
        // At most 40 + 2^26: `read` and the encoder keep payloads no longer than their contents.
        self.len() as u32 + self.payload_len
    }

    /// The header as bytes.
    pub(crate) fn to_bytes(self) -> HeaderBytes {
        let mut bytes = [0; MAX_LEN];
        bytes[0..2].copy_from_slice(&BLOCK_MARKER);
        bytes[2] = self.kind() | (self.block_log - MIN_BLOCK_LOG) << 4;
        bytes[3..7].copy_from_slice(&self.number.to_le_bytes());
        bytes[7..11].copy_from_slice(&self.content_len.to_le_bytes());
        let len = self.len();
        if self.kind() != Method::Store.id() {
            bytes[11..15].copy_from_slice(&self.payload_len.to_le_bytes());
            bytes[15..19].copy_from_slice(&self.payload_crc.to_le_bytes());
        }
        if let Some(filters) = self.filters {
            bytes[FILTERS..FILTERS + DESCRIPTOR_LEN].copy_from_slice(&filters.to_bytes());
        }
        if let Some(own) = self.own {
            let words = [own.len, own.crc, own.list_len].map(u32::to_le_bytes);
            bytes[len - 8 - DISTANT_LEN..len - 8].copy_from_slice(words.as_flattened());
        }
        bytes[len - 8..len - 4].copy_from_slice(&self.content_crc.to_le_bytes());
        let checksum = crc32c(&bytes[..len - 4]);
        bytes[len - 4..len].copy_from_slice(&checksum.to_le_bytes());
        HeaderBytes { bytes, len }
    }

    /// Reads the rest of a block header, after its marker.
    pub(crate) fn read_after_marker(reader: &mut impl Read) -> Result<Self, Fault> {
        let mut bytes = [0; MAX_LEN];
        bytes[..2].copy_from_slice(&BLOCK_MARKER);
        reader.read_exact(&mut bytes[2..STORE_LEN])?;
        let len = header_len(bytes[2] & 15);
        reader.read_exact(&mut bytes[STORE_LEN..len])?;
        Self::parse(&bytes[..len])
    }

    /// Parses a header, marker included, at the start of `bytes`.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, Fault> {
        if bytes.len() < STORE_LEN {
            return Err(Fault::Truncated);
        }
        if bytes[..2] != BLOCK_MARKER {
            return Err(Fault::Corrupt("there is no block here"));
        }
        let kind = bytes[2] & 15;
        let len = header_len(kind);
        let bytes = bytes.get(..len).ok_or(Fault::Truncated)?;
        let word = |at: usize| {
            u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        if crc32c(&bytes[..len - 4]) != word(len - 4) {
            return Err(Fault::Corrupt("the block header's checksum does not agree"));
        }
        let method = Method::from_id(kind & !(IS_FILTERED | HAS_DISTANT))?;
        let filters = match bytes.get(FILTERS..len - 8).and_then(<[u8]>::first_chunk) {
            Some(filters) if kind & IS_FILTERED != 0 => Some(
                FilterChain::from_bytes(filters)
                    .ok_or(Fault::Unsupported("a filter of the block is not known"))?,
            ),
            _ => None,
        };
        let content_len = word(7);
        let content_crc = word(len - 8);
        let stored = kind == Method::Store.id();
        let own = (kind & HAS_DISTANT != 0).then(|| OwnBytes {
            len: word(len - 20),
            crc: word(len - 16),
            list_len: word(len - 12),
        });
        let header = Self {
            method,
            filters,
            own,
            block_log: MIN_BLOCK_LOG + (bytes[2] >> 4),
            number: word(3),
            content_len,
            payload_len: if stored { content_len } else { word(11) },
            payload_crc: if stored { content_crc } else { word(15) },
            content_crc,
        };
        header.check_lengths()?;
        Ok(header)
    }

    /// Compares the lengths with each other and with the block size.
    pub(crate) fn check_lengths(&self) -> Result<(), Fault> {
        let content_len = self.content_len;
        if self.block_log > 26 {
            return Err(Fault::Corrupt("the block size is out of range"));
        }
        if content_len == 0 || content_len > 1 << self.block_log {
            return Err(Fault::Corrupt("the block's length is out of range"));
        }
        let (coded_len, payload_len) = match &self.own {
            None => (content_len, Some(self.payload_len)),
            Some(own) => (own.len, self.payload_len.checked_sub(own.list_len)),
        };
        if let Some(own) = &self.own
            && !(own.len > 0
                && content_len.checked_sub(own.len).is_some_and(|len| len >= distant::MIN_LEN)
                && self.payload_len <= content_len)
        {
            return Err(Fault::Corrupt("the length of the block's own bytes is out of range"));
        }
        if self.method == Method::Lz77 && coded_len > MAX_LZ77_LEN {
            return Err(Fault::Corrupt("the block is too long for its method"));
        }
        let payload_fits = payload_len.is_some_and(|payload_len| match self.method {
            Method::Store => payload_len == coded_len,
            Method::Fill => payload_len == 1 && coded_len > 1,
            Method::Lz77 | Method::Bwt => (1..coded_len).contains(&payload_len),
        });
        if !payload_fits {
            return Err(Fault::Corrupt("the payload's length is out of range"));
        }
        if self.filters.is_some() && matches!(self.method, Method::Store | Method::Fill) {
            return Err(Fault::Corrupt("a block of this method has no filters"));
        }
        Ok(())
    }

    /// Checks that the block may be number `number` of a frame with `frame` as its header.
    pub(crate) fn check(&self, frame: &FrameHeader, number: u64) -> Result<(), Fault> {
        if self.block_log != frame.block_log {
            return Err(Fault::Corrupt("the block's size class is not that of its frame"));
        }
        if u64::from(self.number) != number {
            return Err(Fault::Corrupt("the block is not the next one of its frame"));
        }
        if self.own.is_some() && frame.reach == 0 {
            return Err(Fault::Corrupt("the frame does not permit the block's distant matches"));
        }
        if !frame.pipeline.permits(self.method) {
            return Err(Fault::Corrupt("the pipeline does not permit the block's method"));
        }
        let modules = self.filters.iter().flat_map(|filters| filters.modules());
        if modules.map(usize::from).any(|number| number >= frame.modules.records().len()) {
            return Err(Fault::Corrupt(
                "a filter of the block names a module that the frame lacks",
            ));
        }
        Ok(())
    }

    /// For a block with distant matches: the list of matches, the header of the own bytes as if they were a block's
    /// contents, and the payload of the own bytes. `payload` is the block's; any damage to it shows when the own bytes
    /// are decoded. `None` for any other block.
    pub(crate) fn split<'a>(&self, payload: &'a [u8]) -> Option<(&'a [u8], Self, &'a [u8])> {
        let (list, coded) = payload.split_at_checked(self.own?.list_len as usize)?;
        let header = self.of_own_bytes(list)?;
        Some((list, Self { payload_len: coded.len() as u32, ..header }, coded))
    }

    /// The header of the own bytes, like that of [`split`](Self::split), from the list alone: for a payload with its
    /// rest unread.
    pub(crate) fn of_own_bytes(&self, list: &[u8]) -> Option<Self> {
        let own = self.own?;
        let payload_len = self.payload_len.checked_sub(list.len() as u32)?;
        Some(Self {
            own: None,
            content_len: own.len,
            payload_len,
            // Takes the list's contribution out of the whole payload's checksum.
            payload_crc: self.payload_crc ^ crc32c_combine(crc32c(list), 0, payload_len as usize),
            content_crc: own.crc,
            ..*self
        })
    }
}

/// Where the filters begin in a filtered block's header.
const FILTERS: usize = COMMON + 8;

/// Length of the header of a block with this method and these optional fields. Unknown methods are taken to have the
/// length of known ones: the checksum then shows whether the header is damaged.
const fn header_len(kind: u8) -> usize {
    let filters = if kind & IS_FILTERED != 0 { DESCRIPTOR_LEN } else { 0 };
    let distant = if kind & HAS_DISTANT != 0 { DISTANT_LEN } else { 0 };
    if kind == 0 { STORE_LEN } else { CODED_LEN + filters + distant }
}

/// Whatever comes after a frame header or a block.
pub(crate) enum NextStructure {
    Block(BlockHeader),
    Index,
}

/// Reads a marker and, if it is a block's, the block header.
pub(crate) fn read_next(reader: &mut impl Read) -> Result<NextStructure, Fault> {
    match read_array(reader)? {
        BLOCK_MARKER => BlockHeader::read_after_marker(reader).map(NextStructure::Block),
        super::INDEX_MARKER => Ok(NextStructure::Index),
        _ => Err(Fault::Corrupt("there is neither a block nor an index here")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Pipeline;

    fn sample(method: Method) -> BlockHeader {
        let mut header = BlockHeader {
            method,
            filters: None,
            own: None,
            block_log: 20,
            number: 0x0102_0304,
            content_len: 1 << 20,
            payload_len: 1 << 20,
            payload_crc: 0xdead_beef,
            content_crc: 0xdead_beef,
        };
        if method != Method::Store {
            header.payload_len = if method == Method::Fill { 1 } else { 999_999 };
            header.payload_crc = 77;
        }
        header
    }

    #[test]
    fn round_trip_and_damage() {
        let chain = FilterChain::from_name("delta8x3,zigzag8,transpose8");
        let own = |len, list_len| Some(OwnBytes { len, crc: 0x1234_5678, list_len });
        for (method, filters, own) in [
            (Method::Store, None, None),
            (Method::Fill, None, None),
            (Method::Lz77, None, None),
            (Method::Bwt, None, None),
            (Method::Lz77, chain, None),
            (Method::Bwt, chain, None),
            (Method::Store, None, own(900_000, 148_576)),
            (Method::Lz77, chain, own(1_000_000, 100_000)),
            (Method::Bwt, None, own((1 << 20) - 32, 4)),
        ] {
            let header = BlockHeader { filters, own, ..sample(method) };
            let bytes = header.to_bytes();
            assert_eq!(BlockHeader::parse(&bytes).unwrap(), header);
            let Ok(NextStructure::Block(streamed)) = read_next(&mut &bytes[..]) else { panic!() };
            assert_eq!(streamed, header);
            for bit in 0..bytes.len() * 8 {
                let mut damaged = [0xA5; 72];
                damaged[..bytes.len()].copy_from_slice(&bytes);
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(BlockHeader::parse(&damaged).is_err(), "{method} bit {bit}");
            }
            for len in 0..bytes.len() {
                assert!(BlockHeader::parse(&bytes[..len]).is_err());
                assert!(matches!(read_next(&mut &bytes[..len]), Err(Fault::Truncated)));
            }
        }
    }

    #[test]
    fn lengths_out_of_range_are_refused() {
        let chain = FilterChain::from_name("bf16");
        let distant = |method, len, list_len| BlockHeader {
            own: Some(OwnBytes { len, crc: 0, list_len }),
            ..sample(method)
        };
        let cases = [
            ("empty", BlockHeader { content_len: 0, ..sample(Method::Store) }),
            ("too long", BlockHeader { content_len: (1 << 20) + 1, ..sample(Method::Store) }),
            ("huge", BlockHeader { content_len: u32::MAX, ..sample(Method::Lz77) }),
            ("fill of 2", BlockHeader { payload_len: 2, ..sample(Method::Fill) }),
            ("fill of 0", BlockHeader { payload_len: 0, ..sample(Method::Fill) }),
            ("short fill", BlockHeader { content_len: 1, ..sample(Method::Fill) }),
            (
                "long LZ77",
                BlockHeader { block_log: 25, content_len: (1 << 24) + 1, ..sample(Method::Lz77) },
            ),
            ("no payload", BlockHeader { payload_len: 0, ..sample(Method::Lz77) }),
            ("no gain", BlockHeader { payload_len: 1 << 20, ..sample(Method::Lz77) }),
            ("payload", BlockHeader { payload_len: u32::MAX, ..sample(Method::Bwt) }),
            ("block size", BlockHeader { block_log: 27, ..sample(Method::Bwt) }),
            ("all its own", distant(Method::Lz77, (1 << 20) - 31, 4)),
            ("nothing its own", distant(Method::Store, 0, 1 << 20)),
            ("more own than contents", distant(Method::Store, (1 << 20) + 1, 0)),
            ("list longer than payload", distant(Method::Lz77, 999_999, 1_000_000)),
            ("list of all the payload", distant(Method::Lz77, 999_999, 999_999)),
            ("stored own bytes", distant(Method::Store, 900_000, 148_575)),
            ("stored", BlockHeader { filters: chain, ..sample(Method::Store) }),
            ("filled", BlockHeader { filters: chain, ..sample(Method::Fill) }),
        ];
        for (what, header) in cases {
            assert!(
                matches!(BlockHeader::parse(&header.to_bytes()), Err(Fault::Corrupt(_))),
                "{what}"
            );
        }
    }

    #[test]
    fn own_bytes_are_a_block_of_their_own() {
        let (list, coded) = (b"the list", b"what the own bytes were coded to");
        let payload = [&list[..], coded].concat();
        let header = BlockHeader {
            own: Some(OwnBytes { len: 77, crc: 5, list_len: list.len() as u32 }),
            payload_len: payload.len() as u32,
            payload_crc: crc32c(&payload),
            ..sample(Method::Lz77)
        };
        let (list_found, own, coded_found) = header.split(&payload).unwrap();
        assert_eq!((list_found, coded_found), (&list[..], &coded[..]));
        assert_eq!((own.content_len, own.content_crc, own.own), (77, 5, None));
        assert_eq!((own.payload_len, own.payload_crc), (coded.len() as u32, crc32c(coded)));
        assert!(header.split(&payload[..7]).is_none());
        assert!(own.split(&payload).is_none());
    }

    #[test]
    fn a_block_must_suit_its_frame() {
        let frame = FrameHeader {
            pipeline: Pipeline::Lzh,
            block_log: 20,
            level: 0,
            content_size: None,
            single: None,
            reach: 0,
            modules: Default::default(),
        };
        let header = sample(Method::Lz77);
        assert!(header.check(&frame, 0x0102_0304).is_ok());
        assert!(header.check(&frame, 5).is_err());
        assert!(
            header.check(&FrameHeader { block_log: 21, ..frame.clone() }, 0x0102_0304).is_err()
        );
        assert!(sample(Method::Bwt).check(&frame, 0x0102_0304).is_err());
        let own = Some(OwnBytes { len: 999_990, crc: 0, list_len: 9 });
        let distant = BlockHeader { own, ..header };
        assert!(distant.check(&frame, 0x0102_0304).is_err());
        let far = FrameHeader { reach: 1, ..frame.clone() };
        assert!(distant.check(&far, 0x0102_0304).is_ok());
        assert!(BlockHeader { number: 0, ..distant }.check(&far, 0).is_ok());
        let bwt = FrameHeader { pipeline: Pipeline::Bwt, ..frame.clone() };
        assert!(header.check(&bwt, 0x0102_0304).is_ok());
        let store = FrameHeader { pipeline: Pipeline::Store, ..frame };
        assert!(header.check(&store, 0x0102_0304).is_err());
    }
}
