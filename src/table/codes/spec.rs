//! The rules that encoder, decoder and scans share: types, limits, and how long parts are.

use super::value::Value;

/// Rows of a vector.
pub(crate) const VECTOR: usize = 1024;
/// Lanes that the rows of a vector are dealt to.
pub(crate) const LANES: usize = 32;
/// The most rows of a chunk.
pub const MAX_ROWS: usize = 1 << 26;
/// The most entries of a dictionary.
pub(crate) const MAX_ENTRIES: usize = 1 << 16;
/// The most nodes from a root to a leaf.
pub(crate) const MAX_DEPTH: usize = 3;
/// Parts begin at multiples of this, in bytes.
pub(crate) const ALIGN: usize = 64;
/// Rows for each exception that a node may have.
pub(crate) const ROWS_PER_EXCEPTION: usize = 100;
/// Fraction bits of a slope.
pub(crate) const SLOPE_BITS: u32 = 10;
/// Slopes are smaller than this, and greater than minus this.
pub(crate) const SLOPE_LIMIT: i64 = 1 << 53;

/// How many vectors `rows` take.
pub(crate) const fn vectors(rows: usize) -> usize {
    rows.div_ceil(VECTOR)
}

/// Bits of plane `plane` of integers of `width` bits.
pub(crate) const fn plane_bits(width: u32, plane: u32) -> u32 {
    let rest = width - 32 * plane;
    if rest < 32 { rest } else { 32 }
}

/// Bytes that a plane of `bits` bits takes in a vector of `rows` rows.
pub(crate) const fn plane_len(rows: usize, bits: u32) -> usize {
    4 * LANES * (rows.div_ceil(LANES) * bits as usize).div_ceil(32)
}

/// Bytes that `rows` packed integers of `width` bits take.
pub(crate) fn packed_len(rows: usize, width: u32) -> usize {
    let whole = rows / VECTOR * VECTOR / 8 * width as usize;
    let last = (0..width.div_ceil(32)).map(|p| plane_len(rows % VECTOR, plane_bits(width, p)));
    whole + last.sum::<usize>()
}

/// The physical type of a column: what a value is, before any meaning that a schema gives it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Physical {
    /// One bit.
    Boolean,
    /// An unsigned integer of 8 bits.
    U8,
    /// An unsigned integer of 16 bits.
    U16,
    /// An unsigned integer of 32 bits.
    U32,
    /// An unsigned integer of 64 bits.
    U64,
    /// A signed integer of 8 bits.
    I8,
    /// A signed integer of 16 bits.
    I16,
    /// A signed integer of 32 bits.
    I32,
    /// A signed integer of 64 bits.
    I64,
    /// A signed integer of 128 bits, such as a decimal number.
    I128,
    /// A signed integer of 256 bits, such as a decimal number.
    I256,
    /// A float of 16 bits.
    F16,
    /// A float of 32 bits.
    F32,
    /// A float of 64 bits.
    F64,
}

/// The order of a type's values, on their bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Unsigned,
    /// Two's complement.
    Signed,
    /// IEEE 754's `totalOrder`.
    Float,
}

impl Order {
    /// The order in which codes follow values: floats count as unsigned integers, whose bits they are.
    pub(crate) const fn of_codes(self) -> Self {
        match self {
            Self::Float => Self::Unsigned,
            order => order,
        }
    }

    /// Maps a value to an unsigned integer so that the order becomes that of integers.
    #[inline(always)]
    pub(crate) fn key<T: Value>(self, value: T) -> T {
        match self {
            Self::Unsigned => value,
            Self::Signed => value.xor(T::TOP),
            Self::Float if value.and(T::TOP) == T::default() => value.xor(T::TOP),
            Self::Float => value.xor(T::ONES),
        }
    }

    /// The inverse of [`Self::key`].
    #[inline(always)]
    pub(crate) fn value<T: Value>(self, key: T) -> T {
        match self {
            Self::Float if key.and(T::TOP) == T::default() => key.xor(T::ONES),
            Self::Float => key.xor(T::TOP),
            _ => self.key(key),
        }
    }
}

