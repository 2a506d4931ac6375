//! The threads that encode. They keep their coders between calls, because making a coder takes as long as encoding a
//! gigabyte.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, MutexGuard};
use std::thread;

use super::coder::Coder;
use super::job::{CoderKey, CompressJob};
use super::slot::{EncoderSlot, Outlet};
use crate::access::device::core::DeviceCore;
use crate::gpu::device::{Device, DeviceError, budget_now};
use crate::gpu::model::budget::{Batches, BlockCost, batches, one_batch};
use crate::sync::Mutex;

/// Where batches share a device well, this many times the threads that fill it encode.
const MORE_SLOTS: u32 = 4;

/// The most bytes of contents in a batch that shares a device with others. Batches that begin together end together, so
/// long batches leave the host with nothing to write for long.
const SHORT: u32 = 32 << 20;

/// A batch that has a device alone may have this many times the blocks of all batches that would share it. The longer a
/// batch is, the less of the device is idle at the ends of kernels.
const LONGER: u64 = 2;

/// The threads of a device, each with a coder.
pub(in crate::access::device) struct Encoders {
    core: Arc<DeviceCore>,
    state: Mutex<EncodersState>,
}

#[derive(Default)]
struct EncodersState {
    threads: Vec<Sender<EncodeTask>>,
    /// What the kept coders were made for, their batches, and the memory of all of them.
    kept: Option<(CoderKey, Batches, u64)>,
}

/// The part of a job that one thread does.
struct EncodeTask {
    job: Arc<CompressJob>,
    number: u64,
    outlet: Outlet,
    /// Dropped when the thread no longer refers to the contents.
    _done: Sender<()>,
}

/// Waits for the end of all tasks of a job.
pub(super) struct Ended(Receiver<()>);

impl Ended {
    pub(super) fn wait(self) {
        // Nothing is sent: this returns when all senders have been dropped.
        let _ = self.0.recv();
    }
}

impl Encoders {
    pub(in crate::access::device) fn new(core: &Arc<DeviceCore>) -> Arc<Self> {
        Arc::new(Self { core: Arc::clone(core), state: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, EncodersState> {
        self.state.lock()
    }

    /// Ends the threads.
    pub(in crate::access::device) fn close(&self) {
        let threads = std::mem::take(&mut self.lock().threads);
        drop(threads);
    }

    /// The number and size of batches for `key`; `None` if not even one block fits. Keeps the last result.
    pub(super) fn fitting(&self, key: &CoderKey, cost: &BlockCost) -> Option<Batches> {
        let device = &self.core.device;
        let kept = self.lock().kept;
        if let Some((_, batches, _)) = kept.filter(|(last, ..)| last == key) {
            return Some(batches);
        }
        // New coders take the memory of the kept ones.
        let held = kept.map_or(0, |(.., bytes)| bytes / 8 * 7);
        let budget = budget_now(device, None).saturating_add(held).min(self.core.budget());
        let limits = device.limits();
        // Coders stay in memory, so half of it is left for other uses.
        let half = budget.min(limits.memory / 2);
        let sized = |budget| match key.encodes_alone() {
            true => one_batch(limits, budget, cost, LONGER),
            false => batches(limits, budget, cost),
        };
        let most = sized(half).or_else(|| sized(budget))?;
        if key.encodes_alone() {
            return Some(most);
        }
        let Batches { slots, batch } = most;
        // Uses more threads with shorter batches: each fetches one batch while the device encodes its next, and little
        // is left to fetch at the end.
        let times = MORE_SLOTS.min(batch);
        let short = (SHORT / key.block_len).max(1);
        Some(Batches { slots: times * slots, batch: (batch / times).min(short) })
    }

    /// Gives `job` to one thread for each outlet.
    ///
    /// # Errors
    /// Fails if the system has no threads to spare. The caller must wait in any case, because some threads may have
    /// begun.
    pub(super) fn start(
        self: &Arc<Self>,
        job: &Arc<CompressJob>,
        outlets: Vec<Outlet>,
    ) -> (Ended, Result<(), DeviceError>) {
        let (done, ended) = mpsc::channel();
        let mut state = self.lock();
        state.kept = Some(job.kept());
        for (number, outlet) in (0..).zip(outlets) {
            let task = EncodeTask { job: Arc::clone(job), number, outlet, _done: done.clone() };
            if let Err(error) = state.give(self, task) {
                return (Ended(ended), Err(error));
            }
        }
        (Ended(ended), Ok(()))
    }

    /// Frees a coder's memory.
    fn release(&self, coder: &mut Option<Coder<'_>>) {
        self.lock().kept = None;
        *coder = None;
        self.core.trim();
    }
}

impl EncodersState {
    /// Gives `task` to its thread, which it starts if necessary.
    fn give(&mut self, encoders: &Arc<Encoders>, mut task: EncodeTask) -> Result<(), DeviceError> {
        let number = task.number as usize;
        if let Some(thread) = self.threads.get(number) {
            match thread.send(task) {
                Ok(()) => return Ok(()),
                Err(mpsc::SendError(back)) => task = back,
            }
        }
        let (send, tasks) = mpsc::channel();
        let own = Arc::clone(encoders);
        let thread = thread::Builder::new().name(format!("pz encodes {number}"));
        let started = thread.spawn(move || run(&own, &tasks));
        started.map_err(|error| DeviceError::Failed(format!("no thread: {error}")))?;
        let _ = send.send(task);
        self.threads.truncate(number);
        self.threads.push(send);
        Ok(())
    }
}

/// Runs tasks until the device is closed.
fn run(encoders: &Encoders, tasks: &Receiver<EncodeTask>) {
    let core = &*encoders.core;
    core.device.stay_on_thread();
    let mut coder: Option<Coder<'_>> = None;
    loop {
        let task = match coder {
            Some(_) => tasks.recv_timeout(core.options.idle),
            None => tasks.recv().map_err(RecvTimeoutError::from),
        };
        match task {
            Ok(EncodeTask { job, number, outlet, _done }) => {
                let work = || EncoderSlot::new(&job, number).run(core, &mut coder, &outlet);
                let has_panicked = catch_unwind(AssertUnwindSafe(work)).is_err();
                if has_panicked {
                    encoders.release(&mut coder);
                }
            }
            Err(RecvTimeoutError::Timeout) => encoders.release(&mut coder),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}
