//! Reasons why a structure on disk cannot be used, for code that does not know its place in the file.

use std::io;

use crate::codec::{Malformed, OutOfMemory};

/// The reason why a structure cannot be used. `Fault::at`, beside [`Error`](crate::Error), adds the place.
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
