//! Options for compression and decompression.

use std::ffi::c_char;
use std::str::FromStr;

use pz::{DecodeOptions, Error, Level, Modules, Options};

use crate::device::Device;
use crate::memory::{free, object, text};
use crate::status::{Failure, guarded, pz_status};

/// Options behind a pointer, and the device that works beside the threads.
trait Chosen {
    type Options: Clone;

    fn parts(&mut self) -> (&mut Self::Options, &mut Device);
}

impl Chosen for pz_options {
    type Options = Options;

    fn parts(&mut self) -> (&mut Options, &mut Device) {
        (&mut self.0, &mut self.1)
    }
}

impl Chosen for pz_decode_options {
    type Options = DecodeOptions;

    fn parts(&mut self) -> (&mut DecodeOptions, &mut Device) {
        (&mut self.0, &mut self.1)
    }
}

/// Replaces options by what `change` makes of them.
///
/// # Safety
/// `chosen` is NULL or points to options that nothing else uses.
unsafe fn set<C: Chosen>(
    chosen: *mut C,
    change: impl FnOnce(C::Options) -> Result<C::Options, Failure>,
) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let (options, _) = unsafe { object(chosen) }?.parts();
        *options = change(options.clone())?;
        Ok(())
    })
}

/// Calls a setter of options with the value that `value` names.
///
/// # Safety
/// `chosen` is NULL or points to options that nothing else uses. `value` is NULL or text that ends with a zero byte.
unsafe fn set_named<C: Chosen, V: FromStr<Err = Error>>(
    chosen: *mut C,
    setter: fn(C::Options, V) -> C::Options,
    value: *const c_char,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(chosen, |options| Ok(setter(options, text(value)?.parse()?))) }
}

/// Sets the device with the name `device`.
///
/// # Safety
/// That of [`set_named`].
unsafe fn set_device<C: Chosen>(chosen: *mut C, device: *const c_char) -> pz_status {
    guarded(|| {
        // SAFETY: The caller's promise.
        let (chosen, device) = unsafe { (object(chosen)?, text(device)?) };
        *chosen.parts().1 = Device::named(device)?;
        Ok(())
    })
}

/// How to compress.
pub struct pz_options(Options, Device);

/// Makes default options.
#[unsafe(no_mangle)]
pub extern "C" fn pz_options_new() -> *mut pz_options {
    Box::into_raw(Box::new(pz_options(Options::new(), Device::Cpu)))
}

/// Releases options.
///
/// # Safety
/// `options` is NULL or came from `pz_options_new`, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_free(options: *mut pz_options) {
    // SAFETY: The caller's promise.
    unsafe { free(options) }
}

/// Sets the level: 1 (fastest) to 9 (smallest). The default is 3.
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_level(options: *mut pz_options, level: u32) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.level(Level::new(level)?))) }
}

/// Sets the pipeline instead of the level's: "lzh", "lzf", "bwt", "fse" or "store".
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use. `pipeline` is text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_pipeline(
    options: *mut pz_options,
    pipeline: *const c_char,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set_named(options, Options::pipeline, pipeline) }
}

/// Rearranges typed data first: "f32", "bf16", "i16", "i64x3" and so on, chains such as
/// "delta8,zigzag8,transpose8", "auto", which looks at each block, or "none", the default.
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use. `filter` is text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_filter(
    options: *mut pz_options,
    filter: *const c_char,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set_named(options, Options::filter, filter) }
}

/// Sets the block size instead of the level's, in bytes: a power of two.
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_block_size(
    options: *mut pz_options,
    block_size: u64,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.block_size(block_size))) }
}

/// Sets the window instead of the level's, in bytes: a power of two.
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_window(options: *mut pz_options, window: u64) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.window(window))) }
}

/// Also looks for repetitions of earlier blocks, up to `bytes` back. The default is 0, which turns this off; for level
/// 9 without a filter it is four blocks, 64 MiB. Compression and decompression take about that much more memory.
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_long_distance(
    options: *mut pz_options,
    bytes: u64,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.long_distance(bytes))) }
}

/// Sets whether the contents decide where frames end; the default is no. After a change of the contents, most of the
/// output then stays the same. The output gets a few percent larger.
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_rsyncable(
    options: *mut pz_options,
    rsyncable: bool,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.rsyncable(rsyncable))) }
}

