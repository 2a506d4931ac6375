//! Round trips through every entry point, with various numbers of threads, block sizes and ways to read.

mod common;

use std::io::{self, BufRead, Cursor, Read, Seek, SeekFrom, Write};

use common::{Trickle, decode_options, levels_and_pipelines, sample};
use proptest::prelude::*;
use pz::{DecodeOptions, Decoder, Encoder, Error, Level, Options, Pipeline, SeekableReader};

const LENGTHS: [usize; 9] = [0, 1, 13, 300, 65_535, 65_536, 65_537, 200_000, 1_000_000];

#[test]
fn every_entry_point_restores_every_length() {
    for len in LENGTHS {
        let contents = sample(len, 1);
        for (options, what) in levels_and_pipelines() {
            let options = options.block_size(1 << 16);
            let small = pz::compress(&contents, &options.clone().threads(1)).unwrap();
            for threads in [1, 2, 3, 8] {
                let options = options.clone().threads(threads);
                let decode = decode_options().threads(threads);
                assert!(pz::compress(&contents, &options).unwrap() == small, "{what} {len}");
                let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
                for part in contents.chunks(30_011) {
                    encoder.write_all(part).unwrap();
                }
                assert_eq!(encoder.bytes_in(), len as u64);
                assert!(encoder.finish().unwrap() == small, "{what} {len}");
                let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
                assert_eq!(encoder.read_from(&mut &contents[..]).unwrap(), len as u64);
                assert!(encoder.finish().unwrap() == small, "{what} {len}");

                assert!(pz::decompress(&small, &decode).unwrap() == contents, "{what} {len}");
                let mut out = Vec::new();
                let mut decoder = Decoder::new(&small[..], &decode).unwrap();
                assert_eq!(decoder.copy_to(&mut out).unwrap(), len as u64);
                assert_eq!(decoder.bytes_in(), small.len() as u64);
                assert_eq!(decoder.bytes_out(), len as u64);
                assert!(out == contents, "{what} {len}");
                let mut out = Vec::new();
                Decoder::new(&small[..], &decode).unwrap().read_to_end(&mut out).unwrap();
                assert!(out == contents, "{what} {len}");
                let mut decoder = Decoder::new(&small[..], &decode).unwrap();
                assert_eq!(decoder.verify().unwrap(), len as u64);
            }
        }
    }
}

#[test]
fn every_window_restores() {
    let contents = sample(300_000, 2);
    for level in [1, 3, 7] {
        for log in 14..26 {
            let options = Options::new().level(Level::new(level).unwrap()).window(1 << log);
            if (16..=24).contains(&log) {
                let small = pz::compress(&contents, &options).unwrap();
                assert!(pz::decompress(&small, &decode_options()).unwrap() == contents);
            } else {
                let refused = pz::compress(&contents, &options);
                assert!(matches!(refused, Err(Error::InvalidWindow { .. })));
            }
        }
        let odd = Options::new().window(3 << 20);
        assert!(matches!(pz::compress(b"", &odd), Err(Error::InvalidWindow { .. })));
    }
}

#[test]
fn every_block_size_restores() {
    let contents = sample(300_000, 2);
    for pipeline in Pipeline::ALL {
        for log in 10..30 {
            let options = Options::new().pipeline(pipeline).block_size(1 << log);
            if pipeline.block_sizes().contains(&(1 << log)) {
                let small = pz::compress(&contents, &options).unwrap();
                assert!(pz::decompress(&small, &decode_options()).unwrap() == contents);
            } else {
                let refused = pz::compress(&contents, &options);
                assert!(matches!(refused, Err(Error::InvalidBlockSize { .. })));
            }
        }
        let odd = Options::new().pipeline(pipeline).block_size(3 << 20);
        assert!(matches!(pz::compress(b"", &odd), Err(Error::InvalidBlockSize { .. })));
    }
}

