//! Lets several threads write to one file of an in-memory file system.
//!
//! The kernel lets one thread at a time write to a file. In an in-memory file system, where a write is only a copy to
//! new pages, that is slower than decoding. Several threads can fill mapped pages at once, but the kernel hands pages
//! out one by one, under one lock. So we ask for huge pages where that is no slower: each replaces 512 small pages.

mod huge_pages;
mod region;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::iter;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pz::WriteAt;
use pz::internal::is_in_memory;
use rustix::fs::FallocateFlags;

use crate::sparse;
use huge_pages::HugePages;
use region::Region;

/// Smaller writes use plain system calls.
const MIN_MAPPED_WRITE: usize = 256 << 10;

/// Threads that may ask for small pages at once. The kernel counts a file's pages under one lock, and more threads
/// would only wait for each other.
const MAX_FILLING: usize = 4;

/// A file in tmpfs.
pub struct Mapped {
    file: File,
    /// Its length, which may exceed the number of bytes written.
    len: Mutex<u64>,
    /// Its mapped regions, by their offset in the file.
    regions: Mutex<BTreeMap<u64, Arc<Region>>>,
    huge_pages: HugePages,
    /// Number of threads that are asking for pages.
    filling: Mutex<usize>,
    filled: Condvar,
    /// Whether mapping works; cleared by the first failure.
    maps: AtomicBool,
    /// Whether zeros may become holes.
    is_sparse: bool,
    failed: Arc<AtomicBool>,
}

impl Mapped {
    /// Wraps `file`, which is empty, if it lies in tmpfs. `len` is its final length, if that is known. If it is
    /// not, the file may get longer than its contents, and the caller truncates it. Runs of zeros become holes if it
    /// `is_sparse`. Sets `failed` if a write fails.
    pub fn new(
        file: &File,
        len: Option<u64>,
        is_sparse: bool,
        failed: &Arc<AtomicBool>,
    ) -> Option<Self> {
        // A 32-bit process has too few addresses.
        if !cfg!(target_pointer_width = "64") {
            return None;
        }
        if !is_in_memory(file) {
            return None;
        }
        Some(Self {
            file: file.try_clone().ok()?,
            len: Mutex::new(0),
            regions: Mutex::default(),
            huge_pages: HugePages::new(len),
            filling: Mutex::new(0),
            filled: Condvar::new(),
            maps: AtomicBool::new(true),
            is_sparse,
            failed: Arc::clone(failed),
        })
    }

    /// Extends the file to at least `end` bytes. Every write begins with this: otherwise `len` would be too small, and
    /// the next call would cut off what lies beyond.
    fn lengthen(&self, end: u64) -> io::Result<()> {
        let mut len = lock(&self.len);
        if *len < end {
            self.file.set_len(end)?;
            *len = end;
        }
        Ok(())
    }

    /// The region that begins at byte `start`, mapped on first use.
    fn region(&self, start: u64) -> io::Result<Arc<Region>> {
        let mut regions = lock(&self.regions);
        if let Some(region) = regions.get(&start) {
            return Ok(Arc::clone(region));
        }
        let region = Arc::new(Region::new(&self.file, start)?);
        regions.insert(start, Arc::clone(&region));
        Ok(region)
    }

    /// Splits `range` by regions; gives each region with the part inside it.
    fn parts(
        &self,
        range: Range<u64>,
    ) -> impl Iterator<Item = io::Result<(Arc<Region>, Range<usize>)>> {
        let mut from = range.start;
        iter::from_fn(move || {
            if from >= range.end {
                return None;
            }
            let start = from / Region::LEN * Region::LEN;
            let end = range.end.min(start + Region::LEN);
            let within = (from - start) as usize..(end - start) as usize;
            from = end;
            Some(self.region(start).map(|region| (region, within)))
        })
    }

    /// Gets huge pages for `range`, which begins and ends at their boundaries. No other thread may write there
    /// meanwhile.
    fn collapse(&self, range: Range<u64>) -> io::Result<()> {
        self.lengthen(range.end)?;
        for part in self.parts(range) {
            let (region, within) = part?;
            region.collapse(within)?;
        }
        Ok(())
    }

