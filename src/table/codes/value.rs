//! Unsigned integers of 8 to 256 bits that hold a column's values, whatever their type.

use bytemuck::{Pod, Zeroable};

/// The bits of a value.
///
/// Arithmetic is modulo 2^[`BITS`](Self::BITS), so it serves signed and unsigned integers alike.
pub(crate) trait Value:
    Pod + Default + Eq + Ord + core::hash::Hash + core::fmt::Debug + Send + Sync
{
    const BITS: u32;
    const BYTES: usize = Self::BITS as usize / 8;
    /// Only the most significant bit.
    const TOP: Self;
    const ONES: Self;

    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn mul(self, factor: u64) -> Self;
    fn and(self, other: Self) -> Self;
    fn or(self, other: Self) -> Self;
    fn xor(self, other: Self) -> Self;
    /// Shifts by less than [`BITS`](Self::BITS).
    fn shl(self, bits: u32) -> Self;
    fn shr(self, bits: u32) -> Self;
    /// Bits up to the highest that is 1.
    fn bit_len(self) -> u32;
    /// The lowest bits of `x`.
    fn from_u64(x: u64) -> Self;
    /// The lowest 64 bits.
    fn low(self) -> u64;
    /// Reads the first bytes of `bytes`, which has enough.
    fn read(bytes: &[u8]) -> Self;
    fn append(self, out: &mut Vec<u8>);
}

