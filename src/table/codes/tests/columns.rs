//! Columns for tests: random, adversarial, and like real ones.

use crate::table::codes::spec::Physical;

/// A generator of pseudorandom numbers.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}

/// A named column of integers, as the lowest 64 bits of sign-extended numbers.
type Series = (&'static str, Vec<i64>);

/// Series of `rows` numbers that suit one code or another, or none.
pub(super) fn series(rows: usize, seed: u64) -> Vec<Series> {
    let mut random = Random(seed);
    let mut walk = 1_700_000_000_000_000_i64;
    let mut make = |f: &mut dyn FnMut(&mut Random, i64) -> i64| -> Vec<i64> {
        (0..rows as i64).map(|row| f(&mut random, row)).collect()
    };
    vec![
        ("constant", make(&mut |_, _| -5)),
        ("random", make(&mut |r, _| r.next() as i64)),
        ("small", make(&mut |r, _| r.below(50) as i64)),
        ("negative", make(&mut |r, _| r.below(200) as i64 - 100)),
        ("hundreds", make(&mut |r, _| r.below(90) as i64 * 100 - 4500)),
        ("row", make(&mut |_, row| row)),
        ("falling", make(&mut |r, row| -3 * row + r.below(4) as i64)),
        ("timestamps", {
            make(&mut |r, _| {
                walk += 1_000_000 + r.below(2000) as i64 - 1000;
                walk
            })
        }),
        ("outliers", {
            make(&mut |r, _| match r.below(200) {
                0 => i64::MIN,
                1 => r.next() as i64,
                _ => 1000 + r.below(500) as i64,
            })
        }),
        ("line with outliers", {
            make(&mut |r, row| match r.below(150) {
                0 => r.next() as i64,
                _ => 40 * row + r.below(30) as i64,
            })
        }),
        ("runs", make(&mut |_, row| (row / 37 * 7919) % 1009)),
        ("runs of few", make(&mut |_, row| [77_777_777, -3, 1 << 40][(row as usize / 50) % 3])),
        ("few", make(&mut |r, _| (r.below(7) as i64).pow(9) * 1_234_567 - 3)),
        ("skewed", make(&mut |r, _| 1 << r.below(1 + r.0 % 62))),
        ("extremes", make(&mut |r, _| [i64::MIN, i64::MAX, 0, -1][r.below(4) as usize])),
        ("steep", make(&mut |_, row| row.wrapping_mul(1 << 46))),
    ]
}

/// The series as bytes of a type's values. Wider types get numbers in their upper words too.
pub(super) fn bytes_of(physical: Physical, series: &[i64]) -> Vec<u8> {
    if physical == Physical::Boolean {
        let bit = |x: &i64| u8::from(*x & 1 == 1);
        let byte = |x: &[i64]| x.iter().zip(0..).map(|(x, i)| bit(x) << i).sum();
        return series.chunks(8).map(byte).collect();
    }
    let width = physical.bits() as usize / 8;
    let mut bytes = Vec::new();
    for &x in series {
        let mut wide = [if x < 0 { u8::MAX } else { 0 }; 32];
        wide[..8].copy_from_slice(&x.to_le_bytes());
        bytes.extend_from_slice(&wide[..width]);
    }
    bytes
}

/// Floats of 64 bits that are decimal numbers, sums of such, measurements, and what is not a number.
pub(super) fn floats(rows: usize, seed: u64) -> Vec<(&'static str, Vec<f64>)> {
    let mut random = Random(seed);
    let mut level = 20.0;
    let mut make = |f: &mut dyn FnMut(&mut Random) -> f64| -> Vec<f64> {
        (0..rows).map(|_| f(&mut random)).collect()
    };
    let nan = f64::from_bits(0xfff8_0000_dead_beef);
    vec![
        ("prices", make(&mut |r| r.below(100_000) as f64 / 100.0)),
        ("products", make(&mut |r| (r.below(100) as f64 / 100.0) * (1.0 + r.below(50) as f64))),
        ("prices with gaps", {
            make(&mut |r| match r.below(300) {
                0 => nan,
                1 => f64::INFINITY,
                2 => -0.0,
                _ => r.below(100_000) as f64 / 100.0 - 300.0,
            })
        }),
        ("sensor", {
            make(&mut |r| {
                level += (r.below(1001) as f64 - 500.0) / 7e5;
                level
            })
        }),
        ("signed", make(&mut |r| (r.next() as i64 as f64) / 1e19)),
        ("single", make(&mut |r| f64::from((r.below(1 << 24) as f32).sqrt()))),
        ("zeros", make(&mut |r| [0.0, -0.0, nan, f64::NAN][r.below(4) as usize])),
        ("large", make(&mut |r| r.next() as f64 * 1e3)),
        ("bits", make(&mut |r| f64::from_bits(r.next()))),
    ]
}
