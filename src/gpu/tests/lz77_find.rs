//! Each device must find the same matches as the CPU.

use super::testing::{each_device, run_plan};
use crate::codec::Codec;
use crate::codec::lz77::testing::{Backend, Match, Parser, parse, samples};
use crate::codec::lz77::{Effort, Params, Search};
use crate::gpu::device::run::{PlanMemory, submit};
use crate::gpu::device::{Api, Device, Kind, Limits, Teams};
use crate::gpu::model::kernel::ALL;
use crate::gpu::model::plan::{Plan, PlanError, Shape};
use crate::gpu::stages::job::Job;
use crate::gpu::stages::lz77_find::append;
use crate::pipeline::level::Level;
use rayon::prelude::*;
use std::time::Duration;

/// The effort of level 8, and one other.
const EFFORTS: [Effort; 2] = [
    Effort { passes: 2, nice_length: 128, inherited_length: 16, every_length: 64 },
    Effort { passes: 3, nice_length: 40, inherited_length: 50, every_length: 20 },
];

/// All searches except the optimal one, which takes software devices longer.
const SEARCHES: [Search; 7] = [
    Search::Greedy,
    Search::GreedyLarge,
    Search::Double,
    Search::Lazy4,
    Search::Lazy8,
    Search::Lazy32,
    Search::Lazy64,
];

fn params(search: Search, chunk_log: u8, window_log: u8, segment_log: u8) -> Params {
    Params { chunk_log, window_log, group_log: 0, segment_log, search, fse: false }
}

fn jobs(blocks: &[&[u8]]) -> Vec<Job> {
    let job = |b: &&[u8]| Job { content_len: b.len() as u32, ..Job::default() };
    blocks.iter().map(job).collect()
}

fn shape(blocks: &[&[u8]]) -> Shape {
    Shape::new(blocks.len() as u32, blocks.iter().map(|b| b.len()).max().unwrap_or(0) as u32)
}

/// Blocks in slots, followed by other bytes.
fn in_slots(blocks: &[&[u8]], shape: Shape) -> Vec<u8> {
    let mut contents = Vec::new();
    for (i, block) in blocks.iter().enumerate() {
        contents.extend_from_slice(block);
        contents.resize((i + 1) * shape.slot as usize, block[block.len() - 1]);
    }
    contents
}

/// The matches of block `number` in the buffers of a plan.
fn matches_of(
    params: &Params,
    shape: Shape,
    number: usize,
    len: usize,
    matches: &[u32],
    counts: &[u32],
) -> Vec<Match> {
    let slot = shape.slot as usize;
    let (matches, counts) = (&matches[number * (slot / 4 * 3)..], &counts[number * (slot / 256)..]);
    let segment_len = 1usize << params.segment_log;
    let mut out = Vec::new();
    for segment in 0..len.div_ceil(segment_len) {
        let list_len = segment_len / 8 * 3;
        let list = &matches[2 * segment * list_len..];
        assert!(counts[segment] as usize <= list_len);
        out.extend(list.chunks_exact(2).take(counts[segment] as usize).map(|entry| Match {
            start: (segment * segment_len) as u32 + (entry[0] & 0xffff),
            length: entry[0] >> 16,
            offset: entry[1],
        }));
    }
    out
}

fn plan(limits: &Limits, params: &Params, shape: Shape) -> Option<Plan> {
    let mut plan = Plan::new(shape);
    match append(&mut plan, limits, params) {
        Ok(()) => Some(plan),
        Err(PlanError::Declined(why)) => {
            println!("{:?} declined: {why}", params.search);
            None
        }
        Err(error) => panic!("{error}"),
    }
}

/// The matches of the blocks of one batch; `None` if the device declines.
fn found(device: &dyn Device, params: &Params, blocks: &[&[u8]]) -> Option<Vec<Vec<Match>>> {
    let shape = shape(blocks);
    let plan = plan(device.limits(), params, shape)?;
    let jobs = jobs(blocks);
    let inputs: [(&str, &[u8]); 2] =
        [("jobs", bytemuck::cast_slice(&jobs)), ("contents", &in_slots(blocks, shape))];
    let out = run_plan(device, &plan, &inputs, &["matches", "match_counts"]).unwrap();
    let words = |bytes: &[u8]| bytemuck::pod_collect_to_vec::<u8, u32>(bytes);
    let (matches, counts) = (words(&out[0]), words(&out[1]));
    let of =
        |(i, block): (usize, &&[u8])| matches_of(params, shape, i, block.len(), &matches, &counts);
    Some(blocks.iter().enumerate().map(of).collect())
}

