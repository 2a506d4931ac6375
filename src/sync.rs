//! Locks that stay usable after a panic, and [`Lock`], which also stays usable after a fork.
//!
//! The standard library poisons a lock whose holder panics, so that the next one notices. Nothing here needs that: a
//! panicking task is caught and reported where it ran, and no lock is held while contents are only half changed. So
//! these locks hand out their guards as they are.

use std::fmt;
use std::sync::{self, MutexGuard, PoisonError, RwLockReadGuard, TryLockError};
use std::time::Duration;

use crate::process::PerProcess;

/// [`std::sync::Mutex`] without poison.
#[derive(Debug, Default)]
pub(crate) struct Mutex<T: ?Sized>(sync::Mutex<T>);

impl<T> Mutex<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::Mutex::new(value))
    }

    pub(crate) fn into_inner(self) -> T {
        self.0.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: ?Sized> Mutex<T> {
    pub(crate) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The guard, unless another thread holds it.
    pub(crate) fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        match self.0.try_lock() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

/// A mutex that no fork leaves locked.
pub struct Lock<T>(PerProcess<Mutex<T>>);

impl<T: Default + Send> Lock<T> {
    /// A mutex with the default value.
    pub const fn new() -> Self {
        Self(PerProcess::new())
    }

    /// Waits for the other threads of this process.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.0.get_or_init(Mutex::default).lock()
    }

    /// The guard, unless another thread of this process holds it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.0.get_or_init(Mutex::default).try_lock()
    }
}

impl<T: Default + Send> Default for Lock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: fmt::Debug + Send> fmt::Debug for Lock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// [`std::sync::Condvar`] without poison.
#[derive(Debug, Default)]
pub(crate) struct Condvar(sync::Condvar);

impl Condvar {
    pub(crate) const fn new() -> Self {
        Self(sync::Condvar::new())
    }

    pub(crate) fn notify_one(&self) {
        self.0.notify_one();
    }

    pub(crate) fn notify_all(&self) {
        self.0.notify_all();
    }

    pub(crate) fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.0.wait(guard).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits while `condition` holds.
    pub(crate) fn wait_while<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        self.0.wait_while(guard, condition).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for at most `timeout`; tells whether it has passed.
    pub(crate) fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, bool) {
        let (guard, result) =
            self.0.wait_timeout(guard, timeout).unwrap_or_else(PoisonError::into_inner);
        (guard, result.timed_out())
    }
}

/// [`std::sync::RwLock`] without poison.
#[derive(Debug, Default)]
pub(crate) struct RwLock<T: ?Sized>(sync::RwLock<T>);

impl<T> RwLock<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self(sync::RwLock::new(value))
    }
}

impl<T: ?Sized> RwLock<T> {
    /// A guard to read, unless another thread writes.
    pub(crate) fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        match self.0.try_read() {
            Ok(guard) => Some(guard),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, T> {
        self.0.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn write(&self) -> sync::RwLockWriteGuard<'_, T> {
        self.0.write().unwrap_or_else(PoisonError::into_inner)
    }
}
