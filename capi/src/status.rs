//! Failures: a status for programs, and a message for people.

use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

use pz::Error;

/// The result of a call: success, or the kind of failure.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum pz_status {
    /// Done.
    Ok = 0,
    /// Reading or writing failed.
    Io = 1,
    /// The input does not begin with a pz frame.
    NotPz = 2,
    /// The input breaks a rule of the format, or a checksum does not agree.
    Corrupt = 3,
    /// The input ends in the middle of a frame.
    Truncated = 4,
    /// The input uses a part of the format that this version does not know.
    Unsupported = 5,
    /// The contents are longer than the options permit.
    OutputLimit = 6,
    /// The work needs more memory than the options permit.
    MemoryLimit = 7,
    /// The system refused memory.
    OutOfMemory = 8,
    /// There is no such level, pipeline, filter, block size or window.
    InvalidOption = 9,
    /// The input does not have the length that was declared.
    Changed = 10,
    /// A range begins or ends outside the contents.
    InvalidRange = 11,
    /// The result does not fit into the buffer.
    BufferTooSmall = 12,
    /// A pointer is NULL that must not be, or an object is used after its end.
    InvalidArgument = 13,
    /// A bug in pz.
    Internal = 14,
    /// The device is missing, or does not open.
    NoDevice = 15,
    /// The input needs a module, a program by its author, that the options do not allow to run.
    UntrustedModule = 16,
}

/// A status other than `Ok`, and its message.
#[derive(Clone)]
pub struct Failure {
    status: pz_status,
    message: String,
}

impl Failure {
    pub fn new(status: pz_status, message: impl Into<String>) -> Self {
        Self { status, message: message.into() }
    }

    pub fn invalid(message: &str) -> Self {
        Self::new(pz_status::InvalidArgument, message)
    }
}

/// The failure that made a stream unusable.
#[derive(Default)]
pub struct FirstFailure(Option<Failure>);

impl FirstFailure {
    /// Keeps the first failure. Later failures only say that there was an earlier one, so they get the status and
    /// message of the first.
    pub fn check<T>(&mut self, result: Result<T, Error>) -> Result<T, Failure> {
        result.map_err(|error| self.0.get_or_insert_with(|| error.into()).clone())
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Io(_) => pz_status::Io,
            Error::NotPz { .. } => pz_status::NotPz,
            Error::Corrupt { .. } => pz_status::Corrupt,
            Error::Truncated { .. } => pz_status::Truncated,
            Error::Unsupported { .. } => pz_status::Unsupported,
            Error::UntrustedModule { .. } => pz_status::UntrustedModule,
            Error::LimitOutput { .. } => pz_status::OutputLimit,
            Error::LimitMemory { .. } => pz_status::MemoryLimit,
            Error::OutOfMemory { .. } => pz_status::OutOfMemory,
            Error::InvalidLevel { .. }
            | Error::InvalidPipeline { .. }
            | Error::InvalidFilter { .. }
            | Error::InvalidBlockSize { .. }
            | Error::InvalidWindow { .. } => pz_status::InvalidOption,
            Error::Changed { .. } => pz_status::Changed,
            Error::Forked => pz_status::InvalidArgument,
            Error::InvalidRange { .. } => pz_status::InvalidRange,
            // Variants that a later version of the library adds, too.
            _ => pz_status::Internal,
        };
        Self::new(status, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        Error::from(error).into()
    }
}

thread_local! {
    static MESSAGE: RefCell<CString> = RefCell::default();
}

/// Does the work of a function, and keeps the message of its failure.
pub fn guarded(work: impl FnOnce() -> Result<(), Failure>) -> pz_status {
    let result = catch_unwind(AssertUnwindSafe(work));
    let result = result.unwrap_or_else(|_| Err(Failure::new(pz_status::Internal, "pz panicked")));
    let Err(Failure { status, message }) = result else { return pz_status::Ok };
    // All names in messages come from C, so the message has no zero byte.
    MESSAGE.set(CString::new(message).unwrap_or_default());
    status
}

/// One line about the last failure in this thread. Valid until the next call of a pz function in this thread.
#[unsafe(no_mangle)]
pub extern "C" fn pz_error_message() -> *const c_char {
    MESSAGE.with_borrow(|message| message.as_ptr())
}

/// The version of pz, such as "0.1.0".
#[unsafe(no_mangle)]
pub extern "C" fn pz_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
