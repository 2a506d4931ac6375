//! How long coding takes on a GPU, stage by stage, with matches found by the CPU. Run by hand.

use std::collections::BTreeMap;
use std::time::Duration;

use rayon::prelude::*;

use super::device::{Device, Kind, Queue};
use super::job::JobResult;
use super::lz77_code_tests::{Inputs, level, plan_of};
use super::plan::{Plan, Shape};
use super::run::{Memory, submit};
use super::testing::each_device;
use crate::codec::lz77::{Encoder, Params};
use crate::format::Pipeline;
use crate::pipeline::Level;

const RUNS: usize = 5;

/// Writes the inputs of all blocks, repeating the distinct ones.
fn upload(
    queue: &mut dyn Queue,
    memory: &Memory<'_>,
    inputs: &[Inputs],
    params: &Params,
    blocks: u32,
) {
    for b in 0..blocks {
        for (name, bytes) in inputs[b as usize % inputs.len()].named(params) {
            let offset = u64::from(b) * bytes.len() as u64;
            queue.write(memory.named(name), offset, bytes).unwrap();
        }
    }
}

/// Median times of each step that launches a kernel, in order. Calls `before` ahead of each run.
fn measure(
    queue: &mut dyn Queue,
    plan: &Plan,
    memory: &Memory<'_>,
    before: impl Fn(&mut dyn Queue),
) -> Vec<(String, Duration)> {
    queue.set_timing(true);
    let mut times: BTreeMap<usize, Vec<Duration>> = BTreeMap::new();
    for _ in 0..RUNS {
        before(queue);
        submit(plan, memory, queue).unwrap();
        queue.finish().unwrap();
        for (i, time) in queue.take_times().unwrap().into_iter().enumerate() {
            times.entry(i).or_default().push(time);
        }
    }
    let runs = plan.runs().map(|run| format!("{} / {}", run.stage, run.entry));
    let median = |mut times: Vec<Duration>| {
        times.sort();
        times[times.len() / 2]
    };
    runs.zip(times.into_values().map(median)).collect()
}

fn bench(
    device: &dyn Device,
    name: &str,
    params: &Params,
    block_len: usize,
    data: &[u8],
    total: usize,
) {
    let distinct: Vec<&[u8]> = data.chunks(block_len).collect();
    // As many blocks as fit the device's buffers.
    let of_block = Shape::new(1, block_len as u32);
    let one = plan_of(device, params, of_block);
    let largest = one.buffers.iter().map(|buffer| buffer.bytes).max().unwrap_or(1);
    let most = (device.limits().max_buffer / largest).min(device.limits().memory / one.memory());
    let shape = Shape::new((total / block_len).min(most as usize) as u32, block_len as u32);
    let distinct = &distinct[..distinct.len().min(shape.blocks as usize)];
    let prepare = |block: &&[u8]| {
        let mut expected = Vec::new();
        Encoder::new().encode(params, block, &mut expected);
        (Inputs::new(params, of_block, &[block.to_vec()]), expected)
    };
    let (inputs, expected): (Vec<_>, Vec<_>) = distinct.par_iter().map(prepare).unzip();
    let plan = plan_of(device, params, shape);
    let memory = Memory::allocate(device, &plan).unwrap();
    let mut queue = device.queue().unwrap();
    // The codes of literals overwrite the matches.
    let times = measure(&mut *queue, &plan, &memory, |queue| {
        upload(queue, &memory, &inputs, params, shape.blocks);
    });
    let bytes: usize = (0..shape.blocks as usize).map(|b| distinct[b % distinct.len()].len()).sum();
    let rate = |time: Duration| bytes as f64 / time.as_secs_f64() / 1e9;
    println!(
        "\n{name}: {} blocks, {bytes} bytes, {} bytes of device memory",
        shape.blocks,
        plan.memory()
    );
    for (step, time) in &times {
        println!("{step:36} {:8.3} ms {:8.1} GB/s", time.as_secs_f64() * 1e3, rate(*time));
    }
    let sum = times.iter().map(|(_, time)| *time).sum();
    println!("{:36} {:8.3} ms {:8.1} GB/s", "all", Duration::as_secs_f64(&sum) * 1e3, rate(sum));

    let mut results = vec![JobResult::default(); shape.blocks as usize];
    queue.read(memory.named("results"), 0, bytemuck::cast_slice_mut(&mut results)).unwrap();
    let mut wrong = 0;
    let last = shape.blocks as usize - distinct.len();
    for b in last..shape.blocks as usize {
        let (block, expected) = (distinct[b % distinct.len()], &expected[b % distinct.len()]);
        let result = &results[b];
        let is_right = if expected.len() >= block.len() {
            result.status != 0
        } else {
            let mut payload = vec![0; expected.len().next_multiple_of(4)];
            let at = b as u64 * (u64::from(shape.slot) + 256);
            queue.read(memory.named("payload"), at, &mut payload).unwrap();
            result.status == 0
                && result.payload_len as usize == expected.len()
                && payload[..expected.len()] == expected[..]
        };
        wrong += usize::from(!is_right);
    }
    let packed: usize = distinct.iter().zip(&expected).map(|(d, e)| d.len().min(e.len())).sum();
    println!(
        "ratio {:.3}; {wrong} of {} distinct blocks are wrong",
        data.len() as f64 / packed as f64,
        distinct.len()
    );
    assert_eq!(wrong, 0);
}

#[test]
#[ignore = "measures a GPU: PZ_DATA=file PZ_TOTAL=bytes PZ_ONLY=part of a name"]
fn h200_lz77_code() {
    let path = std::env::var("PZ_DATA").expect("PZ_DATA names a file");
    let data = std::fs::read(path).unwrap();
    let total = std::env::var("PZ_TOTAL").map_or(1_000_000_000, |v| v.parse().unwrap());
    each_device(|device| {
        let limits = device.limits();
        if limits.kind == Kind::Software && total > 1 << 26 {
            return;
        }
        for (number, pipeline) in
            [(1, Pipeline::Fse), (1, Pipeline::Lzh), (3, Pipeline::Lzh), (3, Pipeline::Lzf)]
        {
            let block_len = Level::new(number).unwrap().block_size() as usize;
            let name = format!("level {number}, {pipeline}");
            if std::env::var("PZ_ONLY").is_ok_and(|only| !name.contains(&only)) {
                continue;
            }
            bench(device, &name, &level(number, pipeline), block_len, &data, total);
        }
    });
}
