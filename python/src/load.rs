//! `load`: decompresses a file into the memory of a device or of the host.

use std::ops::Range;
use std::sync::Arc;

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pz::SeekableReader;
use pz::access::{Archive, ArchiveError, DeviceBuffer as Buffer, RangeRead, ReadOptions};

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
    let mut opened = if is_on_device {
        Opened::Archive(Box::new(open_archive(py, &source, &options)?))
    } else {
        let open = || SeekableReader::open(Arc::clone(&source.file), &options);
        let reader = py.detach(|| source.reading(open));
        Opened::Reader(Box::new(reader.map_err(|why| raise(py, why))?), &source)
    };
    let len = opened.len();
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
    fill(py, &source, &mut opened, range, &mut target, stream)?;
    match (out, target) {
        (None, Target::Own(buffer)) => Ok(buffer.into_any()),
        (Some(out), _) => Ok(out.clone()),
        (None, _) => Err(PyTypeError::new_err("there is no destination")),
    }
}

/// The reader of the contents.
enum Opened<'a> {
    Archive(Box<Archive>),
    /// For host memory: decodes straight into place.
    Reader(Box<SeekableReader<pz::ReadAtCursor>>, &'a Source),
}

impl Opened<'_> {
    fn len(&self) -> u64 {
        match self {
            Self::Archive(archive) => archive.len(),
            Self::Reader(reader, _) => reader.len(),
        }
    }

    /// Reads into host memory.
    fn read_host(&mut self, range: Range<u64>, mut bytes: &mut [u8]) -> Result<(), Failure> {
        match self {
            Self::Archive(archive) => archive.read_into(range, bytes).map_err(Failure::Archive),
            Self::Reader(reader, source) => {
                let read = source.reading(|| reader.copy_range(range, &mut bytes));
                read.map_err(Failure::Format)
            }
        }
    }

    fn read_buffer(&mut self, range: Range<u64>, buffer: &mut Buffer) -> Result<(), Failure> {
        if let Some(bytes) = buffer.as_bytes_mut() {
            return self.read_host(range, bytes);
        }
        match self {
            Self::Archive(archive) => {
                let mut read = [RangeRead::new(range, buffer)];
                archive.read(&mut read, &ReadOptions::new()).map_err(Failure::Archive)
            }
            Self::Reader(..) => Err(Failure::Format(pz::Error::Internal {
                what: "a device's buffer is read into without an archive",
            })),
        }
    }
}

enum Failure {
    Format(pz::Error),
    Archive(ArchiveError),
}

fn fill(
    py: Python<'_>,
    source: &Source,
    opened: &mut Opened<'_>,
    range: Range<u64>,
    target: &mut Target<'_>,
    stream: Option<u64>,
) -> PyResult<()> {
    let done = match target {
        Target::Own(buffer) => {
            let buffer = buffer.get();
            if let (Place::Device(memory, _), Some(stream)) = (buffer.place(), stream) {
                wait_for(py, memory, buffer.place().name(), stream)?;
            }
            buffer.with(py, |buffer| opened.read_buffer(range, buffer))?
        }
        Target::Output(output) => {
            let bytes = output.bytes();
            py.detach(|| opened.read_host(range, bytes))
        }
        Target::Tensor(tensor) => {
            // SAFETY: it is writable host memory. As with every buffer, the caller must keep other threads from using
            // it meanwhile.
            let bytes = unsafe { tensor.bytes_mut() };
            py.detach(|| opened.read_host(range, bytes))
        }
        Target::OnDevice(tensor) => {
            let mut buffer = imported_after(py, tensor, stream)?;
            py.detach(|| opened.read_buffer(range, &mut buffer))
        }
    };
    done.map_err(|failure| match failure {
        Failure::Format(why) => raise(py, why),
        Failure::Archive(why) => source.archive_error(py, why),
    })
}
