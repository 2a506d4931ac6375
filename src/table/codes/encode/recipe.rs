//! Which kinds of nodes make a code, and what the code costs.

use super::floats::Cut;
use crate::table::codes::spec::Kind;

/// The kinds of a tree's nodes. Parameters that depend on the values, such as widths, are found anew for each chunk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Recipe {
    Plain,
    Constant,
    Packed,
    Line,
    Bits,
    /// Of entries and codes.
    Dictionary(Box<[Recipe; 2]>),
    /// Of values and ends.
    Runs(Box<[Recipe; 2]>),
    Decimal {
        near: bool,
        integers: Box<Recipe>,
    },
    /// Of upper and lower bits.
    Split {
        cut: Cut,
        children: Box<[Recipe; 2]>,
    },
}

/// Picoseconds that a byte takes from where it rests: the model's storage gives 1 GB/s.
const BYTE: u64 = 1000;

/// Picoseconds that one core takes for a run, besides its rows.
const RUN: u64 = 2500;

/// Picoseconds that one core takes to decode a value of a node, without its children. The figures are rounded measured
/// ones, the same on every machine, so that the choice is the same too.
const fn decode_time(kind: Kind) -> u64 {
    match kind {
        Kind::Plain | Kind::Constant | Kind::Bits => 50,
        Kind::Packed => 150,
        Kind::Line => 250,
        Kind::Dictionary => 500,
        Kind::Runs => 100,
        Kind::Decimal => 700,
        Kind::Split => 200,
    }
}

/// Picoseconds that one core takes to decode a node of `rows` rows, `runs` of them runs, without its children.
pub(super) fn node_time(kind: Kind, rows: usize, runs: usize) -> u64 {
    decode_time(kind) * rows as u64 + RUN * runs as u64
}

/// What a code costs: the time to bring its bytes and to decode it, in picoseconds.
pub(super) fn cost(bytes: usize, time: u64) -> u64 {
    bytes as u64 * BYTE + time
}

impl Recipe {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Plain => Kind::Plain,
            Self::Constant => Kind::Constant,
            Self::Packed => Kind::Packed,
            Self::Line => Kind::Line,
            Self::Bits => Kind::Bits,
            Self::Dictionary(_) => Kind::Dictionary,
            Self::Runs(_) => Kind::Runs,
            Self::Decimal { .. } => Kind::Decimal,
            Self::Split { .. } => Kind::Split,
        }
    }
}