/// The first difference in the matches of a block.
fn difference(params: &Params, block: &[u8], found: &[Match]) -> Option<String> {
    let expected = parse(&mut Parser::new(Backend::detect()), params, block);
    let at = expected.iter().zip(found).position(|(a, b)| a != b);
    let len = block.len();
    match at {
        Some(at) => {
            let (expected, found) = (expected[at], found[at]);
            Some(format!("match {at} of a block of {len} bytes: {found:?}, not {expected:?}"))
        }
        None if expected.len() != found.len() => {
            Some(format!("{} matches, not {}", found.len(), expected.len()))
        }
        None => None,
    }
}

fn agrees(device: &dyn Device, params: &Params, blocks: &[&[u8]]) {
    let Some(found) = found(device, params, blocks) else { return };
    for (i, (block, found)) in blocks.iter().zip(&found).enumerate() {
        assert_eq!(difference(params, block, found), None, "{:?}, block {i}", params.search);
    }
}

/// Kernels of this repository, joined into one block.
fn repository(len: usize) -> Vec<u8> {
    let texts =
        ALL.iter().flat_map(|kernel| [Api::OpenCl, Api::WebGpu].map(|api| kernel.text(api)));
    let mut text: Vec<u8> = texts.flat_map(|text| text.as_bytes().to_vec()).collect();
    assert!(text.len() >= len);
    text.truncate(len);
    text
}

#[test]
fn matches_of_samples_are_those_of_the_cpu() {
    let samples = samples();
    let blocks: Vec<&[u8]> = samples.iter().filter(|s| !s.is_empty()).map(|s| &s[..]).collect();
    let (short, long): (Vec<&[u8]>, Vec<&[u8]>) = blocks.iter().partition(|b| b.len() < 2000);
    // With all of them, software devices would take three times as long.
    let long: Vec<&[u8]> = long.into_iter().step_by(3).collect();
    each_device(|device| {
        for search in SEARCHES {
            agrees(device, &params(search, 16, 17, 14), &short);
        }
        agrees(device, &params(Search::Lazy64, 16, 17, 13), &long);
        // The others differ from these in the number of positions.
        for search in [Search::Greedy, Search::Double, Search::Lazy8, Search::Lazy64] {
            agrees(device, &params(search, 16, 18, 14), &long);
            agrees(device, &params(search, 16, 16, 9), &long[long.len() - 3..]);
        }
    });
}

#[test]
fn matches_of_files_are_those_of_the_cpu() {
    let text = repository(90_000);
    let blocks = [&text[..], &text[60_000..80_001], &text[5000..5001], &text[..65_536]];
    each_device(|device| {
        for search in SEARCHES {
            agrees(device, &params(search, 18, 18, 14), &blocks);
        }
        // A device that ends long loops declines longer segments in this search.
        agrees(device, &params(Search::Lazy64, 18, 18, 13), &blocks);
    });
}

/// Words of three bytes in any order: few matches are longer.
pub(crate) fn short_words(len: usize) -> Vec<u8> {
    let mut x = 1u32;
    let mut random = move || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        x >> 16
    };
    let words: Vec<[u8; 3]> = (0..250).map(|_| [(); 3].map(|()| random() as u8)).collect();
    let mut block: Vec<u8> =
        (0..len.div_ceil(3)).flat_map(|_| words[random() as usize % words.len()]).collect();
    block.truncate(len);
    block
}

