//! Restores blocks that repeat earlier ones. It reads and decodes those again.

use std::collections::VecDeque;
use std::io::{Read, Seek, SeekFrom};
use std::ops::Range;

use crate::error::{Error, Place};
use crate::format::{BlockHeader, Fault};
use crate::pipeline::buffer::{Buffer, zeroed};
use crate::pipeline::engine::Engine;
use crate::pipeline::modules::FrameModules;
use crate::stream::block::{Block, Recent};

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

impl Earlier {
    /// The most bytes of memory that `places` places take.
    pub(super) const fn memory_of_places(places: u32) -> u64 {
        // The list may grow to twice its length.
        2 * places as u64 * size_of::<(u32, Range<u64>)>() as u64
    }

    /// The most bytes of memory that restoring takes besides, for blocks of `block_size` bytes.
    pub(super) const fn memory(block_size: usize) -> u64 {
        // A block and its list of matches, its own bytes, and those of another block with its payload.
        (Recent::MAX_BLOCKS as u64 + 5) * block_size as u64
    }

    /// Notes where a block lies. Keeps the last `places` places of the frame.
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

    /// Frees the memory for restoring.
    pub(super) fn release(&mut self) {
        self.recent = Recent::default();
        self.own = Buffer::default();
    }

    /// Restores a block. All earlier blocks of its frame must have been noted.
    pub(super) fn restore(
        &mut self,
        block: Block<'_>,
        place: Place,
        contents: &mut [u8],
        engine: &dyn Engine,
        reader: &mut (impl Read + Seek),
    ) -> Result<(), Fault> {
        let Self { places, recent, own, .. } = self;
        let (frame, modules) = (place.frame, block.modules);
        let mut sources = recent.sources(frame, |number| {
            let found = places.binary_search_by_key(&number, |(number, _)| (*number).into());
            let (_, source) = found.ok().and_then(|at| places.get(at)).ok_or(MISSING)?;
            let place = Place::new(frame, source.start).in_block(number);
            load(source.clone(), engine, modules, reader).map_err(|fault| fault.at(place))
        });
        let restored = block.restore(place, engine, contents, own, &mut sources);
        restored.map_err(|error| of_block(&error))
    }
}

const MISSING: Error = Error::Corrupt { what: "an earlier block is missing", place: Place::START };

/// What an error means for the block that is being restored: if an earlier block is damaged, so is this one.
fn of_block(error: &Error) -> Fault {
    match error {
        Error::Corrupt { .. } | Error::Truncated { .. } => {
            Fault::Corrupt("the block is damaged, its matches are, or a block that it repeats")
        }
        Error::Io(error) => Fault::Io(std::io::Error::new(error.kind(), error.to_string())),
        Error::OutOfMemory { needed } => Fault::OutOfMemory(*needed),
        _ => Fault::Internal("a block that repeats others could not be restored"),
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
    Block { header, payload: bytes.get(header.len()..), modules }.own_bytes(engine)
}
