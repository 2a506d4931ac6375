//! How an archive reads, decodes and caches, and how each read is treated.

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

    /// Sets how servers are waited for.
    pub fn source(mut self, options: &SourceOptions) -> Self {
        self.source = options.clone();
        self
    }

    /// Sets the number of threads that decode, the modules that may run, and the limits on memory and on the length of
    /// the contents. The memory is that of the index and of the blocks that are being loaded. On top come the caches,
    /// and what each read that is under way is about to copy: at most 128 blocks, and no more than may be loaded at
    /// once. A GPU that the options name is not used.
    pub fn decode(mut self, options: &DecodeOptions) -> Self {
        self.decode = options.clone();
        self
    }

    /// Sets the most bytes of decoded contents that are kept for further reads. 0 keeps none.
    pub fn contents_cache(mut self, bytes: u64) -> Self {
        self.contents_cache = bytes;
        self
    }

    /// Sets the most bytes of compressed blocks that are kept, so that they can be decoded again without the source. 0
    /// keeps none.
    pub fn payload_cache(mut self, bytes: u64) -> Self {
        self.payload_cache = bytes;
        self
    }

    /// Sets how many blocks are loaded ahead of a read that goes on where another ended; as far as half of the contents
    /// cache holds them. 0 turns this off.
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

/// What goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Priority {
    /// Before everything else. It has a loader of its own with [`Priority::High`], so that it waits for no other load.
    Realtime,
    /// Before normal reads, and with that loader too.
    High,
    /// In turn.
    #[default]
    Normal,
    /// When nothing else is to be loaded.
    Prefetch,
}

/// Ends reads that other threads wait for. Clones are the same token.
#[derive(Debug, Clone, Default)]
pub struct CancelToken(Arc<AtomicBool>);

impl CancelToken {
    /// A token that cancels nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends all reads that have this token, and those that get it later.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether [`CancelToken::cancel`] was called.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// How a read is treated. The setters chain.
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

    /// Sets what goes first.
    pub fn priority(mut self, priority: Priority) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the time at which the caller gives up. What is being loaded then still goes into the caches.
    pub fn deadline(mut self, deadline: Instant) -> Self {
        self.deadline = Some(deadline);
        self
    }

    /// Sets the token that can end the read. The reader looks at it every 20 ms.
    pub fn cancel(mut self, token: &CancelToken) -> Self {
        self.cancel = Some(token.clone());
        self
    }
}
