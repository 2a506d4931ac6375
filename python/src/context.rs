//! `Compressor` and `Decompressor`, which keep threads and tables from call to call.

use std::convert::Infallible;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pz::{DecodeOptions, Options};

use crate::arguments::{Keywords, decode_options, encode_options};
use crate::error::raise;
use crate::idle::Idle;
use crate::oneshot::{compress_into_with, compress_with, decompress_into_with, decompress_with};

/// Compresses one buffer after another, and keeps threads, tables and buffers from call to call.
///
/// Results equal those of `compress` with the same options. Threads may share a compressor: concurrent calls use
/// separate contexts.
#[pyclass(frozen, module = "libpz")]
pub struct Compressor {
    options: Options,
    idle: Idle<pz::Compressor>,
}

#[pymethods]
impl Compressor {
    #[new]
    #[pyo3(signature = (level=3, **options), text_signature = "(level=3, *, pipeline=None, block_size=None, \
        window=None, long=None, filter=None, rsyncable=False, threads=0, memory=None, device='cpu', \
        device_memory=None, verify=True)")]
    fn new(py: Python<'_>, level: i64, options: Option<Keywords<'_, '_>>) -> PyResult<Self> {
        let options = encode_options(py, level, options)?;
        let idle = Idle::new();
        // Report wrong options now, not at the first call.
        idle.keep(pz::Compressor::new(&options).map_err(|error| raise(py, error))?);
        Ok(Self { options, idle })
    }

    /// Compress `data` and return the result.
    fn compress<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.with_context(py, |context| compress_with(py, data, |bytes| context.compress(bytes)))
    }

    /// Compress `data` to the beginning of `buffer` and return the number of bytes.
    fn compress_into(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        self.with_context(py, |context| {
            compress_into_with(py, data, buffer, |bytes, writer| context.compress_to(bytes, writer))
        })
    }
}

impl Compressor {
    fn with_context<T>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut pz::Compressor) -> PyResult<T>,
    ) -> PyResult<T> {
        let make = || pz::Compressor::new(&self.options).map_err(|error| raise(py, error));
        self.idle.with(|_| true, make, work)?
    }
}

/// Decompresses one buffer after another, and keeps threads, tables and buffers from call to call.
///
/// Threads may share a decompressor: concurrent calls use separate contexts.
#[pyclass(frozen, module = "libpz")]
pub struct Decompressor {
    options: DecodeOptions,
    idle: Idle<pz::Decompressor>,
}

#[pymethods]
impl Decompressor {
    #[new]
    #[pyo3(signature = (**options), text_signature = "(*, threads=0, max_output=None, max_memory=None, \
        allow_modules=False, device='cpu', device_memory=None)")]
    fn new(py: Python<'_>, options: Option<Keywords<'_, '_>>) -> PyResult<Self> {
        Ok(Self { options: decode_options(py, options)?, idle: Idle::new() })
    }

    /// Decompress `data` and return the contents.
    fn decompress<'py>(
        &self,
        py: Python<'py>,
        data: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        self.with_context(|context| decompress_with(py, data, context))
    }

    /// Decompress `data` to the beginning of `buffer` and return the number of bytes.
    fn decompress_into(
        &self,
        py: Python<'_>,
        data: &Bound<'_, PyAny>,
        buffer: &Bound<'_, PyAny>,
    ) -> PyResult<usize> {
        self.with_context(|context| decompress_into_with(py, data, buffer, context))
    }
}

impl Decompressor {
    fn with_context<T>(&self, work: impl FnOnce(&mut pz::Decompressor) -> T) -> T {
        let make = || Ok::<_, Infallible>(pz::Decompressor::new(&self.options));
        let Ok(result) = self.idle.with(|_| true, make, work);
        result
    }
}
