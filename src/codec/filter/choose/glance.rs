//! Reads a block's type from a few short pieces, and lists the chains that suit it.

use super::super::{FilterChain, Stage, decimal};
use super::Frequencies;
use crate::codec::histogram::histogram;

/// Whether bytes are text: hardly any control characters, and mostly printable ASCII or UTF-8.
pub(super) fn is_text(bytes: &[u8]) -> bool {
    let counts = histogram(bytes);
    let sum = |range: std::ops::Range<usize>| counts[range].iter().sum::<u32>();
    let all = sum(0..256);
    let spaces = sum(9..11) + counts[13];
    let controls = sum(0..32) - spaces;
    let printable = sum(32..127) + spaces;
    controls <= all / 512 && (printable >= all / 4 * 3 || (printable >= all / 8 && is_utf_8(bytes)))
}

/// Whether nearly all bytes outside ASCII form UTF-8 characters: a leading byte, then continuation bytes.
fn is_utf_8(bytes: &[u8]) -> bool {
    let (mut pairs, mut wrong) = (0, 0);
    let continues = |byte: u8| (0x80..0xc0).contains(&byte);
    for (&first, &second) in bytes.iter().zip(&bytes[1..]) {
        if first < 0x80 && second < 0x80 {
            continue;
        }
        pairs += 1;
        // Wrong pairs: a continuation byte after an ASCII byte, and a leading byte without one after it.
        let is_wrong = if continues(second) { first < 0x80 } else { first >= 0xc0 };
        wrong += u32::from(is_wrong);
    }
    wrong <= pairs / 16
}

/// The likely widths of elements; `None` if bytes depend neither on their place in an element nor on the pixel before.
pub(super) fn widths(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut planes: [Frequencies; 8] = Default::default();
    for element in bytes.as_chunks::<8>().0 {
        planes.iter_mut().zip(element).for_each(|(plane, &byte)| plane.0[usize::from(byte)] += 1);
    }
    // Bits that the bytes take with a table for each place in elements of this width.
    let with_planes = |width: usize| {
        let of = |first: usize| {
            let mut sum = Frequencies::default();
            planes.iter().skip(first).step_by(width).for_each(|plane| sum.join(plane));
            sum.bits()
        };
        (0..width).map(of).sum::<u64>()
    };
    let plain = with_planes(1);
    let is_less = |bits: u64| bits < plain - plain / 16;
    let mut widths = vec![1];
    let mut least = plain;
    for width in [2, 4, 8] {
        let bits = with_planes(width.into());
        if bits < least - least / 32 {
            // Pairs of numbers may look like one wider number.
            let is_clear = bits < least - least / 16;
            widths.retain(|&narrower| narrower > 1 && !is_clear);
            widths.push(width);
            least = bits;
        }
    }
    let resemble = |distance: usize| {
        let pairs = bytes[distance..].iter().zip(bytes);
        let differences: Vec<_> = pairs.map(|(byte, before)| byte.wrapping_sub(*before)).collect();
        is_less(Frequencies::of(&differences).bits())
    };
    (is_less(least) || (1..=4).any(resemble)).then_some(widths)
}

/// The chains to consider for elements of these widths.
pub(super) fn candidates(bytes: &[u8], widths: &[u8]) -> Vec<FilterChain> {
    let mut chains = Vec::new();
    let mut add = |stages: &[Stage]| chains.extend(FilterChain::new(stages));
    for &width in widths {
        if width == 1 {
            for stride in [1, 2, 3, 4] {
                add(&[Stage::Delta { width: 1, order: 1, stride }]);
            }
            // Pixels, and sound of 24 bits.
            let [pixel, colour] = [3, 1].map(|stride| Stage::Delta { width: 1, order: 1, stride });
            let transpose = Stage::Transpose { width: 3 };
            add(&[pixel, colour]);
            add(&[transpose]);
            add(&[pixel, transpose]);
            continue;
        }
        let transpose = Stage::Transpose { width };
        let zigzag = Stage::Zigzag { width };
        add(&[transpose]);
        add(&[Stage::Rotate { width, bits: 1 }, transpose]);
        for stride in [1, 2, 3, 4] {
            add(&[Stage::Delta { width, order: 1, stride }, zigzag, transpose]);
        }
        for stride in [1, 2] {
            add(&[Stage::Delta { width, order: 2, stride }, zigzag, transpose]);
        }
        // Two channels of sound that are much alike.
        let signed = Stage::ZigzagDelta { width, order: 1, stride: 1 };
        for order in [1, 2] {
            add(&[Stage::Delta { width, order, stride: 2 }, signed, transpose]);
        }
        // Pixels with a channel that never changes.
        add(&[Stage::Delta { width: 1, order: 1, stride: width.into() }, transpose]);
        for digits in digits(width, bytes) {
            let [exact, near] = [false, true].map(|near| decimals(width, bytes, digits, near));
            let decimal = match near > exact + exact / 16 {
                true => Stage::NearDecimal { digits },
                false => Stage::Decimal { width, digits },
            };
            add(&[decimal, transpose]);
            add(&[decimal, zigzag, transpose]);
            add(&[decimal, signed, transpose]);
        }
    }
    if let Some(width) = record_width(bytes) {
        add(&[Stage::Transpose { width }]);
        if width.is_multiple_of(4) {
            let stride = u16::from(width / 4);
            let delta = Stage::Delta { width: 4, order: 1, stride };
            add(&[delta, Stage::Transpose { width }]);
        }
    }
    chains
}

