//! Any part of a compressed file.

use std::ffi::{c_char, c_void};
use std::path::Path;

use pz::SeekableReader;
use pz::access::{SourceReader, open_path};

use crate::memory::{free, object, output, store, text};
use crate::options::{decode_options, pz_decode_options};
use crate::status::{guarded, pz_status};

/// Reads any part of the contents of a file, and decodes only the blocks that hold it. The child of a fork may use it
/// too.
pub struct pz_reader(SeekableReader<SourceReader>);

/// Opens a compressed file, and checks its headers, indices and footers.
///
/// # Safety
/// `path` is text in UTF-8 that ends with a zero byte; `options` is NULL or came from `pz_decode_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_reader_open(
    path: *const c_char,
    options: *const pz_decode_options,
    reader: *mut *mut pz_reader,
) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let (path, options) = unsafe { (text(path)?, decode_options(options)) };
        // Reads name their offsets, so processes after a fork do not move each other's position in the file.
        let source = SourceReader::new(open_path(Path::new(path)).map_err(pz::Error::from)?);
        let made = SeekableReader::new(source, &options)?;
        // SAFETY: The caller's promise.
        unsafe { store(reader, Box::into_raw(Box::new(pz_reader(made)))) }
    })
}

/// Stores the length of the contents in bytes.
///
/// # Safety
/// `reader` came from `pz_reader_open`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_reader_size(reader: *mut pz_reader, size: *mut u64) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let len = unsafe { object(reader) }?.0.len();
        // SAFETY: The caller's promise.
        unsafe { store(size, len) }
    })
}

/// Reads `len` bytes of the contents, from `offset` on, into `buffer`. Decodes blocks in parallel.
///
/// # Safety
/// `reader` came from `pz_reader_open`, and `buffer` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_reader_read(
    reader: *mut pz_reader,
    offset: u64,
    buffer: *mut c_void,
    len: usize,
) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let (reader, mut buffer) = unsafe { (object(reader)?, output(buffer, len)?) };
        let end = offset.saturating_add(len as u64);
        Ok(reader.0.copy_range(offset..end, &mut buffer)?)
    })
}

/// Releases a reader, and closes its file.
///
/// # Safety
/// `reader` is NULL or came from `pz_reader_open`, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_reader_free(reader: *mut pz_reader) {
    // SAFETY: The caller's promise.
    unsafe { free(reader) }
}
