//! Archives: requests, priorities, caches.

use std::collections::BTreeSet;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use pz::access::{
    Archive, ArchiveError, ArchiveOptions, Array, CancelToken, Part, Priority, RangeRead,
    ReadOptions, Source, SourceError, SourceErrorKind, publish,
};
use pz::{DecodeOptions, Options, ReadAt};

use crate::common::sample;

/// Contents in memory. Counts reads, and can delay them or make them fail.
#[derive(Default)]
struct Watched {
    bytes: Vec<u8>,
    /// Offset and length of each part of each call.
    calls: Mutex<Vec<Vec<(u64, usize)>>>,
    /// Reads from this offset on wait.
    closed_from: Mutex<Option<u64>>,
    opened: Condvar,
    failures: AtomicUsize,
}

impl Watched {
    fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Watched { bytes, ..Watched::default() })
    }

    fn calls(&self) -> Vec<Vec<(u64, usize)>> {
        self.calls.lock().unwrap().clone()
    }

    /// Makes reads from `offset` on wait; `None` lets all go on.
    fn close_from(&self, offset: Option<u64>) {
        *self.closed_from.lock().unwrap() = offset;
        self.opened.notify_all();
    }
}

impl Source for Watched {
    fn uri(&self) -> &str {
        "watched"
    }
}

impl ReadAt for Watched {
    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_exact_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        self.read_ranges(&mut [Part { offset, buffer }])
    }

    fn read_ranges(&self, parts: &mut [Part<'_>]) -> io::Result<()> {
        if parts.is_empty() {
            return Ok(());
        }
        let places = parts.iter().map(|part| (part.offset, part.buffer.len())).collect();
        self.calls.lock().unwrap().push(places);
        let furthest = parts.iter().map(|part| part.offset).max().unwrap();
        let closed = self.closed_from.lock().unwrap();
        drop(self.opened.wait_while(closed, |from| from.is_some_and(|from| furthest >= from)));
        let fails = self.failures.load(Ordering::Relaxed);
        if fails > 0 {
            self.failures.store(fails - 1, Ordering::Relaxed);
            return Err(SourceError::new("watched", SourceErrorKind::Unavailable, "fails").into());
        }
        for part in parts {
            let from = part.offset as usize;
            part.buffer.copy_from_slice(&self.bytes[from..from + part.buffer.len()]);
        }
        Ok(())
    }
}

/// Contents of 40 blocks of 64 KiB, and an archive of them without prefetching.
fn archive(options: &ArchiveOptions) -> (Vec<u8>, Arc<Watched>, Archive) {
    let contents = sample(40 << 16, 9);
    let packed = pz::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let source = Watched::new(packed);
    let archive = Archive::of_source(Arc::clone(&source) as _, options).unwrap();
    source.calls.lock().unwrap().clear();
    (contents, source, archive)
}

fn plain() -> ArchiveOptions {
    ArchiveOptions::new().prefetch(0)
}

fn read(archive: &Archive, start: u64, len: usize) -> Result<Vec<u8>, ArchiveError> {
    let mut bytes = vec![0; len];
    archive.read_into(start..start + len as u64, &mut bytes)?;
    Ok(bytes)
}

fn in_time(milliseconds: u64) -> ReadOptions {
    ReadOptions::new().deadline(Instant::now() + Duration::from_millis(milliseconds))
}

