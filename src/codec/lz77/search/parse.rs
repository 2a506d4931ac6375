//! The parses of the levels.

use super::buckets::Buckets;
use super::deep::{Deep, Near};
use super::greedy::Greedy;
use super::lazy::{Lazy, Match};
use super::optimal::{Effort, Optimal, OptimalParse};
use super::probe::Backend;
use super::segments::{Chunk, Parse, Segments};
use super::tagged::{Candidates, Double4, Lookup, Tagged};
use crate::codec::lz77::Params;
use crate::codec::lz77::stream::spec::MIN_MATCH;
use crate::codec::{OutOfMemory, reserve};
use core::marker::PhantomData;
use core::ops::Range;

/// How matches are searched for and chosen. The variants differ in how many positions they keep for each hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// No search: every byte is a literal. For data without repetitions whose bytes differ in frequency.
    None,
    /// Takes the first match found. One hash, 1 position.
    Greedy,
    /// Like `Greedy`, with a larger table.
    GreedyLarge,
    /// Lazy by one position. One hash, 2 positions.
    Double,
    /// Lazy by two positions. One hash, 4 positions.
    Lazy4,
    /// Lazy by three positions. Two hashes, 4 positions each.
    Lazy8,
    /// Lazy by two positions. One hash, 32 positions.
    Lazy32,
    /// Lazy as far as it may pay. Two hashes, with 1 and 64 positions.
    Lazy64,
    /// Optimal by price. Two hashes, with 1 and 8 positions, and neighbours in the order of suffixes.
    Optimal(Effort),
}

impl Search {
    /// Whether the parse compares most positions with four candidates or more.
    pub(crate) fn has_many_candidates(self) -> bool {
        use Search::{Double, Greedy, GreedyLarge, Lazy4, Lazy8, Lazy32, Lazy64, None, Optimal};
        match self {
            None | Greedy | GreedyLarge | Double => false,
            Lazy4 | Lazy8 | Lazy32 | Lazy64 | Optimal(_) => true,
        }
    }
}

type GreedyTable = Tagged<1, 6, 15>;
type GreedyLargeTable = Tagged<1, 6, 16>;
type DoubleTable = Tagged<2, 6, 17>;
type Lazy4Table = Tagged<4, 5, 17>;
type Lazy8Table = Double4<8, 5, 17>;
type Lazy32Table = Buckets<2, 5, 16>;
type Lazy64Table = Buckets<4, 6, 16>;

/// The parse of blocks that a search needs, with its tables.
trait BlockParse: Send + Sync {
    /// Bytes of memory kept for blocks of `len` bytes.
    fn memory(&self, params: &Params, len: usize) -> u64;

    /// Makes room for a block of `len` bytes.
    fn reserve(&mut self, params: &Params, len: usize) -> Result<(), OutOfMemory>;

    /// Prepares for `block`.
    ///
    /// # Errors
    /// If the system refuses memory.
    fn start(&mut self, block: &[u8]) -> Result<(), OutOfMemory>;

    /// Appends the matches of a chunk. The chunks of a block must come in order.
    fn parse(&mut self, backend: Backend, params: &Params, chunk: Chunk<'_>);

    /// Ends a block of `len` bytes.
    fn finish(&mut self, _len: usize) {}
}

/// The parse for `search`, without memory yet.
fn parse_for(search: Search) -> Box<dyn BlockParse> {
    match search {
        Search::None => Box::new(NoMatches),
        Search::Greedy => Box::new(BySegments::<1, GreedyTable, Greedy>::default()),
        Search::GreedyLarge => Box::new(BySegments::<1, GreedyLargeTable, Greedy>::default()),
        Search::Double => Box::new(BySegments::<2, DoubleTable, Lazy<1>>::default()),
        Search::Lazy4 => Box::new(BySegments::<4, Lazy4Table, Lazy<2>>::default()),
        Search::Lazy8 => Box::new(BySegments::<8, Lazy8Table, Lazy<3>>::default()),
        Search::Lazy32 => Box::<Quick>::default(),
        Search::Lazy64 => Box::<Thorough>::default(),
        Search::Optimal(effort) => Box::new(ByPrice { effort, optimal: Optimal::default() }),
    }
}

struct NoMatches;

impl BlockParse for NoMatches {
    fn memory(&self, _params: &Params, _len: usize) -> u64 {
        0
    }

    fn reserve(&mut self, _params: &Params, _len: usize) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn start(&mut self, _block: &[u8]) -> Result<(), OutOfMemory> {
        Ok(())
    }

    fn parse(&mut self, _backend: Backend, _params: &Params, _chunk: Chunk<'_>) {}
}

/// Finds the candidates of segments with a table `L`, and parses them with `Q`.
struct BySegments<const N: usize, L, Q> {
    candidates: Candidates<N, L>,
    parse: PhantomData<fn() -> Q>,
}

impl<const N: usize, L: Lookup<N>, Q> Default for BySegments<N, L, Q> {
    fn default() -> Self {
        Self { candidates: Candidates::default(), parse: PhantomData }
    }
}

impl<const N: usize, L: Lookup<N> + Send + Sync, Q: Parse<N>> BlockParse for BySegments<N, L, Q> {
    fn memory(&self, params: &Params, _len: usize) -> u64 {
        Candidates::<N, L>::memory(1 << params.segment_log)
    }

