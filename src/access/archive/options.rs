//! Options of archives and of single reads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::access::sources::SourceOptions;
use crate::pipeline::DecodeOptions;

/// How an [`Archive`](crate::access::Archive) reads, decodes and caches. The setters chain.
///
/// ```
/// use pz::access::ArchiveOptions;
/// let options = ArchiveOptions::new().contents_cache(1 << 30).payload_cache(4 << 30).prefetch(8);
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct ArchiveOptions {
    pub(super) source: SourceOptions,
    pub(super) decode: DecodeOptions,
    pub(super) contents_cache: u64,
    pub(super) payload_cache: u64,
    pub(super) prefetch: usize,
}

impl ArchiveOptions {
    /// Caches of 64 MiB each, and four blocks ahead of sequential reads.
    pub fn new() -> Self {
        Self {
            source: SourceOptions::new(),
            decode: DecodeOptions::new(),
            contents_cache: 64 << 20,
            payload_cache: 64 << 20,
            prefetch: 4,
        }
    }

    /// Sets how long to wait for servers, and how often to try again.
    pub fn source(mut self, options: &SourceOptions) -> Self {
        self.source = options.clone();
        self
    }

    /// Sets the number of decoding threads, the modules that may run, and the limits on memory and on the length of the
    /// contents. The memory limit covers the index and the blocks that are being loaded. The caches come on top, and
    /// for each read the blocks that it is about to copy: at most 128, and no more than may be loaded at once. A GPU
    /// that the options name is not used.
    pub fn decode(mut self, options: &DecodeOptions) -> Self {
        self.decode = options.clone();
        self
    }

    /// Sets how many bytes of decoded contents the archive keeps for later reads. 0 keeps none.
    pub fn contents_cache(mut self, bytes: u64) -> Self {
        self.contents_cache = bytes;
        self
    }

    /// Sets how many bytes of compressed blocks the archive keeps, to decode them again without the source. 0 keeps
    /// none.
    pub fn payload_cache(mut self, bytes: u64) -> Self {
        self.payload_cache = bytes;
        self
    }

    /// Sets how many blocks are loaded ahead when a read continues where another ended, but no more than fit in half of
    /// the contents cache. 0 turns this off.
    pub fn prefetch(mut self, blocks: usize) -> Self {
        self.prefetch = blocks;
        self
    }
}

impl Default for ArchiveOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The order in which reads are served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Priority {
    /// Before everything else. One loader serves only this priority and [`Priority::High`], so these never wait behind
    /// other loads.
    Realtime,
    /// Before normal reads, also by that loader.
    High,
    /// In turn.
    #[default]
    Normal,
    /// When nothing else is queued.
    Prefetch,
}

/// Cancels reads that other threads wait for. All clones are the same token.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that cancels nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Cancels all reads that have this token or get it later.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`CancelToken::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Options of a read. The setters chain.
///
/// ```
/// use std::time::{Duration, Instant};
/// use pz::access::{Priority, ReadOptions};
/// let soon = Instant::now() + Duration::from_millis(50);
/// let options = ReadOptions::new().priority(Priority::Realtime).deadline(soon);
/// ```
#[derive(Debug, Clone, Default)]
#[non_exhaustive]
pub struct ReadOptions {
    pub(super) priority: Priority,
    pub(super) deadline: Option<Instant>,
    pub(super) cancel: Option<CancelToken>,
}

impl ReadOptions {
    /// Normal priority, without a deadline.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the priority.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the time at which the caller gives up. Blocks that are being loaded at that time still go into the caches.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the token that can cancel the read. The read checks it every 20 ms.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
}
