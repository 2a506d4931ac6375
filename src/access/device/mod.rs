//! Memory of a device, as a destination of ranges of archives.
//!
//! Compressed blocks cross the bus, and the device decodes them to where the caller wants them:
//!
//! ```text
//! source or payload cache ─▶ pinned host memory ─▶ payload ─▶ contents ─▶ the caller's buffer
//!                      worker reads          upload     decode     place
//! ```
//!
//! - [`DeviceMemory`] is a device with everything that decoding on it needs, kept from read to read: threads, decoders,
//!   device memory, pinned memory. All archives that are read into it share them.
//! - [`DeviceBuffer`] is a buffer there: one that pz allocated, or one of the caller's. In host memory it is a plain
//!   allocation, so the same program runs without a device.
//! - `compress` goes the other way: what lies in a buffer is encoded there, and only payloads cross the bus.
//! - `workers` are its threads. Each has two lanes (`lane`), which take turns: it takes a batch of blocks (`batches` tells
//!   how long one is), reads their payloads, and submits them. While one lane's batch is decoded, the worker reads the
//!   other's. Few threads call the driver then, in which threads wait for each other. One that has to wait reads for
//!   others (`readers`).
//! - `flight` has a batch and what becomes of its blocks. Blocks with distant matches are put together on the device
//!   (`restore`), from own bytes of which it keeps some (`kept`).
//!
//! The device checks what it decoded by the same checksums as the CPU. The CPU decodes what the device declines or gets
//! wrong, and says what is wrong with a damaged block; its result is uploaded.

mod batches;
mod buffer;
mod compress;
mod flight;
mod kept;
mod lane;
mod payload;
mod readers;
mod restore;
#[cfg(test)]
mod tests;
mod workers;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub(super) use batches::BatchKind;
pub use buffer::{DeviceBuffer, DeviceSliceMut};
pub(super) use buffer::{OnDevice, SlicePlace};
pub(super) use flight::{Flight, LaneBatch, LaneBlock, Outcome, Piece, RestoredBlock, Want};
pub(super) use lane::Lane;
pub(super) use workers::{Core, Land, Requests, Run, Taken};

use crate::gpu::device::{Device, DeviceError, NativeBuffer, NativeStream};

/// How much of a device archives use. The setters chain.
///
/// ```
/// use pz::access::DeviceMemoryOptions;
/// let options = DeviceMemoryOptions::new().workers(8).batch(32 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceMemoryOptions {
    memory: Option<u64>,
    workers: usize,
    batch: Option<u64>,
    idle: Duration,
    only_prepared: bool,
}

impl DeviceMemoryOptions {
    /// The default share of the device's memory, a worker for each core but at most 16, or 8 with OpenCL, batches of
    /// 32 MiB, with WebGPU of 128 MiB unless blocks repeat others, and 30 seconds until idle memory is given back.
    pub fn new() -> Self {
        let idle = Duration::from_secs(30);
        Self { memory: None, workers: 0, batch: None, idle, only_prepared: false }
    }

    /// Sets the most bytes of device memory that decoders take, besides the buffers that hold results.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Sets how many threads read payloads and submit them, each with a batch of its own; 0 is the default.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers;
        self
    }

    /// Sets how long workers keep decoders, device memory and pinned memory when there is nothing to do. The next read
    /// then makes them again, which takes some milliseconds.
    pub fn idle(mut self, time: Duration) -> Self {
        self.idle = time;
        self
    }

    /// Sets the most bytes of contents that a batch has, but at least one block. Each worker takes several times as much
    /// device memory, and pinned host memory for the payloads.
    pub fn batch(mut self, bytes: u64) -> Self {
        self.batch = Some(bytes);
        self
    }

    /// Loads and allocates nothing but in [`Archive::prepare_on`](crate::access::Archive): for a device on which a kernel
    /// runs that does not end by itself. What was not prepared, the CPU decodes. Workers never give back what was prepared: they
    /// could not make it again, and giving it back would wait for the kernel.
    pub(crate) fn only_prepared(mut self) -> Self {
        self.only_prepared = true;
        self
    }
}