impl Physical {
    /// Every type.
    pub const ALL: [Self; 14] = [
        Self::Boolean,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::I128,
        Self::I256,
        Self::F16,
        Self::F32,
        Self::F64,
    ];

    /// Bits of a value in a buffer of values.
    pub const fn bits(self) -> u32 {
        match self {
            Self::Boolean => 1,
            Self::U8 | Self::I8 => 8,
            Self::U16 | Self::I16 | Self::F16 => 16,
            Self::U32 | Self::I32 | Self::F32 => 32,
            Self::U64 | Self::I64 | Self::F64 => 64,
            Self::I128 => 128,
            Self::I256 => 256,
        }
    }

    /// Bytes of the buffer of `rows` values.
    pub const fn buffer_len(self, rows: usize) -> usize {
        match self {
            Self::Boolean => rows.div_ceil(8),
            _ => rows * self.bits() as usize / 8,
        }
    }

    pub(crate) const fn order(self) -> Order {
        match self {
            Self::Boolean | Self::U8 | Self::U16 | Self::U32 | Self::U64 => Order::Unsigned,
            Self::F16 | Self::F32 | Self::F64 => Order::Float,
            _ => Order::Signed,
        }
    }

    /// Fraction bits of a float's significand.
    pub(crate) const fn fraction_bits(self) -> Option<u32> {
        match self {
            Self::F16 => Some(10),
            Self::F32 => Some(23),
            Self::F64 => Some(52),
            _ => None,
        }
    }
}

/// Calls a generic function with the unsigned integer that holds a type's values as `$T`; booleans are in `u8`.
macro_rules! with_value {
    ($physical:expr, $T:ident => $call:expr) => {
        match $physical.bits() {
            1 | 8 => {
                type $T = u8;
                $call
            }
            16 => {
                type $T = u16;
                $call
            }
            32 => {
                type $T = u32;
                $call
            }
            64 => {
                type $T = u64;
                $call
            }
            128 => {
                type $T = u128;
                $call
            }
            _ => {
                type $T = $crate::table::codes::value::U256;
                $call
            }
        }
    };
}
pub(crate) use with_value;

/// What a node is; the number is the format's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    Plain = 0,
    Constant = 1,
    Packed = 2,
    Line = 3,
    Dictionary = 4,
    Runs = 5,
    Decimal = 6,
    Split = 7,
    Bits = 8,
}

impl Kind {
    pub(crate) const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            0 => Self::Plain,
            1 => Self::Constant,
            2 => Self::Packed,
            3 => Self::Line,
            4 => Self::Dictionary,
            5 => Self::Runs,
            6 => Self::Decimal,
            7 => Self::Split,
            8 => Self::Bits,
            _ => return None,
        })
    }

    /// Whether a sequence of this type may have the kind.
    pub(crate) const fn suits(self, physical: Physical) -> bool {
        match physical {
            Physical::Boolean => matches!(self, Self::Constant | Self::Runs | Self::Bits),
            Physical::F32 | Physical::F64 => !matches!(self, Self::Bits),
            Physical::I128 | Physical::I256 => {
                !matches!(self, Self::Decimal | Self::Split | Self::Bits)
            }
            _ => !matches!(self, Self::Decimal | Self::Bits),
        }
    }
}

/// Kinds of the nodes above a node.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Above {
    kinds: u16,
    depth: usize,
}

impl Above {
    /// Whether a node of this kind may stand here.
    pub(crate) const fn permits(self, kind: Kind) -> bool {
        self.kinds >> kind as u8 & 1 == 0 && self.depth < MAX_DEPTH
    }

    /// For the children of a node of this kind that stands here.
    pub(crate) const fn with(self, kind: Kind) -> Self {
        Self { kinds: self.kinds | 1 << kind as u8, depth: self.depth + 1 }
    }

    /// Whether a node here may have children.
    pub(crate) const fn permits_children(self) -> bool {
        self.depth + 1 < MAX_DEPTH
    }
}
