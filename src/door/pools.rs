//! The pools in host memory and in device memory that hold the contents for kernels.

use std::sync::Arc;

use crate::access::{Archive, DeviceBuffer, DeviceSliceMut, RangeRead, ReadOptions};
use crate::door::files::OpenFile;
use crate::door::options::RequestError;
use crate::gpu::device::visible::{Extents, PoolChunk, VisiblePool};
use crate::gpu::device::{DeviceError, Queue};
use crate::sync::Mutex;

/// The pools of a door.
pub(super) struct ContentPools {
    pub(super) host: Arc<VisiblePool>,
    pub(super) device: Option<Arc<DevicePool>>,
    /// Longer contents go to device memory, if there is any.
    pub(super) small: u64,
}

/// Device memory for contents.
pub(super) struct DevicePool {
    buffer: DeviceBuffer,
    extents: Mutex<Extents>,
}

impl DevicePool {
    pub(super) fn new(buffer: DeviceBuffer) -> Self {
        let extents = Mutex::new(Extents::new(buffer.len()));
        Self { buffer, extents }
    }

    pub(super) fn buffer(&self) -> &DeviceBuffer {
        &self.buffer
    }

    /// `len` bytes from byte `start` on, which are a room's.
    pub(super) fn part(&self, start: u64, len: u64) -> Option<DeviceSliceMut<'_>> {
        self.buffer.part(start..start.checked_add(len)?)
    }
}

/// A part of the device's memory, given back when dropped.
pub(super) struct DeviceChunk {
    pool: Arc<DevicePool>,
    start: u64,
    len: u64,
}

impl Drop for DeviceChunk {
    fn drop(&mut self) {
        self.pool.extents.lock().give_back(self.start, self.len);
    }
}

/// Memory for the contents of one request.
pub(super) enum ContentBuffer {
    Host(PoolChunk),
    Device(DeviceChunk),
}

impl ContentPools {
    /// Whether contents of `bytes` bytes go to device memory, if there is any.
    pub(super) fn is_long(&self, bytes: u64) -> bool {
        bytes > self.small
    }

    /// Takes memory for contents of `bytes` bytes, in pieces of up to `piece` bytes.
    pub(super) fn take(&self, bytes: u64, piece: u64) -> Option<ContentBuffer> {
        match &self.device {
            Some(pool) if self.is_long(piece) => {
                let start = pool.extents.lock().take(bytes)?;
                Some(ContentBuffer::Device(DeviceChunk {
                    pool: Arc::clone(pool),
                    start,
                    len: bytes,
                }))
            }
            _ => self.take_on_host(bytes),
        }
    }

    /// Takes host memory.
    pub(super) fn take_on_host(&self, bytes: u64) -> Option<ContentBuffer> {
        self.host.take(bytes).map(ContentBuffer::Host)
    }

    /// Free bytes of both pools.
    pub(super) fn free_bytes(&self) -> u64 {
        let device = self.device.as_ref().map_or(0, |pool| pool.extents.lock().free_bytes());
        self.host.free_bytes() + device
    }
}

impl ContentBuffer {
    pub(super) fn is_on_device(&self) -> bool {
        matches!(self, Self::Device(_))
    }

    /// The room's place in its pool, and 1 if the pool is in device memory.
    pub(super) fn place(&self) -> (u64, u32) {
        match self {
            Self::Host(chunk) => (chunk.start(), 0),
            Self::Device(chunk) => (chunk.start, 1),
        }
    }

    /// Divides it into parts of `bytes` bytes, a multiple of [`Extents::UNIT`]; the last one may be shorter.
    pub(super) fn split(self, bytes: u64) -> Vec<Self> {
        match self {
            Self::Host(chunk) => chunk.split(bytes).into_iter().map(Self::Host).collect(),
            Self::Device(chunk) => {
                let (pool, start, end) =
                    (Arc::clone(&chunk.pool), chunk.start, chunk.start + chunk.len);
                // The parts are given back one by one.
                std::mem::forget(chunk);
                let part = |start| {
                    Self::Device(DeviceChunk {
                        pool: Arc::clone(&pool),
                        start,
                        len: bytes.min(end - start),
                    })
                };
                (start..end).step_by(bytes.max(1) as usize).map(part).collect()
            }
        }
    }
}

/// Copies a thread's reads to the device.
pub(super) struct Uploader<'d> {
    queue: Box<dyn Queue + 'd>,
}

/// Bytes that are copied to the device at once.
const STAGED: u64 = 1 << 20;

