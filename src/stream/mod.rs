//! Compresses and decompresses whole slices, streams and ranges; lists and recovers files.
//!
//! | module | what |
//! |---|---|
//! | `compressor`, `decompressor` | whole slices |
//! | `encoder`, `decoder` | streams |
//! | `seekable` | random access through the index |
//! | `list` | what a file holds, without decoding it |
//! | `recover` | decodes the blocks that a damaged file still holds |
//! | `salvage` | finds the frames and blocks of a damaged file |
//! | `directory` | finds the frames of a file from its end, by their footers |
//! | `block` | a block's way from its place in a file to its contents, for readers in any order |
//! | `tasks` | blocks on their way through the scheduler |
//! | `frame_reader`, `frame_writer` | frames in order |
//! | `turns` | lets the blocks of a stream look for distant matches in order |
//! | `places` | inputs that several threads read, outputs that several threads write |
//! | `window` | a part of a file in memory, for readers of headers and indices |

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
