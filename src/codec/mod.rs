//! Algorithms on plain slices: one block in, one payload out, and back.
//!
//! Nothing here knows of files, threads or devices. Each codec is a *rule* that a CPU and a GPU can both follow
//! exactly, so the bytes it makes depend on the input and its parameters alone. A payload says nothing of its own
//! length or its block's: the container carries both, and a decoder is handed an output slice of exactly the block's
//! length.
//!
//! | module | payload |
//! |---|---|
//! | [`lz77`] | chunks of literals and sequences, Huffman or FSE coded over 32 lanes |
//! | [`bwt`] | Burrows-Wheeler transform and its second stage in independent segments |

pub mod bwt;
pub mod fse;
pub mod huffman;
pub(crate) mod lanes;
mod length_code;
pub mod log2;
pub mod lz77;

/// Why a payload cannot be decoded: the first rule of the format that it breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl core::fmt::Display for Malformed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(self.0)
    }
}

impl core::error::Error for Malformed {}

/// The vector instructions that the codecs use on this machine, by the name that users know them by; `portable` if
/// none. They decide the speed, never the bytes.
pub fn vector_instructions() -> &'static str {
    lanes::Backend::detect().name()
}
