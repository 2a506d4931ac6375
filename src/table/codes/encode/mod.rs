//! Chooses codes for columns and writes them.
//!
//! A code is chosen on a sample of whole vectors, whose places depend on the number of rows alone, so the bytes depend
//! only on the column and the [`Plan`]. Every kind that may pay is written for the sample, with the best codes of its
//! children, and the one with the least [cost](recipe) wins.
//!
//! | module | |
//! |---|---|
//! | `recipe` | which kinds stand where, and what a code costs |
//! | `choose` | finds the kind of a node |
//! | `tree` | writes nodes with children |
//! | `packed` | writes packed integers |
//! | `line` | writes lines |
//! | `floats` | turns floats into integers |
//! | `distinct` | finds distinct values and runs |
//! | `divisor` | divides by common factors |

mod choose;
mod distinct;
mod divisor;
mod floats;
mod line;
mod packed;
pub(super) mod recipe;
mod tree;

use super::spec::*;
use super::value::{Value, read_all};
use crate::codec::lanes::Backend;
use recipe::Recipe;
use std::borrow::Cow;

/// A column's values in a batch of rows, as Arrow's buffers have them.
#[derive(Debug, Clone, Copy)]
pub struct Column<'a> {
    physical: Physical,
    rows: usize,
    values: &'a [u8],
    validity: Option<&'a [u8]>,
}

impl<'a> Column<'a> {
    /// A column of `rows` values, little-endian and one after another, or a bitmap if they are booleans. In `validity`,
    /// bit m mod 8 of byte m / 8 is 0 if row m is null; `None` if no row is.
    ///
    /// `None` if there are no rows or more than [`MAX_ROWS`], or if a buffer is too short. Further bytes are ignored.
    pub fn new(
        physical: Physical,
        rows: usize,
        values: &'a [u8],
        validity: Option<&'a [u8]>,
    ) -> Option<Self> {
        let values = values.get(..physical.buffer_len(rows))?;
        let validity = match validity {
            Some(bits) => Some(bits.get(..rows.div_ceil(8))?),
            None => None,
        };
        (1..=MAX_ROWS).contains(&rows).then_some(Self { physical, rows, values, validity })
    }

    pub(crate) fn physical(&self) -> Physical {
        self.physical
    }

    #[cfg(test)]
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn is_valid(&self, row: usize) -> bool {
        self.validity.is_none_or(|bits| bits[row / 8] >> (row % 8) & 1 == 1)
    }

    /// The values, booleans as 0 and 1.
    pub(crate) fn read<T: Value>(&self) -> Cow<'a, [T]> {
        if self.physical == Physical::Boolean {
            let bit = |row: usize| self.values[row / 8] >> (row % 8) & 1;
            return (0..self.rows).map(|row| T::from_u64(bit(row).into())).collect();
        }
        match bytemuck::try_cast_slice(self.values) {
            Ok(values) if cfg!(target_endian = "little") => Cow::Borrowed(values),
            _ => Cow::Owned(read_all(self.values)),
        }
    }

    fn nulls(&self) -> usize {
        let is_null = |&row: &usize| !self.is_valid(row);
        self.validity.map_or(0, |_| (0..self.rows).filter(is_null).count())
    }
}

/// Which code a column has: what is chosen once for all chunks of a column, so that one kernel reads all.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Plan {
    recipe: Recipe,
    width: Option<u32>,
}

impl Plan {
    /// The same code with packed codes of `width` bits, so that chunks of a column have one width. A chunk that needs
    /// more bits gets them all the same.
    pub fn with_width(self, width: u32) -> Self {
        Self { width: Some(width), ..self }
    }
}

/// A chunk's code, and the plan that it followed.
#[derive(Debug, Clone)]
pub struct Encoded {
    /// The code, for [`Chunk::open`](super::Chunk::open).
    pub bytes: Vec<u8>,
    /// What was chosen, to be given for the column's next chunks. `None` if all rows are null.
    pub plan: Option<Plan>,
}

/// Encodes a column. Follows `plan`, if one is given and the column permits it, else chooses a code.
pub fn encode(column: &Column<'_>, plan: Option<&Plan>) -> Encoded {
    encode_on(Backend::detect(), column, plan)
}

