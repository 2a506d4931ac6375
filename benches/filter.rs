//! Filters, applied and undone on one thread: `cargo bench --bench filter`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use pz::FilterChain;
use pz::internal::filter;

const LEN: usize = 4 << 20;

/// Each stage alone, and the chains that the automatic choice considers.
const CHAINS: [&str; 60] = [
    "transpose2",
    "transpose3",
    "transpose4",
    "transpose8",
    "transpose12",
    "transpose20",
    "bits1",
    "bits2",
    "bits4",
    "bits8",
    "delta1",
    "delta2",
    "delta4",
    "delta8",
    "delta1x2",
    "delta1x3",
    "delta1x4",
    "delta2x2",
    "delta2x3",
    "delta4x2",
    "delta4x3",
    "delta8x3",
    "delta1x3000",
    "delta4x700",
    "deltadelta1",
    "deltadelta2",
    "deltadelta4",
    "deltadelta8",
    "zigzag1",
    "zigzag2",
    "zigzag4",
    "zigzag8",
    "rotate2",
    "rotate4",
    "rotate8",
    "xor1",
    "xor2",
    "xor4",
    "xor8",
    "decimal4:2",
    "decimal8:2",
    "neardecimal8:2",
    "dictionary4:2",
    "dictionary8:2",
    "dictionary8:2.2",
    "dictionary8:2,delta2,zigzag2",
    "x86",
    "arm64",
    "bf16",
    "f32",
    "f64",
    "i16",
    "i32",
    "i64",
    "i16x2",
    "i32x3",
    "delta2,zigzag2,bits2",
    "delta4,zigzag4,bits4",
    "deltadelta4,zigzag4,transpose4",
    "delta1x3,transpose3",
];

/// Pseudorandom 8-byte floats below 90, with two digits after the point.
fn contents() -> Vec<u8> {
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut number = move || {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        (f64::from((state >> 40) as u32 % 9000) / 100.0).to_le_bytes()
    };
    (0..LEN / 8).flat_map(|_| number()).collect()
}

fn filter(c: &mut Criterion) {
    let contents = contents();
    let (mut filtered, mut scratch) = (Vec::new(), Vec::new());
    let mut group = c.benchmark_group("filter");
    group.sample_size(10);
    group.throughput(Throughput::Bytes(LEN as u64));
    for name in CHAINS {
        let chain: FilterChain = name.parse().expect("the name of a chain");
        let fits = filter::apply(&chain, &contents, &mut filtered, &mut scratch);
        if fits {
            filter::invert(&chain, &mut filtered, &mut scratch);
            assert!(filtered == contents, "{name} is not restored");
            group.bench_function(format!("apply/{name}"), |b| {
                b.iter(|| filter::apply(&chain, black_box(&contents), &mut filtered, &mut scratch));
            });
        }
        // Any bytes are valid input for the inverse.
        group.bench_function(format!("undo/{name}"), |b| {
            b.iter(|| filter::invert(&chain, black_box(&mut filtered), &mut scratch));
        });
    }
    group.finish();
}

criterion_group!(benches, filter);
criterion_main!(benches);
