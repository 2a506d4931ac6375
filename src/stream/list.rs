//! What a file of frames holds, without decoding it.

use std::io::{Read, Seek, SeekFrom};

use super::directory::{FrameEntry, read_directory};
use crate::error::{Error, Place};
use crate::format::{
    BlockHeader, CHECKSUM_LEN, CODED_LEN, Fault, Method, Pipeline, Single, VERSION,
};
use crate::pipeline::Level;
use crate::pipeline::buffer::Buffer;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::memory::Cost;

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
    /// Where its header begins in the file, in bytes. A frame of a single block may have no such header: then, where its
    /// payload begins.
    pub offset: u64,
    /// Length of its header, if it has one, and payload, in bytes.
    pub compressed_size: u64,
    /// Where its payload begins in the file, in bytes.
    pub payload_offset: u64,
    /// Length of its payload, in bytes.
    pub payload_size: u64,
    /// Where its contents begin in the frame's contents, in bytes.
    pub content_offset: u64,
    /// Length of its contents, in bytes.
    pub content_size: u64,
    /// CRC-32C of its payload.
    pub payload_checksum: u32,
    /// CRC-32C of its contents.
    pub content_checksum: u32,
}

/// Lists the frames of a file; with `blocks`, the blocks of each too, at one short read for each.
///
/// Headers, indices and footers are checked, contents are not.
///
/// # Errors
/// Those of reading, and the first fault of the file, with its place.
///
/// ```
/// use std::io::Cursor;
/// let compressed = pz::compress(&[1; 3_000_000], &pz::Options::new().block_size(1 << 20))?;
/// let frames = pz::list(&mut Cursor::new(&compressed), true)?;
/// assert_eq!(frames.len(), 1);
/// assert_eq!(frames[0].content_size, 3_000_000);
/// assert_eq!(frames[0].blocks.len(), 3);
/// assert_eq!(frames[0].blocks[1].content_offset, 1 << 20);
/// # Ok::<(), pz::Error>(())
/// ```
pub fn list(reader: &mut (impl Read + Seek), blocks: bool) -> Result<Vec<FrameInfo>, Error> {
    let engine = CpuEngine::new();
    let mut infos = Vec::new();
    for (number, frame) in (0..).zip(read_directory(reader, u64::MAX)?) {
        infos.push(FrameInfo {
            number,
            offset: frame.offset,
            compressed_size: frame.footer.frame_len,
            content_size: frame.footer.content_size,
            version: VERSION,
            pipeline: frame.header.pipeline,
            level: Level::new(frame.header.level.into()).ok(),
            block_size: frame.header.block_size() as u64,
            block_count: frame.block_count(),
            decode_memory: Cost::of_decoding(&engine, &frame.header).least(),
            size_in_header: frame.header.content_size.is_some(),
            blocks: if blocks { list_blocks(reader, number, &frame)? } else { Vec::new() },
        });
    }
    Ok(infos)
}

fn list_blocks(
    reader: &mut (impl Read + Seek),
    frame_number: u64,
    frame: &FrameEntry,
) -> Result<Vec<BlockInfo>, Error> {
    let at = |offset| Place::new(frame_number, offset);
    let index = frame.index(reader).map_err(|fault| fault.at(at(frame.offset)))?;
    let mut infos = Vec::new();
    for number in 0..index.block_count() {
        let Some(range) = index.block(number) else { break };
        let offset = frame.offset + range.start;
        let place = at(offset).in_block(number);
        let content_offset = number << frame.header.block_log;
        let header = match &frame.header.single {
            None => read_header(reader, offset, range.end - range.start)
                .and_then(|header| frame.check_block(&header, number, &range).map(|()| header)),
            Some(single) => read_single(reader, frame, single, offset),
        }
        .map_err(|fault| fault.at(place))?;
        infos.push(BlockInfo {
            number,
            method: header.method,
            offset,
            compressed_size: range.end - range.start,
            payload_offset: frame.offset + range.end - u64::from(header.payload_len),
            payload_size: header.payload_len.into(),
            content_offset,
            content_size: header.content_len.into(),
            payload_checksum: header.payload_crc,
            content_checksum: header.content_crc,
        });
    }
    Ok(infos)
}

/// Reads the only block of a frame, whose checksums follow from its payload.
fn read_single(
    reader: &mut (impl Read + Seek),
    frame: &FrameEntry,
    single: &Single,
    offset: u64,
) -> Result<BlockHeader, Fault> {
    reader.seek(SeekFrom::Start(offset))?;
    let mut payload = Buffer::default();
    payload.read_exact(reader, single.payload_len as usize)?;
    let mut checksum = [0; CHECKSUM_LEN];
    reader.read_exact(&mut checksum)?;
    Ok(single.sealed_block(&frame.header, &payload, checksum))
}

fn read_header(
    reader: &mut (impl Read + Seek),
    offset: u64,
    len: u64,
) -> Result<BlockHeader, Fault> {
    let mut bytes = [0; CODED_LEN];
    let bytes = &mut bytes[..len.min(CODED_LEN as u64) as usize];
    reader.seek(SeekFrom::Start(offset))?;
    reader.read_exact(bytes)?;
    BlockHeader::parse(bytes)
}
