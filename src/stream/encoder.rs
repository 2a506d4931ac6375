//! Compression of a stream.
use std::io::{self, Read, Write};

use crate::Options;
use crate::error::{Error, Place};

/// Compresses what is written to it into one frame on `W`.
pub struct Encoder<W: Write> {
    inner: W,
}

impl<W: Write> Encoder<W> {
    /// Begins a frame on `inner`.
    pub fn new(inner: W, options: &Options) -> Result<Self, Error> {
        options.chosen_block_size()?;
        Ok(Self { inner })
    }

    /// Compresses all of `reader`, reading straight into block buffers; gives the bytes read.
    pub fn read_from(&mut self, reader: &mut (impl Read + ?Sized)) -> Result<u64, Error> {
        let _ = reader;
        Err(Error::Unsupported { what: "everything", place: Place::default() })
    }

    /// Compresses what is left, writes index and footer, flushes, and gives back the writer.
    pub fn finish(self) -> Result<W, Error> {
        Ok(self.inner)
    }

    /// Bytes of contents taken so far.
    pub fn bytes_in(&self) -> u64 {
        0
    }

    /// Compressed bytes given to the writer so far.
    pub fn bytes_out(&self) -> u64 {
        0
    }

    /// The writer.
    pub fn get_ref(&self) -> &W {
        &self.inner
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        let _ = buf;
        Err(io::ErrorKind::Unsupported.into())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}
