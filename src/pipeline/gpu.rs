//! A device that blocks are to run on: opened in the background, and given as much at once as it has memory for.

mod accelerator;

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::level::Recipe;
use crate::format::Pipeline;
use crate::gpu::budget::BlockCost;
use crate::gpu::device::{Device, DeviceError, Limits};
use crate::gpu::lz77_decode::Needs;
use crate::gpu::pipelines;
use crate::gpu::plan::{Plan, PlanError, Shape};
use crate::gpu::pool::Pool;

pub(crate) use accelerator::Accelerator;
pub(in crate::pipeline) use accelerator::LEAST_MEMORY;

/// A device to run blocks on, and how much of its memory may be taken.
///
/// Memory of the device that a job has used is kept for the next one, as long as there is a `Gpu` that knows of it.
#[derive(Clone)]
pub struct Gpu {
    shared: Arc<Shared>,
    memory: Option<u64>,
}

#[derive(Default)]
struct Shared {
    /// What looks for it when it is first used.
    finder: Mutex<Option<Box<Finder>>>,
    /// What is known of the device before it is open.
    found: OnceLock<Result<Limits, DeviceError>>,
    /// What opens it when it is first used, and how long it took to find it.
    opener: Mutex<Option<(Duration, Box<Opener>)>>,
    opened: OnceLock<Result<Opened, DeviceError>>,
    /// How long it took to open the device.
    opening: OnceLock<Duration>,
}

type Finder = dyn FnOnce(&Shared) + Send;

type Opener = dyn FnOnce() -> Result<Arc<dyn Device>, DeviceError> + Send;

struct Opened {
    /// The pool, as a device.
    device: Arc<dyn Device>,
    pool: Arc<Pool<Arc<dyn Device>>>,
}

impl Gpu {
    /// An open device, and all of its memory that is sensible to take.
    pub fn new(device: Arc<dyn Device>) -> Self {
        let gpu = Self::unopened();
        let _ = gpu.shared.found.set(Ok(device.limits().clone()));
        let _ = gpu.shared.opened.set(Ok(Opened::new(device)));
        gpu
    }

    /// A device with such limits that `open` opens in the background. Blocks run without it until it is there, and nobody
    /// waits for it: if it comes too late, or cannot be opened, all is done by the CPU.
    pub fn opening(
        limits: Limits,
        open: impl FnOnce() -> Result<Arc<dyn Device>, DeviceError> + Send + 'static,
    ) -> Self {
        let gpu = Self::unopened();
        let _ = gpu.shared.found.set(Ok(limits));
        let shared = Arc::clone(&gpu.shared);
        gpu.in_background(move || shared.open(Duration::ZERO, open))
    }

    /// A device that is looked for when it is first used, in the background, since drivers take their time to say what there is:
    /// `find` says what it is, and what opens it. It is not opened for what the CPU alone does in less than a second, when
    /// opening and closing a device would make the whole take longer; and to decode that, it is not even looked for.
    pub fn finding<Open>(
        find: impl FnOnce() -> Result<(Limits, Open), DeviceError> + Send + 'static,
    ) -> Self
    where
        Open: FnOnce() -> Result<Arc<dyn Device>, DeviceError> + Send + 'static,
    {
        let gpu = Self::unopened();
        *lock(&gpu.shared.finder) = Some(Box::new(move |shared: &Shared| {
            let begun = Instant::now();
            match guarded(find) {
                Ok((limits, open)) => {
                    *lock(&shared.opener) = Some((begun.elapsed(), Box::new(open)));
                    let _ = shared.found.set(Ok(limits));
                }
                Err(error) => shared.end(Err(error)),
            }
        }));
        gpu
    }

    fn in_background(self, work: impl FnOnce() + Send + 'static) -> Self {
        let busy = Busy::new();
        let work = move || {
            let _busy = busy;
            work();
        };
        if thread::Builder::new().name("pz opening".into()).spawn(work).is_err() {
            self.shared.end(Err(DeviceError::Failed("the system refuses a thread".into())));
        }
        self
    }

    /// Looks for the device, if nobody has begun to, and waits until it is known what it is and allows.
    ///
    /// # Errors
    /// Why it is not there.
    pub fn found(&self) -> Result<&Limits, DeviceError> {
        self.shared.find().as_ref().map_err(Clone::clone)
    }

    /// Whether threads of ours are at work that nobody waits for: they open devices, and compile kernels. A program that
    /// ends meanwhile should not run what libraries have registered to be run at its end: drivers are not prepared for
    /// that.
    pub fn any_in_background() -> bool {
        BUSY.load(Ordering::Acquire) > 0
    }

    fn unopened() -> Self {
        Self { shared: Arc::default(), memory: None }
    }

    /// The device, once it is open. What it allocates is counted and used again.
    ///
    /// # Errors
    /// Why it is not there.
    pub fn device(&self) -> Result<&Arc<dyn Device>, DeviceError> {
        self.shared.opened().as_ref().map(|opened| &opened.device).map_err(Clone::clone)
    }

