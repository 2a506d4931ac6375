//! Bit transposition of whole elements.

use std::ops::Range;

use super::inverse::TILE;
use super::transpose::{interleave, transpose, untranspose};

/// Writes the bits of the elements of `from`, `width` bytes each, to planes: bit 0 of all elements, then bit 1. Their
/// number must be a multiple of 8.
pub(super) fn transpose_all_bits(from: &[u8], to: &mut [u8], width: usize) {
    let plane_len = from.len() / width / 8;
    let mut buffer = [0; TILE];
    for (tile, elements) in from.chunks(TILE).enumerate() {
        let count = elements.len() / width;
        let start = tile * TILE / width / 8;
        let bytes = &mut buffer[..elements.len()];
        transpose(elements, bytes, width);
        for (byte, plane) in bytes.chunks_exact(count).enumerate() {
            let mut place = |i: usize, bits: [u64; 8]| {
                for (bit, bits) in bits.into_iter().enumerate() {
                    let at = (8 * byte + bit) * plane_len + start + i;
                    let n = (plane_len - start - i).min(8);
                    to[at..at + n].copy_from_slice(&bits.to_le_bytes()[..n]);
                }
            };
            let (groups, rest) = plane.as_chunks::<64>();
            for (i, group) in groups.iter().enumerate() {
                let mut rows = [0; 8];
                rows.iter_mut().zip(group.as_chunks().0).for_each(|(row, bytes)| {
                    *row = transpose_bits(u64::from_le_bytes(*bytes));
                });
                place(8 * i, transpose_bytes(rows));
            }
            let mut rows = [0; 8];
            for (row, bytes) in rows.iter_mut().zip(rest.as_chunks().0) {
                *row = transpose_bits(u64::from_le_bytes(*bytes));
            }
            if !rest.is_empty() {
                place(8 * groups.len(), transpose_bytes(rows));
            }
        }
    }
}

/// Byte j of word i becomes byte i of word j.
#[inline(always)]
fn transpose_bytes(mut rows: [u64; 8]) -> [u64; 8] {
    for (step, mask) in
        [(4, 0xffff_ffff_u64), (2, 0x0000_ffff_0000_ffff), (1, 0x00ff_00ff_00ff_00ff)]
    {
        let shift = 8 * step as u32;
        for i in (0..8).filter(|i| i & step == 0) {
            let (a, b) = (rows[i], rows[i | step]);
            rows[i] = a & mask | (b & mask) << shift;
            rows[i | step] = a >> shift & mask | b & !mask;
        }
    }
    rows
}

/// Bit j of byte i becomes bit i of byte j (Warren, "Hacker's Delight", section 7-3).
#[inline(always)]
fn transpose_bits(mut word: u64) -> u64 {
    for (shift, mask) in
        [(7, 0x00aa_00aa_00aa_00aa), (14, 0x0000_cccc_0000_cccc), (28, 0xf0f0_f0f0)]
    {
        let swapped = (word ^ word >> shift) & mask;
        word ^= swapped ^ swapped << shift;
    }
    word
}

/// Bytes of a plane of bits that are transposed together.
pub(super) const GROUP: usize = 32;

/// Undoes [`transpose_all_bits`] for the elements `range` of the `count` in `from`; the ends of the range are multiples
/// of 8. `to` has the length of these elements, at most a tile. `join` is [`join_rows`]. `buffer` is scratch: its
/// contents on entry do not matter.
#[inline(always)]
pub(super) fn untranspose_all_bits(
    from: &[u8],
    to: &mut [u8],
    width: usize,
    count: usize,
    range: Range<usize>,
    buffer: &mut [u8; TILE],
    join: impl Fn([&[u8; GROUP]; 8], &mut [u8; 8 * GROUP]),
) {
    let plane_len = count / 8;
    let bytes = &mut buffer[..to.len()];
    for (byte, plane) in bytes.chunks_exact_mut(range.len()).enumerate() {
        let bits: [&[u8]; 8] = std::array::from_fn(|bit| {
            &from[(8 * byte + bit) * plane_len..][range.start / 8..range.end / 8]
        });
        let (groups, rest) = plane.as_chunks_mut();
        for (i, group) in groups.iter_mut().enumerate() {
            join(bits.map(|bits| &bits.as_chunks().0[i]), group);
        }
        for (i, bytes) in (GROUP * groups.len()..).zip(rest.as_chunks_mut::<8>().0) {
            let row = u64::from_le_bytes(bits.map(|bits| bits[i]));
            *bytes = transpose_bits(row).to_le_bytes();
        }
    }
    untranspose(bytes, to, width, range.len(), 0..range.len());
}

