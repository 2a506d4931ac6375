//! A line for each vector, and what is left above it.

use super::Coded;
use super::divisor::{Divisor, gcd};
use super::packed::{Packer, best_width};
use crate::codec::lanes::Backend;
use crate::table::codes::exceptions;
use crate::table::codes::spec::*;
use crate::table::codes::value::Value;

/// Distances of a vector's values from the reference, in units of the factor.
struct Distances {
    q: Vec<u64>,
    /// Rows that are no multiple of the factor.
    odd: Vec<usize>,
}

/// A vector's line, and the residuals above its base.
struct Fitted {
    slope: i64,
    base: u64,
    residuals: Vec<u64>,
}

/// What the line adds to the base in a row.
#[inline(always)]
fn rise(slope: i64, row: usize) -> u64 {
    ((slope * row as i64) >> SLOPE_BITS) as u64
}

/// The slope that has the least squares, in units of 1/1024 a row; 0 if it is too steep.
fn least_squares(q: &[u64]) -> i64 {
    let n = q.len() as i128;
    let first = q[0];
    let (mut sum, mut weighted) = (0_i128, 0_i128);
    for (row, &q) in q.iter().enumerate() {
        let rise = i128::from(q.wrapping_sub(first) as i64);
        sum += rise;
        weighted += rise * row as i128;
    }
    // Both sides of the normal equation are multiplied by 12 / n.
    let above = (12 * weighted - 6 * (n - 1) * sum) << SLOPE_BITS;
    let below = n * (n * n - 1);
    limited(above.div_euclid(below.max(1)))
}

fn limited(slope: i128) -> i64 {
    let limit = i128::from(SLOPE_LIMIT);
    if -limit < slope && slope < limit { slope as i64 } else { 0 }
}

/// The median of slopes over 32 rows, which few outliers do not move.
fn median(q: &[u64]) -> i64 {
    let mut slopes: Vec<i64> =
        q.iter().zip(&q[32.min(q.len())..]).step_by(7).map(|(a, b)| b.wrapping_sub(*a) as i64).collect();
    slopes.sort_unstable();
    let slope = slopes.get(slopes.len() / 2).copied().unwrap_or(0);
    limited((i128::from(slope) << SLOPE_BITS) / 32)
}

/// Residuals above the lowest row, for a slope.
fn fit(q: &[u64], slope: i64) -> Fitted {
    let residual = |row: usize| q[row].wrapping_sub(rise(slope, row));
    let first = residual(0);
    let least = (0..q.len()).map(|row| residual(row).wrapping_sub(first) as i64).min().unwrap_or(0);
    let base = first.wrapping_add(least as u64);
    let residuals = (0..q.len()).map(|row| residual(row).wrapping_sub(base)).collect();
    Fitted { slope, base, residuals }
}

impl Fitted {
    fn bits(&self) -> u32 {
        self.residuals.iter().fold(0, |bits, residual| bits | residual).bit_len()
    }

    /// Moves the base so that most residuals are below 2^`width`.
    fn center(&mut self, width: u32) {
        if width >= 64 || self.bits() <= width {
            return;
        }
        let mut sorted = self.residuals.clone();
        sorted.sort_unstable();
        let (mut best, mut end) = ((0, sorted[0]), 0);
        for (start, &low) in sorted.iter().enumerate() {
            while end < sorted.len() && sorted[end] - low < 1 << width {
                end += 1;
            }
            if end - start > best.0 {
                best = (end - start, low);
            }
        }
        self.base = self.base.wrapping_add(best.1);
        self.residuals.iter_mut().for_each(|residual| *residual = residual.wrapping_sub(best.1));
    }

    /// How many residuals need more than `width` bits.
    fn outliers(&self, width: u32) -> usize {
        self.residuals.iter().filter(|residual| residual.bit_len() > width).count()
    }
}

/// The better of two lines for codes of `width` bits.
fn fitted(q: &[u64], width: Option<u32>) -> Fitted {
    let mut smooth = fit(q, least_squares(q));
    if width.is_some_and(|width| smooth.bits() <= width) {
        return smooth;
    }
    let mut robust = fit(q, median(q));
    let Some(width) = width else {
        return if robust.bits() < smooth.bits() { robust } else { smooth };
    };
    smooth.center(width);
    robust.center(width);
    if robust.outliers(width) < smooth.outliers(width) { robust } else { smooth }
}

