//! pz as a WebAssembly module: the functions that `run.mjs` calls.
//!
//! The caller writes its input to the memory that [`input`] returns, and reads the result at [`output`].

use std::cell::RefCell;
use std::io::{self, Cursor, Read, Write};

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

/// Compresses the input at a level, as a stream written in small parts. Returns the length of the result, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn write_stream(level: u32) -> isize {
    run(|input| {
        let statistics = pz::Statistics::new();
        let options = pz::Options::new().level(pz::Level::new(level)?);
        let options = options.statistics(&statistics).auto(&pz::Auto::new());
        let mut encoder = pz::Encoder::new(Vec::new(), &options)?;
        input.chunks(10_000).try_for_each(|part| encoder.write_all(part))?;
        let result = encoder.finish()?;
        counted(&statistics, &result).map(|()| result)
    })
}

/// Decompresses the input, as a stream read in small parts. Returns the length of the result, or -1.
#[unsafe(no_mangle)]
pub extern "C" fn read_stream() -> isize {
    run(|input| {
        let statistics = pz::Statistics::new();
        let options = pz::DecodeOptions::new().statistics(&statistics).auto(&pz::Auto::new());
        let mut decoder = pz::Decoder::new(input, &options)?;
        let (mut result, mut part) = (Vec::new(), [0; 10_000]);
        loop {
            match decoder.read(&mut part)? {
                0 => return counted(&statistics, input).map(|()| result),
                n => result.extend_from_slice(&part[..n]),
            }
        }
    })
}

/// Checks that the statistics of a run count all coded bytes of `file`: the blocks' own.
fn counted(statistics: &pz::Statistics, file: &[u8]) -> Result<(), pz::Error> {
    let frames = pz::list(&mut Cursor::new(file), true)?;
    let blocks = frames.iter().flat_map(|frame| &frame.blocks);
    let own: u64 = blocks.map(|block| block.own_size.unwrap_or(block.content_size)).sum();
    if statistics.cpu().bytes == own {
        return Ok(());
    }
    Err(io::Error::other("the statistics do not count every byte").into())
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
