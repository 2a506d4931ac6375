//! Samples of a block: one position in 64, with a hash of the bytes that end there. Equal contents have equal samples.
//!
//! The last [`MARK`] bytes decide whether a position is a sample, and the hash covers a longer stretch
//! ("content-defined sampling"; Manber, "Finding similar files in a large file system", 1994). Unlike with a rolling
//! hash, no step waits for the one before, so vector instructions look at many positions at once.

use crate::codec::{OutOfMemory, reserve};

/// A sample of a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sample {
    /// The position of the last hashed byte.
    pub(super) last: u32,
    /// The hash of the [`HASHED`] bytes up to there.
    pub(super) hash: u64,
}

/// Base-2 logarithm of the positions for each sample, in data without repetitions.
pub(super) const SPACING_LOG: u32 = 6;

/// The shortest distance between two samples. Without it, periodic data would have one in each period.
const MIN_SPACING: usize = 16;

/// Bytes that a hash depends on.
const HASHED: usize = 64;

/// Length of a position's *mark*: the bytes up to and including the position. They decide whether it is a sample.
const MARK: usize = 8;

/// Positions tested together.
const GROUP: usize = 32;

/// The bytes of a group's marks.
type Seen = [u8; GROUP + MARK - 1];

/// A mark's two halves are multiplied by these, and the products added.
const FACTORS: [u32; 2] = [0x9e37_79b1, 0x85eb_ca77];

/// A position is a sample if the sum begins with these bits. They are not 0, because zeros sum to 0, and long runs of
/// zeros must have no samples.
const SAMPLED: u32 = 1;

/// Which positions of a group are samples: bit i stands for position i.
fn sampled(seen: &Seen) -> u32 {
    let is_sample = |i: usize| {
        let halves = [&seen[i..i + 4], &seen[i + 4..i + 8]];
        let products = halves.iter().zip(FACTORS).map(|(half, factor)| {
            u32::from_le_bytes([half[0], half[1], half[2], half[3]]).wrapping_mul(factor)
        });
        products.fold(0, u32::wrapping_add) >> (32 - SPACING_LOG) == SAMPLED
    };
    (0..GROUP).fold(0, |bits, i| bits | u32::from(is_sample(i)) << i)
}

/// The same with AVX2.
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
#[target_feature(enable = "avx2")]
fn sampled_avx2(seen: &Seen) -> u32 {
    use core::arch::x86_64::*;
    let factors = FACTORS.map(|factor| _mm256_set1_epi32(factor.cast_signed()));
    let wanted = _mm256_set1_epi32(SAMPLED.cast_signed());
    let mut all = _mm256_setzero_si256();
    // Each round looks at the positions i, i + 4, i + 8 and so on.
    for i in 0..4 {
        // SAFETY: the farther load ends with the last byte of `seen`, where `i` is 3.
        let halves: [__m256i; 2] = unsafe {
            [
                _mm256_loadu_si256(seen.as_ptr().add(i).cast()),
                _mm256_loadu_si256(seen.as_ptr().add(i + 4).cast()),
            ]
        };
        let products = _mm256_add_epi32(
            _mm256_mullo_epi32(halves[0], factors[0]),
            _mm256_mullo_epi32(halves[1], factors[1]),
        );
        let first_bits = _mm256_srli_epi32::<{ 32 - SPACING_LOG as i32 }>(products);
        let byte = _mm256_set1_epi32(0xff << (8 * i));
        let is_sample = _mm256_and_si256(_mm256_cmpeq_epi32(first_bits, wanted), byte);
        all = _mm256_or_si256(all, is_sample);
    }
    _mm256_movemask_epi8(all).cast_unsigned()
}

