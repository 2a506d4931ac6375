//! The distant matches of a block as bytes: four numbers for each.

use super::{DistantMatch, MAX_SOURCES, MIN_LEN, Malformed, OutOfMemory};
use crate::codec::reserve;

/// The fewest bytes of a match in a list.
const MIN_BYTES: usize = 4;

/// The lengths and the number of a block with distant matches, against which its list is checked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bounds {
    /// Number of the block in its frame.
    pub(crate) number: u32,
    pub(crate) content_len: u32,
    pub(crate) own_len: u32,
}

/// Appends `value`: seven bits in each byte, the lowest first, and a set eighth bit in all bytes but the last.
fn push(out: &mut Vec<u8>, mut value: u32) {
    while value >= 128 {
        out.push(value as u8 | 128);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads what [`push`] appends.
fn pull(bytes: &mut &[u8]) -> Result<u32, Malformed> {
    let mut value = 0;
    for shift in (0..32).step_by(7) {
        let (&byte, rest) =
            bytes.split_first().ok_or(Malformed("the list of distant matches is cut short"))?;
        *bytes = rest;
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            let is_shortest = byte > 0 || shift == 0;
            return match u32::try_from(value) {
                Ok(value) if is_shortest => Ok(value),
                _ => Err(Malformed("a number of a distant match is not in its shortest form")),
            };
        }
    }
    Err(Malformed("a number of a distant match is too long"))
}

/// Appends the list of the matches of block `number`, which are in order.
pub(crate) fn write(matches: &[DistantMatch], number: u32, out: &mut Vec<u8>) {
    let (mut at, mut source) = (0, (u32::MAX, 0));
    for one in matches {
        push(out, one.start - at);
        push(out, one.len - MIN_LEN);
        push(out, one.back.checked_sub(1).unwrap_or(number));
        let expected = if source.0 == one.back { source.1 } else { 0 };
        let difference = one.from.wrapping_sub(expected) as i32;
        push(out, (difference << 1 ^ difference >> 31) as u32);
        at = one.start + one.len;
        source = (one.back, one.from + one.len);
    }
}

/// Reads a list, and checks it against everything but the own bytes of the repeated blocks.
///
/// # Errors
/// The rule that the list breaks, or that the system has too little memory.
pub(crate) fn parse<E: From<Malformed> + From<OutOfMemory>>(
    mut bytes: &[u8],
    bounds: &Bounds,
) -> Result<Vec<DistantMatch>, E> {
    let Bounds { number, content_len, own_len } = *bounds;
    let mut matches = Vec::new();
    reserve(&mut matches, (bytes.len() / MIN_BYTES).min((content_len / MIN_LEN) as usize))?;
    let (mut at, mut source) = (0_u32, (u32::MAX, 0_u32));
    let mut left = content_len.checked_sub(own_len).ok_or(DO_NOT_ADD_UP)?;
    let mut backs: Vec<u32> = Vec::with_capacity(MAX_SOURCES);
    while !bytes.is_empty() {
        let gap = pull(&mut bytes)?;
        let len = pull(&mut bytes)?.checked_add(MIN_LEN).ok_or(DO_NOT_ADD_UP)?;
        let back = pull(&mut bytes)?;
        let difference = pull(&mut bytes)?;
        if back > number {
            return Err(Malformed("a distant match reaches beyond the first block").into());
        }
        // The block itself has the number after those of all blocks before it.
        let back = if back == number { 0 } else { back + 1 };
        if back > 0 && !backs.contains(&back) {
            if backs.len() == MAX_SOURCES {
                return Err(Malformed("distant matches repeat too many blocks").into());
            }
            backs.push(back);
        }
        let expected = if source.0 == back { source.1 } else { 0 };
        let difference = (difference >> 1) as i32 ^ -((difference & 1) as i32);
        // The own bytes of any block are fewer than 2^26.
        let from = expected
            .checked_add_signed(difference)
            .filter(|from| from.checked_add(len).is_some_and(|end| end <= 1 << 26))
            .ok_or(Malformed("a distant match repeats bytes beyond any block"))?;
        let start = at.checked_add(gap).filter(|&start| start <= content_len);
        let start = start.ok_or(DO_NOT_ADD_UP)?;
        left = left.checked_sub(len).ok_or(DO_NOT_ADD_UP)?;
        at = start.checked_add(len).filter(|&end| end <= content_len).ok_or(DO_NOT_ADD_UP)?;
        source = (back, from + len);
        matches.push(DistantMatch { start, len, back, from });
    }
    if left > 0 || matches.is_empty() {
        return Err(DO_NOT_ADD_UP.into());
    }
    Ok(matches)
}

const DO_NOT_ADD_UP: Malformed = Malformed("distant matches do not add up to the block's length");

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Fault;

    fn sample() -> (Vec<DistantMatch>, Bounds) {
        let matches = vec![
            DistantMatch { start: 0, len: 32, back: 1, from: 0 },
            DistantMatch { start: 32, len: 5000, back: 1, from: 100 },
            DistantMatch { start: 6000, len: 200, back: 7, from: 1 << 20 },
            DistantMatch { start: 6200, len: 33, back: 7, from: 3 },
            DistantMatch { start: 6233, len: 40, back: 0, from: 50 },
            DistantMatch { start: 6273, len: 40, back: 0, from: 90 },
            DistantMatch { start: 60_000, len: 5536, back: 2, from: (1 << 26) - 5536 },
        ];
        let own_len = (1 << 16) - matches.iter().map(|one| one.len).sum::<u32>();
        (matches, Bounds { number: 7, content_len: 1 << 16, own_len })
    }

    fn read(bytes: &[u8], bounds: &Bounds) -> Result<Vec<DistantMatch>, Fault> {
        parse(bytes, bounds)
    }

    #[test]
    fn lists_round_trip() {
        let (matches, bounds) = sample();
        let mut bytes = Vec::new();
        write(&matches, bounds.number, &mut bytes);
        assert_eq!(read(&bytes, &bounds).unwrap(), matches);
        // Cuts, and all other values of each byte: refused or another valid list, and never a panic.
        for len in 0..bytes.len() {
            assert!(read(&bytes[..len], &bounds).is_err());
        }
        for i in 0..bytes.len() {
            for value in 0..=255 {
                let mut other = bytes.clone();
                other[i] = value;
                if let Ok(parsed) = read(&other, &bounds) {
                    let mut again = Vec::new();
                    write(&parsed, bounds.number, &mut again);
                    assert_eq!(again, other);
                }
            }
        }
    }

    #[test]
    fn lists_that_break_a_rule_are_refused() {
        let (matches, bounds) = sample();
        let refused = |change: &dyn Fn(&mut Vec<DistantMatch>, &mut Bounds)| {
            let (mut matches, mut bounds) = (matches.clone(), bounds);
            change(&mut matches, &mut bounds);
            let mut bytes = Vec::new();
            write(&matches, bounds.number, &mut bytes);
            let Err(Fault::Corrupt(message)) = read(&bytes, &bounds) else { panic!() };
            message
        };
        assert!(refused(&|_, bounds| bounds.number = 5).contains("first block"));
        assert!(refused(&|_, bounds| bounds.own_len += 1).contains("add up"));
        assert!(refused(&|_, bounds| bounds.own_len = 1 << 17).contains("add up"));
        assert!(refused(&|matches, _| matches.clear()).contains("add up"));
        assert!(refused(&|matches, _| matches[6].start += 1).contains("add up"));
        assert!(refused(&|matches, _| matches[6].from += 1).contains("beyond"));
        let many = |matches: &mut Vec<DistantMatch>, bounds: &mut Bounds| {
            *matches = (0..17)
                .map(|i| DistantMatch { start: 32 * i, len: 32, back: i + 1, from: 0 })
                .collect();
            *bounds = Bounds { number: 99, own_len: (1 << 16) - 17 * 32, ..*bounds };
        };
        assert!(refused(&many).contains("too many"));
        // Numbers with more bytes than they need, or than any number takes.
        assert!(read(&[0x80, 0, 0, 0, 0], &bounds).is_err());
        assert!(read(&[0xff, 0xff, 0xff, 0xff, 0x7f, 0, 0, 0], &bounds).is_err());
        assert!(read(&[0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0], &bounds).is_err());
    }
}
