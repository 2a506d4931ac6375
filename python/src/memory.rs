//! Memory of devices and of tensors: `DeviceBuffer`, destinations, and sources for compression on a device.

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pz::access::{DeviceBuffer as Buffer, DeviceMemory};
use pz::gpu::device::{DeviceError, NativeBuffer, NativeStream};
use pz::internal::process::OfProcess;

use crate::buffer::{NewBytes, Output, has_buffer, out_of_memory};
use crate::device::Place;
use crate::dlpack::{self, Export, Foreign};
use crate::error::{self, raise};

/// Contents in the memory of a device or, with `device="cpu"`, of the host.
///
/// Other packages take the memory without a copy: `torch.from_dlpack`, `cupy.from_dlpack` and `jax.dlpack.from_dlpack`
/// through DLPack, Numba through `__cuda_array_interface__`, and NumPy through the buffer protocol if it is host
/// memory. Elements are bytes. Only `load` with `out`, and packages that share the memory, write to it.
#[pyclass(frozen, module = "libpz._libpz")]
pub struct DeviceBuffer(Arc<Shared>);

/// The state that a buffer shares with the packages that use its memory.
struct Shared {
    buffer: OfProcess<Mutex<Buffer>>,
    /// The address of the bytes, if other packages can use them there.
    address: Option<u64>,
    len: u64,
    place: Place,
}

impl DeviceBuffer {
    /// A buffer in `place`.
    pub fn new(mut buffer: Buffer, place: Place) -> Self {
        let address = match (buffer.native(), &place) {
            (Some(NativeBuffer::Cuda { address, .. }), _) => Some(address),
            (None, Place::Host) => {
                buffer.as_bytes_mut().map(|bytes| bytes.as_mut_ptr().expose_provenance() as u64)
            }
            _ => None,
        };
        let len = buffer.len();
        let buffer = OfProcess::new(Mutex::new(buffer));
        Self(Arc::new(Shared { buffer, address, len, place }))
    }

    /// The address at which other packages find the bytes.
    fn address(&self, py: Python<'_>) -> PyResult<u64> {
        self.0.address.ok_or_else(|| {
            let name = self.0.place.name();
            error::buffer(py, format!("no other package knows memory of {name}"))
        })
    }

    /// A copy in the same memory.
    fn copied(&self, py: Python<'_>) -> PyResult<Self> {
        let copy = self.with(py, |buffer| buffer.try_clone())?;
        let copy = copy.map_err(|why| error::device(py, self.0.place.name(), &why))?;
        Ok(Self::new(copy, self.0.place.clone()))
    }

    /// A copy in the memory of the host.
    fn copied_to_host(&self, py: Python<'_>) -> PyResult<Self> {
        let copy = self.with(py, |buffer| {
            let mut copy = DeviceMemory::host().allocate(buffer.len())?;
            if let Some(bytes) = copy.as_bytes_mut() {
                buffer.copy_to_host(0, bytes)?;
            }
            Ok(copy)
        })?;
        let copy = copy.map_err(|why: DeviceError| error::device(py, "cpu", &why))?;
        Ok(Self::new(copy, Place::Host))
    }

    fn buffer(&self, py: Python<'_>) -> PyResult<&Mutex<Buffer>> {
        let buffer = self.0.buffer.get();
        buffer.ok_or_else(|| error::in_use(py, "the buffer was made before a fork"))
    }

    /// The buffer, unless another thread is using it.
    pub fn lock(&self, py: Python<'_>) -> PyResult<MutexGuard<'_, Buffer>> {
        match self.buffer(py)?.try_lock() {
            Ok(buffer) => Ok(buffer),
            Err(TryLockError::Poisoned(buffer)) => Ok(buffer.into_inner()),
            Err(TryLockError::WouldBlock) => Err(error::in_use(py, "the buffer is in use")),
        }
    }

    /// The memory that it is in.
    pub fn place(&self) -> &Place {
        &self.0.place
    }

    /// Does `work` with the buffer, without the interpreter's lock.
    pub fn with<T: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Buffer) -> T + Send,
    ) -> PyResult<T> {
        let buffer = self.buffer(py)?;
        Ok(py.detach(|| work(&mut buffer.lock().unwrap_or_else(PoisonError::into_inner))))
    }
}

