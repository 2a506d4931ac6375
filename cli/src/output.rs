//! The output, which has a temporary name until it is complete.

use std::fs::{File, Metadata};
use std::io::{self, IsTerminal, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pz::WriteAt;
use pz::internal::output::{Existing, NewFile, Refusal, RefusedAttributes, folder};

use crate::cleanup;
use crate::failure::{Failure, describe_io, show};
use crate::progress::Progress;
use crate::source;
use crate::sparse;
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
    /// Whether zeros may become holes.
    is_sparse: bool,
    /// Where the last hole ended. If nothing is written after a hole, the file ends before it.
    hole_end: u64,
    progress: Progress,
}

enum Place {
    /// Standard output.
    Stdout(File),
    /// The file that the path leads to.
    Named { file: Box<NewFile>, path: PathBuf },
}

impl Output {
    fn new(place: Place) -> Self {
        let (written, failed, places_failed) = (0, false, Arc::default());
        let (mapped, is_sparse, hole_end) = (false, false, 0);
        let progress = Progress::silent();
        Output { place, written, failed, places_failed, mapped, is_sparse, hole_end, progress }
    }

    /// Opens standard output. Refuses a terminal if `binary`.
    pub fn stdout(binary: bool) -> Result<Self, Failure> {
        if binary && io::stdout().is_terminal() {
            return Err(Failure::environment(
                "refusing to write compressed data to a terminal; -f forces it, -o names a file",
            ));
        }
        let file = standard::output()?;
        source::widen_pipe(&file, &file.metadata()?);
        Ok(Output::new(Place::Stdout(file)))
    }

    /// Creates an output called `path`, with mode, times and owner of `like`. An existing file of that name stays
    /// untouched until [`Complete::rename`], unless it can only be written in place.
    pub fn create(
        path: &Path,
        existing: Existing,
        like: Option<&Metadata>,
    ) -> Result<Self, Failure> {
        cleanup::watch();
        let file =
            NewFile::create(path, existing, like).map_err(|refusal| refused(refusal, path))?;
        Ok(Output::new(Place::Named { file: Box::new(file), path: path.to_path_buf() }))
    }

    /// Lets runs of zeros become holes, but only in a new file: an existing one may need all of its blocks.
    pub fn leave_holes(&mut self) {
        self.is_sparse = matches!(&self.place, Place::Named { file, .. } if file.is_unfinished());
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
        if let Place::Named { file, .. } = &self.place
            && file.is_unfinished()
            && self.written == 0
        {
            let mapped =
                crate::mapped::Mapped::new(file.file(), len, self.is_sparse, &self.places_failed)?;
            self.mapped = true;
            return Some(Arc::new(mapped));
        }
        None
    }

    /// The file, to write to.
    fn file(&mut self) -> io::Result<&File> {
        match &mut self.place {
            Place::Stdout(file) => Ok(file),
            Place::Named { file, .. } => {
                file.begin()?;
                Ok(file.file())
            }
        }
    }

