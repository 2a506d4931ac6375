//! Reads neighbouring blocks at once.

use std::io::{Read, Seek, SeekFrom};

use super::layout::Located;
use crate::format::Fault;
use crate::pipeline::buffer::Buffer;

/// Neighbouring blocks that one read has brought.
#[derive(Debug, Default)]
pub(crate) struct Run {
    /// Where they begin in the file.
    start: u64,
    bytes: Buffer,
}

impl Run {
    /// Frees its memory.
    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// The bytes of a block, if they are here.
    fn held(&self, block: &Located) -> Option<&[u8]> {
        let from = usize::try_from(block.place.offset.checked_sub(self.start)?).ok()?;
        self.bytes.get(from..from.checked_add(block.len)?)
    }

    /// Gives `into` the bytes of a block. If they are not here, reads `len` bytes from its beginning on, for blocks
    /// that are needed next.
    pub(crate) fn fetch(
        &mut self,
        block: &Located,
        len: usize,
        reader: &mut (impl Read + Seek),
        into: &mut Buffer,
    ) -> Result<(), Fault> {
        let is_here = self.held(block).is_some();
        if !is_here {
            reader.seek(SeekFrom::Start(block.place.offset))?;
        }
        if !is_here && len > block.len {
            self.start = u64::MAX;
            // One read suffices, since the index bounds the length.
            reader.read_exact(self.bytes.set_len(len)?)?;
            self.start = block.place.offset;
        }
        match self.held(block) {
            Some(mut bytes) => into.read_exact(&mut bytes, block.len),
            None => Ok(reader.read_exact(into.set_len(block.len)?)?),
        }
    }
}
