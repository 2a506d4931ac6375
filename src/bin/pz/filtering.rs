//! The options that choose a filter: built-in stages, and modules of the user's own.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use pz::{FilterModule, Options};

use crate::failure::{Failure, hex, show};
use crate::module_file;
use crate::sizes::{self, Size};

// The filter.
#[derive(Args, Debug, Clone)]
pub struct Filtering {
    /// Filter for typed data: none, auto, a type such as f32, bf16, i16 or i64x3, or a chain such as
    /// delta8,zigzag8,transpose8; FILE.wasm or FILE.wasm:ARGUMENT in a chain is a module, which the output then carries
    #[arg(long, value_name = "NAME")]
    pub filter: Option<Chain>,
    /// With modules: bytes that a lane of theirs stands for, a power of two from 256 to 1M [default: 4K]
    #[arg(long, value_name = "SIZE", requires = "filter", value_parser = sizes::nonzero)]
    pub lane_bytes: Option<Size>,
    /// With modules: how often the loops of a lane may begin [default: 16 times for each byte]
    #[arg(long, value_name = "N", requires = "filter")]
    pub fuel: Option<u32>,
}

/// A filter by name, in which files stand for the modules in them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The filter by the names that the library knows.
    filter: pz::Filter,
    /// The files of `module0`, `module1` and so on.
    files: Vec<PathBuf>,
}

impl FromStr for Chain {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut files: Vec<PathBuf> = Vec::new();
        let mut names = Vec::new();
        for part in text.split(',') {
            let (file, argument) = match part.rsplit_once(':') {
                Some((file, argument)) if file.ends_with(".wasm") => (file, argument),
                _ => (part, "0"),
            };
            if !file.ends_with(".wasm") {
                names.push(part.to_string());
                continue;
            }
            let argument: u16 = argument
                .parse()
                .map_err(|_| format!("the argument of {file} is a number from 0 to 65535"))?;
            let file = PathBuf::from(file);
            let number = files.iter().position(|other| *other == file).unwrap_or(files.len());
            if number == files.len() {
                files.push(file);
            }
            names.push(format!("module{number}:{argument}"));
        }
        let filter: pz::Filter = names.join(",").parse().map_err(|error: pz::Error| {
            if files.is_empty() {
                error.to_string()
            } else {
                format!("a chain has one to three stages, files ending in .wasm or names such as transpose4, and not {text:?}")
            }
        })?;
        if text.split(',').any(|part| part.starts_with("module") && !part.contains(".wasm")) {
            return Err("a module is named by its file, FILE.wasm".into());
        }
        Ok(Self { filter, files })
    }
}

impl Filtering {
    /// Whether the user chose something.
    pub fn is_set(&self) -> bool {
        self.filter.is_some()
    }

    /// Sets the filter of `options`. Reads the modules.
    ///
    /// # Errors
    /// If a module cannot be read, or is no filter; or if options for modules come without one.
    pub fn apply(&self, mut options: Options) -> Result<Options, Failure> {
        let files = self.filter.as_ref().map_or(&[][..], |chain| &chain.files[..]);
        if files.is_empty() && (self.lane_bytes.is_some() || self.fuel.is_some()) {
            return Err(Failure::environment(
                "--lane-bytes and --fuel are for modules: --filter FILE.wasm",
            ));
        }
        let mut modules = Vec::new();
        for file in files {
            let refuse = |refusal: pz::module::Refusal| Failure::input(refusal).at(file);
            let module = module_file::read(file)?;
            let mut filter = FilterModule::new(&module).map_err(refuse)?;
            if let Some(Size(bytes)) = self.lane_bytes {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                filter = filter.lane_bytes(bytes).map_err(refuse)?;
            }
            if let Some(fuel) = self.fuel {
                filter = filter.fuel(fuel).map_err(refuse)?;
            }
            modules.push(filter);
        }
        if let Some(chain) = &self.filter {
            options = options.filter(chain.filter).modules(modules);
        }
        Ok(options)
    }

    /// The hashes of the modules, with which the output can be decoded again to check it.
    ///
    /// # Errors
    /// If a module cannot be read.
    pub fn hashes(&self) -> Result<Vec<[u8; 32]>, Failure> {
        let files = self.filter.iter().flat_map(|chain| &chain.files);
        files.map(|file| Ok(module_file::read(file)?.sha256())).collect()
    }

    /// What to add to an error about a module: the files that the hashes in it stand for.
    pub fn name_modules(&self, mut failure: Failure) -> Failure {
        for file in self.filter.iter().flat_map(|chain| &chain.files) {
            if let Ok(module) = module_file::read(file) {
                let hash = hex(&module.sha256());
                failure.what = failure.what.replace(&hash, &show(file));
            }
        }
        failure
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_in_chains_are_modules() {
        let chain = |text: &str| text.parse::<Chain>();
        let parsed = chain("a/b.wasm:7,transpose4,a/b.wasm").unwrap();
        assert_eq!(parsed.filter.to_string(), "module0:7,transpose4,module0");
        assert_eq!(parsed.files, [PathBuf::from("a/b.wasm")]);
        assert_eq!(chain("x.wasm,y.wasm").unwrap().filter.to_string(), "module0,module1");
        assert_eq!(chain("bf16").unwrap().filter, "bf16".parse().unwrap());
        assert!(chain("auto").unwrap().files.is_empty());
        for wrong in
            ["x.wasm:65536", "x.wasm:seven", "x.wasm,", "module0", "a.wasm,b.wasm,c.wasm,d.wasm"]
        {
            assert!(chain(wrong).is_err(), "{wrong}");
        }
    }
}
