//! Memory stays below the permitted limit, whatever the input's length, and whatever a file claims.
//!
//! This is a single test, because memory is measured for the whole process.

mod common;

use std::io::{self, Cursor, Read, Write};

use common::levels_and_pipelines;
use peak_alloc::PeakAlloc;
use pz::{DecodeOptions, Decoder, Encoder, Error, Level, Options, Pipeline};

#[global_allocator]
static ALLOCATOR: PeakAlloc = PeakAlloc;

/// Allowance for the standard library, the pool's threads and the measuring itself.
const OTHER: usize = 256 << 10;

/// Returns the result of `work`, and the peak of allocated memory above the amount before.
fn peak<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATOR.current_usage();
    ALLOCATOR.reset_peak_usage();
    let result = work();
    (result, ALLOCATOR.peak_usage() - before)
}

/// The same for all memory that the system has given the process. This is more than the allocated memory, and includes
/// mapped memory. The peak is 0 if the process first gave memory back, and never held more than before.
#[cfg(target_os = "linux")]
fn peak_of_process<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let peak = || -> usize {
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    };
    // Resets the peak to what is resident now.
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
    let before = peak();
    let result = work();
    (result, peak().saturating_sub(before) << 10)
}

/// A source of `len` bytes with some structure, made on the fly.
struct Source {
    len: u64,
    at: u64,
}

impl Read for Source {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = buf.len().min((self.len - self.at).min(1 << 20) as usize);
        for byte in &mut buf[..n] {
            *byte = (self.at.wrapping_mul(self.at >> 9) >> 7) as u8;
            self.at += 1;
        }
        Ok(n)
    }
}

