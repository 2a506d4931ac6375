//! The last resort when the system refuses memory.
//!
//! The library and the program report a refused large buffer as an error. That leaves small requests of the
//! standard library and of other crates, for which Rust aborts the process. So when the system refuses a small
//! request, this allocator ends the program: it removes unfinished files, prints one line, and exits with code 1.
//! The caller learns that a large request was refused. If the caller aborts, the standard library prints its own
//! line, and our handler of the signal cleans up.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, Ordering};

/// Requests of at least this many bytes may fail.
const LARGE: usize = 1 << 20;

/// Whether the system has refused memory.
static REFUSED: AtomicBool = AtomicBool::new(false);

/// The system's allocator, except that it ends the program when a small request is refused.
pub struct Allocator;

// SAFETY: every call goes to the system's allocator, and its answer goes back unchanged.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same for the system's allocator.
        checked(unsafe { System.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same for the system's allocator.
        checked(unsafe { System.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: the caller keeps the contract, which is the same for the system's allocator.
        checked(unsafe { System.realloc(old, layout, len) }, len)
    }

    unsafe fn dealloc(&self, old: *mut u8, layout: Layout) {
        // SAFETY: the caller keeps the contract, which is the same for the system's allocator.
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

/// Remembers that the system has refused memory, so that an abort is recognised as its consequence.
pub fn note() {
    REFUSED.store(true, Ordering::Relaxed);
}

/// From now on, an abort for lack of memory leaves no unfinished file and exits with code 1.
pub fn watch() {
    #[cfg(unix)]
    {
        let handle = || {
            if REFUSED.load(Ordering::Relaxed) {
                leave();
            }
        };
        // SAFETY: the handler reads an atomic, tries a lock without waiting for it, calls unlink, and exits without
        // running destructors. A path that is too long for the stack is copied to the heap; if there is no memory
        // for it, the signal is raised again and ends the process, as it would have done.
        let _ = unsafe { signal_hook::low_level::register(signal_hook::consts::SIGABRT, handle) };
    }
}

/// Ends the program from inside the allocator, so it must not allocate.
#[cfg(unix)]
fn end() -> ! {
    use std::cell::Cell;
    use std::os::fd::AsFd;

    thread_local! {
        static IS_ENDING: Cell<bool> = const { Cell::new(false) };
    }
    static ENDING: AtomicBool = AtomicBool::new(false);
    // Removing a file with a long name allocates, and may bring us back here.
    if IS_ENDING.replace(true) {
        signal_hook::low_level::exit(1);
    }
    while ENDING.swap(true, Ordering::AcqRel) {
        // The first thread that came here ends the process.
        std::thread::sleep(std::time::Duration::from_secs(1));
    }
    let _ = rustix::io::write(std::io::stderr().as_fd(), b"pz: the system refused memory\n");
    leave()
}

#[cfg(unix)]
fn leave() -> ! {
    pz::internal::output::try_remove_all();
    signal_hook::low_level::exit(1)
}
