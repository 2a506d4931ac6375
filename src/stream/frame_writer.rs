//! Writes frames in order.

use std::io::{self, IoSlice, Write};

use crc32c::{crc32c, crc32c_combine};

use super::tasks::TakenOut;
use crate::error::Error;
use crate::format::{
    BlockHeader, FrameHeader, IndexWriter, MAX_BLOCKS, MAX_SINGLE_CONTENT_LEN, Method, ModuleTable,
    OwnBytes, Single, append_crc,
};
use crate::pipeline::engine::Coded;

/// A payload up to this length is copied next to its headers, so that its frame takes a single write.
const SMALL: usize = 1 << 12;

/// Writes headers, blocks, indices and footers. When a frame is full, another begins.
#[derive(Debug, Clone)]
pub(crate) struct FrameWriter {
    header: FrameHeader,
    /// Length of the contents of this frame and all later ones, if known.
    declared: Option<u64>,
    index: IndexWriter,
    /// Bytes written of this frame; 0 before its header has been written.
    frame_len: u64,
    /// Bytes written in all.
    written: u64,
    max_blocks: u64,
    /// Whether the last block ended its frame, and nothing has been written since.
    is_ended: bool,
}

impl FrameWriter {
    /// Writes frames like `header`, which declares the length of their contents together.
    pub(crate) fn new(header: FrameHeader) -> Self {
        Self {
            declared: header.content_size,
            header,
            index: IndexWriter::default(),
            frame_len: 0,
            written: 0,
            max_blocks: MAX_BLOCKS,
            is_ended: false,
        }
    }

    /// The modules that frames carry.
    pub(crate) fn modules(&self) -> &ModuleTable {
        &self.header.modules
    }

    /// Bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Writes a block. `payload` is ignored if the block is stored. If the block `is_last`, its frame ends with it; if
    /// it is also the first, the frame is written as a single frame, in fewer bytes.
    pub(crate) fn block(
        &mut self,
        writer: &mut impl Write,
        coded: Coded,
        contents: &[u8],
        payload: &[u8],
        is_last: bool,
    ) -> Result<(), Error> {
        if self.index.block_count() == self.max_blocks {
            self.end_frame(writer)?;
        }
        if is_last && self.frame_len == 0 && contents.len() <= MAX_SINGLE_CONTENT_LEN {
            return self.single(writer, coded, contents, payload);
        }
        let payload = if coded.method == Method::Store { contents } else { payload };
        self.one_of_several(writer, coded, contents.len() as u32, payload, is_last)
    }

    /// Writes a block of a frame that is not single. The payload of a stored block is its contents.
    pub(crate) fn one_of_several(
        &mut self,
        writer: &mut impl Write,
        coded: Coded,
        content_len: u32,
        payload: &[u8],
        is_last: bool,
    ) -> Result<(), Error> {
        let header = self.begin_block(writer, coded, content_len, payload.len())?;
        write_both(writer, &header.to_bytes(), payload)?;
        self.end_block(writer, &header, is_last)
    }

    /// Writes what comes before a block of a frame that is not single, and returns the block's header. The caller
    /// writes header and payload, and then calls [`Self::end_block`].
    pub(crate) fn begin_block(
        &mut self,
        writer: &mut impl Write,
        coded: Coded,
        content_len: u32,
        payload_len: usize,
    ) -> Result<BlockHeader, Error> {
        if self.index.block_count() == self.max_blocks {
            self.end_frame(writer)?;
        }
        self.begin(writer, self.header.reach)?;
        Ok(self.block_header(coded, content_len, payload_len))
    }

    /// Writes a block with distant matches. `own` holds its own bytes, and `payload` what they were coded to. If they
    /// are stored, `payload` is ignored.
    pub(crate) fn own_bytes(
        &mut self,
        writer: &mut impl Write,
        coded: Coded,
        own: &[u8],
        payload: &[u8],
        taken: &TakenOut,
        is_last: bool,
    ) -> Result<(), Error> {
        if self.index.block_count() == self.max_blocks {
            self.end_frame(writer)?;
        }
        // A block that is alone in its frame repeats only itself.
        let is_alone = is_last && self.frame_len == 0;
        self.begin(writer, if is_alone { 1 } else { self.header.reach })?;
        let payload = if coded.method == Method::Store { own } else { payload };
        let TakenOut { list, content_len, content_crc } = taken;
        let coded_header = self.block_header(coded, *content_len, payload.len());
        let (len, list_len) = (own.len() as u32, list.len() as u32);
        let header = BlockHeader {
            own: Some(OwnBytes { len, crc: coded.content_crc, list_len }),
            payload_len: coded_header.payload_len + list_len,
            payload_crc: crc32c_combine(crc32c(list), coded.payload_crc, payload.len()),
            content_crc: *content_crc,
            ..coded_header
        };
        let head = [&header.to_bytes()[..], list].concat();
        write_both(writer, &head, payload)?;
        self.end_block(writer, &header, is_last)
    }

