//! Decodes nodes a vector at a time.
//!
//! Every node turns into at most 1,024 values in the first-level cache; the node above goes on from there. Loops over a
//! vector's rows are plain, and [`Backend::run`] compiles each for the instructions of every backend.

use super::lanes::{Plane, unpack};
use super::spec::{LANES, SLOPE_BITS, VECTOR, plane_bits, plane_len};
use super::tree::{Decimal, Line, Node, Packed, Runs, Split};
use super::value::Value;
use crate::codec::lanes::{Backend, Kernel, Vector};

/// The greatest of some codes, 0 if there are none.
pub(crate) fn max(codes: &[u32], backend: Backend) -> u32 {
    struct Max<'a>(&'a [u32]);
    impl Kernel for Max<'_> {
        type Output = u32;
        #[inline(always)]
        fn run<V: Vector>(self) -> u32 {
            self.0.iter().fold(0, |most, &code| most.max(code))
        }
    }
    backend.run(Max(codes))
}

impl<T: Value> Node<'_, T> {
    /// Decodes a vector. Elements beyond the last row are unspecified.
    pub(crate) fn vector(&self, v: usize, out: &mut [T; VECTOR], backend: Backend) {
        match self {
            Self::Plain(bytes) => {
                let bytes = &bytes[v * VECTOR * T::BYTES..];
                let bytes = &bytes[..bytes.len().min(VECTOR * T::BYTES)];
                copy_values(bytes, &mut out[..bytes.len() / T::BYTES]);
            }
            Self::Constant(value) => out.fill(*value),
            Self::Packed(packed) => packed.vector(v, out, backend),
            Self::Line(line) => line.vector(v, out, backend),
            Self::Dictionary(dictionary) => {
                let mut codes = [0; VECTOR];
                dictionary.codes.vector(v, &mut codes, backend);
                for (out, code) in out.iter_mut().zip(codes) {
                    // Rows beyond the last have any code.
                    *out = dictionary.entries.get(code as usize).copied().unwrap_or_default();
                }
            }
            Self::Runs(runs) => runs.vector(v, out, backend),
            Self::Decimal(decimal) => decimal.vector(v, out, backend),
            Self::Split(split) => split.vector(v, out, backend),
            Self::Bits(bytes) => {
                let bytes = &bytes[v * VECTOR / 8..];
                for (row, out) in out.iter_mut().enumerate().take(8 * bytes.len()) {
                    *out = T::from_u64((bytes[row / 8] >> (row % 8) & 1).into());
                }
            }
        }
    }
}

/// Reads little-endian values.
fn copy_values<T: Value>(bytes: &[u8], out: &mut [T]) {
    if cfg!(target_endian = "little") {
        bytemuck::cast_slice_mut(out).copy_from_slice(bytes);
    } else {
        for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(T::BYTES)) {
            *out = T::read(bytes);
        }
    }
}

impl<T: Value> Packed<'_, T> {
    fn vector(&self, v: usize, out: &mut [T; VECTOR], backend: Backend) {
        let Self { width, reference, factor, .. } = *self;
        let codes = self.codes.get(v * VECTOR / 8 * width as usize..).unwrap_or(&[]);
        let mut low = [0; VECTOR];
        match width {
            0 => out.fill(reference),
            1..=32 => {
                unpack(backend, codes, width, &mut low);
                backend.run(Affine { low: &low, high: None, reference, factor, out });
            }
            33..=64 => {
                let mut high = [0; VECTOR];
                unpack_both(backend, codes, width, &mut low, &mut high);
                backend.run(Affine { low: &low, high: Some(&high), reference, factor, out });
            }
            _ => {
                out.fill(reference);
                for_each_plane(backend, codes, width, &mut low, |plane, low| {
                    for (out, &low) in out.iter_mut().zip(low) {
                        *out = out.add(T::from_u64(low.into()).shl(32 * plane));
                    }
                });
            }
        }
        self.exceptions.patch(v, out);
    }
}

/// Unpacks planes 0 and 1.
fn unpack_both(backend: Backend, codes: &[u8], width: u32, low: &mut Plane, high: &mut Plane) {
    let rows = rows_of(codes, width);
    unpack(backend, &codes[..plane_len(rows, 32)], 32, low);
    unpack(backend, &codes[plane_len(rows, 32)..], width - 32, high);
}

/// Rows whose planes `codes` begins with, rounded up to whole steps: a whole vector, or the last one.
fn rows_of(codes: &[u8], width: u32) -> usize {
    if codes.len() >= VECTOR / 8 * width as usize {
        return VECTOR;
    }
    let len = |rows| super::spec::packed_len(rows, width);
    let steps = (0..VECTOR / LANES).find(|steps| len(steps * LANES) >= codes.len());
    steps.unwrap_or_default() * LANES
}

