//! The threads of a device, which bring it batches of the scheduler's tasks.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rayon::ThreadPool;

use super::{Shared, State, Task};
use crate::gpu::device::Device;
use crate::gpu::plan::Shape;
use crate::gpu::pool::Pool;
use crate::pipeline::batch_sizing::{Next, Situation};
use crate::pipeline::gpu::{Accelerator, Busy, Work};
use crate::pipeline::gpu_engine::GpuEngine;
use crate::pipeline::statistics::Statistics;
use crate::pipeline::throughput::{Throughput, WithDevice};

/// How long to wait before looking again at how much is done.
const PATIENCE: Duration = Duration::from_millis(10);

impl<T: Task> Shared<T> {
    /// Starts the thread that waits for the device of `accelerator`, and then starts the device's other threads and waits for them.
    /// `None` if the device is known to be of no use, or if the system refuses.
    pub(super) fn start(
        shared: &Arc<Self>,
        accelerator: Accelerator,
        pool: Option<Arc<ThreadPool>>,
    ) -> Option<JoinHandle<()>> {
        // A device that has been open all along is counted on from the first task on.
        if accelerator.gpu.is_opened() {
            let batches = accelerator.batches(accelerator.gpu.limits()?)?;
            accelerator.join(&batches);
            if accelerator.gpu.opening_time().is_none() {
                shared.lock().device.threads = batches.slots as usize;
            }
        }
        accelerator.is_idle("it was not ready before all was done");
        let (serving, busy) = (Arc::clone(shared), Busy::new());
        let thread = thread::Builder::new().name("pz device".into());
        let started = thread.spawn(move || {
            let work = AssertUnwindSafe(|| serving.open(&accelerator, pool.as_ref(), busy));
            // A backend that panics is a device that fails.
            let _ = catch_unwind(work);
            let mut state = serving.lock();
            state.device.threads = 0;
            state.memory.device_stops();
            let waiting = state.returned.len() + state.queue.len();
            drop(state);
            serving.finished.notify_one();
            // Without it all workers are needed again.
            if let Some(pool) = &pool {
                (0..waiting.min(serving.workers)).for_each(|_| Self::spawn_one(&serving, pool));
            }
        });
        if started.is_err() {
            shared.lock().device.threads = 0;
        }
        started.ok()
    }

