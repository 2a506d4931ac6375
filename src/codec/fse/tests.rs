use super::*;
use crate::bits::{BitReader, BitWriter};
use crate::codec::Malformed;
use proptest::prelude::*;

/// The best possible norms: each state goes to the symbol that gains most from it.
fn oracle_norm(freqs: &[u32], table_log: u8) -> Vec<u16> {
    let mut norm: Vec<u16> = freqs.iter().map(|&freq| u16::from(freq > 0)).collect();
    for _ in norm.iter().map(|&n| usize::from(n)).sum::<usize>()..1 << table_log {
        let gain = |s: &usize| {
            let n = f64::from(norm[*s].max(1));
            (f64::from(freqs[*s]) * (1.0 / n).ln_1p() * 65536.0) as u64
        };
        let best = (0..freqs.len()).max_by_key(gain).unwrap();
        norm[best] += 1;
    }
    norm
}

fn check_norm(freqs: &[u32], table_log: u8) -> Vec<u16> {
    let mut norm = vec![0xffff; freqs.len()];
    normalize(freqs, table_log, &mut norm);
    for (symbol, &freq) in freqs.iter().enumerate() {
        assert_eq!(norm[symbol] > 0, freq > 0, "symbol {symbol}");
    }
    assert_eq!(norm.iter().map(|&n| u32::from(n)).sum::<u32>(), 1 << table_log);
    norm
}

/// A plain coder with a single state. Returns the bits in the order of reading.
fn encode(message: &[u8], norm: &[u16], table_log: u8) -> (u32, Vec<(u32, u32)>) {
    let mut table = EncodeTable::new();
    table.build(norm, table_log);
    let (&last, rest) = message.split_last().unwrap();
    let mut state = table.first_state(last);
    let mut chunks = Vec::new();
    for &symbol in rest.iter().rev() {
        let (bits, count, next) = table.encode(state, symbol);
        assert!((1 << table_log..2 << table_log).contains(&next));
        chunks.push((bits, count));
        state = next;
    }
    chunks.reverse();
    (state - (1 << table_log), chunks)
}

fn decode(mut state: u32, bytes: &[u8], len: usize, norm: &[u16], table_log: u8) -> Vec<u8> {
    let mut table = vec![0; 1 << table_log];
    build_decode_table(norm, table_log, &mut table).unwrap();
    let mut input = BitReader::new(bytes);
    let mut message = Vec::new();
    loop {
        let (symbol, bits, base) = decode_entry(table[state as usize]);
        message.push(symbol);
        if message.len() == len {
            return message;
        }
        state = u32::from(base) + input.read(u32::from(bits)).unwrap();
    }
}

fn count(message: &[u8]) -> Vec<u32> {
    let mut freqs = vec![0; 256];
    for &symbol in message {
        freqs[usize::from(symbol)] += 1;
    }
    freqs
}

/// Counts of many shapes, at least one of them not zero.
fn freqs() -> impl Strategy<Value = Vec<u32>> {
    let counts = prop_oneof![
        prop::collection::vec(0u32..4, 1..257),
        prop::collection::vec((0u32..32, any::<u32>()).prop_map(|(bits, x)| x >> bits), 1..257),
        prop::collection::vec((0u32..8, any::<u32>()).prop_map(|(e, x)| x >> (e * e / 2)), 1..64),
    ];
    counts.prop_filter("a symbol", |freqs| freqs.iter().any(|&f| f > 0))
}

fn present(freqs: &[u32]) -> usize {
    freqs.iter().filter(|&&f| f > 0).count()
}

#[test]
fn known_norms() {
    assert_eq!(check_norm(&[7], 5), [32]);
    assert_eq!(check_norm(&[1, 0, 1], 6), [32, 0, 32]);
    assert_eq!(check_norm(&[1, u32::MAX], 12), [1, 4095]);
    assert_eq!(check_norm(&[1; 32], 5), [1; 32]);
    assert_eq!(check_norm(&[3, 1], 5), [24, 8]);
    let mut norm = [9; 4];
    normalize(&[0; 4], 9, &mut norm);
    assert_eq!(norm, [0; 4]);
}

#[test]
fn a_lone_symbol_takes_no_bits() {
    let (state, chunks) = encode(&[3; 100], &[0, 0, 0, 32], 5);
    assert!(chunks.iter().all(|&(_, count)| count == 0));
    assert_eq!(decode(state, &[], 100, &[0, 0, 0, 32], 5), [3; 100]);
}

#[test]
fn norms_that_do_not_fill_the_table_are_refused() {
    let mut table = [0; 64];
    for norm in [&[][..], &[0; 5], &[63], &[65], &[64, 1], &[0xffff; 256]] {
        assert!(build_decode_table(norm, 6, &mut table).is_err());
    }
    assert!(build_decode_table(&[32, 0, 32], 6, &mut table).is_ok());
}

#[test]
fn states_are_spread_by_the_rule() {
    let spread = |norm: &[u16]| -> Vec<u8> {
        let mut table = [0; 32];
        build_decode_table(norm, 5, &mut table).unwrap();
        table.iter().map(|&entry| b'a' + decode_entry(entry).0).collect()
    };
    // By the rule in exact fractions, `a` prefers places 1, 3, 5 and so on, `b` 2, 6, 10, and `c` 2, 8, 13.
    assert_eq!(spread(&[16, 8, 6, 1, 1]), b"abcaabacabaacbaabcaabacabaacbade");
    assert_eq!(spread(&[32]), [b'a'; 32]);
    assert_eq!(spread(&[1; 32])[..3], *b"abc");
}

