//! Compares chains with a plain implementation of the format's text, and tests descriptors that break its rules.

use super::*;

/// Pseudorandom bytes. Some resemble the bytes a few places before.
fn sample(len: usize, mut state: u64) -> Vec<u8> {
    let mut bytes = vec![0_u8; len];
    for i in 0..len {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let random = (state >> 56) as u8;
        bytes[i] =
            if i >= 8 && random < 200 { bytes[i - 8].wrapping_add(random & 3) } else { random };
    }
    bytes
}

/// Applies a stage to a unit, element by element.
fn plain(stage: Stage, unit: &[u8]) -> Vec<u8> {
    let width = stage.width();
    let group = if matches!(stage, Stage::BitTranspose { .. }) { 8 * width } else { width };
    let (whole, rest) = unit.split_at(unit.len() / group * group);
    let elements: Vec<&[u8]> = whole.chunks(width).collect();
    let count = elements.len();
    let numbers: Vec<u64> = elements
        .iter()
        .map(|bytes| bytes.iter().rev().take(8).fold(0, |n, &byte| n << 8 | u64::from(byte)))
        .collect();
    let bits = 8 * width as u32;
    let mask = if bits < 64 { (1 << bits) - 1 } else { u64::MAX };
    let before = |numbers: &[u64], i: usize, stride: u16| match i.checked_sub(stride.into()) {
        Some(at) => numbers[at],
        None => 0,
    };
    let changed: Vec<u64> = match stage {
        Stage::Transpose { .. } => {
            let planes = (0..width).flat_map(|j| elements.iter().map(move |bytes| bytes[j]));
            return planes.chain(rest.iter().copied()).collect();
        }
        Stage::BitTranspose { .. } => {
            let bit = |at: usize| (numbers[at % count] >> (at / count) & 1) as u8;
            let bytes =
                (0..whole.len()).map(|i| (0..8).fold(0, |byte, k| byte | bit(8 * i + k) << k));
            return bytes.chain(rest.iter().copied()).collect();
        }
        Stage::Delta { order, stride, .. } => (0..order).fold(numbers, |numbers, _| {
            (0..count)
                .map(|i| numbers[i].wrapping_sub(before(&numbers, i, stride)) & mask)
                .collect()
        }),
        Stage::ZigzagDelta { width, order, stride } => {
            let differences = plain(Stage::Delta { width, order, stride }, unit);
            return plain(Stage::Zigzag { width }, &differences);
        }
        Stage::Xor { stride, .. } => {
            (0..count).map(|i| numbers[i] ^ before(&numbers, i, stride)).collect()
        }
        Stage::Zigzag { .. } => numbers
            .iter()
            .map(|n| if n >> (bits - 1) & 1 == 1 { !(n << 1) & mask } else { n << 1 })
            .collect(),
        Stage::Rotate { bits: by, .. } => {
            let by = u32::from(by);
            numbers.iter().map(|n| (n << by | n >> (bits - by)) & mask).collect()
        }
        Stage::Decimal { .. }
        | Stage::NearDecimal { .. }
        | Stage::Dictionary { .. }
        | Stage::Calls { .. }
        | Stage::Module(_) => {
            unreachable!("they have tests of their own")
        }
    };
    let bytes = changed.iter().flat_map(|n| n.to_le_bytes().into_iter().take(width));
    bytes.chain(rest.iter().copied()).collect()
}

/// Every kind of stage, with small and large parameters.
fn stages() -> Vec<Stage> {
    let mut stages: Vec<_> =
        [2, 3, 4, 5, 8, 12, 20, 255].map(|width| Stage::Transpose { width }).into();
    for width in [1, 2, 4, 8] {
        stages.extend([
            Stage::BitTranspose { width },
            Stage::Zigzag { width },
            Stage::Rotate { width, bits: 1 },
            Stage::Rotate { width, bits: 8 * width - 1 },
            Stage::Xor { width, stride: 1 },
            Stage::Xor { width, stride: 7 },
        ]);
        for stride in [1, 2, 3, 4, 5, 300, 65_535] {
            stages.push(Stage::Delta { width, order: 1, stride });
            stages.push(Stage::Delta { width, order: 2, stride });
            stages.push(Stage::ZigzagDelta { width, order: 1 + stride as u8 % 2, stride });
        }
    }
    stages
}

