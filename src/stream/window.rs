//! Keeps a part of a file in memory, for readers of headers and indices.

use std::io::{self, ErrorKind, Read, Seek, SeekFrom};

use super::places::sought;
use crate::error::Error;
use crate::pipeline::buffer::zeroed;

/// The most bytes in memory at once.
pub(super) const WINDOW: usize = 1 << 16;
/// Bytes to read after a jump, because another jump is likely to follow.
pub(super) const FIRST_STEP: usize = 1 << 12;

/// Reads a file of known length piece by piece. Pieces grow while the reader goes on where it stopped.
pub(super) struct Window {
    buffer: Vec<u8>,
    /// Offset in the file of the buffer's bytes.
    start: u64,
    /// Number of valid bytes in the buffer.
    filled: usize,
    step: usize,
    pub(super) file_len: u64,
}

/// A reader of the file from `at` on.
pub(super) struct ReadFrom<'a, R> {
    pub(super) window: &'a mut Window,
    pub(super) reader: &'a mut R,
    pub(super) at: u64,
}

impl<R: Read + Seek> Read for ReadFrom<'_, R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let bytes = self.window.from(self.reader, self.at, 1)?;
        let n = bytes.len().min(buf.len());
        buf[..n].copy_from_slice(&bytes[..n]);
        self.at += n as u64;
        Ok(n)
    }
}

/// Seeking reads nothing, so skipped bytes are never read unless they are in memory already.
impl<R: Read + Seek> Seek for ReadFrom<'_, R> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.at = sought(to, self.window.file_len, self.at)?;
        Ok(self.at)
    }
}

impl Window {
    pub(super) fn new(file_len: u64) -> Self {
        Self { buffer: Vec::new(), start: 0, filled: 0, step: FIRST_STEP, file_len }
    }

    /// The bytes from `offset` on: at least `n`, which is at most [`WINDOW`], unless the file ends sooner.
    pub(super) fn from(
        &mut self,
        reader: &mut (impl Read + Seek),
        offset: u64,
        n: usize,
    ) -> Result<&[u8], Error> {
        if offset >= self.file_len {
            return Ok(&[]);
        }
        let end = self.start + self.filled as u64;
        let needed = offset.saturating_add(n as u64).min(self.file_len);
        if offset < self.start || needed > end {
            let goes_on = (self.start..=end).contains(&offset);
            self.step = if goes_on { (2 * self.step).min(WINDOW) } else { FIRST_STEP };
            self.fill(reader, offset, self.step.max(n))?;
        }
        let from = ((offset - self.start) as usize).min(self.filled);
        Ok(&self.buffer[from..self.filled])
    }

    /// The `n` bytes from `offset` on; fewer if the file ends sooner.
    pub(super) fn at(
        &mut self,
        reader: &mut (impl Read + Seek),
        offset: u64,
        n: usize,
    ) -> Result<&[u8], Error> {
        let bytes = self.from(reader, offset, n)?;
        Ok(&bytes[..bytes.len().min(n)])
    }

    /// The bytes before `end`, for a reader that goes backward: at least `n`, unless the file begins there.
    pub(super) fn before(
        &mut self,
        reader: &mut (impl Read + Seek),
        end: u64,
        n: usize,
    ) -> Result<&[u8], Error> {
        let window_end = self.start + self.filled as u64;
        if end.saturating_sub(n as u64) < self.start || end > window_end {
            let goes_on = (self.start..=window_end).contains(&end);
            self.step = if goes_on { (2 * self.step).min(WINDOW) } else { FIRST_STEP };
            let n = (self.step.max(n) as u64).min(end);
            self.fill(reader, end - n, n as usize)?;
        }
        let until = end.saturating_sub(self.start).min(self.filled as u64);
        Ok(&self.buffer[..until as usize])
    }

    /// The `n` bytes from `offset` on, if they are in memory.
    pub(super) fn held(&self, offset: u64, n: usize) -> Option<&[u8]> {
        let from = usize::try_from(offset.checked_sub(self.start)?).ok()?;
        self.buffer[..self.filled].get(from..from.checked_add(n)?)
    }

    fn fill(
        &mut self,
        reader: &mut (impl Read + Seek),
        offset: u64,
        n: usize,
    ) -> Result<(), Error> {
        if self.buffer.is_empty() {
            self.buffer = zeroed(WINDOW).map_err(|fault| fault.at(Default::default()))?;
        }
        (self.start, self.filled) = (offset, 0);
        reader.seek(SeekFrom::Start(offset))?;
        while self.filled < n.min(WINDOW) {
            match reader.read(&mut self.buffer[self.filled..n.min(WINDOW)]) {
                Ok(0) => break,
                Ok(count) => self.filled += count,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}