    /// Copies `bytes` to the file through its mappings. The file must be long enough.
    fn copy(&self, mut bytes: &[u8], range: Range<u64>) -> io::Result<()> {
        for part in self.parts(range) {
            let (region, within) = part?;
            let (now, later) = bytes.split_at(within.len());
            let filling = self.begin_filling();
            let populated = region.populate(within.clone());
            drop(filling);
            populated?;
            region.copy(now, within.start);
            bytes = later;
        }
        Ok(())
    }

    /// Waits until fewer than [`MAX_FILLING`] threads are asking for pages.
    fn begin_filling(&self) -> Filling<'_> {
        let mut filling = lock(&self.filling);
        while *filling == MAX_FILLING {
            filling = self.filled.wait(filling).unwrap_or_else(PoisonError::into_inner);
        }
        *filling += 1;
        Filling(self)
    }
}

/// Counts a thread that is asking for pages; dropping it ends the count.
struct Filling<'m>(&'m Mapped);

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        *lock(&self.0.filling) -= 1;
        self.0.filled.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No code that holds the lock can panic halfway through a change.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WriteAt for Mapped {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let written = self.write_parts(bytes, offset);
        self.failed.fetch_or(written.is_err(), Ordering::Relaxed);
        written
    }
}

impl Mapped {
    /// Writes at `offset`, and leaves holes if it may.
    fn write_parts(&self, mut bytes: &[u8], mut offset: u64) -> io::Result<()> {
        if !self.is_sparse {
            return self.write(bytes, offset);
        }
        let whole = bytes.len();
        while !bytes.is_empty() {
            let (len, is_hole) = sparse::first_part(bytes, offset);
            let end = offset + len as u64;
            match is_hole {
                false => self.write(&bytes[..len], offset)?,
                true => self.lengthen(end)?,
            }
            // A file with a whole block of zeros may have many holes. Huge pages would fill them, and may have filled
            // this one.
            if is_hole && len == whole {
                self.huge_pages.stop();
                let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let _ = rustix::fs::fallocate(&self.file, flags, offset, len as u64);
            }
            (bytes, offset) = (&bytes[len..], end);
        }
        Ok(())
    }

