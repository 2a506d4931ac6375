//! Whole pipelines on every device produce the same payloads as the CPU, and decode them.

use super::testing::each_device;
use crate::codec::lz77::{Params, Search};
use crate::codec::{Codec, Recipe};
use crate::format::{Method, Pipeline};
use crate::gpu::coder::{CallerBuffers, CoderError, Decoder, EncodedBlock, Encoder, PayloadPlace};
use crate::gpu::device::{Api, Device};
use crate::gpu::model::plan::{PlanError, Shape};
use crate::gpu::stages::lz77_decode::PayloadFeatures;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::engine::{Coded, EncodeJob, Engine};
use crate::{Level, Options};

/// Blocks of mixed data: text, code, tables, noise and runs; some are short.
fn blocks() -> Vec<Vec<u8>> {
    let text = include_bytes!("../../format/lz77.md");
    let code = include_bytes!("coder.rs");
    let mut x = 1u32;
    let mut random = move || {
        x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (x >> 24) as u8
    };
    let noise: Vec<u8> = (0..30_000).map(|_| random()).collect();
    let skewed: Vec<u8> = (0..90_000).map(|_| random() & random() & random()).collect();
    let table: Vec<u8> = (0..20_000u32).flat_map(|i| [(i >> 8) as u8, i as u8, 7, 0]).collect();
    let all = [text, &code[..], &noise, &skewed, &table, &[5; 40_000], text].concat();
    vec![all[..200_000].to_vec(), text[..1].to_vec(), noise, all, skewed[..65_537].to_vec(), table]
}

/// Encodes a block on the CPU.
pub(super) fn on_cpu(recipe: &Recipe, contents: &[u8]) -> (Coded, Vec<u8>) {
    let mut payload = Vec::new();
    let mut job = EncodeJob::new(contents, 0, &mut payload);
    CpuEngine::new().encode(recipe, std::slice::from_mut(&mut job));
    (job.coded.unwrap(), payload)
}

fn recipes() -> Vec<(String, Pipeline, Recipe)> {
    let mut recipes = Vec::new();
    for level in Level::all() {
        let options = Options::new().level(level);
        recipes.push((
            format!("level {level}"),
            level.pipeline(),
            options.recipe().unwrap().first(),
        ));
    }
    for (level, pipeline, window) in
        [(1, Pipeline::Fse, 18), (3, Pipeline::Lzf, 16), (8, Pipeline::Lzh, 16)]
    {
        let level = Level::new(level).unwrap();
        let options = Options::new().level(level).pipeline(pipeline).window(1 << window);
        let name = format!("{pipeline} with windows of 2^{window}");
        recipes.push((name, pipeline, options.recipe().unwrap()));
    }
    recipes
}

/// The payload of block `number`, unless the block should be stored.
fn payload(encoder: &mut Encoder<'_>, block: &EncodedBlock) -> Option<Vec<u8>> {
    let (start, len) = block.payload?;
    let mut bytes = vec![0; len as usize];
    encoder.read(start, &mut bytes).unwrap();
    Some(bytes)
}

fn is_declined<T>(name: &str, device: &dyn Device, made: &Result<T, CoderError>) -> bool {
    match made {
        Err(CoderError::Plan(PlanError::Declined(why))) => {
            println!("{}: {name}: declined: {why}", device.limits().name);
            true
        }
        _ => false,
    }
}

/// Blocks to encode: shorter ones where a software device is slow.
fn blocks_for(recipe: &Recipe) -> Vec<Vec<u8>> {
    let lens = match &recipe.codec {
        Codec::Bwt(_)
        | Codec::Lz77(Params {
            search: Search::Lazy32 | Search::Lazy64 | Search::Optimal(_),
            ..
        }) => [66_000, 1, 5_000, 20_000, 9_000, 20_000],
        _ => [90_000, 1, 20_000, 140_000, 65_537, 30_000],
    };
    let mut blocks = blocks();
    blocks.iter_mut().zip(lens).for_each(|(block, len)| block.truncate(len));
    blocks
}

