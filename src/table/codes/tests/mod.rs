//! Round trips, and agreement with a decoder that was written from the text.

mod columns;
mod mutants;

use super::encode::encode_on;
use super::oracle::{self, Type};
use super::value::Value;
use super::*;
use crate::codec::lanes::Backend;
use columns::{Random, bytes_of, floats, series};

pub(super) fn type_of(physical: Physical) -> Type {
    let n = physical.bits() as usize;
    match physical.order() {
        _ if physical == Physical::Boolean => Type::Boolean,
        spec::Order::Unsigned => Type::Unsigned(n),
        spec::Order::Signed => Type::Signed(n),
        spec::Order::Float => Type::Float(n),
    }
}

/// What the oracle makes of a code: the buffer of values, and the bitmap.
pub(super) fn expected(physical: Physical, rows: usize, code: &[u8]) -> Option<[Vec<u8>; 2]> {
    let (values, valid) = oracle::decode(type_of(physical), rows, code)?;
    let bits = |bits: &[bool]| {
        let byte = |bits: &[bool]| bits.iter().zip(0..).map(|(&bit, i)| u8::from(bit) << i).sum();
        bits.chunks(8).map(byte).collect::<Vec<u8>>()
    };
    let buffer = if physical == Physical::Boolean {
        bits(&values.iter().map(|value| value[0] == 1).collect::<Vec<_>>())
    } else {
        let width = physical.bits() as usize / 8;
        let bytes = |value: &[u64; 4]| value.map(u64::to_le_bytes).as_flattened()[..width].to_vec();
        values.iter().flat_map(bytes).collect()
    };
    Some([buffer, bits(&valid)])
}

/// What the decoder makes of a code.
pub(super) fn decoded(chunk: &Chunk<'_>) -> [Vec<u8>; 2] {
    let mut buffer = vec![0xa5; chunk.physical().buffer_len(chunk.rows())];
    let mut validity = vec![0xa5; chunk.rows().div_ceil(8)];
    chunk.decode(&mut buffer);
    chunk.validity(&mut validity);
    [buffer, validity]
}

/// The contents that a column must have after a round trip: 0 in null rows, and in bits of no row.
fn contents(column: &Column<'_>) -> [Vec<u8>; 2] {
    let (physical, rows) = (column.physical(), column.rows());
    let valid: Vec<i64> = (0..rows).map(|row| column.is_valid(row).into()).collect();
    let validity = bytes_of(Physical::Boolean, &valid);
    let buffer = with_value_u(physical, column);
    [buffer, validity]
}

fn with_value_u(physical: Physical, column: &Column<'_>) -> Vec<u8> {
    fn of<T: Value>(column: &Column<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (row, &value) in column.read::<T>().iter().enumerate() {
            if column.is_valid(row) { value } else { T::default() }.append(&mut bytes);
        }
        bytes
    }
    let bytes = spec::with_value!(physical, T => of::<T>(column));
    if physical == Physical::Boolean {
        return bytes_of(physical, &bytes.iter().map(|&bit| bit.into()).collect::<Vec<_>>());
    }
    bytes
}

/// The sum that a scan must find, from the contents.
fn naive_sum(column: &Column<'_>, range: std::ops::RangeInclusive<i128>) -> Option<Sum> {
    let physical = column.physical();
    let bits = physical.bits();
    if physical.order() == spec::Order::Float || !(8..=64).contains(&bits) {
        return None;
    }
    let [buffer, _] = contents(column);
    let mut sum = Sum::default();
    for (row, bytes) in buffer.chunks(bits as usize / 8).enumerate() {
        let x = bytes.iter().rev().fold(0, |x, &byte| x << 8 | i128::from(byte));
        let signed = physical.order() == spec::Order::Signed && x >> (bits - 1) == 1;
        let x = if signed { x - (1 << bits) } else { x };
        if column.is_valid(row) && range.contains(&x) {
            sum.rows += 1;
            sum.sum += x;
        }
    }
    Some(sum)
}

