//! Files in each version of the format, kept forever: later versions must still read them. Never rewrite them; a new
//! version or a new part of the format gets its own files.

mod common;

use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

use common::{decode_options, levels_and_pipelines};
use pz::{DecodeOptions, Decoder, Level, Modules, Options, Pipeline, SeekableReader};

/// The contents of each file of version 1: a number of bytes from the start of `contents`, or 100,000 zeros.
fn version_1() -> Vec<(String, Golden)> {
    let mut files: Vec<_> = levels_and_pipelines()
        .into_iter()
        .map(|(options, name)| (name.replace(' ', "-"), Golden::Part(options, usize::MAX)))
        .collect();
    let small = Options::new().content_size(0);
    files.push(("empty".into(), Golden::Part(small.clone(), 0)));
    files.push(("one-byte".into(), Golden::Part(Options::new(), 1)));
    files
        .push(("size-in-header".into(), Golden::Part(Options::new().content_size(66_000), 66_000)));
    files.push(("fill".into(), Golden::Zeros));
    files.push(("two-frames".into(), Golden::Twice));
    files.extend(single_frames());
    files.extend(modules());
    files.push(("distant".into(), Golden::Distant));
    files.push(("dictionary".into(), Golden::Dictionary));
    files.push(("near".into(), Golden::Near));
    files.push(("calls".into(), Golden::Calls));
    files
}

/// The files with modules, a later part of the format: modules from the sources in `tests/modules`, at the time of
/// writing.
fn modules() -> Vec<(String, Golden)> {
    [("module", 70_000), ("single-module", 30_000)]
        .map(|(name, len)| (name.to_string(), Golden::Modules(len)))
        .into()
}

/// The files with single frames, a later part of the format.
fn single_frames() -> Vec<(String, Golden)> {
    let mut files: Vec<_> = levels_and_pipelines()
        .into_iter()
        .map(|(options, name)| {
            (format!("single-{}", name.replace(' ', "-")), Golden::Part(options, 30_000))
        })
        .collect();
    files.push(("single-empty".into(), Golden::Part(Options::new(), 0)));
    files.push(("single-one-byte".into(), Golden::Part(Options::new(), 1)));
    files.push(("single-short".into(), Golden::Part(Options::new(), 200)));
    files.push(("single-full".into(), Golden::Part(Options::new(), 65_536)));
    files.push(("single-fill".into(), Golden::ShortZeros));
    files.push(("single-two-frames".into(), Golden::Twice));
    files.push(("single-before-another".into(), Golden::Part1000ThenAll));
    files
}

enum Golden {
    Part(Options, usize),
    Zeros,
    ShortZeros,
    Twice,
    /// This many bytes from the start, through a chain of two modules and a built-in stage.
    Modules(usize),
    /// The first thousand bytes, then all bytes.
    Part1000ThenAll,
    /// All of it, and then parts of it again, as distant matches.
    Distant,
    /// Numbers with few values, as places in a list.
    Dictionary,
    /// A part three times, then the rest. Matches also repeat the same block, a later part of the format.
    Near,
    /// Bytes with many calls of x86 and Arm programs.
    Calls,
}

impl Golden {
    fn contents(&self, all: &[u8]) -> Vec<u8> {
        match self {
            Self::Part(_, len) | Self::Modules(len) => all[..all.len().min(*len)].to_vec(),
            Self::Zeros => vec![0; 100_000],
            Self::ShortZeros => vec![0; 1000],
            Self::Twice => all[..1000].repeat(2),
            Self::Part1000ThenAll => [&all[..1000], all].concat(),
            Self::Dictionary => {
                (0..35_000_u32).flat_map(|i| (i % 97 * i % 89 * 1_000_003).to_le_bytes()).collect()
            }
            Self::Calls => common::calls(all[..50_000].iter().map(|x| x ^ x >> 3)),
            Self::Near => [&all[..30_000], &all[..30_000], all].concat(),
            Self::Distant => [all, &all[500..30_000], b"Something else.", &all[20_000..]].concat(),
        }
    }

