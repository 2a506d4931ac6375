//! Floats as decimal numbers, and as upper and lower bits.
//!
//! The ideas are those of ALP and ALP-RD (Afroozeh, Kuffo and Boncz, "ALP: Adaptive Lossless floating-Point
//! Compression", SIGMOD 2023). ALP multiplies by two powers of ten; here a correctly rounded division makes the float
//! from its integer, so every decimal number that a parser read is found, and one exponent is enough.

use crate::table::codes::decode::{POWERS, ROUND, f32_of, f64_of};
use crate::table::codes::spec::*;
use crate::table::codes::value::Value;

/// Floats as integers.
pub(super) struct Decimals<T> {
    /// One for each vector.
    pub(super) digits: Vec<u8>,
    pub(super) integers: Vec<T>,
    pub(super) exceptions: Vec<(u32, T)>,
}

/// The integer of a float, or `None` if it has none with these digits.
#[inline(always)]
fn integer<T: Value>(value: T, digits: u8, near: bool) -> Option<T> {
    if T::BITS == 32 {
        let bits = value.low() as u32;
        let scaled = f64::from(f32::from_bits(bits)) * POWERS[usize::from(digits)];
        let c = (scaled + ROUND - ROUND) as i32 as u32;
        return (f32_of(c, digits) == bits).then(|| T::from_u64(c.into()));
    }
    let bits = value.low();
    let q = f64::from_bits(bits) * POWERS[usize::from(digits)];
    // Twice 2^51 is as far as that rounds; further integers are their own nearest ones.
    let q = if q.abs() < (1_u64 << 51) as f64 { q + ROUND - ROUND } else { q };
    let c = if near {
        let excess = bits.wrapping_sub((q / POWERS[usize::from(digits)]).to_bits());
        (q as i64).wrapping_mul(4).wrapping_add(excess as i64) as u64
    } else {
        q as i64 as u64
    };
    (f64_of(c, digits, near) == bits).then(|| T::from_u64(c))
}

/// The most digits of a type.
const fn max_digits<T: Value>() -> u8 {
    if T::BITS == 32 { 10 } else { 22 }
}

/// Digits with which at most 0.8% of `values` are exceptions; the fewest such.
fn digits_for<T: Value>(values: &[T], near: bool) -> Option<u8> {
    let allowed = values.len() / 125;
    (0..=max_digits::<T>()).find(|&digits| {
        let mut failed = 0;
        values.iter().all(|&value| {
            failed += usize::from(integer(value, digits, near).is_none());
            failed <= allowed
        })
    })
}

/// Turns floats into integers; `None` if there are too many exceptions. Vectors have the same digits, unless one needs
/// others.
pub(super) fn decimals<T: Value>(values: &[T], near: bool) -> Option<Decimals<T>> {
    let common = digits_for(&super::sample(values), near)?;
    let limit = values.len() / ROWS_PER_EXCEPTION;
    let mut out = Decimals {
        digits: Vec::new(),
        integers: Vec::with_capacity(values.len()),
        exceptions: Vec::new(),
    };
    for (v, values) in values.chunks(VECTOR).enumerate() {
        let (integers, exceptions) = (out.integers.len(), out.exceptions.len());
        out.append(v, values, common, near);
        let allowed = values.len() / 32;
        if out.exceptions.len() - exceptions > allowed
            && let Some(own) = digits_for(values, near)
        {
            out.integers.truncate(integers);
            out.exceptions.truncate(exceptions);
            out.digits.pop();
            out.append(v, values, own, near);
        }
        if out.exceptions.len() > limit {
            return None;
        }
    }
    Some(out)
}

impl<T: Value> Decimals<T> {
    fn append(&mut self, v: usize, values: &[T], digits: u8, near: bool) {
        self.digits.push(digits);
        let mut last = self.integers.last().copied();
        for (row, &value) in values.iter().enumerate() {
            let found = integer(value, digits, near);
            if found.is_none() {
                self.exceptions.push(((v * VECTOR + row) as u32, value));
            }
            // An exception gets the integer before it, which cannot widen the codes.
            let ahead = || values[row..].iter().find_map(|&value| integer(value, digits, near));
            let integer = found.or(last).or_else(ahead).unwrap_or_default();
            self.integers.push(integer);
            last = Some(integer);
        }
    }
}

/// Where to split floats, and whether to rotate them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Cut {
    pub(super) at: u8,
    pub(super) rotated: bool,
}

impl Cut {
    /// A value's upper and lower bits.
    #[inline(always)]
    pub(super) fn halves<T: Value>(self, value: T) -> [T; 2] {
        let top = value.shr(T::BITS - 1);
        let y = if self.rotated { value.shl(1).add(top) } else { value };
        let high = y.shr(self.at.into());
        [high, y.sub(high.shl(self.at.into()))]
    }

    /// The cut after which a sample's upper bits and the lower ones take the fewest bits: the lower ones as they are,
    /// the upper ones as codes of a dictionary.
    pub(super) fn of<T: Value>(sample: &[T]) -> Option<Self> {
        let mut best = None;
        for rotated in [false, true] {
            for high_bits in (4..=16.min(T::BITS - 2)).step_by(2) {
                let cut = Self { at: (T::BITS - high_bits) as u8, rotated };
                let mut high: Vec<T> = sample.iter().map(|&value| cut.halves(value)[0]).collect();
                high.sort_unstable();
                high.dedup();
                let code = (high.len() as u64 - 1).bit_len();
                let bits = sample.len() as u64 * u64::from(u32::from(cut.at) + code)
                    + high.len() as u64 * u64::from(high_bits);
                if best.is_none_or(|(least, _)| bits < least) {
                    best = Some((bits, cut));
                }
            }
        }
        best.map(|(_, cut)| cut)
    }
}
