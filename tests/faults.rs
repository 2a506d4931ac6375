//! Damaged and hostile files give the right contents or an error, in bounded time and memory.

mod common;

use std::io::Cursor;

use common::{decode_options, levels_and_pipelines, sample};
use proptest::prelude::*;
use pz::{DecodeOptions, Decoder, Error, ErrorClass, Options, Pipeline, SeekableReader};

/// Gives `file` to every decoder. Each must restore `contents`, or report what is wrong with the input.
fn check(file: &[u8], contents: &[u8], what: &dyn std::fmt::Display) {
    let verdict = |result: Result<Vec<u8>, Error>, by: &str| match result {
        Ok(out) => {
            assert!(out == contents, "{what}: {by} gave other contents");
            true
        }
        Err(error) => {
            assert_eq!(error.class(), ErrorClass::Input, "{what}: {by}: {error}");
            false
        }
    };
    let options = decode_options();
    let whole = verdict(pz::decompress(file, &options), "decompress");
    let mut out = Vec::new();
    let streamed = Decoder::new(file, &options).and_then(|mut d| d.copy_to(&mut out));
    let streamed = verdict(streamed.map(|_| out), "Decoder");
    assert_eq!(whole, streamed, "{what}: the decoders disagree");
    // Random access reads less of the file. It may miss faults that other readers report, but must not report faults
    // that they do not.
    let mut out = Vec::new();
    let ranged = SeekableReader::new(Cursor::new(file), &options)
        .and_then(|mut reader| reader.copy_range(0..reader.len(), &mut out));
    let ranged = verdict(ranged.map(|()| out), "SeekableReader");
    assert!(ranged || !whole, "{what}: random access refuses a sound file");
}

/// Small files of every pipeline, with and without optional parts, and their contents.
fn small_files() -> Vec<(String, Vec<u8>, Vec<u8>)> {
    let mut files = Vec::new();
    for pipeline in Pipeline::ALL {
        for contents in [vec![], vec![9; 100], sample(150, 7), b"abcabcabcabcabcabc".repeat(9)] {
            let options = Options::new().pipeline(pipeline);
            let small = pz::compress(&contents, &options).unwrap();
            files.push((format!("{pipeline} {}", contents.len()), small, contents));
        }
    }
    let parts = [craft::frame_header(0, 16, Some(4)), craft::store(16, 0, b"four")].concat();
    let end = craft::end(&[], 4, parts.len() as u64 + 22);
    files.push(("size in header".into(), [parts, end].concat(), b"four".to_vec()));
    files
}

#[test]
fn every_byte_set_to_every_value() {
    for (name, file, contents) in small_files() {
        let mut damaged = file.clone();
        for at in 0..file.len() {
            for value in 0..=255 {
                damaged[at] = value;
                check(&damaged, &contents, &format_args!("{name} byte {at} = {value}"));
            }
            damaged[at] = file[at];
        }
    }
}

