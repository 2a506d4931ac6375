//! What tests of this package share with libpz's tests of modules on devices, which read this file as a module of their
//! own.

use super::pz_module::compile::Compiled;
use super::pz_module::execute::{Lane, Windows};
use super::pz_module::program::{Program, Trap};
use super::pz_module::{Module, interpret};

/// The source of a module in `tests/modules`.
macro_rules! source {
    ($name:literal) => {
        include_str!(concat!("../../../tests/modules/", $name, ".wat"))
    };
}
pub(crate) use source;

/// All modules of `tests/modules` that are not refused.
pub(crate) const SOURCES: [&str; 14] = [
    source!("01_helper_called_twice"),
    source!("02_two_helpers"),
    source!("04_thread_id"),
    source!("05_gradient"),
    source!("06_nested_calls"),
    source!("07_parameters"),
    source!("08_locals"),
    source!("10_chain_of_eight"),
    source!("stress"),
    source!("values"),
    source!("bulk"),
    source!("windows"),
    source!("state"),
    source!("hostile"),
];

/// The module of a text.
pub(crate) fn module(text: &str) -> Module {
    let bytes = wat::parse_str(text).unwrap_or_else(|error| panic!("{error}"));
    Module::read(bytes).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// Checks what `05_gradient` draws on a picture of 800 by 600 pixels.
pub(crate) fn check_gradient(pixels: &[u32]) {
    for (at, pixel) in pixels.iter().enumerate() {
        assert_eq!(*pixel, (at as u32 % 800 * 255 / 799) | 0xff00_0000);
    }
}

/// What lanes reach, and what they did to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct World {
    pub(crate) input: Vec<u8>,
    pub(crate) output: Vec<u8>,
    pub(crate) state: Vec<u32>,
    pub(crate) pixels: Vec<u32>,
    pub(crate) width: u32,
    pub(crate) time: u32,
    pub(crate) results: Vec<u64>,
    /// The first trap, and the lane's number.
    pub(crate) trap: Option<(u32, Trap)>,
}

impl World {
    /// A world with some of everything.
    pub(crate) fn new() -> Self {
        Self {
            input: (0..1003u32).map(|i| ((i * i) >> 3) as u8).collect(),
            output: vec![0x5a; 1010],
            state: (0..40).map(|i| i * 1000).collect(),
            pixels: vec![0; 12 * 7],
            width: 12,
            time: 123_456,
            results: Vec::new(),
            trap: None,
        }
    }

    /// Checks that `expected` is the same.
    #[track_caller]
    pub(crate) fn must_be(&self, expected: &Self, what: &str) {
        assert_eq!((self.trap, &self.results), (expected.trap, &expected.results), "{what}");
        assert!(self == expected, "{what}: windows, state or pixels");
    }

    /// What lanes reach of it.
    pub(crate) fn windows(&mut self) -> Windows<'_> {
        Windows {
            input: &self.input,
            output: &mut self.output,
            state: &mut self.state,
            pixels: &mut self.pixels,
            width: self.width,
            time: self.time,
        }
    }

    /// Runs `lanes` lanes by `one`.
    fn run(
        mut self,
        lanes: u32,
        arguments: &[u64],
        fuel: u32,
        one: impl Fn(&mut Windows<'_>, Lane<'_>) -> Result<u64, Trap>,
    ) -> Self {
        let (mut results, mut trap) = (Vec::new(), None);
        let mut windows = self.windows();
        for number in 0..lanes {
            match one(&mut windows, Lane { number, arguments, fuel }) {
                Ok(result) => results.push(result),
                Err(found) => {
                    trap = Some((number, found));
                    break;
                }
            }
        }
        (self.results, self.trap) = (results, trap);
        self
    }
}

/// What a run of lanes does in a world, step by step and compiled, which must be the same.
pub(crate) fn on_the_cpu_in(
    world: World,
    program: &Program,
    lanes: u32,
    arguments: &[u64],
    fuel: u32,
) -> World {
    let by_steps = world
        .clone()
        .run(lanes, arguments, fuel, |windows, lane| interpret::run(program, windows, lane));
    if let Some(compiled) = Compiled::new(program) {
        let world =
            world.run(lanes, arguments, fuel, |windows, lane| compiled.run(program, windows, lane));
        world.must_be(&by_steps, "compiled, and step by step");
    } else {
        let must_be = cfg!(any(target_arch = "x86_64", target_arch = "aarch64"));
        assert!(!must_be, "not compiled");
    }
    by_steps
}

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