impl Default for DeviceMemoryOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Memory that archives can be read into: of a device, or of the host. Clones are the same memory.
///
/// Reads into a device's memory share its workers, so keep the value for as long as reads may come: opening a device
/// takes much longer than a read.
///
/// With CUDA, each worker has a stream. The driver spreads the streams of a process over 8 queues of the card, in which
/// they wait for each other, unless the environment variable `CUDA_DEVICE_MAX_CONNECTIONS` is set to more (32 at most)
/// before the process first uses CUDA. The program `pz` and the Python package set it.
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
pub struct DeviceMemory(Place);

#[derive(Clone)]
enum Place {
    Host,
    Device(Arc<Handle>),
}

/// Ends the workers with the last clone.
struct Handle(Arc<Core>);

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl DeviceMemory {
    /// Host memory, for machines without a device.
    pub fn host() -> Self {
        Self(Place::Host)
    }

    /// The memory of an open device. Its workers start with the first read.
    pub fn of_device(device: Arc<dyn Device>, options: &DeviceMemoryOptions) -> Self {
        Self(Place::Device(Arc::new(Handle(Core::new(device, options)))))
    }

    /// The device; `None` for host memory.
    pub fn device(&self) -> Option<&Arc<dyn Device>> {
        self.core().map(|core| core.device())
    }

    /// Allocates a buffer of `bytes` bytes. Host memory is zeroed; what a device's memory holds is unspecified.
    ///
    /// # Errors
    /// Fails if there is too little memory, or if the device does.
    pub fn allocate(&self, bytes: u64) -> Result<DeviceBuffer, DeviceError> {
        match self.core() {
            None => DeviceBuffer::on_host(self.clone(), bytes),
            Some(core) => {
                let id = core.allocate(bytes.max(1).next_multiple_of(4))?;
                let owned = OnDevice::new(Arc::clone(core), id, bytes);
                Ok(DeviceBuffer::on_device(self.clone(), owned, 0, bytes))
            }
        }
    }

    /// Makes a buffer of the caller's a destination, without a copy. The whole buffer is; memory of CUDA may begin at any
    /// byte and have any length.
    ///
    /// # Errors
    /// Those of [`Device::import`]; [`DeviceError::Unsupported`] for host memory.
    ///
    /// # Safety
    /// The caller keeps the promises of [`Device::import`] until the result is dropped. A read of an archive is a call that
    /// uses the buffer, and when it returns, with or without an error, nothing uses the buffer any more. The only exception
    /// is a read that fails with [`DeviceError::TimedOut`]: the device may still write later.
    pub unsafe fn import(&self, buffer: NativeBuffer) -> Result<DeviceBuffer, DeviceError> {
        let Some(core) = self.core() else {
            return Err(DeviceError::Unsupported("host memory imports no buffers".into()));
        };
        // Kernels write each byte that is not a part of a whole unit by itself, so the bytes around are untouched.
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
        let id = unsafe { core.device().import(buffer) }?;
        let len = len.or(core.device().buffer_bytes(id)).unwrap_or(0);
        let owned = OnDevice::new(Arc::clone(core), id, start + len);
        Ok(DeviceBuffer::on_device(self.clone(), owned, start, len))
    }

    /// Waits until the work has ended that a stream of the caller's has been given so far. A read into a buffer that this
    /// work uses comes after it. When the read returns, its results are there for whatever the stream is given next.
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
        // SAFETY: the caller promises the same.
        unsafe { core.device().wait_for(stream) }
    }

    pub(super) fn core(&self) -> Option<&Arc<Core>> {
        match &self.0 {
            Place::Host => None,
            Place::Device(handle) => Some(&handle.0),
        }
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
