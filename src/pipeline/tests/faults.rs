//! Whole jobs with devices whose calls fail, hang, or return wrong bytes: the output is right, and no memory is lost.

use std::sync::Arc;
use std::time::Duration;

use super::{contents, decoding, devices};
use crate::gpu::coder::BlockTask;
use crate::gpu::device::Device;
use crate::gpu::tests::faulty::{Fault, Faulty};
use crate::{Gpu, Level, Options, Pipeline, Statistics, compress, decompress};

/// A job to run on devices with faults.
#[derive(Clone)]
struct FaultJob {
    contents: Vec<u8>,
    expected: Vec<u8>,
    options: Options,
    memory: u64,
}

impl FaultJob {
    /// A job of `blocks` blocks, with memory for `slots` batches of one block each.
    fn new(device: &Arc<dyn Device>, blocks: usize, slots: u64) -> Self {
        let contents = contents(blocks << 16);
        let options = Options::new().level(Level::MIN).block_size(1 << 16).threads(1);
        let recipe = options.recipe().unwrap();
        let work = BlockTask::Encode { recipe, verify: true };
        let memory = slots * work.cost(device.limits(), 1 << 16).unwrap().memory;
        let expected = compress(&contents, &options).unwrap();
        Self { contents, expected, options, memory }
    }

    /// Runs the job on `device`, decoding if `decodes` is set and encoding otherwise. The output must be right despite
    /// the fault. Returns the number of blocks that the CPU did.
    fn survive(&self, device: &Arc<Faulty<Arc<dyn Device>>>, decodes: bool) -> u64 {
        let gpu = Gpu::new(Arc::clone(device) as Arc<dyn Device>).memory(self.memory);
        let counted = Statistics::new();
        if decodes {
            let options = decoding(&gpu).statistics(&counted);
            assert!(decompress(&self.expected, &options).unwrap() == self.contents);
        } else {
            let options = self.options.clone().gpu(gpu.clone()).statistics(&counted);
            assert!(compress(&self.contents, &options).unwrap() == self.expected);
        }
        drop(gpu);
        assert_eq!(device.live(), 0, "memory of the device is lost");
        counted.cpu().blocks
    }

    /// Runs the job in both directions, once for each call, read or write that `choose` gives, with `fault` at that
    /// one. Returns the number of faults that had an effect, in the direction with fewer of them. With several batches
    /// at once, the failing call differs from run to run, and some of the bytes read do not matter.
    fn survive_all(
        &self,
        device: &Arc<dyn Device>,
        choose: impl Fn(&Faulty<Arc<dyn Device>>) -> Vec<u64>,
        fault: impl Fn(u64) -> Fault,
    ) -> u64 {
        let survive_all = |decodes| {
            let sound = Arc::new(Faulty::new(Arc::clone(device), Fault::None));
            assert_eq!(self.survive(&sound, decodes), 0, "blocks are left by a sound device");
            let mut left = 0;
            for n in choose(&sound) {
                let faulty = Faulty::new(Arc::clone(device), fault(n));
                let faulty = faulty.with_deadline(Duration::from_millis(5));
                left += u64::from(self.survive(&Arc::new(faulty), decodes) > 0);
            }
            left
        };
        survive_all(false).min(survive_all(true))
    }
}

#[test]
fn any_failing_call_is_survived() {
    for device in devices() {
        let job = FaultJob::new(&device, 2, 1);
        assert!(job.survive_all(&device, |sound| sound.sample_of_calls(3), Fault::Call) > 0);
    }
}

#[test]
fn a_device_lost_at_any_call_is_survived() {
    for device in devices() {
        let job = FaultJob::new(&device, 2, 1);
        assert!(job.survive_all(&device, |sound| sound.sample_of_calls(5), Fault::Lost) > 0);
        // With several batches at once.
        let job = FaultJob::new(&device, 5, 3);
        assert!(job.survive_all(&device, |sound| sound.sample_of_calls(23), Fault::Lost) > 0);
    }
}

#[test]
fn endless_work_at_any_call_is_survived() {
    for device in devices() {
        let job = FaultJob::new(&device, 2, 1);
        assert!(job.survive_all(&device, |sound| sound.sample_of_calls(5), Fault::Endless) > 0);
        let job = FaultJob::new(&device, 5, 3);
        assert!(job.survive_all(&device, |sound| sound.sample_of_calls(23), Fault::Endless) > 0);
    }
}

#[test]
fn any_wrong_bytes_are_survived() {
    for device in devices() {
        let job = FaultJob::new(&device, 2, 1);
        let reads = |sound: &Faulty<_>| (0..sound.copies().0).collect();
        let writes = |sound: &Faulty<_>| (0..sound.copies().1).collect();
        assert!(job.survive_all(&device, reads, Fault::Read) > 0);
        assert!(job.survive_all(&device, writes, Fault::Write) > 0);
        // With several batches at once.
        let job = FaultJob::new(&device, 5, 3);
        let reads = |sound: &Faulty<_>| (0..sound.copies().0).step_by(4).collect();
        let writes = |sound: &Faulty<_>| (0..sound.copies().1).step_by(4).collect();
        job.survive_all(&device, reads, Fault::Read);
        job.survive_all(&device, writes, Fault::Write);
    }
}

