//! Compares modules on devices with modules on the CPU, which tests of [`crate::module`] compare with another
//! interpreter.

#[path = "../../../module/src/tests/shared.rs"]
mod shared;

use super::testing::{each_device, run_plan};
use crate::gpu::device::pool::Pool;
use crate::gpu::device::{Device, Kind};
#[cfg(feature = "cuda")]
use crate::gpu::model::kernel::Kernel;
use crate::gpu::model::plan::Shape;
#[cfg(feature = "cuda")]
use crate::gpu::module::filter_kernel;
use crate::gpu::module::{RunError, kernel, plan, reach_of, run};
#[cfg(feature = "cuda")]
use crate::module::translate::Purpose;
use crate::module::{self as pz_module, Entry, Module, Trap};
use shared::{
    Random, SOURCES, World, arguments, check_gradient, module, mutated, on_the_cpu_in, source,
};

/// Runs lanes on a device.
fn on(
    device: &dyn Device,
    mut world: World,
    entry: &Entry,
    lanes: u32,
    arguments: &[u64],
    fuel: u32,
) -> Result<World, RunError> {
    // The allocated memory equals the prediction.
    let pool = Pool::new(device);
    let reach = reach_of(&world.windows())?;
    let results = run(&pool, entry, &mut world.windows(), lanes, arguments, fuel)?;
    let predicted = Shape::new(1, lanes).memory(&[kernel(entry.program(), reach)?]);
    assert_eq!(pool.high_water(), predicted.unwrap());
    world.results = results;
    Ok(world)
}

/// Runs lanes on a device and on the CPU, and compares the results.
fn compare(
    device: &dyn Device,
    entry: &Entry,
    lanes: u32,
    arguments: &[u64],
    fuel: u32,
    what: &str,
) {
    let expected = on_the_cpu_in(World::new(), entry.program(), lanes, arguments, fuel);
    match (on(device, World::new(), entry, lanes, arguments, fuel), expected.trap) {
        (Ok(world), None) => world.must_be(&expected, &format!("{what}, {arguments:x?}")),
        (Err(RunError::Trapped(lane, trap)), Some(first)) => {
            assert_eq!((lane, trap), first, "{what}, {arguments:x?}");
        }
        // A device that ends long loops refuses entries that take many iterations.
        (Err(RunError::Declined(_)), _) if device.limits().kind == Kind::Software => {
            println!("declined: {what}");
        }
        (found, first) => panic!("{what}, {arguments:x?}: {found:?} instead of {first:?}"),
    }
}

/// Every entry of a text.
fn entries(text: &str) -> Vec<(String, Entry)> {
    let module = module(text);
    module.exports().iter().map(|name| (name.clone(), module.entry(name).unwrap())).collect()
}

/// The kernels of all test modules.
#[cfg(feature = "cuda")]
pub(crate) fn kernels() -> Vec<(&'static Kernel, Purpose)> {
    let reach = reach_of(&World::new().windows()).unwrap();
    let filters = [
        include_str!("../../../tests/modules/filter.wat"),
        include_str!("../../../tests/modules/words.wat"),
    ];
    let all = SOURCES.into_iter().chain(filters).flat_map(entries);
    let both = all.flat_map(|(_, entry)| {
        let program = entry.program();
        [
            (kernel(program, reach).unwrap(), Purpose::Run),
            (filter_kernel(program, 12).unwrap(), Purpose::Filter),
        ]
    });
    both.collect()
}

#[test]
fn ten_cases_on_devices() {
    each_device(|device| {
        let result = |text: &str, arguments: &[u64]| {
            let (_, entry) = &entries(text)[0];
            compare(device, entry, 65, arguments, 0, text);
            on(device, World::new(), entry, 1, arguments, 0).unwrap().results[0]
        };
        assert_eq!(result(source!("01_helper_called_twice"), &[]), 25);
        assert_eq!(result(source!("02_two_helpers"), &[2]), 20);
        assert_eq!(result(source!("06_nested_calls"), &[10]), 13);
        assert_eq!(result(source!("07_parameters"), &[0, 100, 50]), 50);
        assert_eq!(result(source!("08_locals"), &[5]), 159);
        assert_eq!(result(source!("10_chain_of_eight"), &[0]), 8);
        let (_, entry) = &entries(source!("04_thread_id"))[0];
        let world = on(device, World::new(), entry, 1000, &[], 0).unwrap();
        assert_eq!(world.results, (0..1000).collect::<Vec<_>>());
        // A picture of 800 by 600 pixels.
        let (_, entry) = &entries(source!("05_gradient"))[0];
        let world = World { pixels: vec![0; 800 * 600], width: 800, ..World::new() };
        let world = on(device, world, entry, 800 * 600, &[], 0).unwrap();
        check_gradient(&world.pixels);
    });
}

#[test]
fn control_flow_numbers_and_windows_agree() {
    each_device(|device| {
        for text in SOURCES {
            for (name, entry) in entries(text) {
                for seed in 1..6 {
                    let arguments = arguments(&mut Random::new(seed));
                    compare(device, &entry, 3, &arguments, 400, &format!("{name} of {text}"));
                }
                if name == "words" || name == "bytes" {
                    let arguments = [0, 64, 1003, 1010, 0xff00];
                    compare(device, &entry, 64, &arguments, 300, &name);
                }
            }
        }
        let (_, operations) = &entries(source!("stress"))[1];
        let values = [
            0,
            1,
            31,
            32,
            33,
            63,
            64,
            1 << 31,
            1 << 32,
            u64::MAX,
            1 << 63,
            u64::MAX >> 1,
            0x0123_4567_89ab_cdef,
        ];
        for a in values {
            for b in values {
                compare(device, operations, 1, &[a, b], 0, "operations");
            }
        }
    });
}

