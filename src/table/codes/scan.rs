//! Sums with a filter, on codes as they are.
//!
//! A range of values becomes a range of codes, so packed codes are compared and summed without being turned into
//! values; a run is one comparison and one product.

use super::chunk::{Chunk, Validity, Values};
use super::lanes::{Plane, unpack};
use super::spec::*;
use super::tree::{Dictionary, Node, Packed, Runs};
use super::value::Value;
use crate::codec::lanes::{Backend, Kernel, Vector};
use std::ops::RangeInclusive;

/// How many rows a filter lets pass, and the sum of their values.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sum {
    /// Rows that are not null and lie in the range.
    pub rows: u64,
    /// The sum of their values, exact.
    pub sum: i128,
}

impl Sum {
    fn add(&mut self, value: i128, times: i64) {
        self.rows = self.rows.wrapping_add_signed(times);
        self.sum += value * i128::from(times);
    }
}

impl Chunk<'_> {
    /// Counts and sums the rows whose values lie in `range`. `None` unless the type is an integer of at most 64 bits.
    pub fn sum(&self, range: RangeInclusive<i128>) -> Option<Sum> {
        let is_integer = matches!(self.physical().bits(), 8 | 16 | 32 | 64)
            && self.physical().order() != Order::Float;
        if !is_integer {
            return None;
        }
        Some(match &self.values {
            None => Sum::default(),
            Some(Values::W8(node)) => self.sum_of(node, &range),
            Some(Values::W16(node)) => self.sum_of(node, &range),
            Some(Values::W32(node)) => self.sum_of(node, &range),
            Some(Values::W64(node)) => self.sum_of(node, &range),
            Some(_) => return None,
        })
    }

    fn sum_of<T: Value>(&self, node: &Node<'_, T>, range: &RangeInclusive<i128>) -> Sum {
        let number = Number::<T>::of(self.physical().order());
        match (node, &self.validity) {
            (Node::Constant(value), _) => {
                let mut sum = Sum::default();
                if range.contains(&number.value(*value)) {
                    sum.add(number.value(*value), (self.rows() - self.nulls()) as i64);
                }
                sum
            }
            (Node::Runs(runs), Validity::Valid) => runs.sum(number, range),
            (Node::Packed(packed), Validity::Valid) if packed.is_ordered(number) => {
                packed.sum(number, range, self.rows(), self.backend)
            }
            (Node::Dictionary(dictionary), Validity::Valid) => {
                dictionary.sum(number, range, self.rows(), self.backend)
            }
            _ => self.sum_decoded(node, number, range),
        }
    }

    /// The same for any code, by way of its values.
    fn sum_decoded<T: Value>(
        &self,
        node: &Node<'_, T>,
        number: Number<T>,
        range: &RangeInclusive<i128>,
    ) -> Sum {
        let mut total = Sum::default();
        let Some((low, high)) = number.keys(range) else { return total };
        self.each_vector(node, |v, values| {
            let valid = match &self.validity {
                Validity::Bitmap { bits, .. } => Some(&bits[v * VECTOR / 8..]),
                _ => None,
            };
            let filter = Filter { values, valid, low, span: high.sub(low), number };
            let (rows, keys) = self.backend.run(filter);
            total.rows += rows;
            total.sum += keys as i128 - i128::from(rows) * number.offset();
        });
        total
    }
}

/// Integers of a type as numbers: keys, in their order, less an offset.
#[derive(Debug, Clone, Copy)]
struct Number<T> {
    order: Order,
    top: T,
}

impl<T: Value> Number<T> {
    fn of(order: Order) -> Self {
        Self { order, top: if order == Order::Signed { T::TOP } else { T::default() } }
    }

    /// The key of the number 0.
    fn offset(self) -> i128 {
        self.top.low().into()
    }

    fn value(self, value: T) -> i128 {
        i128::from(self.order.key(value).low()) - self.offset()
    }

    /// The keys that a range has; `None` if it has none.
    fn keys(self, range: &RangeInclusive<i128>) -> Option<(T, T)> {
        let most = i128::from(T::ONES.low());
        let low = range.start().saturating_add(self.offset()).max(0);
        let high = range.end().saturating_add(self.offset()).min(most);
        (low <= high).then(|| (T::from_u64(low as u64), T::from_u64(high as u64)))
    }
}

