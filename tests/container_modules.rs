//! Blocks that modules filter, through every entry point: round trips, trust, ranges, limits, damage and recovery.

#![cfg(feature = "modules")]

mod common;

use std::io::{Cursor, Read, Write};
use std::sync::Arc;

use common::{Trickle, decode_options, sample};
use pz::access::{Archive, ArchiveError, ArchiveOptions, publish, withdraw};
use pz::module::Module;
use pz::{
    Compressor, DecodeOptions, Decoder, Encoder, Error, ErrorClass, FilterModule, Listing, Method,
    Modules, Options, Piece, Pipeline, Recovery, SeekableReader,
};

fn module(text: &str) -> Module {
    Module::read(wat::parse_str(text).unwrap()).unwrap_or_else(|refusal| panic!("{refusal}"))
}

/// The module of `tests/modules/filter.wat`, in lanes of 1024 bytes.
fn filter() -> FilterModule {
    let module = module(include_str!("modules/filter.wat"));
    FilterModule::new(&module).unwrap().lane_bytes(1024).unwrap()
}

/// Sawteeth, whose differences are small.
fn contents(len: usize) -> Vec<u8> {
    (0..len).map(|i| (3 * i + i / 1000 * 7 + (i.wrapping_mul(i) >> 9) % 2) as u8).collect()
}

fn with(options: Options, chain: &str) -> Options {
    options.modules([filter()]).filter(chain.parse().unwrap())
}

fn allowed() -> DecodeOptions {
    decode_options().modules(Modules::Allow)
}

/// Two blocks and a bit, in lanes of 1024 bytes.
fn file(chain: &str) -> (Vec<u8>, Vec<u8>) {
    let contents = contents(150_001);
    let options = with(Options::new().block_size(1 << 16), chain);
    (pz::compress(&contents, &options).unwrap(), contents)
}

#[test]
fn every_entry_point_restores_blocks_of_modules() {
    for len in [0, 1, 2, 300, 1024, 65_536, 65_537, 200_001, 1_200_007] {
        let contents = contents(len);
        for pipeline in Pipeline::ALL {
            for chain in ["module0", "module0:7,transpose4", "transpose4,module0:65535,zigzag1"] {
                let block_log = if len > 1 << 20 { 20 } else { 16 };
                let options =
                    with(Options::new(), chain).pipeline(pipeline).block_size(1 << block_log);
                let small = pz::compress(&contents, &options.clone().threads(1)).unwrap();
                let what = format!("{pipeline} {chain} {len}");
                for threads in [1, 2, 8] {
                    let options = options.clone().threads(threads);
                    assert!(pz::compress(&contents, &options).unwrap() == small, "{what}");
                    let mut compressor = Compressor::new(&options).unwrap();
                    let mut out = Vec::new();
                    compressor.compress_to(&contents, &mut out).unwrap();
                    assert!(out == small, "{what}");
                    let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
                    encoder.write_all(&contents).unwrap();
                    assert!(encoder.finish().unwrap() == small, "{what}");
                    let decode = allowed().threads(threads);
                    assert!(pz::decompress(&small, &decode).unwrap() == contents, "{what}");
                    let mut out = Vec::new();
                    Decoder::new(&small[..], &decode).unwrap().read_to_end(&mut out).unwrap();
                    assert!(out == contents, "{what}");
                }
            }
        }
    }
}

#[test]
fn modules_help_and_lists_show_them() {
    let (small, contents) = file("module0:3,transpose2");
    let plain = pz::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    assert!(2 * small.len() < plain.len(), "{} {}", small.len(), plain.len());
    let frames = pz::list(&mut Cursor::new(&small), true).unwrap();
    assert_eq!(frames.len(), 1);
    let [shown] = &frames[0].modules[..] else { panic!("{:?}", frames[0].modules) };
    assert_eq!(shown.sha256, filter().sha256());
    assert_eq!((shown.fuel, shown.lane_bytes), (16 << 10, 1024));
    assert_eq!(shown.name.as_deref(), Some("bytes"));
    for block in &frames[0].blocks {
        assert_eq!(block.method, Method::Lz77);
        assert_eq!(block.filters.unwrap().to_string(), "module0:3,transpose2");
    }
    // A frame without filtered blocks carries no module, and neither does a file whose chain has none.
    for (contents, chain) in [(&b"short"[..], "module0"), (&contents, "transpose2")] {
        let small = pz::compress(contents, &with(Options::new(), chain)).unwrap();
        assert!(pz::list(&mut Cursor::new(&small), false).unwrap()[0].modules.is_empty());
        assert!(pz::decompress(&small, &decode_options()).unwrap() == contents);
    }
    let stored = with(Options::new().pipeline(Pipeline::Store), "module0");
    let stored = pz::compress(&contents, &stored).unwrap();
    assert!(pz::decompress(&stored, &decode_options()).unwrap() == contents);
}

