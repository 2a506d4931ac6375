use super::*;
use crate::codec::Codec;
use crate::codec::Malformed;
use crate::format::Pipeline;
use crate::pipeline::Level;
use crate::test_data::{far_and_near, mixture, noise};
use proptest::prelude::*;

/// The parameters of a level.
fn level(number: u32, fse: bool) -> Params {
    let pipeline = if fse { Pipeline::Lzf } else { Pipeline::Lzh };
    match Level::new(number).unwrap().codec(pipeline) {
        Codec::Lz77(params) => params,
        _ => unreachable!("these pipelines are LZ77"),
    }
}

/// Parameters that cut a block as finely as possible.
fn fine(search: Search, fse: bool) -> Params {
    Params { chunk_log: 16, window_log: 17, group_log: 1, segment_log: 14, search, fse }
}

/// Decodes on all backends, which must agree, and returns their verdict.
fn decode(payload: &[u8], n: usize) -> Result<Vec<u8>, Malformed> {
    let mut verdicts = Decoder::each_backend().map(|mut decoder| {
        let mut block = vec![0xa5; n];
        decoder.decode(payload, &mut block).map(|()| block)
    });
    let first = verdicts.next().unwrap();
    assert!(verdicts.all(|other| other == first), "backends disagree");
    first
}

/// Encodes on every backend, decodes on every backend, and returns the payload.
fn round_trip(params: &Params, block: &[u8]) -> Vec<u8> {
    let mut payloads = Encoder::each_backend().map(|mut encoder| {
        let mut payload = Vec::new();
        encoder.encode(params, block, &mut payload);
        payload
    });
    let first = payloads.next().unwrap();
    assert!(payloads.all(|other| other == first), "backends disagree");
    assert!(
        decode(&first, block.len()).as_deref() == Ok(block),
        "{params:?}, {} bytes",
        block.len()
    );
    let mut again = Vec::new();
    match Encoder::new().encode_below(params, block, &mut again, block.len()).unwrap() {
        true => assert!(again == first),
        false => assert!(first.len() >= block.len(), "a payload that is smaller was given up"),
    }
    first
}

/// Compares the verdict with that of the decoder written from the text.
fn check_against_text(payload: &[u8], n: usize) {
    let verdict = decode(payload, n);
    let told = oracle::decode(payload, n);
    assert!(
        verdict.as_ref().ok() == told.as_ref(),
        "{:?} against {}",
        verdict.err(),
        told.is_some()
    );
}

const SEARCHES: [Search; 4] = [Search::None, Search::Greedy, Search::Double, Search::Lazy4];

#[test]
fn round_trips_of_special_blocks() {
    let mut cases: Vec<Vec<u8>> = vec![
        (0..=255).collect(),
        (0..=255u8).rev().cycle().take(70_000).collect(),
        vec![0; 300_000],
        noise(2, 140_000, 256),
        noise(3, 140_000, 2),
        noise(4, 100_000, 40),
        mixture(140_000),
    ];
    cases.extend([0, 1, 2, 3, 13, 511, 512, 513, 65_535, 65_536, 65_537].map(mixture));
    cases.extend([131_071, 131_072, 131_073, 196_609].map(mixture));
    cases.extend((1..=20).map(|period| noise(5, period, 256).repeat(3000 / period)));
    for block in &cases {
        for fse in [false, true] {
            round_trip(&fine(Search::Double, fse), block);
        }
    }
}

#[test]
fn round_trips_of_all_parameters() {
    let block = mixture(300_000);
    for number in 1..=8 {
        round_trip(&level(number, number % 2 == 0), &block);
    }
    for search in SEARCHES {
        for fse in [false, true] {
            round_trip(&fine(search, fse), &block);
        }
    }
    let base = fine(Search::Greedy, true);
    for (chunk_log, window_log, group_log, segment_log) in
        [(16, 16, 0, 16), (16, 24, 4, 12), (17, 18, 1, 17), (18, 18, 0, 16), (20, 22, 3, 16)]
    {
        round_trip(&Params { chunk_log, window_log, group_log, segment_log, ..base }, &block);
    }
}

/// Short segments cost little, because matches go on beyond them.
#[test]
fn long_matches_pass_many_segments() {
    let block = far_and_near(60_000);
    for search in [Search::Greedy, Search::Double, Search::Lazy8, Search::Lazy64] {
        let [short, long] = [9, 16].map(|segment_log| {
            let params = Params { chunk_log: 16, segment_log, ..fine(search, false) };
            round_trip(&params, &block).len()
        });
        assert!(short < long + long / 10, "{search:?}: {short} and {long} bytes");
    }
}

