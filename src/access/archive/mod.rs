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
//! - [`reader`] has the archive as callers see it, and [`shared`] what they share with the threads that load blocks.
//! - [`to_device`] is the way to a device's buffer, also for reads that go on in the background. The placements go to
//!   the device's decoder along with the payloads: see [`device`](crate::access::device), and [`device_batch`] for a batch
//!   of them. [`restoring`] finds what blocks with distant matches consist of. The rest of this list is about host
//!   memory.
//! - [`queue`] holds the blocks that somebody waits for. Two callers that want the same block wait for one load. A
//!   loader takes many blocks of one priority at once: their payloads are one call of the source, in which neighbours
//!   share a request, and one batch of the decoder.
//! - [`load`] is that thread's work. A [`completion`] gets the blocks of a read: its caller gives up at a deadline or
//!   when it is cancelled, whatever the loaders do, and blocks that nobody waits for any more are not loaded.

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
