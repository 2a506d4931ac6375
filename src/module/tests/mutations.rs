//! Modules with random changes are refused or run within limits, with the same result by every engine.

use super::{SOURCES, compare};
use crate::module::Module;

/// A generator of pseudorandom numbers: xorshift64*.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % end.max(1)
    }
}

/// A module with a few changes. Most are of single bytes of code, which leave many modules valid.
pub(crate) fn mutated(module: &[u8], random: &mut Random) -> Vec<u8> {
    let mut bytes = module.to_vec();
    for _ in 0..1 + random.below(3) {
        let at = 8 + random.below(bytes.len() - 8);
        match random.below(16) {
            0 => bytes[at] ^= 1 << random.below(8),
            1 => bytes[at] = random.below(256) as u8,
            2 => {
                let from = 8 + random.below(bytes.len() - 8);
                bytes[at] = bytes[from];
            }
            3 => {
                bytes.remove(at);
            }
            4 => bytes.insert(at, random.below(256) as u8),
            // An operation of the same kind, if the byte is one.
            _ => {
                let kinds: [&[u8]; 8] = [
                    &[
                        0x6a, 0x6b, 0x6c, 0x6d, 0x6e, 0x6f, 0x70, 0x71, 0x72, 0x73, 0x74, 0x75,
                        0x76, 0x77, 0x78,
                    ],
                    &[
                        0x7c, 0x7d, 0x7e, 0x7f, 0x80, 0x81, 0x82, 0x83, 0x84, 0x85, 0x86, 0x87,
                        0x88, 0x89, 0x8a,
                    ],
                    &[0x46, 0x47, 0x48, 0x49, 0x4a, 0x4b, 0x4c, 0x4d, 0x4e, 0x4f],
                    &[0x51, 0x52, 0x53, 0x54, 0x55, 0x56, 0x57, 0x58, 0x59, 0x5a],
                    &[0x28, 0x2c, 0x2d, 0x2e, 0x2f],
                    &[0x29, 0x30, 0x31, 0x32, 0x33, 0x34, 0x35],
                    &[0x20, 0x21, 0x22],
                    &[0x0c, 0x0d, 0x02, 0x03, 0x01, 0x1a, 0x0b, 0x0f],
                ];
                if let Some(kind) = kinds.iter().find(|kind| kind.contains(&bytes[at])) {
                    bytes[at] = kind[random.below(kind.len())];
                } else {
                    bytes[at] = bytes[at].wrapping_add(1);
                }
            }
        }
    }
    bytes
}

/// Arguments that make most entries do something.
pub(crate) fn arguments(random: &mut Random) -> [u64; 8] {
    let mut arguments = [0; 8];
    for argument in &mut arguments {
        *argument = match random.below(4) {
            0 => random.below(8) as u64,
            1 => random.below(1100) as u64,
            2 => (random.below(1 << 31) as u64) << random.below(34),
            _ => u64::MAX - random.below(9) as u64,
        };
    }
    arguments
}

/// Runs `count` mutated modules from `seed` on. Returns how many were read, and how many entries ran.
fn run(seed: u64, count: usize) -> (usize, usize) {
    let sources = SOURCES.map(|text| wat::parse_str(text).unwrap());
    let mut random = Random::new(seed);
    let (mut read, mut ran) = (0, 0);
    for _ in 0..count {
        let source = &sources[random.below(sources.len())];
        let Ok(module) = Module::read(mutated(source, &mut random)) else { continue };
        read += 1;
        for name in module.exports() {
            let Ok(entry) = module.entry(name) else { continue };
            let arguments = arguments(&mut random);
            compare(&module, name, &entry, 2, &arguments, 300);
            ran += 1;
        }
    }
    (read, ran)
}

#[test]
fn mutated_modules_are_refused_or_run_alike() {
    let (read, ran) = run(1, 4000);
    assert!(read > 800 && ran > 1500, "{read} read, {ran} ran");
}

/// Takes about two minutes.
#[test]
#[ignore = "long: run it after changes to how modules are translated"]
fn many_mutated_modules_are_refused_or_run_alike() {
    for seed in 2..102 {
        let (read, ran) = run(seed, 1000);
        println!("seed {seed}: {read} read, {ran} ran");
    }
}
