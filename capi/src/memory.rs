//! C's pointers as slices, objects and text.

use std::ffi::{CStr, c_char, c_void};

use crate::status::Failure;

/// Bytes to read.
///
/// # Safety
/// `data` points to `len` bytes that nothing changes during `'a`, or `len` is 0.
pub unsafe fn input<'a>(data: *const c_void, len: usize) -> Result<&'a [u8], Failure> {
    match (len, data.is_null()) {
        (0, _) => Ok(&[]),
        (_, true) => Err(Failure::invalid("the input is NULL")),
        // SAFETY: The caller's promise.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts(data.cast(), len) }),
    }
}

/// Bytes to write.
///
/// # Safety
/// `data` points to `len` bytes that nothing else uses during `'a`, or `len` is 0.
pub unsafe fn output<'a>(data: *mut c_void, len: usize) -> Result<&'a mut [u8], Failure> {
    match (len, data.is_null()) {
        (0, _) => Ok(&mut []),
        (_, true) => Err(Failure::invalid("the output is NULL")),
        // SAFETY: The caller's promise.
        (_, false) => Ok(unsafe { std::slice::from_raw_parts_mut(data.cast(), len) }),
    }
}

/// Text in UTF-8.
///
/// # Safety
/// `text` is NULL or points to text that ends with a zero byte.
pub unsafe fn text<'a>(text: *const c_char) -> Result<&'a str, Failure> {
    if text.is_null() {
        return Err(Failure::invalid("a text is NULL"));
    }
    // SAFETY: The caller's promise.
    let text = unsafe { CStr::from_ptr(text) };
    text.to_str().map_err(|_| Failure::invalid("a text is not UTF-8"))
}

/// An object that this library made.
///
/// # Safety
/// `object` is NULL or points to a valid `T` that nothing else uses during `'a`.
pub unsafe fn object<'a, T>(object: *mut T) -> Result<&'a mut T, Failure> {
    // SAFETY: The caller's promise.
    unsafe { object.as_mut() }.ok_or_else(|| Failure::invalid("an object is NULL"))
}

/// Stores a result at an address that C gave.
///
/// # Safety
/// `place` is NULL or points to memory for a `T`.
pub unsafe fn store<T>(place: *mut T, value: T) -> Result<(), Failure> {
    if place.is_null() {
        return Err(Failure::invalid("the place for the result is NULL"));
    }
    // SAFETY: The caller's promise. The memory may not be initialised, so nothing there is dropped.
    unsafe { place.write(value) };
    Ok(())
}

/// Releases an object that this library made.
///
/// # Safety
/// `object` is NULL or came from `Box::into_raw`, and is not used afterwards.
pub unsafe fn free<T>(object: *mut T) {
    if !object.is_null() {
        // SAFETY: The caller's promise.
        drop(unsafe { Box::from_raw(object) });
    }
}
