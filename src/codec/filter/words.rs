//! Elements of 1, 2, 4 and 8 bytes, and the stages that change each element by itself or by the elements before it.

use super::decimal;

/// An unsigned little-endian element.
pub(super) trait Word: Copy + Default {
    /// Its bytes.
    type Bytes: Copy;

    /// The whole elements of `bytes`.
    fn elements(bytes: &[u8]) -> &[Self::Bytes];
    /// The whole elements of `bytes`.
    fn elements_mut(bytes: &mut [u8]) -> &mut [Self::Bytes];
    fn load(bytes: Self::Bytes) -> Self;
    fn store(self) -> Self::Bytes;

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    fn zigzag(self) -> Self;
    fn undo_zigzag(self) -> Self;
    fn rotate(self, bits: u8) -> Self;
    fn undo_rotate(self, bits: u8) -> Self;
    fn undo_decimal(self, digits: u8) -> Self;
    /// The same for a float of 8 bytes near a decimal number.
    fn undo_near_decimal(self, digits: u8) -> Self;
    /// The value as it is kept between tiles.
    fn to_carry(self) -> u64;
    fn from_carry(carry: u64) -> Self;

    /// Replaces each element by the sum of all elements up to it and `before`, and returns the last.
    fn running_sums(elements: &mut [Self::Bytes], mut before: Self) -> Self {
        for bytes in elements {
            before = before.add(Self::load(*bytes));
            *bytes = before.store();
        }
        before
    }

    /// Replaces each element by the sum of the running sums up to it. `before` has the last running sum and the last
    /// result.
    fn running_sums_of_sums(elements: &mut [Self::Bytes], before: &mut [Self; 2]) {
        let [mut sum, mut total] = *before;
        for bytes in elements {
            sum = sum.add(Self::load(*bytes));
            total = total.add(sum);
            *bytes = total.store();
        }
        *before = [sum, total];
    }
}

macro_rules! word {
    ($word:ty, $signed:ty $(, $running_sums:item)?) => {
        impl Word for $word {
            type Bytes = [u8; size_of::<$word>()];

            #[inline(always)]
            fn elements(bytes: &[u8]) -> &[Self::Bytes] {
                bytes.as_chunks().0
            }
            #[inline(always)]
            fn elements_mut(bytes: &mut [u8]) -> &mut [Self::Bytes] {
                bytes.as_chunks_mut().0
            }
            #[inline(always)]
            fn load(bytes: Self::Bytes) -> Self {
                Self::from_le_bytes(bytes)
            }
            #[inline(always)]
            fn store(self) -> Self::Bytes {
                self.to_le_bytes()
            }
            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn zigzag(self) -> Self {
                (self << 1) ^ ((self as $signed) >> (<$word>::BITS - 1)) as $word
            }
            #[inline(always)]
            fn undo_zigzag(self) -> Self {
                (self >> 1) ^ (self & 1).wrapping_neg()
            }
            #[inline(always)]
            fn rotate(self, bits: u8) -> Self {
                self.rotate_left(bits.into())
            }
            #[inline(always)]
            fn undo_rotate(self, bits: u8) -> Self {
                self.rotate_right(bits.into())
            }
            #[inline(always)]
            fn undo_decimal(self, digits: u8) -> Self {
                match size_of::<$word>() {
                    4 => decimal::to_f32(self as u32, digits) as $word,
                    _ => decimal::to_f64(self as u64, digits) as $word,
                }
            }
            #[inline(always)]
            fn undo_near_decimal(self, digits: u8) -> Self {
                match size_of::<$word>() {
                    8 => decimal::to_near(self as u64, digits) as $word,
                    _ => self.undo_decimal(digits),
                }
            }
            #[inline(always)]
            fn to_carry(self) -> u64 {
                self.into()
            }
            #[inline(always)]
            fn from_carry(carry: u64) -> Self {
                carry as $word
            }
            $($running_sums)?
        }
    };
}

word!(
    u8,
    i8,
    fn running_sums(elements: &mut [[u8; 1]], before: u8) -> u8 {
        sums_of_bytes(elements.as_flattened_mut(), before)
    }
);
word!(
    u16,
    i16,
    fn running_sums(elements: &mut [[u8; 2]], before: u16) -> u16 {
        sums_of_pairs(elements, before)
    }
);
word!(u32, i32);
word!(u64, i64);

