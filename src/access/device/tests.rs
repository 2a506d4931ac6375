//! Ranges of archives in the memory of every device.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use super::{DeviceMemory, DeviceMemoryOptions};
use crate::access::{
    Archive, ArchiveError, ArchiveOptions, CancelToken, Part, Priority, RangeRead, ReadOptions,
    Source, SourceError, SourceErrorKind,
};
use crate::gpu::device::{Api, Device, DeviceError, NativeBuffer, NativeStream};
use crate::gpu::tests::faulty::{Fault, Faulty};
use crate::gpu::tests::testing::{each_device, each_static_device};
use crate::test_data::{mixture, noise};
use crate::{Level, Options, Pipeline};

/// An archive in memory whose reads can be held up or made to fail.
#[derive(Default)]
struct Watched {
    bytes: Vec<u8>,
    is_held: AtomicBool,
    fails: AtomicBool,
    parts: AtomicUsize,
}

impl Source for Watched {
    fn uri(&self) -> &str {
        "watched"
    }

    fn len(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn read_ranges(&self, parts: &mut [Part<'_>]) -> Result<(), SourceError> {
        self.parts.fetch_add(parts.len(), Ordering::Relaxed);
        while self.is_held.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        if self.fails.load(Ordering::Relaxed) {
            return Err(SourceError::new("watched", SourceErrorKind::Unavailable, "fails"));
        }
        for part in parts {
            let from = part.offset as usize;
            part.buffer.copy_from_slice(&self.bytes[from..from + part.buffer.len()]);
        }
        Ok(())
    }
}

/// Text, bytes that do not compress, and repeated bytes.
pub(super) fn contents(len: usize) -> Vec<u8> {
    let mut all = mixture(len / 2);
    all.extend(noise(3, len / 8, 256));
    all.extend(vec![7; len / 4]);
    all.extend(mixture(len / 8));
    all.resize(len, b'.');
    all
}

fn archive_of(packed: Vec<u8>) -> (Arc<Watched>, Archive) {
    let source = Arc::new(Watched { bytes: packed, ..Watched::default() });
    let archive = Archive::of_source(source.clone(), &ArchiveOptions::new()).unwrap();
    (source, archive)
}

/// Small batches, so that even short archives have several.
pub(super) fn memory_of(device: impl Device + 'static) -> DeviceMemory {
    let options = DeviceMemoryOptions::new().workers(2).batch(256 << 10);
    DeviceMemory::of_device(Arc::new(device), &options)
}

/// Reads `range` to byte `at` of a buffer with bytes around it, and checks all of them.
fn check(
    archive: &Archive,
    memory: &DeviceMemory,
    contents: &[u8],
    (range, at): (std::ops::Range<usize>, usize),
) {
    let before = vec![0xa5; range.len() + at + 40];
    let mut buffer = memory.allocate(before.len() as u64).unwrap();
    buffer.copy_from_host(0, &before).unwrap();
    let slice = buffer.slice_mut(at as u64..(at + range.len()) as u64).unwrap();
    archive.read_into(range.start as u64..range.end as u64, slice).unwrap();
    let mut expected = before;
    expected[at..at + range.len()].copy_from_slice(&contents[range.clone()]);
    let mut found = vec![0; expected.len()];
    buffer.copy_to_host(0, &mut found).unwrap();
    let wrong = found.iter().zip(&expected).position(|(found, expected)| found != expected);
    assert_eq!(wrong, None, "{range:?} at {at}: the first byte that differs");
}

#[test]
fn ranges_of_every_level_and_filter() {
    let filters = ["none", "transpose4", "delta2,zigzag2,transpose2", "auto"];
    each_static_device(|device| {
        let memory = memory_of(device);
        for level in Level::all() {
            let number = level.get() as usize;
            let len = if number > 7 { 150_001 } else { 400_001 };
            let contents = contents(len);
            let filter = filters[number % filters.len()].parse().unwrap();
            let options = Options::new().level(level).block_size(1 << 16).filter(filter);
            let (_, archive) = archive_of(crate::compress(&contents, &options).unwrap());
            let mut ranges = vec![(0..len, 0), (65_536..131_072, 16), (65_535..65_537, 3)];
            let mut seed = number;
            for _ in 0..6 {
                seed = seed.wrapping_mul(1_103_515_245).wrapping_add(12_345) % (1 << 31);
                let start = seed % len;
                ranges.push((start..len.min(start + seed / 7 % 90_000), seed % 19));
            }
            for range in ranges {
                check(&archive, &memory, &contents, range);
            }
            let statistics = archive.statistics();
            assert!(statistics.blocks_by_device > 0, "{statistics:?}");
            if level.pipeline() != Pipeline::Bwt && number != 9 {
                assert_eq!(statistics.blocks_by_cpu, 0, "level {level}");
            }
        }
    });
}

/// A single frame, several frames one after another, and an empty one.
#[test]
fn threads_share_long_reads() {
    let contents = noise(4, 5_000_001, 256);
    let packed = crate::compress(&contents, &Options::new().block_size(1 << 20)).unwrap();
    crate::access::publish("long", packed);
    each_static_device(|device| {
        let options = DeviceMemoryOptions::new().workers(2).batch(8 << 20);
        let memory = DeviceMemory::of_device(Arc::new(device), &options);
        let archive = Archive::open("memio://long", &ArchiveOptions::new()).unwrap();
        check(&archive, &memory, &contents, (0..contents.len(), 5));
        check(&archive, &memory, &contents, (1_000_000..4_500_003, 0));
    });
}

#[test]
fn every_kind_of_frame() {
    each_static_device(|device| {
        let memory = memory_of(device);
        let contents = contents(300_000);
        let mut packed = crate::compress(&contents[..700], &Options::new()).unwrap();
        packed.extend(crate::compress(&[], &Options::new()).unwrap());
        let small = Options::new().block_size(1 << 16).pipeline(Pipeline::Fse);
        packed.extend(crate::compress(&contents[700..200_000], &small).unwrap());
        let stored = Options::new().pipeline(Pipeline::Store);
        packed.extend(crate::compress(&contents[200_000..], &stored).unwrap());
        let (_, archive) = archive_of(packed);
        let len = contents.len();
        for range in [0..len, 0..700, 699..701, 150_000..250_000, len - 1..len, 5..5, len..len] {
            check(&archive, &memory, &contents, (range, 1));
        }
        assert_eq!(archive.statistics().blocks_by_cpu, 0);
    });
}

#[test]
fn host_memory_stands_for_a_device() {
    let contents = contents(200_000);
    let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    let (_, archive) = archive_of(packed);
    let memory = DeviceMemory::host();
    for range in [0..200_000, 40_000..40_000, 31_000..99_999] {
        check(&archive, &memory, &contents, (range, 5));
    }
    assert!(memory.device().is_none() && memory.allocate(3).unwrap().native().is_none());
    assert_eq!(archive.statistics().blocks_by_device, 0);
}

#[test]
fn misuse_is_an_error() {
    each_static_device(|device| {
        let memory = memory_of(device);
        let (_, archive) = archive_of(crate::compress(&[9; 5000], &Options::new()).unwrap());
        let mut buffer = memory.allocate(100).unwrap();
        for len in [0, 99, 101] {
            let error = archive.read_into(0..len, &mut buffer).unwrap_err();
            let is_length = matches!(error, ArchiveError::DestinationLength { wanted, found: 100 } if wanted == len);
            assert!(is_length, "{error}");
        }
        let error = archive.read_into(4950..5050, &mut buffer).unwrap_err();
        assert!(matches!(error, ArchiveError::InvalidRange { .. }), "{error}");
        assert!(buffer.slice_mut(50..101).is_none() && buffer.slice_mut(100..100).is_some());
        for offset in [1, u64::MAX] {
            let error = buffer.copy_to_host(offset, &mut [0; 100]).unwrap_err();
            assert!(matches!(error, DeviceError::Unsupported(_)), "{error}");
            assert_eq!(buffer.copy_from_host(offset, &[0; 100]).unwrap_err(), error);
        }
        assert!(buffer.native().is_some());
    });
}

/// A buffer that the caller has made with the interface's own calls.
#[test]
fn buffers_of_callers_are_destinations() {
    each_static_device(|device| {
        let memory = memory_of(device);
        let contents = contents(200_000);
        let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
        let (_, archive) = archive_of(packed);
        let id = device.allocate(150_000).unwrap();
        // SAFETY: the buffer is the device's own, and nothing else uses it.
        let imported = unsafe { memory.import(device.export(id).unwrap()) };
        let mut buffer = imported.unwrap();
        assert_eq!(buffer.len(), 150_000);
        archive.read_into(7..150_007, &mut buffer).unwrap();
        drop(buffer);
        let mut found = vec![0; 150_000];
        device.queue().unwrap().read(id, 0, &mut found).unwrap();
        assert!(found == contents[7..150_007]);
        device.free(id);

        // What is of no interface of this device.
        let null = std::ptr::null_mut();
        let is_opencl = device.limits().api == Api::OpenCl;
        for memory in [memory, DeviceMemory::host()] {
            let (stream, native) = match is_opencl {
                true => (NativeStream::Cuda(null), NativeBuffer::Cuda { address: 7, bytes: 3 }),
                false => (NativeStream::OpenCl(null), NativeBuffer::OpenCl(null)),
            };
            // SAFETY: they are refused for their kind.
            let (waited, imported) = unsafe { (memory.wait_for(stream), memory.import(native)) };
            assert!(matches!(waited, Err(DeviceError::Unsupported(_))), "{waited:?}");
            assert!(matches!(imported, Err(DeviceError::Unsupported(_))), "{imported:?}");
        }
    });
}

#[test]
fn several_destinations_at_once() {
    each_static_device(|device| {
        let (memory, other) = (memory_of(device), memory_of(device));
        let contents = contents(500_000);
        let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
        let (source, archive) = archive_of(packed);
        source.parts.store(0, Ordering::Relaxed);
        let ranges = [10..200_000, 150_000..150_003, 100_000..300_001, 499_000..500_000];
        let len = |n: usize| (ranges[n].end - ranges[n].start) as usize;
        let mut one = memory.allocate((len(0) + len(1)) as u64).unwrap();
        let mut two = other.allocate(len(2) as u64).unwrap();
        let mut host = vec![0; len(3)];
        let (first, second) =
            super::DeviceSliceMut::from(&mut one).split_at_mut(len(0) as u64).unwrap();
        let [a, b, c, d] = ranges.clone();
        let mut reads = [
            RangeRead::new(a, first),
            RangeRead::new(b, second),
            RangeRead::new(c, &mut two),
            RangeRead::new(d, &mut host),
        ];
        archive.read(&mut reads, &ReadOptions::new()).unwrap();
        let mut found = vec![0; one.len() as usize];
        one.copy_to_host(0, &mut found).unwrap();
        assert!(found == [&contents[10..200_000], &contents[150_000..150_003]].concat());
        found.resize(two.len() as usize, 0);
        two.copy_to_host(0, &mut found).unwrap();
        assert!(found == contents[100_000..300_001] && host == contents[499_000..]);
        // Blocks that touch in the file travel together.
        let parts = source.parts.load(Ordering::Relaxed);
        assert!(parts <= 8, "{parts} parts");

        // From several threads.
        thread::scope(|scope| {
            for thread in 0..6 {
                let (archive, memory, contents) = (&archive, &memory, &contents);
                scope.spawn(move || {
                    for turn in 0..4 {
                        let start = thread * 77_777 + turn * 1111;
                        check(archive, memory, contents, (start..start + 60_000, thread));
                    }
                });
            }
        });
    });
}

#[test]
fn damage_is_named_and_elsewhere_all_is_well() {
    each_static_device(|device| {
        let memory = memory_of(device);
        let contents = contents(300_000);
        let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
        // In the first block, and in the stored one.
        for (place, block) in [(2000, 0), (packed.len() / 2, 2)] {
            let mut damaged = packed.clone();
            damaged[place] ^= 1;
            let (_, archive) = archive_of(damaged);
            let mut buffer = memory.allocate(300_000).unwrap();
            let error = archive.read_into(0..300_000, &mut buffer).unwrap_err();
            let ArchiveError::Format { uri, error } = &error else { panic!("{error}") };
            let text = error.to_string();
            assert!(uri == "watched" && text.contains(&format!("block {block}")), "{text}");
            check(&archive, &memory, &contents, (270_000..300_000, 2));
        }
        let (source, archive) = archive_of(packed);
        source.fails.store(true, Ordering::Relaxed);
        let mut buffer = memory.allocate(300_000).unwrap();
        let error = archive.read_into(0..300_000, &mut buffer).unwrap_err();
        assert!(matches!(error, ArchiveError::Source(_)), "{error}");
        source.fails.store(false, Ordering::Relaxed);
        check(&archive, &memory, &contents, (0..300_000, 0));
        // What came from a source that is not local is cached, compressed.
        source.fails.store(true, Ordering::Relaxed);
        check(&archive, &memory, &contents, (0..300_000, 0));
        assert!(archive.statistics().payloads.hits > 0);
    });
}

#[test]
fn reads_that_are_given_up_write_nothing_later() {
    each_static_device(|device| {
        let memory = memory_of(device);
        let contents = contents(300_000);
        let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
        let (source, archive) = archive_of(packed);
        let mut buffer = memory.allocate(300_000).unwrap();
        buffer.copy_from_host(0, &vec![0xa5; 300_000]).unwrap();
        source.is_held.store(true, Ordering::Relaxed);
        let soon = Instant::now() + Duration::from_millis(30);
        let options = ReadOptions::new().deadline(soon);
        let read = RangeRead::new(0..300_000, &mut buffer);
        let error = archive.read(&mut [read], &options).unwrap_err();
        assert!(matches!(error, ArchiveError::DeadlineExceeded), "{error}");
        let token = CancelToken::new();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(30));
                token.cancel();
            });
            let read = RangeRead::new(0..300_000, &mut buffer);
            let error = archive.read(&mut [read], &ReadOptions::new().cancel(&token)).unwrap_err();
            assert!(matches!(error, ArchiveError::Cancelled), "{error}");
        });
        // Blocks of the reads above still come, and nobody wants them.
        source.is_held.store(false, Ordering::Relaxed);
        check(&archive, &memory, &contents, (0..300_000, 0));
        let mut found = vec![0; 300_000];
        buffer.copy_to_host(0, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0xa5));
    });
}

