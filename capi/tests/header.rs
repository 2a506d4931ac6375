//! Checks that `pz.h` matches the sources.

use std::fs;
use std::path::Path;

/// With `PZ_WRITE_HEADER` set, writes the header.
#[test]
fn the_header_is_current() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(folder.join("cbindgen.toml")).unwrap();
    let mut builder = cbindgen::Builder::new().with_config(config);
    for module in ["status", "options", "oneshot", "stream", "reader"] {
        builder = builder.with_src(folder.join(format!("src/{module}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    // Rust's heading for what the caller of unsafe code must do.
    let made = String::from_utf8(made).unwrap().replace("# Safety", "Requirements:");
    let path = folder.join("pz.h");
    if std::env::var_os("PZ_WRITE_HEADER").is_some() {
        fs::write(&path, &made).unwrap();
    }
    let current = fs::read_to_string(&path).unwrap_or_default();
    assert!(made == current, "pz.h is not current: PZ_WRITE_HEADER=1 cargo test -p pz-capi");
}
