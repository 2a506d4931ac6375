//! Sleeping until a kernel increments a word, and memory that kernels and the host share.

use std::sync::Arc;

use super::api::{self, Raw};
use super::driver::CudaDriver;
use super::handle::{BlockingEvent, Buffer, Context, CudaPinned, Stream};
use crate::gpu::device::in_order::{Mapped, Shared};
use crate::gpu::device::visible::{Bell, VisibleMemory};
use crate::gpu::device::{BufferId, DeviceError};

/// How many streams must be able to run at once: those of decoders, uploads, the bell and the kernel.
const CONNECTIONS: u32 = 32;
/// The environment variable that sets how many streams run at once. CUDA reads it once, at the start.
const MAX_CONNECTIONS: &str = "CUDA_DEVICE_MAX_CONNECTIONS";

/// Wakes a thread when a word of the device goes up.
///
/// The device itself watches the word: a stream waits for the value, and a thread sleeps on an event behind that wait.
pub(super) struct CudaBell {
    counter: Arc<Buffer>,
    waiting: Stream,
    context: Arc<Context>,
    wait_value: WaitValue,
}

type WaitValue = unsafe extern "C" fn(Raw, u64, u32, u32) -> std::ffi::c_int;

impl CudaBell {
    /// A bell for the first word of a buffer; `None` if the driver lacks such waits.
    pub fn new(
        shared: &Shared<CudaDriver>,
        counter: BufferId,
    ) -> Result<Option<Self>, DeviceError> {
        let context = &shared.driver.context;
        let cuda = context.cuda;
        let Some(wait_value) = cuda.cuStreamWaitValue32_v2 else { return Ok(None) };
        Ok(Some(Self {
            counter: shared.memory(counter, 0, 4)?.buffer,
            waiting: Stream::new(context)?,
            context: Arc::clone(context),
            wait_value,
        }))
    }
}

impl Bell for CudaBell {
    fn wait(&self, count: u32) -> Result<(), DeviceError> {
        let _current = self.context.enter()?;
        let cuda = self.context.cuda;
        // SAFETY: the stream and the word are valid and of one context.
        let code = unsafe {
            (self.wait_value)(self.waiting.raw(), self.counter.address, count, api::WAIT_VALUE_GEQ)
        };
        cuda.check("cuStreamWaitValue32", code)?;
        BlockingEvent::record(&self.waiting)?.wait()
    }
}

/// Allocates `bytes` bytes of host memory, shared with running kernels.
pub(super) fn visible_memory(
    shared: &Arc<Shared<CudaDriver>>,
    bytes: usize,
) -> Result<VisibleMemory, DeviceError> {
    let connections = std::env::var(MAX_CONNECTIONS).ok().and_then(|text| text.parse().ok());
    if connections.is_none_or(|count: u32| count < CONNECTIONS) {
        return Err(DeviceError::Unsupported(format!(
            "{MAX_CONNECTIONS}={CONNECTIONS} must be in the environment when the program starts: otherwise what the \
             host sends can \
             wait for the running kernel"
        )));
    }
    let (pinned, address) = CudaPinned::mapped(&shared.driver.context, bytes.max(16))?;
    let at = pinned.at();
    let buffer = Buffer::of_caller(&shared.driver.context, address);
    let owner = Mapped::new(shared, pinned, buffer, bytes as u64);
    // SAFETY: the memory is pinned, so it begins at a page; it is initialised and belongs to the owner alone.
    Ok(unsafe { VisibleMemory::new(at, bytes, owner.buffer(), Box::new(owner)) })
}
