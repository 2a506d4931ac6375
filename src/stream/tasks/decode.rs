//! A block to decode.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use super::{Origin, read_all};
use crate::clock::Instant;
use crate::codec::distant::DistantMatch;
use crate::error::{Error, Place};
use crate::format::{BlockHeader, Fault, Method};
use crate::pipeline::buffer::{Buffer, Pool};
use crate::pipeline::engine::Engine;
use crate::pipeline::modules::FrameModules;
use crate::pipeline::scheduler::Task;
use crate::stream::block::{
    Block, History, NOT_DECODED, Sources, matches_of, put_together, source_numbers, without_slack,
};
use crate::stream::places::WriteAt;

/// A block to decode.
#[derive(Default)]
pub(crate) struct DecodeTask {
    pub(crate) payload: Buffer,
    /// Where in `payload` the payload begins.
    pub(crate) payload_start: usize,
    /// Taken from `pool` when decoding begins, because a waiting block needs no buffer for contents.
    pub(crate) contents: Buffer,
    pool: Pool,
    /// Where to read the payload, if it has not been read.
    origin: Option<Origin>,
    block: Option<(BlockHeader, Place)>,
    /// How far back the distant matches of the block's frame reach.
    pub(crate) reach: u64,
    /// The own bytes of earlier blocks, and the block size, if blocks are decoded in order.
    pub(crate) history: Option<(History, u64)>,
    /// The block's distant matches, once they are known.
    matches: Option<Vec<DistantMatch>>,
    /// The block's own bytes, once its contents have been restored from them and from earlier blocks.
    own: Option<Buffer>,
    /// Runs the modules of the block's frame.
    pub(crate) modules: Option<Arc<FrameModules>>,
    /// Whether `contents` already holds the payload, because the block is stored.
    is_in_place: bool,
    outcome: Option<Result<(), Fault>>,
    /// Where to write the contents after decoding, and the result of writing.
    destination: Option<(Arc<dyn WriteAt>, u64)>,
    pub(crate) written: Option<io::Result<()>>,
    writing: Duration,
}

impl DecodeTask {
    /// A task whose contents come from `pool`.
    pub(crate) fn new(pool: &Pool) -> Self {
        Self { pool: pool.clone(), ..Self::default() }
    }

    /// Sets the block, and returns the buffer for its payload.
    pub(crate) fn set_block(&mut self, header: BlockHeader, place: Place) -> &mut Buffer {
        self.begin(header, place, None);
        self.payload_buffer()
    }

    /// Sets the block. The thread that decodes it first reads its payload from `origin`.
    pub(crate) fn set_unread_block(&mut self, header: BlockHeader, place: Place, origin: Origin) {
        self.begin(header, place, Some(origin));
    }

    fn begin(&mut self, header: BlockHeader, place: Place, origin: Option<Origin>) {
        self.block = Some((header, place));
        self.origin = origin;
        self.outcome = None;
        self.matches = None;
        self.own.take().into_iter().for_each(|own| self.pool.give(own));
        self.payload_start = 0;
        self.is_in_place = header.method == Method::Store && header.own.is_none();
    }

    /// The buffer for the payload; of a stored block, the one for the contents.
    fn payload_buffer(&mut self) -> &mut Buffer {
        if self.is_in_place {
            self.contents = self.pool.take();
            &mut self.contents
        } else {
            &mut self.payload
        }
    }

    /// Reads the payload, if it has not been read.
    fn read(&mut self) {
        let (Some(origin), Some((header, _))) = (self.origin.take(), self.block) else { return };
        self.outcome = self.read_payload(&header, &origin).err().map(Err);
    }

    fn read_payload(&mut self, header: &BlockHeader, origin: &Origin) -> Result<(), Fault> {
        let buffer = self.payload_buffer();
        // Make room for the longest payload of such a block, so that later blocks can use the buffer too.
        buffer.set_len(header.content_len as usize)?;
        buffer.truncate(header.payload_len as usize);
        Ok(origin.read(buffer)?)
    }

    /// Replaces the block's header by the complete one, once the bytes after the payload have been read.
    pub(crate) fn set_header(&mut self, header: BlockHeader) {
        self.block = self.block.map(|(_, place)| (header, place));
    }

    /// Sets where to write the contents, if the thread that decodes the block can restore them.
    pub(crate) fn set_destination(&mut self, destination: Option<(Arc<dyn WriteAt>, u64)>) {
        self.destination = destination;
        self.written = None;
        self.writing = Duration::ZERO;
    }

    /// Whether `contents` of a decoded block holds its contents, and not only its own bytes.
    fn is_whole(&self) -> bool {
        self.own.is_some() || self.block.is_some_and(|(header, _)| header.own.is_none())
    }

    fn write(&mut self) {
        if let (Some(Ok(())), Some((output, offset)), true) =
            (&self.outcome, &self.destination, self.is_whole())
        {
            let begun = Instant::now();
            self.written = Some(output.write_all_at(&self.contents, *offset));
            self.writing = begun.elapsed();
        }
    }

    /// Sets the block, whose payload is already in `payload`, from `start` on.
    pub(crate) fn set_payload_at(&mut self, start: usize, header: BlockHeader, place: Place) {
        self.begin(header, place, None);
        self.is_in_place = false;
        self.payload_start = start;
        self.payload.truncate(start + header.payload_len as usize);
    }

    /// Returns the contents buffer to the pool.
    pub(crate) fn release(&mut self) {
        self.pool.give(mem::take(&mut self.contents));
        self.own.take().into_iter().for_each(|own| self.pool.give(own));
    }

    fn outcome(&mut self) -> Result<(BlockHeader, Place), Error> {
        let (header, place) = self.block.ok_or(Error::Internal { what: "a task has no block" })?;
        self.outcome.take().unwrap_or(Err(NOT_DECODED)).map_err(|fault| fault.at(place))?;
        Ok((header, place))
    }

