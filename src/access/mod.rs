//! Reads compressed files from HTTP servers, object stores, local disks and memory.
//!
//! A [`Uri`] names such a file, [`open`] finds the right [`Source`] for it, and [`SourceReader`] reads the source like
//! a file. It transfers only the bytes that are read, in few requests. An [`Archive`] reads many ranges for many
//! threads, with priorities, deadlines and caches, and an [`Array`] reads its contents as items of a type.
//!
//! | URI | what it names |
//! |---|---|
//! | `file:///path`, `file:/path`, `localio:///path` | a local file |
//! | `memio://name` | bytes that this process published with [`publish`] |
//! | `http://host/path`, `https://host/path` | a file on a web server |
//! | `remoteio://host:port/path` | the same as `http://`, for servers such as `pz serve` |
//! | `s3://bucket/key` | an object of Amazon S3, or of another store that speaks its protocol |
//!
//! The last three need the feature `remote`. Paths of files, and the user and password before a host, are
//! percent-decoded. Keys of objects and names of memory are not decoded: they may contain spaces and `%`.
//!
//! Requests go through the proxies that `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` name.
//!
//! # After a fork
//! A child can use the sources and archives of its parent: it opens its own connections, starts its own threads and
//! fills its own caches. Devices and their memory stay with the parent.
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
//! A [`DeviceMemory`] is the memory of a GPU, or host memory on a machine without one. An archive reads ranges into its
//! [`DeviceBuffer`]s and into imported buffers just as it reads into slices: with the same priorities, deadlines and
//! cancellation. Compressed blocks cross the bus, and the device decodes them into the buffer.
//!
//! # What is cached
//! An archive keeps decoded blocks in one cache and compressed ones in another, each within a budget in bytes. A block
//! is absent, queued, being loaded, or in a cache; two readers that want it wait for the same load. The caches drop the
//! least recently used block first. When a read continues where another ended, the archive loads the next blocks ahead.
//!
//! # Servers that fail, and servers that lie
//! A source repeats a failed request if it may succeed later, after pauses that double. [`SourceOptions`] limit the
//! number of tries and the time. The source does not ask again for bytes that have arrived. It checks the place and
//! length of each answer, and that the file is still the one it opened. A read therefore ends in bounded time, either
//! with the right bytes or with one [`SourceError`] that names the URI.

mod archive;
mod cache;
mod device;
pub(crate) mod sources;

pub use archive::{
    Archive, ArchiveError, ArchiveOptions, ArchiveStatistics, Array, CancelToken, Destination,
    Priority, RangeRead, ReadOptions,
};
pub use cache::CacheStatistics;
pub use device::{DeviceBuffer, DeviceMemory, DeviceMemoryOptions, DeviceSliceMut};
pub(crate) use sources::Positioned;
pub use sources::{
    Source, SourceError, SourceErrorKind, SourceOptions, SourceReader, Traffic, Uri, open,
    open_path, publish, withdraw,
};

pub use crate::stream::Part;
