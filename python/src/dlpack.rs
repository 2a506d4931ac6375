//! DLPack, through which arrays and tensors of other packages share their memory without a copy.
//!
//! The structures are those of `dlpack.h`, versions 0.8 and 1.0, which other packages rely on.

use std::ffi::{CStr, c_void};
use std::ptr;

use pyo3::exceptions::{PyBufferError, PyRuntimeError, PyTypeError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyCapsule, PyDict};

use crate::error;

/// Kinds of devices.
pub const CPU: i32 = 1;
pub const CUDA: i32 = 2;
/// Pinned host memory of CUDA.
const CUDA_HOST: i32 = 3;

const UINT: u8 = 1;
/// The newest version that this code supports.
const VERSION: (u32, u32) = (1, 0);
const READ_ONLY: u64 = 1;
const IS_COPIED: u64 = 2;

const PLAIN: &CStr = c"dltensor";
const VERSIONED: &CStr = c"dltensor_versioned";

#[repr(C)]
struct Tensor {
    data: *mut c_void,
    device_type: i32,
    device_id: i32,
    dimensions: i32,
    code: u8,
    bits: u8,
    lanes: u16,
    shape: *mut i64,
    /// In elements; null if the elements lie one after another.
    strides: *mut i64,
    byte_offset: u64,
}

#[repr(C)]
struct Managed {
    tensor: Tensor,
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut Managed)>,
}

#[repr(C)]
struct ManagedVersioned {
    major: u32,
    minor: u32,
    owner: *mut c_void,
    deleter: Option<unsafe extern "C" fn(*mut ManagedVersioned)>,
    flags: u64,
    tensor: Tensor,
}

/// Bytes to share. They do not move while `owner` lives.
pub struct Export<T> {
    pub owner: T,
    pub address: u64,
    pub len: i64,
    pub device: (i32, i32),
    /// Whether they are a copy of the object's bytes.
    pub is_copied: bool,
}

/// The memory that a tensor of ours refers to.
struct Owner<T> {
    _owner: T,
    shape: [i64; 1],
}

impl<T: Send + 'static> Export<T> {
    /// The capsule that `__dlpack__` returns.
    pub fn into_capsule<'py>(
        self,
        py: Python<'py>,
        max_version: Option<(u32, u32)>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let owner = Box::into_raw(Box::new(Owner { _owner: self.owner, shape: [self.len] }));
        let tensor = Tensor {
            data: ptr::with_exposed_provenance_mut(self.address as usize),
            device_type: self.device.0,
            device_id: self.device.1,
            dimensions: 1,
            code: UINT,
            bits: 8,
            lanes: 1,
            // SAFETY: the owner has just been made, and lives until the deleter is called.
            shape: unsafe { (&raw mut (*owner).shape).cast() },
            strides: ptr::null_mut(),
            byte_offset: 0,
        };
        let owner = owner.cast();
        let (managed, name): (*mut c_void, _) = if max_version >= Some(VERSION) {
            let (major, minor) = VERSION;
            let deleter = Some(delete_versioned::<T> as _);
            let flags = if self.is_copied { IS_COPIED } else { 0 };
            let managed = ManagedVersioned { major, minor, owner, deleter, flags, tensor };
            (Box::into_raw(Box::new(managed)).cast(), VERSIONED)
        } else {
            let managed = Managed { tensor, owner, deleter: Some(delete::<T> as _) };
            (Box::into_raw(Box::new(managed)).cast(), PLAIN)
        };
        // SAFETY: the pointer is not null, and the name lives for ever. A capsule that no consumer takes over frees the
        // tensor.
        unsafe {
            let capsule = ffi::PyCapsule_New(managed, name.as_ptr(), Some(drop_capsule));
            Bound::from_owned_ptr_or_err(py, capsule)
        }
    }
}

/// # Safety
/// `managed` is a tensor that [`Export::into_capsule`] made with this type, and nothing uses it any more.
unsafe extern "C" fn delete<T>(managed: *mut Managed) {
    // SAFETY: the caller promises it.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.owner.cast::<Owner<T>>()));
    }
}

/// # Safety
/// As for [`delete`].
unsafe extern "C" fn delete_versioned<T>(managed: *mut ManagedVersioned) {
    // SAFETY: the caller promises it.
    unsafe {
        let managed = Box::from_raw(managed);
        drop(Box::from_raw(managed.owner.cast::<Owner<T>>()));
    }
}

