//! Buffer pools, and recovery from a failure of any device call.

use std::time::Duration;

use super::faulty::{Fault, Faulty};
use super::testing::{GARBAGE, each_device};
use crate::gpu::device::pool::Pool;
use crate::gpu::device::run::{PlanMemory, submit};
use crate::gpu::device::{BufferId, DEADLINE, Device, DeviceError, Limits, Queue};
use crate::gpu::model::kernel::TEST_TURNS;
use crate::gpu::model::plan::{Plan, Run, Shape, Step};

/// The kernel's loop on words of 0.
fn turned(turns: u32) -> Vec<u8> {
    let turn = |v: u32| v.wrapping_mul(1664525).wrapping_add(1013904223).wrapping_add(v >> 16);
    let word = (0..turns).fold(0, |v, _| turn(v));
    word.to_le_bytes().repeat(BLOCK as usize / 4)
}

const BLOCK: u32 = 4096;

/// A plan of two kernels and a clear.
fn small_plan() -> Plan {
    let mut plan = Plan::new(Shape::new(1, BLOCK));
    let values = plan.buffer(&TEST_TURNS, "values").unwrap();
    let run = |turns| {
        Step::Run(Run {
            stage: "test",
            kernel: &TEST_TURNS,
            entry: "turns",
            defines: Vec::new(),
            buffers: vec![values],
            args: vec![turns, BLOCK / 4],
            groups: BLOCK / 128,
            threads: 32,
        })
    };
    plan.steps = vec![Step::Clear(values), run(2), run(3)];
    plan
}

fn run_small_plan(device: &dyn Device) -> Result<Vec<u8>, DeviceError> {
    run_small_plan_within(device, DEADLINE)
}

fn run_small_plan_within(device: &dyn Device, time: Duration) -> Result<Vec<u8>, DeviceError> {
    let plan = small_plan();
    let memory = PlanMemory::allocate(device, &plan)?;
    let mut queue = device.queue()?;
    queue.set_deadline(time);
    let mut back = vec![0; BLOCK as usize];
    submit(&plan, &memory, &mut *queue)?;
    queue.finish()?;
    queue.read(memory.named("values"), 0, &mut back)?;
    Ok(back)
}

#[test]
fn a_pool_uses_buffers_again_and_counts_them() {
    each_device(|device| {
        let counted = Faulty::new(device, Fault::None);
        let pool = Pool::new(&counted);
        let right = turned(5);
        for _ in 0..3 {
            assert_eq!(run_small_plan(&pool).as_ref(), Ok(&right));
            assert_eq!((pool.live(), pool.high_water()), (0, small_plan().memory()));
            assert_eq!((pool.reserved(), counted.live()), (4096, 4096));
        }
        let [a, b] = [pool.allocate(4096).unwrap(), pool.allocate(4096).unwrap()];
        assert_ne!(a, b);
        // No work was queued while both existed.
        assert_eq!((pool.live(), pool.high_water()), (8192, 4096));
        let mut queue = pool.queue().unwrap();
        queue.clear(a, 0, 4096).unwrap();
        queue.finish().unwrap();
        drop(queue);
        assert_eq!((pool.live(), pool.high_water()), (8192, 8192));
        pool.free(a);
        assert_eq!(pool.allocate(4096), Ok(a));
        pool.free(a);
        // This one has another size.
        let c = pool.allocate(2048).unwrap();
        assert_ne!(c, a);
        pool.trim();
        assert_eq!((pool.live(), pool.reserved(), counted.live()), (6144, 6144, 6144));
        drop(pool);
        assert_eq!(counted.live(), 0);
    });
}

#[test]
fn a_pool_fills_what_it_gives_out() {
    each_device(|device| {
        let pool = Pool::new(device).filled_with(GARBAGE);
        for _ in 0..2 {
            let buffer = pool.allocate(4096).unwrap();
            let mut queue = pool.queue().unwrap();
            let mut back = [0; 4096];
            queue.read(buffer, 0, &mut back).unwrap();
            assert!(back.iter().all(|byte| *byte == GARBAGE));
            queue.write(buffer, 0, &[1; 4096]).unwrap();
            queue.finish().unwrap();
            pool.free(buffer);
        }
    });
}

