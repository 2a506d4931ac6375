//! Modules with random changes are refused or run within limits, with the same result by every engine.

use super::compare;
use super::shared::{Random, SOURCES, arguments, mutated};
use crate::Module;

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
