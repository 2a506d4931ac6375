//! The output, which has a temporary name until it is complete.

use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pz::WriteAt;
use same_file::Handle;

use crate::attributes::{self, Refused};
use crate::cleanup::Unfinished;
use crate::failure::{Failure, describe_io, show};
use crate::folder;
use crate::progress::Progress;
use crate::source::{self, Source};
use crate::standard;

/// An open output.
pub struct Output {
    place: Place,
    written: u64,
    failed: bool,
    /// Whether a write of the threads that [`places`](Output::places) serves has failed.
    places_failed: Arc<AtomicBool>,
    /// Whether threads write to it through mappings, which may make it longer than its contents.
    mapped: bool,
    progress: Progress,
}

enum Place {
    /// Standard output.
    Stdout(File),
    /// A device, a pipe or an already open file that has a name: we must not rename over it.
    Special { file: File, path: PathBuf },
    /// A file under its temporary name.
    Named { unfinished: Unfinished, path: PathBuf, overwrite: bool },
}

impl Output {
    fn new(place: Place) -> Self {
        let (written, failed, places_failed) = (0, false, Arc::default());
        let (mapped, progress) = (false, Progress::silent());
        Output { place, written, failed, places_failed, mapped, progress }
    }

    /// Opens standard output. Refuses a terminal if `binary`, and refuses the file that `source` is read from.
    pub fn stdout(source: &Source, binary: bool) -> Result<Self, Failure> {
        if binary && io::stdout().is_terminal() {
            return Err(Failure::environment(
                "refusing to write compressed data to a terminal; -f forces it, -o names a file",
            ));
        }
        let file = standard::output()?;
        let metadata = file.metadata()?;
        let is_file = metadata.is_file() && source.is_seekable();
        if is_file && Some(Handle::stdout()?) == source.handle()? {
            return Err(Failure::environment("standard output is the input file"));
        }
        source::widen_pipe(&file, &metadata);
        Ok(Output::new(Place::Stdout(file)))
    }

    /// Creates an output called `path`. An existing file of that name stays untouched until [`Complete::rename`].
    pub fn create(path: &Path, overwrite: bool, source: &Source) -> Result<Self, Failure> {
        Self::create_at(path, overwrite, source).map_err(|failure| failure.at(path))
    }

    fn create_at(path: &Path, overwrite: bool, source: &Source) -> Result<Self, Failure> {
        // A dangling link counts as existing too.
        if fs::symlink_metadata(path).is_ok() {
            match fs::metadata(path) {
                Ok(metadata) if metadata.is_dir() => {
                    return Err(Failure::environment("is a directory"));
                }
                Ok(metadata) if is_block_device(&metadata) && !overwrite => {
                    return Err(Failure::environment("is a block device; -f writes to it"));
                }
                Ok(metadata) if !metadata.is_file() => {
                    let file = File::options().write(true).open(path)?;
                    return Ok(Output::new(Place::Special { file, path: path.to_path_buf() }));
                }
                Ok(_) if source.is_seekable() && is_same(path, source)? => {
                    return Err(Failure::environment("is the input file"));
                }
                // `/dev/fd/3` means the open file, and renaming would replace the link to it. Append, so that the
                // file keeps what it holds.
                Ok(_) if standard::descriptor(path).is_some() => {
                    let file = File::options().append(true).open(path)?;
                    return Ok(Output::new(Place::Special { file, path: path.to_path_buf() }));
                }
                _ if !overwrite => return Err(exists()),
                _ => {}
            }
        }
        let unfinished = Unfinished::create_in(folder::of(path))?;
        Ok(Output::new(Place::Named { unfinished, path: path.to_path_buf(), overwrite }))
    }

    /// Reports further writes to `progress`.
    pub fn set_progress(&mut self, progress: Progress) {
        self.progress = progress;
    }

    /// Lets several threads write to the output, where that is faster. The caller [counts](Self::count) what they
    /// write. `len` is the output's final length, if that is known. `None` also if something has been written
    /// already.
    pub fn places(&mut self, len: Option<u64>) -> Option<Arc<dyn WriteAt>> {
        #[cfg(target_os = "linux")]
        if let Place::Named { unfinished, .. } = &self.place
            && self.written == 0
        {
            let mapped = crate::mapped::Mapped::new(unfinished.file(), len, &self.places_failed)?;
            self.mapped = true;
            return Some(Arc::new(mapped));
        }
        None
    }

    /// Writes `len` zeros. At the end of a regular file they become a hole, which takes no space.
    pub fn write_hole(&mut self, len: u64) -> io::Result<()> {
        let file = match &self.place {
            Place::Stdout(file) | Place::Special { file, .. } => file,
            Place::Named { unfinished, .. } => unfinished.file(),
        };
        let result = leave_hole(file, len);
        self.failed |= result.is_err();
        if result? {
            self.written += len;
            self.progress.wrote(usize::try_from(len).unwrap_or(usize::MAX));
            return Ok(());
        }
        let zeros = [0; 1 << 16];
        let mut left = len;
        while left > 0 {
            let count = left.min(zeros.len() as u64) as usize;
            self.write_all(&zeros[..count])?;
            left -= count as u64;
        }
        Ok(())
    }

