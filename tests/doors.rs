//! The library's further entry points: contexts, the caller's buffers, sources that count reads, flushes.

mod common;

use std::io::{self, Cursor, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::{decode_options, levels_and_pipelines, sample};
use pz::gpu::device::Api;
use pz::gpu::device::discovery::devices;
use pz::{
    Compressor, Decoder, Decompressor, Encoder, Error, Gpu, Level, Options, ReadAt, SeekableReader,
    Statistics,
};

#[test]
fn contexts_give_the_results_of_single_calls() {
    for threads in [1, 3] {
        let decode = decode_options().threads(threads);
        let mut decompressor = Decompressor::new(&decode);
        for (options, what) in levels_and_pipelines() {
            let options = options.block_size(1 << 16).threads(threads);
            let mut compressor = Compressor::new(&options).unwrap();
            for len in [0, 1, 100, 65_536, 65_537, 10, 400_000, 2_000_000, 300] {
                let contents = sample(len, len as u64);
                let expected = pz::compress(&contents, &options.clone().threads(2)).unwrap();
                assert!(compressor.compress(&contents).unwrap() == expected, "{what} {len}");
                let mut output = b"before".to_vec();
                let n = compressor.compress_into(&contents, &mut output).unwrap();
                assert!(n == expected.len() && output.starts_with(b"before"));
                assert!(output[6..] == expected, "{what} {len}");
                assert!(decompressor.decompress(&expected).unwrap() == contents, "{what} {len}");
                assert_eq!(pz::content_size(&expected).unwrap(), len as u64);
            }
        }
    }
}

#[test]
fn contents_fit_the_callers_memory_or_are_refused() {
    for len in [0, 1, 1000, 200_000] {
        let contents = sample(len, 5);
        let small = pz::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
        let mut output = vec![0xA5; len + 3];
        assert_eq!(pz::decompress_into(&small, &mut output, &decode_options()).unwrap(), len);
        assert!(output[..len] == contents && output[len..] == [0xA5; 3]);
        if len > 0 {
            let short = &mut output[..len - 1];
            let refused = pz::decompress_into(&small, short, &decode_options());
            assert!(matches!(refused, Err(Error::LimitOutput { .. })), "{refused:?}");
        }
        let mut cut = Vec::new();
        let declared = Options::new().content_size(len as u64 + 1);
        assert!(matches!(
            pz::compress_into(&contents, &mut cut, &declared),
            Err(Error::Changed { .. })
        ));
        assert!(cut.is_empty());
    }
    assert!(pz::content_size(b"other things").is_err());
    assert!(pz::content_size(b"").is_err());
}

/// A source that counts its reads.
struct Counting {
    bytes: Vec<u8>,
    reads: AtomicUsize,
}

impl ReadAt for Counting {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.bytes.read_exact_at(buffer, offset)
    }
}

#[test]
fn a_file_is_opened_in_two_reads_and_a_range_takes_one() {
    for (len, block_size) in [(1000, 1 << 20), (3_000_000, 1 << 16), (9_000_000, 1 << 16)] {
        let contents = sample(len, 31);
        let options = Options::new().block_size(block_size).threads(1);
        let file = pz::compress(&contents, &options).unwrap();
        let source = Arc::new(Counting { bytes: file, reads: AtomicUsize::new(0) });
        for threads in [1, 3] {
            let decode = decode_options().threads(threads);
            source.reads.store(0, Ordering::Relaxed);
            let mut reader = SeekableReader::open(source.clone(), &decode).unwrap();
            let opening = source.reads.swap(0, Ordering::Relaxed);
            assert!(opening <= 2, "{len}: {opening} reads to open");
            for (from, to) in [(10, 11), (400, 600_000), (len - 5, len), (0, len)] {
                let range = from..to.min(len);
                let mut part = Vec::new();
                reader.copy_range(range.start as u64..range.end as u64, &mut part).unwrap();
                assert!(part == contents[range]);
                let reads = source.reads.swap(0, Ordering::Relaxed);
                assert!(reads <= 1, "{len}: {reads} reads for {from}..{to}");
            }
            let mut all = Vec::new();
            reader.read_to_end(&mut all).unwrap();
            assert!(all == contents);
        }
    }
}

#[test]
fn a_range_stays_within_the_memory_limit() {
    let contents = sample(1_000_000, 32);
    let file = pz::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let needed = pz::list(&mut Cursor::new(&file), false).unwrap()[0].decode_memory + (1 << 17);
    for limit in [needed, 2 * needed] {
        let decode = decode_options().threads(2).max_memory(limit);
        let mut reader = SeekableReader::new(Cursor::new(&file), &decode).unwrap();
        let mut all = Vec::new();
        reader.copy_range(0..1_000_000, &mut all).unwrap();
        assert!(all == contents);
    }
}

