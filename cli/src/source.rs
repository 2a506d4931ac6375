//! The input.

use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, IsTerminal, Read, Seek, SeekFrom};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use pz::ReadAt;
use pz::access::{SourceReader, Traffic, Uri};
use pz::internal::output::FileId;

use crate::failure::{Failure, show};
use crate::progress::Progress;
use crate::remote;
use crate::sparse;
use crate::standard;

/// An input that the user named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// A file.
    Path(PathBuf),
    /// A file on another machine.
    Uri(Uri),
}

impl Input {
    /// A name on the command line: `-` is standard input, and URIs are told from paths by their schemes. The error has
    /// the name to print.
    pub fn named(name: &Path) -> Result<Self, (String, Failure)> {
        match name.to_str() {
            Some("-") => Ok(Input::Stdin),
            Some(text) if Uri::is_uri(text) => match Uri::parse(text) {
                Ok(uri) => Ok(match uri.local_path() {
                    Some(path) => Input::Path(path.to_path_buf()),
                    None => Input::Uri(uri),
                }),
                Err(error) => Err((error.uri().to_string(), remote::failure(error))),
            },
            _ => Ok(Input::Path(name.to_path_buf())),
        }
    }

    /// The path, if this is a file of this machine.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Input::Path(path) => Some(path),
            Input::Stdin | Input::Uri(_) => None,
        }
    }

    /// The local regular file behind this input, if it is one.
    pub fn id(&self) -> Option<FileId> {
        match self {
            Input::Stdin => standard::input_id(),
            Input::Path(path) => FileId::of_regular_file(path),
            Input::Uri(_) => None,
        }
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Stdin => f.write_str("standard input"),
            Input::Path(path) => f.write_str(&show(path)),
            Input::Uri(uri) => uri.fmt(f),
        }
    }
}

/// Which kinds of input a command accepts.
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
    /// For commands that read their inputs and replace nothing.
    pub const READ: Permit = Permit { links: true, special: true, terminal: false };
}

/// An open input.
///
/// Reads are not buffered: callers bring large buffers.
pub struct Source {
    body: Body,
    input: Input,
    /// Its metadata at opening; only for regular files.
    before: Option<Metadata>,
    /// Whether the length in its metadata is true. Files in /proc and /sys claim 0 or 4096 bytes, whatever they hold.
    has_length: bool,
    /// First bytes, read early to recognise the format.
    head: Vec<u8>,
    head_position: usize,
    /// Bytes that all threads have read.
    reads: Arc<AtomicU64>,
    progress: Progress,
}

/// What another program has done to an input while we read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Nothing.
    None,
    /// It has changed the mode or the names of the file. Or it has changed the contents and then reset the modification
    /// time.
    Inode,
    /// It has changed the contents.
    Contents,
}

/// Where an input's bytes come from.
enum Body {
    File(File),
    Remote(SourceReader),
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Body::File(file) => file.read(buffer),
            Body::Remote(reader) => reader.read(buffer),
        }
    }
}

impl Seek for Body {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        match self {
            Body::File(file) => file.seek(position),
            Body::Remote(reader) => reader.seek(position),
        }
    }
}

/// A regular file that several threads read, each at its own offsets.
#[cfg(unix)]
struct Places {
    file: File,
    len: u64,
    /// Whether holes are skipped, which moves the file's position.
    #[cfg(target_os = "linux")]
    skips_holes: bool,
    reads: Arc<AtomicU64>,
    progress: Progress,
}

#[cfg(unix)]
impl ReadAt for Places {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        #[cfg(target_os = "linux")]
        let read = match self.skips_holes {
            true => sparse::read_exact_at(&self.file, buffer, offset),
            false => std::os::unix::fs::FileExt::read_exact_at(&self.file, buffer, offset),
        };
        #[cfg(not(target_os = "linux"))]
        let read = std::os::unix::fs::FileExt::read_exact_at(&self.file, buffer, offset);
        self.reads.fetch_add(buffer.len() as u64, Ordering::Relaxed);
        self.progress.read(buffer.len());
        read
    }
}

