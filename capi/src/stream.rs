//! Compression and decompression of streams, through callbacks.

use std::ffi::c_void;
use std::io::{self, Read, Write};

use pz::{Decoder, Encoder, Error};

use crate::memory::{free, input, object, output, store};
use crate::options::{decode_options, encode_options, pz_decode_options, pz_options};
use crate::status::{Failure, FirstFailure, guarded, pz_status};

/// A function that takes `len` bytes of `data`. It returns the number of bytes that it took, or a negative number for a
/// failure, which `pz_error_message` then names. As for all callbacks, `context` is the pointer that was given with the
/// function.
pub type pz_write_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, data: *const c_void, len: usize) -> isize>;

/// A function that puts up to `len` bytes into `buffer`. It returns their number, 0 at the end, or a negative number
/// for a failure, as above.
pub type pz_read_fn =
    Option<unsafe extern "C" fn(context: *mut c_void, buffer: *mut c_void, len: usize) -> isize>;

type WriteFn = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> isize;
type ReadFn = unsafe extern "C" fn(*mut c_void, *mut c_void, usize) -> isize;

/// A callback with its context.
struct Callback<F> {
    function: F,
    context: *mut c_void,
}

// SAFETY: Encoders and decoders call it only in the thread that called them. That thread may use the context, as the
// callers of `pz_encoder_new` and `pz_decoder_new` have promised.
unsafe impl<F> Send for Callback<F> {}

impl Write for Callback<WriteFn> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        // SAFETY: The caller has promised that function and context belong together.
        let taken = unsafe { (self.function)(self.context, data.as_ptr().cast(), data.len()) };
        counted(taken, data.len(), "write")
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Read for Callback<ReadFn> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: The caller has promised that function and context belong together.
        let put =
            unsafe { (self.function)(self.context, buffer.as_mut_ptr().cast(), buffer.len()) };
        counted(put, buffer.len(), "read")
    }
}

/// Checks that the number that a callback returned is possible.
fn counted(returned: isize, most: usize, name: &str) -> io::Result<usize> {
    match usize::try_from(returned) {
        Ok(count) if count <= most => Ok(count),
        Ok(count) => Err(io::Error::other(format!(
            "the {name} callback returned {count}, and it was called for {most} bytes"
        ))),
        Err(_) => Err(io::Error::other(format!("the {name} callback failed with {returned}"))),
    }
}

/// Compresses what is written to it.
pub struct pz_encoder {
    /// `None` once it has finished.
    encoder: Option<Encoder<Callback<WriteFn>>>,
    failure: FirstFailure,
}

/// Makes an encoder that passes its output to `write`, in the thread that calls the encoder.
///
/// # Safety
/// Until the encoder is released, `context` is valid for `write` in every thread that uses the encoder. `options` is
/// NULL or came from `pz_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_encoder_new(
    write: pz_write_fn,
    context: *mut c_void,
    options: *const pz_options,
    encoder: *mut *mut pz_encoder,
) -> pz_status {
    guarded(|| {
        let function = write.ok_or_else(|| Failure::invalid("the callback is NULL"))?;
        // SAFETY: The caller's promise.
        let options = unsafe { encode_options(options) };
        let made = Encoder::new(Callback { function, context }, &options)?;
        let made = pz_encoder { encoder: Some(made), failure: FirstFailure::default() };
        // SAFETY: The caller's promise.
        unsafe { store(encoder, Box::into_raw(Box::new(made))) }
    })
}

/// Compresses `len` bytes of `data`. The callback may get part of the result later.
///
/// # Safety
/// `encoder` came from `pz_encoder_new`, and `data` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_encoder_write(
    encoder: *mut pz_encoder,
    data: *const c_void,
    len: usize,
) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let (encoder, data) = unsafe { (object(encoder)?, input(data, len)?) };
        with(encoder, |encoder| Ok(encoder.write_all(data)?))
    })
}

/// Compresses everything so far and passes it to the callback, so that it can be read. Many flushes make the output
/// larger.
///
/// # Safety
/// `encoder` came from `pz_encoder_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_encoder_flush(encoder: *mut pz_encoder) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        with(unsafe { object(encoder) }?, |encoder| Ok(encoder.flush()?))
    })
}

/// Compresses the rest and ends the output, which is incomplete without this. The encoder can then only be released.
///
/// # Safety
/// `encoder` came from `pz_encoder_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_encoder_finish(encoder: *mut pz_encoder) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let pz_encoder { encoder, failure } = unsafe { object(encoder) }?;
        let encoder = encoder.take().ok_or_else(finished)?;
        failure.check(encoder.finish().map(drop))
    })
}

/// Releases an encoder. An output that it has not finished stays incomplete.
///
/// # Safety
/// `encoder` is NULL or came from `pz_encoder_new`, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_encoder_free(encoder: *mut pz_encoder) {
    // SAFETY: The caller's promise.
    unsafe { free(encoder) }
}

fn with(
    encoder: &mut pz_encoder,
    work: impl FnOnce(&mut Encoder<Callback<WriteFn>>) -> Result<(), Error>,
) -> Result<(), Failure> {
    let pz_encoder { encoder, failure } = encoder;
    failure.check(work(encoder.as_mut().ok_or_else(finished)?))
}

fn finished() -> Failure {
    Failure::invalid("the encoder has finished")
}

/// Decompresses what its callback reads.
pub struct pz_decoder {
    decoder: Decoder<Callback<ReadFn>>,
    failure: FirstFailure,
}

/// Makes a decoder that gets its input from `read`, in the thread that calls the decoder, and reads the first header.
/// The decoder reads ahead of the contents that it returns.
///
/// # Safety
/// Until the decoder is released, `context` is valid for `read` in every thread that uses the decoder. `options` is
/// NULL or came from `pz_decode_options_new`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_decoder_new(
    read: pz_read_fn,
    context: *mut c_void,
    options: *const pz_decode_options,
    decoder: *mut *mut pz_decoder,
) -> pz_status {
    guarded(|| {
        let function = read.ok_or_else(|| Failure::invalid("the callback is NULL"))?;
        // SAFETY: The caller's promise.
        let options = unsafe { decode_options(options) };
        let made = Decoder::new(Callback { function, context }, &options)?;
        let made = pz_decoder { decoder: made, failure: FirstFailure::default() };
        // SAFETY: The caller's promise.
        unsafe { store(decoder, Box::into_raw(Box::new(made))) }
    })
}

/// Puts up to `len` bytes of contents into `buffer` and stores their number. The number is 0 only at the end, or if
/// `len` is 0. The bytes are checked; only at the end is it known that the contents are complete.
///
/// # Safety
/// `decoder` came from `pz_decoder_new`, and `buffer` points to `len` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_decoder_read(
    decoder: *mut pz_decoder,
    buffer: *mut c_void,
    len: usize,
    count: *mut usize,
) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let (decoder, buffer) = unsafe { (object(decoder)?, output(buffer, len)?) };
        let pz_decoder { decoder, failure } = decoder;
        let put = failure.check(decoder.read(buffer).map_err(Error::from))?;
        // SAFETY: The caller's promise.
        unsafe { store(count, put) }
    })
}

/// Releases a decoder.
///
/// # Safety
/// `decoder` is NULL or came from `pz_decoder_new`, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_decoder_free(decoder: *mut pz_decoder) {
    // SAFETY: The caller's promise.
    unsafe { free(decoder) }
}
