//! Bytes that have a URI.

use super::error::{SourceError, SourceErrorKind};
use crate::stream::{Part, ReadAt};

/// Bytes that have a URI. Errors of reading them wrap a [`SourceError`]; any other error is taken for one of
/// [`SourceErrorKind::Io`].
pub trait Source: ReadAt {
    /// The URI, as messages show it: without passwords and signatures.
    fn uri(&self) -> &str;

    /// Whether reading it again is about as fast as copying memory, because its bytes are in memory or in a local file.
    /// Then its compressed blocks are not cached on their way to a device.
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

/// Checks that a part lies within a source.
pub(super) fn check(part: &Part<'_>, source: &dyn Source) -> Result<(), SourceError> {
    let (start, end, len) = (part.offset, part.end(), source.len());
    if end <= len {
        return Ok(());
    }
    let what = format!("bytes {start} to {end} are outside of its {len} bytes");
    Err(SourceError::new(source.uri(), SourceErrorKind::OutOfRange, what))
}
