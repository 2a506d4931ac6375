//! An open device, and the caller's buffers and streams.

use std::ffi::{c_int, c_uint, c_void};
use std::sync::Arc;

use super::api::{self, Raw};
use super::bell::CudaBell;
use super::driver::CudaDriver;
use super::handle::{Buffer, Event, Stream};
use super::program::CudaPrograms;
use super::{CudaCandidate, devices};
use crate::gpu::device::deadline::Deadline;
use crate::gpu::device::in_order::{CallerPinned, Driver, InOrderQueue, Shared, SizedBuffer};
use crate::gpu::device::program_cache::Cache;
use crate::gpu::device::{
    Bell, BufferId, DEADLINE, Device, DeviceError, HostMemory, Limits, MemorySource, NativeBuffer,
    NativeStream, Queue, VisibleMemory,
};
use crate::gpu::model::plan::Plan;

/// Kernels read and write buffers in units of this many bytes.
const ALIGNMENT: u64 = 16;

/// An open device.
#[derive(Debug)]
pub struct CudaDevice {
    shared: Arc<Shared<CudaDriver>>,
    /// The caller's stream, in which all queues of this device work.
    stream: Option<Raw>,
}

impl CudaDevice {
    /// Opens the device with this CUDA number, in its primary context, which CUDA's runtime uses, and so do PyTorch and
    /// CuPy.
    ///
    /// # Errors
    /// Fails if there is no such device, or if driver or compiler are missing.
    pub fn with_ordinal(ordinal: u32) -> Result<Self, DeviceError> {
        let found = devices().map_err(|(error, _)| error)?;
        let of_ordinal = |found: &&CudaCandidate| u32::try_from(found.ordinal) == Ok(ordinal);
        match found.iter().find(of_ordinal) {
            Some(found) => found.open(),
            None => Err(DeviceError::Absent(format!("CUDA has no device {ordinal}"))),
        }
    }

    pub(super) fn open(found: &CudaCandidate) -> Result<Self, DeviceError> {
        Self::open_with(found, Cache::of_user(&found.limits))
    }

    pub(super) fn open_with(found: &CudaCandidate, cache: Cache) -> Result<Self, DeviceError> {
        let context = found.context()?;
        let (memory, _) = context.memory()?;
        let limits = Limits { memory, memory_source: MemorySource::Free, ..found.limits.clone() };
        let driver = CudaDriver {
            limits,
            compiler: found.compiler.clone(),
            programs: CudaPrograms::default(),
            cache,
            context,
        };
        Ok(Self { shared: Arc::new(Shared::new(driver)), stream: None })
    }

    /// The same device, working in a stream of the caller's: its queues run their work behind the stream's earlier
    /// work, and the caller's later work in the stream runs behind theirs. Buffers and compiled kernels are the same as
    /// this device's.
    ///
    /// # Safety
    /// `stream` is a valid `CUstream` or `cudaStream_t` of the device's primary context, and stays valid while the new
    /// device or a queue of it exists, and until their work has ended. It may be one of CUDA's default streams.
    #[must_use]
    pub unsafe fn on_stream(&self, stream: *mut c_void) -> Self {
        Self { shared: Arc::clone(&self.shared), stream: Some(Raw(stream)) }
    }

    /// The address of a buffer on the device (a `CUdeviceptr`), for callers with their own CUDA code. It is valid until
    /// the buffer is freed.
    pub fn exported(&self, buffer: BufferId) -> Option<u64> {
        Some(self.shared.memory(buffer, 0, 0).ok()?.buffer.address)
    }

