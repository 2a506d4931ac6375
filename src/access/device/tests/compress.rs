//! Contents of a device's memory, compressed there.

use super::{DeviceBuffer, DeviceMemory, contents, faulty, memory_of};
use crate::gpu::tests::faulty::Fault;
use crate::gpu::tests::testing::each_static_device;
use crate::{DecodeOptions, Error, Level, Options, Pipeline, Statistics, decompress};

/// A buffer that holds `before` bytes and then `contents`.
fn buffer_of(memory: &DeviceMemory, before: usize, contents: &[u8]) -> DeviceBuffer {
    let mut buffer = memory.allocate((before + contents.len()) as u64).unwrap();
    buffer.copy_from_host(0, &vec![9; before]).unwrap();
    buffer.copy_from_host(before as u64, contents).unwrap();
    buffer
}

/// Compresses what follows the first `before` bytes.
fn compressed(
    buffer: &DeviceBuffer,
    before: usize,
    options: &Options,
) -> (Vec<u8>, Option<(u64, u64)>) {
    let (mut result, counted) = (Vec::new(), Statistics::new());
    let options = options.clone().statistics(&counted);
    let len = buffer.compress_to(before as u64..buffer.len(), &mut result, &options).unwrap();
    assert_eq!(len, result.len() as u64);
    (result, counted.device().map(|device| (device.done.blocks, device.left)))
}

fn options(level: u32) -> Options {
    Options::new().level(Level::new(level).unwrap()).block_size(1 << 16)
}

#[test]
fn every_level_makes_the_bytes_of_the_cpu() {
    each_static_device(|device| {
        let memory = memory_of(device);
        for level in 1..=9 {
            let len = if level > 7 { 140_003 } else { 400_001 };
            let contents = contents(len);
            let filter =
                ["none", "delta2,zigzag2,transpose2", "rotate4,transpose4"][level as usize % 3];
            for verify in [true, false] {
                let options = options(level).filter(filter.parse().unwrap()).verify(verify);
                let expected = crate::compress(&contents, &options).unwrap();
                let (found, counted) = compressed(&buffer_of(&memory, 20, &contents), 20, &options);
                assert!(found == expected, "level {level}, filter {filter}");
                let blocks = len.div_ceil(1 << 16) as u64;
                assert_eq!(counted, (level < 9).then_some((blocks, 0)), "level {level}");
            }
        }
    });
}

#[test]
fn every_length_and_place() {
    let contents = contents(300_000);
    each_static_device(|device| {
        let memory = memory_of(device);
        for (len, before, on_device) in [
            (0, 0, 0),
            (1, 4, 0),
            (65_536, 0, 0),
            (65_537, 0, 2),
            (131_072, 8, 2),
            (131_073, 4, 3),
            (200_003, 12, 4),
            (200_004, 16, 4),
            (200_016, 400, 4),
            // It begins in the middle of a word.
            (200_016, 3, 0),
        ] {
            let contents = &contents[..len];
            let expected = crate::compress(contents, &options(2)).unwrap();
            let (found, counted) =
                compressed(&buffer_of(&memory, before, contents), before, &options(2));
            assert!(found == expected, "{len} bytes from {before} on");
            let done = counted.map_or(0, |(done, _)| done);
            assert_eq!(done, on_device, "{len} bytes from {before} on");
        }
    });
}

#[test]
fn what_the_device_does_not_do_the_host_does() {
    let numbers: Vec<u8> =
        (0..60_000_u32).flat_map(|i| (f64::from(i) / 8.0).to_le_bytes()).collect();
    each_static_device(|device| {
        let memory = memory_of(device);
        let buffer = buffer_of(&memory, 0, &numbers);
        for options in [
            options(3).filter("auto".parse().unwrap()),
            options(3).filter("decimal8:3,transpose8".parse().unwrap()),
            options(3).pipeline(Pipeline::Store),
            // There is room for one block of the host's at a time.
            options(1).memory(4 << 20).threads(1),
        ] {
            let expected = crate::compress(&numbers, &options).unwrap();
            assert!(compressed(&buffer, 0, &options).0 == expected, "{options:?}");
        }
    });
}