/// Counts values whose keys are in a range, and sums the keys.
struct Filter<'a, T> {
    values: &'a [T],
    valid: Option<&'a [u8]>,
    low: T,
    /// The range's last key less its first.
    span: T,
    number: Number<T>,
}

impl<T: Value> Filter<'_, T> {
    /// Halves of the key if it passes, and whether it does.
    #[inline(always)]
    fn one(&self, value: T, valid: u64) -> [u64; 3] {
        let key = value.xor(self.number.top);
        let passes = u64::from(key.sub(self.low) <= self.span) & valid;
        let key = key.low() & passes.wrapping_neg();
        [key & u64::from(u32::MAX), key >> 32, passes]
    }
}

impl<T: Value> Kernel for Filter<'_, T> {
    type Output = (u64, u128);

    #[inline(always)]
    fn run<V: Vector>(self) -> (u64, u128) {
        let mut sums = [0; 3];
        let mut add = |one: [u64; 3]| {
            sums.iter_mut().zip(one).for_each(|(sum, one)| *sum += one);
        };
        match self.valid {
            None => self.values.iter().for_each(|&value| add(self.one(value, 1))),
            Some(bits) => {
                for (row, &value) in self.values.iter().enumerate() {
                    add(self.one(value, (bits[row / 8] >> (row % 8) & 1).into()));
                }
            }
        }
        let [lows, highs, rows] = sums;
        (rows, (u128::from(highs) << 32) + u128::from(lows))
    }
}

impl<T: Value> Runs<T> {
    fn sum(&self, number: Number<T>, range: &RangeInclusive<i128>) -> Sum {
        let (mut sum, mut start) = (Sum::default(), 0);
        for (&value, &end) in self.values.iter().zip(&self.ends) {
            let value = number.value(value);
            if range.contains(&value) {
                sum.add(value, i64::from(end - start));
            }
            start = end;
        }
        sum
    }
}

impl<T: Value> Dictionary<'_, T> {
    fn sum(
        &self,
        number: Number<T>,
        range: &RangeInclusive<i128>,
        rows: usize,
        backend: Backend,
    ) -> Sum {
        // Entries are in order, so the range is one of codes.
        let first = self.entries.partition_point(|&entry| number.value(entry) < *range.start());
        let end = self.entries.partition_point(|&entry| number.value(entry) <= *range.end());
        let mut counts = vec![0_u64; self.entries.len()];
        let mut codes = [0; VECTOR];
        if first < end {
            if let Node::Runs(runs) = &self.codes {
                let mut start = 0;
                for (&code, &end) in runs.values.iter().zip(&runs.ends) {
                    counts[code as usize] += u64::from(end - start);
                    start = end;
                }
            } else {
                for v in 0..vectors(rows) {
                    self.codes.vector(v, &mut codes, backend);
                    let codes = &codes[..VECTOR.min(rows - v * VECTOR)];
                    if end - first <= FEW {
                        for (code, count) in counts.iter_mut().enumerate().take(end).skip(first) {
                            *count += backend.run(Count { codes, code: code as u32 });
                        }
                    } else {
                        codes.iter().for_each(|&code| counts[code as usize] += 1);
                    }
                }
            }
        }
        let mut sum = Sum::default();
        for (&entry, &count) in self.entries.iter().zip(&counts).take(end).skip(first) {
            sum.add(number.value(entry), count as i64);
        }
        sum
    }
}

/// Entries that are counted one after the other, by vector instructions.
const FEW: usize = 12;

/// Counts the rows that have a code.
struct Count<'a> {
    codes: &'a [u32],
    code: u32,
}

impl Kernel for Count<'_> {
    type Output = u64;

    #[inline(always)]
    fn run<V: Vector>(self) -> u64 {
        let count: u32 = self.codes.iter().map(|&code| u32::from(code == self.code)).sum();
        count.into()
    }
}