/// One worker stays free for what is urgent.
#[test]
fn urgent_reads_wait_for_no_slow_source() {
    each_static_device(|device| {
        let memory = memory_of(device);
        let contents = contents(200_000);
        let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
        let (slow, slow_archive) = archive_of(packed.clone());
        let (_, archive) = archive_of(packed);
        slow.is_held.store(true, Ordering::Relaxed);
        thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| check(&slow_archive, &memory, &contents, (0..200_000, 0)));
            }
            thread::sleep(Duration::from_millis(20));
            let mut buffer = memory.allocate(1000).unwrap();
            let options = ReadOptions::new().priority(Priority::High);
            archive.read(&mut [RangeRead::new(0..1000, &mut buffer)], &options).unwrap();
            slow.is_held.store(false, Ordering::Relaxed);
        });
    });
}

/// A device that several values share, so that a test can look at it after a read.
pub(super) fn faulty(
    device: &'static dyn Device,
    fault: Fault,
) -> Arc<Faulty<&'static dyn Device>> {
    Arc::new(Faulty::new(device, fault).with_deadline(Duration::from_millis(300)))
}

#[test]
fn a_lack_of_memory_makes_batches_smaller() {
    each_static_device(|device| {
        let contents = contents(600_000);
        let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
        let (_, archive) = archive_of(packed);
        for most in [1 << 20, 3 << 20, 8 << 20] {
            let device = faulty(device, Fault::MemoryAbove(most));
            let memory = memory_of(Arc::clone(&device));
            check(&archive, &memory, &contents, (0..600_000, 0));
            assert!(device.most_used() <= most);
        }
        // No memory at all, besides that of the result.
        let device = faulty(device, Fault::MemoryAbove(620_000));
        let memory = memory_of(Arc::clone(&device));
        let mut buffer = memory.allocate(600_000).unwrap();
        let error = archive.read_into(0..600_000, &mut buffer).unwrap_err();
        assert!(error.is_retryable() && error.to_string().starts_with("device "), "{error}");
        device.set_memory(64 << 20);
        check(&archive, &memory, &contents, (0..600_000, 0));
    });
}