fn compressed(options: &Options, len: u64) -> Vec<u8> {
    let mut encoder = Encoder::new(Vec::new(), options).unwrap();
    encoder.read_from(&mut Source { len, at: 0 }).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn memory_is_bounded() {
    for (options, _) in levels_and_pipelines() {
        let options = options.block_size(1 << 17);
        let refused = Encoder::new(io::sink(), &options.clone().memory(0)).map(drop);
        let Err(Error::LimitMemory { needed, .. }) = refused else { panic!("{refused:?}") };
        let least = needed as usize;
        for threads in [1, 2, 4] {
            for limit in [least, 2 * least, 5 * least] {
                let options = options.clone().threads(threads).memory(limit as u64);
                // With memory for few blocks and for many, a longer input takes no more memory.
                let lens: &[u64] =
                    if limit == 2 * least { &[1 << 19, 2 << 20] } else { &[1 << 19] };
                for &len in lens {
                    let (written, used) = peak(|| {
                        let mut encoder = Encoder::new(io::sink(), &options).unwrap();
                        encoder.read_from(&mut Source { len, at: 0 }).unwrap();
                        encoder.finish().map(drop)
                    });
                    written.unwrap();
                    assert!(used <= limit + OTHER, "{used} > {limit}: {options:?}");
                }
            }
        }
        let file = compressed(&options, 2 << 20);
        let needed = pz::list(&mut Cursor::new(&file), false).unwrap()[0].decode_memory;
        for threads in [1, 2, 4] {
            for limit in [needed, 3 * needed, 64 << 20] {
                let options = DecodeOptions::new().threads(threads).max_memory(limit);
                let (len, used) = peak(|| {
                    let mut decoder = Decoder::new(&file[..], &options).unwrap();
                    decoder.copy_to(&mut io::sink())
                });
                assert_eq!(len.unwrap(), 2 << 20);
                assert!(used <= limit as usize + OTHER, "{used} > {limit}: {options:?}");
            }
        }
    }

    #[cfg(target_os = "linux")]
    long_blocks_are_bounded();
    distant_matches_are_bounded();

    // Frames of different kinds in a row: a frame does not keep the memory of the one before.
    let kinds =
        [(Pipeline::Bwt, 20), (Pipeline::Store, 16), (Pipeline::Lzh, 20), (Pipeline::Bwt, 19)];
    let frames = kinds.map(|(pipeline, log)| {
        compressed(&Options::new().pipeline(pipeline).block_size(1 << log), 3 << 20)
    });
    let file = frames.concat();
    let needed =
        pz::list(&mut Cursor::new(&file), false).unwrap().iter().map(|f| f.decode_memory).max();
    for threads in [1, 4] {
        for limit in [needed.unwrap(), 2 * needed.unwrap()] {
            let options = DecodeOptions::new().threads(threads).max_memory(limit);
            let (len, used) = peak(|| {
                let mut decoder = Decoder::new(&file[..], &options).unwrap();
                decoder.copy_to(&mut io::sink())
            });
            assert_eq!(len.unwrap(), 12 << 20);
            assert!(used <= limit as usize + OTHER, "{used} > {limit}: {options:?}");
        }
    }

    // The same for recovery, also with damaged frames and many small blocks.
    let small = compressed(&Options::new().pipeline(Pipeline::Lzh).block_size(1 << 16), 66_000);
    let mut damaged = [&file[..], &small.repeat(1000), &file].concat();
    for at in (5000..damaged.len()).step_by(damaged.len() / 9) {
        damaged[at] ^= 1;
    }
    let needed = needed.unwrap() + (1 << 19);
    for threads in [1, 2, 4] {
        for limit in [needed, 2 * needed, 6 * needed] {
            let options = DecodeOptions::new().threads(threads).max_memory(limit);
            let (report, used) =
                peak(|| pz::recover(&mut Cursor::new(&damaged), &mut io::sink(), false, &options));
            assert!(report.unwrap().bytes > 64 << 20);
            assert!(used <= limit as usize + OTHER, "{used} > {limit}: {options:?}");
        }
    }

    // Small files that claim to be large.
    let options = DecodeOptions::new().threads(1).max_memory(1 << 20).max_output(1 << 30);
    let bwt = compressed(&Options::new().pipeline(Pipeline::Bwt).block_size(1 << 26), 100_000);
    let (refused, used) = peak(|| Decoder::new(&bwt[..], &options).map(drop));
    assert!(matches!(refused, Err(Error::LimitMemory { .. })));
    assert!(used < OTHER, "{used}");
    let (refused, used) = peak(|| pz::decompress(&bwt, &options));
    assert!(matches!(refused, Err(Error::LimitMemory { .. })));
    assert!(used < OTHER, "{used}");
    let cut = &bwt[..60];
    let (_, used) = peak(|| Decoder::new(cut, &DecodeOptions::new()).unwrap().verify());
    assert!(used < 2 << 20, "{used}");

    // 257 MiB of zeros in 3 KiB.
    let mut zeros = Encoder::new(Vec::new(), &Options::new().level(Level::MAX)).unwrap();
    let part = vec![0; 1 << 20];
    for _ in 0..257 {
        zeros.write_all(&part).unwrap();
    }
    let zeros = zeros.finish().unwrap();
    assert!(zeros.len() < 16 << 10);
    let (refused, used) =
        peak(|| pz::decompress(&zeros, &DecodeOptions::new().max_output(1 << 28)));
    assert!(matches!(refused, Err(Error::LimitOutput { .. })));
    assert!(used < OTHER, "{used}");
}

/// Encodes, decodes and recovers a source that repeats itself every 300,000 bytes.
fn distant_matches_are_bounded() {
    const LEN: usize = 3 << 20;
    let part: Vec<u8> = (0..300_000_u32).map(|i| (i.wrapping_mul(i >> 3) >> 11) as u8).collect();
    let contents: Vec<u8> = part.iter().copied().cycle().take(LEN).collect();
    for (pipeline, reach) in [(Pipeline::Lzh, 1 << 20), (Pipeline::Bwt, 8 << 20)] {
        let options = Options::new().pipeline(pipeline).block_size(1 << 16).long_distance(reach);
        let refused = Encoder::new(io::sink(), &options.clone().memory(0)).map(drop);
        let Err(Error::LimitMemory { needed, .. }) = refused else { panic!("{refused:?}") };
        assert!(needed > reach);
        let mut file = Vec::new();
        for (threads, limit) in [(1, needed), (2, needed), (2, 2 * needed)] {
            let options = options.clone().threads(threads).memory(limit);
            file.clear();
            let (written, used) = peak(|| {
                let mut encoder = Encoder::new(&mut file, &options).unwrap();
                encoder.read_from(&mut &contents[..]).unwrap();
                encoder.finish().map(drop)
            });
            written.unwrap();
            let limit = limit as usize + file.capacity();
            assert!(used <= limit + OTHER, "{used} > {limit}: {options:?}");
        }
        let frames = pz::list(&mut Cursor::new(&file), true).unwrap();
        let own: u64 = frames[0].blocks.iter().filter_map(|block| block.own_size).sum();
        assert!(own > 0 && own < LEN as u64 / 4, "{own}");
        let needed = frames[0].decode_memory;
        for (threads, limit) in [(1, needed), (2, needed), (2, 2 * needed)] {
            let options = DecodeOptions::new().threads(threads).max_memory(limit);
            let decode = || Decoder::new(&file[..], &options).unwrap().copy_to(&mut io::sink());
            let (len, used) = peak(decode);
            assert_eq!(len.unwrap(), LEN as u64);
            assert!(used <= limit as usize + OTHER, "{used} > {limit}: {options:?}");
            // Recovery keeps 16 blocks, however far back matches reach, and the places of all blocks.
            let limit = limit + (16 << 20);
            let options = options.max_memory(limit);
            let recover = || pz::recover(&mut Cursor::new(&file), &mut io::sink(), false, &options);
            let (report, used) = peak(recover);
            assert_eq!(report.unwrap().bytes, LEN as u64);
            assert!(used <= limit as usize + OTHER, "{used} > {limit}: {options:?}");
        }
        let refused = Decoder::new(&file[..], &DecodeOptions::new().max_memory(needed - 1));
        assert!(matches!(refused.map(drop), Err(Error::LimitMemory { .. })));
    }
}

/// Buffers of long blocks are mapped, so counting allocations misses them.
#[cfg(target_os = "linux")]
fn long_blocks_are_bounded() {
    /// Allowance for threads, and for memory that the allocator keeps.
    const OTHER: usize = 4 << 20;
    let len = 30 << 20;
    for (pipeline, threads) in [(Pipeline::Lzh, 1), (Pipeline::Lzh, 2), (Pipeline::Bwt, 2)] {
        let options = Options::new().pipeline(pipeline).block_size(1 << 22).threads(threads);
        let refused = Encoder::new(io::sink(), &options.clone().memory(0)).map(drop);
        let Err(Error::LimitMemory { needed, .. }) = refused else { panic!("{refused:?}") };
        for limit in [needed, 4 * needed] {
            let options = options.clone().memory(limit);
            let (file, used) = peak_of_process(|| compressed(&options, len));
            let limit = limit as usize + file.len();
            assert!(used <= limit + OTHER, "{used} > {limit}: {options:?}");
        }
        let file = compressed(&options, len);
        let needed = pz::list(&mut Cursor::new(&file), false).unwrap()[0].decode_memory;
        for limit in [needed, 4 * needed] {
            let options = DecodeOptions::new().threads(threads).max_memory(limit);
            let (copied, used) = peak_of_process(|| {
                Decoder::new(&file[..], &options).unwrap().copy_to(&mut io::sink())
            });
            assert_eq!(copied.unwrap(), len);
            assert!(used <= limit as usize + OTHER, "{used} > {limit}: {options:?}");
        }
    }
}
