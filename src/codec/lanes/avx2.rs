//! Lanes in four AVX2 registers.

use super::{Kernel, LANES, Vector};
use core::arch::x86_64::*;

/// Whether this processor has the features that [`Avx2`], and the codecs' other code for AVX2, need.
pub(crate) fn is_available() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
}

/// Runs a kernel compiled for these instructions.
///
/// # Safety
/// Call this only where [`is_available`] returns true.
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
pub(crate) unsafe fn run<K: Kernel>(kernel: K) -> K::Output {
    kernel.run::<Avx2>()
}

/// 32 lanes in four registers.
///
/// Use its operations only inside a function that enables the target features of [`is_available`]: only there do they
/// become single instructions, and they may only run where that function returns true. Every `unsafe` below rests on
/// that; each says what memory it touches, if any.
#[derive(Clone, Copy)]
pub(crate) struct Avx2([__m256i; REGISTERS]);

const REGISTERS: usize = 4;
/// Lanes in a register.
const WIDTH: usize = LANES / REGISTERS;

/// For each set of a register's lanes, the word that each lane gets when words are dealt to the set's lanes in order;
/// 0x80 for lanes outside the set.
static EXPANSIONS: [[u8; WIDTH]; 1 << WIDTH] = {
    let mut table = [[0x80; WIDTH]; 1 << WIDTH];
    let mut set = 0;
    while set < 1 << WIDTH {
        let (mut lane, mut next) = (0, 0);
        while lane < WIDTH {
            if set >> lane & 1 != 0 {
                table[set][lane] = next;
                next += 1;
            }
            lane += 1;
        }
        set += 1;
    }
    table
};

impl Avx2 {
    #[inline(always)]
    fn each(f: impl Fn(usize) -> __m256i) -> Self {
        Self([f(0), f(1), f(2), f(3)])
    }

    #[inline(always)]
    fn zip(self, o: Self, f: impl Fn(__m256i, __m256i) -> __m256i) -> Self {
        Self::each(|r| f(self.0[r], o.0[r]))
    }
}

/// Number of words that the mask deals to lanes before the `r`-th register.
#[inline(always)]
fn words_before(mask: u32, r: usize) -> usize {
    (mask & ((1 << (WIDTH * r)) - 1)).count_ones() as usize
}

/// Deals the words of `a` in order to the lanes in `mask`, and returns the `r`-th register of them; the other lanes get
/// 0.
///
/// This is a function, as is [`less`], because compilers may turn a closure of this size into a function of its own,
/// which lacks the target features, so that each instruction becomes a call.
#[inline(always)]
fn deal(a: &[u8; 4 * LANES], mask: u32, r: usize) -> __m256i {
    let set = mask >> (WIDTH * r);
    let expansion = u64::from_le_bytes(EXPANSIONS[set as usize & 0xff]);
    // SAFETY: see `Avx2`. At most 8 words precede each register after the first, so the last of these unaligned loads
    // ends at or before byte 4 * (24 + 8) of the 128. The permutation uses the low three bits of an index; an index's
    // sign marks a lane that gets nothing.
    unsafe {
        let words = _mm256_loadu_si256(a.as_ptr().add(4 * words_before(mask, r)).cast());
        let index = _mm256_cvtepi8_epi32(_mm_cvtsi64_si128(expansion as i64));
        let dealt = _mm256_permutevar8x32_epi32(words, index);
        _mm256_andnot_si256(_mm256_srai_epi32::<31>(index), dealt)
    }
}

/// One bit for each lane in which the unsigned number `a` is less than `b`.
#[inline(always)]
fn less(a: __m256i, b: __m256i) -> u32 {
    // SAFETY: see `Avx2`; no memory is touched. With their top bits flipped, unsigned numbers compare like signed ones.
    unsafe {
        let top = _mm256_set1_epi32(i32::MIN);
        let (a, b) = (_mm256_xor_si256(a, top), _mm256_xor_si256(b, top));
        _mm256_movemask_ps(_mm256_castsi256_ps(_mm256_cmpgt_epi32(b, a))) as u32
    }
}

impl Vector for Avx2 {
    #[inline(always)]
    fn splat(x: u32) -> Self {
        // SAFETY: see the type; no memory is touched.
        Self::each(|_| unsafe { _mm256_set1_epi32(x as i32) })
    }

    #[inline(always)]
    fn load(a: &[u32; LANES]) -> Self {
        Self::load_bytes(bytemuck::cast_ref(a))
    }

    #[inline(always)]
    fn load_bytes(a: &[u8; 4 * LANES]) -> Self {
        // SAFETY: see the type; the four unaligned loads cover exactly the array's 128 bytes.
        Self::each(|r| unsafe { _mm256_loadu_si256(a.as_ptr().add(32 * r).cast()) })
    }

    #[inline(always)]
    fn load_expanded(a: &[u8; 4 * LANES], mask: u32) -> Self {
        Self([deal(a, mask, 0), deal(a, mask, 1), deal(a, mask, 2), deal(a, mask, 3)])
    }

