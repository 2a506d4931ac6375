//! Buffers of a device.

use std::sync::Arc;

use super::core::Core;
use crate::gpu::device::{BufferId, Device, DeviceError};

/// A buffer of a device, freed when dropped. A buffer of the caller's is only forgotten then.
pub(in crate::access) struct OnDevice {
    core: Arc<Core>,
    id: BufferId,
    /// Where the caller's bytes end.
    end: u64,
}

impl OnDevice {
    pub(super) fn new(core: Arc<Core>, id: BufferId, end: u64) -> Self {
        Self { core, id, end }
    }

    /// Copies bytes from `start` on to the host.
    pub(super) fn copy_to_host(&self, start: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let (from, end) = (start, start + into.len() as u64);
        let (aligned, skipped) = (from & !3, (from % 4) as usize);
        let mut at = 0;
        self.core.check_process()?;
        let wanted = skipped..skipped + into.len();
        let mut queue = self.core.device().queue()?;
        queue.read_with(self.id, aligned, end.next_multiple_of(4) - aligned, &mut |piece| {
            let (first, last) = (wanted.start.max(at), wanted.end.min(at + piece.len()));
            if first < last {
                into[first - skipped..last - skipped]
                    .copy_from_slice(&piece[first - at..last - at]);
            }
            at += piece.len();
        })
    }

    /// Copies bytes of the host to the buffer, from `start` on. There is at least one.
    pub(super) fn copy_from_host(&self, start: u64, from: &[u8]) -> Result<(), DeviceError> {
        let (begin, end) = (start, start + from.len() as u64);
        let aligned = begin & !3..end.next_multiple_of(4);
        self.core.check_process()?;
        let mut queue = self.core.device().queue()?;
        // A device copies whole words. Those at the ends keep their other bytes.
        let (mut first, mut last) = ([0; 4], [0; 4]);
        let (before, after) = ((begin - aligned.start) as usize, (aligned.end - end) as usize);
        if before > 0 {
            queue.read(self.id, aligned.start, &mut first)?;
        }
        if after > 0 {
            queue.read(self.id, aligned.end - 4, &mut last)?;
        }
        let parts = [&first[..before], from, &last[4 - after..]];
        queue.write_parts(self.id, aligned.start, &parts)?;
        queue.finish()
    }

    pub(in crate::access) fn end(&self) -> u64 {
        self.end
    }

    pub(in crate::access) fn id(&self) -> BufferId {
        self.id
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        if self.core.is_here() {
            self.core.device().free(self.id);
        }
    }
}
