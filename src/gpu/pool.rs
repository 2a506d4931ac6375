//! A device whose buffers are used again.
//!
//! To make a buffer takes a device far longer than to use it, and batches are alike. So a buffer that is given back is
//! kept for the next request of the same size. The pool also counts: what is live, and the most that ever was, is what
//! plans are held to.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use super::device::{BufferId, Device, DeviceError, Dispatch, HostMemory, Limits, Queue};
use super::plan::Plan;

/// A device whose buffers are used again.
#[derive(Debug)]
pub struct Pool<D: Device> {
    device: D,
    buffers: Mutex<Buffers>,
    fill: Option<u8>,
    /// Work has been given up that may still use buffers: none is used again.
    is_suspended: AtomicBool,
}

#[derive(Debug, Default)]
struct Buffers {
    /// Bytes of those in use.
    live: HashMap<BufferId, u64>,
    /// Those that are not, by their bytes.
    free: HashMap<u64, Vec<BufferId>>,
    live_bytes: u64,
    free_bytes: u64,
    /// The most bytes of them at a time.
    most_live: u64,
    /// The most bytes of them when a queue was given work.
    high_water: u64,
}

impl Buffers {
    fn take(&mut self, bytes: u64) -> Option<BufferId> {
        let id = self.free.get_mut(&bytes)?.pop()?;
        self.free_bytes -= bytes;
        self.enter(id, bytes);
        Some(id)
    }

    fn enter(&mut self, id: BufferId, bytes: u64) {
        self.live.insert(id, bytes);
        self.live_bytes += bytes;
        self.most_live = self.most_live.max(self.live_bytes);
    }
}

impl<D: Device> Pool<D> {
    /// A pool over `device`, empty.
    pub fn new(device: D) -> Self {
        Self { device, buffers: Mutex::default(), fill: None, is_suspended: AtomicBool::new(false) }
    }

    /// The same, but each buffer that is allocated is filled with `byte`, so that what relies on a buffer's earlier
    /// contents is found. Slow: for tests.
    #[must_use]
    pub fn filled_with(mut self, byte: u8) -> Self {
        self.fill = Some(byte);
        self
    }

    /// Bytes of the buffers that are in use.
    pub fn live(&self) -> u64 {
        self.buffers().live_bytes
    }

    /// The most bytes that were allocated at a time when a queue was given work. What was allocated for a batch whose last
    /// buffers then found no memory does not count: nothing used it.
    pub fn high_water(&self) -> u64 {
        self.buffers().high_water
    }

    /// Bytes that the device has reserved: of the buffers in use and of those that wait to be.
    pub fn reserved(&self) -> u64 {
        let buffers = self.buffers();
        buffers.live_bytes + buffers.free_bytes
    }

    /// Gives the buffers that are not in use back to the device.
    pub fn trim(&self) {
        let mut buffers = self.buffers();
        buffers.free_bytes = 0;
        let free = std::mem::take(&mut buffers.free);
        drop(buffers);
        free.into_values().flatten().for_each(|id| self.device.free(id));
    }

    /// Keeps what is reserved from growing beyond the most that was allocated: buffers of sizes that nobody asks for any more
    /// go before others are made.
    fn make_room(&self, bytes: u64) {
        let buffers = self.buffers();
        let reserved = buffers.live_bytes + buffers.free_bytes;
        let is_too_much = buffers.free_bytes > 0 && reserved + bytes > buffers.most_live;
        drop(buffers);
        if is_too_much {
            self.trim();
        }
    }

    fn buffers(&self) -> MutexGuard<'_, Buffers> {
        self.buffers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn suspend(&self) {
        self.is_suspended.store(true, Ordering::Release);
        self.trim();
    }

    fn fill(&self, id: BufferId, bytes: u64, byte: u8) -> Result<(), DeviceError> {
        let mut queue = self.device.queue()?;
        let filling = vec![byte; bytes.min(1 << 20) as usize];
        let mut at = 0;
        while at < bytes {
            let len = (bytes - at).min(filling.len() as u64);
            queue.write(id, at, &filling[..len as usize])?;
            at += len;
        }
        queue.finish()
    }
}