/// Encodes on every backend, and checks the code in every way. Returns it.
#[track_caller]
fn check(column: &Column<'_>, plan: Option<&Plan>, what: &str) -> Encoded {
    let (physical, rows) = (column.physical(), column.rows());
    let encoded = encode_on(Backend::PORTABLE, column, plan);
    let right = contents(column);
    let what = format!("{what}, {physical:?}, {rows} rows, {:?}", encoded.plan);
    let by_text = expected(physical, rows, &encoded.bytes);
    assert!(by_text.as_ref() == Some(&right), "the text says otherwise: {what}");
    for backend in Backend::all() {
        assert_eq!(encode_on(backend, column, plan).bytes, encoded.bytes, "{what}");
        let chunk = Chunk::open_on(backend, physical, rows, &encoded.bytes);
        let chunk = chunk.unwrap_or_else(|fault| panic!("{fault:?}: {what}"));
        assert!(decoded(&chunk) == right, "{what}");
        let numbers = [i128::MIN, -70, 0, 3, 1000, 1250, i128::from(i64::MAX), i128::MAX];
        for (i, &low) in numbers.iter().enumerate() {
            for &high in &numbers[i..] {
                assert_eq!(chunk.sum(low..=high), naive_sum(column, low..=high), "{what}");
            }
        }
    }
    // The same planned code again, as for the next chunk.
    if plan.is_none() {
        let again = encode_on(Backend::detect(), column, encoded.plan.as_ref());
        assert_eq!(again.bytes, encoded.bytes, "{what}");
    }
    let zones = ZoneMap::of(column);
    let mut bytes = Vec::new();
    zones.append(&mut bytes);
    assert_eq!(bytes.len(), ZoneMap::len(physical));
    assert_eq!(ZoneMap::read(physical, rows, &bytes), Some(zones.clone()));
    if let (Some(sum), Some(all)) = (zones.sum, naive_sum(column, i128::MIN..=i128::MAX)) {
        assert_eq!(sum, all.sum);
    }
    encoded
}

const LENGTHS: [usize; 9] = [1, 2, 31, 33, 800, 1024, 1025, 3100, 40_000];

#[test]
fn integers_of_every_type_come_back() {
    for physical in Physical::ALL {
        for rows in LENGTHS {
            for (name, series) in series(rows, rows as u64) {
                let bytes = bytes_of(physical, &series);
                let column = Column::new(physical, rows, &bytes, None).unwrap();
                check(&column, None, name);
            }
        }
    }
}

#[test]
fn floats_come_back_bit_for_bit() {
    for rows in LENGTHS {
        for (name, series) in floats(rows, rows as u64) {
            let wide: Vec<u8> = series.iter().flat_map(|x| x.to_le_bytes()).collect();
            check(&Column::new(Physical::F64, rows, &wide, None).unwrap(), None, name);
            let single: Vec<u8> = series.iter().flat_map(|&x| (x as f32).to_le_bytes()).collect();
            check(&Column::new(Physical::F32, rows, &single, None).unwrap(), None, name);
            // The upper half of a float of 32 bits is as good as any of 16.
            let half: Vec<u8> = single.chunks(4).flat_map(|x| [x[2], x[3]]).collect();
            check(&Column::new(Physical::F16, rows, &half, None).unwrap(), None, name);
        }
    }
}

#[test]
fn null_rows_come_back_as_zero() {
    let mut random = Random(3);
    for rows in [1, 7, 64, 1000, 1025, 5000] {
        let patterns: [(&str, Vec<i64>); 6] = [
            ("none", vec![1; rows]),
            ("all", vec![0; rows]),
            ("half", (0..rows).map(|_| random.below(2) as i64).collect()),
            ("few", (0..rows).map(|_| i64::from(random.below(100) > 0)).collect()),
            ("first", (0..rows).map(|row| i64::from(row > 0)).collect()),
            ("a run", (0..rows).map(|row| i64::from(row * 3 > rows)).collect()),
        ];
        for (name, valid) in patterns {
            let validity = bytes_of(Physical::Boolean, &valid);
            for physical in Physical::ALL {
                for (_, series) in series(rows, 9).into_iter().step_by(3) {
                    let bytes = bytes_of(physical, &series);
                    let column = Column::new(physical, rows, &bytes, Some(&validity)).unwrap();
                    let encoded = check(&column, None, name);
                    let chunk = Chunk::open(physical, rows, &encoded.bytes).unwrap();
                    assert_eq!(chunk.nulls(), valid.iter().filter(|&&valid| valid == 0).count());
                }
            }
        }
    }
}

