//! Whole jobs with devices that misbehave for good or for a while: wrong results retire a device, and batches and slots
//! that short memory took come back with it.

use std::io::Write;
use std::sync::Arc;

use super::device_tests::{contents, devices};
use crate::gpu::coder::Work;
use crate::gpu::device::{Api, Device, Kind, Limits};
use crate::gpu::tests::faulty::{Fault, Faulty};
use crate::gpu::tests::testing::WithLimits;
use crate::{DecodeOptions, Encoder, Gpu, Level, Options, Pipeline, Statistics};
use crate::{compress, decompress};

const BLOCK: usize = 1 << 16;

fn options() -> Options {
    Options::new().level(Level::MIN).block_size(BLOCK as u64).threads(1)
}

fn encoding() -> Work {
    Work::Encode { recipe: options().recipe().unwrap(), verify: true }
}

/// Bytes of device memory that a block takes.
fn block_memory(work: &Work, limits: &Limits) -> u64 {
    work.cost(limits, BLOCK as u32).unwrap().memory
}

/// A device that returns wrong bytes gets three batches, and no more.
#[test]
fn a_device_is_retired_for_wrong_results() {
    let block = contents(BLOCK);
    let contents = block.repeat(40);
    let expected = compress(&contents, &options()).unwrap();
    for device in devices() {
        for (decodes, work) in [(false, encoding()), (true, Work::Decode(Pipeline::Lzh))] {
            // Payloads and contents are longer than this, and what else is read is shorter.
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

/// Another program takes memory for a while: first for all but three blocks, then for none. `fault` says how the driver
/// tells. The device is to do `slots` batches at once, with `planned` blocks in all.
fn memory_comes_back(device: &Arc<dyn Device>, fault: Fault, slots: u64, planned: u64) {
    let limits = Limits { compute_units: 1 << 16, ..device.limits().clone() };
    let one = block_memory(&encoding(), &limits);
    let faulty = Arc::new(Faulty::new(Arc::clone(device), fault));
    faulty.set_memory(3 * one + one / 2);
    let wide = WithLimits(Arc::clone(&faulty), limits);
    let counted = Statistics::new();
    // Device memory for six batches of this size, and host memory for the staging of fewer.
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
    // Until batches are smaller, or slots do nothing, and the others work with what there is.
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

/// Devices that one writer keeps busy. A fast one would wait for blocks, and take fewer at once.
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

/// A slot for which there was no memory at all takes part again.
#[test]
fn slots_come_back_in_a_running_job() {
    for device in slow_devices() {
        memory_comes_back(&device, Fault::MemoryAbove(0), 6, 6);
    }
}
