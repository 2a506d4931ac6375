//! Reusable memory: fresh pages cost about as much as decoding into them.
//!
//! On Linux, long buffers are in huge pages if the system has them (`slab`). Huge pages cost a fraction of small ones,
//! and the thread that first touches a page pays for it, not the one that hands out buffers.

use std::io::{self, Read};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::format::Fault;
use crate::pages::advise_huge_pages;
#[cfg(target_os = "linux")]
use crate::pipeline::slab::SlabPart;
use crate::sync::Lock;

/// The most memory to allocate at first for a length that the input merely claims.
const FIRST_STEP: usize = 1 << 20;

/// A byte buffer that never shrinks and never clears its bytes: whoever sets the length fills it.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    bytes: Memory,
    len: usize,
}

#[derive(Debug)]
enum Memory {
    Heap(Vec<u8>),
    #[cfg(target_os = "linux")]
    Part(SlabPart),
}

impl Memory {
    /// `len` zero bytes, which the system gives page by page when they are first touched.
    fn zeroed(len: usize) -> Result<Self, Fault> {
        #[cfg(target_os = "linux")]
        if let Some(part) = SlabPart::zeroed(len) {
            return Ok(Self::Part(part));
        }
        Ok(Self::Heap(zeroed(len)?))
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self::Heap(Vec::new())
    }
}

impl Deref for Memory {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Heap(bytes) => bytes,
            #[cfg(target_os = "linux")]
            Self::Part(bytes) => bytes,
        }
    }
}

impl DerefMut for Memory {
    fn deref_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Heap(bytes) => bytes,
            #[cfg(target_os = "linux")]
            Self::Part(bytes) => bytes,
        }
    }
}

impl Buffer {
    /// Sets the length. The bytes may hold anything.
    ///
    /// # Errors
    /// [`Fault::OutOfMemory`] if the system has too little memory.
    pub(crate) fn set_len(&mut self, len: usize) -> Result<&mut [u8], Fault> {
        if self.bytes.len() < len {
            self.bytes = Memory::default();
            self.bytes = Memory::zeroed(len)?;
        }
        self.len = len;
        Ok(&mut self.bytes[..len])
    }

    /// Bytes of memory that the buffer holds.
    pub(crate) fn capacity(&self) -> usize {
        self.bytes.len()
    }

    /// Shortens it to `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Reads exactly `len` bytes from `reader` into the buffer, which grows only as they arrive.
    pub(crate) fn read_exact(&mut self, reader: &mut impl Read, len: usize) -> Result<(), Fault> {
        self.len = len;
        if self.bytes.len() >= len {
            return Ok(reader.read_exact(&mut self.bytes[..len])?);
        }
        let mut filled = 0;
        while filled < len {
            let step = len.min((2 * filled).max(FIRST_STEP));
            if step > self.bytes.len() {
                let mut grown = Memory::zeroed(step)?;
                grown[..filled].copy_from_slice(&self.bytes[..filled]);
                self.bytes = grown;
            }
            reader.read_exact(&mut self.bytes[filled..step])?;
            filled = step;
        }
        Ok(())
    }

    /// Reads from `reader` until `self[from..]` is full or the input ends; returns where it stopped.
    pub(crate) fn fill_from(
        &mut self,
        reader: &mut (impl Read + ?Sized),
        mut from: usize,
    ) -> io::Result<usize> {
        while from < self.len {
            match reader.read(&mut self.bytes[from..self.len]) {
                Ok(0) => break,
                Ok(n) => from += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(from)
    }
}

impl Deref for Buffer {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

impl DerefMut for Buffer {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[..self.len]
    }
}

/// Idle buffers. `take` returns the one given back last, which is the most likely to be in a cache.
#[derive(Debug, Clone)]
pub(crate) struct Pool {
    idle: Arc<Lock<Vec<Buffer>>>,
    most: usize,
}

impl Default for Pool {
    fn default() -> Self {
        Self::of_at_most(usize::MAX)
    }
}

impl Pool {
    /// A pool that keeps at most `most` buffers.
    pub(crate) fn of_at_most(most: usize) -> Self {
        Self { idle: Arc::default(), most }
    }

    /// A buffer, of any length.
    pub(crate) fn take(&self) -> Buffer {
        self.idle.lock().pop().unwrap_or_default()
    }

    /// Keeps `buffer` for the next `take`, unless there are enough.
    pub(crate) fn give(&self, buffer: Buffer) {
        if buffer.bytes.is_empty() {
            return;
        }
        let mut idle = self.idle.lock();
        if idle.len() < self.most {
            idle.push(buffer);
            return;
        }
        // Giving memory back takes a while, so the lock is released first.
        drop(idle);
        drop(buffer);
    }

    /// Frees all idle buffers.
    pub(crate) fn clear(&self) {
        self.idle.lock().clear();
    }
}

/// `len` zero bytes, which the system gives page by page when they are first touched.
pub(crate) fn zeroed(len: usize) -> Result<Vec<u8>, Fault> {
    // `vec!` alone would abort the process when there is not enough memory.
    let mut probe: Vec<u8> = Vec::new();
    if probe.try_reserve_exact(len).is_err() {
        return Err(Fault::OutOfMemory(len as u64));
    }
    drop(probe);
    let mut bytes = vec![0; len];
    advise_huge_pages(&mut bytes);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reading_a_claimed_length_grows_with_what_arrives() {
        let data: Vec<u8> = (0..5_000_000_u32).map(|i| (i % 251) as u8).collect();
        let mut buffer = Buffer::default();
        for len in [10, 5_000_000, 0, 1 << 20, (1 << 20) + 1] {
            buffer.read_exact(&mut &data[..], len).unwrap();
            assert!(*buffer == data[..len]);
        }
        let mut short = Buffer::default();
        assert!(short.read_exact(&mut &data[..1000], 1 << 30).is_err());
        assert!(short.bytes.len() <= FIRST_STEP);
    }

    #[test]
    fn long_and_short_buffers_begin_as_zeros_and_keep_what_they_hold() {
        for len in [1, (1 << 20) - 1, 1 << 20, 5 << 20] {
            let mut buffer = Buffer::default();
            assert!(buffer.set_len(len).unwrap().iter().all(|&byte| byte == 0));
            #[cfg(target_os = "linux")]
            assert_eq!(matches!(buffer.bytes, Memory::Part(_)), len >= 1 << 20);
            buffer[len - 1] = 7;
            buffer.truncate(len / 2);
            assert_eq!(buffer.len(), len / 2);
            assert_eq!(buffer.set_len(len).unwrap()[len - 1], 7);
        }
    }

    #[test]
    fn an_impossible_size_is_an_error() {
        assert!(matches!(zeroed(usize::MAX), Err(Fault::OutOfMemory(_))));
        for len in [usize::MAX, isize::MAX as usize, isize::MAX as usize / 2] {
            let mut buffer = Buffer::default();
            assert!(matches!(buffer.set_len(len), Err(Fault::OutOfMemory(_))), "{len}");
        }
    }
}
