//! A file in memory that several threads write to.
//!
//! The system writes to a file for one thread at a time. In a file system in memory, where writing is no more than copying
//! to fresh pages, that is slower than decoding. Pages that are mapped can be filled by several threads.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pz::WriteAt;
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, munmap};

/// The number by which the system knows its file system in memory.
const TMPFS: i64 = 0x0102_1994;

/// Less is written as it is.
const LEAST: usize = 256 << 10;

/// Mappings begin at multiples of this: no system has larger pages.
const ALIGNMENT: u64 = 64 << 10;

/// A file of a file system in memory.
pub struct Mapped {
    file: File,
    /// Its length.
    len: Mutex<u64>,
    /// Whether pages can be mapped and filled.
    maps: AtomicBool,
    failed: Arc<AtomicBool>,
}

impl Mapped {
    /// `file`, which is empty, if it is in memory. What goes wrong is noted in `failed`.
    pub fn new(file: &File, failed: &Arc<AtomicBool>) -> Option<Self> {
        let kind = rustix::fs::fstatfs(file).ok()?.f_type;
        #[allow(clippy::unnecessary_cast, reason = "its type depends on the system")]
        if kind as i64 != TMPFS {
            return None;
        }
        let (file, failed) = (file.try_clone().ok()?, Arc::clone(failed));
        Some(Self { file, len: Mutex::new(0), maps: AtomicBool::new(true), failed })
    }

    /// Makes the file at least so long.
    fn lengthen(&self, end: u64) -> io::Result<()> {
        let mut len = self.len.lock().unwrap_or_else(PoisonError::into_inner);
        if *len < end {
            self.file.set_len(end)?;
            *len = end;
        }
        Ok(())
    }

    /// Copies `bytes` to the file through a mapping; says no if that is not possible.
    fn map(&self, bytes: &[u8], offset: u64) -> bool {
        let start = offset / ALIGNMENT * ALIGNMENT;
        let before = (offset - start) as usize;
        let len = before + bytes.len();
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: the system chooses a place where nothing is mapped.
        let mapped =
            unsafe { mmap(ptr::null_mut(), len, protection, MapFlags::SHARED, &self.file, start) };
        let Ok(at) = mapped else { return false };
        // To touch a page for which there is no memory would end the program; this reports it instead. From then on the
        // pages are there: the file is unfinished, and nobody else changes its length.
        // SAFETY: the range has just been mapped, and the advice changes nothing that is there.
        let is_there = unsafe { madvise(at, len, Advice::LinuxPopulateWrite) }.is_ok();
        if is_there {
            // SAFETY: the range is mapped and writable, and long enough; it is new, so that `bytes` is elsewhere. Other
            // threads write to other bytes of the same pages only, and nobody reads them.
            unsafe {
                ptr::copy_nonoverlapping(bytes.as_ptr(), at.cast::<u8>().add(before), bytes.len())
            };
        }
        // SAFETY: the range has been mapped above, and nothing refers to it any more.
        let unmapped = unsafe { munmap(at, len) };
        is_there && unmapped.is_ok()
    }
}

impl WriteAt for Mapped {
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        if bytes.len() >= LEAST && self.maps.load(Ordering::Relaxed) {
            let end = offset + bytes.len() as u64;
            if self.lengthen(end).is_ok() && self.map(bytes, offset) {
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
        let mut back = vec![0; contents.len()];
        FileExt::read_exact_at(&file, &mut back, 0).unwrap();
        assert!(back == contents && file.metadata().unwrap().len() == contents.len() as u64);
    }
}
