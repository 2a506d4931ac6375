//! A line for each vector, and what is left above it.

use super::Coded;
use super::divisor::{Divisor, gcd};
use super::packed::{Packer, best_width, fields};
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
    /// Bits of the greatest residual above the lowest row.
    bits: u32,
    residuals: Vec<u64>,
}

/// What the line adds to the base in a row.
#[inline(always)]
fn rise(slope: i64, row: usize) -> u64 {
    ((slope * row as i64) >> SLOPE_BITS) as u64
}

/// The slope that has the least squares, in units of 1/1024 a row; 0 if it is too steep.
fn least_squares(q: &[u64]) -> i64 {
    let (n, first) = (q.len() as i128, q[0]);
    let rises = || q.iter().map(|&q| q.wrapping_sub(first) as i64);
    let most = rises().fold(0, |most, rise| most | rise.unsigned_abs());
    let (sum, weighted) = if most < 1 << 42 {
        // Sums of 1,024 products with rows fit 64 bits.
        let sums = rises()
            .zip(0..)
            .fold((0, 0), |(sum, weighted), (rise, row)| (sum + rise, weighted + rise * row));
        (i128::from(sums.0), i128::from(sums.1))
    } else {
        rises()
            .map(i128::from)
            .zip(0..)
            .fold((0, 0), |(sum, weighted), (rise, row)| (sum + rise, weighted + rise * row))
    };
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
    let mut slopes: Vec<i64> = q
        .iter()
        .zip(&q[32.min(q.len())..])
        .step_by(7)
        .map(|(a, b)| b.wrapping_sub(*a) as i64)
        .collect();
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
    let residuals: Vec<u64> = (0..q.len()).map(|row| residual(row).wrapping_sub(base)).collect();
    let bits = residuals.iter().fold(0, |bits, residual| bits | residual).bit_len();
    Fitted { slope, base, bits, residuals }
}

impl Fitted {
    /// The base's shift that leaves the fewest residuals at 2^`width` or above, and how many it leaves.
    fn window(&self, width: u32) -> Window {
        if width >= 64 || self.bits <= width {
            return Window { shift: 0, outliers: 0 };
        }
        let mut sorted = self.residuals.clone();
        sorted.sort_unstable();
        window_of(&sorted, width)
    }

    /// Moves the base.
    fn shift(&mut self, shift: u64) {
        self.base = self.base.wrapping_add(shift);
        self.residuals.iter_mut().for_each(|residual| *residual = residual.wrapping_sub(shift));
    }
}

struct Window {
    shift: u64,
    outliers: usize,
}

/// The window of 2^`width` that leaves the fewest of the sorted residuals out.
fn window_of(sorted: &[u64], width: u32) -> Window {
    let (mut best, mut end) = (Window { shift: 0, outliers: sorted.len() }, 0);
    for (start, &low) in sorted.iter().enumerate() {
        while end < sorted.len() && (sorted[end] - low).bit_len() <= width {
            end += 1;
        }
        let outliers = sorted.len() - (end - start);
        if outliers < best.outliers {
            best = Window { shift: low, outliers };
        }
    }
    best
}

/// The line that suits codes of `width` bits best, with the base where it leaves the fewest exceptions, and how many
/// these are.
fn fitted(q: &[u64], width: u32) -> (Fitted, usize) {
    let smooth = fit(q, least_squares(q));
    if smooth.bits <= width {
        return (smooth, 0);
    }
    let robust = fit(q, median(q));
    let windows = [smooth.window(width), robust.window(width)];
    let [window, other] = windows;
    let (mut line, window) =
        if other.outliers < window.outliers { (robust, other) } else { (smooth, window) };
    line.shift(window.shift);
    (line, window.outliers)
}

/// Adds the lengths of a vector's residuals, with the line and the base that suit most of them.
fn add_lens(q: &[u64], lens: &mut [usize; 65]) {
    let lines = [fit(q, least_squares(q)), fit(q, median(q))].map(|line| {
        let mut sorted = line.residuals.clone();
        sorted.sort_unstable();
        let widths: Vec<u32> = (0..line.bits).collect();
        let narrow = |&width: &u32| window_of(&sorted, width).outliers * 125 > sorted.len();
        let width = widths.partition_point(narrow) as u32;
        (width, line)
    });
    let [smooth, robust] = lines;
    let (width, mut line) = if robust.0 < smooth.0 { robust } else { smooth };
    line.shift(line.window(width).shift);
    line.residuals.iter().for_each(|residual| lens[residual.bit_len() as usize] += 1);
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
        add_lens(&vector.q, &mut lens);
    }
    let sampled = lens.iter().sum();
    let mut width = match wished {
        Some(width) => width,
        None => best_width::<T>(&lens, 0, sampled, None)?,
    };
    let limit = values.len() / ROWS_PER_EXCEPTION;
    while width <= T::BITS.min(64) && odd <= limit {
        let (lines, outliers): (Vec<_>, Vec<_>) =
            vectors.iter().map(|vector| fitted(&vector.q, width)).unzip();
        if odd + outliers.iter().sum::<usize>() <= limit {
            let reference = order.value(least);
            return Some(write(values, reference, factor, width, &vectors, &lines, backend));
        }
        if wished.is_some() {
            break;
        }
        // The next width leaves one vector in fifty outside at most, and the one after that none.
        let mut bits: Vec<u32> = lines.iter().map(|line| line.bits).collect();
        bits.sort_unstable();
        let most = [bits[bits.len() - 1 - bits.len() / 50], bits[bits.len() - 1]];
        width = most.into_iter().find(|&most| most > width).unwrap_or(width + 1);
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
    let fields = fields(width, reference, factor, &rounds);
    let parts = vec![bases, slopes, codes.finish(), starts, rounds];
    Coded::leaf(Kind::Line, &[&fields], parts, values.len())
}
