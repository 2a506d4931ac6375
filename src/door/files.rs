//! The files that kernels may open, and functions that read and write them.
//!
//! A path is looked for in each allowed folder in turn. It must not leave the folder: not by `..`, and not through a
//! symbolic link. The system resolves the path, the result must lie in the folder, and the file that was then opened
//! must be the one at the resolved path. Folders are allowed on the terms that nobody who is not trusted can write to
//! them.
//!
//! A file is the one that was opened for as long as its length and its time of modification stay. Both are looked at
//! after each read, so what a kernel gets was in the file that it opened. A file that kernels write to changes by that,
//! so there only the length counts, which must not become less. A file that was deleted stays readable, as files do
//! that a program has open.

use std::collections::HashMap;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::SystemTime;

use super::options::{DoorError, DoorOptions, RequestError};
use crate::access::{
    Archive, ArchiveError, ArchiveOptions, Positioned, Source, SourceError, SourceErrorKind,
};
use crate::gpu::device::DeviceError;
use crate::pipeline::DecodeOptions;
use crate::stream::ReadAt;
use crate::sync::Mutex;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum FileMode {
    /// Its own bytes, to read.
    Plain = 0,
    /// The contents of a compressed file, to read. The blocks that hold them are decoded.
    Contents = 1,
    /// Its own bytes, to read and write; the file is created if it does not exist.
    Writable = 2,
}

impl FileMode {
    pub(super) fn of_code(code: u32) -> Option<Self> {
        [Self::Plain, Self::Contents, Self::Writable].into_iter().find(|mode| *mode as u32 == code)
    }
}

/// The longest path in bytes.
pub(super) const MAX_PATH: usize = 4 * super::layout::PATH;

/// The last byte that a kernel may write, so that no offset overflows.
const MAX_FILE: u64 = 1 << 60;

/// The files of a door.
pub(super) struct Files {
    folders: Vec<Folder>,
    table: Mutex<Table>,
    max_files: usize,
    /// The open archives, the last used one last.
    archives: Mutex<Vec<(u32, Arc<Archive>)>>,
    max_archives: usize,
    decode_threads: usize,
}

struct Folder {
    /// The path as the system resolves it.
    path: PathBuf,
    is_writable: bool,
}

#[derive(Default)]
struct Table {
    files: Vec<Arc<OpenFile>>,
    numbers: HashMap<(PathBuf, FileMode), u32>,
}

/// An open file.
pub(super) struct OpenFile {
    /// Its number.
    pub(super) number: u32,
    pub(super) mode: FileMode,
    path: String,
    file: Positioned,
    /// Length in bytes, when it was opened or after it was written to.
    len: AtomicU64,
    modified: Option<SystemTime>,
    /// Whether the device decodes its blocks. It does not for an archive that a kernel opened, which could not be
    /// prepared.
    is_prepared: AtomicBool,
    /// Why a read failed first, for people.
    why: OnceLock<String>,
}

/// Why a file cannot be opened or read.
#[derive(Debug)]
pub(super) struct Failed {
    /// What a kernel is told.
    pub(super) code: RequestError,
    /// What people are told, where the code does not say enough.
    pub(super) why: Option<String>,
}

impl Files {
    pub(super) fn new(options: &DoorOptions) -> Result<Self, DoorError> {
        let folder = |(path, is_writable): &(PathBuf, bool)| {
            let error = |error| DoorError::Folder { path: path.clone(), error };
            let resolved = path.canonicalize().map_err(error)?;
            if !resolved.is_dir() {
                return Err(error(io::Error::new(io::ErrorKind::NotADirectory, "is not a folder")));
            }
            Ok(Folder { path: resolved, is_writable: *is_writable })
        };
        Ok(Self {
            folders: options.folders.iter().map(folder).collect::<Result<_, _>>()?,
            table: Mutex::default(),
            max_files: options.files,
            archives: Mutex::default(),
            max_archives: options.archives,
            // Several archives are read at once, each with threads of its own.
            decode_threads: options.workers.min(4),
        })
    }

