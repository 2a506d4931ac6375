//! Algorithms on plain slices: one block in, one payload out, and back.
//!
//! Nothing here knows of files, threads or devices. Each codec is a *rule* that a CPU and a GPU can both follow
//! exactly, so its bytes depend only on the input and the codec's parameters. A payload records neither its own length
//! nor that of its block: the container records both, and a decoder gets an output slice of exactly the block's length.
//!
//! | module | payload |
//! |---|---|
//! | [`lz77`] | chunks of literals and sequences, Huffman or FSE coded over 32 lanes |
//! | [`bwt`] | Burrows-Wheeler transform and its second stage in independent segments |
//!
//! Before a codec, [`distant`] takes out of a block the parts that repeat earlier blocks, and [`filter`] rearranges the
//! bytes of typed data.

pub(crate) mod bwt;
pub(crate) mod distant;
pub(crate) mod filter;
pub(crate) mod fse;
mod histogram;
pub(crate) mod huffman;
pub(crate) mod lanes;
mod length_code;
pub(crate) mod log2;
pub(crate) mod lz77;
mod recipe;
#[cfg(any(test, not(feature = "fast-sort")))]
mod sais;
mod suffix_order;

pub(crate) use recipe::{Codec, Recipe, Smallest};

use crate::pages::advise_huge_pages;

/// Why a payload cannot be decoded: the first rule of the format that it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for Malformed {}

/// The system refused memory that a codec needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct OutOfMemory {
    pub(crate) bytes: u64,
}

/// Makes room for `len` elements. Drops the vector's contents if it must grow.
pub(crate) fn reserve<T>(vec: &mut Vec<T>, len: usize) -> Result<(), OutOfMemory> {
    if vec.capacity() < len {
        *vec = Vec::new();
        let bytes = len.saturating_mul(size_of::<T>()) as u64;
        vec.try_reserve_exact(len).map_err(|_| OutOfMemory { bytes })?;
    }
    Ok(())
}

/// Like [`reserve`], for memory that is accessed in random order: it comes in huge pages if the system has them.
pub(crate) fn reserve_huge<T>(vec: &mut Vec<T>, len: usize) -> Result<(), OutOfMemory> {
    let before = vec.capacity();
    reserve(vec, len)?;
    if vec.capacity() > before {
        advise_huge_pages(vec.spare_capacity_mut());
    }
    Ok(())
}

/// Makes an empty vector hold `len` elements, each of which is `zero`. The system gives such memory page by page when
/// it is first touched.
pub(crate) fn reserve_zeroed<T: Clone>(
    vec: &mut Vec<T>,
    len: usize,
    zero: T,
) -> Result<(), OutOfMemory> {
    if vec.is_empty() {
        // `vec!` alone would abort the process if memory ran out.
        let mut probe = Vec::<T>::new();
        reserve(&mut probe, len)?;
        drop(probe);
        *vec = vec![zero; len];
    }
    Ok(())
}

/// An entry of a table that has one entry for each symbol of an alphabet.
pub(crate) trait TableEntry: Copy + Default + PartialEq {
    /// A word whose bytes are zero where the entries are.
    fn marks(eight: &[Self; 8]) -> u64;
}

impl TableEntry for u8 {
    #[inline(always)]
    fn marks(eight: &[Self; 8]) -> u64 {
        u64::from_le_bytes(*eight)
    }
}

impl TableEntry for u32 {
    #[inline(always)]
    fn marks(eight: &[Self; 8]) -> u64 {
        if *eight == [0; 8] {
            return 0;
        }
        (0..8).fold(0, |marks, i| marks | u64::from(eight[i] != 0) << (8 * i))
    }
}

/// Calls `act` with the place and the value of each entry that is not zero. It skips zeros eight at a time, because in
/// a small message most symbols of an alphabet are absent.
#[inline(always)]
pub(crate) fn each_nonzero<T: TableEntry>(entries: &[T], mut act: impl FnMut(usize, T)) {
    let (eights, rest) = entries.as_chunks::<8>();
    for (i, eight) in eights.iter().enumerate() {
        let mut marks = T::marks(eight);
        while marks != 0 {
            let j = marks.trailing_zeros() as usize / 8;
            marks &= !(0xff << (8 * j));
            act(8 * i + j, eight[j]);
        }
    }
    for (place, &entry) in (8 * eights.len()..).zip(rest) {
        if entry != T::default() {
            act(place, entry);
        }
    }
}

/// The vector instructions that the codecs use on this machine, by their usual name; `portable` if none. They change
/// the speed, never the bytes.
pub fn vector_instructions() -> &'static str {
    lanes::Backend::detect().name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_entry_that_is_not_zero_comes_once_and_in_order() {
        for len in 0..40 {
            for seed in 0..50_u32 {
                let random = |i: u32| (seed << 8 | i).wrapping_mul(0x9e37_79b1) >> 23;
                let words: Vec<u32> = (0..len)
                    .map(|i| if random(i) > seed * 10 { random(i) << 8 } else { 0 })
                    .collect();
                let bytes: Vec<u8> = words.iter().map(|&word| (word >> 8) as u8).collect();
                let mut found = Vec::new();
                each_nonzero(&words, |place, entry| found.push((place, entry)));
                let expected = (0..).zip(words.iter().copied());
                assert!(found.into_iter().eq(expected.filter(|&(_, entry)| entry != 0)));
                let mut found = Vec::new();
                each_nonzero(&bytes, |place, entry| found.push((place, entry)));
                let expected = (0..).zip(bytes.iter().copied());
                assert!(found.into_iter().eq(expected.filter(|&(_, entry)| entry != 0)));
            }
        }
    }
}
