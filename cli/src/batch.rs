//! Syncs outputs to disk together, before their sources are removed.
//!
//! Syncing a small file takes longer than compressing it, but syncing many files at once takes hardly longer than
//! syncing one. So outputs wait under their temporary names. Then we sync the whole batch, rename each output, and sync
//! the folders. Last, we check each source once more and remove it. If the program is killed at any point in between,
//! the sources are still there.

use std::collections::{BTreeSet, HashSet};
use std::path::{Path, PathBuf};

use pz::internal::output::{Name, folder};

use crate::failure::Failure;
use crate::output::Complete;
use crate::source::{Input, Source};

/// Most outputs that may wait. Each holds two open files, and a system may allow no more than 256.
const MAX_WAITING: usize = 64;

/// Most bytes of outputs that may wait.
const MAX_BYTES: u64 = 64 << 20;

/// One output, and what follows once it is on disk.
pub struct Waiting<T> {
    pub input: Input,
    pub output: Complete,
    /// The source, if the user asked to remove it.
    pub source: Option<Source>,
    /// The caller gets it back with the result.
    pub note: T,
}

/// Outputs that wait to be synced.
pub struct SyncBatch<T> {
    waiting: Vec<Waiting<T>>,
    /// The names of the waiting inputs and outputs.
    names: HashSet<Name>,
    bytes: u64,
}

/// An input and its result.
pub type Ended<T> = (Input, Result<T, Failure>);

impl<T> SyncBatch<T> {
    pub fn new() -> Self {
        SyncBatch { waiting: Vec::new(), names: HashSet::new(), bytes: 0 }
    }

    /// Adds an output.
    pub fn add(&mut self, waiting: Waiting<T>) {
        self.bytes += waiting.output.len();
        let paths = [Some(waiting.output.path()), waiting.input.path()];
        self.names.extend(paths.into_iter().flatten().filter_map(|path| Name::of(path).ok()));
        self.waiting.push(waiting);
    }

    /// Whether the batch should be finished before another output is added.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING || self.bytes >= MAX_BYTES
    }

    /// Whether `path` is the name of a waiting output or of a waiting input.
    pub fn concerns(&self, path: &Path) -> bool {
        !self.names.is_empty() && Name::of(path).is_ok_and(|name| self.names.contains(&name))
    }

    /// Syncs all outputs, gives them their names and removes their sources.
    pub fn finish(&mut self) -> Vec<Ended<T>> {
        self.bytes = 0;
        self.names.clear();
        let mut ended = Vec::new();
        let mut keep =
            |waiting: Vec<Waiting<T>>,
             step: &mut dyn FnMut(&mut Waiting<T>) -> Result<(), Failure>| {
                let mut going_on = Vec::with_capacity(waiting.len());
                for mut one in waiting {
                    match step(&mut one) {
                        Ok(()) => going_on.push(one),
                        Err(failure) => ended.push((one.input, Err(failure))),
                    }
                }
                going_on
            };
        let waiting = std::mem::take(&mut self.waiting);
        waiting.iter().for_each(|one| one.output.begin_sync());
        let waiting = keep(waiting, &mut |one| one.output.sync());
        let waiting = keep(waiting, &mut |one| one.output.rename());
        let mut folders: BTreeSet<PathBuf> = BTreeSet::new();
        let waiting = keep(waiting, &mut |one| {
            let folder = folder::of(one.output.path());
            if folders.contains(folder) {
                return Ok(());
            }
            folder::sync(folder).map_err(|error| Failure::from(error).at(folder))?;
            folders.insert(folder.to_path_buf());
            Ok(())
        });
        let waiting = keep(waiting, &mut |one| match one.source.take() {
            Some(source) => source.remove(one.output.path()),
            None => Ok(()),
        });
        ended.extend(waiting.into_iter().map(|one| (one.input, Ok(one.note))));
        ended
    }
}
