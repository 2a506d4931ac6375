//! Suffix sorting in plain Rust: SA-IS (Nong, Zhang and Chan, 2009), in linear time.
//!
//! For builds without the C library. It takes about three times as long as libsais, and gives the same order.
//!
//! A suffix is of type S if it is less than the next suffix, otherwise of type L. The last suffix is of type L, as if a
//! symbol less than all others followed. A suffix of type S after one of type L is an LMS suffix. Once the LMS suffixes
//! are in order, two passes induce the order of all others. To sort the LMS suffixes, cut the text at them, name each
//! piece by its rank among the pieces, and sort the suffixes of the text of names, which is at most half as long, in
//! the same way.

use super::{OutOfMemory, reserve};

/// No suffix.
const NONE: i32 = -1;

/// A symbol of a text. The caller gives a limit for its index.
trait Symbol: Copy + Eq {
    fn index(self) -> usize;
}

impl Symbol for u8 {
    fn index(self) -> usize {
        self.into()
    }
}

impl Symbol for i32 {
    fn index(self) -> usize {
        self as usize
    }
}

/// Writes the positions of the suffixes of `text` (at most 2 GiB) to `order`, from the least suffix to the greatest.
///
/// # Errors
/// If the system refuses memory.
pub(super) fn sort(text: &[u8], order: &mut [i32]) -> Result<(), OutOfMemory> {
    sort_suffixes(text, 256, order)
}

fn sort_suffixes<T: Symbol>(
    text: &[T],
    symbols: usize,
    order: &mut [i32],
) -> Result<(), OutOfMemory> {
    let len = text.len();
    if len < 2 {
        order.fill(0);
        return Ok(());
    }
    let types = Types::of(text)?;
    let mut buckets = Buckets::of(text, symbols)?;

    // Sort the pieces between LMS suffixes, starting with these in any order.
    order.fill(NONE);
    buckets.seek_ends();
    for at in (1..len).rev().filter(|&at| types.is_lms(at)) {
        buckets.put_last(text[at], at, order);
    }
    induce(text, &types, &mut buckets, order);

    // Name each piece by its rank. Equal pieces have the same name.
    let mut count = 0;
    for i in 0..len {
        let at = order[i];
        if types.is_lms(at as usize) {
            order[count] = at;
            count += 1;
        }
    }
    // Two LMS suffixes are never adjacent, so half a position tells them apart.
    let (sorted, names) = order.split_at_mut(count);
    names.fill(NONE);
    let mut name_count = 0;
    let mut previous = None;
    for &at in &*sorted {
        let at = at as usize;
        if previous.is_none_or(|previous| !is_same_piece(text, &types, previous, at)) {
            name_count += 1;
        }
        previous = Some(at);
        names[at / 2] = name_count as i32 - 1;
    }
    let mut end = len;
    for i in (count..len).rev() {
        if order[i] != NONE {
            end -= 1;
            order[end] = order[i];
        }
    }

    // Sort the LMS suffixes by the text of names, which lies at the end of `order`.
    let (sorted, names) = order.split_at_mut(len - count);
    let sorted = &mut sorted[..count];
    if name_count < count {
        sort_suffixes(names, name_count, sorted)?;
    } else {
        for (i, &name) in names.iter().enumerate() {
            sorted[name as usize] = i as i32;
        }
    }
    for (name, at) in names.iter_mut().zip((1..len).filter(|&at| types.is_lms(at))) {
        *name = at as i32;
    }
    for rank in sorted {
        *rank = names[*rank as usize];
    }

    // Sort all suffixes, starting with the LMS suffixes in order.
    order[count..].fill(NONE);
    buckets.seek_ends();
    for i in (0..count).rev() {
        let at = std::mem::replace(&mut order[i], NONE) as usize;
        buckets.put_last(text[at], at, order);
    }
    induce(text, &types, &mut buckets, order);
    Ok(())
}

/// `len` zeros.
fn zeros<T: Default + Clone>(len: usize) -> Result<Vec<T>, OutOfMemory> {
    let mut zeros = Vec::new();
    reserve(&mut zeros, len)?;
    zeros.resize(len, T::default());
    Ok(zeros)
}

/// Sorts all suffixes. The LMS suffixes lie in order at the ends of their buckets. First each suffix of type L gets its
/// place from the suffix after it, then each of type S.
fn induce<T: Symbol>(text: &[T], types: &Types, buckets: &mut Buckets, order: &mut [i32]) {
    let len = text.len();
    buckets.seek_starts();
    buckets.put_first(text[len - 1], len - 1, order);
    for i in 0..len {
        if let Some(before) = before(order[i])
            && !types.is_s(before)
        {
            buckets.put_first(text[before], before, order);
        }
    }
    buckets.seek_ends();
    for i in (0..len).rev() {
        if let Some(before) = before(order[i])
            && types.is_s(before)
        {
            buckets.put_last(text[before], before, order);
        }
    }
}