    /// The file with this number.
    pub(super) fn get(&self, number: u32) -> Result<Arc<OpenFile>, RequestError> {
        self.table.lock().files.get(number as usize).map(Arc::clone).ok_or(RequestError::Range)
    }

    /// Opens a file, or finds it among those that are open, and returns it with the length of what can be read.
    pub(super) fn open(&self, path: &Path, mode: FileMode) -> Result<(Arc<OpenFile>, u64), Failed> {
        let file = self.open_file(path, mode)?;
        let len = match mode {
            FileMode::Contents => self.archive(&file)?.len(),
            FileMode::Plain | FileMode::Writable => file.len(),
        };
        Ok((file, len))
    }

    fn open_file(&self, path: &Path, mode: FileMode) -> Result<Arc<OpenFile>, Failed> {
        let (resolved, file, metadata) = self.find(path, mode)?;
        let mut table = self.table.lock();
        let key = (resolved, mode);
        if let Some(known) = table.numbers.get(&key).and_then(|&at| table.files.get(at as usize))
            && known.is(&metadata)
        {
            return Ok(Arc::clone(known));
        }
        if table.files.len() >= self.max_files {
            return Err(RequestError::Full.into());
        }
        let number = table.files.len() as u32;
        let opened = Arc::new(OpenFile {
            number,
            mode,
            path: key.0.display().to_string(),
            file: Positioned::new(file),
            len: AtomicU64::new(metadata.len()),
            modified: metadata.modified().ok(),
            is_prepared: AtomicBool::new(false),
            why: OnceLock::new(),
        });
        table.files.push(Arc::clone(&opened));
        table.numbers.insert(key, number);
        Ok(opened)
    }

    /// Finds a file in the folders and opens it.
    fn find(&self, path: &Path, mode: FileMode) -> Result<(PathBuf, File, Metadata), Failed> {
        let is_plain =
            |part: Component<'_>| matches!(part, Component::Normal(_) | Component::CurDir);
        if path.as_os_str().is_empty() || !path.components().all(is_plain) {
            return Err(RequestError::Refused.into());
        }
        let mut outcome = RequestError::Missing;
        for folder in &self.folders {
            if mode == FileMode::Writable && !folder.is_writable {
                outcome = RequestError::Refused;
                continue;
            }
            match folder.open(path, mode) {
                Err(Failed { code: RequestError::Missing, .. }) => {}
                found => return found,
            }
        }
        Err(if self.folders.is_empty() { RequestError::Refused } else { outcome }.into())
    }

    /// The archive in this file.
    pub(super) fn archive(&self, file: &Arc<OpenFile>) -> Result<Arc<Archive>, Failed> {
        let mut archives = self.archives.lock();
        if let Some(at) = archives.iter().position(|(number, _)| *number == file.number) {
            let known = archives.remove(at);
            archives.push(known);
            if let Some((_, archive)) = archives.last() {
                return Ok(Arc::clone(archive));
            }
        }
        drop(archives);
        let options =
            ArchiveOptions::new().decode(&DecodeOptions::new().threads(self.decode_threads));
        let source = Arc::new(OfArchive(Arc::clone(file)));
        let archive = Arc::new(Archive::of_source(source, &options)?);
        let mut archives = self.archives.lock();
        // Another thread may have opened it meanwhile. Then there are two for a while.
        archives.retain(|(number, _)| *number != file.number);
        archives.push((file.number, Arc::clone(&archive)));
        let too_many = archives.len().saturating_sub(self.max_archives);
        let dropped: Vec<_> = archives.drain(..too_many).collect();
        drop(archives);
        // Outside of the lock: this ends their threads.
        drop(dropped);
        Ok(archive)
    }
}