/// Waits until something is so.
fn wait_until(is_so: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !is_so() && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
    }
    assert!(is_so());
}

#[test]
fn idle_memory_is_given_back() {
    each_static_device(|device| {
        let contents = contents(300_000);
        let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
        let (_, archive) = archive_of(packed);
        let device = faulty(device, Fault::None);
        let options = DeviceMemoryOptions::new().workers(2).idle(Duration::from_millis(20));
        let memory = DeviceMemory::of_device(Arc::new(Arc::clone(&device)), &options);
        for _ in 0..2 {
            check(&archive, &memory, &contents, (0..300_000, 0));
            wait_until(|| device.live() == 0);
        }
    });
}

/// Whatever call fails, a read ends with the right bytes or an error, and nothing leaks.
#[test]
fn faults_end_in_right_bytes_or_errors() {
    let contents = contents(150_000);
    let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    each_static_device(|device| {
        let read = |fault: Fault| {
            let device = faulty(device, fault);
            let (_, archive) = archive_of(packed.clone());
            let memory = memory_of(Arc::clone(&device));
            let outcome = (|| {
                let mut buffer = memory.allocate(150_000).map_err(|error| error.to_string())?;
                let read = archive.read_into(0..150_000, &mut buffer);
                read.map_err(|error| error.to_string())?;
                let mut found = vec![0; 150_000];
                let copied = buffer.copy_to_host(0, &mut found);
                copied.map_err(|error| error.to_string())?;
                // A wrong bit on the way of a move's place is not found.
                assert!(found == contents || matches!(fault, Fault::Write(_)), "{fault:?}");
                Ok::<(), String>(())
            })();
            drop((archive, memory));
            // The workers end soon.
            wait_until(|| Arc::strong_count(&device) == 1);
            assert_eq!(device.live(), 0, "{fault:?}: bytes that were not freed");
            (outcome, device)
        };
        let (outcome, whole) = read(Fault::None);
        outcome.unwrap();
        let failed = Mutex::new(0);
        for call in whole.sample_of_calls(17) {
            for fault in [Fault::Call(call), Fault::Late(call), Fault::Lost(call)] {
                *failed.lock().unwrap() += usize::from(read(fault).0.is_err());
            }
        }
        assert!(failed.into_inner().unwrap() > 3);
        // Wrong payloads are found by their checksums, and the CPU does those blocks. A wrong move stays within the buffer.
        let (_, writes) = whole.copies();
        for fault in (0..writes).step_by(5).map(Fault::Write) {
            let _ = read(fault);
        }
        let (outcome, _) = read(Fault::Endless(whole.calls() / 2));
        let error = outcome.unwrap_err();
        assert!(error.contains("in time"), "{error}");
    });
}

