//! Reads that nobody waits for: whoever began one is told when it has ended.

use std::ops::Range;
use std::sync::Arc;

use super::completion::{Completion, Done};
use super::device_queue::{of_blocks, waiters, wanted};
use super::error::ArchiveError;
use super::options::Priority;
use super::reader::Archive;
use super::shared::Shared;
use crate::access::device::{DeviceMemory, DeviceSliceMut, SlicePlace, Want, Workers};
use crate::stream::block::BlockId;

/// A range of the contents, the part of a device's buffer that it goes to, and what to call at the end, from any
/// thread. The caller keeps the buffer until then.
pub(crate) struct BackgroundRead<'a> {
    pub(crate) range: Range<u64>,
    pub(crate) destination: DeviceSliceMut<'a>,
    pub(crate) done: Done,
}

impl Archive {
    /// Begins reads into buffers of `memory`, and returns. The first error of a read goes to its `done`.
    pub(crate) fn read_in_background(&self, memory: &DeviceMemory, reads: Vec<BackgroundRead<'_>>) {
        let shared = match self.shared() {
            Ok(shared) => shared,
            Err(error) => {
                return reads.into_iter().for_each(|read| (read.done)(Err(error.clone())));
            }
        };
        let Some(workers) = memory.workers() else {
            let host = || Err(shared.internal("a background read into host memory"));
            return reads.into_iter().for_each(|read| (read.done)(host()));
        };
        let mut all = Vec::new();
        let mut completions = Vec::with_capacity(reads.len());
        for BackgroundRead { range, destination, done } in reads {
            match shared.checked(workers, &range, &destination) {
                Err(error) => done(Err(error)),
                Ok(wanted) if wanted.is_empty() => done(Ok(())),
                Ok(wanted) => {
                    let completion = Arc::new(Completion::calling(wanted.len(), done));
                    all.extend(waiters(wanted, &completion));
                    completions.push(completion);
                }
            }
        }
        if let Err(error) = shared.queue_on(workers, all, Priority::Normal) {
            for completion in completions {
                completion.fail(error.clone());
            }
        }
    }
}

impl Shared {
    /// What a background read wants of each block.
    fn checked(
        &self,
        workers: &Arc<Workers>,
        range: &Range<u64>,
        destination: &DeviceSliceMut<'_>,
    ) -> Result<Vec<(BlockId, Vec<Want>)>, ArchiveError> {
        self.check_read(range, destination.len())?;
        match &destination.place {
            SlicePlace::Device { memory, buffer, start }
                if memory.workers().is_some_and(|own| Arc::ptr_eq(own, workers)) =>
            {
                let placements = self.loader.layout.placements(range.clone(), 0);
                Ok(of_blocks(
                    placements.map(|placement| wanted(placement, buffer, *start)).collect(),
                ))
            }
            _ => Err(self.internal("a background read into other memory")),
        }
    }
}
