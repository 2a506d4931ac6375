//! What stands in for the compiler on processors that it makes no code for.

use crate::execute::{Lane, Windows};
use crate::program::{Program, Trap};

/// The type of compiled programs. It has no values.
#[derive(Debug)]
pub enum Compiled {}

impl Compiled {
    /// None.
    pub fn new(_: &Program) -> Option<Self> {
        None
    }

    /// Never called.
    ///
    /// # Errors
    /// None.
    pub fn run(&self, _: &Program, _: &mut Windows<'_>, _: Lane<'_>) -> Result<u64, Trap> {
        match *self {}
    }
}
