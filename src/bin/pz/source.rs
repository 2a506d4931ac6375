//! The file that is read.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::SystemTime;

use pz::ReadAt;
use same_file::Handle;

use crate::failure::{Failure, show};
use crate::progress::Progress;
use crate::standard;

/// What the user names as an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file.
    Path(PathBuf),
}

impl Input {
    /// A name on the command line; `-` is standard input.
    pub fn named(path: PathBuf) -> Self {
        if path.as_os_str() == "-" { Input::Stdin } else { Input::Path(path) }
    }
}

impl Input {
    /// The file's name, if it has one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Input::Stdin => None,
            Input::Path(path) => Some(path),
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Stdin => f.write_str("standard input"),
            Input::Path(path) => f.write_str(&show(path)),
        }
    }
}

/// Which inputs are acceptable.
#[derive(Clone, Copy, Debug)]
pub struct Permit {
    /// Symbolic links are followed.
    pub links: bool,
    /// Pipes and devices are read.
    pub special: bool,
    /// A terminal is read.
    pub terminal: bool,
}

impl Permit {
    /// For commands that read and replace nothing.
    pub const READ: Permit = Permit { links: true, special: true, terminal: false };
}

/// An open input.
///
/// Reads go straight to the file: whoever reads brings large buffers.
pub struct Source {
    file: File,
    input: Input,
    /// The file as it was when it was opened; only of regular files.
    before: Option<Metadata>,
    /// Whether its length is that of what it holds. The kernel's own files say 0 or 4096, whatever they hold.
    has_length: bool,
    /// First bytes, read ahead of time to recognise the format.
    head: Vec<u8>,
    head_position: usize,
    read: u64,
    failed: Arc<AtomicBool>,
    progress: Progress,
}

/// A regular file that several threads read.
#[cfg(unix)]
struct Places {
    file: File,
    failed: Arc<AtomicBool>,
    progress: Progress,
}

#[cfg(unix)]
impl ReadAt for Places {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        let read = std::os::unix::fs::FileExt::read_exact_at(&self.file, buffer, offset);
        self.failed.fetch_or(read.is_err(), Ordering::Relaxed);
        self.progress.read(buffer.len());
        read
    }
}

impl Source {
    /// Opens an input, or says why it will not be read.
    pub fn open(input: &Input, permit: Permit) -> Result<Self, Failure> {
        let file = match input {
            Input::Stdin => {
                let stdin = io::stdin();
                if !permit.terminal && stdin.is_terminal() {
                    return Err(Failure::environment(
                        "is a terminal: compressed data was expected",
                    ));
                }
                standard::input()?
            }
            Input::Path(path) => {
                check_kind(path, permit)?;
                File::open(path)?
            }
        };
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(directory());
        }
        widen_pipe(&file, &metadata);
        // Standard input may have been read in part: what is left of it is a stream.
        let regular = metadata.is_file() && (&file).stream_position()? == 0;
        Ok(Source {
            has_length: regular && has_length(&file, &metadata),
            file,
            input: input.clone(),
            before: regular.then_some(metadata),
            head: Vec::new(),
            head_position: 0,
            read: 0,
            failed: Arc::default(),
            progress: Progress::silent(),
        })
    }

    /// Mode, times and owner, if it is a regular file.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.before.as_ref()
    }

    /// Its length in bytes, if it can be known beforehand. An empty file may be one of the kernel's that is not.
    pub fn len(&self) -> Option<u64> {
        self.before.as_ref().map(Metadata::len).filter(|&len| self.has_length && len > 0)
    }

    /// Whether it is a regular file, which can be read in any order.
    pub fn is_seekable(&self) -> bool {
        self.has_length
    }

    /// How many names the file has in its file system.
    pub fn names(&self) -> u64 {
        #[cfg(unix)]
        return self.before.as_ref().map_or(1, std::os::unix::fs::MetadataExt::nlink);
        #[cfg(not(unix))]
        1
    }

    /// Its identity, to be compared with an output's.
    pub fn handle(&self) -> io::Result<Handle> {
        Handle::from_file(self.file.try_clone()?)
    }

    /// Reports what is read from now on.
    pub fn set_progress(&mut self, progress: Progress) {
        self.progress = progress;
    }

    /// The first bytes, which will be read again.
    pub fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        let have = self.head.len();
        if have < len {
            let missing = (len - have) as u64;
            (&mut self.file).take(missing).read_to_end(&mut self.head)?;
        }
        Ok(&self.head)
    }

    /// The input as one that several threads read from, and its length, if it is a regular file of which nothing has been
    /// read. Its bytes are to be [counted](Self::count) as read.
    pub fn places(&self) -> Option<(Arc<dyn ReadAt>, u64)> {
        #[cfg(unix)]
        if let (Some(len), 0) = (self.len(), self.read) {
            let file = self.file.try_clone().ok()?;
            let (failed, progress) = (Arc::clone(&self.failed), self.progress.clone());
            return Some((Arc::new(Places { file, failed, progress }), len));
        }
        None
    }

    /// Takes note of bytes that other threads have read, or will.
    pub fn count(&mut self, bytes: u64) {
        self.read += bytes;
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.read
    }

    /// Whether the system, and not the contents, was the reason of an error.
    pub fn failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed)
    }

    /// Whether somebody wrote to the file since it was opened.
    pub fn changed(&self) -> bool {
        let Some(before) = &self.before else { return false };
        let Ok(now) = self.file.metadata() else { return true };
        let modified = |metadata: &Metadata| metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        // The time of modification can be set back after a write. That of the last change to the file's record cannot.
        #[cfg(unix)]
        let changed = |metadata: &Metadata| {
            use std::os::unix::fs::MetadataExt;
            (metadata.ctime(), metadata.ctime_nsec())
        };
        #[cfg(not(unix))]
        let changed = |_: &Metadata| ();
        now.len() != before.len()
            || modified(&now) != modified(before)
            || changed(&now) != changed(before)
    }

    /// Removes the file that `output` was made from, unless it has changed or its name has come to mean another one.
    pub fn remove(self, output: &Path) -> Result<(), Failure> {
        let Input::Path(path) = &self.input else { return Ok(()) };
        if Handle::from_path(path)? != self.handle()? {
            return Err(Failure::environment("was replaced by another file: not removed"));
        }
        if self.changed() {
            let output = show(output);
            return Err(Failure::environment(format!(
                "changed after it was read: not removed, and {output} lacks the change"
            )));
        }
        fs::remove_file(path)?;
        Ok(())
    }
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ahead = &self.head[self.head_position..];
        let count = if ahead.is_empty() {
            let result = self.file.read(buffer);
            let failed = matches!(&result, Err(e) if e.kind() != io::ErrorKind::Interrupted);
            self.failed.fetch_or(failed, Ordering::Relaxed);
            result?
        } else {
            let count = ahead.len().min(buffer.len());
            buffer[..count].copy_from_slice(&ahead[..count]);
            self.head_position += count;
            count
        };
        self.read += count as u64;
        self.progress.read(count);
        Ok(count)
    }
}

