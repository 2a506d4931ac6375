//! Speed of checksums, packing and copies on the devices of a machine. Every result is verified.
//!
//! | environment | |
//! |---|---|
//! | `PZ_TOTAL` | bytes of contents in flight; 1 GB by default |
//! | `PZ_SOFTWARE` | also measure software devices |

use std::time::{Duration, Instant};

use super::checksum::{Direction, add_checksums_by, add_packing};
use super::device::{Device, DeviceError, Kind, Queue};
use super::job::{Job, JobResult};
use super::plan::{Plan, Shape};
use super::run::{Memory, submit};
use super::testing::each_device;

const REPETITIONS: usize = 5;

fn gigabytes(bytes: u64, time: Duration) -> f64 {
    bytes as f64 / 1e9 / time.as_secs_f64()
}

/// The shortest of a few times.
fn best(mut work: impl FnMut() -> Result<Duration, DeviceError>) -> Result<Duration, DeviceError> {
    let mut best = Duration::MAX;
    for _ in 0..REPETITIONS {
        best = best.min(work()?);
    }
    Ok(best)
}

/// The time of a plan by stage, as measured by the device; otherwise by the wall clock, including the wait.
fn run(
    plan: &Plan,
    memory: &Memory<'_>,
    queue: &mut dyn Queue,
) -> Result<Vec<(String, Duration)>, DeviceError> {
    let mut shortest: Vec<(String, Duration)> = Vec::new();
    for _ in 0..REPETITIONS {
        queue.set_timing(true);
        let start = Instant::now();
        submit(plan, memory, queue)?;
        queue.finish()?;
        let whole = start.elapsed();
        let runs = plan.runs().map(|run| run.entry.to_string());
        let mut times: Vec<_> = runs.zip(queue.take_times()?).collect();
        times.push(("with the wait".into(), whole));
        if shortest.is_empty() {
            shortest = times;
        } else {
            for (old, new) in shortest.iter_mut().zip(times) {
                old.1 = old.1.min(new.1);
            }
        }
    }
    queue.set_timing(false);
    Ok(shortest)
}

fn bench(device: &dyn Device, block: u32, total: u64) -> Result<(), DeviceError> {
    let limits = device.limits();
    let room = limits.max_buffer / u64::from(block + 512);
    let blocks = (total / u64::from(block)).clamp(1, room) as u32;
    let shape = Shape::new(blocks, block);
    let slot = shape.slot as usize;
    // The contents of a block depend on its number, and repeat after a few blocks.
    const KINDS: usize = 7;
    let noise = |seed: usize| -> Vec<u8> {
        (0..slot + 256)
            .map(|i| ((i + seed * 977).wrapping_mul(2_654_435_761) >> 15) as u8)
            .collect()
    };
    let kinds: Vec<_> = (0..KINDS).map(noise).collect();
    let own = |b: usize| &kinds[b % KINDS];
    let mut contents = Vec::with_capacity(slot * blocks as usize);
    let mut payload = Vec::with_capacity((slot + 256) * blocks as usize);
    for b in 0..blocks as usize {
        contents.extend_from_slice(&own(b)[..slot]);
        payload.extend_from_slice(own(b));
    }
    let payload_len = |b: usize| (slot / 2 + b % 100) as u32;
    let jobs = vec![Job { contents_len: block, ..Job::default() }; blocks as usize];
    let results: Vec<_> = (0..blocks as usize)
        .map(|b| JobResult { payload_len: payload_len(b), ..JobResult::default() })
        .collect();
    let bytes: u64 = (0..blocks as usize).map(|b| u64::from(block + payload_len(b))).sum();
    let what = format!("{} | {} blocks of {} KiB", limits.api, blocks, block >> 10);

    for piece_units in [4, 13, 26, 52] {
        let mut plan = Plan::new(shape);
        add_checksums_by(&mut plan, Direction::Encode, piece_units).unwrap();
        if piece_units == 52 {
            add_packing(&mut plan).unwrap();
        }
        let memory = Memory::allocate(device, &plan)?;
        let mut queue = device.queue()?;
        let up = best(|| {
            let start = Instant::now();
            queue.write(memory.named("contents"), 0, &contents)?;
            queue.finish()?;
            Ok(start.elapsed())
        })?;
        queue.write(memory.named("payload"), 0, &payload)?;
        queue.write(memory.named("jobs"), 0, bytemuck::cast_slice(&jobs))?;
        queue.write(memory.named("results"), 0, bytemuck::cast_slice(&results))?;
        let times = run(&plan, &memory, &mut *queue)?;
        let mut found = vec![JobResult::default(); blocks as usize];
        queue.read(memory.named("results"), 0, bytemuck::cast_slice_mut(&mut found))?;
        for (b, found) in found.iter().enumerate().step_by((blocks as usize / 300).max(1)) {
            let crcs = (found.contents_crc, found.payload_crc);
            let whole = crc32c::crc32c(&own(b)[..block as usize]);
            let payload = crc32c::crc32c(&own(b)[..payload_len(b) as usize]);
            assert_eq!(crcs, (whole, payload), "block {b}");
        }
        let list: Vec<String> = times
            .iter()
            .map(|(entry, time)| format!("{entry} {:.0} us", time.as_secs_f64() * 1e6))
            .collect();
        let reduce = times.iter().find(|(entry, _)| entry == "reduce_pieces");
        println!(
            "checksum | {what} | pieces of {} KiB | {:.0} GB/s | {}",
            5 * piece_units,
            reduce.map_or(0.0, |(_, time)| gigabytes(bytes, *time)),
            list.join(", "),
        );
        if piece_units != 52 {
            continue;
        }
        let packed: u64 =
            (0..blocks as usize).map(|b| u64::from(payload_len(b).next_multiple_of(16))).sum();
        if let Some((_, time)) = times.iter().find(|(entry, _)| entry == "gather") {
            println!("pack | {what} | {:.0} GB/s", gigabytes(packed, *time));
        }
        let mut back = vec![0; packed as usize];
        let down = best(|| {
            let start = Instant::now();
            queue.read(memory.named("packed"), 0, &mut back)?;
            Ok(start.elapsed())
        })?;
        let mut at = 0;
        for b in 0..blocks as usize {
            let len = payload_len(b) as usize;
            assert!(back[at..at + len] == own(b)[..len], "payload of block {b}");
            at += len.next_multiple_of(16);
        }
        println!(
            "copies | {what} | up {:.1} GB/s, down {:.1} GB/s",
            gigabytes(contents.len() as u64, up),
            gigabytes(packed, down)
        );
    }
    Ok(())
}

#[test]
#[ignore = "a measurement: needs a GPU"]
fn h200_checksum() {
    let total = std::env::var("PZ_TOTAL").map_or(1_000_000_000, |total| total.parse().unwrap());
    let software = std::env::var_os("PZ_SOFTWARE").is_some();
    each_device(|device| {
        if device.limits().kind == Kind::Software && !software {
            return;
        }
        println!("{:?}", device.limits());
        for block in [1 << 16, 1 << 20, 1 << 22] {
            if let Err(error) = bench(device, block, total) {
                println!("checksum | {} | FAILED: {error}", device.limits().api);
            }
        }
    });
}
