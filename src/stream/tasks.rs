//! Blocks on their way through the scheduler, with the memory that they need.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use rayon::prelude::*;

use super::places::{ReadAt, WriteAt};
use crate::clock::Instant;
use crate::codec::Recipe;
use crate::codec::filter::ApplyFault;
use crate::codec::reserve;
use crate::error::{Error, Place};
use crate::format::{BlockHeader, Fault, Method, ModuleTable};
use crate::pipeline::buffer::{Buffer, Pool};
use crate::pipeline::engine::{Coded, DecodeJob, EncodeJob, Engine};
use crate::pipeline::memory::payload_capacity;
use crate::pipeline::modules::{FrameModules, refusal};
use crate::pipeline::scheduler::Task;
use crate::pipeline::statistics::Statistics;

/// Where to read the contents of a block.
pub(crate) struct Origin {
    pub(crate) input: Arc<dyn ReadAt>,
    pub(crate) offset: u64,
    pub(crate) statistics: Option<Statistics>,
}

/// A block to encode.
#[derive(Default)]
pub(crate) struct EncodeTask {
    pub(crate) recipe: Recipe,
    pub(crate) contents: Buffer,
    /// Number of the block in its frame.
    pub(crate) number: u64,
    /// Bytes of the contents of the blocks before it in its frame.
    pub(crate) position: u64,
    /// Where to read the contents, if they have not been read.
    pub(crate) origin: Option<Origin>,
    /// The error of reading the contents.
    unreadable: Option<io::Error>,
    pub(crate) payload: Vec<u8>,
    coded: Option<Coded>,
    is_unverified: bool,
    /// Whether the block ends its frame.
    pub(crate) is_last: bool,
    /// Why the block could not be encoded.
    refused: Option<ApplyFault>,
}

impl EncodeTask {
    /// Prepares for another block.
    pub(crate) fn reset(&mut self) {
        self.is_last = false;
        self.coded = None;
        self.is_unverified = false;
        self.refused = None;
        self.origin = None;
        self.unreadable = None;
    }

    /// The result of encoding, for a frame with these modules.
    pub(crate) fn coded(&mut self, modules: &ModuleTable) -> Result<Coded, Error> {
        self.take_unreadable()?;
        if let (None, Some(refused)) = (self.coded, self.refused) {
            return Err(refusal(refused, modules, self.number));
        }
        self.coded.ok_or(Error::Internal { what: "a block could not be encoded" })
    }

    /// Reads the contents, if they have not been read.
    pub(crate) fn read(&mut self) {
        let Some(Origin { input, offset, statistics }) = self.origin.take() else { return };
        let begun = Instant::now();
        self.unreadable = input.read_exact_at(&mut self.contents, offset).err();
        if let Some(statistics) = statistics {
            statistics.read_since(begun);
        }
    }

    /// Makes room for the payload. Returns whether the block can be encoded.
    fn has_payload_room(&mut self) -> bool {
        if self.unreadable.is_none() && !self.is_unverified {
            let room = reserve(&mut self.payload, payload_capacity(self.contents.len()));
            self.payload.clear();
            self.refused = room.err().map(ApplyFault::from);
        }
        self.unreadable.is_none() && self.refused.is_none()
    }

    /// Returns the error of reading the contents, if there was one.
    pub(crate) fn take_unreadable(&mut self) -> Result<(), Error> {
        self.unreadable.take().map_or(Ok(()), |error| Err(error.into()))
    }
}

impl Task for EncodeTask {
    fn run(batch: &mut [Self], engine: &dyn Engine) {
        let unread = batch.iter().filter(|task| task.origin.is_some()).count();
        match if unread > 1 { engine.helpers() } else { None } {
            Some(helpers) => helpers.install(|| batch.par_iter_mut().for_each(EncodeTask::read)),
            None => batch.iter_mut().for_each(EncodeTask::read),
        }
        let mut by_recipe = batch;
        // Call the engine once for each run of blocks with the same recipe, which usually is all of them.
        while let Some(first) = by_recipe.first() {
            let recipe = first.recipe;
            let same = by_recipe.iter().take_while(|task| task.recipe == recipe).count();
            let (now, later) = by_recipe.split_at_mut(same);
            by_recipe = later;
            let mut now: Vec<_> =
                now.iter_mut().filter_map(|task| task.has_payload_room().then_some(task)).collect();
            let mut jobs: Vec<_> = now
                .iter_mut()
                .map(|task| EncodeJob {
                    contents: &task.contents,
                    position: task.position,
                    payload: &mut task.payload,
                    coded: task.coded,
                    is_unverified: task.is_unverified,
                    filters: None,
                    refused: None,
                })
                .collect();
            engine.encode(&recipe, &mut jobs);
            let coded: Vec<_> =
                jobs.into_iter().map(|job| (job.coded, job.is_unverified, job.refused)).collect();
            for (task, coded) in now.iter_mut().zip(coded) {
                (task.coded, task.is_unverified, task.refused) = coded;
            }
        }
    }

    fn is_coded(&self) -> bool {
        self.coded.is_some() && !self.is_unverified
    }

    fn is_done(&self) -> bool {
        self.is_coded() || self.unreadable.is_some()
    }

    fn bytes(&self) -> u64 {
        self.contents.len() as u64
    }

