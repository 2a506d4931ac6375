//! Frame of reference with a common factor: where the window of codes lies, and how wide it is.

use super::Coded;
use super::divisor::{Divisor, gcd};
use crate::codec::lanes::{Backend, Kernel, Vector};
use crate::table::codes::exceptions;
use crate::table::codes::lanes::{Plane, pack};
use crate::table::codes::spec::*;
use crate::table::codes::value::Value;

/// Bits that an exception takes: the value, the step, and its share of a mask.
const fn exception_bits<T: Value>() -> usize {
    32 * T::BITS.div_ceil(32) as usize + 8 + 32
}

/// The width with the fewest bits for `rows` rows, and how many rows do not fit it. `lens[l]` tells how many codes have
/// l bits, and `never` how many rows are exceptions in any case. `None` if there would be too many exceptions.
pub(super) fn best_width<T: Value>(
    lens: &[usize],
    never: usize,
    rows: usize,
    wished: Option<u32>,
) -> Option<u32> {
    let limit = rows / ROWS_PER_EXCEPTION;
    let (mut best, mut beyond) = (None, never);
    for width in (0..lens.len()).rev() {
        // `beyond` counts codes of more than `width` bits.
        if beyond > limit {
            break;
        }
        if wished == Some(width as u32) {
            return wished;
        }
        let starts = if beyond == 0 { 0 } else { 32 * (vectors(rows) + 1) };
        let bits = width * rows + beyond * exception_bits::<T>() + starts;
        if best.is_none_or(|(least, _)| bits < least) {
            best = Some((bits, width as u32));
        }
        beyond += lens[width];
    }
    best.map(|(_, width)| width)
}

/// `reference + factor * code` for the codes below 2^`width`.
#[derive(Debug, Clone, Copy)]
struct Window<T> {
    /// The key of the reference.
    low: T,
    factor: u64,
    width: u32,
}

/// Finds a window for a sorted sample of keys that leaves out at most 0.8% of them: its lower end.
fn robust_low<T: Value>(sorted: &[T]) -> T {
    let outliers = sorted.len() / 125;
    let covered = sorted.len() - outliers;
    let starts = 0..=outliers;
    let spread = |start: &usize| sorted[start + covered - 1].sub(sorted[*start]);
    let start = starts.min_by_key(|start| (spread(start).bit_len(), *start)).unwrap_or(0);
    sorted[start]
}

/// The factor of the distances of most sampled keys from `low`.
fn factor_of<T: Value>(sorted: &[T], low: T) -> u64 {
    let inside = sorted.iter().filter(|&&key| key >= low).map(|&key| key.sub(low));
    let mut factor = 0;
    for distance in inside {
        if distance.bit_len() > 64 {
            return 1;
        }
        factor = gcd(distance.low(), factor);
        if factor == 1 {
            break;
        }
    }
    factor.max(1)
}

/// The least and the greatest key.
fn range<T: Value>(values: &[T], order: Order, backend: Backend) -> Option<(T, T)> {
    struct Range<'a, T> {
        values: &'a [T],
        order: Order,
    }
    impl<T: Value> Kernel for Range<'_, T> {
        type Output = (T, T);
        #[inline(always)]
        fn run<V: Vector>(self) -> (T, T) {
            let top = self.order.key(T::default());
            self.values.iter().fold((T::ONES, T::default()), |(least, most), value| {
                let key = value.xor(top);
                (least.min(key), most.max(key))
            })
        }
    }
    (!values.is_empty()).then(|| backend.run(Range { values, order }))
}

/// Codes of `values` as packed integers; `None` if a wished width does not suffice.
pub(super) fn build<T: Value>(
    values: &[T],
    order: Order,
    wished: Option<u32>,
    backend: Backend,
) -> Option<Coded> {
    let order = order.of_codes();
    let (least, most) = range(values, order, backend)?;
    let mut sample: Vec<T> = super::sample(values).iter().map(|&value| order.key(value)).collect();
    sample.sort_unstable();
    // The window of all values. It has no exceptions, so it is the best if a narrower one would hardly be smaller.
    let span = most.sub(least);
    let factor = if span.bit_len() > 64 { 1 } else { factor_of(&sample, least) };
    let width = if factor == 1 { span.bit_len() } else { (span.low() / factor).bit_len() };
    let low = robust_low(&sample);
    let robust = factor_of(&sample, low);
    let narrow = sample[sample.len() - 1 - sample.len() / 125].sub(low).bit_len();
    let narrow = narrow.saturating_sub(robust.bit_len() - 1);
    let is_wide = narrow + 1 < width || robust > factor;
    if !is_wide {
        let width = wished.map_or(width, |wished| wished.max(width));
        if width <= if factor == 1 { T::BITS } else { T::BITS.min(64) } {
            let whole = write(values, order, Window { low: least, factor, width }, backend);
            if let Some(whole) = whole.filter(|(_, outliers)| *outliers == 0) {
                return Some(whole.0);
            }
        }
    }
    let mut best: Option<(usize, Window<T>)> = None;
    for (low, factor) in [(least, factor), (least, 1), (low, robust), (low, 1)] {
        let Some(found) = window(values, order, low, factor, wished) else { continue };
        let bits = found.1.width as usize * values.len() + found.0 * exception_bits::<T>();
        // The least value is a better reference than another: it says more to whoever reads codes.
        if best.is_none_or(|(least, _)| bits < least) {
            best = Some((bits, found.1));
        }
    }
    let (_, window) = best?;
    write(values, order, window, backend).map(|(coded, _)| coded)
}

