//! Decodes LZ77 payloads on each device, and compares with the CPU's decoder.

use super::testing::{GARBAGE, each_device, run_plan};
use crate::codec::lz77::{Decoder, Effort, Encoder, Params, Search};
use crate::gpu::device::{Device, Limits};
use crate::gpu::model::plan::{Shape, Step};
use crate::gpu::stages::job::{Job, JobResult};
use crate::gpu::stages::lz77_decode::{PayloadFeatures, plan};
use crate::test_data::noise;

/// A payload and the length of its block.
type Case = (Vec<u8>, usize);

/// The bytes of a block, or `None` if its payload was rejected.
type Verdict = Option<Vec<u8>>;

fn params(chunk_log: u8, window_log: u8, group_log: u8, search: Search, fse: bool) -> Params {
    Params { chunk_log, window_log, group_log, segment_log: 14, search, fse }
}

/// Text and source code with repeats at many distances, runs, records and noise.
fn mixture(seed: u32, len: usize) -> Vec<u8> {
    let text = concat!(
        include_str!("../../format/lz77.md"),
        include_str!("../../codec/lz77/stream/decode.rs")
    );
    let text = text.as_bytes();
    let mut out = Vec::with_capacity(len + 1000);
    let mut picks = noise(seed, len / 4 + 64, 256).into_iter().cycle();
    let mut pick = move || usize::from(picks.next().unwrap());
    while out.len() < len {
        match pick() % 8 {
            0..=3 => {
                let from = pick() * 67 % (text.len() - 1000);
                out.extend_from_slice(&text[from..from + pick() * 3 + 4]);
            }
            4 if out.len() > 700 => {
                let back = (pick() << 8 | pick()).clamp(1, out.len() - 600);
                let from = out.len() - 600 - back % (out.len() - 600).max(1);
                out.extend_from_within(from..from + pick() * 2 + 3);
            }
            5 => out.extend(std::iter::repeat_n(pick() as u8, pick() * 3)),
            6 => {
                let period = noise(pick() as u32, pick() % 9 + 1, 256);
                out.extend(period.iter().cycle().take(pick() * 2));
            }
            _ => out.extend(noise((pick() << 8 | pick()) as u32, pick() / 4, 256)),
        }
    }
    out.truncate(len);
    out
}

fn encode(params: &Params, block: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    Encoder::new().encode(params, block, &mut payload);
    payload
}

/// The verdicts of the CPU.
fn expected(cases: &[Case]) -> Vec<Verdict> {
    let mut decoder = Decoder::new();
    let verdict = |(payload, len): &Case| {
        let mut block = vec![0; *len];
        decoder.decode(payload, &mut block).ok().map(|()| block)
    };
    cases.iter().map(verdict).collect()
}

/// The verdicts of a device on a batch.
fn decode(device: &dyn Device, cases: &[Case]) -> Vec<Verdict> {
    let features = cases
        .iter()
        .map(|(payload, len)| PayloadFeatures::of(payload, *len))
        .fold(PayloadFeatures::default(), PayloadFeatures::and);
    decode_with(device, device.limits(), cases, features)
}

/// Like [`decode`], with a plan for `features`.
fn decode_with(
    device: &dyn Device,
    limits: &Limits,
    cases: &[Case],
    features: PayloadFeatures,
) -> Vec<Verdict> {
    let longest = cases.iter().map(|(payload, len)| (*len).max(payload.len())).max().unwrap();
    let shape = Shape::new(cases.len() as u32, longest as u32);
    let plan = plan(limits, shape, features).unwrap();
    let mut payloads = Vec::new();
    let mut jobs = Vec::new();
    for (payload, len) in cases {
        jobs.push(Job {
            content_len: *len as u32,
            payload_len: payload.len() as u32,
            payload_start: (payloads.len() / 16) as u32,
            ..Job::default()
        });
        payloads.extend_from_slice(payload);
        payloads.resize(payloads.len().next_multiple_of(16), GARBAGE);
    }
    let inputs = [("jobs", bytemuck::cast_slice(&jobs)), ("payload", &payloads[..])];
    let mut outputs = run_plan(device, &plan, &inputs, &["contents", "results"]).unwrap();
    let (results, contents) = (outputs.pop().unwrap(), outputs.pop().unwrap());
    let results: &[JobResult] = bytemuck::cast_slice(&results);
    let slots = contents.chunks_exact(shape.slot as usize);
    let verdicts = cases.iter().zip(results).zip(slots).map(|(((_, len), result), slot)| {
        // The last word is written whole, and nothing after it may change.
        let end = len.next_multiple_of(4);
        assert!(slot[end..].iter().all(|byte| *byte == GARBAGE), "bytes after a block of {len}");
        (result.status == 0).then(|| slot[..*len].to_vec())
    });
    verdicts.collect()
}