/// Running sums of words.
fn sums_of_pairs(elements: &mut [[u8; 2]], before: u16) -> u16 {
    #[cfg(all(feature = "simd", target_arch = "x86_64"))]
    if crate::codec::lanes::avx2::is_available() {
        let (sixteens, rest) = elements.as_chunks_mut();
        // SAFETY: the features are present.
        let before = unsafe { sums_of_sixteens(sixteens, before) };
        return sums_of_eights(rest, before);
    }
    sums_of_eights(elements, before)
}

/// Running sums of words, sixteen at a time.
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
#[target_feature(enable = "avx2")]
fn sums_of_sixteens(sixteens: &mut [[[u8; 2]; 16]], before: u16) -> u16 {
    use core::arch::x86_64::*;
    // Fills each half of a register with the last word of that half.
    let last = |sums| _mm256_shuffle_epi8(sums, _mm256_set1_epi16(0x0f0e));
    let mut before = _mm256_set1_epi16(before.cast_signed());
    for sixteen in sixteens {
        let place: *mut __m256i = sixteen.as_mut_ptr().cast();
        // SAFETY: the load covers exactly these words.
        let words = unsafe { _mm256_loadu_si256(place) };
        let pairs = _mm256_add_epi16(words, _mm256_slli_si256::<2>(words));
        let fours = _mm256_add_epi16(pairs, _mm256_slli_si256::<4>(pairs));
        let eights = _mm256_add_epi16(fours, _mm256_slli_si256::<8>(fours));
        // The first half's sum, in the second half.
        let first = _mm256_permute2x128_si256::<0x08>(last(eights), last(eights));
        let sums = _mm256_add_epi16(eights, first);
        // SAFETY: the store covers exactly these words.
        unsafe { _mm256_storeu_si256(place, _mm256_add_epi16(sums, before)) };
        let sum = _mm256_permute2x128_si256::<0x11>(last(sums), last(sums));
        before = _mm256_add_epi16(before, sum);
    }
    _mm256_extract_epi16::<0>(before) as u16
}

/// Running sums of words, eight at a time, in a form that compilers turn into vector instructions.
fn sums_of_eights(elements: &mut [[u8; 2]], mut before: u16) -> u16 {
    #[inline(always)]
    fn added<const BY: usize>(words: [u16; 8]) -> [u16; 8] {
        let other = |i: usize| if i >= BY { words[i - BY] } else { 0 };
        std::array::from_fn(|i| words[i].wrapping_add(other(i)))
    }
    let (eights, rest) = elements.as_chunks_mut::<8>();
    for eight in eights {
        let sums = added::<4>(added::<2>(added::<1>(eight.map(u16::from_le_bytes))));
        let sums = sums.map(|sum| sum.wrapping_add(before));
        before = sums[7];
        *eight = sums.map(u16::to_le_bytes);
    }
    for element in rest {
        before = before.wrapping_add(u16::from_le_bytes(*element));
        *element = before.to_le_bytes();
    }
    before
}

/// Running sums of bytes, eight at a time: pairs of bytes are summed in lanes of 16 bits, whose running sums a
/// multiplication gives, because none overflows.
fn sums_of_bytes(bytes: &mut [u8], before: u8) -> u8 {
    const EVEN: u64 = 0x00ff_00ff_00ff_00ff;
    const LANES: u64 = 0x0001_0001_0001_0001;
    let mut before = u64::from(before);
    let (eights, rest) = bytes.as_chunks_mut::<8>();
    for eight in eights {
        let word = u64::from_le_bytes(*eight);
        let odd = word >> 8 & EVEN;
        let pairs = (word & EVEN) + odd;
        let sums = pairs.wrapping_mul(LANES);
        let after_odd = sums + before * LANES;
        let after_even = after_odd - odd;
        *eight = (after_even & EVEN | (after_odd & EVEN) << 8).to_le_bytes();
        before = (before + (sums >> 48)) & 255;
    }
    let mut before = before as u8;
    for byte in rest {
        before = before.wrapping_add(*byte);
        *byte = before;
    }
    before
}
