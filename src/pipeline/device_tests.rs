//! Whole jobs with devices: where blocks run, how much memory they take, and what happens when a device misbehaves.

use std::sync::Arc;
use std::time::Duration;

use crate::Pipeline;
use crate::gpu::coder::Work;
use crate::gpu::device::discovery;
use crate::gpu::device::{Api, BufferId, Device, DeviceError, Limits, MemorySource, Queue};
use crate::gpu::model::budget::{batches, budget};
use crate::gpu::model::plan::Shape;
use crate::gpu::tests::faulty::{Fault, Faulty};
use crate::pipeline::engine::{EncodeJob, Engine};
use crate::pipeline::gpu_engine::GpuEngine;
use crate::{DecodeOptions, Gpu, Level, Options, Statistics, compress, decompress};

/// Contents with matches to find, and with blocks of one repeated byte and of noise.
pub(super) fn contents(len: usize) -> Vec<u8> {
    let text = include_bytes!("../format/lz77.md");
    let mut x = 1u32;
    let mut random = move || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    let noise: Vec<u8> = (0..90_000).map(|_| random()).collect();
    let varied = text.iter().flat_map(|&byte| [byte, random() & 3]);
    let varied: Vec<u8> = varied.collect();
    let parts = [&text[..], &varied, &noise, &[7; 150_000]];
    parts.into_iter().cycle().flatten().copied().take(len).collect()
}

fn options(gpu: &Gpu) -> Options {
    let level = Level::new(2).unwrap();
    Options::new().level(level).block_size(1 << 16).threads(1).gpu(gpu.clone())
}

fn decoding(gpu: &Gpu) -> DecodeOptions {
    DecodeOptions::new().threads(1).gpu(gpu.clone())
}

/// Every device of this machine, or those whose interface `PZ_TEST_DEVICE` names.
pub(super) fn devices() -> Vec<Arc<dyn Device>> {
    let wanted = std::env::var("PZ_TEST_DEVICE").unwrap_or_default().to_lowercase();
    let apis = [Api::OpenCl, Api::WebGpu];
    let wanted = apis.into_iter().filter(|api| api.to_string().to_lowercase().contains(&wanted));
    // Other tests check that there are devices.
    let found = wanted.flat_map(|api| discovery::devices(api).unwrap_or_default());
    found.map(|found| found.open().unwrap()).collect()
}

#[test]
fn a_device_does_every_block_in_the_predicted_memory() {
    let contents = contents(1_000_000);
    for device in devices() {
        let gpu = Gpu::new(Arc::clone(&device));
        let expected = compress(&contents, &Options { gpu: None, ..options(&gpu) }).unwrap();
        let check = |counted: &Statistics| {
            let device = counted.device().unwrap();
            assert_eq!((device.done.blocks, device.left), (16, 0), "{device:?}");
            assert_eq!(device.notes, [""; 0]);
            assert_eq!(device.peak_memory, device.predicted_memory, "{device:?}");
        };
        for verify in [true, false] {
            // A new `Gpu`, which holds no memory from another job.
            let gpu = Gpu::new(Arc::clone(&device));
            let counted = Statistics::new();
            let options = options(&gpu).verify(verify).statistics(&counted);
            assert!(compress(&contents, &options).unwrap() == expected);
            check(&counted);
        }
        let counted = Statistics::new();
        assert!(decompress(&expected, &decoding(&gpu).statistics(&counted)).unwrap() == contents);
        let device = counted.device().unwrap();
        assert_eq!((device.done.blocks, device.left), (16, 0), "{device:?}");
    }
}

/// A real device with smaller limits on its memory and buffers. It counts the memory in use, and panics on an
/// allocation beyond the limits.
struct Simulated {
    device: Faulty<Arc<dyn Device>>,
    limits: Limits,
}

impl Simulated {
    fn new(device: &Arc<dyn Device>, memory: u64, max_buffer: u64) -> Self {
        let real = device.limits();
        let limits = Limits {
            memory,
            memory_source: MemorySource::Total,
            max_buffer: max_buffer.min(real.max_buffer),
            ..real.clone()
        };
        Self { device: Faulty::new(Arc::clone(device), Fault::None), limits }
    }
}

