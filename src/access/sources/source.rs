//! Bytes that can be read in any order.

use super::error::{SourceError, SourceErrorKind};

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

/// A part of a source, and where its bytes go.
#[derive(Debug)]
pub struct Part<'a> {
    /// Offset of the first byte in the source.
    pub offset: u64,
    /// Filled with the bytes from there on.
    pub buffer: &'a mut [u8],
}

impl Part<'_> {
    /// Offset of the byte after the last.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.buffer.len() as u64)
    }

    /// Checks that the part lies within the source.
    pub(super) fn check(&self, source: &dyn Source) -> Result<(), SourceError> {
        if self.end() <= source.len() {
            return Ok(());
        }
        let what = format!(
            "bytes {} to {} are outside of its {} bytes",
            self.offset,
            self.end(),
            source.len()
        );
        Err(SourceError::new(source.uri(), SourceErrorKind::OutOfRange, what))
    }
}