impl Folder {
    /// Opens a file below the folder.
    fn open(&self, path: &Path, mode: FileMode) -> Result<(PathBuf, File, Metadata), Failed> {
        let joined = self.path.join(path);
        let resolved = match joined.canonicalize() {
            Err(error) if error.kind() == io::ErrorKind::NotFound && mode == FileMode::Writable => {
                // Creates the file, but no folder, and not at the missing target of a link.
                let name = joined.file_name().ok_or(RequestError::Refused)?;
                if joined.symlink_metadata().is_ok() {
                    return Err(RequestError::Refused.into());
                }
                let parent = joined.parent().ok_or(RequestError::Refused)?;
                parent.canonicalize()?.join(name)
            }
            resolved => resolved?,
        };
        if !resolved.starts_with(&self.path) {
            return Err(RequestError::Refused.into());
        }
        // Opening a pipe would wait for its other end.
        let is_new = match resolved.metadata() {
            Ok(metadata) if !metadata.is_file() => return Err(RequestError::Refused.into()),
            Ok(_) => false,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => return Err(error.into()),
        };
        let mut options = OpenOptions::new();
        options.read(true);
        if mode == FileMode::Writable {
            options.write(true).create_new(is_new);
        }
        let file = options.open(&resolved)?;
        let metadata = file.metadata()?;
        // A folder on the way may have become a link meanwhile.
        let is_still_there = resolved.canonicalize().is_ok_and(|again| again == resolved)
            && resolved.metadata().is_ok_and(|there| is_same(&there, &metadata));
        if !is_still_there || !metadata.is_file() {
            return Err(RequestError::Refused.into());
        }
        Ok((resolved, file, metadata))
    }
}

/// Whether both are of the same file.
#[cfg(unix)]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    use std::os::unix::fs::MetadataExt;
    (one.dev(), one.ino()) == (other.dev(), other.ino())
}

/// Whether both are of the same file, as far as the system shows.
#[cfg(not(unix))]
fn is_same(one: &Metadata, other: &Metadata) -> bool {
    (one.len(), one.created().ok()) == (other.len(), other.created().ok())
}

impl OpenFile {
    /// Length in bytes.
    pub(super) fn len(&self) -> u64 {
        self.len.load(Ordering::Relaxed)
    }

    pub(super) fn is_prepared(&self) -> bool {
        self.is_prepared.load(Ordering::Acquire)
    }

    pub(super) fn set_prepared(&self) {
        self.is_prepared.store(true, Ordering::Release);
    }

    /// Keeps the first reason why a read failed, and gives what a kernel is told.
    pub(super) fn noted(&self, failed: Failed) -> RequestError {
        if let Some(why) = failed.why {
            self.why.get_or_init(|| why);
        }
        failed.code
    }

    /// Why a read failed first, if more is known than a kernel was told.
    pub(super) fn why(&self) -> Option<&String> {
        self.why.get()
    }