#[test]
fn every_level_encodes_to_the_bytes_of_the_cpu() {
    each_device(|device| {
        for (name, _, recipe) in recipes() {
            let blocks = blocks_for(&recipe);
            let longest = blocks.iter().map(Vec::len).max().unwrap() as u32;
            let shape = Shape::new(blocks.len() as u32, longest);
            let made = Encoder::with_recipe(device, recipe, shape, CallerBuffers::default());
            if is_declined(&name, device, &made) {
                continue;
            }
            let mut encoder = made.unwrap();
            // The whole batch, and then a part of it in the same memory.
            for count in [blocks.len(), 2] {
                let mut lens = Vec::new();
                for (number, block) in (0..).zip(&blocks[..count]) {
                    encoder.write(number, block).unwrap();
                    lens.push(block.len() as u32);
                }
                let encoded = encoder.encode(&lens).unwrap();
                for (number, (block, contents)) in encoded.iter().zip(&blocks).enumerate() {
                    let (coded, bytes) = on_cpu(&recipe, contents);
                    let ours = payload(&mut encoder, block);
                    assert_eq!(ours.is_some(), coded.method != Method::Store, "{name} {number}");
                    assert!(ours.is_none_or(|ours| ours == bytes), "{name}: block {number}");
                    assert_eq!(block.content_crc, coded.content_crc, "{name} {number}");
                    if block.payload.is_some() {
                        assert_eq!(block.payload_crc, coded.payload_crc, "{name} {number}");
                    }
                }
            }
        }
    });
}

#[test]
fn every_level_decodes() {
    let blocks = blocks();
    let longest = blocks.iter().map(Vec::len).max().unwrap() as u32;
    each_device(|device| {
        for (name, pipeline, recipe) in recipes() {
            let count = blocks.len() as u32;
            let made = Decoder::new(device, pipeline, longest, count, CallerBuffers::default());
            if is_declined(&name, device, &made) {
                continue;
            }
            let mut decoder = made.unwrap();
            let coded: Vec<_> = blocks
                .iter()
                .map(|contents| (contents, on_cpu(&recipe, contents)))
                .filter(|(_, (coded, _))| coded.method != Method::Store)
                .collect();
            for count in [coded.len(), 1] {
                decoder.clear();
                let places: Vec<PayloadPlace> = coded[..count]
                    .iter()
                    .map(|(contents, (_, payload))| {
                        decoder.write(payload, contents.len() as u32).unwrap().unwrap()
                    })
                    .collect();
                let decoded = decoder.decode(&places).unwrap();
                for (number, (block, (contents, (expected, _)))) in
                    (0..).zip(decoded.iter().zip(&coded))
                {
                    assert!(block.is_decoded, "{name}: block {number}");
                    assert_eq!(block.payload_crc, expected.payload_crc, "{name}: block {number}");
                    assert_eq!(block.content_crc, expected.content_crc, "{name}: {number}");
                    let mut bytes = vec![0; contents.len()];
                    decoder.read(number, &mut bytes).unwrap();
                    assert!(bytes == **contents, "{name}: block {number}");
                }
            }
        }
    });
}

/// A coder works on the caller's buffers in place.
#[test]
fn buffers_of_the_callers_are_used() {
    let contents = &blocks()[0];
    let options = Options::new().pipeline(Pipeline::Fse).block_size(1 << 18);
    let (pipeline, len) = (options.chosen_pipeline(), contents.len() as u32);
    each_device(|device| {
        let limits = device.limits();
        let Ok(bytes) = Encoder::buffer_bytes(limits, &options.encoding().unwrap(), 1) else {
            println!("{}: declined", limits.name);
            return;
        };
        let own = CallerBuffers {
            contents: Some(device.allocate(bytes.contents).unwrap()),
            payloads: Some(device.allocate(bytes.payloads).unwrap()),
        };
        let mut encoder = Encoder::new(device, &options.encoding().unwrap(), 1, own).unwrap();
        assert_eq!(Some(encoder.contents()), own.contents);
        encoder.write(0, contents).unwrap();
        let block = encoder.encode(&[len]).unwrap()[0];
        let (start, payload_len) = block.payload.unwrap();
        let coded = payload(&mut encoder, &block).unwrap();
        drop(encoder);
        // Decode the payload where it is.
        let needs = Decoder::buffer_bytes(limits, pipeline, len, 1).unwrap();
        assert!(needs.contents <= bytes.contents && needs.payloads <= bytes.payloads);
        let mut decoder = Decoder::new(device, pipeline, len, 1, own).unwrap();
        decoder.expect(PayloadFeatures::of(&coded, contents.len()));
        let place =
            PayloadPlace { start, payload_len, content_len: len, position: 0, filters: None };
        assert!(decoder.decode(&[place]).unwrap()[0].is_decoded);
        let mut bytes = vec![0; contents.len()];
        decoder.read(0, &mut bytes).unwrap();
        assert!(bytes == *contents);
        drop(decoder);
        device.free(own.contents.unwrap());
        device.free(own.payloads.unwrap());
    });
}

