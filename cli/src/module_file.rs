//! Modules in files.

use std::fs;
use std::path::Path;

use pz::module::Module;

use crate::failure::Failure;

/// Larger files are not modules. An error names the limit, and the file is not read.
const MAX_FILE: u64 = 1 << 20;

/// Reads a module.
pub fn read(path: &Path) -> Result<Module, Failure> {
    let refuse = |what: String| Failure::input(what).at(path);
    let io = |error| Failure::from(error).at(path);
    let len = fs::metadata(path).map_err(io)?.len();
    if len > MAX_FILE {
        return Err(refuse(format!(
            "a module takes at most 65,536 bytes, and this file has {len}"
        )));
    }
    let bytes = fs::read(path).map_err(io)?;
    Module::read(bytes).map_err(|refusal| refuse(refusal.to_string()))
}
