//! A file in memory that several threads write to.
//!
//! The system writes to a file for one thread at a time. In a file system in memory, where writing is no more than copying
//! to fresh pages, that is slower than decoding. Pages that are mapped can be filled by several threads; but they are given
//! out one after the other, under one lock. So huge ones are asked for, where that is no slower: each is 512 of the others.

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

use huge_pages::HugePages;
use region::Region;

/// The number by which the system knows its file system in memory.
const TMPFS: i64 = 0x0102_1994;

/// Less is written as it is.
const LEAST: usize = 256 << 10;

/// Threads that are given small pages at a time: the system counts a file's pages under one lock, and more wait for each
/// other.
const MOST_FILLING: usize = 4;

/// A file of a file system in memory.
pub struct Mapped {
    file: File,
    /// Its length, which may be more than has been written.
    len: Mutex<u64>,
    /// What is mapped of it, by where that begins.
    regions: Mutex<BTreeMap<u64, Arc<Region>>>,
    huge_pages: HugePages,
    /// Threads that are being given pages.
    filling: Mutex<usize>,
    filled: Condvar,
    /// Whether pages can be mapped and filled.
    maps: AtomicBool,
    failed: Arc<AtomicBool>,
}

impl Mapped {
    /// `file`, which is empty, if it is in memory. It will be `len` bytes long, if that is known; if not, it may get longer
    /// than what is written, and is to be cut. What goes wrong is noted in `failed`.
    pub fn new(file: &File, len: Option<u64>, failed: &Arc<AtomicBool>) -> Option<Self> {
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
            huge_pages: HugePages::new(len),
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

    /// The region that begins at byte `start`.
    fn region(&self, start: u64) -> io::Result<Arc<Region>> {
        let mut regions = lock(&self.regions);
        if let Some(region) = regions.get(&start) {
            return Ok(Arc::clone(region));
        }
        let region = Arc::new(Region::new(&self.file, start)?);
        regions.insert(start, Arc::clone(&region));
        Ok(region)
    }

    /// The parts of `range` that lie in different regions, each with its place in its own.
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

    /// Gets huge pages for `range`, which consists of whole ones. Nobody else may write there meanwhile.
    fn collapse(&self, range: Range<u64>) -> io::Result<()> {
        self.lengthen(range.end)?;
        for part in self.parts(range) {
            let (region, within) = part?;
            region.collapse(within)?;
        }
        Ok(())
    }

    /// Copies `bytes` to the file through its mappings.
    fn copy(&self, mut bytes: &[u8], range: Range<u64>) -> io::Result<()> {
        self.lengthen(range.end)?;
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
        let range = offset..offset + bytes.len() as u64;
        let maps = || self.maps.load(Ordering::Relaxed);
        let ask = |range| maps() && self.collapse(range).is_ok();
        self.huge_pages.before_writing(&range, ask);
        if bytes.len() >= LEAST && maps() {
            if self.copy(bytes, range.clone()).is_ok() {
                self.huge_pages.after_writing(range.end, ask);
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
        let Some(mapped) = Mapped::new(&file, Some(5_000_001), &failed) else { return };
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
        // Across the end of a region, and behind where the file was to end, too.
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
    fn huge_pages_hold_what_small_ones_do() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return };
        let failed = Arc::default();
        let Some(mapped) = Mapped::new(&file, None, &failed) else { return };
        // Behind the bytes from which on they are asked for; in parts that do not end with pages, by two threads.
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
        // What they replace stays.
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
