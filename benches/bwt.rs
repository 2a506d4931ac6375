//! The whole BWT codec: `cargo bench --bench bwt`, or with real data `PZ_BENCH_FILE=path cargo bench --bench bwt`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pz::internal::bwt::{Decoder, Encoder, Params};

/// The block size of level 9.
const BLOCK: usize = 8 << 20;

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

fn bwt(c: &mut Criterion) {
    let mut inputs = vec![("words", words(BLOCK))];
    if let Some(path) = std::env::var_os("PZ_BENCH_FILE") {
        inputs.push(("file", std::fs::read(path).expect("PZ_BENCH_FILE can be read")));
    }
    let params = Params::default();
    let mut group = c.benchmark_group("bwt");
    group.sample_size(10);
    for (name, input) in &inputs {
        let mut encoder = Encoder::new();
        let mut decoder = Decoder::new();
        let payloads: Vec<Vec<u8>> = input
            .chunks(BLOCK)
            .map(|block| {
                let mut payload = Vec::new();
                encoder.encode(&params, block, &mut payload);
                let mut back = vec![0; block.len()];
                decoder.decode(&payload, &mut back).expect("a payload just made is valid");
                assert!(back == block, "{name} is not restored");
                payload
            })
            .collect();
        let size: usize = payloads.iter().map(Vec::len).sum();
        eprintln!("{name}: {} bytes to {size}", input.len());
        group.throughput(Throughput::Bytes(input.len() as u64));
        group.bench_function(format!("encode/{name}"), |b| {
            b.iter(|| {
                for block in input.chunks(BLOCK) {
                    let mut payload = Vec::new();
                    encoder.encode(&params, black_box(block), &mut payload);
                    black_box(payload);
                }
            });
        });
        let mut back = vec![0; BLOCK];
        group.bench_function(format!("decode/{name}"), |b| {
            b.iter(|| {
                for (payload, block) in payloads.iter().zip(input.chunks(BLOCK)) {
                    let back = &mut back[..block.len()];
                    decoder.decode(black_box(payload), back).expect("a valid payload");
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bwt);
criterion_main!(benches);
