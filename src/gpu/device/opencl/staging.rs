//! Pinned host memory that data in other memory is copied through on its way to and from a device.
//!
//! Copies of pinned memory run at the full rate of the bus and do not block the thread. They also keep the driver away
//! from the caller's memory: a copy that we abandon may still happen later. The only memory of a caller's that is
//! copied directly is memory that we allocated for it ([`HostMemory`](crate::gpu::device::HostMemory)) and that allows
//! for this.

use std::ops::Range;
use std::sync::Arc;

use opencl3::command_queue::{enqueue_map_buffer, enqueue_unmap_mem_object};
use opencl3::memory::{
    CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, create_buffer,
    release_mem_object,
};

use super::device::Shared;
use super::failure_for;
use super::handle::{Handle, has_ended, wait};
use crate::gpu::device::deadline::Deadline;
use crate::gpu::device::{DeviceError, HostBytes, STAGING};

/// Size of a piece in bytes. It is large enough to hide the cost of starting a copy. It is no larger because drivers
/// pin memory slowly and block other threads meanwhile.
pub(super) const PIECE: usize = 2 << 20;
/// Pieces in flight in one direction.
pub(super) const PIECES: usize = 4;
const _: () = assert!(2 * (PIECES * PIECE) as u64 <= STAGING, "both directions");

/// Copies begin at multiples of this many bytes within a piece.
const ALIGNMENT: usize = 64;

/// Pinned memory.
#[derive(Debug)]
pub(super) struct Pinned {
    memory: Handle,
    at: *mut u8,
    len: usize,
    /// The device's housekeeping queue.
    housekeeping: Arc<Handle>,
}

// SAFETY: `at` points to memory that belongs to this object alone.
unsafe impl Send for Pinned {}
// SAFETY: as above; nothing is written through a shared reference.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// Allocates `len` bytes, all 0.
    pub fn new(shared: &Shared, len: usize) -> Result<Self, DeviceError> {
        let error = |call: &'static str| move |code| failure_for(call, code, len as u64);
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        // SAFETY: the context is valid, and there is no host pointer.
        let memory =
            unsafe { create_buffer(shared.context.raw(), flags, len, std::ptr::null_mut()) };
        let memory = memory.map_err(error("clCreateBuffer"))?;
        // SAFETY: the buffer has just been made.
        let memory = unsafe { Handle::owning(memory, release_mem_object) };
        let housekeeping = shared.housekeeping();
        let mut at = std::ptr::null_mut();
        // SAFETY: queue and buffer are valid and of one context, and the range is the whole buffer. The map waits for
        // no kernel, because this queue never runs one.
        let mapped = unsafe {
            enqueue_map_buffer(
                housekeeping.raw(),
                memory.raw(),
                1,
                CL_MAP_READ | CL_MAP_WRITE,
                0,
                len,
                &mut at,
                0,
                std::ptr::null(),
            )
        };
        let mapped = mapped.map_err(error("clEnqueueMapBuffer"))?;
        // SAFETY: the event has just been made.
        drop(unsafe { Handle::event(mapped) });
        // Memory that is read before a copy must be initialised.
        // SAFETY: the mapping is `len` bytes long and writable.
        unsafe { at.cast::<u8>().write_bytes(0, len) };
        Ok(Self { memory, at: at.cast(), len, housekeeping })
    }

    /// The addresses of the memory.
    pub fn range(&self) -> Range<usize> {
        let start = self.at as usize;
        start..start + self.len
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the memory is mapped while `self` lives, is initialised, and is written only through `&mut self`. A
        // command could still write to it only if nobody waited for that command, which the documentation of
        // `HostMemory` warns about.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: queue and buffer are valid, and the buffer is mapped at `at`.
        let unmapped = unsafe {
            enqueue_unmap_mem_object(
                self.housekeeping.raw(),
                self.memory.raw(),
                self.at.cast(),
                0,
                std::ptr::null(),
            )
        };
        if let Ok(event) = unmapped {
            // SAFETY: the event has just been made.
            drop(unsafe { Handle::event(event) });
        }
    }
}

/// Pinned memory that a caller holds.
pub(super) struct OfCaller {
    /// `None` once it is leaked.
    pinned: Option<Pinned>,
    shared: Arc<Shared>,
}

impl OfCaller {
    pub fn new(shared: &Arc<Shared>, len: usize) -> Result<Self, DeviceError> {
        let pinned = Pinned::new(shared, len)?;
        shared.enter_pinned(pinned.range());
        Ok(Self { pinned: Some(pinned), shared: Arc::clone(shared) })
    }
}

impl HostBytes for OfCaller {
    fn bytes(&self) -> &[u8] {
        self.pinned.as_ref().map_or(&[], Pinned::bytes)
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        self.pinned.as_mut().map_or(&mut [], Pinned::bytes_mut)
    }
}

impl Drop for OfCaller {
    fn drop(&mut self) {
        let Some(pinned) = self.pinned.take() else { return };
        self.shared.leave_pinned(pinned.range());
        if self.shared.has_given_up() {
            // An abandoned copy may still write here, so leak it.
            std::mem::forget(pinned);
        }
    }
}

/// [`PIECE`] bytes of pinned memory.
#[derive(Debug)]
pub(super) struct Piece {
    memory: Pinned,
    /// The last command that uses it.
    busy: Option<Handle>,
}

impl Piece {
    pub fn new(shared: &Shared) -> Result<Self, DeviceError> {
        Ok(Self { memory: Pinned::new(shared, PIECE)?, busy: None })
    }

    /// The memory. Before reading what a command wrote there, wait for the command.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// Notes that the command of `event` uses the piece.
    pub fn is_used_by(&mut self, event: Handle) {
        self.busy = Some(event);
    }

    /// Waits for the command that uses it.
    pub fn wait(&mut self, until: Deadline) -> Result<(), DeviceError> {
        if let Some(event) = &self.busy {
            wait(event, until)?;
            self.busy = None;
        }
        Ok(())
    }

    fn is_free(&self) -> Result<bool, DeviceError> {
        self.busy.as_ref().map_or(Ok(true), has_ended)
    }
}

/// A ring of pieces for uploads of any length.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    pieces: Vec<Piece>,
    current: usize,
    /// Bytes of the current piece that are taken.
    used: usize,
}

impl Uploads {
    /// Returns a piece with free space, and where the space begins.
    pub fn place(
        &mut self,
        shared: &Shared,
        until: Deadline,
    ) -> Result<(&mut Piece, usize), DeviceError> {
        if self.pieces.is_empty() {
            self.pieces.push(Piece::new(shared)?);
        } else if self.used >= PIECE {
            self.go_on(shared, until)?;
        }
        Ok((&mut self.pieces[self.current], self.used))
    }

    /// Marks `bytes` bytes from that place on as used by `event`'s command.
    pub fn take(&mut self, bytes: usize, event: Handle) {
        self.pieces[self.current].is_used_by(event);
        self.used = (self.used + bytes).next_multiple_of(ALIGNMENT);
    }

    fn go_on(&mut self, shared: &Shared, until: Deadline) -> Result<(), DeviceError> {
        let next = (self.current + 1) % self.pieces.len();
        if !self.pieces[next].is_free()? && self.pieces.len() < PIECES {
            // If there is no memory for another piece, use those we have.
            if let Ok(piece) = Piece::new(shared) {
                self.current += 1;
                self.used = 0;
                self.pieces.insert(self.current, piece);
                return Ok(());
            }
        }
        self.pieces[next].wait(until)?;
        (self.current, self.used) = (next, 0);
        Ok(())
    }
}
