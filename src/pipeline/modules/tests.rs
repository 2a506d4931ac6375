//! Blocks that modules filtered, on devices.

use crc32c::crc32c;

use super::ready::FilterModule;
use super::{FrameModules, Modules};
use crate::codec::filter::FilterChain;
use crate::format::{BlockHeader, ModuleTable, Pipeline};
use crate::gpu::coder::{
    CallerBuffers, Decoder, MovedPart, Origin, PayloadFeatures, RangeDecoder, RangeTask, RawBlock,
};
use crate::gpu::device::Device;
use crate::gpu::device::pool::Pool;
use crate::gpu::model::plan::Shape;
use crate::gpu::tests::testing::each_device;
use crate::module::Module;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{Coded, DecodeJob, EncodeJob, Engine};
use crate::pipeline::gpu_engine::GpuEngine;
use crate::pipeline::options::Options;
use crate::pipeline::tests::{decoding, devices};
use crate::{Error, Gpu, Statistics};

/// The modules of `tests/modules`, in lanes of different lengths.
pub(crate) fn table() -> ModuleTable {
    let [bytes, words] = [
        include_str!("../../../tests/modules/filter.wat"),
        include_str!("../../../tests/modules/words.wat"),
    ]
    .map(|text| {
        let module = Module::read(wat::parse_str(text).unwrap()).unwrap();
        FilterModule::new(&module).unwrap()
    });
    let long = bytes.clone().lane_bytes(1 << 20).unwrap();
    FilterModule::table([bytes.lane_bytes(1 << 9).unwrap(), words, long])
}

/// One of these modules, in lanes of another length.
pub(crate) fn other_table() -> ModuleTable {
    let text = include_str!("../../../tests/modules/words.wat");
    let module = Module::read(wat::parse_str(text).unwrap()).unwrap();
    FilterModule::table([FilterModule::new(&module).unwrap().lane_bytes(1 << 10).unwrap()])
}

struct Sample {
    contents: Vec<u8>,
    position: u64,
    payload: Vec<u8>,
    coded: Coded,
}

impl Sample {
    fn header(&self) -> BlockHeader {
        BlockHeader {
            method: self.coded.method,
            filters: self.coded.filters,
            own: None,
            block_log: 16,
            number: (self.position >> 16) as u32,
            content_len: self.contents.len() as u32,
            payload_len: self.payload.len() as u32,
            payload_crc: self.coded.payload_crc,
            content_crc: self.coded.content_crc,
        }
    }
}

/// Encodes `len` bytes by `chain`, as the block of a frame at `position`.
fn sample(chain: &str, len: usize, position: u64) -> Sample {
    let contents: Vec<u8> = (0..len).map(|i| (3 * i + i / 700 * 11) as u8).collect();
    let recipe = Options::new().modules_of_tests(table()).filter(chain.parse().unwrap());
    let recipe = recipe.recipe().unwrap();
    let engine = CpuEngine::with_modules(FrameModules::of_encoder(&table()).unwrap());
    let mut payload = Vec::new();
    let mut job = EncodeJob::new(&contents, position, &mut payload);
    engine.encode(&recipe, std::slice::from_mut(&mut job));
    let coded = job.coded.unwrap();
    assert!(coded.filters.is_some(), "{chain}, {len} bytes");
    Sample { contents, position, payload, coded }
}

/// Whether a lane of the sample's module takes more turns than some devices permit in a loop.
fn has_long_lanes(sample: &Sample) -> bool {
    sample.coded.filters.unwrap().modules().any(|number| number == 2)
}

fn samples() -> Vec<Sample> {
    let mut samples = Vec::new();
    for (chain, len, position) in [
        ("module0", 70_000, 0),
        ("module0:5", 1000, 3 << 16),
        ("module0:65535,transpose4", 300_001, 7 << 33),
        ("transpose4,module1:3", 40_007, 1 << 16),
        ("delta1,module1:8,module0:2", 300_002, 1 << 16),
        ("module2:9", 300_003, 5 << 16),
        ("transpose2", 5000, 0),
        ("module1:200,zigzag4,module2", 1_200_001, 2 << 16),
    ] {
        samples.push(sample(chain, len, position));
    }
    samples
}

