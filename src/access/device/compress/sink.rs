//! Where compressed blocks go.

use std::io::{self, Write};
use std::mem;

use rayon::iter::{IntoParallelIterator, ParallelIterator};

use super::job::{Encoded, EncodedOne};
use crate::error::Error;
use crate::stream::FrameWriter;

/// A destination of compressed bytes.
pub(super) trait Sink {
    /// What takes headers, indices, and the little that the host compresses.
    fn writer(&mut self) -> &mut impl Write;

    /// Writes the blocks of a batch. If it `is_last`, the frame ends with it.
    fn batch(
        &mut self,
        frames: &mut FrameWriter,
        batch: &Encoded,
        is_last: bool,
    ) -> Result<(), Error>;
}

/// A writer, which gets everything in order.
pub(super) struct Stream<W>(pub W);

impl<W: Write> Sink for Stream<W> {
    fn writer(&mut self) -> &mut impl Write {
        &mut self.0
    }

    fn batch(
        &mut self,
        frames: &mut FrameWriter,
        batch: &Encoded,
        is_last: bool,
    ) -> Result<(), Error> {
        for (EncodedOne { coded, content_len, .. }, payload, is_last) in batch.payloads(is_last) {
            frames.one_of_several(&mut self.0, *coded, *content_len, payload, is_last)?;
        }
        Ok(())
    }
}

/// What is left of the caller's memory. What does not fit is dropped.
pub(super) struct Room<'a>(pub &'a mut [u8]);

impl<'a> Room<'a> {
    /// The next `len` bytes, or all that there are.
    fn take(&mut self, len: usize) -> &'a mut [u8] {
        let room = mem::take(&mut self.0);
        let (taken, left) = room.split_at_mut(len.min(room.len()));
        self.0 = left;
        taken
    }
}

impl Write for Room<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = self.take(bytes.len());
        taken.copy_from_slice(&bytes[..taken.len()]);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Room<'_> {
    fn writer(&mut self) -> &mut impl Write {
        self
    }

    /// Writes the headers, and then all payloads at once: memory that nobody has written to yet is several times slower to
    /// write to than a device makes payloads, with one thread.
    fn batch(
        &mut self,
        frames: &mut FrameWriter,
        batch: &Encoded,
        is_last: bool,
    ) -> Result<(), Error> {
        let mut copies = Vec::new();
        for (EncodedOne { coded, content_len, .. }, payload, is_last) in batch.payloads(is_last) {
            let header = frames.begin_block(self, *coded, *content_len, payload.len())?;
            self.write_all(&header.to_bytes())?;
            copies.push((self.take(payload.len()), payload));
            frames.end_block(self, &header, is_last)?;
        }
        copies.into_par_iter().for_each(|(to, from)| to.copy_from_slice(&from[..to.len()]));
        Ok(())
    }
}
