//! An archive as its callers see it.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::completion::{Claim, Completion};
use super::destination::{Destination, RangeRead};
use super::device_queue::DeviceWaiter;
use super::error::ArchiveError;
use super::options::{ArchiveOptions, ReadOptions};
use super::shared::ArchiveShared;
use crate::access::cache::CacheStatistics;
use crate::access::device::Workers;
use crate::access::sources::{Source, Traffic, Uri};
use crate::process::PerProcess;
use crate::stream::block::Placement;

/// What an archive has done so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct ArchiveStatistics {
    /// The cache of decoded contents. Each read looks up each of its blocks once.
    pub contents: CacheStatistics,
    /// The cache of compressed blocks. The loaders look up each block before they decode it.
    pub payloads: CacheStatistics,
    /// Requests to the source, and bytes from it.
    pub traffic: Traffic,
    /// Blocks that the device decoded or moved to its memory.
    pub blocks_by_device: u64,
    /// Blocks that the CPU decoded for a device, because the device declined them, had no memory for them, or got them
    /// wrong.
    pub blocks_by_cpu: u64,
}

/// A compressed file that several threads can read at once, in any order. The first read into host memory starts four
/// threads that load blocks, and the number of decoding threads that the options set.
///
/// ```
/// use pz::access::{Archive, ArchiveOptions, publish};
/// publish("numbers", pz::compress(&[7; 100_000], &pz::Options::new())?);
/// let archive = Archive::open("memio://numbers", &ArchiveOptions::new())?;
/// let mut part = [0; 10];
/// archive.read_into(5000..5010, &mut part)?;
/// assert_eq!(part, [7; 10]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Archive {
    source: Arc<dyn Source>,
    options: ArchiveOptions,
    len: u64,
    /// Caches and threads of this process. A forked process reads the index again.
    shared: PerProcess<Arc<ArchiveShared>>,
}

impl Archive {
    /// Opens the archive that `uri` names, and checks its headers, indices and footers.
    ///
    /// # Errors
    /// [`ArchiveError::Source`] if it cannot be read, and [`ArchiveError::Format`] for the first fault in it or if the
    /// options permit too little memory.
    pub fn open(uri: &str, options: &ArchiveOptions) -> Result<Self, ArchiveError> {
        Self::of_source(crate::access::sources::open(&Uri::parse(uri)?, &options.source)?, options)
    }

    /// Opens the archive in `source`.
    ///
    /// # Errors
    /// As for [`Archive::open`].
    pub fn of_source(
        source: Arc<dyn Source>,
        options: &ArchiveOptions,
    ) -> Result<Self, ArchiveError> {
        let shared = ArchiveShared::new(Arc::clone(&source), options)?;
        let (options, len) = (options.clone(), shared.loader.layout.len());
        Ok(Self { source, options, len, shared: Arc::new(shared).into() })
    }

    /// The caches and threads of this process.
    pub(super) fn shared(&self) -> Result<&Arc<ArchiveShared>, ArchiveError> {
        if let Some(shared) = self.shared.get() {
            return Ok(shared);
        }
        let own = ArchiveShared::new(Arc::clone(&self.source), &self.options)?;
        Ok(self.shared.get_or_init(|| Arc::new(own)))
    }

    /// The URI, as messages show it.
    pub fn uri(&self) -> &str {
        self.source.uri()
    }

    /// Length of the contents in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the contents are empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Checks that `range` lies within the contents.
    pub(super) fn check(&self, range: &Range<u64>) -> Result<(), ArchiveError> {
        self.shared()?.check(range)
    }

