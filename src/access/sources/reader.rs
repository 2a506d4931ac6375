//! Reads a source like a file.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use super::source::Source;
use crate::stream::{HeldBytes, sought};

/// Reads a source sequentially, and seeks.
///
/// Until the first seek, it reads ahead in steps that grow to 8 MiB, so a sequential read takes few requests. After the
/// first seek, it reads only what is asked for, but at least 1 KiB. It keeps the end of the source, which holds the
/// index of a compressed file: the last 4 KiB, and up to 1 MiB before them once they have been read. It therefore suits
/// [`Decoder`](crate::Decoder), [`SeekableReader`](crate::SeekableReader) and [`Listing`](crate::Listing).
///
/// Its errors wrap a [`SourceError`](super::SourceError).
pub struct SourceReader {
    source: Arc<dyn Source>,
    position: u64,
    has_sought: bool,
    /// The bytes of the next read ahead, and the most of one.
    step: usize,
    max_step: usize,
    /// The bytes that were read last.
    recent: HeldBytes,
    /// The end of the source, once it has been read.
    tail: HeldBytes,
    /// The bytes that [`Self::read_ahead`] has read, in order.
    ahead: Vec<HeldBytes>,
}

/// Bytes at the start of a source that opening it has read already, and bytes of the first read at its end.
pub(super) const HEAD: usize = 4 << 10;
/// The most bytes of a read ahead.
const MAX_STEP: usize = 8 << 20;
/// The factor by which steps grow.
const GROWTH: usize = 16;
/// Parts that are closer than this share a request: a request takes about as long as this many bytes.
const MAX_GAP: u64 = 128 << 10;
/// The least bytes of other reads.
const MIN_READ: u64 = 1 << 10;

impl SourceReader {
    /// Reads `source` from its beginning.
    pub fn new(source: Arc<dyn Source>) -> Self {
        let (recent, tail, ahead) = Default::default();
        Self {
            source,
            position: 0,
            has_sought: false,
            step: HEAD,
            max_step: MAX_STEP,
            recent,
            tail,
            ahead,
        }
    }

    /// Reads the parts that are needed next, in few concurrent requests. Keeps them, and drops those of the last call.
    /// `places` are in the order of their starts. Leaves out parts that exceed the memory for reading ahead.
    ///
    /// # Errors
    /// The errors of reading.
    pub fn read_ahead(&mut self, places: &[Range<u64>]) -> io::Result<()> {
        let is_here = |place: &Range<u64>| {
            self.ahead_from(place.start).len() as u64 >= place.end - place.start
        };
        if places.iter().all(is_here) {
            return Ok(());
        }
        self.ahead.clear();
        let mut left = self.max_step as u64;
        let mut merged: Vec<Range<u64>> = Vec::new();
        for place in places {
            let (start, end) = (place.start, place.end.min(self.source.len()));
            let last = merged.last_mut().filter(|last| start <= last.end + MAX_GAP);
            let more = end.saturating_sub(last.as_ref().map_or(start, |last| last.end));
            if more > left {
                break;
            }
            left -= more;
            match last {
                Some(last) => last.end = last.end.max(end),
                None => merged.push(start..end),
            }
        }
        self.ahead = HeldBytes::read_each(&*self.source, merged)?;
        Ok(())
    }

    /// Limits the memory for reading ahead to `bytes` bytes, but at least 4 KiB and at most 8 MiB. Returns the limit.
    pub fn limit_step(&mut self, bytes: u64) -> u64 {
        self.max_step = bytes.clamp(HEAD as u64, MAX_STEP as u64) as usize;
        self.max_step as u64
    }

    /// The bytes in memory from the position on, if there are any.
    fn held(&self) -> &[u8] {
        let pieces = [&self.tail, &self.recent];
        let mut held = pieces.into_iter().map(|piece| piece.from(self.position));
        let held = held.find(|held| !held.is_empty());
        held.unwrap_or_else(|| self.ahead_from(self.position))
    }

