//! A device that reuses buffers.
//!
//! Allocating a buffer takes far longer than using it, and one batch needs the same sizes as the next. So the pool
//! keeps each freed buffer for the next request of that size. It also counts the bytes in use now and their maximum,
//! which tests compare with the plans' predictions.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

use super::{
    Bell, BufferId, Call, Device, DeviceError, ForwardingQueue, HostMemory, Limits, NativeBuffer,
    NativeStream, Queue, VisibleMemory,
};
use crate::gpu::model::plan::Plan;
use crate::sync::Mutex;

/// A device that reuses buffers.
#[derive(Debug)]
pub struct Pool<D: Device> {
    device: D,
    buffers: Mutex<PoolBuffers>,
    fill: Option<u8>,
    /// Abandoned work may still use freed buffers, so the pool does not reuse any.
    is_suspended: AtomicBool,
}

#[derive(Debug, Default)]
struct PoolBuffers {
    /// Sizes of the buffers in use.
    live: HashMap<BufferId, u64>,
    /// Buffers of the caller's, which the pool neither counts nor reuses.
    imported: HashSet<BufferId>,
    /// Free buffers by size.
    free: HashMap<u64, Vec<BufferId>>,
    live_bytes: u64,
    free_bytes: u64,
    /// The highest total size of buffers in use.
    max_live: u64,
    /// The highest total size of buffers in use when a queue was given work.
    high_water: u64,
}

impl PoolBuffers {
    fn take(&mut self, bytes: u64) -> Option<BufferId> {
        let id = self.free.get_mut(&bytes)?.pop()?;
        self.free_bytes -= bytes;
        self.enter(id, bytes);
        Some(id)
    }

    fn enter(&mut self, id: BufferId, bytes: u64) {
        self.live.insert(id, bytes);
        self.live_bytes += bytes;
        self.max_live = self.max_live.max(self.live_bytes);
    }
}

impl<D: Device> Pool<D> {
    /// An empty pool over `device`.
    pub fn new(device: D) -> Self {
        Self { device, buffers: Mutex::default(), fill: None, is_suspended: AtomicBool::new(false) }
    }

    /// Fills each buffer with `byte` when it is allocated, so that tests find code that relies on a buffer's earlier
    /// contents. Slow.
    #[must_use]
    #[cfg(test)]
    pub fn filled_with(mut self, byte: u8) -> Self {
        self.fill = Some(byte);
        self
    }

    /// Total size of the buffers in use, in bytes.
    #[cfg(test)]
    pub fn live(&self) -> u64 {
        self.buffers.lock().live_bytes
    }

    /// The highest total size, in bytes, of the buffers in use when a queue was given work. A batch that could not
    /// allocate all its buffers does not count, because nothing used them.
    pub fn high_water(&self) -> u64 {
        self.buffers.lock().high_water
    }

    /// Bytes reserved on the device: by buffers in use and by free ones.
    #[cfg(test)]
    pub fn reserved(&self) -> u64 {
        let buffers = self.buffers.lock();
        buffers.live_bytes + buffers.free_bytes
    }

    /// Returns all free buffers to the device.
    pub fn trim(&self) {
        let mut buffers = self.buffers.lock();
        buffers.free_bytes = 0;
        let free = std::mem::take(&mut buffers.free);
        drop(buffers);
        free.into_values().flatten().for_each(|id| self.device.free(id));
    }

    /// Keeps the reserved memory below its highest use: frees buffers of sizes that are no longer requested before a
    /// new buffer is allocated.
    fn make_room(&self, bytes: u64) {
        let buffers = self.buffers.lock();
        let reserved = buffers.live_bytes + buffers.free_bytes;
        let is_too_much = buffers.free_bytes > 0 && reserved + bytes > buffers.max_live;
        drop(buffers);
        if is_too_much {
            self.trim();
        }
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
        let again = self.buffers.lock().take(bytes);
        let id = match again {
            Some(id) => id,
            None => {
                self.make_room(bytes);
                let id = match self.device.allocate(bytes) {
                    Err(DeviceError::OutOfMemory { .. }) if self.buffers.lock().free_bytes > 0 => {
                        self.trim();
                        self.device.allocate(bytes)?
                    }
                    result => result?,
                };
                self.buffers.lock().enter(id, bytes);
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
        // The pool's free buffers count as free memory: the next request reuses or replaces them.
        Some(self.device.free_memory()?.saturating_add(self.buffers.lock().free_bytes))
    }

    fn free(&self, buffer: BufferId) {
        let mut buffers = self.buffers.lock();
        if buffers.imported.remove(&buffer) {
            drop(buffers);
            return self.device.free(buffer);
        }
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

    fn buffer_bytes(&self, buffer: BufferId) -> Option<u64> {
        self.device.buffer_bytes(buffer)
    }

    unsafe fn import(&self, buffer: NativeBuffer) -> Result<BufferId, DeviceError> {
        // SAFETY: the caller promises the same.
        let id = unsafe { self.device.import(buffer) }?;
        self.buffers.lock().imported.insert(id);
        Ok(id)
    }

    fn export(&self, buffer: BufferId) -> Option<NativeBuffer> {
        self.device.export(buffer)
    }

    unsafe fn wait_for(&self, stream: NativeStream) -> Result<(), DeviceError> {
        // SAFETY: the caller promises the same.
        unsafe { self.device.wait_for(stream) }
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        let queue = self.device.queue()?;
        Ok(Box::new(PoolQueue { pool: self, queue, is_idle: true }))
    }

    fn host_memory(&self, bytes: usize) -> Result<HostMemory, DeviceError> {
        self.device.host_memory(bytes)
    }

    fn visible_memory(&self, bytes: usize) -> Result<VisibleMemory, DeviceError> {
        self.device.visible_memory(bytes)
    }

    fn bell(&self, counter: BufferId) -> Result<Option<Box<dyn Bell>>, DeviceError> {
        self.device.bell(counter)
    }

    fn has_driver(&self) -> bool {
        self.device.has_driver()
    }

    fn stay_on_thread(&self) {
        self.device.stay_on_thread();
    }

    fn prepare(&self, plans: &[Plan]) -> Result<(), DeviceError> {
        self.device.prepare(plans)
    }

    fn runs_at_once(&self, plan: &Plan) -> bool {
        self.device.runs_at_once(plan)
    }
}

impl<D: Device> Drop for Pool<D> {
    fn drop(&mut self) {
        self.trim();
        let PoolBuffers { live, imported, .. } = std::mem::take(&mut *self.buffers.lock());
        live.into_keys().chain(imported).for_each(|id| self.device.free(id));
    }
}

/// A queue that tells its pool when it leaves unfinished work behind.
struct PoolQueue<'p, D: Device> {
    pool: &'p Pool<D>,
    queue: Box<dyn Queue + 'p>,
    /// Whether all work given to it has ended.
    is_idle: bool,
}

impl<D: Device> Drop for PoolQueue<'_, D> {
    fn drop(&mut self) {
        if !self.is_idle {
            self.pool.suspend();
        }
    }
}

impl<D: Device> ForwardingQueue for PoolQueue<'_, D> {
    fn pass<T>(
        &mut self,
        call: Call,
        action: impl FnOnce(&mut dyn Queue) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError> {
        if call == Call::Queues {
            self.is_idle = false;
            let mut buffers = self.pool.buffers.lock();
            buffers.high_water = buffers.high_water.max(buffers.live_bytes);
        }
        let result = action(&mut *self.queue);
        if call == Call::Waits {
            self.is_idle = result.is_ok();
        }
        result
    }
}
