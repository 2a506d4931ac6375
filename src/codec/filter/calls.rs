//! Calls of functions in programs.
//!
//! A call instruction holds the distance to its function, so two calls of one function differ. With the function's
//! address instead of the distance they are equal, and LZ77 finds the repetition. The idea comes from the BCJ filters
//! of 7-Zip and xz. There each instruction depends on those before it; here it depends only on those in its *page*, so
//! a GPU can do all pages at once. [`format`](mod@crate::format#filters) defines the stage exactly.

use super::words::Word;

/// The processor of a program.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Machine {
    /// x86, of 32 and 64 bits: the instructions E8 (call) and E9 (jump), at any byte.
    X86,
    /// 64-bit Arm: the instruction BL, in words of 4 bytes.
    Arm64,
}

/// Bytes of a page. Only instructions of x86 that lie in one page are changed.
const PAGE: usize = 1 << 10;
/// Bytes of an instruction of x86: an opcode and a distance.
const INSTRUCTION: usize = 5;
/// Bytes scanned for opcodes together.
const PIECE: usize = 32;
/// A piece, and the four bytes after it, which belong to an instruction whose opcode is the piece's last byte.
const LOOKED_AT: usize = PIECE + INSTRUCTION - 1;

impl Machine {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::X86, Self::Arm64];

    /// Instructions begin at multiples of this many bytes. In headers, the width identifies the machine.
    pub(crate) const fn width(self) -> u8 {
        match self {
            Self::X86 => 1,
            Self::Arm64 => 4,
        }
    }

    /// The machine with this [width](Self::width).
    pub(crate) fn of_width(width: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|machine| machine.width() == width)
    }

    /// The machine's name in the text of chains.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::X86 => "x86",
            Self::Arm64 => "arm64",
        }
    }

    /// Replaces distances in a unit's calls by addresses.
    pub(super) fn apply(self, unit: &mut [u8]) {
        self.for_each_call(unit, |number, place| number.wrapping_add(place));
    }

    /// Replaces addresses by distances again.
    pub(super) fn undo(self, unit: &mut [u8]) {
        self.for_each_call(unit, |number, place| number.wrapping_sub(place));
    }

    /// Calls `change` for each call, with the number in the call and the place from which its distance counts, and
    /// replaces the number by the result. Numbers and places count bytes for x86, and words for Arm.
    pub(super) fn for_each_call(self, unit: &mut [u8], mut change: impl FnMut(u32, u32) -> u32) {
        match self {
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            Self::X86 if crate::codec::lanes::avx2::is_available() => {
                // SAFETY: the features are present.
                unsafe { each_with_avx2(unit, change) }
            }
            Self::X86 => each_of_x86(unit, opcodes, change),
            Self::Arm64 => {
                for (word, place) in u32::elements_mut(unit).iter_mut().zip(0..) {
                    let instruction = u32::load(*word);
                    if instruction >> 26 == 0b10_0101 {
                        let number = change(instruction, place) & 0x03ff_ffff;
                        *word = (instruction & 0xfc00_0000 | number).store();
                    }
                }
            }
        }
    }
}

/// [`Machine::each`] for x86, compiled for AVX2.
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
#[target_feature(enable = "avx2,bmi1,bmi2,lzcnt,popcnt")]
fn each_with_avx2(unit: &mut [u8], change: impl FnMut(u32, u32) -> u32) {
    each_of_x86(unit, |bytes| opcodes_with_avx2(bytes), change);
}

/// [`Machine::each`] for x86. `look` is [`opcodes`].
#[inline(always)]
fn each_of_x86(
    unit: &mut [u8],
    look: impl Fn(&[u8; LOOKED_AT]) -> [u32; 2],
    mut change: impl FnMut(u32, u32) -> u32,
) {
    for (page, start) in unit.chunks_mut(PAGE).zip((0..).step_by(PAGE)) {
        each_of_page(page, &look, |number, place| change(number, start + place));
    }
}

/// The same for a page.
#[inline(always)]
fn each_of_page(
    page: &mut [u8],
    look: &impl Fn(&[u8; LOOKED_AT]) -> [u32; 2],
    mut change: impl FnMut(u32, u32) -> u32,
) {
    // The first place where the next instruction may begin.
    let mut next = 0;
    for start in (0..page.len()).step_by(PIECE) {
        let [mut found, signs] = match page[start..].first_chunk() {
            Some(bytes) => look(bytes),
            None => {
                // Fills up with bytes that are neither opcodes nor signs.
                let mut bytes = [1; LOOKED_AT];
                let rest = &page[start..];
                bytes[..rest.len()].copy_from_slice(rest);
                look(&bytes)
            }
        };
        found = after(found, next.max(start) - start);
        while found != 0 {
            let at = start + found.trailing_zeros() as usize;
            next = at + INSTRUCTION;
            if signs >> (at - start) & 1 == 0 {
                // This is no instruction, but a change to one of the next three bytes could make it look like one.
                next -= 1;
            } else if let Some(number) = page[at + 1..next].first_chunk_mut() {
                let changed = change(u32::from_le_bytes(*number), next as u32);
                // Bits 24 to 31 all equal the sign.
                *number = ((changed << 7) as i32 >> 7).to_le_bytes();
            }
            found = after(found, next - start);
        }
    }
}