fn describe(norm: &[u16], table_log: u8) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut out = BitWriter::new(&mut bytes);
    write_norm(norm, table_log, &mut out);
    out.finish();
    bytes
}

fn restore(bytes: &[u8], table_log: u8, size: usize) -> Result<(Vec<u16>, usize), Malformed> {
    let mut norm = vec![0x5555; size];
    let mut input = BitReader::new(bytes);
    read_norm(&mut input, table_log, &mut norm)?;
    Ok((norm, input.finish().ok_or(Malformed("padding"))?))
}

#[test]
fn descriptions_are_as_specified() {
    // A run of 3 zeros, then 17 = 16 + 1, 8 + 0, 4 + 3: 00100 111110 0001, 11100 000, 10 11.
    let norm = [0, 0, 0, 17, 8, 7, 0];
    let bytes = [0x27, 0xc3, 0xc1, 0x60];
    assert_eq!(describe(&norm, 5), bytes);
    assert_eq!(restore(&bytes, 5, 7), Ok((norm.to_vec(), 4)));
    assert!(restore(&bytes, 5, 5).is_err(), "outside the alphabet");
    assert!(restore(&bytes, 6, 7).is_err(), "does not fill the table");
}

proptest! {
    #[test]
    fn norms_are_optimal(freqs in freqs(), table_log in 8u8..=11) {
        let size = |norm: &[u16]| -> f64 {
            let price = |n: u16| f64::from(table_log) - f64::from(n.max(1)).log2();
            freqs.iter().zip(norm).map(|(&freq, &n)| f64::from(freq) * price(n)).sum()
        };
        let (ours, best) = (size(&check_norm(&freqs, table_log)), size(&oracle_norm(&freqs, table_log)));
        prop_assert!(ours <= best * (1.0 + 1e-6) + 1e-3, "{} against {}", ours, best);
    }

    #[test]
    fn messages_are_restored(
        message in prop::collection::vec(prop_oneof![0u8..3, 0u8..40, any::<u8>()], 1..3000),
        extra in 0u8..4,
    ) {
        let freqs = count(&message);
        let table_log = (present(&freqs).next_power_of_two().ilog2() as u8 + extra)
            .clamp(MIN_TABLE_LOG, MAX_TABLE_LOG);
        let norm = check_norm(&freqs, table_log);
        let (state, chunks) = encode(&message, &norm, table_log);
        let mut bytes = Vec::new();
        let mut out = BitWriter::new(&mut bytes);
        for (bits, count) in chunks {
            out.write(bits, count);
        }
        out.finish();
        prop_assert_eq!(decode(state, &bytes, message.len(), &norm, table_log), &message[..]);
        // The coded size comes close to the size that the counts predict.
        let promised = coded_bits(&freqs, &norm, table_log).unwrap();
        prop_assert!(bytes.len() as u64 * 8 <= promised + promised / 16 + 32);
    }

    #[test]
    fn decoding_tables_are_bijections(freqs in freqs(), table_log in 8u8..=12) {
        let norm = check_norm(&freqs, table_log);
        let mut table = vec![0; 1 << table_log];
        build_decode_table(&norm, table_log, &mut table).unwrap();
        // From any state, each symbol is reached from exactly one state.
        let mut reached = vec![0u32; freqs.len()];
        for &entry in &table {
            let (symbol, bits, base) = decode_entry(entry);
            prop_assert!(usize::from(base) + (1 << bits) <= table.len());
            reached[usize::from(symbol)] += 1 << bits;
        }
        for (symbol, &freq) in freqs.iter().enumerate() {
            prop_assert_eq!(reached[symbol], u32::from(freq > 0) << table_log);
        }
    }

    #[test]
    fn descriptions_are_restored(freqs in freqs(), table_log in 8u8..=12) {
        prop_assume!(present(&freqs) > 1);
        let norm = check_norm(&freqs, table_log);
        let bytes = describe(&norm, table_log);
        prop_assert_eq!(bytes.len() as u64, description_bits(&norm, table_log).div_ceil(8));
        prop_assert_eq!(restore(&bytes, table_log, norm.len()), Ok((norm.clone(), bytes.len())));
        for cut in 0..bytes.len() {
            prop_assert!(restore(&bytes[..cut], table_log, norm.len()).is_err());
        }
    }

    #[test]
    fn hostile_descriptions_are_survived(
        bytes in prop::collection::vec(any::<u8>(), 0..300), size in 0usize..=256, table_log in 5u8..=12,
    ) {
        if let Ok((norm, _)) = restore(&bytes, table_log, size) {
            prop_assert!(build_decode_table(&norm, table_log, &mut [0; 1 << 12]).is_ok());
        }
    }

    #[test]
    fn damaged_descriptions_are_refused_or_are_norms(
        freqs in freqs(), at in any::<prop::sample::Index>(), bit in 0u8..8,
    ) {
        prop_assume!(present(&freqs) > 1);
        let norm = check_norm(&freqs, 9);
        let mut bytes = describe(&norm, 9);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok((norm, _)) = restore(&bytes, 9, norm.len()) {
            prop_assert!(build_decode_table(&norm, 9, &mut [0; 1 << 12]).is_ok());
        }
    }
}