/// Decodes `file` in every way, and returns the results.
fn decoded(file: &[u8], options: &DecodeOptions) -> Vec<(&'static str, Result<Vec<u8>, Error>)> {
    let stream = || {
        let mut out = Vec::new();
        Decoder::new(file, options)?.copy_to(&mut out)?;
        Ok(out)
    };
    let pipe = || {
        let mut out = Vec::new();
        Decoder::new(Trickle(file), options)?.copy_to(&mut out)?;
        Ok(out)
    };
    let ranges = || {
        let mut reader = SeekableReader::new(Cursor::new(file), options)?;
        let (mut out, len) = (Vec::new(), reader.len());
        let middle = len / 3;
        reader.copy_range(0..middle, &mut out)?;
        reader.copy_range(middle..len, &mut out)?;
        Ok(out)
    };
    let pieces = || {
        let mut recovery = Recovery::new(Cursor::new(file), options)?;
        let mut out = Vec::new();
        while let Some(piece) = recovery.next_piece()? {
            if let Piece::Block { contents, .. } = piece {
                out.extend_from_slice(contents);
            }
        }
        Ok(out)
    };
    let archive = || {
        let name = format!("modules-{:?}", file.as_ptr());
        publish(name.clone(), file);
        let read = || {
            let options = ArchiveOptions::new().decode(options);
            let archive = Archive::open(&format!("memio://{name}"), &options)?;
            let mut contents = vec![0; archive.len() as usize];
            archive.read_into(0..archive.len(), &mut contents[..])?;
            Ok(contents)
        };
        let contents = read().map_err(|error| match error {
            ArchiveError::Format { error, .. } => Arc::try_unwrap(error)
                .unwrap_or_else(|error| Error::Io(std::io::Error::other(error.to_string()))),
            error => Error::Io(std::io::Error::other(error)),
        });
        withdraw(&name);
        contents
    };
    vec![
        ("slice", pz::decompress(file, options)),
        ("stream", stream()),
        ("pipe", pipe()),
        ("ranges", ranges()),
        ("recovery", pieces()),
        ("archive", archive()),
    ]
}

#[test]
fn untrusted_modules_do_not_run() {
    let single = pz::compress(&contents(10_000), &with(Options::new(), "module0")).unwrap();
    for (file, contents) in [file("module0"), (single, contents(10_000))] {
        let own = filter().sha256();
        for modules in [Modules::Refuse, Modules::Trusted(vec![]), Modules::Trusted(vec![[7; 32]])]
        {
            assert_eq!(DecodeOptions::new(), DecodeOptions::new().modules(Modules::default()));
            for (way, result) in decoded(&file, &decode_options().modules(modules.clone())) {
                let error = result.unwrap_err();
                assert_eq!(error.class(), ErrorClass::Environment, "{way}");
                let hex: String = own.iter().map(|byte| format!("{byte:02x}")).collect();
                assert!(error.to_string().contains(&hex), "{way}: {error}");
            }
        }
        for modules in [Modules::Allow, Modules::Trusted(vec![[7; 32], own])] {
            for (way, result) in decoded(&file, &decode_options().modules(modules)) {
                assert!(result.unwrap() == contents, "{way}");
            }
        }
    }
}

