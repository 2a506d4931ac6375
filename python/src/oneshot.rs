//! One call for one buffer.

use std::io::Write;

use pyo3::prelude::*;
use pyo3::types::PyBytes;
use pz::Error;
use pz::internal::{Bounded, Growing};

use crate::arguments::{Keywords, decode_options, encode_options};
use crate::buffer::{Input, NewBytes, Output, SMALL, check_apart, detached, out_of_memory};
use crate::error::{self, raise};
use crate::idle::Idle;
use crate::memory::OnDevice;

/// Compressors for calls with short inputs: making tables takes far longer than compressing such an input.
static COMPRESSORS: Idle<pz::Compressor> = Idle::new();

/// Compress `data` and return the result.
///
/// `data` is any object with a C-contiguous buffer: `bytes`, `bytearray`, `memoryview`, a NumPy array. Meanwhile the
/// interpreter's lock is released, and no other thread may change `data`. A CUDA tensor or a `DeviceBuffer` is
/// compressed on its GPU, and only the result crosses the bus. But level 9, `filter="auto"` and `long` run on the CPU.
///
/// - `level`: 1 (fastest) to 9 (smallest).
/// - `pipeline`: "lzh", "lzf", "bwt", "fse" or "store" instead of the level's.
/// - `block_size`, `window`: in bytes, powers of two, instead of the level's.
/// - `long`: also look for repetitions of earlier blocks, up to this many bytes back, which takes about that much more
///   memory. The default is 0, which turns this off; at level 9 without a filter it is four blocks, 64 MiB.
/// - `filter`: rearranges typed data first: "f32", "bf16", "i16", "i64x3" and so on, chains such as
///   "delta8,zigzag8,transpose8", or "auto", which looks at each block.
/// - `rsyncable`: let the contents decide where frames end. After a small change most of the result stays the same,
///   which helps rsync and backups; it gets a few percent larger.
/// - `threads`: 0 for one on each core. The result does not depend on the number.
/// - `memory`: the most bytes of memory to take, beside `data` and the result; by default 2 GiB.
/// - `device`: "cpu"; "auto" for a GPU where that should save time; or "cuda", "opencl", "webgpu", "opencl:1" for a
///   particular device beside the CPU, which must exist. The result does not depend on the device.
/// - `device_memory`: the most bytes of its own memory that the device may take.
/// - `verify`: whether to decode again what a GPU has encoded.
#[pyfunction]
#[pyo3(signature = (data, level=3, **options), text_signature = "(data, level=3, *, pipeline=None, block_size=None, \
    window=None, long=None, filter=None, rsyncable=False, threads=0, memory=None, device='cpu', device_memory=None, \
    verify=True)")]
pub fn compress<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    level: i64,
    options: Option<Keywords<'_, 'py>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let options = encode_options(py, level, options)?;
    if let Some(source) = on_device(data)? {
        return compress_on_device(py, &source, &options);
    }
    compress_with(py, data, |bytes| {
        let mut compressed = Vec::new();
        compress_to(bytes, Growing(&mut compressed), &options)?;
        Ok(compressed)
    })
}

/// Compresses device memory to a new object.
fn compress_on_device<'py>(
    py: Python<'py>,
    source: &OnDevice,
    options: &pz::Options,
) -> PyResult<Bound<'py, PyBytes>> {
    // Leave room for blocks that do not shrink. Pages that are never written take no memory.
    let len = source.len(py)? as usize;
    if let Some(mut new) = NewBytes::new(py, len + len / 64 + 4096) {
        let room = new.as_mut().len() as u64;
        let needed = source.compress_to_slice(py, new.as_mut(), options)?;
        if needed <= room {
            let cut = new.cut(py, needed as usize);
            return cut.ok_or_else(|| raise(py, out_of_memory(needed as usize)));
        }
    }
    let mut compressed = Vec::new();
    source.compress_to(py, Growing(&mut compressed), options)?;
    let object = NewBytes::copy_of(py, &compressed);
    object.ok_or_else(|| raise(py, out_of_memory(compressed.len())))
}

