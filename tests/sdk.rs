//! The crate for writing modules (`sdk/`): its template and examples build, and behave as documented.

#![cfg(feature = "modules")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use pz::module::{Module, Windows};

/// Builds a package in `sdk` for WebAssembly and returns the folder of the results; `None` if this machine cannot.
fn built(package: &str, what: &[&str]) -> Option<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let must_run = std::env::var_os("PZ_TEST_NO_SKIP").is_some()
        && std::env::var_os("PZ_TEST_NO_WASM").is_none();
    let sysroot = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", "wasm32-unknown-unknown"])
        .output()
        .ok()
        .and_then(|output| String::from_utf8(output.stdout).ok());
    let has_target = sysroot.is_some_and(|folder| Path::new(folder.trim()).exists());
    if !root.join("sdk").exists() || !has_target {
        assert!(!must_run, "sdk/ and the target wasm32-unknown-unknown must be there");
        eprintln!("NOT TESTED: sdk/ or the target wasm32-unknown-unknown is not there");
        return None;
    }
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sdk");
    fs::create_dir_all(&scratch).unwrap();
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--offline", "--target", "wasm32-unknown-unknown"])
        .args(what)
        .arg("--target-dir")
        .arg(&scratch)
        // The settings in the folder limit the stack. No other settings must apply.
        .current_dir(root.join("sdk").join(package))
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(scratch.join("wasm32-unknown-unknown/release"))
}

fn module(path: &Path) -> Module {
    let bytes = fs::read(path).unwrap();
    Module::read(bytes).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// Records of several sensors, each of which drifts slowly.
fn log(records: u32) -> Vec<u8> {
    let mut state = 1u64;
    let mut below = |end: u32| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) as u32 % end
    };
    let mut channels = [[0u16; 3]; 16];
    let (mut log, mut time) = (Vec::new(), 1_700_000_000);
    for (sensor, first) in (0..).zip(&mut channels) {
        *first = [1000 * sensor, 40_000 - 1000 * sensor, 7 * sensor];
    }
    for _ in 0..records {
        let sensor = below(16);
        time += 1 + below(3);
        log.extend(time.to_le_bytes());
        log.extend((sensor as u16).to_le_bytes());
        for channel in &mut channels[sensor as usize] {
            *channel = channel.wrapping_add(below(9) as u16).wrapping_sub(4);
            log.extend(channel.to_le_bytes());
        }
    }
    log
}

#[test]
fn a_record_format_is_filtered_and_restored() {
    let Some(folder) = built("", &["--examples"]) else { return };
    let module = module(&folder.join("examples/records.wasm"));
    assert_eq!(module.exports(), ["decode", "encode"]);
    let run = |name: &str, input: &[u8], lanes: u32| {
        let mut output = vec![0; input.len()];
        let entry = module.entry(name).unwrap_or_else(|refusal| panic!("{refusal}"));
        for lane in 0..lanes {
            let mut windows = Windows { input, output: &mut output, ..Windows::default() };
            let len = input.len() as u64;
            let arguments = [lane.into(), lanes.into(), len, len, 0];
            let ran = entry.run(&mut windows, 1, &arguments, 1_000_000, |_| ());
            assert_eq!(ran, Ok(()), "{name}, lane {lane} of {lanes}");
        }
        output
    };
    let mut contents = log(10_000);
    // Bytes that are not a whole record.
    contents.extend(b"rest");
    let options = pz::Options::new();
    let plain = pz::compress(&contents, &options).unwrap().len();
    for lanes in [1, 7, 64] {
        let encoded = run("encode", &contents, lanes);
        assert!(run("decode", &encoded, lanes) == contents, "{lanes} lanes");
        let packed = pz::compress(&encoded, &options).unwrap().len();
        assert!(3 * packed < 2 * plain, "{packed} bytes instead of {plain} with {lanes} lanes");
    }
    // The same bytes in every record: damaged input leads to an error, and to nothing worse.
    run("decode", &vec![0xff; 1000], 3);
}

#[test]
fn a_record_format_has_a_filter_of_its_own() {
    let Some(folder) = built("", &["--examples"]) else { return };
    let module = module(&folder.join("examples/records.wasm"));
    let filter = pz::FilterModule::new(&module).unwrap();
    let header = b"log 1";
    let contents = [&header[..], &log(60_000)].concat();
    // Blocks and units contain parts of records, and records do not begin at words.
    for block_log in [16, 20] {
        let options = pz::Options::new().block_size(1 << block_log);
        let plain = pz::compress(&contents, &options).unwrap().len();
        let built_in = options.clone().filter("delta4x3,transpose12".parse().unwrap());
        let built_in = pz::compress(&contents, &built_in).unwrap().len();
        let options = options.modules([filter.clone()]).filter("module0:5".parse().unwrap());
        let small = pz::compress(&contents, &options).unwrap();
        assert!(2 * small.len() < plain && 3 * small.len() < 2 * built_in, "{}", small.len());
        let trusted = pz::Modules::Trusted(vec![filter.sha256()]);
        let restored = pz::decompress(&small, &pz::DecodeOptions::new().modules(trusted));
        assert!(restored.unwrap() == contents);
    }
}

#[test]
fn a_picture_is_drawn() {
    let Some(folder) = built("", &["--examples"]) else { return };
    let entry = module(&folder.join("examples/drawing.wasm")).entry("main").unwrap();
    let mut pixels = vec![0; 80 * 60];
    let mut windows = Windows { pixels: &mut pixels, width: 80, ..Windows::default() };
    assert_eq!(entry.run(&mut windows, 80 * 60, &[80, 60], 1000, |_| ()), Ok(()));
    assert_eq!(pixels[30 * 80 + 40], 0xff00_0000, "the middle belongs to the set");
    assert_ne!(pixels[0], 0xff00_0000, "the corner does not");
    assert!(pixels.iter().all(|pixel| pixel >> 24 == 255));
}

#[test]
fn the_template_is_a_module() {
    let Some(folder) = built("template", &[]) else { return };
    let entry = module(&folder.join("template.wasm")).entry("main").unwrap();
    let mut results = Vec::new();
    let ran = entry.run(&mut Windows::default(), 3, &[4], 1000, |result| results.push(result));
    assert_eq!((ran, results), (Ok(()), vec![0, 16, 32]));
}
