//! Memory that a running kernel and host threads share: the host's, or a device's that the host can access.
//!
//! Everything else in this crate hands memory to a kernel, waits, and takes it back. Here both sides use it at once:
//! the host sees what a running kernel writes, and the kernel what the host writes. There are two ways to use such
//! memory, and a value offers only one of them:
//!
//! - [`VisibleWords`]: words that both sides write at any time. The host reaches them only as atomics.
//! - [`VisiblePool`]: bytes that one side at a time uses. The host takes a [`PoolChunk`] from a free list, fills it,
//!   and passes its place to the kernel in a word.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{BufferId, DeviceError, write_combined};

use crate::sync::Mutex;

/// Memory that running kernels and the host share: see [`Device::visible_memory`](super::Device::visible_memory).
#[doc(hidden)]
pub struct VisibleMemory {
    at: *mut u8,
    len: usize,
    buffer: Option<BufferId>,
    /// Whether the processor combines its writes, and reads without a cache: see [`write_combined`].
    is_write_combined: bool,
    /// Releases the memory when dropped.
    _owner: Box<dyn Send + Sync>,
}

// SAFETY: the memory belongs to this value, and is reached only as atomics, or as chunks that do not overlap.
unsafe impl Send for VisibleMemory {}
// SAFETY: as above.
unsafe impl Sync for VisibleMemory {}

impl VisibleMemory {
    /// Memory that `owner` keeps, and that kernels know as `buffer`.
    ///
    /// # Safety
    /// `at` points to `len` initialised bytes, is a multiple of 16, and stays valid until `owner` is dropped. Nothing
    /// else on the host uses them.
    #[cfg(any(feature = "cuda", feature = "opencl", feature = "webgpu"))]
    pub(super) unsafe fn new(
        at: *mut u8,
        len: usize,
        buffer: BufferId,
        owner: Box<dyn Send + Sync>,
    ) -> Self {
        Self { at, len, buffer: Some(buffer), is_write_combined: false, _owner: owner }
    }

    /// The same memory, which the processor reads without a cache if `is` is true.
    #[cfg(feature = "webgpu")]
    pub(super) fn write_combined(self, is: bool) -> Self {
        Self { is_write_combined: is, ..self }
    }

    /// `bytes` bytes of zeroed memory for threads that stand in for a kernel.
    pub(crate) fn of_host(bytes: usize) -> Result<Self, DeviceError> {
        let mut memory: Vec<u128> = Vec::new();
        let units = bytes.div_ceil(16);
        let reserved = memory.try_reserve_exact(units);
        reserved.map_err(|_| DeviceError::OutOfMemory { bytes: bytes as u64 })?;
        memory.resize(units, 0);
        let mut memory = memory.into_boxed_slice();
        let at = memory.as_mut_ptr().cast();
        let _owner = Box::new(memory);
        Ok(Self { at, len: bytes, buffer: None, is_write_combined: false, _owner })
    }

    /// Uses the memory as words.
    pub(crate) fn into_words(self) -> VisibleWords {
        VisibleWords(self)
    }

    /// Uses the memory as a pool of bytes.
    pub(crate) fn into_pool(self) -> Arc<VisiblePool> {
        let extents = Mutex::new(Extents::new(self.len as u64));
        Arc::new(VisiblePool { memory: self, extents })
    }
}

impl fmt::Debug for VisibleMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VisibleMemory({} bytes)", self.len)
    }
}

/// Words that both sides write at any time.
#[derive(Debug)]
pub(crate) struct VisibleWords(VisibleMemory);

impl VisibleWords {
    /// The words.
    pub(crate) fn get(&self) -> &[AtomicU32] {
        // SAFETY: the memory is initialised, aligned, of this length, and valid while `self` lives. The host reaches it
        // only here, as atomics, and kernels write whole words.
        unsafe { std::slice::from_raw_parts(self.0.at.cast(), self.0.len / 4) }
    }

    /// Whether the host reads each word over the bus.
    pub(crate) fn is_slow_to_read(&self) -> bool {
        self.0.is_write_combined
    }

    /// Reads word `at` with acquire ordering; 0 if there is no such word.
    pub(crate) fn see(&self, at: usize) -> u32 {
        self.get().get(at).map_or(0, |word| word.load(Ordering::Acquire))
    }

    /// The words from `at` on; 0 beyond the end.
    pub(crate) fn read<const N: usize>(&self, at: usize) -> [u32; N] {
        let mut found = [0; N];
        if self.0.is_write_combined {
            if at.checked_add(N).is_some_and(|end| end <= self.get().len()) {
                // SAFETY: the memory has that many bytes from word `at` on.
                unsafe {
                    let from = self.0.at.add(4 * at);
                    write_combined::read(from, bytemuck::cast_slice_mut(&mut found));
                }
            }
            return found;
        }
        for (to, from) in found.iter_mut().zip(self.get().iter().skip(at)) {
            *to = from.load(Ordering::Relaxed);
        }
        found
    }

