//! Contents in the memory of a device, or of the host.

use std::ffi::{c_int, c_void};
use std::io::Write;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};

use pyo3::exceptions::{PyAttributeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use pz::SeekableReader;
use pz::access::{
    Archive, ArchiveError, DeviceBuffer as Buffer, DeviceMemory, RangeRead, ReadOptions,
};
use pz::gpu::device::{DeviceError, NativeBuffer, NativeStream};

use crate::archive::open_archive;
use crate::arguments::{Keywords, decode_options};
use crate::buffer::{NewBytes, Output, has_buffer, out_of_memory};
use crate::device::Place;
use crate::dlpack::{self, Export, Foreign};
use crate::error::{self, raise};
use crate::idle::OfProcess;
use crate::source::Source;

/// Contents in the memory of a device or, with `device="cpu"`, of the host.
///
/// Other packages take the memory without a copy: `torch.from_dlpack`, `cupy.from_dlpack` and `jax.dlpack.from_dlpack`
/// through DLPack, Numba through `__cuda_array_interface__`, and NumPy through the buffer protocol where it is the host's.
/// Elements are bytes. Nothing writes to it but `load` with `out` and whoever it was given to.
#[pyclass(frozen, module = "libpz._libpz")]
pub struct DeviceBuffer(Arc<Shared>);

/// What a buffer and those who were given its memory share.
struct Shared {
    buffer: OfProcess<Mutex<Buffer>>,
    /// Where the bytes are, if other packages can use them there.
    address: Option<u64>,
    len: u64,
    place: Place,
}

impl DeviceBuffer {
    fn new(mut buffer: Buffer, place: Place) -> Self {
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

    /// Where other packages find the bytes.
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

    fn with<T: Send>(
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

    /// Hand out the memory as a tensor of bytes, for the `from_dlpack` of other packages; with `copy=True` a copy of
    /// it, and with the host as `dl_device` a copy there.
    ///
    /// The contents are complete, so that `stream` need not wait for anything.
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
        // SAFETY: the view is Python's. The memory stays where it is while the object lives, to which the view gets a
        // reference.
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

/// Where `out` is, which must be writable.
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

/// A number of CUDA's for a stream: an integer, or a stream of torch or CuPy.
pub fn stream_number(stream: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    let Some(stream) = stream else { return Ok(None) };
    for name in ["cuda_stream", "ptr"] {
        if let Some(number) = stream.getattr_opt(name)? {
            return number.extract().map(Some);
        }
    }
    stream.extract().map(Some)
}

/// Decompresses `source`, a path or a URI, into memory: see `libpz.load`. Returns `out` or, without it, a new buffer.
#[pyfunction]
#[pyo3(signature = (source, device, start, stop, out, stream, **options))]
#[expect(
    clippy::too_many_arguments,
    reason = "they are those of `libpz.load`, which documents them"
)]
pub fn load<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    device: &str,
    start: Option<u64>,
    stop: Option<u64>,
    out: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    options: Option<Keywords<'_, 'py>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = decode_options(py, options)?;
    let stream = stream_number(stream)?;
    let source = Source::new(py, source)?;
    let place = match out {
        None => Some(Place::new(py, device)?),
        Some(_) => None,
    };
    let mut target = out.map(target).transpose()?;
    let is_on_device = match (&place, &target) {
        (Some(place), _) => !matches!(place, Place::Host),
        (_, Some(Target::Own(buffer))) => !matches!(buffer.get().0.place, Place::Host),
        (_, target) => matches!(target, Some(Target::OnDevice(_))),
    };
    let mut opened = if is_on_device {
        Opened::Archive(open_archive(py, &source, &options)?)
    } else {
        let open = || SeekableReader::open(Arc::clone(&source.file), source.len, &options);
        let reader = py.detach(|| source.reading(open));
        Opened::Reader(Box::new(reader.map_err(|why| raise(py, why))?), &source)
    };
    let len = opened.len();
    let range = start.unwrap_or(0)..stop.unwrap_or(len);
    if range.start > range.end || range.end > len {
        let Range { start, end } = range;
        return Err(raise(py, pz::Error::InvalidRange { start, end, len }));
    }
    let wanted = range.end - range.start;
    if let Some(target) = &mut target {
        let found = target.len();
        if found < wanted {
            return Err(error::buffer_too_small(py, wanted, found));
        }
        if found > wanted {
            let what = format!("the range has {wanted} bytes, and out has {found}");
            return Err(error::buffer(py, what));
        }
    }
    let mut target = match (target, place) {
        (Some(target), _) => target,
        (None, Some(place)) => {
            let memory = place.memory();
            let allocated = py.detach(|| memory.allocate(wanted));
            let buffer = allocated.map_err(|why| error::device(py, place.name(), &why))?;
            Target::Own(Bound::new(py, DeviceBuffer::new(buffer, place))?)
        }
        (None, None) => return Err(PyTypeError::new_err("there is no destination")),
    };
    fill(py, &source, &mut opened, range, &mut target, stream)?;
    match (out, target) {
        (None, Target::Own(buffer)) => Ok(buffer.into_any()),
        (Some(out), _) => Ok(out.clone()),
        (None, _) => Err(PyTypeError::new_err("there is no destination")),
    }
}

/// What contents are read with.
enum Opened<'a> {
    Archive(Archive),
    /// For host memory: it decodes straight into place.
    Reader(Box<SeekableReader<pz::ReadAtCursor>>, &'a Source),
}

impl Opened<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Archive(archive) => archive.len(),
            Self::Reader(reader, _) => reader.len(),
        }
    }

    /// Reads into host memory.
    fn read_host(&mut self, range: Range<u64>, mut bytes: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Archive(archive) => archive.read_into(range, bytes).map_err(Failure::Archive),
            Self::Reader(reader, source) => {
                let read = source.reading(|| reader.copy_range(range, &mut bytes));
                read.map_err(Failure::Format)
            }
        }
    }

    fn read_buffer(&mut self, range: Range<u64>, buffer: &mut Buffer) -> Result<(), Failure> {
        if let Some(bytes) = buffer.as_bytes_mut() {
            return self.read_host(range, bytes);
        }
        match self {
            Self::Archive(archive) => {
                let mut read = [RangeRead::new(range, buffer)];
                archive.read(&mut read, &ReadOptions::new()).map_err(Failure::Archive)
            }
            Self::Reader(..) => Err(Failure::Format(pz::Error::Internal {
                what: "a device's buffer is read into without an archive",
            })),
        }
    }
}

