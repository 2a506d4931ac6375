//! Compares the kernels' payloads with those of the CPU's encoder.

use super::lz77_find::short_words;
use super::testing::{GARBAGE, each_device, run_plan};
use crate::codec::Codec;
use crate::codec::lz77::testing::{Backend, Parser, parse, samples};
use crate::codec::lz77::{Encoder, Params, Search};
use crate::format::Pipeline;
use crate::gpu::device::Device;
use crate::gpu::model::plan::{Plan, Shape};
use crate::gpu::stages::job::{Job, JobResult};
use crate::gpu::stages::lz77_code;
use crate::pipeline::Level;
use crate::test_data::{far_and_near, mixture, noise};

pub(crate) fn level(number: u32, pipeline: Pipeline) -> Params {
    match Level::new(number).unwrap().codec(pipeline) {
        Codec::Lz77(params) => params,
        _ => unreachable!("these pipelines are LZ77"),
    }
}

fn fine(search: Search, fse: bool) -> Params {
    Params { chunk_log: 16, window_log: 17, group_log: 1, segment_log: 13, search, fse }
}

/// Contents, match lists and their lengths, as laid out in device memory.
pub(crate) struct Inputs {
    jobs: Vec<Job>,
    contents: Vec<u8>,
    matches: Vec<[u32; 2]>,
    match_counts: Vec<u32>,
}

impl Inputs {
    pub(crate) fn new(params: &Params, shape: Shape, blocks: &[Vec<u8>]) -> Self {
        let slot = shape.slot as usize;
        let mut inputs = Self {
            jobs: Vec::new(),
            contents: vec![GARBAGE; slot * blocks.len()],
            matches: vec![[0xa5a5_a5a5; 2]; slot / 8 * 3 * blocks.len()],
            match_counts: vec![0; slot / 256 * blocks.len()],
        };
        let mut parser = Parser::new(Backend::detect());
        for (b, block) in blocks.iter().enumerate() {
            inputs.jobs.push(Job { content_len: block.len() as u32, ..Job::default() });
            inputs.contents[b * slot..][..block.len()].copy_from_slice(block);
            if params.search == Search::None {
                continue;
            }
            let segment_len = 1 << params.segment_log;
            for m in parse(&mut parser, params, block) {
                let (segment, start) =
                    (m.start as usize / segment_len, m.start as usize % segment_len);
                let count = &mut inputs.match_counts[b * (slot / 256) + segment];
                let list_len = segment_len / 8 * 3;
                let at = b * (slot / 8 * 3) + segment * list_len + *count as usize;
                assert!((*count as usize) < list_len, "more matches than there is room");
                inputs.matches[at] = [start as u32 | m.length << 16, m.offset];
                *count += 1;
            }
        }
        inputs
    }

    pub(crate) fn named(&self, params: &Params) -> Vec<(&'static str, &[u8])> {
        let mut named: Vec<(&str, &[u8])> =
            vec![("jobs", bytemuck::cast_slice(&self.jobs)), ("contents", &self.contents)];
        if params.search != Search::None {
            named.push(("matches", bytemuck::cast_slice(&self.matches)));
            named.push(("match_counts", bytemuck::cast_slice(&self.match_counts)));
        }
        named
    }
}

pub(crate) fn plan_of(device: &dyn Device, params: &Params, shape: Shape) -> Plan {
    let mut plan = Plan::new(shape);
    lz77_code::append(&mut plan, device.limits(), params).unwrap();
    plan
}

/// The first fault in the payload of a block.
fn fault(params: &Params, block: &[u8], result: &JobResult, slot: &[u8]) -> Option<String> {
    let mut expected = Vec::new();
    Encoder::new().encode(params, block, &mut expected);
    let what = if expected.len() >= block.len() {
        (result.status == 0).then(|| "does not fit".to_string())
    } else if result.status != 0 {
        Some(format!("status {}, {} bytes", result.status, result.payload_len))
    } else if result.payload_len as usize != expected.len() {
        Some(format!("{} bytes in place of {}", result.payload_len, expected.len()))
    } else {
        let differs = expected.iter().zip(slot).position(|(a, b)| a != b);
        differs.map(|at| format!("byte {at} of {} differs", expected.len()))
    };
    // The slot may keep literals, but not beyond the longest block.
    let end = slot.len() - 256;
    let beyond = || {
        let at = slot[end..].iter().position(|&byte| byte != GARBAGE)?;
        Some(format!("byte {} of the slot was written", end + at))
    };
    what.or_else(beyond).map(|what| format!("{params:?}, block of {}: {what}", block.len()))
}

