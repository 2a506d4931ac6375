//! A file in memory that several threads write to.
//!
//! The system writes to a file for one thread at a time. In a file system in memory, where writing is no more than copying
//! to fresh pages, that is slower than decoding. Pages that are mapped can be filled by several threads.

use std::collections::BTreeMap;
use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use pz::WriteAt;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};
use rustix::param::page_size;

/// The number by which the system knows its file system in memory.
const TMPFS: i64 = 0x0102_1994;

/// Less is written as it is.
const LEAST: usize = 256 << 10;

/// Bytes of a file that are mapped at once: to map and unmap each part for itself holds up all threads that touch others.
const REGION: u64 = 1 << 30;

/// Threads that are given pages at a time: the system counts a file's pages under one lock, and more wait for each other.
const MOST_FILLING: usize = 4;

/// A file of a file system in memory.
pub struct Mapped {
    file: File,
    /// Its length.
    len: Mutex<u64>,
    /// What is mapped of it.
    regions: Mutex<BTreeMap<u64, Region>>,
    /// Threads that are being given pages.
    filling: Mutex<usize>,
    filled: Condvar,
    /// Whether pages can be mapped and filled.
    maps: AtomicBool,
    failed: Arc<AtomicBool>,
}

/// `REGION` bytes of a file, mapped.
struct Region(*mut c_void);

// SAFETY: it is a place in memory that any thread may refer to.
unsafe impl Send for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it has been mapped with this length, and nothing refers to it any more: parts are copied to while the file
        // is borrowed.
        let _ = unsafe { munmap(self.0, REGION as usize) };
    }
}

impl Mapped {
    /// `file`, which is empty, if it is in memory. What goes wrong is noted in `failed`.
    pub fn new(file: &File, failed: &Arc<AtomicBool>) -> Option<Self> {
        // Elsewhere there are not the addresses.
        if !cfg!(target_pointer_width = "64") {
            return None;
        }
        let kind = rustix::fs::fstatfs(file).ok()?.f_type;
        #[allow(clippy::unnecessary_cast, reason = "its type depends on the system")]
        if kind as i64 != TMPFS {
            return None;
        }
        Some(Self {
            file: file.try_clone().ok()?,
            len: Mutex::new(0),
            regions: Mutex::default(),
            filling: Mutex::new(0),
            filled: Condvar::new(),
            maps: AtomicBool::new(true),
            failed: Arc::clone(failed),
        })
    }

    /// Makes the file at least so long.
    fn lengthen(&self, end: u64) -> io::Result<()> {
        let mut len = lock(&self.len);
        if *len < end {
            self.file.set_len(end)?;
            *len = end;
        }
        Ok(())
    }

    /// Where the region that begins at byte `start` is; nothing if it cannot be mapped.
    fn region(&self, start: u64) -> Option<*mut c_void> {
        let mut regions = lock(&self.regions);
        if let Some(region) = regions.get(&start) {
            return Some(region.0);
        }
        let (len, protection) = (REGION as usize, ProtFlags::READ | ProtFlags::WRITE);
        // SAFETY: the system chooses a place where nothing is mapped.
        let at =
            unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, &self.file, start) };
        let at = at.ok()?;
        // SAFETY: the range has just been mapped, and the advice changes nothing that is there. It is a wish.
        let _ = unsafe { madvise(at, len, Advice::LinuxHugepage) };
        regions.insert(start, Region(at));
        Some(at)
    }

    /// Copies `bytes` to the file through its mappings; says no if that is not possible.
    fn copy(&self, mut bytes: &[u8], mut offset: u64) -> bool {
        while !bytes.is_empty() {
            let within = offset % REGION;
            let (now, later) = bytes.split_at(bytes.len().min((REGION - within) as usize));
            let Some(region) = self.region(offset - within) else { return false };
            if !self.copy_to(region, now, within as usize) {
                return false;
            }
            bytes = later;
            offset += now.len() as u64;
        }
        true
    }

    /// Copies `bytes`, which fit, to byte `within` of a region.
    fn copy_to(&self, region: *mut c_void, bytes: &[u8], within: usize) -> bool {
        let page = page_size();
        let (first, end) = (within / page * page, within + bytes.len());
        let filling = self.begin_filling();
        // To touch a page for which there is no memory would end the program; this reports it instead. From then on the
        // pages are there: the file is unfinished, and nobody else changes its length.
        // SAFETY: the range is part of the region, and the advice changes nothing that is there.
        let is_there = unsafe {
            madvise(region.byte_add(first), end - first, Advice::LinuxPopulateWrite).is_ok()
        };
        drop(filling);
        if !is_there {
            return false;
        }
        // SAFETY: the range is part of the region, which is mapped and writable; `bytes` is elsewhere. Other threads write to
        // other bytes of the same pages only, and nobody reads them.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), region.cast::<u8>().add(within), bytes.len())
        };
        // Pages that nobody else writes to need not be mapped any more. Unmapping all of them in the end takes one thread long.
        let (first, end) = (within.next_multiple_of(page), end / page * page);
        if first < end {
            // SAFETY: the range is part of the region. The file keeps what has been written.
            let _ = unsafe { madvise(region.byte_add(first), end - first, Advice::LinuxDontNeed) };
        }
        true
    }

    /// Waits until few enough other threads are being given pages.
    fn begin_filling(&self) -> Filling<'_> {
        let mut filling = lock(&self.filling);
        while *filling == MOST_FILLING {
            filling = self.filled.wait(filling).unwrap_or_else(PoisonError::into_inner);
        }
        *filling += 1;
        Filling(self)
    }
}

/// A thread that is being given pages.
struct Filling<'m>(&'m Mapped);

impl Drop for Filling<'_> {
    fn drop(&mut self) {
        *lock(&self.0.filling) -= 1;
        self.0.filled.notify_one();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing can panic between changes that belong together.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl WriteAt for Mapped {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.len() >= LEAST && self.maps.load(Ordering::Relaxed) {
            let end = offset + bytes.len() as u64;
            if self.lengthen(end).is_ok() && self.copy(bytes, offset) {
                return Ok(());
            }
            self.maps.store(false, Ordering::Relaxed);
        }
        // If there is no space, this says so.
        let written = FileExt::write_all_at(&self.file, bytes, offset);
        self.failed.fetch_or(written.is_err(), Ordering::Relaxed);
        written
    }
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_come_to_their_places() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let failed = Arc::default();
        let Some(mapped) = Mapped::new(&file, &failed) else { return };
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
        // Across the end of a region, too.
        let start = REGION - 100_001;
        mapped.write_all_at(&contents[..300_000], start).unwrap();
        let mut back = vec![0; 300_000];
        FileExt::read_exact_at(&file, &mut back, start).unwrap();
        assert!(back == contents[..300_000] && lock(&mapped.regions).len() == 2);
        file.set_len(contents.len() as u64).unwrap();
        let mut back = vec![0; contents.len()];
        FileExt::read_exact_at(&file, &mut back, 0).unwrap();
        assert!(back == contents && file.metadata().unwrap().len() == contents.len() as u64);
    }
}
