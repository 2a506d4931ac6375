//! The one error type of the library.

use std::fmt;
use std::io;
use std::str::FromStr;

use crate::codec::OutOfMemory;
use crate::codec::filter::{Filter, FilterChain};
use crate::format::{Fault, Pipeline};

/// A place in a compressed file.
///
/// `Display` gives it in words: `frame 0, block 3, byte 98304`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Place {
    /// Number of the frame, from 0, counted from the start of the file.
    pub frame: u64,
    /// Number of the block in its frame, from 0; `None` if the place is in a header, an index or a footer.
    pub block: Option<u64>,
    /// Byte offset of the structure concerned.
    pub offset: u64,
}

impl Place {
    /// The start of a file.
    pub(crate) const START: Self = Self::new(0, 0);

    /// A place outside of any block.
    pub(crate) const fn new(frame: u64, offset: u64) -> Self {
        Self { frame, block: None, offset }
    }

    /// The same place, in block `number`.
    pub(crate) const fn in_block(self, number: u64) -> Self {
        Self { block: Some(number), ..self }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {}, ", self.frame)?;
        if let Some(block) = self.block {
            write!(f, "block {block}, ")?;
        }
        write!(f, "byte {}", self.offset)
    }
}

/// What went wrong.
///
/// Every variant belongs to one [`ErrorClass`], from which the program derives its exit code.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Reading or writing failed. The system's error is the source.
    Io(io::Error),
    /// The input does not begin with the magic of a `.pz` frame.
    NotPz {
        /// Where the magic was expected.
        place: Place,
    },
    /// The input breaks a rule of the format, or a checksum does not agree.
    Corrupt {
        /// The first broken rule.
        what: &'static str,
        /// Where.
        place: Place,
    },
    /// The input ends in the middle of a frame.
    Truncated {
        /// The structure that is cut short.
        place: Place,
    },
    /// The input is well formed, but uses a part of the format that this version does not know.
    Unsupported {
        /// The unknown part.
        what: &'static str,
        /// Where.
        place: Place,
    },
    /// A frame needs a module that [`DecodeOptions::modules`](crate::DecodeOptions::modules) does not allow to run.
    UntrustedModule {
        /// SHA-256 of the module.
        sha256: [u8; 32],
        /// The frame.
        place: Place,
    },
    /// A module could not filter a block, or its filter could not be undone.
    ModuleFailed {
        /// SHA-256 of the module.
        sha256: [u8; 32],
        /// Number of the block in its frame, from 0.
        block: u64,
        /// What the module did.
        what: &'static str,
    },
    /// The contents are larger than [`DecodeOptions::max_output`](crate::DecodeOptions::max_output) permits.
    LimitOutput {
        /// The limit in bytes.
        limit: u64,
    },
    /// The work cannot be done in the memory that [`Options::memory`](crate::Options::memory) or
    /// [`DecodeOptions::max_memory`](crate::DecodeOptions::max_memory) permits, not even one block at a time.
    LimitMemory {
        /// Bytes that one block at a time needs.
        needed: u64,
        /// The limit in bytes.
        limit: u64,
    },
    /// The system refused memory.
    OutOfMemory {
        /// Bytes asked for.
        needed: u64,
    },
    /// A level that is not 1 to 9.
    InvalidLevel {
        /// The value given.
        level: u32,
    },
    /// There is no pipeline of that name.
    InvalidPipeline {
        /// The name given.
        name: String,
    },
    /// There is no filter of that name.
    InvalidFilter {
        /// The name given.
        name: String,
    },
    /// A block size that is not a power of two, or not one that the pipeline permits.
    InvalidBlockSize {
        /// The size given, in bytes.
        size: u64,
        /// The pipeline that it was given for.
        pipeline: Pipeline,
    },
    /// A window that is not a power of two between 64 KiB and 16 MiB.
    InvalidWindow {
        /// The size given, in bytes.
        size: u64,
    },
    /// The input's length is not the one that was declared with
    /// [`Options::content_size`](crate::Options::content_size): the source changed while it was read.
    Changed {
        /// Bytes declared.
        declared: u64,
        /// Bytes seen, at least.
        seen: u64,
    },
    /// An encoder or a decoder was made before this process was forked. Its threads, and its place in the file, are the
    /// other process's.
    Forked,
    /// The range asked for begins or ends outside the contents.
    InvalidRange {
        /// First byte asked for.
        start: u64,
        /// One past the last byte asked for.
        end: u64,
        /// Length of the contents.
        len: u64,
    },
    /// A bug in this library.
    Internal {
        /// What happened.
        what: &'static str,
    },
}

