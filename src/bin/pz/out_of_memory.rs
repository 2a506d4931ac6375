//! The last resort when the system refuses memory.
//!
//! The library reports large buffers that it does not get as errors, and so do we. What remains are small requests, of the
//! standard library and of other crates, which Rust lets abort the process. Here the allocator itself ends the program if a
//! small request is refused: it removes unfinished files, prints one line, and exits with code 1. A refused large request
//! goes back to whoever made it. If that aborts, the standard library has printed its line, and the signal's handler does
//! the rest.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

/// Requests of at least so many bytes may fail.
const LARGE: usize = 1 << 20;

/// Whether the system has refused memory.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The system's allocator, but small requests do not fail: they end the program.
pub struct Allocator;

// SAFETY: all is passed on to the system's allocator, and its answer is passed back.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same.
        checked(unsafe { System.realloc(old, layout, len) }, len)
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, which is the same.
        unsafe { System.dealloc(old, layout) }
    }
}

#[inline(always)]
fn checked(memory: *mut u8, len: usize) -> *mut u8 {
    if memory.is_null() {
        refused(len);
    }
    memory
}

#[cold]
fn refused(len: usize) {
    note();
    #[cfg(unix)]
    if len < LARGE {
        end();
    }
    #[cfg(not(unix))]
    let _ = (len, LARGE);
}

/// Remembers that the system has refused memory, so that an abort is taken for what it is.
pub fn note() {
    REFUSED.store(true, Ordering::Relaxed);
}

/// From now on an abort because of memory leaves no unfinished file, and the exit code is 1.
pub fn watch() {
    #[cfg(unix)]
    {
        let handle = || {
            if REFUSED.load(Ordering::Relaxed) {
                leave();
            }
        };
        // SAFETY: the handler reads an atomic, tries a lock without waiting for it, calls unlink, and exits without running
        // anybody's destructors. A path that is too long for the stack is copied to memory; if there is none, the signal
        // comes back and ends the process, as it would have done.
        let _ = unsafe { signal_hook::low_level::register(signal_hook::consts::SIGABRT, handle) };
    }
}

/// Ends the program, in the middle of an allocation: nothing may be allocated.
#[cfg(unix)]
fn end() -> ! {
    use std::cell::Cell;
    use std::os::fd::AsFd;

    thread_local! {
        static IS_ENDING: Cell<bool> = const { Cell::new(false) };
    }
    static ENDING: AtomicBool = AtomicBool::new(false);
    // To remove a file with a long name takes memory.
    if IS_ENDING.replace(true) {
        signal_hook::low_level::exit(1);
    }
    while ENDING.swap(true, Ordering::AcqRel) {
        // The thread that came first ends the process.
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    let _ = rustix::io::write(std::io::stderr().as_fd(), b"pz: the system refused memory\n");
    leave()
}

#[cfg(unix)]
fn leave() -> ! {
    crate::cleanup::try_remove_all();
    signal_hook::low_level::exit(1)
}