fn filtered(chain: &FilterChain, contents: &[u8]) -> Option<Vec<u8>> {
    let (mut filtered, mut scratch) = (Vec::new(), Vec::new());
    apply(chain, contents, &mut filtered, &mut scratch, Context::default())
        .unwrap()
        .then_some(filtered)
}

#[track_caller]
fn restores(chain: &FilterChain, contents: &[u8]) -> Vec<u8> {
    let filtered = filtered(chain, contents).unwrap();
    let mut restored = filtered.clone();
    invert(chain, &mut restored, &mut Vec::new(), Context::default()).unwrap();
    assert!(restored == contents, "{chain}, {} bytes", contents.len());
    filtered
}

#[test]
fn each_stage_does_what_the_format_says() {
    for stage in stages() {
        let chain = FilterChain::new(&[stage]).unwrap();
        for len in [0, 1, 2, 7, 8, 63, 64, 65, 1000, 8191, 8192, 8193, 40_003, 140_000] {
            let contents = sample(len, len as u64);
            assert!(restores(&chain, &contents) == plain(stage, &contents), "{stage}, {len} bytes");
        }
    }
}

#[test]
fn units_are_filtered_alone() {
    let chain = FilterChain::from_name("delta4,transpose3").unwrap();
    let contents = sample((2 << UNIT_LOG) + 1234, 5);
    let stages: Vec<_> = chain.stages().collect();
    let expected: Vec<u8> = contents
        .chunks(1 << UNIT_LOG)
        .flat_map(|unit| stages.iter().fold(unit.to_vec(), |unit, &stage| plain(stage, &unit)))
        .collect();
    assert!(restores(&chain, &contents) == expected);
    for unit_log in UNIT_LOGS {
        restores(&FilterChain { unit_log, ..chain }, &contents);
    }
}

#[test]
fn all_chains_invert() {
    let stages = stages();
    let mut state = 1_u64;
    let mut below = |n: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as usize % n
    };
    for round in 0..3000 {
        let chain: Vec<_> = (0..1 + below(3)).map(|_| stages[below(stages.len())]).collect();
        let contents = sample(below(if round % 50 == 0 { 70_000 } else { 3000 }), round);
        let expected = chain.iter().fold(contents.clone(), |unit, &stage| plain(stage, &unit));
        let chain = FilterChain::new(&chain).unwrap();
        assert!(restores(&chain, &contents) == expected, "{chain}");
    }
}

#[test]
fn descriptors_and_names_round_trip() {
    let others = [
        Stage::Decimal { width: 4, digits: 10 },
        Stage::NearDecimal { digits: 15 },
        Stage::Dictionary { width: 8, index: 2, digits: Some(14) },
        Stage::Calls { machine: Machine::X86 },
        Stage::Calls { machine: Machine::Arm64 },
    ];
    for stage in stages().into_iter().chain(others) {
        for chain in [&[stage][..], &[stage; 2], &[Stage::Zigzag { width: 1 }, stage, stage]] {
            let chain = FilterChain::new(chain).unwrap();
            assert_eq!(FilterChain::from_bytes(&chain.to_bytes()), Some(chain));
            assert_eq!(FilterChain::from_name(&chain.to_string()), Some(chain));
        }
    }
    for name in ["", ",", "delta", "delta3", "delta4x0", "delta4x65536", "delta+4", "delta4:1"] {
        assert_eq!(FilterChain::from_name(name), None, "{name}");
    }
    for name in [
        "transpose1",
        "transpose256",
        "bits3",
        "zigzag16",
        "rotate1:8",
        "rotate2:16",
        "rotate4:0",
        "decimal4",
        "decimal4:11",
        "decimal8:16",
        "decimal2:1",
        "neardecimal8:16",
        "neardecimal4:1",
        "dictionary8",
        "dictionary2:1",
        "dictionary8:0",
        "dictionary8:3",
        "dictionary8x2",
        "dictionary8:2.",
        "dictionary8:2.15",
        "dictionary4:1.11",
        "x86:1",
        "x64",
        "arm32",
        "xor4x",
        "i32x0",
        "f32x2",
        "auto4",
        "zigzag1,zigzag1,zigzag1,zigzag1",
        "zigzag1,",
        "none,zigzag1",
    ] {
        assert_eq!(FilterChain::from_name(name), None, "{name}");
    }
    assert_eq!(Filter::from_name("none"), Some(Filter::None));
}