    /// Writes `len` zeros. At the end of a regular file they become a hole, which takes no space.
    pub fn write_hole(&mut self, len: u64) -> io::Result<()> {
        let result = self.file().and_then(|file| leave_hole(file, len));
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

    /// Whether it is or becomes a regular file under its own name.
    pub fn is_regular(&self) -> bool {
        matches!(&self.place, Place::Named { file, .. } if file.is_regular())
    }

    /// Opens the written file from its beginning, to check it. Works only if the output [is one](Self::is_regular).
    pub fn reopen(&self) -> io::Result<File> {
        match &self.place {
            Place::Named { file, .. } => file.reopen(),
            Place::Stdout(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Adds the output's name to an error of a write. If the file existed before, also adds what the error leaves of
    /// it.
    pub fn blame(&self, failure: Failure) -> Failure {
        let failed = self.failed || self.places_failed.load(Ordering::Relaxed);
        match &self.place {
            Place::Stdout(_) if failed => failure.at(Path::new("standard output")),
            Place::Named { file, path } => {
                let mut failure = if failed { failure.at(path) } else { failure };
                if file.is_begun_in_place() {
                    failure.what += &format!("; {} is incomplete now", show(path));
                }
                failure
            }
            Place::Stdout(_) => failure,
        }
    }

    /// Finishes the file, and sets its mode, times and owner. Standard output, a device or a pipe is synced here if
    /// `sync`.
    pub fn complete(mut self, sync: bool) -> Result<Option<Complete>, Failure> {
        if !self.is_regular() {
            return self.sync_in_place(sync).map(|()| None);
        }
        let (len, mapped) = (self.written, self.mapped);
        let ends_in_hole = self.is_sparse && self.hole_end == len;
        let begun = self.file().map(drop);
        begun.map_err(|error| self.blame(error.into()))?;
        let Place::Named { file, path } = self.place else { return Ok(None) };
        // Mappings may have extended the file beyond its contents, and a hole at its end has not extended it. Change
        // its length only in these cases, to avoid hiding another program's write.
        let found = file.file().metadata()?.len();
        if (mapped && found > len) || (ends_in_hole && found < len) {
            file.file().set_len(len).map_err(|error| Failure::from(error).at(&path))?;
        }
        let refused = file.set_attributes();
        Ok(Some(Complete { file, path, len, refused }))
    }

    fn sync_in_place(self, sync: bool) -> Result<(), Failure> {
        let synced = match &self.place {
            _ if !sync => Ok(()),
            Place::Stdout(file) => file.sync_all(),
            Place::Named { file, .. } => file.file().sync_all(),
        };
        match synced {
            // Pipes and terminals cannot be synced.
            Err(error) if folder::UNSYNCABLE.contains(&error.kind()) => Ok(()),
            Err(error) => Err(Output { failed: true, ..self }.blame(error.into())),
            Ok(()) => Ok(()),
        }
    }
}

/// A file that is complete but, unless it was written in place, does not have its name yet. Dropping it removes it.
pub struct Complete {
    file: Box<NewFile>,
    path: PathBuf,
    len: u64,
    refused: RefusedAttributes,
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

    /// A message if its mode, times or owner could not be set; otherwise `None`.
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
            let descriptor = self.file.file().as_raw_fd();
            // SAFETY: the descriptor is open, and the call touches no memory of ours. If it fails, `sync` says so.
            unsafe { libc::sync_file_range(descriptor, 0, 0, libc::SYNC_FILE_RANGE_WRITE) };
        }
    }

    /// Waits until the contents are on disk. [`sync_folder`] does the same for the name.
    pub fn sync(&self) -> Result<(), Failure> {
        let synced = self.file.file().sync_all();
        synced.map_err(|error| Failure::from(error).at(&self.path))
    }

    /// Gives the file its name.
    pub fn rename(&mut self) -> Result<(), Failure> {
        let len = self.file.file().metadata().map(|metadata| metadata.len());
        let len = len.map_err(|error| Failure::from(error).at(&self.path))?;
        if len != self.len {
            let written = self.len;
            let what =
                format!("another program changed it: pz wrote {written} bytes, and it has {len}");
            return Err(Failure::environment(what).at(&self.path));
        }
        self.file.finish().map_err(|refusal| refused(refusal, &self.path))
    }
}

/// Whether to replace an existing file with the name of an output. This depends on `-f`, and on whether the user chose
/// the name or the program made it from the input's name.
pub fn existing(force: bool, is_chosen: bool) -> Existing {
    match (force, is_chosen) {
        (false, _) => Existing::Stays,
        (true, false) => Existing::IsReplaced,
        (true, true) => Existing::IsFollowedAndReplaced,
    }
}

/// The failure of an output that cannot be created or named.
fn refused(refusal: Refusal, path: &Path) -> Failure {
    let failure = match refusal {
        Refusal::Exists => Failure::environment("already exists; -f overwrites it"),
        Refusal::IsBlockDevice => Failure::environment("is a block device; -f writes to it"),
        Refusal::Io(error) => Failure::from(error),
    };
    failure.at(path)
}

impl Write for Output {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let (len, is_hole) = match self.is_sparse {
            true => sparse::first_part(buffer, self.written),
            false => (buffer.len(), false),
        };
        let result = self.file().and_then(|mut file| match is_hole {
            true => file.seek(io::SeekFrom::Current(len as i64)).map(|_| len),
            false => file.write(&buffer[..len]),
        });
        self.failed |= matches!(&result, Err(e) if e.kind() != io::ErrorKind::Interrupted);
        let count = result?;
        self.written += count as u64;
        if is_hole {
            self.hole_end = self.written;
        }
        self.progress.wrote(count);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Extends a regular file by `len` bytes if the position is at its end, or after a hole there; returns whether it did.
fn leave_hole(mut file: &File, len: u64) -> io::Result<bool> {
    let metadata = file.metadata()?;
    if !metadata.is_file() || file.stream_position()? < metadata.len() {
        return Ok(false);
    }
    let end = file.stream_position()?.checked_add(len).ok_or(io::ErrorKind::FileTooLarge)?;
    file.set_len(end)?;
    file.seek(io::SeekFrom::Start(end))?;
    Ok(true)
}