    /// Counts bytes that other threads have written.
    pub fn count(&mut self, bytes: u64) {
        self.written += bytes;
        self.progress.wrote(bytes as usize);
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Whether it will become a regular file under its own name.
    pub fn is_named(&self) -> bool {
        matches!(self.place, Place::Named { .. })
    }

    /// Opens the written file from its beginning, to check it. Works only if the output [is named](Self::is_named).
    pub fn reopen(&self) -> io::Result<File> {
        match &self.place {
            Place::Named { unfinished, .. } => unfinished.file().try_clone().and_then(rewound),
            Place::Stdout(_) | Place::Special { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Adds the output's name to an error that came from writing.
    pub fn blame(&self, failure: Failure) -> Failure {
        let failed = self.failed || self.places_failed.load(Ordering::Relaxed);
        match (&self.place, failed) {
            (_, false) => failure,
            (Place::Stdout(_), true) => failure.at(Path::new("standard output")),
            (Place::Special { path, .. } | Place::Named { path, .. }, true) => failure.at(path),
        }
    }

    /// Finishes the file, and gives it the mode, times and owner of `like`. An output that already has its name is
    /// synced here if `sync`.
    pub fn complete(
        self,
        like: Option<&Metadata>,
        sync: bool,
    ) -> Result<Option<Complete>, Failure> {
        let Place::Named { unfinished, path, overwrite } = self.place else {
            return self.sync_in_place(sync).map(|()| None);
        };
        let file = unfinished.file();
        // Mappings may have extended the file beyond its contents. Only then truncate it, so as not to hide another
        // program's write.
        if self.mapped && file.metadata()?.len() > self.written {
            file.set_len(self.written).map_err(|error| Failure::from(error).at(&path))?;
        }
        let refused = match like {
            Some(metadata) => attributes::imitate(file, metadata),
            None => attributes::give_default_mode(file),
        };
        Ok(Some(Complete { unfinished, path, overwrite, len: self.written, refused }))
    }

    fn sync_in_place(self, sync: bool) -> Result<(), Failure> {
        match &self.place {
            Place::Stdout(file) | Place::Special { file, .. } if sync => match file.sync_all() {
                // Pipes and terminals cannot be synced.
                Err(error) if folder::UNSYNCABLE.contains(&error.kind()) => Ok(()),
                Err(error) => Err(Output { failed: true, ..self }.blame(error.into())),
                Ok(()) => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// A file that is complete but does not have its name yet. Dropping it removes it.
pub struct Complete {
    unfinished: Unfinished,
    path: PathBuf,
    overwrite: bool,
    len: u64,
    refused: Refused,
}

impl Complete {
    /// The name it will get.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Says in words which of its mode, times and owner could not be set; `None` if all were set.
    pub fn refusal(&self) -> Option<String> {
        let (what, error) = self.refused.first()?;
        let (path, why) = (show(&self.path), describe_io(error));
        Some(format!("{path}: written, but its {what} could not be set: {why}"))
    }

    /// Asks the system to start writing the file to disk, and does not wait.
    pub fn begin_sync(&self) {
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd;
            let descriptor = self.unfinished.file().as_raw_fd();
            // SAFETY: the descriptor is open, and the call touches no memory of ours. If it fails, `sync` says so.
            unsafe { libc::sync_file_range(descriptor, 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        }
    }

    /// Waits until the contents are on disk. [`sync_folder`] does the same for the name.
    pub fn sync(&self) -> Result<(), Failure> {
        let synced = self.unfinished.file().sync_all();
        synced.map_err(|error| Failure::from(error).at(&self.path))
    }

    /// Gives the file its name.
    pub fn rename(&mut self) -> Result<(), Failure> {
        let mut rename = || -> Result<(), Failure> {
            let len = self.unfinished.file().metadata()?.len();
            if len != self.len {
                let written = self.len;
                return Err(Failure::environment(format!(
                    "another program changed it: pz wrote {written} bytes, and it has {len}"
                )));
            }
            self.unfinished.rename(&self.path, self.overwrite).map_err(|error| match error.kind() {
                io::ErrorKind::AlreadyExists => exists(),
                _ => error.into(),
            })
        };
        rename().map_err(|failure| failure.at(&self.path))
    }
}

impl Write for Output {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let result = match &mut self.place {
            Place::Stdout(file) | Place::Special { file, .. } => file.write(buffer),
            Place::Named { unfinished, .. } => unfinished.file().write(buffer),
        };
        self.failed |= matches!(&result, Err(e) if e.kind() != io::ErrorKind::Interrupted);
        let count = result?;
        self.written += count as u64;
        self.progress.wrote(count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Extends a regular file by `len` bytes if the position is at its end; returns whether it did.
fn leave_hole(mut file: &File, len: u64) -> io::Result<bool> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || file.stream_position()? != metadata.len() {
        return Ok(false);
    }
    let end = metadata.len().checked_add(len).ok_or(io::ErrorKind::FileTooLarge)?;
    file.set_len(end)?;
    file.seek(io::SeekFrom::Start(end))?;
    Ok(true)
}

fn exists() -> Failure {
    Failure::environment("already exists; -f overwrites it")
}

#[cfg(unix)]
fn is_block_device(metadata: &Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(&metadata.file_type())
}

#[cfg(not(unix))]
fn is_block_device(_: &Metadata) -> bool {
    false
}

fn is_same(path: &Path, source: &Source) -> io::Result<bool> {
    Ok(Some(Handle::from_path(path)?) == source.handle()?)
}

fn rewound(mut file: File) -> io::Result<File> {
    file.rewind()?;
    Ok(file)
}
