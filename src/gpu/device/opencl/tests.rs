use std::sync::Arc;
use std::time::Duration;

use opencl3::memory::{
    CL_MEM_READ_ONLY, CL_MEM_READ_WRITE, CL_MEM_REFERENCE_COUNT, CL_MEM_WRITE_ONLY, create_buffer,
    get_mem_object_info, release_mem_object,
};

use super::*;
use crate::gpu::device::in_order::{InOrderQueue, PIECE, PIECES};
use crate::gpu::device::program_cache::Cache;
use crate::gpu::device::{Device, Dispatch, NativeBuffer, Queue};
use crate::gpu::model::kernel::TEST_TURNS;
use crate::gpu::tests::import::codes_between_callers_buffers;
use crate::gpu::tests::testing::{files_in, turns};

fn opened() -> Vec<OpenClDevice> {
    let found = devices().unwrap_or_default();
    if found.is_empty() {
        assert!(std::env::var_os("PZ_TEST_NO_SKIP").is_none(), "there is no device");
        eprintln!("\n*** SKIPPED: there is no device for OpenCL ***\n");
    }
    found.iter().map(|found| found.open().unwrap()).collect()
}

#[test]
fn copies_are_longer_than_what_they_go_through() {
    for device in opened() {
        let mut queue = device.queue().unwrap();
        let piece = PIECE;
        for len in [piece - 4, piece, piece + 4, (PIECES + 1) * piece + 12] {
            let data: Vec<u8> =
                (0..len as u32).map(|i| (i.wrapping_mul(40503) >> 9) as u8).collect();
            let buffer = device.allocate(len as u64).unwrap();
            // Write in two parts, so that the second begins in the middle of a piece.
            queue.write(buffer, 0, &data[..20]).unwrap();
            queue.write(buffer, 20, &data[20..]).unwrap();
            let mut back = vec![0; len];
            queue.read(buffer, 0, &mut back).unwrap();
            assert!(back == data, "{len} bytes");
            device.free(buffer);
        }
    }
}

#[test]
fn copies_make_do_with_what_is_pinned() {
    for device in opened() {
        let stream = device.shared.driver.new_stream().unwrap();
        let mut queue = InOrderQueue::new(Arc::clone(&device.shared), stream);
        let data: Vec<u8> = (0..3 * PIECE as u32 + 12).map(|i| (i >> 3) as u8).collect();
        let buffer = device.allocate(data.len() as u64).unwrap();
        let mut back = vec![0; data.len()];
        for (is_fixed, pieces) in [(true, 2), (false, 2 * PIECES)] {
            queue.set_pinned_is_fixed(is_fixed);
            queue.clear(buffer, 0, data.len() as u64).unwrap();
            queue.write(buffer, 0, &data).unwrap();
            queue.read(buffer, 0, &mut back).unwrap();
            assert!(back == data);
            assert!(queue.pieces() <= pieces, "{} pieces", queue.pieces());
        }
        drop(queue);
        device.free(buffer);
    }
}

#[test]
fn queues_fill_the_same_pinned_memory_in_turns() {
    for device in opened() {
        let len = 3 * PIECE;
        let buffers = [(); 2].map(|()| device.allocate(len as u64).unwrap());
        let queue = |()| {
            let stream = device.shared.driver.new_stream().unwrap();
            InOrderQueue::new(Arc::clone(&device.shared), stream)
        };
        let mut queues = [(); 2].map(queue);
        for turn in 0..6u8 {
            // The first is too short for the others.
            let bytes = if turn == 0 { PIECE } else { len };
            for (number, queue) in queues.iter_mut().enumerate() {
                let byte = 2 * turn + number as u8;
                let fill = &mut |memory: &mut [u8]| memory.fill(byte);
                queue.write_with(buffers[number], 0, (bytes, bytes), fill).unwrap();
            }
            assert_eq!(device.shared.lent_pieces(), 1);
            for (number, queue) in queues.iter_mut().enumerate() {
                let mut back = vec![0; bytes];
                queue.read(buffers[number], 0, &mut back).unwrap();
                assert!(back == vec![2 * turn + number as u8; bytes]);
            }
        }
        // From now on the queue keeps the piece that it borrows.
        queues[0].set_pinned_is_fixed(true);
        assert_eq!(device.shared.lent_pieces(), 0);
        queues[0].write_with(buffers[0], 0, (len, 0), &mut |memory| memory.fill(99)).unwrap();
        assert_eq!(device.shared.lent_pieces(), 0);
        queues[1].write_with(buffers[1], 0, (len, 0), &mut |memory| memory.fill(98)).unwrap();
        assert_eq!(device.shared.lent_pieces(), 1);
        drop(queues);
        assert_eq!(device.shared.lent_pieces(), 0);
        for buffer in buffers {
            device.free(buffer);
        }
    }
}

