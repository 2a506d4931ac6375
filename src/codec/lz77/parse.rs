//! The parses of the levels.

use super::Params;
use super::candidate_lists::{FourHashes, Tables};
use super::candidates::Table;
use super::greedy;
use super::lazy::{self, Finder, Match, OneHash, TwoHashes};
use super::optimal::{Effort, Optimal};
use core::ops::Range;

/// How matches are searched for and chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Not at all: every byte is a literal. For data whose structure is in its byte frequencies.
    None,
    /// Takes the first match found; one hash, its most recent position.
    Greedy,
    /// Lazy by one position; two hashes, the most recent position of each.
    Double,
    /// Lazy by two positions; one hash, its four most recent positions.
    Lazy4,
    /// Optimal by price, few candidates.
    Optimal1(Effort),
    /// Optimal by price, many candidates.
    Optimal2(Effort),
}

/// Finds the matches of blocks.
#[derive(Default)]
pub(crate) struct Parser {
    greedy: Option<Table<1, 6, 15>>,
    double: Option<TwoHashes<8, 5, 17>>,
    lazy4: Option<OneHash<4, 5, 17>>,
    optimal1: Option<Optimal<FourHashes<2, 2, 2, 7>>>,
    optimal2: Option<Optimal<FourHashes<8, 8, 8, 25>>>,
}

impl Parser {
    /// Gets ready for a block of `len` bytes.
    pub(crate) fn start(&mut self, params: &Params, len: usize) {
        match params.search {
            Search::None => {}
            Search::Greedy => self.greedy.get_or_insert_default().start(len),
            Search::Double => self.double.get_or_insert_default().start(len),
            Search::Lazy4 => self.lazy4.get_or_insert_default().start(len),
            Search::Optimal1(_) => self.optimal1.get_or_insert_default().start(len),
            Search::Optimal2(_) => self.optimal2.get_or_insert_default().start(len),
        }
    }

    /// Appends the matches of a chunk of the block, whose chunks come in order.
    pub(crate) fn parse(
        &mut self,
        params: &Params,
        block: &[u8],
        chunk: Range<usize>,
        window_start: usize,
        out: &mut Vec<Match>,
    ) {
        if let Search::Optimal1(effort) = params.search {
            let optimal = self.optimal1.get_or_insert_default();
            optimal.parse(effort, params.segment_log, block, chunk, window_start, out);
            return;
        }
        if let Search::Optimal2(effort) = params.search {
            let optimal = self.optimal2.get_or_insert_default();
            optimal.parse(effort, params.segment_log, block, chunk, window_start, out);
            return;
        }
        let len = 1 << params.segment_log;
        let skip = params.skip_log;
        for start in chunk.clone().step_by(len) {
            let segment = start..(start + len).min(chunk.end);
            match params.search {
                Search::None | Search::Optimal1(_) | Search::Optimal2(_) => {}
                Search::Greedy => {
                    let table = self.greedy.get_or_insert_default();
                    greedy::parse(table, block, segment, window_start, skip, out);
                }
                Search::Double => {
                    let finder = self.double.get_or_insert_default();
                    lazy::parse::<_, 1>(finder, block, segment, window_start, skip, out);
                }
                Search::Lazy4 => {
                    let finder = self.lazy4.get_or_insert_default();
                    lazy::parse::<_, 2>(finder, block, segment, window_start, skip, out);
                }
            }
        }
    }

    /// Ends the block.
    pub(crate) fn finish(&mut self, params: &Params, len: usize) {
        match params.search {
            Search::None => {}
            Search::Greedy => self.greedy.get_or_insert_default().finish(len),
            Search::Double => self.double.get_or_insert_default().finish(len),
            Search::Lazy4 => self.lazy4.get_or_insert_default().finish(len),
            Search::Optimal1(_) => self.optimal1.get_or_insert_default().finish(len),
            Search::Optimal2(_) => self.optimal2.get_or_insert_default().finish(len),
        }
    }

    /// Bytes that a search keeps.
    pub(crate) fn memory(search: Search) -> u64 {
        match search {
            Search::None => 0,
            Search::Greedy => Table::<1, 6, 15>::MEMORY,
            Search::Double => TwoHashes::<8, 5, 17>::MEMORY,
            Search::Lazy4 => Table::<4, 5, 17>::MEMORY,
            Search::Optimal1(_) => FourHashes::<2, 2, 2, 7>::MEMORY,
            Search::Optimal2(_) => FourHashes::<8, 8, 8, 25>::MEMORY,
        }
    }
}
