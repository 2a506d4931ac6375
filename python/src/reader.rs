//! Contents of files, in any order or as a stream.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::prelude::*;
use pyo3::pyclass::PyVisit;
use pyo3::types::PyBytes;
use pz::{DecodeOptions, Decoder, Error, ReadAtCursor, SeekableReader};

use crate::arguments::{Keywords, decode_options};
use crate::buffer::{NewBytes, Output, out_of_memory};
use crate::error::{self, raise};
use crate::idle::{Exclusive, Idle};
use crate::source::{PyFile, Source};
use crate::traced::{FirstFailure, Visited};

/// The least bytes for which starting threads pays.
const MIN_PARALLEL: u64 = 1 << 20;

/// Reads any part of the contents of a compressed file.
///
/// `source` is a path or a seekable file object. Threads may read at the same time if it is a path.
#[pyclass(frozen, module = "libpz._libpz")]
pub struct Reader {
    source: Source,
    options: DecodeOptions,
    size: u64,
    idle: Idle<SeekableReader<ReadAtCursor>>,
    is_closed: AtomicBool,
}

#[pymethods]
impl Reader {
    #[new]
    #[pyo3(signature = (source, **options), text_signature = "(source, *, threads=0, max_output=None, max_memory=None, \
        allow_modules=False, device='cpu', device_memory=None)")]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        options: Option<Keywords<'_, '_>>,
    ) -> PyResult<Self> {
        let options = decode_options(py, options)?;
        let source = Source::new(py, source)?;
        let opened = py.detach(|| source.reading(|| open(&source, &options)));
        let context = opened.map_err(|error| raise(py, error))?;
        let (size, idle) = (context.len(), Idle::new());
        idle.keep(context);
        Ok(Self { source, options, size, idle, is_closed: AtomicBool::new(false) })
    }

    /// Length of the contents in bytes.
    #[getter]
    fn size(&self) -> u64 {
        self.size
    }

    /// Fill `buffer` with the contents from `offset` on. Return the number of bytes, which is less than its length only
    /// at the end.
    fn read_into(&self, py: Python<'_>, offset: u64, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut output = Output::new(buffer)?;
        let bytes = output.bytes();
        let len = self.available(offset, bytes.len() as u64);
        self.with_context(py, |py, context| {
            let bytes = &mut bytes[..len];
            self.read(py, context, offset, bytes)
        })?;
        Ok(len)
    }

    /// Return `size` bytes of the contents from `offset` on, or fewer at the end.
    fn read_bytes<'py>(
        &self,
        py: Python<'py>,
        offset: u64,
        size: u64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let len = self.available(offset, size);
        self.with_context(py, |py, context| {
            let memory = NewBytes::new(py, len);
            let mut memory = memory.ok_or_else(|| raise(py, out_of_memory(len)))?;
            let bytes = memory.as_mut();
            self.read(py, context, offset, bytes)?;
            Ok(memory.into_bytes(py))
        })
    }

    /// Let go of the file. Further reads are errors.
    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.idle.clear();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        self.source.traverse(&visit)
    }

    fn __clear__(&self) {
        self.source.clear();
    }
}

impl Reader {
    /// The number of bytes from `offset` on, at most `wanted`.
    fn available(&self, offset: u64, wanted: u64) -> usize {
        // The caller has memory for them, or asks for it next. A length that is too large fails there.
        usize::try_from(self.size.saturating_sub(offset).min(wanted)).unwrap_or(usize::MAX)
    }

    fn read(
        &self,
        py: Python<'_>,
        context: &mut SeekableReader<ReadAtCursor>,
        offset: u64,
        bytes: &mut [u8],
    ) -> PyResult<()> {
        py.detach(|| self.source.reading(|| read(context, offset, bytes)))
            .map_err(|error| raise(py, error))
    }

    fn with_context<'py, T>(
        &self,
        py: Python<'py>,
        work: impl FnOnce(Python<'py>, &mut SeekableReader<ReadAtCursor>) -> PyResult<T>,
    ) -> PyResult<T> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(error::closed());
        }
        let mut context = match self.idle.take() {
            Some(context) => context,
            None if self.source.opens_again() => {
                py.detach(|| open(&self.source, &self.options)).map_err(|error| raise(py, error))?
            }
            None => return Err(error::in_use(py, "the file object is in use")),
        };
        let result = work(py, &mut context);
        if !self.is_closed.load(Ordering::Relaxed) {
            self.idle.keep(context);
        }
        result
    }
}

fn open(source: &Source, options: &DecodeOptions) -> Result<SeekableReader<ReadAtCursor>, Error> {
    SeekableReader::open(Arc::clone(&source.file), options)
}

fn read(
    context: &mut SeekableReader<ReadAtCursor>,
    offset: u64,
    mut bytes: &mut [u8],
) -> Result<(), Error> {
    let len = bytes.len() as u64;
    // Shorter ranges lie in few blocks. The last block stays decoded for the next read.
    if len >= MIN_PARALLEL.max(2 * context.block_size()) {
        return context.copy_range(offset..offset + len, &mut bytes);
    }
    context.seek(SeekFrom::Start(offset))?;
    Ok(context.read_exact(bytes)?)
}

/// Reads the contents of a compressed stream from its beginning to its end.
///
/// `source` is a file object with `read`, such as a pipe or a socket. Threads decode ahead.
#[pyclass(frozen, module = "libpz._libpz")]
pub struct StreamReader {
    decoder: Exclusive<Box<Decoder<PyFile>>>,
    source: PyFile,
    failure: FirstFailure,
}

#[pymethods]
impl StreamReader {
    #[new]
    #[pyo3(signature = (source, **options), text_signature = "(source, *, threads=0, max_output=None, max_memory=None, \
        allow_modules=False, device='cpu', device_memory=None)")]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        options: Option<Keywords<'_, '_>>,
    ) -> PyResult<Self> {
        let options = decode_options(py, options)?;
        let source = PyFile::new(source, &["read"])?;
        let decoder = py.detach(|| Decoder::new(source.clone(), &options));
        let decoder = decoder.map_err(|error| raise(py, error))?;
        let decoder = Exclusive::new(Box::new(decoder));
        Ok(Self { decoder, source, failure: FirstFailure::none() })
    }

    /// Read up to the length of `buffer` into it; return the number of bytes, 0 at the end.
    fn read_into(&self, py: Python<'_>, buffer: &Bound<'_, PyAny>) -> PyResult<usize> {
        let mut output = Output::new(buffer)?;
        let bytes = output.bytes();
        let read = self.decoder.with(py, |decoder| decoder.read(bytes))?;
        read.map_err(|error| self.failure.raised(py, raise(py, error.into())))
    }

    /// Let go of the source. Further reads are errors.
    fn close(&self) {
        self.decoder.close();
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        self.source.traced().traverse(&visit)?;
        self.failure.traverse(&visit)
    }

    fn __clear__(&self) {
        self.source.traced().clear();
        self.failure.clear();
    }
}