#[test]
fn what_was_read_ahead_is_what_is_read() {
    for device in opened() {
        let mut queue = device.queue().unwrap();
        let buffer = device.allocate(4096).unwrap();
        let mut back = [0; 64];
        for turn in 0..4u8 {
            queue.write(buffer, 0, &[turn; 4096]).unwrap();
            queue.read_ahead(buffer, 128, 64).unwrap();
            queue.flush().unwrap();
            queue.read(buffer, 128, &mut back).unwrap();
            assert_eq!(back, [turn; 64]);
            // Reads of other bytes, and changes between the two calls.
            queue.read_ahead(buffer, 128, 64).unwrap();
            queue.read(buffer, 64, &mut back).unwrap();
            assert_eq!(back, [turn; 64]);
            queue.read_ahead(buffer, 128, 64).unwrap();
            queue.write(buffer, 128, &[turn + 9; 64]).unwrap();
            queue.read(buffer, 128, &mut back).unwrap();
            assert_eq!(back, [turn + 9; 64]);
            queue.read_ahead(buffer, 128, 64).unwrap();
            queue.clear(buffer, 128, 64).unwrap();
            queue.read(buffer, 128, &mut back).unwrap();
            assert_eq!(back, [0; 64]);
        }
        device.free(buffer);
    }
}

#[test]
fn many_small_copies_keep_their_order() {
    for device in opened() {
        let mut queue = device.queue().unwrap();
        let buffer = device.allocate(4096).unwrap();
        for i in 0..3000u32 {
            queue.write(buffer, u64::from(i % 1024) * 4, &i.to_ne_bytes()).unwrap();
        }
        let mut back = vec![0u32; 1024];
        queue.read(buffer, 0, bytemuck::cast_slice_mut(&mut back)).unwrap();
        let newest = |i: u32| i + (2999 - i) / 1024 * 1024;
        assert_eq!(back, (0..1024).map(newest).collect::<Vec<_>>());
        device.free(buffer);
    }
}

#[test]
fn a_device_is_of_use_after_work_was_given_up() {
    for device in opened() {
        let count = 1 << 15;
        let buffer = device.allocate(u64::from(count) * 4).unwrap();
        let mut queue = device.queue().unwrap();
        turns(&mut *queue, buffer, [0, count]).unwrap();
        queue.finish().unwrap();
        queue.set_deadline(Duration::ZERO);
        turns(&mut *queue, buffer, [30_000, count]).unwrap();
        // Where kernels run one at a time, the second one never starts.
        let second = turns(&mut *queue, buffer, [30_000, count]);
        assert!(matches!(second, Ok(()) | Err(DeviceError::TimedOut)), "{second:?}");
        assert_eq!(queue.finish(), Err(DeviceError::TimedOut));
        assert_eq!(queue.finish(), Err(DeviceError::TimedOut));
        drop(queue);
        device.free(buffer);
        // The same kernel in other sizes, while the abandoned work goes on.
        for count in [2 * count, 32] {
            let buffer = device.allocate(u64::from(count) * 4).unwrap();
            let mut queue = device.queue().unwrap();
            queue.clear(buffer, 0, u64::from(count) * 4).unwrap();
            turns(&mut *queue, buffer, [1, count]).unwrap();
            let mut back = [0u32; 32];
            queue.read(buffer, 0, bytemuck::cast_slice_mut(&mut back)).unwrap();
            assert_eq!(back, [1013904223; 32]);
            drop(queue);
            device.free(buffer);
        }
    }
}

