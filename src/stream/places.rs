//! Inputs that several threads read at the same time, and outputs that several threads write.

use std::io;

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
