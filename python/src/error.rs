//! Exceptions. Their classes are in `_errors.py`, so that they can have several bases and documentation.

use std::io;

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{
    PyFileNotFoundError, PyOSError, PyPermissionError, PyTimeoutError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyModule;
use pz::access::{ArchiveError, SourceError, SourceErrorKind};
use pz::internal::process::PerProcess;
use pz::{Error, Place};

/// An attribute of an exception: its name and its value.
type Attribute<'a> = (&'a str, Option<u64>);

/// The exception for an error of the library. An exception that a Python file object raised comes back as it was.
pub fn raise(py: Python<'_>, error: Error) -> PyErr {
    exception(py, &error)
}

/// As [`raise`], for an error that several callers share.
fn exception(py: Python<'_>, error: &Error) -> PyErr {
    let message = error.to_string();
    let at = |place: Place| {
        [("frame", Some(place.frame)), ("block", place.block), ("offset", Some(place.offset))]
    };
    match *error {
        Error::Io(ref error) => of_io(py, error, None),
        Error::NotPz { place } => of_class(py, "NotPzError", message, &at(place)),
        Error::Corrupt { place, .. } => of_class(py, "CorruptError", message, &at(place)),
        Error::Truncated { place } => of_class(py, "TruncatedError", message, &at(place)),
        Error::Unsupported { place, .. } => of_class(py, "UnsupportedError", message, &at(place)),
        Error::UntrustedModule { sha256, place } => {
            let untrusted = of_class(py, "UntrustedModuleError", message, &at(place));
            let hash: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
            match untrusted.value(py).setattr("sha256", hash) {
                Ok(()) => untrusted,
                Err(error) => error,
            }
        }
        Error::LimitOutput { limit } => {
            of_class(py, "OutputLimitError", message, &[("limit", Some(limit))])
        }
        Error::LimitMemory { needed, limit } => {
            let attributes = [("needed", Some(needed)), ("limit", Some(limit))];
            of_class(py, "MemoryLimitError", message, &attributes)
        }
        Error::OutOfMemory { needed } => {
            of_class(py, "OutOfMemoryError", message, &[("needed", Some(needed))])
        }
        Error::InvalidLevel { .. }
        | Error::InvalidPipeline { .. }
        | Error::InvalidFilter { .. }
        | Error::InvalidBlockSize { .. }
        | Error::InvalidWindow { .. } => of_class(py, "OptionError", message, &[]),
        Error::Changed { declared, seen } => {
            let attributes = [("declared", Some(declared)), ("seen", Some(seen))];
            of_class(py, "ChangedError", message, &attributes)
        }
        Error::Forked => of_class(py, "InUseError", message, &[]),
        Error::InvalidRange { start, end, len } => {
            let attributes = [("start", Some(start)), ("end", Some(end)), ("len", Some(len))];
            of_class(py, "RangeError", message, &attributes)
        }
        // Also covers variants that a later version of the library adds.
        _ => of_class(py, "InternalError", message, &[]),
    }
}

/// The exception for an error of an archive.
pub fn of_archive(py: Python<'_>, error: ArchiveError) -> PyErr {
    match error {
        ArchiveError::Source(error) => of_source(py, &error),
        ArchiveError::Format { error, .. } => exception(py, &error),
        ArchiveError::InvalidRange { start, end, len } => {
            raise(py, Error::InvalidRange { start, end, len })
        }
        ArchiveError::Device { device: name, error } => device(py, &name, &error),
        error => of_class(py, "InternalError", error.to_string(), &[]),
    }
}

/// The exception for a source that cannot be opened or read.
pub fn of_source(py: Python<'_>, error: &SourceError) -> PyErr {
    let what = error.to_string();
    match error.kind() {
        SourceErrorKind::InvalidUri | SourceErrorKind::Unsupported => option(py, what),
        SourceErrorKind::NotFound => PyFileNotFoundError::new_err(what),
        SourceErrorKind::Denied => PyPermissionError::new_err(what),
        SourceErrorKind::Unavailable => PyTimeoutError::new_err(what),
        _ => PyOSError::new_err(what),
    }
}

