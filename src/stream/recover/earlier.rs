//! Restores blocks that repeat earlier ones, each of which is read and decoded once more.

use std::collections::VecDeque;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use crate::error::{Error, Place};
use crate::format::{BlockHeader, Fault};
use crate::pipeline::buffer::{Buffer, zeroed};
use crate::pipeline::engine::{DecodeJob, Engine};
use crate::pipeline::modules::FrameModules;
use crate::stream::distant::{Recent, Restoring, matches_of};

/// The blocks of the current frame so far.
#[derive(Default)]
pub(super) struct Earlier {
    /// Number of the frame.
    frame: u64,
    /// Number of each block in the frame, and where it lies in the file. The blocks are in order.
    places: VecDeque<(u32, Range<u64>)>,
    recent: Recent,
    /// The own bytes of the block that is being restored.
    own: Buffer,
}

/// A block to restore.
pub(super) struct Distant<'a> {
    pub(super) header: &'a BlockHeader,
    /// What runs the modules of its frame.
    pub(super) modules: Option<&'a FrameModules>,
    pub(super) place: Place,
    pub(super) payload: &'a [u8],
}

impl Earlier {
    /// The most bytes of memory that `places` places take.
    pub(super) const fn memory_of_places(places: u32) -> u64 {
        // They may grow to twice their number.
        2 * places as u64 * size_of::<(u32, Range<u64>)>() as u64
    }

    /// The most bytes of memory that restoring takes besides, for blocks of `block_size` bytes.
    pub(super) const fn memory(block_size: usize) -> u64 {
        // A block and its list of matches; own bytes, and those of another block, with its payload.
        (Recent::MOST as u64 + 5) * block_size as u64
    }

    /// Notes where a block lies, and keeps so many `places`.
    pub(super) fn note(
        &mut self,
        frame: u64,
        number: u32,
        source: &Range<u64>,
        places: u32,
    ) -> Result<(), Error> {
        if self.frame != frame {
            self.frame = frame;
            self.places.clear();
        }
        if self.places.len() >= places as usize {
            self.places.pop_front();
        }
        let needed = Self::memory_of_places(places);
        self.places.try_reserve(1).map_err(|_| Error::OutOfMemory { needed })?;
        self.places.push_back((number, source.clone()));
        Ok(())
    }

    /// Frees the memory that restoring took.
    pub(super) fn release(&mut self) {
        self.recent = Recent::default();
        self.own = Buffer::default();
    }

    /// Restores a block of the frame whose blocks have been noted, all those before it among them.
    pub(super) fn restore(
        &mut self,
        block: &Distant<'_>,
        contents: &mut [u8],
        engine: &dyn Engine,
        reader: &mut (impl Read + Seek),
    ) -> Result<(), Fault> {
        let Distant { header, modules, place, payload } = *block;
        let Some((list, own_header, coded)) = header.split(payload) else {
            return Err(Fault::Internal("a block without distant matches"));
        };
        let own = self.own.set_len(own_header.content_len as usize)?;
        decode(engine, own_header, modules, coded, own)?;
        let matches = matches_of(header, own_header.content_len, list)?;
        let mut restoring = Restoring::begin(header, &matches, own, contents, place)
            .map_err(|error| of_block(&error))?;
        for number in restoring.sources() {
            let places = &self.places;
            let own = self.recent.get_or_load(place.frame, number, || {
                let found = places.binary_search_by_key(&number, |(number, _)| (*number).into());
                let source = found.ok().and_then(|at| places.get(at));
                let source = source.map(|(_, source)| source.clone()).ok_or(MISSING)?;
                let place = Place::new(place.frame, source.start).in_block(number);
                load(source, engine, modules, reader).map_err(|fault| fault.at(place))
            });
            let own = own.map_err(|error| of_block(&error))?;
            restoring.put(number, Some(own)).map_err(|error| of_block(&error))?;
        }
        restoring.end().map_err(|error| of_block(&error))
    }
}

const MISSING: Error = Error::Corrupt { what: "an earlier block is missing", place: Place::START };

/// What an error means for the block that is being restored: if an earlier block is damaged, so is this one.
fn of_block(error: &Error) -> Fault {
    match error {
        Error::Corrupt { .. } | Error::Truncated { .. } => {
            Fault::Corrupt("a block that it repeats is damaged, or its matches are")
        }
        Error::Io(error) => Fault::Io(std::io::Error::new(error.kind(), error.to_string())),
        Error::OutOfMemory { needed } => Fault::OutOfMemory(*needed),
        _ => Fault::Internal("an earlier block could not be read"),
    }
}

/// The own bytes of the block that lies at `source`.
fn load(
    source: Range<u64>,
    engine: &dyn Engine,
    modules: Option<&FrameModules>,
    reader: &mut (impl Read + Seek),
) -> Result<Buffer, Fault> {
    reader.seek(SeekFrom::Start(source.start))?;
    let mut bytes = zeroed((source.end - source.start) as usize)?;
    reader.read_exact(&mut bytes)?;
    let header = BlockHeader::parse(&bytes)?;
    let payload = bytes.get(header.len()..).unwrap_or_default();
    let (header, payload) = match header.split(payload) {
        Some((_, own_header, coded)) => (own_header, coded),
        None => (header, payload),
    };
    let mut own = Buffer::default();
    decode(engine, header, modules, payload, own.set_len(header.content_len as usize)?)?;
    Ok(own)
}

fn decode(
    engine: &dyn Engine,
    header: BlockHeader,
    modules: Option<&FrameModules>,
    payload: &[u8],
    contents: &mut [u8],
) -> Result<(), Fault> {
    let payload = Some(payload);
    let mut job = DecodeJob { header, modules, payload, contents, outcome: None };
    engine.decode(std::slice::from_mut(&mut job));
    job.outcome.unwrap_or(Err(Fault::Internal("a block was not decoded")))
}
