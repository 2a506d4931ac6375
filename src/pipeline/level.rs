//! Levels, from fastest to smallest, as one table.

use std::fmt;

use super::Pipeline;
use crate::error::Error;

/// How hard to try: 1 (fastest) to 9 (smallest).
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

/// What a level fixes.
struct Row {
    pipeline: Pipeline,
    /// Base-2 logarithm of the block size in bytes.
    block_log: u8,
}

const fn row(pipeline: Pipeline, block_log: u8) -> Row {
    Row { pipeline, block_log }
}

/// Levels 1 to 9.
const LEVELS: [Row; 9] = [
    row(Pipeline::Lzh, 20),
    row(Pipeline::Lzh, 20),
    row(Pipeline::Lzh, 21),
    row(Pipeline::Lzh, 22),
    row(Pipeline::Lzf, 22),
    row(Pipeline::Lzf, 22),
    row(Pipeline::Lzf, 23),
    row(Pipeline::Lzf, 24),
    row(Pipeline::Bwt, 23),
];

impl Level {
    /// The smallest level, the fastest.
    pub const MIN: Self = Self(1);
    /// The level used when none is chosen.
    pub const DEFAULT: Self = Self(3);
    /// The largest level, the smallest output.
    pub const MAX: Self = Self(9);

    /// Level number `level`.
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

    /// Its number, 1 to 9.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// The pipeline that it uses unless another is chosen.
    pub fn pipeline(self) -> Pipeline {
        self.row().pipeline
    }

    /// The block size in bytes that it uses unless another is chosen.
    pub fn block_size(self) -> u64 {
        1 << self.row().block_log
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