impl Source {
    /// Opens an input that `permit` accepts.
    pub fn open(input: &Input, permit: Permit) -> Result<Self, Failure> {
        let file = match input {
            Input::Stdin => {
                let stdin = io::stdin();
                if !permit.terminal && stdin.is_terminal() {
                    return Err(Failure::environment("is a terminal; expected compressed data"));
                }
                standard::input()?
            }
            Input::Path(path) => {
                check_kind(path, permit)?;
                File::open(path)?
            }
            Input::Uri(uri) => {
                let reader = remote::open(uri)?;
                return Ok(Source::of(input, Body::Remote(reader), None, true));
            }
        };
        let metadata = file.metadata()?;
        if metadata.is_dir() {
            return Err(directory());
        }
        widen_pipe(&file, &metadata);
        // Another program may have read a part of standard input. The rest is a stream.
        let regular = metadata.is_file() && (&file).stream_position()? == 0;
        let has_length = regular && has_length(&file, &metadata);
        Ok(Source::of(input, Body::File(file), regular.then_some(metadata), has_length))
    }

    fn of(input: &Input, body: Body, before: Option<Metadata>, has_length: bool) -> Self {
        Source {
            body,
            input: input.clone(),
            before,
            has_length,
            head: Vec::new(),
            head_position: 0,
            reads: Arc::default(),
            progress: Progress::silent(),
        }
    }

    /// Requests to the server and bytes from it; `None` for a local input.
    pub fn traffic(&self) -> Option<Traffic> {
        match &self.body {
            Body::File(_) => None,
            Body::Remote(reader) => Some(reader.source().traffic()),
        }
    }

    /// Its metadata at opening, if it is a regular file.
    pub fn metadata(&self) -> Option<&Metadata> {
        self.before.as_ref()
    }

    /// Its length in bytes, if known beforehand. A length of 0 is not trusted: files of /proc claim it too.
    pub fn len(&self) -> Option<u64> {
        let len = match &self.body {
            Body::File(_) => self.before.as_ref().map(Metadata::len),
            Body::Remote(reader) => Some(reader.source().len()),
        };
        len.filter(|&len| self.has_length && len > 0)
    }

    /// Whether it has a true length and can be read in any order: a regular file, or a file on another machine.
    pub fn is_seekable(&self) -> bool {
        self.has_length
    }

    /// Prefetches the parts to read next, if the file is on another machine.
    pub fn read_ahead(&mut self, places: &[Range<u64>]) -> io::Result<()> {
        match &mut self.body {
            Body::File(_) => Ok(()),
            Body::Remote(reader) => reader.read_ahead(places),
        }
    }

    /// Limits the bytes that are read ahead over the network; returns how much memory that takes.
    pub fn limit_read_ahead(&mut self, bytes: u64) -> u64 {
        match &mut self.body {
            Body::File(_) => 0,
            Body::Remote(reader) => reader.limit_step(bytes),
        }
    }

    /// The number of hard links to the file.
    pub fn names(&self) -> u64 {
        #[cfg(unix)]
        return self.before.as_ref().map_or(1, std::os::unix::fs::MetadataExt::nlink);
        #[cfg(not(unix))]
        1
    }

    /// Reports further reads to `progress`.
    pub fn set_progress(&mut self, progress: Progress) {
        self.progress = progress;
    }

    /// Returns the first bytes without consuming them.
    pub fn peek(&mut self, len: usize) -> io::Result<&[u8]> {
        let have = self.head.len();
        if have < len {
            let missing = (len - have) as u64;
            (&mut self.body).take(missing).read_to_end(&mut self.head)?;
        }
        Ok(&self.head)
    }

    /// Lets several threads read the input; also gives its length. `None` unless it is a regular file from which
    /// nothing has been read. The bytes that they read are counted. Skips holes if nothing else `is_read` from the
    /// source meanwhile.
    pub fn places(&self, is_read: bool) -> Option<(Arc<dyn ReadAt>, u64)> {
        #[cfg(unix)]
        if let (Body::File(file), Some(len), 0) = (&self.body, self.len(), self.bytes_read()) {
            let places = Places {
                file: file.try_clone().ok()?,
                len,
                #[cfg(target_os = "linux")]
                skips_holes: !is_read && self.before.as_ref().is_some_and(sparse::has_holes),
                reads: Arc::clone(&self.reads),
                progress: self.progress.clone(),
            };
            return Some((Arc::new(places), len));
        }
        let _ = is_read;
        None
    }

