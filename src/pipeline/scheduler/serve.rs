//! The device's threads: they take batches from the queue and run them on the device.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rayon::ThreadPool;

use super::{Shared, State, Task};
use crate::clock::Instant;
use crate::gpu::coder::BlockTask;
use crate::gpu::device::Device;
use crate::gpu::device::background::{self, Busy};
use crate::gpu::device::pool::Pool;
use crate::gpu::model::plan::Shape;
use crate::pipeline::batch_sizing::{DeviceStep, SchedulingState};
use crate::pipeline::gpu::Accelerator;
use crate::pipeline::gpu_engine::{GpuEngine, MAX_PATIENCE};
use crate::pipeline::statistics::Statistics;
use crate::pipeline::throughput::{Throughput, WithDevice};

/// How long to wait before checking the workers' progress again.
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// A batch for the device.
struct TakenBatch<T> {
    /// The tasks' places in the output order.
    numbers: Vec<u64>,
    tasks: Vec<T>,
    /// How many batches the device has, with this one.
    at_once: usize,
}

impl<T: Task> Shared<T> {
    /// Starts the thread that opens the accelerator's device, starts the device's other threads and joins them. `None`
    /// if the device is known to be useless, or if the system refuses a thread.
    pub(super) fn start(
        shared: &Arc<Self>,
        accelerator: Accelerator,
        pool: Option<Arc<ThreadPool>>,
    ) -> Option<JoinHandle<()>> {
        // Counts on a device that was open from the start from the first task on.
        if accelerator.gpu.is_opened() {
            let batches = accelerator.batches(accelerator.gpu.limits()?)?;
            accelerator.join(&batches);
            if accelerator.gpu.opening_time().is_none() {
                shared.state.lock().device.threads = batches.slots as usize;
            }
        }
        accelerator.is_idle("it was not ready before the work was done");
        let (serving, mut busy) = (Arc::clone(shared), Some(Busy::new()));
        let thread = thread::Builder::new().name("pz device".into());
        let started = thread.spawn(move || {
            let work = AssertUnwindSafe(|| serving.open(&accelerator, pool.as_ref(), &mut busy));
            // Treat a panic in the backend as a device failure.
            let _ = catch_unwind(work);
            // If this is the last to have the device, it is closed here.
            drop(accelerator);
            drop(busy);
            let mut state = serving.state.lock();
            state.device.threads = 0;
            state.memory.device_stops();
            let waiting = state.returned.len() + state.queue.len();
            drop(state);
            serving.finished.notify_one();
            // Without the device, all workers are needed again.
            if let Some(pool) = &pool {
                (0..waiting.min(serving.workers)).for_each(|_| Self::spawn_one(&serving, pool));
            }
        });
        if started.is_err() {
            shared.state.lock().device.threads = 0;
        }
        started.ok()
    }

