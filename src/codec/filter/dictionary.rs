//! Replaces elements by their places in a list of the values.
//!
//! Columns and measurements often have few different values, each of many bytes: readings of an instrument, hours of
//! events, categories. All bytes of such a value depend on each other, but coders see them one by one. The place of the
//! value in a sorted list takes a byte or two instead, keeps the order of values, and so leaves differences small.
//!
//! Decimal numbers stored as floats can be listed as the integers of [`decimal`](super::decimal), whose differences
//! take fewer bytes.
//!
//! In a filtered unit, the places come first. The list follows, as differences to the value before, and zeros up to the
//! unit's end.

use std::ops::Range;

use super::decimal;
use super::words::Word;
use crate::codec::{OutOfMemory, reserve};

/// Shorter units stay as they are: the list would take too much of them.
const MIN_UNIT: usize = 1 << 16;

/// For a unit of `count` elements of `width` bytes, with places of `index` bytes: where the list begins, and the most
/// values that it may have. Both count elements.
const fn list(count: usize, width: usize, index: usize) -> [usize; 2] {
    let start = (count * index).div_ceil(width);
    let (room, places) = (count - start, 1 << (8 * index));
    [start, if room < places { room } else { places }]
}

/// The range of the list in a filtered unit of `unit_len` bytes; empty if the unit is too short for one.
pub(super) const fn list_range(unit_len: usize, width: usize, index: usize) -> Range<usize> {
    if unit_len < MIN_UNIT {
        return 0..0;
    }
    let [start, capacity] = list(unit_len / width, width, index);
    start * width..(start + capacity) * width
}

/// Base-2 logarithm of the slots of the hash table: twice as many as there are places.
const SLOTS_LOG: u32 = 17;
/// Marks an empty slot.
const EMPTY: u32 = u32::MAX;

/// Memory for finding a unit's values.
#[derive(Default)]
pub(super) struct Values {
    /// By a hash: a value's number, counted in order of first appearance.
    slots: Vec<u32>,
    /// The values by number, each with that number.
    found: Vec<(u64, u32)>,
    /// The places in the sorted list, by number.
    places: Vec<u16>,
}

/// Bytes of memory that [`Values`] takes.
pub(super) const MEMORY: usize = (4 << SLOTS_LOG) + (16 + 2) * (1 << 16);

impl Values {
    /// Replaces the elements of `unit` by their places and the list. Returns false, and leaves `unit` spoilt, if there
    /// are too many values, or some that cannot become integers.
    pub(super) fn apply<W: Word>(
        &mut self,
        unit: &mut [u8],
        (index, digits): (u8, Option<u8>),
    ) -> Result<bool, OutOfMemory> {
        if unit.len() < MIN_UNIT {
            return Ok(true);
        }
        let width = size_of::<W>();
        let count = unit.len() / width;
        let unit = &mut unit[..count * width];
        let [start, capacity] = list(count, width, index.into());
        let fits = match index {
            1 => self.number::<W, 1>(unit, capacity)?,
            _ => self.number::<W, 2>(unit, capacity)?,
        };
        // Each element is now its value's number, in order of first appearance. The value's place in the list is known
        // only after sorting.
        let (places, list) = unit.split_at_mut(start * width);
        let (places, rest) = places.split_at_mut(count * usize::from(index));
        if !fits || !digits.is_none_or(|digits| self.make_decimal(width, digits)) {
            return Ok(false);
        }
        self.sort(8 * width as u32)?;
        match index {
            1 => self.place::<1>(places.as_chunks_mut().0),
            _ => self.place::<2>(places.as_chunks_mut().0),
        }
        list.fill(0);
        rest.fill(0);
        let mut last = W::default();
        for (entry, (value, _)) in W::elements_mut(list).iter_mut().zip(&self.found) {
            let value = W::from_carry(*value);
            *entry = value.sub(last).store();
            last = value;
        }
        Ok(true)
    }