impl Device for Simulated {
    fn limits(&self) -> &Limits {
        &self.limits
    }

    fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
        assert!(bytes <= self.limits.max_buffer, "a buffer of {bytes} bytes");
        assert!(self.device.live() + bytes <= budget(&self.limits, None), "out of the budget");
        self.device.allocate(bytes)
    }

    fn free(&self, buffer: BufferId) {
        self.device.free(buffer);
    }

    fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
        self.device.queue()
    }
}

const MIB: u64 = 1 << 20;

/// Pairs of a device's memory and its largest buffer.
fn sizes() -> impl Iterator<Item = (u64, u64)> {
    let memories = [256 * MIB, 1024 * MIB, 8192 * MIB, 139 * 1024 * MIB];
    let buffers = [128 * MIB, 2048 * MIB - 4, u64::MAX];
    memories.into_iter().flat_map(move |memory| buffers.map(|buffer| (memory, buffer)))
}

/// On any device, every plan stays within the budget and the buffer limit.
#[test]
fn plans_stay_within_the_memory_of_any_device() {
    for device in devices() {
        let mut fitting = 0;
        for (memory, max_buffer) in sizes() {
            let limits =
                Limits { max_buffer, ..Simulated::new(&device, memory, max_buffer).limits };
            let budget = budget(&limits, None);
            for log in 16..=24 {
                let mut works = vec![Work::Decode(Pipeline::Lzf), Work::Decode(Pipeline::Bwt)];
                for level in Level::all() {
                    let recipe = Options::new().level(level).recipe().unwrap();
                    works.push(Work::Encode { recipe, verify: true });
                }
                for work in works {
                    let len = 1u32 << log;
                    let Ok(cost) = work.cost(&limits, len) else { continue };
                    let Some(found) = batches(&limits, budget, &cost) else {
                        assert!(cost.memory > budget || cost.largest_buffer > max_buffer);
                        continue;
                    };
                    fitting += 1;
                    let shape = Shape::new(found.batch, len);
                    assert!(found.memory(&cost).unwrap() <= budget, "{work:?} {limits:?}");
                    for plan in work.plans(&limits, shape) {
                        let mut buffers = plan.buffers.iter();
                        assert!(buffers.all(|buffer| buffer.bytes <= max_buffer), "{work:?}");
                    }
                }
            }
        }
        assert!(fitting > 100, "{fitting}");
    }
}

/// A small device gets batches that fit, or leaves blocks to the CPU.
#[test]
fn small_devices_do_what_fits() {
    for device in devices() {
        for (memory, max_buffer, log) in [
            (4 * MIB, 2 * MIB, 16),
            (32 * MIB, 2 * MIB, 16),
            (256 * MIB, 128 * MIB, 16),
            (256 * MIB, 128 * MIB, 20),
            (1024 * MIB, u64::MAX, 20),
        ] {
            let contents = contents(5 << (log - 1));
            let gpu = Gpu::new(Arc::new(Simulated::new(&device, memory, max_buffer)));
            let options = options(&gpu).block_size(1 << log);
            let expected = compress(&contents, &Options { gpu: None, ..options.clone() }).unwrap();
            assert!(compress(&contents, &options).unwrap() == expected);
            assert!(decompress(&expected, &decoding(&gpu)).unwrap() == contents);
        }
    }
}

