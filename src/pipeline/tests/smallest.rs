//! Level 9 takes the smaller of two codecs for each block, with any device.

use std::sync::Arc;

use super::{contents, decoding, devices};
use crate::{Filter, Gpu, Level, Options, Pipeline, Statistics, compress, decompress};

const BLOCK: usize = 1 << 16;

/// Pieces of noise, with single bytes of other noise between them. LZ77 makes them smaller than the BWT does.
fn pieces(len: usize) -> Vec<u8> {
    let mut x = 9u32;
    let mut random = move |below: usize| {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 12) as usize % below
    };
    let noise: Vec<u8> = (0..8192).map(|_| random(256) as u8).collect();
    let mut out = noise.clone();
    while out.len() < len {
        let (from, piece) = (random(8000), 20 + random(40));
        out.extend_from_slice(&noise[from..from + piece]);
        out.push(random(256) as u8);
    }
    out.truncate(len);
    out
}

/// A block for LZ77, five others (among them text, noise and one repeated byte), and half a block for LZ77.
fn mixed() -> Vec<u8> {
    let others = contents(6 * BLOCK);
    [&pieces(BLOCK), &others[BLOCK..], &pieces(BLOCK / 2)].concat()
}

fn options(level: u32) -> Options {
    // Repetitions stay in the blocks, so that they can be compared.
    let whole = Options::new().block_size(BLOCK as u64).long_distance(0);
    whole.level(Level::new(level).unwrap()).threads(1)
}

/// Method and length of each block's payload.
fn blocks(file: &[u8]) -> Vec<(&'static str, u64)> {
    let frames = crate::list(&mut std::io::Cursor::new(file), true).unwrap();
    let blocks = frames.iter().flat_map(|frame| &frame.blocks);
    blocks.map(|block| (block.method.name(), block.payload_size)).collect()
}

#[test]
fn each_block_is_the_smaller_of_both() {
    let data = mixed();
    let file = compress(&data, &options(9)).unwrap();
    assert!(decompress(&file, &crate::DecodeOptions::new()).unwrap() == data);
    let smallest = blocks(&file);
    let bwt = blocks(&compress(&data, &options(8).pipeline(Pipeline::Bwt)).unwrap());
    let lz77 = blocks(&compress(&data, &options(9).pipeline(Pipeline::Lzf)).unwrap());
    for (number, &(method, len)) in smallest.iter().enumerate() {
        // LZ77 would win nothing where it is not tried.
        assert_eq!(len, bwt[number].1.min(lz77[number].1), "block {number}: {method}");
    }
    assert_eq!((smallest[0].0, smallest[6].0), ("lz77", "lz77"));
    for method in ["bwt", "fill", "store"] {
        assert!(smallest.iter().any(|block| block.0 == method), "{method}: {smallest:?}");
    }
}

#[test]
fn blocks_too_long_for_lz77_are_transformed() {
    let data = pieces(1 << 18);
    let file = compress(&data, &options(9).block_size(1 << 25)).unwrap();
    assert_eq!(blocks(&file)[0].0, "bwt");
    assert_eq!(blocks(&compress(&data, &options(9).block_size(1 << 24)).unwrap())[0].0, "lz77");
}

#[test]
fn devices_choose_as_the_cpu_does() {
    devices_choose(Filter::None);
}

#[test]
fn devices_filter_what_both_codecs_try() {
    devices_choose("rotate2".parse().unwrap());
}

fn devices_choose(filter: Filter) {
    let data = mixed();
    let expected = compress(&data, &options(9).filter(filter)).unwrap();
    for device in devices() {
        let (gpu, counted) = (Gpu::new(Arc::clone(&device)), Statistics::new());
        let options = options(9).filter(filter).gpu(gpu).statistics(&counted);
        assert!(compress(&data, &options).unwrap() == expected);
        let counted = counted.device().unwrap();
        assert_eq!((counted.done.blocks, counted.left), (7, 0), "{counted:?}");
        assert_eq!(counted.notes, [""; 0]);
        // Slots take turns at both codecs, so the peak memory of all slots depends on timing.
        let most = counted.peak_memory.max(counted.predicted_memory);
        assert!(most <= counted.planned_memory, "{counted:?}");
        let (gpu, counted) = (Gpu::new(Arc::clone(&device)), Statistics::new());
        assert!(decompress(&expected, &decoding(&gpu).statistics(&counted)).unwrap() == data);
        let counted = counted.device().unwrap();
        assert_eq!((counted.done.blocks, counted.left), (7, 0), "{counted:?}");
    }
}
