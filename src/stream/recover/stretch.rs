//! Steps of a recovery that are decoded together.

use std::io::{Read, Seek, SeekFrom};
use std::sync::Arc;

use super::Piece;
use super::earlier::Earlier;
use crate::error::{Error, Place};
use crate::format::{BlockHeader, CHECKSUM_LEN, Fault, MIN_BLOCK_LOG, Method};
use crate::pipeline::buffer::Buffer;
use crate::pipeline::engine::{DecodeJob, Engine};
use crate::pipeline::modules::FrameModules;
use crate::pipeline::scheduler::Task;
use crate::stream::block::{Block, NOT_DECODED};
use crate::stream::salvage::{Salvage, Step};

/// The most bytes of contents in a stretch of several blocks. They take no more memory than one block of the smallest
/// block size.
const MAX_SHARED: usize = 1 << MIN_BLOCK_LOG;

/// The most steps of a stretch.
pub(super) const MAX_STEPS: usize = 512;

/// The most bytes of memory for the steps of a stretch, besides payloads and contents.
pub(super) const STEPS_MEMORY: u64 = (MAX_STEPS
    * (size_of::<StretchEntry>() + size_of::<DecodeJob<'_>>() + size_of::<Outcome>()))
    as u64;

/// Consecutive steps: one block of any size or several small ones, and losses around them.
#[derive(Default)]
pub(super) struct Stretch {
    entries: Vec<StretchEntry>,
    /// Payloads of blocks that are not stored, one after another.
    payloads: Buffer,
    payloads_len: usize,
    /// Contents of blocks, one after another.
    contents: Buffer,
    contents_len: usize,
    /// The error after the last entry, and whether the end of a frame is missing up to there.
    failure: Option<(Error, bool)>,
    /// Number of entries taken.
    taken: usize,
    /// Whether the end of a frame is missing in the part that the caller has taken.
    is_end_unknown: bool,
    is_decoded: bool,
}

/// The result of reading and decoding a block.
type Outcome = Option<Result<(), Fault>>;

struct StretchEntry {
    step: Step,
    /// Runs the modules of the block's frame.
    modules: Option<Arc<FrameModules>>,
    /// Where the block's contents begin.
    start: usize,
    /// The checksum at the end of a single frame.
    checksum: [u8; CHECKSUM_LEN],
    /// Whether the end of a frame is missing up to this step.
    is_end_unknown: bool,
    /// The outcome of this block.
    outcome: Outcome,
}

impl StretchEntry {
    /// Whether this is a block that has been read but not decoded.
    fn is_to_decode(&self) -> bool {
        matches!(self.step, Step::Block { .. }) && self.outcome.is_none()
    }
}

impl Stretch {
    /// Empties it, and keeps its memory.
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        (self.payloads_len, self.contents_len, self.taken) = (0, 0, 0);
        (self.failure, self.is_end_unknown, self.is_decoded) = (None, false, false);
    }

    /// Whether nothing has been added.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty() && self.failure.is_none()
    }

    /// Whether everything has been taken.
    pub(super) fn is_spent(&self) -> bool {
        self.taken == self.entries.len() && self.failure.is_none()
    }

    /// Whether its memory is small enough to keep for blocks of any kind.
    pub(super) fn is_small(&self) -> bool {
        self.payloads.capacity() <= MAX_SHARED && self.contents.capacity() <= MAX_SHARED
    }

    /// Number of steps.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether the contents of such a block fit beside those of the earlier blocks.
    pub(super) fn has_room(&self, header: &BlockHeader) -> bool {
        self.contents_len == 0 || self.contents_len + header.content_len as usize <= MAX_SHARED
    }

    /// Adds the step that `salvage` returned last, and reads its payload if it is a block. `modules` runs the modules
    /// of its frame. An error of reading is reported when the block is taken.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] if the system has too little memory for the list of steps.
    pub(super) fn add(
        &mut self,
        step: Step,
        modules: Option<Arc<FrameModules>>,
        salvage: &Salvage,
        reader: &mut (impl Read + Seek),
    ) -> Result<(), Error> {
        if self.entries.len() == self.entries.capacity() {
            // A large block is alone and needs one entry.
            let more = if self.entries.is_empty() { 1 } else { MAX_STEPS - 1 };
            let needed = (more * size_of::<StretchEntry>()) as u64;
            self.entries.try_reserve_exact(more).map_err(|_| Error::OutOfMemory { needed })?;
        }
        let is_end_unknown = salvage.is_end_unknown();
        let (start, mut checksum, mut outcome) = (self.contents_len, Default::default(), None);
        if let Step::Block { source, header, single, .. } = &step {
            match self.read(source.end, header, single.is_some(), salvage, reader) {
                Ok(end) => checksum = end,
                Err(fault) => outcome = Some(Err(fault)),
            }
        }
        self.entries.push(StretchEntry { step, modules, start, checksum, is_end_unknown, outcome });
        Ok(())
    }

    /// If the step added last is a block with distant matches, restores its contents.
    pub(super) fn restore_last(
        &mut self,
        earlier: &mut Earlier,
        engine: &dyn Engine,
        reader: &mut (impl Read + Seek),
    ) -> Result<(), Error> {
        let Some(entry) = self.entries.last_mut().filter(|entry| entry.is_to_decode()) else {
            return Ok(());
        };
        let Step::Block { header, frame, source, .. } = &entry.step else { return Ok(()) };
        if header.own.is_none() {
            return Ok(());
        }
        let place = Place::new(*frame, source.start).in_block(header.number.into());
        let (len, payload_len) = (header.content_len as usize, header.payload_len as usize);
        // The next payload may replace this one.
        self.payloads_len -= payload_len;
        let payload = &self.payloads[self.payloads_len..][..payload_len];
        let modules = entry.modules.as_deref();
        let block = Block { header: *header, payload: Some(payload), modules };
        if len > MAX_SHARED {
            self.contents.set_len(len).map_err(|fault| fault.at(place))?;
        }
        let contents = &mut self.contents[entry.start..][..len];
        entry.outcome = Some(earlier.restore(block, place, contents, engine, reader));
        Ok(())
    }

    /// Reads the payload of the block that ends at byte `end` of the file. Returns the checksum after it, if it is the
    /// block of a single frame.
    fn read(
        &mut self,
        end: u64,
        header: &BlockHeader,
        is_single: bool,
        salvage: &Salvage,
        reader: &mut (impl Read + Seek),
    ) -> Result<[u8; CHECKSUM_LEN], Fault> {
        let (len, payload_len) = (header.content_len as usize, header.payload_len as usize);
        let is_stored = header.method == Method::Store && header.own.is_none();
        if len <= MAX_SHARED {
            // The first block makes room for all later ones.
            self.payloads.set_len(MAX_SHARED)?;
            self.contents.set_len(MAX_SHARED)?;
        }
        let (buffer, at) = match is_stored {
            true => (&mut self.contents, self.contents_len),
            false => (&mut self.payloads, self.payloads_len),
        };
        let tail_len = payload_len + if is_single { CHECKSUM_LEN } else { 0 };
        let start = end - tail_len as u64;
        let mut held = salvage.held(start, tail_len);
        let mut from: &mut dyn Read = match &mut held {
            Some(bytes) => bytes,
            None => {
                reader.seek(SeekFrom::Start(start))?;
                reader
            }
        };
        if len > MAX_SHARED {
            buffer.read_exact(&mut from, payload_len)?;
        } else {
            from.read_exact(&mut buffer[at..at + payload_len])?;
        }
        let mut checksum = [0; CHECKSUM_LEN];
        if is_single {
            from.read_exact(&mut checksum)?;
        }
        self.contents_len += len;
        self.payloads_len += if is_stored { 0 } else { payload_len };
        Ok(checksum)
    }

    /// Adds the error that stopped the salvage.
    pub(super) fn fail(&mut self, error: Error, salvage: &Salvage) {
        self.failure = Some((error, salvage.is_end_unknown()));
    }

    /// Decodes the blocks.
    pub(super) fn decode(&mut self, engine: &dyn Engine) {
        self.is_decoded = true;
        let count = self.entries.iter().filter(|entry| entry.is_to_decode()).count();
        if count == 0 {
            return;
        }
        let Ok(mut contents) = self.contents.set_len(self.contents_len) else {
            for entry in self.entries.iter_mut().filter(|entry| entry.is_to_decode()) {
                entry.outcome = Some(Err(Fault::OutOfMemory(self.contents_len as u64)));
            }
            return;
        };
        let mut payloads = &self.payloads[..];
        // How many bytes of contents jobs have taken, or skipped.
        let mut at = 0;
        let mut jobs = Vec::with_capacity(count);
        for entry in self.entries.iter().filter(|entry| entry.is_to_decode()) {
            let Step::Block { header, single, .. } = &entry.step else { continue };
            let mut header = *header;
            let len = header.content_len as usize;
            let (own, later) = contents[entry.start - at..].split_at_mut(len);
            (contents, at) = (later, entry.start + len);
            let payload = (header.method != Method::Store).then(|| {
                let (own, later) = payloads.split_at(header.payload_len as usize);
                payloads = later;
                own
            });
            let single = single.as_ref().and_then(|frame| Some((frame, frame.single?)));
            if let Some((frame, single)) = single {
                header = single.sealed_block(frame, payload.unwrap_or_default(), entry.checksum);
            }
            let modules = entry.modules.as_deref();
            jobs.push(Block { header, payload, modules }.job(own));
        }
        engine.decode(&mut jobs);
        let outcomes: Vec<_> = jobs.into_iter().map(|job| job.outcome).collect();
        let entries = self.entries.iter_mut().filter(|entry| entry.is_to_decode());
        for (entry, outcome) in entries.zip(outcomes) {
            entry.outcome = outcome;
        }
    }

    /// Takes the next piece; `None` if everything has been taken.
    ///
    /// # Errors
    /// The errors of the block, unless it is merely damaged; after the last piece, the error that stopped the salvage.
    pub(super) fn take(&mut self) -> Result<Option<Piece<'_>>, Error> {
        let Some(entry) = self.entries.get_mut(self.taken) else {
            let Some((error, is_end_unknown)) = self.failure.take() else { return Ok(None) };
            self.is_end_unknown = is_end_unknown;
            return Err(error);
        };
        self.taken += 1;
        self.is_end_unknown = entry.is_end_unknown;
        Ok(Some(match &entry.step {
            Step::Lost { frame, source, range } => {
                Piece::Lost { frame: *frame, source: source.clone(), range: range.clone() }
            }
            Step::Block { frame, source, header, range, .. } => {
                let (frame, number, source) = (*frame, header.number.into(), source.clone());
                let range = range.clone();
                let outcome = entry.outcome.take().unwrap_or(Err(NOT_DECODED));
                let place = Place::new(frame, source.start).in_block(number);
                match outcome.map_err(|fault| fault.at(place)) {
                    Ok(()) => {
                        let end = entry.start + header.content_len as usize;
                        let contents = &self.contents[entry.start..end];
                        Piece::Block { frame, number, source, range, contents }
                    }
                    Err(Error::Corrupt { .. } | Error::Truncated { .. }) => {
                        Piece::Lost { frame, source, range: Some(range) }
                    }
                    Err(error) => return Err(error),
                }
            }
        }))
    }

    /// Whether the end of a frame is missing in the part taken.
    pub(super) fn is_end_unknown(&self) -> bool {
        self.is_end_unknown
    }
}

impl Task for Stretch {
    fn run(batch: &mut [Self], engine: &dyn Engine) {
        batch.iter_mut().for_each(|stretch| stretch.decode(engine));
    }

    fn is_coded(&self) -> bool {
        self.is_decoded
    }

    fn is_done(&self) -> bool {
        self.is_decoded
    }

    fn bytes(&self) -> u64 {
        self.contents_len as u64
    }

    /// Blocks without an outcome are errors when they are taken.
    fn set_panicked(&mut self) {}
}