/// Total length of the frames of `after` that are also in `before`.
fn found_again(before: &[u8], after: &[u8]) -> usize {
    let frames = |file: &[u8]| -> Vec<Vec<u8>> {
        let infos = pz::list(&mut Cursor::new(file), false).unwrap();
        let range = |info: &pz::FrameInfo| info.offset as usize..;
        let part = |info| file[range(info)][..info.compressed_size as usize].to_vec();
        infos.iter().map(part).collect()
    };
    let known = frames(before);
    frames(after).iter().filter(|frame| known.contains(frame)).map(Vec::len).sum()
}

#[test]
fn an_insertion_changes_little_of_rsyncable_output() {
    let contents = sample(12_500_000, 6);
    let longer = [&b"x"[..], &contents].concat();
    for (level, block_size) in [(1, None), (1, Some(1 << 16)), (9, None)] {
        let options = Options::new().level(Level::new(level).unwrap()).rsyncable(true).threads(2);
        let options = match block_size {
            Some(size) => options.block_size(size),
            None => options,
        };
        let before = pz::compress(&contents, &options).unwrap();
        assert!(pz::decompress(&before, &decode_options()).unwrap() == contents);
        let after = pz::compress(&longer, &options.clone().content_size(12_500_001)).unwrap();
        let found = found_again(&before, &after);
        assert!(found > after.len() / 100 * 70, "level {level}: {found} of {}", after.len());
        if level == 9 {
            continue;
        }
        // All ways to compress end frames in the same places.
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        contents.chunks(70_001).for_each(|part| encoder.write_all(part).unwrap());
        assert!(encoder.finish().unwrap() == before);
        let mut encoder = Encoder::new(Vec::new(), &options.clone().threads(1)).unwrap();
        assert_eq!(encoder.read_from(&mut &contents[..]).unwrap(), 12_500_000);
        assert!(encoder.finish().unwrap() == before);
        let source: std::sync::Arc<dyn pz::ReadAt> = std::sync::Arc::new(contents.clone());
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        encoder.read_range(&source, 0..5_000_000).unwrap();
        encoder.read_range(&source, 5_000_000..12_500_000).unwrap();
        assert!(encoder.finish().unwrap() == before);
    }
    let options = Options::new().rsyncable(true).level(Level::new(1).unwrap());
    for len in [0, 1, 65_536, 600_000] {
        let small = pz::compress(&contents[..len], &options).unwrap();
        assert!(pz::decompress(&small, &decode_options()).unwrap() == contents[..len]);
    }
    let wrong = options.content_size(7);
    assert!(matches!(pz::compress(&contents, &wrong), Err(Error::Changed { .. })));
}

#[test]
fn contents_of_frames_follow_each_other() {
    let mut file = Vec::new();
    let mut contents = Vec::new();
    for (i, (options, _)) in levels_and_pipelines().into_iter().enumerate() {
        let part = sample(i * 40_000, i as u64);
        file.extend(pz::compress(&part, &options.block_size(1 << 16)).unwrap());
        contents.extend(part);
    }
    for threads in [1, 4] {
        let decode = decode_options().threads(threads);
        assert!(pz::decompress(&file, &decode).unwrap() == contents);
        let mut out = Vec::new();
        Decoder::new(&file[..], &decode).unwrap().copy_to(&mut out).unwrap();
        assert!(out == contents);
        let mut seekable = SeekableReader::new(Cursor::new(&file), &decode).unwrap();
        assert_eq!(seekable.len(), contents.len() as u64);
        let mut out = Vec::new();
        seekable.read_to_end(&mut out).unwrap();
        assert!(out == contents);
        let mut out = Vec::new();
        seekable.copy_range(0..contents.len() as u64, &mut out).unwrap();
        assert!(out == contents);
    }
}

#[test]
fn readers_that_return_a_byte_at_a_time() {
    let contents = sample(150_000, 3);
    for threads in [1, 3] {
        let options = Options::new().block_size(1 << 16).threads(threads);
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        encoder.read_from(&mut Trickle(&contents)).unwrap();
        let small = encoder.finish().unwrap();
        let mut decoder =
            Decoder::new(Trickle(&small), &decode_options().threads(threads)).unwrap();
        let mut out = Vec::new();
        let mut byte = [0];
        while decoder.read(&mut byte).unwrap() == 1 {
            out.push(byte[0]);
        }
        assert!(out == contents);
    }
}

