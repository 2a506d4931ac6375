//! A door's options, errors and statistics.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use crate::gpu::device::DeviceError;

/// The files that a door may read and write, and its resources. The setters chain.
///
/// ```
/// use pz::door::DoorOptions;
/// let options = DoorOptions::new().folder("/data").host_pool(256 << 20).workers(8);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct DoorOptions {
    /// Folders, and whether kernels may write there.
    pub(super) folders: Vec<(PathBuf, bool)>,
    pub(super) ring: u32,
    pub(super) host_pool: u64,
    pub(super) device_pool: u64,
    pub(super) small: u64,
    pub(super) workers: usize,
    pub(super) files: usize,
    pub(super) archives: usize,
}

impl DoorOptions {
    /// No folder, a ring of 4,096 requests, pools of 64 MiB in host memory and 1 GiB in device memory, host memory for
    /// what has at most 64 KiB, a worker for each core but at most 8, and up to 512 files and 64 archives open at once.
    pub fn new() -> Self {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Self {
            folders: Vec::new(),
            ring: 4096,
            host_pool: 64 << 20,
            device_pool: 1 << 30,
            small: 64 << 10,
            workers: cores.clamp(2, MAX_WORKERS),
            files: 512,
            archives: 64,
        }
    }

    /// Lets kernels read the files below this folder. Without a folder a kernel can open nothing.
    pub fn folder(mut self, path: impl AsRef<Path>) -> Self {
        self.folders.push((path.as_ref().into(), false));
        self
    }

    /// Lets kernels read, write and create files below this folder. They create no folders, and remove nothing.
    pub fn writable_folder(mut self, path: impl AsRef<Path>) -> Self {
        self.folders.push((path.as_ref().into(), true));
        self
    }

    /// Sets the number of requests in the ring: a power of two from 128 to 65,536.
    pub fn ring(mut self, requests: u32) -> Self {
        self.ring = requests;
        self
    }

    /// Sets the size of the host's memory for contents, in bytes. It is pinned.
    pub fn host_pool(mut self, bytes: u64) -> Self {
        self.host_pool = bytes;
        self
    }

    /// Sets the size of the device's memory for contents, in bytes. Devices that share memory with the host need none.
    pub fn device_pool(mut self, bytes: u64) -> Self {
        self.device_pool = bytes;
        self
    }

    /// Sets the most bytes of contents that go to host memory, which reach a kernel sooner. Longer contents go to
    /// device memory, if there is any.
    pub fn small(mut self, bytes: u64) -> Self {
        self.small = bytes;
        self
    }

    /// Sets the number of threads that serve requests, besides the one that takes them: 1 to 8.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets the most files open at once. A file stays open until the door is dropped.
    pub fn files(mut self, files: usize) -> Self {
        self.files = files;
        self
    }

    /// Sets how many archives keep their decoders and caches. Those used least recently are opened again when they are
    /// read.
    pub fn archives(mut self, archives: usize) -> Self {
        self.archives = archives;
        self
    }

    /// Checks the numbers.
    pub(super) fn check(&self) -> Result<(), DoorError> {
        let wrong = |what: &str| Err(DoorError::Options(what.into()));
        if !self.ring.is_power_of_two() || !(128..=65_536).contains(&self.ring) {
            return wrong("the ring's length is not a power of two from 128 to 65536");
        }
        if !(1..=MAX_WORKERS).contains(&self.workers) {
            return wrong("the number of workers is not from 1 to 8");
        }
        if self.host_pool < 4096 || usize::try_from(self.host_pool).is_err() {
            return wrong(
                "the pool in host memory has less than 4096 bytes, or more than there can be",
            );
        }
        if self.archives == 0 {
            return wrong("no archive may be open");
        }
        Ok(())
    }
}

impl Default for DoorOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The most workers.
pub(super) const MAX_WORKERS: usize = 8;

/// Why a door, or a file through it, cannot be opened. `Display` gives one line.
#[derive(Debug)]
#[non_exhaustive]
pub enum DoorError {
    /// An option is out of range.
    Options(String),
    /// The device failed, has no memory, or does not show running kernels the host's writes.
    Device(DeviceError),
    /// A folder cannot be allowed.
    Folder {
        /// The folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file cannot be opened.
    File {
        /// The requested path.
        path: PathBuf,
        /// Why, as a kernel is told.
        error: RequestError,
        /// Why, in one line without the path.
        why: String,
    },
    /// A thread cannot be started.
    Thread(io::Error),
}

impl fmt::Display for DoorError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Options(what) => f.write_str(what),
            Self::Device(error) => error.fmt(f),
            Self::Folder { path, error } => write!(f, "{}: {error}", path.display()),
            Self::File { path, why, .. } => write!(f, "{}: {why}", path.display()),
            Self::Thread(error) => write!(f, "no thread: {error}"),
        }
    }
}

impl std::error::Error for DoorError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Options(_) => None,
            Self::Device(error) => Some(error),
            Self::Folder { error, .. } | Self::Thread(error) => Some(error),
            Self::File { error, .. } => Some(error),
        }
    }
}

impl From<DeviceError> for DoorError {
    fn from(error: DeviceError) -> Self {
        Self::Device(error)
    }
}

/// Why a request failed. In a kernel, `door_error` returns its number, or 0 for no error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum RequestError {
    /// There is no room: in the pool, among the open files, or in the queue. The same request may succeed later.
    Full = 1,
    /// The path leads out of the allowed folders, is not that of a regular file, or may not be read or written.
    Refused = 2,
    /// There is no such file.
    Missing = 3,
    /// The range does not lie within the contents, or the request makes no sense.
    Range = 4,
    /// The file is no longer the one that was opened: it was cut, replaced or written to.
    Changed = 5,
    /// Anything else: the archive is damaged, the system cannot read, the device failed, or the door is shut.
    Failed = 6,
}

impl RequestError {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 6] =
        [Self::Full, Self::Refused, Self::Missing, Self::Range, Self::Changed, Self::Failed];

    /// The error with this code.
    pub(super) fn of_code(code: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|error| *error as u32 == code)
    }
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "there is no room at present",
            Self::Refused => "is not permitted",
            Self::Missing => "there is no such file",
            Self::Range => "the range is not within the contents",
            Self::Changed => "the file has changed since it was opened",
            Self::Failed => "cannot be read or written",
        })
    }
}

impl std::error::Error for RequestError {}

/// A door's counts so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct DoorStatistics {
    /// Requests that kernels made.
    pub requests: u64,
    /// Requests that failed with a [`RequestError`].
    pub failed: u64,
    /// Invalid requests: the handle was not theirs, or the operation is unknown. They get no answer.
    pub malformed: u64,
    /// Requests that a kernel began but did not complete within a second; the host skipped them.
    pub abandoned: u64,
    /// Bytes of contents that were loaded.
    pub bytes_read: u64,
    /// Bytes that were written to files.
    pub bytes_written: u64,
    /// How often the host thread went to sleep.
    pub sleeps: u64,
}
