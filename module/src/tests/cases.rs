//! What modules give, on the CPU.

use super::compared;
use super::shared::{SOURCES, World, check_gradient, module, on_the_cpu_in, source};
use crate::program::Trap;
use crate::translate::{self, OpenClC, Wgsl};

/// The first lane's result of `main`.
fn result(text: &str, arguments: &[u64]) -> u64 {
    let world = compared(&module(text), "main", 2, arguments, 1000);
    assert_eq!((world.trap, world.results.len()), (None, 2));
    world.results[0]
}

#[test]
fn ten_cases() {
    assert_eq!(result(source!("01_helper_called_twice"), &[]), 25);
    assert_eq!(result(source!("02_two_helpers"), &[2]), 20);
    assert_eq!(result(source!("06_nested_calls"), &[10]), 13);
    assert_eq!(result(source!("07_parameters"), &[0, 100, 50]), 50);
    assert_eq!(result(source!("08_locals"), &[5]), 159);
    assert_eq!(result(source!("10_chain_of_eight"), &[0]), 8);
    let world = compared(&module(source!("04_thread_id")), "main", 7, &[], 0);
    assert_eq!(world.results, (0..7).collect::<Vec<_>>());
    // Cases 3 and 9 are refused: see `refusals`.
}

#[test]
fn a_gradient_is_drawn() {
    let entry = module(source!("05_gradient")).entry("main").unwrap();
    let world = World { pixels: vec![0; 800 * 600], width: 800, ..World::new() };
    let world = on_the_cpu_in(world, &entry.program, 800 * 600, &[], 0);
    assert_eq!(world.trap, None);
    check_gradient(&world.pixels);
    let world = on_the_cpu_in(World::new(), &entry.program, 800, &[], 0);
    assert_eq!(world.trap, Some((12, Trap::Window)), "a picture of 12 by 7");
}

#[test]
fn control_flow_and_numbers_agree() {
    let stress = module(source!("stress"));
    for n in (0..300u64).chain([0x7fff_ffff, 0x8000_0000, 0xffff_ffff]) {
        assert_eq!(compared(&stress, "main", 1, &[n], 5000).trap, None, "{n}");
    }
    let values = [
        0,
        1,
        2,
        3,
        31,
        32,
        33,
        63,
        64,
        100,
        0x7f,
        0x80,
        0xffff,
        0x8000,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        1 << 32,
        0x1_0000_0001,
        u64::MAX,
        1 << 63,
        i64::MAX as u64,
        0x0123_4567_89ab_cdef,
        -7i64 as u64,
    ];
    for a in values {
        for b in values {
            compared(&stress, "operations", 1, &[a, b], 0);
        }
    }
    let several = module(source!("values"));
    for n in 0..40 {
        assert_eq!(compared(&several, "main", 1, &[n], 50).trap, None);
    }
}

#[test]
fn memory_is_filled_and_copied() {
    let bulk = module(source!("bulk"));
    for count in [0, 1, 7, 8, 9, 16, 31, 100] {
        for (to, from) in [(0, 0), (3, 1), (1, 3), (40, 0), (0, 40), (9, 1), (1, 9), (300, 10)] {
            assert_eq!(compared(&bulk, "main", 1, &[to, from, count], 200).trap, None);
        }
    }
    for arguments in [[0, 500, 13], [300, 0, 113], [0, 0, 0xffff_ffff], [0xffff_ffff, 0, 8]] {
        let world = compared(&bulk, "main", 1, &arguments, 200);
        assert_eq!(world.trap, Some((0, Trap::Memory)), "{arguments:?}");
    }
    // 100 bytes take 12 + 4 + 2 units for each of both, and the hash 64.
    assert_eq!(compared(&bulk, "main", 1, &[0, 0, 100], 100).trap, None);
    assert_eq!(compared(&bulk, "main", 1, &[0, 0, 100], 99).trap, Some((0, Trap::Fuel)));
}

#[test]
fn windows_and_state_are_shared() {
    let windows = module(source!("windows"));
    for lanes in [1, 3, 64] {
        let world =
            compared(&windows, "words", lanes, &[0, lanes.into(), 1003, 1010, 0xff00], 1000);
        assert_eq!(world.trap, None);
        let world = compared(&windows, "bytes", lanes, &[0, lanes.into(), 1003, 1010], 4000);
        assert_eq!(world.trap, None);
    }
    for at in [0, 1000, 1003, 1009, 1010, 0xffff_ffff] {
        let world = compared(&windows, "beyond", 1, &[at], 0);
        assert_eq!(world.trap.is_some(), at >= 1000, "{at}");
    }
    let world = compared(&module(source!("state")), "main", 20, &[3], 0);
    assert_eq!((world.trap, world.state[0]), (None, 190));
    assert_eq!(world.state[7], 123_460);
}

/// Each entry ends in the trap it must end in, in bounded time.
#[test]
fn hostile_modules_are_trapped() {
    let hostile = module(source!("hostile"));
    let trap = |entry, arguments: &[u64]| compared(&hostile, entry, 1, arguments, 1000).trap;
    let at_first = |trap| Some((0, trap));
    assert_eq!(trap("forever", &[]), at_first(Trap::Fuel));
    assert_eq!(trap("forever_nested", &[]), at_first(Trap::Fuel));
    assert_eq!(trap("forever_writing", &[]), at_first(Trap::Fuel));
    assert_eq!(trap("input", &[]), at_first(Trap::Window));
    assert_eq!(trap("output", &[]), at_first(Trap::Window));
    assert_eq!(trap("memory", &[]), at_first(Trap::Memory));
    // Without `__heap_base`, private memory has 4096 bytes.
    assert_eq!(trap("memory_end", &[4092]), None);
    assert_eq!(trap("memory_end", &[4093]), at_first(Trap::Memory));
    assert_eq!(trap("memory_end", &[0xffff_ffff]), at_first(Trap::Memory));
    assert_eq!(trap("divide", &[0]), at_first(Trap::Division));
    assert_eq!(trap("overflow", &[0x8000_0000]), at_first(Trap::Division));
    assert_eq!(trap("overflow", &[7]), None);
    assert_eq!(trap("panic", &[1]), at_first(Trap::Unreachable));
    assert_eq!(trap("panic", &[0]), None);
}

