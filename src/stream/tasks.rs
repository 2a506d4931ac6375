//! Blocks on their way through the scheduler, with the memory that they need.

use std::io;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crc32c::crc32c;
use rayon::prelude::*;

use super::distant::{History, Restoring, Sources, matches_of, without_slack};
use super::places::{ReadAt, WriteAt};
use super::turns::Turn;
use crate::clock::Instant;
use crate::codec::distant::{self, DistantMatch, Survey};
use crate::codec::filter::ApplyFault;
use crate::codec::{OutOfMemory, Recipe, reserve};
use crate::error::{Error, Place};
use crate::format::{BlockHeader, Fault, Method, ModuleTable};
use crate::pipeline::buffer::{Buffer, Pool};
use crate::pipeline::engine::{Coded, DecodeJob, EncodeJob, Engine};
use crate::pipeline::memory::payload_capacity;
use crate::pipeline::modules::{FrameModules, refusal};
use crate::pipeline::scheduler::Task;
use crate::pipeline::statistics::Statistics;

/// Where to read the contents of a block to encode, or the payload of a block to decode.
pub(crate) struct Origin {
    pub(crate) input: Arc<dyn ReadAt>,
    pub(crate) offset: u64,
    pub(crate) statistics: Option<Statistics>,
}

impl Origin {
    /// Fills `buffer`, and counts the time.
    fn read(&self, buffer: &mut [u8]) -> io::Result<()> {
        let begun = Instant::now();
        let read = self.input.read_exact_at(buffer, self.offset);
        if let Some(statistics) = &self.statistics {
            statistics.read_since(begun);
        }
        read
    }
}

/// Reads what the tasks of a batch have not read yet, in parallel if there are threads for that.
fn read_all<T: Send>(
    batch: &mut [T],
    engine: &dyn Engine,
    is_unread: fn(&T) -> bool,
    read: fn(&mut T),
) {
    let unread = batch.iter().filter(|task| is_unread(task)).count();
    match if unread > 1 { engine.helpers() } else { None } {
        Some(helpers) => helpers.install(|| batch.par_iter_mut().for_each(read)),
        None => batch.iter_mut().for_each(read),
    }
}

/// What was taken out of a block before it is encoded.
#[derive(Debug, Default)]
pub(crate) struct TakenOut {
    /// The list of the block's distant matches; empty if it has none.
    pub(crate) list: Vec<u8>,
    /// Length and CRC-32C of the block's contents.
    pub(crate) content_len: u32,
    pub(crate) content_crc: u32,
}

/// A block to encode.
#[derive(Default)]
pub(crate) struct EncodeTask {
    pub(crate) recipe: Recipe,
    /// The contents; of a block with distant matches, its own bytes.
    pub(crate) contents: Buffer,
    taken_out: TakenOut,
    /// Number of the block in its frame.
    pub(crate) number: u64,
    /// Bytes of the contents of the blocks before it in its frame.
    pub(crate) position: u64,
    /// Where to read the contents, if they have not been read.
    pub(crate) origin: Option<Origin>,
    /// Its turn to look for distant matches, if it is to have any and has not looked.
    pub(crate) turn: Option<Turn>,
    survey: Survey,
    /// The error of reading the contents, or of looking for matches.
    unprepared: Option<Error>,
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
        self.turn = None;
        self.unprepared = None;
        self.taken_out.list.clear();
    }

    /// Looks for distant matches when it is the block's turn, and takes them out of the contents.
    fn take_out(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        if self.unprepared.is_none() {
            self.unprepared = self.take_out_at(turn).err();
        }
    }

    fn take_out_at(&mut self, turn: Turn) -> Result<(), Error> {
        let refused = |refused: OutOfMemory| Error::OutOfMemory { needed: refused.bytes };
        let TakenOut { list, content_len, content_crc } = &mut self.taken_out;
        (*content_len, *content_crc) = (self.contents.len() as u32, crc32c(&self.contents));
        self.survey.take(&self.contents).map_err(refused)?;
        let codes_list = turn.codes_list();
        let matches = turn.find(&mut self.survey, self.number == 0)?;
        distant::write(&matches, self.number as u32, list);
        if codes_list {
            distant::code(list).map_err(refused)?;
        }
        let own_len = distant::take_out(&matches, &mut self.contents);
        self.contents.truncate(own_len);
        Ok(())
    }

    /// What was taken out of the contents, if something was.
    pub(crate) fn taken_out(&self) -> Option<&TakenOut> {
        Some(&self.taken_out).filter(|taken| !taken.list.is_empty())
    }

    /// The result of encoding, for a frame with these modules.
    pub(crate) fn coded(&mut self, modules: &ModuleTable) -> Result<Coded, Error> {
        self.take_unprepared()?;
        if let (None, Some(refused)) = (self.coded, self.refused) {
            return Err(refusal(refused, modules, self.number));
        }
        self.coded.ok_or(Error::Internal { what: "a block could not be encoded" })
    }

    /// Reads the contents, if they have not been read.
    pub(crate) fn read(&mut self) {
        if let Some(origin) = self.origin.take() {
            self.unprepared = origin.read(&mut self.contents).err().map(Error::from);
        }
    }

    /// Makes room for the payload. Returns whether the block can be encoded.
    fn has_payload_room(&mut self) -> bool {
        if self.unprepared.is_none() && !self.is_unverified {
            let room = reserve(&mut self.payload, payload_capacity(self.contents.len()));
            self.payload.clear();
            self.refused = room.err().map(ApplyFault::from);
        }
        self.unprepared.is_none() && self.refused.is_none()
    }

    /// Returns the error of preparing the contents, if there was one.
    pub(crate) fn take_unprepared(&mut self) -> Result<(), Error> {
        self.unprepared.take().map_or(Ok(()), Err)
    }
}

