//! Local files.

use std::fs::{self, File};
use std::io;
use std::path::Path;

use super::{Part, Source, SourceError, SourceErrorKind};

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
        // Opening a pipe would wait for its writer.
        if !fs::metadata(path).map_err(error)?.is_file() {
            let what = "is not a regular file";
            return Err(SourceError::new(uri, SourceErrorKind::Unsupported, what));
        }
        let file = File::open(path).map_err(error)?;
        let metadata = file.metadata().map_err(error)?;
        Ok(Self { uri, file: Positioned::new(file), len: metadata.len() })
    }
}

impl Source for FileSource {
    fn uri(&self) -> &str {
        &self.uri
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn is_local(&self) -> bool {
        true
    }

    fn read_ranges(&self, parts: &mut [Part<'_>]) -> Result<(), SourceError> {
        for part in parts {
            part.check(self)?;
            self.file.read_exact_at(part.buffer, part.offset).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::UnexpectedEof => SourceError::new(
                        &self.uri,
                        SourceErrorKind::Changed,
                        "has become shorter since it was opened",
                    ),
                    _ => system_error(&self.uri, &error),
                }
            })?;
        }
        Ok(())
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

/// A file that several threads read, each at its own place.
#[cfg(unix)]
struct Positioned(File);

#[cfg(unix)]
impl Positioned {
    fn new(file: File) -> Self {
        Self(file)
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, buffer, offset)
    }
}

/// A file that several threads read, one after another.
#[cfg(not(unix))]
struct Positioned(std::sync::Mutex<File>);

#[cfg(not(unix))]
impl Positioned {
    fn new(file: File) -> Self {
        Self(std::sync::Mutex::new(file))
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        use std::io::{Read, Seek};
        let mut file = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        file.seek(io::SeekFrom::Start(offset))?;
        file.read_exact(buffer)
    }
}
