//! `load`: decompresses a file into the memory of a device or of the host.

use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pz::access::{ArchiveError, Destination, DeviceBuffer as Buffer};
use pz::{DecodeOptions, SeekableReader};

use crate::archive::open_archive;
use crate::arguments::{Keywords, decode_options};
use crate::device::Place;
use crate::error::{self, raise};
use crate::memory::{DeviceBuffer, Target, imported_after, stream_number, target, wait_for};
use crate::source::Source;

/// Decompresses `source`, a path or a URI, into memory: see `libpz.load`. Returns `out`, or a new buffer if there is
/// none.
#[pyfunction]
#[pyo3(signature = (source, device, start, stop, out, stream, **options))]
#[expect(
    clippy::too_many_arguments,
    reason = "they are those of `libpz.load`, which documents them"
)]
pub fn load<'py>(
    py: Python<'py>,
    source: &Bound<'py, PyAny>,
    device: &str,
    start: Option<u64>,
    stop: Option<u64>,
    out: Option<&Bound<'py, PyAny>>,
    stream: Option<&Bound<'py, PyAny>>,
    options: Option<Keywords<'_, 'py>>,
) -> PyResult<Bound<'py, PyAny>> {
    let options = decode_options(py, options)?;
    let stream = stream_number(stream)?;
    let source = Source::new(py, source)?;
    let place = match out {
        None => Some(Place::new(py, device)?),
        Some(_) => None,
    };
    let mut target = out.map(target).transpose()?;
    let is_on_device = match (&place, &target) {
        (Some(place), _) => !matches!(place, Place::Host),
        (_, Some(Target::Own(buffer))) => !matches!(buffer.get().place(), Place::Host),
        (_, target) => matches!(target, Some(Target::OnDevice(_))),
    };
    let mut contents = match is_on_device {
        true => Contents::for_device(py, &source, &options)?,
        false => Contents::for_host(py, &source, &options)?,
    };
    let len = contents.len;
    let range = start.unwrap_or(0)..stop.unwrap_or(len);
    if range.start > range.end || range.end > len {
        let Range { start, end } = range;
        return Err(raise(py, pz::Error::InvalidRange { start, end, len }));
    }
    let wanted = range.end - range.start;
    if let Some(target) = &mut target {
        let found = target.len();
        if found < wanted {
            return Err(error::buffer_too_small(py, wanted, found));
        }
        if found > wanted {
            let what = format!("the range has {wanted} bytes, and out has {found}");
            return Err(error::buffer(py, what));
        }
    }
    let mut target = match (target, place) {
        (Some(target), _) => target,
        (None, Some(place)) => {
            let memory = place.memory();
            let allocated = py.detach(|| memory.allocate(wanted));
            let buffer = allocated.map_err(|why| error::device(py, place.name(), &why))?;
            Target::Own(Bound::new(py, DeviceBuffer::new(buffer, place))?)
        }
        (None, None) => return Err(PyTypeError::new_err("there is no destination")),
    };
    contents.read_into(py, range, &mut target, stream)?;
    match (out, target) {
        (None, Target::Own(buffer)) => Ok(buffer.into_any()),
        (Some(out), _) => Ok(out.clone()),
        (None, _) => Err(PyTypeError::new_err("there is no destination")),
    }
}

/// The contents of a file, and what reads a range of them into memory, without the interpreter's lock.
struct Contents<'s> {
    source: &'s Source,
    len: u64,
    read: Box<Read<'s>>,
}

type Read<'s> = dyn FnMut(Range<u64>, Destination<'_>) -> Result<(), ArchiveError> + Send + 's;

impl<'s> Contents<'s> {
    /// Opens a file whose contents go to the memory of a device.
    fn for_device(py: Python<'_>, source: &'s Source, options: &DecodeOptions) -> PyResult<Self> {
        let archive = open_archive(py, source, options)?;
        let len = archive.len();
        let read = move |range, destination: Destination<'_>| archive.read_into(range, destination);
        Ok(Self { source, len, read: Box::new(read) })
    }

    /// Opens a file whose contents go to host memory. Decodes them straight into place.
    fn for_host(py: Python<'_>, source: &'s Source, options: &DecodeOptions) -> PyResult<Self> {
        let open = || SeekableReader::open(Arc::clone(&source.file), options);
        let mut reader = py.detach(|| source.reading(open)).map_err(|why| raise(py, why))?;
        let len = reader.len();
        let read = move |range, destination: Destination<'_>| {
            let read = source.reading(|| match destination {
                Destination::Host(mut bytes) => reader.copy_range(range, &mut bytes),
                _ => Err(pz::Error::Internal { what: "a device is loaded without an archive" }),
            });
            let format = |why| ArchiveError::Format { uri: String::new(), error: Arc::new(why) };
            read.map_err(format)
        };
        Ok(Self { source, len, read: Box::new(read) })
    }

    /// Reads a range into `target`.
    fn read_into(
        &mut self,
        py: Python<'_>,
        range: Range<u64>,
        target: &mut Target<'_>,
        stream: Option<u64>,
    ) -> PyResult<()> {
        let read = &mut self.read;
        let done = match target {
            Target::Own(buffer) => {
                let buffer = buffer.get();
                if let (Place::Device(memory, _), Some(stream)) = (buffer.place(), stream) {
                    wait_for(py, memory, buffer.place().name(), stream)?;
                }
                buffer.with(py, |buffer| read(range, destination(buffer)))?
            }
            Target::Output(output) => {
                let bytes = output.bytes();
                py.detach(|| read(range, bytes.into()))
            }
            Target::Tensor(tensor) => {
                // SAFETY: it is writable host memory. As with every buffer, the caller must keep other threads from
                // using it meanwhile.
                let bytes = unsafe { tensor.bytes_mut() };
                py.detach(|| read(range, bytes.into()))
            }
            Target::OnDevice(tensor) => {
                let mut buffer = imported_after(py, tensor, stream)?;
                py.detach(|| read(range, destination(&mut buffer)))
            }
        };
        done.map_err(|why| self.source.archive_error(py, why))
    }
}

/// A buffer as a destination: its bytes if they are in host memory.
fn destination(buffer: &mut Buffer) -> Destination<'_> {
    match buffer.as_bytes().is_some() {
        true => buffer.as_bytes_mut().unwrap_or_default().into(),
        false => buffer.into(),
    }
}