/// Compress `data` to the beginning of `buffer` and return the number of bytes.
///
/// `buffer` is any object with a writable C-contiguous buffer. The options are those of `compress`. Raises
/// `BufferTooSmallError` if the result does not fit; `buffer` may then contain anything.
#[pyfunction]
#[pyo3(signature = (data, buffer, level=3, **options), text_signature = "(data, buffer, level=3, *, pipeline=None, \
    block_size=None, window=None, long=None, filter=None, rsyncable=False, threads=0, memory=None, device='cpu', \
    device_memory=None, verify=True)")]
pub fn compress_into(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    buffer: &Bound<'_, PyAny>,
    level: i64,
    options: Option<Keywords<'_, '_>>,
) -> PyResult<usize> {
    let options = encode_options(py, level, options)?;
    if let Some(source) = on_device(data)? {
        let mut output = Output::new(buffer)?;
        let room = output.bytes();
        let len = room.len() as u64;
        let needed = source.compress_to_slice(py, room, &options)?;
        return match needed <= len {
            true => Ok(needed as usize),
            false => Err(error::buffer_too_small(py, needed, len)),
        };
    }
    compress_into_with(py, data, buffer, |bytes, writer| compress_to(bytes, writer, &options))
}

/// Compresses `bytes` and writes the result to `writer`. Returns the number of bytes written.
fn compress_to(bytes: &[u8], writer: impl Write, options: &pz::Options) -> Result<u64, Error> {
    if bytes.len() > SMALL {
        return pz::compress_to(bytes, writer, options);
    }
    COMPRESSORS.with(
        |idle| idle.options() == options,
        || pz::Compressor::new(options),
        |compressor| compressor.compress_to(bytes, writer),
    )?
}

/// The device memory of `data`, if it is in device memory.
fn on_device(data: &Bound<'_, PyAny>) -> PyResult<Option<OnDevice>> {
    // Most small calls pass `bytes`.
    if data.is_exact_instance_of::<PyBytes>() { Ok(None) } else { OnDevice::of(data) }
}

/// Compresses with `work` to a new object.
pub fn compress_with<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    work: impl FnOnce(&[u8]) -> Result<Vec<u8>, Error> + Send,
) -> PyResult<Bound<'py, PyBytes>> {
    let input = Input::new(data)?;
    let bytes = input.bytes();
    let compressed = detached(py, bytes.len(), || work(bytes)).map_err(|error| raise(py, error))?;
    let object = NewBytes::copy_of(py, &compressed);
    object.ok_or_else(|| raise(py, out_of_memory(compressed.len())))
}

/// Compresses with `work` to the caller's buffer.
pub fn compress_into_with(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    buffer: &Bound<'_, PyAny>,
    work: impl FnOnce(&[u8], Bounded<'_>) -> Result<u64, Error> + Send,
) -> PyResult<usize> {
    let (input, mut output) = (Input::new(data)?, Output::new(buffer)?);
    check_apart(py, &input, &mut output)?;
    let (bytes, room) = (input.bytes(), output.bytes());
    let len = room.len();
    let needed = detached(py, bytes.len(), || work(bytes, Bounded(room)));
    match needed.map_err(|error| raise(py, error))? {
        needed if needed > len as u64 => Err(error::buffer_too_small(py, needed, len as u64)),
        needed => Ok(needed as usize),
    }
}

/// Decompress `data`, which is one or more frames in a row, and return the contents.
///
/// - `threads`: 0 for one on each core.
/// - `max_output`: the most bytes of contents, for untrusted input.
/// - `max_memory`: the most bytes of memory to take, beside `data` and the result; by default 2 GiB.
/// - `allow_modules`: which modules in the input may run: `True` for all, or a list of SHA-256 hashes. Modules are
///   programs by the author of the input. They can access only their input and output, in bounded time and memory.
/// - `device`, `device_memory`: as for `compress`.
#[pyfunction]
#[pyo3(signature = (data, **options), text_signature = "(data, *, threads=0, max_output=None, max_memory=None, \
    allow_modules=False, device='cpu', device_memory=None)")]