    /// Writes at `offset`: through a mapping if there are many bytes, else plainly.
    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let range = offset..offset + bytes.len() as u64;
        self.lengthen(range.end)?;
        let maps = || self.maps.load(Ordering::Relaxed);
        let ask = |range| maps() && self.collapse(range).is_ok();
        self.huge_pages.before_writing(&range, ask);
        if bytes.len() >= MIN_MAPPED_WRITE && maps() {
            if self.copy(bytes, range.clone()).is_ok() {
                self.huge_pages.after_writing(range.end, ask);
                return Ok(());
            }
            self.maps.store(false, Ordering::Relaxed);
        }
        // If the file system is full, this write says so.
        FileExt::write_all_at(&self.file, bytes, offset)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_land_at_their_offsets() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let failed = Arc::default();
        let Some(mapped) = Mapped::new(&file, Some(5_000_001), false, &failed) else { return };
        let contents: Vec<u8> = (0..5_000_001u32).map(|i| (i.wrapping_mul(i) >> 9) as u8).collect();
        let lens = [1_048_576, 3, 262_144, 1_000_000, 70_000, 999_999];
        let mut parts = Vec::new();
        let mut at = 0;
        for len in lens.into_iter().cycle() {
            let end = contents.len().min(at + len);
            parts.push(at..end);
            at = end;
            if at == contents.len() {
                break;
            }
        }
        std::thread::scope(|scope| {
            for odd in [true, false] {
                let (parts, mapped, contents) = (&parts, &mapped, &contents);
                scope.spawn(move || {
                    for (i, part) in parts.iter().enumerate().rev() {
                        if (i % 2 == 1) == odd {
                            mapped
                                .write_all_at(&contents[part.clone()], part.start as u64)
                                .unwrap();
                        }
                    }
                });
            }
        });
        assert!(!failed.load(Ordering::Relaxed) && mapped.maps.load(Ordering::Relaxed));
        // Writes across the end of a region, and beyond the announced end of the file.
        let start = Region::LEN - 100_001;
        mapped.write_all_at(&contents[..300_000], start).unwrap();
        let mut back = vec![0; 300_000];
        FileExt::read_exact_at(&file, &mut back, start).unwrap();
        assert!(back == contents[..300_000] && lock(&mapped.regions).len() == 2);
        file.set_len(contents.len() as u64).unwrap();
        let mut back = vec![0; contents.len()];
        FileExt::read_exact_at(&file, &mut back, 0).unwrap();
        assert!(back == contents && file.metadata().unwrap().len() == contents.len() as u64);
    }

    #[test]
    fn no_write_truncates_a_later_one() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let Some(mapped) = Mapped::new(&file, None, false, &Arc::default()) else { return };
        // Sizes large enough to be mapped, and too small.
        let (large, small) = (vec![1; MIN_MAPPED_WRITE], vec![2; 1000]);
        mapped.write_all_at(&small, large.len() as u64).unwrap();
        mapped.write_all_at(&large, 0).unwrap();
        let mut back = vec![0; large.len() + small.len()];
        FileExt::read_exact_at(&file, &mut back, 0).unwrap();
        assert!(back == [large, small].concat());
    }

    #[test]
    fn zeros_become_holes() {
        use std::os::unix::fs::MetadataExt;
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let len = 200 << 20;
        let Some(mapped) = Mapped::new(&file, Some(len), true, &Arc::default()) else { return };
        // First data after which huge pages are requested, then blocks of zeros, then data that contain zeros.
        let (ones, zeros) = (vec![1; 4 << 20], vec![0; 4 << 20]);
        let mut mixed = ones.clone();
        mixed[1 << 20..3 << 20].fill(0);
        for at in (0..len).step_by(4 << 20) {
            let bytes = match at >> 20 {
                0..48 => &ones,
                196.. => &mixed,
                _ => &zeros,
            };
            mapped.write_all_at(bytes, at).unwrap();
        }
        let mut back = vec![9; 4 << 20];
        for (at, expected) in [(44, &ones), (48, &zeros), (100, &zeros), (196, &mixed)] {
            FileExt::read_exact_at(&file, &mut back, at << 20).unwrap();
            assert!(back == *expected, "at {at} MiB");
        }
        let taken = file.metadata().unwrap().blocks() * 512;
        assert!(taken <= 52 << 20, "{taken} bytes of {len}");
    }

    #[test]
    fn huge_pages_hold_the_same_bytes() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let failed = Arc::default();
        let Some(mapped) = Mapped::new(&file, None, false, &failed) else { return };
        // After the part that always has small pages; two threads write pieces that do not end with pages.
        let start = (32 << 20) + 77;
        let contents: Vec<u8> = (0..9_000_001u32).map(|i| (i.wrapping_mul(i) >> 7) as u8).collect();
        std::thread::scope(|scope| {
            for odd in [true, false] {
                let (mapped, contents) = (&mapped, &contents);
                scope.spawn(move || {
                    let parts = contents.chunks(700_001).enumerate();
                    for (i, part) in parts.filter(|(i, _)| (i % 2 == 1) == odd) {
                        mapped.write_all_at(part, start + i as u64 * 700_001).unwrap();
                    }
                });
            }
        });
        assert!(!failed.load(Ordering::Relaxed));
        // Huge pages keep the bytes of the pages they replace.
        let range = 36 << 20..40 << 20;
        let is_huge = mapped.collapse(range).is_ok();
        println!("huge pages: {is_huge}");
        let mut back = vec![0; contents.len()];
        FileExt::read_exact_at(&file, &mut back, start).unwrap();
        assert!(back == contents);
        let mut before = vec![1; 77];
        FileExt::read_exact_at(&file, &mut before, 32 << 20).unwrap();
        assert!(before.iter().all(|&byte| byte == 0));
    }
}
