//! Queues of drivers that run commands in order and tell through events when each has ended: OpenCL and CUDA.
//!
//! A [`Driver`] holds the calls to one such interface. Everything else about its queues is here: what may be abandoned,
//! what must then be kept, and how data gets to a device and back.
//!
//! | module | |
//! |---|---|
//! | `shared` | what a device shares with its queues: its buffers, and the objects that it cannot release yet |
//! | `queue` | an in-order queue |
//! | `staging` | pinned host memory for all copies, except those of pinned memory that the caller holds |

mod lent;
mod queue;
mod shared;
mod staging;

use std::ops::Range;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use super::deadline::Deadline;
use super::{DeviceError, Dispatch, Limits};

pub(super) use queue::InOrderQueue;
#[cfg(feature = "opencl")]
pub(super) use shared::InFlight;
pub(super) use shared::{Memory, Shared};
pub(super) use staging::{Mapped, OfCaller};
#[cfg(all(test, feature = "opencl"))]
pub(super) use staging::{PIECE, PIECES};

/// An open device of an interface: its calls, without a policy of their own.
///
/// All objects may be used and dropped on any thread. Dropping an object releases it; if work may still use it, that is
/// the owner's fault.
pub(super) trait Driver: Send + Sync + Sized + 'static {
    /// A buffer of the device.
    type Buffer: Send + Sync;
    /// An in-order queue of commands.
    type Stream: Send + Sync;
    /// A reference to an event, which tells whether a command and all earlier ones of its stream have ended.
    type Event: Clone + Send + Sync;
    /// Host memory that the device copies quickly and that other commands need not wait for.
    type Pinned: Pinned;
    /// An entry point, ready to run. Each queue has its own.
    type Kernel: Send;

    /// The properties and limits of the device.
    fn limits(&self) -> &Limits;

    /// Allocates `len` bytes of pinned memory, all 0.
    fn pin(&self, len: usize) -> Result<Self::Pinned, DeviceError>;

    /// Starts a copy to a buffer, from byte `offset` on.
    ///
    /// # Safety
    /// Stream and buffer are of this device, and the range is within the buffer. `from` stays valid and unchanged until
    /// the event tells that the copy has ended.
    unsafe fn upload(
        &self,
        stream: &Self::Stream,
        to: (&Memory<Self>, u64),
        from: &[u8],
    ) -> Result<Self::Event, DeviceError>;

    /// Starts a copy from a buffer, from byte `offset` on.
    ///
    /// # Safety
    /// Stream and buffer are of this device, and the range is within the buffer. `into` stays valid, and nobody uses
    /// it, until the event tells that the copy has ended.
    unsafe fn download(
        &self,
        stream: &Self::Stream,
        from: (&Memory<Self>, u64),
        into: &mut [u8],
    ) -> Result<Self::Event, DeviceError>;

    /// Starts to set `bytes` bytes of a buffer to 0, from byte `offset` on; both are multiples of 4.
    ///
    /// # Safety
    /// Stream and buffer are of this device, and the range is within the buffer.
    unsafe fn clear(
        &self,
        stream: &Self::Stream,
        at: (&Memory<Self>, u64),
        bytes: u64,
    ) -> Result<Self::Event, DeviceError>;

    /// Starts to copy `bytes` bytes from one buffer to another, each given with the offset of its first byte.
    ///
    /// # Safety
    /// Stream and buffers are of this device, and the ranges are within the buffers.
    unsafe fn copy(
        &self,
        stream: &Self::Stream,
        from: (&Memory<Self>, u64),
        to: (&Memory<Self>, u64),
        bytes: u64,
    ) -> Result<Self::Event, DeviceError>;

    /// The entry point that `work` names, compiled if it is not compiled yet.
    fn kernel(&self, work: &Dispatch<'_>) -> Result<Self::Kernel, DeviceError>;

    /// Has the device's units divide their memory for this kernel as for others that run beside it.
    fn set_beside_others(&self, kernel: &Self::Kernel) -> Result<(), DeviceError> {
        let _ = kernel;
        Ok(())
    }

    /// Opens a stream that can time kernels, where other streams cannot.
    ///
    /// # Errors
    /// If the device fails.
    fn timing_stream(&self) -> Result<Option<Self::Stream>, DeviceError> {
        Ok(None)
    }

    /// Starts a kernel. If it is `timed`, [`Self::time`] tells how long it took; the stream can time kernels then.
    ///
    /// # Safety
    /// Stream, kernel and buffers are of this device; the kernel is the one that `work` names.
    unsafe fn launch(
        &self,
        stream: &Self::Stream,
        kernel: &Self::Kernel,
        buffers: &[Memory<Self>],
        work: &Dispatch<'_>,
        timed: bool,
    ) -> Result<Self::Event, DeviceError>;

    /// Waits until no other kernel of this process runs, where a driver cannot run one beside another. Its queues keep
    /// what is returned while their kernel runs, and leave the events of kernels in it that they have given up: whoever
    /// comes next waits for these first.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`] if such a kernel still runs at `until`.
    fn turn(&self, _until: Deadline) -> Result<Turn<Self>, DeviceError> {
        Ok(None)
    }

    /// Pins down `event`, which is that of the newest command of its stream, and has the device begin the command: whether it
    /// has ended then no longer depends on later commands.
    ///
    /// # Errors
    /// If the device fails.
    fn mark(&self, _event: &Self::Event) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Whether the command of `event` has ended. Unless the event is that of a download, timed or [marked](Self::mark), this
    /// may wait for commands that have been queued since.
    ///
    /// # Errors
    /// Fails if the command has failed.
    fn has_ended(&self, event: &Self::Event) -> Result<bool, DeviceError>;

    /// How long the timed kernel took whose end is `event`. It has ended.
    fn time(&self, event: &Self::Event) -> Result<Duration, DeviceError>;

    /// Waits for the command of `event`. This polls, because calls that wait have no timeout.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`], or the error of the command.
    fn wait(&self, event: &Self::Event, until: Deadline) -> Result<(), DeviceError> {
        /// A sleeping thread wakes about this much too late, so shorter waits spin.
        const AWAKE: Duration = Duration::from_micros(60);
        let start = Instant::now();
        while !self.has_ended(event)? {
            if until.has_passed() {
                return Err(DeviceError::TimedOut);
            }
            let waited = start.elapsed();
            if waited < AWAKE {
                std::thread::yield_now();
            } else {
                let nap = (waited / 16).clamp(Duration::from_micros(20), Duration::from_millis(1));
                std::thread::sleep(nap);
            }
        }
        Ok(())
    }
}

/// One's turn to run a kernel, with the events of kernels that were given up; `None` where nobody takes turns.
pub(super) type Turn<D> = Option<MutexGuard<'static, Vec<<D as Driver>::Event>>>;

/// Pinned host memory, all of which is initialised.
pub(super) trait Pinned: Send + Sync {
    /// The memory. Before reading what a command wrote there, wait for the command.
    fn bytes(&self) -> &[u8];

    /// The same, to write to.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// The addresses of the memory.
    fn range(&self) -> Range<usize> {
        let bytes = self.bytes().as_ptr_range();
        bytes.start as usize..bytes.end as usize
    }
}
