//! A chunk's code, checked and ready to be read.

use super::spec::*;
use super::tree::{Head, Node, Parts};
use super::value::{U256, Value};
use crate::codec::Malformed;
use crate::codec::lanes::Backend;
use std::borrow::Cow;

/// The code of a chunk, of which every rule of the format has been checked.
#[derive(Debug)]
pub struct Chunk<'a> {
    physical: Physical,
    rows: usize,
    pub(crate) validity: Validity<'a>,
    /// `None` if all rows are null.
    pub(crate) values: Option<Values<'a>>,
    pub(crate) backend: Backend,
}

/// Which rows are null.
#[derive(Debug)]
pub(crate) enum Validity<'a> {
    /// None.
    Valid,
    /// All.
    Null,
    /// Those whose bit is 0.
    Bitmap { bits: Cow<'a, [u8]>, nulls: usize },
}

/// The root of the values.
#[derive(Debug)]
pub(crate) enum Values<'a> {
    W8(Node<'a, u8>),
    W16(Node<'a, u16>),
    W32(Node<'a, u32>),
    W64(Node<'a, u64>),
    W128(Node<'a, u128>),
    W256(Node<'a, U256>),
}

/// Evaluates an expression with the root as `$node`, whatever its type.
macro_rules! with_node {
    ($values:expr, $node:ident => $call:expr) => {
        match $values {
            Values::W8($node) => $call,
            Values::W16($node) => $call,
            Values::W32($node) => $call,
            Values::W64($node) => $call,
            Values::W128($node) => $call,
            Values::W256($node) => $call,
        }
    };
}

impl<'a> Chunk<'a> {
    /// Checks the code of `rows` rows of the type. It takes time in proportion to the code's length and the rows, and
    /// memory as `CODES.md` says.
    ///
    /// # Errors
    /// The first rule of the format that `bytes` breaks.
    pub fn open(physical: Physical, rows: usize, bytes: &'a [u8]) -> Result<Self, Malformed> {
        Self::open_on(Backend::detect(), physical, rows, bytes)
    }

    pub(crate) fn open_on(
        backend: Backend,
        physical: Physical,
        rows: usize,
        bytes: &'a [u8],
    ) -> Result<Self, Malformed> {
        if rows == 0 || rows > MAX_ROWS {
            return Err(Malformed("a chunk has too few or too many rows"));
        }
        let (&form, mut rest) = bytes.split_first().ok_or(Malformed("a code is cut off"))?;
        let root = Above::default();
        let mut nulls = None;
        if form == 2 {
            let (count, after) = rest.split_first_chunk().ok_or(Malformed("a code is cut off"))?;
            rest = after;
            nulls = Some((
                u32::from_le_bytes(*count) as usize,
                Head::read(&mut rest, Physical::Boolean, rows, root)?,
            ));
        } else if form > 2 {
            return Err(Malformed("a reserved kind of validity"));
        }
        let head = match form {
            1 => None,
            _ => Some(Head::read(&mut rest, physical, rows, root)?),
        };
        let mut parts = Parts::new(bytes, bytes.len() - rest.len());
        let validity = match nulls {
            Some((nulls, head)) => {
                let node = Node::build(&head, Order::Unsigned, &mut parts, backend)?;
                let bits = bitmap(&node, rows, backend);
                let valid: usize = bits.iter().map(|byte| byte.count_ones() as usize).sum();
                if nulls == 0 || nulls == rows || nulls + valid != rows {
                    return Err(Malformed("the number of null rows is another"));
                }
                Validity::Bitmap { bits, nulls }
            }
            None if form == 1 => Validity::Null,
            None => Validity::Valid,
        };
        let order = physical.order();
        let values = head.map(|head| -> Result<_, Malformed> {
            Ok(match physical.bits() {
                1 | 8 => Values::W8(Node::build(&head, order, &mut parts, backend)?),
                16 => Values::W16(Node::build(&head, order, &mut parts, backend)?),
                32 => Values::W32(Node::build(&head, order, &mut parts, backend)?),
                64 => Values::W64(Node::build(&head, order, &mut parts, backend)?),
                128 => Values::W128(Node::build(&head, order, &mut parts, backend)?),
                _ => Values::W256(Node::build(&head, order, &mut parts, backend)?),
            })
        });
        let values = values.transpose()?;
        parts.finish()?;
        Ok(Self { physical, rows, validity, values, backend })
    }

    /// The type of the values.
    pub fn physical(&self) -> Physical {
        self.physical
    }

    /// How many rows the chunk has.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// How many of them are null.
    pub fn nulls(&self) -> usize {
        match &self.validity {
            Validity::Valid => 0,
            Validity::Null => self.rows,
            Validity::Bitmap { nulls, .. } => *nulls,
        }
    }

    /// The bits that codes take, if the values are packed in one width below whatever stands above them.
    pub fn width(&self) -> Option<u32> {
        self.values.as_ref().and_then(|values| with_node!(values, node => node.width()))
    }

    /// Writes the bitmap of rows that are not null: bit m mod 8 of byte m / 8 is 1 if row m is not.
    ///
    /// # Panics
    /// If `out` does not have `rows` bits, rounded up to bytes.
    pub fn validity(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.rows.div_ceil(8));
        match &self.validity {
            Validity::Valid => {
                out.fill(u8::MAX);
                clear_rest(out, self.rows);
            }
            Validity::Null => out.fill(0),
            Validity::Bitmap { bits, .. } => out.copy_from_slice(bits),
        }
    }

    /// Decodes all values to a buffer as Arrow has it: little-endian, one after another; a bitmap if they are booleans.
    /// It is fastest if the buffer is aligned to its values.
    ///
    /// # Panics
    /// If `out` has not the length of [`Physical::buffer_len`].
    pub fn decode(&self, out: &mut [u8]) {
        assert_eq!(out.len(), self.physical.buffer_len(self.rows));
        let Some(values) = &self.values else { return out.fill(0) };
        match values {
            Values::W8(node) if self.physical == Physical::Boolean => {
                out.copy_from_slice(&bitmap(node, self.rows, self.backend));
                if let Validity::Bitmap { bits, .. } = &self.validity {
                    out.iter_mut().zip(bits.iter()).for_each(|(out, bits)| *out &= bits);
                }
            }
            _ => with_node!(values, node => self.decode_values(node, out)),
        }
    }

    fn decode_values<T: Value>(&self, node: &Node<'_, T>, out: &mut [u8]) {
        if let Node::Plain(bytes) = node {
            out.copy_from_slice(bytes);
        }
        for (v, out) in out.chunks_mut(VECTOR * T::BYTES).enumerate() {
            let rows = out.len() / T::BYTES;
            if !matches!(node, Node::Plain(_)) {
                let typed = bytemuck::try_cast_slice_mut::<u8, T>(out).ok();
                match typed.and_then(|out| out.first_chunk_mut::<VECTOR>()) {
                    Some(out) if cfg!(target_endian = "little") => {
                        node.vector(v, out, self.backend);
                    }
                    _ => {
                        let mut values = [T::default(); VECTOR];
                        node.vector(v, &mut values, self.backend);
                        write_values(&values[..rows], out);
                    }
                }
            }
            if let Validity::Bitmap { bits, .. } = &self.validity {
                clear_nulls::<T>(&bits[v * VECTOR / 8..], out);
            }
        }
    }

    /// Calls `act` with the number of each vector and its values, null rows included, which have any value.
    pub(crate) fn each_vector<T: Value>(
        &self,
        node: &Node<'_, T>,
        mut act: impl FnMut(usize, &[T]),
    ) {
        let mut values = [T::default(); VECTOR];
        for v in 0..vectors(self.rows) {
            node.vector(v, &mut values, self.backend);
            act(v, &values[..VECTOR.min(self.rows - v * VECTOR)]);
        }
    }
}

impl<T: Value> Node<'_, T> {
    fn width(&self) -> Option<u32> {
        match self {
            Self::Packed(packed) => Some(packed.width),
            Self::Line(line) => Some(line.packed.width),
            Self::Dictionary(dictionary) => dictionary.codes.width(),
            Self::Decimal(decimal) => decimal.integers.width(),
            _ => None,
        }
    }
}

/// Writes values little-endian.
fn write_values<T: Value>(values: &[T], out: &mut [u8]) {
    if cfg!(target_endian = "little") {
        out.copy_from_slice(bytemuck::cast_slice(values));
    } else {
        let mut bytes = Vec::with_capacity(out.len());
        values.iter().for_each(|value| value.append(&mut bytes));
        out.copy_from_slice(&bytes);
    }
}

/// Puts 0 where a bit is 0.
fn clear_nulls<T: Value>(bits: &[u8], out: &mut [u8]) {
    for (&bits, out) in bits.iter().zip(out.chunks_mut(8 * T::BYTES)) {
        match bits {
            u8::MAX => {}
            0 => out.fill(0),
            _ => {
                for (i, out) in out.chunks_exact_mut(T::BYTES).enumerate() {
                    let keep = (bits >> i & 1).wrapping_neg();
                    out.iter_mut().for_each(|byte| *byte &= keep);
                }
            }
        }
    }
}

/// Puts 0 in the bits of the last byte that belong to no row.
fn clear_rest(bits: &mut [u8], rows: usize) {
    if let Some(last) = bits.last_mut().filter(|_| !rows.is_multiple_of(8)) {
        *last &= (1 << (rows % 8)) - 1;
    }
}

/// The bitmap of a node of booleans.
fn bitmap<'a>(node: &Node<'a, u8>, rows: usize, backend: Backend) -> Cow<'a, [u8]> {
    match node {
        Node::Bits(bytes) if rows.is_multiple_of(8) => Cow::Borrowed(bytes),
        Node::Bits(bytes) => {
            let mut bits = bytes.to_vec();
            clear_rest(&mut bits, rows);
            Cow::Owned(bits)
        }
        _ => {
            let mut bits = Vec::with_capacity(rows.next_multiple_of(VECTOR) / 8);
            let mut values = [0; VECTOR];
            for v in 0..vectors(rows) {
                node.vector(v, &mut values, backend);
                bits.extend(values.as_chunks::<8>().0.iter().map(pack_bits));
            }
            bits.truncate(rows.div_ceil(8));
            clear_rest(&mut bits, rows);
            Cow::Owned(bits)
        }
    }
}

/// Eight booleans as a byte.
fn pack_bits(values: &[u8; 8]) -> u8 {
    // The product has bit i of the factor's eighth byte from value i; no sum carries.
    (u64::from_le_bytes(*values).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8
}
