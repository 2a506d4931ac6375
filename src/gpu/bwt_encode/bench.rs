//! How fast a device encodes, stage by stage, and whether a whole file comes out right.
//!
//! | environment | |
//! |---|---|
//! | `PZ_DATA` | the file; it is repeated |
//! | `PZ_TOTAL` | bytes in a batch; 250000000 by default |
//! | `PZ_BLOCK` | bytes in a block; 4 MiB and then 8 MiB by default |
//! | `PZ_ONLY` | `transform` or `encode`; both by default |
//! | `PZ_SOFTWARE` | if set, also measure software devices |
//! | `PZ_TEST_DEVICE` | as in other tests |

use std::collections::BTreeMap;
use std::time::Duration;

use rayon::prelude::*;

use super::tests::{inputs, on_cpu};
use super::*;
use crate::codec::bwt::Encoder;
use crate::gpu::device::{Device, Kind, Queue};
use crate::gpu::job::JobResult;
use crate::gpu::run::{Memory, submit};
use crate::gpu::testing::each_device;

/// Number of runs; their median counts.
const RUNS: usize = 5;

/// The median times of each stage and its entry points, in the order of their first steps, and of everything together.
fn time(queue: &mut dyn Queue, plan: &Plan, memory: &Memory<'_>) -> Vec<(String, Duration)> {
    let mut names: Vec<String> = Vec::new();
    let mut times: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
    let names_of = |run: &Run| [run.stage.to_string(), format!("{}/{}", run.stage, run.entry)];
    let steps: Vec<_> = plan.runs().map(names_of).collect();
    queue.set_timing(true);
    for _ in 0..RUNS {
        submit(plan, memory, queue).expect("the plan runs");
        queue.finish().expect("the plan ends");
        let took = queue.take_times().expect("times");
        let mut sums: BTreeMap<&str, Duration> = BTreeMap::new();
        for (step, took) in steps.iter().zip(took) {
            for name in step.iter().map(String::as_str).chain(["all"]) {
                *sums.entry(name).or_default() += took;
            }
        }
        for (name, sum) in sums {
            times.entry(name.into()).or_default().push(sum);
        }
    }
    for name in steps.into_iter().flatten() {
        if !names.contains(&name) {
            names.push(name);
        }
    }
    names.push("all".into());
    let median = |name: String| {
        let mut of_stage = times.get(&name).cloned().unwrap_or_default();
        of_stage.sort();
        let median = of_stage.get(of_stage.len() / 2).copied().unwrap_or_default();
        (name, median)
    };
    names.into_iter().map(median).collect()
}

/// A batch of the file's blocks, repeated.
struct Batch {
    shape: Shape,
    distinct: Vec<Vec<u8>>,
    blocks: Vec<Vec<u8>>,
    bytes: usize,
}

impl Batch {
    fn new(data: &[u8], total: usize, block_len: usize) -> Self {
        let count = total.div_ceil(block_len).max(1);
        let mut distinct: Vec<Vec<u8>> = data.chunks(block_len).map(<[u8]>::to_vec).collect();
        distinct.truncate(count);
        let blocks: Vec<Vec<u8>> = distinct.iter().cycle().take(count).cloned().collect();
        let bytes = blocks.iter().map(Vec::len).sum();
        Self { shape: Shape::new(count as u32, block_len as u32), distinct, blocks, bytes }
    }

    /// Times `plan`, and returns the contents of two of its buffers.
    fn bench(
        &self,
        device: &dyn Device,
        what: &str,
        plan: &Plan,
        outputs: [&str; 2],
    ) -> [Vec<u8>; 2] {
        println!(
            "\n{what}: {} blocks of {} bytes, {} bytes, {} steps, {} bytes of device memory",
            self.blocks.len(),
            self.shape.slot,
            self.bytes,
            plan.steps.len(),
            plan.memory()
        );
        let memory = Memory::allocate(device, plan).expect("memory");
        let mut queue = device.queue().expect("a queue");
        queue.set_deadline(Duration::from_secs(60));
        let (jobs, contents) = inputs(self.shape, &self.blocks);
        queue.write(memory.named("jobs"), 0, &jobs).expect("upload");
        queue.write(memory.named("contents"), 0, &contents).expect("upload");
        submit(plan, &memory, &mut *queue).expect("the plan runs");
        queue.finish().expect("the plan ends");
        for (stage, took) in time(&mut *queue, plan, &memory) {
            self.print(&stage, took);
        }
        queue.set_timing(false);
        let begin = std::time::Instant::now();
        submit(plan, &memory, &mut *queue).expect("the plan runs");
        queue.finish().expect("the plan ends");
        self.print("wall clock", begin.elapsed());
        outputs.map(|name| {
            let buffer = plan.buffers.iter().find(|buffer| buffer.name == name);
            let mut bytes = vec![0; buffer.map_or(0, |buffer| buffer.bytes as usize)];
            queue.read(memory.named(name), 0, &mut bytes).expect("download");
            bytes
        })
    }