    /// The bytes from `position` on that were read ahead.
    fn ahead_from(&self, position: u64) -> &[u8] {
        let after = self.ahead.partition_point(|piece| piece.start <= position);
        after.checked_sub(1).map(|at| self.ahead[at].from(position)).unwrap_or_default()
    }

    /// The source.
    pub fn source(&self) -> &Arc<dyn Source> {
        &self.source
    }

    /// Reads at the position, which is not in memory. Either reads up to `wanted` bytes into `buf` and returns their
    /// number, or reads bytes to keep and returns `None`.
    fn fetch(&mut self, buf: &mut [u8], wanted: u64) -> io::Result<Option<usize>> {
        let (source, at) = (&*self.source, self.position);
        let len = source.len();
        if !self.has_sought {
            let end = at.saturating_add(self.step as u64).min(len);
            self.step = (GROWTH * self.step).min(self.max_step);
            self.recent.read(source, at, end)?;
            return Ok(None);
        }
        if self.tail.bytes.is_empty() && len - at <= HEAD as u64 {
            self.tail.read(source, len.saturating_sub(HEAD as u64), len)?;
            return Ok(None);
        }
        let has_tail = !self.tail.bytes.is_empty() && at < self.tail.start;
        let before = if has_tail { self.tail.start } else { len };
        let longer_tail = self.tail.bytes.len() as u64 + (before - at);
        if has_tail && at + wanted >= before && longer_tail <= MAX_TAIL {
            self.tail.extend_to(source, at)?;
            return Ok(None);
        }
        let end = at.saturating_add(wanted).min(before);
        if end - at < MIN_READ {
            self.recent.read(source, at, (at + MIN_READ).min(before))?;
            return Ok(None);
        }
        source.read_exact_at(&mut buf[..(end - at) as usize], at)?;
        Ok(Some((end - at) as usize))
    }
}

/// The most bytes of the end that are kept. The largest index fits.
const MAX_TAIL: u64 = (1 << 20) + (8 << 10);

impl Read for SourceReader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.source.len().saturating_sub(self.position);
        let wanted = left.min(buf.len() as u64);
        if wanted == 0 {
            return Ok(0);
        }
        if self.held().is_empty()
            && let Some(count) = self.fetch(buf, wanted)?
        {
            self.position += count as u64;
            return Ok(count);
        }
        let bytes = self.held();
        let count = bytes.len().min(wanted as usize);
        buf[..count].copy_from_slice(&bytes[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl Seek for SourceReader {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.has_sought = true;
        self.position = sought(to, self.source.len(), self.position)?;
        Ok(self.position)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::{SourceOptions, Uri, open, publish, withdraw};

    /// A reader that reads backward, as a search for frames does, keeps no more than the largest index.
    #[test]
    fn the_end_that_is_kept_is_bounded() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i >> 3) as u8).collect();
        publish("read-backward", bytes.clone());
        let uri = Uri::parse("memio://read-backward").unwrap();
        let mut reader = SourceReader::new(open(&uri, &SourceOptions::new()).unwrap());
        withdraw("read-backward");
        let (mut end, mut len) = (bytes.len(), 100);
        while end > 0 {
            let start = end.saturating_sub(len);
            len = 10_000;
            let mut part = vec![0; end - start];
            reader.seek(SeekFrom::Start(start as u64)).unwrap();
            reader.read_exact(&mut part).unwrap();
            assert!(part == bytes[start..end]);
            assert!(reader.tail.bytes.len() as u64 <= MAX_TAIL);
            end = start;
        }
        assert!(reader.tail.bytes.len() as u64 > MAX_TAIL - 20_000);
        for position in [SeekFrom::Current(-1), SeekFrom::End(-3_000_001)] {
            reader.seek(SeekFrom::Start(0)).unwrap();
            assert!(reader.seek(position).is_err());
        }
    }
}
