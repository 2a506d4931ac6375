//! The options that choose a filter: built-in stages, and modules of the user's own.

use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use pz::{FilterModule, Modules, Options};

use crate::failure::{Failure, hex, show};
use crate::module_file;
use crate::sizes::{self, Size};

// The filter.
#[derive(Args, Debug, Clone)]
pub struct Filtering {
    /// Filter for typed data: none, auto, a type such as f32, bf16, i16 or i64x3, or a chain such as
    /// delta8,zigzag8,transpose8; FILE.wasm or FILE.wasm:ARGUMENT in a chain is a module, and the output then carries
    /// it
    #[arg(long, value_name = "NAME")]
    pub filter: Option<Chain>,
    /// How modules run.
    #[command(flatten)]
    pub lanes: Lanes,
}

// How modules run.
#[derive(Args, Debug, Clone)]
pub struct Lanes {
    /// With modules: bytes of contents per lane, a power of two from 256 to 1M [default: 4K]
    #[arg(long, value_name = "SIZE", requires = "filter", value_parser = sizes::nonzero)]
    pub lane_bytes: Option<Size>,
    /// With modules: units of fuel per lane; a turn of a loop takes one per 32 instructions [default: 16 per byte]
    #[arg(long, value_name = "N", requires = "filter")]
    pub fuel: Option<u32>,
}

/// A chain of filters as the user named it, where a file's name stands for the module in the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Chain {
    /// The same chain as the library names it: with `module0`, `module1` and so on in place of files.
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
                format!("a chain has one to three stages, files ending in .wasm or names such as transpose4, and not \
                    {text:?}")
            }
        })?;
        if text.split(',').any(|part| part.starts_with("module") && !part.contains(".wasm")) {
            return Err("a module is named by its file, FILE.wasm".into());
        }
        Ok(Self { filter, files })
    }
}

/// A filter whose modules have been read.
#[derive(Debug, Clone)]
pub struct Loaded {
    chain: Chain,
    modules: Vec<FilterModule>,
}

impl Lanes {
    /// Fails if the options are given and none of `chains` has a module.
    pub fn check<'c>(&self, chains: impl IntoIterator<Item = &'c Chain>) -> Result<(), Failure> {
        let is_given = self.lane_bytes.is_some() || self.fuel.is_some();
        if is_given && !chains.into_iter().any(Chain::has_modules) {
            return Err(Failure::environment(
                "--lane-bytes and --fuel are for modules: --filter FILE.wasm",
            ));
        }
        Ok(())
    }
}

impl Chain {
    /// No filter.
    pub const NONE: Self = Self { filter: pz::Filter::None, files: Vec::new() };

    /// Whether it names a module.
    pub fn has_modules(&self) -> bool {
        !self.files.is_empty()
    }

    /// Reads the modules, to run with `lanes`.
    ///
    /// # Errors
    /// If a module cannot be read, or is no filter.
    pub fn load(&self, lanes: &Lanes) -> Result<Loaded, Failure> {
        let mut modules = Vec::new();
        for file in &self.files {
            let refuse = |refusal: pz::module::Refusal| Failure::input(refusal).at(file);
            let module = module_file::read(file)?;
            let mut filter = FilterModule::new(&module).map_err(refuse)?;
            if let Some(Size(bytes)) = lanes.lane_bytes {
                let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
                filter = filter.lane_bytes(bytes).map_err(refuse)?;
            }
            if let Some(fuel) = lanes.fuel {
                filter = filter.fuel(fuel).map_err(refuse)?;
            }
            modules.push(filter);
        }
        Ok(Loaded { chain: self.clone(), modules })
    }
}

impl Loaded {
    /// Sets the filter of `options`.
    pub fn apply(&self, options: Options) -> Options {
        options.filter(self.chain.filter).modules(self.modules.clone())
    }

    /// Whether it has modules.
    pub fn has_modules(&self) -> bool {
        self.chain.has_modules()
    }

    /// The user's own modules, which may run when the output is decoded to check it.
    pub fn trusted(&self) -> Modules {
        Modules::Trusted(self.modules.iter().map(FilterModule::sha256).collect())
    }

    /// Replaces the hashes of modules in an error by their files' names.
    pub fn name_modules(&self, mut failure: Failure) -> Failure {
        for (file, module) in self.chain.files.iter().zip(&self.modules) {
            failure.what = failure.what.replace(&hex(&module.sha256()), &show(file));
        }
        failure
    }
}

impl Filtering {
    /// Whether the user chose something.
    pub fn is_set(&self) -> bool {
        self.filter.is_some()
    }

    /// The files of the filter's modules.
    pub fn files(&self) -> &[PathBuf] {
        self.filter.as_ref().map_or(&[], |chain| &chain.files)
    }

    /// Returns the filter that the user chose, if any, and reads its modules.
    ///
    /// # Errors
    /// If a module cannot be read, or is no filter; or if options for modules come without one.
    pub fn load(&self) -> Result<Option<Loaded>, Failure> {
        self.lanes.check(&self.filter)?;
        self.filter.as_ref().map(|chain| chain.load(&self.lanes)).transpose()
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