impl<D: Device> Device for Pool<D> {
    fn limits(&self) -> &Limits {
        self.device.limits()
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        let again = self.buffers().take(bytes);
        let id = match again {
            Some(id) => id,
            None => {
                self.make_room(bytes);
                let id = match self.device.allocate(bytes) {
                    Err(DeviceError::OutOfMemory { .. }) if self.buffers().free_bytes > 0 => {
                        self.trim();
                        self.device.allocate(bytes)?
                    }
                    result => result?,
                };
                self.buffers().enter(id, bytes);
                id
            }
        };
        if let Some(byte) = self.fill
            && let Err(error) = self.fill(id, bytes, byte)
        {
            self.free(id);
            return Err(error);
        }
        Ok(id)
    }

    fn free_memory(&self) -> Option<u64> {
        // What the pool has reserved is as good as free: the next job's buffers come out of it, or take its place.
        Some(self.device.free_memory()?.saturating_add(self.buffers().free_bytes))
    }

    fn free(&self, buffer: BufferId) {
        let mut buffers = self.buffers();
        let Some(bytes) = buffers.live.remove(&buffer) else { return };
        buffers.live_bytes -= bytes;
        if self.is_suspended.load(Ordering::Acquire) {
            drop(buffers);
            self.device.free(buffer);
        } else {
            buffers.free.entry(bytes).or_default().push(buffer);
            buffers.free_bytes += bytes;
        }
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        let queue = self.device.queue()?;
        Ok(Box::new(PoolQueue { pool: self, queue, is_idle: true }))
    }

    fn host_memory(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        self.device.host_memory(bytes)
    }

    fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
        self.device.prepare(plans)
    }
}

impl<D: Device> Drop for Pool<D> {
    fn drop(&mut self) {
        self.trim();
        let live = std::mem::take(&mut self.buffers().live);
        live.into_keys().for_each(|id| self.device.free(id));
    }
}

/// A queue that tells its pool when it leaves work behind.
struct PoolQueue<'p, D: Device> {
    pool: &'p Pool<D>,
    queue: Box<dyn Queue + 'p>,
    /// All that it was given has ended.
    is_idle: bool,
}

impl<D: Device> PoolQueue<'_, D> {
    /// Notes that work is given which has not ended.
    fn works(&mut self) {
        self.is_idle = false;
        let mut buffers = self.pool.buffers();
        buffers.high_water = buffers.high_water.max(buffers.live_bytes);
    }

    /// What `result` of a call means that waits for everything.
    fn waited<T>(&mut self, result: Result<T, DeviceError>) -> Result<T, DeviceError> {
        self.is_idle = result.is_ok();
        result
    }
}

impl<D: Device> Drop for PoolQueue<'_, D> {
    fn drop(&mut self) {
        if !self.is_idle {
            self.pool.suspend();
        }
    }
}

impl<D: Device> Queue for PoolQueue<'_, D> {
    fn write_parts(
        &mut self,
        buffer: BufferId,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError> {
        self.works();
        self.queue.write_parts(buffer, offset, parts)
    }

    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.works();
        self.queue.clear(buffer, offset, bytes)
    }

    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        self.works();
        self.queue.dispatch(work)
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.queue.flush()
    }

    fn read_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        let result = self.queue.read_with(buffer, offset, bytes, take);
        self.waited(result)
    }

    fn read(&mut self, buffer: BufferId, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let result = self.queue.read(buffer, offset, into);
        self.waited(result)
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        let result = self.queue.finish();
        self.waited(result)
    }

    fn set_deadline(&mut self, deadline: Duration) {
        self.queue.set_deadline(deadline);
    }

    fn set_timing(&mut self, on: bool) {
        self.queue.set_timing(on);
    }

    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError> {
        self.queue.take_times()
    }
}
