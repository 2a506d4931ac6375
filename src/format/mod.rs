// The text links to its companions by file. Here these links lead to the companions' modules instead, because the first
// definition of a link counts.
//! [lz77]: self::lz77
//! [bwt]: self::bwt
#![doc = include_str!("FORMAT.md")]

mod block_header;
mod fault;
mod footer;
mod frame_header;
mod index;
mod kinds;
mod modules;
mod single;

#[doc = include_str!("lz77.md")]
pub mod lz77 {}

#[doc = include_str!("bwt.md")]
pub mod bwt {}

use std::io::{self, Read};

pub(crate) use block_header::{
    BlockHeader, CODED_LEN, MAX_LEN as MAX_BLOCK_HEADER_LEN, NextStructure, OwnBytes, read_next,
};
pub(crate) use fault::Fault;
pub(crate) use footer::{Footer, LEN as FOOTER_LEN};
pub(crate) use frame_header::{FrameHeader, MIN_LEN as MIN_FRAME_HEADER_LEN};
pub(crate) use index::{Index, IndexChecker, IndexWriter};
pub(crate) use kinds::MIN_BLOCK_LOG;
pub use kinds::{Method, Pipeline};
#[cfg(feature = "modules")]
pub(crate) use modules::LANE_LOGS;
pub(crate) use modules::{MAX_MODULES, ModuleRecord, ModuleTable};
pub(crate) use single::{
    CHECKSUM_LEN, MAX_CONTENT_LEN as MAX_SINGLE_CONTENT_LEN, Single, append_crc,
    least_full_block_len,
};

/// First bytes of every frame: a byte that no text has, the name, and line ends that a transfer in text mode would
/// damage.
pub(crate) const MAGIC: [u8; 8] = [0x89, b'P', b'Z', b'F', 0x0D, 0x0A, 0x1A, 0x0A];
/// Version of the format that this library writes and reads.
pub(crate) const VERSION: u8 = 1;
/// First bytes of every block.
pub(crate) const BLOCK_MARKER: [u8; 2] = [0xB7, 0x42];
/// First bytes of every index.
pub(crate) const INDEX_MARKER: [u8; 2] = [0xB7, 0x49];
/// The most blocks in a frame, so that its index fits in 1 MiB. Longer contents take several frames.
pub(crate) const MAX_BLOCKS: u64 = 1 << 18;

fn read_array<const N: usize>(reader: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    reader.read_exact(&mut bytes)?;
    Ok(bytes)
}
