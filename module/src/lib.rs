//! Modules: small WebAssembly programs that users bring along, run on CPUs and devices alike.
//!
//! | module | |
//! |---|---|
//! | `limits` | what a module may be and hold |
//! | `sections` | reads and validates a module |
//! | `calls` | the functions that an entry reaches; refuses recursion |
//! | `operators` | what each instruction computes |
//! | `bulk` | copies and fills of memory, as loops |
//! | `inline` | makes one function of an entry and all that it calls; sets the fuel that each turn of a loop takes |
//! | `interpret`, `compile` | run that form on the CPU, step by step or as machine code |
//! | `execute` | chooses between them |
//! | `translate` | writes that form as kernels |
//! | `program` | the form of that function, which every back end reads |
//! | `refusal` | why a module is refused |
//!
//! A module is data and is never trusted. It computes with integers only, because devices round floating-point numbers
//! differently; it has no memory but a few kilobytes of its own for each lane; and it reaches its input and output, the
//! *windows*, through imported functions that check each access. Each loop takes fuel. So a run ends in bounded time,
//! with the same result everywhere, or with the same trap.

mod bulk;
mod calls;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[doc(hidden)]
pub mod compile;
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[path = "compile/absent.rs"]
#[doc(hidden)]
pub mod compile;
#[doc(hidden)]
pub mod execute;
mod inline;
#[doc(hidden)]
pub mod interpret;
#[doc(hidden)]
pub mod limits;
mod operators;
#[doc(hidden)]
pub mod program;
mod refusal;
mod sections;
#[cfg(test)]
mod tests;
#[doc(hidden)]
pub mod translate;

use sha2::{Digest as _, Sha256};

pub use execute::{Lane, Windows};
pub use program::{Trap, Type};
pub use refusal::Refusal;

use execute::Executor;
use program::Program;
use sections::Sections;

/// A valid module.
#[derive(Debug, Clone)]
pub struct Module {
    bytes: Vec<u8>,
    exports: Vec<String>,
    name: Option<String>,
}

impl Module {
    /// Reads a module, and checks what concerns all of it. [`Self::entry`] checks what an entry does.
    ///
    /// # Errors
    /// Says why it is refused.
    pub fn read(bytes: impl Into<Vec<u8>>) -> Result<Self, Refusal> {
        let bytes = bytes.into();
        let sections = Sections::read(&bytes)?;
        let exports = sections.exports.keys().map(ToString::to_string).collect();
        let name = sections.module_name.map(ToString::to_string);
        Ok(Self { bytes, exports, name })
    }

    /// The names of the functions that it exports, in alphabetical order.
    pub fn exports(&self) -> &[String] {
        &self.exports
    }

    /// Its name in its own section of names, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.name.as_deref()
    }

    /// The module itself.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The SHA-256 of the module.
    pub fn sha256(&self) -> [u8; 32] {
        Sha256::digest(&self.bytes).into()
    }

    /// Translates the exported function `name`, with all that it calls.
    ///
    /// # Errors
    /// Says why it is refused.
    pub fn entry(&self, name: &str) -> Result<Entry, Refusal> {
        let program = inline::program(&Sections::read(&self.bytes)?, name)?;
        Ok(Entry { program })
    }
}

/// A function that a module exports, ready to run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    program: Program,
}

impl Entry {
    /// What back ends read, for those that keep it.
    #[doc(hidden)]
    pub fn into_program(self) -> Program {
        self.program
    }

    /// What back ends read.
    #[doc(hidden)]
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The types of its parameters.
    pub fn parameters(&self) -> Vec<Type> {
        self.program.parameters.iter().map(|variable| variable.ty).collect()
    }

    /// The type of its result; `None` if it has none.
    pub fn result(&self) -> Option<Type> {
        self.program.result.map(|variable| variable.ty)
    }

    /// What it imports and calls, such as `pz.in32`.
    pub fn intrinsics(&self) -> Vec<String> {
        let names = self.program.intrinsics.iter().map(|one| one.names());
        names.map(|(module, name)| format!("{module}.{name}")).collect()
    }

    /// Its length with all calls inlined, counted as for the format's limit of 32,768.
    pub fn operators(&self) -> u32 {
        self.program.operators
    }

    /// Number of functions that it is made of: its own, and all that it calls.
    pub fn functions(&self) -> u32 {
        self.program.functions
    }

    /// Levels of calls: 1 if it calls nothing.
    pub fn call_depth(&self) -> u32 {
        self.program.call_depth
    }

    /// Bytes of private memory for each lane.
    pub fn private_bytes(&self) -> u32 {
        self.program.memory.len() as u32
    }

    /// Loops. Without one, fuel does not matter.
    pub fn loops(&self) -> u32 {
        self.program.loops()
    }

    /// Bytes of the kernel in OpenCL C and in WGSL, without what the library adds to each.
    pub fn text_bytes(&self) -> (usize, usize) {
        let opencl =
            translate::kernel::<translate::OpenClC>(&self.program, translate::Purpose::Run);
        let wgsl = translate::kernel::<translate::Wgsl>(&self.program, translate::Purpose::Run);
        (opencl.len(), wgsl.len())
    }

    /// Runs lanes 0 to `lanes` - 1 on the CPU, one after the other, each with these arguments and this fuel, and
    /// gives each result, or 0 if there is none, to `take`.
    ///
    /// # Errors
    /// The first trap, and the lane's number. Later lanes do not run.
    pub fn run(
        &self,
        windows: &mut Windows<'_>,
        lanes: u32,
        arguments: &[u64],
        fuel: u32,
        mut take: impl FnMut(u64),
    ) -> Result<(), (u32, Trap)> {
        let executor = Executor::new(&self.program);
        for number in 0..lanes {
            let lane = Lane { number, arguments, fuel };
            take(executor.run(windows, lane).map_err(|trap| (number, trap))?);
        }
        Ok(())
    }
}
