//! Filtered blocks through every entry point: round trips, ranges, lists, limits, damage and recovery.

mod common;

use std::io::{Cursor, Read, Seek, SeekFrom, Write};

use common::{decode_options, sample};
use pz::{
    DecodeOptions, Decoder, Encoder, Error, Filter, FilterChain, Method, Options, Pipeline,
    SeekableReader,
};

/// `len` bytes of 16-bit readings of four sensors.
fn readings(len: usize) -> Vec<u8> {
    let reading = |i: usize| {
        let (time, sensor) = (i / 4, i % 4);
        let wave = (time as f64 / (20.0 + sensor as f64)).sin() * 9000.0;
        (wave as i16).wrapping_add((i.wrapping_mul(0x9e37_79b9) >> 60) as i16).to_le_bytes()
    };
    (0..).flat_map(reading).take(len).collect()
}

const CHAIN: &str = "delta2x4,zigzag2,transpose2";

fn filtered(options: Options) -> Options {
    options.filter(CHAIN.parse().unwrap())
}

#[test]
fn every_entry_point_restores_filtered_blocks() {
    for len in [1, 2, 3, 77, 65_537, 200_001] {
        let contents = readings(len);
        for pipeline in Pipeline::ALL {
            let options = filtered(Options::new().pipeline(pipeline).block_size(1 << 16));
            let small = pz::compress(&contents, &options.clone().threads(1)).unwrap();
            for threads in [1, 2, 8] {
                let options = options.clone().threads(threads);
                assert!(pz::compress(&contents, &options).unwrap() == small, "{pipeline} {len}");
                let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
                encoder.write_all(&contents).unwrap();
                assert!(encoder.finish().unwrap() == small, "{pipeline} {len}");
                let decode = decode_options().threads(threads);
                assert!(pz::decompress(&small, &decode).unwrap() == contents, "{pipeline} {len}");
                let mut out = Vec::new();
                Decoder::new(&small[..], &decode).unwrap().read_to_end(&mut out).unwrap();
                assert!(out == contents, "{pipeline} {len}");
            }
        }
    }
}

#[test]
fn filters_help_and_lists_name_them() {
    let contents = readings(300_000);
    let options = Options::new().block_size(1 << 17);
    let plain = pz::compress(&contents, &options).unwrap();
    let small = pz::compress(&contents, &filtered(options.clone())).unwrap();
    assert!(small.len() * 4 < plain.len() * 3, "{} {}", small.len(), plain.len());
    let chain: FilterChain = CHAIN.parse().unwrap();
    let frames = pz::list(&mut Cursor::new(&small), true).unwrap();
    assert_eq!(frames[0].blocks.len(), 3);
    assert!(frames[0].blocks.iter().all(|block| block.filters == Some(chain)));
    // A single frame, stored blocks, and a block of one repeated byte.
    let single = pz::compress(&contents[..50_000], &filtered(options.clone())).unwrap();
    let frames = pz::list(&mut Cursor::new(&single), true).unwrap();
    assert_eq!(frames[0].blocks[0].filters, Some(chain));
    let mut noise = sample(1 << 17, 3);
    let mut state = 1_u64;
    for byte in &mut noise {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        *byte = (state >> 56) as u8;
    }
    let mixed = [&noise[..], &[7; 1 << 17]].concat();
    let small = pz::compress(&mixed, &filtered(options)).unwrap();
    let frames = pz::list(&mut Cursor::new(&small), true).unwrap();
    let blocks: Vec<_> =
        frames[0].blocks.iter().map(|block| (block.method, block.filters)).collect();
    assert_eq!(blocks, [(Method::Store, None), (Method::Fill, None)]);
    assert!(pz::decompress(&small, &decode_options()).unwrap() == mixed);
}

#[test]
fn ranges_of_filtered_blocks() {
    let contents = readings(400_003);
    let options = filtered(Options::new().block_size(1 << 16));
    let small = pz::compress(&contents, &options).unwrap();
    let mut reader = SeekableReader::new(Cursor::new(&small), &decode_options()).unwrap();
    for (start, len) in [(0, 1), (65_535, 2), (100_001, 200_000), (400_002, 1)] {
        reader.seek(SeekFrom::Start(start)).unwrap();
        let mut part = vec![0; len];
        reader.read_exact(&mut part).unwrap();
        assert!(part == contents[start as usize..][..len], "{start}..");
    }
}

