//! Where compressed bytes go.

use std::io::{self, Write};

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use crate::codec::reserve_huge;
use crate::error::Error;

/// A destination of compressed bytes.
pub(super) trait Sink {
    /// Memory for the next `len` bytes, or for as many as there is room for. It may hold anything.
    fn room(&mut self, len: usize) -> Result<&mut [u8], Error>;

    /// The next `len` bytes have been written to [`Self::room`].
    fn advance(&mut self, len: usize) -> io::Result<()>;

    /// Prepares some of the next `len` bytes, if they take long to write to the first time. Returns whether it did
    /// anything.
    fn touch(&mut self, len: usize) -> bool;

    /// What takes the little that the host compresses.
    fn writer(&mut self) -> &mut impl Write;
}

/// A writer, which gets one batch after another.
pub(super) struct StreamSink<W> {
    writer: W,
    batch: Vec<u8>,
}

impl<W: Write> StreamSink<W> {
    pub(super) fn new(writer: W) -> Self {
        Self { writer, batch: Vec::new() }
    }
}

impl<W: Write> Sink for StreamSink<W> {
    fn room(&mut self, len: usize) -> Result<&mut [u8], Error> {
        if self.batch.len() < len {
            self.batch.clear();
            let refused = |_| Error::OutOfMemory { needed: len as u64 };
            reserve_huge(&mut self.batch, len).map_err(refused)?;
            self.batch.resize(len, 0);
        }
        Ok(&mut self.batch[..len])
    }

    fn advance(&mut self, len: usize) -> io::Result<()> {
        self.writer.write_all(&self.batch[..len])
    }

    fn touch(&mut self, _: usize) -> bool {
        false
    }

    fn writer(&mut self) -> &mut impl Write {
        &mut self.writer
    }
}

/// The caller's memory. What does not fit is dropped.
pub(super) struct RoomSink<'a> {
    /// What is left of it.
    left: &'a mut [u8],
    /// How much of that has been touched.
    touched: usize,
}

/// Bytes that are touched at once, by all threads.
const TOUCHED: usize = 32 << 20;
/// The shortest pages of a system.
const PAGE: usize = 4 << 10;

impl<'a> RoomSink<'a> {
    pub(super) fn new(room: &'a mut [u8]) -> Self {
        Self { left: room, touched: 0 }
    }
}

impl Sink for RoomSink<'_> {
    fn room(&mut self, len: usize) -> Result<&mut [u8], Error> {
        let len = len.min(self.left.len());
        Ok(&mut self.left[..len])
    }

    fn advance(&mut self, len: usize) -> io::Result<()> {
        let all = std::mem::take(&mut self.left);
        let (_, left) = all.split_at_mut(len.min(all.len()));
        self.left = left;
        self.touched = self.touched.saturating_sub(len);
        Ok(())
    }

    /// The system gives memory, and clears it, when it is first written to. With one thread that takes longer than a
    /// device takes to make payloads.
    fn touch(&mut self, len: usize) -> bool {
        let end = len.min(self.left.len()).min(self.touched + TOUCHED);
        let Some(next) = self.left.get_mut(self.touched..end).filter(|next| !next.is_empty())
        else {
            return false;
        };
        next.par_chunks_mut(PAGE).with_min_len(64).for_each(|page| page[0] = 0);
        self.touched = end;
        true
    }

    fn writer(&mut self) -> &mut impl Write {
        self
    }
}

impl Write for RoomSink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = self.room(bytes.len()).map_err(io::Error::other)?;
        let len = room.len();
        room.copy_from_slice(&bytes[..len]);
        self.advance(len)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
