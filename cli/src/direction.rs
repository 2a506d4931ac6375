//! Compression or decompression.

/// What a run does with its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Makes compressed files.
    Compress,
    /// Restores compressed files.
    Decompress,
}