#[test]
fn what_the_caller_has_made_is_used_in_place() {
    for theirs in opened() {
        let (context, id) = (theirs.shared.driver.context.raw(), theirs.shared.driver.device.id());
        // SAFETY: both are valid while `theirs` lives.
        let ours = unsafe { OpenClDevice::from_context(context, id) }.unwrap();
        codes_between_callers_buffers(&theirs, ours, |buffer| {
            NativeBuffer::OpenCl(theirs.exported(buffer).unwrap())
        });
    }
}

#[test]
fn an_imported_buffer_is_kept_until_it_is_freed() {
    let others = opened();
    for (theirs, other) in opened().iter().zip(&others) {
        let (context, id) = (theirs.shared.driver.context.raw(), theirs.shared.driver.device.id());
        // SAFETY: both are valid while `theirs` lives.
        let ours = unsafe { OpenClDevice::from_context(context, id) }.unwrap();
        let made = |context: &OpenClDevice, flags| {
            let context = context.shared.driver.context.raw();
            // SAFETY: the context is valid, and there is no host pointer.
            unsafe { create_buffer(context, flags, 128, std::ptr::null_mut()) }.unwrap()
        };
        // SAFETY: it is a memory object, and nothing else uses it.
        let import = |memory| unsafe { ours.import(NativeBuffer::OpenCl(memory)) };
        let memory = made(theirs, CL_MEM_READ_WRITE);
        let references = || get_mem_object_info(memory, CL_MEM_REFERENCE_COUNT).unwrap().to_uint();
        let before = references();
        let buffer = import(memory).unwrap();
        assert_eq!((ours.exported(buffer), ours.buffer_bytes(buffer)), (Some(memory), Some(128)));
        assert_eq!(references(), before + 1);
        let mut queue = ours.queue().unwrap();
        assert!(queue.read(buffer, 128, &mut [0; 4]).is_err());
        drop(queue);
        ours.free(buffer);
        assert_eq!((ours.exported(buffer), ours.buffer_bytes(buffer)), (None, None));
        assert_eq!(references(), before);

        let [read, write] = [CL_MEM_READ_ONLY, CL_MEM_WRITE_ONLY].map(|flags| made(theirs, flags));
        let elsewhere = made(other, CL_MEM_READ_WRITE);
        for unfit in [read, write, elsewhere] {
            assert!(matches!(import(unfit), Err(DeviceError::Unsupported(_))));
        }
        for owned in [memory, read, write, elsewhere] {
            // SAFETY: we own the reference.
            unsafe { release_mem_object(owned) }.unwrap();
        }
    }
}

#[test]
fn a_compiler_that_is_wrong_is_refused() {
    for pocl in ["Portable Computing Language 5.0+debian", "Portable Computing Language 6.0+debian"]
    {
        assert!(miscompiles(pocl, None) && miscompiles(pocl, Some("loopvec".into())));
        assert!(!miscompiles(pocl, Some("cbs".into())));
    }
    assert!(!miscompiles("Portable Computing Language 3.1+debian", None));
    assert!(!miscompiles("NVIDIA CUDA 550.54", None));
}

#[test]
fn drivers_that_miscount_are_known() {
    assert!(miscounts("Portable Computing Language 3.1+debian"));
    assert!(miscounts("Portable Computing Language 5.0+debian"));
    assert!(!miscounts("Portable Computing Language 6.0"));
    assert!(!miscounts("Portable Computing Language 10.1"));
    assert!(!miscounts("NVIDIA CUDA 550.54"));
}

/// After a failure, the device makes a new housekeeping queue.
#[test]
fn housekeeping_goes_on_after_a_failure() {
    for device in opened() {
        let failed = device.shared.driver.housekeeping();
        device.shared.driver.renew_housekeeping(&failed);
        let next = device.shared.driver.housekeeping();
        assert_ne!(next.raw(), failed.raw());
        // If another thread fails in the old queue, nothing changes.
        device.shared.driver.renew_housekeeping(&failed);
        assert_eq!(device.shared.driver.housekeeping().raw(), next.raw());
        let buffer = device.allocate(4096).unwrap();
        device.free(buffer);
    }
}

#[test]
fn limits_make_sense() {
    for device in opened() {
        let limits = device.limits();
        assert!(limits.memory >= limits.max_buffer && limits.max_buffer > 1 << 20, "{limits:?}");
        assert!(limits.max_workgroup >= 32 && limits.local_memory >= 16 << 10, "{limits:?}");
        assert!(limits.name.trim() == limits.name && !limits.name.is_empty(), "{limits:?}");
    }
}

