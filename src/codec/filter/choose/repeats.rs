//! How much of a block repeats other units, which pieces of it do not show.

use super::UNIT_LOG;
use crate::codec::{OutOfMemory, reserve};

/// Places whose repetition is looked for.
const PLACES: usize = 512;
/// We look for repetitions in the middle of a block, in one part of so many.
const PART: usize = 8;
/// Bytes of a repetition.
const LEN: usize = 32;
/// Base-2 logarithm of the number of entries in the table that finds a place by a hash of its bytes.
const LOG: u32 = 13;

/// Pieces of `contents` take `bytes` bytes. Returns how many of these are left if what repeats another unit takes none.
pub(super) fn without_repeats(bytes: usize, contents: &[u8]) -> Result<usize, OutOfMemory> {
    let step = contents.len() / PLACES;
    if contents.len() <= 1 << UNIT_LOG {
        return Ok(bytes);
    }
    let mut places: Vec<u16> = Vec::new();
    reserve(&mut places, 1 << LOG)?;
    places.resize(1 << LOG, 0);
    let eight = |at: usize| u64::from_le_bytes(*contents[at..].first_chunk().expect("eight bytes"));
    let hash = |bytes: u64| (bytes.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - LOG)) as usize;
    for place in 0..PLACES - 1 {
        let bytes = eight(place * step);
        // Runs are no sign of more.
        if bytes != bytes.rotate_left(8) {
            places[hash(bytes)] = place as u16 + 1;
        }
    }
    let mut is_repeated = [false; PLACES];
    let part = contents.len() / PART;
    let from = (contents.len() - part) / 2;
    for at in from..from + part {
        let Some(place) = places[hash(eight(at))].checked_sub(1) else { continue };
        let there = usize::from(place) * step;
        let is_other_unit = there >> UNIT_LOG != at >> UNIT_LOG;
        if is_other_unit && contents[there..there + LEN] == contents[at..at + LEN] {
            is_repeated[usize::from(place)] = true;
        }
    }
    let repeated = is_repeated.iter().filter(|is_repeated| **is_repeated).count();
    // Other parts hold more, of which some are the same.
    let left = PLACES.saturating_sub(PART / 4 * repeated);
    Ok((bytes as u64 * left as u64 / PLACES as u64) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_data::noise;

    #[test]
    fn repetitions_of_other_units_are_taken_off() {
        let new = noise(1, 2 << UNIT_LOG, 256);
        assert_eq!(without_repeats(1000, &new).unwrap(), 1000);
        // Runs show in pieces.
        assert_eq!(without_repeats(1000, &vec![7; 2 << UNIT_LOG]).unwrap(), 1000);
        let again = new[..1 << 18].repeat(8);
        assert!(without_repeats(1000, &again).unwrap() < 900);
        // One unit has one list.
        assert_eq!(without_repeats(1000, &again[..1 << UNIT_LOG]).unwrap(), 1000);
    }
}
