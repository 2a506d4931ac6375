//! Reads segments with AVX2: it searches tables, and keeps the front of the list of symbols in a register.

use core::arch::x86_64::*;
use core::ops::Range;

use super::Malformed;
use super::segments::{self, Machine};
use super::tables::{Starts, Tables};
use crate::codec::lanes::avx2::is_available;

/// Proof that the processor has the features that [`read`] is compiled for.
#[derive(Debug, Clone, Copy)]
pub struct Avx2(());

impl Avx2 {
    /// The proof, if the processor has them.
    pub fn detect() -> Option<Self> {
        is_available().then_some(Self(()))
    }
}

/// [`segments::Read`] with AVX2 if the processor has it.
pub fn read(
    words: &[u32],
    tables: &Tables,
    list: &mut [u8; 256],
    out: &mut [u8],
    range: Range<usize>,
) -> Result<(), Malformed> {
    match Avx2::detect() {
        // SAFETY: the features are present.
        Some(machine) => unsafe { read_avx2(machine, words, tables, list, out, range) },
        None => segments::read(words, tables, list, out, range),
    }
}

#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn read_avx2(
    machine: Avx2,
    words: &[u32],
    tables: &Tables,
    list: &mut [u8; 256],
    out: &mut [u8],
    range: Range<usize>,
) -> Result<(), Malformed> {
    segments::read_on(machine, words, tables, list, out, range)
}

/// 0, 1, 2 and so on.
const POSITIONS: [u8; 32] = {
    let mut positions = [0; 32];
    let mut i = 0;
    while i < 32 {
        positions[i] = i as u8;
        i += 1;
    }
    positions
};

impl Machine for Avx2 {
    type Front = __m256i;

    #[inline(always)]
    fn load(self, list: &[u8; 256]) -> __m256i {
        let (front, _) = list.split_first_chunk::<32>().unwrap_or((&POSITIONS, &[]));
        bytemuck::cast(*front)
    }

    #[inline(always)]
    fn store(self, front: __m256i, list: &mut [u8; 256]) {
        list[..32].copy_from_slice(&bytemuck::cast::<_, [u8; 32]>(front));
    }

    #[inline(always)]
    fn first(self, front: __m256i, _: &[u8; 256]) -> u8 {
        // SAFETY: AVX2 is present, since `self` exists.
        unsafe { _mm_cvtsi128_si32(_mm256_castsi256_si128(front)) as u8 }
    }

    #[inline(always)]
    fn first_to(self, front: __m256i, list: &mut [u8; 256], symbol: u8, rank: u8) -> __m256i {
        let positions = bytemuck::cast(POSITIONS);
        if rank < 32 {
            // SAFETY: AVX2 is present, since `self` exists.
            unsafe {
                let rank = _mm256_set1_epi8(rank as i8);
                let high = _mm256_permute2x128_si256::<0x81>(front, front);
                let shifted = _mm256_alignr_epi8::<1>(high, front);
                let moved = _mm256_blendv_epi8(front, shifted, _mm256_cmpgt_epi8(rank, positions));
                let symbol = _mm256_set1_epi8(symbol as i8);
                _mm256_blendv_epi8(moved, symbol, _mm256_cmpeq_epi8(rank, positions))
            }
        } else {
            let next = list[32];
            list.copy_within(33..usize::from(rank) + 1, 32);
            list[usize::from(rank)] = symbol;
            // SAFETY: AVX2 is present, since `self` exists.
            unsafe {
                let next = _mm256_castsi128_si256(_mm_cvtsi32_si128(i32::from(next)));
                let high = _mm256_permute2x128_si256::<0x21>(front, next);
                _mm256_alignr_epi8::<1>(high, front)
            }
        }
    }

    #[inline(always)]
    fn starts_to(self, starts: &Starts, v: u16) -> u32 {
        let halves: [__m256i; 2] = bytemuck::cast(*starts);
        // SAFETY: AVX2 is present, since `self` exists.
        unsafe {
            // Starts and `v` are at most 4096, so signed comparisons work.
            let v = _mm256_set1_epi16(v as i16);
            let above = _mm256_packs_epi16(
                _mm256_cmpgt_epi16(halves[0], v),
                _mm256_cmpgt_epi16(halves[1], v),
            );
            32 - (_mm256_movemask_epi8(above) as u32).count_ones()
        }
    }
}