/// A device that does no block of a job says why, in one line.
#[test]
fn a_declining_device_says_why() {
    for device in devices() {
        let contents = contents(200_000);
        let mut narrow = Simulated::new(&device, 1024 * MIB, u64::MAX);
        narrow.limits.max_workgroup = 24;
        let gpu = Gpu::new(Arc::new(narrow));
        let expected = compress(&contents, &Options { gpu: None, ..options(&gpu) }).unwrap();
        let check = |counted: &Statistics, part: &str| {
            assert!(counted.device().is_none_or(|device| device.done.blocks == 0));
            let name = &device.limits().name;
            let why = counted.idle_device().unwrap();
            assert!(why.contains(name) && why.contains(part) && !why.contains('\n'), "{why}");
        };
        let counted = Statistics::new();
        let both = options(&gpu).statistics(&counted);
        assert!(compress(&contents, &both).unwrap() == expected);
        check(&counted, "work items");
        let counted = Statistics::new();
        let both = decoding(&gpu).statistics(&counted);
        assert!(decompress(&expected, &both).unwrap() == contents);
        check(&counted, "work items");

        let small = Gpu::new(Arc::clone(&device)).memory(1 << 16);
        let counted = Statistics::new();
        assert!(compress(&contents, &options(&small).statistics(&counted)).unwrap() == expected);
        check(&counted, "memory");

        // It also says why when it fails at run time.
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

/// A device that is not found before the job ends is mentioned too.
#[test]
fn a_late_device_is_mentioned() {
    let contents = contents(200_000);
    let (done, wait) = std::sync::mpsc::channel::<()>();
    let gpu = Gpu::finding(move || {
        let _ = wait.recv();
        Err::<(Limits, fn() -> _), _>(DeviceError::Absent("there is none".into()))
    });
    let counted = Statistics::new();
    let two = Options { threads: 2, ..options(&gpu) };
    compress(&contents, &two.statistics(&counted)).unwrap();
    let why = counted.idle_device().unwrap();
    assert_eq!(why, "the device takes no part: it was not ready before the work was done");

    drop(done);
    let _ = gpu.device();
    let counted = Statistics::new();
    compress(&contents, &options(&gpu).statistics(&counted)).unwrap();
    assert_eq!(counted.idle_device().unwrap(), "the device takes no part: there is none");
}

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
        let work = Work::Encode { recipe, verify: true };
        let memory = slots * work.cost(device.limits(), 1 << 16).unwrap().memory;
        let expected = compress(&contents, &options).unwrap();
        Self { contents, expected, options, memory }
    }

    /// Runs the job on `device`, decoding if `decodes` is set and encoding otherwise. The output must be right despite
    /// the fault. Returns how many blocks the CPU did.
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
    /// one. Returns how many faults had an effect, in the direction with fewer of them. With several batches at once,
    /// the call that fails differs from run to run; and some of the bytes read do not matter.
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

/// Another program has taken memory that the plans count on: batches become fewer and smaller, and the CPU does the
/// rest.
#[test]
fn memory_taken_by_another_program_fails_no_job() {
    for device in devices() {
        let job = FaultJob::new(&device, 12, 3);
        let one = job.memory / 3;
        let larger = FaultJob { memory: 12 * one, ..job.clone() };
        let mut left = Vec::new();
        for most in [0, one / 3, one, one + one / 2, 4 * one, 12 * one] {
            let faulty = || Arc::new(Faulty::new(Arc::clone(&device), Fault::MemoryAbove(most)));
            larger.survive(&faulty(), true);
            left.push(larger.survive(&faulty(), false));
        }
        // Nothing fits in the first two cases, everything in the last. Some blocks are one repeated byte, and take no
        // memory.
        assert!(left[0] > 1 && left[1] == left[0] && left[5] == 0, "{left:?}");
    }
}

/// The driver reserves memory only on first use, as NVIDIA's does, and never has enough for the plan.
#[test]
fn missing_memory_that_shows_on_first_use_fails_no_job() {
    for device in devices() {
        let job = FaultJob::new(&device, 12, 3);
        let one = job.memory / 3;
        let larger = FaultJob { memory: 12 * one, ..job.clone() };
        let mut left = Vec::new();
        for most in [0, one / 3, 2 * one, 4 * one, 12 * one] {
            let fault = Fault::LateMemoryAbove(most);
            let faulty = || Arc::new(Faulty::new(Arc::clone(&device), fault));
            larger.survive(&faulty(), true);
            left.push(larger.survive(&faulty(), false));
        }
        assert!(left[0] > 1 && left[1] == left[0] && left[4] == 0, "{left:?}");
    }
}

/// An engine on a device whose free memory changes.
struct VaryingMemory<'d> {
    device: &'d Faulty<Arc<dyn Device>>,
    engine: GpuEngine<'d>,
    options: Options,
    contents: Vec<u8>,
}

/// Blocks in a full batch.
const PLANNED: u32 = 8;