/// A range has the same bytes if a device helps to decode it.
#[test]
fn a_device_decodes_ranges() {
    let contents = sample(2_000_000, 35);
    let level = Level::new(1).unwrap();
    let options = Options::new().level(level).block_size(1 << 16);
    let file = pz::compress(&contents, &options).unwrap();
    for api in Api::ALL {
        // Other tests check that devices exist.
        for found in devices(api).unwrap_or_default() {
            let gpu = Gpu::new(found.open().unwrap()).memory(256 << 20);
            let counted = Statistics::new();
            let decode = decode_options().gpu(gpu).statistics(&counted);
            let mut reader = SeekableReader::new(Cursor::new(&file), &decode).unwrap();
            let of_device = || counted.device().map_or(0, |device| device.done.blocks);
            // The device may be too late for the first ranges, because it is still compiling kernels.
            let mut tries = 0;
            while of_device() == 0 && tries < 100 {
                for range in [0..contents.len(), 70_001..1_900_003, 65_536..65_537] {
                    let mut part = Vec::new();
                    reader.copy_range(range.start as u64..range.end as u64, &mut part).unwrap();
                    assert!(part == contents[range], "{api}");
                }
                tries += 1;
            }
            assert!(of_device() > 0, "{api}: {counted:?}");
            // Each try decodes 31, 28 and 1 blocks.
            assert_eq!(counted.cpu().blocks + of_device(), 60 * tries);
        }
    }
}

#[test]
fn blocks_have_the_offsets_of_their_payloads() {
    for len in [500, 200_000] {
        let contents = sample(len, 33);
        for (options, what) in levels_and_pipelines() {
            let file = pz::compress(&contents, &options.block_size(1 << 16)).unwrap();
            for block in &pz::list(&mut Cursor::new(&file), true).unwrap()[0].blocks {
                let payload = &file[block.payload_offset as usize..][..block.payload_size as usize];
                assert_eq!(crc32c::crc32c(payload), block.payload_checksum, "{what}");
                let range = block.content_offset as usize..;
                let part = &contents[range][..block.content_size as usize];
                assert_eq!(crc32c::crc32c(part), block.content_checksum, "{what}");
            }
        }
    }
}

#[test]
fn flushed_input_can_be_read() {
    let contents = sample(300_000, 34);
    for threads in [1, 3] {
        let options = Options::new().block_size(1 << 16).threads(threads);
        let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
        let mut end = 0;
        for part in [100, 0, 65_436, 1, 65_535, 65_536, 100_000] {
            encoder.write_all(&contents[end..end + part]).unwrap();
            end += part;
            encoder.flush().unwrap();
            let so_far = pz::decompress(encoder.get_ref(), &decode_options()).unwrap();
            assert!(so_far == contents[..end], "{end}");
        }
        let file = encoder.finish().unwrap();
        assert!(pz::decompress(&file, &decode_options()).unwrap() == contents[..end]);
        let mut out = Vec::new();
        Decoder::new(&file[..], &decode_options()).unwrap().read_to_end(&mut out).unwrap();
        assert!(out == contents[..end]);
        let mut part = Vec::new();
        let mut reader = SeekableReader::new(Cursor::new(&file), &decode_options()).unwrap();
        reader.copy_range(50..200_000, &mut part).unwrap();
        assert!(part == contents[50..200_000]);

        // Two ways to flush only at the ends of full blocks.
        let whole = options.clone().flush_ends_block(false);
        let declared = options.clone().content_size(300_000);
        for options in [whole, declared] {
            let expected = pz::compress(&contents, &options).unwrap();
            let mut encoder = Encoder::new(Vec::new(), &options).unwrap();
            for part in contents.chunks(70_001) {
                encoder.write_all(part).unwrap();
                encoder.flush().unwrap();
            }
            assert!(encoder.finish().unwrap() == expected);
        }
    }
}

#[test]
fn an_encoder_that_is_dropped_may_finish() {
    let mut file = Vec::new();
    let encoder = Encoder::new(&mut file, &Options::new()).unwrap();
    encoder.auto_finish().write_all(b"some contents").unwrap();
    assert_eq!(pz::decompress(&file, &decode_options()).unwrap(), b"some contents");
    let encoder = Encoder::new(Vec::new(), &Options::new()).unwrap();
    let mut encoder = encoder.auto_finish();
    encoder.write_all(b"some contents").unwrap();
    assert_eq!(encoder.finish().unwrap(), file);
}
