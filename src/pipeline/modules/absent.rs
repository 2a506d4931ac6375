//! Modules in builds that have none: there is nothing to run, because [`ModuleTable`]s with modules are never read.

use std::sync::Arc;

use crate::codec::Malformed;
use crate::codec::filter::{ApplyFault, ModuleCall, RunModule};
use crate::error::Error;
use crate::format::{Fault, ModuleRecord, ModuleTable};
use crate::gpu::stages::filter::ModuleStep;

/// The type of a frame's modules. It has no values.
#[derive(Debug)]
pub(crate) enum FrameModules {}

impl FrameModules {
    /// Refuses them.
    pub(crate) fn to_decode(_: &ModuleTable) -> Result<Self, Fault> {
        Err(Fault::Unsupported("this build was made without modules"))
    }

    /// Devices undo none.
    pub(crate) fn on_devices(&self) -> &[ModuleStep] {
        match *self {}
    }

    /// Encoders have none either.
    pub(crate) fn of_encoder(_: &ModuleTable) -> Result<Option<Arc<Self>>, Error> {
        Ok(None)
    }
}

/// Modules have no names here.
pub(crate) fn name(_: &ModuleRecord) -> Option<String> {
    None
}

impl RunModule for FrameModules {
    fn apply(&self, _: ModuleCall, _: u64, _: &[u8], _: &mut [u8]) -> Result<(), ApplyFault> {
        match *self {}
    }

    fn undo(&self, _: ModuleCall, _: u64, _: &[u8], _: &mut [u8]) -> Result<(), Malformed> {
        match *self {}
    }
}
