//! Encodes on every device, and compares with the CPU's codec.

use super::*;
use crate::codec::bwt::{Encoder, Params, sort};
use crate::gpu::device::{Api, Device};
use crate::gpu::model::cost::KernelCost;
use crate::gpu::model::kernel::ALL;
use crate::gpu::stages::job::{Job, JobResult};

use crate::gpu::tests::testing::{each_device, run_plan};

const START_LOG: u8 = 8;

/// The CPU's transform of a block, and its stored rows.
pub(super) fn on_cpu(block: &[u8], start_log: u8) -> (Vec<u8>, Vec<u32>) {
    let mut bwt = vec![0; block.len()];
    let mut scratch = vec![0; sort::scratch_len(block.len())];
    let mut rows = Vec::new();
    sort::transform(block, start_log.into(), &mut bwt, &mut rows, &mut scratch).unwrap();
    (bwt, rows.iter().map(|&row| row as u32).collect())
}

/// The jobs and contents of a batch.
pub(super) fn inputs(shape: Shape, blocks: &[Vec<u8>]) -> (Vec<u8>, Vec<u8>) {
    let job = |block: &Vec<u8>| Job { content_len: block.len() as u32, ..Job::default() };
    let jobs: Vec<Job> = blocks.iter().map(job).collect();
    let mut contents = Vec::new();
    for (b, block) in blocks.iter().enumerate() {
        contents.extend_from_slice(block);
        // The bytes after a block must not matter.
        contents.resize((b + 1) * shape.slot as usize, 0x5a);
    }
    (bytemuck::cast_slice(&jobs).to_vec(), contents)
}

/// The first difference between a device's transforms and the CPU's.
fn compare(
    shape: Shape,
    blocks: &[Vec<u8>],
    start_log: u8,
    transforms: &[u8],
    rows: &[u8],
) -> Option<String> {
    let slot = shape.slot as usize;
    for (b, block) in blocks.iter().enumerate() {
        let (bwt, expected) = on_cpu(block, start_log);
        let transform = &transforms[b * slot..][..block.len()];
        if let Some(at) = (0..block.len()).find(|&i| transform[i] != bwt[i]) {
            return Some(format!("block {b} of {} bytes differs at byte {at}", block.len()));
        }
        let rows = &rows[b * (slot.div_ceil(64) + 4)..][..4 * expected.len()];
        let rows: Vec<u32> = bytemuck::pod_collect_to_vec(rows);
        if rows != expected {
            return Some(format!("block {b} of {} bytes has other rows", block.len()));
        }
    }
    None
}

fn check(device: &dyn Device, blocks: &[Vec<u8>]) {
    let longest = blocks.iter().map(Vec::len).max().unwrap_or(1);
    let shape = Shape::new(blocks.len() as u32, longest as u32);
    let plan = transform(device.limits(), shape, START_LOG).expect("costs are right");
    let (jobs, contents) = inputs(shape, blocks);
    let outputs = run_plan(
        device,
        &plan,
        &[("jobs", &jobs), ("contents", &contents)],
        &["transform", "start_rows"],
    )
    .expect("the device works");
    assert_eq!(compare(shape, blocks, START_LOG, &outputs[0], &outputs[1]), None);
    // The comparison notices a wrong byte and a wrong row.
    let mut wrong = outputs.clone();
    wrong[0][0] ^= 1;
    assert!(compare(shape, blocks, START_LOG, &wrong[0], &wrong[1]).is_some());
    let mut wrong = outputs;
    wrong[1][0] ^= 1;
    assert!(compare(shape, blocks, START_LOG, &wrong[0], &wrong[1]).is_some());
}

/// The first difference between a device's payloads and the CPU's.
fn compare_payloads(
    shape: Shape,
    blocks: &[Vec<u8>],
    params: &Params,
    payloads: &[u8],
    results: &[u8],
) -> Option<String> {
    let results: Vec<JobResult> = bytemuck::pod_collect_to_vec(results);
    let stride = shape.slot as usize + 256;
    let mut encoder = Encoder::new();
    for (b, (block, result)) in blocks.iter().zip(results).enumerate() {
        let mut expected = Vec::new();
        encoder.encode(params, block, &mut expected);
        let (status, len) = (result.status, result.payload_len as usize);
        if expected.len() > stride {
            if status == 0 {
                return Some(format!("block {b} has no room, and status 0"));
            }
            continue;
        }
        let what = format!("block {b} of {} bytes", block.len());
        if (status, len) != (0, expected.len()) {
            let expected = expected.len();
            return Some(format!("{what}: status {status}, {len} bytes, {expected} expected"));
        }
        let payload = &payloads[b * stride..][..len];
        if let Some(at) = (0..len).find(|&i| payload[i] != expected[i]) {
            return Some(format!("{what}: byte {at} of {len} differs"));
        }
    }
    None
}