#[test]
fn a_width_that_is_wished_for_is_used_where_it_suffices() {
    for (name, series) in series(3000, 5) {
        let bytes = bytes_of(Physical::I64, &series);
        let column = Column::new(Physical::I64, 3000, &bytes, None).unwrap();
        let plan = check(&column, None, name).plan.unwrap();
        for width in [0, 1, 13, 31, 32, 33, 40, 64] {
            let own = Chunk::open(Physical::I64, 3000, &encode(&column, Some(&plan)).bytes)
                .unwrap()
                .width();
            let encoded = check(&column, Some(&plan.clone().with_width(width)), name);
            let got = Chunk::open(Physical::I64, 3000, &encoded.bytes).unwrap().width();
            // Codes of dictionaries have at most 32 bits.
            if own.is_some_and(|own| own <= width) && width <= 32 {
                assert_eq!(got, Some(width), "{name}: {own:?}, {plan:?}");
            }
        }
    }
}

#[test]
fn a_plan_of_another_column_does_no_harm() {
    let plans: Vec<Plan> = series(3000, 5)
        .into_iter()
        .map(|(name, series)| {
            let bytes = bytes_of(Physical::I64, &series);
            check(&Column::new(Physical::I64, 3000, &bytes, None).unwrap(), None, name)
        })
        .filter_map(|encoded| encoded.plan)
        .collect();
    for (name, series) in series(2000, 6) {
        for physical in [Physical::I64, Physical::I128, Physical::U8, Physical::F64] {
            let bytes = bytes_of(physical, &series);
            for plan in &plans {
                check(&Column::new(physical, 2000, &bytes, None).unwrap(), Some(plan), name);
            }
        }
    }
}

#[test]
fn examples_are_those_of_the_text() {
    let text = include_str!("../CODES.md");
    let examples: Vec<Vec<u8>> = text
        .split("```text\n")
        .skip(1)
        .map(|example| {
            let hex = example.split("```").next().unwrap().split_whitespace();
            hex.map(|byte| u8::from_str_radix(byte, 16).unwrap()).collect()
        })
        .collect();
    let column = bytes_of(Physical::I64, &[-5; 1000]);
    let column = Column::new(Physical::I64, 1000, &column, None).unwrap();
    assert_eq!(check(&column, None, "example").bytes, examples[0]);
    let line: Vec<i64> = (0..2000).map(|row| 10 + 3 * row).collect();
    let column = bytes_of(Physical::I32, &line);
    let column = Column::new(Physical::I32, 2000, &column, None).unwrap();
    let (head, parts) = examples[1].split_at(19);
    let mut bytes = head.to_vec();
    for part in parts.chunks(16) {
        bytes.resize(bytes.len().next_multiple_of(64), 0);
        bytes.extend_from_slice(part);
    }
    assert_eq!(check(&column, None, "example").bytes, bytes);
}

#[test]
fn zone_maps_that_break_a_rule_are_rejected() {
    let bytes = bytes_of(Physical::I16, &[-300, 7, 20]);
    let zones = ZoneMap::of(&Column::new(Physical::I16, 3, &bytes, Some(&[5])).unwrap());
    assert_eq!((zones.nulls, zones.sum), (1, Some(-280)));
    assert_eq!(zones.min(), Some(&(-300_i16).to_le_bytes()[..]));
    assert_eq!(zones.max(), Some(&20_i16.to_le_bytes()[..]));
    let mut right = Vec::new();
    zones.append(&mut right);
    assert!(ZoneMap::read(Physical::I16, 3, &right[..right.len() - 1]).is_none());
    // Flags, nulls, and a least value above the greatest.
    for (at, byte) in [(0, 8), (0, 2), (0, 4), (0, 1), (1, 4), (6, 0x7f)] {
        let mut wrong = right.clone();
        wrong[at] = byte;
        assert!(ZoneMap::read(Physical::I16, 3, &wrong).is_none(), "{at}");
    }
    let floats = [f64::NAN, -0.0, f64::INFINITY, 3.0].map(f64::to_le_bytes);
    let column = Column::new(Physical::F64, 4, floats.as_flattened(), Some(&[0b1011])).unwrap();
    let zones = ZoneMap::of(&column);
    assert_eq!((zones.has_nan, zones.sum), (true, None));
    assert_eq!(zones.min(), Some(&(-0.0_f64).to_le_bytes()[..]));
    assert_eq!(zones.max(), Some(&3.0_f64.to_le_bytes()[..]));
}