    /// Writes word `at`. The other side reads it after a word that was written by [`Self::tell`].
    pub(crate) fn set(&self, at: usize, value: u32) {
        if let Some(word) = self.get().get(at) {
            word.store(value, Ordering::Relaxed);
        }
    }

    /// Writes word `at` after all earlier writes of this thread, to this memory or another.
    pub(crate) fn tell(&self, at: usize, value: u32) {
        let Some(word) = self.get().get(at) else { return };
        if self.0.is_write_combined {
            write_combined::flush();
        }
        word.store(value, Ordering::Release);
        if self.0.is_write_combined {
            write_combined::flush();
        }
    }

    /// The kernels' buffer; `None` if threads stand in for a kernel.
    pub(crate) fn buffer(&self) -> Option<BufferId> {
        self.0.buffer
    }
}

/// Memory from which the host takes chunks.
#[derive(Debug)]
pub(crate) struct VisiblePool {
    memory: VisibleMemory,
    extents: Mutex<Extents>,
}

impl VisiblePool {
    /// Takes a chunk, with unspecified contents; `None` if there is no room.
    pub(crate) fn take(self: &Arc<Self>, bytes: u64) -> Option<PoolChunk> {
        let mut extents = self.extents.lock();
        let start = extents.take(bytes)?;
        Some(PoolChunk { pool: Arc::clone(self), start, len: bytes })
    }

    /// The kernels' buffer; `None` if threads stand in for a kernel.
    pub(crate) fn buffer(&self) -> Option<BufferId> {
        self.memory.buffer
    }

    /// Bytes that are free.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.extents.lock().free_bytes()
    }
}

/// A part of a pool, given back when dropped.
#[derive(Debug)]
pub(crate) struct PoolChunk {
    pool: Arc<VisiblePool>,
    start: u64,
    len: u64,
}

impl PoolChunk {
    /// Whether the host should write it once, from the beginning to the end, and not read it.
    pub(crate) fn is_slow_to_read(&self) -> bool {
        self.pool.memory.is_write_combined
    }

    /// Its offset in the pool, in bytes.
    pub(crate) fn start(&self) -> u64 {
        self.start
    }

    /// Divides it into parts of `bytes` bytes, a multiple of [`Extents::UNIT`]; the last one may be shorter.
    pub(crate) fn split(self, bytes: u64) -> Vec<Self> {
        let (pool, end) = (Arc::clone(&self.pool), self.start + self.len);
        let starts = (self.start..end).step_by(bytes.max(1) as usize);
        // The parts are given back one by one.
        std::mem::forget(self);
        let part = |start| Self { pool: Arc::clone(&pool), start, len: bytes.min(end - start) };
        starts.map(part).collect()
    }

    fn at(&self, range: &Range<usize>) -> Option<*mut u8> {
        if range.start > range.end || range.end as u64 > self.len {
            return None;
        }
        // SAFETY: the chunk lies within the pool's memory, and the range within the chunk.
        Some(unsafe { self.pool.memory.at.add(self.start as usize + range.start) })
    }

    /// The bytes in `range`, to fill; empty if the chunk is shorter.
    pub(crate) fn bytes_mut(&mut self, range: Range<usize>) -> &mut [u8] {
        let Some(at) = self.at(&range) else { return &mut [] };
        // SAFETY: no other chunk overlaps this one, and `self` is borrowed mutably. A kernel that reads them too early
        // sees arbitrary bytes. A kernel that writes where it must not is outside Rust's memory model.
        unsafe { std::slice::from_raw_parts_mut(at, range.len()) }
    }

    /// Copies the bytes in `range` to the host's memory, after a kernel has written them; empty if the chunk is
    /// shorter.
    pub(crate) fn read(&self, range: Range<usize>) -> Vec<u8> {
        let Some(at) = self.at(&range) else { return Vec::new() };
        let mut bytes = vec![0; range.len()];
        // SAFETY: the source is initialised memory of that length, and the destination does not overlap it. A kernel
        // that still writes there is outside Rust's memory model, and any bytes will do.
        unsafe {
            if self.is_slow_to_read() {
                write_combined::read(at, &mut bytes);
            } else {
                std::ptr::copy_nonoverlapping(at, bytes.as_mut_ptr(), bytes.len());
            }
        }
        bytes
    }