#[pymethods]
impl DeviceBuffer {
    /// Allocates `size` bytes on `device`: "auto", "cpu", "cuda", "opencl" or "webgpu", the last three with a number if
    /// there are several, such as "cuda:1". "auto" is the first GPU of CUDA or, without one, the host's memory.
    #[new]
    #[pyo3(signature = (size, device = "auto"))]
    fn allocate(py: Python<'_>, size: u64, device: &str) -> PyResult<Self> {
        let place = Place::new(py, device)?;
        let memory = place.memory();
        let allocated = py.detach(|| memory.allocate(size));
        let buffer = allocated.map_err(|why| error::device(py, place.name(), &why))?;
        Ok(Self::new(buffer, place))
    }

    /// Length in bytes.
    #[getter]
    fn nbytes(&self) -> u64 {
        self.0.len
    }

    /// The device: "cpu", or a name such as "cuda:0".
    #[getter]
    fn device(&self) -> &str {
        self.0.place.name()
    }

    fn __len__(&self) -> usize {
        self.0.len as usize
    }

    fn __repr__(&self) -> String {
        format!("<libpz.DeviceBuffer of {} bytes on {}>", self.0.len, self.0.place.name())
    }

    /// Return a copy of the bytes in the host's memory.
    fn tobytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let len = self.0.len as usize;
        let memory = NewBytes::new(py, len);
        let mut memory = memory.ok_or_else(|| raise(py, out_of_memory(len)))?;
        let bytes = memory.as_mut();
        let copied = self.with(py, |buffer| buffer.copy_to_host(0, bytes))?;
        copied.map_err(|why| error::device(py, self.0.place.name(), &why))?;
        Ok(memory.into_bytes(py))
    }

    /// Kind and number of the device, as DLPack counts them.
    fn __dlpack_device__(&self, py: Python<'_>) -> PyResult<(i32, i32)> {
        self.address(py)?;
        Ok(self.0.place.dlpack())
    }

    /// Share the memory as a tensor of bytes, for the `from_dlpack` of other packages. With `copy=True`, share a copy;
    /// with the host as `dl_device`, a copy in host memory.
    ///
    /// The contents are complete, so `stream` need not wait for anything.
    #[pyo3(signature = (*, stream = None, max_version = None, dl_device = None, copy = None))]
    fn __dlpack__<'py>(
        &self,
        py: Python<'py>,
        stream: Option<&Bound<'_, PyAny>>,
        max_version: Option<(u32, u32)>,
        dl_device: Option<(i32, i32)>,
        copy: Option<bool>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let _ = stream;
        let own = self.0.place.dlpack();
        let (handed, is_copied) = match (dl_device.unwrap_or(own), copy) {
            (device, None | Some(false)) if device == own => (Self(Arc::clone(&self.0)), false),
            (device, Some(true)) if device == own => (self.copied(py)?, true),
            ((dlpack::CPU, _), None | Some(true)) => (self.copied_to_host(py)?, true),
            _ => return Err(error::buffer(py, "the memory is on another device")),
        };
        let address = handed.address(py)?;
        let (len, device) = (handed.0.len as i64, handed.0.place.dlpack());
        let export = Export { owner: handed.0, address, len, device, is_copied };
        export.into_capsule(py, max_version)
    }

    /// CUDA's array interface, version 3; an `AttributeError` for other memory.
    #[getter]
    fn __cuda_array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let address = match (self.0.address, self.0.place.dlpack().0) {
            (Some(address), dlpack::CUDA) => address,
            _ => return Err(PyAttributeError::new_err("the memory is not of CUDA")),
        };
        let interface = PyDict::new(py);
        interface.set_item("shape", (self.0.len,))?;
        interface.set_item("typestr", "|u1")?;
        interface.set_item("data", (address, false))?;
        interface.set_item("strides", py.None())?;
        interface.set_item("stream", py.None())?;
        interface.set_item("version", 3)?;
        Ok(interface)
    }

    /// The buffer protocol, for host memory.
    ///
    /// # Safety
    /// Python passes a view to fill.
    unsafe fn __getbuffer__(
        slf: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let this = slf.get();
        let address = match (&this.0.place, this.0.address) {
            (Place::Host, Some(address)) => address,
            _ => {
                let name = this.0.place.name();
                let what = format!("memory of {name} is not the host's; use tobytes() or DLPack");
                return Err(error::buffer(slf.py(), what));
            }
        };
        let start: *mut c_void = std::ptr::with_exposed_provenance_mut(address as usize);
        let len = this.0.len as ffi::Py_ssize_t;
        // SAFETY: the view is Python's. The view gets a reference to the object, and the memory does not move while the
        // object lives.
        let filled = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), start, len, 0, flags) };
        if filled == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