/// Frees a tensor of ours unless a consumer has taken it over. A consumer renames the capsule.
///
/// # Safety
/// Python calls it with a capsule of ours.
unsafe extern "C" fn drop_capsule(capsule: *mut ffi::PyObject) {
    // SAFETY: the capsule is ours, so under either name it holds the pointer with which it was made.
    unsafe {
        if ffi::PyCapsule_IsValid(capsule, PLAIN.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, PLAIN.as_ptr()).cast::<Managed>();
            if let Some(deleter) = (*managed).deleter {
                deleter(managed);
            }
        } else if ffi::PyCapsule_IsValid(capsule, VERSIONED.as_ptr()) == 1 {
            let managed = ffi::PyCapsule_GetPointer(capsule, VERSIONED.as_ptr());
            let managed = managed.cast::<ManagedVersioned>();
            if let Some(deleter) = (*managed).deleter {
                deleter(managed);
            }
        }
    }
}

/// Memory of an array or tensor of another package.
pub struct Foreign {
    /// Address of the first byte.
    pub address: u64,
    /// Length in bytes.
    pub len: u64,
    /// Kind and number of the device.
    pub device: (i32, i32),
    pub is_read_only: bool,
    /// A stream whose earlier work must end before the memory is used.
    pub stream: Option<u64>,
    /// Keeps the memory where it is.
    _owner: Py<PyAny>,
}

impl Foreign {
    /// The memory that `object` shares through DLPack or CUDA's array interface, if any.
    pub fn of(object: &Bound<'_, PyAny>) -> PyResult<Option<Self>> {
        if object.hasattr("__dlpack__")? {
            return Self::of_dlpack(object).map(Some);
        }
        match object.getattr_opt("__cuda_array_interface__")? {
            Some(interface) => Self::of_cuda(object, interface.cast()?).map(Some),
            None => Ok(None),
        }
    }

    /// Whether the host can read the memory.
    pub fn is_on_host(&self) -> bool {
        matches!(self.device.0, CPU | CUDA_HOST)
    }

    /// The memory as a slice.
    ///
    /// # Safety
    /// It is host memory. As with every buffer, other threads must not write to it meanwhile.
    pub unsafe fn bytes(&self) -> &[u8] {
        if self.len == 0 {
            return &[];
        }
        let start = ptr::with_exposed_provenance(self.address as usize);
        // SAFETY: the owner keeps the memory, whose length it has stated; the caller promises the rest.
        unsafe { std::slice::from_raw_parts(start, self.len as usize) }
    }