    /// Copies `from` into the chunk from byte `offset` on, in place of the kernel that owns the chunk; false if it does
    /// not fit.
    pub(crate) fn write(&self, offset: usize, from: &[u8]) -> bool {
        let Some(end) = offset.checked_add(from.len()) else { return false };
        let Some(at) = self.at(&(offset..end)) else { return false };
        // SAFETY: the destination is memory of that length, and nothing else overlaps it. While a kernel owns the
        // chunk, the host holds no reference into it.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), at, from.len()) };
        true
    }
}

impl Drop for PoolChunk {
    fn drop(&mut self) {
        let mut extents = self.pool.extents.lock();
        extents.give_back(self.start, self.len);
    }
}

/// The free list of a pool.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    /// Start to length. No two touch.
    free: BTreeMap<u64, u64>,
}

impl Extents {
    /// Parts begin at multiples of this many bytes.
    pub(crate) const UNIT: u64 = 256;

    /// A pool of `bytes` bytes, rounded down to whole units, all free.
    pub(crate) fn new(bytes: u64) -> Self {
        let mut extents = Self::default();
        let bytes = bytes / Self::UNIT * Self::UNIT;
        if bytes > 0 {
            extents.free.insert(0, bytes);
        }
        extents
    }

    fn rounded(bytes: u64) -> Option<u64> {
        bytes.max(1).checked_next_multiple_of(Self::UNIT)
    }

    /// Takes the first part that is long enough, and returns where it begins.
    pub(crate) fn take(&mut self, bytes: u64) -> Option<u64> {
        let bytes = Self::rounded(bytes)?;
        let (start, len) = self.free.iter().find(|(_, len)| **len >= bytes)?;
        let (start, len) = (*start, *len);
        self.free.remove(&start);
        if len > bytes {
            self.free.insert(start + bytes, len - bytes);
        }
        Some(start)
    }

    /// Gives back a part that was taken with this length.
    pub(crate) fn give_back(&mut self, mut start: u64, bytes: u64) {
        let mut len = Self::rounded(bytes).unwrap_or(0);
        if let Some((before, its_len)) = self.free.range(..start).next_back()
            && before + its_len == start
        {
            (start, len) = (*before, len + its_len);
        }
        if let Some(its_len) = self.free.remove(&(start + len)) {
            len += its_len;
        }
        self.free.insert(start, len);
    }

    /// Bytes that are free.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }
}

/// Wakes the host when kernels have made requests: see [`Device::bell`](super::Device::bell).
#[doc(hidden)]
pub trait Bell: Send + Sync {
    /// Sleeps until the counter has reached `count`. Counts wrap around, so the counter has reached it if it is at most
    /// 2^31 ahead. Meanwhile the device counts as busy: calls that wait for all of its work, such as freeing memory and
    /// loading programs, wait too.
    ///
    /// # Errors
    /// Fails if the device does.
    fn wait(&self, count: u32) -> Result<(), DeviceError>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_is_whole_again() {
        let mut extents = Extents::new(10 * Extents::UNIT + 3);
        assert_eq!(extents.free_bytes(), 2560);
        let parts: Vec<_> = [1, 256, 257, 0, 1000].map(|bytes| extents.take(bytes)).into();
        assert_eq!(parts, [Some(0), Some(256), Some(512), Some(1024), Some(1280)]);
        assert_eq!((extents.take(512), extents.take(256)), (None, Some(2304)));
        assert_eq!((extents.take(1), extents.take(u64::MAX)), (None, None));
        extents.give_back(512, 257);
        extents.give_back(1280, 1000);
        assert_eq!(extents.take(1024), Some(1280));
        for (start, bytes) in [(1280, 1024), (2304, 256), (0, 1), (1024, 0), (256, 256)] {
            extents.give_back(start, bytes);
        }
        assert_eq!((extents.free.len(), extents.take(2560)), (1, Some(0)));
        assert_eq!(Extents::new(255).take(0), None);
    }

    #[test]
    fn chunks_do_not_overlap() {
        let pool = VisibleMemory::of_host(1024).unwrap().into_pool();
        let (mut one, two) = (pool.take(300).unwrap(), pool.take(512).unwrap());
        assert!(pool.take(1).is_none() && pool.free_bytes() == 0);
        one.bytes_mut(0..300).fill(7);
        assert!(two.write(500, &[9; 12]) && !two.write(501, &[9; 12]));
        assert!(!two.write(usize::MAX, &[9]));
        assert_eq!((one.read(298..300), two.read(499..502)), (vec![7, 7], vec![0, 9, 9]));
        assert!(one.bytes_mut(0..301).is_empty() && one.read(2..301).is_empty());
        drop(one);
        assert_eq!(pool.free_bytes(), 512);
    }
}