/// Encodes blocks on a device, and lists the faults.
fn faults(device: &dyn Device, params: &Params, blocks: &[Vec<u8>]) -> Vec<String> {
    let longest = blocks.iter().map(Vec::len).max().unwrap_or(1);
    let shape = Shape::new(blocks.len() as u32, longest as u32);
    let inputs = Inputs::new(params, shape, blocks);
    let plan = plan_of(device, params, shape);
    let outputs = run_plan(device, &plan, &inputs.named(params), &["payload", "results"]).unwrap();
    let results: &[JobResult] = bytemuck::cast_slice(&outputs[1]);
    let slots = outputs[0].chunks_exact(shape.slot as usize + 256);
    let found = blocks.iter().zip(results).zip(slots);
    found.filter_map(|((block, result), slot)| fault(params, block, result, slot)).collect()
}

fn check(device: &dyn Device, params: &Params, blocks: &[Vec<u8>]) {
    let faults = faults(device, params, blocks);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

/// Checks short blocks in one plan and long ones in another, because slots are as long as the longest block.
fn check_all(device: &dyn Device, params: &Params, blocks: &[Vec<u8>]) {
    let (short, long): (Vec<_>, Vec<_>) =
        blocks.iter().filter(|block| !block.is_empty()).cloned().partition(|b| b.len() < 6000);
    check(device, params, &short);
    check(device, params, &long);
}

#[test]
fn literals_alone() {
    let mut blocks = vec![
        noise(2, 70_001, 256),
        noise(3, 70_000, 2),
        noise(4, 69_999, 40),
        vec![7; 66_000],
        mixture(65_537),
        mixture(65_536),
        mixture(140_003),
    ];
    blocks.extend([1, 2, 3, 5, 31, 127, 128, 129, 511, 512, 513, 1023, 5000].map(mixture));
    blocks.push(noise(5, 600, 3).into_iter().map(|x| if x > 0 { 9 } else { x }).collect());
    each_device(|device| {
        check(device, &level(1, Pipeline::Fse), &blocks);
        check(device, &fine(Search::None, true), &blocks);
        check(device, &fine(Search::None, false), &blocks);
    });
}

#[test]
fn matches_and_literals() {
    let samples = samples();
    each_device(|device| {
        for search in [Search::Greedy, Search::Lazy4] {
            for fse in [false, true] {
                check_all(device, &fine(search, fse), &samples);
            }
        }
    });
}

/// Matches extend beyond their segments and cover many later ones.
#[test]
fn long_matches_pass_many_segments() {
    let blocks = [far_and_near(60_000), far_and_near(150_001)];
    each_device(|device| {
        for (search, segment_log) in
            [(Search::Greedy, 8), (Search::Greedy, 13), (Search::Lazy4, 10)]
        {
            check(device, &Params { segment_log, ..fine(search, false) }, &blocks);
        }
    });
}

#[test]
fn parameters_of_levels() {
    let block = mixture(300_000);
    let files: [&[u8]; 4] = [
        include_bytes!("../../format/lz77.md"),
        include_bytes!("../../codec/lz77/stream/models.rs"),
        include_bytes!("../../../docs/silesia7.svg"),
        include_bytes!("../../../Cargo.lock"),
    ];
    let mut blocks: Vec<Vec<u8>> = files.iter().map(|file| file.to_vec()).collect();
    blocks.extend([block, vec![1; 200_000], noise(7, 150_000, 256)]);
    each_device(|device| {
        for number in 1..=8 {
            let pipeline = if number % 2 == 0 { Pipeline::Lzf } else { Pipeline::Lzh };
            let params = level(number, pipeline);
            check(device, &params, if number < 4 { &blocks } else { &blocks[4..5] });
        }
        // As many matches as possible.
        check(device, &level(8, Pipeline::Lzf), &[short_words(70_000)]);
    });
}

#[test]
fn groups_chunks_and_windows() {
    let blocks = [mixture(400_000), mixture(262_145), noise(8, 131_073, 3), vec![0; 300_000]];
    each_device(|device| {
        for (chunk_log, window_log, group_log, segment_log) in
            [(16, 16, 0, 12), (16, 24, 2, 13), (17, 18, 1, 15), (18, 18, 4, 14), (20, 22, 0, 8)]
        {
            for fse in [false, true] {
                let search = Search::Double;
                let params = Params { chunk_log, window_log, group_log, segment_log, search, fse };
                check(device, &params, &blocks);
            }
        }
    });
}

#[test]
fn a_planted_fault_is_found() {
    let block = mixture(3000);
    each_device(|device| {
        let params = fine(Search::Greedy, false);
        let shape = Shape::new(1, 3000);
        let mut inputs = Inputs::new(&params, shape, std::slice::from_ref(&block));
        let plan = plan_of(device, &params, shape);
        let fault_of = |inputs: &Inputs| {
            let outputs =
                run_plan(device, &plan, &inputs.named(&params), &["payload", "results"]).unwrap();
            let results: &[JobResult] = bytemuck::cast_slice(&outputs[1]);
            fault(&params, &block, &results[0], &outputs[0])
        };
        assert_eq!(fault_of(&inputs), None);
        // The first byte has no predecessors, so it is always a literal.
        inputs.contents[0] ^= 1;
        assert!(fault_of(&inputs).is_some());
    });
}
