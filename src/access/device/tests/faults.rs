//! Damaged archives, reads that are given up, and devices that fail.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use super::{
    archive_of, archive_with, check, contents, faulty, local_archive_of, memory_of, wait_until,
};
use crate::Options;
use crate::access::{
    ArchiveError, ArchiveOptions, CancelToken, RangeRead, ReadOptions, SourceErrorKind,
};
use crate::gpu::tests::faulty::Fault;
use crate::gpu::tests::testing::each_static_device;

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
            for (_, archive) in [archive_of(damaged.clone()), local_archive_of(damaged)] {
                let mut buffer = memory.allocate(300_000).unwrap();
                let error = archive.read_into(0..300_000, &mut buffer).unwrap_err();
                let ArchiveError::Format { uri, error } = &error else { panic!("{error}") };
                let text = error.to_string();
                assert!(uri == "watched" && text.contains(&format!("block {block}")), "{text}");
                check(&archive, &memory, &contents, (270_000..300_000, 2));
            }
        }
        let (source, archive) = archive_of(packed);
        source.fails.store(true, Ordering::Relaxed);
        let mut buffer = memory.allocate(300_000).unwrap();
        let error = archive.read_into(0..300_000, &mut buffer).unwrap_err();
        assert!(matches!(error, ArchiveError::Source(_)), "{error}");
        source.fails.store(false, Ordering::Relaxed);
        // Loads of the failed read may still run, and a read that needs their blocks shares their error.
        wait_until(|| archive.read_into(0..300_000, &mut buffer).is_ok());
        check(&archive, &memory, &contents, (0..300_000, 0));
        // Compressed blocks of a source that is not local are cached.
        source.fails.store(true, Ordering::Relaxed);
        check(&archive, &memory, &contents, (0..300_000, 0));
        assert!(archive.statistics().payloads.hits > 0);
    });
}

/// A file can become so short that the header of a block is readable but its payload is not.
#[test]
fn files_that_become_shorter_lose_only_what_is_gone() {
    each_static_device(|device| {
        let memory = memory_of(device);
        let contents = contents(300_000);
        let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
        let (source, archive) = local_archive_of(packed);
        check(&archive, &memory, &contents, (0..300_000, 0));
        let whole = source.bytes.len();
        // Bytes that do not compress are stored, in the middle of the file.
        source.end.store(whole / 2, Ordering::Relaxed);
        let mut buffer = memory.allocate(300_000).unwrap();
        let error = archive.read_into(0..300_000, &mut buffer).unwrap_err();
        let ArchiveError::Source(error) = &error else { panic!("{error}") };
        assert_eq!(error.kind(), SourceErrorKind::Changed);
        check(&archive, &memory, &contents, (0..65_536, 3));
        source.end.store(0, Ordering::Relaxed);
        wait_until(|| archive.read_into(0..300_000, &mut buffer).is_ok());
        check(&archive, &memory, &contents, (0..300_000, 1));
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
        // Blocks of the reads above are still loaded, though no read wants them.
        source.is_held.store(false, Ordering::Relaxed);
        check(&archive, &memory, &contents, (0..300_000, 0));
        let mut found = vec![0; 300_000];
        buffer.copy_to_host(0, &mut found).unwrap();
        assert!(found.iter().all(|byte| *byte == 0xa5));
    });
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
        // No memory at all except for the result.
        let device = faulty(device, Fault::MemoryAbove(620_000));
        let memory = memory_of(Arc::clone(&device));
        let mut buffer = memory.allocate(600_000).unwrap();
        let error = archive.read_into(0..600_000, &mut buffer).unwrap_err();
        assert!(error.is_retryable() && error.to_string().starts_with("device "), "{error}");
        device.set_memory(64 << 20);
        check(&archive, &memory, &contents, (0..600_000, 0));
    });
}

#[test]
fn faults_end_in_right_bytes_or_errors() {
    let contents = contents(150_000);
    let packed = crate::compress(&contents, &Options::new().block_size(1 << 16)).unwrap();
    every_fault_ends_well(&packed, &ArchiveOptions::new(), &contents);
}

/// Whatever call fails, a read of the whole archive ends with the right bytes or an error, and nothing leaks.
pub(super) fn every_fault_ends_well(packed: &[u8], options: &ArchiveOptions, contents: &[u8]) {
    let len = contents.len();
    each_static_device(|device| {
        let read = |fault: Fault| {
            let device = faulty(device, fault);
            let (_, archive) = archive_with(packed.to_vec(), true, options);
            let memory = memory_of(Arc::clone(&device));
            let outcome = (|| {
                let mut buffer = memory.allocate(len as u64).map_err(|error| error.to_string())?;
                let read = archive.read_into(0..len as u64, &mut buffer);
                read.map_err(|error| error.to_string())?;
                let mut found = vec![0; len];
                let copied = buffer.copy_to_host(0, &mut found);
                copied.map_err(|error| error.to_string())?;
                // Nothing detects a wrong bit in the destination of a move.
                assert!(found == contents || matches!(fault, Fault::Write(_)), "{fault:?}");
                Ok::<(), String>(())
            })();
            drop((archive, memory));
            // The workers end soon after.
            wait_until(|| Arc::strong_count(&device) == 1);
            assert_eq!(device.live(), 0, "{fault:?}: bytes that were not freed");
            (outcome, device)
        };
        let (outcome, whole) = read(Fault::None);
        outcome.unwrap();
        let mut failed = 0;
        for call in whole.sample_of_calls(17) {
            for fault in [Fault::Call(call), Fault::Late(call), Fault::Lost(call)] {
                failed += usize::from(read(fault).0.is_err());
            }
        }
        assert!(failed > 3);
        // Checksums find wrong payloads, and the CPU decodes those blocks. A wrong move stays within the buffer.
        let (_, writes) = whole.copies();
        for fault in (0..writes).step_by(5).map(Fault::Write) {
            let _ = read(fault);
        }
        let (outcome, _) = read(Fault::Endless(whole.calls() / 2));
        let error = outcome.unwrap_err();
        assert!(error.contains("in time"), "{error}");
    });
}
