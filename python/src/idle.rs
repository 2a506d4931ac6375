//! Contexts that wait for their next use, and their handling after a fork.
//!
//! Contexts that any call may use wait in an [`Idle`]. A context with a state of its own lies in an [`Exclusive`].
//!
//! A context holds threads and locks, so only the process that made it uses and drops it. In a forked child, an `Idle`
//! is empty, and the context of an `Exclusive` is out of reach.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pz::internal::process::{Lock, OfProcess};

use crate::error;

/// The most waiting contexts. Each may hold threads and tables of its own.
const MAX_IDLE: usize = 8;

/// Contexts that are not in use. Each thread that needs one at the same time gets its own, so no thread waits for
/// another, or uses a context in the middle of another's work.
pub struct Idle<T>(Lock<Vec<T>>);

impl<T: Send> Idle<T> {
    /// Makes an empty list.
    pub const fn new() -> Self {
        Self(Lock::new())
    }

    /// Takes a context that is not in use; `None` if the caller needs a new one.
    pub fn take(&self) -> Option<T> {
        self.take_if(|_| true)
    }

    /// Does `work` with a context that `suits` accepts, or with one that `make` makes, and keeps it for its next use.
    pub fn with<R, E>(
        &self,
        suits: impl Fn(&T) -> bool,
        make: impl FnOnce() -> Result<T, E>,
        work: impl FnOnce(&mut T) -> R,
    ) -> Result<R, E> {
        let mut context = match self.take_if(suits) {
            Some(context) => context,
            None => make()?,
        };
        let result = work(&mut context);
        self.keep(context);
        Ok(result)
    }

    /// Takes the last used context that `suits` accepts; `None` if the caller needs a new one.
    fn take_if(&self, suits: impl Fn(&T) -> bool) -> Option<T> {
        let mut idle = self.0.lock();
        let at = idle.iter().rposition(suits)?;
        Some(idle.remove(at))
    }

    /// Keeps a context for its next use. If there are too many, drops the one that has waited longest.
    pub fn keep(&self, context: T) {
        let mut idle = self.0.lock();
        let oldest = if idle.len() < MAX_IDLE { None } else { Some(idle.remove(0)) };
        idle.push(context);
        drop(idle);
        drop(oldest);
    }

    /// Drops all contexts that are not in use.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut *self.0.lock());
        drop(idle);
    }
}

/// A context that one call at a time uses.
pub struct Exclusive<T>(Mutex<State<T>>);

enum State<T> {
    Idle(OfProcess<T>),
    InUse,
    Closed,
}

impl<T: Send> Exclusive<T> {
    /// Holds a context that is not in use.
    pub fn new(context: T) -> Self {
        Self(Mutex::new(State::Idle(OfProcess::new(context))))
    }

    /// Works with the context, without the interpreter's lock.
    pub fn with<R: Send>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut T) -> R + Send,
    ) -> PyResult<R> {
        let Some(mut context) = self.enter(py, State::InUse)? else {
            return Err(error::closed());
        };
        let result = py.detach(|| work(&mut context));
        let mut state = self.lock();
        // It may have been closed meanwhile.
        if matches!(*state, State::InUse) {
            *state = State::Idle(OfProcess::new(context));
        }
        Ok(result)
    }

    /// Takes the context for good; `None` if that has happened before, or if the parent process made the context.
    pub fn take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        self.enter(py, State::Closed)
    }

    /// Drops the context. If a call is using it, that call drops it.
    pub fn close(&self) {
        let state = std::mem::replace(&mut *self.lock(), State::Closed);
        drop(state);
    }

    /// Takes the context and leaves `next`; `None` if it is closed.
    fn enter(&self, py: Python<'_>, next: State<T>) -> PyResult<Option<T>> {
        let mut state = self.lock();
        match &*state {
            State::Idle(context) if context.is_here() => {}
            State::Closed => return Ok(None),
            State::Idle(_) if matches!(next, State::Closed) => return Ok(None),
            State::Idle(_) => return Err(error::in_use(py, "the file was opened before a fork")),
            State::InUse => return Err(error::in_use(py, "the file is in use")),
        }
        match std::mem::replace(&mut *state, next) {
            State::Idle(context) => Ok(context.into_inner()),
            State::InUse | State::Closed => Ok(None),
        }
    }

    /// Threads hold this lock only while they hold the interpreter's lock, and so does a thread that forks. So no
    /// thread waits for this lock, and it is never locked in a new process.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
