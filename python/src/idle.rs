//! Contexts that wait for their next use, and what a fork makes of them.
//!
//! Contexts that any call may use wait in an [`Idle`]; one that has a state of its own lies in an [`Exclusive`].
//!
//! A context holds threads and locks. A forked process has a copy of its memory, but not its threads, and a lock that
//! another thread held at that moment stays locked for ever there. So a context is only used, and only dropped, by the
//! process that made it; in any other it is left alone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;
use pz::Gpu;

use crate::error;

/// How many forks lie between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Counts a fork. Python calls this in each new process.
#[pyfunction]
pub fn after_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
    Gpu::forked();
}

/// What tells this process from those that it was forked from.
pub fn process() -> u64 {
    FORKS.load(Ordering::Relaxed)
}

/// A value that only the process that made it uses and drops.
pub struct OfProcess<T> {
    process: u64,
    value: Option<T>,
}

impl<T> OfProcess<T> {
    /// A value of this process.
    pub fn new(value: T) -> Self {
        Self { process: process(), value: Some(value) }
    }

    /// The value; `None` after a fork.
    pub fn into_inner(mut self) -> Option<T> {
        if self.is_ours() { self.value.take() } else { None }
    }

    /// The value, to look at; `None` after a fork.
    pub fn get(&self) -> Option<&T> {
        if self.is_ours() { self.value.as_ref() } else { None }
    }

    fn is_ours(&self) -> bool {
        self.process == process()
    }
}

impl<T> Drop for OfProcess<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.value.take());
        }
    }
}

/// The most contexts that wait. Each may hold threads and tables of its own.
const MAX_IDLE: usize = 8;

/// Contexts that are not in use. Threads that need one at the same time each get one of their own, so none waits for
/// another, and none uses a context in the middle of another's work.
pub struct Idle<T>(Mutex<Vec<OfProcess<T>>>);

impl<T> Idle<T> {
    /// None yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Vec::new()))
    }

    /// One that is not in use; `None` if a new one is needed.
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

    /// The one that was last in use of those that `suits` accepts; `None` if a new one is needed.
    fn take_if(&self, suits: impl Fn(&T) -> bool) -> Option<T> {
        let mut idle = self.lock();
        let at = idle.iter().rposition(|context| context.get().is_some_and(&suits))?;
        idle.remove(at).into_inner()
    }

    /// Keeps a context for its next use. Of too many, the one that has waited longest is dropped.
    pub fn keep(&self, context: T) {
        let mut idle = self.lock();
        let oldest = if idle.len() < MAX_IDLE { None } else { Some(idle.remove(0)) };
        idle.push(OfProcess::new(context));
        drop(idle);
        drop(oldest);
    }

    /// Drops all contexts that are not in use.
    pub fn clear(&self) {
        let idle = std::mem::take(&mut *self.lock());
        drop(idle);
    }

    /// Threads hold this lock only with the interpreter's lock, which is also held to fork. So it is never locked in a
    /// new process.
    fn lock(&self) -> MutexGuard<'_, Vec<OfProcess<T>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// A context that is not in use.
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

    /// Takes the context for good; `None` if that has been done, or if it is the business of the process before a fork.
    pub fn take(&self, py: Python<'_>) -> PyResult<Option<T>> {
        self.enter(py, State::Closed)
    }

    /// Drops the context, or has the call that is using it do so.
    pub fn close(&self) {
        let state = std::mem::replace(&mut *self.lock(), State::Closed);
        drop(state);
    }

    /// Takes the context and leaves `next`; `None` if it is closed.
    fn enter(&self, py: Python<'_>, next: State<T>) -> PyResult<Option<T>> {
        let mut state = self.lock();
        match &*state {
            State::Idle(context) if context.is_ours() => {}
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

    /// As for [`Idle`], no thread waits for this lock.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
