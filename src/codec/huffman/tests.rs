use super::*;
use crate::bits::{BitReader, BitWriter};
use proptest::prelude::*;

/// The size of an optimal code, by package-merge as defined, with whole lists of symbols.
fn oracle_bits(freqs: &[u32], max_len: u8) -> u64 {
    type Item = (u64, Vec<usize>);
    let leaves: Vec<Item> = (0..freqs.len())
        .filter(|&s| freqs[s] > 0)
        .map(|s| (u64::from(freqs[s]), vec![s]))
        .collect();
    let mut list: Vec<Item> = Vec::new();
    for _ in 0..max_len {
        let packages = list
            .chunks_exact(2)
            .map(|pair| (pair[0].0 + pair[1].0, [pair[0].1.clone(), pair[1].1.clone()].concat()));
        let mut merged: Vec<Item> = leaves.iter().cloned().chain(packages).collect();
        merged.sort_by_key(|item| item.0);
        list = merged;
    }
    list[..2 * leaves.len() - 2].iter().map(|item| item.0).sum()
}

fn check_code(freqs: &[u32], max_len: u8) -> Vec<u8> {
    let mut lengths = vec![0xff; freqs.len()];
    code_lengths(freqs, max_len, &mut lengths);
    for (symbol, &freq) in freqs.iter().enumerate() {
        assert_eq!(lengths[symbol] > 0, freq > 0, "symbol {symbol}");
        assert!(lengths[symbol] <= max_len);
    }
    count_lengths(&lengths, max_len).expect("a complete code");
    lengths
}

/// Counts of many shapes, at least two of them not zero.
fn freqs() -> impl Strategy<Value = Vec<u32>> {
    let counts = prop_oneof![
        prop::collection::vec(0u32..4, 2..257),
        prop::collection::vec((0u32..32, any::<u32>()).prop_map(|(bits, x)| x >> bits), 2..257),
        (2usize..40, 100u64..250).prop_map(|(n, ratio)| {
            let count = |i: usize| (0..i).fold(100u64, |x, _| (x * ratio / 100).min(1 << 31));
            (0..n).map(|i| count(i) as u32).collect()
        }),
    ];
    counts.prop_filter("two symbols", |freqs| freqs.iter().filter(|&&f| f > 0).count() >= 2)
}

#[test]
fn known_lengths() {
    let lengths = |freqs: &[u32], max_len| check_code(freqs, max_len);
    assert_eq!(lengths(&[1, 1], 12), [1, 1]);
    assert_eq!(lengths(&[0, 5, 0, 9], 1), [0, 1, 0, 1]);
    assert_eq!(lengths(&[1, 2, 4, 8, 16], 12), [4, 4, 3, 2, 1]);
    assert_eq!(lengths(&[1, 2, 4, 8, 16], 3), [3, 3, 3, 3, 1]);
    assert_eq!(lengths(&[1; 256], 8), [8; 256]);
    assert_eq!(lengths(&[u32::MAX; 4], 12), [2; 4]);
    // Fibonacci numbers make the deepest trees.
    let mut fibonacci = vec![1u32, 1];
    while fibonacci.len() < 46 {
        fibonacci.push(fibonacci[fibonacci.len() - 1] + fibonacci[fibonacci.len() - 2]);
    }
    check_code(&fibonacci, 12);
    check_code(&fibonacci, 6);
}

#[test]
fn no_code_for_fewer_than_two_symbols() {
    for freqs in [&[][..], &[0, 0, 0], &[0, 9, 0]] {
        let mut lengths = vec![0xff; freqs.len()];
        code_lengths(freqs, 12, &mut lengths);
        assert!(lengths.iter().all(|&len| len == 0));
    }
}

#[test]
fn canonical_codes() {
    let mut codes = [0; 5];
    assign_codes(&[3, 1, 3, 0, 2], &mut codes);
    assert_eq!(codes, [0b110, 0b0, 0b111, 0, 0b10]);
}

#[test]
fn incomplete_codes_are_refused() {
    let mut table = [0; 1 << 12];
    let cases: [&[u8]; 7] = [&[], &[0; 256], &[1], &[1, 2], &[1, 1, 1], &[2, 2, 2], &[1, 2, 3, 4]];
    for lengths in cases {
        assert!(build_table(lengths, 12, &mut table).is_err(), "{lengths:?}");
    }
    assert!(build_table(&[1, 2, 3, 3], 2, &mut table).is_err());
    assert!(build_table(&[1, 2, 3, 3], 3, &mut table).is_ok());
    assert!(build_table(&[1, 13], 12, &mut table).is_err());
}