#[test]
fn filters_take_memory_within_the_limits() {
    let contents = readings(3 << 20);
    let options = Options::new().block_size(1 << 20);
    let least = |options: &Options| match pz::compress(&contents, &options.clone().memory(1)) {
        Err(Error::LimitMemory { needed, .. }) => needed,
        _ => panic!("a byte of memory suffices"),
    };
    let (plain, with_filter) = (least(&options), least(&filtered(options.clone())));
    assert!(with_filter >= plain + (2 << 20), "{plain} {with_filter}");
    let small = pz::compress(&contents, &filtered(options.memory(with_filter))).unwrap();
    let needed = match pz::decompress(&small, &DecodeOptions::new().max_memory(1)) {
        Err(Error::LimitMemory { needed, .. }) => needed,
        _ => panic!("a byte of memory suffices"),
    };
    let limited = DecodeOptions::new().max_memory(needed);
    assert!(pz::decompress(&small, &limited).unwrap() == contents);
}

#[test]
fn damaged_filtered_blocks_are_found_and_the_others_recovered() {
    let contents = readings(300_000);
    let options = filtered(Options::new().block_size(1 << 16).threads(1));
    let small = pz::compress(&contents, &options).unwrap();
    let frames = pz::list(&mut Cursor::new(&small), true).unwrap();
    let hit = &frames[0].blocks[2];
    // In the header's filters, in its checksums, and in the payload.
    for offset in [19, 24, 31, 33, 38, 40, 500] {
        let mut damaged = small.clone();
        damaged[(hit.offset + offset) as usize] ^= 0x10;
        assert!(pz::decompress(&damaged, &decode_options()).is_err(), "byte {offset}");
        let mut saved = Vec::new();
        pz::recover(&mut Cursor::new(&damaged), &mut saved, false, &decode_options()).unwrap();
        let expected = [&contents[..2 << 16], &contents[3 << 16..]].concat();
        assert!(saved == expected, "byte {offset}: {} bytes", saved.len());
    }
    // Readers find any flipped bit in a small file.
    let small = pz::compress(&contents[..600], &options).unwrap();
    for bit in 0..small.len() * 8 {
        let mut damaged = small.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(pz::decompress(&damaged, &decode_options()).is_err(), "bit {bit}");
    }
    for len in 0..small.len() {
        assert!(pz::decompress(&small[..len], &decode_options()).is_err(), "{len} bytes");
    }
}

#[test]
fn names_of_filters() {
    assert_eq!("none".parse::<Filter>().unwrap(), Filter::None);
    assert_eq!("i16x4".parse::<Filter>().unwrap().to_string(), CHAIN);
    assert_eq!("bf16".parse::<Filter>().unwrap().to_string(), "rotate2,transpose2");
    let error = "f17".parse::<Filter>().unwrap_err();
    assert!(
        error.to_string().starts_with("there is no filter \"f17\" (there are none, auto, types")
    );
}