/// The number of different elements of `width` bytes, 4 or 8; `None` if few are equal to others.
pub(super) fn few_values(bytes: &[u8], width: u8) -> Option<usize> {
    let mut values: Vec<u64> = match width {
        4 => bytes.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes).into()).collect(),
        _ => bytes.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect(),
    };
    let all = values.len();
    values.sort_unstable();
    values.dedup();
    (values.len() <= all - all / 8).then_some(values.len())
}

/// The digits after the point that suffice for half of the floats of `width` bytes, and, if that is more, those that
/// suffice for nearly all. Empty if the floats have too many.
fn digits(width: u8, bytes: &[u8]) -> Vec<u8> {
    let Some(max) = decimal::max_digits(width) else { return Vec::new() };
    let few = an_eighth(bytes);
    let all = few.len() / usize::from(width);
    let mut found = Vec::new();
    let mut least = all / 2;
    for digits in 0..=max.min(6) {
        let decimals = decimals(width, &few, digits, true);
        if decimals >= least {
            found.push(digits);
            least = all - all / 8;
            if decimals >= least {
                break;
            }
        }
    }
    found.truncate(2);
    found
}

/// The fewest digits after the point that make nearly as many floats of `width` bytes decimal as more digits do; `None`
/// if most floats are not decimal. In a list, one float that is not decimal takes more bytes than a further digit of
/// all.
pub(super) fn digits_for_lists(width: u8, bytes: &[u8]) -> Option<u8> {
    let max = decimal::max_digits(width)?.min(8);
    let most_of = |bytes: &[u8]| -> Option<Vec<usize>> {
        let all = bytes.len() / usize::from(width);
        let counts: Vec<_> = (0..=max).map(|digits| decimals(width, bytes, digits, true)).collect();
        counts.iter().any(|&count| count >= all / 2).then_some(counts)
    };
    most_of(&an_eighth(bytes))?;
    let counts = most_of(bytes)?;
    let most = counts.iter().max()?;
    let all = bytes.len() / usize::from(width);
    let enough = counts.iter().position(|count| count + all / 256 >= *most)?;
    Some(enough as u8)
}

/// Every eighth group of 32 bytes.
fn an_eighth(bytes: &[u8]) -> Vec<u8> {
    bytes.as_chunks::<32>().0.iter().step_by(8).flatten().copied().collect()
}

/// The number of floats of `width` bytes that are decimal with `digits` digits after the point. With `counts_near`,
/// floats of 8 bytes next to such a number count as well.
fn decimals(width: u8, bytes: &[u8], digits: u8, counts_near: bool) -> usize {
    let is_other =
        |bits: u64, code: Option<u64>| bits == 0 || code.is_some_and(|code| code != bits);
    if width == 4 {
        let singles = bytes.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes));
        let code = |bits| decimal::of_f32(bits, digits).map(u64::from);
        return singles.filter(|&bits| is_other(bits.into(), code(bits))).count();
    }
    let code = if counts_near { decimal::of_near } else { decimal::of_f64 };
    let doubles = bytes.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes));
    doubles.filter(|&bits| is_other(bits, code(bits, digits))).count()
}