/// The cases on which the verdicts differ.
fn differing(verdicts: &[Verdict], expected: &[Verdict]) -> Vec<usize> {
    (0..expected.len()).filter(|&i| verdicts[i] != expected[i]).collect()
}

fn check(device: &dyn Device, cases: &[Case], what: &str) {
    let (verdicts, expected) = (decode(device, cases), expected(cases));
    if let Some(&i) = differing(&verdicts, &expected).first() {
        let first = match (&verdicts[i], &expected[i]) {
            (Some(a), Some(b)) => a.iter().zip(b).position(|(a, b)| a != b),
            _ => None,
        };
        panic!(
            "{what}, case {i} of {}, {} bytes: accepted {}, by the CPU {}; first difference {first:?}",
            cases.len(),
            cases[i].1,
            verdicts[i].is_some(),
            expected[i].is_some(),
        );
    }
}

const OPTIMAL: Search =
    Search::Optimal(Effort { passes: 1, nice_length: 64, inherited_length: 64, every_length: 16 });

#[test]
fn literals_alone() {
    each_device(|device| {
        for group_log in [0, 1, 2, 3] {
            let case = |len: usize| {
                let block = mixture(len as u32, len);
                (encode(&params(16, 16, group_log, Search::None, true), &block), len)
            };
            let lengths = [1, 2, 5, 127, 700, 65_535, 65_537, 200_001, 393_219];
            let mut cases: Vec<Case> = lengths.into_iter().map(case).collect();
            let noise = noise(9, 70_000, 256);
            cases.push((encode(&params(16, 16, group_log, Search::None, true), &noise), 70_000));
            check(device, &cases, "literals");
            let (payload, len) = cases[6].clone();
            check(device, &damaged(&payload, len, u32::from(group_log), 40), "damaged literals");
        }
    });
}

#[test]
fn blocks_of_many_lengths() {
    let lengths = [1, 2, 3, 31, 127, 128, 511, 700, 4099, 65_535, 65_536, 65_537, 131_073, 262_145];
    each_device(|device| {
        for fse in [false, true] {
            let case = |len: usize| {
                let block = mixture(len as u32, len);
                (encode(&params(16, 16, 0, Search::Greedy, fse), &block), len)
            };
            let cases: Vec<Case> = lengths.into_iter().map(case).collect();
            check(device, &cases, &format!("FSE {fse}"));
        }
    });
}

#[test]
fn chunks_windows_and_groups() {
    let len = 400_001;
    let block = mixture(9, len);
    each_device(|device| {
        let cuts = [(16, 16, 0), (16, 16, 2), (16, 18, 1), (16, 24, 4), (17, 18, 1), (18, 18, 0)];
        for (i, (chunk_log, window_log, group_log)) in cuts.into_iter().enumerate() {
            let search = [Search::Double, Search::Lazy4, OPTIMAL][i % 3];
            for fse in [false, true] {
                let params = params(chunk_log, window_log, group_log, search, fse);
                check(device, &[(encode(&params, &block), len)], &format!("{params:?}"));
            }
        }
        // All in the same batch.
        let cases: Vec<Case> = cuts
            .into_iter()
            .map(|(c, w, g)| (encode(&params(c, w, g, Search::Greedy, c == 17), &block), len))
            .collect();
        check(device, &cases, "mixed");
    });
}

