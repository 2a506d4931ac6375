use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::thread;

use super::*;
use crate::sync::Lock;

/// Does `work` in a forked process, and tells whether it returned true.
fn in_child(work: impl FnOnce() -> bool) -> bool {
    // SAFETY: the child calls nothing that a lock of another thread's could stop, and ends without handlers.
    match unsafe { libc::fork() } {
        -1 => panic!("the system refuses a process"),
        0 => {
            let is_right = work();
            // SAFETY: it takes no pointer.
            unsafe { libc::_exit(i32::from(!is_right)) }
        }
        child => {
            let mut status = -1;
            // SAFETY: there is room for the status.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            status == 0
        }
    }
}

/// Counts its drops.
struct Dropped<'a>(&'a AtomicU32);

impl Drop for Dropped<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn each_process_makes_its_own_value() {
    let drops = AtomicU32::new(0);
    let slot = PerProcess::new();
    assert!(slot.get().is_none() && !slot.is_elsewhere());
    slot.get_or_init(|| (1, Dropped(&drops)));
    assert!(in_child(|| {
        let is_empty = slot.get().is_none() && slot.is_elsewhere();
        let own = slot.get_or_inherit(|before| (before.map_or(0, |(n, _)| n + 1), Dropped(&drops)));
        let is_own = own.0 == 2 && !slot.is_elsewhere();
        // A child of the child.
        let is_passed_on = in_child(|| {
            slot.get_or_inherit(|before| (before.unwrap().0 + 1, Dropped(&drops))).0 == 3
        });
        drop(slot);
        is_empty && is_own && is_passed_on && drops.load(Ordering::Relaxed) == 1
    }));
}

#[test]
fn values_stay_with_the_process_that_made_them() {
    let drops = AtomicU32::new(0);
    let owner = Owner::here();
    let mut value = OfProcess::new(Dropped(&drops));
    let other = OfProcess::new(Dropped(&drops));
    assert!(in_child(|| {
        let is_gone = value.get().is_none() && value.get_mut().is_none() && !owner.is_here();
        drop(value);
        is_gone && other.into_inner().is_none() && drops.load(Ordering::Relaxed) == 0
    }));
}

#[test]
fn a_lock_that_a_thread_holds_is_free_in_the_child() {
    let lock = Lock::<u32>::new();
    let (is_held, held) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let lock = &lock;
        scope.spawn(move || {
            let mut value = lock.lock();
            *value = 7;
            is_held.send(()).unwrap();
            let _ = ended.recv();
        });
        held.recv().unwrap();
        assert!(in_child(|| *lock.lock() == 0));
        drop(end);
    });
    assert_eq!(*lock.lock(), 7);
}

#[test]
fn threads_that_come_together_get_one_value() {
    for _ in 0..200 {
        let slot = PerProcess::new();
        let seen: Vec<usize> = thread::scope(|scope| {
            let threads: Vec<_> = (0..4)
                .map(|number| {
                    scope.spawn({
                        let slot = &slot;
                        move || *slot.get_or_init(|| number)
                    })
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(seen.iter().all(|value| *value == seen[0]), "{seen:?}");
    }
}
