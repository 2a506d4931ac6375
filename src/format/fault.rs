//! Why a structure on disk cannot be used, for code that does not know where in the file it is.

use std::io;

use crate::codec::{Malformed, OutOfMemory};
use crate::error::{Error, Place};

/// Why a structure cannot be used. [`Fault::at`] adds the place and turns it into an [`Error`].
#[derive(Debug)]
pub(crate) enum Fault {
    /// There is no magic here.
    NotPz,
    /// The input ends inside the structure.
    Truncated,
    /// The structure breaks a rule of the format.
    Corrupt(&'static str),
    /// The structure is of a kind that this version does not know.
    Unsupported(&'static str),
    /// Reading failed.
    Io(io::Error),
    /// The system refused this many bytes of memory.
    OutOfMemory(u64),
    /// A bug in this library.
    Internal(&'static str),
}

impl Fault {
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

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::UnexpectedEof => Self::Truncated,
            _ => Self::Io(error),
        }
    }
}

impl From<OutOfMemory> for Fault {
    fn from(refused: OutOfMemory) -> Self {
        Self::OutOfMemory(refused.bytes)
    }
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Self::Corrupt(malformed.0)
    }
}