/// Sets the number of threads; 0, the default, means one for each core. The result does not depend on it.
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_threads(options: *mut pz_options, threads: usize) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.threads(threads))) }
}

/// Limits the memory to take beside the caller's buffers, in bytes. The default is 2 GiB.
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_memory(options: *mut pz_options, memory: u64) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.memory(memory))) }
}

/// Declares the length of the input in bytes, for readers that cannot seek.
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_content_size(
    options: *mut pz_options,
    content_size: u64,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.content_size(content_size))) }
}

/// Sets a device that works beside the threads: "cuda", "opencl" or "webgpu", with a number after a colon if there are
/// several; "auto" for a GPU where that should save time; or "cpu", the default, for none. A named device must exist.
/// The first call that names it opens it for the whole process. The result does not depend on the device.
///
/// # Safety
/// `options` came from `pz_options_new` and is not in use. `device` is text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_options_device(
    options: *mut pz_options,
    device: *const c_char,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set_device(options, device) }
}

/// How to decompress.
pub struct pz_decode_options(DecodeOptions, Device);

/// Makes default options.
#[unsafe(no_mangle)]
pub extern "C" fn pz_decode_options_new() -> *mut pz_decode_options {
    Box::into_raw(Box::new(pz_decode_options(DecodeOptions::new(), Device::Cpu)))
}

/// Releases options.
///
/// # Safety
/// `options` is NULL or came from `pz_decode_options_new`, and is not used afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_decode_options_free(options: *mut pz_decode_options) {
    // SAFETY: The caller's promise.
    unsafe { free(options) }
}

/// Sets the number of threads; 0, the default, means one for each core.
///
/// # Safety
/// `options` came from `pz_decode_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_decode_options_threads(
    options: *mut pz_decode_options,
    threads: usize,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.threads(threads))) }
}

/// Limits the bytes of contents, for untrusted input.
///
/// # Safety
/// `options` came from `pz_decode_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_decode_options_max_output(
    options: *mut pz_decode_options,
    max_output: u64,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.max_output(max_output))) }
}

/// Sets whether all modules in the input may run; by default none may. Modules are programs by the author of the input.
/// They can access only their input and output, in bounded time and memory.
///
/// # Safety
/// `options` came from `pz_decode_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_decode_options_allow_modules(
    options: *mut pz_decode_options,
    allow: bool,
) -> pz_status {
    let modules = if allow { Modules::Allow } else { Modules::Refuse };
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.modules(modules))) }
}

/// Limits the memory to take beside the caller's buffers, in bytes. The default is 2 GiB.
///
/// # Safety
/// `options` came from `pz_decode_options_new` and is not in use.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_decode_options_max_memory(
    options: *mut pz_decode_options,
    max_memory: u64,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set(options, |options| Ok(options.max_memory(max_memory))) }
}

/// Sets a device that works beside the threads, as `pz_options_device` does.
///
/// # Safety
/// `options` came from `pz_decode_options_new` and is not in use. `device` is text that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pz_decode_options_device(
    options: *mut pz_decode_options,
    device: *const c_char,
) -> pz_status {
    // SAFETY: The caller's promise.
    unsafe { set_device(options, device) }
}

/// The options behind a pointer; the defaults for NULL.
///
/// # Safety
/// `options` is NULL or came from `pz_options_new`.
pub unsafe fn encode_options(options: *const pz_options) -> Options {
    // SAFETY: The caller's promise.
    match unsafe { options.as_ref() } {
        Some(pz_options(options, device)) => {
            device.set(options.clone(), Options::auto, Options::gpu)
        }
        None => Options::new(),
    }
}

/// The options behind a pointer; the defaults for NULL.
///
/// # Safety
/// `options` is NULL or came from `pz_decode_options_new`.
pub unsafe fn decode_options(options: *const pz_decode_options) -> DecodeOptions {
    // SAFETY: The caller's promise.
    match unsafe { options.as_ref() } {
        Some(pz_decode_options(options, device)) => {
            device.set(options.clone(), DecodeOptions::auto, DecodeOptions::gpu)
        }
        None => DecodeOptions::new(),
    }
}
