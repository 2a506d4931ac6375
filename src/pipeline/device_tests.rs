//! Whole jobs with devices: what is done where, in which memory, and what becomes of it when a device misbehaves.

use std::sync::Arc;

use crate::gpu::device::{Api, Device};
use crate::gpu::discovery;
use crate::{DecodeOptions, Gpu, Level, Options, Statistics, compress, decompress};

/// Contents with something to find in them, and blocks of one byte and of noise.
fn contents(len: usize) -> Vec<u8> {
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

/// Every device that there is, by what it is called in messages.
fn devices() -> Vec<Arc<dyn Device>> {
    let wanted = std::env::var("PZ_TEST_DEVICE").unwrap_or_default().to_lowercase();
    let apis = [Api::OpenCl, Api::WebGpu];
    let wanted = apis.into_iter().filter(|api| api.to_string().to_lowercase().contains(&wanted));
    // Whether there must be devices, other tests say.
    let found = wanted.flat_map(|api| discovery::devices(api).unwrap_or_default());
    found.map(|found| found.open().unwrap()).collect()
}

#[test]
fn a_device_does_what_it_is_given_in_the_memory_predicted() {
    let contents = contents(1_000_000);
    for device in devices() {
        let gpu = Gpu::new(device);
        let expected = compress(&contents, &Options { gpu: None, ..options(&gpu) }).unwrap();
        let check = |counted: &Statistics| {
            let device = counted.device().unwrap();
            assert_eq!((device.done.blocks, device.left), (16, 0), "{device:?}");
            assert_eq!(device.notes, [""; 0]);
            assert!(device.peak_memory <= device.predicted_memory, "{device:?}");
        };
        for verify in [true, false] {
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
