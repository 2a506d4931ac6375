//! Packs and unpacks planes of integers in 32 lanes.
//!
//! The layout is that of FastLanes (Afroozeh and Boncz, "The FastLanes Compression Layout", VLDB 2023) with 32 lanes of
//! 32-bit words and without its transposition: all lanes shift by the same number of bits in each step, so the loops
//! over lanes below become vector instructions without any written by hand.

use super::spec::{LANES, VECTOR, plane_len};
use crate::codec::lanes::{Backend, Kernel, Vector};

/// Integers of at most 32 bits of a vector's rows.
pub(crate) type Plane = [u32; VECTOR];
/// A word of each lane.
type Row = [[u8; 4]; LANES];

/// Unpacks one plane of a vector, `bits` (1 to 32) wide. `bytes` begins with the plane. If it has fewer bytes than a
/// whole vector takes, other rows than those are unspecified.
#[inline]
pub(crate) fn unpack(backend: Backend, bytes: &[u8], bits: u32, out: &mut Plane) {
    let whole = plane_len(VECTOR, bits);
    match bytes.get(..whole) {
        Some(bytes) => backend.run(Unpack { bytes, bits, out }),
        None => {
            let mut padded = [0; 4 * VECTOR];
            padded[..bytes.len()].copy_from_slice(bytes);
            backend.run(Unpack { bytes: &padded[..whole], bits, out });
        }
    }
}

struct Unpack<'a> {
    bytes: &'a [u8],
    bits: u32,
    out: &'a mut Plane,
}

impl Kernel for Unpack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let (rows, _) = self.bytes.as_chunks::<4>().0.as_chunks::<LANES>();
        macro_rules! widths {
            ($($bits:literal)*) => {
                match self.bits {
                    $($bits => unpack_rows::<$bits>(rows, self.out),)*
                    _ => unreachable!("planes have 1 to 32 bits"),
                }
            };
        }
        widths!(1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32);
    }
}

#[inline(always)]
fn unpack_rows<const BITS: usize>(rows: &[Row], out: &mut Plane) {
    let Some(rows) = rows.first_chunk::<BITS>() else { return };
    let mask = ((1_u64 << BITS) - 1) as u32;
    let (steps, _) = out.as_chunks_mut::<LANES>();
    if 32 % BITS == 0 {
        // No integer crosses words. Compilers do not unroll the loop below then, and it would be slower than this.
        for (row, steps) in rows.iter().zip(steps.chunks_exact_mut(32 / BITS)) {
            for (step, out) in steps.iter_mut().enumerate() {
                for (out, &word) in out.iter_mut().zip(row) {
                    *out = u32::from_le_bytes(word) >> (step * BITS) & mask;
                }
            }
        }
        return;
    }
    for (step, out) in steps.iter_mut().enumerate() {
        let (at, shift) = (step * BITS / 32, step * BITS % 32);
        let word = |i: usize, lane: usize| u32::from_le_bytes(rows[i][lane]);
        if shift + BITS <= 32 {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = word(at, lane) >> shift & mask;
            }
        } else {
            for (lane, out) in out.iter_mut().enumerate() {
                *out = (word(at, lane) >> shift | word(at + 1, lane) << (32 - shift)) & mask;
            }
        }
    }
}

/// Appends the first `rows` of a plane, each less than 2^`bits`. Other elements must be 0.
pub(crate) fn pack(backend: Backend, plane: &Plane, rows: usize, bits: u32, out: &mut Vec<u8>) {
    let mut packed = [0; 4 * VECTOR];
    backend.run(Pack { plane, bits, out: &mut packed });
    out.extend_from_slice(&packed[..plane_len(rows, bits)]);
}

struct Pack<'a> {
    plane: &'a Plane,
    bits: u32,
    out: &'a mut [u8; 4 * VECTOR],
}

impl Kernel for Pack<'_> {
    type Output = ();

    #[inline(always)]
    fn run<V: Vector>(self) {
        let mut out = self.out.as_chunks_mut::<4>().0.as_chunks_mut::<LANES>().0.iter_mut();
        let mut words = [0_u32; LANES];
        let mut filled = 0;
        for row in self.plane.as_chunks::<LANES>().0 {
            for (word, x) in words.iter_mut().zip(row) {
                *word |= x << filled;
            }
            filled += self.bits;
            if filled >= 32 {
                filled -= 32;
                if let Some(out) = out.next() {
                    *out = words.map(u32::to_le_bytes);
                }
                // What did not fit; nothing if the integers ended with the word.
                let shift = self.bits - filled;
                for (word, x) in words.iter_mut().zip(row) {
                    *word = (u64::from(*x) >> shift) as u32;
                }
            }
        }
    }
}
