//! A block to encode.

use crc32c::crc32c;

use super::{Origin, read_all};
use crate::codec::distant::{self, Survey};
use crate::codec::filter::ApplyFault;
use crate::codec::{Recipe, reserve};
use crate::error::Error;
use crate::format::ModuleTable;
use crate::pipeline::buffer::Buffer;
use crate::pipeline::engine::{Coded, EncodeJob, Engine};
use crate::pipeline::memory::payload_capacity;
use crate::pipeline::modules::refusal;
use crate::pipeline::scheduler::Task;
use crate::stream::turns::Turn;

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
    /// The contents, or only the own bytes once distant matches have been taken out.
    pub(crate) contents: Buffer,
    taken_out: TakenOut,
    /// Number of the block in its frame.
    pub(crate) number: u64,
    /// Bytes of the contents of the blocks before it in its frame.
    pub(crate) position: u64,
    /// Where to read the contents, if they have not been read.
    pub(crate) origin: Option<Origin>,
    /// Its turn to look for distant matches, if it still has to look for any.
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

    /// Waits for the block's turn, looks for distant matches, and takes them out of the contents.
    fn take_out(&mut self) {
        let Some(turn) = self.turn.take() else { return };
        if self.unprepared.is_none() {
            self.unprepared = self.take_out_at(turn).err();
        }
    }

    fn take_out_at(&mut self, turn: Turn) -> Result<(), Error> {
        let TakenOut { list, content_len, content_crc } = &mut self.taken_out;
        (*content_len, *content_crc) = (self.contents.len() as u32, crc32c(&self.contents));
        self.survey.take(&self.contents)?;
        let codes_list = turn.codes_list();
        let matches = turn.find(&mut self.survey, self.number == 0)?;
        distant::write(&matches, self.number as u32, list);
        if codes_list {
            distant::code(list)?;
        }
        let own_len = distant::take_out(&matches, &mut self.contents);
        self.contents.truncate(own_len);
        Ok(())
    }

    /// What was taken out of the contents, if anything.
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
        // Call the engine once for neighbouring blocks with the same recipe, usually all of them.
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
        // Blocks that wait for this one's turn fail at once.
        self.turn = None;
    }
}
