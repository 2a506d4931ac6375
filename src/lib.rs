//! pz: lossless compression whose blocks decode alone, in any order, on CPUs and GPUs alike.

pub mod bits;
pub mod codec;
mod error;
pub mod format;
mod pipeline;
mod stream;

pub use error::{Error, ErrorClass, Place};
pub use format::{Method, Pipeline};
pub use pipeline::{DecodeOptions, Level, Options};
pub use stream::{
    BlockInfo, Decoder, Encoder, FrameInfo, Piece, Recovery, RecoveryReport, SeekableReader,
    compress, decompress, list, recover,
};