    fn print(&self, stage: &str, took: Duration) {
        let ms = took.as_secs_f64() * 1e3;
        println!("{stage:>26} {ms:9.3} ms {:8.2} GB/s", self.bytes as f64 / ms / 1e6);
    }

    fn transform(&self, device: &dyn Device, start_log: u8) {
        let plan = transform(device.limits(), self.shape, start_log).expect("costs are right");
        let outputs = self.bench(device, "forward BWT", &plan, ["transform", "start_rows"]);
        let slot = self.shape.slot as usize;
        let expected = |block: &Vec<u8>| on_cpu(block, start_log);
        let expected: Vec<_> = self.distinct.par_iter().map(expected).collect();
        for (b, block) in self.blocks.iter().enumerate() {
            let (bwt, rows) = &expected[b % self.distinct.len()];
            let found = &outputs[0][b * slot..][..block.len()];
            assert!(found == &bwt[..], "block {b}: transform differs");
            let found = &outputs[1][b * (slot.div_ceil(64) + 4)..][..4 * rows.len()];
            assert!(bytemuck::pod_collect_to_vec::<u8, u32>(found) == *rows, "block {b}: rows");
        }
        println!("all blocks are as the CPU has them");
    }

    fn encode(&self, device: &dyn Device, params: &Params) {
        let plan = match plan(device.limits(), self.shape, params) {
            Ok(plan) => plan,
            Err(error) => return println!("no encoder: {error}"),
        };
        let outputs = self.bench(device, "whole encoder", &plan, ["payload", "results"]);
        let results: Vec<JobResult> = bytemuck::pod_collect_to_vec(&outputs[1]);
        let encode = |block: &Vec<u8>| {
            let mut payload = Vec::new();
            Encoder::new().encode(params, block, &mut payload);
            payload
        };
        let expected: Vec<_> = self.distinct.par_iter().map(encode).collect();
        let stride = self.shape.slot as usize + 256;
        let mut sum = 0;
        for (b, result) in results.iter().enumerate() {
            let expected = &expected[b % self.distinct.len()];
            let found = &outputs[0][b * stride..][..result.payload_len as usize];
            assert!(result.status == 0 && found == &expected[..], "block {b}: payload differs");
            sum += expected.len();
        }
        println!("all payloads are as the CPU has them: {sum} bytes");
    }
}

#[test]
#[ignore = "needs PZ_DATA, and a fast device"]
fn h200_bwt_encode() {
    let path = std::env::var_os("PZ_DATA").expect("PZ_DATA names a file");
    let data = std::fs::read(path).expect("PZ_DATA can be read");
    let total = std::env::var("PZ_TOTAL").map_or(250_000_000, |t| t.parse().expect("a number"));
    let block_lens = match std::env::var("PZ_BLOCK") {
        Ok(len) => vec![len.parse().expect("a number")],
        Err(_) => vec![4 << 20, 8 << 20],
    };
    let wants = |what: &str| std::env::var("PZ_ONLY").map_or(true, |only| only == what);
    each_device(|device| {
        if device.limits().kind == Kind::Software && std::env::var_os("PZ_SOFTWARE").is_none() {
            return println!("a software device: left out");
        }
        for &block_len in &block_lens {
            let batch = Batch::new(&data, total, block_len);
            if wants("transform") {
                batch.transform(device, 14);
            }
            if wants("encode") {
                batch.encode(device, &Params::default());
            }
        }
    });
}
