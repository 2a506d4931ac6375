//! Where compressed bytes go.

use std::io::{self, Write};

use rayon::iter::{IndexedParallelIterator, ParallelIterator};
use rayon::slice::ParallelSliceMut;

use crate::codec::reserve_huge;
use crate::error::Error;

/// A destination of compressed bytes.
pub(super) trait Sink {
    /// Memory for the next `len` bytes, or for as many as there is room for. Its bytes are unspecified.
    fn room(&mut self, len: usize) -> Result<&mut [u8], Error>;

    /// Called when the next `len` bytes have been written to [`Self::room`].
    fn advance(&mut self, len: usize) -> io::Result<()>;

    /// Touches some of the memory for the next `len` bytes, if the first write to it is slow. Returns whether there was
    /// any.
    fn touch(&mut self, len: usize) -> bool;

    /// A writer for bytes that the host alone compresses.
    fn writer(&mut self) -> &mut impl Write;
}

/// A writer that gets one batch after another.
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

/// The caller's memory. Bytes that do not fit are dropped.
pub(super) struct RoomSink<'a> {
    /// The rest of the memory.
    left: &'a mut [u8],
    /// How many bytes of the rest have been touched.
    touched: usize,
}

/// Bytes that all threads touch at once.
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

    /// The system provides and clears memory on the first write. With one thread, that takes longer than a device takes
    /// to encode.
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
