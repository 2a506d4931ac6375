//! Random access by the index.
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::ops::Range;

use crate::DecodeOptions;
use crate::error::{Error, Place};

/// Reads any part of the contents of a file of frames, decoding only the blocks that hold it.
pub struct SeekableReader<R: Read + Seek> {
    inner: R,
    position: u64,
}

impl<R: Read + Seek> SeekableReader<R> {
    /// Reads the footers, headers and indices of all frames.
    pub fn new(inner: R, options: &DecodeOptions) -> Result<Self, Error> {
        let _ = options;
        Ok(Self { inner, position: 0 })
    }

    /// Length of the contents of all frames together, in bytes.
    #[allow(clippy::len_without_is_empty)]
    pub fn len(&self) -> u64 {
        0
    }

    /// Writes bytes `range` of the contents to `writer`, decoding blocks in parallel; gives the bytes written.
    pub fn copy_range(
        &mut self,
        range: Range<u64>,
        writer: &mut (impl Write + ?Sized),
    ) -> Result<u64, Error> {
        let _ = (range, writer);
        Err(Error::Unsupported { what: "everything", place: Place::default() })
    }

    /// Gives back the reader.
    pub fn into_inner(self) -> R {
        self.inner
    }
}

impl<R: Read + Seek> Read for SeekableReader<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let _ = buf;
        Err(io::ErrorKind::Unsupported.into())
    }
}

impl<R: Read + Seek> Seek for SeekableReader<R> {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        let _ = position;
        Ok(self.position)
    }
}
