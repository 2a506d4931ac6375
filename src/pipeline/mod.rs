//! Which stages a block goes through, on what it runs, and how blocks flow through a machine.
//!
//! | module | |
//! |---|---|
//! | [`level`] | levels: a number that names a pipeline and its parameters |
//! | [`options`] | what a caller may choose |

pub(crate) mod level;
pub(crate) mod options;

use std::fmt;
use std::ops::RangeInclusive;
use std::str::FromStr;

use crate::error::Error;

pub use level::Level;
pub use options::{DecodeOptions, Options};

/// Which stages a block goes through.
///
/// ```
/// use pz::Pipeline;
/// let pipeline: Pipeline = "lzh".parse()?;
/// assert_eq!(pipeline, Pipeline::Lzh);
/// assert_eq!(pipeline.to_string(), "lzh");
/// # Ok::<(), pz::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Pipeline {
    /// LZ77, then Huffman codes.
    Lzh,
    /// LZ77, then finite state entropy.
    Lzf,
    /// Burrows-Wheeler transform and its second stage.
    Bwt,
    /// Entropy coding alone, for data whose structure is only in its byte frequencies.
    Fse,
    /// No compression: blocks are framed and checked.
    Store,
}

impl Pipeline {
    /// Every pipeline, in the order of their numbers in the format.
    pub const ALL: [Self; 5] = [Self::Store, Self::Lzh, Self::Lzf, Self::Fse, Self::Bwt];

    /// The name on command lines and in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Lzh => "lzh",
            Self::Lzf => "lzf",
            Self::Bwt => "bwt",
            Self::Fse => "fse",
            Self::Store => "store",
        }
    }

    /// The block sizes that it permits, in bytes; each is a power of two.
    pub const fn block_sizes(self) -> RangeInclusive<u64> {
        match self {
            Self::Bwt => (1 << 16)..=(1 << 26),
            _ => (1 << 16)..=(1 << 24),
        }
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Pipeline {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        Self::ALL
            .into_iter()
            .find(|pipeline| pipeline.name() == name)
            .ok_or_else(|| Error::InvalidPipeline { name: name.to_owned() })
    }
}
