//! How fast a device is, stage by stage, and whether it is right on a whole file.
//!
//! | environment | |
//! |---|---|
//! | `PZ_DATA` | the file, which is repeated |
//! | `PZ_TOTAL` | bytes of a batch; 250000000 if not given |
//! | `PZ_TEST_DEVICE` | as in other tests |

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::tests::{inputs, on_cpu};
use super::*;
use crate::gpu::device::{Device, Queue};
use crate::gpu::run::{Memory, submit};
use crate::gpu::testing::each_device;

/// Runs of which the median counts.
const RUNS: usize = 5;

/// As [`on_cpu`] for all blocks, on all cores.
fn all_on_cpu(blocks: &[Vec<u8>], start_log: u8) -> Vec<(Vec<u8>, Vec<u32>)> {
    let next = AtomicUsize::new(0);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(block) = blocks.get(at) else { return done };
            done.push((at, on_cpu(block, start_log)));
        }
    };
    let mut results: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..cores).map(|_| scope.spawn(work)).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    results.sort_by_key(|(at, _)| *at);
    results.into_iter().map(|(_, result)| result).collect()
}

/// The median time of each stage, in the order of their first steps, and of all together.
fn time(queue: &mut dyn Queue, plan: &Plan, memory: &Memory<'_>) -> Vec<(&'static str, Duration)> {
    let mut names: Vec<&'static str> = Vec::new();
    let mut times: BTreeMap<&str, Vec<Duration>> = BTreeMap::new();
    queue.set_timing(true);
    for _ in 0..RUNS {
        submit(plan, memory, queue).expect("the plan runs");
        queue.finish().expect("the plan ends");
        let steps = queue.take_times().expect("times");
        let mut sums: BTreeMap<&str, Duration> = BTreeMap::new();
        let runs = plan.steps.iter().filter_map(|step| match step {
            Step::Run(run) => Some(run.stage),
            Step::Clear(_) => None,
        });
        for (stage, step) in runs.zip(steps) {
            if !names.contains(&stage) {
                names.push(stage);
            }
            *sums.entry(stage).or_default() += step;
            *sums.entry("all").or_default() += step;
        }
        for (stage, sum) in sums {
            times.entry(stage).or_default().push(sum);
        }
    }
    names.push("all");
    let median = |name: &&'static str| {
        let mut of_stage = times.get(name).cloned().unwrap_or_default();
        of_stage.sort();
        (*name, of_stage.get(of_stage.len() / 2).copied().unwrap_or_default())
    };
    names.iter().map(median).collect()
}

fn bench(device: &dyn Device, data: &[u8], total: usize, block_len: usize) {
    let start_log = 14;
    let distinct: Vec<Vec<u8>> = data.chunks(block_len).map(<[u8]>::to_vec).collect();
    let count = total.div_ceil(block_len).max(1);
    let blocks: Vec<Vec<u8>> = distinct.iter().cycle().take(count).cloned().collect();
    let bytes: usize = blocks.iter().map(Vec::len).sum();
    let shape = Shape::new(count as u32, block_len as u32);
    let plan = transform(device.limits(), shape, start_log).expect("costs are right");
    println!(
        "\nblocks of {block_len} bytes: {count} of them, {bytes} bytes, {} steps, {} bytes of device memory",
        plan.steps.len(),
        plan.memory()
    );
    let memory = Memory::allocate(device, &plan).expect("memory");
    let mut queue = device.queue().expect("a queue");
    queue.set_deadline(Duration::from_secs(60));
    let (jobs, contents) = inputs(shape, &blocks);
    queue.write(memory.named("jobs"), 0, &jobs).expect("upload");
    queue.write(memory.named("contents"), 0, &contents).expect("upload");
    submit(&plan, &memory, &mut *queue).expect("the plan runs");
    queue.finish().expect("the plan ends");
    for (stage, took) in time(&mut *queue, &plan, &memory) {
        let ms = took.as_secs_f64() * 1e3;
        println!("{stage:>16} {ms:9.3} ms {:8.2} GB/s", bytes as f64 / ms / 1e6);
    }
    queue.set_timing(false);
    let begin = std::time::Instant::now();
    submit(&plan, &memory, &mut *queue).expect("the plan runs");
    queue.finish().expect("the plan ends");
    let ms = begin.elapsed().as_secs_f64() * 1e3;
    println!("{:>16} {ms:9.3} ms {:8.2} GB/s", "wall clock", bytes as f64 / ms / 1e6);

    let slot = shape.slot as usize;
    let mut transforms = vec![0; slot * count];
    let mut rows = vec![0; (slot.div_ceil(64) + 4) * count];
    queue.read(memory.named("transform"), 0, &mut transforms).expect("download");
    queue.read(memory.named("start_rows"), 0, &mut rows).expect("download");
    let expected = all_on_cpu(&distinct[..distinct.len().min(count)], start_log);
    for (b, block) in blocks.iter().enumerate() {
        let (bwt, cpu_rows) = &expected[b % distinct.len()];
        assert!(transforms[b * slot..][..block.len()] == bwt[..], "block {b}: transform differs");
        let gpu_rows = &rows[b * (slot.div_ceil(64) + 4)..][..4 * cpu_rows.len()];
        assert!(bytemuck::pod_collect_to_vec::<u8, u32>(gpu_rows) == *cpu_rows, "block {b}: rows");
    }
    println!("all {count} blocks are as the CPU has them");
}

#[test]
#[ignore = "needs PZ_DATA, and a fast device"]
fn h200_bwt_encode() {
    let path = std::env::var_os("PZ_DATA").expect("PZ_DATA names a file");
    let data = std::fs::read(path).expect("PZ_DATA can be read");
    let total = std::env::var("PZ_TOTAL").map_or(250_000_000, |t| t.parse().expect("a number"));
    each_device(|device| {
        for block_len in [4 << 20, 8 << 20] {
            bench(device, &data, total, block_len);
        }
    });
}