#[test]
fn devices_undo_what_modules_did() {
    let (samples, table) = (samples(), table());
    let modules = FrameModules::to_decode(&table).unwrap();
    let longest = 1_200_001;
    each_device(|device| {
        let pool = Pool::new(device);
        let blocks = samples.len() as u32;
        let own = CallerBuffers::default();
        let mut decoder = Decoder::new(&pool, Pipeline::Lzf, longest, blocks, own).unwrap();
        decoder.set_modules(modules.on_devices());
        let payloads: Vec<_> =
            samples.iter().map(|one| (&one.payload[..], one.contents.len() as u32)).collect();
        let mut places = decoder.write_all(&payloads).unwrap();
        for (place, sample) in places.iter_mut().zip(&samples) {
            (place.position, place.filters) = (sample.position, sample.coded.filters);
        }
        for (number, (block, sample)) in
            (0..).zip(decoder.decode(&places).unwrap().iter().zip(&samples))
        {
            if device.limits().ends_long_loops() && has_long_lanes(sample) {
                // Before the device would silently end such loops, they run out of fuel.
                assert!(!block.is_decoded, "block {number}");
                continue;
            }
            assert!(block.is_decoded && !block.is_filtered, "block {number}");
            let mut contents = vec![0; sample.contents.len()];
            decoder.read(number, &mut contents).unwrap();
            assert!(contents == sample.contents, "block {number}");
            assert_eq!(block.content_crc, sample.coded.content_crc);
        }
        // Batches with modules take the same memory as those without.
        let cost = Decoder::cost_of_block(device.limits(), Pipeline::Lzf, longest).unwrap();
        let predicted = cost.memory * u64::from(blocks);
        assert_eq!((decoder.memory(), pool.high_water()), (predicted, predicted));
        // The same batch with a module that fails, and without modules.
        for argument in [256, 257, 258, 259, 260] {
            let chain: FilterChain = format!("module0:{argument}").parse().unwrap();
            places[0].filters = Some(chain);
            let blocks = decoder.decode(&places).unwrap();
            assert!(!blocks[0].is_decoded, "{argument}");
            assert!(blocks[1..5].iter().all(|block| block.is_decoded && !block.is_filtered));
        }
        decoder.set_modules(&[]);
        let blocks = decoder.decode(&places).unwrap();
        assert!(blocks[0].is_filtered && !blocks[6].is_filtered);
    });
}

/// The same with the bytes of a file as input, and into a buffer of the caller's.
#[test]
fn range_decoders_undo_what_modules_did() {
    let (samples, table) = (samples(), table());
    let modules = FrameModules::to_decode(&table).unwrap();
    let (longest, count) = (1_200_001, samples.len() as u32);
    let (mut payloads, mut blocks) = (vec![0xff; 16], Vec::new());
    for sample in &samples {
        let content_len = sample.contents.len() as u32;
        blocks.push(RawBlock {
            payload_start: payloads.len() as u32,
            payload_len: sample.payload.len() as u32,
            content_len,
            position: sample.position,
            filters: sample.coded.filters,
            features: PayloadFeatures::of(&sample.payload, content_len as usize),
        });
        payloads.extend(&sample.payload);
        payloads.resize(payloads.len().next_multiple_of(16), 0xee);
    }
    each_device(|device| {
        let pool = Pool::new(device);
        let queue = pool.queue().unwrap();
        let decoder =
            RangeDecoder::new(&pool, queue, RangeTask::Decode(Pipeline::Lzf), longest, count);
        let mut decoder = decoder.unwrap();
        decoder.set_modules(modules.on_devices());
        let fill = &mut |into: &mut [u8]| into.copy_from_slice(&payloads);
        decoder.upload_with(0, (payloads.len(), 0), fill).unwrap();
        let bytes = samples.iter().map(|sample| sample.contents.len()).sum::<usize>();
        let end = bytes.next_multiple_of(4) as u64;
        let buffer = device.allocate(end).unwrap();
        let (mut parts, mut at) = (Vec::new(), 0);
        for (number, sample) in (0..).zip(&samples) {
            let (origin, bytes) = (Origin::Contents(number, 0), sample.contents.len() as u32);
            parts.push(MovedPart { origin, bytes, buffer, buffer_end: end, at });
            at += u64::from(bytes);
        }
        decoder.submit(&blocks, &mut parts).unwrap();
        let decoded = decoder.wait().unwrap();
        let mut found = vec![0; end as usize];
        device.queue().unwrap().read(buffer, 0, &mut found).unwrap();
        device.free(buffer);
        let mut rest = &found[..];
        for (number, (block, sample)) in decoded.iter().zip(&samples).enumerate() {
            let (own, others) = rest.split_at(sample.contents.len());
            rest = others;
            if device.limits().ends_long_loops() && has_long_lanes(sample) {
                assert!(!block.is_decoded, "block {number}");
                continue;
            }
            assert!(block.is_decoded && !block.is_filtered, "block {number}");
            assert!(own == sample.contents, "block {number}");
            assert_eq!(block.content_crc, sample.coded.content_crc);
        }
        let cost =
            RangeDecoder::cost_of_block(device.limits(), RangeTask::Decode(Pipeline::Lzf), longest)
                .unwrap();
        let predicted = cost.memory * u64::from(count);
        assert_eq!((decoder.memory(), pool.high_water()), (predicted, predicted));
        decoder.set_modules(&[]);
        decoder.submit(&blocks, &mut []).unwrap();
        let decoded = decoder.wait().unwrap();
        assert!(decoded[0].is_filtered && !decoded[6].is_filtered);
    });
}

