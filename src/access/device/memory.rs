//! Memory of a device or of the host, and buffers there.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::core::{BufferHandle, DeviceCore, DeviceMemoryOptions};
use super::workers::Workers;
use crate::gpu::device::{BufferId, Device, DeviceError, NativeBuffer, NativeStream};
use crate::pipeline::buffer::zeroed;

/// Memory of a device or of the host, to read archives into. All clones are the same memory.
///
/// All reads into a device's memory share its workers. Keep the value between reads: opening a device takes much longer
/// than a read.
///
/// With CUDA, each worker has a stream. The driver spreads the streams of a process over 8 queues of the card, and
/// streams in the same queue wait for each other. The environment variable `CUDA_DEVICE_MAX_CONNECTIONS` sets up to 32
/// queues, if it is set before the process first uses CUDA. The program `pz` and the Python package set it.
///
/// ```
/// use pz::access::{Archive, ArchiveOptions, DeviceMemory, publish};
/// publish("sevens", pz::compress(&[7; 100_000], &pz::Options::new())?);
/// let archive = Archive::open("memio://sevens", &ArchiveOptions::new())?;
///
/// // With a GPU: DeviceMemory::of_device(device, &DeviceMemoryOptions::new()).
/// let memory = DeviceMemory::host();
/// let mut buffer = memory.allocate(archive.len())?;
/// archive.read_into(0..archive.len(), &mut buffer)?;
///
/// let mut part = [0; 10];
/// buffer.copy_to_host(5000, &mut part)?;
/// assert_eq!(part, [7; 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct DeviceMemory(Option<Arc<WorkersHandle>>);

/// Ends the workers when the last clone is dropped.
struct WorkersHandle(Arc<Workers>);

impl Drop for WorkersHandle {
    fn drop(&mut self) {
        match self.0.core.is_here() {
            true => self.0.close(),
            // A forked process must not call the driver.
            false => std::mem::forget(Arc::clone(&self.0)),
        }
    }
}

impl DeviceMemory {
    /// Host memory, for machines without a device.
    pub fn host() -> Self {
        Self(None)
    }

    /// The memory of an open device. Its workers start with the first read.
    pub fn of_device(device: Arc<dyn Device>, options: &DeviceMemoryOptions) -> Self {
        Self(Some(Arc::new(WorkersHandle(Workers::new(device, options)))))
    }

    /// The device; `None` for host memory.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        self.core().map(|core| &core.device)
    }

    /// Allocates a buffer of `bytes` bytes. Host memory is zeroed; device memory holds unspecified bytes.
    ///
    /// # Errors
    /// Fails if there is too little memory, or if the device does.
    pub fn allocate(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        match self.core() {
            None => DeviceBuffer::on_host(self.clone(), bytes),
            Some(core) => {
                let id = core.allocate(bytes.max(1).next_multiple_of(4))?;
                let owned = BufferHandle::new(Arc::clone(core), id, bytes);
                Ok(DeviceBuffer::on_device(self.clone(), owned, 0, bytes))
            }
        }
    }

    /// Imports a buffer of the caller's as a destination, without a copy. Memory of CUDA may begin at any byte and have
    /// any length.
    ///
    /// # Errors
    /// Those of [`Device::import`]; [`DeviceError::Unsupported`] for host memory.
    ///
    /// # Safety
    /// The caller keeps the promises of [`Device::import`] until the result is dropped. A read into the buffer uses it
    /// until the read returns, with or without an error. Only after [`DeviceError::TimedOut`] may the device still
    /// write to it.
    pub unsafe fn import(&self, buffer: NativeBuffer) -> Result<DeviceBuffer, DeviceError> {
        let Some(core) = self.core() else {
            return Err(DeviceError::Unsupported("host memory imports no buffers".into()));
        };
        core.check_process()?;
        // Kernels write single bytes at the ends of a range, so the bytes around it stay untouched.
        let (buffer, start, len) = match buffer {
            NativeBuffer::Cuda { address, bytes } => {
                let start = address % 16;
                let whole = (start + bytes).next_multiple_of(4).max(4);
                let aligned = NativeBuffer::Cuda { address: address - start, bytes: whole };
                (aligned, start, Some(bytes))
            }
            buffer => (buffer, 0, None),
        };
        // SAFETY: the caller promises the same.
        let id = unsafe { core.device.import(buffer) }?;
        let len = len.or(core.device.buffer_bytes(id)).unwrap_or(0);
        let owned = BufferHandle::new(Arc::clone(core), id, start + len);
        Ok(DeviceBuffer::on_device(self.clone(), owned, start, len))
    }

    /// Waits for all work that has been queued on a stream of the caller's so far. A later read can then write to
    /// buffers that this work uses. Work that is queued after the read has returned sees its results.
    ///
    /// # Errors
    /// Those of [`Device::wait_for`]; [`DeviceError::Unsupported`] for host memory.
    ///
    /// # Safety
    /// `stream` is a valid stream of the device's context.
    pub unsafe fn wait_for(&self, stream: NativeStream) -> Result<(), DeviceError> {
        let Some(core) = self.core() else {
            return Err(DeviceError::Unsupported("host memory has no streams".into()));
        };
        core.check_process()?;
        // SAFETY: the caller promises the same.
        unsafe { core.device.wait_for(stream) }
    }

    /// The device's threads; `None` for host memory.
    pub(in crate::access) fn workers(&self) -> Option<&Arc<Workers>> {
        self.0.as_ref().map(|handle| &handle.0)
    }

    fn core(&self) -> Option<&Arc<DeviceCore>> {
        self.workers().map(|workers| &workers.core)
    }
}

