//! Reads a damaged file ahead of the caller, and decodes several stretches of it at once.

use std::io::{Read, Seek};
use std::sync::Arc;

use super::earlier::Earlier;
use super::stretch::{MAX_STEPS, STEPS_MEMORY, Stretch};
use crate::error::{Error, Place};
use crate::format::{BlockHeader, MAX_BLOCKS, Method, Pipeline};
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::Engine;
use crate::pipeline::flow::Flow;
use crate::pipeline::memory::{Cost, Share, cores};
use crate::pipeline::modules::LastModules;
use crate::pipeline::{DecodeOptions, Modules};
use crate::stream::salvage::{Salvage, Step};

/// The calling thread decodes up to this many bytes of contents alone. Starting threads takes about as long.
const MAX_ALONE: u64 = 256 << 10;

/// The stretches of a file, in order.
pub(super) struct ReadAhead {
    salvage: Salvage,
    /// A step that waits for the next stretch.
    waiting: Option<Step>,
    threads: usize,
    max_memory: u64,
    /// The modules that may run, and those of the last block that needed some.
    allowed: Modules,
    modules: LastModules,
    division: Option<Division>,
    flow: Flow<Stretch>,
    /// The stretch whose pieces are being taken.
    current: Option<Stretch>,
    /// What distant matches may repeat.
    earlier: Earlier,
    /// Whether the last stretch filled ends with an error. The caller gets the error before any later stretch is
    /// filled.
    has_failed: bool,
    /// Bytes of contents of the blocks read so far.
    seen: u64,
}

/// How memory is divided among stretches, while blocks are of one kind.
struct Division {
    kind: BlockKind,
    /// Bytes of memory for the salvage.
    salvage: u64,
    cost: Cost,
    /// The most steps of a stretch.
    max_steps: usize,
    /// Whether the flow has got threads for it. A single stretch needs none.
    is_shared: bool,
}

/// What the memory to decode a block depends on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BlockKind {
    pipeline: Pipeline,
    block_log: u8,
    /// How many places of earlier blocks are kept, for blocks that repeat them.
    places: u32,
    /// Whether the block itself repeats others.
    is_distant: bool,
}

/// How many places of blocks to keep in a frame. `is_repeated` tells whether its blocks may be repeated, if that is
/// known.
fn places_for(is_repeated: Option<bool>) -> u32 {
    match is_repeated {
        Some(false) => 0,
        Some(true) => MAX_BLOCKS as u32,
        // Most likely none is repeated, or only by blocks nearby.
        None => 1 << 10,
    }
}

impl BlockKind {
    /// The kind of a block; `None` if the format has no such blocks.
    fn of(header: &BlockHeader, is_repeated: Option<bool>) -> Option<Self> {
        // The frame's header may be lost, but the block says enough.
        let pipeline = match header.method {
            Method::Store | Method::Fill => Pipeline::Store,
            Method::Lz77 => Pipeline::Lzh,
            Method::Bwt => Pipeline::Bwt,
        };
        // Every pipeline has stored blocks, so they may be as large as any pipeline's.
        let permitted = pipeline == Pipeline::Store || header.block_log <= pipeline.max_block_log();
        let (places, is_distant) = (places_for(is_repeated), header.own.is_some());
        permitted.then_some(Self { pipeline, block_log: header.block_log, places, is_distant })
    }

    /// Whether blocks of kind `other` fit in the memory for this one, tables included.
    fn includes(self, other: Self) -> bool {
        let is_same = (self.pipeline, self.block_log) == (other.pipeline, other.block_log);
        let is_simple = other.pipeline == Pipeline::Store && other.block_log <= self.block_log;
        let repeats_no_more = other.places <= self.places && other.is_distant <= self.is_distant;
        (is_same || is_simple) && repeats_no_more
    }

    fn cost(self, engine: &dyn Engine) -> Cost {
        let Self { pipeline, block_log, places, is_distant } = self;
        let mut cost = Cost::of_decoding_blocks(engine, pipeline, 1 << block_log);
        cost.fixed += Earlier::memory_of_places(places);
        cost.fixed += if is_distant { Earlier::memory(1 << block_log) } else { 0 };
        cost
    }
}

impl ReadAhead {
    pub(super) fn new(salvage: Salvage, options: &DecodeOptions) -> Self {
        Self {
            salvage,
            waiting: None,
            threads: options.resources.threads,
            max_memory: options.resources.memory,
            allowed: options.modules.clone(),
            modules: LastModules::default(),
            division: None,
            flow: Flow::new(Arc::new(CpuEngine::new()), Share::ALONE, None),
            current: None,
            earlier: Earlier::default(),
            has_failed: false,
            seen: 0,
        }
    }