macro_rules! implement {
    ($($T:ident)*) => { $(
        impl Value for $T {
            const BITS: u32 = $T::BITS;
            const TOP: Self = 1 << ($T::BITS - 1);
            const ONES: Self = $T::MAX;

            #[inline(always)]
            fn add(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn sub(self, other: Self) -> Self {
                self.wrapping_sub(other)
            }
            #[inline(always)]
            fn mul(self, factor: u64) -> Self {
                self.wrapping_mul(factor as Self)
            }
            #[inline(always)]
            fn and(self, other: Self) -> Self {
                self & other
            }
            #[inline(always)]
            fn or(self, other: Self) -> Self {
                self | other
            }
            #[inline(always)]
            fn xor(self, other: Self) -> Self {
                self ^ other
            }
            #[inline(always)]
            fn shl(self, bits: u32) -> Self {
                self << bits
            }
            #[inline(always)]
            fn shr(self, bits: u32) -> Self {
                self >> bits
            }
            #[inline(always)]
            fn bit_len(self) -> u32 {
                $T::BITS - self.leading_zeros()
            }
            #[inline(always)]
            fn from_u64(x: u64) -> Self {
                x as Self
            }
            #[inline(always)]
            fn low(self) -> u64 {
                self as u64
            }
            #[inline(always)]
            fn read(bytes: &[u8]) -> Self {
                let mut value = [0; size_of::<Self>()];
                value.copy_from_slice(&bytes[..size_of::<Self>()]);
                Self::from_le_bytes(value)
            }
            #[inline(always)]
            fn append(self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }
        }
    )* };
}
implement!(u8 u16 u32 u64 u128);

/// An integer of 256 bits, as four words, the lowest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Pod, Zeroable)]
#[repr(transparent)]
pub(crate) struct U256([u64; 4]);

impl U256 {
    fn combine(self, other: Self, f: impl Fn(u64, u64) -> u64) -> Self {
        Self(core::array::from_fn(|i| f(self.0[i], other.0[i])))
    }
}

impl PartialOrd for U256 {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for U256 {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.0.iter().rev().cmp(other.0.iter().rev())
    }
}

impl Value for U256 {
    const BITS: u32 = 256;
    const TOP: Self = Self([0, 0, 0, 1 << 63]);
    const ONES: Self = Self([u64::MAX; 4]);

    fn add(self, other: Self) -> Self {
        let mut carry = false;
        Self(core::array::from_fn(|i| {
            let (sum, over) = self.0[i].overflowing_add(other.0[i]);
            let (sum, again) = sum.overflowing_add(carry.into());
            carry = over | again;
            sum
        }))
    }

    fn sub(self, other: Self) -> Self {
        self.add(other.xor(Self::ONES)).add(Self::from_u64(1))
    }

    fn mul(self, factor: u64) -> Self {
        let mut carry = 0;
        Self(self.0.map(|word| {
            let product = u128::from(word) * u128::from(factor) + carry;
            carry = product >> 64;
            product as u64
        }))
    }

    fn and(self, other: Self) -> Self {
        self.combine(other, |a, b| a & b)
    }

    fn or(self, other: Self) -> Self {
        self.combine(other, |a, b| a | b)
    }

    fn xor(self, other: Self) -> Self {
        self.combine(other, |a, b| a ^ b)
    }

    fn shl(self, bits: u32) -> Self {
        let (words, bits) = (bits as usize / 64, bits % 64);
        let word = |i: usize| i.checked_sub(words).map_or(0, |i| u128::from(self.0[i]));
        Self(core::array::from_fn(|i| {
            let below = i.checked_sub(1).map_or(0, word);
            ((word(i) << 64 | below) << bits >> 64) as u64
        }))
    }

    fn shr(self, bits: u32) -> Self {
        let (words, bits) = (bits as usize / 64, bits % 64);
        let word = |i: usize| self.0.get(i + words).map_or(0, |&word| u128::from(word));
        Self(core::array::from_fn(|i| ((word(i + 1) << 64 | word(i)) >> bits) as u64))
    }

    fn bit_len(self) -> u32 {
        let top = (0..4).rev().find(|&i| self.0[i] != 0);
        top.map_or(0, |i| 64 * i as u32 + self.0[i].bit_len())
    }

    fn from_u64(x: u64) -> Self {
        Self([x, 0, 0, 0])
    }

    fn low(self) -> u64 {
        self.0[0]
    }

    fn read(bytes: &[u8]) -> Self {
        Self(core::array::from_fn(|i| u64::read(&bytes[8 * i..])))
    }

    fn append(self, out: &mut Vec<u8>) {
        for word in self.0 {
            word.append(out);
        }
    }
}

/// Reads a buffer of values.
pub(crate) fn read_all<T: Value>(bytes: &[u8]) -> Vec<T> {
    bytes.chunks_exact(T::BYTES).map(T::read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two words of the 256 bits, so that `u128` tells what is right.
    fn wide(x: u128) -> U256 {
        U256([x as u64, (x >> 64) as u64, 0, 0])
    }

    #[test]
    fn wide_integers_agree_with_narrower_ones() {
        let mut state = 7_u128;
        for _ in 0..2000 {
            state = state.wrapping_mul(0x2360_ed05_1fc6_5da4_4385_df64_9fcc_f645).wrapping_add(1);
            let (a, b) = (state >> 3, state.rotate_left(50) >> 70);
            let shift = (state >> 120) as u32 % 128;
            assert_eq!(wide(a).add(wide(b)), wide(a + b));
            assert_eq!(wide(a).sub(wide(b)).add(wide(b)), wide(a));
            assert_eq!(wide(a >> 64).mul(b as u64), wide((a >> 64) * u128::from(b as u64)));
            assert_eq!(wide(a).shr(shift), wide(a >> shift));
            assert_eq!(wide(a).shl(shift).shr(shift), wide(a));
            assert_eq!(wide(a).shl(shift + 100).shr(shift + 100).and(wide(1)), {
                let kept = shift + 100 < 256;
                wide(if kept { a & 1 } else { 0 })
            });
            assert_eq!(wide(a).bit_len(), a.bit_len());
            assert_eq!(wide(a).cmp(&wide(b)), a.cmp(&b));
        }
        assert_eq!(U256::default().sub(U256::from_u64(1)), U256::ONES);
    }
}