/// Hard cases for the optimal parse: full candidate lists, runs longer than a match can be, windows and segments of
/// several sizes, chunks whose last positions have no candidates, and other efforts.
#[test]
fn optimal_matches_are_those_of_the_cpu() {
    let (mut text, words) = (repository(50_000), short_words(40_000));
    // Repeats of all lengths around the length from which a match is taken at once.
    for length in (20..300).step_by(7) {
        text.extend_from_within(length * 50..length * 51);
        text.push(length as u8);
    }
    text.resize(text.len() + 1000, 0);
    // A match so long that segments begin inside the part of it that positions inherit.
    text.extend_from_within(..45_000);
    assert!(text.len() > 3 << 15);
    let level = params(Search::Optimal(EFFORTS[0]), 18, 18, 14);
    let matches = parse(&mut Parser::new(Backend::detect()), &level, &words);
    let most = matches.iter().filter(|m| m.start >> 14 == 1).count();
    assert!(most > (1 << 14) / 4, "{most} matches in a segment");
    let samples = samples();
    let samples = samples.iter().filter(|block| (1..=5000).contains(&block.len()));
    let samples: Vec<&[u8]> = samples.map(|block| &block[..]).collect();
    each_device(|device| {
        agrees(device, &level, &samples);
        agrees(device, &level, &[&words, &text, &words[..3]]);
        let other = Search::Optimal(EFFORTS[1]);
        agrees(device, &params(other, 17, 17, 13), &[&text[..30_000]]);
        agrees(device, &params(other, 16, 17, 12), &[&text[40_000..]]);
    });
}

/// A block longer than its windows, with more tiles than a team has lanes.
#[test]
fn matches_of_a_large_block_are_those_of_the_cpu() {
    let mut text = repository(300_000);
    while text.len() < 1 << 20 {
        text.extend_from_within(..300_000);
        text.rotate_left(1000);
    }
    text.truncate((1 << 20) - 3);
    each_device(|device| {
        agrees(device, &params(Search::Greedy, 18, 18, 14), &[&text]);
        agrees(device, &params(Search::Lazy4, 18, 24, 14), &[&text]);
    });
}

#[test]
fn a_wrong_match_is_noticed() {
    let text = repository(20_000);
    each_device(|device| {
        let params = params(Search::Greedy, 16, 16, 14);
        let Some(mut found) = found(device, &params, &[&text]) else { return };
        assert_eq!(difference(&params, &text, &found[0]), None);
        found[0][7].offset += 1;
        assert!(difference(&params, &text, &found[0]).is_some());
        found[0][7].offset -= 1;
        found[0].pop();
        assert!(difference(&params, &text, &found[0]).is_some());
    });
}

/// Measures the speed at each level on a file, and compares all matches with the CPU's. `PZ_DATA` is the file,
/// `PZ_TOTAL` the size to repeat it to, `PZ_LEVELS` the levels (digits), and `PZ_SEGMENT_LOG` another segment length.
#[test]
#[ignore = "takes a GPU and a file"]
fn h200_lz77_find() {
    let file = std::fs::read(std::env::var_os("PZ_DATA").expect("PZ_DATA names a file")).unwrap();
    let total = std::env::var("PZ_TOTAL").map_or(1_000_000_000, |total| total.parse().unwrap());
    let levels = std::env::var("PZ_LEVELS").unwrap_or_else(|_| "12345678".into());
    for level in levels.bytes().map(|digit| Level::new(u32::from(digit - b'0')).unwrap()) {
        let Codec::Lz77(mut params) = level.codec(level.pipeline()) else { continue };
        if let Ok(log) = std::env::var("PZ_SEGMENT_LOG") {
            params.segment_log = log.parse().unwrap();
        }
        let block_len = level.block_size() as usize;
        let distinct: Vec<&[u8]> = file.chunks(block_len).collect();
        let blocks: Vec<&[u8]> = distinct.iter().copied().cycle().take(total / block_len).collect();
        each_device(|device| {
            // Skip work that is too much for a software device.
            if device.limits().kind != Kind::Software || total <= 1 << 26 {
                measure(device, level, &params, &blocks, &distinct);
            }
        });
    }
}

/// Lanes per segment to measure the greedy parse with: `PZ_PARSE_LANES=8`.
pub(in crate::gpu) fn measured_lanes() -> Option<u32> {
    std::env::var("PZ_PARSE_LANES").ok().map(|lanes| lanes.parse().unwrap())
}

