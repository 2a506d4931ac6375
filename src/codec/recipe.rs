//! The exact encoding of a block.

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

    /// The recipes tried on a block, each with a single codec; the first is always tried.
    pub(crate) fn parts(&self) -> impl Iterator<Item = Self> {
        let recipe = *self;
        self.codec.parts().map(move |codec| Self { codec, ..recipe })
    }

    /// The first of [`Self::parts`].
    pub(crate) fn first(&self) -> Self {
        Self { codec: self.codec.first(), ..*self }
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
    /// By [`bwt`] or [`lz77`], whichever makes the block smaller.
    Smallest(Smallest),
}

impl Codec {
    /// The codecs tried on a block; the first is always tried.
    fn parts(self) -> impl Iterator<Item = Self> {
        let more = match self {
            Self::Smallest(Smallest { quick, best, .. }) => Some([quick, best].map(Self::Lz77)),
            _ => None,
        };
        std::iter::once(self.first()).chain(more.into_iter().flatten())
    }

    /// The first of the codecs tried on a block.
    pub(crate) fn first(self) -> Self {
        match self {
            Self::Smallest(Smallest { bwt, .. }) => Self::Bwt(bwt),
            codec => codec,
        }
    }
}

/// Programs and libraries of code become smaller by LZ77, text and measurements by the BWT. Searching a block for the
/// best matches takes five times as long as transforming it, so a quick search shows first whether that may pay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Smallest {
    pub(crate) bwt: bwt::Params,
    pub(crate) quick: lz77::Params,
    pub(crate) best: lz77::Params,
}

impl Smallest {
    /// The limit below which the quick search's payload makes the best search worth trying: 1.2 times the BWT's
    /// payload. Of 17 blocks of programs, libraries, sources, texts and a database, the best search won on all 4 below
    /// 1.16 times, by up to 18%, and on 1 of 13 above, by 5%.
    pub(crate) fn quick_limit(bwt_len: usize) -> usize {
        bwt_len + bwt_len / 5
    }
}
