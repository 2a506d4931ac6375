//! Paths and Python's file objects as files.

use std::fs::File;
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pyclass::PyVisit;
use pyo3::types::PyBytes;
use pz::access::{
    self, ArchiveError, SourceError, SourceErrorKind, SourceOptions, SourceReader, Uri,
};
use pz::internal::process::{Lock, Owner, PerProcess};
use pz::{ReadAt, ReadAtCursor};

use crate::buffer::Input;
use crate::error;
use crate::traced::{Traced, Visited};

/// A compressed file that can be read in any order.
pub struct Source {
    /// The reader of the file.
    pub file: Arc<dyn ReadAt>,
    kind: Kind,
}

enum Kind {
    /// The local file with this path.
    Path(PathBuf),
    /// The file that a URI names.
    Uri(Arc<dyn access::Source>),
    /// A file object.
    Object(Arc<FileObject>),
}

impl Source {
    /// Opens a path, or takes a seekable file object, which is read from its current position.
    pub fn new(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        if object.hasattr("read")? {
            let object = Arc::new(FileObject::new(py, object)?);
            let file = Arc::clone(&object) as Arc<dyn ReadAt>;
            return Ok(Self { file, kind: Kind::Object(object) });
        }
        if let Ok(uri) = object.extract::<String>()
            && Uri::is_uri(&uri)
        {
            return Self::of_uri(py, &uri);
        }
        let path: PathBuf = object.extract()?;
        let opened = py.detach(|| {
            let file = File::open(&path)?;
            let metadata = file.metadata()?;
            if metadata.is_dir() {
                return Err(ErrorKind::IsADirectory.into());
            }
            Ok(PathFile { file, len: metadata.len() })
        });
        let file = opened.map_err(|error| error::of_io(py, &error, Some(object)))?;
        Ok(Self { file: Arc::new(file), kind: Kind::Path(path) })
    }

    fn of_uri(py: Python<'_>, uri: &str) -> PyResult<Self> {
        let opened = py.detach(|| {
            let source = access::open(&Uri::parse(uri)?, &SourceOptions::new())?;
            Ok(UriFile { source, reader: PerProcess::new() })
        });
        let file = opened.map_err(|why: SourceError| error::of_source(py, &why))?;
        let remote = Arc::clone(&file.source);
        Ok(Self { file: Arc::new(file), kind: Kind::Uri(remote) })
    }

    /// Whether a call opens the file again if no context is free. A file object has only one context, so then it is in
    /// use. In a forked process, opening it again gives the error that explains this.
    pub fn opens_again(&self) -> bool {
        self.object().is_none_or(|object| !object.file.process.is_here())
    }

    fn object(&self) -> Option<&Arc<FileObject>> {
        match &self.kind {
            Kind::Object(object) => Some(object),
            Kind::Path(_) | Kind::Uri(_) => None,
        }
    }

    /// The same file as an archive reads it: many ranges at once.
    pub fn for_archive(&self, py: Python<'_>) -> PyResult<Arc<dyn access::Source>> {
        match &self.kind {
            Kind::Path(path) => {
                let opened = py.detach(|| access::open_path(path));
                opened.map_err(|why| error::of_source(py, &why))
            }
            Kind::Uri(source) => Ok(Arc::clone(source)),
            Kind::Object(object) => Ok(Arc::new(InTurns(Arc::clone(object)))),
        }
    }

    /// Makes a reader of it.
    pub fn cursor(&self) -> ReadAtCursor {
        ReadAtCursor::new(Arc::clone(&self.file))
    }

    /// Does `work`, which may read, and puts a file object back to its current position.
    pub fn reading<T, E: From<io::Error>>(
        &self,
        work: impl FnOnce() -> Result<T, E>,
    ) -> Result<T, E> {
        match self.object() {
            Some(object) => object.reading(work),
            None => work(),
        }
    }