/// Unpacks plane after plane.
fn for_each_plane(
    backend: Backend,
    mut codes: &[u8],
    width: u32,
    plane: &mut Plane,
    mut act: impl FnMut(u32, &Plane),
) {
    let rows = rows_of(codes, width);
    for number in 0..width.div_ceil(32) {
        let bits = plane_bits(width, number);
        let (here, rest) = codes.split_at(plane_len(rows, bits));
        unpack(backend, here, bits, plane);
        act(number, plane);
        codes = rest;
    }
}

/// `reference + factor * code`.
struct Affine<'a, T> {
    low: &'a Plane,
    high: Option<&'a Plane>,
    reference: T,
    factor: u64,
    out: &'a mut [T; VECTOR],
}

impl<T: Value> Kernel for Affine<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { low, high, reference, factor, out } = self;
        match high {
            None if factor == 1 => each(out, low, |code| reference.add(T::from_u64(code.into()))),
            None if factor >> 32 == 0 => each(out, low, |code| {
                // A product of 32-bit integers, which processors have in vectors.
                reference.add(T::from_u64(u64::from(code) * u64::from(factor as u32)))
            }),
            None => each(out, low, |code| reference.add(T::from_u64(code.into()).mul(factor))),
            Some(high) => {
                for ((out, &low), &high) in out.iter_mut().zip(low).zip(high) {
                    let code = u64::from(high) << 32 | u64::from(low);
                    *out = reference.add(T::from_u64(code).mul(factor));
                }
            }
        }
    }
}

#[inline(always)]
fn each<T>(out: &mut [T; VECTOR], codes: &Plane, f: impl Fn(u32) -> T) {
    for (out, &code) in out.iter_mut().zip(codes) {
        *out = f(code);
    }
}

impl<T: Value> Line<'_, T> {
    fn vector(&self, v: usize, out: &mut [T; VECTOR], backend: Backend) {
        let Packed { width, reference, factor, .. } = self.packed;
        let codes = self.packed.codes.get(v * VECTOR / 8 * width as usize..).unwrap_or(&[]);
        let (mut low, mut high) = ([0; VECTOR], [0; VECTOR]);
        match width {
            0 => {}
            1..=32 => unpack(backend, codes, width, &mut low),
            _ => unpack_both(backend, codes, width, &mut low, &mut high),
        }
        let high = (width > 32).then_some(&high);
        let (base, slope) = self.of_vector(v);
        backend.run(OnLine { low: &low, high, base, slope, reference, factor, out });
        self.packed.exceptions.patch(v, out);
    }
}

/// `reference + factor * (base + slope * row / 1024 + code)`.
struct OnLine<'a, T> {
    low: &'a Plane,
    high: Option<&'a Plane>,
    base: u64,
    slope: i64,
    reference: T,
    factor: u64,
    out: &'a mut [T; VECTOR],
}

impl<T: Value> Kernel for OnLine<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { low, high, base, slope, reference, factor, out } = self;
        // Vectors have logical shifts only, so the product is made positive and the base takes that back.
        const BIAS: u64 = 1 << 63;
        let base = base.wrapping_sub(BIAS >> SLOPE_BITS);
        let on_line = |row: usize| {
            base.wrapping_add(
                BIAS.wrapping_add((slope as u64).wrapping_mul(row as u64)) >> SLOPE_BITS,
            )
        };
        match high {
            None if factor == 1 => {
                for (row, (out, &low)) in out.iter_mut().zip(low).enumerate() {
                    *out = reference.add(T::from_u64(on_line(row).wrapping_add(low.into())));
                }
            }
            None => {
                for (row, (out, &low)) in out.iter_mut().zip(low).enumerate() {
                    let q = on_line(row).wrapping_add(low.into());
                    *out = reference.add(T::from_u64(q).mul(factor));
                }
            }
            Some(high) => {
                for (row, out) in out.iter_mut().enumerate() {
                    let code = u64::from(high[row]) << 32 | u64::from(low[row]);
                    let q = on_line(row).wrapping_add(code);
                    *out = reference.add(T::from_u64(q).mul(factor));
                }
            }
        }
    }
}

impl<T: Value> Runs<T> {
    fn vector(&self, v: usize, out: &mut [T; VECTOR], backend: Backend) {
        let start = v * VECTOR;
        let first = self.ends.partition_point(|&end| end as usize <= start);
        backend.run(Fill { start, ends: &self.ends[first..], values: &self.values[first..], out });
    }
}

/// Fills a vector with runs.
struct Fill<'a, T> {
    /// Rows before the vector.
    start: usize,
    ends: &'a [u32],
    values: &'a [T],
    out: &'a mut [T; VECTOR],
}

