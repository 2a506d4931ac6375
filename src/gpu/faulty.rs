//! A device that fails in a way of one's choice, to test what becomes of the work then.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
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
    live: Mutex<HashMap<BufferId, u64>>,
}

/// What is to become of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Done,
    Endless,
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
            live: Mutex::default(),
        }
    }

    /// The same, but its queues wait so long only.
    pub fn with_deadline(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
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
        self.live.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }

    fn call(&self) -> Result<Fate, DeviceError> {
        let call = self.calls.fetch_add(1, Ordering::Relaxed);
        match self.fault {
            Fault::Call(n) if n == call => {
                Err(DeviceError::Failed(format!("call {call} was to fail")))
            }
            Fault::Lost(n) if call >= n => Err(DeviceError::Lost),
            Fault::Endless(n) if call >= n => Ok(Fate::Endless),
            _ => Ok(Fate::Done),
        }
    }
}

impl<D: Device> Device for Faulty<D> {
    fn limits(&self) -> &Limits {
        self.device.limits()
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        self.call()?;
        if matches!(self.fault, Fault::BuffersAbove(most) if bytes > most) {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        // Held until the buffer is counted, so that several threads do not take the same bytes.
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        if matches!(self.fault, Fault::MemoryAbove(most) if live.values().sum::<u64>() + bytes > most)
        {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        let id = self.device.allocate(bytes)?;
        live.insert(id, bytes);
        Ok(id)
    }

    fn free(&self, buffer: BufferId) {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        assert!(live.remove(&buffer).is_some(), "a buffer that is not live is freed");
        drop(live);
        self.device.free(buffer);
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        self.call()?;
        let queue = self.device.queue()?;
        let deadline = self.deadline;
        Ok(Box::new(FaultyQueue { faulty: self, queue, deadline, is_given_up: false }))
    }
}

struct FaultyQueue<'f, D: Device> {
    faulty: &'f Faulty<D>,
    queue: Box<dyn Queue + 'f>,
    deadline: Duration,
    is_given_up: bool,
}

impl<D: Device> FaultyQueue<'_, D> {
    /// For calls that do not wait: whether to do it.
    fn call(&mut self) -> Result<bool, DeviceError> {
        if self.is_given_up {
            return Err(DeviceError::TimedOut);
        }
        Ok(self.faulty.call()? == Fate::Done)
    }

    /// For calls that wait.
    fn wait(&mut self) -> Result<(), DeviceError> {
        if self.call()? {
            return Ok(());
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
        if !self.call()? {
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
        if self.call()? { self.queue.clear(buffer, offset, bytes) } else { Ok(()) }
    }

    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        if self.call()? { self.queue.dispatch(work) } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        if self.call()? { self.queue.flush() } else { Ok(()) }
    }

    fn read_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        self.wait()?;
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
        self.wait()?;
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