/// The number with this index among random ones of 23 bits (splitmix64).
fn random(i: u32) -> u32 {
    let mixed = (u64::from(i) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    ((mixed ^ mixed >> 27) >> 41) as u32
}

/// Pixels in bands: many rows are similar.
fn bands() -> Vec<u8> {
    let pixels = (0..).flat_map(|i: u32| {
        let light = (f64::from(i % 640) / 30.0 + f64::from(i / 640) / 9.0).sin() * 90.0 + 120.0;
        [light as u8, (light * 0.8) as u8, 255 - light as u8]
            .map(|c| c.wrapping_add(random(i) as u8 & 3))
    });
    pixels.take(1 << 20).collect()
}

/// Arrays, and the filters that the choice may make for them.
fn arrays() -> Vec<(&'static str, Vec<u8>)> {
    let len = 1 << 20;
    let mut state = 1_u64;
    let mut step = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 33) as u32
    };
    let mut ids = 1_u64 << 40;
    let ids = (0..).flat_map(|_| {
        ids += u64::from(step() % 100);
        ids.to_le_bytes()
    });
    let ids = ids.take(len).collect();
    let floats = (0..).flat_map(|i| (random(i) as f32 / 8e6 + 1e-3).to_le_bytes());
    let floats = floats.take(len).collect();
    let prices = (0..).flat_map(|i: u32| (f64::from(random(i) % 9000) / 100.0).to_le_bytes());
    let prices = prices.take(len).collect();
    // Some parsers of decimal numbers divide like this.
    let places = (0..).flat_map(|i| (f64::from(random(i) % 9_000_000) / 10.0 / 1e4).to_le_bytes());
    let places = places.take(len).collect();
    // Each pixel has independent noise, so no channel predicts another, and no row predicts a distant row.
    let pixels =
        (0..).zip(bands()).map(|(i, c): (u32, u8)| c.wrapping_add(random(i) as u8 & 15)).collect();
    // No dark pixels: their bytes would look like text.
    let mut walk = [90_u8, 150, 210];
    let bright = (0..len as u32).map(|i| {
        let value = &mut walk[i as usize % 3];
        *value = value.wrapping_add((random(i) % 7) as u8).wrapping_sub(3).clamp(40, 250);
        *value
    });
    vec![
        ("delta8", ids),
        ("transpose4", floats),
        ("decimal8:2", prices),
        ("neardecimal8:5", places),
        ("delta1x3", pixels),
        ("delta1x3", bright.collect()),
        ("delta", readings(len)),
    ]
}

#[test]
fn auto_finds_the_type_of_arrays_and_leaves_text_alone() {
    for pipeline in [Pipeline::Lzh, Pipeline::Fse, Pipeline::Bwt] {
        let options = Options::new().pipeline(pipeline);
        let auto = options.clone().filter(Filter::Auto);
        for (expected, contents) in arrays() {
            let small = pz::compress(&contents, &auto).unwrap();
            let frames = pz::list(&mut Cursor::new(&small), true).unwrap();
            let chain = frames[0].blocks[0].filters.map(|chain| chain.to_string());
            let is_expected = chain.as_ref().is_some_and(|chain| chain.contains(expected));
            assert!(is_expected, "{pipeline}: {chain:?} instead of {expected}");
            let (small_len, plain_len) =
                (small.len(), pz::compress(&contents, &options).unwrap().len());
            assert!(small_len < plain_len, "{pipeline}: {chain:?}: {small_len}, not {plain_len}");
            assert!(pz::decompress(&small, &decode_options()).unwrap() == contents);
        }
        // Bands that repeat row by row: a filter only reduces the matches with near rows.
        let bands = bands();
        let [small, plain] = [&auto, &options].map(|how| pz::compress(&bands, how).unwrap().len());
        assert!(small <= plain, "{pipeline}: {small}, not {plain}");
        let text = include_bytes!("../src/format/FORMAT.md").repeat(20);
        let words = ["größer", "длиннее", "長い", "😀 ", "e\n"];
        let utf_8: String = (0..60_000).map(|i| words[random(i) as usize % 5]).collect();
        for plain in [&text[..], utf_8.as_bytes(), &[], b"x", &[0; 100_000]] {
            assert!(pz::compress(plain, &auto).unwrap() == pz::compress(plain, &options).unwrap());
        }
        // Words between runs of equal bytes: without matches, differences make runs shorter.
        let mixed = sample(300_000, 4);
        let small = pz::compress(&mixed, &auto).unwrap();
        let plain = pz::compress(&mixed, &options).unwrap();
        match pipeline {
            Pipeline::Fse => assert!(small.len() < plain.len() * 2 / 3, "{}", small.len()),
            _ => assert!(small == plain, "{pipeline}"),
        }
    }
}