    /// Numbers the values of the elements of `unit`, and writes these numbers, in place of the elements, to the
    /// beginning of the unit. A number takes no more bytes than an element, so it only overwrites elements that have
    /// been read. Returns false if there are more values than `most`.
    fn number<W: Word, const P: usize>(
        &mut self,
        unit: &mut [u8],
        most: usize,
    ) -> Result<bool, OutOfMemory> {
        reserve(&mut self.slots, 1 << SLOTS_LOG)?;
        reserve(&mut self.found, 1 << 16)?;
        self.slots.clear();
        self.slots.resize(1 << SLOTS_LOG, EMPTY);
        self.found.clear();
        let slots: &mut [u32; 1 << SLOTS_LOG] = self.slots.first_chunk_mut().expect("all slots");
        let found = &mut self.found;
        for i in 0..unit.len() / size_of::<W>() {
            let value = W::load(W::elements(unit)[i]).to_carry();
            let hash = (value ^ value >> 32).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let mut slot = (hash >> (64 - SLOTS_LOG)) as usize;
            let number = loop {
                let old = slots[slot];
                if found.get(old as usize).is_some_and(|(found, _)| *found == value) {
                    break old;
                }
                if old == EMPTY {
                    if found.len() == most {
                        return Ok(false);
                    }
                    let new = found.len() as u32;
                    slots[slot] = new;
                    found.push((value, new));
                    break new;
                }
                slot = (slot + 1) % (1 << SLOTS_LOG);
            };
            unit.as_chunks_mut().0[i] =
                std::array::from_fn::<_, P, _>(|i| (number >> (8 * i)) as u8);
        }
        Ok(true)
    }

    /// Replaces floats by their codes. Returns false if one has none.
    fn make_decimal(&mut self, width: usize, digits: u8) -> bool {
        self.found.iter_mut().all(|(value, _)| {
            let code = match width {
                4 => decimal::of_f32(*value as u32, digits).map(u64::from),
                _ => decimal::of_near(*value, digits),
            };
            code.map(|code| *value = code).is_some()
        })
    }

    /// Sorts the values, of `bits` bits, as signed numbers, so that small numbers of either sign are neighbours.
    fn sort(&mut self, bits: u32) -> Result<(), OutOfMemory> {
        self.found.sort_unstable_by_key(|(value, _)| value ^ 1 << (bits - 1));
        reserve(&mut self.places, 1 << 16)?;
        self.places.clear();
        self.places.resize(self.found.len(), 0);
        for (place, (_, number)) in (0..).zip(&self.found) {
            self.places[*number as usize] = place;
        }
        Ok(())
    }

    /// Replaces numbers of values by their places.
    fn place<const P: usize>(&self, numbers: &mut [[u8; P]]) {
        for number in numbers {
            let at = number.iter().rev().fold(0, |at, &byte| at << 8 | usize::from(byte));
            let place = self.places[at];
            *number = std::array::from_fn(|i| (place >> (8 * i)) as u8);
        }
    }
}

/// Restores the elements of `unit` from the list and the places in `filtered`, a copy of `unit`. Turns the list's
/// differences into values.
pub(super) fn undo<W: Word>(
    filtered: &mut [u8],
    unit: &mut [u8],
    (index, digits): (u8, Option<u8>),
) {
    if unit.len() < MIN_UNIT {
        return;
    }
    let elements = W::elements_mut(unit);
    let width = size_of::<W>();
    let [start, capacity] = list(elements.len(), width, index.into());
    let (places, list) = filtered.split_at_mut(start * width);
    let values = &mut W::elements_mut(list)[..capacity];
    W::running_sums(values, W::default());
    if let Some(digits) = digits {
        let float =
            |value: &mut W::Bytes| *value = W::load(*value).undo_near_decimal(digits).store();
        values.iter_mut().for_each(float);
    }
    let places = &places[..elements.len() * usize::from(index)];
    match index {
        1 => look_up::<W, 1>(values, places.as_chunks().0, elements),
        _ => look_up::<W, 2>(values, places.as_chunks().0, elements),
    }
}