#[test]
fn ranges_and_nested_ranges() {
    let (mut small, mut whole) = file("module0:9");
    // Frames with other modules, with the same, and with none.
    let other = module(&include_str!("modules/filter.wat").replace("4094", "4093"));
    let other = FilterModule::new(&other).unwrap();
    for options in [
        with(Options::new(), "module0"),
        Options::new(),
        Options::new()
            .modules([other.clone(), filter()])
            .filter("module1,module0:2".parse().unwrap()),
        Options::new().modules([other]).filter("module0:1".parse().unwrap()).block_size(1 << 16),
    ] {
        let part = contents(70_000);
        small.extend(pz::compress(&part, &options).unwrap());
        whole.extend(part);
    }
    for (way, result) in decoded(&small, &allowed()) {
        assert!(result.unwrap() == whole, "{way}");
    }
    let mut reader = SeekableReader::new(Cursor::new(&small), &allowed().threads(2)).unwrap();
    for range in
        [0..1, 65_535..65_537, 149_999..151_000, 0..300_000, 219_000..360_123, 430_000..430_001]
    {
        let mut out = Vec::new();
        reader.copy_range(range.clone(), &mut out).unwrap();
        assert!(out == whole[range.start as usize..range.end as usize], "{range:?}");
    }
    let mut list = Listing::new(Cursor::new(&small), &DecodeOptions::new()).unwrap();
    let mut counts = Vec::new();
    while let Some(frame) = list.next_frame().unwrap() {
        counts.push(frame.modules.len());
    }
    assert_eq!(counts, [1, 1, 0, 2, 1]);
}

#[test]
fn an_encoder_says_what_a_module_did_wrong() {
    let text = |body: &str| {
        format!(
            r#"(module
            (import "pz" "in8" (func $in8 (param i32) (result i32)))
            (import "pz" "out8" (func $out8 (param i32 i32)))
            (func (export "encode") (param $lane i32) (param i32 i32 i32 i32)
                (call $out8 (local.get $lane) (i32.const 1)))
            (func (export "decode") (param $lane i32) (param $lanes i32) (param $len i32) {body}))"#
        )
    };
    // Fuel is used for work, however few turns a loop takes.
    let divisions = "(local.set $d (i64.div_s (local.get $d) (i64.const -1)))".repeat(3000);
    let slow = format!(
        "(local $turns i32) (local $d i64) (local.set $turns (i32.const 1000)) (loop $l {divisions}
            (br_if $l (local.tee $turns (i32.sub (local.get $turns) (i32.const 1)))))"
    );
    for (body, expected) in [
        ("", "`decode` does not restore what `encode` was given"),
        (&slow, "`decode` ran out of fuel"),
        ("(unreachable)", "`decode` gave up"),
        ("(loop $l (br $l))", "`decode` ran out of fuel"),
        ("(drop (call $in8 (local.get $len)))", "`decode` reached beyond its input or output"),
        (
            "(drop (i32.div_u (local.get $lane) (i32.const 0)))",
            "`decode` divided by zero, or the quotient does not fit",
        ),
    ] {
        let filter = FilterModule::new(&module(&text(body))).unwrap();
        let options = Options::new().modules([filter.clone()]).filter("module0".parse().unwrap());
        let options = options.block_size(1 << 16);
        for threads in [1, 4] {
            let failed = pz::compress(&sample(200_000, 1), &options.clone().threads(threads));
            let Err(Error::ModuleFailed { sha256, block: 0, what }) = failed else {
                panic!("{body}: {failed:?}")
            };
            assert_eq!((sha256, what), (filter.sha256(), expected));
        }
    }
    // Encoder and decoder both get the declared fuel. 69 lanes have 1015 bytes each, and enter the loop once more to
    // find its end. A turn counts 40 instructions.
    let short = filter().fuel(2 * 1016 - 1).unwrap();
    let options = Options::new().modules([short]).filter("module0".parse().unwrap());
    let failed = pz::compress(&contents(70_000), &options).unwrap_err();
    assert!(
        failed.to_string().ends_with("cannot filter block 0: `encode` ran out of fuel"),
        "{failed}"
    );
    let enough = filter().fuel(2 * 1016).unwrap();
    let options = Options::new().modules([enough]).filter("module0".parse().unwrap());
    pz::compress(&contents(70_000), &options).unwrap();
}