/// Where contents go.
pub enum Target<'py> {
    /// A buffer of this package.
    Own(Bound<'py, DeviceBuffer>),
    /// Host memory of a Python object.
    Output(Output),
    /// Host memory of a tensor.
    Tensor(Foreign),
    /// Device memory of a tensor.
    OnDevice(Foreign),
}

impl Target<'_> {
    /// Its length in bytes.
    pub fn len(&mut self) -> u64 {
        match self {
            Self::Own(buffer) => buffer.get().0.len,
            Self::Output(output) => output.bytes().len() as u64,
            Self::Tensor(tensor) | Self::OnDevice(tensor) => tensor.len,
        }
    }
}

/// The memory of `out`, which must be writable.
pub fn target<'py>(out: &Bound<'py, PyAny>) -> PyResult<Target<'py>> {
    if let Ok(own) = out.cast::<DeviceBuffer>() {
        return Ok(Target::Own(own.clone()));
    }
    if has_buffer(out) {
        return Output::new(out).map(Target::Output);
    }
    let Some(tensor) = Foreign::of(out)? else {
        let kind = out.get_type().qualname()?;
        let what = format!("out must be a writable buffer, a tensor or a DeviceBuffer, not {kind}");
        return Err(PyTypeError::new_err(what));
    };
    if tensor.is_read_only {
        return Err(error::buffer(out.py(), "the tensor is read-only"));
    }
    if tensor.is_on_host() { Ok(Target::Tensor(tensor)) } else { Ok(Target::OnDevice(tensor)) }
}

/// CUDA's number of a stream, which is given as an integer or as a stream of torch or CuPy.
pub fn stream_number(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    let Some(stream) = stream else { return Ok(None) };
    for name in ["cuda_stream", "ptr"] {
        if let Some(number) = stream.getattr_opt(name)? {
            return number.extract().map(Some);
        }
    }
    stream.extract().map(Some)
}

/// CUDA's number of its default stream.
const CUDA_DEFAULT_STREAM: u64 = 1;

/// The memory of a CUDA tensor as a buffer, and its device.
fn imported(py: Python<'_>, tensor: &Foreign) -> PyResult<(DeviceMemory, String, Buffer)> {
    let (dlpack::CUDA, number) = tensor.device else {
        let kind = tensor.device.0;
        let what =
            format!("the tensor is neither on the host nor on CUDA, but on device type {kind}");
        return Err(error::buffer(py, what));
    };
    let place = Place::new(py, &format!("cuda:{number}"))?;
    let memory = place.memory();
    let (address, bytes) = (tensor.address, tensor.len);
    let buffer = py.detach(|| {
        // SAFETY: the tensor is valid memory of that many bytes while we hold it. As with every buffer, the caller must
        // keep other threads from using it meanwhile.
        unsafe { memory.import(NativeBuffer::Cuda { address, bytes }) }
    });
    let buffer = buffer.map_err(|why| error::device(py, place.name(), &why))?;
    Ok((memory, place.name().to_string(), buffer))
}