/// The position before `at`. `None` if `at` is no position or the first.
fn before(at: i32) -> Option<usize> {
    (at > 0).then(|| at as usize - 1)
}

/// Whether the pieces that start at two LMS suffixes are equal. A piece ends with the next LMS suffix.
fn is_same_piece<T: Symbol>(text: &[T], types: &Types, a: usize, b: usize) -> bool {
    let last = text.len() - a.max(b);
    for i in 0..last {
        if text[a + i] != text[b + i] || types.is_s(a + i) != types.is_s(b + i) {
            return false;
        }
        if i > 0 && (types.is_lms(a + i) || types.is_lms(b + i)) {
            return types.is_lms(a + i) && types.is_lms(b + i);
        }
    }
    // The end of the text equals no other piece.
    false
}

/// One bit for each suffix: whether it is of type S.
struct Types {
    bits: Vec<u64>,
}

impl Types {
    fn of<T: Symbol>(text: &[T]) -> Result<Self, OutOfMemory> {
        let mut bits: Vec<u64> = zeros(text.len().div_ceil(64))?;
        let mut is_s = false;
        for (at, pair) in text.windows(2).enumerate().rev() {
            let (this, next) = (pair[0].index(), pair[1].index());
            is_s = this < next || (this == next && is_s);
            bits[at / 64] |= u64::from(is_s) << (at % 64);
        }
        Ok(Self { bits })
    }

    fn is_s(&self, at: usize) -> bool {
        self.bits[at / 64] >> (at % 64) & 1 != 0
    }

    fn is_lms(&self, at: usize) -> bool {
        at > 0 && self.is_s(at) && !self.is_s(at - 1)
    }
}

/// For each symbol, the part of the order that holds the suffixes beginning with it.
struct Buckets {
    /// The start of each symbol's suffixes, then the end of the last symbol's.
    bounds: Vec<i32>,
    /// Where each symbol's next suffix goes.
    next: Vec<i32>,
}

impl Buckets {
    fn of<T: Symbol>(text: &[T], symbols: usize) -> Result<Self, OutOfMemory> {
        let mut bounds: Vec<i32> = zeros(symbols + 1)?;
        for symbol in text {
            bounds[symbol.index() + 1] += 1;
        }
        for i in 0..symbols {
            bounds[i + 1] += bounds[i];
        }
        Ok(Self { bounds, next: zeros(symbols)? })
    }

    fn seek_starts(&mut self) {
        let symbols = self.next.len();
        self.next.copy_from_slice(&self.bounds[..symbols]);
    }

    fn seek_ends(&mut self) {
        self.next.copy_from_slice(&self.bounds[1..]);
    }

    fn put_first<T: Symbol>(&mut self, symbol: T, at: usize, order: &mut [i32]) {
        let next = &mut self.next[symbol.index()];
        order[*next as usize] = at as i32;
        *next += 1;
    }

    fn put_last<T: Symbol>(&mut self, symbol: T, at: usize, order: &mut [i32]) {
        let next = &mut self.next[symbol.index()];
        *next -= 1;
        order[*next as usize] = at as i32;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &[u8]) {
        let mut order = vec![7; text.len()];
        sort(text, &mut order).unwrap();
        let mut expected: Vec<i32> = (0..text.len() as i32).collect();
        expected.sort_by_key(|&at| &text[at as usize..]);
        assert_eq!(order, expected, "{text:?}");
    }

    #[test]
    fn every_short_text_of_three_symbols_is_sorted() {
        for len in 1..9 {
            for number in 0..3_usize.pow(len) {
                let digit = |i| (number / 3_usize.pow(i) % 3) as u8;
                check(&(0..len).map(digit).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn long_texts_are_sorted() {
        check(&[5; 3000]);
        check(&b"abracadabra".repeat(90));
        check(&b"ba".repeat(700));
        let mut state = 12_345_u32;
        for symbols in [2, 3, 20, 256] {
            let mut next = || {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                ((state >> 16) % symbols) as u8
            };
            let mut text: Vec<u8> = (0..5000).map(|_| next()).collect();
            check(&text);
            text.extend_from_within(1000..4000);
            check(&text);
        }
    }
}
