//! Reads in large pieces, and looks ahead.

use std::io::{self, BufRead, Read};
use std::ops::Range;

/// Bytes to read at a time.
const CHUNK: usize = 1 << 20;

/// A buffered reader that can look a few bytes ahead, and knows its position.
pub struct Ahead<R> {
    inner: R,
    buffer: Vec<u8>,
    /// The part of the buffer that has not been consumed.
    unread: Range<usize>,
    /// Bytes read into the buffer so far.
    filled: u64,
    /// Whether reading failed. If so, a decoder's error does not mean that the contents are damaged.
    failed: bool,
}

impl<R: Read> Ahead<R> {
    pub fn new(inner: R) -> Self {
        Ahead { inner, buffer: vec![0; CHUNK], unread: 0..0, filled: 0, failed: false }
    }

    /// The next `n` bytes, without consuming them; fewer at the end of the input. `n` is at most a few hundred.
    pub fn ahead(&mut self, n: usize) -> io::Result<&[u8]> {
        while self.unread.len() < n && self.read_more()? > 0 {}
        let held = &self.buffer[self.unread.clone()];
        Ok(&held[..held.len().min(n)])
    }

    /// Skips zeros. Returns their number, and whether the input ends there.
    pub fn skip_zeros(&mut self) -> io::Result<(u64, bool)> {
        let mut skipped = 0;
        loop {
            let held = self.fill_buf()?;
            let is_at_end = held.is_empty();
            let zeros = held.iter().take_while(|&&byte| byte == 0).count();
            let is_over = is_at_end || zeros < held.len();
            self.consume(zeros);
            skipped += zeros as u64;
            if is_over {
                return Ok((skipped, is_at_end));
            }
        }
    }

    /// Position of the next byte.
    pub fn position(&self) -> u64 {
        self.filled - self.unread.len() as u64
    }

    /// Whether reading failed.
    pub fn failed(&self) -> bool {
        self.failed
    }

    /// Reads more bytes after the unread ones, and returns their number.
    fn read_more(&mut self) -> io::Result<usize> {
        if self.unread.start > 0 {
            self.buffer.copy_within(self.unread.clone(), 0);
            self.unread = 0..self.unread.len();
        }
        loop {
            match self.inner.read(&mut self.buffer[self.unread.end..]) {
                Ok(count) => {
                    self.unread.end += count;
                    self.filled += count as u64;
                    return Ok(count);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    self.failed = true;
                    return Err(error);
                }
            }
        }
    }
}

impl<R: Read> Read for Ahead<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let held = self.fill_buf()?;
        let count = held.len().min(buffer.len());
        buffer[..count].copy_from_slice(&held[..count]);
        self.consume(count);
        Ok(count)
    }
}

impl<R: Read> BufRead for Ahead<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.unread.is_empty() {
            self.read_more()?;
        }
        Ok(&self.buffer[self.unread.clone()])
    }

    fn consume(&mut self, amount: usize) {
        self.unread.start = (self.unread.start + amount).min(self.unread.end);
    }
}