    /// Reads bytes `range` of the contents into `destination`: host memory or a
    /// [`DeviceBuffer`](crate::access::DeviceBuffer) of the same length.
    ///
    /// # Errors
    /// As for [`Archive::read`].
    pub fn read_into<'a>(
        &self,
        range: Range<u64>,
        destination: impl Into<Destination<'a>>,
    ) -> Result<(), ArchiveError> {
        self.read(&mut [RangeRead::new(range, destination)], &ReadOptions::new())
    }

    /// Reads several parts of the contents. Their blocks are loaded together, so neighbouring blocks share requests.
    ///
    /// When it returns, with or without an error, nothing writes to the destinations any more.
    ///
    /// # Errors
    /// The first error that happened. The destinations then hold unspecified bytes. [`ArchiveError::InvalidRange`] and
    /// [`ArchiveError::DestinationLength`] are returned before anything is read. [`ArchiveError::DeadlineExceeded`] and
    /// [`ArchiveError::Cancelled`] are returned soon, even if the source does not answer; only a batch that a device is
    /// already decoding into the destination delays them.
    pub fn read(
        &self,
        reads: &mut [RangeRead<'_>],
        options: &ReadOptions,
    ) -> Result<(), ArchiveError> {
        let shared = self.shared()?;
        let claim = Claim(Completion::new(None));
        let mut on_host = Vec::new();
        let mut on_devices: Vec<(&Arc<Workers>, Vec<_>)> = Vec::new();
        for (number, read) in reads.iter().enumerate() {
            shared.check_read(read)?;
            let own = shared.loader.layout.placements(read.range.clone(), number);
            let Some((workers, buffer, start)) = read.destination.on_device() else {
                on_host.extend(own);
                continue;
            };
            let own = own.map(|one| DeviceWaiter::new(one, buffer, start, &claim.0));
            match on_devices.iter_mut().find(|(known, _)| Arc::ptr_eq(known, workers)) {
                Some((_, waiters)) => waiters.extend(own),
                None => on_devices.push((workers, own.collect())),
            }
        }
        for (workers, mut waiters) in on_devices {
            waiters.sort_by_key(|waiter| waiter.block);
            shared.queue_on(workers, waiters, options.priority)?;
        }
        Self::read_on_host(shared, on_host, reads, options)?;
        claim.wait(options).map(drop)
    }

    /// Reads the parts whose destinations are in host memory.
    fn read_on_host(
        shared: &Arc<ArchiveShared>,
        mut placements: Vec<Placement>,
        reads: &mut [RangeRead<'_>],
        options: &ReadOptions,
    ) -> Result<(), ArchiveError> {
        if !placements.is_empty() {
            shared.start_loaders()?;
        }
        placements.sort_by_key(|placement| placement.block);
        // Copies the pages of one step while the loaders load those of the next.
        let mut waiting = VecDeque::new();
        let mut left = &placements[..];
        loop {
            while waiting.len() < 2 && !left.is_empty() {
                let (step, rest) = first_blocks(left, shared.step);
                left = rest;
                waiting.push_back((step, shared.request(step, options)));
            }
            let Some((step, claim)) = waiting.pop_front() else { break };
            let pages = claim.wait(options)?;
            let mut pages = pages.iter();
            let mut current = None;
            for placement in step {
                let Placement { block, within, destination, at } = placement;
                if current.is_none_or(|(known, _)| known != block) {
                    current = pages.next().map(|page| (block, page));
                }
                let bytes = current.and_then(|(_, page)| page.get(within.clone()));
                let bytes = bytes.ok_or_else(|| shared.internal("a block has another length"))?;
                let destination = reads[*destination].destination.on_host();
                let destination =
                    destination.ok_or_else(|| shared.internal("a destination has moved"))?;
                destination[*at..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        for read in reads.iter_mut().filter_map(|read| {
            read.destination.on_host()?;
            Some(&read.range)
        }) {
            shared.prefetch_after(read);
        }
        Ok(())
    }

    /// Starts to load the blocks of `range` into the contents cache, and returns at once. Blocks that reads wait for
    /// are loaded first. Faults are reported when the blocks are read. Leaves out blocks that the cache cannot hold.
    ///
    /// # Errors
    /// [`ArchiveError::InvalidRange`], and if the system has no thread to spare.
    pub fn prefetch(&self, range: Range<u64>) -> Result<(), ArchiveError> {
        let shared = self.shared()?;
        shared.check(&range)?;
        shared.start_loaders()?;
        let placements = shared.loader.layout.placements(range, 0);
        shared.load_ahead(placements.map(|placement| placement.block));
        Ok(())
    }

    /// What the archive has done so far in this process.
    pub fn statistics(&self) -> ArchiveStatistics {
        let traffic = self.source.traffic();
        let Some(shared) = self.shared.get() else {
            return ArchiveStatistics { traffic, ..ArchiveStatistics::default() };
        };
        ArchiveStatistics {
            contents: shared.lock().contents.statistics(),
            payloads: shared.loader.payloads.lock().statistics(),
            traffic,
            blocks_by_device: shared.by_device.load(Ordering::Relaxed),
            blocks_by_cpu: shared.by_cpu.load(Ordering::Relaxed),
        }
    }
}

/// Ends the loader threads. One that waits for a server ends when the server answers, or at the limit of
/// [`SourceOptions`](crate::access::SourceOptions).
impl Drop for Archive {
    fn drop(&mut self) {
        if let Some(shared) = self.shared.get() {
            shared.close();
        }
    }
}

/// Splits placements, which are in the order of their blocks, after the first `most` blocks.
fn first_blocks(placements: &[Placement], most: usize) -> (&[Placement], &[Placement]) {
    let mut blocks = 0;
    let mut last = None;
    let end = placements.iter().position(|placement| {
        blocks += usize::from(last.replace(placement.block) != Some(placement.block));
        blocks > most
    });
    placements.split_at(end.unwrap_or(placements.len()))
}
