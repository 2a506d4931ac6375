//! Paths and Python's file objects as files.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pz::ReadAt;
use pz::access::{self, SourceError, SourceErrorKind, SourceOptions, SourceReader, Uri};

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
    /// The path, if it is a local file's.
    path: Option<PathBuf>,
    /// What its URI names, if it has one.
    remote: Option<Arc<dyn access::Source>>,
}

impl Source {
    /// Opens a path, or takes a seekable file object.
    pub fn new(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.hasattr("read")? {
            let file = PyFile::new(object, "read")?;
            let len = py.detach(|| file.seek(SeekFrom::End(0)));
            let len = len.map_err(|error| error::of_io(py, &error, None))?;
            let file = Arc::new(file);
            return Ok(Self { file, len, is_shared: false, path: None, remote: None });
        }
        if let Ok(uri) = object.extract::<String>()
            && Uri::is_uri(&uri)
        {
            return Self::of_uri(py, &uri);
        }
        let path: PathBuf = object.extract()?;
        let kept = Some(path.clone());
        let opened = py.detach(|| {
            let file = File::open(path)?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(ErrorKind::IsADirectory.into());
            }
            Ok((file, metadata.len()))
        });
        let (file, len) = opened.map_err(|error| error::of_io(py, &error, Some(object)))?;
        let file = Arc::new(PathFile(file));
        Ok(Self { file, len, is_shared: true, path: kept, remote: None })
    }

    fn of_uri(py: Python<'_>, uri: &str) -> PyResult<Self> {
        let opened = py.detach(|| {
            let source = access::open(&Uri::parse(uri)?, &SourceOptions::new())?;
            let reader = Mutex::new(SourceReader::new(Arc::clone(&source)));
            Ok(UriFile { source, reader })
        });
        let file = opened.map_err(|why: SourceError| error::of_source(py, &why))?;
        let (len, remote) = (file.source.len(), Some(Arc::clone(&file.source)));
        Ok(Self { file: Arc::new(file), len, is_shared: true, path: None, remote })
    }

    /// The same file as an archive reads it: many ranges at once.
    pub fn for_archive(&self, py: Python<'_>) -> PyResult<Arc<dyn access::Source>> {
        if let Some(source) = &self.remote {
            return Ok(Arc::clone(source));
        }
        if let Some(path) = &self.path {
            let opened = py.detach(|| access::open_path(path));
            return opened.map_err(|why| error::of_source(py, &why));
        }
        let turn = Mutex::new(());
        Ok(Arc::new(OfFile { file: Arc::clone(&self.file), len: self.len, turn }))
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

/// What a URI names. Short reads, of headers and indices, share requests.
struct UriFile {
    source: Arc<dyn access::Source>,
    reader: Mutex<SourceReader>,
}

/// Reads of at least this many bytes are requests of their own, several at the same time.
const MIN_REQUEST: usize = 16 << 10;

impl ReadAt for UriFile {
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if buffer.len() >= MIN_REQUEST || self.source.is_local() {
            return Ok(self.source.read_ranges(&mut [access::Part { offset, buffer }])?);
        }
        let mut reader = self.reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.seek(SeekFrom::Start(offset))?;
        reader.read_exact(buffer)
    }
}

/// A file object as the source of an archive, whose threads take turns.
struct OfFile {
    file: Arc<dyn ReadAt>,
    len: u64,
    turn: Mutex<()>,
}

impl access::Source for OfFile {
    fn uri(&self) -> &str {
        "file object"
    }

    fn len(&self) -> u64 {
        self.len
    }

    fn read_ranges(&self, parts: &mut [access::Part<'_>]) -> Result<(), SourceError> {
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        for part in parts {
            self.file.read_exact_at(part.buffer, part.offset).map_err(|error| {
                SourceError::new(self.uri(), SourceErrorKind::Io, error.to_string())
            })?;
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