fn describe(codes: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = BitWriter::new(&mut bytes);
    write_lengths(codes, &mut out);
    out.finish();
    bytes
}

fn restore(bytes: &[u8], max_len: u8, sizes: &[usize]) -> Result<(Vec<Vec<u8>>, usize), Malformed> {
    let mut codes: Vec<_> = sizes.iter().map(|&size| vec![0x55; size]).collect();
    let mut input = BitReader::new(bytes);
    let mut slices: Vec<_> = codes.iter_mut().map(Vec::as_mut_slice).collect();
    read_lengths(&mut input, max_len, &mut slices)?;
    Ok((codes, input.finish().ok_or(Malformed("padding"))?))
}

#[test]
fn descriptions_are_as_specified() {
    // A run of 3 zeros, then 1, 2 and 2 in their contexts: 00100 111110, 11100, 01.
    let lengths = [0, 0, 0, 1, 2, 2, 0, 0];
    let bytes = [0x27, 0xdc, 0x40];
    assert_eq!(describe(&[&lengths]), bytes);
    assert_eq!(restore(&bytes, 2, &[8]), Ok((vec![lengths.to_vec()], 3)));
    assert!(restore(&bytes, 1, &[8]).is_err(), "longer than the limit");
    assert!(restore(&bytes, 2, &[5]).is_err(), "outside the alphabet");
    assert!(restore(&[0x27, 0xdc, 0x41], 2, &[8]).is_err(), "padding");
    // 1, 2 and then 1.
    assert!(restore(&[0x27, 0xdc, 0], 2, &[8]).is_err_and(|e| e.0.contains("overfill")));
}

proptest! {
    #[test]
    fn lengths_are_optimal(freqs in freqs(), extra in 0u8..5) {
        let present = freqs.iter().filter(|&&f| f > 0).count();
        let max_len = (present.next_power_of_two().ilog2() as u8 + extra).min(MAX_LEN);
        let mut lengths = check_code(&freqs, max_len);
        let mut occurring = Occurring::new(&freqs);
        prop_assert_eq!(occurring.symbols(), present);
        let bits = occurring.code_lengths(max_len, &mut lengths);
        prop_assert_eq!(bits, oracle_bits(&freqs, max_len));
    }

    #[test]
    fn tables_decode_every_code(freqs in freqs(), wider in 0u8..4) {
        let lengths = check_code(&freqs, 9);
        let mut codes = vec![0; freqs.len()];
        assign_codes(&lengths, &mut codes);
        let table_log = 9 + wider;
        let mut table = vec![0; 1 << table_log];
        build_table(&lengths, table_log, &mut table).unwrap();
        let mut entries = 0;
        for (symbol, (&len, &code)) in lengths.iter().zip(&codes).enumerate() {
            if len > 0 {
                let first = usize::from(code) << (table_log - len);
                let run = 1 << (table_log - len);
                let entry = (symbol as u16) << 4 | u16::from(len);
                prop_assert!(table[first..first + run].iter().all(|&e| e == entry));
                entries += run;
            }
        }
        prop_assert_eq!(entries, table.len());
    }

    #[test]
    fn descriptions_are_restored(three in [freqs(), freqs(), freqs()], shared in 0usize..4) {
        let codes: Vec<_> = three[..shared].iter().map(|freqs| check_code(freqs, 11)).collect();
        let slices: Vec<_> = codes.iter().map(Vec::as_slice).collect();
        let sizes: Vec<_> = codes.iter().map(Vec::len).collect();
        let bytes = describe(&slices);
        let bits: u64 = slices.iter().map(|lengths| description_bits(lengths)).sum();
        prop_assert_eq!(bytes.len() as u64, bits.div_ceil(8));
        prop_assert_eq!(restore(&bytes, 11, &sizes), Ok((codes, bytes.len())));
        for cut in 0..bytes.len() {
            prop_assert!(restore(&bytes[..cut], 11, &sizes).is_err());
        }
    }

    #[test]
    fn hostile_descriptions_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..300),
        sizes in prop::collection::vec(0usize..=256, 0..4),
    ) {
        if let Ok((codes, _)) = restore(&bytes, 11, &sizes) {
            for lengths in codes {
                prop_assert!(build_table(&lengths, 11, &mut [0; 1 << 11]).is_ok());
            }
        }
    }

    #[test]
    fn damaged_descriptions_are_refused_or_are_codes(
        freqs in freqs(), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        let lengths = check_code(&freqs, 11);
        let mut bytes = describe(&[&lengths]);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok((codes, _)) = restore(&bytes, 11, &[lengths.len()]) {
            prop_assert!(build_table(&codes[0], 11, &mut [0; 1 << 11]).is_ok());
        }
    }
}
