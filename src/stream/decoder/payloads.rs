//! Reads the payloads of blocks, or leaves that to the threads that decode them.

use std::io::{Read, Seek};
use std::sync::Arc;

use super::Decoder;
use crate::error::{Error, Place};
use crate::format::BlockHeader;
use crate::stream::frame_reader::FrameReader;
use crate::stream::places::ReadAt;
use crate::stream::tasks::{DecodeTask, Origin};

/// Payloads that the calling thread skips and other threads read.
pub(super) struct Payloads<R> {
    input: Arc<dyn ReadAt>,
    /// Where in `input` the decoder began to read.
    start: u64,
    skip: fn(&mut FrameReader<R>, &BlockHeader, Place) -> Result<(), Error>,
}

impl<R: Read + Seek> Decoder<R> {
    /// Lets the threads that decode blocks also read their payloads, from `input`, which holds the same bytes as the
    /// reader. The decoder began to read at byte `start` of it. From now on the calling thread reads what lies between
    /// the payloads, and seeks past them. It still reads the payloads of frames that are written in the short form for
    /// a single block.
    ///
    /// ```
    /// use std::io::Cursor;
    /// use std::sync::Arc;
    /// let contents = b"some contents".repeat(10_000);
    /// let compressed = pz::compress(&contents, &pz::Options::new().block_size(1 << 16))?;
    /// let input: Arc<dyn pz::ReadAt> = Arc::new(compressed.clone());
    /// let mut decoder = pz::Decoder::new(Cursor::new(compressed), &pz::DecodeOptions::new())?;
    /// decoder.read_from_places(&input, 0);
    /// assert_eq!(decoder.verify()?, contents.len() as u64);
    /// # Ok::<(), pz::Error>(())
    /// ```
    pub fn read_from_places(&mut self, input: &Arc<dyn ReadAt>, start: u64) {
        let (input, skip) = (Arc::clone(input), FrameReader::skip_payload);
        self.payloads = Some(Payloads { input, start, skip });
    }
}

impl<R: Read> Decoder<R> {
    /// Gives `task` the block whose header has just been read, with its payload or with the place of it.
    pub(super) fn give_block(
        &mut self,
        header: BlockHeader,
        place: Place,
        task: &mut DecodeTask,
    ) -> Result<(), Error> {
        match &self.payloads {
            // The checksums of a single frame's block depend on what follows the payload.
            Some(payloads) if self.header.single.is_none() => {
                let input = Arc::clone(&payloads.input);
                let offset = payloads.start + self.frames.position();
                let statistics = self.options.statistics.clone();
                (payloads.skip)(&mut self.frames, &header, place)?;
                task.set_unread_block(header, place, Origin { input, offset, statistics });
            }
            _ => {
                let payload = task.set_block(header, place);
                let header = self.frames.payload(&header, place, payload)?;
                task.set_header(header);
            }
        }
        Ok(())
    }
}
