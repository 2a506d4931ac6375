//! Memory of Python objects as slices.

use std::ffi::c_int;

use pyo3::buffer::PyUntypedBuffer;
use pyo3::exceptions::PyBufferError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView};

use crate::dlpack::Foreign;
use crate::error;
use crate::memory::copied_to_host;

/// Memory to read: that of any object with a C-contiguous buffer, or of a tensor.
pub enum Input<'py> {
    /// `bytes`, which never change, so no export is needed.
    Bytes(Bound<'py, PyBytes>),
    /// The buffer of any other object.
    Buffer(PyUntypedBuffer),
    /// The host memory of a tensor.
    Tensor(Foreign),
    /// A copy of a tensor's device memory.
    Copy(Vec<u8>),
}

impl<'py> Input<'py> {
    /// The memory of `object`, which does not move until this is dropped.
    pub fn new(object: &Bound<'py, PyAny>) -> PyResult<Self> {
        match object.cast_exact::<PyBytes>() {
            Ok(bytes) => Ok(Self::Bytes(bytes.clone())),
            Err(_) => match contiguous(object) {
                Ok(buffer) => Ok(Self::Buffer(buffer)),
                Err(error) if has_buffer(object) => Err(error),
                Err(error) => match Foreign::of(object)? {
                    Some(tensor) if tensor.is_on_host() => Ok(Self::Tensor(tensor)),
                    Some(tensor) => copied_to_host(object.py(), &tensor).map(Self::Copy),
                    None => Err(error),
                },
            },
        }
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bytes(bytes) => bytes.as_bytes(),
            Self::Copy(bytes) => bytes,
            // SAFETY: it is host memory. As with every buffer, other threads must not write to it meanwhile.
            Self::Tensor(tensor) => unsafe { tensor.bytes() },
            Self::Buffer(buffer) if buffer.len_bytes() == 0 => &[],
            // SAFETY: The buffer is contiguous and exported until `self` is dropped, so these bytes stay readable. As
            // with every call that reads a buffer without the interpreter's lock, other threads must not write to it
            // meanwhile.
            Self::Buffer(buffer) => unsafe {
                std::slice::from_raw_parts(buffer.buf_ptr().cast(), buffer.len_bytes())
            },
        }
    }
}

/// Memory to write: that of any object with a writable C-contiguous buffer.
pub struct Output(PyUntypedBuffer);

impl Output {
    /// The memory of `object`, which does not move until this is dropped.
    pub fn new(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let buffer = contiguous(object)?;
        if buffer.readonly() {
            return Err(error::buffer(object.py(), "the buffer is read-only"));
        }
        Ok(Self(buffer))
    }

    /// The bytes.
    pub fn bytes(&mut self) -> &mut [u8] {
        let len = self.0.len_bytes();
        if len == 0 {
            return &mut [];
        }
        // SAFETY: The buffer is contiguous, writable, and exported until `self` is dropped. Other threads must not use
        // it meanwhile, as with every call that writes to a buffer without the interpreter's lock.
        unsafe { std::slice::from_raw_parts_mut(self.0.buf_ptr().cast(), len) }
    }
}

/// Returns an error if input and output overlap.
pub fn check_apart(py: Python<'_>, input: &Input<'_>, output: &mut Output) -> PyResult<()> {
    let (read, written) = (input.bytes().as_ptr_range(), output.bytes().as_ptr_range());
    match read.start < written.end && written.start < read.end {
        true => Err(error::buffer(py, "data and buffer overlap")),
        false => Ok(()),
    }
}

/// Whether an object has the buffer protocol.
pub fn has_buffer(object: &Bound<'_, PyAny>) -> bool {
    // SAFETY: this only checks whether there is a buffer.
    unsafe { ffi::PyObject_CheckBuffer(object.as_ptr()) == 1 }
}

fn contiguous(object: &Bound<'_, PyAny>) -> PyResult<PyUntypedBuffer> {
    let py = object.py();
    let buffer = match PyUntypedBuffer::get(object).or_else(|error| shaped(object).ok_or(error)) {
        Ok(buffer) => buffer,
        Err(error) => match elements(object)? {
            Some(buffer) => buffer,
            None if error.is_instance_of::<PyBufferError>(py) => {
                return Err(error::of_buffer(py, error));
            }
            None => return Err(error),
        },
    };
    // Colons enclose the names of fields.
    let types = buffer.format().to_bytes().split(|&byte| byte == b':').step_by(2);
    if types.flatten().any(|&byte| byte == b'O') {
        return Err(error::buffer(py, "the elements are Python objects, which have no bytes here"));
    }
    match buffer.is_c_contiguous() {
        true => Ok(buffer),
        false => Err(error::buffer(py, "the buffer is not C-contiguous")),
    }
}

