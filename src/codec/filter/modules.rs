//! The interface to stages that a frame's modules define. The codecs do not know who runs them.

use crate::codec::{Malformed, OutOfMemory};

/// Runs modules of a frame.
pub(crate) trait RunModule {
    /// Filters a unit that begins at byte `position` of the frame's contents. `after` has the length of `before`, and
    /// is all zeros at first. Makes sure that [`Self::undo`] restores the unit.
    fn apply(
        &self,
        module: ModuleCall,
        position: u64,
        before: &[u8],
        after: &mut [u8],
    ) -> Result<(), ApplyFault>;

    /// Undoes the module's work on such a unit.
    fn undo(
        &self,
        module: ModuleCall,
        position: u64,
        before: &[u8],
        after: &mut [u8],
    ) -> Result<(), Malformed>;
}

/// A stage that a module defines: the module's number in its frame, and the stage's argument.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct ModuleCall {
    pub(crate) number: u8,
    pub(crate) argument: u16,
}

/// Properties of the block's frame that stages need.
#[derive(Clone, Copy, Default)]
pub(crate) struct Context<'a> {
    /// Runs the frame's modules, if it has some.
    pub(crate) modules: Option<&'a dyn RunModule>,
    /// Where the block begins in the contents of its frame, in bytes.
    pub(crate) position: u64,
}

/// Why filters could not be applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ApplyFault {
    /// The system refused memory.
    OutOfMemory(OutOfMemory),
    /// Module `number` of the frame failed.
    Module { number: u8, what: &'static str },
}

impl From<OutOfMemory> for ApplyFault {
    fn from(refused: OutOfMemory) -> Self {
        Self::OutOfMemory(refused)
    }
}

/// Why filters could not be undone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InvertFault {
    /// The system refused memory.
    OutOfMemory(OutOfMemory),
    /// A module of the frame failed, or is missing.
    Malformed(Malformed),
}

impl From<OutOfMemory> for InvertFault {
    fn from(refused: OutOfMemory) -> Self {
        Self::OutOfMemory(refused)
    }
}

impl From<Malformed> for InvertFault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl Context<'_> {
    /// Applies a stage to a unit that begins at byte `start` of its block.
    pub(super) fn apply(
        &self,
        call: ModuleCall,
        start: usize,
        unit: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), ApplyFault> {
        let (number, what) = (call.number, "it is not among the options' modules");
        let modules = self.modules.ok_or(ApplyFault::Module { number, what })?;
        let before = moved_out(unit, scratch);
        modules.apply(call, self.position + start as u64, before, unit)
    }

    /// Undoes a stage of a unit that begins at byte `start` of its block.
    pub(super) fn undo(
        &self,
        call: ModuleCall,
        start: usize,
        unit: &mut [u8],
        scratch: &mut Vec<u8>,
    ) -> Result<(), InvertFault> {
        let missing = Malformed("the module that filtered the block is missing");
        let modules = self.modules.ok_or(missing)?;
        let before = moved_out(unit, scratch);
        Ok(modules.undo(call, self.position + start as u64, before, unit)?)
    }
}

/// Moves a unit to `scratch`, which has room for it, and fills the unit with zeros.
fn moved_out<'s>(unit: &mut [u8], scratch: &'s mut Vec<u8>) -> &'s [u8] {
    scratch.clear();
    scratch.extend_from_slice(unit);
    unit.fill(0);
    scratch
}