    /// The exception for an error of an archive of this file. If the file object has raised an exception, it is that
    /// one.
    pub fn archive_error(&self, py: Python<'_>, error: ArchiveError) -> PyErr {
        let raised = self.object().and_then(|object| object.raised().take());
        raised.unwrap_or_else(|| error::of_archive(py, error))
    }

    /// For the `__traverse__` of the one Python object that has this.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Visited {
        self.object().map_or(Ok(()), |object| object.file.traced().traverse(visit))
    }

    /// For its `__clear__`.
    pub fn clear(&self) {
        if let Some(object) = self.object() {
            object.file.traced().clear();
        }
    }
}

/// A file that was opened by its path. Reads name their offset, so threads and forked processes may share it.
struct PathFile {
    file: File,
    len: u64,
}

impl ReadAt for PathFile {
    fn len(&self) -> u64 {
        self.len
    }

    #[cfg(unix)]
    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        std::os::unix::fs::FileExt::read_exact_at(&self.file, buffer, offset)
    }

    #[cfg(windows)]
    fn read_exact_at(&self, mut buffer: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !buffer.is_empty() {
            match std::os::windows::fs::FileExt::seek_read(&self.file, buffer, offset)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => (buffer, offset) = (&mut buffer[n..], offset + n as u64),
            }
        }
        Ok(())
    }
}

/// The file that a URI names. Short reads of headers and indices share requests.
struct UriFile {
    source: Arc<dyn access::Source>,
    reader: PerProcess<Mutex<SourceReader>>,
}

/// Reads of at least this many bytes are requests of their own, several at the same time.
const MIN_REQUEST: usize = 16 << 10;

impl ReadAt for UriFile {
    fn len(&self) -> u64 {
        self.source.len()
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        if buffer.len() >= MIN_REQUEST || self.source.is_local() {
            return self.source.read_exact_at(buffer, offset);
        }
        let make = || Mutex::new(SourceReader::new(Arc::clone(&self.source)));
        let reader = self.reader.get_or_init(make);
        let mut reader = reader.lock().unwrap_or_else(PoisonError::into_inner);
        reader.seek(SeekFrom::Start(offset))?;
        reader.read_exact(buffer)
    }
}

/// A seekable file object, from its position at the start.
struct FileObject {
    file: PyFile,
    start: u64,
    /// Bytes from that position to its end.
    len: u64,
    /// The threads of an archive take turns.
    turn: Lock<()>,
    /// The exception that it raised in the turn of such a thread. An archive keeps only the message.
    raised: Lock<Option<PyErr>>,
}

impl FileObject {
    fn new(py: Python<'_>, object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let file = PyFile::new(object, &["read", "seek", "tell"])?;
        if object.hasattr("seekable")? && !object.call_method0("seekable")?.is_truthy()? {
            let unsupported = py.import("io")?.getattr("UnsupportedOperation")?;
            let what = "the file object does not seek; libpz.open reads such";
            return Err(PyErr::from_value(unsupported.call1((what,))?));
        }
        let places = || {
            let start = file.tell()?;
            file.seek(SeekFrom::End(0))?;
            let end = file.tell()?;
            file.seek(SeekFrom::Start(start))?;
            Ok((start, end.saturating_sub(start)))
        };
        let (start, len) = places().map_err(|error: io::Error| error::of_io(py, &error, None))?;
        Ok(Self { file, start, len, turn: Lock::new(), raised: Lock::new() })
    }

    fn reading<T, E: From<io::Error>>(&self, work: impl FnOnce() -> Result<T, E>) -> Result<T, E> {
        let at = self.file.tell()?;
        let result = work();
        let put_back = self.file.seek(SeekFrom::Start(at));
        let value = result?;
        put_back?;
        Ok(value)
    }

    fn raised(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.raised.lock()
    }
}

