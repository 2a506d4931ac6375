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
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use super::compile::Compiled;
use super::interpret;
use super::limits::WORK_OF_UNIT;
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
    /// Units of fuel, which loops take.
    pub fuel: u32,
}

/// Runs a program on the CPU: its own, or one that it borrows.
#[derive(Debug)]
pub struct Executor<P> {
    program: P,
    /// The program as machine code, once it is worth the time; `None` in it if this processor or system permits none.
    compiled: OnceLock<Option<Compiled>>,
    /// Fuel that interpreting may still take before that.
    trial: AtomicU32,
}

/// Fuel that interpreting takes in the time in which an instruction is compiled.
const FUEL_OF_COMPILING: u32 = 8;

impl<P: Borrow<Program>> Executor<P> {
    /// An executor of `program`.
    pub fn new(program: P) -> Self {
        let trial = program.borrow().operators.saturating_mul(FUEL_OF_COMPILING);
        Self { program, compiled: OnceLock::new(), trial: AtomicU32::new(trial) }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        self.program.borrow()
    }

    /// Runs a lane. Returns its result, 0 if it has none.
    ///
    /// # Errors
    /// The trap that ended it. What it has written until then stays.
    pub fn run(&self, windows: &mut Windows<'_>, lane: Lane<'_>) -> Result<u64, Trap> {
        match self.compiled.get_or_init(|| Compiled::new(self.program())) {
            Some(compiled) => compiled.run(self.program(), windows, lane),
            None => interpret::run(self.program(), windows, lane),
        }
    }

    /// The same, for a lane that has neither state nor picture: to run it twice is to run it once. So the program is
    /// interpreted until that has taken about as long as to compile it, and time stays in proportion to the fuel that
    /// is taken: a file may bring along many programs, each for little.
    ///
    /// # Errors
    /// The same.
    pub fn run_filter(&self, windows: &mut Windows<'_>, lane: Lane<'_>) -> Result<u64, Trap> {
        let trial = self.trial.load(Ordering::Relaxed);
        if trial == 0 || self.compiled.get().is_some() {
            return self.run(windows, lane);
        }
        let fuel = lane.fuel.min(trial);
        let (ended, left) = interpret::run_counting(self.program(), windows, Lane { fuel, ..lane });
        // What is outside of loops takes no fuel.
        let outside = self.program().operators / WORK_OF_UNIT + 1;
        let taken = (fuel - left.min(fuel)).saturating_add(outside);
        let less = |trial: u32| Some(trial.saturating_sub(taken));
        let _ = self.trial.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        if ended == Err(Trap::Fuel) && fuel < lane.fuel {
            self.trial.store(0, Ordering::Relaxed);
            return self.run(windows, lane);
        }
        ended
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::shared::module;

    /// A module that writes as many bytes as its argument says, whose last lane is not the first to be compiled.
    #[test]
    fn programs_that_do_little_are_not_compiled() {
        let module = module(
            "(module (import \"pz\" \"out8\" (func $out8 (param i32 i32)))
                (func (export \"decode\") (param $count i32) (loop $next
                    (call $out8 (local.get $count) (local.get $count))
                    (local.set $count (i32.sub (local.get $count) (i32.const 1)))
                    (br_if $next (local.get $count)))))",
        );
        let entry = module.entry("decode").unwrap();
        let run = |executor: &Executor<&Program>, count: u64, fuel| {
            let mut output = vec![0; 1000];
            let mut windows = Windows { output: &mut output, ..Windows::default() };
            let lane = Lane { number: 0, arguments: &[count], fuel };
            let ended = executor.run_filter(&mut windows, lane);
            (ended, output)
        };
        let executor = Executor::new(entry.program());
        let is_compiled = || executor.compiled.get().is_some();
        // A lane that needs more than a trial begins anew.
        for (count, fuel, compiles) in
            [(3, 3, false), (4, 3, false), (999, 2000, true), (4, 3, true)]
        {
            let found = run(&executor, count, fuel);
            let compiled = Executor::new(entry.program());
            compiled.trial.store(0, Ordering::Relaxed);
            assert_eq!(found, run(&compiled, count, fuel), "{count} with {fuel}");
            assert_eq!(is_compiled(), compiles, "{count} with {fuel}");
        }
        // Many lanes that do little are worth it.
        let executor = Executor::new(entry.program());
        let lanes = (0..1000).take_while(|_| {
            assert_eq!(run(&executor, 3, 3).0, Ok(0));
            executor.compiled.get().is_none()
        });
        assert!((5..500).contains(&lanes.count()));
    }
}
