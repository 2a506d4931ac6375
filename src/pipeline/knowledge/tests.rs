//! One run of a kind of work teaches how long later runs take. These tests compare the predictions with made-up
//! machines, simulated block by block.

use super::*;
use crate::gpu::tests::testing::made_up;
use crate::{Level, Options};

const BLOCK: u64 = 1 << 20;

/// A machine with known properties. Rates are bytes a second of one worker and of the device.
#[derive(Debug, Clone, Copy)]
struct Truth {
    workers: usize,
    worker: f64,
    /// Seconds that a worker waits for input and output, for each byte.
    waits: f64,
    opening: f64,
    device: f64,
}

/// The events of a run.
struct Happened {
    wall: f64,
    /// How much longer the program ran, to close the device.
    closing: f64,
    cpu_blocks: u64,
    /// Blocks that the CPU had done when the device began.
    before: u64,
    device_blocks: u64,
}

impl Truth {
    /// A run of `blocks` blocks: the first free worker or device takes the next one.
    fn run(&self, blocks: u64, with_device: bool) -> Happened {
        let block = BLOCK as f64;
        let of_worker = block / self.worker + block * self.waits;
        let mut free = vec![0.0_f64; self.workers];
        let mut device_free = if with_device { self.opening } else { f64::INFINITY };
        let mut happened =
            Happened { wall: 0.0, closing: 0.0, cpu_blocks: 0, before: 0, device_blocks: 0 };
        for _ in 0..blocks {
            let first = free.iter_mut().min_by(|a, b| a.total_cmp(b)).unwrap();
            if device_free <= *first {
                device_free += block / self.device;
                happened.device_blocks += 1;
                happened.wall = happened.wall.max(device_free);
            } else {
                *first += of_worker;
                happened.cpu_blocks += 1;
                happened.before += u64::from(*first <= self.opening);
                happened.wall = happened.wall.max(*first);
            }
        }
        if happened.device_blocks > 0 {
            happened.closing = 0.3 * self.opening;
        }
        happened
    }

    /// Learns from such a run.
    fn teach(&self, knowledge: &Knowledge, blocks: u64, with_device: bool) {
        let happened = self.run(blocks, with_device);
        let statistics = Statistics::without_stages();
        let busy = (happened.cpu_blocks * BLOCK) as f64 / self.worker;
        let bytes = happened.cpu_blocks * BLOCK;
        statistics.cpu_did(happened.cpu_blocks, bytes, Duration::from_secs_f64(busy));
        let mut begun = Instant::now();
        if with_device {
            statistics.device_joins(&made_up(), 0);
            statistics.device_begins();
            let opening = Duration::from_secs_f64(self.opening);
            begun = statistics.device().unwrap().begun().unwrap().checked_sub(opening).unwrap();
            statistics.on_device(|device| {
                let bytes = happened.device_blocks * BLOCK;
                (device.opening, device.bytes_before) = (opening, happened.before * BLOCK);
                (device.done.blocks, device.done.bytes) = (happened.device_blocks, bytes);
                device.span = Duration::from_secs_f64(bytes as f64 / self.device);
            });
        }
        let (workload, workers) = (workload(), self.workers);
        let wall = Duration::from_secs_f64(happened.wall);
        knowledge.learn(&Run { workload, statistics, workers, begun, opened_device: false, wall });
    }

    /// Predictions that are wrong by more than a quarter.
    fn wrong(&self, knowledge: &Knowledge) -> Vec<String> {
        let cpu = knowledge.cpu(&workload(), self.workers);
        let device = knowledge.device(&workload(), &made_up(), &cpu).unwrap();
        let mut wrong = Vec::new();
        for blocks in [100, 400, 2000] {
            let bytes = (blocks * BLOCK) as f64;
            for (with, predicted) in
                [(false, cpu.alone(bytes)), (true, cpu.with_device(bytes, &device))]
            {
                let Happened { wall, closing, .. } = self.run(blocks, with);
                let took = wall + closing;
                if !(0.8..=1.25).contains(&(predicted / took)) {
                    wrong.push(format!(
                        "{blocks} blocks, device {with}: {predicted:.2} s predicted, {took:.2} s taken by {self:?}"
                    ));
                }
            }
        }
        wrong
    }
}

fn workload() -> Workload {
    Workload::encoding(&Options::new().level(Level::MIN).block_size(BLOCK)).unwrap()
}

/// Knowledge after one run on the CPU and one with the device.
fn taught(truth: &Truth) -> Knowledge {
    let knowledge = Knowledge::new(Store::in_folder(None));
    truth.teach(&knowledge, 400, false);
    truth.teach(&knowledge, 400, true);
    knowledge
}

fn truths() -> impl Iterator<Item = Truth> {
    let base = Truth { workers: 4, worker: 2e6, waits: 0.0, opening: 0.5, device: 3e7 };
    // Devices that are faster and slower than all workers, input that takes as long as the work, and a driver that
    // takes long.
    let others = [
        Truth { device: 4e6, ..base },
        Truth { workers: 16, device: 2e8, ..base },
        Truth { waits: 5e-7, ..base },
        Truth { opening: 3.0, ..base },
    ];
    [base].into_iter().chain(others)
}

#[test]
fn one_run_teaches_how_long_others_take() {
    for truth in truths() {
        let wrong = truth.wrong(&taught(&truth));
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        // With another number of workers, the device's own rate is known, but not the rate of both together.
        let more = Truth { workers: 2 * truth.workers, ..truth };
        if truth.waits == 0.0 {
            let wrong = more.wrong(&taught(&truth));
            assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        }
    }
}

#[test]
fn a_rate_that_is_wrong_by_three_is_found() {
    for truth in truths() {
        for factor in [3.0, 1.0 / 3.0] {
            let of_worker = (cpu(), workload().name());
            let of_both = (subject(&made_up()), name_with(&workload(), truth.workers, TOGETHER));
            for (subject, name) in [of_worker, of_both] {
                let knowledge = taught(&truth);
                let known = knowledge.get(&subject, &name).unwrap();
                knowledge.set(&subject, name.clone(), factor * known);
                assert!(!truth.wrong(&knowledge).is_empty(), "{subject} {name} {factor} {truth:?}");
            }
            // The device's own rate counts with another number of workers.
            let more = Truth { workers: 2 * truth.workers, ..truth };
            let (knowledge, name) = (taught(&truth), part_of(&workload(), BESIDE));
            let subject = subject(&made_up());
            let known = knowledge.get(&subject, &name).unwrap();
            assert!((known / truth.device - 1.0).abs() < 0.25, "{known} {truth:?}");
            knowledge.set(&subject, name, factor * known);
            // A device that is slow beside the workers changes little.
            let counts = truth.device > truth.workers as f64 * truth.worker;
            assert!(!counts || !more.wrong(&knowledge).is_empty(), "{factor} {truth:?}");
        }
    }
}

#[test]
fn the_first_run_compiles_and_later_ones_do_not() {
    let workload = Workload::encoding(&crate::Options::new()).unwrap();
    let mut rates = Rates::default();
    let mut after = |seconds| {
        learn_preparing(&mut rates, &workload, seconds);
        rates.get(&part_of(&workload, PREPARING)).unwrap()
    };
    assert_eq!(after(4.7), PREPARED_FROM_CACHE);
    assert_eq!(after(0.03), 0.03);
    // A driver that keeps nothing.
    assert!((after(4.7) - 2.365).abs() < 1e-9);
}