impl ReadAt for FileObject {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, mut buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.start.saturating_add(offset)))?;
        while !buffer.is_empty() {
            match self.file.read_some(buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => buffer = &mut buffer[n..],
            }
        }
        Ok(())
    }
}

/// A file object as the threads of an archive read it: in turns.
struct InTurns(Arc<FileObject>);

impl ReadAt for InTurns {
    fn len(&self) -> u64 {
        self.0.len
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_ranges(&mut [access::Part { offset, buffer }])
    }

    fn read_ranges(&self, parts: &mut [access::Part<'_>]) -> io::Result<()> {
        let Self(object) = self;
        let _turn = object.turn.lock();
        let read = object.reading(|| {
            parts.iter_mut().try_for_each(|part| object.read_exact_at(part.buffer, part.offset))
        });
        read.map_err(|error: io::Error| {
            let what = error.to_string();
            if let Some(Ok(raised)) = error.into_inner().map(|inner| inner.downcast::<PyErr>()) {
                *object.raised() = Some(*raised);
            }
            SourceError::new("file object", SourceErrorKind::Io, what).into()
        })
    }
}

impl access::Source for InTurns {
    fn uri(&self) -> &str {
        "file object"
    }
}

/// A file object of Python's. Its exceptions travel as errors and come back to the caller as they were.
///
/// After a fork, parent and child share its position, so a read in one moves it for the other. So only the process that
/// got the object uses it.
#[derive(Clone)]
pub struct PyFile {
    object: Arc<Traced<PyAny>>,
    process: Owner,
}

impl PyFile {
    /// A file object that has these methods.
    pub fn new(object: &Bound<'_, PyAny>, methods: &[&str]) -> PyResult<Self> {
        for method in methods {
            if !object.hasattr(method)? {
                let kind = object.get_type().qualname()?;
                let message =
                    format!("expected a path or a file object with {method}(), not {kind}");
                return Err(PyTypeError::new_err(message));
            }
        }
        let object = Arc::new(Traced::new(Some(object.clone().unbind())));
        Ok(Self { object, process: Owner::here() })
    }

    /// The reference. The Python object that owns this must show it to the garbage collector.
    pub fn traced(&self) -> &Traced<PyAny> {
        &self.object
    }

    /// Calls it with the interpreter's lock.
    fn call<T>(&self, work: impl FnOnce(&Bound<'_, PyAny>) -> PyResult<T>) -> io::Result<T> {
        let result = Python::try_attach(|py| {
            if !self.process.is_here() {
                let why = error::in_use(py, "the file object was passed to pz before a fork");
                return Err(io::Error::from(why));
            }
            let file = self.object.get(py).ok_or_else(|| io::Error::other("the file is gone"))?;
            work(file.bind(py)).map_err(io::Error::from)
        });
        result.unwrap_or_else(|| Err(io::Error::other("the interpreter has ended")))
    }

    /// Not all file objects return their new position.
    fn seek(&self, to: SeekFrom) -> io::Result<()> {
        let arguments = match to {
            SeekFrom::Start(offset) => (i128::from(offset), 0),
            SeekFrom::Current(offset) => (i128::from(offset), 1),
            SeekFrom::End(offset) => (i128::from(offset), 2),
        };
        self.call(|file| file.call_method1("seek", arguments).map(drop))
    }

    fn tell(&self) -> io::Result<u64> {
        self.call(|file| file.call_method0("tell")?.extract())
    }

    /// Reads at most `buffer.len()` bytes from the current position.
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
                // Raw files return `None` if they would block. But other objects with a `write` often return `None`
                // too.
                None if is_raw(file)? => Err(io::Error::from(ErrorKind::WouldBlock).into()),
                None => Ok(bytes.len()),
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

/// Whether a file object is an `io.RawIOBase`.
fn is_raw(file: &Bound<'_, PyAny>) -> PyResult<bool> {
    file.is_instance(&file.py().import("io")?.getattr("RawIOBase")?)
}
