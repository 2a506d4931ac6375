//! Frames, in order, onto a writer.

use std::io::{self, IoSlice, Write};

use crate::codec::OutOfMemory;
use crate::error::Error;
use crate::format::{BlockHeader, FrameHeader, IndexWriter, MAX_BLOCKS, Method};
use crate::pipeline::engine::Coded;

/// Writes headers, blocks, indices and footers. A frame that is full is followed by another.
#[derive(Debug)]
pub(crate) struct FrameWriter {
    header: FrameHeader,
    /// Contents of this frame and the ones after it, if known.
    declared: Option<u64>,
    index: IndexWriter,
    /// Bytes written of this frame; 0 before its header.
    frame_len: u64,
    /// Bytes written in all.
    written: u64,
    max_blocks: u64,
}

impl FrameWriter {
    /// Frames like `header`, whose `content_size` is that of all of them together.
    pub(crate) fn new(header: FrameHeader) -> Self {
        Self {
            header,
            declared: header.content_size,
            index: IndexWriter::default(),
            frame_len: 0,
            written: 0,
            max_blocks: MAX_BLOCKS,
        }
    }

    /// Bytes written so far.
    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    /// Writes one block; `payload` is ignored for one that is stored.
    pub(crate) fn block(
        &mut self,
        writer: &mut impl Write,
        coded: Coded,
        contents: &[u8],
        payload: &[u8],
    ) -> Result<(), Error> {
        if self.index.block_count() == self.max_blocks {
            self.finish(writer)?;
        }
        self.begin(writer)?;
        let payload = if coded.method == Method::Store { contents } else { payload };
        let header = BlockHeader {
            method: coded.method,
            block_log: self.header.block_log,
            number: self.index.block_count() as u32,
            content_len: contents.len() as u32,
            payload_len: payload.len() as u32,
            payload_crc: coded.payload_crc,
            content_crc: coded.content_crc,
        };
        write_both(writer, &header.to_bytes(), payload)?;
        let block_len = header.block_len();
        self.index.push(block_len, header.content_len).map_err(refused)?;
        self.count(u64::from(block_len));
        Ok(())
    }

    /// Ends the frame with index and footer.
    pub(crate) fn finish(&mut self, writer: &mut impl Write) -> Result<(), Error> {
        self.begin(writer)?;
        if let Some(declared) = &mut self.declared {
            *declared = declared.saturating_sub(self.index.content_size());
        }
        let bytes = self.index.finish(self.frame_len).map_err(refused)?;
        writer.write_all(&bytes)?;
        self.count(bytes.len() as u64);
        self.frame_len = 0;
        Ok(())
    }

    /// Writes the frame's header if that is still to be done.
    fn begin(&mut self, writer: &mut impl Write) -> Result<(), Error> {
        if self.frame_len == 0 {
            let most = self.max_blocks << self.header.block_log;
            let content_size = self.declared.map(|declared| declared.min(most));
            let bytes = FrameHeader { content_size, ..self.header }.to_bytes();
            writer.write_all(&bytes)?;
            self.count(bytes.len() as u64);
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

fn refused(OutOfMemory { bytes }: OutOfMemory) -> Error {
    Error::OutOfMemory { needed: bytes }
}

/// Writes `head` and `tail`, in one call if the writer takes it.
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
