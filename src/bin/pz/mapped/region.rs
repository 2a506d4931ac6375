//! Part of a file in memory, mapped where its pages may be huge.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;

/// Bytes of a huge page. Where it is another number, asking for one is refused.
pub const HUGE_PAGE: u64 = 2 << 20;

/// [`Region::LEN`] bytes of a file, mapped.
pub struct Region {
    at: *mut c_void,
    /// What is reserved around it.
    reserved: (*mut c_void, usize),
}

// SAFETY: it is a place in memory that any thread may refer to.
unsafe impl Send for Region {}
// SAFETY: likewise; who writes where is agreed upon by those who do.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it has been mapped with this length, and nothing refers to it any more: parts are copied to while it is
        // borrowed.
        let _ = unsafe { munmap(self.reserved.0, self.reserved.1) };
    }
}

impl Region {
    /// Bytes that are mapped at once: to map and unmap each part for itself holds up all threads that touch others.
    pub const LEN: u64 = 1 << 30;

    /// Maps `file` from byte `start` on, a multiple of [`LEN`](Self::LEN). It may end before.
    pub fn new(file: &File, start: u64) -> io::Result<Self> {
        let (len, huge) = (Self::LEN as usize, HUGE_PAGE as usize);
        // Huge pages need an address that is a multiple of theirs.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the system chooses a place where nothing is mapped.
        let all =
            unsafe { mmap_anonymous(ptr::null_mut(), len + huge, ProtFlags::empty(), flags)? };
        let at = all.map_addr(|address| address.next_multiple_of(huge));
        let region = Self { at, reserved: (all, len + huge) };
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the place is part of what has just been reserved.
        unsafe { mmap(region.at, len, protection, flags, file, start)? };
        // SAFETY: the range has just been mapped, and the advice changes nothing that is there. It is a wish.
        let _ = unsafe { madvise(region.at, len, Advice::LinuxHugepage) };
        Ok(region)
    }

    /// Makes sure that there are pages for a range. To touch a page for which there is no memory would end the program;
    /// this reports it instead. From then on the pages are there: the file is unfinished, and nobody makes it shorter.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= Self::LEN as usize);
        let first = range.start / page_size() * page_size();
        // SAFETY: the range is part of the region, and the advice changes nothing that is there.
        unsafe {
            madvise(self.at.byte_add(first), range.end - first, Advice::LinuxPopulateWrite)?;
        }
        Ok(())
    }

    /// Copies `bytes` to byte `within` and what follows, for which there are [pages](Self::populate).
    pub fn copy(&self, bytes: &[u8], within: usize) {
        assert!(within + bytes.len() <= Self::LEN as usize);
        // SAFETY: the range is part of the region, which is mapped and writable; `bytes` is elsewhere. Other threads write to
        // other bytes of the same pages only, and nobody reads them.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.cast::<u8>().add(within), bytes.len())
        };
        // Pages that nobody else writes to need not be mapped any more. Unmapping all of them in the end takes one thread long.
        let end = (within + bytes.len()) / page_size() * page_size();
        let first = within.next_multiple_of(page_size());
        if first < end {
            // SAFETY: the range is part of the region. The file keeps what has been written.
            let _ = unsafe { madvise(self.at.byte_add(first), end - first, Advice::LinuxDontNeed) };
        }
    }

    /// Puts huge pages in place of whatever there is of a range, which consists of whole ones. Nobody else may write there
    /// meanwhile.
    pub fn collapse(&self, range: Range<usize>) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= Self::LEN as usize);
        // The system puts them only where there is something.
        for first in range.clone().step_by(HUGE_PAGE as usize) {
            self.populate(first..first + 1)?;
        }
        let at = self.at.wrapping_byte_add(range.start);
        // SAFETY: the range is part of the region, and the advice changes nothing that is there.
        if unsafe { libc::madvise(at, range.len(), COLLAPSE) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: likewise. The file keeps its pages.
        unsafe { madvise(at, range.len(), Advice::LinuxDontNeed)? };
        Ok(())
    }
}

/// `MADV_COLLAPSE`, since Linux 6.1. It does for a file system in memory what being mounted with `huge=` does.
const COLLAPSE: libc::c_int = 25;
