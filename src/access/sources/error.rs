//! Why a source could not be opened or read.

use std::fmt;
use std::io;

/// Why a source could not be opened or read. `Display` gives one line that begins with the URI.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SourceError {
    uri: String,
    kind: SourceErrorKind,
    what: String,
}

/// What kind of failure it was.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SourceErrorKind {
    /// The text is no URI, or not one of a known kind.
    InvalidUri,
    /// This build or the server lacks something that the source needs.
    Unsupported,
    /// There is no such file, object or memory.
    NotFound,
    /// The system or the server denies access.
    Denied,
    /// The server could not be reached, took too long or failed, also after the retries that the options permit. It may
    /// answer later.
    Unavailable,
    /// The server broke the rules of HTTP, or contradicted itself.
    Protocol,
    /// The source is no longer the one that was opened.
    Changed,
    /// The request is outside the source.
    OutOfRange,
    /// The system could not read a local file.
    Io,
}

impl SourceError {
    /// An error of the source that `uri` names. `what` is one line without the URI.
    pub fn new(uri: impl Into<String>, kind: SourceErrorKind, what: impl Into<String>) -> Self {
        Self { uri: uri.into(), kind, what: what.into() }
    }

    /// The error that `error` wraps. Errors of reading a [`Source`](super::Source) wrap one.
    pub fn in_io(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }

    /// `error` as an error of reading the source that `uri` names: the error that it wraps, or a new one.
    pub(in crate::access) fn of_io(uri: &str, error: &io::Error) -> Self {
        let other = || Self::new(uri, SourceErrorKind::Io, error.to_string());
        Self::in_io(error).cloned().unwrap_or_else(other)
    }

    /// The URI, without passwords and signatures.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// What kind of failure it was.
    pub fn kind(&self) -> SourceErrorKind {
        self.kind
    }

    /// What happened, in one line without the URI.
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Whether the same request may succeed later.
    pub fn is_retryable(&self) -> bool {
        self.kind == SourceErrorKind::Unavailable
    }
}

impl fmt::Display for SourceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.uri, self.what)
    }
}

impl std::error::Error for SourceError {}

/// For `Read`: wraps the error, so that [`io::Error::get_ref`] gives it back.
impl From<SourceError> for io::Error {
    fn from(error: SourceError) -> Self {
        let kind = match error.kind {
            SourceErrorKind::InvalidUri | SourceErrorKind::OutOfRange => {
                io::ErrorKind::InvalidInput
            }
            SourceErrorKind::Unsupported => io::ErrorKind::Unsupported,
            SourceErrorKind::NotFound => io::ErrorKind::NotFound,
            SourceErrorKind::Denied => io::ErrorKind::PermissionDenied,
            SourceErrorKind::Unavailable => io::ErrorKind::TimedOut,
            SourceErrorKind::Protocol => io::ErrorKind::InvalidData,
            SourceErrorKind::Changed | SourceErrorKind::Io => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// [`crate::Error::Io`], which wraps it.
impl From<SourceError> for crate::Error {
    fn from(error: SourceError) -> Self {
        Self::Io(error.into())
    }
}