impl<'d> Uploader<'d> {
    /// Makes an uploader to `pool`, and allocates everything now: later, pinning memory might wait for a running
    /// kernel.
    pub(super) fn new(
        mut queue: Box<dyn Queue + 'd>,
        pool: &DevicePool,
    ) -> Result<Self, DeviceError> {
        if let Some((id, first)) = pool.buffer.on() {
            queue.write_with(id, first, (4, STAGED as usize), &mut |piece| piece.fill(0))?;
            queue.finish()?;
            queue.set_pinned_is_fixed(true);
        }
        Ok(Self { queue })
    }

    fn upload(
        &mut self,
        chunk: &DeviceChunk,
        len: u64,
        mut fill: impl FnMut(u64, &mut [u8]) -> Result<(), RequestError>,
    ) -> Result<(), RequestError> {
        let failed = |_: DeviceError| RequestError::Failed;
        let Some((id, first)) = chunk.pool.buffer.on() else { return Err(RequestError::Failed) };
        let (mut done, mut filled) = (0, Ok(()));
        while done < len && filled.is_ok() {
            let now = (len - done).min(STAGED) as usize;
            let at = first + chunk.start + done;
            let bytes = (now.next_multiple_of(4), STAGED as usize);
            let written = self.queue.write_with(id, at, bytes, &mut |piece| {
                let (piece, padding) = piece.split_at_mut(now);
                padding.fill(0);
                filled = fill(done, piece);
                if filled.is_err() {
                    // The kernel must not see earlier contents.
                    piece.fill(0);
                }
            });
            written.map_err(failed)?;
            done += now as u64;
        }
        // A kernel reads the contents as soon as their status is ready.
        self.queue.finish().map_err(failed)?;
        filled
    }
}

/// Fills `room` with `len` bytes of a plain file.
pub(super) fn load_plain(
    file: &OpenFile,
    offset: u64,
    len: u64,
    buffer: &mut ContentBuffer,
    uploader: Option<&mut Uploader<'_>>,
) -> Result<(), RequestError> {
    match (buffer, uploader) {
        (ContentBuffer::Host(chunk), _) => file.read(offset, chunk.bytes_mut(0..len as usize)),
        (ContentBuffer::Device(chunk), Some(uploader)) => {
            uploader.upload(chunk, len, |at, piece| file.read(offset + at, piece))
        }
        (ContentBuffer::Device(_), None) => Err(RequestError::Failed),
    }
}

/// Fills a room in device memory with a range of an archive's contents that the CPU decodes.
pub(super) fn load_decoded(
    file: &OpenFile,
    archive: &Archive,
    offset: u64,
    len: u64,
    buffer: &mut ContentBuffer,
    uploader: Option<&mut Uploader<'_>>,
) -> Result<(), RequestError> {
    let (ContentBuffer::Device(chunk), Some(uploader)) = (buffer, uploader) else {
        return Err(RequestError::Failed);
    };
    uploader.upload(chunk, len, |at, piece| {
        let start = offset + at;
        let range = start..start + piece.len() as u64;
        archive.read_into(range, piece).map_err(|error| file.noted(error.into()))
    })
}

/// A range of an archive's contents, and the room for it.
pub(super) struct Load<'r> {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) buffer: &'r mut ContentBuffer,
}

/// Fills rooms with ranges of an archive's contents, all together.
pub(super) fn load_contents(
    file: &OpenFile,
    archive: &Archive,
    loads: &mut [Load<'_>],
) -> Result<(), RequestError> {
    // Decoding reads what it has decoded, so it is not done where reading is slow.
    let aside = |load: &Load<'_>| match &load.buffer {
        ContentBuffer::Host(chunk) if chunk.is_slow_to_read() => vec![0; load.len as usize],
        _ => Vec::new(),
    };
    let mut aside: Vec<_> = loads.iter().map(aside).collect();
    let mut reads = Vec::with_capacity(loads.len());
    for (Load { offset, len, buffer }, aside) in loads.iter_mut().zip(&mut aside) {
        let end = offset.checked_add(*len).ok_or(RequestError::Range)?;
        let range = *offset..end;
        reads.push(match buffer {
            ContentBuffer::Host(chunk) if chunk.is_slow_to_read() => {
                RangeRead::new(range, &mut aside[..])
            }
            ContentBuffer::Host(chunk) => RangeRead::new(range, chunk.bytes_mut(0..*len as usize)),
            ContentBuffer::Device(chunk) => {
                let part = chunk.pool.part(chunk.start, *len);
                RangeRead::new(range, part.ok_or(RequestError::Failed)?)
            }
        });
    }
    let read = archive.read(&mut reads, &ReadOptions::new());
    read.map_err(|error| file.noted(error.into()))?;
    drop(reads);
    for (Load { buffer, .. }, aside) in loads.iter().zip(aside) {
        if let ContentBuffer::Host(chunk) = buffer {
            chunk.write(0, &aside);
        }
    }
    Ok(())
}
