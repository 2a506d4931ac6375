//! Compressed files that lie elsewhere: on an HTTP server, in an object store, in memory.
//!
//! A [`Uri`] names such a file, [`open`] finds the right [`Source`] for it, and [`SourceReader`] reads the source like
//! a file. Only the bytes asked for travel, in few requests. An [`Archive`] reads many ranges for many threads, with
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
//! The last three need the feature `remote`. Paths of files, and the user and password before a host, are
//! percent-decoded. Keys of objects and names of memory are taken as they are, with spaces and `%`.
//!
//! Requests go through the proxies that `http_proxy`, `https_proxy`, `all_proxy` and `no_proxy` name.
//!
//! # After a fork
//! A child has connections, threads and caches of its own: sources and archives of its parent go on there. Devices, and
//! what is in their memory, are its parent's alone.
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
//! [`DeviceBuffer`]s, and into buffers of the caller's, as it reads into slices: with the same priorities, deadlines
//! and cancellation. Compressed blocks cross the bus, and the device decodes them to their places.
//!
//! # What is cached
//! An archive keeps decoded blocks in one cache and compressed ones in another, each within a budget in bytes. A block
//! is absent, queued, being loaded, or in a cache; two readers that want it wait for the same load. The least recently
//! used block goes first. A read that goes on where another ended makes the next blocks come ahead of it.
//!
//! # Servers that fail, and servers that lie
//! A read that may succeed later is tried again after a pause that doubles, up to a number of times and within a time
//! that [`SourceOptions`] limit; bytes that arrived are not asked for again. What a server says of itself is checked:
//! the place and length of each answer, and that the file is still the one that was opened. So a read ends with the
//! right bytes or with one [`SourceError`] that names the URI, in bounded time.

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
