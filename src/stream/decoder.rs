//! Decompression of a stream.
use std::io::{self, BufRead, Read, Write};

use crate::DecodeOptions;
use crate::error::{Error, Place};

/// Decompresses the frames that it reads from `R`, to the end of the input.
pub struct Decoder<R: Read> {
    inner: R,
}

impl<R: Read> Decoder<R> {
    /// Reads and checks the first frame's header.
    pub fn new(inner: R, options: &DecodeOptions) -> Result<Self, Error> {
        let _ = options;
        Ok(Self { inner })
    }

    /// Writes all that is left to `writer`, straight from the block buffers; gives the bytes written.
    pub fn copy_to(&mut self, writer: &mut (impl Write + ?Sized)) -> Result<u64, Error> {
        let _ = writer;
        Err(Error::Unsupported { what: "everything", place: Place::default() })
    }

    /// Decodes and checks all that is left and keeps none of it; gives the length of the contents in bytes.
    pub fn verify(&mut self) -> Result<u64, Error> {
        Err(Error::Unsupported { what: "everything", place: Place::default() })
    }

    /// Compressed bytes read so far.
    pub fn bytes_in(&self) -> u64 {
        0
    }

    /// Bytes of contents given so far.
    pub fn bytes_out(&self) -> u64 {
        0
    }

    /// The length of the present frame's contents, if its header records it.
    pub fn content_size(&self) -> Option<u64> {
        None
    }

    /// Gives back the reader.
    pub fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read> Read for Decoder<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let _ = buf;
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl<R: Read> BufRead for Decoder<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn consume(&mut self, amount: usize) {
        let _ = amount;
    }
}
