//! Outputs that are brought to disk together, before their sources are removed.
//!
//! Bringing a small file to disk takes the storage longer than compressing it takes us, and many files take hardly
//! longer than one. So outputs wait under their temporary names. Then the whole batch is synced, the outputs get their
//! names, the folders are synced, and last each source is looked at again and removed. Whatever ends the program in between
//! leaves the sources.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::failure::Failure;
use crate::output::{self, Complete};
use crate::source::{Input, Source};

/// Outputs that wait at most. Each holds two open files, and a system may allow no more than 256.
const MAX_WAITING: usize = 64;

/// Bytes of outputs that wait at most.
const MAX_BYTES: u64 = 64 << 20;

/// One output, and what is to be done once it is safe.
pub struct Waiting<T> {
    pub input: Input,
    pub output: Complete,
    /// The source, if it is to be removed.
    pub source: Option<Source>,
    /// For whoever is told how it went.
    pub note: T,
}

/// Outputs that wait to be brought to disk.
pub struct Batch<T> {
    waiting: Vec<Waiting<T>>,
    bytes: u64,
}

/// How it went with one file.
pub type Ended<T> = (Input, Result<T, Failure>);

impl<T> Batch<T> {
    pub fn new() -> Self {
        Batch { waiting: Vec::new(), bytes: 0 }
    }

    /// Adds an output.
    pub fn add(&mut self, waiting: Waiting<T>) {
        self.bytes += waiting.output.len();
        self.waiting.push(waiting);
    }

    /// Whether no more should wait.
    pub fn is_full(&self) -> bool {
        self.waiting.len() >= MAX_WAITING || self.bytes >= MAX_BYTES
    }

    /// Whether a waiting output will be called `path`, or a source of that name is about to go.
    pub fn concerns(&self, path: &Path) -> bool {
        self.waiting
            .iter()
            .any(|waiting| waiting.output.path() == path || waiting.input.path() == Some(path))
    }

    /// Brings all outputs to disk, gives them their names and removes their sources.
    pub fn finish(&mut self) -> Vec<Ended<T>> {
        self.bytes = 0;
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
            let folder = output::folder(one.output.path());
            if folders.contains(folder) {
                return Ok(());
            }
            output::sync_folder(folder).map_err(|error| Failure::from(error).at(folder))?;
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
