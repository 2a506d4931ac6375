//! Pinned memory that the queues of a device use in turns.
//!
//! A queue fills a large piece, uploads it, and is done with it long before the work on the data ends. So a few pieces
//! serve many queues, which saves slow pinning. The piece used last is lent first: it is still in the processor's
//! caches, where writes are twice as fast as to memory.

use std::sync::Arc;

use super::Driver;
use super::staging::Piece;
use crate::gpu::device::DeviceError;
use crate::gpu::device::deadline::Deadline;
use crate::sync::Mutex;

/// The pieces that no queue holds.
pub(super) struct SharedPinned<D: Driver>(Mutex<State<D>>);

struct State<D: Driver> {
    /// How many queues there are.
    queues: usize,
    /// In order of use, the most recent last, each with the stream that may still upload it.
    pieces: Vec<(Piece<D>, Arc<D::Stream>)>,
}

impl<D: Driver> Default for SharedPinned<D> {
    fn default() -> Self {
        Self(Mutex::new(State { queues: 0, pieces: Vec::new() }))
    }
}

impl<D: Driver> SharedPinned<D> {
    /// The number of pieces.
    #[cfg(all(test, feature = "opencl"))]
    pub fn pieces(&self) -> usize {
        self.0.lock().pieces.len()
    }

    /// Counts a new queue.
    pub fn enter(&self) {
        self.0.lock().queues += 1;
    }

    /// Notes that a queue, which holds no piece, has ended. Releases surplus pieces.
    pub fn leave(&self, driver: &D) {
        let mut state = self.0.lock();
        state.queues = state.queues.saturating_sub(1);
        let too_many = state.pieces.len().saturating_sub(state.queues);
        let free = state.pieces.extract_if(.., |(piece, _)| piece.is_free(driver).unwrap_or(true));
        let released: Vec<_> = free.take(too_many).collect();
        drop(state);
        drop(released);
    }

    /// An unused piece of at least `bytes` bytes. Pins a new one, of up to `ahead` bytes, only if other queues hold all
    /// such pieces. `None` if there is no memory for it.
    ///
    /// # Errors
    /// If the device fails, or another queue's upload does not end in time.
    pub fn take(
        &self,
        driver: &D,
        (bytes, ahead): (usize, usize),
        until: Deadline,
    ) -> Result<Option<Piece<D>>, DeviceError> {
        let mut state = self.0.lock();
        let is_long = |(piece, _): &(Piece<D>, _)| piece.len() >= bytes;
        let is_free = |lent: &_| is_long(lent) && lent.0.is_free(driver).unwrap_or(false);
        let last_used = state.pieces.iter().rposition(is_free);
        if let Some(at) = last_used.or_else(|| state.pieces.iter().position(is_long)) {
            let (mut piece, stream) = state.pieces.remove(at);
            drop(state);
            if let Err(error) = piece.wait(driver, until) {
                // The device may still read it.
                self.give_back(piece, &stream);
                return Err(error);
            }
            return Ok(Some(piece));
        }
        // Release a shorter one to make room.
        let shorter = state.pieces.pop_if(|(piece, _)| piece.is_free(driver).unwrap_or(true));
        drop(state);
        drop(shorter);
        let lens = [bytes.max(ahead), bytes].map(usize::next_power_of_two);
        Ok(lens.iter().find_map(|len| Piece::of_bytes(driver, *len).ok()))
    }

    /// Takes back a piece that `stream` may still upload.
    pub fn give_back(&self, piece: Piece<D>, stream: &Arc<D::Stream>) {
        self.0.lock().pieces.push((piece, Arc::clone(stream)));
    }

    /// Removes the pieces that `stream`, which was abandoned, may still upload.
    pub fn leave_to(&self, stream: &Arc<D::Stream>) -> Vec<Piece<D>> {
        let mut state = self.0.lock();
        let of_stream = state.pieces.extract_if(.., |(_, user)| Arc::ptr_eq(user, stream));
        of_stream.map(|(piece, _)| piece).collect()
    }
}
