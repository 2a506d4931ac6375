//! Works on whole slices, and can keep its threads, tables and buffers from call to call.

mod compressor;
mod decompressor;

use super::bounded::Growing;
use crate::error::Error;

pub use compressor::{Compressor, compress, compress_into, compress_to};
pub use decompressor::{Decompressor, content_size, decompress, decompress_into};

/// Has `write` append to `output`, which stays as it was after an error. Returns the number of bytes appended.
fn append(
    output: &mut Vec<u8>,
    write: impl FnOnce(Growing<'_>) -> Result<u64, Error>,
) -> Result<usize, Error> {
    let start = output.len();
    let written = write(Growing(output));
    if written.is_err() {
        output.truncate(start);
    }
    written.map(|_| output.len() - start)
}
