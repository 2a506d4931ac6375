//! Modules on the CPU, compared with wasmi, an interpreter of WebAssembly that shares nothing with this code but the
//! parser.

mod cases;
mod counting;
mod mutations;
mod reference;
mod refusals;
pub(crate) mod shared;

use crate as pz_module;
use crate::program::{Program, Trap};
use crate::{Entry, Module};
use shared::{World, on_the_cpu_in};

/// What a run of lanes does, step by step and compiled, which must be the same.
fn on_the_cpu(program: &Program, lanes: u32, arguments: &[u64], fuel: u32) -> World {
    on_the_cpu_in(World::new(), program, lanes, arguments, fuel)
}

/// What a run of lanes does on the CPU, and by wasmi: these must agree, but for what wasmi does not limit, the size of
/// private memory.
fn compared(module: &Module, name: &str, lanes: u32, arguments: &[u64], fuel: u32) -> World {
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
