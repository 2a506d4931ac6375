//! The trait of queues, and how a queue passes calls on to another.

use std::time::Duration;

use super::{BufferId, DeviceError, Dispatch};

/// A setting of a queue: the methods of [`Queue`] with these names explain them.
#[doc(hidden)]
#[derive(Debug, Clone, Copy)]
pub enum Setting {
    Deadline(Duration),
    Timing(bool),
    PinnedIsFixed(bool),
    BesideOthers,
}

/// An in-order queue of work for a device.
pub trait Queue: Send {
    /// Copies `parts`, one directly after another, to a buffer from byte `offset` on, in as few copies as the device
    /// permits. `offset` and the total length are multiples of 4. The caller may change `parts` once this returns.
    fn write_parts(
        &mut self,
        buffer: BufferId,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError>;

    /// Copies `data` to a buffer from byte `offset` on; the offset and the length are multiples of 4. The caller may
    /// change `data` once this returns.
    fn write(&mut self, buffer: BufferId, offset: u64, data: &[u8]) -> Result<(), DeviceError> {
        self.write_parts(buffer, offset, &[data])
    }

    /// Copies `bytes` bytes to a buffer from byte `offset` on, both multiples of 4. Calls `fill` once with memory for
    /// them, and `fill` overwrites all of it. The memory is pinned where the device has such memory, which saves the
    /// host a copy. Pinning is slow, so newly pinned memory has room for up to `ahead` bytes of later calls.
    fn write_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        (bytes, ahead): (usize, usize),
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceError> {
        let _ = ahead;
        let mut filled = vec![0; bytes];
        fill(&mut filled);
        self.write(buffer, offset, &filled)
    }

    /// Sets `bytes` bytes of a buffer from byte `offset` on to 0; both numbers are multiples of 4.
    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError>;

    /// Copies `bytes` bytes from one buffer, each given with the offset of its first byte, to another; all three
    /// numbers are multiples of 4.
    fn copy(
        &mut self,
        from: (BufferId, u64),
        to: (BufferId, u64),
        bytes: u64,
    ) -> Result<(), DeviceError>;

    /// Launches a kernel.
    #[doc(hidden)]
    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError>;

    /// Starts the work queued so far, without waiting for it.
    fn flush(&mut self) -> Result<(), DeviceError>;

    /// Starts to copy `bytes` bytes of a buffer from byte `offset` on, both multiples of 4, as they are when all work
    /// queued so far has ended. If the next call reads these bytes, it finds the copy under way or done.
    fn read_ahead(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        let _ = (buffer, offset, bytes);
        Ok(())
    }

    /// Waits for all earlier work, until the deadline at most, and copies `bytes` bytes of a buffer from byte `offset`
    /// on; both numbers are multiples of 4. Calls `take` with one piece after another while the next one is being
    /// copied.
    fn read_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError>;

    /// Waits for all earlier work, until the deadline at most, and copies from a buffer; `offset` and the length are
    /// multiples of 4.
    fn read(&mut self, buffer: BufferId, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        let mut done = 0;
        self.read_with(buffer, offset, into.len() as u64, &mut |piece| {
            into[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        })
    }

    /// Whether all earlier work has ended, as far as the queue can tell without waiting. If it can tell, `true` means
    /// that [`Self::finish`] is quick; if it cannot, the answer is always `true`.
    fn has_ended(&mut self) -> bool {
        true
    }

    /// Waits for all earlier work, until the deadline at most.
    fn finish(&mut self) -> Result<(), DeviceError>;

    /// Changes how the queue works from now on. A queue ignores a setting that its device has no use for.
    #[doc(hidden)]
    fn set(&mut self, setting: Setting);

    /// Sets how long [`Self::read`] and [`Self::finish`] wait.
    fn set_deadline(&mut self, deadline: Duration) {
        self.set(Setting::Deadline(deadline));
    }

    /// Turns the timing of later dispatches on or off.
    fn set_timing(&mut self, on: bool) {
        self.set(Setting::Timing(on));
    }

    /// Sets whether copies wait for the pinned memory that the queue already has. Otherwise the queue pins more where
    /// that is faster, and some drivers first wait for all running kernels.
    fn set_pinned_is_fixed(&mut self, is_fixed: bool) {
        self.set(Setting::PinnedIsFixed(is_fixed));
    }

    /// Tells the device that kernels of this queue run beside those of other queues. A device whose units split their
    /// memory between cache and workgroups kernel by kernel then uses one split for all of these kernels, whichever
    /// queue runs them.
    fn set_beside_others(&mut self) {
        self.set(Setting::BesideOthers);
    }

    /// The times of the dispatches that have finished since the last call, in order; empty if timing is off or
    /// unsupported.
    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError>;
}

/// What a call of a queue does with the device's work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Call {
    /// It queues work.
    Queues,
    /// It waits for all earlier work.
    Waits,
    /// It does neither.
    Other,
}

/// A queue that passes all calls on to another one. Every such queue is a [`Queue`].
pub(crate) trait ForwardingQueue: Send {
    /// Calls `action` with the other queue, or fails without calling it.
    fn pass<T>(
        &mut self,
        call: Call,
        action: impl FnOnce(&mut dyn Queue) -> Result<T, DeviceError>,
    ) -> Result<T, DeviceError>;
}

impl<Q: ForwardingQueue> Queue for Q {
    fn write_parts(
        &mut self,
        buffer: BufferId,
        offset: u64,
        parts: &[&[u8]],
    ) -> Result<(), DeviceError> {
        self.pass(Call::Queues, |queue| queue.write_parts(buffer, offset, parts))
    }

