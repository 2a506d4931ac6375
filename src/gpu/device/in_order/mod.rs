//! Queues of drivers that run commands in order and report the end of each through an event: OpenCL and CUDA.
//!
//! A [`Driver`] holds the calls to one such interface. Everything else about its queues is here: when work is
//! abandoned, what must then stay allocated, and how data gets to a device and back.
//!
//! | module | |
//! |---|---|
//! | `shared` | state that a device shares with its queues: buffers, and objects that it cannot release yet |
//! | `queue` | an in-order queue |
//! | `staging` | pinned host memory for all copies, except those of pinned memory that the caller holds |

mod queue;
mod shared;
mod shared_pinned;
mod staging;

use std::ops::Range;
use std::sync::MutexGuard;
use std::time::{Duration, Instant};

use super::deadline::Deadline;
use super::{DeviceError, Dispatch, Limits};

pub(super) use queue::InOrderQueue;
#[cfg(feature = "opencl")]
pub(super) use shared::InFlight;
pub(super) use shared::{Shared, SizedBuffer};
pub(super) use staging::{CallerPinned, Mapped};
#[cfg(all(test, feature = "opencl"))]
pub(super) use staging::{PIECE, PIECES};

/// An open device of an interface: its calls, without a policy of their own.
///
/// All objects may be used and dropped on any thread. Dropping an object releases it; its owner makes sure that no work
/// uses it any more.
pub(super) trait Driver: Send + Sync + Sized + 'static {
    /// A buffer of the device.
    type Buffer: Send + Sync;
    /// An in-order queue of commands.
    type Stream: Send + Sync;
    /// A reference to an event, which reports whether a command and all earlier ones of its stream have ended.
    type Event: Clone + Send + Sync;
    /// Host memory that the device copies quickly and without blocking other commands.
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
    /// the event reports the end of the copy.
    unsafe fn upload(
        &self,
        stream: &Self::Stream,
        to: (&SizedBuffer<Self>, u64),
        from: &[u8],
    ) -> Result<Self::Event, DeviceError>;

    /// Starts a copy from a buffer, from byte `offset` on.
    ///
    /// # Safety
    /// Stream and buffer are of this device, and the range is within the buffer. `into` stays valid and unused until
    /// the event reports the end of the copy.
    unsafe fn download(
        &self,
        stream: &Self::Stream,
        from: (&SizedBuffer<Self>, u64),
        into: &mut [u8],
    ) -> Result<Self::Event, DeviceError>;

    /// Starts to set `bytes` bytes of a buffer to 0, from byte `offset` on; both are multiples of 4.
    ///
    /// # Safety
    /// Stream and buffer are of this device, and the range is within the buffer.
    unsafe fn clear(
        &self,
        stream: &Self::Stream,
        at: (&SizedBuffer<Self>, u64),
        bytes: u64,
    ) -> Result<Self::Event, DeviceError>;

    /// Starts to copy `bytes` bytes from one buffer to another, each given with the offset of its first byte.
    ///
    /// # Safety
    /// Stream and buffers are of this device, and the ranges are within the buffers.
    unsafe fn copy(
        &self,
        stream: &Self::Stream,
        from: (&SizedBuffer<Self>, u64),
        to: (&SizedBuffer<Self>, u64),
        bytes: u64,
    ) -> Result<Self::Event, DeviceError>;

    /// The entry point that `work` names, compiled if it is not compiled yet.
    fn kernel(&self, work: &Dispatch<'_>) -> Result<Self::Kernel, DeviceError>;

    /// Makes the device's units split their memory for this kernel as for the kernels that run beside it.
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
        buffers: &[SizedBuffer<Self>],
        work: &Dispatch<'_>,
        timed: bool,
    ) -> Result<Self::Event, DeviceError>;

    /// Where a driver cannot run two kernels at once, waits until no other kernel of this process runs. A queue holds
    /// the returned turn while its kernel runs, and adds the events of kernels that it abandons: the next holder waits
    /// for these first.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`] if such a kernel still runs at `until`.
    fn turn(&self, _until: Deadline) -> Result<Turn<Self>, DeviceError> {
        Ok(None)
    }

    /// Fixes `event`, the event of the stream's newest command, and starts the command. From then on,
    /// [`Self::has_ended`] does not depend on later commands.
    ///
    /// # Errors
    /// If the device fails.
    fn mark(&self, _event: &Self::Event) -> Result<(), DeviceError> {
        Ok(())
    }

    /// Whether the command of `event` has ended. For an event that is neither of a download, nor timed, nor
    /// [marked](Self::mark), this may wait for commands that were queued later.
    ///
    /// # Errors
    /// Fails if the command has failed.
    fn has_ended(&self, event: &Self::Event) -> Result<bool, DeviceError>;

    /// The duration of the timed kernel of `event`, which has ended.
    fn time(&self, event: &Self::Event) -> Result<Duration, DeviceError>;

    /// Waits for the command of `event`. This polls, because calls that wait have no timeout.
    ///
    /// # Errors
    /// [`DeviceError::TimedOut`], or the error of the command.
    fn wait(&self, event: &Self::Event, until: Deadline) -> Result<(), DeviceError> {
        /// A sleeping thread wakes about this much too late, so the first part of a wait spins.
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

/// A queue's turn to run a kernel, with the events of abandoned kernels; `None` where queues need no turns.
pub(super) type Turn<D> = Option<MutexGuard<'static, Vec<<D as Driver>::Event>>>;

/// Pinned host memory, all of which is initialised.
pub(super) trait Pinned: Send + Sync {
    /// The memory. Before reading what a command wrote there, wait for the command.
    fn bytes(&self) -> &[u8];

    /// The memory, for writing.
    fn bytes_mut(&mut self) -> &mut [u8];

    /// The addresses of the memory.
    fn range(&self) -> Range<usize> {
        let bytes = self.bytes().as_ptr_range();
        bytes.start as usize..bytes.end as usize
    }
}
