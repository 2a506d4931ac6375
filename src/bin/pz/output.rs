//! The file that is written: under a temporary name until it is complete.

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
use crate::progress::Progress;
use crate::source::{self, Source};
use crate::standard;

/// An open output.
pub struct Output {
    place: Place,
    written: u64,
    failed: bool,
    /// The same, of writing by several threads.
    places_failed: Arc<AtomicBool>,
    /// Whether several threads write to it, through mappings that may be longer than what they write.
    mapped: bool,
    progress: Progress,
}

enum Place {
    /// Standard output.
    Stdout(File),
    /// A device, a pipe or an open file that has a name: nothing can be renamed over it.
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

    /// Standard output: not a terminal if `binary`, and not the file that `source` is read from.
    pub fn stdout(source: &Source, binary: bool) -> Result<Self, Failure> {
        if binary && io::stdout().is_terminal() {
            return Err(Failure::environment(
                "compressed data is not written to a terminal; -f forces it, -o names a file",
            ));
        }
        let file = standard::output()?;
        let metadata = file.metadata()?;
        if metadata.is_file() && source.is_seekable() && Handle::stdout()? == source.handle()? {
            return Err(Failure::environment("standard output is the input itself"));
        }
        source::widen_pipe(&file, &metadata);
        Ok(Output::new(Place::Stdout(file)))
    }

    /// A file called `path`. Nothing of that name is touched before [`Complete::rename`].
    pub fn create(path: &Path, overwrite: bool, source: &Source) -> Result<Self, Failure> {
        Self::create_at(path, overwrite, source).map_err(|failure| failure.at(path))
    }

    fn create_at(path: &Path, overwrite: bool, source: &Source) -> Result<Self, Failure> {
        // A link that leads nowhere is there all the same.
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
                    return Err(Failure::environment("is the input itself"));
                }
                // `/dev/fd/3`: what is meant is the open file, and renaming would replace the link to it. What the file
                // holds already stays.
                Ok(_) if standard::descriptor(path).is_some() => {
                    let file = File::options().append(true).open(path)?;
                    return Ok(Output::new(Place::Special { file, path: path.to_path_buf() }));
                }
                _ if !overwrite => return Err(exists()),
                _ => {}
            }
        }
        let unfinished = Unfinished::create_in(folder(path))?;
        Ok(Output::new(Place::Named { unfinished, path: path.to_path_buf(), overwrite }))
    }

    /// Reports what is written from now on.
    pub fn set_progress(&mut self, progress: Progress) {
        self.progress = progress;
    }

    /// The output as one that several threads write to, where that is faster. The caller [counts](Self::count) what they
    /// write. `len` is the length that the output will have, if that is known. Only while nothing has been written to it.
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

    /// Writes `len` zeros. At the end of a regular file they are a hole, which takes no space.
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

    /// Takes note of bytes that other threads have written.
    pub fn count(&mut self, bytes: u64) {
        self.written += bytes;
        self.progress.wrote(bytes as usize);
    }

    /// Bytes written so far.
    pub fn bytes_written(&self) -> u64 {
        self.written
    }

    /// Whether it will be a regular file under a name of its own.
    pub fn is_named(&self) -> bool {
        matches!(self.place, Place::Named { .. })
    }

    /// Opens what has been written, from its beginning, to check it. Only of an output that [is
    /// named](Self::is_named).
    pub fn reopen(&self) -> io::Result<File> {
        match &self.place {
            Place::Named { unfinished, .. } => unfinished.file().try_clone().and_then(rewound),
            Place::Stdout(_) | Place::Special { .. } => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Puts the output's name before an error if it was writing that failed.
    pub fn blame(&self, failure: Failure) -> Failure {
        let failed = self.failed || self.places_failed.load(Ordering::Relaxed);
        match (&self.place, failed) {
            (_, false) => failure,
            (Place::Stdout(_), true) => failure.at(Path::new("standard output")),
            (Place::Special { path, .. } | Place::Named { path, .. }, true) => failure.at(path),
        }
    }

    /// Gives the file, to which nothing more will be written, the mode, times and owner of `like`. With `sync`, an output that
    /// has its name already is brought to disk.
    pub fn complete(
        self,
        like: Option<&Metadata>,
        sync: bool,
    ) -> Result<Option<Complete>, Failure> {
        let Place::Named { unfinished, path, overwrite } = self.place else {
            return self.sync_in_place(sync).map(|()| None);
        };
        let file = unfinished.file();
        // Several threads may have made it longer than it is. What else made it longer must not be hidden.
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
                // Pipes and terminals.
                Err(error) if UNSYNCABLE.contains(&error.kind()) => Ok(()),
                Err(error) => Err(Output { failed: true, ..self }.blame(error.into())),
                Ok(()) => Ok(()),
            },
            _ => Ok(()),
        }
    }
}

/// A file to which everything has been written, and which has not got its name yet. Dropped, it is removed.
pub struct Complete {
    unfinished: Unfinished,
    path: PathBuf,
    overwrite: bool,
    len: u64,
    refused: Refused,
}

impl Complete {
    /// The name that it will get.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// What could not be set of its mode, times and owner, in words; `None` if all could.
    pub fn refusal(&self) -> Option<String> {
        let (what, error) = self.refused.first()?;
        let (path, why) = (show(&self.path), describe_io(error));
        Some(format!("{path}: written, but its {what} could not be set: {why}"))
    }

    /// Has the system begin to write it to disk, and does not wait.
    pub fn begin_sync(&self) {
        #[cfg(target_os = "linux")]
        {
            use std::os::fd::AsRawFd;
            let descriptor = self.unfinished.file().as_raw_fd();
            // SAFETY: the descriptor is open, and the call touches no memory of ours. If it fails, `sync` says so.
            unsafe { libc::sync_file_range(descriptor, 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        }
    }

    /// Brings the contents to disk. The name follows with [`sync_folder`].
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
                    "another program changed it: of {written} bytes written it has {len}"
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

/// Lengthens a regular file by `len` bytes if it is at its end; says whether it did.
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
    Ok(Handle::from_path(path)? == source.handle()?)
}

fn rewound(mut file: File) -> io::Result<File> {
    file.rewind()?;
    Ok(file)
}

/// The folder that a path's last component lies in.
pub fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A name lasts once its folder is on disk.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    if !cfg!(unix) {
        // A folder cannot be opened as a file there.
        return Ok(());
    }
    match File::open(folder).and_then(|folder| folder.sync_all()) {
        // Some network file systems do not sync folders, and a folder may be writable and not readable: the file is
        // complete all the same.
        Err(error) if UNSYNCABLE.contains(&error.kind()) => Ok(()),
        other => other,
    }
}

/// Errors which say that something cannot be synced, as opposed to that syncing it failed.
const UNSYNCABLE: [io::ErrorKind; 3] =
    [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders() {
        for (path, parent) in [("a", "."), ("./a", "."), ("d/a", "d"), ("/a", "/"), ("../a", "..")]
        {
            assert_eq!(folder(Path::new(path)), Path::new(parent), "{path}");
        }
    }
}