/// Waits until `happened` returns true.
#[track_caller]
fn wait_until(mut happened: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !happened() {
        assert!(begun.elapsed() < Duration::from_secs(60));
        thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn any_range_of_any_archive() {
    let contents = sample(900_000, 10);
    let compress =
        |bytes: &[u8], block| pz::compress(bytes, &Options::new().block_size(block)).unwrap();
    let frames = [
        compress(&contents[..300_000], 1 << 16),
        compress(&[], 1 << 16),
        compress(&contents[300_000..300_001], 1 << 16),
        compress(&contents[300_001..], 1 << 18),
    ];
    for packed in [compress(&contents, 1 << 16), compress(&contents, 1 << 20), frames.concat()] {
        for budget in [0, 100_000, 1 << 30] {
            let options = ArchiveOptions::new().contents_cache(budget).payload_cache(budget / 2);
            let source = Watched::new(packed.clone());
            let archive = Archive::of_source(source, &options).unwrap();
            assert_eq!(archive.len(), 900_000);
            thread::scope(|scope| {
                for seed in 0..3_u64 {
                    let (archive, contents) = (&archive, &contents);
                    scope.spawn(move || {
                        let mut state = seed + 1;
                        for _ in 0..60 {
                            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                            let start = (state >> 33) as usize % 900_001;
                            let len = (state >> 20) as usize % 150_000;
                            let len = len.min(900_000 - start);
                            let part = read(archive, start as u64, len).unwrap();
                            assert!(part == contents[start..start + len], "{start} and {len}");
                        }
                    });
                }
            });
            assert!(read(&archive, 0, 900_000).unwrap() == contents);
            let statistics = archive.statistics();
            assert!(statistics.contents.bytes <= budget && statistics.payloads.bytes <= budget / 2);
        }
    }
    let empty = Archive::of_source(Watched::new(compress(&[], 1 << 16)), &plain()).unwrap();
    assert!(empty.is_empty());
    assert_eq!(read(&empty, 0, 0).unwrap(), []);
}

#[test]
fn requests_are_checked() {
    let (_, source, archive) = archive(&plain());
    let mut bytes = [0; 10];
    let len = archive.len();
    for (start, end) in [(len - 9, len + 1), (10, 0), (u64::MAX - 10, u64::MAX)] {
        let error = archive.read_into(start..end, &mut bytes).unwrap_err();
        assert!(matches!(error, ArchiveError::InvalidRange { .. }), "{error}");
    }
    let error = archive.read_into(0..11, &mut bytes).unwrap_err();
    assert!(matches!(error, ArchiveError::DestinationLength { wanted: 11, found: 10 }), "{error}");
    assert!(source.calls().is_empty());
}

/// All ranges of a call become one call of the source, which reads each block once.
#[test]
fn parts_are_read_together() {
    let (contents, source, archive) = archive(&plain());
    let ranges = [100_000..300_000, 150_000..160_000, 1_000_000..1_000_001, 250_000..400_000];
    let mut buffers: Vec<_> = ranges.iter().map(|range| vec![0; range.len()]).collect();
    let mut reads: Vec<_> = ranges
        .iter()
        .zip(&mut buffers)
        .map(|(range, destination)| {
            RangeRead::new(range.start as u64..range.end as u64, destination)
        })
        .collect();
    archive.read(&mut reads, &ReadOptions::new()).unwrap();
    for (range, buffer) in ranges.into_iter().zip(&buffers) {
        assert!(*buffer == contents[range]);
    }
    let [call] = &source.calls()[..] else { panic!("{:?}", source.calls()) };
    assert_eq!(call.len(), 7);
    assert_eq!(call.iter().collect::<BTreeSet<_>>().len(), 7);
}

/// Several readers of a block wait for one load.
#[test]
fn a_block_is_loaded_once() {
    let (contents, source, archive) = archive(&plain());
    source.close_from(Some(0));
    thread::scope(|scope| {
        for reader in 0..8 {
            let (archive, contents) = (&archive, &contents);
            scope.spawn(move || {
                let start = reader * 100;
                let part = read(archive, start, 50).unwrap();
                assert!(part == contents[start as usize..][..50]);
            });
        }
        wait_until(|| archive.statistics().contents.misses == 8);
        source.close_from(None);
    });
    assert_eq!(source.calls().len(), 1);
}

/// An urgent read goes on while all other workers wait for the source.
#[test]
fn urgent_reads_pass_slow_ones() {
    let (contents, source, archive) = archive(&plain());
    let half = source.bytes.len() as u64 / 2;
    source.close_from(Some(half));
    thread::scope(|scope| {
        for reader in 0..5 {
            let (archive, contents, source) = (&archive, &contents, &source);
            scope.spawn(move || {
                let start = (30 + reader) << 16;
                assert!(read(archive, start, 10).unwrap() == contents[start as usize..][..10]);
            });
            if reader < 3 {
                wait_until(|| source.calls().len() > reader as usize);
            }
        }
        let mut bytes = [0; 10];
        let mut try_with = |start: u64, options: ReadOptions| {
            let read = RangeRead::new(start..start + 10, &mut bytes);
            let outcome = archive.read(&mut [read], &options);
            outcome.map(|()| bytes == contents[start as usize..][..10])
        };
        let error = try_with(0, in_time(100)).unwrap_err();
        assert!(matches!(error, ArchiveError::DeadlineExceeded) && error.is_retryable(), "{error}");
        for priority in [Priority::High, Priority::Realtime] {
            let start = if priority == Priority::High { 1 << 16 } else { 2 << 16 };
            assert!(try_with(start, in_time(60_000).priority(priority)).unwrap());
        }
        source.close_from(None);
    });
    // When the first block's turn came, no reader waited for it any more.
    let first = source.calls().concat().into_iter().min().unwrap();
    assert!(first.0 > 10_000, "{first:?}");
}

#[test]
fn reads_can_be_cancelled() {
    let (_, source, archive) = archive(&plain());
    source.close_from(Some(0));
    let token = CancelToken::new();
    thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut bytes = [0; 10];
            let read = RangeRead::new(0..10, &mut bytes);
            archive.read(&mut [read], &ReadOptions::new().cancel(&token))
        });
        wait_until(|| source.calls().len() == 1);
        token.cancel();
        assert!(matches!(reader.join().unwrap(), Err(ArchiveError::Cancelled)));
    });
    source.close_from(None);
    // The block was already being read, and goes into the cache all the same.
    wait_until(|| archive.statistics().contents.bytes == 1 << 16);
}

