//! Sets the name of the shared library on ELF systems: programs that are linked with it search for this name.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let system = std::env::var("CARGO_CFG_TARGET_OS").unwrap_or_default();
    if !matches!(system.as_str(), "macos" | "windows") {
        println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libpz.so.0");
    }
}
