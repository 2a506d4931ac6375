//! Modules on the CPU, compared with wasmi, an interpreter of WebAssembly that shares nothing with this code but the
//! parser.

mod cases;
mod counting;
pub(crate) mod mutations;
mod reference;
mod refusals;

use super::compile::Compiled;
use super::execute::{Lane, Windows};
use super::program::{Program, Trap};
use super::{Entry, Module, interpret};

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

    /// Runs `lanes` lanes by `one`.
    fn run(
        mut self,
        lanes: u32,
        arguments: &[u64],
        fuel: u32,
        one: impl Fn(&mut Windows<'_>, Lane<'_>) -> Result<u64, Trap>,
    ) -> Self {
        let mut windows = Windows {
            input: &self.input,
            output: &mut self.output,
            state: &mut self.state,
            pixels: &mut self.pixels,
            width: self.width,
            time: self.time,
        };
        for number in 0..lanes {
            match one(&mut windows, Lane { number, arguments, fuel }) {
                Ok(result) => self.results.push(result),
                Err(trap) => {
                    self.trap = Some((number, trap));
                    break;
                }
            }
        }
        self
    }
}

/// What a run of lanes does, step by step and compiled, which must be the same.
pub(crate) fn on_the_cpu(program: &Program, lanes: u32, arguments: &[u64], fuel: u32) -> World {
    on_the_cpu_in(World::new(), program, lanes, arguments, fuel)
}

/// The same in another world.
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

/// What a run of lanes does on the CPU, and by wasmi: these must agree, but for what wasmi does not limit, the size of
/// private memory.
pub(crate) fn compared(
    module: &Module,
    name: &str,
    lanes: u32,
    arguments: &[u64],
    fuel: u32,
) -> World {
    let entry = module.entry(name).unwrap_or_else(|refusal| panic!("{refusal}"));
    compare(module, name, &entry, lanes, arguments, fuel)
}

/// The same for an entry that was translated.
fn compare(
    module: &Module,
    name: &str,
    entry: &Entry,
    lanes: u32,
    arguments: &[u64],
    fuel: u32,
) -> World {
    let world = on_the_cpu(&entry.program, lanes, arguments, fuel);
    if !matches!(world.trap, Some((_, Trap::Memory))) {
        let expected = reference::run(module.bytes(), name, lanes, arguments, fuel);
        world.must_be(&expected, &format!("{name} with {arguments:?}, by wasmi"));
    }
    world
}