/// Whether the windows of this case are written from records.
fn is_recorded(device: &dyn Device, (payload, len): &Case) -> bool {
    let shape = Shape::new(1, *len as u32);
    let plan = plan(device.limits(), shape, PayloadFeatures::of(payload, *len)).unwrap();
    plan.steps.iter().any(|step| matches!(step, Step::Run(run) if run.stage == "windows"))
}

#[test]
fn windows_of_several_chunks() {
    // The last of many sequences repeats the one before it, and so on back to the first.
    let chain = || noise(12, 30_000, 256).into_iter().flat_map(|x| [b'c', b'h', b'a', b'i', x]);
    let blocks = [
        mixture(13, 333_333),
        chain().collect(),
        [0; 90_000].into_iter().chain(chain()).collect(),
        noise(14, 150_000, 256),
        vec![9; 140_001],
        mixture(15, 65_537),
    ];
    each_device(|device| {
        for fse in [false, true] {
            let case =
                |block: &Vec<u8>| (encode(&params(16, 18, 1, OPTIMAL, fse), block), block.len());
            let cases: Vec<Case> = blocks.iter().map(case).collect();
            assert!(cases.iter().all(|case| is_recorded(device, case)));
            check(device, &cases, &format!("FSE {fse}"));
        }
    });
}

#[test]
fn long_chunks_first() {
    // With so few compute units, each has several teams.
    let lens = [1, 70_000, 200_000, 65_536, 3, 131_073, 9];
    let case = |(seed, len): (u32, &usize)| {
        (encode(&params(16, 16, 1, Search::Lazy8, seed % 2 == 1), &mixture(seed, *len)), *len)
    };
    let mut cases: Vec<Case> = (20..).zip(&lens).map(case).collect();
    // One case that is rejected.
    cases.push((vec![16, 16, 9, 0], 70_000));
    each_device(|device| {
        let limits = Limits { compute_units: 3, ..device.limits().clone() };
        let features = cases.iter().map(|(payload, len)| PayloadFeatures::of(payload, *len));
        let features = features.fold(PayloadFeatures::default(), PayloadFeatures::and);
        let plan = plan(&limits, Shape::new(cases.len() as u32, 200_000), features).unwrap();
        let is_order = |step: &Step| matches!(step, Step::Run(run) if run.entry == "lz77_order");
        assert!(plan.steps.iter().any(is_order));
        let verdicts = decode_with(device, &limits, &cases, features);
        assert_eq!(differing(&verdicts, &expected(&cases)), [0; 0]);
    });
}

#[test]
fn windows_in_turns() {
    // The second chunk has more sequences than records.
    let mut payload = vec![16, 17, 0, 0];
    payload.extend((1u64 | 5 << 43).to_le_bytes());
    payload.extend((1u64 | 8800 << 43).to_le_bytes());
    payload.extend([0; 8]);
    let len = 100_000;
    each_device(|device| {
        assert!(is_recorded(device, &(payload.clone(), len)), "there is room for as many");
        assert!(!is_recorded(device, &(payload.clone(), 99_000)));
        // A plan for any payload decodes windows chunk by chunk.
        let case = (encode(&params(16, 18, 1, OPTIMAL, true), &mixture(17, len)), len);
        assert!(is_recorded(device, &case));
        let cases = [case];
        let verdicts =
            decode_with(device, device.limits(), &cases, PayloadFeatures::any(len as u32, true));
        assert_eq!(differing(&verdicts, &expected(&cases)), [0usize; 0]);
    });
}