    /// Whether the end of a frame is missing in the part that the caller has taken; at the end, in the whole file.
    pub(super) fn is_end_unknown(&self) -> bool {
        match &self.current {
            Some(current) => current.is_end_unknown(),
            None => self.salvage.is_end_unknown(),
        }
    }

    /// The stretch with the next piece; `None` at the end of the file.
    pub(super) fn stretch(&mut self, reader: &mut (impl Read + Seek)) -> Option<&mut Stretch> {
        if self.current.as_ref().is_none_or(Stretch::is_spent) {
            if let Some(mut spent) = self.current.take() {
                spent.clear();
                self.flow.keep_idle(spent);
            }
            self.current = self.next_decoded(reader);
        }
        self.current.as_mut()
    }

    /// The next stretch, decoded. Keeps as many others in flight as memory permits.
    fn next_decoded(&mut self, reader: &mut (impl Read + Seek)) -> Option<Stretch> {
        if self.flow.in_flight() == 0 {
            self.has_failed = false;
        }
        // Submit the first stretch only with a second one. If there is none, this thread decodes it.
        let mut first = None;
        while !self.has_failed {
            let in_flight = self.flow.in_flight() + usize::from(first.is_some());
            if in_flight > 0 && in_flight >= self.max_in_flight() {
                break;
            }
            let Some(stretch) = self.fill(reader, in_flight == 0) else { break };
            if in_flight == 0 {
                first = Some(stretch);
            } else {
                first.take().into_iter().chain([stretch]).for_each(|one| self.flow.submit(one));
            }
        }
        if let Some(mut stretch) = first {
            stretch.decode(&**self.flow.engine());
            return Some(stretch);
        }
        self.flow.next()
    }

    /// The most stretches to have in flight.
    fn max_in_flight(&mut self) -> usize {
        let Some(division) = self.division.as_mut().filter(|_| self.seen > MAX_ALONE) else {
            return Share::ALONE.in_flight;
        };
        if self.threads == 0 {
            self.threads = cores();
        }
        if !std::mem::replace(&mut division.is_shared, true) {
            let share = division.cost.share(self.threads, self.max_memory);
            self.flow.set_share(share.unwrap_or(Share::ALONE));
        }
        self.flow.max_in_flight()
    }

    /// Fills a stretch with the next steps. `None` at the end of the file, or if the next block must wait until no
    /// stretch is in flight. `is_alone` tells whether none is.
    fn fill(&mut self, reader: &mut (impl Read + Seek), is_alone: bool) -> Option<Stretch> {
        let mut stretch = self.flow.take_idle().unwrap_or_default();
        while stretch.len() < self.division.as_ref().map_or(1, |division| division.max_steps) {
            let next = self.waiting.take().map(Ok);
            let next = next.or_else(|| self.salvage.next(reader).transpose());
            let added = match next {
                None => break,
                Some(Err(error)) => Err(error),
                Some(Ok(step)) => match self.admit(&step, &mut stretch, is_alone) {
                    Ok(true) => self.add(step, &mut stretch, reader),
                    Ok(false) => {
                        self.waiting = Some(step);
                        break;
                    }
                    Err(error) => Err(error),
                },
            };
            if let Err(error) = added {
                stretch.fail(error, &self.salvage);
                self.has_failed = true;
                break;
            }
        }
        if stretch.is_empty() {
            self.flow.keep_idle(stretch);
            return None;
        }
        Some(stretch)
    }

    /// Whether `stretch` may take a step.
    fn admit(&mut self, step: &Step, stretch: &mut Stretch, is_alone: bool) -> Result<bool, Error> {
        let Step::Block { header, is_repeated, .. } = step else { return Ok(true) };
        let Some(kind) = BlockKind::of(header, *is_repeated) else { return Ok(true) };
        Ok(stretch.has_room(header) && self.make_room(kind, stretch, is_alone)?)
    }

    /// Whether memory is divided for blocks of this kind. Divides it anew if no stretch uses any of it.
    ///
    /// # Errors
    /// [`Error::LimitMemory`] if the options do not permit enough memory for one such block.
    fn make_room(
        &mut self,
        kind: BlockKind,
        stretch: &mut Stretch,
        is_alone: bool,
    ) -> Result<bool, Error> {
        let salvage = self.salvage.memory();
        let division = self.division.as_ref();
        if division.is_some_and(|now| now.kind.includes(kind) && now.salvage == salvage) {
            return Ok(true);
        }
        if !is_alone || !stretch.is_empty() {
            return Ok(false);
        }
        let mut cost = kind.cost(&**self.flow.engine());
        cost.fixed = cost.fixed.saturating_add(salvage);
        cost.share(1, self.max_memory)?;
        let mut max_steps = 1;
        let of_many = Cost { block: cost.block.saturating_add(STEPS_MEMORY), ..cost };
        if of_many.least() <= self.max_memory {
            (cost, max_steps) = (of_many, MAX_STEPS);
        }
        // Release the memory for blocks of another kind.
        self.flow.engine().release();
        self.earlier.release();
        self.flow.clear_idle();
        if max_steps == 1 || !stretch.is_small() {
            *stretch = Stretch::default();
        }
        self.division = Some(Division { kind, salvage, cost, max_steps, is_shared: false });
        Ok(true)
    }

