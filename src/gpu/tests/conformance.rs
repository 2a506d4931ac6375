//! The duties of a [`Device`], tested on each device present.

use std::time::{Duration, Instant};

use super::testing::{each_device, each_new_device};
use crate::gpu::device::deadline::{cores, processor_time};
use crate::gpu::device::{BufferId, Device, DeviceError, Dispatch, Queue};
use crate::gpu::model::kernel::{TEST_BROKEN, TEST_DEVICE, TEST_TURNS};

#[test]
fn devices_do_what_they_must() {
    each_device(|device| {
        copies(device);
        copies_of_what_is_filled_in(device);
        dispatches(device, false);
        dispatches(device, true);
        more_groups_than_a_row(device);
        copies_of_its_own_host_memory(device);
        times(device);
        failures(device);
        two_queues(device);
    });
}

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().unwrap())).collect()
}

fn read(queue: &mut dyn Queue, buffer: BufferId, bytes: usize) -> Vec<u32> {
    let mut into = vec![0; bytes];
    queue.read(buffer, 0, &mut into).unwrap();
    words(&into)
}

/// Numbers without a pattern.
fn noise(count: usize) -> Vec<u32> {
    (1..=count as u32).map(|i| i.wrapping_mul(2_654_435_761).rotate_left(i % 32)).collect()
}

/// Copies of all sizes, some larger than a backend stages at once, at offsets, and in order.
fn copies(device: &dyn Device) {
    let mut queue = device.queue().unwrap();
    for (count, offset) in [(1, 0), (1000, 12), ((100 << 20) / 4, 4096)] {
        let data = noise(count);
        let bytes = count as u64 * 4;
        let buffer = device.allocate(offset + bytes + 4).unwrap();
        queue.clear(buffer, 0, offset + bytes + 4).unwrap();
        queue.write(buffer, offset, bytemuck::cast_slice(&data)).unwrap();
        let mut back = vec![0; data.len() * 4];
        queue.read(buffer, offset, &mut back).unwrap();
        assert!(words(&back) == data, "{count} words at byte {offset}");
        queue.clear(buffer, offset, 4).unwrap();
        queue.write(buffer, offset + bytes, &[1, 2, 3, 4]).unwrap();
        let mut back = vec![0xee; 4];
        queue.read(buffer, offset, &mut back).unwrap();
        assert_eq!(back, [0; 4]);
        queue.read(buffer, offset + bytes, &mut back).unwrap();
        assert_eq!(back, [1, 2, 3, 4]);
        device.free(buffer);
    }
    let buffer = device.allocate(8).unwrap();
    for outside in [(0, 12), (8, 4), (u64::MAX - 3, 8)] {
        let data = vec![0; outside.1];
        assert!(queue.write(buffer, outside.0, &data).is_err(), "{outside:?}");
        assert!(queue.clear(buffer, outside.0, outside.1 as u64).is_err(), "{outside:?}");
        assert!(queue.read(buffer, outside.0, &mut vec![0; outside.1]).is_err(), "{outside:?}");
    }
    device.free(buffer);
}

/// Many copies of several lengths without a wait, so that the queue reuses and lengthens its pinned memory.
fn copies_of_what_is_filled_in(device: &dyn Device) {
    let mut queue = device.queue().unwrap();
    for is_fixed in [false, true] {
        queue.set_pinned_is_fixed(is_fixed);
        let lens = [4, 1000, 600_000, 3 << 20, 8, 1 << 20, 0, 2 << 20, 5 << 20, 700_000];
        let data = noise(lens.iter().sum::<usize>() / 4);
        let buffer = device.allocate(data.len() as u64 * 4 + 4).unwrap();
        let mut left: &[u8] = bytemuck::cast_slice(&data);
        let mut at = 4;
        for len in lens {
            let (now, later) = left.split_at(len);
            let fill = &mut |into: &mut [u8]| into.copy_from_slice(now);
            queue.write_with(buffer, at, (len, 3000), fill).unwrap();
            (left, at) = (later, at + len as u64);
        }
        let mut back = vec![0; data.len() * 4];
        queue.read(buffer, 4, &mut back).unwrap();
        assert!(words(&back) == data, "{is_fixed}");
        assert!(queue.write_with(buffer, at, (8, 0), &mut |_| ()).is_err());
        device.free(buffer);
    }
}

