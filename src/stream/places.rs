//! Inputs that several threads read at the same time, and outputs that several threads write.

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

/// A part of an input, and where its bytes go.
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
    /// Length in bytes. It does not change: reads fail of an input that has become shorter.
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

/// Reads a [`ReadAt`] source from a position on, in few and large reads. It reads the end of the source in one piece
/// and keeps it, because a file's frames are found from there.
pub struct ReadAtCursor {
    source: Arc<dyn ReadAt>,
    len: u64,
    position: u64,
    /// The end of the source, once it has been read.
    tail: HeldBytes,
    /// What was last read from elsewhere.
    recent: HeldBytes,
}

/// Consecutive bytes of a source.
#[derive(Default)]
pub(crate) struct HeldBytes {
    pub(crate) start: u64,
    pub(crate) bytes: Vec<u8>,
}

impl HeldBytes {
    /// The bytes from `position` on; empty if they do not begin here.
    pub(crate) fn from(&self, position: u64) -> &[u8] {
        let skipped = position.checked_sub(self.start).and_then(|n| usize::try_from(n).ok());
        skipped.and_then(|skipped| self.bytes.get(skipped..)).unwrap_or_default()
    }

    /// Reads bytes `start` to `end` in place of what was here.
    pub(crate) fn read(&mut self, source: &dyn ReadAt, start: u64, end: u64) -> io::Result<()> {
        self.bytes.clear();
        resize(&mut self.bytes, (end - start) as usize)?;
        let read = source.read_exact_at(&mut self.bytes, start);
        if read.is_err() {
            self.bytes.clear();
        }
        self.start = start;
        read
    }

    /// Reads these ranges, together if the source can.
    pub(crate) fn read_each(source: &dyn ReadAt, ranges: Vec<Range<u64>>) -> io::Result<Vec<Self>> {
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

    /// Reads the bytes from `start` to where these begin, and keeps them before these.
    pub(crate) fn extend_to(&mut self, source: &dyn ReadAt, start: u64) -> io::Result<()> {
        let mut longer = Self::default();
        longer.read(source, start, self.start)?;
        let len = longer.bytes.len();
        resize(&mut longer.bytes, len + self.bytes.len())?;
        longer.bytes[len..].copy_from_slice(&self.bytes);
        *self = longer;
        Ok(())
    }
}

/// Makes a buffer `len` bytes long, with zeros for those that it lacks.
fn resize(bytes: &mut Vec<u8>, len: usize) -> io::Result<()> {
    let more = len.saturating_sub(bytes.len());
    bytes.try_reserve_exact(more).map_err(|_| Error::OutOfMemory { needed: len as u64 })?;
    bytes.resize(len, 0);
    Ok(())
}

/// How much of the end of a source is read, at least and at most. An index takes a few bytes per block; the largest
/// fits.
const TAIL: std::ops::RangeInclusive<u64> = 1 << 16..=(1 << 20) + 64;
/// The least that is read elsewhere. Every frame header is shorter.
const READ: u64 = 1 << 10;

impl ReadAtCursor {
    /// Reads `source` from its beginning. No read happens yet.
    pub fn new(source: Arc<dyn ReadAt>) -> Self {
        let (tail, recent) = Default::default();
        Self { len: source.len(), source, position: 0, tail, recent }
    }
}

impl Read for ReadAtCursor {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let left = self.len.saturating_sub(self.position);
        let wanted = left.min(buf.len() as u64);
        if wanted == 0 {
            return Ok(0);
        }
        let at = self.position;
        let part = if !self.tail.from(at).is_empty() {
            &self.tail
        } else if !self.recent.from(at).is_empty() {
            &self.recent
        } else {
            let tail = (self.len >> 12).clamp(*TAIL.start(), *TAIL.end()).min(self.len);
            if self.tail.bytes.is_empty() && left <= tail {
                self.tail.read(&*self.source, self.len - tail, self.len)?;
                &self.tail
            } else if wanted < READ {
                self.recent.read(&*self.source, at, (at + READ).min(self.len))?;
                &self.recent
            } else {
                self.source.read_exact_at(&mut buf[..wanted as usize], at)?;
                self.position += wanted;
                return Ok(wanted as usize);
            }
        };
        let bytes = part.from(at);
        let n = bytes.len().min(wanted as usize);
        buf[..n].copy_from_slice(&bytes[..n]);
        self.position += n as u64;
        Ok(n)
    }
}

impl Seek for ReadAtCursor {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.position = sought(to, self.len, self.position)?;
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
