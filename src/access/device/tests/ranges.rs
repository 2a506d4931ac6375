//! Ranges of every kind of archive, to every kind of destination.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;

use super::{
    DeviceMemory, DeviceMemoryOptions, DeviceSliceMut, archive_of, check, contents,
    local_archive_of, memory_of,
};
use crate::access::{Archive, ArchiveError, ArchiveOptions, RangeRead, ReadOptions};
use crate::gpu::device::{Api, DeviceError, NativeBuffer, NativeStream};
use crate::gpu::tests::testing::each_static_device;
use crate::test_data::noise;
use crate::{Level, Options, Pipeline};

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
            let packed = crate::compress(&contents, &options).unwrap();
            let (_, archive) =
                if number % 2 == 1 { local_archive_of(packed) } else { archive_of(packed) };
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

#[test]
fn long_ranges() {
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

/// A single frame, several frames one after another, and an empty one.
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
        let len = contents.len();
        for (_, archive) in [archive_of(packed.clone()), local_archive_of(packed)] {
            for range in [0..len, 0..700, 699..701, 150_000..250_000, len - 1..len, 5..5, len..len]
            {
                check(&archive, &memory, &contents, (range, 1));
            }
            assert_eq!(archive.statistics().blocks_by_cpu, 0);
        }
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

#[test]
fn copies_are_buffers_of_their_own() {
    let check = |memory: DeviceMemory| {
        for len in [0, 1, 3, 4, 4099, 70_000] {
            let contents = contents(len);
            let mut buffer = memory.allocate(len as u64).unwrap();
            buffer.copy_from_host(0, &contents).unwrap();
            let copy = buffer.try_clone().unwrap();
            buffer.copy_from_host(0, &vec![0; len]).unwrap();
            let mut found = vec![1; len];
            copy.copy_to_host(0, &mut found).unwrap();
            assert!(found == contents, "{len} bytes of {memory:?}");
        }
    };
    check(DeviceMemory::host());
    each_static_device(|device| check(memory_of(device)));
}

/// A buffer that the caller has made with the driver's own calls.
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

        // Handles of another kind than the device's.
        let null = std::ptr::null_mut();
        let is_opencl = device.limits().api == Api::OpenCl;
        for memory in [memory, DeviceMemory::host()] {
            let (stream, native) = match is_opencl {
                true => (NativeStream::Cuda(null), NativeBuffer::Cuda { address: 7, bytes: 3 }),
                false => (NativeStream::OpenCl(null), NativeBuffer::OpenCl(null)),
            };
            // SAFETY: the device refuses them because of their kind.
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
        source.reads.store(0, Ordering::Relaxed);
        let ranges = [10..200_000, 150_000..150_003, 100_000..300_001, 499_000..500_000];
        let len = |n: usize| (ranges[n].end - ranges[n].start) as usize;
        let mut one = memory.allocate((len(0) + len(1)) as u64).unwrap();
        let mut two = other.allocate(len(2) as u64).unwrap();
        let mut host = vec![0; len(3)];
        let (first, second) = DeviceSliceMut::from(&mut one).split_at_mut(len(0) as u64).unwrap();
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
        // One call asks for all blocks of a batch, each once, so that the source can join neighbours.
        let (parts, reads) = (&source.parts, &source.reads);
        let (parts, reads) = (parts.load(Ordering::Relaxed), reads.load(Ordering::Relaxed));
        assert!(parts <= 9 && reads <= 4, "{parts} parts in {reads} reads");

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
