//! Speed of decoding LZ77 payloads on the GPUs of a machine. Every byte is verified.
//!
//! | environment | |
//! |---|---|
//! | `PZ_DATA` | the file to compress |
//! | `PZ_TOTAL` | bytes in flight, repeating the file; 1 GB by default |
//! | `PZ_SETS` | only parameter sets whose name contains one of these, separated by commas |
//! | `PZ_WINDOW_THREADS` | work items that write a window |
//! | `PZ_RECORDS=1` | record sequences even where windows have one chunk |
//! | `PZ_SOFTWARE` | also measure software devices |

use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::device::{Device, DeviceError, Kind};
use super::job::{Job, JobResult};
use super::lz77_decode::{Needs, plan};
use super::plan::{Plan, Shape};
use super::run::{Memory, submit};
use super::testing::each_device;
use crate::codec::lz77::{Effort, Encoder, Params, Search};

const REPETITIONS: usize = 7;
/// Bytes of a block.
const BLOCK: usize = 1 << 22;

const OPTIMAL: Search = Search::Optimal(Effort { passes: 2, nice_length: 128, every_length: 64 });

/// Name, chunk, window, group, search, FSE.
type Set = (&'static str, u8, u8, u8, Search, bool);

const SETS: [Set; 13] = [
    ("level-1", 18, 18, 0, Search::Greedy, false),
    ("256K-double", 18, 18, 0, Search::Double, false),
    ("64K-lazy8", 16, 16, 0, Search::Lazy8, false),
    ("64K-lazy8-g2", 16, 16, 2, Search::Lazy8, false),
    ("64K-optimal-g2", 16, 16, 2, OPTIMAL, false),
    ("128K-optimal-g1", 17, 17, 1, OPTIMAL, false),
    ("256K-optimal", 18, 18, 0, OPTIMAL, false),
    ("64K-optimal-g2-lzf", 16, 16, 2, OPTIMAL, true),
    ("256K-optimal-lzf", 18, 18, 0, OPTIMAL, true),
    ("level-3", 18, 22, 0, Search::Double, false),
    ("1M-lazy8", 18, 20, 0, Search::Lazy8, false),
    ("fse-256K", 18, 18, 0, Search::None, true),
    ("fse-64K-g2", 16, 16, 2, Search::None, true),
];

/// The payloads of all blocks.
fn encode(blocks: &[&[u8]], params: &Params) -> Vec<Vec<u8>> {
    let encode = |encoder: &mut Encoder, block: &&[u8]| {
        let mut payload = Vec::new();
        encoder.encode(params, block, &mut payload);
        payload
    };
    blocks.par_iter().map_init(Encoder::new, encode).collect()
}

/// Medians of the dispatches' times, by stage.
fn times(
    device: &dyn Device,
    plan: &Plan,
    memory: &Memory<'_>,
) -> Result<Vec<(&'static str, Duration)>, DeviceError> {
    let mut queue = device.queue()?;
    queue.set_timing(true);
    submit(plan, memory, &mut *queue)?;
    queue.finish()?;
    queue.take_times()?;
    let mut all: Vec<Vec<(&'static str, Duration)>> = Vec::new();
    for _ in 0..REPETITIONS {
        submit(plan, memory, &mut *queue)?;
        queue.finish()?;
        let stages = plan.runs().map(|run| run.stage);
        let mut sums: Vec<(&'static str, Duration)> = Vec::new();
        for (stage, time) in stages.zip(queue.take_times()?) {
            match sums.iter_mut().find(|(name, _)| *name == stage) {
                Some((_, sum)) => *sum += time,
                None => sums.push((stage, time)),
            }
        }
        all.push(sums);
    }
    all.sort_by_key(|sums| sums.iter().map(|(_, time)| *time).sum::<Duration>());
    Ok(all.swap_remove(REPETITIONS / 2))
}

/// Decodes the blocks, repeated up to `total` bytes, verifies them, and measures.
fn bench(
    device: &dyn Device,
    name: &str,
    blocks: &[&[u8]],
    payloads: &[Vec<u8>],
    total: usize,
) -> Result<(), DeviceError> {
    let count = total.div_ceil(BLOCK).max(1);
    let shape = Shape::new(count as u32, BLOCK as u32);
    let needs = blocks
        .iter()
        .zip(payloads)
        .map(|(block, payload)| Needs::of(payload, block.len()))
        .fold(Needs::default(), Needs::and);
    let plan = plan(device.limits(), shape, needs).unwrap();
    let memory = Memory::allocate(device, &plan)?;
    let mut queue = device.queue()?;
    let (mut jobs, mut at, mut contents, mut compressed) = (Vec::new(), 0u64, 0, 0);
    for i in 0..count {
        let (block, payload) = (blocks[i % blocks.len()], &payloads[i % blocks.len()]);
        jobs.push(Job {
            contents_len: block.len() as u32,
            payload_len: payload.len() as u32,
            payload_start: (at / 16) as u32,
            ..Job::default()
        });
        queue.write(memory.named("payload"), at, payload)?;
        at = (at + payload.len() as u64).next_multiple_of(16);
        contents += block.len();
        compressed += payload.len();
    }
    queue.write(memory.named("jobs"), 0, bytemuck::cast_slice(&jobs))?;
    queue.finish()?;
    let stages = times(device, &plan, &memory)?;

    let mut results = vec![JobResult::default(); count];
    queue.read(memory.named("results"), 0, bytemuck::cast_slice_mut(&mut results))?;
    let mut slot = vec![0; BLOCK];
    for (i, result) in results.iter().enumerate() {
        let block = blocks[i % blocks.len()];
        assert_eq!(result.status, 0, "{name}: block {i} is rejected");
        queue.read(memory.named("contents"), (i * BLOCK) as u64, &mut slot)?;
        assert!(slot[..block.len()] == *block, "{name}: block {i} is wrong");
    }
    let rate = |time: Duration| contents as f64 / time.as_secs_f64() / 1e9;
    let sum: Duration = stages.iter().map(|(_, time)| *time).sum();
    let each: Vec<String> = stages
        .iter()
        .map(|(stage, time)| format!("{stage} {:.0} us", time.as_secs_f64() * 1e6))
        .collect();
    println!(
        "lz77_decode | {} | {name} | {:.0} MB | ratio {:.3} | {:.1} GB/s | decode alone {:.1} GB/s | {}",
        device.limits().api,
        contents as f64 / 1e6,
        contents as f64 / compressed as f64,
        rate(sum),
        rate(stages.last().map_or(sum, |(_, time)| *time)),
        each.join(", "),
    );
    Ok(())
}

#[test]
#[ignore = "a measurement: needs a GPU and PZ_DATA"]
fn h200_lz77_decode() {
    let Some(path) = std::env::var_os("PZ_DATA") else {
        println!("*** SKIPPED: PZ_DATA is not set ***");
        return;
    };
    let data = std::fs::read(path).unwrap();
    let total = std::env::var("PZ_TOTAL").map_or(1_000_000_000, |total| total.parse().unwrap());
    let wanted = std::env::var("PZ_SETS").unwrap_or_default();
    let software = std::env::var_os("PZ_SOFTWARE").is_some();
    let blocks: Vec<&[u8]> = data.chunks(BLOCK).collect();
    for (name, chunk_log, window_log, group_log, search, fse) in SETS {
        if !wanted.split(',').any(|part| name.contains(part)) {
            continue;
        }
        let params = Params { chunk_log, window_log, group_log, segment_log: 14, search, fse };
        let start = Instant::now();
        let payloads = encode(&blocks, &params);
        println!("{name}: encoded in {:.1} s", start.elapsed().as_secs_f64());
        each_device(|device| {
            if device.limits().kind == Kind::Software && !software {
                return;
            }
            if let Err(error) = bench(device, name, &blocks, &payloads, total) {
                println!("lz77_decode | {} | {name} | FAILED: {error}", device.limits().api);
            }
        });
    }
}
