//! LZ77: candidates, parses, sequences and their coding.
//!
//! A block is cut into *chunks*, each with lane streams of its own, so chunks can be entropy-decoded in parallel.
//! Matches reach back to the start of the chunk's *window*, which is one chunk or several; windows can be decoded in
//! parallel. Neighbouring chunks share tables in *groups*. [`format::lz77`](mod@crate::format::lz77) describes the
//! payload.
//!
//! | module | |
//! |---|---|
//! | [`search`] | finds matches |
//! | [`stream`] | encodes matches and literals into payloads, and decodes payloads |

#[cfg(test)]
mod oracle;
pub(crate) mod search;
pub(crate) mod stream;
#[cfg(test)]
mod tests;

/// Parts that tests of other implementations compare with.
#[cfg(test)]
pub(crate) mod testing {
    pub(crate) use super::search::lazy::Match;
    pub(crate) use super::search::parse::Parser;
    pub(crate) use super::search::parse::tests::{parse, samples};
    pub(crate) use super::search::probe::Backend;
}

pub use search::optimal::Effort;
pub use search::parse::Search;
pub use stream::decode::Decoder;
pub use stream::encode::Encoder;

/// The longest block, in bytes.
pub const MAX_BLOCK: usize = 1 << 24;
/// Lengths of a chunk: 64 KiB to 1 MiB.
pub const MIN_CHUNK_LOG: u8 = 16;
/// See [`MIN_CHUNK_LOG`].
pub const MAX_CHUNK_LOG: u8 = 20;

/// The parameters of an encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Params {
    /// Length of a chunk, as a base-2 logarithm of bytes: [`MIN_CHUNK_LOG`] to [`MAX_CHUNK_LOG`].
    pub chunk_log: u8,
    /// Length of a window, as a base-2 logarithm of bytes: from a chunk's length to [`MAX_BLOCK`].
    pub window_log: u8,
    /// Number of chunks that share tables, as a base-2 logarithm of 0 to 4.
    pub group_log: u8,
    /// Length of a segment, the unit of parsing; at most a chunk's.
    pub segment_log: u8,
    /// How matches are searched for and chosen.
    pub search: Search,
    /// Whether streams may be FSE coded; they may be Huffman coded in any case.
    pub fse: bool,
}

impl Params {
    const MAX_GROUP_LOG: u8 = 4;

    /// Base-2 logarithm of the number of segments that the optimal parse samples in a chunk; a chunk may have fewer.
    const SAMPLE_LOG: u8 = 2;

    /// The distance between sampled segments of a chunk, as a base-2 logarithm of segments.
    pub(crate) fn sample_spacing_log(&self) -> u8 {
        self.chunk_log.saturating_sub(self.segment_log).saturating_sub(Self::SAMPLE_LOG)
    }

    /// These parameters with windows of 2^`window_log` bytes. Chunks become at most as long as windows; shorter chunks
    /// share tables, so that the tables take no more space.
    pub(crate) fn with_window(self, window_log: u8) -> Self {
        let chunk_log = self.chunk_log.min(window_log);
        Self {
            chunk_log,
            window_log,
            group_log: self.group_log + (self.chunk_log - chunk_log),
            ..self
        }
    }
}
