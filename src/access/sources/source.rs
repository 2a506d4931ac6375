//! Bytes that have a URI.

use super::error::{SourceError, SourceErrorKind};
use crate::stream::{Part, ReadAt, ReadAtCursor};

/// Bytes that have a URI. Errors of reading them wrap a [`SourceError`]; other errors count as [`SourceErrorKind::Io`].
pub trait Source: ReadAt {
    /// The URI, as messages show it: without passwords and signatures.
    fn uri(&self) -> &str;

    /// Whether reading it again is about as fast as copying memory, because its bytes are in memory or in a local file.
    /// An archive does not cache compressed blocks of such a source for a device.
    fn is_local(&self) -> bool {
        false
    }

    /// The requests to a server so far, and the bytes from it.
    fn traffic(&self) -> Traffic {
        Traffic::default()
    }
}

/// Reads a source like a file. Its errors wrap a [`SourceError`].
pub type SourceReader = ReadAtCursor<dyn Source>;

/// Requests to a server, and bytes from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Traffic {
    /// Requests, including retries.
    pub requests: u64,
    /// Bytes of the file that arrived, without HTTP headers.
    pub bytes: u64,
}

/// Checks that a part lies within a source.
pub(super) fn check(part: &Part<'_>, source: &dyn Source) -> Result<(), SourceError> {
    let (start, end, len) = (part.offset, part.end(), source.len());
    if end <= len {
        return Ok(());
    }
    let what = format!("bytes {start} to {end} are outside of its {len} bytes");
    Err(SourceError::new(source.uri(), SourceErrorKind::OutOfRange, what))
}
