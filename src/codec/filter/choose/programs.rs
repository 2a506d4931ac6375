//! Recognises programs, and their machine.

use super::super::calls::Machine;
use super::places;

/// Pieces of a block to look at.
const PIECES: usize = 16;
/// All pieces together are 1/16 of a block, but each has at least `MIN_PIECE` bytes.
const PART: usize = 16;
const MIN_PIECE: usize = 1 << 10;
/// Base-2 logarithm of the number of remembered numbers.
const LOG: u32 = 12;
/// A program has more than one call of an already called target in this many bytes.
const BYTES_PER_CALL: usize = 1 << 10;

/// The machine that `contents` seem to be a program for. Its calls repeat targets more often than distances, and do so
/// often enough.
pub(super) fn machine(contents: &[u8], scratch: &mut Vec<u8>) -> Option<Machine> {
    let len = (contents.len() / PART / PIECES).max(MIN_PIECE).min(contents.len());
    let gains = Machine::ALL.map(|machine| {
        let [mut targets, mut distances] = [Numbers::default(), Numbers::default()];
        for place in places(contents.len(), PIECES, len) {
            let start = place.start as u32 / u32::from(machine.width());
            scratch.clear();
            scratch.extend_from_slice(&contents[place]);
            machine.for_each_call(scratch, |number, place| {
                distances.add(number);
                targets.add(number.wrapping_add(start + place));
                number
            });
        }
        (targets.again.saturating_sub(distances.again), machine)
    });
    let (gain, machine) = gains.into_iter().max_by_key(|(gain, _)| *gain)?;
    (gain > PIECES * len / BYTES_PER_CALL).then_some(machine)
}

/// Counts repeated numbers.
struct Numbers {
    /// Recent numbers, by a hash.
    seen: [u32; 1 << LOG],
    again: usize,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { seen: [0; 1 << LOG], again: 0 }
    }
}

impl Numbers {
    fn add(&mut self, number: u32) {
        let slot = &mut self.seen[(number.wrapping_mul(0x9e37_79b1) >> (32 - LOG)) as usize];
        self.again += usize::from(*slot == number);
        *slot = number;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::noise;

    #[test]
    fn programs_are_told_by_calls_of_the_same_functions() {
        let functions: Vec<u32> = (0..50).map(|i| i * 7 * 1024).collect();
        for len in [20_000, 1 << 20] {
            let plain = noise(len as u32, len, 200);
            let mut scratch = Vec::new();
            assert_eq!(machine(&plain, &mut scratch), None);
            let [mut x86, mut arm, mut table] = [plain.clone(), plain.clone(), plain.clone()];
            for (i, at) in (0..len - 8).step_by(40).enumerate() {
                let function = functions[i * i % functions.len()];
                x86[at] = 0xe8;
                let distance = function.wrapping_sub(at as u32 + 5);
                x86[at + 1..at + 5].copy_from_slice(&distance.to_le_bytes());
                let distance = (function / 4).wrapping_sub(at as u32 / 4) & 0x03ff_ffff;
                arm[at..at + 4].copy_from_slice(&(0x9400_0000 | distance).to_le_bytes());
                // Bytes that look like calls, always of the same distance.
                table[at..at + 5].copy_from_slice(&[0xe8, 4, 3, 2, 0]);
            }
            assert_eq!(machine(&x86, &mut scratch), Some(Machine::X86), "{len}");
            assert_eq!(machine(&arm, &mut scratch), Some(Machine::Arm64), "{len}");
            assert_eq!(machine(&table, &mut scratch), None, "{len}");
        }
    }
}
