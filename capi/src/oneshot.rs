//! One call for one buffer.

use std::ffi::c_void;

use pz::Error;
use pz::internal::Bounded;

use crate::memory::{input, output, store};
use crate::options::{decode_options, encode_options, pz_decode_options, pz_options};
use crate::status::{Failure, guarded, pz_status};

/// Compresses `len` bytes of `data` to `buffer`, which has `capacity` bytes, and stores the length of the result. Less
/// capacity than `pz_compress_bound` may be too little; after a failure the buffer may contain anything.
///
/// # Safety
/// The pointers point to that many bytes, which do not overlap, or are NULL if there are none; `options` is NULL or
/// came from `pz_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_compress(
    data: *const c_void,
    len: usize,
    buffer: *mut c_void,
    capacity: usize,
    written: *mut usize,
    options: *const pz_options,
) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let (data, buffer) = unsafe { (input(data, len)?, output(buffer, capacity)?) };
        // SAFETY: The caller's promise.
        let needed = pz::compress_to(data, Bounded(buffer), &unsafe { encode_options(options) })?;
        if needed > capacity as u64 {
            return Err(too_small(needed, capacity));
        }
        // SAFETY: The caller's promise.
        unsafe { store(written, needed as usize) }
    })
}

/// The most bytes that compressing `len` bytes can give, with any options.
#[unsafe(no_mangle)]
pub extern "C" fn pz_compress_bound(len: usize) -> usize {
    // A block that would not shrink is stored. A block has at least 64 KiB, unless it is the last, and takes 40 bytes
    // more for its header and 4 in the index. A frame takes less than 1 KiB more.
    len.saturating_add(len / 1024).saturating_add(1024)
}

/// Decompresses `len` bytes of `data` to `buffer`, which has `capacity` bytes, and stores the length of the contents.
/// After a failure the buffer may contain anything.
///
/// # Safety
/// The pointers point to that many bytes, which do not overlap, or are NULL if there are none; `options` is NULL or
/// came from `pz_decode_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_decompress(
    data: *const c_void,
    len: usize,
    buffer: *mut c_void,
    capacity: usize,
    written: *mut usize,
    options: *const pz_decode_options,
) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let (data, buffer) = unsafe { (input(data, len)?, output(buffer, capacity)?) };
        // SAFETY: The caller's promise.
        let decoded = pz::decompress_into(data, buffer, &unsafe { decode_options(options) });
        let count = decoded.map_err(|error| match (&error, pz::content_size(data)) {
            (Error::LimitOutput { limit }, Ok(needed))
                if *limit == capacity as u64 && needed > *limit =>
            {
                too_small(needed, capacity)
            }
            _ => error.into(),
        })?;
        // SAFETY: The caller's promise.
        unsafe { store(written, count) }
    })
}

/// Stores the length of the contents of `len` bytes of `data`. Decodes nothing. If the data are not trusted, compare
/// the result with a limit before you allocate that many bytes.
///
/// # Safety
/// `data` points to `len` bytes, or is NULL if there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_content_size(
    data: *const c_void,
    len: usize,
    size: *mut u64,
) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let found = pz::content_size(unsafe { input(data, len)? })?;
        // SAFETY: The caller's promise.
        unsafe { store(size, found) }
    })
}

fn too_small(needed: u64, capacity: usize) -> Failure {
    let message = format!("the result has {needed} bytes, and the buffer {capacity}");
    Failure::new(pz_status::BufferTooSmall, message)
}
