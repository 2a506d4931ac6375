//! Buffers in the memory of a device, or of the host.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use super::{Core, DeviceMemory};
use crate::gpu::device::{BufferId, DeviceError, NativeBuffer};
use crate::pipeline::buffer::zeroed;

/// A buffer that archives can be read into: see [`DeviceMemory`].
pub struct DeviceBuffer {
    memory: DeviceMemory,
    pub(super) place: Place,
    len: u64,
}

pub(super) enum Place {
    Host(Vec<u8>),
    Device {
        buffer: Arc<OnDevice>,
        /// Where the caller's bytes begin.
        start: u64,
    },
}

/// A buffer of a device, freed when dropped. A buffer of the caller's is only forgotten then.
pub(in crate::access) struct OnDevice {
    core: Arc<Core>,
    id: BufferId,
    /// Where the caller's bytes end.
    end: u64,
}

impl OnDevice {
    pub(super) fn new(core: Arc<Core>, id: BufferId, end: u64) -> Self {
        Self { core, id, end }
    }

    pub(super) fn core(&self) -> &Arc<Core> {
        &self.core
    }

    pub(in crate::access) fn end(&self) -> u64 {
        self.end
    }

    pub(in crate::access) fn id(&self) -> BufferId {
        self.id
    }
}

impl Drop for OnDevice {
    fn drop(&mut self) {
        self.core.device().free(self.id);
    }
}

impl DeviceBuffer {
    pub(super) fn on_host(memory: DeviceMemory, bytes: u64) -> Result<Self, DeviceError> {
        let no_memory = |_| DeviceError::OutOfMemory { bytes };
        let len = usize::try_from(bytes).map_err(|_| DeviceError::OutOfMemory { bytes })?;
        Ok(Self { memory, place: Place::Host(zeroed(len).map_err(no_memory)?), len: bytes })
    }

    pub(super) fn on_device(memory: DeviceMemory, buffer: OnDevice, start: u64, len: u64) -> Self {
        Self { memory, place: Place::Device { buffer: Arc::new(buffer), start }, len }
    }

    /// The `len` bytes of `buffer` from `start` on, beside those who use the buffer already.
    pub(super) fn view(
        memory: &DeviceMemory,
        buffer: &Arc<OnDevice>,
        start: u64,
        len: u64,
    ) -> Self {
        let place = Place::Device { buffer: Arc::clone(buffer), start };
        Self { memory: memory.clone(), place, len }
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The memory that it is in.
    pub fn memory(&self) -> &DeviceMemory {
        &self.memory
    }

    /// The bytes, if they are in host memory.
    pub fn as_bytes(&self) -> Option<&[u8]> {
        match &self.place {
            Place::Host(bytes) => Some(bytes),
            Place::Device { .. } => None,
        }
    }

    /// The bytes, if they are in host memory, to write to.
    pub fn as_bytes_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.place {
            Place::Host(bytes) => Some(bytes),
            Place::Device { .. } => None,
        }
    }

    /// The buffer as its interface knows it, for callers with their own code there; valid while `self` lives. CUDA's address
    /// is that of the first byte. `None` for host memory.
    pub fn native(&self) -> Option<NativeBuffer> {
        let Place::Device { buffer, start } = &self.place else { return None };
        match self.memory.device()?.export(buffer.id)? {
            NativeBuffer::Cuda { address, .. } => {
                Some(NativeBuffer::Cuda { address: address + start, bytes: self.len })
            }
            native => Some(native),
        }
    }

