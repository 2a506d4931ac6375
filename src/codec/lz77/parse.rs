//! The parses of the levels.

use super::Params;
use super::candidates::Table;
use super::lazy::{self, Match, OneHash, TwoHashes};
use core::ops::Range;

/// How matches are searched for and chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Takes the first match found: one hash, its most recent position.
    Greedy,
    /// Lazy by one position: two hashes, the most recent position of each.
    Lazy,
    /// Lazy.
    Lazy4,
}

pub(crate) struct Parser {
    greedy: OneHash<1, 6>,
    lazy: TwoHashes<1, 8, 5>,
    lazy4: OneHash<4, 5>,
    search: Search,
}

impl Parser {
    pub(crate) fn new() -> Self {
        Self {
            greedy: OneHash(Table::new()),
            lazy: TwoHashes { long: Table::new(), short: Table::new() },
            lazy4: OneHash(Table::new()),
            search: Search::Greedy,
        }
    }

    pub(crate) fn start(&mut self, params: &Params, len: usize) {
        self.search = params.search;
        match self.search {
            Search::Greedy => self.greedy.0.start(params.hash_log, len),
            Search::Lazy => {
                self.lazy.long.start(params.hash_log, len);
                self.lazy.short.start(params.hash_log, len);
            }
            Search::Lazy4 => self.lazy4.0.start(params.hash_log, len),
        }
    }

    pub(crate) fn parse(
        &mut self,
        params: &Params,
        block: &[u8],
        chunk: Range<usize>,
        window_start: usize,
        out: &mut Vec<Match>,
    ) {
        let len = 1 << params.segment_log;
        for start in chunk.clone().step_by(len) {
            let segment = start..(start + len).min(chunk.end);
            let skip = params.skip_log;
            match self.search {
                Search::Greedy => {
                    lazy::parse::<_, 0>(&mut self.greedy, block, segment, window_start, skip, out)
                }
                Search::Lazy => {
                    lazy::parse::<_, 1>(&mut self.lazy, block, segment, window_start, skip, out)
                }
                Search::Lazy4 => {
                    lazy::parse::<_, 1>(&mut self.lazy4, block, segment, window_start, skip, out)
                }
            }
        }
    }

    pub(crate) fn finish(&mut self, len: usize) {
        match self.search {
            Search::Greedy => self.greedy.0.finish(len),
            Search::Lazy => {
                self.lazy.long.finish(len);
                self.lazy.short.finish(len);
            }
            Search::Lazy4 => self.lazy4.0.finish(len),
        }
    }
}
