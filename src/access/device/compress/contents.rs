//! What to compress.

use std::io;
use std::sync::Arc;

use crate::access::device::memory::OnDevice;
use crate::gpu::device::BufferId;
use crate::stream::ReadAt;

/// Bytes of a buffer of a device.
#[derive(Clone)]
pub(super) struct Contents {
    pub(super) buffer: Arc<OnDevice>,
    /// Their offset in the buffer.
    pub(super) start: u64,
    pub(super) len: u64,
}

impl Contents {
    /// The buffer.
    pub(super) fn id(&self) -> BufferId {
        self.buffer.id()
    }
}

impl ReadAt for Contents {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        let end = offset.checked_add(into.len() as u64).filter(|end| *end <= self.len);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.buffer.copy_to_host(self.start + offset, into).map_err(io::Error::other)
    }
}
