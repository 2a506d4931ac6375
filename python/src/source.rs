//! Paths and Python's file objects as files.

use std::fs::File;
use std::io::{self, ErrorKind, Read, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::Arc;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pz::ReadAt;

use crate::buffer::Input;
use crate::error;

/// A compressed file, to be read in any order.
pub struct Source {
    /// What reads it.
    pub file: Arc<dyn ReadAt>,
    /// Its length in bytes.
    pub len: u64,
    /// Whether several threads may read it at the same time.
    pub is_shared: bool,
}

impl Source {
    /// Opens a path, or takes a seekable file object.
    pub fn new(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.hasattr("read")? {
            let file = PyFile::new(object, "read")?;
            let len = py.detach(|| file.seek(SeekFrom::End(0)));
            let len = len.map_err(|error| error::of_io(py, error, None))?;
            return Ok(Self { file: Arc::new(file), len, is_shared: false });
        }
        let path: PathBuf = object.extract()?;
        let opened = py.detach(|| {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(ErrorKind::IsADirectory.into());
            }
            Ok((file, metadata.len()))
        });
        let (file, len) = opened.map_err(|error| error::of_io(py, error, Some(object)))?;
        Ok(Self { file: Arc::new(PathFile(file)), len, is_shared: true })
    }
}

/// A file that was opened by its path. Reads name their offset, so threads and forked processes may share it.
struct PathFile(File);

impl ReadAt for PathFile {
    #[cfg(unix)]
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.0, buffer, offset)
    }

    #[cfg(windows)]
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.0, buffer, offset)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => (buffer, offset) = (&mut buffer[n..], offset + n as u64),
            }
        }
        Ok(())
    }
}

/// A file object of Python's. Its exceptions travel as errors and come back to the caller as they were.
pub struct PyFile(Py<PyAny>);

impl PyFile {
    /// A file object that has this method.
    pub fn new(object: &Bound<'_, PyAny>, method: &str) -> PyResult<Self> {
        match object.hasattr(method)? {
            true => Ok(Self(object.clone().unbind())),
            false => {
                let kind = object.get_type().qualname()?;
                let message =
                    format!("expected a path or a file object with {method}(), not {kind}");
                Err(PyTypeError::new_err(message))
            }
        }
    }

    /// Calls it with the interpreter's lock.
    fn call<T>(&self, work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        let result = Python::try_attach(|py| work(self.0.bind(py)).map_err(io::Error::from));
        result.unwrap_or_else(|| Err(io::Error::other("the interpreter has ended")))
    }

    fn seek(&self, to: SeekFrom) -> io::Result<u64> {
        self.call(|file| match to {
            SeekFrom::Start(offset) => file.call_method1("seek", (offset,))?.extract(),
            SeekFrom::Current(offset) => file.call_method1("seek", (offset, 1))?.extract(),
            SeekFrom::End(offset) => file.call_method1("seek", (offset, 2))?.extract(),
        })
    }

    /// Reads at most `buffer.len()` bytes from where the file object is.
    fn read_some(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.call(|file| {
            let part = file.call_method1("read", (buffer.len(),))?;
            if part.is_none() {
                return Err(io::Error::from(ErrorKind::WouldBlock).into());
            }
            let part = Input::new(&part)?;
            let bytes = part.bytes();
            let place = buffer.get_mut(..bytes.len());
            let place =
                place.ok_or_else(|| PyValueError::new_err("read() returned too many bytes"))?;
            place.copy_from_slice(bytes);
            Ok(bytes.len())
        })
    }
}

impl ReadAt for PyFile {
    fn read_exact_at(&self, mut buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.seek(SeekFrom::Start(offset))?;
        while !buffer.is_empty() {
            match self.read_some(buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => buffer = &mut buffer[n..],
            }
        }
        Ok(())
    }
}

impl Read for PyFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.read_some(buffer)
    }
}

impl Write for PyFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.call(|file| {
            let part = PyBytes::new(file.py(), bytes);
            let written: Option<usize> = file.call_method1("write", (part,))?.extract()?;
            match written {
                Some(n) if n <= bytes.len() => Ok(n),
                Some(_) => {
                    Err(PyValueError::new_err("write() returned more bytes than it was given"))
                }
                None => Err(io::Error::from(ErrorKind::WouldBlock).into()),
            }
        })
    }

    /// Flushes the file object, if it can be flushed.
    fn flush(&mut self) -> io::Result<()> {
        self.call(|file| match file.hasattr("flush")? {
            true => file.call_method0("flush").map(drop),
            false => Ok(()),
        })
    }
}