impl<T: Value> Packed<'_, T> {
    /// Whether all codes of this width, at most 32 bits, are in the order of their values.
    fn is_ordered(&self, number: Number<T>) -> bool {
        let most = (1_u128 << self.width) - 1;
        let key = u128::from(number.order.key(self.reference).low());
        self.width <= 32 && key + most * u128::from(self.factor) <= u128::from(T::ONES.low())
    }

    fn value_of(&self, code: u64, number: Number<T>) -> i128 {
        number.value(self.reference) + i128::from(code) * i128::from(self.factor)
    }

    /// The codes that a range has: the first, and how many more.
    fn codes_of(&self, range: &RangeInclusive<i128>, number: Number<T>) -> Option<(u32, u32)> {
        let reference = number.value(self.reference);
        let factor = i128::from(self.factor);
        let most = (1_i128 << self.width) - 1;
        let above = |bound: i128| bound.saturating_sub(reference);
        let low = above(*range.start()).max(0);
        let low = low / factor + i128::from(low % factor != 0);
        let high = above(*range.end()).div_euclid(factor).min(most);
        (low <= high).then_some((low as u32, (high - low) as u32))
    }

    fn sum(
        &self,
        number: Number<T>,
        range: &RangeInclusive<i128>,
        rows: usize,
        backend: Backend,
    ) -> Sum {
        let found = self.codes_of(range, number);
        let (mut count, mut codes) = (0, 0_u128);
        let mut total = Sum::default();
        let mut plane = [0; VECTOR];
        for v in 0..vectors(rows) {
            let here = VECTOR.min(rows - v * VECTOR);
            if let Some((low, span)) = found {
                if self.width > 0 {
                    let at = v * VECTOR / 8 * self.width as usize;
                    unpack(backend, &self.codes[at..], self.width, &mut plane);
                }
                let (rows, sum) = if here == VECTOR {
                    backend.run(SumCodes { plane: &plane, low, span })
                } else {
                    let passes = |code: &&u32| code.wrapping_sub(low) <= span;
                    let codes = plane[..here].iter().filter(passes);
                    (codes.clone().count() as u64, codes.map(|&code| u64::from(code)).sum())
                };
                count += rows;
                codes += u128::from(sum);
            }
            // What an exception's code added is taken back.
            self.exceptions.each(v, |row, value| {
                let code = plane[row % VECTOR];
                if let Some((low, span)) = found
                    && code.wrapping_sub(low) <= span
                {
                    total.add(self.value_of(code.into(), number), -1);
                }
                let value = number.value(value);
                if range.contains(&value) {
                    total.add(value, 1);
                }
            });
        }
        total.rows = total.rows.wrapping_add(count);
        total.sum += i128::from(count) * number.value(self.reference);
        total.sum += codes as i128 * i128::from(self.factor);
        total
    }
}

/// Counts the codes of a vector that are in a range, and sums them.
struct SumCodes<'a> {
    plane: &'a Plane,
    low: u32,
    span: u32,
}

impl Kernel for SumCodes<'_> {
    type Output = (u64, u64);

    #[inline(always)]
    fn run<V: Vector>(self) -> (u64, u64) {
        let Self { plane, low, span } = self;
        let (mut rows, mut lows, mut highs) = ([0_u32; LANES], [0_u32; LANES], [0_u32; LANES]);
        // A lane's 32 codes, or halves of them, add up to less than 2^32.
        if low.saturating_add(span) < 1 << 27 {
            for step in plane.as_chunks::<LANES>().0 {
                for (lane, &code) in step.iter().enumerate() {
                    let passes = u32::from(code.wrapping_sub(low) <= span);
                    rows[lane] += passes;
                    lows[lane] += code & passes.wrapping_neg();
                }
            }
        } else {
            for step in plane.as_chunks::<LANES>().0 {
                for (lane, &code) in step.iter().enumerate() {
                    let passes = u32::from(code.wrapping_sub(low) <= span);
                    rows[lane] += passes;
                    lows[lane] += code & passes.wrapping_neg() & 0xffff;
                    highs[lane] += (code & passes.wrapping_neg()) >> 16;
                }
            }
        }
        let total = |lanes: [u32; LANES]| lanes.into_iter().map(u64::from).sum::<u64>();
        (total(rows), total(lows) + (total(highs) << 16))
    }
}