impl<T: Value> Kernel for Fill<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let mut at = 0;
        for (&end, &value) in self.ends.iter().zip(self.values) {
            let end = (end as usize - self.start).min(VECTOR);
            // Most runs are short. What is written beyond one, the next overwrites.
            match self.out[at..].first_chunk_mut::<8>() {
                Some(eight) if end <= at + 8 => *eight = [value; 8],
                _ => self.out[at..end].fill(value),
            }
            at = end;
            if at == VECTOR {
                break;
            }
        }
    }
}

impl<T: Value> Decimal<'_, T> {
    fn vector(&self, v: usize, out: &mut [T; VECTOR], backend: Backend) {
        self.integers.vector(v, out, backend);
        let digits = self.digits[v];
        if let Ok(out) = bytemuck::try_cast_slice_mut::<T, u64>(out)
            && T::BITS == 64
        {
            backend.run(ToF64 { values: out, digits, near: self.near });
        } else if let Ok(out) = bytemuck::try_cast_slice_mut::<T, u32>(out) {
            backend.run(ToF32 { values: out, digits });
        }
        self.exceptions.patch(v, out);
    }
}

/// Powers of ten that floats of 64 bits express exactly.
pub(crate) const POWERS: [f64; 23] = [
    1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15, 1e16,
    1e17, 1e18, 1e19, 1e20, 1e21, 1e22,
];

struct ToF64<'a> {
    values: &'a mut [u64],
    digits: u8,
    near: bool,
}

impl Kernel for ToF64<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { values, digits, near } = self;
        let power = POWERS[usize::from(digits)];
        // Integers below 2^51 become floats by two additions, in any vector unit.
        const LIMIT: u64 = 1 << 51;
        let small = |c: u64| f64::from_bits(c.wrapping_add(ROUND.to_bits())) - ROUND;
        let far = values.iter().fold(0, |far, &c| far | c.wrapping_add(LIMIT)) >> 52;
        match (far, near) {
            (0, false) => values.iter_mut().for_each(|c| *c = (small(*c) / power).to_bits()),
            (0, true) => values.iter_mut().for_each(|c| {
                let q = arithmetic_shift(c.wrapping_add(1));
                let excess = c.wrapping_sub(q << 2);
                *c = (small(q) / power).to_bits().wrapping_add(excess);
            }),
            (_, false) => values.iter_mut().for_each(|c| *c = f64_of(*c, digits, false)),
            (_, true) => values.iter_mut().for_each(|c| *c = f64_of(*c, digits, true)),
        }
    }
}

/// Shifts a signed integer right by two.
#[inline(always)]
fn arithmetic_shift(x: u64) -> u64 {
    (x.wrapping_add(1 << 63) >> 2).wrapping_sub(1 << 61)
}

/// Added to a smaller float, rounds it to an integer, ties to even.
pub(crate) const ROUND: f64 = 1.5 * (1_u64 << 52) as f64;

/// The bits of the float for the integer `c`.
#[inline(always)]
pub(crate) fn f64_of(c: u64, digits: u8, near: bool) -> u64 {
    let power = POWERS[usize::from(digits)];
    if !near {
        return (c as i64 as f64 / power).to_bits();
    }
    let q = c.wrapping_add(1) as i64 >> 2;
    (q as f64 / power).to_bits().wrapping_add(c.wrapping_sub((q << 2) as u64))
}

struct ToF32<'a> {
    values: &'a mut [u32],
    digits: u8,
}

impl Kernel for ToF32<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let digits = self.digits;
        self.values.iter_mut().for_each(|c| *c = f32_of(*c, digits));
    }
}

/// The bits of the float for the integer `c`.
#[inline(always)]
pub(crate) fn f32_of(c: u32, digits: u8) -> u32 {
    (c as i32 as f32 / POWERS[usize::from(digits)] as f32).to_bits()
}

impl<T: Value> Split<'_, T> {
    fn vector(&self, v: usize, out: &mut [T; VECTOR], backend: Backend) {
        let mut low = [T::default(); VECTOR];
        self.high.vector(v, out, backend);
        self.low.vector(v, &mut low, backend);
        backend.run(Join { at: self.at, rotated: self.rotated, low: &low, out });
    }
}

struct Join<'a, T> {
    at: u32,
    rotated: bool,
    low: &'a [T; VECTOR],
    /// The upper bits.
    out: &'a mut [T; VECTOR],
}

impl<T: Value> Kernel for Join<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let Self { at, rotated, low, out } = self;
        if rotated {
            for (out, &low) in out.iter_mut().zip(low) {
                let y = out.shl(at).add(low);
                *out = y.shr(1).xor(y.shl(T::BITS - 1));
            }
        } else {
            for (out, &low) in out.iter_mut().zip(low) {
                *out = out.shl(at).add(low);
            }
        }
    }
}