/// The exception for a buffer of `len` bytes that has no room for `needed`.
pub fn buffer_too_small(py: Python<'_>, needed: u64, len: u64) -> PyErr {
    let message = format!("the result has {needed} bytes, and the buffer {len}");
    of_class(py, "BufferTooSmallError", message, &[("needed", Some(needed)), ("len", Some(len))])
}

/// The exception for memory that is unsuitable for its use.
pub fn buffer(py: Python<'_>, message: impl Into<String>) -> PyErr {
    of_class(py, "UnsuitableBufferError", message.into(), &[])
}

/// The same if another package raises an exception instead of sharing its memory.
pub fn of_buffer(py: Python<'_>, raised: PyErr) -> PyErr {
    if classes(py)
        .and_then(|classes| classes.getattr("Error"))
        .is_ok_and(|own| raised.matches(py, own).unwrap_or(false))
    {
        return raised;
    }
    let own = buffer(py, raised.value(py).to_string());
    own.set_cause(py, Some(raised));
    own
}

/// The exception for a device that is missing or does not open.
pub fn device(py: Python<'_>, name: &str, why: &dyn std::fmt::Display) -> PyErr {
    of_class(py, "DeviceError", format!("device {name}: {why}"), &[])
}

/// The exception for an option that the library does not have.
pub fn option(py: Python<'_>, message: String) -> PyErr {
    of_class(py, "OptionError", message, &[])
}

/// The exception for an object that another thread is using, or that the process made before a fork.
pub fn in_use(py: Python<'_>, message: &str) -> PyErr {
    of_class(py, "InUseError", message.to_string(), &[])
}

/// The exception for a file that has been closed, as Python's own files raise it.
pub fn closed() -> PyErr {
    PyValueError::new_err("I/O operation on closed file")
}

/// The exception for a failed call of the system, on the file at `path`.
pub fn of_io(py: Python<'_>, error: &io::Error, path: Option<&Bound<'_, PyAny>>) -> PyErr {
    if let Some(error) = SourceError::in_io(error) {
        return of_source(py, error);
    }
    let inner = error.get_ref();
    if let Some(why) = inner.and_then(|inner| inner.downcast_ref::<pz::gpu::device::DeviceError>())
    {
        return of_class(py, "DeviceError", why.to_string(), &[]);
    }
    let Some(number) = error.raw_os_error() else {
        let raised = inner.and_then(|inner| inner.downcast_ref::<PyErr>());
        return match raised {
            Some(raised) => raised.clone_ref(py),
            None => io::Error::new(error.kind(), error.to_string()).into(),
        };
    };
    let text = || py.import("os")?.call_method1("strerror", (number,))?.extract::<String>();
    let text = text().unwrap_or_else(|_| error.to_string());
    // For this number, `OSError` makes an object of the right subclass.
    match path {
        Some(path) => PyOSError::new_err((number, text, path.clone().unbind())),
        None => PyOSError::new_err((number, text)),
    }
}

/// The module of the classes.
fn classes(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    static CLASSES: PerProcess<Py<PyModule>> = PerProcess::new();
    if let Some(classes) = CLASSES.get() {
        return Ok(classes.bind(py));
    }
    let classes = py.import("libpz._errors")?.unbind();
    Ok(CLASSES.get_or_init(|| classes).bind(py))
}

fn of_class(py: Python<'_>, name: &str, message: String, attributes: &[Attribute<'_>]) -> PyErr {
    let build = || {
        let error = classes(py)?.getattr(name)?.call1((message,))?;
        for (name, value) in attributes {
            error.setattr(name, value.into_bound_py_any(py)?)?;
        }
        Ok(PyErr::from_value(error))
    };
    build().unwrap_or_else(|error| error)
}
