use super::*;
use crate::test_data::noise;
use proptest::prelude::*;

fn round_trip(params: &Params, block: &[u8]) -> usize {
    let mut payload = Vec::new();
    Encoder::new().encode(params, block, &mut payload);
    let mut out = vec![0xa5; block.len()];
    Decoder::new().decode(&payload, &mut out).unwrap();
    assert!(out == block, "block of {} bytes differs", block.len());
    payload.len()
}

#[test]
fn round_trips_of_special_blocks() {
    let text: Vec<u8> = include_bytes!("mod.rs").repeat(5);
    let mut cases: Vec<Vec<u8>> = vec![
        vec![],
        vec![0],
        vec![255],
        vec![7, 7],
        b"abracadabra".to_vec(),
        (0..=255).collect(),
        (0..=255).rev().collect::<Vec<u8>>().repeat(3),
        text.clone(),
        b"ab".repeat(40_000),
        noise(0, 100_000, 2),
        [vec![1; 40_000], noise(0, 40_000, 256), vec![2; 40_000]].concat(),
    ];
    for len in [1023, 1024, 1025, 8191, 8192, 8193, 16383, 16384, 16385, 65535, 65536, 65537] {
        cases.push(vec![b'x'; len]);
        cases.push(noise(0, len, 256));
        cases.push(text[..len.min(text.len())].to_vec());
    }
    let params = [
        Params::default(),
        Params { segment_log: 10, start_log: 8 },
        Params { segment_log: 16, start_log: 23 },
        Params { segment_log: 13, start_log: 12 },
    ];
    for case in &cases {
        for params in &params {
            round_trip(params, case);
        }
    }
}

/// Blocks with runs, repeats and noise, of a few symbols or many.
fn blocks() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        prop::collection::vec(any::<u8>(), 0..200),
        prop::collection::vec(0..4u8, 0..200),
        (any::<u8>(), 0..20_000usize).prop_map(|(byte, len)| vec![byte; len]),
        (prop::collection::vec(any::<u8>(), 1..40), 1..200usize)
            .prop_map(|(period, times)| period.repeat(times)),
    ];
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

fn params() -> impl Strategy<Value = Params> {
    (10..=16u8, 8..=23u8).prop_map(|(segment_log, start_log)| Params { segment_log, start_log })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() })]

    #[test]
    fn round_trips(block in blocks(), params in params()) {
        round_trip(&params, &block);
    }

    /// Any damage gives an error or some block, in bounded time, and never a panic.
    #[test]
    fn damage_is_survived(
        block in blocks(),
        params in params(),
        flips in prop::collection::vec((any::<prop::sample::Index>(), 0..8u32), 0..4),
        overwritten in (any::<prop::sample::Index>(), prop::collection::vec(any::<u8>(), 0..64)),
        cut in prop::option::of(any::<prop::sample::Index>()),
        len_change in -2..=2isize,
    ) {
        let mut payload = Vec::new();
        Encoder::new().encode(&params, &block, &mut payload);
        if !payload.is_empty() {
            for (index, bit) in flips {
                let at = index.index(payload.len());
                payload[at] ^= 1 << bit;
            }
            let at = overwritten.0.index(payload.len());
            for (byte, new) in payload[at..].iter_mut().zip(&overwritten.1) {
                *byte = *new;
            }
        }
        if let Some(cut) = cut {
            payload.truncate(cut.index(payload.len() + 1));
        }
        let mut out = vec![0; block.len().saturating_add_signed(len_change)];
        let _ = Decoder::new().decode(&payload, &mut out);
    }

    #[test]
    fn arbitrary_payloads_are_survived(
        payload in prop::collection::vec(any::<u8>(), 0..600),
        len in 0..40_000usize,
    ) {
        let _ = Decoder::new().decode(&payload, &mut vec![0; len]);
    }
}

/// A block too large for the inverse to take two steps at a time.
#[test]
fn large_blocks_round_trip() {
    let block = [noise(0, 9 << 20, 3), vec![9; 5 << 20], noise(0, (3 << 20) + 77, 200)].concat();
    round_trip(&Params::default(), &block);
}

/// The transform of a payload as read by the portable reader and by the processor's fastest.
fn both_transforms(payload: &[u8], len: usize) -> [(Result<u32, Malformed>, Vec<u8>); 2] {
    [segments::read as segments::Read, segments::fastest()].map(|read| {
        let mut decoder = Decoder::new();
        let result = decoder.read_transform(payload, len, read);
        (result, decoder.bwt)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..Default::default() })]

    /// Valid or not, a payload means the same with and without vector code.
    #[test]
    fn readers_agree(
        block in blocks(),
        params in params(),
        flip in prop::option::of((any::<prop::sample::Index>(), 0..8u32)),
    ) {
        prop_assume!(!block.is_empty());
        let mut payload = Vec::new();
        Encoder::new().encode(&params, &block, &mut payload);
        if let Some((index, bit)) = flip {
            let at = index.index(payload.len());
            payload[at] ^= 1 << bit;
        }
        let [portable, fastest] = both_transforms(&payload, block.len());
        prop_assert_eq!(portable.0, fastest.0);
        prop_assert!(portable.1 == fastest.1);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    /// The codec accepts the payloads that the format's text accepts, and decodes it to the same contents.
    #[test]
    fn codec_agrees_with_the_text(
        block in blocks(),
        params in params(),
        flip in prop::option::of((any::<prop::sample::Index>(), 0..8u32)),
    ) {
        prop_assume!(!block.is_empty());
        let mut payload = Vec::new();
        Encoder::new().encode(&params, &block, &mut payload);
        if let Some((index, bit)) = flip {
            let at = index.index(payload.len());
            payload[at] ^= 1 << bit;
        }
        let mut out = vec![0; block.len()];
        let decoded = Decoder::new().decode(&payload, &mut out).ok().map(|()| out);
        prop_assert!(decoded == oracle::decode(&payload, block.len()));
    }
}

/// Several sets of tables, which take many segments, follow the text.
#[test]
fn sets_of_tables_agree_with_the_text() {
    let text = include_bytes!("mod.rs");
    let block = [noise(0, 150_000, 30), text.repeat(20), noise(0, 100_000, 256)].concat();
    let params = Params { segment_log: 10, start_log: 12 };
    let mut payload = Vec::new();
    Encoder::new().encode(&params, &block, &mut payload);
    assert!(payload[1] > 0, "the block should have several sets of tables");
    assert!(oracle::decode(&payload, block.len()).as_deref() == Some(&block[..]));
}

/// The bytes of a payload are part of the format's promise: the same on every machine, with and without vector code.
#[test]
fn payloads_do_not_change() {
    let block = [noise(0, 200_000, 5), vec![3; 70_000], noise(0, 60_000, 256)].concat();
    let cases = [
        (Params::default(), GOLDEN_DEFAULT),
        (Params { segment_log: 10, start_log: 8 }, GOLDEN_SMALL),
    ];
    for (params, golden) in cases {
        let mut payload = Vec::new();
        Encoder::new().encode(&params, &block, &mut payload);
        assert_eq!((payload.len(), crc32c::crc32c(&payload)), golden);
    }
}

/// Length and CRC-32C of payloads. They change only with the format or with the encoder's choices.
const GOLDEN_DEFAULT: (usize, u32) = (118_992, 3_567_802_530);
const GOLDEN_SMALL: (usize, u32) = (122840, 3048818827);