impl Task for EncodeTask {
    fn run(batch: &mut [Self], engine: &dyn Engine) {
        read_all(batch, engine, |task| task.origin.is_some(), EncodeTask::read);
        batch.iter_mut().for_each(EncodeTask::take_out);
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
        self.is_coded() || self.unprepared.is_some()
    }

    fn bytes(&self) -> u64 {
        self.contents.len() as u64
    }

    fn set_panicked(&mut self) {
        self.coded = None;
        // Nobody waits for it any longer.
        self.turn = None;
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
    /// Where to read the payload, if it has not been read.
    origin: Option<Origin>,
    block: Option<(BlockHeader, Place)>,
    /// How far back the distant matches of the block's frame reach.
    reach: u64,
    /// What earlier blocks are restored from, and the most bytes of a block, if blocks are decoded in order.
    history: Option<(History, u64)>,
    /// The block's distant matches, once they are known.
    matches: Option<Vec<DistantMatch>>,
    /// The block's own bytes, once its contents have been restored from them and from earlier blocks.
    own: Option<Buffer>,
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

    /// Sets the block, and returns the buffer for its payload.
    pub(crate) fn set_block(&mut self, header: BlockHeader, place: Place) -> &mut Buffer {
        self.begin(header, place, None);
        self.payload_buffer()
    }

    /// Sets the block. Whoever decodes it first reads its payload from `origin`.
    pub(crate) fn set_unread_block(&mut self, header: BlockHeader, place: Place, origin: Origin) {
        self.begin(header, place, Some(origin));
    }

    fn begin(&mut self, header: BlockHeader, place: Place, origin: Option<Origin>) {
        self.block = Some((header, place));
        self.origin = origin;
        self.outcome = None;
        self.matches = None;
        self.payload_start = 0;
        self.is_in_place = header.method == Method::Store && header.own.is_none();
    }

    /// The buffer for the payload. That of a stored block is the contents.
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
        // No payload is longer than the contents, so the buffer also has room for the payloads of later blocks.
        buffer.set_len(header.content_len as usize)?;
        buffer.truncate(header.payload_len as usize);
        Ok(origin.read(buffer)?)
    }

    /// Sets what runs the modules of the block's frame, if it has some.
    pub(crate) fn set_modules(&mut self, modules: Option<Arc<FrameModules>>) {
        self.modules = modules;
    }

    /// Sets how far back the distant matches of the block's frame reach.
    pub(crate) fn set_reach(&mut self, reach: u64) {
        self.reach = reach;
    }

    /// Sets where the own bytes of earlier blocks are, so that whoever decodes the block can restore its contents. Blocks
    /// have up to `block_size` bytes.
    pub(crate) fn set_history(&mut self, history: &History, block_size: u64) {
        self.history = Some((history.clone(), block_size));
    }

    /// Replaces the block's header by the complete one, part of which may come after the payload.
    pub(crate) fn set_header(&mut self, header: BlockHeader) {
        self.block = self.block.map(|(_, place)| (header, place));
    }

