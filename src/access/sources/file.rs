//! Local files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::error::{SourceError, SourceErrorKind};
use super::source::{Source, check};
use crate::stream::{Part, ReadAt};

/// An open local file.
pub(super) struct FileSource {
    uri: String,
    file: Positioned,
    len: u64,
}

impl FileSource {
    /// Opens the regular file at `path`, which messages call `uri`.
    pub(super) fn open(uri: String, path: &Path) -> Result<Self, SourceError> {
        let error = |error| system_error(&uri, &error);
        // Check first: opening a pipe would wait for its writer.
        if !fs::metadata(path).map_err(error)?.is_file() {
            let what = "is not a regular file";
            return Err(SourceError::new(uri, SourceErrorKind::Unsupported, what));
        }
        let file = File::open(path).map_err(error)?;
        let metadata = file.metadata().map_err(error)?;
        Ok(Self { uri, file: Positioned::new(file), len: metadata.len() })
    }
}

impl ReadAt for FileSource {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        check(&Part { offset, buffer }, self)?;
        self.file.read_exact_at(buffer, offset).map_err(|error| {
            let error = match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    let what = "has become shorter since it was opened";
                    SourceError::new(&self.uri, SourceErrorKind::Changed, what)
                }
                _ => system_error(&self.uri, &error),
            };
            error.into()
        })
    }
}

impl Source for FileSource {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn is_local(&self) -> bool {
        true
    }
}

/// What the system says of a file.
fn system_error(uri: &str, error: &io::Error) -> SourceError {
    let kind = match error.kind() {
        io::ErrorKind::NotFound => SourceErrorKind::NotFound,
        io::ErrorKind::PermissionDenied => SourceErrorKind::Denied,
        _ => SourceErrorKind::Io,
    };
    SourceError::new(uri, kind, error.to_string())
}

/// A file that several threads read and write at once, each at its own offset.
#[cfg(unix)]
pub(crate) struct Positioned {
    file: File,
    /// Whether the file is on a file system in memory, which does not report what it has in memory.
    #[cfg(target_os = "linux")]
    is_memory: bool,
}

/// Whether a file is on tmpfs, Linux's file system in memory.
#[cfg(target_os = "linux")]
#[allow(clippy::unnecessary_cast, reason = "the type depends on the system")]
pub fn is_in_memory(file: &File) -> bool {
    const TMPFS: i64 = 0x0102_1994;
    rustix::fs::fstatfs(file).is_ok_and(|found| found.f_type as i64 == TMPFS)
}

#[cfg(unix)]
impl Positioned {
    pub(crate) fn new(file: File) -> Self {
        Self {
            #[cfg(target_os = "linux")]
            is_memory: is_in_memory(&file),
            file,
        }
    }

    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buffer, offset)
    }

    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::write_all_at(&self.file, bytes, offset)
    }

    pub(crate) fn metadata(&self) -> io::Result<fs::Metadata> {
        self.file.metadata()
    }

    /// Fills `buffer` if the system has the bytes in memory and need not wait for a disk. Returns whether it had them.
    #[cfg(target_os = "linux")]
    pub(crate) fn read_exact_at_once(&self, buffer: &mut [u8], offset: u64) -> bool {
        use rustix::io::{ReadWriteFlags, preadv2};
        if self.is_memory {
            return self.read_exact_at(buffer, offset).is_ok();
        }
        let len = buffer.len();
        let mut buffers = [io::IoSliceMut::new(buffer)];
        len == 0 || preadv2(&self.file, &mut buffers, offset, ReadWriteFlags::NOWAIT) == Ok(len)
    }
}

/// A file that several threads read and write, one after another.
#[cfg(not(unix))]
pub(crate) struct Positioned(crate::sync::Mutex<File>);

#[cfg(not(unix))]
impl Positioned {
    pub(crate) fn new(file: File) -> Self {
        Self(crate::sync::Mutex::new(file))
    }

    fn at(&self, offset: u64) -> io::Result<std::sync::MutexGuard<'_, File>> {
        use std::io::Seek;
        let mut file = self.0.lock();
        file.seek(io::SeekFrom::Start(offset))?;
        Ok(file)
    }

    pub(crate) fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        use std::io::Read;
        self.at(offset)?.read_exact(buffer)
    }

    pub(crate) fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        use std::io::Write;
        self.at(offset)?.write_all(bytes)
    }

    pub(crate) fn metadata(&self) -> io::Result<fs::Metadata> {
        self.0.lock().metadata()
    }
}

#[cfg(not(target_os = "linux"))]
impl Positioned {
    /// Only Linux reports what it has in memory.
    pub(crate) fn read_exact_at_once(&self, _: &mut [u8], _: u64) -> bool {
        false
    }
}
