//! Which buffers a pool keeps, and which it frees.

use std::collections::HashMap;

use super::testing::made_up;
use crate::gpu::device::pool::Pool;
use crate::gpu::device::{BufferId, Device, DeviceError, Limits, Queue};
use crate::sync::Mutex;

/// A device that only allocates, up to a limit.
pub(crate) struct Ledger {
    limits: Limits,
    most: u64,
    buffers: Mutex<(u64, HashMap<BufferId, u64>)>,
}

impl Ledger {
    pub(crate) fn new(most: u64) -> Self {
        Self { limits: made_up(), most, buffers: Mutex::default() }
    }

    /// Total size of all buffers in bytes.
    pub(crate) fn taken(&self) -> u64 {
        self.buffers.lock().1.values().sum()
    }
}

impl Device for Ledger {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        let mut buffers = self.buffers.lock();
        if buffers.1.values().sum::<u64>() + bytes > self.most {
            return Err(DeviceError::OutOfMemory { bytes });
        }
        buffers.0 += 1;
        let id = BufferId(buffers.0);
        buffers.1.insert(id, bytes);
        Ok(id)
    }

    fn free(&self, buffer: BufferId) {
        assert!(self.buffers.lock().1.remove(&buffer).is_some());
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        Err(DeviceError::Lost)
    }
}

#[test]
fn buffers_that_no_request_fits_are_given_back() {
    let ledger = Ledger::new(u64::MAX);
    let pool = Pool::new(&ledger);
    for bytes in (1000..2000).step_by(4) {
        let ids = [0; 3].map(|_| pool.allocate(bytes).unwrap());
        ids.into_iter().for_each(|id| pool.free(id));
        // Free buffers in the pool never raise the peak of allocated memory.
        assert!(pool.reserved() <= 3 * bytes, "{bytes}");
        assert_eq!(pool.reserved(), ledger.taken());
    }
    pool.trim();
    assert_eq!((pool.reserved(), ledger.taken()), (0, 0));
}

#[test]
fn idle_buffers_make_room_where_memory_is_short() {
    let ledger = Ledger::new(1000);
    let pool = Pool::new(&ledger);
    let ids = [400, 400, 200].map(|bytes| pool.allocate(bytes).unwrap());
    pool.free(ids[0]);
    pool.free(ids[2]);
    assert_eq!(ledger.taken(), 1000);
    let id = pool.allocate(500).unwrap();
    assert_eq!(ledger.taken(), 900);
    assert!(matches!(pool.allocate(200), Err(DeviceError::OutOfMemory { bytes: 200 })));
    pool.free(id);
}