/// The same, after waiting for earlier work on the tensor, in `stream` or in the default stream.
pub fn imported_after(py: Python<'_>, tensor: &Foreign, stream: Option<u64>) -> PyResult<Buffer> {
    let (memory, name, buffer) = imported(py, tensor)?;
    // Ordinary streams and the default stream wait for each other.
    let streams = [stream.or(Some(CUDA_DEFAULT_STREAM)), tensor.stream];
    for stream in streams.into_iter().flatten() {
        wait_for(py, &memory, &name, stream)?;
    }
    Ok(buffer)
}

/// Waits for earlier work on a CUDA stream.
pub fn wait_for(py: Python<'_>, memory: &DeviceMemory, name: &str, stream: u64) -> PyResult<()> {
    let waited = py.detach(|| {
        let stream = std::ptr::with_exposed_provenance_mut(stream as usize);
        // SAFETY: the caller of `load` names a stream of this device, as its documentation says.
        unsafe { memory.wait_for(NativeStream::Cuda(stream)) }
    });
    waited.map_err(|why| error::device(py, name, &why))
}

/// Device memory to compress.
pub enum OnDevice {
    /// A buffer of this package.
    Own(Py<DeviceBuffer>),
    /// The memory of a tensor, which lives as long.
    Tensor { buffer: Buffer, _tensor: Foreign },
}

impl OnDevice {
    /// The device memory of `data`; `None` for host memory.
    pub fn of(data: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        let py = data.py();
        if let Ok(own) = data.cast::<DeviceBuffer>() {
            let is_on_device = matches!(own.get().0.place, Place::Device(..));
            return Ok(is_on_device.then(|| Self::Own(own.clone().unbind())));
        }
        if has_buffer(data) {
            return Ok(None);
        }
        match Foreign::of(data)? {
            Some(tensor) if !tensor.is_on_host() => {
                let buffer = imported_after(py, &tensor, None)?;
                Ok(Some(Self::Tensor { buffer, _tensor: tensor }))
            }
            _ => Ok(None),
        }
    }

    /// Its length in bytes.
    pub fn len(&self, py: Python<'_>) -> PyResult<u64> {
        match self {
            Self::Own(buffer) => buffer.get().with(py, |buffer| buffer.len()),
            Self::Tensor { buffer, .. } => Ok(buffer.len()),
        }
    }

    /// Compresses it to `writer`, and returns the number of bytes written.
    pub fn compress_to(
        &self,
        py: Python<'_>,
        writer: impl Write + Send,
        options: &pz::Options,
    ) -> PyResult<u64> {
        self.compress(py, |buffer| buffer.compress_to(0..buffer.len(), writer, options))
    }

    /// Compresses it to `room`, and returns the length of the result, which may not fit.
    pub fn compress_to_slice(
        &self,
        py: Python<'_>,
        room: &mut [u8],
        options: &pz::Options,
    ) -> PyResult<u64> {
        self.compress(py, |buffer| buffer.compress_to_slice(0..buffer.len(), room, options))
    }

    fn compress(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&Buffer) -> Result<u64, pz::Error> + Send,
    ) -> PyResult<u64> {
        let written = match self {
            Self::Own(buffer) => buffer.get().with(py, |buffer| work(buffer))?,
            Self::Tensor { buffer, .. } => py.detach(|| work(buffer)),
        };
        written.map_err(|why| raise(py, why))
    }
}

/// A copy of a tensor's bytes in host memory.
pub fn copied_to_host(py: Python<'_>, tensor: &Foreign) -> PyResult<Vec<u8>> {
    let buffer = imported_after(py, tensor, None)?;
    let len = tensor.len as usize;
    let mut bytes = Vec::new();
    bytes.try_reserve_exact(len).map_err(|_| raise(py, out_of_memory(len)))?;
    bytes.resize(len, 0);
    let copied = py.detach(|| buffer.copy_to_host(0, &mut bytes));
    copied.map_err(|why| error::device(py, "cuda", &why))?;
    Ok(bytes)
}