#[test]
fn hostile_descriptors_are_refused() {
    let words = |unit_log: u8, words: [u32; 3]| {
        let words = words.map(u32::to_le_bytes);
        let mut bytes = [0; DESCRIPTOR_LEN];
        bytes[0] = unit_log;
        bytes[1..].copy_from_slice(words.as_flattened());
        FilterChain::from_bytes(&bytes)
    };
    let zigzag = 4 | 1 << 8;
    assert!(words(20, [zigzag, 0, 0]).is_some());
    assert!(words(20, [15 | 255 << 8 | 65_535 << 16, 0, 0]).is_some());
    let refused = [
        ("unit of 2^17", 17, [zigzag, 0, 0]),
        ("unit of 2^21", 21, [zigzag, 0, 0]),
        ("no stage", 20, [0, 0, 0]),
        ("a gap", 20, [zigzag, 0, zigzag]),
        ("first empty", 20, [0, zigzag, 0]),
        ("id 0", 20, [1 << 8, 0, 0]),
        ("calls of a width of 2", 20, [9 | 2 << 8, 0, 0]),
        ("calls of order 1", 20, [9 | 1 << 4 | 1 << 8, 0, 0]),
        ("calls with a parameter", 20, [9 | 4 << 8 | 1 << 16, 0, 0]),
        ("id 10", 20, [10 | 1 << 8, 0, 0]),
        ("id 14", 20, [14 | 1 << 8, 0, 0]),
        ("order of a module", 20, [15 | 1 << 4, 0, 0]),
        ("width 0", 20, [1, 0, 0]),
        ("width 1", 20, [1 | 1 << 8, 0, 0]),
        ("order of a transposition", 20, [1 | 1 << 4 | 4 << 8, 0, 0]),
        ("parameter of a transposition", 20, [1 | 4 << 8 | 1 << 16, 0, 0]),
        ("bits of 3 bytes", 20, [2 | 3 << 8, 0, 0]),
        ("delta of order 0", 20, [3 | 4 << 8 | 1 << 16, 0, 0]),
        ("delta of order 3", 20, [3 | 3 << 4 | 4 << 8 | 1 << 16, 0, 0]),
        ("delta of order 4", 20, [3 | 4 << 4 | 4 << 8 | 1 << 16, 0, 0]),
        ("delta of order 7", 20, [3 | 7 << 4 | 4 << 8 | 1 << 16, 0, 0]),
        ("delta of order 9", 20, [3 | 9 << 4 | 4 << 8 | 1 << 16, 0, 0]),
        ("delta without a stride", 20, [3 | 1 << 4 | 4 << 8, 0, 0]),
        ("delta of 3 bytes", 20, [3 | 1 << 4 | 3 << 8 | 1 << 16, 0, 0]),
        ("zigzag with a parameter", 20, [zigzag | 1 << 16, 0, 0]),
        ("rotation by 0", 20, [5 | 4 << 8, 0, 0]),
        ("rotation by 32", 20, [5 | 4 << 8 | 32 << 16, 0, 0]),
        ("rotation by 257", 20, [5 | 4 << 8 | 257 << 16, 0, 0]),
        ("xor of order 1", 20, [6 | 1 << 4 | 4 << 8 | 1 << 16, 0, 0]),
        ("decimal of 2 bytes", 20, [7 | 2 << 8, 0, 0]),
        ("decimal with 16 digits", 20, [7 | 8 << 8 | 16 << 16, 0, 0]),
        ("decimal with 258 digits", 20, [7 | 8 << 8 | 258 << 16, 0, 0]),
        ("list of 2 bytes", 20, [8 | 2 << 8 | 1 << 16, 0, 0]),
        ("places of no byte", 20, [8 | 8 << 8, 0, 0]),
        ("places of 3 bytes", 20, [8 | 8 << 8 | 3 << 16, 0, 0]),
        ("places of 257 bytes", 20, [8 | 8 << 8 | 257 << 16, 0, 0]),
        ("near floats of 4 bytes", 20, [7 | 1 << 4 | 4 << 8 | 2 << 16, 0, 0]),
        ("decimal of order 2", 20, [7 | 2 << 4 | 8 << 8 | 2 << 16, 0, 0]),
        ("list with 11 digits", 20, [8 | 12 << 4 | 4 << 8 | 1 << 16, 0, 0]),
    ];
    for (what, unit_log, stages) in refused {
        assert_eq!(words(unit_log, stages), None, "{what}");
    }
}

