//! Without default features, the library needs no C compiler, and as WebAssembly it writes the same bytes.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Whether this test must run, as `PZ_TEST_NO_SKIP` demands. The exception is `PZ_TEST_NO_WASM`: the script sets both
/// if it could not install the tools.
fn must_run() -> bool {
    std::env::var_os("PZ_TEST_NO_SKIP").is_some() && std::env::var_os("PZ_TEST_NO_WASM").is_none()
}

/// Whether a tool is installed. Fails if the test must run and the tool is missing.
fn is_there(what: &str, command: &mut Command, expected: &str) -> bool {
    let output = command.output().ok().filter(|output| output.status.success());
    let found = output.is_some_and(|output| {
        String::from_utf8_lossy(&output.stdout).lines().any(|line| line.starts_with(expected))
    });
    if !found {
        assert!(!must_run(), "{what} is not there");
        eprintln!("NOT TESTED: {what} is not there");
    }
    found
}

#[test]
fn a_web_assembly_module_reads_and_writes_the_same_files() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !root.join("tests/wasm").exists() {
        eprintln!("NOT TESTED: a published package does not hold tests/wasm");
        return;
    }
    let scratch = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasm");
    fs::create_dir_all(&scratch).unwrap();
    let mut rustc = Command::new("rustc");
    rustc.args(["--print", "target-libdir", "--target", "wasm32-unknown-unknown"]);
    let libraries = rustc.output().ok().and_then(|output| String::from_utf8(output.stdout).ok());
    let has_target = libraries.is_some_and(|folder| Path::new(folder.trim()).exists());
    let target: &[&str] = if has_target {
        &["--target", "wasm32-unknown-unknown"]
    } else {
        assert!(!must_run(), "rustup target add wasm32-unknown-unknown");
        eprintln!(
            "NOT TESTED: the target wasm32-unknown-unknown is not there; building for this machine instead"
        );
        &[]
    };
    let built = Command::new(env!("CARGO"))
        .args(["build", "--locked", "--release", "-p", "pz-wasm", "--target-dir"])
        .arg(&scratch)
        .args(target)
        // Without this, the build would take most of the test's time.
        .args(["--config", "profile.release.opt-level=1"])
        .args(["--config", "profile.release.lto=false"])
        .args(["--config", "profile.release.codegen-units=16"])
        .args(["--config", "profile.release.debug=false"])
        .current_dir(root)
        // Make sure that no C compiler is called.
        .envs(
            ["CC", "CXX", "TARGET_CC", "CC_wasm32_unknown_unknown"]
                .map(|name| (name, "/bin/false")),
        )
        .env("RUSTFLAGS", "-Dwarnings")
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    if !has_target || !is_there("node", Command::new("node").arg("--version"), "v") {
        return;
    }

    let contents = fs::read(root.join("tests/golden/contents")).unwrap().repeat(20);
    let contents_path = scratch.join("contents");
    fs::write(&contents_path, &contents).unwrap();
    let mut node = Command::new("node");
    node.arg(root.join("tests/wasm/run.mjs"))
        .arg(scratch.join("wasm32-unknown-unknown/release/pz_wasm.wasm"))
        .arg(&contents_path);
    for level in pz::Level::all() {
        let path = scratch.join(format!("level-{level}.pz"));
        fs::write(&path, pz::compress(&contents, &pz::Options::new().level(level)).unwrap())
            .unwrap();
        node.arg(format!("{level}={}", path.display()));
    }
    let ran = node.output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
}
