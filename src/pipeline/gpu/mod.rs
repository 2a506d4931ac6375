//! A device that runs blocks: it opens in the background, and gets batches as large as its memory allows.

mod accelerator;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use crate::clock::Instant;
use crate::gpu::device::background::{self, Busy};
use crate::gpu::device::pool::Pool;
use crate::gpu::device::{Device, DeviceError, Limits};
use crate::pipeline::gpu_engine::Passed;
use crate::process::OfProcess;
use crate::sync::Mutex;

pub(in crate::pipeline) use accelerator::MIN_HOST_MEMORY;
pub(crate) use accelerator::{Accelerator, Job};

/// A device to run blocks on, and the share of its memory that they may use.
///
/// The device memory that a job used is kept for the next job until the last clone of this `Gpu` is dropped.
#[derive(Clone)]
pub struct Gpu {
    shared: Arc<OfProcess<Shared>>,
    memory: Option<u64>,
}

#[derive(Default)]
struct Shared {
    /// Looks for the device on first use.
    finder: Mutex<Option<Box<Finder>>>,
    /// The device's limits, known before it is open.
    found: OnceLock<Result<Limits, DeviceError>>,
    /// Opens the device on first use, with the time it took to find it.
    opener: Mutex<Option<(Duration, Box<Opener>)>>,
    opened: OnceLock<Result<Opened, DeviceError>>,
    /// Time to find and open the device.
    opening: OnceLock<Duration>,
}

type Finder = dyn FnOnce(&Shared) + Send;

type Opener = dyn FnOnce() -> Result<Arc<dyn Device>, DeviceError> + Send;

struct Opened {
    /// The pool, as a device.
    device: Arc<dyn Device>,
    pool: Arc<Pool<Arc<dyn Device>>>,
    /// The known blocks that the device has got right.
    passed: Passed,
}

impl Gpu {
    /// An open device, with the default share of its memory.
    pub fn new(device: Arc<dyn Device>) -> Self {
        let shared = Shared::default();
        let _ = shared.found.set(Ok(device.limits().clone()));
        let _ = shared.opened.set(Ok(Opened::new(device)));
        Self::of(shared)
    }

    /// A device with known limits, which `open` opens in the background. No job waits for it: blocks run on the CPU
    /// until it is open. If it opens too late or fails to open, the CPU does everything.
    pub fn opening(
        limits: Limits,
        open: impl FnOnce() -> Result<Arc<dyn Device>, DeviceError> + Send + 'static,
    ) -> Self {
        let shared = Shared::default();
        let _ = shared.found.set(Ok(limits));
        Self::of(shared).in_background(|shared| shared.open(Duration::ZERO, open))
    }

    /// A device that `find` looks for on first use, in the background, since drivers take time to list their devices.
    /// `find` returns its limits and a function that opens it. A job does not open the device if the CPU alone takes
    /// less than a second, because opening and closing it would take longer. To decode that little, the job does not
    /// even look for it.
    pub fn finding<Open>(
        find: impl FnOnce() -> Result<(Limits, Open), DeviceError> + Send + 'static,
    ) -> Self
    where
        Open: FnOnce() -> Result<Arc<dyn Device>, DeviceError> + Send + 'static,
    {
        let shared = Shared::default();
        *shared.finder.lock() = Some(Box::new(move |shared: &Shared| {
            let begun = Instant::now();
            match guarded(find) {
                Ok((limits, open)) => {
                    *shared.opener.lock() = Some((begun.elapsed(), Box::new(open)));
                    let _ = shared.found.set(Ok(limits));
                }
                Err(error) => shared.end(Err(error)),
            }
        }));
        Self::of(shared)
    }

    fn in_background(self, work: impl FnOnce(&Shared) + Send + 'static) -> Self {
        let (busy, shared) = (Busy::new(), Arc::clone(&self.shared));
        let work = move || {
            let _busy = busy;
            shared.get().map(work);
        };
        if thread::Builder::new().name("pz opening".into()).spawn(work).is_err()
            && let Some(shared) = self.shared.get()
        {
            shared.end(Err(DeviceError::Failed("the system refuses a thread".into())));
        }
        self
    }

    /// Looks for the device, unless that has begun, and waits for its limits.
    ///
    /// # Errors
    /// Why there is no device.
    pub fn found(&self) -> Result<&Limits, DeviceError> {
        self.shared()?.find().as_ref().map_err(Clone::clone)
    }

    /// Whether background threads of this library are opening devices or compiling kernels. A program that ends
    /// meanwhile should skip the exit handlers that libraries have registered: drivers cannot handle running them at
    /// that time.
    pub fn any_in_background() -> bool {
        background::is_busy()
    }

    /// Stops those threads from beginning anything more, for a process that is about to end. They still finish driver
    /// calls that they have begun: wait until [`any_in_background`](Self::any_in_background) returns false. From then
    /// on no device opens.
    pub fn stop_in_background() {
        background::end();
    }

    fn of(shared: Shared) -> Self {
        Self { shared: Arc::new(OfProcess::new(shared)), memory: None }
    }

