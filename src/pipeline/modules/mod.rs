//! Modules of frames: permission to run them, and their execution.
//!
//! | module | |
//! |---|---|
//! | `ready` | a frame's modules, compiled; the module that an encoder adds to a frame |
//! | `absent` | the same for builds without the feature `modules`, which refuse such frames when they read the header |

#[cfg(not(feature = "modules"))]
mod absent;
#[cfg(feature = "modules")]
mod ready;
#[cfg(all(test, feature = "modules"))]
pub(crate) mod tests;

#[cfg(not(feature = "modules"))]
pub(crate) use absent::{FrameModules, name};
#[cfg(feature = "modules")]
pub use ready::FilterModule;
#[cfg(feature = "modules")]
pub(crate) use ready::{FrameModules, name};

use std::sync::Arc;

use crate::codec::filter::ApplyFault;
use crate::error::{Error, Place};
use crate::format::ModuleTable;

/// Which modules of compressed files a decoder runs. A module is a program that came with the file: it can only read
/// the given block and write the restored one, in bounded time and memory. It is a stranger's program all the same.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Modules {
    /// None: a frame that has modules is [`Error::UntrustedModule`].
    #[default]
    Refuse,
    /// All.
    Allow,
    /// Those with these SHA-256.
    Trusted(Vec<[u8; 32]>),
}

impl Modules {
    /// Refuses the frame at `place`, which has these modules, if there is one that may not run.
    pub(crate) fn check(&self, table: &ModuleTable, place: Place) -> Result<(), Error> {
        let is_refused = |sha256: &[u8; 32]| match self {
            Self::Refuse => true,
            Self::Allow => false,
            Self::Trusted(list) => !list.contains(sha256),
        };
        let mut hashes = table.records().iter().map(|record| record.sha256);
        match hashes.find(is_refused) {
            Some(sha256) => Err(Error::UntrustedModule { sha256, place }),
            None => Ok(()),
        }
    }
}

/// The modules of one frame after another. Frames with the same modules, such as all frames of one encoder's file,
/// share the compiled code.
#[derive(Default)]
pub(crate) struct LastModules {
    table: ModuleTable,
    ready: Option<Arc<FrameModules>>,
}

impl LastModules {
    /// The compiled modules of the frame at `place`, whose table is given; `None` if there are none.
    ///
    /// # Errors
    /// [`Error::UntrustedModule`], and [`Error::Corrupt`] if a module breaks a rule of the format.
    pub(crate) fn of(
        &mut self,
        table: &ModuleTable,
        allowed: &Modules,
        place: Place,
    ) -> Result<Option<Arc<FrameModules>>, Error> {
        allowed.check(table, place)?;
        if self.table != *table {
            self.ready = None;
            if !table.is_empty() {
                let ready = FrameModules::to_decode(table);
                self.ready = Some(Arc::new(ready.map_err(|fault| fault.at(place))?));
            }
            self.table = table.clone();
        }
        Ok(self.latest())
    }

    /// The compiled modules of the latest frame; `None` if it has none.
    pub(crate) fn latest(&self) -> Option<Arc<FrameModules>> {
        self.ready.clone()
    }
}

/// Why block `number` of a frame with these modules could not be encoded.
pub(crate) fn refusal(refused: ApplyFault, modules: &ModuleTable, number: u64) -> Error {
    match refused {
        ApplyFault::OutOfMemory(refused) => refused.into(),
        ApplyFault::Module { number: module, what } => {
            let record = modules.records().get(usize::from(module));
            let sha256 = record.map_or([0; 32], |record| record.sha256);
            Error::ModuleFailed { sha256, block: number, what }
        }
    }
}

/// Host memory that a frame's modules take, in bytes: their own, and that of their machine code.
pub(crate) fn memory(table: &ModuleTable) -> u64 {
    /// Machine code of the longest program.
    const CODE: u64 = 1 << 20;
    table.bytes() as u64 + CODE * table.records().len() as u64
}
