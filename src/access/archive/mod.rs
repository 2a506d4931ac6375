//! Reads ranges of a compressed file's contents, for many callers at once.
//!
//! ```text
//! read ─▶ placements ─▶ contents cache ─▶ queue, by priority ─▶ batch ─▶ payload cache ─▶ source ─▶ decoder
//!   ▲                        │ hit                                            │ hit        (ranges   (all cores)
//!   └──── copied by the caller ◀──────────────── pages ◀──────────────────────┴──────────── coalesced)
//! ```
//!
//! - The layout of the file ([`block`](crate::stream::block)) turns a range into *placements*: which bytes of which
//!   block go where in the destination.
//! - [`reader`] has the archive as callers see it, and [`shared`] has the state that callers share with the threads
//!   that load blocks.
//! - [`queue`] orders the blocks that reads wait for. Two reads that want the same block wait for one load. A loader
//!   takes many blocks of one priority at once: one call of the source reads their payloads, so that neighbours share a
//!   request, and the decoding threads decode them.
//! - [`load`] reads and decodes blocks. A [`completion`] collects the blocks of a read. Its caller can give up at a
//!   deadline or when it is cancelled, whatever the loaders do. Blocks that no read wants any more are not loaded.
//! - [`to_device`] reads into buffers of devices, also in the background. The device's workers take blocks from a
//!   [`device_queue`], and run them in batches ([`device_batch`]): see [`device`](crate::access::device). [`restoring`]
//!   plans how a device restores blocks with distant matches.

mod array;
mod completion;
mod destination;
mod device_batch;
mod device_queue;
mod error;
mod load;
mod options;
mod queue;
mod reader;
mod restoring;
mod shared;
mod to_device;

pub use array::Array;
pub use destination::{Destination, RangeRead};
pub use error::ArchiveError;
pub use options::{ArchiveOptions, CancelToken, Priority, ReadOptions};
pub use reader::{Archive, ArchiveStatistics};