#[test]
fn special_contents() {
    let blocks = [
        vec![0; 200_000],
        (0..=255).cycle().take(70_000).collect::<Vec<u8>>(),
        noise(2, 140_000, 256),
        noise(3, 70_000, 2),
        noise(4, 100_000, 40),
        noise(5, 7, 256).repeat(9000),
        noise(6, 300, 256).repeat(300),
        vec![7; 3],
    ];
    each_device(|device| {
        for search in [Search::None, Search::Greedy, Search::Lazy4] {
            let each_fse = |fse| {
                let params = params(16, 17, 1, search, fse);
                blocks.iter().map(move |block| (encode(&params, block), block.len()))
            };
            let cases: Vec<Case> = [false, true].into_iter().flat_map(each_fse).collect();
            check(device, &cases, &format!("{search:?}"));
        }
    });
}

/// Copies of a payload, each damaged in another way.
fn damaged(payload: &[u8], len: usize, seed: u32, count: usize) -> Vec<Case> {
    let mut state = seed;
    let mut random = move |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below.max(1)
    };
    let mut case = |i: usize| {
        let mut payload = payload.to_vec();
        let mut len = len;
        match i % 8 {
            0..=2 => {
                let bit = random(8 * payload.len());
                payload[bit / 8] ^= 1 << (bit % 8);
            }
            3 => {
                // Damage the header or the first group's tables, which most rules concern.
                let bit = random(8 * payload.len().min(200));
                payload[bit / 8] ^= 1 << (bit % 8);
            }
            4 => {
                let at = random(payload.len());
                payload[at] = random(256) as u8;
            }
            5 => payload.truncate(random(payload.len())),
            6 => {
                let at = random(payload.len());
                let end = (at + random(40)).min(payload.len());
                payload[at..end].fill(random(256) as u8);
            }
            _ => match random(3) {
                0 => payload.extend(vec![0; 4 * random(3) + 4]),
                1 => len = (len + random(5)).max(3) - 2,
                _ => payload[random(4)] = random(256) as u8,
            },
        }
        (payload, len)
    };
    (0..count).map(&mut case).collect()
}

#[test]
fn damaged_payloads_have_the_verdict_of_the_cpu() {
    each_device(|device| {
        for (i, (len, search, fse)) in [
            (700, Search::Double, false),
            (700, Search::Lazy4, true),
            (3000, Search::Greedy, true),
            (70_000, Search::Double, false),
            (140_000, Search::Lazy4, true),
            (140_000, Search::Double, false),
            (2000, Search::None, true),
        ]
        .into_iter()
        .enumerate()
        {
            let payload = encode(&params(16, 17, 1, search, fse), &mixture(20 + i as u32, len));
            let count = if len < 10_000 { 400 } else { 48 };
            let mut cases = damaged(&payload, len, i as u32, count);
            // A sound payload among damaged ones.
            cases[count / 2] = (payload, len);
            check(device, &cases, &format!("damage {i}"));
        }
    });
}

#[test]
fn random_records_have_the_verdict_of_the_cpu() {
    each_device(|device| {
        let case = |i: u32| {
            let picks = noise(i, 16, 251);
            let (words, n) = (usize::from(picks[0]) % 100 + 1, usize::from(picks[1]) * 12 + 1);
            let (literals, sequences) = (u64::from(picks[2]) % 200, u64::from(picks[3]) % 200);
            let mut payload = vec![16, 16, 0, 0];
            payload.extend((words as u64 | literals << 22 | sequences << 43).to_le_bytes());
            payload.push(picks[4] % 64);
            payload.extend(noise(i + 7000, 4 * words - 1, 256));
            (payload, n)
        };
        let cases: Vec<Case> = (0..600).map(case).collect();
        check(device, &cases, "random records");
    });
}

#[test]
fn a_planted_fault_is_found() {
    let block = mixture(3, 70_000);
    let cases: Vec<Case> = (0..3)
        .map(|_| (encode(&params(16, 16, 0, Search::Double, true), &block), 70_000))
        .collect();
    each_device(|device| {
        let mut verdicts = decode(device, &cases);
        assert_eq!(differing(&verdicts, &expected(&cases)), [0usize; 0]);
        verdicts[1].as_mut().unwrap()[66_000] ^= 1;
        assert_eq!(differing(&verdicts, &expected(&cases)), [1]);
    });
}
