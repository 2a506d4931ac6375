//! Buffers between the host's memory and the device's. They are mapped again as soon as the device is done with them,
//! and are kept by their queue.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use super::{DeviceError, WebGpuDevice};
use crate::gpu::deadline::Deadline;
use crate::gpu::device::STAGING;

/// Bytes of a buffer for uploads. As one fills up, those before it are on their way.
const UPLOAD: u64 = 4 << 20;
/// Most buffers for uploads.
const UPLOADS: usize = 4;
/// Most bytes of a buffer for downloads.
pub(super) const DOWNLOAD: u64 = 4 << 20;

const _: () = assert!(UPLOADS as u64 * UPLOAD + 2 * DOWNLOAD <= STAGING, "two downloads at once");

/// A mapped buffer and how much of it is taken.
struct Chunk {
    buffer: wgpu::Buffer,
    used: u64,
}

/// Space for what is to be written to the device.
pub(super) struct Uploads {
    /// The one that is being filled.
    open: Option<Chunk>,
    /// Filled, but used by commands that have not been submitted.
    full: Vec<wgpu::Buffer>,
    mapped: Vec<wgpu::Buffer>,
    /// Number of all of them.
    count: usize,
    sender: Sender<Option<wgpu::Buffer>>,
    back: Receiver<Option<wgpu::Buffer>>,
}

impl Uploads {
    pub(super) fn new() -> Self {
        let (sender, back) = channel();
        Self { open: None, full: Vec::new(), mapped: Vec::new(), count: 0, sender, back }
    }

    /// Copies the beginning of what `parts` give into a mapped buffer: `part` first, which is left with what there was no
    /// room for, and at most `bytes` bytes. Gives the buffer, the place in it and the number of bytes, or `None` if a
    /// submitted copy has to end first.
    pub(super) fn put<'p>(
        &mut self,
        device: &WebGpuDevice,
        part: &mut &'p [u8],
        parts: &mut impl Iterator<Item = &'p [u8]>,
        bytes: u64,
    ) -> Result<Option<(wgpu::Buffer, u64, u64)>, DeviceError> {
        if self.open.is_none() {
            let Some(buffer) = self.take(device)? else { return Ok(None) };
            self.open = Some(Chunk { buffer, used: 0 });
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
        if self.count == UPLOADS {
            return Ok(None);
        }
        let buffer = device.scoped(UPLOAD, || {
            device.device.create_buffer(&wgpu::BufferDescriptor {
                label: None,
                size: UPLOAD,
                usage: wgpu::BufferUsages::MAP_WRITE | wgpu::BufferUsages::COPY_SRC,
                mapped_at_creation: true,
            })
        })?;
        self.count += 1;
        Ok(Some(buffer))
    }

    fn close(&mut self) {
        self.full.extend(self.open.take().map(|chunk| chunk.buffer));
    }

    /// Before the commands are submitted that read what has been put: the device may not use what is mapped.
    pub(super) fn unmap(&mut self) {
        self.close();
        for buffer in &self.full {
            buffer.unmap();
        }
    }

    /// After they have been submitted: what has been put comes back when they have ended.
    pub(super) fn recall(&mut self) {
        for buffer in self.full.drain(..) {
            let (sender, again) = (self.sender.clone(), buffer.clone());
            buffer.map_async(wgpu::MapMode::Write, .., move |result| {
                // The queue may be gone: then so is the buffer.
                let _ = sender.send(result.ok().map(|()| again));
            });
        }
    }
}

/// A buffer for what is read from the device.
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

    /// After the copy to it has been submitted.
    pub(super) fn map(&mut self, device: &WebGpuDevice, bytes: u64) -> Result<(), DeviceError> {
        let (sender, receiver) = channel();
        device.scoped(bytes, || {
            self.buffer.map_async(wgpu::MapMode::Read, ..bytes, move |result| {
                // Whoever waited may have given up.
                let _ = sender.send(result.is_ok());
            });
        })?;
        self.mapped = Some(receiver);
        Ok(())
    }

    /// Waits for the copy and gives its bytes to `use_bytes`.
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
        // Another thread's wait may be the one that reports the mapping: it does so at once, but perhaps not yet.
        let is_mapped = loop {
            match mapped.recv_timeout(Duration::from_millis(20)) {
                Ok(is_mapped) => break is_mapped,
                Err(RecvTimeoutError::Disconnected) => break false,
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