    /// Sets where to write the contents after decoding, if they are known then.
    pub(crate) fn set_destination(&mut self, destination: Option<(Arc<dyn WriteAt>, u64)>) {
        self.destination = destination;
        self.written = None;
        self.writing = Duration::ZERO;
    }

    /// The result of writing the contents; `None` if they were not written.
    pub(crate) fn take_written(&mut self) -> Option<io::Result<()>> {
        self.written.take()
    }

    /// Whether `contents` holds the block's contents and not only its own bytes, if it has been decoded.
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

    /// Sets the block whose payload has been read to `payload`, from `start` to its end.
    pub(crate) fn set_payload_at(&mut self, start: usize, header: BlockHeader, place: Place) {
        self.begin(header, place, None);
        self.is_in_place = false;
        self.payload_start = start;
    }

    /// Returns the contents buffer to the pool.
    pub(crate) fn release(&mut self) {
        self.pool.give(mem::take(&mut self.contents));
        self.own.take().into_iter().for_each(|own| self.pool.give(own));
    }

    /// Decodes the block with `engine`, and returns its own bytes, which are all of the contents if it has no distant
    /// matches.
    pub(crate) fn into_own_bytes(mut self, engine: &dyn Engine) -> Result<Buffer, Error> {
        Self::run(std::slice::from_mut(&mut self), engine);
        self.outcome()?;
        Ok(self.contents)
    }

    fn outcome(&mut self) -> Result<(BlockHeader, Place), Error> {
        const LOST: Error = Error::Internal { what: "a block could not be decoded" };
        let (header, place) = self.block.ok_or(LOST)?;
        self.outcome.take().ok_or(LOST)?.map_err(|fault| fault.at(place))?;
        Ok((header, place))
    }

    /// The result of decoding. Restores the contents of a block with distant matches.
    pub(crate) fn finish(&mut self, sources: &mut impl Sources) -> Result<(), Error> {
        let (header, place) = self.decoded()?;
        self.restore(&header, place, sources)
    }

    /// The same, from the own bytes of the blocks before.
    pub(crate) fn finish_from(&mut self, history: &History) -> Result<(), Error> {
        let (header, place) = self.decoded()?;
        self.restore(&header, place, &mut history.known(&self.sources(&header)))
    }

    /// The result of decoding, with the block's matches known.
    fn decoded(&mut self) -> Result<(BlockHeader, Place), Error> {
        let (header, place) = self.outcome()?;
        if self.matches.is_none() {
            self.matches = self.list(&header).map_err(|fault| fault.at(place))?;
        }
        Ok((header, place))
    }

    /// Finds out what the decoded block repeats, and restores its contents if the own bytes of all these blocks are in the
    /// history. Other errors than those of the list are left to [`finish_from`](Self::finish_from).
    fn restore_early(&mut self) {
        let (Some((header, place)), Some(Ok(()))) = (self.block, &self.outcome) else { return };
        let Some((history, block_size)) = self.history.clone().filter(|_| !self.is_whole()) else {
            return;
        };
        match self.list(&header) {
            Ok(matches) => self.matches = matches,
            Err(fault) => return self.outcome = Some(Err(fault)),
        }
        // Only where few bytes are a block's own has this been shown to help.
        let has_few = self.contents.len() <= header.content_len as usize / 2;
        let numbers = self.sources(&header);
        let known = history.known_early(&numbers, place, self.reach, block_size);
        if let Some(mut known) = known.filter(|_| has_few) {
            let _ = self.restore(&header, place, &mut known);
            // The thread that passes blocks on is not to copy them.
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
        let matches = self.matches.iter().flat_map(|matches| distant::sources(matches));
        matches.map(|back| u64::from(header.number - back)).collect()
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
        let own = &self.contents;
        let mut restoring = Restoring::begin(header, matches, own, room, place)?;
        for number in restoring.sources() {
            restoring.put(number, sources.own_bytes(number)?)?;
        }
        restoring.end()?;
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
            // Of a block with distant matches, the engine decodes the own bytes.
            let own = payload.and_then(|payload| header.split(payload));
            let (header, payload) = match own {
                Some((_, header, coded)) => (header, Some(coded)),
                None => (header, payload),
            };
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
                payload,
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
        // What is known to be wrong with the block stands, whichever block of the batch the panic was about.
        if matches!(self.outcome, Some(Ok(()))) {
            self.outcome = None;
        }
    }
}