#[test]
fn a_refusing_allocator_fails_no_job() {
    for device in devices() {
        let job = FaultJob::new(&device, 5, 3);
        for log in (5..24).step_by(2) {
            for decodes in [false, true] {
                let faulty = Faulty::new(Arc::clone(&device), Fault::BuffersAbove(1 << log));
                // With larger batches, which the engine halves.
                let larger = FaultJob { memory: 16 * job.memory, ..job.clone() };
                larger.survive(&Arc::new(faulty), decodes);
            }
        }
    }
}

#[test]
fn a_device_that_fails_says_why() {
    for device in devices() {
        let job = FaultJob::new(&device, 5, 1);
        let faulty = Arc::new(Faulty::new(Arc::clone(&device), Fault::BuffersAbove(0)));
        let gpu = Gpu::new(faulty as Arc<dyn Device>).memory(job.memory);
        let counted = Statistics::new();
        let both = job.options.clone().gpu(gpu).statistics(&counted);
        assert!(compress(&job.contents, &both).unwrap() == job.expected);
        let device = counted.device().unwrap();
        assert!(device.left > 0 && device.notes.len() == 1, "{device:?}");
        assert!(device.notes[0].contains("memory"), "{device:?}");
    }
}

/// Runs a job of 12 blocks in both directions, with plans for 12 batches of one block, once for each amount of device
/// memory that `available` returns; its argument is the memory of a batch. Returns, for each, the number of blocks that
/// the CPU encoded.
fn left_by_short_memory(
    device: &Arc<dyn Device>,
    fault: fn(u64) -> Fault,
    available: impl Fn(u64) -> Vec<u64>,
) -> Vec<u64> {
    let job = FaultJob::new(device, 12, 3);
    let one = job.memory / 3;
    let larger = FaultJob { memory: 12 * one, ..job };
    let left = |most| {
        let faulty = || Arc::new(Faulty::new(Arc::clone(device), fault(most)));
        larger.survive(&faulty(), true);
        larger.survive(&faulty(), false)
    };
    available(one).into_iter().map(left).collect()
}

/// Another program has taken memory that the plans count on: batches become fewer and smaller, and the CPU does the
/// rest.
#[test]
fn memory_taken_by_another_program_fails_no_job() {
    for device in devices() {
        let left = left_by_short_memory(&device, Fault::MemoryAbove, |one| {
            vec![0, one / 3, one, one + one / 2, 4 * one, 12 * one]
        });
        // Nothing fits in the first two cases, everything in the last. Some blocks are one repeated byte, and take no
        // memory.
        assert!(left[0] > 1 && left[1] == left[0] && left[5] == 0, "{left:?}");
    }
}

/// The driver reserves memory only on first use, as NVIDIA's does, and never has enough for the plan.
#[test]
fn missing_memory_that_shows_on_first_use_fails_no_job() {
    for device in devices() {
        let left = left_by_short_memory(&device, Fault::LateMemoryAbove, |one| {
            vec![0, one / 3, 2 * one, 4 * one, 12 * one]
        });
        assert!(left[0] > 1 && left[1] == left[0] && left[4] == 0, "{left:?}");
    }
}

/// Blocks of the greatest length, one at a time, on a device with memory for just one.
#[test]
fn the_longest_blocks_run_one_at_a_time() {
    const LOG: u32 = 24;
    for device in devices() {
        let contents = contents((1 << LOG) + (1 << 20));
        let cpu = Options::new().level(Level::MIN).block_size(1 << LOG).threads(1);
        let expected = compress(&contents, &cpu).unwrap();
        let gpu_for = |work: BlockTask| {
            let cost = work.cost(device.limits(), 1 << LOG);
            cost.ok().map(|cost| Gpu::new(Arc::clone(&device)).memory(cost.memory))
        };
        let check = |counted: &Statistics| match counted.device() {
            Some(device) => {
                assert_eq!((device.done.blocks, device.slots, device.batch), (2, 1, 1));
                assert_eq!(device.peak_memory, device.predicted_memory, "{device:?}");
            }
            // Some devices decline: a buffer would be larger than they allow.
            None => println!("{}: {:?}", device.limits().name, counted.idle_device().unwrap()),
        };
        if let Some(gpu) = gpu_for(BlockTask::Decode(Pipeline::Lzh)) {
            let counted = Statistics::new();
            let options = decoding(&gpu).statistics(&counted);
            assert!(decompress(&expected, &options).unwrap() == contents);
            check(&counted);
        }
        // A software device behind WebGPU would take minutes.
        if device.limits().ends_long_loops() {
            continue;
        }
        let work = BlockTask::Encode { recipe: cpu.recipe().unwrap(), verify: true };
        if let Some(gpu) = gpu_for(work) {
            let counted = Statistics::new();
            let options = cpu.clone().gpu(gpu).statistics(&counted);
            assert!(compress(&contents, &options).unwrap() == expected);
            check(&counted);
        }
    }
}
