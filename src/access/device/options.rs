//! How much of a device archives use.

use std::time::Duration;

/// How much of a device archives use. The setters chain.
///
/// ```
/// use pz::access::DeviceMemoryOptions;
/// let options = DeviceMemoryOptions::new().workers(8).batch(32 << 20);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceMemoryOptions {
    pub(super) memory: Option<u64>,
    pub(super) workers: usize,
    pub(super) batch: Option<u64>,
    pub(super) idle: Duration,
    pub(super) only_prepared: bool,
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

    /// Sets the most bytes of contents that a batch has, but at least one block. Each worker takes several times as
    /// much device memory, and pinned host memory for the payloads.
    pub fn batch(mut self, bytes: u64) -> Self {
        self.batch = Some(bytes);
        self
    }

    /// Loads and allocates nothing but in [`Archive::prepare_on`](crate::access::Archive): for a device on which a
    /// kernel runs that does not end by itself. What was not prepared, the CPU decodes. Workers never give back what
    /// was prepared: they could not make it again, and giving it back would wait for the kernel.
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