    /// Finds the first offset at or after a given one that is not in a hole, if the system tells. A call moves the read
    /// position and puts it back.
    pub fn data_from(&self) -> impl Fn(u64) -> u64 + Send + Sync + use<> {
        let file = match (&self.body, self.len()) {
            (Body::File(file), Some(_)) => file.try_clone().ok(),
            _ => None,
        };
        move |offset| {
            let data = file.as_ref().and_then(|file| data_from(file, offset).ok());
            data.unwrap_or(offset)
        }
    }

    /// Bytes read so far.
    pub fn bytes_read(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    /// What another program has done to the file since it was opened. For a file on another machine, each read checks
    /// this.
    pub fn change(&self) -> Change {
        let (Body::File(file), Some(before)) = (&self.body, &self.before) else {
            return Change::None;
        };
        let Ok(now) = file.metadata() else { return Change::Contents };
        let modified = |metadata: &Metadata| metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH);
        if now.len() != before.len() || modified(&now) != modified(before) {
            return Change::Contents;
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::MetadataExt;
            let changed = |metadata: &Metadata| (metadata.ctime(), metadata.ctime_nsec());
            if changed(&now) != changed(before) {
                return Change::Inode;
            }
        }
        Change::None
    }

    /// Removes the file, from which `output` was made, unless it has changed or its name now belongs to another
    /// file.
    pub fn remove(self, output: &Path) -> Result<(), Failure> {
        let (Input::Path(path), Body::File(file)) = (&self.input, &self.body) else {
            return Ok(());
        };
        if FileId::of_path(path)? != FileId::of_file(file)? {
            return Err(Failure::environment("was replaced by another file: not removed"));
        }
        if self.change() != Change::None {
            let output = show(output);
            return Err(Failure::environment(format!(
                "changed after it was read: not removed, and {output} lacks the change"
            )));
        }
        fs::remove_file(path)?;
        Ok(())
    }
}

/// Calls [`sparse::data_from`] and restores the file's position.
fn data_from(mut file: &File, offset: u64) -> io::Result<u64> {
    let position = file.stream_position()?;
    let data = sparse::data_from(file, offset);
    file.seek(SeekFrom::Start(position))?;
    data
}

impl Read for Source {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let ahead = &self.head[self.head_position..];
        let count = if ahead.is_empty() {
            self.body.read(buffer)?
        } else {
            let count = ahead.len().min(buffer.len());
            buffer[..count].copy_from_slice(&ahead[..count]);
            self.head_position += count;
            count
        };
        self.reads.fetch_add(count as u64, Ordering::Relaxed);
        self.progress.read(count);
        Ok(count)
    }
}

impl Seek for Source {
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        let position = match position {
            // The file's position is ahead of the reader's by the unread part of the head.
            SeekFrom::Current(offset) => {
                let ahead = self.head.len() - self.head_position;
                SeekFrom::Current(offset.saturating_sub_unsigned(ahead as u64))
            }
            other => other,
        };
        self.head_position = self.head.len();
        self.body.seek(position)
    }
}

/// The warning for a source that has changed, although all of it could be read.
pub fn changed(output: &str) -> String {
    format!("changed while it was being read; {output} holds what was read")
}

fn directory() -> Failure {
    Failure::environment("is a directory; -r descends into it")
}

/// Whether a regular file is as long as its metadata says. Generated files, such as those in `/sys`, may not be.
#[cfg(unix)]
fn has_length(file: &File, metadata: &Metadata) -> bool {
    use std::os::unix::fs::{FileExt, MetadataExt};

    // A real file has blocks on disk, unless it is empty, one hole, or stored within its directory entry. Such a
    // file passes the test below.
    if metadata.blocks() > 0 || metadata.len() == 0 {
        return true;
    }
    let mut last_and_next = [0; 2];
    // If this read fails, the next one reports the error.
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

/// Enlarges a pipe, so that it holds a whole large read. Linux's default of 64 KiB means many more switches between
/// processes.
pub fn widen_pipe(file: &File, metadata: &Metadata) {
    #[cfg(target_os = "linux")]
    {
        use std::os::unix::fs::FileTypeExt;
        if metadata.file_type().is_fifo() {
            // Ignore a refusal: the system may have a lower limit.
            let _ = rustix::pipe::fcntl_setpipe_size(file, 1 << 20);
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (file, metadata);
}