    fn reserve(&mut self, params: &Params, len: usize) -> Result<(), OutOfMemory> {
        self.candidates.reserve(len.min(2 << params.segment_log))
    }

    fn start(&mut self, block: &[u8]) -> Result<(), OutOfMemory> {
        self.candidates.start(block.len());
        Ok(())
    }

    fn parse(&mut self, backend: Backend, _params: &Params, chunk: Chunk<'_>) {
        backend.run(Segments::<_, _, Q>::new(chunk, &mut self.candidates));
    }
}

/// The deep parse that looks ahead less.
#[derive(Default)]
struct Quick(Lazy32Table);

impl BlockParse for Quick {
    fn memory(&self, _params: &Params, _len: usize) -> u64 {
        Lazy32Table::MEMORY
    }

    fn reserve(&mut self, _params: &Params, _len: usize) -> Result<(), OutOfMemory> {
        self.0.reserve()
    }

    fn start(&mut self, block: &[u8]) -> Result<(), OutOfMemory> {
        self.0.start(block.len());
        Ok(())
    }

    fn parse(&mut self, backend: Backend, _params: &Params, chunk: Chunk<'_>) {
        backend.run(Deep::new(chunk, &mut self.0, None));
    }
}

/// The deep parse that also looks for short matches nearby.
#[derive(Default)]
struct Thorough {
    table: Lazy64Table,
    near: Near,
}

impl BlockParse for Thorough {
    fn memory(&self, _params: &Params, _len: usize) -> u64 {
        Lazy64Table::MEMORY + Near::MEMORY
    }

    fn reserve(&mut self, _params: &Params, _len: usize) -> Result<(), OutOfMemory> {
        self.table.reserve()?;
        self.near.reserve()
    }

    fn start(&mut self, block: &[u8]) -> Result<(), OutOfMemory> {
        self.table.start(block.len());
        self.near.start(block.len());
        Ok(())
    }

    fn parse(&mut self, backend: Backend, _params: &Params, chunk: Chunk<'_>) {
        backend.run(Deep::new(chunk, &mut self.table, Some(&mut self.near)));
    }

    fn finish(&mut self, len: usize) {
        self.near.finish(len);
    }
}

/// The optimal parse.
struct ByPrice {
    effort: Effort,
    optimal: Optimal,
}

impl BlockParse for ByPrice {
    fn memory(&self, params: &Params, len: usize) -> u64 {
        Optimal::memory(params, len)
    }

    fn reserve(&mut self, params: &Params, len: usize) -> Result<(), OutOfMemory> {
        let (chunk, segment) = (len.min(1 << params.chunk_log), len.min(1 << params.segment_log));
        self.optimal.reserve(len, chunk, segment)
    }

    fn start(&mut self, block: &[u8]) -> Result<(), OutOfMemory> {
        self.optimal.start(block)
    }

    fn parse(&mut self, backend: Backend, params: &Params, chunk: Chunk<'_>) {
        let spacing = 1 << params.sample_spacing_log();
        let Self { effort, optimal } = self;
        backend.run(OptimalParse { optimal, effort: *effort, spacing, chunk });
    }

    fn finish(&mut self, len: usize) {
        self.optimal.finish(len);
    }
}

/// Finds the matches of blocks.
pub(crate) struct Parser {
    backend: Backend,
    /// The matches of every other segment.
    scratch: Vec<Match>,
    search: Search,
    /// The parse for `search`. Another search frees its memory.
    parse: Box<dyn BlockParse>,
}

impl Parser {
    pub(crate) fn new(backend: Backend) -> Self {
        let search = Search::None;
        Self { backend, scratch: Vec::new(), search, parse: parse_for(search) }
    }

    fn set_search(&mut self, search: Search) {
        if self.search != search {
            (self.search, self.parse) = (search, parse_for(search));
        }
    }

    /// Makes room for a block of `len` bytes.
    pub(crate) fn reserve(&mut self, params: &Params, len: usize) -> Result<(), OutOfMemory> {
        let segment = len.min(1 << params.segment_log);
        reserve(&mut self.scratch, segment / MIN_MATCH as usize + 1)?;
        self.set_search(params.search);
        self.parse.reserve(params, len)
    }

    /// Prepares for `block`.
    ///
    /// # Errors
    /// If the system refuses memory.
    pub(crate) fn start(&mut self, params: &Params, block: &[u8]) -> Result<(), OutOfMemory> {
        self.set_search(params.search);
        self.parse.start(block)
    }

