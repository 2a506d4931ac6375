//! What exactly is done to a block.

use super::filter::{Filter, Hints};
use super::{bwt, lz77};

/// How each block is encoded: a filter, then a codec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Recipe {
    pub(crate) filter: Filter,
    /// More chains for [`Filter::Auto`] to choose from.
    pub(crate) hints: Hints,
    pub(crate) codec: Codec,
}

impl From<Codec> for Recipe {
    /// Without a filter.
    fn from(codec: Codec) -> Self {
        Self { codec, ..Self::default() }
    }
}

impl Recipe {
    /// The recipe for an input that begins with these bytes.
    pub(crate) fn hinted_by(self, beginning: &[u8]) -> Self {
        match self.filter {
            Filter::Auto => Self { hints: Hints::of(beginning), ..self },
            _ => self,
        }
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
