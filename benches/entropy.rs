//! Time to set up the entropy coders, which each group of chunks pays before its first symbol.

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};
use pz::internal::{BitReader, BitWriter, fse, huffman};
use std::hint::black_box;

const MAX_LEN: u8 = 10;

/// Symbol counts by name of alphabet. Each has a few hundred thousand symbols. Neighbouring symbols have similar
/// counts, some are missing, and some are so rare that optimal codes need the length limit.
fn alphabets() -> [(&'static str, Vec<u32>); 3] {
    let text = |s: u32| match s {
        10 | 32..=126 => 120_000 >> ((s * 7) % 97 / 6),
        _ => 0,
    };
    let binary = |s: u32| (60_000 >> (s.min(256 - s) / 8)) + (s * 37) % 11;
    let offsets = |s: u32| if s < 40 { 9_000 >> (s.abs_diff(24) / 2) } else { 0 };
    [
        ("text", (0..256).map(text).collect()),
        ("binary", (0..256).map(binary).collect()),
        ("offsets", (0..64).map(offsets).collect()),
    ]
}

fn huffman_codes(c: &mut Criterion) {
    let mut group = c.benchmark_group("huffman");
    for (name, freqs) in alphabets() {
        let mut lengths = vec![0; freqs.len()];
        group.bench_function(BenchmarkId::new("code_lengths", name), |b| {
            b.iter(|| huffman::code_lengths(black_box(&freqs), MAX_LEN, &mut lengths));
        });
        let mut codes = vec![0; freqs.len()];
        group.bench_function(BenchmarkId::new("assign_codes", name), |b| {
            b.iter(|| huffman::assign_codes(black_box(&lengths), &mut codes));
        });
        let mut table = vec![0; 1 << MAX_LEN];
        group.bench_function(BenchmarkId::new("build_table", name), |b| {
            b.iter(|| huffman::build_table(black_box(&lengths), MAX_LEN, &mut table).unwrap());
        });
        let mut bytes = Vec::new();
        group.bench_function(BenchmarkId::new("write_lengths", name), |b| {
            b.iter(|| {
                bytes.clear();
                let mut out = BitWriter::new(&mut bytes);
                huffman::write_lengths(&[black_box(&lengths)], &mut out);
                out.finish();
            });
        });
        let mut read = vec![0; freqs.len()];
        group.bench_function(BenchmarkId::new("read_lengths", name), |b| {
            b.iter(|| {
                let mut input = BitReader::new(black_box(&bytes));
                huffman::read_lengths(&mut input, MAX_LEN, &mut [&mut read]).unwrap();
            });
        });
        assert_eq!(read, lengths);
    }
}

fn fse_tables(c: &mut Criterion) {
    let mut group = c.benchmark_group("fse");
    for (name, freqs) in alphabets() {
        let table_log = if freqs.len() > 64 { 11 } else { 9 };
        let mut norm = vec![0; freqs.len()];
        group.bench_function(BenchmarkId::new("normalize", name), |b| {
            b.iter(|| fse::normalize(black_box(&freqs), table_log, &mut norm));
        });
        let mut table = vec![0; 1 << table_log];
        group.bench_function(BenchmarkId::new("build_decode_table", name), |b| {
            b.iter(|| fse::build_decode_table(black_box(&norm), table_log, &mut table).unwrap());
        });
        let mut encoder = fse::EncodeTable::new();
        group.bench_function(BenchmarkId::new("build_encode_table", name), |b| {
            b.iter(|| encoder.build(black_box(&norm), table_log));
        });
        let mut bytes = Vec::new();
        group.bench_function(BenchmarkId::new("write_norm", name), |b| {
            b.iter(|| {
                bytes.clear();
                let mut out = BitWriter::new(&mut bytes);
                fse::write_norm(black_box(&norm), table_log, &mut out);
                out.finish();
            });
        });
        let mut read = vec![0; freqs.len()];
        group.bench_function(BenchmarkId::new("read_norm", name), |b| {
            b.iter(|| {
                let mut input = BitReader::new(black_box(&bytes));
                fse::read_norm(&mut input, table_log, &mut read).unwrap();
            });
        });
        assert_eq!(read, norm);
    }
}

criterion_group!(benches, huffman_codes, fse_tables);
criterion_main!(benches);