    #[inline(always)]
    fn load_pairs(a: &[[u32; 2]; LANES]) -> (Self, Self) {
        let halves = |r: usize| {
            let pairs: &[u8; 8 * LANES] = bytemuck::cast_ref(a);
            // SAFETY: see the type; the two unaligned loads cover the bytes from 64 r to 64 r + 63 of the 256.
            unsafe {
                let p = pairs.as_ptr().add(64 * r);
                (
                    _mm256_castsi256_ps(_mm256_loadu_si256(p.cast())),
                    _mm256_castsi256_ps(_mm256_loadu_si256(p.add(32).cast())),
                )
            }
        };
        // The shuffles work in halves of a register, so the middle two quarters end up swapped.
        // SAFETY: see the type; no memory is touched.
        let first = Self::each(|r| unsafe {
            let (a, b) = halves(r);
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(_mm256_shuffle_ps::<
                0b10_00_10_00,
            >(a, b)))
        });
        // SAFETY: see the type; no memory is touched.
        let second = Self::each(|r| unsafe {
            let (a, b) = halves(r);
            _mm256_permute4x64_epi64::<0b11_01_10_00>(_mm256_castps_si256(_mm256_shuffle_ps::<
                0b11_01_11_01,
            >(a, b)))
        });
        (first, second)
    }

    #[inline(always)]
    fn store(self, a: &mut [u32; LANES]) {
        self.store_bytes(bytemuck::cast_mut(a));
    }

    #[inline(always)]
    fn store_bytes(self, a: &mut [u8; 4 * LANES]) {
        for (r, &register) in self.0.iter().enumerate() {
            // SAFETY: see the type; the four unaligned stores cover exactly the array's 128 bytes.
            unsafe { _mm256_storeu_si256(a.as_mut_ptr().add(32 * r).cast(), register) }
        }
    }

    #[inline(always)]
    fn add(self, o: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(o, |a, b| unsafe { _mm256_add_epi32(a, b) })
    }

    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(o, |a, b| unsafe { _mm256_sub_epi32(a, b) })
    }

    #[inline(always)]
    fn and(self, o: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(o, |a, b| unsafe { _mm256_and_si256(a, b) })
    }

    #[inline(always)]
    fn or(self, o: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(o, |a, b| unsafe { _mm256_or_si256(a, b) })
    }

    #[inline(always)]
    fn shl(self, n: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(n, |a, n| unsafe { _mm256_sllv_epi32(a, n) })
    }

    #[inline(always)]
    fn shr(self, n: Self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(n, |a, n| unsafe { _mm256_srlv_epi32(a, n) })
    }

    #[inline(always)]
    fn shl_by<const N: u32>(self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(self, |a, _| unsafe { _mm256_sll_epi32(a, _mm_cvtsi32_si128(N as i32)) })
    }

    #[inline(always)]
    fn shr_by<const N: u32>(self) -> Self {
        // SAFETY: see the type; no memory is touched.
        self.zip(self, |a, _| unsafe { _mm256_srl_epi32(a, _mm_cvtsi32_si128(N as i32)) })
    }

    #[inline(always)]
    fn funnel_shl(hi: Self, lo: Self, n: Self) -> Self {
        hi.shl(n).or(lo.shr(Self::splat(32).sub(n)))
    }

    #[inline(always)]
    fn lt(self, o: Self) -> u32 {
        let (a, b) = (self.0, o.0);
        less(a[0], b[0])
            | less(a[1], b[1]) << WIDTH
            | less(a[2], b[2]) << (2 * WIDTH)
            | less(a[3], b[3]) << (3 * WIDTH)
    }

    #[inline(always)]
    fn select(mask: u32, a: Self, b: Self) -> Self {
        Self::each(|r| {
            // SAFETY: see the type; no memory is touched. Each lane's bit of the mask moves to its top bit, the only
            // one that the blend looks at.
            unsafe {
                let to_top = _mm256_sub_epi32(
                    _mm256_set_epi32(24, 25, 26, 27, 28, 29, 30, 31),
                    _mm256_set1_epi32((WIDTH * r) as i32),
                );
                let mask = _mm256_sllv_epi32(_mm256_set1_epi32(mask as i32), to_top);
                _mm256_castps_si256(_mm256_blendv_ps(
                    _mm256_castsi256_ps(b.0[r]),
                    _mm256_castsi256_ps(a.0[r]),
                    _mm256_castsi256_ps(mask),
                ))
            }
        })
    }

    #[inline(always)]
    fn expand(self, mask: u32) -> Self {
        let mut words = [0; 4 * LANES];
        self.store_bytes(&mut words);
        Self::load_expanded(&words, mask)
    }

    #[inline(always)]
    fn gather<const N: usize>(table: &[u32; N], index: Self) -> Self {
        const { assert!(N.is_power_of_two() && N <= 1 << 30) }
        // SAFETY: see the type; the index is masked to below N, so every load reads an element of the table.
        Self::each(|r| unsafe {
            let last = _mm256_set1_epi32(N as i32 - 1);
            let index = _mm256_and_si256(index.0[r], last);
            _mm256_i32gather_epi32::<4>(table.as_ptr().cast(), index)
        })
    }

    #[inline(always)]
    fn lookup(table: &[u32; 32], index: Self) -> Self {
        Self::gather(table, index)
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
