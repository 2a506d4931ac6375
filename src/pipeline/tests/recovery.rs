//! Whole jobs with devices that misbehave for good or for a while: wrong results retire a device, and batches and slots
//! lost to short memory come back with the memory.

use std::io::Write;
use std::sync::Arc;

use super::{contents, devices};
use crate::gpu::coder::BlockTask;
use crate::gpu::device::{Api, Device, Kind, Limits};
use crate::gpu::model::plan::Shape;
use crate::gpu::tests::faulty::{Fault, Faulty};
use crate::gpu::tests::testing::WithLimits;
use crate::pipeline::engine::{EncodeJob, Engine};
use crate::pipeline::gpu_engine::GpuEngine;
use crate::{DecodeOptions, Encoder, Gpu, Level, Options, Pipeline, Statistics};
use crate::{compress, decompress};

const BLOCK: usize = 1 << 16;

fn options() -> Options {
    Options::new().level(Level::MIN).block_size(BLOCK as u64).threads(1)
}

fn encoding() -> BlockTask {
    BlockTask::Encode { recipe: options().recipe().unwrap(), verify: true }
}

/// Bytes of device memory that a block takes.
fn block_memory(work: &BlockTask, limits: &Limits) -> u64 {
    work.cost(limits, BLOCK as u32).unwrap().memory
}

/// A device that returns wrong bytes gets three batches, and no more.
#[test]
fn a_device_is_retired_for_wrong_results() {
    let block = contents(BLOCK);
    let contents = block.repeat(40);
    let expected = compress(&contents, &options()).unwrap();
    for device in devices() {
        for (decodes, work) in [(false, encoding()), (true, BlockTask::Decode(Pipeline::Lzh))] {
            // Payloads and contents are longer than this, and all other reads are shorter.
            let faulty = Faulty::new(Arc::clone(&device), Fault::LongReads(4096));
            let gpu = Gpu::new(Arc::new(faulty)).memory(block_memory(&work, device.limits()));
            let counted = Statistics::new();
            if decodes {
                let options = DecodeOptions::new().threads(1).gpu(gpu).statistics(&counted);
                assert!(decompress(&expected, &options).unwrap() == contents);
            } else {
                let options = options().gpu(gpu).statistics(&counted);
                assert!(compress(&contents, &options).unwrap() == expected);
            }
            let device = counted.device().unwrap();
            assert_eq!((device.slots, device.done.blocks), (1, 0), "{device:?}");
            assert_eq!((device.batches, device.left), (3, 3), "{device:?}");
            assert_eq!(counted.cpu().blocks, 40);
        }
    }
}

/// Another program takes memory for a while: first for all but three blocks, then for none. `fault` is the driver's way
/// of reporting it. The device should do `slots` batches at once, with `planned` blocks in all.
fn memory_comes_back(device: &Arc<dyn Device>, fault: Fault, slots: u64, planned: u64) {
    let limits = Limits { compute_units: 1 << 16, ..device.limits().clone() };
    let one = block_memory(&encoding(), &limits);
    let faulty = Arc::new(Faulty::new(Arc::clone(device), fault));
    faulty.set_memory(3 * one + one / 2);
    let wide = WithLimits(Arc::clone(&faulty), limits);
    let counted = Statistics::new();
    // The device has memory for six batches of `planned / slots` blocks, and the host has staging memory for `slots`
    // of them.
    let gpu = Gpu::new(Arc::new(wide)).memory(6 * planned / slots * one);
    let host = if slots == 1 { 150 << 20 } else { 2 << 30 };
    let options = options().memory(host).gpu(gpu).statistics(&counted);
    let block = contents(BLOCK);
    let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
    let mut blocks = 0;
    let mut write_until = |is_time: &dyn Fn() -> bool| {
        while !is_time() {
            assert!(blocks < 5000, "{fault:?}: {} of {} bytes", faulty.most_used(), planned * one);
            encoder.write_all(&block).unwrap();
            blocks += 1;
        }
    };
    // Write until batches are smaller, or some slots have no memory and the others work with what is available.
    write_until(&|| faulty.refusals() >= 2 && faulty.most_used() >= 2 * one);
    assert!(faulty.most_used() <= 3 * one + one / 2, "{fault:?}");
    faulty.set_memory(u64::MAX);
    write_until(&|| faulty.most_used() >= planned * one);
    let packed = encoder.finish().unwrap();
    assert_eq!(faulty.most_used(), planned * one, "{fault:?}");
    let device = counted.device().unwrap();
    assert_eq!((u64::from(device.slots), u64::from(device.batch)), (slots, planned / slots));
    assert_eq!(device.predicted_memory, planned * one);
    let plain = Options::new().level(Level::MIN).block_size(BLOCK as u64);
    assert!(packed == compress(&block.repeat(blocks), &plain).unwrap());
}

/// Devices that one writer keeps busy. A fast device would wait for blocks, and take fewer at once.
fn slow_devices() -> impl Iterator<Item = Arc<dyn Device>> {
    devices().into_iter().filter(|device| device.limits().kind == Kind::Software)
}

#[test]
fn batches_grow_again_in_a_running_job() {
    for device in slow_devices() {
        // Only OpenCL's drivers reserve memory late.
        let is_late = device.limits().api == Api::OpenCl;
        let fault = if is_late { Fault::LateMemoryAbove } else { Fault::MemoryAbove };
        memory_comes_back(&device, fault(0), 1, 8);
    }
}

/// A slot without any memory takes part again later.
#[test]
fn slots_come_back_in_a_running_job() {
    for device in slow_devices() {
        memory_comes_back(&device, Fault::MemoryAbove(0), 6, 6);
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
        let job = |payload| EncodeJob::new(&self.contents, 0, payload);
        let mut jobs: Vec<_> = payloads.iter_mut().map(job).collect();
        self.engine.encode(&self.options.recipe().unwrap(), &mut jobs);
        assert!(jobs.iter().all(|job| job.coded.is_some()), "a block is left");
    }

    /// The device memory of a batch of `blocks` blocks.
    fn memory(&self, blocks: u64) -> u64 {
        let work = BlockTask::Encode { recipe: self.options.recipe().unwrap(), verify: false };
        blocks * work.cost(self.device.limits(), 1 << 16).unwrap().memory
    }
}

/// Whichever call runs out of memory, the engine halves the batch, and the device still does all of it.
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