    /// A part of the buffer as a destination; `None` if the range does not lie within the buffer.
    pub fn slice_mut(&mut self, range: Range<u64>) -> Option<DeviceSliceMut<'_>> {
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let (_, rest) = DeviceSliceMut::from(self).split_at_mut(range.start)?;
        Some(rest.split_at_mut(range.end - range.start)?.0)
    }

    /// The device's buffer, and where the caller's bytes begin in it; `None` for host memory.
    pub(crate) fn on(&self) -> Option<(BufferId, u64)> {
        match &self.place {
            Place::Host(_) => None,
            Place::Device { buffer, start } => Some((buffer.id, *start)),
        }
    }

    /// A part of a device's buffer as a destination, besides others that are being written; `None` for host memory, or if the
    /// range does not lie within the buffer. The caller sees to it that parts which are written at once do not overlap.
    pub(crate) fn part(&self, range: Range<u64>) -> Option<DeviceSliceMut<'_>> {
        let Place::Device { buffer, start } = &self.place else { return None };
        if range.start > range.end || range.end > self.len {
            return None;
        }
        let place = SlicePlace::Device { memory: &self.memory, buffer, start: start + range.start };
        Some(DeviceSliceMut { place, len: range.end - range.start })
    }

    /// A new buffer in the same memory, with the same bytes.
    ///
    /// # Errors
    /// Fails if there is too little memory, or if the device does.
    pub fn try_clone(&self) -> Result<Self, DeviceError> {
        let mut copy = self.memory.allocate(self.len)?;
        // A device copies whole words.
        let mut copied = 0;
        if let (Some((from, start)), Some((to, _))) = (self.on(), copy.on())
            && let Place::Device { buffer, .. } = &self.place
            && start % 4 == 0
            && self.len >= 4
        {
            copied = self.len & !3;
            let mut queue = buffer.core.device().queue()?;
            queue.copy((from, start), (to, 0), copied)?;
            queue.finish()?;
        }
        match self.as_bytes() {
            Some(bytes) => copy.copy_from_host(0, bytes)?,
            None => {
                let mut rest = zeroed((self.len - copied) as usize)
                    .map_err(|_| DeviceError::OutOfMemory { bytes: self.len })?;
                self.copy_to_host(copied, &mut rest)?;
                copy.copy_from_host(copied, &rest)?;
            }
        }
        Ok(copy)
    }

    /// Copies bytes from `offset` on to the host.
    ///
    /// # Errors
    /// [`DeviceError::Unsupported`] if there are not so many; otherwise if the device fails.
    pub fn copy_to_host(&self, offset: u64, into: &mut [u8]) -> Result<(), DeviceError> {
        self.check(offset, into.len())?;
        let (buffer, start) = match &self.place {
            Place::Host(bytes) => {
                into.copy_from_slice(&bytes[offset as usize..][..into.len()]);
                return Ok(());
            }
            Place::Device { buffer, start } => (buffer, start),
        };
        let (from, end) = (start + offset, start + offset + into.len() as u64);
        let (aligned, skipped) = (from & !3, (from % 4) as usize);
        let mut at = 0;
        let wanted = skipped..skipped + into.len();
        let mut queue = buffer.core.device().queue()?;
        queue.read_with(buffer.id, aligned, end.next_multiple_of(4) - aligned, &mut |piece| {
            let (first, last) = (wanted.start.max(at), wanted.end.min(at + piece.len()));
            if first < last {
                into[first - skipped..last - skipped]
                    .copy_from_slice(&piece[first - at..last - at]);
            }
            at += piece.len();
        })
    }

    /// Copies bytes of the host to the buffer, from `offset` on.
    ///
    /// # Errors
    /// As for [`Self::copy_to_host`].
    pub fn copy_from_host(&mut self, offset: u64, from: &[u8]) -> Result<(), DeviceError> {
        self.check(offset, from.len())?;
        if from.is_empty() {
            return Ok(());
        }
        let (buffer, start) = match &mut self.place {
            Place::Host(bytes) => {
                bytes[offset as usize..][..from.len()].copy_from_slice(from);
                return Ok(());
            }
            Place::Device { buffer, start } => (buffer, *start),
        };
        let (begin, end) = (start + offset, start + offset + from.len() as u64);
        let aligned = begin & !3..end.next_multiple_of(4);
        let mut queue = buffer.core.device().queue()?;
        // A device copies whole words. Those at the ends keep their other bytes.
        let (mut first, mut last) = ([0; 4], [0; 4]);
        let (before, after) = ((begin - aligned.start) as usize, (aligned.end - end) as usize);
        if before > 0 {
            queue.read(buffer.id, aligned.start, &mut first)?;
        }
        if after > 0 {
            queue.read(buffer.id, aligned.end - 4, &mut last)?;
        }
        let parts = [&first[..before], from, &last[4 - after..]];
        queue.write_parts(buffer.id, aligned.start, &parts)?;
        queue.finish()
    }

    fn check(&self, offset: u64, len: usize) -> Result<(), DeviceError> {
        if offset.checked_add(len as u64).is_some_and(|end| end <= self.len) {
            return Ok(());
        }
        let all = self.len;
        Err(DeviceError::Unsupported(format!(
            "{len} bytes from byte {offset} on are not within a buffer of {all} bytes"
        )))
    }
}

impl fmt::Debug for DeviceBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceBuffer({} bytes of {:?})", self.len, self.memory)
    }
}

/// A part of a [`DeviceBuffer`], as a destination.
pub struct DeviceSliceMut<'a> {
    pub(in crate::access) place: SlicePlace<'a>,
    len: u64,
}

pub(in crate::access) enum SlicePlace<'a> {
    Host(&'a mut [u8]),
    Device {
        memory: &'a DeviceMemory,
        buffer: &'a Arc<OnDevice>,
        /// Offset in the buffer of the device.
        start: u64,
    },
}

impl<'a> From<&'a mut DeviceBuffer> for DeviceSliceMut<'a> {
    fn from(buffer: &'a mut DeviceBuffer) -> Self {
        let DeviceBuffer { memory, place, len } = buffer;
        let place = match place {
            Place::Host(bytes) => SlicePlace::Host(bytes),
            Place::Device { buffer, start } => SlicePlace::Device { memory, buffer, start: *start },
        };
        Self { place, len: *len }
    }
}

impl DeviceSliceMut<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Divides it at a byte; `None` if it is shorter than that.
    pub fn split_at_mut(self, mid: u64) -> Option<(Self, Self)> {
        let rest = self.len.checked_sub(mid)?;
        let (first, second) = match self.place {
            SlicePlace::Host(bytes) => {
                let (first, second) = bytes.split_at_mut_checked(mid as usize)?;
                (SlicePlace::Host(first), SlicePlace::Host(second))
            }
            SlicePlace::Device { memory, buffer, start } => (
                SlicePlace::Device { memory, buffer, start },
                SlicePlace::Device { memory, buffer, start: start + mid },
            ),
        };
        Some((Self { place: first, len: mid }, Self { place: second, len: rest }))
    }
}

impl fmt::Debug for DeviceSliceMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DeviceSliceMut({} bytes)", self.len)
    }
}
