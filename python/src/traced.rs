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

    /// Replaces the reference by one to `object`.
    pub fn set(&self, object: Option<Py<T>>) {
        let mut place = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let old = std::mem::replace(&mut *place, object);
        drop(place);
        // Dropping an object may run any Python code.
        drop(old);
    }

    /// Shows the reference to the garbage collector. Threads hold the lock only while they hold the interpreter's lock,
    /// which the collector's thread holds now.
    pub fn traverse(&self, visit: &PyVisit<'_>) -> Visited {
        match self.0.try_lock() {
            Ok(object) => visit.call(&*object),
            Err(_) => Ok(()),
        }
    }

    /// Drops the reference, for the garbage collector.
    pub fn clear(&self) {
        self.set(None);
    }
}

/// The exception that made a file unusable.
pub struct FirstFailure(Traced<PyBaseException>);

impl FirstFailure {
    /// No exception so far.
    pub fn none() -> Self {
        Self(Traced::new(None))
    }

    /// The exception to raise for `error`. Keeps the first exception. Later errors only say that there was an earlier
    /// one, so this raises a copy of the first, with the first as its cause. That helps callers who expect one kind of
    /// exception, such as that of their file object: they usually catch what closing the file raises.
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
