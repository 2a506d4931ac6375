//! Compresses and decompresses whole slices, streams and ranges; lists and recovers files.

pub(crate) mod block;
mod bounded;
mod cursor;
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
mod turns;
mod window;

pub use bounded::{Bounded, Growing};
pub(crate) use cursor::FIRST_READ;
pub use cursor::ReadAtCursor;
pub use decoder::Decoder;
pub(crate) use encoder::EncodeBasis;
pub use encoder::{AutoFinishEncoder, Encoder};
pub(crate) use frame_writer::FrameWriter;
pub use list::{BlockInfo, FrameInfo, Listing, ModuleInfo, list};
pub use oneshot::{
    Compressor, Decompressor, compress, compress_into, compress_to, content_size, decompress,
    decompress_into,
};
pub use places::{Part, ReadAt, WriteAt};
pub use recover::{Extent, Piece, Recovery, RecoveryReport, recover};
pub use seekable::SeekableReader;