/// Writes the values at these places; places after the list's end have the value 0.
fn look_up<W: Word, const P: usize>(
    values: &[W::Bytes],
    places: &[[u8; P]],
    elements: &mut [W::Bytes],
) {
    for (element, place) in elements.iter_mut().zip(places) {
        let at = place.iter().rev().fold(0, |at, &byte| at << 8 | usize::from(byte));
        *element = values.get(at).copied().unwrap_or(W::default().store());
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Context, FilterChain, apply, invert};
    use super::*;

    fn chain(name: &str) -> FilterChain {
        FilterChain::from_name(name).unwrap()
    }

    fn filtered(name: &str, contents: &[u8]) -> Option<Vec<u8>> {
        let mut filtered = Vec::new();
        let context = Context::default();
        let fits = apply(&chain(name), contents, &mut filtered, &mut Vec::new(), context).unwrap();
        fits.then_some(filtered)
    }

    fn restored(name: &str, filtered: &[u8]) -> Vec<u8> {
        let mut restored = filtered.to_vec();
        invert(&chain(name), &mut restored, &mut Vec::new(), Context::default()).unwrap();
        restored
    }

    /// `count` numbers with `values` different values.
    fn numbers(values: u64, count: u64) -> Vec<u8> {
        let number = |i: u64| i * 7919 % values * 1_000_003;
        (0..count).flat_map(|i| number(i).to_le_bytes()).collect()
    }

    #[test]
    fn a_unit_has_its_list_and_its_places() {
        let contents = [&numbers(1000, 10_000)[..], b"rest"].concat();
        let filtered = filtered("dictionary8:2", &contents).unwrap();
        assert_eq!(super::list(10_000, 8, 2), [2500, 7500]);
        let words = |bytes: &[u8]| -> Vec<u64> {
            bytes.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect()
        };
        let list = words(&filtered[20_000..80_000]);
        assert_eq!(list[0], 0);
        assert!(list[1..1000].iter().all(|&entry| entry == 1_000_003));
        assert!(list[1000..].iter().all(|&entry| entry == 0));
        assert_eq!(filtered[..6], [0, 0, 0x97, 3, 0x46, 3], "0, 919, and 838");
        assert_eq!(filtered[80_000..], *b"rest");
        assert!(restored("dictionary8:2", &filtered) == contents);
    }

    #[test]
    fn decimal_floats_are_listed_as_integers() {
        let price = |i: u64| (i * 7919 % 1000) as f64 / 100.0 - 5.0;
        let price = |i| (price(i) * 100.0).round() / 100.0;
        let contents: Vec<u8> = (0..10_000).flat_map(|i| price(i).to_le_bytes()).collect();
        let filtered = filtered("dictionary8:2.2", &contents).unwrap();
        let list: Vec<_> = filtered[20_000..28_000]
            .as_chunks()
            .0
            .iter()
            .copied()
            .map(i64::from_le_bytes)
            .collect();
        // From -5.00 on, in steps of 0.01.
        assert_eq!(list[0], 4 * -500);
        assert!(list[1..].iter().all(|&entry| entry == 4));
        assert!(restored("dictionary8:2.2", &filtered) == contents);
        let singles: Vec<u8> = (0..20_000).flat_map(|i| (price(i) as f32).to_le_bytes()).collect();
        let filtered = super::tests::filtered("dictionary4:2.2", &singles).unwrap();
        assert!(restored("dictionary4:2.2", &filtered) == singles);
        // Bits that are the code of an integer, but not the float of one.
        let odd = [&contents[..], &3_u64.to_le_bytes()].concat();
        assert!(super::tests::filtered("dictionary8:2.2", &odd).is_none());
    }

    #[test]
    fn lists_have_as_many_values_as_fit() {
        for (name, values, count, fits) in [
            ("dictionary8:1", 256, 20_000, true),
            ("dictionary8:1", 257, 20_000, false),
            ("dictionary8:2", 6144, 8192, true),
            ("dictionary8:2", 6145, 8192, false),
            ("dictionary8:2", 65_521, 131_072, true),
            ("dictionary8:2", 65_537, 131_072, false),
            ("dictionary4:2", 15_000, 20_000, true),
            // Too short for a list.
            ("dictionary8:1", 8191, 8191, true),
        ] {
            let contents = numbers(values, count);
            let filtered = filtered(name, &contents);
            assert_eq!(filtered.is_some(), fits, "{name}: {values} values");
            if let Some(filtered) = filtered {
                assert!(restored(name, &filtered) == contents, "{name}: {values} values");
                assert_eq!(filtered == contents, contents.len() < MIN_UNIT);
            }
        }
    }

    #[test]
    fn places_behind_the_list_are_zeros() {
        let restored = restored("dictionary8:2", &[0xff; MIN_UNIT]);
        assert!(restored.iter().all(|&byte| byte == 0));
        // The sums wrap around.
        let mut filtered = vec![0; MIN_UNIT];
        filtered[MIN_UNIT / 4..][..16].fill(0xff);
        filtered[..3].copy_from_slice(&[3, 0, 2]);
        let expected = [0xffff_fffc_u32, 0xffff_ffff, 0xffff_fffd].map(u32::to_le_bytes);
        let mut unit = filtered.clone();
        undo::<u32>(&mut filtered, &mut unit, (1, None));
        assert_eq!(unit[..12], *expected.as_flattened());
    }
}
