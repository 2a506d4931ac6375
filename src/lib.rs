//! pz: lossless compression whose blocks decode alone, in any order, on CPUs and GPUs alike.
//!
//! ```
//! let contents = b"what is said three times is true ".repeat(3000);
//! let compressed = pz::compress(&contents, &pz::Options::new())?;
//! assert!(compressed.len() < 1000);
//! assert_eq!(pz::decompress(&compressed, &pz::DecodeOptions::new())?, contents);
//! # Ok::<(), pz::Error>(())
//! ```
//!
//! | to | use |
//! |---|---|
//! | compress or decompress a slice | [`compress`], [`decompress`] |
//! | compress what is written, or a reader | [`Encoder`] |
//! | decompress while reading, or to a writer, or only check | [`Decoder`] |
//! | read any part of a compressed file | [`SeekableReader`] |
//! | see what a compressed file holds | [`list`]; frame by frame: [`Listing`] |
//! | save what a damaged file still holds | [`recover`], [`Recovery`] |
//! | use a GPU where that is faster | [`Auto`]; a certain one: [`Gpu`] |
//! | know where the time went, and on what | [`Statistics`] |
//!
//! [`Options`] choose a [`Level`] (1, fastest, to 9, smallest), or a [`Pipeline`] and a block size, and how many threads
//! and how much memory the work may take; [`DecodeOptions`] say what a decoder may spend on a file that it does not
//! trust. The same input and options give the same bytes on any number of threads. Any bytes may be given to a decoder:
//! it ends with the right contents or with an [`Error`], in bounded time and memory.
//!
//! The format is described in [`format`](mod@format), the algorithms in [`codec`].
//!
//! # Features
//! - `simd` (default): vector instructions, chosen at run time. The output does not depend on it.
//! - `opencl`, `webgpu` (default): devices, see [`gpu`]. Their system libraries are loaded at run time, so that one
//!   program runs on every machine.
//! - `cli` (default): the `pz` program.

pub mod bits;
pub mod codec;
mod error;
pub mod format;
pub mod gpu;
mod pipeline;
mod stream;
#[cfg(test)]
mod test_data;
mod user_cache;

pub use error::{Error, ErrorClass, Place};
pub use format::{Method, Pipeline};
pub use pipeline::{
    Auto, ComputeRate, DecodeOptions, DeviceStatistics, EngineStatistics, Gpu, Level, Options,
    Prediction, Sample, Statistics,
};
pub use stream::{
    BlockInfo, Decoder, Encoder, Extent, FrameInfo, Listing, Piece, ReadAt, Recovery,
    RecoveryReport, SeekableReader, WriteAt, compress, decompress, list, recover,
};
pub use user_cache::refused_cache;

/// The example in the README runs as written.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