#[test]
fn lines_can_be_read() {
    let small = pz::compress(b"one\ntwo\nthree", &Options::new()).unwrap();
    let decoder = Decoder::new(&small[..], &decode_options()).unwrap();
    let lines: Vec<String> = decoder.lines().collect::<Result<_, _>>().unwrap();
    assert_eq!(lines, ["one", "two", "three"]);
}

#[test]
fn overhead_is_small() {
    // Noise, which no codec can compress.
    let noise = sample_noise(3 << 20);
    assert_eq!(pz::compress(b"", &Options::new()).unwrap().len(), 18);
    for len in [1, 100, 300, 1000, 65_537, 1 << 20] {
        for (options, what) in levels_and_pipelines() {
            let small = pz::compress(&noise[..len], &options).unwrap();
            let options = options.pipeline(Pipeline::Store).block_size(1 << 20);
            let stored = pz::compress(&noise[..len], &options).unwrap();
            assert!(stored.len() <= len + 21, "{what} {len}: {}", stored.len());
            if len <= 1 << 16 {
                assert!(small.len() <= len + 20, "{what} {len}: {}", small.len());
            }
        }
    }
    // A coded block also records the length of its payload: 24 bytes in all.
    let contents = sample(1 << 20, 3);
    for (options, what) in levels_and_pipelines() {
        let options = options.block_size(1 << 20);
        for len in [100, 200, 300, 60_000, 1 << 20] {
            let small = pz::compress(&contents[..len], &options).unwrap();
            let listed = pz::list(&mut Cursor::new(&small), true).unwrap().remove(0);
            let overhead = small.len() as u64 - listed.blocks[0].compressed_size;
            assert!(overhead <= 24, "{what} {len}: {overhead}");
        }
    }
    let options = Options::new().pipeline(Pipeline::Store).block_size(1 << 20);
    assert!(pz::compress(&noise, &options).unwrap().len() <= noise.len() + 39 + 3 * 24);
    let zeros = vec![0; 64 << 20];
    for level in Level::all() {
        let small = pz::compress(&zeros, &Options::new().level(level)).unwrap();
        assert!(small.len() < 4096, "{}", small.len());
        let decoded = pz::decompress(&small, &decode_options()).unwrap();
        assert!(decoded == zeros);
    }
}

fn sample_noise(len: usize) -> Vec<u8> {
    let mut state = 88_172_645_463_325_252_u64;
    std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    })
    .take(len)
    .collect()
}

#[test]
fn the_example_of_the_format_is_right() {
    let text = include_str!("../src/format/FORMAT.md");
    let examples = text.split("```text\n").skip(1).map(|example| {
        let (example, _) = example.split_once("```").unwrap();
        let byte = |byte| u8::from_str_radix(byte, 16).unwrap();
        example.split_whitespace().map(byte).collect::<Vec<u8>>()
    });
    let [single, long] = examples.collect::<Vec<_>>().try_into().unwrap();
    let options = Options::new().pipeline(Pipeline::Store).block_size(1 << 20);
    assert_eq!(pz::compress(b"pz", &options).unwrap(), single);
    for example in [single, long] {
        assert_eq!(pz::decompress(&example, &decode_options()).unwrap(), b"pz");
        let mut part = Vec::new();
        let mut reader = SeekableReader::new(Cursor::new(&example), &decode_options()).unwrap();
        reader.copy_range(1..2, &mut part).unwrap();
        assert_eq!(part, b"z");
    }
}

#[test]
fn a_declared_length_is_recorded_and_must_hold() {
    let options = Options::new().content_size(99_000).block_size(1 << 16);
    let small = pz::compress(&[5; 99_000], &options).unwrap();
    let decoder = Decoder::new(&small[..], &decode_options()).unwrap();
    assert_eq!(decoder.content_size(), Some(99_000));
    for wrong in [0, 98_999, 99_001, 300_000] {
        let contents = vec![5; wrong];
        let changed = pz::compress(&contents, &options);
        assert!(matches!(changed, Err(Error::Changed { declared: 99_000, .. })), "{wrong}");
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        let changed =
            encoder.write_all(&contents).map_err(Error::from).and_then(|()| encoder.finish());
        assert!(matches!(changed, Err(Error::Changed { declared: 99_000, .. })), "{wrong}");
    }
}

