//! How an archive reads, decodes and caches.

use crate::access::SourceOptions;
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

    /// Sets the number of threads that decode, the modules that may run, and the limits on memory and on the length of the
    /// contents. The memory is that of the index and of the blocks that are being loaded. On top come the caches, and what
    /// each read that is under way is about to copy: at most 128 blocks, and no more than may be loaded at once. A GPU that
    /// the options name is not used.
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