enum Failure {
    Format(pz::Error),
    Archive(ArchiveError),
}

fn fill(
    py: Python<'_>,
    source: &Source,
    opened: &mut Opened<'_>,
    range: Range<u64>,
    target: &mut Target<'_>,
    stream: Option<u64>,
) -> PyResult<()> {
    let done = match target {
        Target::Own(buffer) => {
            let buffer = buffer.get();
            if let (Place::Device(memory, _), Some(stream)) = (&buffer.0.place, stream) {
                wait_for(py, memory, buffer.0.place.name(), stream)?;
            }
            buffer.with(py, |buffer| opened.read_buffer(range, buffer))?
        }
        Target::Output(output) => {
            let bytes = output.bytes();
            py.detach(|| opened.read_host(range, bytes))
        }
        Target::Tensor(tensor) => {
            // SAFETY: it is writable memory of the host. That other threads use it meanwhile is the caller's mistake, as
            // with every buffer.
            let bytes = unsafe { tensor.bytes_mut() };
            py.detach(|| opened.read_host(range, bytes))
        }
        Target::OnDevice(tensor) => {
            let mut buffer = imported_after(py, tensor, stream)?;
            py.detach(|| opened.read_buffer(range, &mut buffer))
        }
    };
    done.map_err(|failure| match failure {
        Failure::Format(why) => raise(py, why),
        Failure::Archive(why) => source.archive_error(py, why),
    })
}

/// CUDA's number for its default stream.
const CUDA_DEFAULT_STREAM: u64 = 1;

/// The memory of a tensor of CUDA as a buffer, and where it is.
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
        // SAFETY: the tensor is valid memory of that many bytes while we hold it. That others use it meanwhile is the
        // caller's mistake, as with every buffer.
        unsafe { memory.import(NativeBuffer::Cuda { address, bytes }) }
    });
    let buffer = buffer.map_err(|why| error::device(py, place.name(), &why))?;
    Ok((memory, place.name().to_string(), buffer))
}

/// The same, after the work that was queued before on the tensor, in `stream` or in the default one.
pub fn imported_after(py: Python<'_>, tensor: &Foreign, stream: Option<u64>) -> PyResult<Buffer> {
    let (memory, name, buffer) = imported(py, tensor)?;
    // All ordinary streams wait for the default one, and it for them.
    let streams = [stream.or(Some(CUDA_DEFAULT_STREAM)), tensor.stream];
    for stream in streams.into_iter().flatten() {
        wait_for(py, &memory, &name, stream)?;
    }
    Ok(buffer)
}

fn wait_for(py: Python<'_>, memory: &DeviceMemory, name: &str, stream: u64) -> PyResult<()> {
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
    /// That of a tensor, which stays as long.
    Tensor { buffer: Buffer, _tensor: Foreign },
}

impl OnDevice {
    /// The device memory of `data`; `None` if it is the host's.
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

    /// How many bytes there are.
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

    /// Compresses it to `room`, and returns how many bytes there are, which may not fit.
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
