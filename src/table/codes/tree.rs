//! Reads a chunk's head and finds its parts: bytes to checked nodes.
//!
//! Two passes over the tree. The first reads kinds and lengths from the head, which tells where the parts begin. The
//! second takes each node's parts and checks what they hold.

use super::exceptions::Exceptions;
use super::spec::*;
use super::value::{Value, read_all};
use crate::codec::Malformed;
use crate::codec::lanes::Backend;

/// A checked node whose values are of `T`.
#[derive(Debug)]
pub(crate) enum Node<'a, T: Value> {
    Plain(&'a [u8]),
    Constant(T),
    Packed(Packed<'a, T>),
    Line(Line<'a, T>),
    Dictionary(Box<Dictionary<'a, T>>),
    Runs(Runs<T>),
    Decimal(Box<Decimal<'a, T>>),
    Split(Box<Split<'a, T>>),
    Bits(&'a [u8]),
}

/// `reference + factor * code`.
#[derive(Debug)]
pub(crate) struct Packed<'a, T> {
    pub(crate) width: u32,
    pub(crate) reference: T,
    pub(crate) factor: u64,
    pub(crate) codes: &'a [u8],
    pub(crate) exceptions: Exceptions<'a>,
}

/// `reference + factor * (base + slope * row / 1024 + code)`.
#[derive(Debug)]
pub(crate) struct Line<'a, T> {
    pub(crate) packed: Packed<'a, T>,
    bases: &'a [[u8; 8]],
    slopes: &'a [[u8; 8]],
}

impl<T> Line<'_, T> {
    /// Base and slope of a vector.
    pub(crate) fn of_vector(&self, vector: usize) -> (u64, i64) {
        (u64::from_le_bytes(self.bases[vector]), i64::from_le_bytes(self.slopes[vector]))
    }
}

#[derive(Debug)]
pub(crate) struct Dictionary<'a, T: Value> {
    /// In ascending order.
    pub(crate) entries: Vec<T>,
    /// All less than the number of entries.
    pub(crate) codes: Node<'a, u32>,
}

#[derive(Debug)]
pub(crate) struct Runs<T> {
    pub(crate) values: Vec<T>,
    /// In ascending order; the last is the number of rows.
    pub(crate) ends: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Decimal<'a, T: Value> {
    pub(crate) near: bool,
    /// One for each vector.
    pub(crate) digits: &'a [u8],
    pub(crate) integers: Node<'a, T>,
    pub(crate) exceptions: Exceptions<'a>,
}

#[derive(Debug)]
pub(crate) struct Split<'a, T: Value> {
    pub(crate) at: u32,
    pub(crate) rotated: bool,
    pub(crate) high: Node<'a, T>,
    pub(crate) low: Node<'a, T>,
}

/// What the first pass finds out.
pub(crate) struct Head<'a> {
    kind: Kind,
    rows: usize,
    /// The fields without `kind` and children.
    fields: &'a [u8],
    children: Vec<Head<'a>>,
}

fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], Malformed> {
    let (taken, rest) = bytes.split_at_checked(len).ok_or(Malformed("a code is cut off"))?;
    *bytes = rest;
    Ok(taken)
}

impl<'a> Head<'a> {
    /// Reads the fields of a node and all below it from the front of `bytes`.
    pub(crate) fn read(
        bytes: &mut &'a [u8],
        physical: Physical,
        rows: usize,
        above: Above,
    ) -> Result<Self, Malformed> {
        let kind = Kind::from_byte(take(bytes, 1)?[0]).filter(|kind| kind.suits(physical));
        let kind = kind.ok_or(Malformed("a node's kind is reserved, or not of its type"))?;
        if !above.permits(kind) {
            return Err(Malformed("a node is nested too deep, or in one of its own kind"));
        }
        let value_len = physical.bits().div_ceil(8) as usize;
        let len = match kind {
            Kind::Plain | Kind::Bits => 0,
            Kind::Constant => value_len,
            Kind::Packed | Kind::Line => 1 + value_len + 8 + 4,
            Kind::Dictionary | Kind::Runs => 4,
            Kind::Decimal => 1 + 4,
            Kind::Split => 2,
        };
        let fields = take(bytes, len)?;
        if physical == Physical::Boolean && kind == Kind::Constant && fields[0] > 1 {
            return Err(Malformed("a boolean is neither 0 nor 1"));
        }
        let above = above.with(kind);
        let mut child = |physical, rows| Self::read(bytes, physical, rows, above);
        let children = match kind {
            Kind::Dictionary => {
                let entries = u32::read(fields) as usize;
                if entries == 0 || entries > rows.min(MAX_ENTRIES) {
                    return Err(Malformed("a dictionary has too few or too many entries"));
                }
                vec![child(physical, entries)?, child(Physical::U32, rows)?]
            }
            Kind::Runs => {
                let runs = u32::read(fields) as usize;
                if runs == 0 || runs > rows / 2 {
                    return Err(Malformed("too few or too many runs"));
                }
                vec![child(physical, runs)?, child(Physical::U32, runs)?]
            }
            Kind::Decimal => vec![child(integers_of(physical), rows)?],
            Kind::Split => {
                let bits = unsigned_of(physical);
                vec![child(bits, rows)?, child(bits, rows)?]
            }
            _ => Vec::new(),
        };
        Ok(Self { kind, rows, fields, children })
    }
}

