//! What belongs to one process.
//!
//! A fork copies the memory of a process, but of its threads only the one that forks. In the child, a lock that another
//! thread held stays locked for ever, work given to a pool waits for threads that do not exist, and a connection is the
//! parent's too: each may read the answer to the other's request. So what outlives a call is kept in one of these
//! types, which let no process use, or even drop, what another has made.
//!
//! | type | what the child of a fork gets |
//! |---|---|
//! | [`PerProcess`] | a value of its own, which it makes on first use |
//! | [`Lock`](crate::sync::Lock) | likewise: an unlocked mutex with the default value |
//! | [`OfProcess`] | nothing, so that its user makes a new one or says why it cannot |
//! | [`Owner`] | the knowledge that something is another process's |
//!
//! Calls of `fork` count, in any language. A child that the system call `clone` makes without them is not noticed.

use std::fmt;
use std::mem::{self, ManuallyDrop};
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The process in which a value was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner(u64);

impl Owner {
    /// This process.
    pub fn here() -> Self {
        Self(forks::count())
    }

    /// Whether it is this process, and not one that this process was forked from.
    pub fn is_here(self) -> bool {
        self == Self::here()
    }
}

/// Numbers of processes are no substitute: the system gives the number of an ancestor that has ended to a new process,
/// and each container has a process 1.
#[cfg(unix)]
mod forks {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    /// How many forks lie between this process and the one that counted first.
    static FORKS: AtomicU64 = AtomicU64::new(0);
    static IS_COUNTING: AtomicBool = AtomicBool::new(false);

    extern "C" fn count_one() {
        FORKS.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count() -> u64 {
        // Threads that come at the same time all register the function. Then a fork counts several times, which does no
        // harm, whereas a lock could stay locked in the child.
        if !IS_COUNTING.load(Ordering::Relaxed) {
            // SAFETY: the function may be called in the child of any process: it only adds to a number.
            let code = unsafe { libc::pthread_atfork(None, None, Some(count_one)) };
            assert_eq!(code, 0, "the system has no memory for a handler of forks");
            IS_COUNTING.store(true, Ordering::Relaxed);
        }
        FORKS.load(Ordering::Relaxed)
    }
}

#[cfg(not(unix))]
mod forks {
    pub(super) fn count() -> u64 {
        0
    }
}

/// A value that only the process that made it uses and drops.
pub struct OfProcess<T> {
    owner: Owner,
    value: ManuallyDrop<T>,
}

impl<T> OfProcess<T> {
    /// A value of this process.
    pub fn new(value: T) -> Self {
        Self { owner: Owner::here(), value: ManuallyDrop::new(value) }
    }

    /// Whether this process made the value.
    pub fn is_here(&self) -> bool {
        self.owner.is_here()
    }

    /// The value; `None` after a fork.
    pub fn get(&self) -> Option<&T> {
        self.is_here().then_some(&*self.value)
    }

    /// The value; `None` after a fork.
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.is_here().then_some(&mut *self.value)
    }

    /// The value; `None` after a fork.
    pub fn into_inner(self) -> Option<T> {
        let mut this = ManuallyDrop::new(self);
        // SAFETY: nothing uses or drops the value any more: `this` is not dropped.
        this.is_here().then(|| unsafe { ManuallyDrop::take(&mut this.value) })
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if self.is_here() {
            // SAFETY: the value is used no more.
            unsafe { ManuallyDrop::drop(&mut self.value) }
        }
    }
}

impl<T: fmt::Debug> fmt::Debug for OfProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OfProcess").field(&self.get()).finish()
    }
}

/// A value that each process makes for itself.
///
/// No thread waits for another here: if several make the value at the same time, they all get the one that was ready
/// first.
pub struct PerProcess<T> {
    /// Null, or from [`Box::into_raw`]. Values of other processes stay where they are, because threads may refer to
    /// them.
    newest: AtomicPtr<OfProcess<T>>,
}

impl<T: Send + Sync> PerProcess<T> {
    /// No value yet.
    pub const fn new() -> Self {
        Self { newest: AtomicPtr::new(ptr::null_mut()) }
    }

    /// This process's value, if it has made one.
    pub fn get(&self) -> Option<&T> {
        self.newest()?.get()
    }

    /// This process's value, which `make` makes if there is none.
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        self.get_or_inherit(|_| make())
    }

    /// Likewise, with the value of the process that this one was forked from. Another thread may have been at work on
    /// that value when the process forked.
    pub fn get_or_inherit(&self, make: impl FnOnce(Option<&T>) -> T) -> &T {
        let before = self.newest();
        if let Some(value) = before.and_then(OfProcess::get) {
            return value;
        }
        let own = Box::into_raw(Box::new(OfProcess::new(make(before.map(|other| &*other.value)))));
        let expected = before.map_or(ptr::null_mut(), |other| ptr::from_ref(other).cast_mut());
        match self.newest.compare_exchange(expected, own, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: it came from a box, and stays until this is dropped.
            Ok(_) => unsafe { &(*own).value },
            Err(first) => {
                // SAFETY: no other thread has seen it.
                drop(unsafe { Box::from_raw(own) });
                // SAFETY: another thread of this process has put it there, and it stays until this is dropped.
                unsafe { &(*first).value }
            }
        }
    }

    /// Whether a process that this one was forked from made a value, and this process has not.
    pub fn is_elsewhere(&self) -> bool {
        self.newest().is_some_and(|value| !value.is_here())
    }

    fn newest(&self) -> Option<&OfProcess<T>> {
        // SAFETY: it is null or came from a box, and stays until this is dropped.
        unsafe { self.newest.load(Ordering::Acquire).as_ref() }
    }
}

impl<T: Send + Sync> Default for PerProcess<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// A process starts with the value that it made itself.
impl<T: Send + Sync> From<T> for PerProcess<T> {
    fn from(value: T) -> Self {
        Self { newest: AtomicPtr::new(Box::into_raw(Box::new(OfProcess::new(value)))) }
    }
}

impl<T> Drop for PerProcess<T> {
    fn drop(&mut self) {
        let newest = mem::replace(self.newest.get_mut(), ptr::null_mut());
        if !newest.is_null() {
            // SAFETY: it came from a box, and nothing refers to it any more.
            drop(unsafe { Box::from_raw(newest) });
        }
    }
}

impl<T: fmt::Debug + Send + Sync> fmt::Debug for PerProcess<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PerProcess").field(&self.get()).finish()
    }
}

#[cfg(all(test, unix))]
mod tests;