/// Endless loops and accesses out of bounds end on devices as they do on the CPU.
#[test]
fn hostile_modules_are_trapped_on_devices() {
    each_device(|device| {
        for (name, entry) in entries(source!("hostile")) {
            for argument in [0, 1, 4092, 4093, 1 << 31, u64::MAX] {
                compare(device, &entry, 70, &[argument], 1000, &name);
            }
        }
        // Such a device declines work for more fuel than its loops can use; it never silently stops short.
        let forever = &entries(source!("hostile"))[1].1;
        let found = on(device, World::new(), forever, 1, &[], 100_000).err().unwrap();
        let is_cut = device.limits().ends_long_loops();
        assert_eq!(matches!(found, RunError::Declined(_)), is_cut, "{found}");
        assert_eq!(found == RunError::Trapped(0, Trap::Fuel), !is_cut, "{found}");
    });
}

#[test]
fn mutated_modules_do_the_same_on_devices() {
    mutated_on_devices(77, 40);
}

/// Takes some minutes.
#[test]
#[ignore = "long: run it after changes to how modules are translated"]
fn many_mutated_modules_do_the_same_on_devices() {
    mutated_on_devices(78, 600);
}

/// Runs `count` mutated modules on every device.
fn mutated_on_devices(seed: u64, count: usize) {
    let sources = SOURCES.map(|text| wat::parse_str(text).unwrap());
    let mut random = Random::new(seed);
    let mut found = Vec::new();
    while found.len() < count {
        let source = &sources[random.below(sources.len())];
        let Ok(module) = Module::read(mutated(source, &mut random)) else { continue };
        let names = module.exports();
        let Some(name) = names.get(random.below(names.len())) else { continue };
        let Ok(entry) = module.entry(name) else { continue };
        found.push((entry, arguments(&mut random)));
    }
    each_device(|device| {
        for (at, (entry, arguments)) in found.iter().enumerate() {
            // A single lane: if several wrote to one place, their order would decide the result.
            compare(device, entry, 1, arguments, 200, &format!("mutated module {at}"));
        }
    });
}

/// The deepest nesting that is allowed, and a choice among many labels in its middle, compile everywhere.
#[test]
fn deep_nesting_and_wide_choices_run() {
    let depths: Vec<_> = (0..500).map(|at| (at % 90).to_string()).collect();
    let text = format!(
        "(module (func (export \"main\") (param i32) (result i32) (local i32) {} \
         (br_table {} (local.get 0)) {} (local.get 1)))",
        "(block ".repeat(99),
        depths.join(" "),
        "(local.set 1 (i32.add (local.get 1) (i32.const 1))))".repeat(99),
    );
    let entry = module(&text).entry("main").unwrap();
    each_device(|device| {
        for argument in [0, 1, 89, 90, 250, 499, 500, u64::MAX] {
            compare(device, &entry, 2, &[argument], 0, "deep");
        }
    });
}

#[test]
fn what_a_device_cannot_hold_is_declined() {
    let (_, entry) = &entries(source!("04_thread_id"))[0];
    each_device(|device| {
        let found = on_lanes(device, entry, u32::MAX);
        assert!(matches!(found, Err(RunError::Declined(_))), "{found:?}");
        assert_eq!(on_lanes(device, entry, 0), Ok(Vec::new()));
    });
}

fn on_lanes(device: &dyn Device, entry: &Entry, lanes: u32) -> Result<Vec<u64>, RunError> {
    run(device, entry, &mut World::new().windows(), lanes, &[], 0)
}

#[test]
fn a_planted_fault_is_found() {
    let (_, entry) = &entries(source!("windows"))[2];
    each_device(|device| {
        let other = World { input: vec![0; 1003], ..World::new() };
        let arguments = [0, 64, 1003, 1010, 0xff00];
        let found = on(device, other, entry, 64, &arguments, 300).unwrap();
        let expected = on_the_cpu_in(World::new(), entry.program(), 64, &arguments, 300);
        assert_ne!(found.output, expected.output);
    });
}

/// The cost block of a module's kernel is valid, with the same figures in both languages.
#[test]
fn costs_are_derived() {
    let (_, entry) = &entries(source!("stress"))[0];
    let mut world = World::new();
    let reach = reach_of(&world.windows()).unwrap();
    let made = kernel(entry.program(), reach).unwrap();
    let cost = made.cost().unwrap();
    let bytes = |name| cost.buffer(name).unwrap().eval(512).unwrap();
    assert_eq!(cost.threads.eval(512), Ok(512));
    assert_eq!((bytes("module_input"), bytes("module_output")), (1004, 1012));
    assert_eq!((bytes("module_state"), bytes("module_pixels")), (160, 336));
    assert_eq!((bytes("module_arguments"), bytes("module_results")), (64, 6144));
    assert!(std::ptr::eq(made, kernel(entry.program(), reach).unwrap()), "made once");
    let plan = plan(made, 300, reach, &world.windows(), 0).unwrap();
    each_device(|device| {
        run_plan(device, &plan, &[], &[]).unwrap();
    });
}