    /// Appends the matches of a chunk. The chunks of a block must come in order.
    pub(crate) fn parse(
        &mut self,
        params: &Params,
        block: &[u8],
        chunk: Range<usize>,
        window_start: usize,
        out: &mut Vec<Match>,
    ) {
        let segment = 1 << params.segment_log;
        let scratch = &mut self.scratch;
        let chunk = Chunk { block, chunk, segment, window_start, out, scratch };
        self.parse.parse(self.backend, params, chunk);
    }

    /// Ends a block of `len` bytes.
    pub(crate) fn finish(&mut self, len: usize) {
        self.parse.finish(len);
    }

    /// Bytes of memory that a search keeps for blocks of `len` bytes.
    pub(crate) fn memory(params: &Params, len: usize) -> u64 {
        let segment = 1 << params.segment_log;
        // At worst, a match every four bytes; vectors grow to twice their contents.
        let scratch = 2 * (segment / 4) * size_of::<Match>() as u64;
        parse_for(params.search).memory(params, len) + scratch
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Data that is hard for parses: short, runs, periods, noise, texts of few words, far repetitions.
    pub(crate) fn samples() -> Vec<Vec<u8>> {
        let mut x = 1u32;
        let mut random = move |n: u32| {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (x >> 8) % n
        };
        let mut samples: Vec<Vec<u8>> = (0..24).map(|n| vec![7; n]).collect();
        for len in [31, 32, 33, 63, 64, 65, 66, 67, 68, 71, 72, 100, 1023, 1024, 1025, 5000, 70_000]
        {
            samples.push(vec![0; len]);
            for period in [2, 3, 5, 7, 8, 31, 33, 64, 1000] {
                samples.push((0..len).map(|i| (i % period) as u8).collect());
            }
            samples.push((0..len).map(|_| random(256) as u8).collect());
            samples.push((0..len).map(|_| random(2) as u8).collect());
            let words: Vec<Vec<u8>> = (0..20)
                .map(|_| (0..3 + random(40)).map(|_| random(26) as u8 + b'a').collect())
                .collect();
            let mut text = Vec::new();
            while text.len() < len {
                text.extend_from_slice(&words[random(20) as usize]);
                if random(4) == 0 {
                    text.push(random(256) as u8);
                }
            }
            text.truncate(len);
            samples.push(text);
        }
        // Noise, then a repetition of it.
        let noise: Vec<u8> = (0..40_000).map(|_| random(256) as u8).collect();
        samples.push([&noise[..], &noise[..], &noise[10_000..12_000]].concat());
        samples
    }

    const EFFORT: Effort =
        Effort { passes: 3, nice_length: 64, inherited_length: 40, every_length: 32 };

    const SEARCHES: [Search; 8] = [
        Search::Greedy,
        Search::GreedyLarge,
        Search::Double,
        Search::Lazy4,
        Search::Lazy8,
        Search::Lazy32,
        Search::Lazy64,
        Search::Optimal(EFFORT),
    ];

    fn params(search: Search, chunk_log: u8, window_log: u8, segment_log: u8) -> Params {
        Params { chunk_log, window_log, group_log: 0, segment_log, search, fse: false }
    }

    /// All matches of a block.
    pub(crate) fn parse(parser: &mut Parser, params: &Params, block: &[u8]) -> Vec<Match> {
        let mut out = Vec::new();
        parser.start(params, block).unwrap();
        for start in (0..block.len()).step_by(1 << params.chunk_log) {
            let chunk = start..block.len().min(start + (1 << params.chunk_log));
            let window_start = start >> params.window_log << params.window_log;
            parser.parse(params, block, chunk, window_start, &mut out);
        }
        parser.finish(block.len());
        out
    }

    #[test]
    fn matches_are_repetitions_inside_segment_and_window() {
        let mut parser = Parser::new(Backend::detect());
        let mut portable = Parser::new(Backend::PORTABLE);
        for search in SEARCHES {
            for (chunk, window, segment) in [(16, 17, 16), (16, 16, 12), (16, 18, 9)] {
                let params = params(search, chunk, window, segment);
                for block in samples() {
                    let matches = parse(&mut parser, &params, &block);
                    assert_eq!(matches, parse(&mut portable, &params, &block));
                    let mut end = 0;
                    for m in matches {
                        let (start, length) = (m.start as usize, m.length as usize);
                        let offset = m.offset as usize;
                        assert!(start >= end && length >= 3 && offset > 0);
                        assert_eq!(start >> segment, (start + length - 1) >> segment);
                        assert!(start - offset >= start >> window << window);
                        let repeats =
                            (start..start + length).all(|i| block[i] == block[i - offset]);
                        assert!(repeats);
                        end = start + length;
                    }
                    assert!(end <= block.len());
                }
            }
        }
    }

    #[test]
    fn repetitions_are_found() {
        let mut parser = Parser::new(Backend::detect());
        for search in SEARCHES {
            let params = params(search, 16, 18, 14);
            for block in [vec![0; 50_000], b"something else, ".repeat(3000)] {
                let covered: u32 =
                    parse(&mut parser, &params, &block).iter().map(|m| m.length).sum();
                assert!(covered as usize > block.len() - 40);
            }
        }
    }
}
