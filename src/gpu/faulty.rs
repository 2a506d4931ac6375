//! A device that fails in a way of one's choice, to test what becomes of the work then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::device::{BufferId, Device, DeviceError, Dispatch, Limits, Queue};

/// What goes wrong. Calls are counted from 0 over all queues: allocations, queues, and all that queues do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing.
    None,
    /// One call fails, and nothing is done.
    Call(u64),
    /// There is no memory for more than so many bytes in one buffer.
    BuffersAbove(u64),
    /// There is no memory for more than so many bytes in all buffers together: another program has the rest.
    MemoryAbove(u64),
    /// The same, but buffers are only reserved when they are used: allocations succeed, and work in a queue fails for whoever
    /// waits for it.
    LateMemoryAbove(u64),
    /// One call is accepted, and what it began then finds no memory: whoever waits for it in its queue is told.
    Late(u64),
    /// A bit of what is read is wrong, in one read, counted from 0.
    Read(u64),
    /// A bit of what is written is wrong, in one write, counted from 0.
    Write(u64),
    /// From one call on, work does not end, and whoever waits for it does so until the deadline.
    Endless(u64),
    /// From one call on, the device is gone.
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
    /// How long queues wait unless they are told otherwise.
    deadline: Duration,
    /// Bytes that there is memory for.
    memory: AtomicU64,
    /// How often there was none.
    refusals: AtomicU64,
    live: Mutex<Live>,
}

/// Buffers that have not been freed.
#[derive(Debug, Default)]
struct Live {
    bytes: HashMap<BufferId, u64>,
    /// One for which there will be no memory when it is used.
    unreserved: Option<BufferId>,
}

impl Live {
    fn sum(&self) -> u64 {
        self.bytes.values().sum()
    }
}

/// What is to become of a call.
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
            deadline: super::device::DEADLINE,
            memory: AtomicU64::new(match fault {
                Fault::MemoryAbove(most) | Fault::LateMemoryAbove(most) => most,
                _ => u64::MAX,
            }),
            refusals: AtomicU64::new(0),
            live: Mutex::default(),
        }
    }

    /// The same, but its queues wait so long only.
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    /// From now on there is memory for so many bytes in all buffers together.
    pub fn set_memory(&self, bytes: u64) {
        self.memory.store(bytes, Ordering::Relaxed);
    }

    /// How often there was no memory.
    pub fn refusals(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    fn refuse(&self, bytes: u64) -> DeviceError {
        self.refusals.fetch_add(1, Ordering::Relaxed);
        DeviceError::OutOfMemory { bytes }
    }

    /// Whether there is memory for so many bytes in all buffers together.
    fn has_memory_for(&self, bytes: u64) -> bool {
        bytes <= self.memory.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Live> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// Reads and writes so far.
    pub fn copies(&self) -> (u64, u64) {
        (self.reads.load(Ordering::Relaxed), self.writes.load(Ordering::Relaxed))
    }

    /// Bytes of the buffers that have not been freed.
    pub fn live(&self) -> u64 {
        self.lock().sum()
    }

    fn call(&self) -> Result<Fate, DeviceError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
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
    fn limits(&self) -> &Limits {
        self.device.limits()
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        let fate = self.call()?;
        if matches!(self.fault, Fault::BuffersAbove(most) if bytes > most) {
            return Err(self.refuse(bytes));
        }
        // Held until the buffer is counted, so that several threads do not take the same bytes.
        let mut live = self.lock();
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
        let mut live = self.lock();
        assert!(live.bytes.remove(&buffer).is_some(), "a buffer that is not live is freed");
        live.unreserved.take_if(|unreserved| *unreserved == buffer);
        drop(live);
        self.device.free(buffer);
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        let has_failed = self.call()? == Fate::Late;
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
    /// Something in it found no memory: nothing after it is done, and whoever waits is told.
    has_failed: bool,
}

impl<D: Device> FaultyQueue<'_, D> {
    /// For calls that do not wait and use `buffers`: whether to do it.
    fn call(&mut self, buffers: &[BufferId]) -> Result<bool, DeviceError> {
        if self.is_given_up {
            return Err(DeviceError::TimedOut);
        }
        let fate = self.faulty.call()?;
        let live = self.faulty.lock();
        let finds_no_memory = fate == Fate::Late
            || live.unreserved.is_some_and(|id| buffers.contains(&id))
            || !buffers.is_empty() && !self.faulty.has_memory_for(live.sum());
        drop(live);
        self.has_failed |= finds_no_memory;
        Ok(fate != Fate::Endless && !self.has_failed)
    }

    /// For calls that wait.
    fn wait(&mut self, buffers: &[BufferId]) -> Result<(), DeviceError> {
        if self.call(buffers)? {
            return Ok(());
        }
        if self.has_failed {
            // What came before it has ended.
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
        if !self.call(&[buffer])? {
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
        if self.call(&[buffer])? { self.queue.clear(buffer, offset, bytes) } else { Ok(()) }
    }

    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        if self.call(work.buffers)? { self.queue.dispatch(work) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        if self.call(&[])? { self.queue.flush() } else { Ok(()) }
    }

    fn read_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        self.wait(&[buffer])?;
        let read = self.faulty.reads.fetch_add(1, Ordering::Relaxed);
        let wrong = (self.faulty.fault == Fault::Read(read)).then_some(bytes as usize / 2);
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
        self.wait(&[])?;
        self.queue.finish()
    }

    fn set_deadline(&mut self, deadline: Duration) {
        self.deadline = deadline;
        self.queue.set_deadline(deadline);
    }

    fn set_timing(&mut self, on: bool) {
        self.queue.set_timing(on);
    }

    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError> {
        self.queue.take_times()
    }
}
