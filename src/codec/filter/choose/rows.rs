//! Rows of pixels, found by how alike elements are that lie a row apart.
//!
//! A row is longer than the pieces of a glance, so this looks at the whole block: at some elements, and those before them
//! at every distance that a row may have.

use super::super::{FilterChain, Stage};
use super::places;

/// Distances that rows may have, in elements.
const DISTANCES: std::ops::Range<usize> = 16..12_288;
/// Shorter blocks hold too few rows.
const MIN_LEN: usize = 1 << 17;
/// Pieces of a block whose elements are compared, and their bytes.
const COMPARED: usize = 16;
const COMPARED_LEN: usize = 64;

/// The chains to consider for elements of `width` bytes, 1 or 2, if they seem to lie in rows.
pub(super) fn chains(contents: &[u8], width: u8) -> Vec<FilterChain> {
    let found = match width {
        1 => row(contents, 1, apart),
        _ => row(contents, 2, words_apart),
    };
    let Some([pixel, row]) = found else { return Vec::new() };
    let delta = |stride| Stage::Delta { width, order: 1, stride };
    let signed = |stride| Stage::ZigzagDelta { width, order: 1, stride };
    let (zigzag, transpose) = (Stage::Zigzag { width }, Stage::Transpose { width });
    let chains: [&[Stage]; 2] = match width {
        1 => [&[delta(row)], &[delta(row), delta(pixel)]],
        _ => [&[delta(row), zigzag, transpose], &[delta(row), signed(pixel), transpose]],
    };
    chains.into_iter().filter_map(FilterChain::new).collect()
}

/// The distances of elements that are most alike: of near ones, and of those a row apart.
fn row(contents: &[u8], width: usize, apart: impl Fn(&[u8], &[u8]) -> u32) -> Option<[u16; 2]> {
    let reach = DISTANCES.end * width;
    if contents.len() < MIN_LEN.max(2 * reach) {
        return None;
    }
    let at_distance = |distance: usize| -> u32 {
        places(contents.len() - reach, COMPARED, COMPARED_LEN)
            .map(|place| {
                let [piece, before] = [0, distance * width]
                    .map(|by| &contents[place.start + reach - by..place.end + reach - by]);
                apart(piece, before)
            })
            .sum()
    };
    let least = |distances: std::ops::Range<usize>| {
        distances.map(|distance| (at_distance(distance), distance)).min()
    };
    let (near, pixel) = least(1..5)?;
    let (far, row) = least(DISTANCES)?;
    (far < near + near / 2).then_some([pixel as u16, row as u16])
}

/// How far bytes are from others, in all.
fn apart(some: &[u8], others: &[u8]) -> u32 {
    some.iter().zip(others).map(|(&a, &b)| u32::from(a.abs_diff(b))).sum()
}

/// How far numbers of 16 bits are from others, in all.
fn words_apart(some: &[u8], others: &[u8]) -> u32 {
    let [some, others] = [some, others].map(|bytes| bytes.as_chunks::<2>().0);
    let words = some.iter().zip(others).map(|(a, b)| [a, b].map(|&pair| u16::from_le_bytes(pair)));
    words.map(|[a, b]| u32::from(a.wrapping_sub(b).cast_signed().unsigned_abs())).sum()
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