#[test]
fn faults_end_in_the_right_bytes() {
    let contents = contents(300_000);
    let expected = crate::compress(&contents, &options(1)).unwrap();
    each_static_device(|device| {
        let software = device.limits().kind == crate::gpu::device::Kind::Software;
        let calls = if software { 12 } else { 40 };
        let faults = (0..calls).map(|i| Fault::Call(20 + 7 * i)).chain([
            Fault::MemoryAbove(6 << 20),
            Fault::BuffersAbove(400_000),
            Fault::LongReads(20_000),
            Fault::Read(3),
            Fault::Read(6),
            Fault::Lost(40),
        ]);
        for fault in faults {
            let memory = memory_of(faulty(device, fault));
            let Ok(mut buffer) = memory.allocate(contents.len() as u64) else { continue };
            if buffer.copy_from_host(0, &contents).is_err() {
                continue;
            }
            let mut found = Vec::new();
            match buffer.compress_to(0..buffer.len(), &mut found, &options(1)) {
                Ok(_) if found == expected => {}
                // The host may have received wrong contents, and then compresses those.
                Ok(_) => {
                    let restored = decompress(&found, &DecodeOptions::new()).unwrap();
                    assert!(matches!(fault, Fault::LongReads(_) | Fault::Read(_)), "{fault:?}");
                    assert_eq!(restored.len(), contents.len());
                }
                Err(Error::Io(error)) => assert!(!error.to_string().is_empty()),
                Err(error) => panic!("{fault:?}: {error}"),
            }
        }
    });
}

#[test]
fn misuse_of_ranges_is_an_error() {
    for memory in [DeviceMemory::host()] {
        let buffer = memory.allocate(1000).unwrap();
        for (start, end) in [(0, 1001), (5, 4), (u64::MAX, u64::MAX)] {
            let result = buffer.compress_to(start..end, Vec::new(), &Options::new());
            assert!(matches!(result, Err(Error::InvalidRange { len: 1000, .. })), "{result:?}");
        }
        let changed = buffer.compress_to(0..10, Vec::new(), &Options::new().content_size(9));
        assert!(matches!(changed, Err(Error::Changed { declared: 9, seen: 10 })), "{changed:?}");
    }
}

#[test]
fn to_memory_that_may_be_too_short() {
    let contents = contents(200_003);
    let expected = crate::compress(&contents, &options(1)).unwrap();
    let check = |memory: &DeviceMemory| {
        let buffer = buffer_of(memory, 4, &contents);
        for len in [expected.len() + 9, expected.len(), expected.len() / 2, 10, 0] {
            let mut room = vec![0; len];
            let needed = buffer.compress_to_slice(4..buffer.len(), &mut room, &options(1)).unwrap();
            assert_eq!(needed, expected.len() as u64);
            let written = len.min(expected.len());
            assert!(room[..written] == expected[..written]);
        }
    };
    check(&DeviceMemory::host());
    each_static_device(|device| check(&memory_of(device)));
}

#[test]
fn what_is_kept_serves_other_calls() {
    let contents = contents(700_001);
    each_static_device(|device| {
        let memory = memory_of(device);
        let buffer = buffer_of(&memory, 0, &contents);
        // Each call has other contents or another level than the one before.
        for (level, len) in [(1, 200_000), (1, 700_001), (1, 140_000), (2, 700_001), (1, 300_000)] {
            let range = &contents[..len];
            let expected = crate::compress(range, &options(level)).unwrap();
            let mut found = Vec::new();
            buffer.compress_to(0..len as u64, &mut found, &options(level)).unwrap();
            assert!(found == expected, "level {level}, {len} bytes");
        }
    });
}

#[test]
fn several_threads_compress_at_once() {
    let contents = contents(400_001);
    let expected = crate::compress(&contents, &options(1)).unwrap();
    each_static_device(|device| {
        let memory = memory_of(device);
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    let buffer = buffer_of(&memory, 4, &contents);
                    assert!(compressed(&buffer, 4, &options(1)).0 == expected);
                });
            }
        });
    });
}

#[test]
fn a_writer_that_fails_ends_the_call() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let contents = contents(600_000);
    let expected = crate::compress(&contents, &options(1)).unwrap();
    each_static_device(|device| {
        let memory = memory_of(device);
        let buffer = buffer_of(&memory, 0, &contents);
        for room in [0, 40, expected.len() / 2] {
            let found = buffer.compress_to(0..buffer.len(), Full(room), &options(1));
            assert!(matches!(found, Err(Error::Io(_))), "{found:?}");
        }
        let mut found = Vec::new();
        buffer.compress_to(0..buffer.len(), &mut found, &options(1)).unwrap();
        assert!(found == expected);
    });
}
