//! What a file of frames holds, without decoding it.
use std::io::{Read, Seek};

use crate::error::{Error, Place};
use crate::format::Method;
use crate::pipeline::{Level, Pipeline};

/// One frame of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FrameInfo {
    /// Number of the frame in the file, from 0.
    pub number: u64,
    /// Where it begins in the file, in bytes.
    pub offset: u64,
    /// Its length in the file, in bytes: header, blocks, index and footer.
    pub compressed_size: u64,
    /// Length of its contents, in bytes.
    pub content_size: u64,
    /// Version of the format.
    pub version: u8,
    /// The stages that its blocks went through.
    pub pipeline: Pipeline,
    /// The level that it was made with, if recorded.
    pub level: Option<Level>,
    /// Length of every block's contents but the last's, in bytes.
    pub block_size: u64,
    /// Number of blocks.
    pub block_count: u64,
    /// Host memory that decoding one block at a time takes, in bytes.
    pub decode_memory: u64,
    /// Whether the header records the length of the contents.
    pub size_in_header: bool,
    /// Its blocks, in order; empty unless asked for.
    pub blocks: Vec<BlockInfo>,
}

/// One block of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockInfo {
    /// Number of the block in its frame, from 0.
    pub number: u64,
    /// How it is coded.
    pub method: Method,
    /// Where its header begins in the file, in bytes.
    pub offset: u64,
    /// Length of its header and payload, in bytes.
    pub compressed_size: u64,
    /// Where its contents begin in the frame's contents, in bytes.
    pub content_offset: u64,
    /// Length of its contents, in bytes.
    pub content_size: u64,
    /// CRC-32C of its payload.
    pub payload_checksum: u32,
    /// CRC-32C of its contents.
    pub content_checksum: u32,
}

/// Lists the frames of a file; with `blocks`, the blocks of each too (one short read each).
///
/// Headers, indices and footers are checked, contents are not.
pub fn list(reader: &mut (impl Read + Seek), blocks: bool) -> Result<Vec<FrameInfo>, Error> {
    let _ = (reader, blocks);
    Err(Error::Unsupported { what: "everything", place: Place::default() })
}