    /// Fills `buffer` from byte `offset` on. `offset` may be anything.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<(), RequestError> {
        self.check_range(offset, buffer.len() as u64)?;
        match self.file.read_exact_at(buffer, offset) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                Err(RequestError::Changed)
            }
            Err(error) => Err(self.noted(error.into())),
            Ok(()) => self.check_unchanged(),
        }
    }

    /// The same without waiting for a disk; `None` if that is impossible.
    pub(super) fn read_at_once(
        &self,
        offset: u64,
        buffer: &mut [u8],
    ) -> Option<Result<(), RequestError>> {
        if let Err(error) = self.check_range(offset, buffer.len() as u64) {
            return Some(Err(error));
        }
        self.file.read_exact_at_once(buffer, offset).then(|| self.check_unchanged())
    }

    /// Writes `bytes` from byte `offset` on.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), RequestError> {
        if self.mode != FileMode::Writable {
            return Err(RequestError::Refused);
        }
        let end = Self::end_of_write(offset, bytes.len() as u64)?;
        self.file.write_all_at(bytes, offset).map_err(|error| self.noted(error.into()))?;
        self.len.fetch_max(end, Ordering::Relaxed);
        Ok(())
    }

    /// Where a write ends.
    pub(super) fn end_of_write(offset: u64, len: u64) -> Result<u64, RequestError> {
        offset.checked_add(len).filter(|end| *end <= MAX_FILE).ok_or(RequestError::Range)
    }

    /// Checks that a range lies within the file.
    pub(super) fn check_range(&self, offset: u64, len: u64) -> Result<(), RequestError> {
        let end = offset.checked_add(len).filter(|end| *end <= self.len());
        end.map(|_| ()).ok_or(RequestError::Range)
    }

    /// Whether `metadata` is of this file, unchanged since.
    fn is(&self, metadata: &Metadata) -> bool {
        let is_same_file = self.file.metadata().is_ok_and(|own| is_same(&own, metadata));
        is_same_file && self.check_unchanged().is_ok()
    }

    fn check_unchanged(&self) -> Result<(), RequestError> {
        let now = self.file.metadata().map_err(|error| self.noted(error.into()))?;
        let is_same = match self.mode {
            FileMode::Writable => now.len() >= self.len(),
            FileMode::Plain | FileMode::Contents => {
                now.len() == self.len() && now.modified().ok() == self.modified
            }
        };
        if is_same { Ok(()) } else { Err(RequestError::Changed) }
    }
}

/// An open file as the source of an archive.
struct OfArchive(Arc<OpenFile>);

impl ReadAt for OfArchive {
    fn len(&self) -> u64 {
        self.0.len()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.0.read(offset, buffer).map_err(|error| {
            let kind = match error {
                RequestError::Changed => SourceErrorKind::Changed,
                RequestError::Range => SourceErrorKind::OutOfRange,
                RequestError::Refused => SourceErrorKind::Denied,
                RequestError::Missing => SourceErrorKind::NotFound,
                RequestError::Full | RequestError::Failed => SourceErrorKind::Io,
            };
            SourceError::new(&self.0.path, kind, error.to_string()).into()
        })
    }
}

impl Source for OfArchive {
    fn uri(&self) -> &str {
        &self.0.path
    }

    fn is_local(&self) -> bool {
        true
    }
}

impl From<RequestError> for Failed {
    fn from(code: RequestError) -> Self {
        Self { code, why: None }
    }
}

/// A kernel is told only the code.
impl From<Failed> for RequestError {
    fn from(failed: Failed) -> Self {
        failed.code
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        let code = match error.kind() {
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => RequestError::Missing,
            io::ErrorKind::PermissionDenied
            | io::ErrorKind::IsADirectory
            | io::ErrorKind::ReadOnlyFilesystem
            | io::ErrorKind::InvalidInput
            | io::ErrorKind::InvalidFilename => RequestError::Refused,
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => RequestError::Full,
            _ => RequestError::Failed,
        };
        Self { code, why: Some(error.to_string()) }
    }
}

impl From<ArchiveError> for Failed {
    fn from(error: ArchiveError) -> Self {
        let code = match &error {
            ArchiveError::Source(error) => match error.kind() {
                SourceErrorKind::Changed => RequestError::Changed,
                SourceErrorKind::Denied => RequestError::Refused,
                SourceErrorKind::NotFound => RequestError::Missing,
                _ => RequestError::Failed,
            },
            ArchiveError::InvalidRange { .. } => RequestError::Range,
            ArchiveError::Device { error: DeviceError::OutOfMemory { .. }, .. } => {
                RequestError::Full
            }
            _ => RequestError::Failed,
        };
        // Whoever prints it knows the file's name.
        let why = match &error {
            ArchiveError::Source(error) => error.what().to_string(),
            ArchiveError::Format { error, .. } => error.to_string(),
            error => error.to_string(),
        };
        Self { code, why: Some(why) }
    }
}