/// An archive that is dropped does not wait for its source.
#[test]
fn archives_can_be_dropped_at_any_time() {
    let (_, source, archive) = archive(&plain());
    source.close_from(Some(0));
    archive.prefetch(0..1_000_000).unwrap();
    wait_until(|| source.calls().len() == 1);
    drop(archive);
    source.close_from(None);
}

#[test]
fn failures_reach_all_waiting_reads_and_are_not_cached() {
    let (contents, source, archive) = archive(&plain());
    source.failures.store(1, Ordering::Relaxed);
    let error = read(&archive, 0, 100).unwrap_err();
    assert!(error.is_retryable() && error.to_string() == "watched: fails", "{error}");
    assert!(read(&archive, 0, 100).unwrap() == contents[..100]);

    let mut packed = source.bytes.clone();
    packed[5000] ^= 1;
    let archive = Archive::of_source(Watched::new(packed), &plain()).unwrap();
    for _ in 0..2 {
        let error = read(&archive, 0, 100).unwrap_err();
        let ArchiveError::Format { uri, error } = &error else { panic!("{error}") };
        let place = error.place().unwrap();
        assert_eq!((uri.as_str(), place.frame, place.block), ("watched", 0, Some(0)));
    }
    assert!(read(&archive, 1 << 16, 100).unwrap() == contents[1 << 16..][..100]);
    let error = Archive::of_source(Watched::new(vec![7; 1000]), &plain()).err().unwrap();
    assert!(matches!(&error, ArchiveError::Format { .. }), "{error}");
    assert_eq!(error.to_string(), "watched: not in pz format");
}

#[test]
fn memory_is_limited() {
    let (contents, source, _) = archive(&plain());
    let open = |memory| {
        let decode = DecodeOptions::new().max_memory(memory);
        Archive::of_source(Arc::clone(&source) as _, &plain().decode(&decode))
    };
    let error = open(10_000).err().unwrap();
    let ArchiveError::Format { error, .. } = &error else { panic!("{error}") };
    let pz::Error::LimitMemory { needed, .. } = **error else { panic!("{error}") };
    // The memory suffices for one block at a time.
    assert!(read(&open(needed).unwrap(), 0, contents.len()).unwrap() == contents);
    let decode = DecodeOptions::new().max_output(1000);
    let error = Archive::of_source(Arc::clone(&source) as _, &plain().decode(&decode)).err();
    assert!(error.unwrap().to_string().contains("output limit"));
}

