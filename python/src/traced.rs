//! References to Python objects that Python's garbage collector sees, so that it collects cycles through them.

use std::sync::{Mutex, PoisonError};

use pyo3::exceptions::PyBaseException;
use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};

/// What a `__traverse__` returns.
pub type Visited = Result<(), PyTraverseError>;

/// A reference that the garbage collector may take away. One Python object, the owner, shows it to the collector. The
/// reference itself may lie deep inside the owner, behind an `Arc`.
pub struct Traced<T>(Mutex<Option<Py<T>>>);

impl<T> Traced<T> {
    /// A reference to `object`.
    pub fn new(object: Option<Py<T>>) -> Self {
        Self(Mutex::new(object))
    }

    /// The object, unless there is none or the collector has taken it.
    pub fn get(&self, py: Python<'_>) -> Option<Py<T>> {
        let object = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        object.as_ref().map(|object| object.clone_ref(py))
    }

    /// Refers to `object` from now on.
    pub fn set(&self, object: Option<Py<T>>) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, object);
        drop(place);
        // Dropping an object may run any Python code.
        drop(old);
    }

    /// Shows the reference to the garbage collector. Threads hold the lock only with the interpreter's lock, which the
    /// collector's thread has now.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Visited {
        match self.0.try_lock() {
            Ok(object) => visit.call(&*object),
            Err(_) => Ok(()),
        }
    }

    /// Gives the object up, for the garbage collector.
    pub fn clear(&self) {
        self.set(None);
    }
}

/// The exception after which a file is of no more use.
pub struct FirstFailure(Traced<PyBaseException>);

impl FirstFailure {
    /// None yet.
    pub fn none() -> Self {
        Self(Traced::new(None))
    }

    /// What to raise for `error`. The first is kept. Later ones only say that there was a first, so a copy of that is
    /// raised instead, which has it as its cause: who waits for exceptions of one kind, such as those of a file object
    /// of theirs, mostly catches what closing the file raises.
    pub fn raised(&self, py: Python<'_>, error: PyErr) -> PyErr {
        let Some(first) = self.0.get(py) else {
            self.0.set(Some(error.value(py).clone().unbind()));
            return error;
        };
        let copy = || py.import("copy")?.call_method1("copy", (&first,));
        let copy = copy().and_then(|copy| Ok(copy.cast_into::<PyBaseException>()?));
        let again = copy.map_or(error, |copy| PyErr::from_value(copy.into_any()));
        again.set_cause(py, Some(PyErr::from_value(first.into_bound(py).into_any())));
        again
    }

    /// As for [`Traced`].
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Visited {
        self.0.traverse(visit)
    }

    /// As for [`Traced`].
    pub fn clear(&self) {
        self.0.clear();
    }
}