#[test]
fn options_that_name_no_module_are_refused() {
    for (chain, modules) in
        [("module0", 0), ("module1", 1), ("module6", 7), ("transpose2,module0", 7)]
    {
        let options =
            Options::new().modules(vec![filter(); modules]).filter(chain.parse().unwrap());
        let refused = pz::compress(&[7; 1000], &options);
        assert!(matches!(refused, Err(Error::InvalidFilter { .. })), "{chain} {modules}");
    }
    for name in ["module", "module256", "module0:65536", "module-1", "module0x2", "module0:"] {
        assert!(name.parse::<pz::FilterChain>().is_err(), "{name}");
    }
    for bytes in [0, 1, 128, 300, 2 << 20] {
        assert!(filter().lane_bytes(bytes).is_err(), "{bytes}");
    }
    assert!(filter().fuel(0).is_err() && filter().fuel(256 * 1024 + 1).is_err());
    let lacks = module(r#"(module (func (export "decode")))"#);
    let refusal = FilterModule::new(&lacks).unwrap_err();
    assert!(refusal.to_string().contains("encode"), "{refusal}");
}

/// Sets the bytes of the frame header at `at`, and makes its checksum agree.
fn forge_header(file: &mut [u8], at: usize, bytes: &[u8]) {
    file[at..at + bytes.len()].copy_from_slice(bytes);
    let len = LIST + 41;
    let checksum = crc32c::crc32c(&file[..len]);
    file[len..len + 4].copy_from_slice(&checksum.to_le_bytes());
}

/// Where the list of modules begins in the header of a frame that does not declare its length.
const LIST: usize = 13;

/// Sets the argument of block 0's first stage, and makes the header's checksum agree.
fn forge_argument(file: &mut [u8], argument: u16) {
    let len = usize::from(u16::from_le_bytes([file[LIST + 33], file[LIST + 34]])) + 1;
    let block = LIST + 41 + 4 + len;
    assert_eq!(file[block..block + 2], [0xB7, 0x42]);
    file[block + 22..block + 24].copy_from_slice(&argument.to_le_bytes());
    let checksum = crc32c::crc32c(&file[block..block + 36]);
    file[block + 36..block + 40].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn a_failing_module_costs_only_its_block() {
    for (argument, what) in [
        (256, "the block's module gave up"),
        (257, "the block's module ran out of fuel"),
        (258, "the block's module reached beyond its input or output"),
        (259, "the block's module reached beyond its private memory"),
        (260, "the block's module divided by zero"),
        (261, "the checksum of the block's contents does not agree"),
        (1, "the checksum of the block's contents does not agree"),
    ] {
        let (mut file, whole) = file("module0");
        forge_argument(&mut file, argument);
        for (way, result) in decoded(&file, &allowed()) {
            if way == "recovery" {
                // Recovery saves the other blocks.
                assert!(result.unwrap() == whole[1 << 16..], "{argument}");
                continue;
            }
            let error = result.unwrap_err().to_string();
            assert!(error.contains(what) && error.contains("block 0"), "{way}: {error}");
        }
        let mut reader = SeekableReader::new(Cursor::new(&file), &allowed()).unwrap();
        let mut rest = Vec::new();
        reader.copy_range(65_536..whole.len() as u64, &mut rest).unwrap();
        assert!(rest == whole[65_536..]);
    }
}

#[test]
fn forged_entries_are_refused() {
    let (good, _) = file("module0");
    for (what, at, bytes, expected) in [
        ("hash", LIST + 1, &[1, 2, 3][..], "does not agree with its hash"),
        ("no fuel", LIST + 35, &[0; 4], "out of range"),
        ("endless fuel", LIST + 35, &[255; 4], "out of range"),
        ("short lanes", LIST + 39, &[7], "out of range"),
        ("long lanes", LIST + 39, &[21], "out of range"),
        ("reserved", LIST + 40, &[1], "unsupported"),
        ("length", LIST + 33, &[9, 0], "does not agree with its hash"),
        ("list", LIST, &[39], ""),
    ] {
        let mut file = good.clone();
        forge_header(&mut file, at, bytes);
        for (way, result) in decoded(&file, &allowed()) {
            if way != "recovery" {
                let error = result.unwrap_err().to_string();
                assert!(error.contains(expected), "{what}, {way}: {error}");
            }
        }
    }
    // Less fuel than the module needs, and more lanes than it was made for.
    for (at, bytes, expected) in [
        (LIST + 35, &1024_u32.to_le_bytes()[..], "ran out of fuel"),
        (LIST + 39, &[9], "does not agree"),
    ] {
        let mut file = good.clone();
        forge_header(&mut file, at, bytes);
        let error = pz::decompress(&file, &allowed()).unwrap_err().to_string();
        assert!(error.contains(expected) && error.contains("block 0"), "{error}");
    }
    // A module that does not follow the rules, with its right hash: `call` 0 becomes an invalid instruction.
    let mut file = good.clone();
    let start = LIST + 45;
    let len = usize::from(u16::from_le_bytes([file[LIST + 33], file[LIST + 34]])) + 1;
    file[start + 8] ^= 0x70;
    use sha2::Digest as _;
    let hash: [u8; 32] = sha2::Sha256::digest(&file[start..start + len]).into();
    forge_header(&mut file, LIST + 1, &hash);
    let error = pz::decompress(&file, &allowed()).unwrap_err().to_string();
    assert!(error.contains("breaks a rule"), "{error}");
    // A block that names a module that its frame does not list.
    let (mut file, _) = (good.clone(), ());
    let block = start + len;
    file[block + 21] = 1;
    let checksum = crc32c::crc32c(&file[block..block + 36]);
    file[block + 36..block + 40].copy_from_slice(&checksum.to_le_bytes());
    let error = pz::decompress(&file, &allowed()).unwrap_err().to_string();
    assert!(error.contains("names a module that the frame lacks"), "{error}");
}

#[test]
fn damage_anywhere_is_found() {
    let single =
        pz::compress(&contents(3000), &with(Options::new(), "module0,transpose2")).unwrap();
    let frame =
        pz::compress(&contents(70_000), &with(Options::new().block_size(1 << 16), "module0:3"));
    for file in [single, frame.unwrap()] {
        for bit in (0..8 * file.len()).step_by(if file.len() > 3000 { 7 } else { 3 }) {
            let mut damaged = file.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(pz::decompress(&damaged, &allowed()).is_err(), "bit {bit}");
        }
        for len in (0..file.len()).step_by(5) {
            assert!(pz::decompress(&file[..len], &allowed()).is_err(), "{len} bytes");
        }
    }
}

#[test]
fn unfiltered_blocks_are_saved_without_modules() {
    let (mut damaged, whole) = file("module0");
    // A block of one byte repeated is not filtered, and needs no module.
    let zeros = vec![0; 200_000];
    let of_zeros = with(Options::new().block_size(1 << 16), "module0");
    let mut zeros_file = pz::compress(&zeros, &of_zeros).unwrap();
    for file in [&mut damaged, &mut zeros_file] {
        file[LIST + 100] ^= 1;
    }
    let saved = |file: &[u8], options: &DecodeOptions| {
        let mut recovery = Recovery::new(Cursor::new(file), options).unwrap();
        let mut saved = Vec::new();
        while let Some(piece) = recovery.next_piece().unwrap() {
            if let Piece::Block { contents, .. } = piece {
                saved.extend_from_slice(contents);
            }
        }
        saved
    };
    assert!(saved(&zeros_file, &decode_options()) == zeros);
    assert!(saved(&damaged, &allowed()).is_empty(), "of {}", whole.len());
    // If the module is intact, a damaged block costs no other block.
    let (mut damaged, whole) = file("module0");
    let blocks = &pz::list(&mut Cursor::new(&damaged), true).unwrap()[0].blocks;
    damaged[blocks[1].payload_offset as usize + 20] ^= 1;
    let expected = [&whole[..65_536], &whole[131_072..]].concat();
    assert!(saved(&damaged, &allowed()) == expected);
}

#[test]
fn limits_hold_for_modules() {
    let (file, contents) = file("module0");
    let limited = allowed().max_output(contents.len() as u64 - 1);
    assert!(matches!(pz::decompress(&file, &limited), Err(Error::LimitOutput { .. })));
    let needed = pz::list(&mut Cursor::new(&file), false).unwrap()[0].decode_memory;
    let plain = pz::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let without = pz::list(&mut Cursor::new(&plain), false).unwrap()[0].decode_memory;
    assert!(needed > without);
    for (limit, fits) in [(needed - 1, false), (needed, true)] {
        let decoder = Decoder::new(&file[..], &allowed().max_memory(limit));
        let outcome = decoder.and_then(|mut decoder| decoder.verify());
        assert_eq!(outcome.is_ok(), fits, "{limit}");
        if !fits {
            assert!(matches!(outcome, Err(Error::LimitMemory { .. })));
        }
    }
}
