//! Whole inputs, streams, ranges, listing and recovery.

mod decoder;
mod directory;
mod encoder;
mod frame_reader;
mod frame_writer;
mod list;
mod oneshot;
mod places;
mod recover;
mod salvage;
mod seekable;
mod tasks;

pub use decoder::Decoder;
pub use encoder::{AutoFinishEncoder, Encoder};
pub use list::{BlockInfo, FrameInfo, list};
pub use oneshot::{
    Compressor, Decompressor, compress, compress_into, content_size, decompress, decompress_into,
};
pub use places::{ReadAt, ReadAtCursor, WriteAt};
pub use recover::{Piece, Recovery, RecoveryReport, recover};
pub use seekable::SeekableReader;
