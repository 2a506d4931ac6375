//! A part of a tmpfs file, mapped at an address where its pages can be huge.

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::ptr;

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap, mmap_anonymous, munmap};
use rustix::param::page_size;

/// Bytes of a huge page. On systems with another size, requests for one are refused.
pub const HUGE_PAGE: u64 = 2 << 20;

/// [`Region::LEN`] bytes of a file, mapped.
pub struct Region {
    at: *mut c_void,
    /// The reserved range of addresses around it.
    reserved: (*mut c_void, usize),
}

// SAFETY: it is a range of memory that any thread may use.
unsafe impl Send for Region {}
// SAFETY: likewise; the callers see to it that no two threads write the same bytes.
unsafe impl Sync for Region {}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: it was mapped with this length, and no reference to it is left: `copy` borrows the region.
        let _ = unsafe { munmap(self.reserved.0, self.reserved.1) };
    }
}

impl Region {
    /// Bytes of a region. Mapping and unmapping smaller parts would stall all threads that touch other parts.
    pub const LEN: u64 = 1 << 30;

    /// Maps `file` from byte `start`, a multiple of [`LEN`](Self::LEN). The file may end before the region does.
    pub fn new(file: &File, start: u64) -> io::Result<Self> {
        let (len, huge) = (Self::LEN as usize, HUGE_PAGE as usize);
        // A huge page needs an address that is a multiple of its size.
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: the system chooses addresses where nothing is mapped.
        let all =
            unsafe { mmap_anonymous(ptr::null_mut(), len + huge, ProtFlags::empty(), flags)? };
        let at = all.map_addr(|address| address.next_multiple_of(huge));
        let region = Self { at, reserved: (all, len + huge) };
        let (protection, flags) =
            (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED | MapFlags::FIXED);
        // SAFETY: the addresses are part of the range just reserved.
        unsafe { mmap(region.at, len, protection, flags, file, start)? };
        // SAFETY: the range has just been mapped, and the advice changes none of its bytes. A refusal does no harm.
        let _ = unsafe { madvise(region.at, len, Advice::LinuxHugepage) };
        Ok(region)
    }

    /// Allocates pages for a range. Touching a page for which there is no memory would end the program with a
    /// signal; this returns an error instead. The pages then stay: the file is unfinished, and no program truncates
    /// it.
    pub fn populate(&self, range: Range<usize>) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= Self::LEN as usize);
        let first = range.start / page_size() * page_size();
        // SAFETY: the range is part of the region, and the advice changes nothing that is there.
        unsafe {
            madvise(self.at.byte_add(first), range.end - first, Advice::LinuxPopulateWrite)?;
        }
        Ok(())
    }

    /// Copies `bytes` to offset `within`. [`populate`](Self::populate) must have allocated the pages.
    pub fn copy(&self, bytes: &[u8], within: usize) {
        assert!(within + bytes.len() <= Self::LEN as usize);
        // SAFETY: the range is part of the region, which is mapped and writable; `bytes` lies elsewhere. Other
        // threads write only other bytes of the same pages, and no thread reads them.
        unsafe {
            ptr::copy_nonoverlapping(bytes.as_ptr(), self.at.cast::<u8>().add(within), bytes.len())
        };
        // Unmap the pages that only this call writes. Unmapping them all at the end would keep one thread busy for
        // long.
        let end = (within + bytes.len()) / page_size() * page_size();
        let first = within.next_multiple_of(page_size());
        if first < end {
            // SAFETY: the range is part of the region. The file keeps what has been written.
            let _ = unsafe { madvise(self.at.byte_add(first), end - first, Advice::LinuxDontNeed) };
        }
    }

    /// Replaces the pages of a range by huge ones. The range begins and ends at boundaries of huge pages. No other
    /// thread may write there meanwhile.
    pub fn collapse(&self, range: Range<usize>) -> io::Result<()> {
        assert!(range.start <= range.end && range.end <= Self::LEN as usize);
        // The kernel only replaces pages that exist.
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

/// `MADV_COLLAPSE`, since Linux 6.1. It gives huge pages even where tmpfs is not mounted with `huge=`.
const COLLAPSE: libc::c_int = 25;
