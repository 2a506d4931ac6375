//! Reads ranges of archives into the memory of a device.
//!
//! Compressed blocks cross the bus, and the device decodes them into the caller's buffer:
//!
//! ```text
//! source or payload cache ─▶ pinned host memory ─▶ payload ─▶ contents ─▶ the caller's buffer
//!                      worker reads          upload     decode     place
//! ```
//!
//! - [`DeviceMemory`] is a device with everything that decoding on it needs: threads, decoders, device memory, pinned
//!   memory. They stay from read to read, and all archives share them.
//! - [`DeviceBuffer`] is a buffer there: one that pz allocated, or one that the caller imported. In host memory it is a
//!   plain allocation, so the same program runs without a device.
//! - `compress` goes the other way: the device encodes the contents of a buffer, and only payloads cross the bus.
//! - `core` is the device and the memory that all its threads share; it also sizes batches. `workers` are the threads
//!   that decode. Each has two slots (`decoder_slot`) and uses them in turn: it takes a batch of blocks, reads their
//!   payloads, and submits them. While the device decodes the batch of one slot, the worker reads the next batch for
//!   the other. So few threads suffice, and few wait for each other in the driver. A worker that has to wait for the
//!   device reads payloads for other workers (`payload`).
//! - `slot_batch` is a batch, and the outcomes of its blocks. `restore` assembles blocks with distant matches on the
//!   device, from own bytes of blocks, some of which stay in the memory of `core`.
//!
//! The device checks its results against the same checksums as the CPU. The CPU decodes each block that the device
//! declines or gets wrong, uploads it, and reports the fault of a damaged block.

mod compress;
mod core;
mod decoder_slot;
mod memory;
mod payload;
mod restore;
mod slot_batch;
#[cfg(test)]
mod tests;
mod workers;

pub use self::core::DeviceMemoryOptions;
pub(super) use self::core::{BatchKind, BufferHandle};
pub(super) use decoder_slot::DecoderSlot;
pub(super) use memory::BufferPlace;
pub use memory::{DeviceBuffer, DeviceMemory, DeviceSliceMut};
pub(super) use slot_batch::{
    BlockOutcome, RestoredBlock, RestoredPiece, SlotBatch, SlotBlock, SubmittedBatch,
};
pub(super) use workers::{BeginBatch, CompleteBatch, Requests, TakenBatch, Workers};
