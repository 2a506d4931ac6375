//! Inputs that several threads read at the same time, outputs that several threads write, and a cursor on an input.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;
use std::sync::Arc;

use crate::error::Error;

/// An output that several threads can write at the same time, each at any offset.
///
/// ```
/// # #[cfg(unix)] {
/// struct Output(std::fs::File);
///
/// impl pz::WriteAt for Output {
///     fn write_all_at(&self, bytes: &[u8], offset: u64) -> std::io::Result<()> {
///         std::os::unix::fs::FileExt::write_all_at(&self.0, bytes, offset)
///     }
/// }
/// # }
/// ```
pub trait WriteAt: Send + Sync {
    /// Writes all of `bytes` from byte `offset` on, which may be past the end. Concurrent calls write different bytes.
    ///
    /// # Errors
    /// The errors of writing.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

/// A part of an input, and the buffer for its bytes.
#[derive(Debug)]
pub struct Part<'a> {
    /// Offset of the first byte in the input.
    pub offset: u64,
    /// Filled with the bytes from there on.
    pub buffer: &'a mut [u8],
}

impl Part<'_> {
    /// Offset of the byte after the last.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.buffer.len() as u64)
    }
}

/// An input that several threads can read at the same time, each at any offset.
///
/// ```
/// # #[cfg(unix)] {
/// struct Input(std::fs::File, u64);
///
/// impl pz::ReadAt for Input {
///     fn len(&self) -> u64 {
///         self.1
///     }
///
///     fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
///         std::os::unix::fs::FileExt::read_exact_at(&self.0, buffer, offset)
///     }
/// }
/// # }
/// ```
pub trait ReadAt: Send + Sync {
    /// Length in bytes, which does not change. If the input becomes shorter, reads fail.
    fn len(&self) -> u64;

    /// Whether there are no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills all of `buffer` with the bytes from `offset` on.
    ///
    /// # Errors
    /// The errors of reading; [`io::ErrorKind::UnexpectedEof`] if the input is too short.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;

    /// Fills the buffers of all parts, in any order. An input with slow reads may read parts together that lie near
    /// each other.
    ///
    /// # Errors
    /// The first error that happened, as for [`read_exact_at`](Self::read_exact_at). What the buffers then hold is
    /// unspecified.
    fn read_ranges(&self, parts: &mut [Part<'_>]) -> io::Result<()> {
        parts.iter_mut().try_for_each(|part| self.read_exact_at(part.buffer, part.offset))
    }
}

impl ReadAt for [u8] {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let part = usize::try_from(offset).ok().and_then(|offset| self.get(offset..));
        let part = part.and_then(|part| part.get(..buffer.len()));
        buffer.copy_from_slice(part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }
}

impl ReadAt for Vec<u8> {
    fn len(&self) -> u64 {
        self.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.as_slice().read_exact_at(buffer, offset)
    }
}

/// Reads a [`ReadAt`] source from a position on, in few reads.
///
/// Until the first seek it reads ahead, in steps that grow to 8 MiB. From then on it reads only what is asked for, but
/// at least 1 KiB. It keeps the end of the source, where the index of a compressed file lies: at first 1/4096 of the
/// source, from 4 to 128 KiB, and up to 1 MiB before that once it has been read. So it suits both
/// [`Decoder`](crate::Decoder), and [`SeekableReader`](crate::SeekableReader) and [`Listing`](crate::Listing).
pub struct ReadAtCursor<S: ReadAt + ?Sized = dyn ReadAt> {
    source: Arc<S>,
    position: u64,
    has_sought: bool,
    /// How many bytes the next read ahead brings.
    step: usize,
    max_step: usize,
    /// The bytes of the latest read.
    recent: HeldBytes,
    /// The end of the source, once it has been read.
    tail: HeldBytes,
    /// What [`Self::read_ahead`] has brought, in order.
    ahead: Vec<HeldBytes>,
}

/// The length of the first step, and the least that is read of the end. Opening a file on a server reads as much of its
/// beginning.
pub(crate) const FIRST_READ: usize = 4 << 10;
const MAX_STEP: usize = 8 << 20;
/// The factor by which steps grow.
const GROWTH: usize = 16;
/// A server takes about as long to send this many bytes as for another request.
const MAX_GAP: u64 = 128 << 10;
/// The least that is read elsewhere. Most frame headers are shorter.
const MIN_READ: u64 = 1 << 10;
/// The most of the end that is kept. The largest index fits.
const MAX_TAIL: u64 = (1 << 20) + (8 << 10);

impl<S: ReadAt + ?Sized> ReadAtCursor<S> {
    /// Reads `source` from its beginning. No read happens yet.
    pub fn new(source: Arc<S>) -> Self {
        let (recent, tail, ahead) = Default::default();
        let (step, max_step) = (FIRST_READ, MAX_STEP);
        Self { source, position: 0, has_sought: false, step, max_step, recent, tail, ahead }
    }