/// The distance at which bytes are most often equal, if they often are: the width of records.
fn record_width(bytes: &[u8]) -> Option<u8> {
    let equal = |distance: usize| -> usize {
        // Few enough at a time for the count to fit in a byte.
        let pairs = bytes[distance..].chunks(128).zip(bytes.chunks(128));
        let count =
            |(a, b): (&[u8], &[u8])| -> u8 { a.iter().zip(b).map(|(a, b)| u8::from(a == b)).sum() };
        pairs.map(|pair| usize::from(count(pair))).sum()
    };
    let widths = (3..=64).filter(|width| !matches!(width, 4 | 8));
    // Of widths with equal counts, the narrowest.
    let best = widths.map(|width| (equal(width), std::cmp::Reverse(width))).max()?;
    (best.0 > bytes.len() / 8).then_some(best.1.0 as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(i: u64) -> u64 {
        let mixed = (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    }

    fn bytes<const N: usize>(element: impl Fn(u64) -> [u8; N]) -> Vec<u8> {
        (0..15_360 / N as u64).flat_map(element).collect()
    }

    #[test]
    fn elements_show_their_width() {
        let unit = |i: u64| 1.0 + (random(i) % 1_000_000) as f64 / 1e6;
        let pixel = |i: u64| 100 + 10 * (i % 3) as u8 + (random(i) % 8) as u8;
        let cases = [
            ("f64", bytes(|i| f64::from(unit(i) as f32).to_le_bytes()), Some(vec![8])),
            ("f32", bytes(|i| (unit(i) as f32).to_le_bytes()), Some(vec![4])),
            ("i16", bytes(|i| ((random(i) % 3000) as i16).to_le_bytes()), Some(vec![2])),
            ("pixels", bytes(|i| [pixel(i) + (i / 300) as u8]), Some(vec![1])),
            ("noise", bytes(|i| (random(i) as u32).to_le_bytes()), None),
            ("zeros", vec![0; 15_360], None),
        ];
        for (what, bytes, expected) in cases {
            assert_eq!(widths(&bytes), expected, "{what}");
        }
    }

    #[test]
    fn candidates_have_the_digits_of_most_and_of_nearly_all_floats() {
        let price = |i: u64, digits: i32| {
            let power = 10_f64.powi(digits);
            (1.0 + (random(i) % 1_000_000) as f64) / power
        };
        for (some_of_ten, few, many, expected) in [
            (0, 2, 5, vec![2]),
            (4, 2, 5, vec![2, 5]),
            (6, 2, 5, vec![5]),
            (4, 2, 14, vec![2]),
            (10, 2, 14, vec![]),
        ] {
            let digits_of = |i: u64| if random(7 * i) % 10 < some_of_ten { many } else { few };
            let floats = bytes(|i| price(i, digits_of(i)).to_le_bytes());
            assert_eq!(digits(8, &floats), expected, "{some_of_ten} of 10");
        }
    }

    #[test]
    fn floats_next_to_decimal_numbers_are_known() {
        let number = |i: u64| (1 + random(i) % 1_000_000) as f64;
        let exact = bytes(|i| (number(i) / 1e5).to_le_bytes());
        // A way of dividing that some parsers use.
        let near = bytes(|i| (number(i) / 10.0 / 1e4).to_le_bytes());
        for (floats, expected) in [(exact, "decimal8:5"), (near, "neardecimal8:5")] {
            let names = candidates(&floats, &[8]).into_iter().map(|chain| chain.to_string());
            let of_decimals: Vec<_> = names.filter(|name| name.contains("decimal")).collect();
            assert!(!of_decimals.is_empty());
            assert!(of_decimals.iter().all(|name| name.starts_with(expected)), "{of_decimals:?}");
        }
    }

    #[test]
    fn lists_have_the_digits_of_all_decimal_numbers() {
        let price = |i: u64, digits: i32| (1 + random(i) % 9000) as f64 / 10_f64.powi(digits);
        let few_have_four = bytes(|i| price(i, if i % 40 == 0 { 4 } else { 2 }).to_le_bytes());
        assert_eq!(digits_for_lists(8, &few_have_four), Some(4));
        let singles = bytes(|i| (price(i, 1) as f32).to_le_bytes());
        assert_eq!(digits_for_lists(4, &singles), Some(1));
        let roots = bytes(|i| price(i, 2).sqrt().to_le_bytes());
        assert_eq!(digits_for_lists(8, &roots), None);
    }
}