    /// What the device is and allows, as far as is known without waiting; `None` if it is still looked for, or could not be
    /// opened.
    pub fn limits(&self) -> Option<&Limits> {
        match self.shared.opened.get() {
            None => self.shared.found.get()?.as_ref().ok(),
            Some(opened) => opened.as_ref().ok().map(|opened| opened.device.limits()),
        }
    }

    /// Whether it is known that the device is there, or is not.
    pub fn is_opened(&self) -> bool {
        self.shared.opened.get().is_some()
    }

    /// Sets the most bytes of device memory to take.
    pub fn memory(mut self, bytes: u64) -> Self {
        self.memory = Some(bytes);
        self
    }

    /// The device with its pool of memory, once it is open; otherwise why it is not.
    pub(crate) fn pool(&self) -> Result<&Arc<Pool<Arc<dyn Device>>>, &DeviceError> {
        self.shared.opened().as_ref().map(|opened| &opened.pool)
    }

    /// Whether nobody has looked for the device yet.
    pub fn is_unsought(&self) -> bool {
        lock(&self.shared.finder).is_some()
    }

    /// Whether it is still to be decided whether the device is opened.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_unsought() || lock(&self.shared.opener).is_some()
    }

    /// How long it took to open the device, if that was done in the background.
    pub(crate) fn opening_time(&self) -> Option<Duration> {
        self.shared.opening.get().copied()
    }
}

impl Opened {
    fn new(device: Arc<dyn Device>) -> Self {
        let pool = Arc::new(Pool::new(device));
        Self { device: pool.clone(), pool }
    }
}

impl Shared {
    /// What the device is, once that is known; looks for it if that is left to whoever uses it first.
    fn find(&self) -> &Result<Limits, DeviceError> {
        let finder = lock(&self.finder).take();
        if let Some(find) = finder {
            find(self);
        }
        self.found.wait()
    }

    /// Opens the device, which it took so long to find.
    fn open(&self, finding: Duration, open: impl FnOnce() -> Result<Arc<dyn Device>, DeviceError>) {
        let begun = Instant::now();
        let opened = guarded(open);
        let _ = self.opening.set(finding + begun.elapsed());
        self.end(opened);
    }

    /// The device, once it is open; opens it if that is left to whoever uses it first.
    fn opened(&self) -> &Result<Opened, DeviceError> {
        let _ = self.find();
        let opener = lock(&self.opener).take();
        if let Some((finding, open)) = opener {
            self.open(finding, open);
        }
        self.opened.wait()
    }

    /// Says whether the device has been opened.
    fn end(&self, opened: Result<Arc<dyn Device>, DeviceError>) {
        if let Err(error) = &opened {
            let _ = self.found.set(Err(error.clone()));
        }
        let _ = self.opened.set(opened.map(Opened::new));
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a driver does for us, which may panic.
fn guarded<T>(work: impl FnOnce() -> Result<T, DeviceError>) -> Result<T, DeviceError> {
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

/// Threads that are at work in the background.
static BUSY: AtomicUsize = AtomicUsize::new(0);

/// One of them.
pub(crate) struct Busy(());

impl Busy {
    pub(crate) fn new() -> Self {
        BUSY.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        BUSY.fetch_sub(1, Ordering::AcqRel);
    }
}

/// What a device is to do with blocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// Encode them, and decode them again if they are to be verified.
    Encode { recipe: Recipe, verify: bool },
    /// Decode them.
    Decode(Pipeline),
}

impl Work {
    /// What it takes for a block of `block_len` bytes.
    pub(crate) fn cost(&self, limits: &Limits, block_len: u32) -> Result<BlockCost, PlanError> {
        match self {
            Self::Decode(pipeline) => BlockCost::of(
                |shape| pipelines::decode(limits, *pipeline, shape, Needs::default()),
                block_len,
            ),
            Self::Encode { recipe, verify } => {
                let cost =
                    BlockCost::of(|shape| pipelines::encode(limits, recipe, shape), block_len)?;
                let checked = (*verify).then(|| {
                    let plan = |shape| pipelines::check(limits, recipe, shape);
                    BlockCost::of(plan, block_len).ok()
                });
                Ok(checked.flatten().map_or(cost, |checker| cost.and(&checker)))
            }
        }
    }

    /// The plans for batches of such a shape.
    pub(crate) fn plans(&self, limits: &Limits, shape: Shape) -> Vec<Plan> {
        let plans = match self {
            Self::Decode(pipeline) => {
                // Kernels are compiled differently for payloads with FSE coded streams and for others.
                let of = |needs| pipelines::decode(limits, *pipeline, shape, needs);
                let fse = match pipeline {
                    Pipeline::Fse => Needs::literals(),
                    _ => Needs::any(shape.slot, true),
                };
                vec![of(Needs::default()), of(fse)]
            }
            Self::Encode { recipe, verify } => {
                let mut plans = vec![pipelines::encode(limits, recipe, shape)];
                if *verify {
                    plans.extend(
                        Self::Decode(pipelines::decoding(recipe))
                            .plans(limits, shape)
                            .into_iter()
                            .map(Ok),
                    );
                }
                plans
            }
        };
        plans.into_iter().flatten().collect()
    }
}

#[cfg(test)]
#[path = "gpu_tests.rs"]
mod tests;