/// The bits from the `from`-th on.
fn after(bits: u32, from: usize) -> u32 {
    bits & u32::MAX.checked_shl(from as u32).unwrap_or(0)
}

/// Two masks: the bytes that are opcodes, and the bytes whose fourth next byte is a sign.
fn opcodes(bytes: &[u8; LOOKED_AT]) -> [u32; 2] {
    let bits = |is_one: &dyn Fn(usize) -> bool| {
        (0..PIECE).fold(0, |bits, i| bits | u32::from(is_one(i)) << i)
    };
    let signs = |i: usize| bytes[i + INSTRUCTION - 1].wrapping_add(1) < 2;
    [bits(&|i| bytes[i] & 0xfe == 0xe8), bits(&signs)]
}

/// [`opcodes`], all at once.
#[cfg(all(feature = "simd", target_arch = "x86_64"))]
#[inline]
#[target_feature(enable = "avx2")]
fn opcodes_with_avx2(bytes: &[u8; LOOKED_AT]) -> [u32; 2] {
    use core::arch::x86_64::*;
    // SAFETY: both loads lie within the array.
    let [first, last] =
        unsafe { [0, INSTRUCTION - 1].map(|at| _mm256_loadu_si256(bytes.as_ptr().add(at).cast())) };
    let opcode = _mm256_and_si256(first, _mm256_set1_epi8(0xfe_u8 as i8));
    let is_opcode = _mm256_cmpeq_epi8(opcode, _mm256_set1_epi8(0xe8_u8 as i8));
    let is_zero = _mm256_cmpeq_epi8(last, _mm256_setzero_si256());
    let is_minus = _mm256_cmpeq_epi8(last, _mm256_set1_epi8(-1));
    let is_sign = _mm256_or_si256(is_zero, is_minus);
    // Without `black_box`, the compiler knows the origin of these bits and takes them apart one by one, four times as
    // slow.
    core::hint::black_box([is_opcode, is_sign].map(|bytes| _mm256_movemask_epi8(bytes) as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::{calls, noise};

    #[test]
    fn calls_of_one_function_are_equal() {
        let mut unit = vec![0x90; 3000];
        for at in [0, 100, 1019, 1500, 2995] {
            let distance = 2000 - (at as i32 + 5);
            unit[at] = 0xe8;
            unit[at + 1..at + 5].copy_from_slice(&distance.to_le_bytes());
        }
        let before = unit.clone();
        Machine::X86.apply(&mut unit);
        for at in [0, 100, 1019, 1500, 2995] {
            assert_eq!(unit[at..at + 5], [0xe8, 0xd0, 0x07, 0, 0], "{at}");
        }
        Machine::X86.undo(&mut unit);
        assert!(unit == before);

        let words = [0x9400_0007_u32, 0xd503_201f, 0x9400_0005, 0x97ff_ffff];
        let mut unit: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        Machine::Arm64.apply(&mut unit);
        let expected = [0x9400_0007_u32, 0xd503_201f, 0x9400_0007, 0x9400_0002];
        let expected: Vec<u8> = expected.iter().flat_map(|word| word.to_le_bytes()).collect();
        assert_eq!(unit, expected);
    }

    #[test]
    fn what_overlaps_or_crosses_a_page_is_restored() {
        for machine in Machine::ALL {
            for len in [0, 1, 4, 5, 31, 36, 1023, 1024, 1025, 1060, 5000, 300_000] {
                for bytes in [calls(len as u32, len), noise(len as u32, len, 256)] {
                    let mut unit = bytes.clone();
                    machine.apply(&mut unit);
                    assert!(len < 1000 || unit != bytes || machine == Machine::X86);
                    machine.undo(&mut unit);
                    assert!(unit == bytes, "{machine:?}, {len} bytes");
                }
            }
        }
    }

    #[test]
    fn vectors_find_the_same_opcodes() {
        for bytes in calls(1, 50_000).as_chunks::<LOOKED_AT>().0 {
            let bits = |is_one: &dyn Fn(usize) -> bool| {
                (0..PIECE).filter(|i| is_one(*i)).fold(0, |bits, i| bits | 1 << i)
            };
            let opcodes_of = bits(&|i| matches!(bytes[i], 0xe8 | 0xe9));
            let expected = [opcodes_of, bits(&|i| matches!(bytes[i + 4], 0 | 255))];
            assert_eq!(opcodes(bytes), expected);
            #[cfg(all(feature = "simd", target_arch = "x86_64"))]
            if crate::codec::lanes::avx2::is_available() {
                // SAFETY: the features are present.
                assert_eq!(unsafe { opcodes_with_avx2(bytes) }, expected);
            }
        }
    }
}