#[test]
fn batches_may_have_frames_with_other_modules() {
    let (samples, table) = (samples(), table());
    let (first, second) = [(); 2].map(|()| FrameModules::to_decode(&table).unwrap()).into();
    each_device(|device| {
        let engine = GpuEngine::new(device, Shape::new(3, 1_200_001), true, None);
        let mut outputs: Vec<Vec<u8>> =
            samples.iter().map(|sample| vec![0xa5; sample.contents.len()]).collect();
        let mut jobs: Vec<_> = (0..)
            .zip(samples.iter().zip(&mut outputs))
            .map(|(i, (sample, contents))| {
                let modules = [Some(&first), Some(&second), None][i % 3];
                DecodeJob::new(sample.header(), modules, Some(&sample.payload), contents)
            })
            .collect();
        engine.decode(&mut jobs);
        for (i, (job, sample)) in jobs.iter().zip(&samples).enumerate() {
            let has_modules = sample.coded.filters.unwrap().has_modules();
            let is_declined = device.limits().ends_long_loops() && has_long_lanes(sample);
            if has_modules && i % 3 == 2 || is_declined && job.outcome.is_none() {
                // The CPU says that its module is missing, or decodes it.
                assert!(job.outcome.is_none(), "block {i}");
            } else {
                assert!(matches!(job.outcome, Some(Ok(()))), "block {i}: {:?}", job.outcome);
                assert!(crc32c(job.contents) == sample.coded.content_crc);
                assert!(*job.contents == sample.contents[..], "block {i}");
            }
        }
    });
}

#[test]
fn files_are_the_same_with_any_device() {
    let contents: Vec<u8> = (0..1_000_000_u32).map(|i| (i * 5 + i / 999) as u8).collect();
    let options = Options::new().block_size(1 << 16).modules_of_tests(table());
    let options = options.filter("module1:3,module0".parse().unwrap()).threads(2);
    let small = crate::compress(&contents, &options).unwrap();
    for device in devices() {
        let gpu = Gpu::new(device);
        assert!(crate::compress(&contents, &options.clone().gpu(gpu.clone())).unwrap() == small);
        let refused = crate::decompress(&small, &decoding(&gpu));
        assert!(matches!(refused, Err(Error::UntrustedModule { .. })));
        let counted = Statistics::new();
        let decode = decoding(&gpu).modules(Modules::Allow).statistics(&counted);
        assert!(crate::decompress(&small, &decode).unwrap() == contents);
        let device = counted.device().unwrap();
        assert_eq!((device.done.blocks, device.left), (16, 0), "{device:?}");
        assert_eq!(device.notes, [""; 0]);
        assert_eq!(device.peak_memory, device.predicted_memory, "{device:?}");
    }
}