impl Seek for Source {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        let position = match position {
            // The file is ahead of the reader by what is left of the head.
            SeekFrom::Current(offset) => {
                let ahead = self.head.len() - self.head_position;
                SeekFrom::Current(offset.saturating_sub_unsigned(ahead as u64))
            }
            other => other,
        };
        self.head_position = self.head.len();
        let result = self.file.seek(position);
        self.failed.fetch_or(result.is_err(), Ordering::Relaxed);
        result
    }
}

fn directory() -> Failure {
    Failure::environment("is a directory; -r goes through it")
}

/// Whether a regular file is as long as it says. What the kernel makes up on reading, in `/sys` for example, need not be.
#[cfg(unix)]
fn has_length(file: &File, metadata: &Metadata) -> bool {
    use std::os::unix::fs::{FileExt, MetadataExt};

    // Real files have storage behind them, unless they are empty, nothing but a hole, or short enough for their directory
    // entry. Those pass the test.
    if metadata.blocks() > 0 || metadata.len() == 0 {
        return true;
    }
    let mut last_and_next = [0; 2];
    // What cannot be read will be an error soon enough.
    file.read_at(&mut last_and_next, metadata.len() - 1).map_or(true, |count| count == 1)
}

#[cfg(not(unix))]
fn has_length(_: &File, _: &Metadata) -> bool {
    true
}

fn check_kind(path: &Path, permit: Permit) -> Result<(), Failure> {
    if !permit.links && fs::symlink_metadata(path)?.is_symlink() {
        return Err(Failure::environment("is a symbolic link; -f follows it"));
    }
    let metadata = fs::metadata(path)?;
    if metadata.is_dir() {
        Err(directory())
    } else if !metadata.is_file() && !permit.special {
        Err(Failure::environment("is not a regular file; -c reads it"))
    } else {
        Ok(())
    }
}

/// Lets a pipe hold a whole large read: on Linux it holds 64 KiB otherwise, and each refill is a switch of processes.
pub fn widen_pipe(file: &File, metadata: &Metadata) {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::FileTypeExt;
        if metadata.file_type().is_fifo() {
            // A wish: the system may have a lower limit.
            let _ = rustix::pipe::fcntl_setpipe_size(file, 1 << 20);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, metadata);
}
