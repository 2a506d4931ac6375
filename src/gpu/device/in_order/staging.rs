//! Pinned host memory, through which data in other memory travels to and from a device.
//!
//! Copies of pinned memory run at the full rate of the bus and do not block the thread. They also keep the driver away
//! from the caller's memory: a copy that we abandon may still happen later. Only memory that we allocated for the
//! caller ([`HostMemory`](crate::gpu::device::HostMemory)) is copied directly, because it allows for this.

use std::sync::Arc;

use super::{Driver, Pinned, Shared, SizedBuffer};
use crate::gpu::device::deadline::Deadline;
use crate::gpu::device::{BufferId, DeviceError, HostBytes, STAGING};

/// Size of a piece in bytes. It is large enough to hide the cost of starting a copy. It is no larger because drivers
/// pin memory slowly and block other threads meanwhile.
pub(in crate::gpu::device) const PIECE: usize = 2 << 20;
/// Pieces in flight in one direction.
pub(in crate::gpu::device) const PIECES: usize = 4;
const _: () = assert!(2 * (PIECES * PIECE) as u64 <= STAGING, "both directions");

/// Copies begin at multiples of this many bytes within a piece.
const ALIGNMENT: usize = 64;

/// Pinned memory that a caller holds.
pub(in crate::gpu::device) struct CallerPinned<D: Driver> {
    /// `None` once it is leaked.
    pinned: Option<D::Pinned>,
    shared: Arc<Shared<D>>,
}

impl<D: Driver> CallerPinned<D> {
    pub fn new(shared: &Arc<Shared<D>>, len: usize) -> Result<Self, DeviceError> {
        let pinned = shared.driver.pin(len)?;
        shared.enter_pinned(pinned.range());
        Ok(Self { pinned: Some(pinned), shared: Arc::clone(shared) })
    }
}

impl<D: Driver> HostBytes for CallerPinned<D> {
    fn bytes(&self) -> &[u8] {
        self.pinned.as_ref().map_or(&[], Pinned::bytes)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.pinned.as_mut().map_or(&mut [], Pinned::bytes_mut)
    }
}

impl<D: Driver> Drop for CallerPinned<D> {
    fn drop(&mut self) {
        let Some(pinned) = self.pinned.take() else { return };
        self.shared.leave_pinned(pinned.range());
        if self.shared.has_given_up() {
            // An abandoned copy may still write here, so leak it.
            std::mem::forget(pinned);
        }
    }
}

/// Pinned memory that a running kernel and the host share, and the kernels' buffer for it.
pub(in crate::gpu::device) struct Mapped<D: Driver> {
    /// `None` once it is leaked.
    pinned: Option<D::Pinned>,
    buffer: BufferId,
    shared: Arc<Shared<D>>,
}

impl<D: Driver> Mapped<D> {
    /// `buffer` is the device's view of `pinned`.
    pub fn new(shared: &Arc<Shared<D>>, pinned: D::Pinned, buffer: D::Buffer, bytes: u64) -> Self {
        let buffer = shared.enter(SizedBuffer { buffer: Arc::new(buffer), bytes });
        Self { pinned: Some(pinned), buffer, shared: Arc::clone(shared) }
    }

    /// The buffer.
    pub fn buffer(&self) -> BufferId {
        self.buffer
    }
}

impl<D: Driver> Drop for Mapped<D> {
    fn drop(&mut self) {
        self.shared.free(self.buffer);
        if self.shared.has_given_up() {
            // A kernel may still use it, so leak it.
            std::mem::forget(self.pinned.take());
        }
    }
}

/// [`PIECE`] bytes of pinned memory, or more.
pub(super) struct Piece<D: Driver> {
    memory: D::Pinned,
    /// The last command that uses it.
    busy: Option<D::Event>,
}

impl<D: Driver> Piece<D> {
    pub fn new(driver: &D) -> Result<Self, DeviceError> {
        Self::of_bytes(driver, PIECE)
    }

    pub fn of_bytes(driver: &D, bytes: usize) -> Result<Self, DeviceError> {
        Ok(Self { memory: driver.pin(bytes)?, busy: None })
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.memory.range().len()
    }

    /// The memory. Before reading what a command wrote there, wait for the command.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// Notes that the command of `event` uses the piece.
    pub fn is_used_by(&mut self, event: D::Event) {
        self.busy = Some(event);
    }

    /// Waits for the command that uses it.
    pub fn wait(&mut self, driver: &D, until: Deadline) -> Result<(), DeviceError> {
        if let Some(event) = &self.busy {
            driver.wait(event, until)?;
            self.busy = None;
        }
        Ok(())
    }

    /// Whether no command uses it.
    pub fn is_free(&self, driver: &D) -> Result<bool, DeviceError> {
        self.busy.as_ref().map_or(Ok(true), |event| driver.has_ended(event))
    }
}

/// A ring of pieces for uploads of any length.
pub(super) struct Uploads<D: Driver> {
    pieces: Vec<Piece<D>>,
    current: usize,
    /// Bytes of the current piece that are taken.
    used: usize,
}

impl<D: Driver> Default for Uploads<D> {
    fn default() -> Self {
        Self { pieces: Vec::new(), current: 0, used: 0 }
    }
}

impl<D: Driver> Uploads<D> {
    /// How many pieces there are.
    #[cfg(all(test, feature = "opencl"))]
    pub fn pieces(&self) -> usize {
        self.pieces.len()
    }

    /// Returns a piece with free space, and the start of the space. Makes no more than `most` pieces.
    pub fn place(
        &mut self,
        driver: &D,
        most: usize,
        until: Deadline,
    ) -> Result<(&mut Piece<D>, usize), DeviceError> {
        if self.pieces.is_empty() {
            self.pieces.push(Piece::new(driver)?);
        } else if self.used >= self.pieces[self.current].len() {
            self.go_on(driver, most, until)?;
        }
        Ok((&mut self.pieces[self.current], self.used))
    }

    /// Marks the next `bytes` bytes of the current piece as used by `event`'s command.
    pub fn take(&mut self, bytes: usize, event: D::Event) {
        self.pieces[self.current].is_used_by(event);
        self.used = (self.used + bytes).next_multiple_of(ALIGNMENT);
    }

    /// Goes on to the next piece, or to a new one if that is busy and there are fewer than `most`.
    fn go_on(&mut self, driver: &D, most: usize, until: Deadline) -> Result<(), DeviceError> {
        // Later commands will follow those that use the piece, so fix its event now.
        self.pieces[self.current].busy.as_ref().map_or(Ok(()), |event| driver.mark(event))?;
        let next = (self.current + 1) % self.pieces.len();
        if !self.pieces[next].is_free(driver)? && self.pieces.len() < most {
            // If there is no memory for another piece, use those we have.
            if let Ok(piece) = Piece::new(driver) {
                self.current += 1;
                self.used = 0;
                self.pieces.insert(self.current, piece);
                return Ok(());
            }
        }
        self.pieces[next].wait(driver, until)?;
        (self.current, self.used) = (next, 0);
        Ok(())
    }
}