fn count_up<'a>(buffers: &'a [BufferId], args: &'a [u32], groups: u32) -> Dispatch<'a> {
    Dispatch {
        kernel: &TEST_DEVICE,
        entry: "count_up",
        defines: &[],
        buffers,
        args,
        groups,
        threads: 32,
    }
}

/// Arguments, constants, and many dispatches in a row.
fn dispatches(device: &dyn Device, are_beside_others: bool) {
    let mut queue = device.queue().unwrap();
    if are_beside_others {
        queue.set_beside_others();
    }
    let buffer = device.allocate(400).unwrap();
    let expected = |factor, add| (0..100u32).map(|i| i * factor + add).collect::<Vec<_>>();
    for factor in 0..150 {
        queue.dispatch(&count_up(&[buffer], &[100, factor], 4)).unwrap();
    }
    assert_eq!(read(&mut *queue, buffer, 400), expected(149, 0));
    // This kernel needs so few resources that it runs in the largest workgroup that the device claims.
    let largest = device.limits().max_workgroup;
    for (threads, add) in [(32, 7), (64, 7), (32, 9), (512.min(largest), 3), (largest, 5)] {
        queue.clear(buffer, 0, 400).unwrap();
        let defines = &[("ADD", add)];
        let (buffers, args) = ([buffer], [100, 3]);
        let work = count_up(&buffers, &args, 4);
        queue.dispatch(&Dispatch { threads, defines, ..work }).unwrap();
        assert_eq!(read(&mut *queue, buffer, 400), expected(3, add));
    }
    queue.finish().unwrap();
    device.free(buffer);
}

/// Host memory from a device works like any other memory.
fn copies_of_its_own_host_memory(device: &dyn Device) {
    let len = (1 << 20) + 4;
    let mut queue = device.queue().unwrap();
    let buffer = device.allocate(2 * len as u64).unwrap();
    let mut memory = device.host_memory(len).unwrap();
    assert!(memory.len() == len && memory.iter().all(|&byte| byte == 0));
    memory.iter_mut().enumerate().for_each(|(i, byte)| *byte = ((i * i) >> 7) as u8);
    let copy = memory.to_vec();
    // Parts of both kinds of memory, and small parts.
    let parts = [&memory[..500_001], &copy[500_001..500_003], &memory[500_003..]];
    queue.write_parts(buffer, 8, &parts).unwrap();
    memory.fill(7);
    queue.read(buffer, 8, &mut memory).unwrap();
    assert!(memory[..] == copy[..]);
    let mut other = device.host_memory(len + 4).unwrap();
    queue.read(buffer, 8, &mut other[4..]).unwrap();
    assert!(other[..4] == [0; 4] && other[4..] == copy[..]);
    let mut back = vec![0; len];
    queue.write(buffer, 0, &memory).unwrap();
    queue.read(buffer, 0, &mut back).unwrap();
    assert!(back == copy);
    device.free(buffer);
}

fn more_groups_than_a_row(device: &dyn Device) {
    let mut queue = device.queue().unwrap();
    let count = 65_600 * 32u32;
    let bytes = count as usize * 4;
    let buffer = device.allocate(bytes as u64).unwrap();
    queue.dispatch(&count_up(&[buffer], &[count, 5], count / 32)).unwrap();
    let back = read(&mut *queue, buffer, bytes);
    assert!(back.iter().enumerate().all(|(i, &word)| word == i as u32 * 5));
    device.free(buffer);
}

fn times(device: &dyn Device) {
    let mut queue = device.queue().unwrap();
    let buffer = device.allocate(4 << 20).unwrap();
    queue.dispatch(&count_up(&[buffer], &[1, 1], 1)).unwrap();
    queue.set_timing(true);
    for i in 0..100 {
        let count = if i == 70 { 1 << 20 } else { 1 };
        queue.dispatch(&count_up(&[buffer], &[count, 1], count.div_ceil(32))).unwrap();
    }
    queue.finish().unwrap();
    let times = queue.take_times().unwrap();
    if device.limits().timing {
        assert_eq!(times.len(), 100);
        assert!(times.iter().sum::<Duration>() > Duration::ZERO);
        // Some runs may take long if other programs are running.
        let mut sorted = times.clone();
        sorted.sort_unstable();
        assert!(times[70] > sorted[50], "{times:?}");
    } else {
        assert!(times.is_empty());
    }
    assert!(queue.take_times().unwrap().is_empty());
    queue.set_timing(false);
    queue.dispatch(&count_up(&[buffer], &[1, 1], 1)).unwrap();
    queue.finish().unwrap();
    assert!(queue.take_times().unwrap().is_empty());
    device.free(buffer);
}

