//! What a query needs to know of a chunk without reading it.

use super::encode::Column;
use super::spec::*;
use super::value::Value;

/// A chunk's zone map: bounds, nulls, NaNs, and a sum where it is exact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZoneMap {
    physical: Physical,
    /// How many rows are null.
    pub nulls: u32,
    /// Whether a row is NaN. Then no bound holds for all rows.
    pub has_nan: bool,
    /// The least and the greatest value that is neither null nor NaN, little-endian in the type's bytes.
    bounds: Option<[Vec<u8>; 2]>,
    /// The sum of all rows that are not null; `None` for floats, and where it exceeds 128 bits.
    pub sum: Option<i128>,
}

const HAS_BOUNDS: u8 = 1;
const HAS_NAN: u8 = 2;
const HAS_SUM: u8 = 4;

impl ZoneMap {
    /// The zone map of a column.
    pub fn of(column: &Column<'_>) -> Self {
        with_value!(column.physical(), T => Self::of_values(column, &column.read::<T>()))
    }

    fn of_values<T: Value>(column: &Column<'_>, values: &[T]) -> Self {
        let physical = column.physical();
        let (order, mut nulls, mut has_nan) = (physical.order(), 0, false);
        let mut keys: Option<(T, T)> = None;
        let mut sum = (order != Order::Float).then_some(0_i128);
        let is_nan = |value: T| {
            physical.fraction_bits().is_some_and(|fraction| {
                // A NaN's bits without its sign are greater than those of infinity.
                value.shl(1).shr(1) > T::ONES.shl(fraction + 1).shr(1)
            })
        };
        for (row, &value) in values.iter().enumerate() {
            if !column.is_valid(row) {
                nulls += 1;
                continue;
            }
            sum = sum.and_then(|sum| sum.checked_add(number(value, order)?));
            if is_nan(value) {
                has_nan = true;
                continue;
            }
            let key = order.key(value);
            keys = Some(keys.map_or((key, key), |(low, high)| (low.min(key), high.max(key))));
        }
        let bytes = |key: T| {
            let mut bytes = Vec::new();
            order.value(key).append(&mut bytes);
            bytes
        };
        let bounds = keys.map(|(low, high)| [bytes(low), bytes(high)]);
        Self { physical, nulls, has_nan, bounds, sum }
    }

    /// The least value that is neither null nor NaN, little-endian; `None` if there is none.
    pub fn min(&self) -> Option<&[u8]> {
        self.bounds.as_ref().map(|[min, _]| &**min)
    }

    /// The greatest value that is neither null nor NaN, little-endian; `None` if there is none.
    pub fn max(&self) -> Option<&[u8]> {
        self.bounds.as_ref().map(|[_, max]| &**max)
    }

    /// Appends the map as the format has it.
    pub fn append(&self, out: &mut Vec<u8>) {
        let flag = |is_set: bool, flag| if is_set { flag } else { 0 };
        out.push(
            flag(self.bounds.is_some(), HAS_BOUNDS)
                | flag(self.has_nan, HAS_NAN)
                | flag(self.sum.is_some(), HAS_SUM),
        );
        out.extend_from_slice(&self.nulls.to_le_bytes());
        match &self.bounds {
            Some(bounds) => bounds.iter().for_each(|bound| out.extend_from_slice(bound)),
            None => out.resize(out.len() + 2 * value_len(self.physical), 0),
        }
        out.extend_from_slice(&self.sum.unwrap_or(0).to_le_bytes());
    }

    /// How many bytes a map of this type takes.
    pub fn len(physical: Physical) -> usize {
        1 + 4 + 2 * value_len(physical) + 16
    }

    /// Reads a map of `rows` rows; `None` if it breaks a rule of the format.
    pub fn read(physical: Physical, rows: usize, bytes: &[u8]) -> Option<Self> {
        let bytes = bytes.get(..Self::len(physical))?;
        let (flags, rest) = bytes.split_first()?;
        let (nulls, rest) = rest.split_first_chunk()?;
        let (bounds, sum) = rest.split_last_chunk()?;
        let (nulls, sum) = (u32::from_le_bytes(*nulls), i128::from_le_bytes(*sum));
        let (min, max) = bounds.split_at(value_len(physical));
        let has_bounds = flags & HAS_BOUNDS != 0;
        let order = physical.order();
        let is_ordered = with_value!(physical, T => {
            order.key(T::read(min)) <= order.key(T::read(max))
        });
        let is_float = order == Order::Float;
        let is_right = flags >> 3 == 0
            && nulls as usize <= rows
            && (!has_bounds || is_ordered && (nulls as usize) < rows)
            && (has_bounds || bounds.iter().all(|&byte| byte == 0))
            && (is_float || flags & HAS_NAN == 0)
            && (flags & HAS_SUM == 0 || !is_float)
            && (flags & HAS_SUM != 0 || sum == 0);
        is_right.then(|| Self {
            physical,
            nulls,
            has_nan: flags & HAS_NAN != 0,
            bounds: has_bounds.then(|| [min.to_vec(), max.to_vec()]),
            sum: (flags & HAS_SUM != 0).then_some(sum),
        })
    }
}

fn value_len(physical: Physical) -> usize {
    physical.bits().div_ceil(8) as usize
}

/// An integer's value; `None` if it does not fit.
fn number<T: Value>(value: T, order: Order) -> Option<i128> {
    let wide = |value: T| {
        let high = if T::BITS > 64 { value.shr(64).low() } else { 0 };
        u128::from(high) << 64 | u128::from(value.low())
    };
    let is_negative = order == Order::Signed && value.and(T::TOP) != T::default();
    let magnitude = if is_negative { T::default().sub(value) } else { value };
    if magnitude.bit_len() > 127 {
        return None;
    }
    Some(if is_negative { -(wide(magnitude) as i128) } else { wide(magnitude) as i128 })
}