#[test]
fn seeking_goes_where_it_says() {
    let contents = sample(700_000, 4);
    let small = pz::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let mut reader = SeekableReader::new(Cursor::new(small), &decode_options()).unwrap();
    let cases = [
        (SeekFrom::Start(0), 0),
        (SeekFrom::Start(65_535), 65_535),
        (SeekFrom::Current(1), 65_536 + 10),
        (SeekFrom::Current(-65_000), 1546 + 10 - 10 + 20 - 20 + 10),
        (SeekFrom::End(-10), 699_990),
    ];
    let mut expected = 0_i64;
    for (to, _) in cases {
        expected = match to {
            SeekFrom::Start(at) => at as i64,
            SeekFrom::Current(by) => expected + by,
            SeekFrom::End(by) => contents.len() as i64 + by,
        };
        assert_eq!(reader.seek(to).unwrap(), expected as u64);
        let mut bytes = [0; 10];
        reader.read_exact(&mut bytes).unwrap();
        assert_eq!(bytes, contents[expected as usize..][..10]);
        expected += 10;
    }
    assert_eq!(reader.seek(SeekFrom::Start(u64::MAX)).unwrap(), u64::MAX);
    assert_eq!(reader.read(&mut [0; 4]).unwrap(), 0);
    assert!(reader.seek(SeekFrom::Current(1)).is_err());
    assert!(reader.seek(SeekFrom::End(-700_001)).is_err());
    let backwards = Range { start: 5, end: 4 };
    for range in [0..700_001, 700_001..700_001, backwards] {
        let refused = reader.copy_range(range, &mut io::sink());
        assert!(matches!(refused, Err(Error::InvalidRange { .. })));
    }
}

use std::ops::Range;

#[test]
fn limits_hold() {
    let contents = sample(400_000, 5);
    let small = pz::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let limited = decode_options().max_output(399_999);
    assert!(matches!(pz::decompress(&small, &limited), Err(Error::LimitOutput { .. })));
    let mut decoder = Decoder::new(&small[..], &limited).unwrap();
    assert!(matches!(decoder.verify(), Err(Error::LimitOutput { limit: 399_999 })));
    assert!(SeekableReader::new(Cursor::new(&small), &limited).is_err());
    assert!(pz::decompress(&small, &decode_options().max_output(400_000)).is_ok());

    let frame = &pz::list(&mut Cursor::new(&small), false).unwrap()[0];
    let least = decode_options().max_memory(frame.decode_memory);
    assert_eq!(Decoder::new(&small[..], &least).unwrap().verify().unwrap(), 400_000);
    let less = decode_options().max_memory(frame.decode_memory - 1);
    match Decoder::new(&small[..], &less).err() {
        Some(Error::LimitMemory { needed, .. }) => assert_eq!(needed, frame.decode_memory),
        other => panic!("{other:?}"),
    }
    let refused = pz::compress(&contents, &Options::new().memory(100_000));
    assert!(matches!(refused, Err(Error::LimitMemory { .. })));
}

#[test]
fn listing_agrees_with_the_file() {
    let contents = sample(200_000, 6);
    let options = Options::new().block_size(1 << 16).level(Level::new(2).unwrap());
    let mut file = pz::compress(&contents, &options).unwrap();
    let first = file.len() as u64;
    file.extend(pz::compress(&contents, &options.content_size(200_000)).unwrap());
    let frames = pz::list(&mut Cursor::new(&file), true).unwrap();
    assert_eq!(frames.len(), 2);
    let frame = &frames[0];
    assert_eq!((frame.offset, frame.compressed_size, frame.content_size), (0, first, 200_000));
    assert_eq!((frame.block_size, frame.block_count, frame.level), (65_536, 4, Level::new(2).ok()));
    assert!(!frame.size_in_header && frames[1].size_in_header);
    let mut offset = frame.blocks[0].offset;
    for (i, block) in frame.blocks.iter().enumerate() {
        assert_eq!(block.number, i as u64);
        assert_eq!(block.offset, offset);
        assert_eq!(block.content_offset, 65_536 * i as u64);
        let range = block.content_offset as usize..;
        let part = &contents[range][..block.content_size as usize];
        assert_eq!(block.content_checksum, crc32c::crc32c(part));
        offset += block.compressed_size;
    }
    assert_eq!((frames[1].offset, frames[1].block_count), (first, 4));
}

