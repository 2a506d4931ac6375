//! Files that get their names when they are complete, as the program `pz` writes its outputs.

use std::fs::File;
use std::path::PathBuf;

use pyo3::prelude::*;
use pz::internal::output::{Existing, NewFile, Refusal};

use crate::error;
use crate::idle::Exclusive;

/// A new file that replaces the file at `path`. A device, a pipe, or a file that cannot be replaced is written in
/// place. `path` may be a link.
///
/// It is complete only after `finish`. If it is dropped earlier, nothing is left of it, and the file that it would have
/// replaced is unchanged.
#[pyclass(frozen, name = "NewFile", module = "libpz._libpz")]
pub struct PyNewFile {
    file: Exclusive<NewFile>,
    path: PathBuf,
}

#[pymethods]
impl PyNewFile {
    #[new]
    fn new(py: Python<'_>, path: PathBuf) -> PyResult<Self> {
        let made = py.detach(|| NewFile::create(&path, Existing::IsFollowedAndReplaced, None));
        let file = made.map_err(|refusal| raise(py, refusal, &path))?;
        Ok(Self { file: Exclusive::new(file), path })
    }

    /// A new descriptor of the file, which is empty now. The caller closes it.
    fn descriptor(&self, py: Python<'_>) -> PyResult<i64> {
        let opened = self.file.with(py, |file| {
            file.begin()?;
            file.file().try_clone()
        })?;
        descriptor(py, opened.map_err(|error| raise(py, error.into(), &self.path))?)
    }

    /// Give the file its name.
    fn finish(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut file) = self.file.take(py)? else { return Ok(()) };
        let finished = py.detach(|| {
            // It is no error if the file system refuses the mode: the contents are complete.
            let _ = file.set_attributes();
            file.finish()
        });
        finished.map_err(|refusal| raise(py, refusal, &self.path))
    }

    /// Remove the file, if it has no name yet.
    fn discard(&self) {
        self.file.close();
    }
}

#[cfg(unix)]
fn descriptor(_: Python<'_>, file: File) -> PyResult<i64> {
    use std::os::fd::IntoRawFd;
    Ok(file.into_raw_fd().into())
}

#[cfg(windows)]
fn descriptor(py: Python<'_>, file: File) -> PyResult<i64> {
    use std::os::windows::io::IntoRawHandle;
    let handle = file.into_raw_handle() as isize;
    py.import("msvcrt")?.call_method1("open_osfhandle", (handle, 0))?.extract()
}

fn raise(py: Python<'_>, refusal: Refusal, path: &std::path::Path) -> PyErr {
    let error = match refusal {
        Refusal::Io(error) => error,
        Refusal::Exists | Refusal::IsBlockDevice => std::io::ErrorKind::AlreadyExists.into(),
    };
    match path.into_pyobject(py) {
        Ok(path) => error::of_io(py, &error, Some(path.as_any())),
        Err(error) => error,
    }
}
