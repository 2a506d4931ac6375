//! Finds rows of pixels by the similarity of elements a row apart.
//!
//! A row is longer than the pieces of a glance, so this compares elements from all over the block with those before
//! them, at every distance that a row may have.

use std::ops::Range;

use super::super::{FilterChain, Stage};
use super::places;

/// Distances that rows may have, in elements.
const DISTANCES: Range<usize> = 16..12_288;
/// Shorter blocks hold too few rows.
const MIN_LEN: usize = 1 << 17;
/// Pieces of a block whose elements are compared, and their bytes.
const COMPARED: usize = 16;
const COMPARED_LEN: usize = 32;

/// Pieces compared before a distance is given up.
const COMPARED_FIRST: usize = 4;

/// The chains to consider for elements of `width` bytes, 1 or 2, if they seem to lie in rows.
pub(super) fn chains(contents: &[u8], width: u8) -> Vec<FilterChain> {
    let Some([pixel, row]) = row(contents, width) else { return Vec::new() };
    let delta = |stride| Stage::Delta { width, order: 1, stride };
    let signed = |stride| Stage::ZigzagDelta { width, order: 1, stride };
    let (zigzag, transpose) = (Stage::Zigzag { width }, Stage::Transpose { width });
    if width == 1 {
        // The colours of a pixel are similar, too.
        let stages = [delta(row), delta(pixel), delta(1)];
        let most = if pixel > 1 { 3 } else { 2 };
        return (1..=most).filter_map(|count| FilterChain::new(&stages[..count])).collect();
    }
    let chains = [[delta(row), zigzag, transpose], [delta(row), signed(pixel), transpose]];
    chains.iter().filter_map(|stages| FilterChain::new(stages)).collect()
}

/// The distances of the most similar elements: of near ones, and of those a row apart.
fn row(contents: &[u8], width: u8) -> Option<[u16; 2]> {
    #[cfg(all(feature = "simd", target_arch = "x86_64"))]
    if crate::codec::lanes::avx2::is_available() {
        // SAFETY: the features are present.
        return unsafe { row_with_avx2(contents, width) };
    }
    row_inline(contents, width)
}

/// [`row_inline`], compiled for AVX2.
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn row_with_avx2(contents: &[u8], width: u8) -> Option<[u16; 2]> {
    row_inline(contents, width)
}

#[inline(always)]
fn row_inline(contents: &[u8], width: u8) -> Option<[u16; 2]> {
    let reach = DISTANCES.end * usize::from(width);
    if contents.len() < MIN_LEN.max(2 * reach) {
        return None;
    }
    let (near, pixel) = nearest(contents, width, 1..5, u32::MAX)?;
    let (_, row) = nearest(contents, width, DISTANCES, near + near / 2)?;
    Some([pixel as u16, row as u16])
}

/// Of these distances, finds the one at which elements of `width` bytes differ least. Returns the sum of differences,
/// and the distance; `None` if the sum reaches `limit` at all of them.
#[inline(always)]
fn nearest(
    contents: &[u8],
    width: u8,
    distances: Range<usize>,
    limit: u32,
) -> Option<(u32, usize)> {
    let width = usize::from(width);
    let reach = DISTANCES.end * width;
    let mut pieces = [(0, &[0; COMPARED_LEN]); COMPARED];
    for (piece, place) in
        pieces.iter_mut().zip(places(contents.len() - reach, COMPARED, COMPARED_LEN))
    {
        let at = place.start + reach;
        *piece = (at, contents[at..].first_chunk()?);
    }
    let (mut least, mut found) = (limit, None);
    for distance in distances {
        let mut sum = 0;
        for pieces in pieces.as_chunks::<COMPARED_FIRST>().0 {
            for (at, piece) in pieces {
                let before = contents[at - distance * width..].first_chunk()?;
                sum += if width == 1 { apart(piece, before) } else { words_apart(piece, before) };
            }
            if sum >= least {
                break;
            }
        }
        if sum < least {
            (least, found) = (sum, Some((sum, distance)));
        }
    }
    found
}

/// The sum of the differences between bytes.
#[inline(always)]
fn apart(some: &[u8; COMPARED_LEN], others: &[u8; COMPARED_LEN]) -> u32 {
    let mut sum = 0;
    for (a, b) in some.iter().zip(others) {
        sum += u32::from(a.abs_diff(*b));
    }
    sum
}

/// The sum of the differences between numbers of 16 bits.
#[inline(always)]
fn words_apart(some: &[u8; COMPARED_LEN], others: &[u8; COMPARED_LEN]) -> u32 {
    let mut sum = 0;
    for (a, b) in some.as_chunks().0.iter().zip(others.as_chunks().0) {
        let apart = u16::from_le_bytes(*a).wrapping_sub(u16::from_le_bytes(*b));
        sum += u32::from(apart.cast_signed().unsigned_abs());
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_show_their_length() {
        let light = |i: usize, row: usize| {
            let random = |i: usize| {
                let mixed = (i as u32 + 1).wrapping_mul(0x9e37_79b1);
                (mixed ^ mixed >> 15).wrapping_mul(0x85eb_ca6b) >> 20
            };
            random(i % row) % 90 + (i / row) as u32 / 16
        };
        for row in [197, 1536, 5760] {
            let bytes: Vec<u8> = (0..1 << 18).map(|i| light(i, row) as u8).collect();
            let names: Vec<_> = chains(&bytes, 1).iter().map(ToString::to_string).collect();
            assert_eq!(names[0], format!("delta1x{row}"));
            let words: Vec<u8> =
                (0..1 << 17).flat_map(|i| (300 + light(i, row) as u16).to_le_bytes()).collect();
            let names: Vec<_> = chains(&words, 2).iter().map(ToString::to_string).collect();
            assert_eq!(names[0], format!("delta2x{row},zigzag2,transpose2"));
        }
        let noise: Vec<u8> =
            (0..1 << 18).map(|i: u32| (i.wrapping_mul(i ^ 0x9e37_79b9) >> 13) as u8).collect();
        assert_eq!(chains(&noise[..1 << 16], 1), [], "too short");
    }
}
