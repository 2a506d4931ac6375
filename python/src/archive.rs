//! Archives: many ranges at once, into any memory.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::pyclass::PyVisit;
use pz::access::{Archive, ArchiveOptions, RangeRead, ReadOptions};

use crate::arguments::{Keywords, decode_options};
use crate::error;
use crate::memory::{Target, imported_after, stream_number, target};
use crate::source::Source;
use crate::traced::Visited;

/// Reads many ranges of a compressed file at once, into any memory.
#[pyclass(frozen, module = "libpz._libpz", name = "Archive")]
pub struct PyArchive {
    archive: Archive,
    source: Source,
    is_closed: AtomicBool,
}

#[pymethods]
impl PyArchive {
    #[new]
    #[pyo3(signature = (source, **options), text_signature = "(source, *, threads=0, max_output=None, max_memory=None, \
        allow_modules=False)")]
    fn new(
        py: Python<'_>,
        source: &Bound<'_, PyAny>,
        options: Option<Keywords<'_, '_>>,
    ) -> PyResult<Self> {
        let options = decode_options(py, options)?;
        let source = Source::new(py, source)?;
        let archive = open_archive(py, &source, &options)?;
        Ok(Self { archive, source, is_closed: AtomicBool::new(false) })
    }

    /// Length of the contents in bytes.
    #[getter]
    fn size(&self) -> PyResult<u64> {
        Ok(self.open()?.len())
    }

    /// Fill each of `parts`. A part is an offset in the contents and the object to fill from there: a tensor, a
    /// writable buffer or a `DeviceBuffer`, none of them twice. Their blocks are read and decoded together.
    #[pyo3(signature = (parts, stream = None))]
    fn read_into(
        &self,
        py: Python<'_>,
        parts: Vec<(u64, Bound<'_, PyAny>)>,
        stream: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let archive = self.open()?;
        let stream = stream_number(stream)?;
        let mut targets = Vec::with_capacity(parts.len());
        let mut imports = Vec::new();
        for (offset, out) in &parts {
            let mut target = target(out)?;
            let len = target.len();
            let buffer = match &target {
                _ if len == 0 => continue,
                Target::OnDevice(tensor) => Some(imported_after(py, tensor, stream)?),
                Target::Own(own) => {
                    let is_same = |(_, other): &(_, Target<'_>)| matches!(other, Target::Own(other) if other.is(own));
                    if targets.iter().any(is_same) {
                        return Err(error::buffer(py, "a buffer is to be filled twice"));
                    }
                    None
                }
                Target::Output(_) | Target::Tensor(_) => None,
            };
            imports.push(buffer);
            targets.push((*offset, target));
        }
        let owns: Vec<_> = targets
            .iter()
            .map(|(_, target)| match target {
                Target::Own(own) => Some(own.clone()),
                _ => None,
            })
            .collect();
        let mut locked = Vec::with_capacity(owns.len());
        for own in &owns {
            locked.push(own.as_ref().map(|own| own.get().lock(py)).transpose()?);
        }
        let mut reads = Vec::with_capacity(targets.len());
        let each = targets.iter_mut().zip(&mut imports).zip(&mut locked);
        for (((offset, target), import), own) in each {
            let range = *offset..offset.saturating_add(target.len());
            reads.push(match (target, import, own) {
                (_, Some(buffer), _) => RangeRead::new(range, buffer),
                (_, _, Some(own)) => RangeRead::new(range, &mut **own),
                (Target::Output(output), ..) => RangeRead::new(range, output.bytes()),
                (Target::Tensor(tensor), ..) => {
                    // SAFETY: it is writable host memory, as `target` has checked.
                    RangeRead::new(range, unsafe { tensor.bytes_mut() })
                }
                (Target::Own(_) | Target::OnDevice(_), ..) => {
                    return Err(PyTypeError::new_err("there is no destination"));
                }
            });
        }
        let reads = Detached(reads);
        let read = py.detach(move || {
            let Detached(mut reads) = reads;
            archive.read(&mut reads, &ReadOptions::new())
        });
        read.map_err(|why| self.source.archive_error(py, why))
    }

    /// Let go of the file. Further reads are errors.
    fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Visited {
        self.source.traverse(&visit)
    }

    fn __clear__(&self) {
        self.source.clear();
    }
}

/// Reads for a call that runs without the interpreter's lock.
struct Detached<'a>(Vec<RangeRead<'a>>);

// SAFETY: the destinations are memory that the calling thread has borrowed until the call returns, and they refer to no
// Python object.
unsafe impl Send for Detached<'_> {}

impl PyArchive {
    fn open(&self) -> PyResult<&Archive> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(error::closed());
        }
        Ok(&self.archive)
    }
}

/// Opens an archive without caches, since no contents are read twice.
pub fn open_archive(
    py: Python<'_>,
    source: &Source,
    options: &pz::DecodeOptions,
) -> PyResult<Archive> {
    let options = ArchiveOptions::new().decode(options).contents_cache(0).payload_cache(0);
    let file = source.for_archive(py)?;
    let archive = py.detach(|| Archive::of_source(file, &options));
    archive.map_err(|why| source.archive_error(py, why))
}