/// Lanes per workgroup to measure the optimal parse with: `PZ_OPTIMAL_LANES=16`.
pub(in crate::gpu) fn measured_optimal_lanes() -> Option<u32> {
    std::env::var("PZ_OPTIMAL_LANES").ok().map(|lanes| lanes.parse().unwrap())
}

/// Work items and tile entries to measure the sort with, where teams are warps: `PZ_SORT_GROUP=512,2048`.
pub(in crate::gpu) fn measured_group(teams: Teams) -> Option<(u32, u32)> {
    let group = std::env::var("PZ_SORT_GROUP").ok().filter(|_| teams == Teams::Ptx)?;
    let (threads, tile) = group.split_once(',')?;
    Some((threads.parse().unwrap(), tile.parse().unwrap()))
}

fn measure(
    device: &dyn Device,
    level: Level,
    params: &Params,
    blocks: &[&[u8]],
    distinct: &[&[u8]],
) {
    // As many blocks as fit the device's buffers.
    let slot = level.block_size() as u32;
    let Some(one) = plan(device.limits(), params, Shape::new(1, slot)) else { return };
    let largest = one.buffers.iter().map(|buffer| buffer.bytes).max().unwrap_or(1);
    let most = (device.limits().max_buffer / largest).min(device.limits().memory / one.memory());
    let blocks = &blocks[..blocks.len().min(most as usize)];
    let shape = Shape::new(blocks.len() as u32, slot);
    let Some(plan) = plan(device.limits(), params, shape) else { return };
    let memory = PlanMemory::allocate(device, &plan).unwrap();
    let mut queue = device.queue().unwrap();
    queue.write(memory.named("jobs"), 0, bytemuck::cast_slice(&jobs(blocks))).unwrap();
    for (i, block) in blocks.iter().enumerate() {
        let mut padded = block.to_vec();
        padded.resize(block.len().next_multiple_of(4), 0);
        queue.write(memory.named("contents"), u64::from(shape.slot) * i as u64, &padded).unwrap();
    }
    queue.finish().unwrap();
    queue.set_timing(true);
    let runs = (0..6).map(|_| {
        submit(&plan, &memory, &mut *queue).unwrap();
        queue.finish().unwrap();
        queue.take_times().unwrap()
    });
    let mut runs: Vec<Vec<Duration>> = runs.skip(1).collect();
    let bytes: usize = blocks.iter().map(|b| b.len()).sum();
    let report = |what: &str, time: Duration| {
        let seconds = time.as_secs_f64();
        println!("  {what:<14} {:9.3} ms {:8.1} GB/s", seconds * 1e3, bytes as f64 / seconds / 1e9);
    };
    println!(
        "level {}: {} blocks of {} bytes, {:.2} GB of memory",
        level.get(),
        blocks.len(),
        shape.slot,
        plan.memory() as f64 / 1e9
    );
    runs.sort_by_key(|times| times.iter().sum::<Duration>());
    let median = &runs[runs.len() / 2];
    if median.len() == plan.runs().count() {
        plan.runs().zip(median).for_each(|(run, time)| report(run.entry, *time));
    }
    report("total", median.iter().sum());

    let distinct = &distinct[..distinct.len().min(blocks.len())];
    let slots = distinct.len() * shape.slot as usize;
    let mut matches = vec![0u32; slots / 4 * 3];
    let mut counts = vec![0u32; slots / 256];
    queue.read(memory.named("matches"), 0, bytemuck::cast_slice_mut(&mut matches)).unwrap();
    queue.read(memory.named("match_counts"), 0, bytemuck::cast_slice_mut(&mut counts)).unwrap();
    let wrong = distinct.par_iter().enumerate().filter_map(|(i, block)| {
        let found = matches_of(params, shape, i, block.len(), &matches, &counts);
        difference(params, block, &found).map(|what| format!("block {i}: {what}"))
    });
    let wrong: Vec<String> = wrong.collect();
    println!("  {} of {} blocks differ from the CPU's", wrong.len(), distinct.len());
    assert_eq!(wrong.first(), None);
}