/// State kept from block to block does not show in an encoder's payloads.
#[test]
fn a_used_encoder_writes_what_a_new_one_writes() {
    let text = mixture(70_000);
    let blocks: [&[u8]; 7] =
        [&text, &[7; 500], &noise(1, 300, 256), &text[..90], &[], &text[50..150], &text[..66_000]];
    for (number, fse) in [(1, false), (3, true), (6, true)] {
        let params = level(number, fse);
        let mut used = Encoder::new();
        for block in blocks.iter().chain(blocks.iter().rev()) {
            let (mut payload, mut expected) = (Vec::new(), Vec::new());
            used.encode(&params, block, &mut payload);
            Encoder::new().encode(&params, block, &mut expected);
            assert!(payload == expected, "-{number}, {} bytes", block.len());
        }
    }
}

#[test]
fn the_text_describes_the_codec() {
    let noisy = noise(6, 70_000, 256);
    for (block, search, fse) in [
        (&mixture(200_000), Search::Double, true),
        (&mixture(150_001), Search::Greedy, false),
        (&mixture(67_000), Search::None, true),
        (&mixture(66_003), Search::Lazy4, true),
        (&noisy, Search::Greedy, false),
        (&vec![7; 140_000], Search::Lazy4, false),
        (&mixture(1), Search::Greedy, true),
    ] {
        let payload = round_trip(&fine(search, fse), block);
        assert!(oracle::decode(&payload, block.len()).as_ref() == Some(block));
    }
}

#[test]
fn every_bit_flipped_and_every_truncation() {
    for fse in [false, true] {
        let mut block = mixture(700);
        block.extend(block.clone());
        let payload = round_trip(&fine(Search::Double, fse), &block);
        for bit in 0..8 * payload.len() {
            let mut damaged = payload.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            check_against_text(&damaged, block.len());
        }
        for len in 0..payload.len() {
            assert!(decode(&payload[..len], block.len()).is_err(), "{len} bytes");
            assert!(oracle::decode(&payload[..len], block.len()).is_none(), "{len} bytes");
        }
        for more in [&[0; 1][..], &[0; 4], &[1; 4]] {
            assert!(decode(&[&payload[..], more].concat(), block.len()).is_err());
        }
        for n in [block.len() - 1, block.len() + 1, 1] {
            check_against_text(&payload, n);
            assert!(decode(&payload, n).is_err());
        }
    }
}

#[test]
fn a_last_word_of_zero_is_rejected() {
    let block = mixture(500);
    let mut payload = round_trip(&fine(Search::Double, true), &block);
    let entry = u64::from_le_bytes(*payload[4..].first_chunk().unwrap()) + 1;
    payload[4..12].copy_from_slice(&entry.to_le_bytes());
    payload.extend([0; 4]);
    assert_eq!(decode(&payload, block.len()), Err(Malformed("a chunk's last word is zero")));
    assert!(oracle::decode(&payload, block.len()).is_none());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn round_trips(
        seed: u32, len in 0usize..150_000, symbols in 1u32..=256, search in 0..SEARCHES.len(), fse: bool,
        (copy_from, copy_to, copy_len) in (0usize..150_000, 0usize..150_000, 0usize..3000),
    ) {
        let mut block = noise(seed, len, symbols);
        if copy_from.max(copy_to) + copy_len <= len {
            block.copy_within(copy_from..copy_from + copy_len, copy_to);
        }
        round_trip(&fine(SEARCHES[search], fse), &block);
    }

    #[test]
    fn overwritten_runs(seed: u32, fse: bool, place: prop::sample::Index, len in 1usize..40) {
        let block = mixture(140_000);
        let mut payload = Vec::new();
        Encoder::new().encode(&fine(Search::Double, fse), &block, &mut payload);
        let from = place.index(payload.len() - len);
        payload[from..from + len].copy_from_slice(&noise(seed, len, 256));
        let _ = decode(&payload, block.len());
    }

    #[test]
    fn random_payloads(
        logs in (14u8..22, 14u8..26, 0u8..6), n in 0usize..200_000,
        entries in prop::collection::vec((0u64..40, 0u64..300_000, 0u64..70_000), 0..5),
        modes: u8, seed: u32, len in 0usize..600,
    ) {
        let mut payload = vec![logs.0, logs.1, logs.2, 0];
        for (words, literals, sequences) in entries {
            payload.extend((words | literals << 22 | sequences << 43).to_le_bytes());
        }
        payload.push(modes);
        payload.extend(noise(seed, len, 256));
        let _ = decode(&payload, n);
    }

    /// A chunk with a valid layout, but random tables and words.
    #[test]
    fn random_records(
        modes in 0u8..64, seed: u32, words in 1usize..100, literals in 0usize..200,
        sequences in 0usize..200, n in 1usize..3000,
    ) {
        let entry = words as u64 | (literals as u64) << 22 | (sequences as u64) << 43;
        let mut payload = vec![16, 16, 0, 0];
        payload.extend(entry.to_le_bytes());
        payload.push(modes);
        payload.extend(noise(seed, 4 * words - 1, 256));
        check_against_text(&payload, n);
    }
}