impl<'d> VaryingMemory<'d> {
    fn new(device: &'d Faulty<Arc<dyn Device>>) -> Self {
        let options = Options::new().level(Level::MIN).block_size(1 << 16);
        let engine = GpuEngine::new(device, Shape::new(PLANNED, 1 << 16), false, None);
        Self { device, engine, options, contents: contents(1 << 12) }
    }

    /// Encodes a full batch; the engine must do every block.
    fn encode(&self) {
        let mut payloads = vec![Vec::new(); PLANNED as usize];
        let job = |payload| EncodeJob::new(&self.contents, payload);
        let mut jobs: Vec<_> = payloads.iter_mut().map(job).collect();
        self.engine.encode(&self.options.recipe().unwrap(), &mut jobs);
        assert!(jobs.iter().all(|job| job.coded.is_some()), "a block is left");
    }

    /// The device memory of a batch of `blocks` blocks.
    fn memory(&self, blocks: u64) -> u64 {
        let work = Work::Encode { recipe: self.options.recipe().unwrap(), verify: false };
        blocks * work.cost(self.device.limits(), 1 << 16).unwrap().memory
    }
}

/// Whichever call runs out of memory, the engine halves the batch and the device does all of it.
#[test]
fn late_refusals_of_memory_halve_the_batch() {
    for device in devices() {
        let sound = Faulty::new(Arc::clone(&device), Fault::None);
        VaryingMemory::new(&sound).encode();
        for n in sound.sample_of_calls(4) {
            let faulty = Faulty::new(Arc::clone(&device), Fault::Late(n));
            let varying = VaryingMemory::new(&faulty);
            varying.encode();
            assert_eq!(faulty.refusals(), 1, "call {n}");
            assert_eq!(faulty.live(), varying.memory(u64::from(PLANNED) / 2), "call {n}");
            drop(varying);
            assert_eq!(faulty.live(), 0, "memory of the device is lost");
        }
    }
}

/// When the memory is free again, batches grow back to the planned size. Until then the engine tries less and less
/// often.
#[test]
fn batches_grow_again_when_memory_comes_back() {
    for device in devices() {
        for fault in [Fault::MemoryAbove(0), Fault::LateMemoryAbove(0)] {
            let faulty = Faulty::new(Arc::clone(&device), fault);
            let varying = VaryingMemory::new(&faulty);
            let planned = varying.memory(PLANNED.into());
            faulty.set_memory(planned);
            varying.encode();
            assert_eq!((faulty.live(), faulty.refusals()), (planned, 0));
            faulty.set_memory(varying.memory(3));
            // 32 batches of two blocks.
            for _ in 0..8 {
                varying.encode();
            }
            // Two halvings, and a trial after 4, 8 and 16 batches.
            assert!((3..=6).contains(&faulty.refusals()), "{fault:?}: {}", faulty.refusals());
            assert_eq!(faulty.live(), varying.memory(2));
            faulty.set_memory(planned);
            // At most 32 batches of two blocks, and 8 of four.
            for _ in 0..13 {
                varying.encode();
            }
            assert_eq!(faulty.live(), planned, "{fault:?}: batches stay small");
            let refusals = faulty.refusals();
            varying.encode();
            assert_eq!(faulty.refusals(), refusals);
            drop(varying);
            assert_eq!(faulty.live(), 0);
        }
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
        let gpu_for = |work: Work| {
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
        if let Some(gpu) = gpu_for(Work::Decode(Pipeline::Lzh)) {
            let counted = Statistics::new();
            let options = decoding(&gpu).statistics(&counted);
            assert!(decompress(&expected, &options).unwrap() == contents);
            check(&counted);
        }
        // A software device behind WebGPU would take minutes.
        if device.limits().ends_long_loops() {
            continue;
        }
        let work = Work::Encode { recipe: cpu.recipe().unwrap(), verify: true };
        if let Some(gpu) = gpu_for(work) {
            let counted = Statistics::new();
            let options = cpu.clone().gpu(gpu).statistics(&counted);
            assert!(compress(&contents, &options).unwrap() == expected);
            check(&counted);
        }
    }
}