/// Signed integers of a type's width.
pub(crate) fn integers_of(physical: Physical) -> Physical {
    if physical.bits() == 32 { Physical::I32 } else { Physical::I64 }
}

/// Unsigned integers of a type's width, for widths up to 64.
pub(crate) fn unsigned_of(physical: Physical) -> Physical {
    match physical.bits() {
        8 => Physical::U8,
        16 => Physical::U16,
        32 => Physical::U32,
        _ => Physical::U64,
    }
}

/// Takes parts one after the other.
pub(crate) struct Parts<'a> {
    chunk: &'a [u8],
    at: usize,
}

impl<'a> Parts<'a> {
    /// Parts that follow a head of `head` bytes.
    pub(crate) fn new(chunk: &'a [u8], head: usize) -> Self {
        Self { chunk, at: head }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Malformed> {
        if len == 0 {
            return Ok(&[]);
        }
        let start = self.at.next_multiple_of(ALIGN);
        let rest = self.chunk.get(start..).unwrap_or(&[]);
        let part = rest.get(..len).ok_or(Malformed("a part is cut off"))?;
        self.at = start + len;
        Ok(part)
    }

    /// Checks that the chunk ends here.
    pub(crate) fn finish(self) -> Result<(), Malformed> {
        let ends = self.at == self.chunk.len();
        ends.then_some(()).ok_or(Malformed("a code is longer than its parts"))
    }

    fn exceptions<T: Value>(
        &mut self,
        words: u32,
        rows: usize,
    ) -> Result<Exceptions<'a>, Malformed> {
        if words == 0 {
            return Ok(Exceptions::default());
        }
        let starts = self.take(4 * (vectors(rows) + 1))?;
        Exceptions::new::<T>(starts, self.take(4 * words as usize)?, rows)
    }
}