/// Codes of `values` above a line for each vector; `None` if they span more than 64 bits, or if no width, or
/// not the wished one, leaves few enough exceptions.
pub(super) fn build<T: Value>(
    values: &[T],
    order: Order,
    wished: Option<u32>,
    backend: Backend,
) -> Option<Coded> {
    let order = order.of_codes();
    let keys = || values.iter().map(|&value| order.key(value));
    let least = keys().min()?;
    if T::BITS > 64 && keys().max()?.sub(least).bit_len() > 64 {
        return None;
    }
    let sample = super::sample(values);
    let factor = sample
        .iter()
        .fold(0, |factor, &value| match factor {
            1 => 1,
            _ => gcd(order.key(value).sub(least).low(), factor),
        })
        .max(1);
    let divisor = Divisor::new(factor);
    let distances = |values: &[T]| {
        let (mut odd, mut last) = (Vec::new(), 0);
        let q = values.iter().enumerate().map(|(row, &value)| {
            match divisor.divide(order.key(value).sub(least).low()) {
                Some(q) => last = q,
                None => odd.push(row),
            }
            last
        });
        Distances { q: q.collect(), odd }
    };
    let vectors: Vec<Distances> = values.chunks(VECTOR).map(distances).collect();
    let odd: usize = vectors.iter().map(|vector| vector.odd.len()).sum();
    // The width that suits the vectors of a sample, or one that leaves fewer exceptions.
    let mut lens = [0; 65];
    for vector in vectors.iter().step_by(vectors.len().div_ceil(16)) {
        let mut line = fitted(&vector.q, None);
        let most = line.bits();
        let widths: Vec<u32> = (0..most).collect();
        let width = widths.partition_point(|&width| {
            line.center(width);
            line.outliers(width) * 125 > line.residuals.len()
        });
        line.center(width as u32);
        line.residuals.iter().for_each(|residual| lens[residual.bit_len() as usize] += 1);
    }
    let sampled = lens.iter().sum();
    let mut width = match wished {
        Some(width) => width,
        None => best_width::<T>(&lens, 0, sampled, None)?,
    };
    while width <= T::BITS.min(64) {
        let lines: Vec<Fitted> = vectors.iter().map(|v| fitted(&v.q, Some(width))).collect();
        let outliers = odd + lines.iter().map(|line| line.outliers(width)).sum::<usize>();
        if outliers <= values.len() / ROWS_PER_EXCEPTION {
            return Some(write(values, order.value(least), factor, width, &vectors, &lines, backend));
        }
        if wished.is_some() || odd > values.len() / ROWS_PER_EXCEPTION {
            break;
        }
        width += 1;
    }
    None
}

fn write<T: Value>(
    values: &[T],
    reference: T,
    factor: u64,
    width: u32,
    vectors: &[Distances],
    lines: &[Fitted],
    backend: Backend,
) -> Coded {
    let mut codes = Packer::new(values.len(), width, backend);
    let (mut bases, mut slopes, mut outliers) = (Vec::new(), Vec::new(), Vec::new());
    for (v, (vector, line)) in vectors.iter().zip(lines).enumerate() {
        let mut packed = [0_u64; VECTOR];
        let start = v * VECTOR;
        let mut odd = vector.odd.iter().peekable();
        for (row, &residual) in line.residuals.iter().enumerate() {
            if odd.next_if_eq(&&row).is_some() || residual.bit_len() > width {
                outliers.push(((start + row) as u32, values[start + row]));
            } else {
                packed[row] = residual;
            }
        }
        codes.vector(&packed, line.residuals.len());
        line.base.append(&mut bases);
        (line.slope as u64).append(&mut slopes);
    }
    let [starts, rounds] = exceptions::write(&outliers, values.len());
    let mut head = vec![Kind::Line as u8, width as u8];
    reference.append(&mut head);
    head.extend_from_slice(&factor.to_le_bytes());
    head.extend_from_slice(&((rounds.len() / 4) as u32).to_le_bytes());
    Coded { head, parts: vec![bases, slopes, codes.finish(), starts, rounds] }
}
