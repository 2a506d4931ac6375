//! Valid inputs for a fuzzer to start from.

use pz::internal::{BitWriter, KERNELS, bwt, fse, huffman, lz77};
use pz::{Level, Options, Pipeline};

use crate::Rng;

/// Valid inputs of a target.
///
/// # Panics
/// If there is no such target.
pub fn seeds(target: &str) -> Vec<Vec<u8>> {
    match target {
        "lz77" | "device_lz77" => payloads(|block, out| {
            for search in [lz77::Search::None, lz77::Search::Greedy, lz77::Search::Lazy4] {
                let params = lz77::Params {
                    chunk_log: 16,
                    window_log: 17,
                    group_log: 1,
                    segment_log: 14,
                    search,
                    fse: block.len() % 2 == 0,
                };
                let mut payload = Vec::new();
                lz77::Encoder::new().encode(&params, block, &mut payload);
                out.push(payload);
            }
        }),
        "bwt" | "device_bwt" => payloads(|block, out| {
            for (segment_log, start_log) in [(10, 8), (14, 14)] {
                let mut payload = Vec::new();
                let params = bwt::Params { segment_log, start_log };
                bwt::Encoder::new().encode(&params, block, &mut payload);
                out.push(payload);
            }
        }),
        "huffman" => described(|freqs, limit, out| {
            let max_len = limit % huffman::MAX_LEN + 1;
            if freqs.len() > 1 << max_len {
                return;
            }
            let mut lengths = vec![0; freqs.len()];
            huffman::code_lengths(freqs, max_len, &mut lengths);
            huffman::write_lengths(&[&lengths], out);
        }),
        "fse" => described(|freqs, log, out| {
            let table_log = (fse::MIN_TABLE_LOG + log % 8).min(fse::MAX_TABLE_LOG);
            if freqs.len() > 1 << table_log {
                return;
            }
            let mut norm = vec![0; freqs.len()];
            fse::normalize(freqs, table_log, &mut norm);
            fse::write_norm(&norm, table_log, out);
        }),
        "container" | "stream" | "seekable" | "archive" | "recover" => files(),
        "cost" => {
            let all = KERNELS.iter();
            let texts = all.map(|kernel| kernel.text(pz::gpu::device::Api::OpenCl).into_owned());
            // Only the lines before the code, because mutations should hit the cost block.
            let heads = texts.map(|text| text.lines().take(40).collect::<Vec<_>>().join("\n"));
            heads.map(String::into_bytes).collect()
        }
        "round_trip_filter" => FILTERS
            .iter()
            .flat_map(|filter| {
                let of = move |contents: Vec<u8>| {
                    [filter.as_bytes(), b"\n", &contents[..contents.len().min(70_000)]].concat()
                };
                contents().into_iter().map(of)
            })
            .chain(HEADERS.map(|header| {
                let samples = (0..9000_i32).flat_map(|i| ((i * i) >> 9).to_le_bytes());
                [b"auto\n", header, &samples.collect::<Vec<u8>>()].concat()
            }))
            .collect(),
        _ if target.starts_with("round_trip_") => contents()
            .into_iter()
            .enumerate()
            .map(|(i, contents)| {
                [&[(i * 29 % 256) as u8][..], &contents[..contents.len().min(4000)]].concat()
            })
            .collect(),
        _ => panic!("no target is called {target}"),
    }
}

/// Filters of every kind.
const FILTERS: [&str; 10] = [
    "auto",
    "f32",
    "i64x3",
    "deltadelta2x2,zigzag2,bits2",
    "decimal4:3,delta4,transpose4",
    "transpose7,xor2,rotate8:9",
    "delta1x300,delta1x3",
    "dictionary8:2,zdelta2,transpose2",
    "dictionary8:2.3,zdelta2,transpose2",
    "arm64,x86",
];

/// Headers that describe a file's contents.
const HEADERS: [&[u8]; 6] = [
    b"\x93NUMPY\x01\0\x3a\0{'descr': '<i4', 'fortran_order': False, 'shape': (90, 100)}  \n",
    b"\x38\0\0\0\0\0\0\0{\"w\":{\"dtype\":\"F32\",\"shape\":[9],\"data_offsets\":[0,36]}}  ",
    b"PAR1\x15\0\x15\xd0\x0f\x15\xd0\x0f\x2c\x15\xf4\x03\x15\0\x15\x06\x15\x06\0\0",
    b"RIFF\xa4\x8c\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0D\xac\0\0\x10\xb1\x02\0\x04\0\x10\0data\xa0\x8c\0\0",
    b"BM\xd6\x8c\0\0\0\0\0\0\x36\0\0\0\x28\0\0\0\x64\0\0\0\x78\0\0\0\x01\0\x18\0\0\0\0\0\xa0\x8c\
      \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    b"II*\0\x08\0\0\0\x03\0\0\x01\x03\0\x01\0\0\0\x64\0\0\0\x02\x01\x03\0\x01\0\0\0\x10\0\0\0\x11\x01\x03\0\x01\
      \0\0\0\x32\0\0\0\0\0\0\0",
];