    fn write_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: (usize, usize),
        fill: &mut dyn FnMut(&mut [u8]),
    ) -> Result<(), DeviceError> {
        self.pass(Call::Queues, |queue| queue.write_with(buffer, offset, bytes, fill))
    }

    fn clear(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.pass(Call::Queues, |queue| queue.clear(buffer, offset, bytes))
    }

    fn copy(
        &mut self,
        from: (BufferId, u64),
        to: (BufferId, u64),
        bytes: u64,
    ) -> Result<(), DeviceError> {
        self.pass(Call::Queues, |queue| queue.copy(from, to, bytes))
    }

    fn dispatch(&mut self, work: &Dispatch<'_>) -> Result<(), DeviceError> {
        self.pass(Call::Queues, |queue| queue.dispatch(work))
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        self.pass(Call::Other, |queue| queue.flush())
    }

    fn read_ahead(&mut self, buffer: BufferId, offset: u64, bytes: u64) -> Result<(), DeviceError> {
        self.pass(Call::Queues, |queue| queue.read_ahead(buffer, offset, bytes))
    }

    fn read_with(
        &mut self,
        buffer: BufferId,
        offset: u64,
        bytes: u64,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<(), DeviceError> {
        self.pass(Call::Waits, |queue| queue.read_with(buffer, offset, bytes, take))
    }

    fn read(&mut self, buffer: BufferId, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.pass(Call::Waits, |queue| queue.read(buffer, offset, into))
    }

    fn has_ended(&mut self) -> bool {
        self.pass(Call::Other, |queue| Ok(queue.has_ended())).unwrap_or(true)
    }

    fn finish(&mut self) -> Result<(), DeviceError> {
        self.pass(Call::Waits, |queue| queue.finish())
    }

    fn set(&mut self, setting: Setting) {
        // A queue that no longer works needs no settings.
        let _ = self.pass(Call::Other, |queue| {
            queue.set(setting);
            Ok(())
        });
    }

    fn take_times(&mut self) -> Result<Vec<Duration>, DeviceError> {
        self.pass(Call::Other, |queue| queue.take_times())
    }
}