pub(crate) fn encode_on(backend: Backend, column: &Column<'_>, plan: Option<&Plan>) -> Encoded {
    let nulls = column.nulls();
    if nulls == column.rows {
        return Encoded { bytes: vec![1], plan: None };
    }
    let mut chunk = Coded { head: vec![if nulls == 0 { 0 } else { 2 }], ..Coded::default() };
    if nulls > 0 {
        let valid: Vec<u8> = (0..column.rows).map(|row| column.is_valid(row).into()).collect();
        chunk.head.extend_from_slice(&(nulls as u32).to_le_bytes());
        chunk.append(tree::booleans(&valid, backend).0);
    }
    let (values, recipe) = with_value!(column.physical, T => {
        let mut values = column.read::<T>();
        if nulls > 0 {
            fill_nulls(values.to_mut(), column);
        }
        values_of(&values, column.physical, plan, backend)
    });
    chunk.append(values);
    let width = plan.and_then(|plan| plan.width);
    Encoded { bytes: chunk.into_bytes(), plan: Some(Plan { recipe, width }) }
}

fn values_of<T: Value>(
    values: &[T],
    physical: Physical,
    plan: Option<&Plan>,
    backend: Backend,
) -> (Coded, Recipe) {
    if physical == Physical::Boolean {
        let bytes: Vec<u8> = values.iter().map(|value| value.low() as u8).collect();
        return tree::booleans(&bytes, backend);
    }
    let writer = tree::Writer { backend, width: plan.and_then(|plan| plan.width) };
    let order = physical.order();
    match plan.and_then(|plan| writer.build(&plan.recipe, values, order)) {
        Some(found) => found,
        None => writer.best(values, order, Above::default()),
    }
}

/// Gives null rows the value before them, which costs the least in any code; the first valid one if there is none.
fn fill_nulls<T: Value>(values: &mut [T], column: &Column<'_>) {
    let first = (0..column.rows).find(|&row| column.is_valid(row)).unwrap_or(0);
    let mut last = values[first];
    for (row, value) in values.iter_mut().enumerate() {
        if column.is_valid(row) {
            last = *value;
        } else {
            *value = last;
        }
    }
}

/// The written form of a node and all below it.
#[derive(Debug, Clone, Default)]
pub(super) struct Coded {
    head: Vec<u8>,
    parts: Vec<Vec<u8>>,
    /// Picoseconds that decoding takes.
    time: u64,
}

impl Coded {
    /// A node of `rows` rows that is no run.
    fn leaf(kind: Kind, fields: &[&[u8]], parts: Vec<Vec<u8>>, rows: usize) -> Self {
        let head = [&[kind as u8], fields.concat().as_slice()].concat();
        Self { head, parts, time: recipe::node_time(kind, rows, 0) }
    }

    /// What the code costs, in picoseconds.
    fn cost(&self) -> u64 {
        recipe::cost(self.len(), self.time)
    }

    /// Puts a node behind this one.
    fn append(&mut self, child: Self) {
        self.head.extend(child.head);
        self.parts.extend(child.parts);
        self.time += child.time;
    }

    /// Bytes of fields and parts, without what aligns parts.
    fn len(&self) -> usize {
        self.head.len() + self.parts.iter().map(Vec::len).sum::<usize>()
    }

    fn into_bytes(self) -> Vec<u8> {
        let mut bytes = self.head;
        for part in self.parts.iter().filter(|part| !part.is_empty()) {
            bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
            bytes.extend_from_slice(part);
        }
        bytes
    }
}

/// Vectors of a sample.
const SAMPLE: usize = 16;

/// A sample: one vector of each sixteenth of the values, or all of them if they are few.
fn sample<T: Value>(values: &[T]) -> Cow<'_, [T]> {
    let whole = values.len() / VECTOR;
    if whole < 2 * SAMPLE {
        return Cow::Borrowed(values);
    }
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut sampled = Vec::with_capacity(SAMPLE * VECTOR);
    for i in 0..SAMPLE {
        let (start, end) = (whole * i / SAMPLE, whole * (i + 1) / SAMPLE);
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let vector = start + (state >> 33) as usize % (end - start);
        sampled.extend_from_slice(&values[vector * VECTOR..][..VECTOR]);
    }
    Cow::Owned(sampled)
}
