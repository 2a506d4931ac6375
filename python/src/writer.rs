//! Compression to a file.

use std::io::Write;

use pyo3::prelude::*;
use pyo3::pyclass::PyVisit;
use pz::{Encoder, Error};

use crate::arguments::{Keywords, encode_options};
use crate::buffer::Input;
use crate::error::raise;
use crate::idle::Exclusive;
use crate::source::PyFile;
use crate::traced::{FirstFailure, Visited};

/// Compresses what is written to it, and writes the result to `target`, a file object with `write`.
///
/// The result is complete only after `finish`, which leaves `target` open.
#[pyclass(frozen, module = "libpz._libpz")]
pub struct Writer {
    encoder: Exclusive<Box<Encoder<PyFile>>>,
    target: PyFile,
    failure: FirstFailure,
}

#[pymethods]
impl Writer {
    #[new]
    #[pyo3(signature = (target, level=3, **options), text_signature = "(target, level=3, *, pipeline=None, \
        block_size=None, window=None, long=None, filter=None, rsyncable=False, threads=0, memory=None, device='cpu', \
        device_memory=None, verify=True)")]
    fn new(
        py: Python<'_>,
        target: &Bound<'_, PyAny>,
        level: i64,
        options: Option<Keywords<'_, '_>>,
    ) -> PyResult<Self> {
        let options = encode_options(py, level, options)?;
        let target = PyFile::new(target, &["write"])?;
        let encoder = Encoder::new(target.clone(), &options).map_err(|error| raise(py, error))?;
        let encoder = Exclusive::new(Box::new(encoder));
        Ok(Self { encoder, target, failure: FirstFailure::none() })
    }

    /// Compress all of `data`. Part of the result may be written later.
    fn write(&self, py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<usize> {
        let input = Input::new(data)?;
        let bytes = input.bytes();
        self.with_encoder(py, |encoder| Ok(encoder.write_all(bytes)?))?;
        Ok(bytes.len())
    }

    /// Compress and write everything so far, so that it can be read. Many flushes make the result larger.
    fn flush(&self, py: Python<'_>) -> PyResult<()> {
        self.with_encoder(py, |encoder| Ok(encoder.flush()?))
    }

    /// Write the rest and end the file. Further calls do nothing.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let Some(encoder) = self.encoder.take(py)? else { return Ok(()) };
        let finished = py.detach(|| encoder.finish().map(drop));
        finished.map_err(|error| self.failure.raised(py, raise(py, error)))
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        self.target.traced().traverse(&visit)?;
        self.failure.traverse(&visit)
    }

    fn __clear__(&self) {
        self.target.traced().clear();
        self.failure.clear();
    }
}

impl Writer {
    fn with_encoder(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Encoder<PyFile>) -> Result<(), Error> + Send,
    ) -> PyResult<()> {
        let done = self.encoder.with(py, |encoder| work(encoder))?;
        done.map_err(|error| self.failure.raised(py, raise(py, error)))
    }
}
