//! The whole LZ77 codec: `cargo bench --bench lz77`, or with real data `PZ_BENCH_FILE=path cargo bench --bench
//! lz77`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pz::{DecodeOptions, Level, Options, compress, decompress};

const LEN: usize = 8 << 20;

/// Text-like data: words of a vocabulary whose frequencies fall off like natural language's.
fn words(len: usize) -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1du64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        let rank = 1 << (next() % 12);
        let word = next() % rank;
        let mut letters = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1 << 40;
        for _ in 0..2 + word % 7 {
            out.push(b'a' + (letters % 26) as u8);
            letters /= 26;
        }
        out.push(b' ');
    }
    out.truncate(len);
    out
}

/// Each of the levels that use LZ77, on one thread.
fn lz77(c: &mut Criterion) {
    let mut inputs = vec![("words", words(LEN)), ("zeros", vec![0; LEN])];
    if let Some(path) = std::env::var_os("PZ_BENCH_FILE") {
        inputs.push(("file", std::fs::read(path).expect("PZ_BENCH_FILE can be read")));
    }
    let mut group = c.benchmark_group("lz77");
    group.sample_size(10);
    for (name, input) in &inputs {
        group.throughput(Throughput::Bytes(input.len() as u64));
        for level in Level::all().filter(|level| level.get() < 9) {
            let options = Options::new().level(level).threads(1);
            let decode_options = DecodeOptions::new().threads(1);
            let packed = compress(input, &options).expect("it can be compressed");
            let back = decompress(&packed, &decode_options).expect("what was compressed is valid");
            assert!(back == *input, "{name} is not restored");
            eprintln!("{name}, level {level}: {} bytes to {}", input.len(), packed.len());
            group.bench_function(format!("encode/{name}/{level}"), |b| {
                b.iter(|| compress(black_box(input), &options));
            });
            group.bench_function(format!("decode/{name}/{level}"), |b| {
                b.iter(|| decompress(black_box(&packed), &decode_options));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, lz77);
criterion_main!(benches);
