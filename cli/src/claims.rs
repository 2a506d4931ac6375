//! Makes sure that no output of a run replaces one of its inputs or other outputs, however the paths are spelled.
//!
//! `-f` permits replacing files, but not losing contents that the user asked for.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use pz::internal::output::{FileId, Name};

use crate::failure::Failure;
use crate::source::Input;
use crate::standard;

/// The files of a run.
pub struct Claims {
    /// Every input that existed at the start.
    inputs: HashSet<FileId>,
    /// Every output so far.
    outputs: HashSet<Name>,
    /// The files that the outputs so far replace.
    replaced: HashSet<FileId>,
}

impl Claims {
    /// The state of a run that reads `inputs` and `also`, and has written nothing yet.
    pub fn new<'i>(inputs: impl IntoIterator<Item = &'i Input>, also: &[PathBuf]) -> Self {
        let also = also.iter().filter_map(|path| FileId::of_regular_file(path));
        let inputs = inputs.into_iter().filter_map(Input::id).chain(also).collect();
        Claims { inputs, outputs: HashSet::new(), replaced: HashSet::new() }
    }

    /// Claims `path` for the output of `input`. Returns false if the folder of the path does not exist yet: the path
    /// can then be claimed later.
    ///
    /// # Errors
    /// If the path leads to an input or to an earlier output.
    pub fn take(&mut self, path: &Path, input: &Input) -> Result<bool, Failure> {
        let refuse = |what: &str| Err(Failure::environment(what).at(path));
        let found = FileId::of_regular_file(path);
        if found.is_some_and(|found| self.inputs.contains(&found)) {
            return refuse(if found == input.id() {
                "is the input file"
            } else {
                "is another input"
            });
        }
        let Ok(name) = Name::of(path) else { return Ok(false) };
        let is_new =
            self.outputs.insert(name) && found.is_none_or(|found| self.replaced.insert(found));
        if is_new { Ok(true) } else { refuse("is another output of this run") }
    }

    /// Checks that standard output is not one of the inputs.
    ///
    /// # Errors
    /// If it is one.
    pub fn check_standard_output(&self, input: &Input) -> Result<(), Failure> {
        match standard::output_id().filter(|id| self.inputs.contains(id)) {
            None => Ok(()),
            Some(id) if Some(id) == input.id() => {
                Err(Failure::environment("standard output is the input file"))
            }
            Some(_) => Err(Failure::environment("standard output is another input")),
        }
    }
}
