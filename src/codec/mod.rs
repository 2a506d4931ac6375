//! Algorithms on plain slices: one block in, one payload out, and back.
//!
//! Nothing here knows of files, threads or devices. Each codec is a *rule* that a CPU and a GPU can both follow
//! exactly, so its bytes depend on the input and the codec's parameters alone. A payload does not state its own length
//! or that of its block: the container records both, and a decoder gets an output slice of exactly the block's length.
//!
//! | module | payload |
//! |---|---|
//! | [`lz77`] | chunks of literals and sequences, Huffman or FSE coded over 32 lanes |
//! | [`bwt`] | Burrows-Wheeler transform and its second stage in independent segments |

pub(crate) mod bwt;
pub(crate) mod fse;
pub(crate) mod huffman;
pub(crate) mod lanes;
mod length_code;
pub(crate) mod log2;
pub(crate) mod lz77;
mod recipe;

use core::ops::BitOr;

pub(crate) use recipe::Recipe;

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

/// Makes an empty vector hold `len` elements, each of which is `zero`. The system gives such memory page by page when it is
/// first touched.
pub(crate) fn reserve_zeroed<T: Clone>(
    vec: &mut Vec<T>,
    len: usize,
    zero: T,
) -> Result<(), OutOfMemory> {
    if vec.is_empty() {
        // `vec!` alone would end the process where there is not enough memory.
        let mut probe = Vec::<T>::new();
        reserve(&mut probe, len)?;
        drop(probe);
        *vec = vec![zero; len];
    }
    Ok(())
}

/// Calls `act` with the place and the value of each value that is not zero. It skips zeros by the eight, because in a small
/// message most symbols of an alphabet are absent.
#[inline(always)]
pub(crate) fn each_nonzero<T>(values: &[T], mut act: impl FnMut(usize, T))
where
    T: Copy + Default + PartialEq + BitOr<Output = T>,
{
    let zero = T::default();
    let (eights, rest) = values.as_chunks::<8>();
    for (i, eight) in eights.iter().enumerate() {
        if eight.iter().fold(zero, |all, &value| all | value) != zero {
            for (j, &value) in eight.iter().enumerate() {
                if value != zero {
                    act(8 * i + j, value);
                }
            }
        }
    }
    for (place, &value) in (8 * eights.len()..).zip(rest) {
        if value != zero {
            act(place, value);
        }
    }
}

/// The vector instructions that the codecs use on this machine, by their usual name; `portable` if none. They change
/// the speed, never the bytes.
pub fn vector_instructions() -> &'static str {
    lanes::Backend::detect().name()
}