/// Bit k of byte i of row j becomes bit j of byte 8 * i + k.
#[inline(always)]
pub(super) fn join_rows(rows: [&[u8; GROUP]; 8], to: &mut [u8; 8 * GROUP]) {
    let mut rows = rows.map(|row| *row);
    for (step, mask) in [(4, 0x0f), (2, 0x33), (1, 0x55)] {
        for j in (0..8).filter(|j| j & step == 0) {
            let (low, high) = rows.split_at_mut(j | step);
            for (a, b) in low[j].iter_mut().zip(&mut high[0]) {
                let swapped = (*a >> step ^ *b) & mask;
                *a ^= swapped << step;
                *b ^= swapped;
            }
        }
    }
    if let Ok(eights) = to.as_chunks_mut().0.try_into() {
        interleave(&rows, eights);
    }
}

/// [`join_rows`] in intrinsics: compilers turn the plain code into twice as many instructions.
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
#[inline]
#[target_feature(enable = "avx2")]
pub(super) fn join_rows_with_avx2(rows: [&[u8; GROUP]; 8], to: &mut [u8; 8 * GROUP]) {
    use core::arch::x86_64::*;
    // SAFETY: each load covers exactly a row.
    let mut rows = rows.map(|row| unsafe { _mm256_loadu_si256(row.as_ptr().cast()) });
    macro_rules! exchange {
        ($step:literal, $mask:literal) => {
            let mask = _mm256_set1_epi8($mask);
            for j in (0..8).filter(|j| j & $step == 0) {
                let [a, b] = [rows[j], rows[j | $step]];
                let swapped =
                    _mm256_and_si256(_mm256_xor_si256(_mm256_srli_epi16::<$step>(a), b), mask);
                rows[j] = _mm256_xor_si256(a, _mm256_slli_epi16::<$step>(swapped));
                rows[j | $step] = _mm256_xor_si256(b, swapped);
            }
        };
    }
    exchange!(4, 0x0f);
    exchange!(2, 0x33);
    exchange!(1, 0x55);
    let [a, b, c, d, e, f, g, h] = rows;
    // These instructions interleave each half of a register by itself. The last ones put the halves in order.
    let pairs = |a, b| [_mm256_unpacklo_epi8(a, b), _mm256_unpackhi_epi8(a, b)];
    let [[ab, ab_high], [cd, cd_high], [ef, ef_high], [gh, gh_high]] =
        [pairs(a, b), pairs(c, d), pairs(e, f), pairs(g, h)];
    let fours = |a, b| [_mm256_unpacklo_epi16(a, b), _mm256_unpackhi_epi16(a, b)];
    let first = [fours(ab, cd), fours(ab_high, cd_high)];
    let second = [fours(ef, gh), fours(ef_high, gh_high)];
    let (halves, _) = to.as_chunks_mut::<{ 4 * GROUP }>();
    for (i, (first, second)) in first.as_flattened().iter().zip(second.as_flattened()).enumerate() {
        let low = _mm256_unpacklo_epi32(*first, *second);
        let high = _mm256_unpackhi_epi32(*first, *second);
        let joined = [
            _mm256_permute2x128_si256::<0x20>(low, high),
            _mm256_permute2x128_si256::<0x31>(low, high),
        ];
        for (half, bytes) in halves.iter_mut().zip(joined) {
            let place = &mut half[i * GROUP..][..GROUP];
            // SAFETY: the store covers exactly these bytes.
            unsafe { _mm256_storeu_si256(place.as_mut_ptr().cast(), bytes) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::noise;

    #[test]
    fn rows_are_joined_bit_by_bit() {
        let bytes = noise(1, 8 * GROUP, 256);
        let rows: [&[u8; GROUP]; 8] = std::array::from_fn(|j| &bytes.as_chunks().0[j]);
        let expected: [u8; 8 * GROUP] = std::array::from_fn(|at| {
            (0..8).fold(0, |byte, j| byte | (rows[j][at / 8] >> (at % 8) & 1) << j)
        });
        let mut joined = [0; 8 * GROUP];
        join_rows(rows, &mut joined);
        assert_eq!(joined, expected);
        #[cfg(all(feature = "simd", target_arch = "x86_64"))]
        if crate::codec::lanes::avx2::is_available() {
            joined.fill(0);
            // SAFETY: the features are present.
            unsafe { join_rows_with_avx2(rows, &mut joined) };
            assert_eq!(joined, expected);
        }
    }
}
