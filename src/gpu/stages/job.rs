//! The parameters that kernels get for each block of a batch, and the results that they return.
//!
//! Every plan, for decoding or encoding, has these buffers:
//!
//! | name | formula | |
//! |---|---|---|
//! | `jobs` | `32` | a [`Job`] for each block |
//! | `contents` | `N` | block b's contents begin at byte b N |
//! | `payload` | `N+256` | decoding: at multiples of 16 bytes, from jobs; encoding: block b's at byte b · (N + 256) |
//! | `results` | `32` | a [`JobResult`] for each block |

/// The parameters of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Job {
    /// Length of its contents in bytes: at least 1, at most the slot's size. Used by every plan.
    pub content_len: u32,
    /// Decoding: length of its payload in bytes.
    pub payload_len: u32,
    /// Decoding: offset of its payload in the batch's payloads, in units of 16 bytes.
    pub payload_start: u32,
    /// Decoding: the filters to undo. Encoding: the [passes](super::forward_filter::Passes) to make first.
    pub undo: Undo,
    /// Decoding: where the block begins in the contents of its frame, in units of 2^16 bytes. Only modules need it.
    pub position: u32,
}

/// The filters of a block that a decoder undoes or an encoder applies; all 0 if there are none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Undo {
    /// Base-2 logarithm of a unit's bytes.
    pub unit_log: u32,
    /// Decoding: the stages as in a block's header, the last one first. Encoding: the passes, in order.
    pub stages: [u32; 3],
}

/// The result of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct JobResult {
    /// Decoding: 0 if the payload was decoded; otherwise it is malformed, and the number is specific to the kernel.
    /// Encoding: 0 if the payload is complete; otherwise it did not fit, and the caller should store the block.
    pub status: u32,
    /// Encoding: length of the payload in bytes.
    pub payload_len: u32,
    /// CRC-32C of the contents.
    pub content_crc: u32,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// Always 0.
    pub reserved: [u32; 4],
}
