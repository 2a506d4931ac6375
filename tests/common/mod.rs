//! Helpers that several tests share.
#![allow(dead_code)]

use std::io::{self, Read};

use pz::{DecodeOptions, Level, Options, Pipeline};

/// Turns any bytes into bytes with many calls of x86 and Arm programs, some of which overlap.
pub fn calls(bytes: impl IntoIterator<Item = u8>) -> Vec<u8> {
    const BYTES: [u8; 8] = [0xe8, 0xe9, 0, 0xff, 0x94, 0x97, 7, 0xe7];
    bytes.into_iter().map(|byte| BYTES[usize::from(byte) % 8]).collect()
}

/// Compressible bytes: most often words from a small vocabulary, less often runs, least often noise.
pub fn sample(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut out = Vec::with_capacity(len + 64);
    while out.len() < len {
        let random = next();
        match random % 16 {
            0 => {
                out.extend(std::iter::repeat_n((random >> 8) as u8, (random >> 16) as usize % 300))
            }
            1 => out.extend(random.to_le_bytes()),
            _ => {
                let word = (random >> 8) % 500;
                out.extend_from_slice(format!("word{:x} ", word * word).as_bytes());
            }
        }
    }
    out.truncate(len);
    out
}

/// Every level, and every pipeline at the default level, with a name for messages.
pub fn levels_and_pipelines() -> Vec<(Options, String)> {
    let levels = Level::all().map(|level| (Options::new().level(level), format!("level {level}")));
    let pipelines =
        Pipeline::ALL.map(|pipeline| (Options::new().pipeline(pipeline), pipeline.to_string()));
    levels.chain(pipelines).collect()
}

/// Decodes on one thread, so that concurrent tests do not crowd the machine.
pub fn decode_options() -> DecodeOptions {
    DecodeOptions::new().threads(1)
}

/// A reader that returns one byte at a time, and sometimes reports an interruption.
pub struct Trickle<'a>(pub &'a [u8]);

impl Read for Trickle<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let Some((first, rest)) = self.0.split_first() else { return Ok(0) };
        if buf.is_empty() {
            return Ok(0);
        }
        buf[0] = *first;
        self.0 = rest;
        Ok(1)
    }
}
