//! A device with a planted fault, to test recovery.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::gpu::device::{BufferId, Device, DeviceError, Dispatch, Limits, Queue, Setting};
use crate::gpu::model::plan::Plan;
use crate::sync::Mutex;

/// The fault. Calls are counted from 0 over all queues: allocations, new queues, and every operation of a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// No fault.
    None,
    /// One call fails without doing anything.
    Call(u64),
    /// A buffer larger than this cannot be allocated.
    BuffersAbove(u64),
    /// All buffers together cannot exceed this size: another program has taken the rest.
    MemoryAbove(u64),
    /// The same limit, but the memory is only reserved on first use: allocations succeed, and work in a queue fails
    /// later, when a caller waits for it.
    LateMemoryAbove(u64),
    /// One call is accepted, but its work then finds no memory. The next call that waits in that queue gets the error.
    Late(u64),
    /// One read, counted from 0, returns a flipped bit.
    Read(u64),
    /// One write, counted from 0, writes a flipped bit.
    Write(u64),
    /// Every read of at least this many bytes returns a flipped bit.
    LongReads(u64),
    /// From one call on, work never ends, and callers wait for it until the deadline.
    Endless(u64),
    /// From one call on, the device is lost.
    Lost(u64),
}

/// A device with a fault.
#[derive(Debug)]
pub(crate) struct Faulty<D: Device> {
    device: D,
    fault: Fault,
    calls: AtomicU64,
    reads: AtomicU64,
    writes: AtomicU64,
    /// How long queues wait by default.
    deadline: Duration,
    /// Whether the device acts as if no program was loaded while a kernel runs.
    loads_nothing: bool,
    /// The available memory in bytes.
    memory: AtomicU64,
    /// How often an allocation was refused.
    refusals: AtomicU64,
    /// The largest total size of buffers with which a queue has worked since the memory was last set.
    most_used: AtomicU64,
    live: Mutex<Live>,
    /// The kind of each call.
    kinds: Mutex<Vec<&'static str>>,
}

/// Buffers that have not been freed.
#[derive(Debug, Default)]
struct Live {
    bytes: HashMap<BufferId, u64>,
    /// A buffer that will find no memory on first use.
    unreserved: Option<BufferId>,
}

impl Live {
    fn sum(&self) -> u64 {
        self.bytes.values().sum()
    }
}

/// The fate of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Endless,
    Late,
}

impl<D: Device> Faulty<D> {
    pub fn new(device: D, fault: Fault) -> Self {
        Self {
            device,
            fault,
            calls: AtomicU64::new(0),
            reads: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            deadline: crate::gpu::device::DEADLINE,
            loads_nothing: false,
            memory: AtomicU64::new(match fault {
                Fault::MemoryAbove(most) | Fault::LateMemoryAbove(most) => most,
                _ => u64::MAX,
            }),
            refusals: AtomicU64::new(0),
            most_used: AtomicU64::new(0),
            live: Mutex::default(),
            kinds: Mutex::default(),
        }
    }

    /// Sets how long its queues wait by default.
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// Makes the device say that no plan runs at once.
    pub fn loading_nothing(self) -> Self {
        Self { loads_nothing: true, ..self }
    }

    /// Sets the size that all buffers together may have from now on.
    pub fn set_memory(&self, bytes: u64) {
        self.memory.store(bytes, Ordering::Relaxed);
        self.most_used.store(0, Ordering::Relaxed);
    }

    /// The largest total size in bytes of the buffers with which a queue has worked since the memory was last set.
    pub fn most_used(&self) -> u64 {
        self.most_used.load(Ordering::Relaxed)
    }

    /// How often an allocation was refused.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    fn refuse(&self, bytes: u64) -> DeviceError {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        DeviceError::OutOfMemory { bytes }
    }

    /// Whether there is memory for `bytes` bytes in all buffers together.
    fn has_memory_for(&self, bytes: u64) -> bool {
        bytes <= self.memory.load(Ordering::Relaxed)
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Numbers of some calls so far: one in `stride`, and the first and the last call of each kind.
    pub fn sample_of_calls(&self, stride: u64) -> Vec<u64> {
        let kinds = self.kinds.lock();
        let number = |at: usize| at as u64;
        let is_edge = |at: usize| {
            let kind = &kinds[at];
            !kinds[..at].contains(kind) || !kinds[at + 1..].contains(kind)
        };
        let is_chosen = |&at: &usize| number(at).is_multiple_of(stride) || is_edge(at);
        (0..kinds.len()).filter(is_chosen).map(number).collect()
    }

    /// Reads and writes so far.
    pub fn copies(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }

    /// Total size in bytes of the buffers that have not been freed.
    pub fn live(&self) -> u64 {
        self.live.lock().sum()
    }

    fn call(&self, kind: &'static str) -> Result<Fate, DeviceError> {
        let mut kinds = self.kinds.lock();
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        kinds.push(kind);
        drop(kinds);
        match self.fault {
            Fault::Call(n) if n == call => {
                Err(DeviceError::Failed(format!("call {call} was to fail")))
            }
            Fault::Lost(n) if call >= n => Err(DeviceError::Lost),
            Fault::Endless(n) if call >= n => Ok(Fate::Endless),
            Fault::Late(n) if n == call => Ok(Fate::Late),
            _ => Ok(Fate::Done),
        }
    }
}