    /// Imports memory of the caller's.
    ///
    /// # Safety
    /// The caller keeps the promises of [`Device::import`].
    unsafe fn import_address(&self, address: u64, bytes: u64) -> Result<BufferId, DeviceError> {
        let context = &self.shared.driver.context;
        let unsuitable = |why: &str| DeviceError::Unsupported(format!("the buffer {why}"));
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(unsuitable("has a size that is 0 or no multiple of 4 bytes"));
        }
        if address == 0 || !address.is_multiple_of(ALIGNMENT) {
            return Err(unsuitable("does not begin at a multiple of 16 bytes"));
        }
        let _current = context.enter()?;
        let cuda = context.cuda;
        let (mut memory_type, mut device): (c_uint, c_int) = (0, -1);
        // SAFETY: the results of these attributes are numbers of 32 bits. The call checks the address.
        let is_known = unsafe {
            let get = cuda.cuPointerGetAttribute;
            let kind = get((&raw mut memory_type).cast(), api::POINTER_MEMORY_TYPE, address);
            let of = get((&raw mut device).cast(), api::POINTER_DEVICE, address);
            cuda.check("cuPointerGetAttribute", kind).is_ok()
                && cuda.check("cuPointerGetAttribute", of).is_ok()
        };
        if !is_known || memory_type != api::MEMORY_OF_DEVICE {
            return Err(unsuitable("is not memory of a CUDA device"));
        }
        if device != context.device() {
            return Err(unsuitable("belongs to another device"));
        }
        let buffer = Arc::new(Buffer::of_caller(context, address));
        Ok(self.shared.enter(SizedBuffer { buffer, bytes }))
    }
}

impl Device for CudaDevice {
    fn limits(&self) -> &Limits {
        &self.shared.driver.limits
    }

    fn has_driver(&self) -> bool {
        true
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        if bytes == 0 || !bytes.is_multiple_of(4) {
            return Err(DeviceError::Failed(format!("a buffer of {bytes} bytes")));
        }
        if bytes > self.limits().max_buffer {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        let buffer = Arc::new(Buffer::new(&self.shared.driver.context, bytes)?);
        Ok(self.shared.enter(SizedBuffer { buffer, bytes }))
    }

    fn free(&self, buffer: BufferId) {
        self.shared.free(buffer);
    }

    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.shared.buffer_bytes(buffer)
    }

    unsafe fn import(&self, buffer: NativeBuffer) -> Result<BufferId, DeviceError> {
        match buffer {
            NativeBuffer::Cuda { address, bytes } => {
                // SAFETY: the caller promises that it is valid memory of `bytes` bytes.
                unsafe { self.import_address(address, bytes) }
            }
            _ => Err(DeviceError::Unsupported("the buffer is not one of CUDA".into())),
        }
    }

    fn export(&self, buffer: BufferId) -> Option<NativeBuffer> {
        let address = self.exported(buffer)?;
        Some(NativeBuffer::Cuda { address, bytes: self.buffer_bytes(buffer)? })
    }

    unsafe fn wait_for(&self, stream: NativeStream) -> Result<(), DeviceError> {
        let NativeStream::Cuda(stream) = stream else {
            return Err(DeviceError::Unsupported("the stream is not one of CUDA".into()));
        };
        let driver = &self.shared.driver;
        let stream = Stream::of_caller(&driver.context, Raw(stream));
        let current = driver.context.enter()?;
        let event = Event::of(&stream, false, || Ok(()))?;
        drop(current);
        driver.wait(&event, Deadline::after(DEADLINE, self.limits()))
    }

    fn free_memory(&self) -> Option<u64> {
        self.shared.driver.context.memory().ok().map(|(free, _)| free)
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        let context = &self.shared.driver.context;
        let stream = match self.stream {
            Some(raw) => Stream::of_caller(context, raw),
            None => Stream::new(context)?,
        };
        Ok(Box::new(InOrderQueue::new(Arc::clone(&self.shared), stream)))
    }

    fn host_memory(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        Ok(HostMemory(Box::new(CallerPinned::new(&self.shared, bytes.max(1))?)))
    }

    fn visible_memory(&self, bytes: usize) -> Result<VisibleMemory, DeviceError> {
        super::bell::visible_memory(&self.shared, bytes)
    }

    fn bell(&self, counter: BufferId) -> Result<Option<Box<dyn Bell>>, DeviceError> {
        let bell = CudaBell::new(&self.shared, counter)?;
        Ok(bell.map(|bell| Box::new(bell) as Box<dyn Bell>))
    }

    fn stay_on_thread(&self) {
        self.shared.driver.context.stay();
    }

    fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
        let driver = &self.shared.driver;
        driver.programs.prepare(driver, plans)
    }

    fn runs_at_once(&self, plan: &Plan) -> bool {
        self.shared.driver.programs.has(plan)
    }
}

impl Drop for CudaDevice {
    fn drop(&mut self) {
        self.shared.leak_if_busy();
    }
}
