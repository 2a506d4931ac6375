//! Byte transposition of whole elements.

use std::ops::Range;

/// Writes the bytes of the elements of `from`, `width` bytes each, to planes: all first bytes, then all second bytes.
#[inline(always)]
pub(super) fn transpose(from: &[u8], to: &mut [u8], width: usize) {
    let count = from.len() / width;
    match width {
        1 => to.copy_from_slice(from),
        2 => split(from, to, count, |tile| planes_of_pairs(&each(tile, u16::from_le_bytes))),
        4 => split(from, to, count, |tile| planes_of_fours(&each(tile, u32::from_le_bytes))),
        8 => split(from, to, count, |tile| planes_of_eights(&each(tile, u64::from_le_bytes))),
        _ => {
            // A few elements at a time, so that they stay in the cache until all their bytes are moved.
            for start in (0..count).step_by(TILE) {
                let end = count.min(start + TILE);
                for plane in 0..width {
                    let bytes = from[start * width + plane..].iter().step_by(width);
                    let places = &mut to[plane * count + start..plane * count + end];
                    places.iter_mut().zip(bytes).for_each(|(place, byte)| *place = *byte);
                }
            }
        }
    }
}

/// Elements that are moved together.
const TILE: usize = 64;

#[inline(always)]
fn split<const W: usize>(
    from: &[u8],
    to: &mut [u8],
    count: usize,
    planes_of: impl Fn(&[[u8; W]; TILE]) -> [[u8; TILE]; W],
) {
    let (elements, _) = from.as_chunks::<W>();
    let (tiles, rest) = elements.as_chunks::<TILE>();
    for (i, tile) in tiles.iter().enumerate() {
        for (j, plane) in planes_of(tile).iter().enumerate() {
            to[j * count + i * TILE..][..TILE].copy_from_slice(plane);
        }
    }
    for (i, element) in (tiles.len() * TILE..).zip(rest) {
        for (j, byte) in element.iter().enumerate() {
            to[j * count + i] = *byte;
        }
    }
}

/// A loop that compilers turn into vector instructions.
#[inline(always)]
fn each<A: Copy, B: Copy + Default>(from: &[A; TILE], of: impl Fn(A) -> B) -> [B; TILE] {
    let mut to = [B::default(); TILE];
    for (to, from) in to.iter_mut().zip(from) {
        *to = of(*from);
    }
    to
}

#[inline(always)]
fn planes_of_pairs(pairs: &[u16; TILE]) -> [[u8; TILE]; 2] {
    [each(pairs, |pair| pair as u8), each(pairs, |pair| (pair >> 8) as u8)]
}

#[inline(always)]
fn planes_of_fours(fours: &[u32; TILE]) -> [[u8; TILE]; 4] {
    let [a, b] = planes_of_pairs(&each(fours, |four| four as u16));
    let [c, d] = planes_of_pairs(&each(fours, |four| (four >> 16) as u16));
    [a, b, c, d]
}

#[inline(always)]
fn planes_of_eights(eights: &[u64; TILE]) -> [[u8; TILE]; 8] {
    let [a, b, c, d] = planes_of_fours(&each(eights, |eight| eight as u32));
    let [e, f, g, h] = planes_of_fours(&each(eights, |eight| (eight >> 32) as u32));
    [a, b, c, d, e, f, g, h]
}

/// Undoes [`transpose`] for the elements `range` of the `count` in `from`. `to` has their length.
#[inline(always)]
pub(super) fn untranspose(
    from: &[u8],
    to: &mut [u8],
    width: usize,
    count: usize,
    range: Range<usize>,
) {
    match width {
        1 => to.copy_from_slice(&from[range]),
        2 => join::<2>(from, to, count, range),
        3 => join_3(from, to, count, range),
        4 => join::<4>(from, to, count, range),
        8 => join_8(from, to, count, range),
        _ => {
            for start in range.clone().step_by(TILE) {
                let end = range.end.min(start + TILE);
                let to = &mut to[(start - range.start) * width..(end - range.start) * width];
                for plane in 0..width {
                    let bytes = &from[plane * count + start..plane * count + end];
                    let places = to[plane..].iter_mut().step_by(width);
                    places.zip(bytes).for_each(|(place, byte)| *place = *byte);
                }
            }
        }
    }
}

#[inline(always)]
fn join<const W: usize>(from: &[u8], to: &mut [u8], count: usize, range: Range<usize>) {
    let planes: [&[u8]; W] = std::array::from_fn(|j| &from[j * count..][range.clone()]);
    let (elements, _) = to.as_chunks_mut::<W>();
    for (i, element) in elements.iter_mut().enumerate().take(range.len()) {
        *element = std::array::from_fn(|j| planes[j][i]);
    }
}

/// Like [`join`], in a form that compilers turn into shuffles.
#[inline(always)]
fn join_3(from: &[u8], to: &mut [u8], count: usize, range: Range<usize>) {
    let [a, b, c] = std::array::from_fn(|j| &from[j * count..][range.clone()]);
    let (elements, _) = to.as_chunks_mut::<3>();
    for (((element, a), b), c) in elements.iter_mut().zip(a).zip(b).zip(c) {
        *element = [*a, *b, *c];
    }
}

#[inline(always)]
fn join_8(from: &[u8], to: &mut [u8], count: usize, range: Range<usize>) {
    let planes: [&[u8]; 8] = std::array::from_fn(|j| &from[j * count..][range.clone()]);
    let (elements, _) = to.as_chunks_mut::<8>();
    let (tiles, rest) = elements.as_chunks_mut::<TILE>();
    for (i, tile) in tiles.iter_mut().enumerate() {
        let mut bytes = [[0; TILE]; 8];
        for (bytes, plane) in bytes.iter_mut().zip(planes) {
            bytes.copy_from_slice(&plane[i * TILE..][..TILE]);
        }
        interleave(&bytes, tile);
    }
    for (i, element) in (TILE * tiles.len()..).zip(rest) {
        *element = std::array::from_fn(|j| planes[j][i]);
    }
}

/// Joins bytes to pairs, these to fours, and those to eights: loops that compilers turn into vector instructions.
#[inline(always)]
pub(super) fn interleave<const N: usize>(planes: &[[u8; N]; 8], to: &mut [[u8; 8]; N]) {
    let mut pairs = [[0; N]; 4];
    for (pairs, [low, high]) in pairs.iter_mut().zip(planes.as_chunks().0) {
        for (pair, (low, high)) in pairs.iter_mut().zip(low.iter().zip(high)) {
            *pair = u16::from(*low) | u16::from(*high) << 8;
        }
    }
    let mut fours = [[0; N]; 2];
    for (fours, [low, high]) in fours.iter_mut().zip(pairs.as_chunks().0) {
        for (four, (low, high)) in fours.iter_mut().zip(low.iter().zip(high)) {
            *four = u32::from(*low) | u32::from(*high) << 16;
        }
    }
    let [low, high] = &fours;
    for (eight, (low, high)) in to.iter_mut().zip(low.iter().zip(high)) {
        *eight = (u64::from(*low) | u64::from(*high) << 32).to_le_bytes();
    }
}