/// A turn of a loop takes as much fuel as its work is worth, whatever hides the work.
#[test]
fn a_turn_of_a_loop_takes_fuel_for_its_work() {
    let add = "(local.set 1 (i32.add (local.get 1) (i32.const 3)))";
    let divide = "(local.set 2 (i64.div_u (local.get 2) (local.get 2)))";
    let small = "(local.set 1 (i32.rem_u (local.get 1) (i32.const 7)))";
    // The turn itself has 6 instructions besides.
    for (inner, charge) in [
        (String::new(), 1),
        (add.repeat(6), 1),
        (add.repeat(7), 2),
        // 35 for each with its operands, 11 for each of 32 bits.
        (divide.repeat(5), 6),
        (small.repeat(5), 2),
        (divide.repeat(900), 985),
        // A loop that nothing branches to is a block.
        (format!("(loop {})", add.repeat(100)), 13),
        // What is never reached costs nothing.
        (format!("(block $out (br $out) {})", divide.repeat(100)), 1),
        (format!("(block $out (loop $in (br $in)) {})", divide.repeat(100)), 1),
        // The functions that it calls cost, each time: 12, 1 for a local, and 1 for the argument.
        ("(call $helper (i32.const 5))".repeat(10), 5),
        // An import costs 8, and its argument 1.
        ("(drop (call $in8 (i32.const 5)))".repeat(10), 4),
        // 1 for each label but the default, and the index.
        (format!("(block $out (br_table {} $out (i32.const 9)))", "$out ".repeat(100)), 4),
    ] {
        let text = format!(
            "(module (import \"pz\" \"in8\" (func $in8 (param i32) (result i32)))
                (func $helper (param $a i32) {adds})
                (func (export \"main\") (param i32) (local i32 i64)
                    (local.set 2 (i64.const 9))
                    (loop $a
                        {inner}
                        (local.set 0 (i32.sub (local.get 0) (i32.const 1)))
                        (br_if $a (local.get 0)))))",
            adds = "(drop (i32.add (local.get $a) (i32.const 1)))".repeat(3),
        );
        let module = module(&text);
        let enough = 5 * charge;
        for (fuel, trap) in [
            (enough, None),
            (enough - 1, Some((0, Trap::Fuel))),
            (charge - 1, Some((0, Trap::Fuel))),
            (0, Some((0, Trap::Fuel))),
        ] {
            // The endless loop runs out of any fuel.
            let trap = if inner.contains("$in (br") { Some((0, Trap::Fuel)) } else { trap };
            let found = compared(&module, "main", 1, &[5], fuel).trap;
            assert_eq!(found, trap, "{} bytes with {fuel}", inner.len());
        }
    }
}

/// Beside the entry point, which is the same for all, the text is less than eight times as long as the module.
#[test]
fn text_is_short() {
    for text in SOURCES {
        let module = module(text);
        let most = 1200 + 8 * module.bytes().len();
        for name in module.exports() {
            let entry = module.entry(name).unwrap();
            let texts = [
                |program: &_| translate::kernel::<OpenClC>(program, translate::Purpose::Run),
                |program: &_| translate::kernel::<Wgsl>(program, translate::Purpose::Run),
            ];
            for text in texts.map(|kernel| kernel(&entry.program)) {
                assert!(text.len() < most, "{} bytes, at most {most}: {text}", text.len());
            }
        }
    }
}

/// Programs with more variables than the compiler finds registers for in reasonable time keep them in memory.
#[test]
fn programs_with_many_variables_and_statements_run_alike() {
    const VARIABLES: usize = 400;
    let set = |i: usize| format!("(local.set {i} (i32.mul (local.get 0) (i32.const {i})))");
    let add = |i: usize| format!("(local.set 0 (i32.add (local.get 0) (local.get {i})))");
    // Each step reads one variable and writes another.
    let steps: [&dyn Fn(usize, usize) -> String; 3] = [
        &|a, b| format!("(if (local.get {a}) (then (local.set {b} (local.get {a}))))"),
        &|a, b| format!("(local.set {b} (i32.div_u (local.get {a}) (i32.const {b})))"),
        &|a, b| {
            let turn = format!("(local.set {b} (i32.shr_u (local.get {b}) (i32.const 1)))");
            format!("(loop {turn} (br_if 0 (i32.and (local.get {b}) (local.get {a}))))")
        },
    ];
    for step in steps {
        for count in [10, 1500] {
            let step = |i: usize| step(1 + i % VARIABLES, 1 + (7 * i + 3) % VARIABLES);
            let all = (1..=VARIABLES).map(set).chain((0..count).map(step));
            let body: String = all.chain((1..=VARIABLES).map(add)).collect();
            let locals = " i32".repeat(VARIABLES);
            let module = module(&format!(
                "(module (func (export \"main\") (param i32) (result i32) (local{locals}) \
                 {body} (local.get 0)))"
            ));
            for argument in [0, 3] {
                assert_eq!(compared(&module, "main", 2, &[argument], 100_000).trap, None);
            }
        }
    }
}
