//! Buffers between host memory and device memory. The queue keeps them, and maps each again as soon as the device has
//! finished with it.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::{DeviceError, WebGpuDevice};
use crate::gpu::device::STAGING;
use crate::gpu::device::deadline::Deadline;

/// Size of an upload buffer in bytes. While the host fills one, the device copies the earlier ones.
const UPLOAD: u64 = 4 << 20;
/// The most upload buffers.
const UPLOADS: usize = 4;
/// The same for uploads of whole batches ([`Queue::write_with`](super::Queue::write_with)). A copy waits for the
/// kernels of all earlier batches, and with fewer buffers the host would wait too.
const UPLOADS_OF_BATCHES: usize = 16;
/// The largest download buffer in bytes.
pub(super) const DOWNLOAD: u64 = 4 << 20;

const _: () = assert!(UPLOADS as u64 * UPLOAD + 2 * DOWNLOAD <= STAGING, "two downloads at once");

/// A mapped buffer and how much of it is in use.
struct UploadChunk {
    buffer: wgpu::Buffer,
    used: u64,
}

/// Upload buffers.
pub(super) struct Uploads {
    /// The buffer that is being filled.
    open: Option<UploadChunk>,
    /// Filled buffers whose commands have not been submitted.
    full: Vec<wgpu::Buffer>,
    mapped: Vec<wgpu::Buffer>,
    /// The number of upload buffers, in any state.
    count: usize,
    /// The limit for `count`.
    most: usize,
    sender: Sender<Option<wgpu::Buffer>>,
    back: Receiver<Option<wgpu::Buffer>>,
}

impl Uploads {
    pub(super) fn new() -> Self {
        let (sender, back) = channel();
        Self {
            open: None,
            full: Vec::new(),
            mapped: Vec::new(),
            count: 0,
            most: UPLOADS,
            sender,
            back,
        }
    }

    /// Raises the limit to the needs of whole batches.
    pub(super) fn allow_batches(&mut self) {
        self.most = UPLOADS_OF_BATCHES;
    }

    /// Copies at most `bytes` bytes of `parts` into a mapped buffer, beginning with `part`, which keeps the rest.
    /// Returns the buffer, the offset in it and the number of bytes, or `None` if a submitted copy must end first.
    pub(super) fn put<'p>(
        &mut self,
        device: &WebGpuDevice,
        part: &mut &'p [u8],
        parts: &mut impl Iterator<Item = &'p [u8]>,
        bytes: u64,
    ) -> Result<Option<(wgpu::Buffer, u64, u64)>, DeviceError> {
        if self.open.is_none() {
            let Some(buffer) = self.take(device)? else { return Ok(None) };
            self.open = Some(UploadChunk { buffer, used: 0 });
        }
        let Some(chunk) = &mut self.open else { return Ok(None) };
        let at = chunk.used;
        let bytes = bytes.min(UPLOAD - at);
        let buffer = chunk.buffer.clone();
        let range = at..at + bytes;
        let mut view = buffer.get_mapped_range_mut(range).map_err(failed)?;
        let mut filled = 0;
        while filled < bytes as usize {
            if part.is_empty() {
                *part = parts.next().unwrap_or_default();
                continue;
            }
            let (now, later) = part.split_at(part.len().min(bytes as usize - filled));
            view.slice(filled..filled + now.len()).copy_from_slice(now);
            filled += now.len();
            *part = later;
        }
        drop(view);
        chunk.used = (at + bytes).next_multiple_of(wgpu::MAP_ALIGNMENT);
        if chunk.used >= UPLOAD {
            self.close();
        }
        Ok(Some((buffer, at, bytes)))
    }

    /// Whether a buffer has been filled since the last submission.
    pub(super) fn is_full(&self) -> bool {
        !self.full.is_empty()
    }

    fn take(&mut self, device: &WebGpuDevice) -> Result<Option<wgpu::Buffer>, DeviceError> {
        while let Ok(back) = self.back.try_recv() {
            match back {
                Some(buffer) => self.mapped.push(buffer),
                None => self.count -= 1,
            }
        }
        if let Some(buffer) = self.mapped.pop() {
            return Ok(Some(buffer));
        }
        if self.count == self.most {
            return Ok(None);
        }
        let made = device.scoped(UPLOAD, || {
            device.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: UPLOAD,
                usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: true,
            })
        });
        // Out of memory, but earlier buffers will come back: wait for one of them.
        if self.count >= UPLOADS && matches!(made, Err(DeviceError::OutOfMemory { .. })) {
            return Ok(None);
        }
        let buffer = made?;
        self.count += 1;
        Ok(Some(buffer))
    }

    fn close(&mut self) {
        self.full.extend(self.open.take().map(|chunk| chunk.buffer));
    }

    /// Unmaps the filled buffers. Call this before submitting the commands that read them: the device may not use a
    /// mapped buffer.
    pub(super) fn unmap(&mut self) {
        self.close();
        for buffer in &self.full {
            buffer.unmap();
        }
    }

    /// Maps the buffers again once the submitted commands have ended. Call this after submitting them.
    pub(super) fn recall(&mut self) {
        for buffer in self.full.drain(..) {
            let recalled = Recalled { sender: self.sender.clone(), mapped: None };
            let again = buffer.clone();
            buffer.map_async(wgpu::MapMode::Write, .., move |result| {
                recalled.send(result.ok().map(|()| again));
            });
        }
    }
}

