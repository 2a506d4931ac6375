//! What kernels are told of each block of a batch, and what they tell of it.
//!
//! Every plan that decodes has these buffers, and every plan that encodes the same in the other direction:
//!
//! | name | formula | |
//! |---|---|---|
//! | `jobs` | `32` | a [`Job`] for each block |
//! | `contents` | `N` | block b's contents begin at byte b N |
//! | `payload` | `N+256` | decoding: payloads, each from a multiple of 16 bytes on, where its job says; encoding: block b's from byte b (N + 256) on |
//! | `results` | `32` | a [`JobResult`] for each block |

/// A block that a plan handles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct Job {
    /// Bytes of its contents, at least 1 and at most the slot's. In every plan.
    pub contents_len: u32,
    /// Decoding: bytes of its payload.
    pub payload_len: u32,
    /// Decoding: where its payload begins in the batch's, in units of 16 bytes.
    pub payload_start: u32,
    /// 0.
    pub reserved: [u32; 5],
}

/// What became of a block.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C)]
pub struct JobResult {
    /// Decoding: 0 if the payload has been decoded; otherwise it is malformed, and the number is a kernel's own.
    /// Encoding: 0 if the payload is complete; otherwise it does not fit, and the block is to be stored.
    pub status: u32,
    /// Encoding: bytes of the payload.
    pub payload_len: u32,
    /// CRC-32C of the contents.
    pub contents_crc: u32,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
    /// 0.
    pub reserved: [u32; 4],
}
