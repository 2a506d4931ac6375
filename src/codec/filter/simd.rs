//! Undoes transpositions with AVX2 where the processor has it: the portable code, compiled for it.

use std::ops::Range;

use super::transpose;
use crate::codec::lanes::avx2::is_available;

/// [`transpose::untranspose`], with AVX2 if the processor has it and is faster with it.
pub(super) fn untranspose(
    from: &[u8],
    to: &mut [u8],
    width: usize,
    count: usize,
    range: Range<usize>,
) {
    if matches!(width, 3 | 4) && is_available() {
        // SAFETY: the features are present.
        unsafe { untranspose_avx2(from, to, width, count, range) }
    } else {
        transpose::untranspose(from, to, width, count, range);
    }
}

/// [`transpose::untranspose_all_bits`], with AVX2 if the processor has it.
pub(super) fn untranspose_all_bits(
    from: &[u8],
    to: &mut [u8],
    width: usize,
    count: usize,
    range: Range<usize>,
) {
    if is_available() {
        // SAFETY: the features are present.
        unsafe { untranspose_all_bits_avx2(from, to, width, count, range) }
    } else {
        transpose::untranspose_all_bits(from, to, width, count, range);
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn untranspose_avx2(from: &[u8], to: &mut [u8], width: usize, count: usize, range: Range<usize>) {
    transpose::untranspose(from, to, width, count, range);
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn untranspose_all_bits_avx2(
    from: &[u8],
    to: &mut [u8],
    width: usize,
    count: usize,
    range: Range<usize>,
) {
    transpose::untranspose_all_bits(from, to, width, count, range);
}
