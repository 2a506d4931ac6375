//! What exactly is done to a block.

use super::filter::Filter;
use super::{bwt, lz77};

/// How each block is encoded: a filter, then a codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Recipe {
    pub(crate) filter: Filter,
    pub(crate) codec: Codec,
}

impl From<Codec> for Recipe {
    /// Without a filter.
    fn from(codec: Codec) -> Self {
        Self { filter: Filter::None, codec }
    }
}

/// A codec with its parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Codec {
    /// Blocks are stored.
    #[default]
    Store,
    /// By [`lz77`], for the pipelines `lzh`, `lzf` and `fse`.
    Lz77(lz77::Params),
    /// By [`bwt`].
    Bwt(bwt::Params),
}
