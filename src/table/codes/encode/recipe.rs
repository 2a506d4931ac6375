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

/// Picoseconds that one core takes to decode a value of a node, without its children. The figures are rounded measured
/// ones, the same on every machine, so that the choice is the same too.
const fn decode_time(kind: Kind) -> u64 {
    match kind {
        Kind::Plain | Kind::Constant | Kind::Bits => 50,
        Kind::Packed => 150,
        Kind::Line => 300,
        Kind::Dictionary => 500,
        Kind::Runs => 150,
        Kind::Decimal => 700,
        Kind::Split => 200,
    }
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

    /// Picoseconds for each value. Entries and runs are few beside the rows, so what is below them costs nothing.
    fn decode_time(&self) -> u64 {
        let own = decode_time(self.kind());
        match self {
            Self::Dictionary(children) => own + children[1].decode_time(),
            Self::Decimal { integers, .. } => own + integers.decode_time(),
            Self::Split { children, .. } => {
                own + children[0].decode_time() + children[1].decode_time()
            }
            _ => own,
        }
    }

    /// What a code of `bytes` costs: the time to bring it and to decode its `rows` rows, in picoseconds.
    pub(crate) fn cost(&self, bytes: usize, rows: usize) -> u64 {
        bytes as u64 * BYTE + rows as u64 * self.decode_time()
    }
}
