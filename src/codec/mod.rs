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

/// The vector instructions that the codecs use on this machine, by their usual name; `portable` if none. They change
/// the speed, never the bytes.
pub fn vector_instructions() -> &'static str {
    lanes::Backend::detect().name()
}
