//! The file that is written: under a temporary name until it is complete and on disk.

use std::fs::{self, File, FileTimes, Metadata};
use std::io::{self, IsTerminal, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pz::WriteAt;
use same_file::Handle;

use crate::cleanup::Unfinished;
use crate::failure::Failure;
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
    progress: Progress,
}

enum Place {
    /// Standard output.
    Stdout(File),
    /// A device or a pipe that has a name: nothing can be renamed over it.
    Special { file: File, path: PathBuf },
    /// A file under its temporary name.
    Named { unfinished: Unfinished, path: PathBuf, overwrite: bool },
}

impl Output {
    fn new(place: Place) -> Self {
        let (written, failed, places_failed) = (0, false, Arc::default());
        Output { place, written, failed, places_failed, progress: Progress::silent() }
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

    /// A file called `path`. Nothing of that name is touched before [`commit`](Self::commit).
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
                Ok(metadata) if !metadata.is_file() => {
                    let file = File::options().write(true).open(path)?;
                    return Ok(Output::new(Place::Special { file, path: path.to_path_buf() }));
                }
                Ok(_) if source.is_seekable() && is_same(path, source)? => {
                    return Err(Failure::environment("is the input itself"));
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

    /// The output as one that several threads write to, where that is faster; of what they have written it is to be
    /// [told](Self::count). It will be `len` bytes long, if that is known. Only for an output of which nothing has been written.
    pub fn places(&self, len: Option<u64>) -> Option<Arc<dyn WriteAt>> {
        #[cfg(target_os = "linux")]
        if let Place::Named { unfinished, .. } = &self.place
            && self.written == 0
        {
            let mapped = crate::mapped::Mapped::new(unfinished.file(), len, &self.places_failed)?;
            return Some(Arc::new(mapped));
        }
        None
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

    /// Gives the complete file its mode, times and owner, brings it to disk, gives it its name, and brings that to
    /// disk too. Only then is it safe to remove the source.
    pub fn commit(self, like: Option<&Metadata>) -> Result<(), Failure> {
        let Place::Named { unfinished, path, overwrite } = self.place else { return Ok(()) };
        let finish = || -> io::Result<()> {
            let file = unfinished.file();
            // Several threads may have made it longer than it is.
            file.set_len(self.written)?;
            match like {
                Some(metadata) => imitate(file, metadata)?,
                None => give_default_mode(file)?,
            }
            file.sync_all()?;
            unfinished.rename(&path, overwrite)?;
            sync_folder(folder(&path))
        };
        finish().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => exists().at(&path),
            _ => Failure::from(error).at(&path),
        })
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

fn exists() -> Failure {
    Failure::environment("already exists; -f overwrites it")
}

fn is_same(path: &Path, source: &Source) -> io::Result<bool> {
    Ok(Handle::from_path(path)? == source.handle()?)
}

fn rewound(mut file: File) -> io::Result<File> {
    file.rewind()?;
    Ok(file)
}

/// The folder that a path's last component lies in.
fn folder(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// A name lasts once its folder is on disk.
fn sync_folder(folder: &Path) -> io::Result<()> {
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

/// Errors which say that a folder cannot be synced, as opposed to that syncing it failed.
const UNSYNCABLE: [io::ErrorKind; 3] =
    [io::ErrorKind::InvalidInput, io::ErrorKind::Unsupported, io::ErrorKind::PermissionDenied];

/// Gives `file` the times, owner and mode of the file it was made from.
#[cfg(unix)]
fn imitate(file: &File, like: &Metadata) -> io::Result<()> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};

    let own = file.metadata()?;
    let mut mode = like.mode() & 0o777;
    if own.uid() != like.uid() {
        // Only root may give files away; the output then stays its maker's.
        let _ = fchown(file, Some(like.uid()), None);
    }
    if own.gid() != like.gid() && fchown(file, None, Some(like.gid())).is_err() {
        // The mode's group bits were meant for another group: grant no more than to everybody.
        mode &= 0o707 | (mode & 0o007) << 3;
    }
    file.set_permissions(fs::Permissions::from_mode(mode))?;
    set_times(file, like)
}

#[cfg(not(unix))]
fn imitate(file: &File, like: &Metadata) -> io::Result<()> {
    set_times(file, like)
}

fn set_times(file: &File, like: &Metadata) -> io::Result<()> {
    let mut times = FileTimes::new();
    if let Ok(accessed) = like.accessed() {
        times = times.set_accessed(accessed);
    }
    if let Ok(modified) = like.modified() {
        times = times.set_modified(modified);
    }
    file.set_times(times)
}

/// The mode of any new file: what the process's umask leaves of reading and writing for all.
#[cfg(unix)]
fn give_default_mode(file: &File) -> io::Result<()> {
    use rustix::fs::Mode;
    use rustix::process::umask;

    // The umask can only be read by setting it. No other thread makes files meanwhile.
    let mask = umask(Mode::from_raw_mode(0o077));
    umask(mask);
    rustix::fs::fchmod(file, Mode::from_raw_mode(0o666) - mask)?;
    Ok(())
}

#[cfg(not(unix))]
fn give_default_mode(_: &File) -> io::Result<()> {
    Ok(())
}

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
