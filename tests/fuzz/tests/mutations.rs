//! Runs each target on its seeds, on mutations of them, and on inputs that once failed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::time::{Duration, Instant};
use std::{env, fs};

use pz_fuzz::{Rng, TARGETS, devices, seeds};

/// Mutations for each target, unless `PZ_FUZZ_RUNS` says otherwise.
const RUNS: u64 = 2000;

/// No input may take longer. Generous, because the machine may be busy.
const LONGEST: Duration = Duration::from_secs(10);

/// Runs a target. If it fails, writes the input to a file and names it.
fn run(name: &str, target: pz_fuzz::Target, data: &[u8], what: &str) {
    let begun = Instant::now();
    let outcome = catch_unwind(AssertUnwindSafe(|| target(data)));
    if outcome.is_err() || begun.elapsed() > LONGEST {
        let path = env::temp_dir().join(format!("pz-fuzz-{name}-{}", std::process::id()));
        fs::write(&path, data).expect("a temporary file");
        panic!("{name}, {what}: see above; the input is in {}", path.display());
    }
}

fn check(wanted: impl Fn(&str) -> bool) {
    let runs = env::var("PZ_FUZZ_RUNS").map_or(RUNS, |n| n.parse().expect("a number"));
    for (name, target) in TARGETS.into_iter().filter(|(name, _)| wanted(name)) {
        let seeds = seeds(name);
        for (i, seed) in seeds.iter().enumerate() {
            run(name, target, seed, &format!("seed {i}"));
        }
        let mut rng = Rng::new(name.len() as u64);
        for i in 0..runs {
            let mut data = seeds[rng.below(seeds.len())].clone();
            rng.mutate(&mut data);
            run(name, target, &data, &format!("mutation {i}"));
        }
    }
}

#[test]
fn codecs() {
    check(|name| ["lz77", "bwt", "huffman", "fse"].contains(&name));
}

#[test]
fn containers() {
    check(|name| ["container", "stream", "seekable", "archive", "recover"].contains(&name));
}

#[test]
fn costs() {
    check(|name| name == "cost");
}

#[test]
fn devices() {
    // Asking a device takes longer than asking the CPU, so use fewer inputs, and several at once.
    let runs = env::var("PZ_FUZZ_RUNS").map_or(RUNS, |n| n.parse().expect("a number")) / 4;
    let batches: [(&str, devices::Batch); 2] =
        [("device_lz77", devices::lz77_batch), ("device_bwt", devices::bwt_batch)];
    for (name, batch) in batches {
        let seeds = seeds(name);
        batch(&seeds.iter().map(Vec::as_slice).collect::<Vec<_>>());
        let mut rng = Rng::new(name.len() as u64);
        for _ in 0..runs / devices::BATCH as u64 {
            let mutated: Vec<_> = (0..devices::BATCH)
                .map(|_| {
                    let mut data = seeds[rng.below(seeds.len())].clone();
                    rng.mutate(&mut data);
                    data
                })
                .collect();
            let mutated: Vec<_> = mutated.iter().map(Vec::as_slice).collect();
            if catch_unwind(|| batch(&mutated)).is_ok() {
                continue;
            }
            // Find out which of them failed.
            for (i, data) in mutated.iter().enumerate() {
                run(name, pz_fuzz::target(name), data, &format!("mutation {i} of a batch"));
            }
            panic!("{name}: a batch fails whose inputs, one by one, do not");
        }
    }
}

#[test]
fn round_trips() {
    check(|name| name.starts_with("round_trip_"));
}

#[test]
fn seeds_are_valid() {
    // A target that returned early on all of its seeds would test nothing.
    for seed in seeds("container") {
        let options = pz::DecodeOptions::new().modules(pz::Modules::Allow);
        pz::decompress(&seed, &options).expect("a sound file");
    }
    for seed in seeds("lz77") {
        let mut block = vec![0; u32::from_le_bytes([seed[0], seed[1], seed[2], 0]) as usize];
        pz::internal::lz77::Decoder::new().decode(&seed[3..], &mut block).expect("a sound payload");
    }
    for seed in seeds("bwt") {
        let mut block = vec![0; u32::from_le_bytes([seed[0], seed[1], seed[2], 0]) as usize];
        pz::internal::bwt::Decoder::new().decode(&seed[3..], &mut block).expect("a sound payload");
    }
}

#[test]
fn inputs_that_once_failed() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
    let mut names = 0;
    for entry in fs::read_dir(folder).expect("the folder of regressions").flatten() {
        if !entry.path().is_dir() {
            continue;
        }
        let name = entry.file_name().into_string().expect("a target's name");
        let target = pz_fuzz::target(&name);
        for input in fs::read_dir(entry.path()).expect("a folder").flatten() {
            let data = fs::read(input.path()).expect("an input");
            run(&name, target, &data, &input.path().display().to_string());
        }
        names += 1;
    }
    assert!(names <= TARGETS.len());
}