fn check_payloads(device: &dyn Device, blocks: &[Vec<u8>], params: &Params) {
    let longest = blocks.iter().map(Vec::len).max().unwrap_or(1);
    let shape = Shape::new(blocks.len() as u32, longest as u32);
    let plan = match plan(device.limits(), shape, params) {
        Ok(plan) => plan,
        Err(error) => panic!("{error}"),
    };
    let (jobs, contents) = inputs(shape, blocks);
    let inputs: [(&str, &[u8]); 2] = [("jobs", &jobs), ("contents", &contents)];
    let outputs = run_plan(device, &plan, &inputs, &["payload", "results"]).expect("it works");
    let compare =
        |outputs: &[Vec<u8>]| compare_payloads(shape, blocks, params, &outputs[0], &outputs[1]);
    assert_eq!(compare(&outputs), None);
    // The comparison notices a wrong byte and a wrong length.
    for (buffer, at) in [(0, 3), (1, 4)] {
        let mut wrong = outputs.clone();
        wrong[buffer][at] ^= 1;
        assert!(compare(&wrong).is_some());
    }
}

fn noise(len: usize, mut state: u64, mask: u8) -> Vec<u8> {
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8 & mask
    };
    (0..len).map(|_| next()).collect()
}

fn fibonacci(len: usize) -> Vec<u8> {
    let (mut a, mut b) = (vec![b'a'], vec![b'a', b'b']);
    while b.len() < len {
        let next = [&b[..], &a[..]].concat();
        a = core::mem::replace(&mut b, next);
    }
    b.truncate(len);
    b
}

fn text(len: usize) -> Vec<u8> {
    let words = ["the ", "suffix ", "of ", "a ", "block, ", "sorted ", "rank ", "radix\n", "0123 "];
    let choice = noise(len, 77, 255);
    let mut text: Vec<u8> =
        choice.iter().flat_map(|&c| words[usize::from(c) % words.len()].bytes()).collect();
    text.truncate(len);
    text
}

fn periodic(len: usize, period: usize) -> Vec<u8> {
    let part = noise(period, 5, 255);
    part.iter().copied().cycle().take(len).collect()
}

#[test]
fn short_blocks() {
    each_device(|device| {
        let lens = [1, 2, 3, 7, 8, 9, 17, 255, 256, 257];
        let mut blocks = Vec::new();
        for len in lens {
            blocks.extend([vec![0; len], vec![b'x'; len], noise(len, 9, 255)]);
            blocks.extend([noise(len, 3, 1), fibonacci(len), text(len)]);
        }
        check(device, &blocks);
        for len in [1, 2, 257] {
            check(device, &[noise(len, 11, 3)]);
        }
    });
}

#[test]
fn blocks_of_several_tiles() {
    each_device(|device| {
        check(
            device,
            &[
                vec![255; 20_000],
                noise(20_000, 1, 255),
                periodic(19_999, 3),
                periodic(10_000, 1000),
                noise(16_384, 1, 1),
                fibonacci(10_000),
                vec![7],
                [vec![0; 5000], noise(5000, 2, 255), vec![0; 5000]].concat(),
                [noise(3000, 2, 255), vec![1; 9], noise(3000, 2, 255)].concat(),
            ],
        );
        check(device, &[text(70_001)]);
    });
}

#[test]
fn a_long_block_and_a_short_one() {
    each_device(|device| {
        let mut block = text(60_000);
        block.extend(noise(30_000, 4, 255));
        block.extend(vec![0; 10_001]);
        block.extend(text(30_000));
        check(device, &[block, text(1000)]);
    });
}

#[test]
fn payloads_of_short_blocks() {
    each_device(|device| {
        let mut blocks = vec![vec![0], vec![255], vec![1, 2], vec![0; 257], vec![3; 6000]];
        blocks.extend([2, 3, 255].map(text));
        for len in [9, 256, 1000] {
            blocks.extend([noise(len, 9, 255), noise(len, 3, 1), fibonacci(len), text(len)]);
        }
        check_payloads(device, &blocks, &Params::default());
        check_payloads(device, &[vec![77]], &Params { segment_log: 16, start_log: 23 });
    });
}

#[test]
fn payloads_of_long_blocks() {
    each_device(|device| {
        // More runs than a group of chunks holds.
        let mut block = text(30_000);
        block.extend(noise(20_000, 4, 255));
        block.extend(vec![0; 30_001]);
        block.extend(noise(100_000, 4, 15));
        let blocks = [block, noise(20_000, 8, 255), fibonacci(10_000), periodic(20_000, 700)];
        check_payloads(device, &blocks, &Params { segment_log: 13, start_log: 8 });
        check_payloads(device, &[text(70_000)], &Params::default());
    });
}

#[test]
fn costs_agree_and_predict_the_plan() {
    for kernel in
        ALL.iter().filter(|k| k.stem.starts_with("bwt/sort") || k.stem.starts_with("bwt/encode"))
    {
        let parse = |api| KernelCost::parse(kernel.stem, &kernel.text(api)).expect("a cost");
        assert_eq!(parse(Api::OpenCl), parse(Api::WebGpu));
    }
}
