//! Lanes in two AVX-512 registers.

use super::{Kernel, LANES, Vector};
use core::arch::x86_64::*;

/// Whether this processor has the features that [`Avx512`] needs.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vbmi2")
        && is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

/// Runs a kernel compiled for these instructions.
///
/// # Safety
/// Call this only where [`is_available`] returns true.
#[target_feature(enable = "avx512f,avx512bw,avx512vbmi2,avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx512>()
}

/// 32 lanes in two registers.
///
/// Use its operations only inside a function that enables the target features of [`is_available`]: only there do they
/// become single instructions, and they may only run where that function returns true. Every `unsafe` below rests on
/// that; each says what memory it touches, if any.
#[derive(Clone, Copy)]
pub(crate) struct Avx512(__m512i, __m512i);

impl Avx512 {
    #[inline(always)]
    fn zip(self, o: Self, f: impl Fn(__m512i, __m512i) -> __m512i) -> Self {
        Self(f(self.0, o.0), f(self.1, o.1))
    }
}

impl Vector for Avx512 {
    #[inline(always)]
    fn splat(x: u32) -> Self {
        // SAFETY: see the type; no memory is touched.
        let v = unsafe { _mm512_set1_epi32(x as i32) };
        Self(v, v)
    }

    #[inline(always)]
    fn load(a: &[u32; LANES]) -> Self {
        Self::load_bytes(bytemuck::cast_ref(a))
    }

    #[inline(always)]
    fn load_bytes(a: &[u8; 4 * LANES]) -> Self {
        // SAFETY: see the type; the two unaligned loads cover exactly the array's 128 bytes.
        unsafe {
            let p = a.as_ptr();
            Self(_mm512_loadu_si512(p.cast()), _mm512_loadu_si512(p.add(64).cast()))
        }
    }

    #[inline(always)]
    fn load_pairs(a: &[[u32; 2]; LANES]) -> (Self, Self) {
        let (head, tail) = a.split_at(LANES / 2);
        let load = |half: &[[u32; 2]]| Self::load(bytemuck::cast_slice(half).try_into().unwrap());
        let (low, high) = (load(head), load(tail));
        // SAFETY: see the type; no memory is touched.
        unsafe {
            let even = _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0);
            let odd = _mm512_add_epi32(even, _mm512_set1_epi32(1));
            let pick = |i| {
                Self(
                    _mm512_permutex2var_epi32(low.0, i, low.1),
                    _mm512_permutex2var_epi32(high.0, i, high.1),
                )
            };
            (pick(even), pick(odd))
        }
    }

    #[inline(always)]
    fn store(self, a: &mut [u32; LANES]) {
        self.store_bytes(bytemuck::cast_mut(a));
    }

    #[inline(always)]
    fn store_bytes(self, a: &mut [u8; 4 * LANES]) {
        // SAFETY: see the type; the two unaligned stores cover exactly the array's 128 bytes.
        unsafe {
            let p = a.as_mut_ptr();
            _mm512_storeu_si512(p.cast(), self.0);
            _mm512_storeu_si512(p.add(64).cast(), self.1);
        }
    }

    #[inline(always)]
    fn add(self, o: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(o, |a, b| unsafe { _mm512_add_epi32(a, b) })
    }

    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(o, |a, b| unsafe { _mm512_sub_epi32(a, b) })
    }

    #[inline(always)]
    fn and(self, o: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(o, |a, b| unsafe { _mm512_and_si512(a, b) })
    }

    #[inline(always)]
    fn or(self, o: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(o, |a, b| unsafe { _mm512_or_si512(a, b) })
    }

    #[inline(always)]
    fn shl(self, n: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(n, |a, n| unsafe { _mm512_sllv_epi32(a, n) })
    }

    #[inline(always)]
    fn shr(self, n: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(n, |a, n| unsafe { _mm512_srlv_epi32(a, n) })
    }

    #[inline(always)]
    fn shl_by<const N: u32>(self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(self, |a, _| unsafe { _mm512_slli_epi32::<N>(a) })
    }

    #[inline(always)]
    fn shr_by<const N: u32>(self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(self, |a, _| unsafe { _mm512_srli_epi32::<N>(a) })
    }

    #[inline(always)]
    fn funnel_shl(hi: Self, lo: Self, n: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        unsafe { Self(_mm512_shldv_epi32(hi.0, lo.0, n.0), _mm512_shldv_epi32(hi.1, lo.1, n.1)) }
    }

    #[inline(always)]
    fn lt(self, o: Self) -> u32 {
        // SAFETY: see the type; no memory is touched.
        unsafe {
            let (a, b) =
                (_mm512_cmplt_epu32_mask(self.0, o.0), _mm512_cmplt_epu32_mask(self.1, o.1));
            u32::from(a) | u32::from(b) << 16
        }
    }

    #[inline(always)]
    fn select(mask: u32, a: Self, b: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        unsafe {
            Self(
                _mm512_mask_blend_epi32(mask as u16, b.0, a.0),
                _mm512_mask_blend_epi32((mask >> 16) as u16, b.1, a.1),
            )
        }
    }

    #[inline(always)]
    fn expand(self, mask: u32) -> Self {
        // SAFETY: see the type. The upper half's words begin where the lower half's end: a permutation picks them out
        // of both registers, without a trip through memory.
        unsafe {
            let iota = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
            let low = (mask as u16).count_ones();
            let index = _mm512_add_epi32(iota, _mm512_set1_epi32(low as i32));
            let upper = _mm512_permutex2var_epi32(self.0, index, self.1);
            Self(
                _mm512_maskz_expand_epi32(mask as u16, self.0),
                _mm512_maskz_expand_epi32((mask >> 16) as u16, upper),
            )
        }
    }

    #[inline(always)]
    fn gather<const N: usize>(table: &[u32; N], index: Self) -> Self {
        const { assert!(N.is_power_of_two() && N <= 1 << 30) }
        // SAFETY: see the type; the index is masked to below N, so every load reads an element of the table.
        unsafe {
            let last = _mm512_set1_epi32(N as i32 - 1);
            let p = table.as_ptr().cast();
            Self(
                _mm512_i32gather_epi32::<4>(_mm512_and_si512(index.0, last), p),
                _mm512_i32gather_epi32::<4>(_mm512_and_si512(index.1, last), p),
            )
        }
    }

    #[inline(always)]
    fn lookup(table: &[u32; 32], index: Self) -> Self {
        let t = Self::load(table);
        // SAFETY: see the type; no memory is touched. The instruction uses the low five bits of an index.
        unsafe {
            Self(
                _mm512_permutex2var_epi32(t.0, index.0, t.1),
                _mm512_permutex2var_epi32(t.0, index.1, t.1),
            )
        }
    }

    #[inline(always)]
    fn scatter(self, mut mask: u32, index: Self, out: &mut [u32]) {
        let (mut value, mut place) = ([0; LANES], [0; LANES]);
        self.store(&mut value);
        index.store(&mut place);
        while mask != 0 {
            let l = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            out[place[l] as usize] = value[l];
        }
    }
}
