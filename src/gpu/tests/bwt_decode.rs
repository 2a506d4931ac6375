//! Decodes BWT payloads on every device, and compares with the CPU's codec.

use super::testing::{each_device, run_plan};
use crate::codec::bwt::{Decoder, Encoder, Params};
use crate::gpu::device::Device;
use crate::gpu::model::plan::{PlanError, Shape};
use crate::gpu::stages::bwt_decode::{self, Lanes};
use crate::gpu::stages::job::{Job, JobResult};
use crate::test_data::noise;

/// Text much like prose: words of a small vocabulary, in an order that is not fully random.
fn text(len: usize) -> Vec<u8> {
    let source = include_str!("bwt_decode.rs").as_bytes();
    let words: Vec<_> = source.split(|b| *b == b' ').filter(|w| !w.is_empty()).collect();
    let mut out = Vec::with_capacity(len + 64);
    let mut x = 1usize;
    while out.len() < len {
        x = (x * 1103515245 + 12345) & 0x7fff_ffff;
        let at = (x >> 8) % words.len();
        for word in words.iter().skip(at).take(1 + (x >> 5) % 7) {
            out.extend_from_slice(word);
            out.push(b' ');
        }
    }
    out.truncate(len);
    out
}

fn encode(params: Params, block: &[u8]) -> Vec<u8> {
    let mut payload = Vec::new();
    Encoder::new().encode(&params, block, &mut payload);
    payload
}

/// Decodes a payload on the CPU.
fn by_cpu(payload: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = vec![0; len];
    Decoder::new().decode(payload, &mut out).ok().map(|()| out)
}

/// Decodes a batch of payloads, each with the length of its contents.
fn by_device(device: &dyn Device, cases: &[(Vec<u8>, usize)]) -> Option<Vec<Option<Vec<u8>>>> {
    by_lanes(device, cases, Lanes::of(device.limits())?)
}

fn by_lanes(
    device: &dyn Device,
    cases: &[(Vec<u8>, usize)],
    lanes: Lanes,
) -> Option<Vec<Option<Vec<u8>>>> {
    let longest = cases.iter().map(|(payload, len)| (*len).max(payload.len().saturating_sub(256)));
    let shape = Shape::new(cases.len() as u32, longest.max().unwrap_or(1) as u32);
    let plan = match bwt_decode::plan_with(device.limits(), shape, lanes) {
        Ok(plan) => plan,
        Err(PlanError::Declined(what)) => {
            eprintln!("\n*** SKIPPED: {what} ***\n");
            return None;
        }
        Err(error) => panic!("{error}"),
    };
    let (mut jobs, mut payloads) = (Vec::new(), Vec::new());
    for (payload, len) in cases {
        jobs.push(Job {
            content_len: *len as u32,
            payload_len: payload.len() as u32,
            payload_start: (payloads.len() / 16) as u32,
            ..Job::default()
        });
        payloads.extend_from_slice(payload);
        payloads.resize(payloads.len().next_multiple_of(16), 0x5a);
    }
    let inputs = [("jobs", bytemuck::cast_slice(&jobs)), ("payload", &payloads[..])];
    let out = run_plan(device, &plan, &inputs, &["contents", "results"]).unwrap();
    let results: &[JobResult] = bytemuck::cast_slice(&out[1]);
    let block = |(i, (_, len)): (usize, &(Vec<u8>, usize))| {
        let begin = i * shape.slot as usize;
        (results[i].status == 0).then(|| out[0][begin..begin + len].to_vec())
    };
    Some(cases.iter().enumerate().map(block).collect())
}

/// The first payload for which `found` differs from the CPU's result.
fn difference(cases: &[(Vec<u8>, usize)], found: &[Option<Vec<u8>>]) -> Option<usize> {
    cases.iter().zip(found).position(|((payload, len), found)| by_cpu(payload, *len) != *found)
}

/// The first payload of a batch that a device and the CPU disagree on.
fn disagreement(device: &dyn Device, cases: &[(Vec<u8>, usize)]) -> Option<usize> {
    difference(cases, &by_device(device, cases)?)
}

const LEVEL_9: Params = Params { segment_log: 14, start_log: 14 };

/// Blocks of many lengths and contents.
fn blocks() -> Vec<Vec<u8>> {
    let mut blocks: Vec<Vec<u8>> = vec![
        vec![0],
        vec![255],
        vec![7, 7],
        b"ab".to_vec(),
        b"abracadabra".to_vec(),
        (0..=255).collect(),
        (0..=255).rev().collect::<Vec<u8>>().repeat(3),
        b"ab".repeat(40_000),
        vec![9; 70_000],
        text(70_000),
        [vec![1; 40_000], noise(1, 20_000, 256), vec![2; 10_003]].concat(),
    ];
    for len in [255, 256, 257, 1023, 1024, 1025, 8191, 8193, 16383, 16384, 16385] {
        blocks.push(text(len));
        blocks.push(noise(len as u32, len, 256));
        blocks.push(noise(len as u32, len, 3));
    }
    blocks
}

