//! Compresses and decompresses whole slices, streams and ranges; lists and recovers files.

pub(crate) mod block;
mod compressor;
mod decoder;
mod decompressor;
mod directory;
mod encoder;
mod frame_reader;
mod frame_writer;
mod list;
mod places;
mod recover;
mod salvage;
mod seekable;
mod tasks;
mod turns;
mod window;

pub use compressor::{Bounded, Compressor, Growing, compress, compress_into, compress_to};
pub use decoder::Decoder;
pub use decompressor::{Decompressor, content_size, decompress, decompress_into};
pub(crate) use encoder::EncodeBasis;
pub use encoder::{AutoFinishEncoder, Encoder};
pub(crate) use frame_writer::FrameWriter;
pub use list::{BlockInfo, FrameInfo, Listing, ModuleInfo, list};
#[cfg(feature = "remote")]
pub(crate) use places::FIRST_READ;
pub use places::{Part, ReadAt, ReadAtCursor, WriteAt};
pub use recover::{Extent, Piece, Recovery, RecoveryReport, recover};
pub use seekable::SeekableReader;