    /// The header of the next block.
    fn block_header(&self, coded: Coded, content_len: u32, payload_len: usize) -> BlockHeader {
        BlockHeader {
            method: coded.method,
            filters: coded.filters,
            own: None,
            block_log: self.header.block_log,
            number: self.index.block_count() as u32,
            content_len,
            payload_len: payload_len as u32,
            payload_crc: coded.payload_crc,
            content_crc: coded.content_crc,
        }
    }

    /// Enters a block that has been written into the index. If it `is_last`, its frame ends with it.
    pub(crate) fn end_block(
        &mut self,
        writer: &mut impl Write,
        header: &BlockHeader,
        is_last: bool,
    ) -> Result<(), Error> {
        let block_len = header.block_len();
        self.index.push(block_len, header.content_len)?;
        self.count(u64::from(block_len));
        if is_last { self.end_frame(writer) } else { Ok(()) }
    }

    /// Writes a single frame.
    fn single(
        &mut self,
        writer: &mut impl Write,
        coded: Coded,
        contents: &[u8],
        payload: &[u8],
    ) -> Result<(), Error> {
        let is_stored = coded.method == Method::Store;
        let payload = if is_stored { contents } else { payload };
        let content_len = contents.len() as u32;
        let single = Single {
            method: coded.method,
            filters: coded.filters,
            content_len,
            payload_len: payload.len() as u32,
            header_crc: 0,
        };
        // A block without filters needs no modules.
        let modules = match coded.filters {
            Some(_) => self.header.modules.clone(),
            None => ModuleTable::default(),
        };
        let header = FrameHeader { single: Some(single), modules, ..self.header.clone() };
        let mut bytes = header.to_bytes();
        let mut crc = crc32c(&bytes);
        if !is_stored {
            crc = append_crc(crc, payload, coded.payload_crc);
        }
        let checksum = append_crc(crc, contents, coded.content_crc).to_le_bytes();
        let len = bytes.len() + payload.len() + checksum.len();
        if payload.len() <= SMALL {
            bytes.extend_from_slice(payload);
            bytes.extend_from_slice(&checksum);
            writer.write_all(&bytes)?;
        } else {
            write_both(writer, &bytes, payload)?;
            writer.write_all(&checksum)?;
        }
        self.take_declared(u64::from(content_len));
        self.written += len as u64;
        self.is_ended = true;
        Ok(())
    }

    /// Ends the current frame, unless its last block did. A file without contents gets one frame without blocks.
    pub(crate) fn finish(&mut self, writer: &mut impl Write) -> Result<(), Error> {
        if self.frame_len == 0 && !self.is_ended {
            let nothing = Coded::stored(0);
            return self.single(writer, nothing, &[], &[]);
        }
        if self.frame_len == 0 { Ok(()) } else { self.end_frame(writer) }
    }

    /// Ends the frame with index and footer.
    fn end_frame(&mut self, writer: &mut impl Write) -> Result<(), Error> {
        self.take_declared(self.index.content_size());
        let bytes = self.index.finish(self.frame_len)?;
        writer.write_all(&bytes)?;
        self.count(bytes.len() as u64);
        self.frame_len = 0;
        self.is_ended = true;
        Ok(())
    }

    /// Subtracts the contents of a finished frame from the declared length.
    fn take_declared(&mut self, len: u64) {
        if let Some(declared) = &mut self.declared {
            *declared = declared.saturating_sub(len);
        }
    }

    /// Writes the frame's header if it has not been written. The frame's distant matches reach up to `reach` own bytes
    /// back.
    fn begin(&mut self, writer: &mut impl Write, reach: u64) -> Result<(), Error> {
        if self.frame_len == 0 {
            let most = self.max_blocks << self.header.block_log;
            let content_size = self.declared.map(|declared| declared.min(most));
            let bytes = FrameHeader { content_size, reach, ..self.header.clone() }.to_bytes();
            writer.write_all(&bytes)?;
            self.count(bytes.len() as u64);
            self.is_ended = false;
        }
        Ok(())
    }

    fn count(&mut self, bytes: u64) {
        self.frame_len += bytes;
        self.written += bytes;
    }

    #[cfg(test)]
    pub(crate) fn set_max_blocks(&mut self, max_blocks: u64) {
        self.max_blocks = max_blocks;
    }
}

/// Writes `head` and `tail`, with a single call if the writer accepts all of it.
fn write_both(writer: &mut impl Write, mut head: &[u8], mut tail: &[u8]) -> io::Result<()> {
    while !head.is_empty() {
        match writer.write_vectored(&[IoSlice::new(head), IoSlice::new(tail)]) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => {
                let of_head = n.min(head.len());
                head = &head[of_head..];
                tail = &tail[n - of_head..];
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    writer.write_all(tail)
}
