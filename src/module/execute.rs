//! Runs programs on the CPU.
//!
//! Cranelift compiles programs to machine code. It needs about a millisecond for one, adds few crates, and lets this
//! code choose what an access to a window is: one comparison and a load. On a transposition of bytes its code has 0.85
//! of the speed of what LLVM makes of the same loop in Rust without vector instructions, and 0.28 of what LLVM makes
//! with them. wasmtime stands on Cranelift too; it would add memories, tables, instances and signal handlers, which
//! programs do not need, and a call of the host for each access. Interpreters such as wasmi take many times as long.
//!
//! Where Cranelift has no code for a processor, or the system permits none, [`super::interpret`] runs the program:
//! slowly, but everywhere.

use std::borrow::Borrow;

use super::compile::Compiled;
use super::interpret;
use super::program::{Program, Trap};

/// What lanes reach.
#[derive(Debug, Default)]
pub struct Windows<'a> {
    /// The input.
    pub input: &'a [u8],
    /// The output.
    pub output: &'a mut [u8],
    /// Words that all lanes share.
    pub state: &'a mut [u32],
    /// Pixels, row by row; a word has red in its lowest byte, then green, blue and alpha.
    pub pixels: &'a mut [u32],
    /// Pixels of a row.
    pub width: u32,
    /// What `gpu.get_time` gives, in milliseconds.
    pub time: u32,
}

/// A run of a program: one lane.
#[derive(Debug, Clone, Copy)]
pub struct Lane<'a> {
    /// Its number.
    pub number: u32,
    /// The arguments. Missing ones are 0; of one for 32 bits the lower half counts.
    pub arguments: &'a [u64],
    /// How often loops may begin.
    pub fuel: u32,
}

/// Runs a program on the CPU: its own, or one that it borrows.
#[derive(Debug)]
pub(crate) struct Executor<P> {
    program: P,
    compiled: Option<Compiled>,
}

impl<P: Borrow<Program>> Executor<P> {
    /// Compiles `program`, if this processor and system permit that.
    pub(crate) fn new(program: P) -> Self {
        let compiled = Compiled::new(program.borrow());
        Self { program, compiled }
    }

    /// The program.
    pub(crate) fn program(&self) -> &Program {
        self.program.borrow()
    }

    /// Runs a lane. Returns its result, 0 if it has none.
    ///
    /// # Errors
    /// The trap that ended it. What it has written until then stays.
    pub(crate) fn run(&self, windows: &mut Windows<'_>, lane: Lane<'_>) -> Result<u64, Trap> {
        match &self.compiled {
            Some(compiled) => compiled.run(self.program(), windows, lane),
            None => interpret::run(self.program(), windows, lane),
        }
    }
}