    /// Opens the device, compiles its kernels, and serves it with one thread for each slot.
    fn open(
        self: &Arc<Self>,
        accelerator: &Accelerator,
        pool: Option<&Arc<ThreadPool>>,
        busy: &mut Option<Busy>,
    ) {
        if accelerator.gpu.is_closed() {
            // Ask the drivers only when some device would be worth it, and then check whether this one is. If earlier
            // runs do not tell, encoding mostly takes long enough to ask at once.
            let encodes = matches!(accelerator.work, BlockTask::Encode { .. });
            let asks_at_once = encodes && accelerator.is_known_to_pay() != Some(false);
            if !asks_at_once && !self.is_worth_opening(accelerator, true) {
                return;
            }
            // For encoding, the driver's memory counts from the start.
            if !encodes && !self.make_room() {
                return;
            }
            if let Err(error) = accelerator.gpu.found() {
                return accelerator.is_idle(&error.to_string());
            }
            // For decoding, workers have stopped for the device. If it does not pay now, they go on.
            if !self.is_worth_opening(accelerator, encodes) {
                return;
            }
        }
        let device = match accelerator.gpu.pool() {
            Ok(device) => device,
            Err(error) => return accelerator.is_idle(&error.to_string()),
        };
        let Some(batches) = accelerator.batches(device.limits()) else { return };
        if self.state.lock().is_closed {
            return;
        }
        let begun = Instant::now();
        let shape = Shape::new(batches.batch, accelerator.block_len);
        let plans = accelerator.work.plans(device.limits(), shape);
        // A kernel that does not compile makes the device decline the batch later.
        let _ = device.prepare(&plans);
        if background::is_ending() {
            return;
        }
        let preparing = begun.elapsed();
        // Compiling may take longer than the whole job, so workers make room only now.
        if !self.make_room() {
            return;
        }
        let statistics = accelerator.statistics.as_ref();
        let verifies = matches!(accelerator.work, BlockTask::Encode { verify: true, .. });
        let engine = |statistics| GpuEngine::new(device, shape, verifies, statistics);
        let begun = Instant::now();
        // What it allocates stays in the pool, for the engines below.
        if let Some(passed) = accelerator.gpu.passed()
            && let Err(why) = engine(None).check_known(&accelerator.work, passed)
        {
            return accelerator.is_idle(&why);
        }
        let preparing = preparing + begun.elapsed();
        let begun = Instant::now();
        let engines: Vec<_> = (0..batches.slots).map(|_| engine(statistics)).collect();
        accelerator.join(&batches);
        // Allocate for one engine after another: in parallel, each of their many allocations would wait for the others.
        let finished = self.state.lock().finished;
        let left = accelerator.blocks.map_or(0, |blocks| blocks.saturating_sub(finished));
        let in_use = left.div_ceil(batches.batch.into()) as usize;
        engines.iter().take(in_use).for_each(|engine| engine.make_ready(&accelerator.work));
        let allocating = begun.elapsed();
        if let Some(statistics) = statistics {
            statistics.on_device(|device| {
                device.preparing += preparing;
                device.allocating += allocating;
            });
        }
        let mut state = self.state.lock();
        if state.is_closed {
            return;
        }
        // From now on, the owner joins this thread when it drops the scheduler.
        state.device.has_begun = true;
        state.device.threads = batches.slots as usize;
        state.memory.device_begins(batches.slots as usize, self.workers);
        drop(state);
        *busy = None;
        thread::scope(|scope| {
            let serve = |engine: &GpuEngine<'_>| {
                engine.stay_on_thread();
                let work = || self.serve(device, engine, batches.batch as usize, statistics, pool);
                let _ = catch_unwind(AssertUnwindSafe(work));
                let mut state = self.state.lock();
                state.device.threads = state.device.threads.saturating_sub(1);
                drop(state);
                self.finished.notify_one();
                self.progress.notify_all();
            };
            let Some((first, others)) = engines.split_first() else { return };
            for (i, engine) in (1..).zip(others) {
                let thread = thread::Builder::new().name(format!("pz device {i}"));
                if thread.spawn_scoped(scope, move || serve(engine)).is_err() {
                    self.state.lock().device.threads -= 1;
                }
            }
            serve(first);
        });
    }

    /// Asks workers and owner to make room for a device and its driver, and waits until they have. Returns `false` if
    /// the job ends first.
    fn make_room(&self) -> bool {
        let mut state = self.state.lock();
        if state.memory.is_room(state.working) {
            return true;
        }
        state.memory.device_wants_room();
        while !state.memory.is_room(state.working) {
            if state.is_closed {
                return false;
            }
            state = self.progress.wait(state);
        }
        drop(state);
        // Free the memory that the stopped workers used.
        self.engine.release();
        true
    }

    /// Whether it pays to open the device for what is left. Unless earlier runs tell that it pays, waits until the
    /// workers' rate is known. If it does not pay yet and `keeps_asking`, checks again while there is work: the workers
    /// may turn out to be slower.
    fn is_worth_opening(&self, accelerator: &Accelerator, keeps_asking: bool) -> bool {
        let Some(blocks) = accelerator.blocks else { return true };
        if accelerator.is_known_to_pay() == Some(true) {
            return true;
        }
        let mut has_said_why = false;
        let mut state = self.state.lock();
        while !state.is_closed {
            let left = blocks.saturating_sub(state.finished) as f64;
            if let Some(cpu) = state.rates.throughput(self.workers, accelerator.block_len) {
                let bytes = left * f64::from(accelerator.block_len);
                let device = accelerator.with_device(&cpu);
                if cpu.pays(bytes, &device) {
                    return true;
                }
                if !has_said_why {
                    has_said_why = true;
                    accelerator.is_idle(&why_not(&cpu, bytes, &device));
                    accelerator.stays_closed();
                }
                if !keeps_asking {
                    return false;
                }
            }
            state = self.progress.wait_timeout(state, POLL_INTERVAL).0;
        }
        false
    }

    /// Runs batches on the device until none are left or it fails.
    fn serve(
        self: &Arc<Self>,
        device: &Pool<Arc<dyn Device>>,
        engine: &GpuEngine<'_>,
        most: usize,
        statistics: Option<&Statistics>,
        pool: Option<&Arc<ThreadPool>>,
    ) {
        // The first batch is slow because it creates everything that is created on first use. Its time counts only
        // until there is another.
        let mut is_first = true;
        while let Some(batch) = self.take_batch(most, statistics) {
            let TakenBatch { numbers, mut tasks, at_once } = batch;
            if let Some(statistics) = statistics {
                statistics.device_begins();
            }
            let begun = Instant::now();
            let on_device = catch_unwind(AssertUnwindSafe(|| T::run(&mut tasks, engine)));
            let time = begun.elapsed();
            let count = tasks.len();
            let is_done = |task: &T| on_device.is_ok() && task.is_done();
            let coded = tasks.iter().filter(|task| on_device.is_ok() && task.is_coded());
            let (blocks, bytes) = coded.fold((0, 0), |(n, sum), task| (n + 1, sum + task.bytes()));
            let (done, left): (Vec<_>, Vec<_>) =
                numbers.into_iter().zip(tasks).partition(|(_, task)| is_done(task));
            if let Some(statistics) = statistics {
                statistics.device_batch(begun, blocks, bytes, device.high_water());
                statistics.on_device(|device| {
                    device.batches += 1;
                    device.left += count as u64 - blocks;
                });
            }
            let mut tokens = left.len();
            let mut state = self.state.lock();
            let at_once = at_once.max(state.device.batches);
            state.device.tasks -= count;
            state.device.batches -= 1;
            state.device.done += u64::from(blocks > 0);
            state.done.extend(done);
            state.returned.extend(left);
            // A batch that the device gave back undone says nothing about its speed.
            if blocks > 0 && (!is_first || !state.rates.knows_device()) {
                state.rates.device_took(count, time, at_once);
                let most = state.memory.max_beside();
                let workers = state.rates.workers_beside(most, self.workers);
                tokens += state.memory.set_workers(workers);
            }
            is_first &= blocks == 0;
            drop(state);
            // The device's other threads may have waited for this batch.
            self.queued.notify_all();
            self.progress.notify_all();
            if let Some(pool) = pool {
                (0..tokens).for_each(|_| Self::spawn_one(self, pool));
            }
            self.finished.notify_one();
            if on_device.is_err() || engine.is_disabled() && !self.rest(engine) {
                return;
            }
        }
    }

    /// Where the device has no memory for a block of this slot, waits until its other slots have done some batches, and
    /// lets `engine` try again. If no other slot is at work, it tries again at once, since the others have given back
    /// their memory. Returns `false` if memory is not the reason, or once that has been in vain a few times: when the
    /// last slot has left, the workers get back what the device took.
    fn rest(&self, engine: &GpuEngine<'_>) -> bool {
        let Some(batches) = engine.patience() else { return false };
        let mut state = self.state.lock();
        state.device.threads -= 1;
        let until = state.device.done + u64::from(batches);
        while !state.is_closed && state.device.threads > 0 && state.device.done < until {
            state = self.progress.wait(state);
        }
        let is_alone = state.device.threads == 0 && batches < MAX_PATIENCE;
        let is_time = !state.is_closed && (state.device.done >= until || is_alone);
        state.device.threads += 1;
        drop(state);
        if is_time {
            engine.try_again();
        }
        is_time
    }

    /// The number of workers beside the device. Without workers, the owner counts as one once it has run a task.
    fn workers_beside(&self, state: &State<T>) -> usize {
        let workers = self.workers.min(state.memory.workers(false));
        if workers == 0 { usize::from(state.rates.knows_worker()) } else { workers }
    }

    /// Waits for a batch and takes it. `None` at the end, or if the device is too slow.
    fn take_batch(&self, most: usize, statistics: Option<&Statistics>) -> Option<TakenBatch<T>> {
        let begun = Instant::now();
        let mut state = self.state.lock();
        let batch = loop {
            if state.is_closed {
                break None;
            }
            let workers = self.workers_beside(&state);
            let afterwards = state.memory.workers_afterwards();
            let now = SchedulingState {
                queued: state.queue.len(),
                window: self.window,
                on_device: state.device.tasks,
                batches: state.device.batches,
                batch: most,
                slots: state.device.threads,
                workers,
                displaced: self.workers.min(afterwards).saturating_sub(workers),
                is_ended: state.is_ended,
                is_awaited: state.is_awaited,
            };
            match state.rates.next(&now) {
                DeviceStep::Take(count) => {
                    state.device.tasks += count;
                    state.device.batches += 1;
                    let (numbers, tasks) = state.queue.drain(..count).unzip();
                    break Some(TakenBatch { numbers, tasks, at_once: state.device.batches });
                }
                DeviceStep::Leave => break None,
                DeviceStep::Wait => {}
            }
            state = self.queued.wait(state);
        };
        drop(state);
        if let Some(statistics) = statistics {
            statistics.on_device(|device| device.waiting += begun.elapsed());
        }
        batch
    }
}

/// Why opening the device does not pay.
fn why_not(cpu: &Throughput, bytes: f64, device: &WithDevice) -> String {
    let alone = cpu.alone(bytes);
    let why = if alone < 2.0 * device.opening {
        "too short to open a device".into()
    } else if device.rate.is_some() {
        format!("and {:.2} s with the device", cpu.with_device(bytes, device))
    } else {
        "mostly to write, and a device does not speed that up".into()
    };
    format!("the CPU alone takes {alone:.2} s, {why}")
}
