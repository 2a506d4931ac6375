//! The contents of an archive as items of one type.

use std::marker::PhantomData;
use std::ops::Range;
use std::sync::Arc;

use bytemuck::Pod;

use super::destination::RangeRead;
use super::error::ArchiveError;
use super::options::ReadOptions;
use super::reader::Archive;

/// Items of one type in the contents of an archive. A read loads only the blocks that hold the items, and takes blocks
/// from the archive's cache if they are there.
///
/// The bytes of the contents are used as they are, without a change of byte order. Most files and most machines store
/// the least significant byte first.
///
/// ```
/// use std::sync::Arc;
/// use pz::access::{Archive, ArchiveOptions, Array, publish};
/// let numbers: Vec<u8> = (0..100_000_u32).flat_map(u32::to_ne_bytes).collect();
/// publish("u32", pz::compress(&numbers, &pz::Options::new().block_size(1 << 16))?);
/// let archive = Arc::new(Archive::open("memio://u32", &ArchiveOptions::new())?);
/// let array = Array::<u32>::new(archive)?;
/// assert_eq!(array.len(), 100_000);
/// assert_eq!(array.get(77_777)?, 77_777);
/// assert_eq!(array.slice(5..8)?, [5, 6, 7]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Array<T> {
    archive: Arc<Archive>,
    /// Where the items lie in the contents, in bytes.
    range: Range<u64>,
    items: PhantomData<T>,
}

impl<T: Pod> Array<T> {
    /// All of the contents as items.
    ///
    /// # Errors
    /// [`ArchiveError::NotItems`] if their length is not a multiple of an item's.
    pub fn new(archive: Arc<Archive>) -> Result<Self, ArchiveError> {
        let range = 0..archive.len();
        Self::of_range(archive, range)
    }

    /// Bytes `range` of the contents as items. The range can leave out a header, such as that of an `.npy` file.
    ///
    /// # Errors
    /// [`ArchiveError::InvalidRange`] if the range does not lie within the contents; [`ArchiveError::NotItems`] if its
    /// length is not a multiple of an item's.
    pub fn of_range(archive: Arc<Archive>, range: Range<u64>) -> Result<Self, ArchiveError> {
        archive.check(&range)?;
        let (bytes, item) = (range.end - range.start, size_of::<T>() as u64);
        if item == 0 || !bytes.is_multiple_of(item) {
            return Err(ArchiveError::NotItems { bytes, item });
        }
        Ok(Self { archive, range, items: PhantomData })
    }

    /// The number of items.
    pub fn len(&self) -> u64 {
        (self.range.end - self.range.start) / size_of::<T>() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// Item number `index`.
    ///
    /// # Errors
    /// Those of [`Array::read`].
    pub fn get(&self, index: u64) -> Result<T, ArchiveError> {
        let mut item = [T::zeroed()];
        self.read(index, &mut item, &ReadOptions::new())?;
        Ok(item[0])
    }

    /// Items `range`.
    ///
    /// # Errors
    /// Those of [`Array::read`], and [`ArchiveError::Format`] if the system has too little memory for them.
    pub fn slice(&self, range: Range<u64>) -> Result<Vec<T>, ArchiveError> {
        let Range { start, end } = range;
        if start > end || end > self.len() {
            return Err(ArchiveError::InvalidRange { start, end, len: self.len() });
        }
        let mut items = Vec::new();
        let count = (end - start) as usize;
        items.try_reserve_exact(count).map_err(|_| {
            let needed = (end - start) * size_of::<T>() as u64;
            ArchiveError::format(self.archive.uri(), crate::Error::OutOfMemory { needed })
        })?;
        items.resize(count, T::zeroed());
        self.read(start, &mut items, &ReadOptions::new())?;
        Ok(items)
    }

    /// Fills `items` with the array's items from number `start` on.
    ///
    /// # Errors
    /// [`ArchiveError::InvalidRange`], counted in items, if the array ends before; the other errors of
    /// [`Archive::read`].
    pub fn read(
        &self,
        start: u64,
        items: &mut [T],
        options: &ReadOptions,
    ) -> Result<(), ArchiveError> {
        let (len, end) = (self.len(), start.saturating_add(items.len() as u64));
        if end > len {
            return Err(ArchiveError::InvalidRange { start, end, len });
        }
        let byte = |index: u64| self.range.start + index * size_of::<T>() as u64;
        let destination = bytemuck::cast_slice_mut::<T, u8>(items);
        self.archive.read(&mut [RangeRead::new(byte(start)..byte(end), destination)], options)
    }
}
