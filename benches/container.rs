//! The cost of frames, checksums and the scheduler without compression: the pipeline `store`.

use std::hint::black_box;
use std::io::{self, Cursor};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use pz::{DecodeOptions, Decoder, Encoder, Options, Pipeline, SeekableReader};

const LEN: usize = 32 << 20;

fn contents() -> Vec<u8> {
    (0..LEN as u64).map(|i| (i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56) as u8).collect()
}

fn store(c: &mut Criterion) {
    let contents = contents();
    let mut group = c.benchmark_group("store");
    group.throughput(Throughput::Bytes(LEN as u64)).sample_size(20);
    for threads in [1, 2] {
        let options = Options::new().pipeline(Pipeline::Store).block_size(1 << 20).threads(threads);
        let decode = DecodeOptions::new().threads(threads);
        let file = pz::compress(&contents, &options).unwrap();
        group.bench_function(BenchmarkId::new("Encoder", threads), |b| {
            b.iter(|| {
                let mut encoder = Encoder::new(io::sink(), &options).unwrap();
                encoder.read_from(&mut black_box(&contents[..])).unwrap();
                encoder.finish().unwrap();
            });
        });
        group.bench_function(BenchmarkId::new("Decoder", threads), |b| {
            b.iter(|| Decoder::new(black_box(&file[..]), &decode).unwrap().verify().unwrap());
        });
        group.bench_function(BenchmarkId::new("decompress", threads), |b| {
            b.iter(|| pz::decompress(black_box(&file), &decode).unwrap());
        });
        group.bench_function(BenchmarkId::new("copy_range", threads), |b| {
            b.iter(|| {
                let file = Cursor::new(black_box(&file));
                let mut reader = SeekableReader::new(file, &decode).unwrap();
                reader.copy_range(0..LEN as u64, &mut io::sink()).unwrap();
            });
        });
    }
}

fn small(c: &mut Criterion) {
    let mut group = c.benchmark_group("300 bytes");
    let contents = &contents()[..300];
    let options = Options::new().pipeline(Pipeline::Store);
    let file = pz::compress(contents, &options).unwrap();
    group.bench_function("compress", |b| {
        b.iter(|| pz::compress(black_box(contents), &options).unwrap());
    });
    group.bench_function("decompress", |b| {
        b.iter(|| pz::decompress(black_box(&file), &DecodeOptions::new()).unwrap());
    });
}

criterion_group!(benches, store, small);
criterion_main!(benches);
