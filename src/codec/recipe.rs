//! A codec with its parameters.

use super::{bwt, lz77};

/// How each block is encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Recipe {
    /// Blocks are stored.
    #[default]
    Store,
    /// By [`lz77`], for the pipelines `lzh`, `lzf` and `fse`.
    Lz77(lz77::Params),
    /// By [`bwt`].
    Bwt(bwt::Params),
}