pub fn decompress<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    options: Option<Keywords<'_, 'py>>,
) -> PyResult<Bound<'py, PyBytes>> {
    let options = decode_options(py, options)?;
    decompress_with(py, data, &mut pz::Decompressor::new(&options))
}

/// Decompress `data` to the beginning of `buffer` and return the number of bytes.
///
/// `buffer` is any object with a writable C-contiguous buffer. The options are those of `decompress`. Raises
/// `BufferTooSmallError` if the contents do not fit. After an error, `buffer` may contain anything.
#[pyfunction]
#[pyo3(signature = (data, buffer, **options), text_signature = "(data, buffer, *, threads=0, max_output=None, \
    max_memory=None, allow_modules=False, device='cpu', device_memory=None)")]
pub fn decompress_into(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    buffer: &Bound<'_, PyAny>,
    options: Option<Keywords<'_, '_>>,
) -> PyResult<usize> {
    let options = decode_options(py, options)?;
    decompress_into_with(py, data, buffer, &mut pz::Decompressor::new(&options))
}

/// Return the length in bytes of the contents of `data`, without decoding.
#[pyfunction]
pub fn content_size(py: Python<'_>, data: &Bound<'_, PyAny>) -> PyResult<u64> {
    let input = Input::new(data)?;
    let bytes = input.bytes();
    detached(py, bytes.len(), || pz::content_size(bytes)).map_err(|error| raise(py, error))
}

/// The most contents to decode while holding the interpreter's lock: a short input may hold very long contents.
const MAX_ATTACHED: usize = 64 << 10;

/// Decompresses with a context to a new object.
pub fn decompress_with<'py>(
    py: Python<'py>,
    data: &Bound<'py, PyAny>,
    context: &mut pz::Decompressor,
) -> PyResult<Bound<'py, PyBytes>> {
    let input = Input::new(data)?;
    let bytes = input.bytes();
    let mut is_long = bytes.len() > SMALL;
    if !is_long {
        let contents = context.decompress_with(bytes, |len| {
            is_long = len > MAX_ATTACHED;
            let memory = if is_long { None } else { NewBytes::new(py, len) };
            memory.ok_or_else(|| out_of_memory(len))
        });
        if !is_long {
            return contents
                .map(|contents| contents.into_bytes(py))
                .map_err(|error| raise(py, error));
        }
    }
    let contents = py.detach(|| {
        context.decompress_with(bytes, |len| {
            let memory = Python::try_attach(|py| NewBytes::new(py, len)).flatten();
            memory.ok_or_else(|| out_of_memory(len))
        })
    });
    contents.map(|contents| contents.into_bytes(py)).map_err(|error| raise(py, error))
}

/// Decompresses with a context to the caller's buffer.
pub fn decompress_into_with(
    py: Python<'_>,
    data: &Bound<'_, PyAny>,
    buffer: &Bound<'_, PyAny>,
    context: &mut pz::Decompressor,
) -> PyResult<usize> {
    let (input, mut output) = (Input::new(data)?, Output::new(buffer)?);
    check_apart(py, &input, &mut output)?;
    let (bytes, contents) = (input.bytes(), output.bytes());
    let len = contents.len();
    let written = detached(py, len.max(bytes.len()), || context.decompress_into(bytes, contents));
    written.map_err(|error| match (&error, pz::content_size(bytes)) {
        (Error::LimitOutput { limit }, Ok(needed)) if *limit == len as u64 && needed > *limit => {
            error::buffer_too_small(py, needed, *limit)
        }
        _ => raise(py, error),
    })
}
