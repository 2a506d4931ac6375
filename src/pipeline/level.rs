//! Levels, from fastest to smallest, as one table.

use std::fmt;

use crate::codec::lz77::{self, Effort, MIN_CHUNK_LOG, Search};
use crate::codec::{Codec, Smallest, bwt};
use crate::error::Error;
use crate::format::Pipeline;

/// The compression level: 1 (fastest) to 9 (smallest).
///
/// ```
/// use pz::{Level, Pipeline};
/// assert_eq!(Level::DEFAULT.get(), 3);
/// assert_eq!(Level::new(9)?.pipeline(), Pipeline::Bwt);
/// assert!(Level::new(10).is_err());
/// # Ok::<(), pz::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Level(u8);

/// The parameters of a level.
struct Row {
    pipeline: Pipeline,
    /// Base-2 logarithm of the block size in bytes.
    block_log: u8,
    /// Parameters of the LZ pipelines. The pipeline decides whether FSE may be used.
    lz77: lz77::Params,
    /// Parameters of the pipeline `bwt`.
    bwt: bwt::Params,
}

const fn row(pipeline: Pipeline, block_log: u8, lz77: lz77::Params) -> Row {
    Row { pipeline, block_log, lz77, bwt: bwt::Params { segment_log: 14, start_log: 14 } }
}

const fn lz(search: Search, chunk_log: u8, window_log: u8) -> lz77::Params {
    // Smaller segments for searches with many candidates, which would otherwise not stay in the second-level cache, and
    // for the longest search, which would otherwise take too many steps for software devices of WebGPU.
    let is_small = matches!(search, Search::Lazy4 | Search::Lazy8 | Search::Lazy64);
    let segment_log = if is_small { 13 } else { 14 };
    lz77::Params { chunk_log, window_log, group_log: 0, segment_log, search, fse: false }
}

/// Levels 1 to 9: pipeline, base-2 logarithm of the block size, and for LZ77 the search and the base-2 logarithms of
/// chunk and window.
const LEVELS: [Row; 9] = {
    use Pipeline::{Bwt, Lzf, Lzh};
    use Search::{Double, Greedy, GreedyLarge, Lazy4, Lazy8, Lazy32, Lazy64};
    const OPTIMAL: Search = Search::Optimal(Effort::LEVEL_8);
    [
        row(Lzh, 22, lz(Greedy, 18, 22)),
        row(Lzh, 22, lz(GreedyLarge, 18, 22)),
        row(Lzh, 22, lz(Double, 18, 22)),
        row(Lzh, 22, lz(Lazy4, 18, 22)),
        row(Lzh, 22, lz(Lazy8, 18, 22)),
        row(Lzf, 24, lz(Lazy32, 18, 24)),
        row(Lzf, 24, lz(Lazy64, 18, 24)),
        row(Lzf, 24, lz(OPTIMAL, 18, 24)),
        row(Bwt, 24, lz(OPTIMAL, 18, 24)),
    ]
};

/// The first level at which the pipeline `fse` gives each chunk tables of its own.
const FSE_OWN_TABLES: u8 = 6;

impl Level {
    /// The smallest level, the fastest.
    pub const MIN: Self = Self(1);
    /// The level used when none is chosen.
    pub const DEFAULT: Self = Self(3);
    /// The largest level, the smallest output.
    pub const MAX: Self = Self(9);

    /// The level with this number.
    ///
    /// # Errors
    /// [`Error::InvalidLevel`] outside of 1 to 9.
    pub fn new(level: u32) -> Result<Self, Error> {
        match u8::try_from(level) {
            Ok(number @ 1..=9) => Ok(Self(number)),
            _ => Err(Error::InvalidLevel { level }),
        }
    }

    /// Every level, from 1 to 9.
    pub fn all() -> impl DoubleEndedIterator<Item = Self> {
        (1..=9).map(Self)
    }

    /// The level's number, 1 to 9.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The pipeline of this level.
    pub fn pipeline(self) -> Pipeline {
        self.row().pipeline
    }

    /// The block size of this level, in bytes.
    pub fn block_size(self) -> u64 {
        1 << self.row().block_log
    }

    /// The codec of `pipeline` at this level.
    pub(crate) fn codec(self, pipeline: Pipeline) -> Codec {
        let Row { lz77, bwt, .. } = *self.row();
        match pipeline {
            Pipeline::Store => Codec::Store,
            Pipeline::Lzh => Codec::Lz77(lz77::Params { fse: false, ..lz77 }),
            Pipeline::Lzf => Codec::Lz77(lz77::Params { fse: true, ..lz77 }),
            Pipeline::Fse => {
                // There are no matches, so windows do not matter. Many short chunks keep a device busy. If each has its
                // own tables, typed data is 5% smaller; if four share tables, they are decoded 1.3 times as fast.
                let lz77 = lz77.with_window(MIN_CHUNK_LOG);
                let group_log = if self.0 < FSE_OWN_TABLES { lz77.group_log } else { 0 };
                Codec::Lz77(lz77::Params { search: Search::None, fse: true, group_log, ..lz77 })
            }
            Pipeline::Bwt if self == Self::MAX => {
                let quick = lz77::Params { search: Search::Double, fse: false, ..lz77 };
                let best = lz77::Params { fse: true, ..lz77 };
                Codec::Smallest(Smallest { bwt, quick, best })
            }
            Pipeline::Bwt => Codec::Bwt(bwt),
        }
    }

    fn row(self) -> &'static Row {
        &LEVELS[usize::from(self.0) - 1]
    }
}

impl Default for Level {
    fn default() -> Self {
        Self::DEFAULT
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
