//! Parts of a source.

use super::{Source, SourceError, SourceErrorKind};

/// A part of a source, and where its bytes go.
#[derive(Debug)]
pub struct Part<'a> {
    /// Offset of the first byte in the source.
    pub offset: u64,
    /// Filled with the bytes from there on.
    pub buffer: &'a mut [u8],
}

impl Part<'_> {
    /// Offset of the byte after the last.
    pub(super) fn end(&self) -> u64 {
        self.offset.saturating_add(self.buffer.len() as u64)
    }

    /// Checks that the part lies within the source.
    pub(super) fn check(&self, source: &dyn Source) -> Result<(), SourceError> {
        if self.end() <= source.len() {
            return Ok(());
        }
        let what = format!(
            "bytes {} to {} are outside of its {} bytes",
            self.offset,
            self.end(),
            source.len()
        );
        Err(SourceError::new(source.uri(), SourceErrorKind::OutOfRange, what))
    }
}
