//! Which way the bytes go.

/// What a run does with its inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Outputs are compressed.
    Compress,
    /// Inputs are compressed.
    Decompress,
}