/// The buffer of an array of NumPy whose elements have a type that buffers do not know, such as dates and floats of 8
/// bits: the same memory as bytes. `None` for other objects.
fn elements(object: &Bound<'_, PyAny>) -> PyResult<Option<PyUntypedBuffer>> {
    if !has_buffer(object) {
        return Ok(None);
    }
    let Some(flags) = object.getattr_opt("flags")? else { return Ok(None) };
    let Some(is_contiguous) = flags.getattr_opt("c_contiguous")? else { return Ok(None) };
    if !is_contiguous.is_truthy()? {
        return Err(error::buffer(object.py(), "the buffer is not C-contiguous"));
    }
    let bytes = object.call_method1("reshape", (-1,))?.call_method1("view", ("u1",));
    // NumPy refuses this where elements refer to Python objects or to memory elsewhere.
    let bytes = bytes.map_err(|error| error::of_buffer(object.py(), error))?;
    PyUntypedBuffer::get(&bytes).map(Some)
}

/// The buffer of an object that does not state a shape, such as an array of ctypes or one without dimensions. pyo3
/// wants one.
fn shaped(object: &Bound<'_, PyAny>) -> Option<PyUntypedBuffer> {
    let view = PyMemoryView::from(object).ok()?;
    let dimensions: usize = view.getattr("ndim").ok()?.extract().ok()?;
    if dimensions == 0 {
        return PyUntypedBuffer::get(&view.call_method1("cast", ("B",)).ok()?).ok();
    }
    PyUntypedBuffer::get(&view).ok()
}

/// A `bytes` object that is being filled.
pub struct NewBytes {
    object: Py<PyBytes>,
    start: *mut u8,
    len: usize,
}

// SAFETY: The pointer is to memory of `object`, which may move between threads, and which no other thread knows.
unsafe impl Send for NewBytes {}

impl NewBytes {
    /// An object of `len` bytes with unspecified contents; `None` if the system refuses the memory.
    pub fn new(py: Python<'_>, len: usize) -> Option<Self> {
        let signed = ffi::Py_ssize_t::try_from(len).ok()?;
        // SAFETY: Python documents that this makes a new object whose bytes are not initialised, and that its owner may
        // change them until others see it. A null pointer stands for an exception. The memory is left as it is because
        // clearing it first would take as long as decoding, and on one thread.
        let object = unsafe {
            Bound::from_owned_ptr_or_err(
                py,
                ffi::PyBytes_FromStringAndSize(std::ptr::null(), signed),
            )
        };
        let object = object.ok()?.cast_into::<PyBytes>().ok()?;
        // SAFETY: The object is a `bytes` object.
        let start = unsafe { ffi::PyBytes_AsString(object.as_ptr()) }.cast();
        let mut new = Self { object: object.unbind(), start, len };
        // Getting fresh pages takes about as long as decoding into them; huge pages take a fraction of that.
        pz::internal::advise_huge_pages(new.as_mut());
        Some(new)
    }

    /// A new object with these bytes; `None` if the system refuses the memory.
    pub fn copy_of<'py>(py: Python<'py>, bytes: &[u8]) -> Option<Bound<'py, PyBytes>> {
        let mut copy = Self::new(py, bytes.len())?;
        copy.as_mut().copy_from_slice(bytes);
        Some(copy.into_bytes(py))
    }

    /// An object of the first `len` bytes, which have been filled; `None` if the system refuses the memory.
    pub fn cut<'py>(self, py: Python<'py>, len: usize) -> Option<Bound<'py, PyBytes>> {
        let len = ffi::Py_ssize_t::try_from(len.min(self.len)).ok()?;
        let mut object = self.object.into_ptr();
        // SAFETY: this is the only reference to the object, which the call frees if it fails, and may move.
        if unsafe { _PyBytes_Resize(&raw mut object, len) } != 0 {
            drop(PyErr::take(py));
            return None;
        }
        // SAFETY: the call has left the reference that we own, to a `bytes` object.
        unsafe { Bound::from_owned_ptr_or_opt(py, object)?.cast_into().ok() }
    }

    /// The object, which has been filled.
    pub fn into_bytes(self, py: Python<'_>) -> Bound<'_, PyBytes> {
        self.object.into_bound(py)
    }
}

impl AsMut<[u8]> for NewBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: `start` points to `len` bytes that live as long as `object`. Nothing else refers to them yet, and
        // they are only written to: an object that was not filled to its end is never handed out.
        unsafe { std::slice::from_raw_parts_mut(self.start, self.len) }
    }
}

unsafe extern "C" {
    /// Part of Python's stable interface, but not public in the crate.
    fn _PyBytes_Resize(object: *mut *mut ffi::PyObject, len: ffi::Py_ssize_t) -> c_int;
}

/// Up to this length, working on an input is faster than passing the interpreter to another thread and back.
pub const SMALL: usize = 2 << 10;

/// Does `work` on an input of `len` bytes, without the interpreter's lock if that pays.
pub fn detached<T: Send>(py: Python<'_>, len: usize, work: impl FnOnce() -> T + Send) -> T {
    if len <= SMALL { work() } else { py.detach(work) }
}

/// The error for memory that the system refused.
pub fn out_of_memory(len: usize) -> pz::Error {
    pz::Error::OutOfMemory { needed: len as u64 }
}
