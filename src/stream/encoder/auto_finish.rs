//! An encoder that finishes by itself.

use std::io::{self, Write};

use super::Encoder;
use crate::error::Error;

const NO_ENCODER: Error = Error::Internal { what: "the encoder has been finished" };

/// An encoder that finishes when it is dropped. [`Encoder::auto_finish`] makes one.
pub struct AutoFinishEncoder<W: Write> {
    /// `None` once it has finished.
    pub(super) encoder: Option<Encoder<W>>,
}

impl<W: Write> AutoFinishEncoder<W> {
    /// Finishes now, and returns the writer.
    ///
    /// # Errors
    /// The errors of [`Encoder::finish`].
    pub fn finish(mut self) -> Result<W, Error> {
        self.encoder.take().ok_or(NO_ENCODER)?.finish()
    }
}

impl<W: Write> Write for AutoFinishEncoder<W> {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        self.encoder.as_mut().ok_or(NO_ENCODER)?.write(buf)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.encoder.as_mut().ok_or(NO_ENCODER)?.flush()
    }
}

impl<W: Write> Drop for AutoFinishEncoder<W> {
    fn drop(&mut self) {
        if let Some(mut encoder) = self.encoder.take() {
            // A drop cannot report errors.
            let _ = encoder.finish_by_ref();
        }
    }
}