    /// The memory as a slice to write to.
    ///
    /// # Safety
    /// It is writable host memory. Other threads must not use it meanwhile.
    pub unsafe fn bytes_mut(&mut self) -> &mut [u8] {
        if self.len == 0 {
            return &mut [];
        }
        let start = ptr::with_exposed_provenance_mut(self.address as usize);
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(start, self.len as usize) }
    }

    fn of_dlpack(object: &Bound<'_, PyAny>) -> PyResult<Self> {
        let py = object.py();
        let versioned = PyDict::new(py);
        versioned.set_item("max_version", VERSION)?;
        let capsule = match object.call_method("__dlpack__", (), Some(&versioned)) {
            // Older packages do not know versions.
            Err(error) if error.is_instance_of::<PyTypeError>(py) => {
                object.call_method0("__dlpack__")
            }
            capsule => capsule,
        };
        // Packages refuse to share tensors that are conjugated, so that memory holds other numbers, or that have
        // gradients.
        let capsule = capsule.map_err(|error| {
            let refuses = error.is_instance_of::<PyBufferError>(py)
                || error.is_instance_of::<PyRuntimeError>(py);
            if refuses { error::of_buffer(py, error) } else { error }
        })?;
        let capsule = capsule.cast::<PyCapsule>()?;
        // Do not take over the capsule: it then frees the tensor when it is dropped.
        // SAFETY: a capsule with one of these names holds the structure that DLPack defines for it.
        let (tensor, flags) = unsafe {
            let pointer = capsule.as_ptr();
            if ffi::PyCapsule_IsValid(pointer, VERSIONED.as_ptr()) == 1 {
                let managed = ffi::PyCapsule_GetPointer(pointer, VERSIONED.as_ptr());
                let managed = managed.cast::<ManagedVersioned>();
                if (*managed).major != VERSION.0 {
                    return Err(error::buffer(py, "the tensor's DLPack version is unknown"));
                }
                (&raw const (*managed).tensor, (*managed).flags)
            } else if ffi::PyCapsule_IsValid(pointer, PLAIN.as_ptr()) == 1 {
                let managed = ffi::PyCapsule_GetPointer(pointer, PLAIN.as_ptr()).cast::<Managed>();
                (&raw const (*managed).tensor, 0)
            } else {
                return Err(error::buffer(py, "__dlpack__() returned no tensor"));
            }
        };
        // SAFETY: the tensor lives as long as the capsule.
        let tensor = unsafe { &*tensor };
        let (shape, strides) = match usize::try_from(tensor.dimensions).unwrap_or(0) {
            0 => (&[][..], None),
            // SAFETY: both arrays have a number for each dimension; strides may be missing.
            n => unsafe {
                let strides = (!tensor.strides.is_null())
                    .then(|| std::slice::from_raw_parts(tensor.strides, n));
                (std::slice::from_raw_parts(tensor.shape, n), strides)
            },
        };
        let bits = u64::from(tensor.bits) * u64::from(tensor.lanes);
        let len = contiguous(py, shape, strides, 1)?.checked_mul(bits).map(|bits| bits.div_ceil(8));
        Ok(Self {
            address: (tensor.data.expose_provenance() as u64).wrapping_add(tensor.byte_offset),
            len: len.ok_or_else(|| error::buffer(py, "the tensor is too large"))?,
            device: (tensor.device_type, tensor.device_id),
            is_read_only: flags & READ_ONLY != 0,
            stream: None,
            _owner: capsule.clone().into_any().unbind(),
        })
    }

    fn of_cuda(object: &Bound<'_, PyAny>, interface: &Bound<'_, PyDict>) -> PyResult<Self> {
        let py = object.py();
        let get = |key: &str| interface.get_item(key);
        let required = |key: &str| {
            get(key)?
                .ok_or_else(|| error::buffer(py, format!("__cuda_array_interface__ lacks {key:?}")))
        };
        let (address, is_read_only): (u64, bool) = required("data")?.extract()?;
        let shape: Vec<i64> = required("shape")?.extract()?;
        let kind: String = required("typestr")?.extract()?;
        let size = kind.get(2..).and_then(|size| size.parse::<i64>().ok());
        let size = size.ok_or_else(|| error::buffer(py, format!("{kind:?} is no type")))?;
        let strides: Option<Vec<i64>> = match get("strides")? {
            Some(strides) => strides.extract()?,
            None => None,
        };
        let stream: Option<u64> = match get("stream")? {
            Some(stream) => stream.extract()?,
            None => None,
        };
        let elements = contiguous(py, &shape, strides.as_deref(), size)?;
        let len = elements.checked_mul(size.unsigned_abs());
        Ok(Self {
            address,
            len: len.ok_or_else(|| error::buffer(py, "the array is too large"))?,
            // The interface does not name the device; the driver refuses memory of another device.
            device: (CUDA, 0),
            is_read_only,
            stream,
            _owner: object.clone().unbind(),
        })
    }
}

/// The number of elements, if they lie one after another. `unit` is the stride of neighbours.
fn contiguous(py: Python<'_>, shape: &[i64], strides: Option<&[i64]>, unit: i64) -> PyResult<u64> {
    let mut elements: i64 = 1;
    let is_empty = shape.contains(&0);
    for (at, &side) in shape.iter().enumerate().rev() {
        let expected = elements.checked_mul(unit);
        let stride = strides.and_then(|strides| strides.get(at)).copied();
        // The stride of a dimension of one element does not matter.
        if side != 1 && !is_empty && stride.is_some_and(|stride| Some(stride) != expected) {
            return Err(error::buffer(py, "the tensor is not C-contiguous"));
        }
        elements = match elements.checked_mul(side) {
            Some(product) if product >= 0 => product,
            _ => return Err(error::buffer(py, "the tensor is too large")),
        };
    }
    Ok(elements.unsigned_abs())
}