/// Calls report the right errors, and later calls work.
fn failures(device: &dyn Device) {
    let mut queue = device.queue().unwrap();
    let largest = device.limits().max_buffer;
    let allocated = device.allocate((largest & !3).saturating_add(4).max(largest));
    if let Ok(buffer) = allocated {
        // A device may allow more than it claims.
        device.free(buffer);
    } else {
        assert!(matches!(allocated, Err(DeviceError::OutOfMemory { .. })), "{allocated:?}");
    }
    let buffer = device.allocate(128).unwrap();
    let buffers = [buffer];
    let work = count_up(&buffers, &[32, 1], 1);
    let built = queue.dispatch(&Dispatch { kernel: &TEST_BROKEN, entry: "broken", ..work.clone() });
    let Err(DeviceError::Build { kernel: "test/broken", log }) = built else {
        panic!("{built:?}");
    };
    assert!(log.contains("nothing_of_that_name"), "{log}");
    let no_entry = queue.dispatch(&Dispatch { entry: "missing", ..work.clone() });
    assert!(no_entry.is_err());
    let threads = device.limits().max_workgroup + 32;
    let too_large = queue.dispatch(&Dispatch { threads, ..work.clone() });
    assert!(matches!(too_large, Err(DeviceError::Unsupported(_))), "{too_large:?}");
    let freed = device.allocate(128).unwrap();
    device.free(freed);
    assert!(queue.dispatch(&Dispatch { buffers: &[freed], ..work.clone() }).is_err());
    queue.dispatch(&work).unwrap();
    assert_eq!(read(&mut *queue, buffer, 128), (0..32).collect::<Vec<_>>());
    device.free(buffer);
}

/// Two queues at once, on two threads.
fn two_queues(device: &dyn Device) {
    std::thread::scope(|scope| {
        for factor in [3, 11] {
            scope.spawn(move || {
                let mut queue = device.queue().unwrap();
                let buffer = device.allocate(40_000).unwrap();
                for _ in 0..20 {
                    queue.clear(buffer, 0, 40_000).unwrap();
                    queue.dispatch(&count_up(&[buffer], &[10_000, factor], 313)).unwrap();
                    let expected: Vec<_> = (0..10_000).map(|i| i * factor).collect();
                    assert!(read(&mut *queue, buffer, 40_000) == expected);
                }
                device.free(buffer);
            });
        }
    });
}

/// Work that does not end in time is abandoned, and nothing waits for it afterwards.
#[test]
fn what_takes_too_long_is_given_up() {
    each_new_device(|device| {
        let count = 1u32 << 15;
        let buffer = device.allocate(u64::from(count) * 4).unwrap();
        let mut queue = device.queue().unwrap();
        // Compile before time counts.
        for (turns, times) in [(1, 1), (30_000, 4)] {
            queue.finish().unwrap();
            for _ in 0..times {
                let (buffers, args) = ([buffer], [turns, count]);
                let work = count_up(&buffers, &args, count / 32);
                let work = Dispatch { kernel: &TEST_TURNS, entry: "turns", ..work };
                queue.dispatch(&work).unwrap();
            }
        }
        let (start, before) = (Instant::now(), processor_time());
        queue.set_deadline(Duration::from_millis(1));
        match queue.finish() {
            // The device was too fast: there was nothing to abandon.
            Ok(()) => return device.free(buffer),
            Err(error) => assert_eq!(error, DeviceError::TimedOut),
        }
        assert!(queue.read(buffer, 0, &mut [0; 8]).is_err());
        assert!(queue.write(buffer, 0, &[0; 8]).is_err());
        drop(queue);
        device.free(buffer);
        // Other programs may use most of the processor, so measure processor time: waiting for a software device
        // would use it.
        let spent = processor_time().zip(before).map_or(start.elapsed(), |(now, then)| now - then);
        assert!(spent < Duration::from_secs(1) * cores(), "{spent:?}");
    });
}