#[test]
fn a_pool_makes_room_before_it_gives_up() {
    each_device(|device| {
        /// A device with memory for just one buffer.
        struct One<'d>(Faulty<&'d dyn Device>);
        impl Device for One<'_> {
            fn limits(&self) -> &Limits {
                self.0.limits()
            }
            fn allocate(&self, bytes: u64) -> Result<BufferId, DeviceError> {
                match self.0.live() {
                    0 => self.0.allocate(bytes),
                    _ => Err(DeviceError::OutOfMemory { bytes }),
                }
            }
            fn free(&self, buffer: BufferId) {
                self.0.free(buffer);
            }
            fn queue(&self) -> Result<Box<dyn Queue + '_>, DeviceError> {
                self.0.queue()
            }
        }
        let pool = Pool::new(One(Faulty::new(device, Fault::None)));
        let first = pool.allocate(64).unwrap();
        assert_eq!(pool.allocate(128), Err(DeviceError::OutOfMemory { bytes: 128 }));
        pool.free(first);
        let second = pool.allocate(128).unwrap();
        assert_eq!(pool.reserved(), 128);
        pool.free(second);
    });
}

#[test]
fn a_pool_does_not_use_again_what_may_still_be_in_use() {
    each_device(|device| {
        let counted = Faulty::new(device, Fault::None);
        let pool = Pool::new(&counted);
        let buffer = pool.allocate(4096).unwrap();
        let mut queue = pool.queue().unwrap();
        queue.clear(buffer, 0, 4096).unwrap();
        drop(queue);
        pool.free(buffer);
        assert_eq!((pool.live(), pool.reserved(), counted.live()), (0, 0, 0));
    });
}

/// Runs the small plan with each of `faults`. Each run must give the right result or an error that `is_expected`
/// accepts, free all its memory, and leave the device usable. Returns how many runs gave the right result.
fn survive(
    device: &dyn Device,
    time: Duration,
    faults: impl Iterator<Item = Fault>,
    is_expected: impl Fn(&DeviceError) -> bool,
) -> usize {
    let right = turned(5);
    let mut rights = 0;
    for fault in faults {
        let faulty = Faulty::new(device, fault);
        let pool = Pool::new(&faulty);
        match run_small_plan_within(&pool, time) {
            Ok(result) if result == right => rights += 1,
            Ok(_) => assert!(matches!(fault, Fault::Read(_)), "{fault:?}: a wrong result"),
            Err(error) => assert!(is_expected(&error), "{fault:?}: {error}"),
        }
        assert_eq!(pool.live(), 0, "{fault:?}");
        drop(pool);
        assert_eq!(faulty.live(), 0, "{fault:?}");
        assert_eq!(run_small_plan(device).as_ref(), Ok(&right), "after {fault:?}");
    }
    rights
}

#[test]
fn faults_are_survived_wherever_they_are() {
    each_device(|device| {
        let counted = Faulty::new(device, Fault::None);
        run_small_plan(&counted).unwrap();
        let calls = counted.calls();
        assert!(calls >= 7);
        let failed = |error: &DeviceError| matches!(error, DeviceError::Failed(_));
        assert_eq!(survive(device, DEADLINE, (0..=calls).map(Fault::Call), failed), 1);
        let lost = |error: &DeviceError| *error == DeviceError::Lost;
        assert_eq!(survive(device, DEADLINE, (0..=calls).map(Fault::Lost), lost), 1);
        let no_memory = |error: &DeviceError| *error == DeviceError::OutOfMemory { bytes: 4096 };
        let sizes = [0, 4095, 4096].into_iter().map(Fault::BuffersAbove);
        assert_eq!(survive(device, DEADLINE, sizes, no_memory), 1);
        // Memory that is reserved only on first use.
        let late = |error: &DeviceError| *error == DeviceError::OutOfMemory { bytes: 0 };
        assert_eq!(survive(device, DEADLINE, (0..calls).map(Fault::Late), late), 0);
        let sizes = [0, 4095, 4096].into_iter().map(Fault::LateMemoryAbove);
        assert_eq!(survive(device, DEADLINE, sizes, late), 1);
        // The device cannot notice a wrong bit, its caller must. So exactly one result must be wrong here.
        assert_eq!(survive(device, DEADLINE, (0..2).map(Fault::Read), |_| false), 1);
        let timed_out = |error: &DeviceError| *error == DeviceError::TimedOut;
        let soon = Duration::from_millis(10);
        assert_eq!(survive(device, soon, (0..calls).map(Fault::Endless), timed_out), 0);
    });
}