/// The float nearest to q / 10^digits, by long division: `bits` bits of significand, `bias` as in IEEE 754.
fn divided(q: i64, digits: u8, bits: u32, bias: i32) -> u64 {
    if q == 0 {
        return 0;
    }
    let divisor = 10_u128.pow(digits.into());
    let shift = 100 - (q.unsigned_abs().ilog2() as i32 - divisor.ilog2() as i32);
    let dividend = u128::from(q.unsigned_abs());
    // 100 bits of quotient and more: take them one by one.
    let (mut quotient, mut rest) = (dividend / divisor, dividend % divisor);
    for _ in 0..shift {
        rest *= 2;
        quotient = 2 * quotient + rest / divisor;
        rest %= divisor;
    }
    let excess = quotient.ilog2() + 1 - bits;
    let (mut significand, cut) = (quotient >> excess, quotient & ((1 << excess) - 1));
    let half = 1_u128 << (excess - 1);
    let is_up = cut > half || (cut == half && (rest > 0 || significand & 1 == 1));
    significand += u128::from(is_up);
    let exponent = excess as i32 - shift + bits as i32 - 1 + bias;
    // A carry out of the significand goes to the exponent.
    let magnitude = ((exponent as u64) << (bits - 1)) + (significand as u64 - (1 << (bits - 1)));
    let width = if bits == 24 { 32 } else { 64 };
    magnitude | u64::from(q < 0) << (width - 1)
}

#[test]
fn decimals_divide_as_integers_would() {
    let mut state = 9_u64;
    for round in 0..20_000 {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        let q = (state as i64) >> (13 + round % 50);
        for digits in [0, 1, 2, 3, 7, 10, 15] {
            assert_eq!(decimal::to_f64(q as u64, digits), divided(q, digits, 53, 1023), "{q}");
            for excess in -1..=2 {
                let expected = divided(q >> 2, digits, 53, 1023).wrapping_add_signed(excess);
                let code = (q >> 2 << 2) + excess;
                assert_eq!(decimal::to_near(code as u64, digits), expected, "{code} / 10^{digits}");
            }
            let q = q % (1 << 22);
            if digits <= 10 {
                let expected = divided(q, digits, 24, 127) as u32;
                assert_eq!(decimal::to_f32(q as u32, digits), expected, "{q} / 10^{digits}");
            }
        }
    }
}

#[test]
fn decimals_and_other_floats_are_restored() {
    let odd =
        [0.0, -0.0, 1.0 / 3.0, 1e300, -1e-300, f64::INFINITY, f64::NAN, -f64::NAN, 1e15, 0.07];
    let prices = (-3000..3000).map(|i| f64::from(i) * 0.01);
    let floats: Vec<f64> = prices.chain(odd).chain((0..99).map(|i| f64::from(i) / 4.0)).collect();
    let doubles: Vec<u8> = floats.iter().flat_map(|float| float.to_le_bytes()).collect();
    let singles: Vec<u8> = floats.iter().flat_map(|&float| (float as f32).to_le_bytes()).collect();
    for digits in 0..=15 {
        let chain = FilterChain::new(&[Stage::Decimal { width: 8, digits }]).unwrap();
        restores(&chain, &doubles);
        restores(&FilterChain::new(&[Stage::NearDecimal { digits }]).unwrap(), &doubles);
        if digits <= 10 {
            restores(&FilterChain::new(&[Stage::Decimal { width: 4, digits }]).unwrap(), &singles);
        }
    }
    let chain = FilterChain::from_name("decimal8:2").unwrap();
    let codes = filtered(&chain, &1.23_f64.to_le_bytes()).unwrap();
    assert_eq!(codes, 123_i64.to_le_bytes());
    // Bits that are the code of an integer, but not the float of one.
    for bits in [1_u64, u64::MAX, 0xfff8_0000_0000_0001] {
        assert_eq!(filtered(&chain, &bits.to_le_bytes()), None, "{bits:x}");
    }
    let chain = FilterChain::from_name("neardecimal8:2").unwrap();
    for excess in -1..=2 {
        let float = f64::from_bits(1.23_f64.to_bits().wrapping_add_signed(excess));
        let codes = filtered(&chain, &float.to_le_bytes()).unwrap();
        assert_eq!(codes, (4 * 123 + excess).to_le_bytes());
        restores(&chain, &float.to_le_bytes());
    }
    // Bits that are the code of an integer, but not the float of one.
    for bits in [3_u64, u64::MAX - 1, 0xfff8_0000_0000_0001] {
        assert_eq!(filtered(&chain, &bits.to_le_bytes()), None, "{bits:x}");
    }
}
