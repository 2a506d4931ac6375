//! Writes files of many kinds into a folder, for `scripts/test.sh` to compress at every level.

use std::path::PathBuf;
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let folder = env::args_os().nth(1).map(PathBuf::from);
    let folder = folder.ok_or_else(|| io::Error::other("usage: mixed_set DIR"))?;
    fs::create_dir_all(&folder)?;
    let noise = noise(1 << 20);
    let sizes = [0, 1, 13, 65_535, 65_536, 65_537];
    let mut files: Vec<(String, Vec<u8>)> = vec![
        ("text".into(), text(700_000)),
        ("table".into(), table(12_000)),
        ("weights".into(), weights(150_000)),
        ("random".into(), noise.clone()),
        ("zeros".into(), vec![0; 20_000_000]),
        ("executable".into(), executable()?),
    ];
    files.extend(sizes.map(|len| (format!("text-{len}"), text(len))));
    files.extend(sizes.map(|len| (format!("random-{len}"), noise[..len].to_vec())));
    for (name, contents) in files {
        fs::write(folder.join(name), contents)?;
    }
    Ok(())
}

/// Marsaglia's xorshift64.
fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// Words whose frequencies fall as in natural language.
fn text(len: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15;
    let mut out = String::new();
    while out.len() < len {
        let bits = random(&mut state);
        let word = (bits >> 32) % (1 << (bits % 12)) * 7919 % 5003;
        let syllables = ["ka", "to", "mi", "ra", "sen", "lo", "du", "the", "ing", "s"];
        let mut rest = word;
        while rest > 0 {
            out += syllables[rest as usize % 10];
            rest /= 10;
        }
        out += if bits >> 60 == 0 { ".\n" } else { " " };
    }
    out.truncate(len);
    out.into_bytes()
}

/// Lines of comma-separated fields: some count up, some repeat, some vary.
fn table(rows: u64) -> Vec<u8> {
    let mut state = 2;
    let line = |i| {
        let bits = random(&mut state);
        let city = ["Oslo", "Lima", "Cairo", "Hanoi"][bits as usize % 4];
        format!(
            "{i},{city},{:.2},2024-{:02}-{:02}\n",
            (bits >> 40) as f64 / 1e4,
            bits % 12 + 1,
            i % 28 + 1
        )
    };
    (0..rows).map(line).collect::<String>().into_bytes()
}

/// Single-precision numbers around zero, like those of a trained network.
fn weights(count: usize) -> Vec<u8> {
    let mut state = 3;
    let uniform = |bits: u64| (bits >> 40) as f32 / (1 << 24) as f32 - 0.5;
    (0..count)
        .flat_map(|_| {
            let sum: f32 = (0..6).map(|_| uniform(random(&mut state))).sum();
            (sum * 0.05).to_le_bytes()
        })
        .collect()
}

fn noise(len: usize) -> Vec<u8> {
    let mut state = 4;
    (0..len).map(|_| (random(&mut state) >> 24) as u8).collect()
}

/// The beginning of this program.
fn executable() -> io::Result<Vec<u8>> {
    let mut bytes = fs::read(env::current_exe()?)?;
    bytes.truncate(1 << 20);
    Ok(bytes)
}
