//! What the threads of a device take, keep and prepare.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::thread;
use std::time::Duration;

use super::super::BatchKind;
use super::super::core::DeviceCore;
use super::{
    DeviceMemory, DeviceMemoryOptions, Watched, archive_of, check, contents, faulty, memory_of,
    wait_until,
};
use crate::access::{Archive, ArchiveError, ArchiveOptions, Priority, RangeRead, ReadOptions};
use crate::gpu::coder::{RangeDecoder, RangeTask};
use crate::gpu::device::{Api, Limits};
use crate::gpu::tests::faulty::{Fault, Faulty};
use crate::gpu::tests::testing::{Nothing, each_device, each_static_device};
use crate::{Level, Options, Pipeline};

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

/// Slots take the memory that the costs of kernels predict, and no more than the limit.
#[test]
fn memory_is_what_costs_predict() {
    each_device(|device| {
        if device.limits().api == Api::Cuda {
            return;
        }
        for megabytes in [4, 16, 64] {
            let options = DeviceMemoryOptions::new().workers(2).memory(megabytes << 20);
            let core = DeviceCore::new(Arc::new(Nothing(device.limits().clone())), &options);
            for block_len in [1 << 15, 1 << 20, 1 << 24] {
                for task in [
                    RangeTask::Decode(Pipeline::Lzf),
                    RangeTask::Decode(Pipeline::Bwt),
                    RangeTask::Move,
                    RangeTask::Restore,
                ] {
                    let cost = RangeDecoder::cost_of_block(device.limits(), task, block_len);
                    let Ok(cost) = cost else { continue };
                    for kind in [BatchKind::Plain, BatchKind::Repeating, BatchKind::Sources] {
                        let blocks = core.batch_of(task, block_len, kind);
                        let taken = u64::from(blocks) * cost.memory;
                        assert!(2 * taken <= megabytes << 20, "{task:?} {block_len}: {taken}");
                    }
                }
            }
        }
    });
}

/// A device that runs the kernels of one batch at a time gets few long batches of plain blocks.
#[test]
fn a_device_with_one_queue_gets_few_long_batches() {
    each_device(|device| {
        let options = DeviceMemoryOptions::new().workers(8).memory(64 << 30);
        let most = 64 << 30;
        let limits = Limits { memory: most, max_buffer: most, ..device.limits().clone() };
        let core = DeviceCore::new(Arc::new(Nothing(limits)), &options);
        let task = RangeTask::Decode(Pipeline::Lzf);
        let [plain, repeating] = [BatchKind::Plain, BatchKind::Repeating]
            .map(|kind| (core.at_once(kind), core.batch_of(task, 1 << 20, kind)));
        if device.limits().has_one_queue() {
            assert!(plain.0 < repeating.0 && plain.1 > repeating.1, "{plain:?} {repeating:?}");
        } else {
            assert_eq!(plain, repeating);
        }
    });
}

/// Reads after the preparation return the right bytes. Damage is reported by reads, not by the preparation.
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

/// Reads before the preparation are refused. After it, idle workers keep their memory, and the CPU decodes blocks whose
/// kernels are not loaded.
#[test]
fn nothing_is_made_after_the_preparation() {
    let contents = contents(700_000);
    let options = Options::new().level(Level::new(3).unwrap()).block_size(1 << 16);
    let packed = crate::compress(&contents, &options).unwrap();
    each_static_device(|device| {
        for loads_nothing in [false, true] {
            let mut own = Faulty::new(device, Fault::None);
            if loads_nothing {
                own = own.loading_nothing();
            }
            let idle = Duration::from_millis(1);
            let options = DeviceMemoryOptions::new().workers(2).batch(256 << 10).idle(idle);
            let options = options.only_prepared();
            let memory = DeviceMemory::of_device(Arc::new(own), &options);
            let (_, archive) = archive_of(packed.clone());
            let mut buffer = memory.allocate(100_000).unwrap();
            let refused = archive.read_into(300_000..400_000, &mut buffer);
            assert!(matches!(refused, Err(ArchiveError::Device { .. })), "{refused:?}");
            archive.prepare_on(&memory).unwrap();
            thread::sleep(20 * idle);
            let before = archive.statistics();
            archive.read_into(300_000..400_000, &mut buffer).unwrap();
            let mut found = vec![0; 100_000];
            buffer.copy_to_host(0, &mut found).unwrap();
            assert!(found == contents[300_000..400_000]);
            let after = archive.statistics();
            assert_eq!(
                after.blocks_by_cpu - before.blocks_by_cpu,
                if loads_nothing { 3 } else { 0 }
            );
        }
    });
}