    fn add(
        &mut self,
        step: Step,
        stretch: &mut Stretch,
        reader: &mut (impl Read + Seek),
    ) -> Result<(), Error> {
        let step = match step {
            Step::Block { header, frame, source, range, is_repeated, .. }
                if BlockKind::of(&header, is_repeated).is_none() =>
            {
                Step::Lost { frame, source, range: Some(range) }
            }
            step => step,
        };
        let mut ready = None;
        if let Step::Block { header, modules, frame, source, .. } = &step {
            self.seen = self.seen.saturating_add(header.content_len.into());
            // A block without modules can be saved even if its frame's modules may not run.
            if header.filters.is_some_and(|filters| filters.has_modules()) {
                let place = Place::new(*frame, source.start);
                ready = self.modules.of(modules, &self.allowed, place)?;
            }
        }
        if let Step::Block { header, is_repeated, frame, source, .. } = &step
            && *is_repeated != Some(false)
        {
            self.earlier.note(*frame, header.number, source, places_for(*is_repeated))?;
        }
        stretch.add(step, ready, &self.salvage, reader)?;
        stretch.restore_last(&mut self.earlier, &**self.flow.engine(), reader)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::pipeline::Options;
    use crate::stream::salvage::Holes;

    /// A file of blocks of 64 KiB.
    fn file(len: usize) -> Vec<u8> {
        let contents: Vec<u8> =
            (0..len as u32).map(|i| ((i / 7).wrapping_mul(i >> 9) >> 8) as u8).collect();
        crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap()
    }

    fn read_ahead(file: &[u8], options: &DecodeOptions) -> ReadAhead {
        let memory = options.resources.memory;
        let salvage = Salvage::new(&mut Cursor::new(file), memory, &Holes::default()).unwrap();
        ReadAhead::new(salvage, options)
    }

    #[test]
    fn as_many_stretches_are_in_flight_as_memory_permits() {
        let file = file(4 << 20);
        let one = {
            let mut ahead = read_ahead(&file, &DecodeOptions::new());
            ahead.stretch(&mut Cursor::new(&file)).unwrap();
            ahead.division.unwrap().cost
        };
        let least = one.least();
        for (limit, threads) in
            [(least, 8), (least * 3, 8), (1 << 30, 8), (1 << 30, 2), (1 << 30, 1)]
        {
            let options = DecodeOptions::new().threads(threads).max_memory(limit);
            let share = one.share(threads, limit).unwrap();
            let mut ahead = read_ahead(&file, &options);
            let (mut most, mut pieces) = (0, 0);
            while let Some(stretch) = ahead.stretch(&mut Cursor::new(&file)) {
                assert!(matches!(stretch.take(), Ok(Some(_))));
                pieces += 1;
                most = most.max(ahead.flow.in_flight() + 1 + ahead.flow.idle());
            }
            assert_eq!(pieces, 64);
            assert_eq!(most, share.in_flight, "{threads} threads in {limit} bytes");
            assert_eq!(ahead.flow.has_begun(), share.workers > 1);
        }
    }

    #[test]
    fn few_contents_start_no_threads() {
        for (len, has_threads) in [(100, false), (200_000, false), (400_000, true)] {
            let file = file(len);
            let mut ahead = read_ahead(&file, &DecodeOptions::new().threads(4));
            let mut reader = Cursor::new(&file);
            while let Some(stretch) = ahead.stretch(&mut reader) {
                stretch.take().unwrap();
            }
            assert_eq!(ahead.flow.has_begun(), has_threads, "{len} bytes");
        }
    }

    #[test]
    fn a_stretch_has_many_small_blocks_or_one_large_one() {
        let small = crate::compress(&[3; 200], &Options::new()).unwrap().repeat(10_000);
        let mut ahead = read_ahead(&small, &DecodeOptions::new().threads(1));
        let mut reader = Cursor::new(&small);
        assert_eq!(ahead.stretch(&mut reader).unwrap().len(), (1 << 16) / 200);
        let large = file(1 << 20);
        let mut ahead = read_ahead(&large, &DecodeOptions::new().threads(1));
        assert_eq!(ahead.stretch(&mut Cursor::new(&large)).unwrap().len(), 1);
    }
}