#[test]
fn failing_writers_end_the_encoder() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
            let n = buf.len().min(self.0);
            self.0 -= n;
            if n == 0 { Err(io::ErrorKind::StorageFull.into()) } else { Ok(n) }
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let contents = sample_noise(400_000);
    let options = Options::new().block_size(1 << 16);
    let whole = pz::compress(&contents, &options).unwrap().len();
    for threads in [1, 2] {
        for room in [0, 1, 16, 17, 20, 70_000, whole - 1] {
            let options = options.clone().threads(threads);
            let mut encoder = Encoder::new(Full(room), &options).unwrap();
            let result =
                encoder.write_all(&contents).map_err(Error::from).and_then(|()| encoder.finish());
            match result.err() {
                Some(Error::Io(error)) => assert_eq!(error.kind(), io::ErrorKind::StorageFull),
                other => panic!("{other:?}"),
            }
        }
        assert!(Encoder::new(Full(whole), &options).unwrap().finish().is_ok());
    }
}

#[test]
fn failing_readers_end_both_directions() {
    struct Failing<'a>(&'a [u8]);
    impl Read for Failing<'_> {
        fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
            match self.0.read(buf) {
                Ok(0) => Err(io::ErrorKind::ConnectionReset.into()),
                result => result,
            }
        }
    }
    let is_reset = |error: &Error| match error {
        Error::Io(error) => error.kind() == io::ErrorKind::ConnectionReset,
        _ => false,
    };
    let contents = sample(300_000, 13);
    let options = Options::new().block_size(1 << 16);
    let small = pz::compress(&contents, &options).unwrap();
    for threads in [1, 2] {
        let mut encoder = Encoder::new(Vec::new(), &options.clone().threads(threads)).unwrap();
        assert!(is_reset(&encoder.read_from(&mut Failing(&contents)).unwrap_err()));
        assert!(encoder.write_all(b"more").is_err());
        assert!(encoder.finish().is_err(), "what was read before must not pass for a whole");
        let options = decode_options().threads(threads);
        for len in [0, 10, 17, 18, 1000, small.len()] {
            let result =
                Decoder::new(Failing(&small[..len]), &options).and_then(|mut d| d.verify());
            assert!(is_reset(&result.unwrap_err()), "{len}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn any_contents_any_options(
        seed in any::<u64>(),
        len in 0_usize..400_000,
        level in 1_u32..=9,
        log in 16_u32..20,
        threads in 1_usize..5,
        cuts in prop::collection::vec(1_usize..100_000, 1..5),
        from in any::<prop::sample::Index>(),
        to in any::<prop::sample::Index>(),
    ) {
        let contents = sample(len, seed);
        let options = Options::new().level(Level::new(level).unwrap()).block_size(1 << log);
        let small = pz::compress(&contents, &options.clone().threads(1)).unwrap();
        let mut encoder = Encoder::new(Vec::new(), &options.threads(threads)).unwrap();
        let mut left = &contents[..];
        for cut in cuts.iter().cycle() {
            let (now, later) = left.split_at((*cut).min(left.len()));
            encoder.write_all(now).unwrap();
            left = later;
            if left.is_empty() { break; }
        }
        prop_assert!(encoder.finish().unwrap() == small);
        let decode = DecodeOptions::new().threads(threads);
        prop_assert!(pz::decompress(&small, &decode).unwrap() == contents);
        let (a, b) = (from.index(len + 1), to.index(len + 1));
        let (a, b) = (a.min(b), a.max(b));
        let mut reader = SeekableReader::new(Cursor::new(&small), &decode).unwrap();
        let mut part = Vec::new();
        reader.copy_range(a as u64..b as u64, &mut part).unwrap();
        prop_assert!(part == contents[a..b]);
    }
}
