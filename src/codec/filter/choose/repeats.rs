//! Estimates how much of a block repeats far parts of it. Pieces of the block do not show that.

use super::UNIT_LOG;
use crate::codec::{OutOfMemory, reserve};

/// Places whose repetitions are searched for.
const PLACES: usize = 512;
/// Long repetitions are searched for in the middle 1/8 of a block.
const PART: usize = 8;
/// Bytes of a long repetition.
const LEN: usize = 32;
/// Repetitions of numbers are searched for in the middle 1/16 of a block, but in no fewer bytes than this.
const NUMBERS_PART: usize = 16;
const MIN_NUMBERS: usize = 1 << 16;
/// Numbers, and fields of records, begin at multiples of this many bytes.
const NUMBERS_ALIGNMENT: usize = 4;
/// Repetitions within this many bytes show in samples too.
const NEAR: usize = 1 << 14;
/// Base-2 logarithm of the number of entries in the table that finds a place by a hash of its bytes.
const LOG: u32 = 13;

/// Places all over a block, each found by the eight bytes that begin there.
struct Places<'a> {
    contents: &'a [u8],
    /// Bytes from one place to the next.
    step: usize,
    /// One more than a place, by the hash of its bytes.
    table: Vec<u16>,
    is_repeated: [bool; PLACES],
}

impl<'a> Places<'a> {
    /// Takes places all over `contents`, which has at least 64 KiB.
    fn of(contents: &'a [u8]) -> Result<Self, OutOfMemory> {
        let step = contents.len() / PLACES / NUMBERS_ALIGNMENT * NUMBERS_ALIGNMENT;
        let mut table = Vec::new();
        reserve(&mut table, 1 << LOG)?;
        table.resize(1 << LOG, 0);
        let mut places = Self { contents, step, table, is_repeated: [false; PLACES] };
        for place in 0..PLACES - 1 {
            let bytes = places.read_u64_at(place * step);
            // A run says nothing about other repetitions.
            if bytes != bytes.rotate_left(8) {
                places.table[hash(bytes)] = place as u16 + 1;
            }
        }
        Ok(places)
    }

    fn read_u64_at(&self, at: usize) -> u64 {
        u64::from_le_bytes(*self.contents[at..].first_chunk().expect("eight bytes"))
    }

    /// The place whose bytes may be those at `at`.
    fn find(&self, at: usize) -> Option<usize> {
        self.table[hash(self.read_u64_at(at))].checked_sub(1).map(usize::from)
    }

    fn repeated(&self) -> usize {
        self.is_repeated.iter().filter(|is_repeated| **is_repeated).count()
    }
}

fn hash(bytes: u64) -> usize {
    (bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LOG)) as usize
}

/// The range of `len` bytes in the middle of a block of `all` bytes.
fn middle(all: usize, len: usize) -> std::ops::Range<usize> {
    let from = (all - len) / 2 / NUMBERS_ALIGNMENT * NUMBERS_ALIGNMENT;
    from..from + len
}

/// Of the `bytes` bytes that pieces of `contents` take, those left if repetitions of other units cost nothing.
pub(super) fn without_other_units(bytes: usize, contents: &[u8]) -> Result<usize, OutOfMemory> {
    if contents.len() <= 1 << UNIT_LOG {
        return Ok(bytes);
    }
    without_repeats(bytes, contents, |there, at| there >> UNIT_LOG != at >> UNIT_LOG)
}

/// Of the `bytes` bytes that pieces of `contents` take, those left if repetitions of far bytes cost nothing.
pub(super) fn without_far_bytes(bytes: usize, contents: &[u8]) -> Result<usize, OutOfMemory> {
    if contents.len() < 2 * MIN_NUMBERS {
        return Ok(bytes);
    }
    without_repeats(bytes, contents, |there, at| there.abs_diff(at) > NEAR)
}

/// Of the `bytes` bytes that pieces of `contents` take, those left if `hidden` repetitions cost nothing.
/// `hidden` gets the place of the bytes, and the place of their repetition.
fn without_repeats(
    bytes: usize,
    contents: &[u8],
    hidden: impl Fn(usize, usize) -> bool,
) -> Result<usize, OutOfMemory> {
    let mut places = Places::of(contents)?;
    for at in middle(contents.len(), contents.len() / PART).step_by(NUMBERS_ALIGNMENT) {
        let Some(place) = places.find(at) else { continue };
        let there = place * places.step;
        if hidden(there, at) && contents[there..there + LEN] == contents[at..at + LEN] {
            places.is_repeated[place] = true;
        }
    }
    // The other parts of the block hold more repetitions, but partly of the same places.
    let left = PLACES.saturating_sub(PART / 4 * places.repeated());
    Ok((bytes as u64 * left as u64 / PLACES as u64) as usize)
}

/// Whether many numbers of `contents` equal others so far away that no sample holds both.
pub(super) fn come_from_afar(contents: &[u8]) -> Result<bool, OutOfMemory> {
    let len = (contents.len() / NUMBERS_PART).max(MIN_NUMBERS);
    if contents.len() < 2 * len {
        return Ok(false);
    }
    let mut places = Places::of(contents)?;
    let range = middle(contents.len(), len);
    let mut near = 0;
    for at in range.clone().step_by(NUMBERS_ALIGNMENT) {
        if at == range.start + NEAR {
            near = places.repeated();
        }
        let Some(place) = places.find(at) else { continue };
        let there = place * places.step;
        if there != at && places.read_u64_at(there) == places.read_u64_at(at) {
            places.is_repeated[place] = true;
        }
    }
    Ok(places.repeated() - near > PLACES / 4)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::noise;

    #[test]
    fn repetitions_of_other_units_are_taken_off() {
        let new = noise(1, 2 << UNIT_LOG, 256);
        assert_eq!(without_other_units(1000, &new).unwrap(), 1000);
        // Runs show in pieces.
        assert_eq!(without_other_units(1000, &vec![7; 2 << UNIT_LOG]).unwrap(), 1000);
        let again = new[..1 << 18].repeat(8);
        assert!(without_other_units(1000, &again).unwrap() < 900);
        // One unit has one list.
        assert_eq!(without_other_units(1000, &again[..1 << UNIT_LOG]).unwrap(), 1000);
    }

    #[test]
    fn bytes_that_come_again_far_away_are_taken_off() {
        let new = noise(1, 1 << 18, 256);
        assert_eq!(without_far_bytes(1000, &new).unwrap(), 1000);
        assert!(without_far_bytes(1000, &new[..1 << 17].repeat(2)).unwrap() < 900);
        assert_eq!(without_far_bytes(1000, &new[..1 << 16]).unwrap(), 1000, "too short");
    }

    #[test]
    fn numbers_that_come_again_far_away_are_known() {
        let of = |values: usize| {
            let which = noise(2, 1 << 18, 256);
            let value = |i: &[u8; 2]| usize::from(u16::from_le_bytes(*i)) % values;
            let numbers = which.as_chunks().0.iter().map(|i| (value(i) as u64 + 1) << 40 | 7);
            let contents: Vec<u8> = numbers.flat_map(u64::to_le_bytes).collect();
            come_from_afar(&contents).unwrap()
        };
        assert!(of(8000), "a sample holds few of them twice");
        assert!(!of(50), "a sample holds each of them often");
        assert!(!come_from_afar(&noise(1, 1 << 20, 256)).unwrap(), "none comes again");
        assert!(!come_from_afar(&vec![7; 1 << 20]).unwrap());
    }
}
