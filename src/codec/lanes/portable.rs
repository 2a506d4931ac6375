//! Lanes as a plain array, for every processor.

use super::{LANES, Vector};

/// 32 lanes in an array.
#[derive(Clone, Copy)]
pub(crate) struct Portable([u32; LANES]);

impl Portable {
    #[inline(always)]
    fn map(self, f: impl Fn(u32) -> u32) -> Self {
        Self(self.0.map(f))
    }

    #[inline(always)]
    fn zip(self, o: Self, f: impl Fn(u32, u32) -> u32) -> Self {
        Self(core::array::from_fn(|l| f(self.0[l], o.0[l])))
    }
}

impl Vector for Portable {
    #[inline(always)]
    fn splat(x: u32) -> Self {
        Self([x; LANES])
    }

    #[inline(always)]
    fn load(a: &[u32; LANES]) -> Self {
        Self(*a)
    }

    #[inline(always)]
    fn load_bytes(a: &[u8; 4 * LANES]) -> Self {
        let (words, _) = a.as_chunks::<4>();
        Self(core::array::from_fn(|l| u32::from_le_bytes(words[l])))
    }

    #[inline(always)]
    fn load_pairs(a: &[[u32; 2]; LANES]) -> (Self, Self) {
        (Self(a.map(|[x, _]| x)), Self(a.map(|[_, y]| y)))
    }

    #[inline(always)]
    fn store(self, a: &mut [u32; LANES]) {
        *a = self.0;
    }

    #[inline(always)]
    fn store_bytes(self, a: &mut [u8; 4 * LANES]) {
        let (words, _) = a.as_chunks_mut::<4>();
        for (word, x) in words.iter_mut().zip(self.0) {
            *word = x.to_le_bytes();
        }
    }

    #[inline(always)]
    fn add(self, o: Self) -> Self {
        self.zip(o, u32::wrapping_add)
    }

    #[inline(always)]
    fn sub(self, o: Self) -> Self {
        self.zip(o, u32::wrapping_sub)
    }

    #[inline(always)]
    fn and(self, o: Self) -> Self {
        self.zip(o, |a, b| a & b)
    }

    #[inline(always)]
    fn or(self, o: Self) -> Self {
        self.zip(o, |a, b| a | b)
    }

    #[inline(always)]
    fn shl(self, n: Self) -> Self {
        self.zip(n, |a, n| ((u64::from(a)) << n.min(32)) as u32)
    }

    #[inline(always)]
    fn shr(self, n: Self) -> Self {
        self.zip(n, |a, n| (u64::from(a) >> n.min(32)) as u32)
    }

    #[inline(always)]
    fn shl_by<const N: u32>(self) -> Self {
        self.map(|a| a << N)
    }

    #[inline(always)]
    fn shr_by<const N: u32>(self) -> Self {
        self.map(|a| a >> N)
    }

    #[inline(always)]
    fn funnel_shl(hi: Self, lo: Self, n: Self) -> Self {
        let joined = |l: usize| u64::from(hi.0[l]) << 32 | u64::from(lo.0[l]);
        Self(core::array::from_fn(|l| ((joined(l) << (n.0[l] & 31)) >> 32) as u32))
    }

    #[inline(always)]
    fn lt(self, o: Self) -> u32 {
        (0..LANES).fold(0, |mask, l| mask | u32::from(self.0[l] < o.0[l]) << l)
    }

    #[inline(always)]
    fn select(mask: u32, a: Self, b: Self) -> Self {
        Self(core::array::from_fn(|l| if mask >> l & 1 != 0 { a.0[l] } else { b.0[l] }))
    }

    #[inline(always)]
    fn expand(self, mask: u32) -> Self {
        let mut next = 0;
        Self(core::array::from_fn(|l| {
            let set = mask >> l & 1;
            let x = self.0[next & 31] * set;
            next += set as usize;
            x
        }))
    }

    #[inline(always)]
    fn gather<const N: usize>(table: &[u32; N], index: Self) -> Self {
        const { assert!(N.is_power_of_two()) }
        index.map(|i| table[i as usize & (N - 1)])
    }

    #[inline(always)]
    fn lookup(table: &[u32; 32], index: Self) -> Self {
        index.map(|i| table[i as usize & 31])
    }

    #[inline(always)]
    fn scatter(self, mut mask: u32, index: Self, out: &mut [u32]) {
        while mask != 0 {
            let l = mask.trailing_zeros() as usize;
            mask &= mask - 1;
            out[index.0[l] as usize] = self.0[l];
        }
    }
}
