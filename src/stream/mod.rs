//! Compresses and decompresses whole slices, streams and ranges; lists and recovers files.

mod bounded;
mod decoder;
mod directory;
mod distant;
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
pub use decoder::Decoder;
pub(crate) use directory::{FrameEntry, read_directory};
pub(crate) use distant::{Recent, Restoring, matches_of};
pub(crate) use encoder::EncodeBasis;
pub use encoder::{AutoFinishEncoder, Encoder};
pub(crate) use frame_writer::FrameWriter;
pub use list::{BlockInfo, FrameInfo, Listing, ModuleInfo, list};
pub use oneshot::{
    Compressor, Decompressor, compress, compress_into, compress_to, content_size, decompress,
    decompress_into,
};
pub(crate) use places::sought;
pub use places::{ReadAt, ReadAtCursor, WriteAt};
pub use recover::{Extent, Piece, Recovery, RecoveryReport, recover};
pub use seekable::SeekableReader;