#[test]
fn codes_tell_what_is_the_matter() {
    let out_of_memory = DeviceError::OutOfMemory { bytes: 7 };
    assert_eq!(failure_for("clCreateBuffer", CL_MEM_OBJECT_ALLOCATION_FAILURE, 7), out_of_memory);
    assert_eq!(failure_for("clCreateBuffer", CL_OUT_OF_RESOURCES, 7), out_of_memory);
    assert_eq!(failure("clFinish", NVIDIA_ILLEGAL_ACCESS), DeviceError::Lost);
    // NVIDIA reserves memory on first use. It reports a lack of memory on that event and on all later ones.
    let late = DeviceError::OutOfMemory { bytes: 0 };
    for code in [
        CL_MEM_OBJECT_ALLOCATION_FAILURE,
        CL_OUT_OF_RESOURCES,
        CL_OUT_OF_HOST_MEMORY,
        CL_EXEC_STATUS_ERROR_FOR_EVENTS_IN_WAIT_LIST,
    ] {
        assert_eq!(stream::ended(code), Err(late.clone()));
    }
    assert_eq!(failure_for("clEnqueueReadBuffer", CL_INVALID_COMMAND_QUEUE, 7), out_of_memory);
    assert_eq!(late.to_string(), "the device ran out of memory");
    assert_eq!(stream::ended(NVIDIA_ILLEGAL_ACCESS), Err(DeviceError::Lost));
    assert_eq!((stream::ended(0), stream::ended(1)), (Ok(true), Ok(false)));
    let text = failure("clFinish", CL_OUT_OF_RESOURCES).to_string();
    assert_eq!(text, "clFinish: CL_OUT_OF_RESOURCES (-5)");
}

#[test]
fn programs_are_kept() {
    let folder = std::env::temp_dir().join(format!("pz-test-cache-{}", std::process::id()));
    let files = || files_in(&folder);
    let run = |found: &ClCandidate| {
        let device = OpenClDevice::open_with(found, Cache::in_folder(folder.clone())).unwrap();
        let buffer = device.allocate(128).unwrap();
        let mut queue = device.queue().unwrap();
        queue.clear(buffer, 0, 128).unwrap();
        turns(&mut *queue, buffer, [1, 32]).unwrap();
        let mut back = [0u32; 32];
        queue.read(buffer, 0, bytemuck::cast_slice_mut(&mut back)).unwrap();
        assert_eq!(back, [1013904223; 32]);
    };
    for found in &devices().unwrap_or_default() {
        run(found);
        let [file] = &files()[..] else { panic!("{:?}", files()) };
        let kept = std::fs::read(file).unwrap();
        run(found);
        assert_eq!(std::fs::read(file).unwrap(), kept);
        // An invalid binary in the cache is compiled anew.
        let nonsense = b"no program";
        let crc = crc32c::crc32c(nonsense).to_le_bytes();
        std::fs::write(file, [&kept[..32], &crc, nonsense].concat()).unwrap();
        run(found);
        assert!(std::fs::read(file).unwrap().len() > 64);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

#[test]
fn programs_are_kept_while_their_kernels_run() {
    let folder = std::env::temp_dir().join(format!("pz-test-beside-{}", std::process::id()));
    let run = |device: &OpenClDevice, version| {
        let buffer = device.allocate(128).unwrap();
        let mut queue = device.queue().unwrap();
        let work = Dispatch {
            kernel: &TEST_TURNS,
            entry: "turns",
            defines: &[("VERSION", version)],
            buffers: &[buffer],
            args: &[1000, 32],
            groups: 1,
            threads: 32,
        };
        queue.dispatch(&work).unwrap();
        queue.finish().unwrap();
        drop(queue);
        device.free(buffer);
    };
    for found in &devices().unwrap_or_default() {
        for version in 0..4 {
            let busy = OpenClDevice::open_with(found, Cache::default()).unwrap();
            let other = OpenClDevice::open_with(found, Cache::in_folder(folder.clone())).unwrap();
            run(&busy, version);
            std::thread::scope(|scope| {
                let kept = scope.spawn(|| run(&other, version));
                while !kept.is_finished() {
                    run(&busy, version);
                }
            });
        }
        assert_eq!(files_in(&folder).len(), 4);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