    /// The source.
    pub fn source(&self) -> &Arc<S> {
        &self.source
    }

    /// Reads parts that are wanted next, sorted by where they begin, in few reads that go side by side. Keeps them in
    /// place of those of the last call. Leaves out parts beyond the memory for reading ahead.
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

    /// Limits each read ahead to `bytes` bytes, but at least 4 KiB and at most 8 MiB, and returns the limit.
    pub fn limit_step(&mut self, bytes: u64) -> u64 {
        self.max_step = bytes.clamp(FIRST_READ as u64, MAX_STEP as u64) as usize;
        self.max_step as u64
    }

    /// The bytes in memory from the position on; empty if there are none.
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

    /// Reads at the position, where no bytes are in memory. Either reads up to `wanted` bytes into `buf` and returns
    /// their number, or reads bytes to keep and returns `None`.
    fn fetch(&mut self, buf: &mut [u8], wanted: u64) -> io::Result<Option<usize>> {
        let (source, at) = (&*self.source, self.position);
        let len = source.len();
        if !self.has_sought {
            let end = at.saturating_add(self.step as u64).min(len);
            self.step = (GROWTH * self.step).min(self.max_step);
            self.recent.read(source, at, end)?;
            return Ok(None);
        }
        let first_tail = (len >> 12).clamp(FIRST_READ as u64, MAX_GAP);
        if self.tail.bytes.is_empty() && len - at <= first_tail {
            self.tail.read(source, len.saturating_sub(first_tail), len)?;
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

impl<S: ReadAt + ?Sized> Read for ReadAtCursor<S> {
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

impl<S: ReadAt + ?Sized> Seek for ReadAtCursor<S> {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.has_sought = true;
        self.position = sought(to, self.source.len(), self.position)?;
        Ok(self.position)
    }
}

/// The position that `to` means in a source of `len` bytes, now at `position`.
pub(crate) fn sought(to: SeekFrom, len: u64, position: u64) -> io::Result<u64> {
    let position = match to {
        SeekFrom::Start(position) => Some(position),
        SeekFrom::End(offset) => len.checked_add_signed(offset),
        SeekFrom::Current(offset) => position.checked_add_signed(offset),
    };
    Ok(position.ok_or(io::ErrorKind::InvalidInput)?)
}

/// Consecutive bytes of a source.
#[derive(Default)]
struct HeldBytes {
    start: u64,
    bytes: Vec<u8>,
}

impl HeldBytes {
    /// The bytes from `position` on; empty if it lies elsewhere.
    fn from(&self, position: u64) -> &[u8] {
        let skipped = position.checked_sub(self.start).and_then(|n| usize::try_from(n).ok());
        skipped.and_then(|skipped| self.bytes.get(skipped..)).unwrap_or_default()
    }

    /// Replaces these bytes by bytes `start` to `end`.
    fn read(&mut self, source: &(impl ReadAt + ?Sized), start: u64, end: u64) -> io::Result<()> {
        self.bytes.clear();
        resize(&mut self.bytes, (end - start) as usize)?;
        let read = source.read_exact_at(&mut self.bytes, start);
        if read.is_err() {
            self.bytes.clear();
        }
        self.start = start;
        read
    }

    /// Reads several ranges, together if the source can.
    fn read_each(
        source: &(impl ReadAt + ?Sized),
        ranges: Vec<Range<u64>>,
    ) -> io::Result<Vec<Self>> {
        let mut each = Vec::with_capacity(ranges.len());
        for Range { start, end } in ranges {
            let mut bytes = Vec::new();
            resize(&mut bytes, (end - start) as usize)?;
            each.push(Self { start, bytes });
        }
        let parts =
            each.iter_mut().map(|Self { start, bytes }| Part { offset: *start, buffer: bytes });
        source.read_ranges(&mut parts.collect::<Vec<_>>())?;
        Ok(each)
    }

    /// Reads the bytes from `start` on that lie before these, and puts them in front.
    fn extend_to(&mut self, source: &(impl ReadAt + ?Sized), start: u64) -> io::Result<()> {
        let mut longer = Self::default();
        longer.read(source, start, self.start)?;
        let len = longer.bytes.len();
        resize(&mut longer.bytes, len + self.bytes.len())?;
        longer.bytes[len..].copy_from_slice(&self.bytes);
        *self = longer;
        Ok(())
    }
}

/// Makes a buffer `len` bytes long. New bytes are zeros.
fn resize(bytes: &mut Vec<u8>, len: usize) -> io::Result<()> {
    let more = len.saturating_sub(bytes.len());
    bytes.try_reserve_exact(more).map_err(|_| Error::OutOfMemory { needed: len as u64 })?;
    bytes.resize(len, 0);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Reading backward, as a search for frames does, keeps no more than the largest index.
    #[test]
    fn the_end_that_is_kept_is_bounded() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i >> 3) as u8).collect();
        let mut reader = ReadAtCursor::new(Arc::new(bytes.clone()));
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
