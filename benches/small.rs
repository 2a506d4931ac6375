//! Compares calls for small inputs with zstd's: the fixed cost of a call.

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pz::{Compressor, DecodeOptions, Decompressor, Level, Options};

/// Different lines of a log.
fn contents(len: usize) -> Vec<u8> {
    let mut text = String::new();
    let mut number = 1_u32;
    while text.len() < len {
        number = number.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (user, status) = (number >> 20, [200, 404, 500][(number >> 8) as usize % 3]);
        text += &format!("GET /items/{user} HTTP/1.1 {status} {}\n", number % 977);
    }
    text.truncate(len);
    text.into_bytes()
}

fn small(c: &mut Criterion) {
    for len in [100, 1000, 10_000] {
        let contents = contents(len);
        let level = Level::new(1).expect("a level");
        let options = Options::new().level(level);
        let decode = DecodeOptions::new();
        let mut output = Vec::with_capacity(2 * len + 100);

        let mut group = c.benchmark_group("compress");
        let mut compressor = Compressor::new(&options).unwrap();
        group.bench_function(BenchmarkId::new("pz Compressor", len), |b| {
            b.iter(|| {
                output.clear();
                compressor.compress_into(black_box(&contents), &mut output).unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("pz::compress", len), |b| {
            b.iter(|| pz::compress(black_box(&contents), &options).unwrap());
        });
        let mut zstd = zstd::bulk::Compressor::new(1).unwrap();
        zstd.include_checksum(true).unwrap();
        let mut zstd_output = Vec::with_capacity(2 * len + 100);
        group.bench_function(BenchmarkId::new("zstd Compressor", len), |b| {
            b.iter(|| {
                zstd_output.clear();
                zstd.compress_to_buffer(black_box(&contents), &mut zstd_output).unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("zstd::compress", len), |b| {
            b.iter(|| zstd::bulk::compress(black_box(&contents), 1).unwrap());
        });
        group.finish();

        let compressed = pz::compress(&contents, &options).unwrap();
        println!("{len} bytes: pz {}, zstd {}", compressed.len(), zstd_output.len());
        let mut restored = vec![0; len];
        let mut group = c.benchmark_group("decompress");
        let mut decompressor = Decompressor::new(&decode);
        group.bench_function(BenchmarkId::new("pz Decompressor", len), |b| {
            b.iter(|| decompressor.decompress_into(black_box(&compressed), &mut restored).unwrap());
        });
        group.bench_function(BenchmarkId::new("pz::decompress", len), |b| {
            b.iter(|| pz::decompress(black_box(&compressed), &decode).unwrap());
        });
        let mut zstd = zstd::bulk::Decompressor::new().unwrap();
        group.bench_function(BenchmarkId::new("zstd Decompressor", len), |b| {
            b.iter(|| {
                zstd.decompress_to_buffer(black_box(&zstd_output), &mut restored[..]).unwrap()
            });
        });
        group.bench_function(BenchmarkId::new("zstd::decompress", len), |b| {
            b.iter(|| zstd::bulk::decompress(black_box(&zstd_output), len).unwrap());
        });
        group.finish();
    }
}

criterion_group!(benches, small);
criterion_main!(benches);
