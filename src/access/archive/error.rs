//! Why a read of an archive failed.

use std::fmt;
use std::sync::Arc;

use crate::access::sources::SourceError;
use crate::error::Error;
use crate::gpu::device::DeviceError;

/// Why a read of an archive failed. `Display` gives one line.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The source could not be opened or read.
    Source(SourceError),
    /// The archive is damaged, in another format, or needs more than the options permit.
    Format {
        /// The URI, without passwords and signatures.
        uri: String,
        /// What is wrong. Several readers may have waited for the same block.
        error: Arc<Error>,
    },
    /// The range does not lie within the contents.
    InvalidRange {
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Length of the contents.
        len: u64,
    },
    /// The destination is not as long as the range.
    DestinationLength {
        /// Bytes of the range.
        wanted: u64,
        /// Bytes of the destination.
        found: u64,
    },
    /// The bytes are not a whole number of items of an [`Array`](crate::access::Array).
    NotItems {
        /// How many bytes there are.
        bytes: u64,
        /// Bytes of an item.
        item: u64,
    },
    /// A device failed, or has no memory. A [`DeviceMemory`](crate::access::DeviceMemory) does not use its device again
    /// after it has failed.
    Device {
        /// The name of the device.
        device: String,
        /// What is wrong.
        error: DeviceError,
    },
    /// The deadline passed before everything was loaded.
    DeadlineExceeded,
    /// The read was cancelled.
    Cancelled,
}

impl ArchiveError {
    /// `error` as an error of the archive that `uri` names.
    pub(in crate::access) fn format(uri: &str, error: Error) -> Self {
        if let Error::Io(error) = &error
            && let Some(error) = SourceError::in_io(error)
        {
            return Self::Source(error.clone());
        }
        Self::Format { uri: uri.into(), error: Arc::new(error) }
    }

    /// Whether the same read may succeed later.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Source(error) => error.is_retryable(),
            Self::DeadlineExceeded
            | Self::Device { error: DeviceError::OutOfMemory { .. }, .. } => true,
            _ => false,
        }
    }
}

impl fmt::Display for ArchiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Source(error) => error.fmt(f),
            Self::Format { uri, error } => write!(f, "{uri}: {error}"),
            Self::InvalidRange { start, end, len } => {
                write!(f, "range {start}..{end} is not within the {len} bytes of contents")
            }
            Self::DestinationLength { wanted, found } => {
                write!(f, "the destination has {found} bytes for a range of {wanted}")
            }
            Self::NotItems { bytes, item } => {
                write!(f, "{bytes} bytes are not a whole number of items of {item} bytes")
            }
            Self::Device { device, error } => write!(f, "device {device}: {error}"),
            Self::DeadlineExceeded => f.write_str("the deadline passed"),
            Self::Cancelled => f.write_str("the read was cancelled"),
        }
    }
}

impl std::error::Error for ArchiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Source(error) => Some(error),
            Self::Format { error, .. } => Some(error),
            Self::Device { error, .. } => Some(error),
            _ => None,
        }
    }
}

impl From<SourceError> for ArchiveError {
    fn from(error: SourceError) -> Self {
        Self::Source(error)
    }
}
