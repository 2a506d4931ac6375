//! Whole jobs with devices: where blocks run, and how much memory they take.

mod faults;
mod recovery;
mod smallest;

use std::io::Cursor;
use std::sync::Arc;

use crate::Pipeline;
use crate::gpu::coder::BlockTask;
use crate::gpu::device::discovery;
use crate::gpu::device::{Api, BufferId, Device, DeviceError, Limits, MemorySource, Queue};
use crate::gpu::model::budget::{batches, budget};
use crate::gpu::model::plan::Shape;
use crate::gpu::tests::faulty::{Fault, Faulty};
use crate::test_data::noise;
use crate::{
    DecodeOptions, Decoder, Filter, Gpu, Level, Options, ReadAt, Statistics, compress, decompress,
};

/// Contents with matches to find, and with blocks of one repeated byte and of noise.
pub(super) fn contents(len: usize) -> Vec<u8> {
    let text = include_bytes!("../../format/lz77.md");
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

pub(crate) fn decoding(gpu: &Gpu) -> DecodeOptions {
    DecodeOptions::new().threads(1).gpu(gpu.clone())
}

/// Every device of this machine, or those whose interface `PZ_TEST_DEVICE` names.
pub(crate) fn devices() -> Vec<Arc<dyn Device>> {
    let wanted = std::env::var("PZ_TEST_DEVICE").unwrap_or_default().to_lowercase();
    let apis = Api::ALL;
    let wanted = apis.into_iter().filter(|api| api.to_string().to_lowercase().contains(&wanted));
    // Other tests check that there are devices.
    let found = wanted.flat_map(|api| discovery::devices(api).unwrap_or_default());
    found.map(|found| found.open().unwrap()).collect()
}

/// A device's threads read the payloads of their batches.
#[test]
fn devices_read_from_places() {
    let contents = contents(2_000_000);
    let file = compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let places: Arc<dyn ReadAt> = Arc::new(file.clone());
    for device in devices() {
        let counted = Statistics::new();
        let options = decoding(&Gpu::new(device)).statistics(&counted);
        let mut decoder = Decoder::new(Cursor::new(&file), &options).unwrap();
        decoder.read_from_places(&places, 0);
        let mut restored = Vec::new();
        decoder.copy_to(&mut restored).unwrap();
        assert!(restored == contents);
        assert!(counted.device().unwrap().done.blocks > 0);
    }
}

/// A device codes the own bytes of blocks with distant matches.
#[test]
fn devices_code_own_bytes() {
    let part = contents(500_000);
    let contents = [&part[..], &part[..300_000], &noise(7, 100_000, 4), &part].concat();
    for device in devices() {
        let gpu = Gpu::new(device);
        let counted = Statistics::new();
        let options = options(&gpu).long_distance(4 << 20);
        let expected = compress(&contents, &options.clone().without_gpu()).unwrap();
        let file = compress(&contents, &options.statistics(&counted)).unwrap();
        assert!(file == expected);
        assert!(counted.device().unwrap().done.blocks > 0);
        let listed = crate::list(&mut std::io::Cursor::new(&file), true).unwrap();
        assert!(listed[0].blocks.iter().filter(|block| block.own_size.is_some()).count() > 5);
        let counted = Statistics::new();
        let restored = decompress(&file, &decoding(&gpu).statistics(&counted)).unwrap();
        assert!(restored == contents);
        assert!(counted.device().unwrap().done.blocks > 0);
    }
}

#[test]
fn a_device_does_every_block_in_the_predicted_memory() {
    let contents = contents(1_000_000);
    for device in devices() {
        let gpu = Gpu::new(Arc::clone(&device));
        let expected = compress(&contents, &options(&gpu).without_gpu()).unwrap();
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

#[test]
fn a_device_codes_filtered_blocks() {
    let mut contents: Vec<u8> =
        (0..100_000_u32).flat_map(|i| (i * 7 + i % 5).to_le_bytes()).collect();
    // Text that no filter helps, and noise that is stored.
    contents[130_000..200_000]
        .copy_from_slice(&b"What is said three times. ".repeat(3000)[..70_000]);
    contents[300_000..].copy_from_slice(&noise(5, 100_000, 256));
    for device in devices() {
        let gpu = Gpu::new(Arc::clone(&device));
        for filter in [Filter::Auto, "i32".parse().unwrap(), "rotate4,bits4".parse().unwrap()] {
            let filtered = options(&gpu).filter(filter);
            let expected = compress(&contents, &filtered.clone().without_gpu()).unwrap();
            let counted = Statistics::new();
            assert!(compress(&contents, &filtered.statistics(&counted)).unwrap() == expected);
            let device = counted.device().unwrap();
            assert_eq!((device.done.blocks, device.left), (7, 0), "{filter:?} {device:?}");
            let counted = Statistics::new();
            let decoded = decompress(&expected, &decoding(&gpu).statistics(&counted)).unwrap();
            assert!(decoded == contents);
            let device = counted.device().unwrap();
            assert_eq!((device.done.blocks, device.left), (7, 0), "{device:?}");
        }
    }
}

#[test]
fn filters_of_decimal_floats_are_left_to_the_cpu() {
    let contents: Vec<u8> =
        (0..50_000_u32).flat_map(|i| (f64::from(i % 977) / 100.0).to_le_bytes()).collect();
    for device in devices() {
        let gpu = Gpu::new(Arc::clone(&device));
        for filter in [Filter::Auto, "decimal8:2,transpose8".parse().unwrap()] {
            let filtered = options(&gpu).filter(filter);
            let expected = compress(&contents, &filtered.clone().without_gpu()).unwrap();
            assert!(compress(&contents, &filtered).unwrap() == expected);
        }
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
                let mut works =
                    vec![BlockTask::Decode(Pipeline::Lzf), BlockTask::Decode(Pipeline::Bwt)];
                for level in Level::all() {
                    let recipe = Options::new().level(level).recipe().unwrap();
                    works.push(BlockTask::Encode { recipe, verify: true });
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
            let expected = compress(&contents, &options.clone().without_gpu()).unwrap();
            assert!(compress(&contents, &options).unwrap() == expected);
            assert!(decompress(&expected, &decoding(&gpu)).unwrap() == contents);
        }
    }
}

/// A device that does no block of a job gives its reason, in one line.
#[test]
fn a_declining_device_says_why() {
    for device in devices() {
        let contents = contents(200_000);
        let mut narrow = Simulated::new(&device, 1024 * MIB, u64::MAX);
        narrow.limits.max_workgroup = 24;
        let gpu = Gpu::new(Arc::new(narrow));
        let expected = compress(&contents, &options(&gpu).without_gpu()).unwrap();
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
    let two = options(&gpu).threads(2);
    compress(&contents, &two.statistics(&counted)).unwrap();
    let why = counted.idle_device().unwrap();
    assert_eq!(why, "the device takes no part: it was not ready before the work was done");

    drop(done);
    let _ = gpu.device();
    let counted = Statistics::new();
    compress(&contents, &options(&gpu).statistics(&counted)).unwrap();
    assert_eq!(counted.idle_device().unwrap(), "the device takes no part: there is none");
}