/// A hash of bytes: NH (Black and others, "UMAC: fast and secure message authentication", 1999), with its bits mixed.
fn hash(bytes: &[u8; HASHED]) -> u64 {
    // Any numbers without a pattern will do.
    const KEYS: [[u32; 2]; HASHED / 8] = [
        [0x9e37_79b9, 0x7f4a_7c15],
        [0xbf58_476d, 0x1ce4_e5b9],
        [0x94d0_49bb, 0x1331_11eb],
        [0xd6e8_feb8, 0x6659_fd93],
        [0xa076_1d64, 0x78bd_642f],
        [0xe703_7ed1, 0xa0b4_28db],
        [0x8ebc_6af0, 0x9c88_c6e3],
        [0x5899_65cc, 0x7537_4cc3],
    ];
    let product = |(bytes, keys): (&[u8; 8], [u32; 2])| {
        let bytes = u64::from_le_bytes(*bytes);
        let [high, low] = [(bytes >> 32) as u32, bytes as u32];
        u64::from(high.wrapping_add(keys[0])) * u64::from(low.wrapping_add(keys[1]))
    };
    let sum = bytes.as_chunks().0.iter().zip(KEYS).map(product).fold(0, u64::wrapping_add);
    (sum ^ sum >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Replaces `samples` with those of `block`. Positions at its end that do not fill a group are left out.
///
/// # Errors
/// If the system has too little memory.
pub(super) fn take(block: &[u8], samples: &mut Vec<Sample>) -> Result<(), OutOfMemory> {
    reserve(samples, max_samples(block.len()))?;
    samples.clear();
    #[cfg(all(feature = "simd", target_arch = "x86_64"))]
    if crate::codec::lanes::avx2::is_available() {
        // SAFETY: the features are present.
        unsafe { take_avx2(block, samples) };
        return Ok(());
    }
    take_by(sampled, block, samples);
    Ok(())
}

/// The most samples of a block of `len` bytes.
const fn max_samples(len: usize) -> usize {
    len / MIN_SPACING + 1
}

/// Bytes of memory for the samples of a block of `len` bytes.
pub(super) const fn memory(len: usize) -> u64 {
    (max_samples(len) * size_of::<Sample>()) as u64
}

#[cfg(all(feature = "simd", target_arch = "x86_64"))]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn take_avx2(block: &[u8], samples: &mut Vec<Sample>) {
    take_by(|seen| sampled_avx2(seen), block, samples);
}

#[inline(always)]
fn take_by(sampled: impl Fn(&Seen) -> u32, block: &[u8], samples: &mut Vec<Sample>) {
    // The first position that may be a sample.
    let mut least = HASHED - 1;
    for begin in (HASHED - MARK..).step_by(GROUP) {
        let Some(seen) = block.get(begin..).and_then(|rest| rest.first_chunk()) else { break };
        let mut bits = sampled(seen);
        while bits != 0 {
            let last = begin + MARK - 1 + bits.trailing_zeros() as usize;
            bits &= bits - 1;
            if last >= least {
                let hashed = block[..=last].last_chunk().expect("`least` leaves room for them");
                samples.push(Sample { last: last as u32, hash: hash(hashed) });
                least = last + MIN_SPACING;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::noise;

    fn samples(block: &[u8]) -> Vec<Sample> {
        let mut samples = Vec::new();
        take(block, &mut samples).unwrap();
        let mut others = Vec::with_capacity(samples.capacity());
        take_by(sampled, block, &mut others);
        assert_eq!(samples, others);
        assert!(samples.len() <= max_samples(block.len()));
        samples
    }

    #[test]
    fn one_position_in_sixty_four_is_a_sample() {
        let samples = samples(&noise(1, 1 << 20, 256));
        assert!((samples.len() as isize - (1 << 14)).abs() < 4000, "{}", samples.len());
        let mut hashes: Vec<_> = samples.iter().map(|sample| sample.hash).collect();
        hashes.sort_unstable();
        hashes.dedup();
        assert_eq!(hashes.len(), samples.len());
    }

    #[test]
    fn equal_contents_have_equal_samples() {
        let data = noise(1, 10_000, 256);
        let all = samples(&data);
        for from in [1, 2, 3, 31, 32, 33, 1000] {
            let part = samples(&data[from..]);
            let same = all.iter().filter(|sample| {
                let moved = sample.last.checked_sub(from as u32);
                moved.is_some_and(|last| part.contains(&Sample { last, ..**sample }))
            });
            // The first sample may differ, and so may those that follow it too closely.
            assert!(same.count() + 3 + from / 60 >= part.len().max(all.len() - from / 60));
        }
    }

    #[test]
    fn any_length_and_period() {
        let data = noise(1, 300, 256);
        for len in 0..data.len() {
            samples(&data[..len]);
        }
        for period in 1..200 {
            let periodic: Vec<u8> = data[..period].iter().copied().cycle().take(5000).collect();
            samples(&periodic);
        }
        assert!(samples(&[0; 5000]).is_empty());
    }
}