impl fmt::Debug for DeviceMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.device() {
            None => f.write_str("DeviceMemory(host)"),
            Some(device) => write!(f, "DeviceMemory({})", device.limits().name),
        }
    }
}

/// A buffer that archives can be read into: see [`DeviceMemory`].
pub struct DeviceBuffer {
    memory: DeviceMemory,
    pub(in crate::access) place: BufferPlace<Vec<u8>>,
    len: u64,
}

/// Where the bytes of a buffer or of a slice are.
pub(in crate::access) enum BufferPlace<H> {
    Host(H),
    Device {
        buffer: Arc<BufferHandle>,
        /// Where the bytes begin in the device's buffer.
        start: u64,
    },
}

impl DeviceBuffer {
    fn on_host(memory: DeviceMemory, bytes: u64) -> Result<Self, DeviceError> {
        let no_memory = |_| DeviceError::OutOfMemory { bytes };
        let len = usize::try_from(bytes).map_err(|_| DeviceError::OutOfMemory { bytes })?;
        Ok(Self { memory, place: BufferPlace::Host(zeroed(len).map_err(no_memory)?), len: bytes })
    }

    fn on_device(memory: DeviceMemory, buffer: BufferHandle, start: u64, len: u64) -> Self {
        Self { memory, place: BufferPlace::Device { buffer: Arc::new(buffer), start }, len }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory that the buffer is in.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// The bytes, if they are in host memory.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.place {
            BufferPlace::Host(bytes) => Some(bytes),
            BufferPlace::Device { .. } => None,
        }
    }

    /// The writable bytes, if they are in host memory.
    pub fn as_bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.place {
            BufferPlace::Host(bytes) => Some(bytes),
            BufferPlace::Device { .. } => None,
        }
    }

    /// The buffer's native handle, for callers with kernels of their own. It is valid while `self` lives. With CUDA, it
    /// is the address of the first byte. `None` for host memory.
    pub fn native(&self) -> Option<NativeBuffer> {
        let BufferPlace::Device { buffer, start } = &self.place else { return None };
        self.memory.core()?.check_process().ok()?;
        match self.memory.device()?.export(buffer.id())? {
            NativeBuffer::Cuda { address, .. } => {
                Some(NativeBuffer::Cuda { address: address + start, bytes: self.len })
            }
            native => Some(native),
        }
    }

    /// A part of the buffer as a destination; `None` if the range does not lie within the buffer.
    pub fn slice_mut(&mut self, range: Range<u64>) -> Option<DeviceSliceMut<'_>> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let (_, rest) = DeviceSliceMut::from(self).split_at_mut(range.start)?;
        Some(rest.split_at_mut(range.end - range.start)?.0)
    }

    /// The device's buffer, and where the caller's bytes begin in it; `None` for host memory.
    pub(crate) fn on(&self) -> Option<(BufferId, u64)> {
        match &self.place {
            BufferPlace::Host(_) => None,
            BufferPlace::Device { buffer, start } => Some((buffer.id(), *start)),
        }
    }

    /// A part of a device's buffer as a destination, while other parts are being written. The caller ensures that the
    /// parts do not overlap. `None` for host memory, or if the range does not lie within the buffer.
    pub(crate) fn part(&self, range: Range<u64>) -> Option<DeviceSliceMut<'_>> {
        let BufferPlace::Device { buffer, start } = &self.place else { return None };
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let place = BufferPlace::Device { buffer: Arc::clone(buffer), start: start + range.start };
        Some(DeviceSliceMut { memory: &self.memory, place, len: range.end - range.start })
    }

    /// A new buffer in the same memory, with the same bytes.
    ///
    /// # Errors
    /// Fails if there is too little memory, or if the device does.
    pub fn try_clone(&self) -> Result<Self, DeviceError> {
        let mut copy = self.memory.allocate(self.len)?;
        // A device copies whole words.
        let mut copied = 0;
        if let (Some((from, start)), Some((to, _))) = (self.on(), copy.on())
            && let Some(device) = self.memory.device()
            && start % 4 == 0
            && self.len >= 4
        {
            copied = self.len & !3;
            let mut queue = device.queue()?;
            queue.copy((from, start), (to, 0), copied)?;
            queue.finish()?;
        }
        match self.as_bytes() {
            Some(bytes) => copy.copy_from_host(0, bytes)?,
            None => {
                let mut rest = zeroed((self.len - copied) as usize)
                    .map_err(|_| DeviceError::OutOfMemory { bytes: self.len })?;
                self.copy_to_host(copied, &mut rest)?;
                copy.copy_from_host(copied, &rest)?;
            }
        }
        Ok(copy)
    }

    /// Copies bytes from `offset` on to the host.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if the bytes are not within the buffer; otherwise fails if the device does.
    pub fn copy_to_host(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, into.len())?;
        match &self.place {
            BufferPlace::Host(bytes) => {
                into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
                Ok(())
            }
            BufferPlace::Device { buffer, start } => buffer.copy_to_host(start + offset, into),
        }
    }

    /// Copies bytes of the host to the buffer, from `offset` on.
    ///
    /// # Errors
    /// As for [`Self::copy_to_host`].
    pub fn copy_from_host(&mut self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        match &mut self.place {
            BufferPlace::Host(bytes) => {
                bytes[offset as usize..][..from.len()].copy_from_slice(from);
                Ok(())
            }
            BufferPlace::Device { buffer, start } => buffer.copy_from_host(*start + offset, from),
        }
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), DeviceError> {
        if offset.checked_add(len as u64).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let all = self.len;
        Err(DeviceError::Unsupported(format!(
            "{len} bytes from byte {offset} on are not within a buffer of {all} bytes"
        )))
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} bytes of {:?})", self.len, self.memory)
    }
}