/// Lanes take what the costs of kernels predict, and no more than the limit.
#[test]
fn memory_is_what_costs_predict() {
    each_device(|device| {
        if device.limits().api == Api::Cuda {
            return;
        }
        for megabytes in [4, 16, 64] {
            let options = DeviceMemoryOptions::new().workers(2).memory(megabytes << 20);
            let core = super::Core::new(
                Arc::new(crate::gpu::tests::testing::Nothing(device.limits().clone())),
                &options,
            );
            for block_len in [1 << 15, 1 << 20, 1 << 24] {
                for pipeline in [Pipeline::Lzf, Pipeline::Bwt, Pipeline::Store] {
                    let blocks = core.batch_of(pipeline, block_len);
                    let cost = crate::gpu::coder::RangeDecoder::cost_of_block(
                        device.limits(),
                        pipeline,
                        block_len,
                    );
                    let Ok(cost) = cost else { continue };
                    let taken = u64::from(blocks) * cost.memory;
                    assert!(2 * taken <= megabytes << 20, "{pipeline} {block_len}: {taken}");
                }
            }
        }
    });
}

/// What has been prepared reads as before, and whatever is wrong with an archive is said when it is read.
#[test]
fn workers_are_prepared_for_an_archive() {
    let contents = contents(700_000);
    for level in [1, 9] {
        let options = Options::new().level(Level::new(level).unwrap()).block_size(1 << 16);
        let mut packed = crate::compress(&contents, &options).unwrap();
        for is_damaged in [false, true] {
            if is_damaged {
                packed[500] ^= 1;
            }
            each_static_device(|device| {
                let source = Arc::new(Watched { bytes: packed.clone(), ..Watched::default() });
                let archive = Archive::of_source(source, &ArchiveOptions::new()).unwrap();
                let options = DeviceMemoryOptions::new().workers(3).batch(256 << 10);
                let memory = DeviceMemory::of_device(Arc::new(device), &options);
                archive.prepare_on(&memory).unwrap();
                let mut buffer = memory.allocate(100_000).unwrap();
                archive.read_into(300_000..400_000, &mut buffer).unwrap();
                let mut found = vec![0; 100_000];
                buffer.copy_to_host(0, &mut found).unwrap();
                assert!(found == contents[300_000..400_000]);
                assert_eq!(archive.read_into(0..100_000, &mut buffer).is_err(), is_damaged);
            });
        }
    }
}
