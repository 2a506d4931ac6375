//! Pinned host memory, through which what lies elsewhere is copied to a device and from it.
//!
//! Copies from and to pinned memory go at the bus's full rate and do not hold the thread up. And they touch no memory
//! of the caller's: a copy that is given up may still take place. Only memory that the caller has from us, and that knows
//! of this, is copied from and to where it is.

use std::ops::Range;
use std::sync::Arc;

use opencl3::command_queue::{enqueue_map_buffer, enqueue_unmap_mem_object};
use opencl3::memory::{
    CL_MAP_READ, CL_MAP_WRITE, CL_MEM_ALLOC_HOST_PTR, CL_MEM_READ_WRITE, create_buffer,
    release_mem_object,
};

use super::super::deadline::Deadline;
use super::super::device::{DeviceError, HostBytes, STAGING};
use super::device::Shared;
use super::failure_for;
use super::handle::{Handle, has_ended, wait};

/// Bytes of a piece: enough that the cost of starting a copy does not count, and no more, because drivers pin memory slowly, and
/// keep others waiting meanwhile.
pub(super) const PIECE: usize = 2 << 20;
/// Pieces in flight in one direction.
pub(super) const PIECES: usize = 4;
const _: () = assert!(2 * (PIECES * PIECE) as u64 <= STAGING, "both directions");

/// Copies begin at multiples of so many bytes of a piece.
const ALIGNMENT: usize = 64;

/// Pinned memory.
#[derive(Debug)]
pub(super) struct Pinned {
    memory: Handle,
    at: *mut u8,
    len: usize,
    /// Of a device's queue for house-keeping.
    housekeeping: Arc<Handle>,
}

// SAFETY: `at` is memory of the process that belongs to this object alone.
unsafe impl Send for Pinned {}
// SAFETY: as above; through a shared reference nothing is written.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// `len` bytes, all 0.
    pub fn new(shared: &Shared, len: usize) -> Result<Self, DeviceError> {
        let error = |call: &'static str| move |code| failure_for(call, code, len as u64);
        let flags = CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR;
        // SAFETY: the context is valid, and there is no host pointer.
        let memory =
            unsafe { create_buffer(shared.context.raw(), flags, len, std::ptr::null_mut()) };
        let memory = memory.map_err(error("clCreateBuffer"))?;
        // SAFETY: it has just been made.
        let memory = unsafe { Handle::owning(memory, release_mem_object) };
        let housekeeping = shared.housekeeping();
        let mut at = std::ptr::null_mut();
        // SAFETY: queue and buffer are valid and of one context, and the range is the whole buffer. The map blocks
        // for no kernel, because none is ever given to this queue.
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
        // What is read before anything has been copied here is to be defined.
        // SAFETY: the mapping is of so many bytes and writable.
        unsafe { at.cast::<u8>().write_bytes(0, len) };
        Ok(Self { memory, at: at.cast(), len, housekeeping })
    }

    /// Where it is.
    pub fn range(&self) -> Range<usize> {
        let start = self.at as usize;
        start..start + self.len
    }

    pub fn bytes(&self) -> &[u8] {
        // SAFETY: it is mapped for as long as `self` lives, initialised, and written through `&mut self` only. A command
        // that writes to it at the same time is one that has not been waited for; that is not asked for.
        unsafe { std::slice::from_raw_parts(self.at, self.len) }
    }

    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.at, self.len) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // SAFETY: queue and buffer are valid, and `at` is where the buffer is mapped.
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

/// Pinned memory of a caller's.
pub(super) struct OfCaller {
    /// `None` once it is left behind.
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
            // A copy that nobody waited for may still write here.
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

    /// Its memory. Whoever looks at what a command writes there has waited for it.
    pub fn bytes(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// From now on `event`'s command uses it.
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

/// Pieces that are filled one after another, for uploads of any length.
#[derive(Debug, Default)]
pub(super) struct Uploads {
    pieces: Vec<Piece>,
    current: usize,
    /// Bytes of the current piece that have been given out.
    used: usize,
}

impl Uploads {
    /// A piece with room, and where its free part begins.
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

    /// So many bytes from that place on are in use by `event`'s command.
    pub fn take(&mut self, bytes: usize, event: Handle) {
        self.pieces[self.current].is_used_by(event);
        self.used = (self.used + bytes).next_multiple_of(ALIGNMENT);
    }

    fn go_on(&mut self, shared: &Shared, until: Deadline) -> Result<(), DeviceError> {
        let next = (self.current + 1) % self.pieces.len();
        if !self.pieces[next].is_free()? && self.pieces.len() < PIECES {
            // Without memory for another piece, the ones that there are do.
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