/// The best window from `low` on, and how many values are outside it.
fn window<T: Value>(
    values: &[T],
    order: Order,
    low: T,
    factor: u64,
    wished: Option<u32>,
) -> Option<(usize, Window<T>)> {
    let mut lens = vec![0; T::BITS as usize + 1];
    let mut never = 0;
    let divisor = Divisor::new(factor);
    for &value in values {
        match code(order.key(value), low, factor, divisor) {
            Some(code) => lens[code.bit_len() as usize] += 1,
            None => never += 1,
        }
    }
    let widest = if factor == 1 { T::BITS } else { T::BITS.min(64) } as usize;
    let width = best_width::<T>(&lens[..=widest], never, values.len(), wished)?;
    let outside = never + lens[width as usize + 1..].iter().sum::<usize>();
    Some((outside, Window { low, factor, width }))
}

/// The code of a key, of any width; `None` if it is not a multiple of the factor above `low`.
#[inline(always)]
fn code<T: Value>(key: T, low: T, factor: u64, divisor: Divisor) -> Option<T> {
    let distance = key.sub(low);
    if factor == 1 {
        return Some(distance);
    }
    if T::BITS > 64 && distance.bit_len() > 64 {
        return None;
    }
    divisor.divide(distance.low()).map(T::from_u64)
}

/// Writes the codes of a window, and counts its exceptions. `None` if there are too many.
fn write<T: Value>(
    values: &[T],
    order: Order,
    window: Window<T>,
    backend: Backend,
) -> Option<(Coded, usize)> {
    let Window { low, factor, width } = window;
    let divisor = Divisor::new(factor);
    let reference = order.value(low);
    let mut codes = Packer::new(values.len(), width, backend);
    let mut outliers = Vec::new();
    let mut vector = [T::default(); VECTOR];
    for (v, values) in values.chunks(VECTOR).enumerate() {
        let subtract = Subtract { values, reference, factor, divisor, out: &mut vector };
        if !backend.run(subtract) || above(&vector, width) {
            for (row, (out, &value)) in vector.iter_mut().zip(values).enumerate() {
                match code(order.key(value), low, factor, divisor) {
                    Some(code) if code.bit_len() <= width => *out = code,
                    _ => {
                        *out = T::default();
                        outliers.push(((v * VECTOR + row) as u32, value));
                    }
                }
            }
        }
        vector[values.len()..].fill(T::default());
        codes.vector(&vector, values.len());
    }
    if outliers.len() > values.len() / ROWS_PER_EXCEPTION {
        return None;
    }
    let [starts, rounds] = exceptions::write(&outliers, values.len());
    let fields = fields(width, reference, factor, &rounds);
    let parts = vec![codes.finish(), starts, rounds];
    Some((Coded::leaf(Kind::Packed, &[&fields], parts, values.len()), outliers.len()))
}

/// The fields of packed codes and of lines.
pub(super) fn fields<T: Value>(width: u32, reference: T, factor: u64, rounds: &[u8]) -> Vec<u8> {
    let mut fields = vec![width as u8];
    reference.append(&mut fields);
    fields.extend_from_slice(&factor.to_le_bytes());
    fields.extend_from_slice(&((rounds.len() / 4) as u32).to_le_bytes());
    fields
}

/// Whether a code needs more than `width` bits.
fn above<T: Value>(codes: &[T; VECTOR], width: u32) -> bool {
    codes.iter().fold(T::default(), |all, &code| all.or(code)).bit_len() > width
}

/// Codes of a vector; tells whether all values are multiples of the factor above the reference.
struct Subtract<'a, T> {
    values: &'a [T],
    reference: T,
    factor: u64,
    divisor: Divisor,
    out: &'a mut [T; VECTOR],
}

impl<T: Value> Kernel for Subtract<'_, T> {
    type Output = bool;

    #[inline(always)]
    fn run<V: Vector>(self) -> bool {
        let Self { values, reference, factor, divisor, out } = self;
        if factor == 1 {
            out.iter_mut().zip(values).for_each(|(out, value)| *out = value.sub(reference));
            return true;
        }
        if T::BITS > 64 {
            return false;
        }
        let mut right = true;
        for (out, value) in out.iter_mut().zip(values) {
            let quotient = divisor.divide(value.sub(reference).low());
            right &= quotient.is_some();
            *out = T::from_u64(quotient.unwrap_or(0));
        }
        right
    }
}

/// Packs vector after vector.
pub(super) struct Packer {
    width: u32,
    backend: Backend,
    out: Vec<u8>,
}

impl Packer {
    pub(super) fn new(rows: usize, width: u32, backend: Backend) -> Self {
        Self { width, backend, out: Vec::with_capacity(packed_len(rows, width)) }
    }

    /// Packs the first `rows` codes of a vector. The others are 0.
    pub(super) fn vector<T: Value>(&mut self, codes: &[T; VECTOR], rows: usize) {
        let mut plane: Plane = [0; VECTOR];
        for number in 0..self.width.div_ceil(32) {
            self.backend.run(TakePlane { codes, number, plane: &mut plane });
            pack(self.backend, &plane, rows, plane_bits(self.width, number), &mut self.out);
        }
    }

    pub(super) fn finish(self) -> Vec<u8> {
        self.out
    }
}

/// Bits `32 number` to `32 number + 31` of codes.
struct TakePlane<'a, T> {
    codes: &'a [T; VECTOR],
    number: u32,
    plane: &'a mut Plane,
}

impl<T: Value> Kernel for TakePlane<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let number = self.number;
        for (word, code) in self.plane.iter_mut().zip(self.codes) {
            *word = code.shr(32 * number).low() as u32;
        }
    }
}