    /// Waits for the device, has it prepared, and serves it in as many threads as it takes batches.
    fn open(
        self: &Arc<Self>,
        accelerator: &Accelerator,
        pool: Option<&Arc<ThreadPool>>,
        busy: Busy,
    ) {
        // Encoding mostly takes long: drivers are asked at once what devices there are. For decoding they are asked only when
        // some device is worth it, and then it is seen whether this one is.
        let is_asked = matches!(accelerator.work, Work::Encode { .. });
        let is_closed = accelerator.gpu.is_closed();
        if is_closed && !is_asked && !self.is_worth_opening(accelerator) {
            return;
        }
        if !self.make_room() {
            return;
        }
        if is_closed {
            if let Err(error) = accelerator.gpu.found() {
                return accelerator.is_idle(&error.to_string());
            }
            if !self.is_worth_opening(accelerator) {
                return;
            }
        }
        let device = match accelerator.gpu.pool() {
            Ok(device) => device,
            Err(error) => return accelerator.is_idle(&error.to_string()),
        };
        let Some(batches) = accelerator.batches(device.limits()) else { return };
        if self.lock().is_closed {
            return;
        }
        let begun = Instant::now();
        let shape = Shape::new(batches.batch, accelerator.block_len);
        let plans = accelerator.work.plans(device.limits(), shape);
        // What does not compile is declined when it is used.
        let _ = device.prepare(&plans);
        let statistics = accelerator.statistics.as_ref();
        let verifies = matches!(accelerator.work, Work::Encode { verify: true, .. });
        let engine = |_| GpuEngine::new(device, shape, verifies, statistics);
        let engines: Vec<_> = (0..batches.slots).map(engine).collect();
        accelerator.join(&batches);
        // Engines get their memory one after another: all at once would wait for each other at each of many allocations.
        let finished = self.lock().finished;
        let left = accelerator.blocks.map_or(0, |blocks| blocks.saturating_sub(finished));
        let in_use = left.div_ceil(batches.batch.into()) as usize;
        engines.iter().take(in_use).for_each(|engine| engine.make_ready(&accelerator.work));
        if let Some(statistics) = statistics {
            statistics.on_device(|device| device.preparing += begun.elapsed());
        }
        let mut state = self.lock();
        if state.is_closed {
            return;
        }
        // From now on, the owner waits for this thread at the end.
        state.device.has_begun = true;
        state.device.threads = batches.slots as usize;
        state.memory.device_begins(batches.slots as usize, self.workers);
        drop(state);
        drop(busy);
        thread::scope(|scope| {
            let serve = |engine: &GpuEngine<'_>| {
                let work = || self.serve(device, engine, batches.batch as usize, statistics, pool);
                let _ = catch_unwind(AssertUnwindSafe(work));
                let mut state = self.lock();
                state.device.threads = state.device.threads.saturating_sub(1);
                drop(state);
                self.finished.notify_one();
            };
            let Some((first, others)) = engines.split_first() else { return };
            for (i, engine) in (1..).zip(others) {
                let thread = thread::Builder::new().name(format!("pz device {i}"));
                if thread.spawn_scoped(scope, move || serve(engine)).is_err() {
                    self.lock().device.threads -= 1;
                }
            }
            serve(first);
        });
    }

    /// Has workers and the owner make room for a device and its driver, and waits for that. `false` if all the work is done first.
    fn make_room(&self) -> bool {
        let mut state = self.lock();
        if state.memory.is_room(state.working) {
            return true;
        }
        state.memory.device_wants_room();
        while !state.memory.is_room(state.working) {
            if state.is_closed {
                return false;
            }
            state = self.turned.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        drop(state);
        // The memory that the stopped workers used.
        self.engine.release();
        true
    }

    /// Waits until it is known what the workers deliver, and whether it pays to open the device for what is left. If it does not, this
    /// goes on for as long as there is work: the workers may turn out to be slower. `false` if it never pays.
    fn is_worth_opening(&self, accelerator: &Accelerator) -> bool {
        let Some(blocks) = accelerator.blocks else { return true };
        let mut is_said = false;
        let mut state = self.lock();
        while !state.is_closed {
            let left = blocks.saturating_sub(state.finished) as f64;
            if let Some(cpu) = state.rates.throughput(self.workers, accelerator.block_len) {
                let bytes = left * f64::from(accelerator.block_len);
                let device = accelerator.with_device(&cpu);
                if cpu.pays(bytes, &device) {
                    return true;
                }
                if !is_said {
                    is_said = true;
                    accelerator.is_idle(&why_not(&cpu, bytes, &device));
                    accelerator.stays_closed();
                }
            }
            let waited = self.turned.wait_timeout(state, PATIENCE);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        false
    }

    /// Runs batches on the device until there are no more, or it fails.
    fn serve(
        self: &Arc<Self>,
        device: &Pool<Arc<dyn Device>>,
        engine: &GpuEngine<'_>,
        most: usize,
        statistics: Option<&Statistics>,
        pool: Option<&Arc<ThreadPool>>,
    ) {
        // The first batch waits for everything that is made at its first use. It counts until there is another.
        let mut is_first = true;
        while let Some((numbers, mut tasks, at_once)) = self.take_batch(most, statistics) {
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
            let mut state = self.lock();
            let at_once = at_once.max(state.device.batches);
            state.device.tasks -= count;
            state.device.batches -= 1;
            state.done.extend(done);
            state.returned.extend(left);
            // A batch that it gave back undone says nothing of its speed.
            if blocks > 0 && (!is_first || !state.rates.knows_device()) {
                state.rates.device_took(count, time, at_once);
                let most = state.memory.most_beside();
                let workers = state.rates.workers_beside(most, self.workers);
                tokens += state.memory.set_workers(workers);
            }
            is_first &= blocks == 0;
            drop(state);
            // Other threads of the device may have waited for that.
            self.queued.notify_all();
            if let Some(pool) = pool {
                (0..tokens).for_each(|_| Self::spawn_one(self, pool));
            }
            self.finished.notify_one();
            if on_device.is_err() || engine.is_disabled() {
                return;
            }
        }
    }

    /// Workers beside the device. Where there are none, the owner counts as one once it has worked.
    fn workers_beside(&self, state: &State<T>) -> usize {
        let workers = self.workers.min(state.memory.workers(false));
        if workers == 0 { usize::from(state.rates.knows_worker()) } else { workers }
    }

    /// Waits for a batch, and says how many batches the device has then. `None` at the end, or if the device is too slow.
    fn take_batch(
        &self,
        most: usize,
        statistics: Option<&Statistics>,
    ) -> Option<(Vec<u64>, Vec<T>, usize)> {
        let begun = Instant::now();
        let mut state = self.lock();
        let batch = loop {
            if state.is_closed {
                break None;
            }
            let workers = self.workers_beside(&state);
            let now = Situation {
                queued: state.queue.len(),
                window: self.window,
                on_device: state.device.tasks,
                batches: state.device.batches,
                batch: most,
                slots: state.device.threads,
                workers,
                displaced: self.workers.saturating_sub(workers),
                is_ended: state.is_ended,
                is_awaited: state.is_awaited,
            };
            match state.rates.next(&now) {
                Next::Take(count) => {
                    state.device.tasks += count;
                    state.device.batches += 1;
                    let (numbers, tasks) = state.queue.drain(..count).unzip();
                    break Some((numbers, tasks, state.device.batches));
                }
                Next::Leave => break None,
                Next::Wait => {}
            }
            state = self.queued.wait(state).unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        if let Some(statistics) = statistics {
            statistics.on_device(|device| device.waiting += begun.elapsed());
        }
        batch
    }
}

/// Why a device is not opened.
fn why_not(cpu: &Throughput, bytes: f64, device: &WithDevice) -> String {
    let alone = cpu.alone(bytes);
    let why = if alone < 2.0 * device.opening {
        "too little for a device to be opened".into()
    } else if device.rate.is_some() {
        format!("with it {:.2} s were expected", cpu.with_device(bytes, device))
    } else {
        "most of it to write, which a device does not speed up".into()
    };
    format!("the CPU alone takes {alone:.2} s, {why}")
}