#[test]
fn auto_considers_distant_matches() {
    // Each number occurs often, but rarely twice within a sample: a filter makes samples smaller, and the whole larger.
    let number = |i: u32| f64::from(random(random(i) % 16_000)) / 8e6 + 1e-3;
    let contents: Vec<u8> = (0..1 << 18).flat_map(|i| number(i).to_le_bytes()).collect();
    for pipeline in [Pipeline::Lzh, Pipeline::Bwt] {
        let plain = Options::new().pipeline(pipeline);
        let [small, plain] = [plain.clone().filter(Filter::Auto), plain]
            .map(|options| pz::compress(&contents, &options).unwrap().len());
        assert!(small <= plain, "{pipeline}: {small}, not {plain}");
    }
}

#[test]
fn auto_chooses_alike_on_any_number_of_threads_and_within_the_memory_limit() {
    let mut contents = arrays().into_iter().flat_map(|(_, array)| array).collect::<Vec<_>>();
    contents.extend(sample(500_000, 9));
    let options = Options::new().filter(Filter::Auto).block_size(1 << 17);
    let small = pz::compress(&contents, &options.clone().threads(1)).unwrap();
    for threads in [2, 7] {
        let options = options.clone().threads(threads);
        assert!(pz::compress(&contents, &options).unwrap() == small);
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        encoder.write_all(&contents).unwrap();
        assert!(encoder.finish().unwrap() == small);
    }
    let frames = pz::list(&mut Cursor::new(&small), true).unwrap();
    let chains: std::collections::BTreeSet<_> =
        frames[0].blocks.iter().map(|block| block.filters.map(|chain| chain.to_string())).collect();
    assert!(chains.len() > 3 && chains.contains(&None), "{chains:?}");
    assert!(pz::decompress(&small, &decode_options()).unwrap() == contents);
}

/// A picture of `columns` by `rows` pixels, as Windows stores it. Rows resemble each other more than pixels do.
fn picture(columns: u32, rows: u32) -> Vec<u8> {
    let row_len = (3 * columns).next_multiple_of(4);
    let mut file = b"BM\0\0\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0".to_vec();
    file.extend([columns, rows].map(u32::to_le_bytes).as_flattened());
    file.extend(b"\x01\0\x18\0");
    file.resize(54, 0);
    let mut state = 1_u64;
    let mut random = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (state >> 56) as u8
    };
    let mut row: Vec<u8> = (0..row_len).map(|_| random()).collect();
    for _ in 0..rows {
        row.iter_mut().for_each(|byte| *byte = byte.wrapping_add(random() % 3));
        file.extend_from_slice(&row);
    }
    file
}

#[test]
fn auto_finds_the_length_of_rows_in_headers_of_any_input() {
    let contents = picture(1001, 200);
    let options = Options::new().filter(Filter::Auto).block_size(1 << 17);
    let small = pz::compress(&contents, &options.clone().threads(1)).unwrap();
    let frames = pz::list(&mut Cursor::new(&small), true).unwrap();
    for block in &frames[0].blocks {
        assert_eq!(block.filters.map(|chain| chain.to_string()).unwrap(), "delta1x3004");
    }
    // Without the header, the rows look like noise.
    let mut headless = contents.clone();
    headless[0] = 0;
    assert!(pz::compress(&headless, &options).unwrap().len() > 2 * small.len());
    assert!(pz::decompress(&small, &decode_options()).unwrap() == contents);
    let file: std::sync::Arc<dyn pz::ReadAt> = std::sync::Arc::new(contents.clone());
    for threads in [1, 2, 7] {
        let options = options.clone().threads(threads);
        assert!(pz::compress(&contents, &options).unwrap() == small, "{threads} threads");
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        contents.chunks(70_001).for_each(|part| encoder.write_all(part).unwrap());
        assert!(encoder.finish().unwrap() == small, "{threads} threads, written");
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        encoder.read_from(&mut &contents[..]).unwrap();
        assert!(encoder.finish().unwrap() == small, "{threads} threads, read");
        // Threads read blocks themselves; the beginning may also come in parts.
        for parts in [0, 100] {
            let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
            encoder.read_range(&file, 0..parts).unwrap();
            encoder.read_range(&file, parts..contents.len() as u64).unwrap();
            assert!(encoder.finish().unwrap() == small, "{threads} threads, from {parts}");
        }
    }
}