/// A part of a [`DeviceBuffer`], as a destination.
pub struct DeviceSliceMut<'a> {
    memory: &'a DeviceMemory,
    pub(in crate::access) place: BufferPlace<&'a mut [u8]>,
    len: u64,
}

impl<'a> From<&'a mut DeviceBuffer> for DeviceSliceMut<'a> {
    fn from(buffer: &'a mut DeviceBuffer) -> Self {
        let DeviceBuffer { memory, place, len } = buffer;
        let place = match place {
            BufferPlace::Host(bytes) => BufferPlace::Host(&mut bytes[..]),
            BufferPlace::Device { buffer, start } => {
                BufferPlace::Device { buffer: Arc::clone(buffer), start: *start }
            }
        };
        Self { memory, place, len: *len }
    }
}

impl DeviceSliceMut<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Divides the slice at byte `mid`; `None` if it is shorter.
    pub fn split_at_mut(self, mid: u64) -> Option<(Self, Self)> {
        let rest = self.len.checked_sub(mid)?;
        let (first, second) = match self.place {
            BufferPlace::Host(bytes) => {
                let (first, second) = bytes.split_at_mut_checked(mid as usize)?;
                (BufferPlace::Host(first), BufferPlace::Host(second))
            }
            BufferPlace::Device { buffer, start } => (
                BufferPlace::Device { buffer: Arc::clone(&buffer), start },
                BufferPlace::Device { buffer, start: start + mid },
            ),
        };
        let memory = self.memory;
        Some((Self { memory, place: first, len: mid }, Self { memory, place: second, len: rest }))
    }

    /// The device's workers, its buffer, and the slice's offset there; `None` for host memory.
    pub(in crate::access) fn on_device(&self) -> Option<(&Arc<Workers>, &Arc<BufferHandle>, u64)> {
        match &self.place {
            BufferPlace::Host(_) => None,
            BufferPlace::Device { buffer, start } => Some((self.memory.workers()?, buffer, *start)),
        }
    }
}

impl fmt::Debug for DeviceSliceMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSliceMut({} bytes)", self.len)
    }
}