    fn write(&self, all: &[u8]) -> Vec<u8> {
        let small = |contents: &[u8], options: &Options| {
            pz::compress(contents, &options.clone().block_size(1 << 16)).unwrap()
        };
        match self {
            Self::Part(options, _) => small(&self.contents(all), options),
            Self::Modules(_) => small(&self.contents(all), &with_modules()),
            Self::Zeros | Self::ShortZeros => small(&self.contents(all), &Options::new()),
            Self::Twice => {
                let first = small(&all[..1000], &Options::new().pipeline(Pipeline::Bwt));
                [first, small(&all[..1000], &Options::new())].concat()
            }
            Self::Dictionary => {
                let filter = "dictionary4:2,transpose2".parse().unwrap();
                small(&self.contents(all), &Options::new().filter(filter))
            }
            Self::Calls => {
                let filter = "arm64,x86".parse().unwrap();
                small(&self.contents(all), &Options::new().filter(filter))
            }
            Self::Near => {
                let options = Options::new().level(Level::MAX).long_distance(1 << 20);
                small(&self.contents(all), &options)
            }
            Self::Distant => small(&self.contents(all), &Options::new().long_distance(1 << 20)),
            Self::Part1000ThenAll => {
                [small(&all[..1000], &Options::new()), small(all, &Options::new())].concat()
            }
        }
    }
}

#[cfg(feature = "modules")]
fn with_modules() -> Options {
    let modules = [include_str!("modules/filter.wat"), include_str!("modules/words.wat")];
    let modules = modules.map(|text| {
        let module = pz::module::Module::read(wat::parse_str(text).unwrap()).unwrap();
        pz::FilterModule::new(&module).unwrap()
    });
    Options::new().modules(modules).filter("module1:3,module0,transpose2".parse().unwrap())
}

/// Only a build with the feature writes these files.
#[cfg(not(feature = "modules"))]
fn with_modules() -> Options {
    Options::new()
}

/// Decodes what this build can.
fn decoding(name: &str) -> Option<DecodeOptions> {
    let is_readable = cfg!(feature = "modules") || !name.contains("module");
    is_readable.then(|| decode_options().modules(Modules::Allow))
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

fn path(name: &str) -> PathBuf {
    folder().join("v1").join(name).with_extension("pz")
}

#[test]
fn every_golden_file_is_read() {
    let all = fs::read(folder().join("contents")).unwrap();
    let files = version_1();
    for (name, golden) in &files {
        let file = fs::read(path(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
        let contents = golden.contents(&all);
        let Some(options) = decoding(name) else {
            let refused = pz::decompress(&file, &decode_options());
            assert!(matches!(refused, Err(pz::Error::Unsupported { .. })), "{name}");
            continue;
        };
        assert!(pz::decompress(&file, &options).unwrap() == contents, "{name}");
        let mut out = Vec::new();
        Decoder::new(&file[..], &options).unwrap().copy_to(&mut out).unwrap();
        assert!(out == contents, "{name}");
        let mut reader = SeekableReader::new(Cursor::new(&file), &options).unwrap();
        let mut out = Vec::new();
        reader.copy_range(0..contents.len() as u64, &mut out).unwrap();
        assert!(out == contents, "{name}");
    }
    // The folder has exactly these files.
    assert_eq!(fs::read_dir(folder().join("v1")).unwrap().count(), files.len());
}

/// Writes the missing files, and leaves existing ones alone.
#[test]
#[ignore = "writes into the source tree: for a new part of the format only"]
fn write_missing_golden_files() {
    fs::create_dir_all(folder().join("v1")).unwrap();
    let contents = folder().join("contents");
    if !contents.exists() {
        fs::write(&contents, common::sample(70_000, 77)).unwrap();
    }
    let all = fs::read(&contents).unwrap();
    for (name, golden) in version_1() {
        if !path(&name).exists() {
            fs::write(path(&name), golden.write(&all)).unwrap();
        }
    }
}
