//! Reads in the background.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc;

use super::{
    DeviceBuffer, DeviceMemory, DeviceMemoryOptions, PATIENCE, archive_of, contents, faulty,
    local_archive_of, memory_of,
};
use crate::Options;
use crate::access::{Archive, ArchiveError, RangeRead};
use crate::gpu::tests::faulty::Fault;
use crate::gpu::tests::testing::each_static_device;

type ReadOutcome = Result<(), ArchiveError>;

/// Reads ranges to the same offsets of a buffer, and returns the outcome of each.
fn read_all(archive: &Archive, buffer: &DeviceBuffer, ranges: &[Range<u64>]) -> Vec<ReadOutcome> {
    let (done, is_done) = mpsc::channel();
    let read = |(number, range): (usize, &Range<u64>)| {
        let done = done.clone();
        let destination = buffer.part(range.clone()).unwrap();
        let read = RangeRead::new(range.clone(), destination);
        (read, move |outcome| done.send((number, outcome)).unwrap())
    };
    archive.read_in_background(buffer.memory(), ranges.iter().enumerate().map(read).collect());
    drop(done);
    let mut outcomes: Vec<Option<ReadOutcome>> = ranges.iter().map(|_| None).collect();
    for _ in ranges {
        let (number, outcome) = is_done.recv_timeout(PATIENCE).unwrap();
        assert!(outcomes[number].replace(outcome).is_none(), "{number} has ended twice");
    }
    assert!(is_done.recv().is_err());
    outcomes.into_iter().flatten().collect()
}

#[test]
fn each_read_ends_once_and_has_its_bytes() {
    let contents = contents(900_000);
    let len = contents.len() as u64;
    let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    each_static_device(|device| {
        let memory = memory_of(device);
        for (_, archive) in [archive_of(packed.clone()), local_archive_of(packed.clone())] {
            let buffer = memory.allocate(len).unwrap();
            // Most blocks have several ranges, some ranges have several blocks, and one range is empty.
            let step = 7_001;
            let mut ranges: Vec<_> =
                (0..len).step_by(step).map(|at| at..len.min(at + step as u64)).collect();
            ranges.push(5..5);
            for outcome in read_all(&archive, &buffer, &ranges) {
                outcome.unwrap();
            }
            let mut found = vec![0; contents.len()];
            buffer.copy_to_host(0, &mut found).unwrap();
            assert!(found == contents);
            assert_eq!(archive.statistics().blocks_by_cpu, 0);
        }
    });
}

#[test]
fn what_cannot_be_read_is_said_to_each() {
    let contents = contents(400_000);
    let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    each_static_device(|device| {
        let device: &'static dyn crate::gpu::device::Device = device;
        let (source, archive) = local_archive_of(packed.clone());
        let memory = memory_of(device);
        let buffer = memory.allocate(500_000).unwrap();
        let outcomes = read_all(&archive, &buffer, &[0..1000, 399_000..400_001, 100_000..200_000]);
        assert!(
            matches!(outcomes[..], [Ok(()), Err(ArchiveError::InvalidRange { .. }), Ok(())]),
            "{outcomes:?}"
        );
        source.fails.store(true, Ordering::Relaxed);
        for outcome in read_all(&archive, &buffer, &[200_000..200_100, 300_000..400_000]) {
            assert!(matches!(outcome, Err(ArchiveError::Source(_))), "{outcome:?}");
        }
        source.fails.store(false, Ordering::Relaxed);
        // After a failure of the device each read fails.
        let mut failures = 0;
        for call in (0..200).step_by(8) {
            let failing = faulty(device, Fault::Lost(call));
            let options = DeviceMemoryOptions::new().workers(2).batch(256 << 10);
            let memory = DeviceMemory::of_device(Arc::new(failing), &options);
            let Ok(buffer) = memory.allocate(400_000) else { continue };
            let ranges = [0..100, 150_000..400_000];
            let first = read_all(&archive, &buffer, &ranges);
            let is_lost = first.iter().any(Result::is_err);
            let second = read_all(&archive, &buffer, &ranges);
            for outcome in first.iter().chain(&second) {
                let is_right = matches!(outcome, Ok(()) | Err(ArchiveError::Device { .. }));
                assert!(is_right, "{outcome:?}");
            }
            assert!(!is_lost || second.iter().all(Result::is_err), "call {call}: {second:?}");
            failures += usize::from(is_lost);
        }
        assert!(failures > 0);
    });
}

/// Reads go on after the archive and the memory are dropped.
#[test]
fn reads_end_after_their_archive() {
    let contents = contents(400_000);
    let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    each_static_device(|device| {
        let (source, archive) = archive_of(packed.clone());
        let memory = memory_of(device);
        let buffer = Arc::new(memory.allocate(400_000).unwrap());
        source.is_held.store(true, Ordering::Relaxed);
        let (done, is_done) = mpsc::channel();
        let own = Arc::clone(&buffer);
        let read = RangeRead::new(0..400_000, buffer.part(0..400_000).unwrap());
        let read = (read, move |outcome| done.send((outcome, own)).unwrap());
        archive.read_in_background(&memory, vec![read]);
        drop((archive, memory, buffer));
        source.is_held.store(false, Ordering::Relaxed);
        let (outcome, buffer) = is_done.recv_timeout(PATIENCE).unwrap();
        outcome.unwrap();
        let mut found = vec![0; contents.len()];
        buffer.copy_to_host(0, &mut found).unwrap();
        assert!(found == contents);
    });
}