    fn set_panicked(&mut self) {
        self.coded = None;
    }
}

/// A block to decode.
#[derive(Default)]
pub(crate) struct DecodeTask {
    pub(crate) payload: Buffer,
    /// Where in `payload` the payload begins.
    pub(crate) payload_start: usize,
    /// Taken from `pool` when decoding begins: a waiting block needs no contents buffer.
    pub(crate) contents: Buffer,
    pool: Pool,
    block: Option<(BlockHeader, Place)>,
    /// What runs the modules of the block's frame.
    modules: Option<Arc<FrameModules>>,
    /// Whether `contents` already holds the payload, because the block is stored.
    is_in_place: bool,
    outcome: Option<Result<(), Fault>>,
    /// Where to write the contents after decoding, and the result of writing.
    destination: Option<(Arc<dyn WriteAt>, u64)>,
    written: Option<io::Result<()>>,
    writing: Duration,
}

impl DecodeTask {
    /// A task whose contents come from `pool`.
    pub(crate) fn new(pool: &Pool) -> Self {
        Self { pool: pool.clone(), ..Self::default() }
    }

    /// Sets the block, and returns the buffer for its payload. That of a stored block is the contents.
    pub(crate) fn set_block(&mut self, header: BlockHeader, place: Place) -> &mut Buffer {
        self.block = Some((header, place));
        self.outcome = None;
        self.payload_start = 0;
        self.is_in_place = header.method == Method::Store;
        if self.is_in_place {
            self.contents = self.pool.take();
            &mut self.contents
        } else {
            &mut self.payload
        }
    }

    /// Sets what runs the modules of the block's frame, if it has some.
    pub(crate) fn set_modules(&mut self, modules: Option<Arc<FrameModules>>) {
        self.modules = modules;
    }

    /// Replaces the block's header by the complete one, part of which may come after the payload.
    pub(crate) fn set_header(&mut self, header: BlockHeader) {
        self.block = self.block.map(|(_, place)| (header, place));
    }

    /// Sets where to write the contents after decoding.
    pub(crate) fn set_destination(&mut self, destination: Option<(Arc<dyn WriteAt>, u64)>) {
        self.destination = destination;
        self.written = None;
        self.writing = Duration::ZERO;
    }

    /// The result of writing the contents; `None` if they were not written.
    pub(crate) fn take_written(&mut self) -> Option<io::Result<()>> {
        self.written.take()
    }

    fn write(&mut self) {
        if let (Some(Ok(())), Some((output, offset))) = (&self.outcome, &self.destination) {
            let begun = Instant::now();
            self.written = Some(output.write_all_at(&self.contents, *offset));
            self.writing = begun.elapsed();
        }
    }

    /// Sets the block whose payload has been read to `payload`, from `start` to its end.
    pub(crate) fn set_payload_at(&mut self, start: usize, header: BlockHeader, place: Place) {
        self.block = Some((header, place));
        self.outcome = None;
        self.is_in_place = false;
        self.payload_start = start;
    }

    /// Returns the contents buffer to the pool.
    pub(crate) fn release(&mut self) {
        self.pool.give(mem::take(&mut self.contents));
    }

    /// The result of decoding.
    pub(crate) fn finish(&mut self) -> Result<(), Error> {
        const LOST: Error = Error::Internal { what: "a block could not be decoded" };
        let (_, place) = self.block.ok_or(LOST)?;
        self.outcome.take().ok_or(LOST)?.map_err(|fault| fault.at(place))
    }
}

impl Task for DecodeTask {
    fn run(batch: &mut [Self], engine: &dyn Engine) {
        let mut jobs = Vec::with_capacity(batch.len());
        let mut outcomes = Vec::with_capacity(batch.len());
        for task in &mut *batch {
            let Some((header, _)) = task.block.filter(|_| task.outcome.is_none()) else { continue };
            if !task.is_in_place {
                if task.contents.is_empty() {
                    task.contents = task.pool.take();
                }
                if let Err(fault) = task.contents.set_len(header.content_len as usize) {
                    task.outcome = Some(Err(fault));
                    continue;
                }
            }
            jobs.push(DecodeJob {
                header,
                modules: task.modules.as_deref(),
                payload: (!task.is_in_place).then(|| &task.payload[task.payload_start..]),
                contents: &mut task.contents,
                outcome: None,
            });
            outcomes.push(&mut task.outcome);
        }
        if !jobs.is_empty() {
            engine.decode(&mut jobs);
        }
        for (outcome, job) in outcomes.into_iter().zip(jobs) {
            *outcome = job.outcome;
        }
        if engine.has_time_to_write() {
            batch.iter_mut().for_each(DecodeTask::write);
        }
    }

    fn is_coded(&self) -> bool {
        self.outcome.is_some()
    }

    fn is_done(&self) -> bool {
        let is_to_be_written = matches!(self.outcome, Some(Ok(()))) && self.destination.is_some();
        self.outcome.is_some() && (self.written.is_some() || !is_to_be_written)
    }

    fn bytes(&self) -> u64 {
        self.contents.len() as u64
    }

    fn writing(&self) -> Duration {
        self.writing
    }

    fn set_panicked(&mut self) {
        self.outcome = None;
    }
}