/// A hit in the cache of contents needs neither source nor decoder. A hit in the cache of payloads needs the decoder,
/// but not the source.
#[test]
fn both_caches_are_counted() {
    let (contents, source, archive) = archive(&plain().contents_cache(2 << 16));
    let at = |block: u64| read(&archive, block << 16, 100).unwrap();
    for block in [0, 1, 0, 2, 1, 0] {
        assert!(at(block) == contents[(block << 16) as usize..][..100]);
    }
    let found = archive.statistics();
    // Block 2 evicts block 1, block 1 evicts block 0, and block 0 evicts block 2.
    let counts = (found.contents.hits, found.contents.misses, found.contents.evictions);
    assert_eq!(counts, (1, 5, 3));
    assert_eq!((found.payloads.hits, found.payloads.misses, found.payloads.evictions), (2, 3, 0));
    assert_eq!((found.contents.bytes, found.contents.budget), (2 << 16, 2 << 16));
    let travelled: usize = source.calls().concat().iter().map(|(_, len)| len).sum();
    assert_eq!(found.payloads.bytes, travelled as u64);
}

/// If a read begins where another ended, the archive loads the next blocks ahead.
#[test]
fn sequential_reads_load_ahead() {
    let (contents, source, archive) = archive(&ArchiveOptions::new().prefetch(3));
    read(&archive, 10 << 16, 1 << 16).unwrap();
    assert_eq!(archive.statistics().contents.bytes, 1 << 16);
    read(&archive, 11 << 16, 1 << 16).unwrap();
    wait_until(|| archive.statistics().contents.bytes == 5 << 16);
    let calls = source.calls().len();
    source.close_from(Some(0));
    let part = read(&archive, 12 << 16, 3 << 16).unwrap();
    assert!(part == contents[12 << 16..15 << 16]);
    assert!(source.calls().len() <= calls + 1);
    source.close_from(None);
    // The archive does not load ahead what the cache cannot hold.
    let (_, source, archive) = self::archive(&plain().contents_cache(4 << 16));
    archive.prefetch(0..archive.len()).unwrap();
    wait_until(|| archive.statistics().contents.bytes == 2 << 16);
    assert_eq!(source.calls().concat().len(), 2);
    assert!(archive.prefetch(0..archive.len() + 1).is_err());
}

#[test]
fn arrays_load_only_what_they_need() {
    let numbers: Vec<u32> = (0..500_000).map(|i| i * 7 % 1000).collect();
    let bytes: &[u8] = bytemuck::cast_slice(&numbers);
    let with_header = [&[1, 2, 3][..], bytes].concat();
    let packed = pz::compress(&with_header, &Options::new().block_size(1 << 16)).unwrap();
    let source = Watched::new(packed);
    let archive = Archive::of_source(Arc::clone(&source) as _, &plain()).unwrap();
    let archive = Arc::new(archive);
    source.calls.lock().unwrap().clear();
    let error = Array::<u32>::new(Arc::clone(&archive)).err().unwrap();
    assert!(matches!(error, ArchiveError::NotItems { bytes: 2_000_003, item: 4 }), "{error}");
    let array = Array::<u32>::of_range(Arc::clone(&archive), 3..archive.len()).unwrap();
    assert_eq!(array.len(), 500_000);
    assert_eq!(array.get(123_456).unwrap(), numbers[123_456]);
    assert_eq!(source.calls().concat().len(), 1);
    assert!(array.slice(123_000..200_000).unwrap() == numbers[123_000..200_000]);
    assert_eq!(array.slice(500_000..500_000).unwrap(), []);
    for range in [(0, 500_001), (5, 4), (u64::MAX, u64::MAX)] {
        let error = array.slice(range.0..range.1).unwrap_err();
        assert!(matches!(error, ArchiveError::InvalidRange { .. }), "{error}");
    }
    let pairs = Array::<[u32; 2]>::of_range(archive, 3..2_000_003).unwrap();
    assert_eq!(pairs.get(1).unwrap(), [numbers[2], numbers[3]]);
}

#[test]
fn archives_are_opened_by_uri() {
    publish("an-archive", pz::compress(b"one two three", &Options::new()).unwrap());
    let archive = Archive::open("memio://an-archive", &plain()).unwrap();
    assert_eq!((archive.uri(), archive.len()), ("memio://an-archive", 13));
    assert_eq!(read(&archive, 4, 3).unwrap(), b"two");
    let error = Archive::open("an-archive", &plain()).err().unwrap();
    let ArchiveError::Source(error) = error else { panic!("{error}") };
    assert_eq!(error.kind(), SourceErrorKind::InvalidUri);
}
