//! Runs modules by wasmi.

use wasmi::errors::ErrorKind;
use wasmi::{Caller, Config, Engine, Error, Linker, Module, Store, TrapCode, Val, ValType};

use super::counting::{FUEL, counting};
use super::shared::World;
use crate::program::Trap;

/// Instructions that a lane may take, many times what fuel lets any test's module take.
const INSTRUCTIONS: u64 = 50_000_000;

/// What lanes reach.
struct Host {
    world: World,
    lane: u32,
}

/// An access beyond what there is.
#[derive(Debug)]
struct Beyond;

impl std::fmt::Display for Beyond {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("beyond")
    }
}

impl wasmi::errors::HostError for Beyond {}

fn beyond() -> Error {
    Error::host(Beyond)
}

/// The place of pixel `x`, `y`.
fn pixel(world: &mut World, x: u32, y: u32) -> Option<&mut u32> {
    if x >= world.width {
        return None;
    }
    world.pixels.get_mut(y as usize * world.width as usize + x as usize)
}

fn linker(engine: &Engine) -> Linker<Host> {
    let mut linker = Linker::new(engine);
    linker
        .func_wrap("pz", "in8", |host: Caller<'_, Host>, at: u32| {
            host.data().world.input.get(at as usize).map(|byte| u32::from(*byte)).ok_or_else(beyond)
        })
        .unwrap()
        .func_wrap("pz", "in32", |host: Caller<'_, Host>, at: u32| {
            let words = host.data().world.input.chunks_exact(4).nth(at as usize);
            words.map(|word| u32::from_le_bytes(word.try_into().unwrap())).ok_or_else(beyond)
        })
        .unwrap()
        .func_wrap("pz", "out8", |mut host: Caller<'_, Host>, at: u32, value: u32| {
            let place = host.data_mut().world.output.get_mut(at as usize);
            place.map(|place| *place = value as u8).ok_or_else(beyond)
        })
        .unwrap()
        .func_wrap("pz", "out32", |mut host: Caller<'_, Host>, at: u32, value: u32| {
            let place = host.data_mut().world.output.chunks_exact_mut(4).nth(at as usize);
            place.map(|place| place.copy_from_slice(&value.to_le_bytes())).ok_or_else(beyond)
        })
        .unwrap()
        .func_wrap("gpu", "thread_id", |host: Caller<'_, Host>| host.data().lane)
        .unwrap()
        .func_wrap("gpu", "get_time", |host: Caller<'_, Host>| host.data().world.time)
        .unwrap()
        .func_wrap("gpu", "atomic_add", |mut host: Caller<'_, Host>, at: u32, value: u32| {
            let place = host.data_mut().world.state.get_mut(at as usize).ok_or_else(beyond)?;
            let old = *place;
            *place = old.wrapping_add(value);
            Ok(old)
        })
        .unwrap()
        .func_wrap("gpu", "read_state", |host: Caller<'_, Host>, at: u32| {
            host.data().world.state.get(at as usize).copied().ok_or_else(beyond)
        })
        .unwrap()
        .func_wrap("gpu", "write_state", |mut host: Caller<'_, Host>, at: u32, value: u32| {
            host.data_mut()
                .world
                .state
                .get_mut(at as usize)
                .map(|place| *place = value)
                .ok_or_else(beyond)
        })
        .unwrap()
        .func_wrap("gpu", "set_pixel", |mut host: Caller<'_, Host>, x: u32, y: u32, colour: u32| {
            pixel(&mut host.data_mut().world, x, y).map(|place| *place = colour).ok_or_else(beyond)
        })
        .unwrap();
    linker
}

fn trap(error: &Error) -> Trap {
    if error.downcast_ref::<Beyond>().is_some() {
        return Trap::Window;
    }
    match error.kind() {
        ErrorKind::TrapCode(TrapCode::UnreachableCodeReached) => Trap::Unreachable,
        ErrorKind::TrapCode(TrapCode::IntegerDivisionByZero | TrapCode::IntegerOverflow) => {
            Trap::Division
        }
        ErrorKind::TrapCode(TrapCode::MemoryOutOfBounds) => Trap::Memory,
        _ => panic!("{error}"),
    }
}

/// Runs the exported function `name` for `lanes` lanes. As each lane has memory and globals of its own, each has an
/// instance of its own. Each has `fuel` units of fuel, which the module counts itself.
pub(super) fn run(bytes: &[u8], name: &str, lanes: u32, arguments: &[u64], fuel: u32) -> World {
    let mut config = Config::default();
    config.consume_fuel(true);
    let engine = Engine::new(&config);
    let module = Module::new(&engine, counting(bytes, fuel)).unwrap();
    let linker = linker(&engine);
    let mut world = World::new();
    for lane in 0..lanes {
        let mut store = Store::new(&engine, Host { world, lane });
        store.set_fuel(INSTRUCTIONS).unwrap();
        let instance = linker.instantiate_and_start(&mut store, &module).unwrap();
        let function = instance.get_func(&store, name).unwrap();
        let ty = function.ty(&store);
        let arguments = ty.params().iter().zip(arguments.iter().chain(std::iter::repeat(&0)));
        let arguments: Vec<_> = arguments
            .map(|(ty, value)| match ty {
                ValType::I64 => Val::I64(*value as i64),
                _ => Val::I32(*value as i32),
            })
            .collect();
        let mut results = vec![Val::I32(0); ty.results().len()];
        let outcome = function.call(&mut store, &arguments, &mut results);
        let left = instance.get_global(&store, FUEL).unwrap().get(&store);
        world = store.into_data().world;
        match outcome {
            Ok(()) => world.results.push(match results.first() {
                Some(Val::I32(value)) => u64::from(*value as u32),
                Some(Val::I64(value)) => *value as u64,
                _ => 0,
            }),
            Err(error) => {
                let is_out = matches!(left, Val::I64(..0));
                let trap = if is_out { Trap::Fuel } else { trap(&error) };
                world.trap = Some((lane, trap));
                break;
            }
        }
    }
    world
}