#[test]
fn every_truncation_is_noticed() {
    let mut files = small_files();
    for (options, name) in levels_and_pipelines() {
        let contents = sample(140_000, 8);
        let small = pz::compress(&contents, &options.block_size(1 << 16)).unwrap();
        files.push((name, small, contents));
    }
    for (name, file, contents) in files {
        let step = (file.len() / 400).max(1);
        for len in (0..file.len()).step_by(step).chain(file.len().saturating_sub(50)..file.len()) {
            check(&file[..len], &contents, &format_args!("{name} cut to {len}"));
            let error = pz::decompress(&file[..len], &decode_options()).unwrap_err();
            assert!(matches!(error, Error::Truncated { .. }), "{name} cut to {len}: {error}");
        }
        let mut longer = file.clone();
        for extra in [&b"\0"[..], b"\n", b"garbage", &[0; 100], b"\0\n", &file[..8]] {
            longer.truncate(file.len());
            longer.extend_from_slice(extra);
            // Zeros are padding; nothing else may follow.
            let is_padding = extra.iter().all(|&byte| byte == 0);
            let decoded = pz::decompress(&longer, &decode_options());
            assert_eq!(decoded.is_ok(), is_padding, "{name} {extra:?}");
            check(&longer, &contents, &format_args!("{name} followed by {extra:?}"));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn damage_anywhere(
        which in 0..14_usize,
        at in any::<prop::sample::Index>(),
        run in prop::collection::vec(any::<u8>(), 0..40),
        removed in 0..40_usize,
        seed in 0..4_u64,
    ) {
        let contents = sample(150_000, seed);
        let (options, name) = levels_and_pipelines().swap_remove(which);
        let mut file = pz::compress(&contents, &options.block_size(1 << 16)).unwrap();
        let at = at.index(file.len());
        let end = (at + removed).min(file.len());
        file.splice(at..end, run);
        check(&file, &contents, &name);
        // Saved contents are right, and lie at the piece's offset.
        let options = DecodeOptions::new();
        let Ok(mut recovery) = pz::Recovery::new(Cursor::new(&file), &options) else {
            return Ok(());
        };
        while let Some(piece) = recovery.next_piece().unwrap() {
            if let pz::Piece::Block { range, contents: part, .. } = piece {
                prop_assert!(part == &contents[range.start as usize..range.end as usize]);
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Damaged payloads with correct checksums, which an attacker can construct.
    #[test]
    fn damage_with_correct_checksums(
        which in 0..14_usize,
        len in 1..3000_usize,
        seed in 0..4_u64,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in 0..3_usize,
    ) {
        let contents = sample(len, seed);
        let (options, name) = levels_and_pipelines().swap_remove(which);
        let file = pz::compress(&contents, &options).unwrap();
        let block = pz::list(&mut Cursor::new(&file), true).unwrap().remove(0).blocks.remove(0);
        if block.method == pz::Method::Store {
            return Ok(());
        }
        let start = block.offset as usize;
        let end = start + block.compressed_size as usize;
        let mut payload = file[start + 27..end].to_vec();
        for (at, value) in &changes {
            let at = at.index(payload.len());
            payload[at] ^= value;
        }
        payload.truncate(payload.len().saturating_sub(cut).max(1));
        let mut header = file[start..start + 23].to_vec();
        header[11..15].copy_from_slice(&(payload.len() as u32).to_le_bytes());
        header[15..19].copy_from_slice(&crc32c::crc32c(&payload).to_le_bytes());
        let parts = [&file[..start], &craft::sealed(header), &payload].concat();
        let tail = craft::end(&[], len as u64, parts.len() as u64 + 22);
        check(&[parts, tail].concat(), &contents, &name);
    }
}

#[test]
fn noise_is_not_a_file() {
    for len in [1, 7, 8, 30, 1000] {
        let noise = vec![0x89; len];
        assert!(pz::decompress(&noise, &decode_options()).is_err());
        assert!(
            matches!(Decoder::new(&noise[..], &decode_options()).err(), Some(e) if e.class() == ErrorClass::Input)
        );
        assert!(SeekableReader::new(Cursor::new(&noise), &decode_options()).is_err());
        assert!(pz::list(&mut Cursor::new(&noise), true).is_err());
        assert!(pz::Recovery::new(Cursor::new(&noise), &decode_options()).is_err());
    }
    let mut empty = Cursor::new(b"");
    assert!(pz::list(&mut empty, false).is_err());
    assert!(matches!(pz::decompress(b"", &decode_options()), Err(Error::Truncated { .. })));
}

/// Handmade structures with correct checksums and wrong fields.
mod craft {
    use crc32c::crc32c;

    pub fn sealed(mut bytes: Vec<u8>) -> Vec<u8> {
        let checksum = crc32c(&bytes);
        bytes.extend_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub fn frame_header(pipeline: u8, block_log: u8, content_size: Option<u64>) -> Vec<u8> {
        let mut bytes = b"\x89PZF\r\n\x1a\n".to_vec();
        bytes.extend([1, pipeline, block_log, 3, u8::from(content_size.is_some())]);
        bytes.extend(content_size.iter().flat_map(|size| size.to_le_bytes()));
        sealed(bytes)
    }

    pub fn store(block_log: u8, number: u32, contents: &[u8]) -> Vec<u8> {
        store_claiming(block_log, number, contents.len() as u32, contents)
    }

    pub fn store_claiming(block_log: u8, number: u32, len: u32, contents: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0xB7, 0x42, (block_log - 16) << 4];
        bytes.extend(number.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(crc32c(contents).to_le_bytes());
        let mut bytes = sealed(bytes);
        bytes.extend_from_slice(contents);
        bytes
    }

    pub fn coded(
        method: u8,
        block_log: u8,
        number: u32,
        len: u32,
        payload: &[u8],
        claim: u32,
    ) -> Vec<u8> {
        let mut bytes = vec![0xB7, 0x42, method | (block_log - 16) << 4];
        bytes.extend(number.to_le_bytes());
        bytes.extend(len.to_le_bytes());
        bytes.extend(claim.to_le_bytes());
        bytes.extend(crc32c(payload).to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        let mut bytes = sealed(bytes);
        bytes.extend_from_slice(payload);
        bytes
    }

    pub fn end(entries: &[u32], content_size: u64, frame_len: u64) -> Vec<u8> {
        let mut bytes = vec![0xB7, 0x49];
        bytes.extend(entries.iter().flat_map(|entry| entry.to_le_bytes()));
        bytes.extend(content_size.to_le_bytes());
        bytes.extend(frame_len.to_le_bytes());
        sealed(bytes)
    }
}

#[test]
fn crafted_files_are_refused() {
    use craft::*;
    const EDGES: [u64; 7] =
        [0, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 1, u64::MAX - 1, u64::MAX];
    let header = frame_header(0, 16, None);
    let full = [7; 1 << 16];
    let two = [header.clone(), store(16, 0, &full), store(16, 1, b"tail")].concat();
    let first_len = 19 + (1 << 16);
    let good_len = two.len() as u64 + 26;
    // Check that handmade files without damage work.
    let good = [two.clone(), end(&[first_len], (1 << 16) + 4, good_len)].concat();
    assert_eq!(pz::decompress(&good, &decode_options()).unwrap().len(), (1 << 16) + 4);
    assert!(SeekableReader::new(Cursor::new(&good), &decode_options()).is_ok());

    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    let mut add = |what: String, parts: &[&[u8]]| files.push((what, parts.concat()));
    for edge in EDGES {
        // Change each length in turn.
        add(format!("content size {edge}"), &[&two, &end(&[first_len], edge, good_len)]);
        add(format!("frame length {edge}"), &[&two, &end(&[first_len], (1 << 16) + 4, edge)]);
        add(format!("both {edge}"), &[&two, &end(&[first_len], edge, edge)]);
        let declared = frame_header(0, 16, Some(edge));
        let len = good_len + 8;
        add(
            format!("declared {edge}"),
            &[&declared, &two[17..], &end(&[first_len], (1 << 16) + 4, len)],
        );
        let empty_len = declared.len() as u64 + 22;
        if edge != 0 {
            add(format!("declared {edge}, empty"), &[&declared, &end(&[], 0, empty_len)]);
            add(format!("declared {edge}, agreed"), &[&declared, &end(&[], edge, empty_len)]);
        }
        let len = edge as u32;
        if edge != 4 {
            add(format!("stored {len}"), &[&header, &store_claiming(16, 0, len, b"tail")]);
            for method in 0..16 {
                for pipeline in 0..=5 {
                    let header = frame_header(pipeline, 16, None);
                    let block = coded(method, 16, 0, len, b"payload", 7);
                    add(format!("{method} of {len}"), &[&header, &block]);
                    let block = coded(method, 16, 0, 60_000, b"payload", len);
                    add(format!("{method} payload {len}"), &[&header, &block]);
                    let block = coded(method, 26, 0, 1 << 26, b"payload", 7);
                    add(format!("{method} of 2^26"), &[&header, &block]);
                }
            }
        }
        add(format!("block {len}"), &[&header, &store(16, len | 2, b"tail")]);
    }
    // An index that overlaps, loops, points outside, or has too many or too few entries.
    for entries in [
        vec![],
        vec![0],
        vec![1],
        vec![first_len - 1],
        vec![first_len + 1],
        vec![u32::MAX],
        vec![first_len, 23],
        vec![first_len, u32::MAX - first_len + 1],
    ] {
        let len = two.len() as u64 + 22 + 4 * entries.len() as u64;
        add(format!("index {entries:?}"), &[&two, &end(&entries, (1 << 16) + 4, len)]);
    }
    let tail_len = |parts: usize| parts as u64 + 22;
    let short_first = [header.clone(), store(16, 0, b"short"), store(16, 1, b"tail")].concat();
    let len = tail_len(short_first.len()) + 4;
    add("a short block first".into(), &[&short_first, &end(&[24], 9, len)]);
    let other_class = [header.clone(), store(17, 0, b"tail")].concat();
    let len = tail_len(other_class.len());
    add("another block size".into(), &[&other_class, &end(&[], 4, len)]);
    for (pipeline, log) in [(0, 15), (0, 25), (1, 25), (4, 27), (5, 20), (255, 20), (0, 255)] {
        let bad = frame_header(pipeline, log, None);
        let len = tail_len(bad.len());
        add(format!("pipeline {pipeline} log {log}"), &[&bad, &end(&[], 0, len)]);
    }
    add("a frame inside of a frame".into(), &[&header, &good]);
    add("no blocks, no end".into(), &[&header, &good[17..17]]);

    for (what, file) in &files {
        for result in [
            pz::decompress(file, &decode_options()).map(drop),
            Decoder::new(&file[..], &decode_options()).and_then(|mut d| d.verify()).map(drop),
        ] {
            match result {
                Ok(()) => panic!("{what} was accepted"),
                Err(error) => assert_eq!(error.class(), ErrorClass::Input, "{what}: {error}"),
            }
        }
        let seen = SeekableReader::new(Cursor::new(file), &decode_options())
            .and_then(|mut reader| reader.copy_range(0..reader.len(), &mut std::io::sink()));
        assert!(seen.is_err(), "{what} was accepted by SeekableReader");
        let _ = pz::list(&mut Cursor::new(file), true);
        let _ = pz::recover(&mut Cursor::new(file), &mut std::io::sink(), false, &decode_options());
    }
}

#[test]
fn recovery_takes_linear_time() {
    use craft::*;
    // Count processor time, because other programs may use most of the processor. The time of other tests in this
    // process counts, too.
    let start = processor_time();
    let mut files = vec![b"\xB7\x49\0\0".repeat(300_000), b"\xB7\x42".repeat(300_000)];
    // Blocks whose payloads are the blocks after them.
    let header = coded(3, 26, 1, 1 << 26, b"", 1_000_000);
    files.push(header.repeat(1_500_000 / header.len()));
    // Many footers, each of which claims the only frame.
    let mut ends = frame_header(0, 16, None);
    for _ in 0..50_000 {
        let len = ends.len() as u64 + 22;
        ends.extend(end(&[], 4, len));
    }
    files.push(ends);
    for file in files {
        let mut file = Cursor::new(file);
        let _ = pz::recover(&mut file, &mut std::io::sink(), false, &decode_options());
        let _ = pz::list(&mut file, true);
    }
    let spent = processor_time() - start;
    assert!(spent.as_secs() < 40, "{spent:?}");
}

#[cfg(unix)]
fn processor_time() -> std::time::Duration {
    use rustix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap()
}

#[cfg(not(unix))]
fn processor_time() -> std::time::Duration {
    static START: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
    START.get_or_init(std::time::Instant::now).elapsed()
}

#[test]
fn errors_say_where() {
    let contents = sample(300_000, 9);
    let file = pz::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let blocks = pz::list(&mut Cursor::new(&file), true).unwrap().remove(0).blocks;
    for (number, block) in (0..).zip(&blocks) {
        let mut damaged = [&file[..], &file[..]].concat();
        damaged[file.len() + (block.offset + block.compressed_size) as usize - 1] ^= 0x10;
        for error in [
            pz::decompress(&damaged, &decode_options()).unwrap_err(),
            Decoder::new(&damaged[..], &decode_options().threads(3)).unwrap().verify().unwrap_err(),
        ] {
            let place = error.place().unwrap();
            assert_eq!((place.frame, place.block), (1, Some(number)), "{error}");
            assert_eq!(place.offset, file.len() as u64 + block.offset);
        }
    }
}

#[test]
fn contents_before_the_damage_are_read() {
    let contents = sample(300_000, 10);
    let mut file = pz::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let blocks = pz::list(&mut Cursor::new(&file), true).unwrap().remove(0).blocks;
    file[blocks[3].offset as usize + 30] ^= 1;
    for threads in [1, 4] {
        let mut out = Vec::new();
        let mut decoder = Decoder::new(&file[..], &decode_options().threads(threads)).unwrap();
        assert!(decoder.copy_to(&mut out).is_err());
        assert!(out == contents[..3 << 16]);
        assert!(decoder.verify().is_err(), "an error must not be forgotten");
    }
}
