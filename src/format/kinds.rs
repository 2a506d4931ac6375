//! Pipelines and methods, and their numbers in the format.

use std::fmt;
use std::ops::RangeInclusive;

use super::Fault;

/// Base-2 logarithm of the smallest block size.
pub(crate) const MIN_BLOCK_LOG: u8 = 16;

/// Beside a method in a header: the contents are filtered.
pub(super) const IS_FILTERED: u8 = 1 << 3;

/// Beside a method in a header: the block has distant matches, and the method is that of its own bytes.
pub(super) const HAS_DISTANT: u8 = 1 << 2;

/// The stages that a block goes through.
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
    /// Burrows-Wheeler transform and its second stage; at level 9, LZ77 for blocks that it makes smaller.
    Bwt,
    /// Entropy coding alone, for data without repetitions whose bytes differ in frequency.
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

    /// The block sizes that this pipeline permits, in bytes; all are powers of two.
    pub const fn block_sizes(self) -> RangeInclusive<u64> {
        (1 << MIN_BLOCK_LOG)..=(1 << self.max_block_log())
    }

    pub(crate) const fn max_block_log(self) -> u8 {
        match self {
            Self::Bwt => 26,
            _ => 24,
        }
    }

    pub(crate) const fn id(self) -> u8 {
        match self {
            Self::Store => 0,
            Self::Lzh => 1,
            Self::Lzf => 2,
            Self::Fse => 3,
            Self::Bwt => 4,
        }
    }

    pub(crate) fn from_id(id: u8) -> Result<Self, Fault> {
        Self::ALL
            .get(usize::from(id))
            .copied()
            .ok_or(Fault::Unsupported("this pipeline is not known"))
    }

    /// Whether blocks of this pipeline may be coded with `method`. A decoder allocates memory by this rule.
    pub(crate) const fn permits(self, method: Method) -> bool {
        match method {
            Method::Store | Method::Fill => true,
            Method::Lz77 => !matches!(self, Self::Store),
            Method::Bwt => matches!(self, Self::Bwt),
        }
    }
}

impl fmt::Display for Pipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How a block is coded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Method {
    /// The contents as they are.
    Store,
    /// One byte, repeated.
    Fill,
    /// LZ77 and entropy coding.
    Lz77,
    /// Burrows-Wheeler transform and its second stage.
    Bwt,
}

impl Method {
    const ALL: [Self; 4] = [Self::Store, Self::Fill, Self::Lz77, Self::Bwt];

    /// The name in listings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Store => "store",
            Self::Fill => "fill",
            Self::Lz77 => "lz77",
            Self::Bwt => "bwt",
        }
    }

    pub(crate) const fn id(self) -> u8 {
        match self {
            Self::Store => 0,
            Self::Fill => 1,
            Self::Lz77 => 2,
            Self::Bwt => 3,
        }
    }

    pub(crate) fn from_id(id: u8) -> Result<Self, Fault> {
        Self::ALL
            .get(usize::from(id))
            .copied()
            .ok_or(Fault::Unsupported("this block's method is not known"))
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_positions_in_all() {
        for (i, pipeline) in Pipeline::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(pipeline.id()), i);
            assert_eq!(Pipeline::from_id(pipeline.id()).unwrap(), pipeline);
            assert_eq!(pipeline.name().parse::<Pipeline>().unwrap(), pipeline);
        }
        for (i, method) in Method::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(method.id()), i);
            assert_eq!(Method::from_id(method.id()).unwrap(), method);
        }
        assert!(Pipeline::from_id(5).is_err());
        assert!(Method::from_id(4).is_err());
        assert!("LZH".parse::<Pipeline>().is_err());
    }
}