#[test]
fn gpu_decodes_bwt_as_the_cpu_does() {
    let params = [
        LEVEL_9,
        Params { segment_log: 10, start_log: 8 },
        Params { segment_log: 16, start_log: 23 },
        Params { segment_log: 13, start_log: 12 },
    ];
    each_device(|device| {
        for params in params {
            let all = blocks();
            // Other parameters need fewer blocks.
            let step = if params == LEVEL_9 { 1 } else { 3 };
            let blocks = all.iter().step_by(step);
            let cases: Vec<_> = blocks.map(|block| (encode(params, block), block.len())).collect();
            assert_eq!(disagreement(device, &cases), None, "{params:?}");
        }
    });
}

/// Blocks with several sets of tables and many segments.
#[test]
fn gpu_decodes_long_bwt_blocks() {
    let mixed = [text(200_000), noise(5, 100_000, 30), text(200_000), vec![3; 100_000]].concat();
    let mixed = [mixed, noise(9, 148_577, 256)].concat();
    each_device(|device| {
        for params in [LEVEL_9, Params { segment_log: 10, start_log: 12 }] {
            let cases: Vec<_> = [&mixed[..], &mixed[..500_001]]
                .iter()
                .map(|block| (encode(params, block), block.len()))
                .collect();
            assert_eq!(disagreement(device, &cases), None, "{params:?}");
        }
    });
}

/// A long block with a single stored row, and one long segment.
#[test]
fn gpu_decodes_a_bwt_block_with_one_start() {
    let block = [text(900_000), vec![0; 3_000_003]].concat();
    let params = Params { segment_log: 16, start_log: 23 };
    let cases = [(encode(params, &block), block.len())];
    each_device(|device| assert_eq!(disagreement(device, &cases), None));
}

/// The same with parts of the lists, and most tables, outside workgroup memory.
#[test]
fn where_lists_and_tables_are_does_not_matter() {
    let block = [text(60_000), noise(9, 60_000, 256)].concat();
    let cases = [(encode(LEVEL_9, &block), block.len())];
    each_device(|device| {
        for lanes in
            [Lanes { count: 64, near: 5, kept: 100 }, Lanes { count: 32, near: 1, kept: 3 }]
        {
            let Some(found) = by_lanes(device, &cases, lanes) else { return };
            assert!(found[0].as_deref() == Some(&block[..]), "{lanes:?}");
        }
    });
}

/// Damaged payloads: device and CPU must agree on which are well-formed, and on their bytes.
fn damaged() -> Vec<(Vec<u8>, usize)> {
    let blocks = [
        text(3000),
        noise(1, 2500, 4),
        noise(2, 1500, 256),
        [text(1000), vec![5; 9000], noise(3, 300, 256)].concat(),
        b"ab".repeat(700),
        text(40),
        vec![1],
    ];
    let params = [Params { segment_log: 10, start_log: 8 }, LEVEL_9];
    let random = noise(1, 100_000, 256);
    let mut random =
        random.chunks(4).map(|c| u32::from_le_bytes([c[0], c[1], c[2], c[3]]) as usize);
    let mut next = move || random.next().unwrap();
    let mut cases = Vec::new();
    for i in 0..200 {
        let block = &blocks[i % blocks.len()];
        let mut payload = encode(params[i / 7 % 2], block);
        let mut len = block.len();
        match next() % 8 {
            0 => payload.truncate(next() % (payload.len() + 1)),
            1 => payload.extend_from_slice(&[0; 5][..1 + next() % 5]),
            2 => len = (len + next() % 5).saturating_sub(2).max(1),
            // The fixed fields, the list and the rows.
            3 | 4 => {
                let at = next() % payload.len().min(60);
                payload[at] ^= 1 << (next() % 8);
            }
            _ => {
                for _ in 0..1 + next() % 3 {
                    let at = next() % payload.len();
                    payload[at] ^= 1 << (next() % 8);
                }
            }
        }
        cases.push((payload, len));
    }
    // Start rows of other blocks, and pure noise.
    for i in 0..20 {
        let mut payload = noise(i * 7 + 1, 400, 256);
        payload[0] &= 0xf3;
        payload[1] &= 7;
        cases.push((payload, 1 + next() % 3000));
    }
    cases
}

#[test]
fn gpu_and_cpu_agree_on_damaged_bwt_payloads() {
    each_device(|device| {
        let cases = damaged();
        let accepted = cases.iter().filter(|(payload, len)| by_cpu(payload, *len).is_some());
        println!("{} of {} payloads are well-formed", accepted.count(), cases.len());
        if let Some(at) = disagreement(device, &cases) {
            panic!("payload {at} is taken differently");
        }
    });
}

/// The comparison in the tests above notices a wrong byte, a wrong verdict and a missing verdict.
#[test]
fn planted_fault_in_bwt_decoding_is_found() {
    let block = text(5000);
    let good = encode(LEVEL_9, &block);
    let cases = [(good.clone(), block.len()), (good[..good.len() - 4].to_vec(), block.len())];
    each_device(|device| {
        let Some(found) = by_device(device, &cases) else { return };
        assert_eq!(difference(&cases, &found), None);
        let mut wrong_byte = found.clone();
        wrong_byte[0].as_mut().unwrap()[4000] ^= 1;
        assert_eq!(difference(&cases, &wrong_byte), Some(0));
        assert_eq!(difference(&cases, &[None, None]), Some(0));
        assert_eq!(difference(&cases, &[found[0].clone(), found[0].clone()]), Some(1));
    });
}
