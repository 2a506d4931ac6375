//! Damaged codes: the decoder and the oracle agree on each, and neither panics.

use super::columns::{Random, bytes_of, floats, series};
use super::*;

/// Codes of many shapes, with the type and the number of rows.
fn codes() -> Vec<(String, Physical, usize, Vec<u8>)> {
    let mut all = Vec::new();
    let mut add = |name: &str, physical, rows, bytes: &[u8], validity: Option<&[u8]>| {
        let column = Column::new(physical, rows, bytes, validity).unwrap();
        let encoded = encode(&column, None);
        all.push((format!("{name}, {:?}", encoded.plan), physical, rows, encoded.bytes));
    };
    let rows = 1100;
    for (name, series) in series(rows, 1) {
        add(name, Physical::I64, rows, &bytes_of(Physical::I64, &series), None);
        add(name, Physical::U16, rows, &bytes_of(Physical::U16, &series), None);
    }
    for (name, series) in floats(rows, 1) {
        let bytes: Vec<u8> = series.iter().flat_map(|x| x.to_le_bytes()).collect();
        add(name, Physical::F64, rows, &bytes, None);
    }
    let flags: Vec<i64> = (0..rows as i64).map(|row| row / 90).collect();
    let validity = bytes_of(Physical::Boolean, &flags);
    add("flags", Physical::Boolean, rows, &validity, None);
    let random = bytes_of(Physical::Boolean, &series(rows, 1)[1].1);
    add("random flags", Physical::Boolean, rows, &random, Some(&random));
    add("nulls", Physical::U8, rows, &bytes_of(Physical::U8, &flags), Some(&random));
    add("nulls", Physical::U8, rows, &[7; 1100], Some(&validity));
    let wide = bytes_of(Physical::I256, &series(300, 1)[1].1);
    add("wide", Physical::I256, 300, &wide, None);
    all
}

/// Each kind of node is among the codes.
#[test]
fn codes_have_every_kind() {
    let names: String = codes().into_iter().map(|(name, ..)| name).collect();
    for kind in
        ["Plain", "Constant", "Packed", "Line", "Dictionary", "Runs", "Decimal", "Split", "Bits"]
    {
        assert!(names.contains(kind), "{kind} is missing in {names}");
    }
    assert!(names.contains("near: true") && names.contains("near: false"));
}

fn mutate(code: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(3) {
        if code.is_empty() {
            return;
        }
        let len = code.len() as u64;
        // Fields are few beside parts, so half of the changes hit the first bytes.
        let reach = if random.below(2) == 0 { len } else { len.min(80) };
        let at = random.below(reach) as usize;
        match random.below(7) {
            0 => code[at] ^= 1 << random.below(8),
            1 => code[at] = random.next() as u8,
            2 => code[at] = [0, 1, 2, 0x7f, 0x80, 0xff][random.below(6) as usize],
            3 => code.truncate(at),
            4 => code.insert(at, random.next() as u8),
            5 => {
                let end = (at + 1 + random.below(16) as usize).min(code.len());
                code[at..end].fill([0, 0xff][random.below(2) as usize]);
            }
            _ => {
                let from = random.below(len) as usize;
                let count = (random.below(16) as usize).min(code.len() - at.max(from));
                code.copy_within(from..from + count, at);
            }
        }
    }
}

/// Compares decoder and oracle on as many mutants of each code. Returns how many were accepted.
fn compare(per_code: u64) -> u64 {
    let (mut accepted, mut random) = (0, Random(99));
    let backends: Vec<Backend> = Backend::all().collect();
    for (name, physical, rows, code) in codes() {
        for i in 0..per_code {
            let mut mutant = code.clone();
            mutate(&mut mutant, &mut random);
            // Another length than the code's own is a mutation too.
            let rows = if random.below(50) == 0 { 1 + random.below(2200) as usize } else { rows };
            let backend = backends[i as usize % backends.len()];
            let got = Chunk::open_on(backend, physical, rows, &mutant);
            let right = expected(physical, rows, &mutant);
            assert_eq!(got.is_ok(), right.is_some(), "{name}: {:?}", got.err());
            if let (Ok(chunk), Some(right)) = (got, right) {
                accepted += 1;
                let got = decoded(&chunk);
                assert!(got == right, "{name}");
                let validity = Some(&*right[1]);
                let column = Column::new(physical, rows, &right[0], validity).unwrap();
                for range in [0..=1200, i128::MIN..=i128::MAX] {
                    assert_eq!(chunk.sum(range.clone()), naive_sum(&column, range), "{name}");
                }
            }
        }
    }
    accepted
}

#[test]
fn mutants_are_rejected_or_decoded_as_the_text_says() {
    assert!(compare(200) > 1000);
}

#[test]
#[ignore = "takes minutes; run it after a change of the format"]
fn a_million_mutants_are_rejected_or_decoded_as_the_text_says() {
    assert!(compare(20_000) > 100_000);
}

/// The comparison above can fail: a fault in what one side sees is found.
#[test]
fn a_planted_fault_is_found() {
    for (name, physical, rows, code) in codes() {
        let right = expected(physical, rows, &code).unwrap();
        let mut found = false;
        for at in (0..code.len()).rev() {
            let mut faulty = code.clone();
            faulty[at] ^= 1;
            let chunk = Chunk::open(physical, rows, &faulty);
            found |= chunk.is_ok_and(|chunk| decoded(&chunk) != right);
        }
        assert!(found, "{name}");
    }
}