/// Text, tables, numbers, noise, runs, and very short contents.
fn contents() -> Vec<Vec<u8>> {
    let mut rng = Rng::new(1);
    let text = |rng: &mut Rng, len: usize| {
        let mut text = String::new();
        while text.len() < len {
            let word = rng.below(300);
            text += &format!("{}{:x} ", ["a", "the", "word", "\n"][word % 4], word * word);
        }
        text.into_bytes()
    };
    let floats = |rng: &mut Rng| (rng.bits() as f32 / 1e20).sin().to_le_bytes();
    vec![
        text(&mut rng, 3000),
        text(&mut rng, 200_000),
        (0..700_u32).flat_map(|i| format!("{i},{},{}\n", i % 7, i * i).into_bytes()).collect(),
        (0..2000).flat_map(|_| floats(&mut rng)).collect(),
        (0..999).map(|_| rng.bits() as u8).collect(),
        (0..66_000_u32).map(|i| (i / 1000) as u8).collect(),
        vec![7; 5000],
        b"abcabcabcabcabcabcabc".repeat(20),
        (0..=255).chain((0..=255).rev()).collect(),
        b"x".to_vec(),
    ]
}

/// Payloads that `encode` makes, each after the length of its block.
fn payloads(encode: impl Fn(&[u8], &mut Vec<Vec<u8>>)) -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    for block in contents() {
        let mut payloads = Vec::new();
        encode(&block, &mut payloads);
        let len = &(block.len() as u32).to_le_bytes()[..3];
        inputs.extend(payloads.iter().map(|payload| [len, payload].concat()));
    }
    inputs
}

/// Descriptions that `describe` writes for counts of symbols, each after two parameters.
fn described(describe: impl Fn(&[u32], u8, &mut BitWriter<'_>)) -> Vec<Vec<u8>> {
    let mut inputs = Vec::new();
    let mut rng = Rng::new(2);
    for symbols in [2_u16, 3, 17, 64, 200, 256] {
        for parameter in 0..12 {
            let freqs: Vec<u32> =
                (0..symbols).map(|_| 1 << rng.below(20) >> rng.below(20)).collect();
            let freqs = if freqs.iter().filter(|&&n| n > 0).count() < 2 {
                vec![1; symbols.into()]
            } else {
                freqs
            };
            let mut input = vec![parameter, (symbols - 1) as u8];
            let mut out = BitWriter::new(&mut input);
            describe(&freqs, parameter, &mut out);
            out.finish();
            inputs.push(input);
        }
    }
    inputs
}

/// Two short frames in the longer form.
const TWO_FRAMES: &[u8] = include_bytes!("../../golden/v1/two-frames.pz");

/// Compressed files of every pipeline: each alone, and two in a row.
fn files() -> Vec<Vec<u8>> {
    let mut files = vec![pz::compress(b"", &Options::new()).expect("a file")];
    for contents in contents() {
        for pipeline in Pipeline::ALL {
            let level = Level::new(contents.len() as u32 % 9 + 1).expect("1 to 9");
            let options = Options::new().level(level).pipeline(pipeline).block_size(1 << 16);
            let options = match contents.len() % 2 {
                0 => options.content_size(contents.len() as u64),
                _ => options,
            };
            files.push(pz::compress(&contents, &options.threads(1)).expect("a file"));
        }
    }
    for (filter, contents) in [
        ("f32", &contents()[3]),
        ("delta1x3,zigzag1,bits1", &contents()[1]),
        ("decimal4:3,delta4,transpose4", &contents()[3]),
        ("transpose7,xor2,rotate8:9", &contents()[5]),
        ("dictionary4:2,delta2,zigzag2", &contents()[3]),
        ("neardecimal8:3,zigzag8,transpose8", &contents()[3]),
        ("dictionary8:1.2,bits1", &contents()[3]),
        ("x86,arm64", &contents()[5]),
    ] {
        let options = Options::new().block_size(1 << 16).threads(1);
        let options = options.filter(filter.parse().expect("a filter"));
        files.push(pz::compress(contents, &options).expect("a file"));
    }
    // Blocks that repeat earlier ones.
    let twice = contents()[1][..70_000].repeat(2);
    let options = Options::new().block_size(1 << 16).threads(1).long_distance(1 << 20);
    files.push(pz::compress(&twice, &options).expect("a file"));
    files.push([&files[1][..], &files[8]].concat());
    files.push([&files[8][..], &[0; 40]].concat());
    // Short frames in the longer form, which the encoder no longer writes.
    // And frames with modules, in both forms.
    for golden in [
        &include_bytes!("../../golden/v1/one-byte.pz")[..],
        include_bytes!("../../golden/v1/single-module.pz"),
        include_bytes!("../../golden/v1/module.pz"),
        TWO_FRAMES,
    ] {
        files.push(golden.to_vec());
    }
    files
}
