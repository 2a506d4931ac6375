//! Results in memory of the caller's.

use std::io::{self, Write};

use crate::error::Error;

/// Memory of the caller's to write a result to. It counts what does not fit, so that the caller learns how much it
/// takes.
pub struct Bounded<'a>(pub &'a mut [u8]);

impl Write for Bounded<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let fits = bytes.len().min(self.0.len());
        let (place, rest) = std::mem::take(&mut self.0).split_at_mut(fits);
        place.copy_from_slice(&bytes[..fits]);
        self.0 = rest;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A vector to write to. A write returns an error when the system refuses memory.
#[derive(Debug)]
pub struct Growing<'a>(pub &'a mut Vec<u8>);

impl Write for Growing<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let needed = (self.0.len() + bytes.len()) as u64;
        self.0.try_reserve(bytes.len()).map_err(|_| Error::OutOfMemory { needed })?;
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
