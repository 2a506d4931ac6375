//! Inputs that several threads read from at once, and outputs that several threads write to.

use std::io;

/// Something of which any part can be written at any time, by several threads at once.
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
    /// Writes all of `bytes` from byte `offset` on, which may be behind the end. Calls at the same time are for other
    /// bytes.
    ///
    /// # Errors
    /// Those of writing.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
}

/// Something of which any part can be read at any time, by several threads at once.
///
/// ```
/// # #[cfg(unix)] {
/// struct Input(std::fs::File);
///
/// impl pz::ReadAt for Input {
///     fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> std::io::Result<()> {
///         std::os::unix::fs::FileExt::read_exact_at(&self.0, buffer, offset)
///     }
/// }
/// # }
/// ```
pub trait ReadAt: Send + Sync {
    /// Fills all of `buffer` with what is there from byte `offset` on.
    ///
    /// # Errors
    /// Those of reading; [`io::ErrorKind::UnexpectedEof`] if there is less.
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()>;
}