    /// Drivers do not survive a fork.
    fn shared(&self) -> Result<&Shared, DeviceError> {
        self.shared.get().ok_or(DeviceError::Forked)
    }

    /// Waits until the device is open, and returns it. Its allocations are counted and reused.
    ///
    /// # Errors
    /// Why there is no device.
    pub fn device(&self) -> Result<&Arc<dyn Device>, DeviceError> {
        self.shared()?.opened().as_ref().map(|opened| &opened.device).map_err(Clone::clone)
    }

    /// The device's limits, if they are known without waiting; `None` if the search goes on, or if the device could not
    /// be opened.
    pub fn limits(&self) -> Option<&Limits> {
        self.known().ok().flatten()
    }

    /// The device's limits, if they are known without waiting, or why it cannot be used.
    fn known(&self) -> Result<Option<&Limits>, DeviceError> {
        let shared = self.shared()?;
        match (shared.opened.get(), shared.found.get()) {
            (Some(Ok(opened)), _) => Ok(Some(opened.device.limits())),
            (Some(Err(error)), _) | (None, Some(Err(error))) => Err(error.clone()),
            (None, Some(Ok(limits))) => Ok(Some(limits)),
            (None, None) => Ok(None),
        }
    }

    /// The device's limits, even if it could not be opened.
    fn found_so_far(&self) -> Option<&Limits> {
        self.shared.get()?.found.get()?.as_ref().ok()
    }

    fn opened_so_far(&self) -> Option<&Opened> {
        self.shared.get()?.opened.get()?.as_ref().ok()
    }

    /// Whether the attempt to open the device has ended, in success or failure.
    pub fn is_opened(&self) -> bool {
        self.shared.get().is_none_or(|shared| shared.opened.get().is_some())
    }

    /// Sets the most bytes of device memory to take.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// Waits until the device is open, and returns it with its memory pool, or the reason why it is not open.
    pub(crate) fn pool(&self) -> Result<&Arc<Pool<Arc<dyn Device>>>, DeviceError> {
        self.shared()?.opened().as_ref().map(|opened| &opened.pool).map_err(Clone::clone)
    }

    /// The known blocks that the device has got right; `None` if it is not open.
    pub(crate) fn passed(&self) -> Option<&Passed> {
        self.opened_so_far().map(|opened| &opened.passed)
    }

    /// Whether the search for the device has not begun.
    pub fn is_unsought(&self) -> bool {
        self.shared.get().is_some_and(|shared| shared.finder.lock().is_some())
    }

    /// Whether opening the device has not begun.
    pub(crate) fn is_closed(&self) -> bool {
        let has_opener = |shared: &Shared| shared.opener.lock().is_some();
        self.is_unsought() || self.shared.get().is_some_and(has_opener)
    }

    /// Time to find and open the device, if that happened in the background.
    pub(crate) fn opening_time(&self) -> Option<Duration> {
        self.shared.get()?.opening.get().copied()
    }
}

impl Opened {
    fn new(device: Arc<dyn Device>) -> Self {
        let pool = Arc::new(Pool::new(device));
        Self { device: pool.clone(), pool, passed: Passed::default() }
    }
}

impl Shared {
    /// Waits for the device's limits. Looks for the device if no caller has yet.
    fn find(&self) -> &Result<Limits, DeviceError> {
        let finder = self.finder.lock().take();
        if let Some(find) = finder {
            find(self);
        }
        self.found.wait()
    }

    /// Opens the device. `finding` is the time it took to find it.
    fn open(&self, finding: Duration, open: impl FnOnce() -> Result<Arc<dyn Device>, DeviceError>) {
        let begun = Instant::now();
        let opened = guarded(open);
        let _ = self.opening.set(finding + begun.elapsed());
        self.end(opened);
    }

    /// Waits until the device is open. Opens it if no caller has yet.
    fn opened(&self) -> &Result<Opened, DeviceError> {
        let _ = self.find();
        let opener = self.opener.lock().take();
        if let Some((finding, open)) = opener {
            self.open(finding, open);
        }
        self.opened.wait()
    }

    /// Records the device, or why it could not be opened.
    fn end(&self, opened: Result<Arc<dyn Device>, DeviceError>) {
        if let Err(error) = &opened {
            let _ = self.found.set(Err(error.clone()));
        }
        let _ = self.opened.set(opened.map(Opened::new));
    }
}

/// Calls a driver, and turns a panic into an error.
fn guarded<T>(work: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
    if background::is_ending() {
        return Err(DeviceError::Failed("the process is ending".into()));
    }
    catch_unwind(AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(DeviceError::Failed("the driver panicked".into())))
}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let device = self.limits().map(|limits| &limits.name);
        f.debug_struct("Gpu").field("device", &device).field("memory", &self.memory).finish()
    }
}

impl PartialEq for Gpu {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared) && self.memory == other.memory
    }
}

impl Eq for Gpu {}

#[cfg(test)]
mod tests;