/// The side at fault for an [`Error`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorClass {
    /// The machine or the request: files, permissions, space, memory, limits, options.
    Environment,
    /// The compressed input: damaged, cut short, or of an unknown kind.
    Input,
    /// This library.
    Bug,
}

impl Error {
    /// The side at fault.
    ///
    /// ```
    /// use pz::{ErrorClass, DecodeOptions};
    /// let error = pz::decompress(b"not compressed at all", &DecodeOptions::new()).unwrap_err();
    /// assert_eq!(error.class(), ErrorClass::Input);
    /// ```
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotPz { .. }
            | Self::Corrupt { .. }
            | Self::Truncated { .. }
            | Self::Unsupported { .. } => ErrorClass::Input,
            Self::Internal { .. } => ErrorClass::Bug,
            Self::Io(_)
            | Self::UntrustedModule { .. }
            | Self::ModuleFailed { .. }
            | Self::LimitOutput { .. }
            | Self::LimitMemory { .. }
            | Self::OutOfMemory { .. }
            | Self::InvalidLevel { .. }
            | Self::InvalidPipeline { .. }
            | Self::InvalidFilter { .. }
            | Self::InvalidBlockSize { .. }
            | Self::InvalidWindow { .. }
            | Self::Changed { .. }
            | Self::Forked
            | Self::InvalidRange { .. } => ErrorClass::Environment,
        }
    }

    /// Where in the compressed input the fault lies, for the variants that are about the input.
    pub fn place(&self) -> Option<Place> {
        match self {
            Self::NotPz { place }
            | Self::Corrupt { place, .. }
            | Self::Truncated { place }
            | Self::UntrustedModule { place, .. }
            | Self::Unsupported { place, .. } => Some(*place),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::NotPz { place } if place.offset == 0 => f.write_str("not in pz format"),
            Self::NotPz { place } => {
                write!(f, "corrupt: the bytes after the last frame are not in pz format ({place})")
            }
            Self::Corrupt { what, place } => write!(f, "corrupt: {what} ({place})"),
            Self::Truncated { place } => write!(f, "truncated ({place})"),
            Self::Unsupported { what, place } => write!(f, "unsupported: {what} ({place})"),
            Self::UntrustedModule { sha256, place } => {
                write!(f, "needs the module {}, which is not trusted ({place})", hex(sha256))
            }
            Self::ModuleFailed { sha256, block, what } => {
                write!(f, "the module {} cannot filter block {block}: {what}", hex(sha256))
            }
            Self::LimitOutput { limit } => {
                write!(f, "contents exceed the output limit of {limit} bytes")
            }
            Self::LimitMemory { needed, limit } => {
                write!(f, "needs {needed} bytes of memory, more than the limit of {limit} bytes")
            }
            Self::OutOfMemory { needed } => {
                write!(f, "the system refused {needed} bytes of memory")
            }
            Self::InvalidLevel { level } => write!(f, "level {level} is not between 1 and 9"),
            Self::InvalidPipeline { name } => {
                write!(f, "there is no pipeline {name:?} (there are lzh, lzf, bwt, fse and store)")
            }
            Self::InvalidFilter { name } => write!(
                f,
                "there is no filter {name:?} (there are none, auto, types such as f32, bf16, i16 and i64x3, and chains \
                 such as delta8,zigzag8,transpose8)"
            ),
            Self::InvalidWindow { size } => {
                write!(f, "window {size} is not a power of two between 65536 and 16777216")
            }
            Self::InvalidBlockSize { size, pipeline } => {
                let range = pipeline.block_sizes();
                write!(
                    f,
                    "block size {size} is not a power of two between {} and {} (pipeline {pipeline})",
                    range.start(),
                    range.end(),
                )
            }
            Self::Changed { declared, seen } => {
                write!(f, "input changed while it was read: {declared} bytes declared, {seen} seen")
            }
            Self::Forked => f.write_str(
                "was begun by the process that this one was forked from; begin it again here",
            ),
            Self::InvalidRange { start, end, len } => {
                write!(f, "range {start}..{end} is not within the {len} bytes of contents")
            }
            Self::Internal { what } => write!(f, "internal error: {what}"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            _ => None,
        }
    }
}