#[test]
fn a_planted_fault_is_found() {
    let contents = &blocks()[0];
    let options = Options::new();
    let recipe = options.recipe().unwrap();
    let (expected, mut bytes) = on_cpu(&recipe, contents);
    let at = bytes.len() / 2;
    bytes[at] ^= 4;
    each_device(|device| {
        let len = contents.len() as u32;
        let made =
            Decoder::new(device, options.chosen_pipeline(), len, 1, CallerBuffers::default());
        if is_declined("default level", device, &made) {
            return;
        }
        let mut decoder = made.unwrap();
        let place = decoder.write(&bytes, len).unwrap().unwrap();
        let [block] = decoder.decode(&[place]).unwrap()[..] else { panic!("one block") };
        assert_ne!(block.payload_crc, expected.payload_crc);
        assert!(!block.is_decoded || block.content_crc != expected.content_crc);
    });
}

/// Compressing with a device gives the same file as without one, and the device restores it.
#[test]
fn files_are_the_same_with_every_device() {
    let contents = blocks().concat();
    for api in [Api::OpenCl, Api::WebGpu] {
        // Other tests check whether there must be devices.
        for found in crate::gpu::device::discovery::devices(api).unwrap_or_default() {
            println!("on {api}: {}", found.limits().name);
            let gpu = crate::Gpu::new(found.open().unwrap()).memory(256 << 20);
            for threads in [1, 2] {
                let options = Options::new().level(Level::MIN).block_size(1 << 17);
                let expected = crate::compress(&contents, &options).unwrap();
                let options = options.threads(threads).gpu(gpu.clone());
                assert!(crate::compress(&contents, &options).unwrap() == expected);
                let decoding = crate::DecodeOptions::new().threads(threads).gpu(gpu.clone());
                assert!(crate::decompress(&expected, &decoding).unwrap() == contents);
            }
        }
    }
}

/// A decoder undoes the filters of some blocks of a batch, and reports the blocks that it leaves to the host.
#[test]
fn filters_are_undone_beside_blocks_without_any() {
    let contents: Vec<u8> =
        (0..60_000_u32).flat_map(|i| ((i % 20_000) as f32 / 100.0).to_le_bytes()).collect();
    let names = ["none", "f32", "delta1x3000,delta4", "decimal4:2,transpose4", "dictionary4:2"];
    each_device(|device| {
        for pipeline in [Pipeline::Lzh, Pipeline::Bwt] {
            let options = Options::new().pipeline(pipeline);
            let len = contents.len() as u32;
            let made = Decoder::new(device, pipeline, len, 5, CallerBuffers::default());
            if is_declined(&pipeline.to_string(), device, &made) {
                continue;
            }
            let mut decoder = made.unwrap();
            let coded = names.map(|name| {
                let recipe = options.clone().filter(name.parse().unwrap()).recipe().unwrap();
                on_cpu(&recipe, &contents)
            });
            // Batches with filters and without take turns.
            for range in [0..5, 0..1, 1..5] {
                decoder.clear();
                let mut places = Vec::new();
                for (coded, payload) in &coded[range.clone()] {
                    let place = decoder.write(payload, len).unwrap().unwrap();
                    places.push(PayloadPlace { filters: coded.filters, ..place });
                }
                let decoded = decoder.decode(&places).unwrap();
                for ((number, name), block) in (0..).zip(&names[range.clone()]).zip(decoded) {
                    let is_decimal = name.starts_with("decimal");
                    assert!(block.is_decoded, "{pipeline} {name}");
                    assert_eq!(block.is_filtered, is_decimal, "{pipeline} {name}");
                    let mut bytes = vec![0; contents.len()];
                    decoder.read(number, &mut bytes).unwrap();
                    assert_eq!(bytes == contents, !is_decimal, "{pipeline} {name}");
                    let crc = crc32c::crc32c(&contents);
                    assert_eq!(block.content_crc == crc, !is_decimal, "{pipeline} {name}");
                }
            }
        }
    });
}
