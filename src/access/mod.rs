//! Compressed files that lie elsewhere: on an HTTP server, in an object store, in memory.
//!
//! A [`Uri`] names such a file, [`open`] finds the right [`Source`] for it, and [`SourceReader`] reads the source like a
//! file. Only the bytes asked for travel, in few requests. An [`Archive`] reads many ranges for many threads, with
//! priorities, deadlines and caches, and an [`Array`] reads its contents as items of a type.
//!
//! | URI | what it names |
//! |---|---|
//! | `file:///path`, `file:/path`, `localio:///path` | a local file |
//! | `memio://name` | bytes that this process published with [`publish`] |
//! | `http://host/path`, `https://host/path` | a file on a web server |
//! | `remoteio://host:port/path` | the same as `http://`, for servers such as `pz serve` |
//! | `s3://bucket/key` | an object of Amazon S3, or of another store that speaks its protocol |
//!
//! The last three need the feature `remote`.
//!
//! ```
//! use std::io::Read;
//! use pz::access::{SourceOptions, SourceReader, Uri, open, publish};
//!
//! publish("greeting", pz::compress(b"hello, world", &pz::Options::new())?);
//! let source = open(&Uri::parse("memio://greeting")?, &SourceOptions::new())?;
//! let mut file = pz::SeekableReader::new(SourceReader::new(source), &pz::DecodeOptions::new())?;
//! let mut word = Vec::new();
//! file.copy_range(7..12, &mut word)?;
//! assert_eq!(word, b"world");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Into the memory of a device
//! A [`DeviceMemory`] is the memory of a GPU, or of the host where there is none. An archive reads ranges into its
//! [`DeviceBuffer`]s, and into buffers of the caller's, as it reads into slices: with the same priorities, deadlines and
//! cancellation. Compressed blocks cross the bus, and the device decodes them to their places.
//!
//! # What is cached
//! An archive keeps decoded blocks in one cache and compressed ones in another, each within a budget in bytes. A block is
//! absent, queued, being loaded, or in a cache; two readers that want it wait for the same load. The least recently used
//! block goes first. A read that goes on where another ended makes the next blocks come ahead of it.
//!
//! # Servers that fail, and servers that lie
//! A read that may succeed later is tried again after a pause that doubles, up to a number of times and within a time
//! that [`SourceOptions`] limit; bytes that arrived are not asked for again. What a server says of itself is checked: the
//! place and length of each answer, and that the file is still the one that was opened. So a read ends with the right
//! bytes or with one [`SourceError`] that names the URI, in bounded time.

mod archive;
mod array;
mod cache;
mod device;
mod error;
pub(crate) mod file;
#[cfg(feature = "remote")]
mod http;
mod memory;
mod options;
mod part;
mod reader;
#[cfg(feature = "remote")]
mod retry;
#[cfg(feature = "remote")]
mod s3;
pub(crate) mod uri;

use std::path::Path;
use std::sync::Arc;

pub(crate) use archive::BackgroundRead;
pub use archive::{
    Archive, ArchiveError, ArchiveOptions, ArchiveStatistics, CancelToken, Destination, Priority,
    RangeRead, ReadOptions,
};
pub use array::Array;
pub use cache::CacheStatistics;
pub use device::{DeviceBuffer, DeviceMemory, DeviceMemoryOptions, DeviceSliceMut};
pub use error::{SourceError, SourceErrorKind};
pub(crate) use file::Positioned;
pub use memory::{publish, withdraw};
pub use options::SourceOptions;
pub use part::Part;
pub use reader::SourceReader;
pub use uri::Uri;

use uri::Address;

/// Bytes of a known length that can be read in any order, by several threads at once.
pub trait Source: Send + Sync {
    /// The URI, as messages show it: without passwords and signatures.
    fn uri(&self) -> &str;

    /// Length in bytes. It does not change: a source that becomes shorter or longer fails instead.
    fn len(&self) -> u64;

    /// Whether the source has no bytes.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills the buffers of all parts, in any order. Parts that lie near each other may travel together.
    ///
    /// # Errors
    /// The first error that happened; what the buffers then hold is unspecified.
    fn read_ranges(&self, parts: &mut [Part<'_>]) -> Result<(), SourceError>;

    /// Whether reading it again is about as fast as copying memory, because its bytes are in memory or in a local file. Then
    /// its compressed blocks are not cached on their way to a device.
    fn is_local(&self) -> bool {
        false
    }

    /// What has been asked of a server so far.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

/// What has been asked of a server, and what it has sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Requests, with those that were tried again.
    pub requests: u64,
    /// Bytes of the file that arrived, without headers.
    pub bytes: u64,
}

/// Opens the source that `uri` names. A server gets one request, for the first bytes.
///
/// # Errors
/// Those of [`SourceErrorKind`].
pub fn open(uri: &Uri, options: &SourceOptions) -> Result<Arc<dyn Source>, SourceError> {
    match uri.address() {
        Address::File(path) => Ok(Arc::new(file::FileSource::open(uri.to_string(), path)?)),
        Address::Memory(name) => memory::open(uri, name),
        #[cfg(feature = "remote")]
        Address::Http(url) => http::open(uri, http::Target::Url(url.clone()), options),
        #[cfg(feature = "remote")]
        Address::S3 { bucket, key } => {
            let object = s3::Object::from_environment(uri, bucket, key)?;
            http::open(uri, http::Target::S3(object), options)
        }
        #[cfg(not(feature = "remote"))]
        Address::Http(_) | Address::S3 { .. } => {
            let _ = options;
            let what = "needs the feature `remote`, which this build lacks";
            Err(SourceError::new(uri.to_string(), SourceErrorKind::Unsupported, what))
        }
    }
}

/// Opens a local file by its path, which messages then show.
///
/// # Errors
/// Those of [`SourceErrorKind`].
pub fn open_path(path: &Path) -> Result<Arc<dyn Source>, SourceError> {
    Ok(Arc::new(file::FileSource::open(path.display().to_string(), path)?))
}
