//! Comparisons with AVX-512.

use super::candidates::common_length;
use super::probe::{Portable, Probe, Task};
use core::arch::x86_64::*;
use core::hint::select_unpredictable;

/// Whether this processor has what [`Avx512`] needs.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

/// Runs a task compiled for these instructions.
///
/// # Safety
/// Call this only where [`is_available`] returns true.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) unsafe fn run(task: impl Task) {
    task.run::<Avx512>();
}

/// Use its operations only inside a function that enables the target features of [`is_available`], and only where that
/// returns true. Every `unsafe` below rests on that; each says what memory it touches, if any.
pub(crate) struct Avx512;

/// Lanes of a register.
const LANES: usize = 16;

/// Distances compared at a time: those of one to 32 positions.
const fn at_once(n: usize) -> usize {
    if n == 1 { 32 } else { 64 }
}

/// Which distances stay within the window: those of at most as many bytes as lie between the window's start and the
/// position. `reach` is that number for the first position.
#[inline(always)]
fn in_reach<const N: usize>(distances: &[u32], reach: usize) -> u64 {
    const { assert!(N.is_power_of_two() && N <= LANES) };
    let (quads, _) = distances.as_chunks::<LANES>();
    let mut mask = 0;
    for (i, distances) in quads.iter().take(at_once(N) / LANES).enumerate() {
        // SAFETY: see `Avx512`; the load covers exactly the array.
        let valid = unsafe {
            let iota = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            let iota = _mm512_srl_epi32(iota, _mm_cvtsi32_si128(N.ilog2() as i32));
            let first = reach as i32 + (i * LANES / N) as i32;
            let reach = _mm512_add_epi32(iota, _mm512_set1_epi32(first));
            _mm512_cmple_epu32_mask(_mm512_loadu_si512(distances.as_ptr().cast()), reach)
        };
        mask |= u64::from(valid) << (i * LANES);
    }
    mask
}

/// One bit for each pair of equal bytes.
#[inline(always)]
fn equal64(a: &[u8; 64], b: &[u8; 64]) -> u64 {
    // SAFETY: see `Avx512`; the loads cover exactly the arrays.
    unsafe {
        let (a, b) = (_mm512_loadu_si512(a.as_ptr().cast()), _mm512_loadu_si512(b.as_ptr().cast()));
        _mm512_cmpeq_epi8_mask(a, b)
    }
}

/// One bit for each pair of equal bytes.
#[inline(always)]
fn equal32(a: &[u8; 32], b: &[u8; 32]) -> u32 {
    // SAFETY: see `Avx512`; the loads cover exactly the arrays.
    unsafe {
        let (a, b) = (_mm256_loadu_si256(a.as_ptr().cast()), _mm256_loadu_si256(b.as_ptr().cast()));
        _mm256_cmpeq_epi8_mask(a, b)
    }
}

impl Probe for Avx512 {
    #[inline(always)]
    fn first<const N: usize>(
        data: &[u8],
        window_start: usize,
        pos: usize,
        found: &[[u32; N]],
        recent: usize,
    ) -> Result<usize, usize> {
        let Some(here) = data.get(pos..).and_then(|d| d.first_chunk::<64>()) else {
            return Portable::first(data, window_start, pos, found, recent);
        };
        let distances = &found.as_flattened()[..at_once(N)];
        let equal = equal64(here, data[pos - recent..].first_chunk().unwrap());
        let pairs = equal & equal >> 1;
        let repeats = select_unpredictable(recent == 0, 0, pairs & pairs >> 2);
        let candidates = in_reach::<N>(distances, pos - window_start);
        let positions = at_once(N) / N;
        let first =
            (candidates.trailing_zeros() as usize / N).min(repeats.trailing_zeros() as usize);
        if first < positions { Ok(pos + first) } else { Err(pos + positions) }
    }

    #[inline(always)]
    fn lengths<const N: usize>(
        data: &[u8],
        pos: usize,
        offsets: [usize; N],
        end: usize,
    ) -> [usize; N] {
        let Some(here) = data.get(pos..).and_then(|d| d.first_chunk::<32>()) else {
            return Portable::lengths(data, pos, offsets, end);
        };
        let max = end - pos;
        // Loops, because closures would not be compiled for these instructions.
        let mut lengths = [0; N];
        let mut long = false;
        for (length, offset) in lengths.iter_mut().zip(offsets) {
            let equal = equal32(here, data[pos - offset..].first_chunk().unwrap());
            let equal = select_unpredictable(offset == 0, 0, equal);
            long |= equal == u32::MAX;
            *length = (equal.trailing_ones() as usize).min(max);
        }
        if long {
            for (length, offset) in lengths.iter_mut().zip(offsets) {
                if *length == 32 {
                    // SAFETY: see `Avx512`.
                    *length = unsafe { length_from_32(data, pos, offset, end) };
                }
            }
        }
        lengths
    }
}

/// The length of a match of at least 32 bytes.
#[inline(never)]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx2,bmi1,bmi2,lzcnt,popcnt")]
fn length_from_32(data: &[u8], pos: usize, offset: usize, end: usize) -> usize {
    let mut b = pos + 32;
    while end - b >= 64 {
        let (Some(x), Some(y)) = (data[b - offset..].first_chunk(), data[b..].first_chunk()) else {
            break;
        };
        let equal = equal64(x, y);
        if equal != u64::MAX {
            return b - pos + equal.trailing_ones() as usize;
        }
        b += 64;
    }
    b - pos + common_length(data, b - offset, b, end)
}
