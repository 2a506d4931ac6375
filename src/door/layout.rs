//! The layout of a door's memory, word by word. `kernels/common/door.cl` and `door.wgsl` repeat it, and a test compares
//! them.
//!
//! The control memory has a header of [`HEADER`] words; then the ring of [`Request`]s; then an [`Answer`] for each of
//! the [`HANDLES`] handles; then for each handle the bytes of a path. The counters are a memory of their own, which
//! only kernels use: device memory if the device has some, because atomic operations are fast there.

use bytemuck::{Pod, Zeroable};

/// Handles of a door.
pub(super) const HANDLES: usize = 1024;
/// Words of a request, and of a handle.
pub(super) const ENTRY: usize = 16;
/// Words before the ring.
pub(super) const HEADER: usize = 32;
/// Words of a path.
pub(super) const PATH: usize = 64;

/// The layout's version, in the header.
pub(super) const VERSION: usize = 0;
/// Requests that the ring holds, in the header.
pub(super) const RING: usize = 1;
/// Always 0, in the header: kernels in WGSL use it to order their writes.
#[cfg(test)]
pub(super) const ZERO: usize = 2;
/// The number of requests that the host has taken, in the header, on a cache line of its own.
pub(super) const CONSUMED: usize = 16;

/// The version of this layout.
pub(super) const THIS_VERSION: u32 = 1;

/// Words of the counters: the number of requests; how many of them the host is known to have taken; a bit for each
/// handle in use; each handle's generation, the number of its uses so far.
pub(super) const REQUESTS: usize = 0;
pub(super) const TAKEN: usize = 1;
pub(super) const USED: usize = 32;
pub(super) const GENERATION: usize = 64;
/// Words of all counters.
pub(super) const COUNTERS: usize = GENERATION + HANDLES;

/// The operations of requests.
pub(super) mod op {
    pub(in crate::door) const OPEN: u32 = 1;
    pub(in crate::door) const READ: u32 = 2;
    pub(in crate::door) const STREAM: u32 = 3;
    pub(in crate::door) const NEXT: u32 = 4;
    pub(in crate::door) const WRITE: u32 = 5;
    pub(in crate::door) const COMMIT: u32 = 6;
    /// Wakes the host, and has no answer.
    pub(in crate::door) const NOTHING: u32 = 7;
}

/// The number of times that each handle can be taken before its generation wraps around: generation 0 and the last one
/// are not used.
pub(super) const LAST_GENERATION: u32 = 0x3f_ffff;
/// Every handle's status once the door is shut.
pub(super) const SHUT: u32 = u32::MAX;

/// A request, as a kernel writes it into the ring. `turn` comes last: entry `i` of the ring is request number
/// `i + t * ring` when its `turn` is `t + 1`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Request {
    pub op: u32,
    /// The handle's number in the lowest 10 bits, and its generation.
    pub handle: u32,
    /// The file's number; for an open, the mode.
    pub file: u32,
    /// Bytes of a piece of a stream.
    pub piece: u32,
    pub offset: u64,
    pub length: u64,
    /// Bytes of the path.
    pub path: u32,
    pub reserved: [u32; 6],
    pub turn: u32,
}

/// The host's answer for a handle. `status` is written last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Pod, Zeroable)]
#[repr(C)]
pub(super) struct Answer {
    /// The handle's generation, and its [`HandleState`] in the lowest 3 bits.
    pub status: u32,
    pub error: u32,
    /// Where the contents begin in their pool.
    pub place: u64,
    /// Bytes present, or room for that many.
    pub bytes: u64,
    /// Length of the file or of the stream.
    pub total: u64,
    /// 1 if the contents are in device memory.
    pub pool: u32,
    /// The number of a file that was opened.
    pub file: u32,
    /// The distance from one piece of a stream to the next, in bytes.
    pub piece: u32,
    /// Pieces of a stream present at once.
    pub window: u32,
    /// Pieces of a stream that have been loaded so far.
    pub pieces: u32,
    pub reserved: [u32; 2],
    /// The generation that a kernel has closed. Only kernels write it.
    pub closed: u32,
}

const _: () = assert!(size_of::<Request>() == 4 * ENTRY && size_of::<Answer>() == 4 * ENTRY);

/// Word of an [`Answer`]: the number of loaded pieces.
pub(super) const PIECES: usize = 12;
/// Word of an [`Answer`]: the closed generation; of a [`Request`]: its turn.
pub(super) const LAST: usize = ENTRY - 1;

/// The state of a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum HandleState {
    /// The host has not answered.
    Loading = 1,
    /// The contents are present.
    Ready = 2,
    /// The request failed.
    Error = 3,
    /// The kernel has closed the handle.
    Closed = 4,
}

impl HandleState {
    /// The status of a handle in this state.
    pub(super) fn status(self, generation: u32) -> u32 {
        generation << 3 | self as u32
    }
}

/// The places of parts of the control memory, in words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Requests that the ring holds, a power of two.
    pub ring: u32,
}

impl Layout {
    /// All words.
    pub(super) fn words(self) -> usize {
        self.path(HANDLES)
    }

    /// The entry of request `number`.
    pub(super) fn request(self, number: u32) -> usize {
        HEADER + (number & (self.ring - 1)) as usize * ENTRY
    }

    /// The value of `turn` for request `number`.
    pub(super) fn turn(self, number: u32) -> u32 {
        (number / self.ring).wrapping_add(1)
    }

    /// The answer for handle `number`.
    pub(super) fn answer(self, number: usize) -> usize {
        HEADER + (self.ring as usize + number) * ENTRY
    }

    /// The path of handle `number`.
    pub(super) fn path(self, number: usize) -> usize {
        HEADER + (self.ring as usize + HANDLES) * ENTRY + number * PATH
    }
}

/// The number of a handle.
pub(super) fn number_of(handle: u32) -> usize {
    handle as usize % HANDLES
}

/// The generation of a handle.
pub(super) fn generation_of(handle: u32) -> u32 {
    handle / HANDLES as u32
}