/// Unwraps the `Error` inside an [`io::Error`], if there is one.
impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        match error.downcast::<Self>() {
            Ok(own) => own,
            Err(error) => Self::Io(error),
        }
    }
}

impl From<OutOfMemory> for Error {
    fn from(refused: OutOfMemory) -> Self {
        Self::OutOfMemory { needed: refused.bytes }
    }
}

/// For `Read`, `Write` and `Seek`: unwraps [`Error::Io`], and wraps any other error as the source.
impl From<Error> for io::Error {
    fn from(error: Error) -> Self {
        let kind = match error {
            Error::Io(error) => return error,
            Error::Truncated { .. } => io::ErrorKind::UnexpectedEof,
            Error::NotPz { .. } | Error::Corrupt { .. } | Error::Changed { .. } => {
                io::ErrorKind::InvalidData
            }
            Error::Unsupported { .. } => io::ErrorKind::Unsupported,
            Error::LimitMemory { .. } | Error::OutOfMemory { .. } => io::ErrorKind::OutOfMemory,
            Error::LimitOutput { .. } => io::ErrorKind::QuotaExceeded,
            Error::InvalidLevel { .. }
            | Error::InvalidPipeline { .. }
            | Error::InvalidFilter { .. }
            | Error::InvalidBlockSize { .. }
            | Error::InvalidWindow { .. }
            | Error::ModuleFailed { .. }
            | Error::InvalidRange { .. } => io::ErrorKind::InvalidInput,
            Error::UntrustedModule { .. } => io::ErrorKind::PermissionDenied,
            Error::Forked | Error::Internal { .. } => io::ErrorKind::Other,
        };
        Self::new(kind, error)
    }
}

/// A hash as people write it.
fn hex(hash: &[u8; 32]) -> String {
    hash.iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

impl Fault {
    /// The error for a fault in the structure at `place`.
    pub(crate) fn at(self, place: Place) -> Error {
        match self {
            Self::NotPz => Error::NotPz { place },
            Self::Truncated => Error::Truncated { place },
            Self::Corrupt(what) => Error::Corrupt { what, place },
            Self::Unsupported(what) => Error::Unsupported { what, place },
            Self::Io(error) => error.into(),
            Self::OutOfMemory(needed) => Error::OutOfMemory { needed },
            Self::Internal(what) => Error::Internal { what },
        }
    }
}

impl FromStr for Pipeline {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|pipeline| pipeline.name() == name)
            .ok_or_else(|| Error::InvalidPipeline { name: name.to_owned() })
    }
}

impl FromStr for FilterChain {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::from_name(name).ok_or_else(|| Error::InvalidFilter { name: name.to_owned() })
    }
}

impl FromStr for Filter {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::from_name(name).ok_or_else(|| Error::InvalidFilter { name: name.to_owned() })
    }
}