/// Sends a buffer back once it is mapped, and `None` if wgpu fails to map it or drops the callback.
struct Recalled {
    sender: Sender<Option<wgpu::Buffer>>,
    mapped: Option<wgpu::Buffer>,
}

impl Recalled {
    fn send(mut self, mapped: Option<wgpu::Buffer>) {
        self.mapped = mapped;
    }
}

impl Drop for Recalled {
    fn drop(&mut self) {
        // If the queue is gone, so is the buffer.
        let _ = self.sender.send(self.mapped.take());
    }
}

/// A buffer for downloads.
pub(super) struct Download {
    buffer: wgpu::Buffer,
    mapped: Option<Receiver<bool>>,
}

impl Download {
    pub(super) fn new(device: &WebGpuDevice, bytes: u64) -> Result<Self, DeviceError> {
        let size = bytes.next_power_of_two().clamp(4096, DOWNLOAD);
        let buffer = device.scoped(size, || {
            device.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size,
                usage: wgpu::BufferUsages::MAP_READ | wgpu::BufferUsages::COPY_DST,
                mapped_at_creation: false,
            })
        })?;
        Ok(Self { buffer, mapped: None })
    }

    pub(super) fn buffer(&self) -> &wgpu::Buffer {
        &self.buffer
    }

    /// Starts mapping the buffer. Call this after submitting the copy to it.
    pub(super) fn map(&mut self, device: &WebGpuDevice, bytes: u64) -> Result<(), DeviceError> {
        let (sender, receiver) = channel();
        device.scoped(bytes, || {
            self.buffer.map_async(wgpu::MapMode::Read, ..bytes, move |result| {
                // The waiting thread may have given up.
                let _ = sender.send(result.is_ok());
            });
        })?;
        self.mapped = Some(receiver);
        Ok(())
    }

    /// Waits for the copy and passes its bytes to `use_bytes`.
    pub(super) fn read(
        &mut self,
        device: &WebGpuDevice,
        submission: wgpu::SubmissionIndex,
        bytes: u64,
        until: Deadline,
        use_bytes: impl FnOnce(&[u8]),
    ) -> Result<(), DeviceError> {
        let Some(mapped) = self.mapped.take() else { return Err(failed("nothing is mapped")) };
        device.wait(Some(submission), until)?;
        // Another thread's wait may deliver this mapping: soon, but perhaps not yet.
        let is_mapped = loop {
            match mapped.recv_timeout(Duration::from_millis(20)) {
                Ok(is_mapped) => break is_mapped,
                // wgpu has dropped the callback: the mapping itself tells whether it exists.
                Err(RecvTimeoutError::Disconnected) => break true,
                Err(RecvTimeoutError::Timeout) => device.wait(None, until)?,
            }
        };
        if !is_mapped {
            device.alive()?;
            return Err(failed("a buffer for reading could not be mapped"));
        }
        let view = self.buffer.get_mapped_range(..bytes).map_err(failed)?;
        use_bytes(&view);
        drop(view);
        self.buffer.unmap();
        Ok(())
    }
}

fn failed(what: impl ToString) -> DeviceError {
    DeviceError::Failed(what.to_string())
}
