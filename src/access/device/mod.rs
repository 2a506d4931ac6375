//! Memory of a device, as a destination of ranges of archives.
//!
//! Compressed blocks cross the bus, and the device decodes them to where the caller wants them:
//!
//! ```text
//! source or payload cache ─▶ pinned host memory ─▶ payload ─▶ contents ─▶ the caller's buffer
//!                      worker reads          upload     decode     place
//! ```
//!
//! - [`DeviceMemory`] is a device with everything that decoding on it needs, kept from read to read: threads, decoders,
//!   device memory, pinned memory. All archives that are read into it share them.
//! - [`DeviceBuffer`] is a buffer there: one that pz allocated, or one of the caller's. In host memory it is a plain
//!   allocation, so the same program runs without a device.
//! - `compress` goes the other way: what lies in a buffer is encoded there, and only payloads cross the bus.
//! - `core` is that device with its memory, whatever works on it; `workers` are its threads. Each has two slots
//!   (`decoder_slot`), which take turns: it takes a batch of blocks (`core` tells how long one is), reads their payloads,
//!   and submits them. While one slot's batch is decoded, the worker reads the other's. Few threads call the driver
//!   then, in which threads wait for each other. One that has to wait reads for others (`payload`).
//! - `slot_batch` has a batch and what becomes of its blocks. Blocks with distant matches are put together on the device
//!   (`restore`), from own bytes of which it keeps some (`kept`).
//!
//! The device checks what it decoded by the same checksums as the CPU. The CPU decodes what the device declines or gets
//! wrong, and says what is wrong with a damaged block; its result is uploaded.

mod compress;
mod core;
mod decoder_slot;
mod kept;
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
