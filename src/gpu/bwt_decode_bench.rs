//! How fast devices decode BWT payloads. Run by hand on a machine with a GPU.
//!
//! `PZ_DATA=file PZ_TOTAL=1000000000 cargo test --release --lib h200_bwt_decode -- --ignored --nocapture`

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rayon::prelude::*;

use super::bwt_decode::{self, Lanes};
use super::device::{Api, Device, Kind};
use super::job::{Job, JobResult};
use super::plan::{Plan, Shape};
use super::run::{Memory, submit};
use super::testing::each_device;
use crate::codec::bwt::{Encoder, Params};

const ROUNDS: usize = 5;

fn encode_all(blocks: &[&[u8]]) -> Vec<Vec<u8>> {
    let encode = |encoder: &mut Encoder, block: &&[u8]| {
        let mut payload = Vec::new();
        encoder.encode(&Params::default(), block, &mut payload);
        payload
    };
    blocks.par_iter().map_init(Encoder::new, encode).collect()
}

/// Median times of the entry points of `plan`, in order, and of the whole plan by the wall clock.
fn measure(device: &dyn Device, plan: &Plan, memory: &Memory<'_>) -> (Vec<(String, f64)>, f64) {
    let mut queue = device.queue().unwrap();
    queue.set_deadline(Duration::from_secs(100));
    let runs: Vec<_> = plan.runs().map(|run| format!("{}/{}", run.stage, run.entry)).collect();
    let mut order: Vec<String> = Vec::new();
    for run in &runs {
        if !order.contains(run) {
            order.push(run.clone());
        }
    }
    let mut times: BTreeMap<String, Vec<f64>> = BTreeMap::new();
    let mut walls = Vec::new();
    submit(plan, memory, &mut *queue).unwrap();
    queue.finish().unwrap();
    for _ in 0..ROUNDS {
        queue.set_timing(false);
        let start = Instant::now();
        submit(plan, memory, &mut *queue).unwrap();
        queue.finish().unwrap();
        walls.push(start.elapsed().as_secs_f64());
        queue.set_timing(true);
        submit(plan, memory, &mut *queue).unwrap();
        queue.finish().unwrap();
        let mut sums: BTreeMap<&String, f64> = BTreeMap::new();
        for (run, time) in runs.iter().zip(queue.take_times().unwrap()) {
            *sums.entry(run).or_default() += time.as_secs_f64();
        }
        for (run, sum) in sums {
            times.entry(run.clone()).or_default().push(sum);
        }
    }
    let median = |values: &mut Vec<f64>| {
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let wall = median(&mut walls);
    let of = |run: String| times.get_mut(&run).map(|values| (run, median(values)));
    (order.into_iter().filter_map(of).collect(), wall)
}

fn bench(
    device: &dyn Device,
    data: &[u8],
    block_len: usize,
    total: usize,
    lanes: Lanes,
    all: bool,
) {
    let blocks: Vec<&[u8]> = data.chunks(block_len).collect();
    let payloads = encode_all(&blocks);
    let packed: usize = payloads.iter().map(Vec::len).sum();
    let limits = device.limits();
    let mut count = total.div_ceil(block_len).max(1);
    let plan = loop {
        let shape = Shape::new(count as u32, block_len as u32);
        let plan = match bwt_decode::plan_with(limits, shape, lanes) {
            Ok(plan) => plan,
            Err(error) => return println!("{error}"),
        };
        let largest = plan.buffers.iter().map(|b| b.bytes).max().unwrap_or(0);
        if count == 1 || largest <= limits.max_buffer && plan.memory() <= limits.memory / 10 * 9 {
            break plan;
        }
        count = count * 7 / 8;
    };
    let memory = match Memory::allocate(device, &plan) {
        Ok(memory) => memory,
        Err(error) => return println!("{error}"),
    };
    let mut jobs = Vec::new();
    let mut input = Vec::new();
    let mut bytes = 0;
    for b in 0..count {
        let (block, payload) = (blocks[b % blocks.len()], &payloads[b % blocks.len()]);
        bytes += block.len();
        jobs.push(Job {
            contents_len: block.len() as u32,
            payload_len: payload.len() as u32,
            payload_start: (input.len() / 16) as u32,
            ..Job::default()
        });
        input.extend_from_slice(payload);
        input.resize(input.len().next_multiple_of(16), 0);
    }
    let mut queue = device.queue().unwrap();
    queue.write(memory.named("jobs"), 0, bytemuck::cast_slice(&jobs)).unwrap();
    queue.write(memory.named("payload"), 0, &input).unwrap();
    queue.finish().unwrap();
    let (times, wall) = measure(device, &plan, &memory);

    let mut results = vec![JobResult::default(); count];
    queue.read(memory.named("results"), 0, bytemuck::cast_slice_mut(&mut results)).unwrap();
    let mut slot = vec![0; plan.shape.slot as usize];
    let mut wrong = 0;
    for (b, result) in results.iter().enumerate() {
        let offset = b as u64 * u64::from(plan.shape.slot);
        queue.read(memory.named("contents"), offset, &mut slot).unwrap();
        let block = blocks[b % blocks.len()];
        wrong += usize::from(result.status != 0 || slot[..block.len()] != *block);
    }
    println!(
        "blocks of {} MiB: {count}, {} MB ({} of {} for one copy), {} MB of memory, {lanes:?}: {}",
        block_len >> 20,
        bytes / 1_000_000,
        packed,
        data.len(),
        plan.memory() / 1_000_000,
        if wrong == 0 { "verified".into() } else { format!("{wrong} BLOCKS ARE WRONG") },
    );
    let rate = |seconds: f64| bytes as f64 / seconds / 1e9;
    let part = |stages: &[&str]| {
        let is_in = |name: &String| stages.iter().any(|stage| name.starts_with(stage));
        times.iter().filter(|(name, _)| is_in(name)).map(|(_, time)| time).sum::<f64>()
    };
    for (name, time) in times.iter().filter(|(name, _)| all || name.starts_with("segments")) {
        println!("  {name:20} {:9.3} ms {:8.1} GB/s", time * 1e3, rate(*time));
    }
    for (name, stages) in [
        ("second stage", &["header", "tables", "segments", "expand"][..]),
        ("inverse", &["link", "compose", "walk"][..]),
    ] {
        println!("  {name:20} {:9.3} ms {:8.1} GB/s", part(stages) * 1e3, rate(part(stages)));
    }
    println!("  {:20} {:9.3} ms {:8.1} GB/s", "whole, by the clock", wall * 1e3, rate(wall));
    assert_eq!(wrong, 0);
}

#[test]
#[ignore = "a measurement: needs PZ_DATA, and a GPU to be of use"]
fn h200_bwt_decode() {
    let Some(path) = std::env::var_os("PZ_DATA") else { panic!("PZ_DATA names no file") };
    let data = std::fs::read(path).unwrap();
    let total = std::env::var("PZ_TOTAL").map_or(1_000_000_000, |total| total.parse().unwrap());
    let software = std::env::var_os("PZ_SOFTWARE").is_some();
    each_device(|device| {
        if device.limits().kind == Kind::Software && !software {
            return println!("a software device: left out");
        }
        let Some(own) = Lanes::of(device.limits()) else { return };
        for block_len in [4 << 20, 8 << 20] {
            bench(device, &data, block_len, total, own, true);
        }
        let shapes = match device.limits().api {
            Api::OpenCl => [(64, 14), (96, 14), (128, 14), (160, 14), (96, 7), (128, 7), (96, 3)],
            Api::WebGpu => [(32, 1), (64, 1), (128, 1), (32, 3), (96, 3), (128, 3), (64, 7)],
        };
        for (count, near) in shapes {
            bench(device, &data, 8 << 20, total, Lanes { count, near, kept: 64 }, false);
        }
        bench(device, &data, 8 << 20, 3 * total, own, true);
    });
}
