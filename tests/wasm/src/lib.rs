//! pz as a WebAssembly module: the functions that `run.mjs` calls.
//!
//! The caller writes its input to the memory that [`input`] returns, and reads the result at [`output`].

use std::cell::RefCell;

thread_local! {
    static INPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    static OUTPUT: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Memory for an input of `len` bytes.
#[unsafe(no_mangle)]
pub extern "C" fn input(len: usize) -> *mut u8 {
    INPUT.with_borrow_mut(|input| {
        input.clear();
        input.resize(len, 0);
        input.as_mut_ptr()
    })
}

/// Address of the result.
#[unsafe(no_mangle)]
pub extern "C" fn output() -> *const u8 {
    OUTPUT.with_borrow(|output| output.as_ptr())
}

/// Decompresses the input. Returns the length of the result, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn decompress() -> isize {
    run(|input| pz::decompress(input, &pz::DecodeOptions::new()))
}

/// Compresses the input at a level. Returns the length of the result, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn compress(level: u32) -> isize {
    run(|input| pz::compress(input, &pz::Options::new().level(pz::Level::new(level)?)))
}

fn run(work: impl FnOnce(&[u8]) -> Result<Vec<u8>, pz::Error>) -> isize {
    match INPUT.with_borrow(|input| work(input)) {
        Ok(result) => {
            let len = result.len() as isize;
            OUTPUT.set(result);
            len
        }
        Err(_) => -1,
    }
}
