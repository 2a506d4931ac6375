//! Where ranges of an archive go.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use crate::access::device::{BufferHandle, BufferPlace, DeviceBuffer, DeviceSliceMut, Workers};

/// Where a range of an archive goes.
#[non_exhaustive]
pub enum Destination<'a> {
    /// Host memory.
    Host(&'a mut [u8]),
    /// A part of a [`DeviceBuffer`], in the memory of a device or of the host.
    Device(DeviceSliceMut<'a>),
}

impl Destination<'_> {
    /// Length in bytes.
    pub fn len(&self) -> u64 {
        match self {
            Self::Host(bytes) => bytes.len() as u64,
            Self::Device(slice) => slice.len(),
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes, if they are in host memory.
    pub(super) fn on_host(&mut self) -> Option<&mut [u8]> {
        match self {
            Self::Host(bytes)
            | Self::Device(DeviceSliceMut { place: BufferPlace::Host(bytes), .. }) => Some(bytes),
            Self::Device(_) => None,
        }
    }

    /// The device's workers, its buffer, and the destination's offset there; `None` for host memory.
    pub(super) fn on_device(&self) -> Option<(&Arc<Workers>, &Arc<BufferHandle>, u64)> {
        match self {
            Self::Host(_) => None,
            Self::Device(slice) => slice.on_device(),
        }
    }
}

impl<'a> From<&'a mut [u8]> for Destination<'a> {
    fn from(bytes: &'a mut [u8]) -> Self {
        Self::Host(bytes)
    }
}

impl<'a> From<&'a mut Vec<u8>> for Destination<'a> {
    fn from(bytes: &'a mut Vec<u8>) -> Self {
        Self::Host(bytes)
    }
}

impl<'a, const N: usize> From<&'a mut [u8; N]> for Destination<'a> {
    fn from(bytes: &'a mut [u8; N]) -> Self {
        Self::Host(bytes)
    }
}

impl<'a> From<DeviceSliceMut<'a>> for Destination<'a> {
    fn from(slice: DeviceSliceMut<'a>) -> Self {
        Self::Device(slice)
    }
}

impl<'a> From<&'a mut DeviceBuffer> for Destination<'a> {
    fn from(buffer: &'a mut DeviceBuffer) -> Self {
        Self::Device(buffer.into())
    }
}

impl fmt::Debug for Destination<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(bytes) => write!(f, "Host({} bytes)", bytes.len()),
            Self::Device(slice) => slice.fmt(f),
        }
    }
}

/// A part of the contents, and where it goes.
#[derive(Debug)]
pub struct RangeRead<'a> {
    /// Bytes of the contents.
    pub range: Range<u64>,
    /// Memory of the same length.
    pub destination: Destination<'a>,
}

impl<'a> RangeRead<'a> {
    /// Bytes `range` of the contents, into a destination of that length.
    pub fn new(range: Range<u64>, destination: impl Into<Destination<'a>>) -> Self {
        Self { range, destination: destination.into() }
    }
}