impl<'a, T: Value> Node<'a, T> {
    /// Takes a node's parts, and checks them and all below it.
    pub(crate) fn build(
        head: &Head<'a>,
        order: Order,
        parts: &mut Parts<'a>,
        backend: Backend,
    ) -> Result<Self, Malformed> {
        let (rows, fields) = (head.rows, head.fields);
        let child = |i: usize| &head.children[i];
        Ok(match head.kind {
            Kind::Plain => Self::Plain(parts.take(rows * T::BYTES)?),
            Kind::Constant => Self::Constant(T::read(fields)),
            Kind::Bits => Self::Bits(parts.take(rows.div_ceil(8))?),
            Kind::Packed => {
                let packed = Packed::read(fields)?;
                let codes = parts.take(packed_len(rows, packed.width))?;
                let words = u32::read(&fields[fields.len() - 4..]);
                let exceptions = parts.exceptions::<T>(words, rows)?;
                Self::Packed(Packed { codes, exceptions, ..packed })
            }
            Kind::Line => {
                let packed = Packed::read(fields)?;
                if packed.width > 64 {
                    return Err(Malformed("a line's codes are too wide"));
                }
                let bases = parts.take(8 * vectors(rows))?.as_chunks().0;
                let slopes = parts.take(8 * vectors(rows))?.as_chunks().0;
                let is_steep =
                    |&slope| i64::from_le_bytes(slope).unsigned_abs() >= SLOPE_LIMIT as u64;
                if slopes.iter().any(is_steep) {
                    return Err(Malformed("a slope is too steep"));
                }
                let codes = parts.take(packed_len(rows, packed.width))?;
                let words = u32::read(&fields[fields.len() - 4..]);
                let exceptions = parts.exceptions::<T>(words, rows)?;
                Self::Line(Line { packed: Packed { codes, exceptions, ..packed }, bases, slopes })
            }
            Kind::Dictionary => {
                let entries = Self::build(child(0), order, parts, backend)?;
                let entries = entries.all(child(0).rows, backend);
                if !entries.is_sorted_by(|&a, &b| order.key(a) < order.key(b)) {
                    return Err(Malformed("a dictionary's entries are out of order"));
                }
                let codes = Node::build(child(1), Order::Unsigned, parts, backend)?;
                if !codes.are_below(entries.len() as u32, rows, backend) {
                    return Err(Malformed("a code is beyond its dictionary"));
                }
                Self::Dictionary(Box::new(Dictionary { entries, codes }))
            }
            Kind::Runs => {
                let values = Self::build(child(0), order, parts, backend)?;
                let ends = Node::<u32>::build(child(1), Order::Unsigned, parts, backend)?;
                let ends = ends.all(child(1).rows, backend);
                let is_sorted = ends.is_sorted_by(|a, b| a < b);
                if !is_sorted || ends.first() == Some(&0) || ends.last() != Some(&(rows as u32)) {
                    return Err(Malformed("ends of runs are out of order"));
                }
                // Only now have the ends earned memory for as many values.
                let values = values.all(child(0).rows, backend);
                Self::Runs(Runs { values, ends })
            }
            Kind::Decimal => {
                let near = match (fields[0], T::BITS) {
                    (0, _) => false,
                    (1, 64) => true,
                    _ => return Err(Malformed("a reserved value of decimal floats")),
                };
                let digits = parts.take(vectors(rows))?;
                let most = if T::BITS == 32 { 10 } else { 22 };
                if digits.iter().any(|&digits| digits > most) {
                    return Err(Malformed("decimal floats have too many digits"));
                }
                let exceptions = parts.exceptions::<T>(u32::read(&fields[1..]), rows)?;
                let integers = Self::build(child(0), Order::Signed, parts, backend)?;
                Self::Decimal(Box::new(Decimal { near, digits, integers, exceptions }))
            }
            Kind::Split => {
                let (at, rotated) = (u32::from(fields[0]), fields[1]);
                if at == 0 || at >= T::BITS || rotated > 1 {
                    return Err(Malformed("a reserved value of split floats"));
                }
                let high = Self::build(child(0), Order::Unsigned, parts, backend)?;
                let low = Self::build(child(1), Order::Unsigned, parts, backend)?;
                Self::Split(Box::new(Split { at, rotated: rotated == 1, high, low }))
            }
        })
    }

    /// The node's values.
    fn all(&self, rows: usize, backend: Backend) -> Vec<T> {
        if let Self::Plain(bytes) = self {
            return read_all(bytes);
        }
        // The lengths of the parts, or the contents that the caller expects, have earned this.
        let mut values = vec![T::default(); rows.next_multiple_of(VECTOR)];
        for (v, out) in values.as_chunks_mut::<VECTOR>().0.iter_mut().enumerate() {
            self.vector(v, out, backend);
        }
        values.truncate(rows);
        values
    }
}

impl<T: Value> Packed<'_, T> {
    /// The fields, without codes and exceptions.
    fn read(fields: &[u8]) -> Result<Self, Malformed> {
        let width = u32::from(fields[0]);
        let reference = T::read(&fields[1..]);
        let factor = u64::read(&fields[1 + T::BYTES..]);
        if width > T::BITS || factor != 1 && width > 64 {
            return Err(Malformed("codes are too wide"));
        }
        if factor == 0 || T::BITS < 64 && factor >> T::BITS != 0 {
            return Err(Malformed("a factor is out of range"));
        }
        let exceptions = Exceptions::default();
        Ok(Self { width, reference, factor, codes: &[], exceptions })
    }
}

impl Node<'_, u32> {
    /// Whether all values are less than `bound`.
    fn are_below(&self, bound: u32, rows: usize, backend: Backend) -> bool {
        match self {
            Self::Constant(value) => return *value < bound,
            Self::Runs(runs) => return runs.values.iter().all(|&value| value < bound),
            Self::Packed(packed) if packed.is_plain_below(bound) => return true,
            _ => {}
        }
        let mut codes = [0; VECTOR];
        (0..vectors(rows)).all(|v| {
            self.vector(v, &mut codes, backend);
            let rows = VECTOR.min(rows - v * VECTOR);
            super::decode::max(&codes[..rows], backend) < bound
        })
    }
}

impl Packed<'_, u32> {
    /// Whether the width alone says that all values are less than `bound`.
    fn is_plain_below(&self, bound: u32) -> bool {
        let most = (1_u64 << self.width) - 1;
        self.factor == 1
            && most + u64::from(self.reference) < bound.into()
            && self.exceptions.is_none()
    }
}
