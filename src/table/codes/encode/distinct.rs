//! The distinct values of a sequence, and its runs.

use crate::table::codes::spec::*;
use crate::table::codes::value::Value;

/// Distinct values in ascending order, and for each row the place of its value among them.
pub(super) struct Distinct<T> {
    pub(super) entries: Vec<T>,
    pub(super) codes: Vec<u32>,
}

/// Slots of the hash table: open addressing, at most a quarter full.
const SLOT_LOG: u32 = 18;

fn slot_of<T: Value>(value: T) -> usize {
    let mut folded = value.low();
    if T::BITS > 64 {
        for word in 1..T::BITS / 64 {
            folded = folded.rotate_left(23).wrapping_mul(0x9e37_79b9_7f4a_7c15)
                ^ value.shr(64 * word).low();
        }
    }
    folded ^= folded >> 32;
    (folded.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - SLOT_LOG)) as usize
}

/// `None` if there are more than `limit` distinct values, at most [`MAX_ENTRIES`].
pub(super) fn distinct<T: Value>(values: &[T], order: Order, limit: usize) -> Option<Distinct<T>> {
    let limit = limit.min(MAX_ENTRIES);
    // An entry's number plus 1; 0 for an empty slot.
    let mut slots = vec![0_u32; 1 << SLOT_LOG];
    let mut entries: Vec<T> = Vec::new();
    let mut codes = Vec::with_capacity(values.len());
    let mut last: Option<(T, u32)> = None;
    for &value in values {
        if let Some((_, code)) = last.filter(|&(before, _)| before == value) {
            codes.push(code);
            continue;
        }
        let mut slot = slot_of(value);
        let code = loop {
            match slots[slot] {
                0 => {
                    if entries.len() == limit {
                        return None;
                    }
                    entries.push(value);
                    slots[slot] = entries.len() as u32;
                    break entries.len() as u32 - 1;
                }
                number if entries[number as usize - 1] == value => break number - 1,
                _ => slot = (slot + 1) % slots.len(),
            }
        };
        last = Some((value, code));
        codes.push(code);
    }
    let mut sorted: Vec<u32> = (0..entries.len() as u32).collect();
    sorted.sort_unstable_by_key(|&number| order.key(entries[number as usize]));
    let mut rank = vec![0; entries.len()];
    for (place, &number) in sorted.iter().enumerate() {
        rank[number as usize] = place as u32;
    }
    codes.iter_mut().for_each(|code| *code = rank[*code as usize]);
    let entries = sorted.iter().map(|&number| entries[number as usize]).collect();
    Some(Distinct { entries, codes })
}

/// How many runs of equal values there are.
pub(super) fn count_runs<T: Value>(values: &[T]) -> usize {
    let changes: usize = values.windows(2).map(|pair| usize::from(pair[0] != pair[1])).sum();
    changes + usize::from(!values.is_empty())
}

/// The value and the end of each run.
pub(super) fn runs<T: Value>(values: &[T]) -> (Vec<T>, Vec<u32>) {
    let (mut firsts, mut ends) = (Vec::new(), Vec::new());
    for (row, &value) in values.iter().enumerate() {
        if firsts.last() != Some(&value) {
            if row > 0 {
                ends.push(row as u32);
            }
            firsts.push(value);
        }
    }
    ends.push(values.len() as u32);
    (firsts, ends)
}