    /// Restores the contents of a block with distant matches, and returns the result of decoding.
    pub(crate) fn finish(&mut self, sources: &mut impl Sources) -> Result<(), Error> {
        let (header, place) = self.decoded()?;
        self.restore(&header, place, sources)
    }

    /// The same, from the own bytes of earlier blocks.
    pub(crate) fn finish_from(&mut self, history: &History) -> Result<(), Error> {
        let (header, place) = self.decoded()?;
        self.restore(&header, place, &mut history.known(&self.sources(&header)))
    }

    /// Returns the result of decoding, and reads the block's list of matches if nobody has.
    fn decoded(&mut self) -> Result<(BlockHeader, Place), Error> {
        let (header, place) = self.outcome()?;
        if self.matches.is_none() {
            self.matches = self.list(&header).map_err(|fault| fault.at(place))?;
        }
        Ok((header, place))
    }

    /// Reads the list of a decoded block, and restores its contents if the history has the own bytes of all blocks that
    /// it repeats. Reports only errors of the list; [`finish_from`](Self::finish_from) reports the others.
    fn restore_early(&mut self) {
        let (Some((header, place)), Some(Ok(()))) = (self.block, &self.outcome) else { return };
        let Some((history, block_size)) = self.history.clone().filter(|_| !self.is_whole()) else {
            return;
        };
        match self.list(&header) {
            Ok(matches) => self.matches = matches,
            Err(fault) => return self.outcome = Some(Err(fault)),
        }
        let numbers = self.sources(&header);
        if let Some(mut known) = history.known_early(&numbers, place, self.reach, block_size) {
            let _ = self.restore(&header, place, &mut known);
            // Copy here, so that the thread that passes blocks on need not.
            match self.own.take().map(|own| without_slack(own, &self.pool)).transpose() {
                Ok(own) => self.own = own,
                Err(fault) => self.outcome = Some(Err(fault)),
            }
        }
    }

    /// The distant matches of the decoded block; `None` if it has none.
    fn list(&self, header: &BlockHeader) -> Result<Option<Vec<DistantMatch>>, Fault> {
        let split = header.split(&self.payload[self.payload_start..]);
        split.map(|(list, _, _)| matches_of(header, self.contents.len() as u32, list)).transpose()
    }

    /// Numbers of the blocks that the block repeats, if its matches are known.
    fn sources(&self, header: &BlockHeader) -> Vec<u64> {
        self.matches.as_ref().map_or(Vec::new(), |matches| source_numbers(header, matches))
    }

    fn restore(
        &mut self,
        header: &BlockHeader,
        place: Place,
        sources: &mut impl Sources,
    ) -> Result<(), Error> {
        let Some(matches) = self.matches.as_ref().filter(|_| self.own.is_none()) else {
            return Ok(());
        };
        let mut contents = self.pool.take();
        let room = contents.set_len(header.content_len as usize);
        let room = room.map_err(|fault| fault.at(place))?;
        put_together(header, place, matches, &self.contents, room, sources)?;
        self.own = Some(mem::replace(&mut self.contents, contents));
        Ok(())
    }

    /// Like [`release`](Self::release), but the block's own bytes go to `history`, if distant matches may repeat them.
    pub(crate) fn release_to(&mut self, history: &History) -> Result<(), Error> {
        if self.reach > 0
            && let Some((_, place)) = self.block
        {
            let own = self.own.take().unwrap_or_else(|| mem::take(&mut self.contents));
            history.push(place, own, self.reach, &self.pool)?;
        }
        self.release();
        Ok(())
    }
}

impl Task for DecodeTask {
    fn run(batch: &mut [Self], engine: &dyn Engine) {
        read_all(batch, engine, |task| task.origin.is_some(), DecodeTask::read);
        let mut jobs = Vec::with_capacity(batch.len());
        let mut outcomes = Vec::with_capacity(batch.len());
        for task in &mut *batch {
            let Some((header, _)) = task.block.filter(|_| task.outcome.is_none()) else { continue };
            let payload = (!task.is_in_place).then(|| &task.payload[task.payload_start..]);
            let modules = task.modules.as_deref();
            // If the block has distant matches, the engine decodes its own bytes.
            let (block, _) = Block { header, payload, modules }.split();
            if !task.is_in_place {
                if task.contents.is_empty() {
                    task.contents = task.pool.take();
                }
                if let Err(fault) = task.contents.set_len(block.header.content_len as usize) {
                    task.outcome = Some(Err(fault));
                    continue;
                }
            }
            jobs.push(block.job(&mut task.contents));
            outcomes.push(&mut task.outcome);
        }
        if !jobs.is_empty() {
            engine.decode(&mut jobs);
        }
        for (outcome, job) in outcomes.into_iter().zip(jobs) {
            *outcome = job.outcome;
        }
        if engine.has_time_to_write() {
            for task in batch {
                task.restore_early();
                task.write();
            }
        }
    }

    fn is_coded(&self) -> bool {
        self.outcome.is_some()
    }

    fn is_done(&self) -> bool {
        let is_to_be_written =
            matches!(self.outcome, Some(Ok(()))) && self.destination.is_some() && self.is_whole();
        self.outcome.is_some() && (self.written.is_some() || !is_to_be_written)
    }

    fn bytes(&self) -> u64 {
        self.contents.len() as u64
    }

    fn writing(&self) -> Duration {
        self.writing
    }

    fn set_panicked(&mut self) {
        // Keep a known error: another block of the batch may have caused the panic.
        if matches!(self.outcome, Some(Ok(()))) {
            self.outcome = None;
        }
    }
}