impl<D: Device> Device for Faulty<D> {
    fn runs_at_once(&self, plan: &Plan) -> bool {
        !self.loads_nothing && self.device.runs_at_once(plan)
    }

    fn limits(&self) -> &Limits {
        self.device.limits()
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        let fate = self.call("allocate")?;
        if matches!(self.fault, Fault::BuffersAbove(most) if bytes > most) {
            return Err(self.refuse(bytes));
        }
        // Held until the buffer is counted, so that two threads do not take the same bytes.
        let mut live = self.live.lock();
        let is_late = matches!(self.fault, Fault::LateMemoryAbove(_));
        if !is_late && !self.has_memory_for(live.sum() + bytes) {
            return Err(self.refuse(bytes));
        }
        let id = self.device.allocate(bytes)?;
        live.bytes.insert(id, bytes);
        if fate == Fate::Late {
            live.unreserved = Some(id);
        }
        Ok(id)
    }

    fn free(&self, buffer: BufferId) {
        let mut live = self.live.lock();
        assert!(live.bytes.remove(&buffer).is_some(), "a buffer that is not live is freed");
        live.unreserved.take_if(|unreserved| *unreserved == buffer);
        drop(live);
        self.device.free(buffer);
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        let has_failed = self.call("queue")? == Fate::Late;
        let queue = self.device.queue()?;
        let deadline = self.deadline;
        Ok(Box::new(FaultyQueue { faulty: self, queue, deadline, is_given_up: false, has_failed }))
    }
}

struct FaultyQueue<'f, D: Device> {
    faulty: &'f Faulty<D>,
    queue: Box<dyn Queue + 'f>,
    deadline: Duration,
    is_given_up: bool,
    /// Work in this queue found no memory. Later work is dropped, and callers that wait get the error.
    has_failed: bool,
}

impl<D: Device> FaultyQueue<'_, D> {
    /// For calls that do not wait and use `buffers`: whether to pass the call on.
    fn call(&mut self, kind: &'static str, buffers: &[BufferId]) -> Result<bool, DeviceError> {
        if self.is_given_up {
            return Err(DeviceError::TimedOut);
        }
        let fate = self.faulty.call(kind)?;
        let live = self.faulty.live.lock();
        let finds_no_memory = fate == Fate::Late
            || live.unreserved.is_some_and(|id| buffers.contains(&id))
            || !buffers.is_empty() && !self.faulty.has_memory_for(live.sum());
        if !buffers.is_empty() && !finds_no_memory {
            self.faulty.most_used.fetch_max(live.sum(), Ordering::Relaxed);
        }
        drop(live);
        self.has_failed |= finds_no_memory;
        Ok(fate != Fate::Endless && !self.has_failed)
    }

    /// For calls that wait.
    fn wait(&mut self, kind: &'static str, buffers: &[BufferId]) -> Result<(), DeviceError> {
        if self.call(kind, buffers)? {
            return Ok(());
        }
        if self.has_failed {
            // Earlier work has ended.
            self.queue.finish()?;
            return Err(self.faulty.refuse(0));
        }
        std::thread::sleep(self.deadline);
        self.is_given_up = true;
        Err(DeviceError::TimedOut)
    }
}

impl<D: Device> Queue for FaultyQueue<'_, D> {
    fn write_parts(
        &mut self,
        buffer: BufferId,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError> {
        if !self.call("write", &[buffer])? {
            return Ok(());
        }
        let write = self.faulty.writes.fetch_add(1, Ordering::Relaxed);
        if self.faulty.fault != Fault::Write(write) {
            return self.queue.write_parts(buffer, offset, parts);
        }
        let mut wrong = parts.concat();
        let middle = wrong.len() / 2;
        wrong[middle] ^= 0x10;
        self.queue.write_parts(buffer, offset, &[&wrong])
    }

    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        if self.call("clear", &[buffer])? {
            self.queue.clear(buffer, offset, bytes)
        } else {
            Ok(())
        }
    }

    fn copy(
        &mut self,
        from: (BufferId, u64),
        to: (BufferId, u64),
        bytes: u64,
    ) -> Result<(), DeviceError> {
        if self.call("copy", &[from.0, to.0])? { self.queue.copy(from, to, bytes) } else { Ok(()) }
    }

    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        if self.call("dispatch", work.buffers)? { self.queue.dispatch(work) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        if self.call("flush", &[])? { self.queue.flush() } else { Ok(()) }
    }

    fn read_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        self.wait("read", &[buffer])?;
        let read = self.faulty.reads.fetch_add(1, Ordering::Relaxed);
        let is_wrong = match self.faulty.fault {
            Fault::Read(wrong) => read == wrong,
            Fault::LongReads(least) => bytes >= least,
            _ => false,
        };
        let wrong = is_wrong.then_some(bytes as usize / 2);
        let mut done = 0;
        self.queue.read_with(buffer, offset, bytes, &mut |piece| {
            match wrong.and_then(|at| at.checked_sub(done)).filter(|at| *at < piece.len()) {
                None => take(piece),
                Some(at) => {
                    let mut piece = piece.to_vec();
                    piece[at] ^= 0x10;
                    take(&piece);
                }
            }
            done += piece.len();
        })
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.wait("finish", &[])?;
        self.queue.finish()
    }

    fn set(&mut self, setting: Setting) {
        if let Setting::Deadline(deadline) = setting {
            self.deadline = deadline;
        }
        self.queue.set(setting);
    }

    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError> {
        self.queue.take_times()
    }
}
