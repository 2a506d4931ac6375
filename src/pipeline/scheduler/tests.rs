//! Tasks come back in order, whichever thread runs them.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::format::Pipeline;
use crate::gpu::coder::BlockTask;
use crate::gpu::device::{Device, DeviceError, Kind, Limits, MemorySource};
use crate::gpu::tests::testing::{Nothing, made_up};
use crate::pipeline::auto::Auto;
use crate::pipeline::cpu::CpuEngine;
use crate::pipeline::knowledge::subject;
use crate::pipeline::workload::Workload;
use crate::pipeline::{FrameKind, Gpu};

#[derive(Debug, PartialEq)]
struct Number {
    value: u64,
    panicked: bool,
}

impl Task for Number {
    fn run(batch: &mut [Self], _: &dyn Engine) {
        for task in batch {
            assert!(task.value != 13);
            // Later tasks finish sooner.
            std::thread::sleep(Duration::from_micros(300 - (task.value % 3) * 100));
            task.value *= 2;
        }
    }

    fn is_coded(&self) -> bool {
        self.value >= 40 || self.panicked
    }

    fn is_done(&self) -> bool {
        self.is_coded()
    }

    fn bytes(&self) -> u64 {
        1
    }

    fn set_panicked(&mut self) {
        self.panicked = true;
    }
}

#[test]
fn order_is_kept_and_panics_are_reported() {
    for workers in [1, 2, 5] {
        let mut scheduler = Scheduler::new(Arc::new(CpuEngine::new()), workers);
        let mut out = Vec::new();
        for value in 0..100 {
            if scheduler.in_flight() == 8 {
                out.extend(scheduler.next());
            }
            scheduler.submit(Number { value, panicked: false });
            out.extend(scheduler.try_next());
        }
        while let Some(task) = scheduler.next() {
            out.push(task);
        }
        assert_eq!(out.len(), 100);
        for (i, task) in (0..).zip(&out) {
            let panicked = i == 13;
            assert_eq!(*task, Number { value: if panicked { 13 } else { 2 * i }, panicked });
        }
        assert!(scheduler.next().is_none());
    }
}

fn nothing() -> Gpu {
    let limits = Limits {
        name: "nothing".into(),
        kind: Kind::Other,
        memory: 1 << 30,
        memory_source: MemorySource::Assumed,
        max_buffer: 1 << 30,
        local_memory: 1 << 16,
        compute_units: 0,
        ..made_up()
    };
    Gpu::new(Arc::new(Nothing(limits)))
}

#[test]
fn workers_do_what_a_device_leaves() {
    for (workers, host_blocks) in [(1, 1), (1, 9), (2, 4), (3, 30), (2, 1000)] {
        let work = BlockTask::Decode(Pipeline::Lzf);
        let accelerator = Accelerator {
            host_blocks,
            afterwards: Share { workers, in_flight: 12 },
            ..Accelerator::alone(nothing(), work, 1 << 16)
        };
        let cpu = Arc::new(CpuEngine::new());
        let share = Share { workers, in_flight: 12 };
        let mut scheduler = Scheduler::with_accelerator(cpu, share, Some(&accelerator));
        let mut out = Vec::new();
        for value in 20..220 {
            if scheduler.in_flight() == 12 {
                out.extend(scheduler.next());
            }
            scheduler.submit(Number { value, panicked: false });
            out.extend(scheduler.try_next());
        }
        scheduler.end();
        while let Some(task) = scheduler.next() {
            out.push(task);
        }
        let values: Vec<_> = out.iter().map(|task| task.value).collect();
        assert_eq!(values, (20..220).map(|value| 2 * value).collect::<Vec<_>>());
    }
}

#[test]
fn long_jobs_open_a_device() {
    for (blocks, opens) in [(Some(1), false), (Some(1 << 40), true), (None, true)] {
        let (send, opened) = std::sync::mpsc::channel();
        let gpu = Gpu::finding(move || {
            let open = move || {
                send.send(()).unwrap();
                Err(DeviceError::Failed("it is not there".into()))
            };
            Ok((made_up(), open))
        });
        let (work, block_len) = (BlockTask::Decode(Pipeline::Lzf), 1 << 16);
        let accelerator = Accelerator {
            host_blocks: 9,
            afterwards: Share { workers: 2, in_flight: 12 },
            blocks,
            ..Accelerator::alone(gpu, work, block_len)
        };
        let cpu = Arc::new(CpuEngine::new());
        let share = Share { workers: 2, in_flight: 12 };
        let mut scheduler = Scheduler::with_accelerator(cpu, share, Some(&accelerator));
        for value in 20..220 {
            if scheduler.in_flight() == 12 {
                scheduler.next();
            }
            scheduler.submit(Number { value, panicked: false });
        }
        if opens {
            opened.recv().unwrap();
        }
        scheduler.end();
        while scheduler.next().is_some() {}
        drop((scheduler, accelerator));
        // The finder was dropped, so the device can no longer be opened.
        assert!(opens || opened.recv().is_err());
    }
}

/// A task that counts how many tasks run at once.
struct Counting {
    running: Arc<AtomicUsize>,
    /// It goes on until this many have run at once.
    awaited: usize,
    /// The most that have run at once.
    peak: Arc<AtomicUsize>,
    /// How many ran when this one began, itself included.
    most: usize,
}

impl Task for Counting {
    fn run(batch: &mut [Self], _: &dyn Engine) {
        for task in batch {
            task.most = task.running.fetch_add(1, Ordering::SeqCst) + 1;
            task.peak.fetch_max(task.most, Ordering::SeqCst);
            let is_awaited = |_: &i32| task.peak.load(Ordering::SeqCst) < task.awaited;
            let wait = |_| std::thread::sleep(Duration::from_millis(1));
            wait(0);
            (0..10_000).take_while(is_awaited).for_each(wait);
            task.running.fetch_sub(1, Ordering::SeqCst);
        }
    }

    fn is_coded(&self) -> bool {
        self.most > 0
    }

    fn is_done(&self) -> bool {
        self.is_coded()
    }

    fn bytes(&self) -> u64 {
        1
    }

    fn set_panicked(&mut self) {}
}

#[test]
fn workers_make_room_for_a_device_while_it_takes_part() {
    let (alone, afterwards) =
        (Share { workers: 6, in_flight: 12 }, Share { workers: 4, in_flight: 5 });
    // With few blocks the workers have stopped when no blocks are left; with many they have not. A device that is there
    // is known to be of no use.
    for (narrow, is_there) in [(4, false), (12, false), (4, true), (12, true)] {
        let (running, held) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let peak = Arc::new(AtomicUsize::new(0));
        let (send, found) = std::sync::mpsc::channel();
        let counts = [Arc::clone(&running), Arc::clone(&held)];
        let gpu = Gpu::finding(move || {
            send.send(counts.map(|count| count.load(Ordering::SeqCst))).unwrap();
            let open = || -> Result<Arc<dyn Device>, DeviceError> { panic!("it does not pay") };
            let not_there = DeviceError::Failed("it is not there".into());
            if is_there { Ok((made_up(), open)) } else { Err(not_there) }
        });
        let (pipeline, block_size) = (Pipeline::Lzf, 1 << 16);
        let workload = Workload::decoding_of(FrameKind { pipeline, level: None, block_size });
        let auto = Auto::new().cache(None);
        auto.knowledge().set(&subject(&made_up()), workload.name(), 1.0);
        let accelerator = Accelerator {
            host_blocks: 9,
            alone: Some(alone),
            afterwards,
            blocks: Some(1 << 40),
            learned: Some((auto, workload)),
            ..Accelerator::alone(gpu, BlockTask::Decode(Pipeline::Lzf), 1 << 16)
        };
        let beside = Share { workers: 2, in_flight: narrow + 9 };
        let cpu = Arc::new(CpuEngine::new());
        let mut scheduler = Scheduler::with_accelerator(cpu, beside, Some(&accelerator));
        let mut idle: Vec<Counting> = Vec::new();
        let (mut most_alone, mut when_found, mut after, mut most_after) = (0, None, 0, 0);
        while after < 100 {
            if let Some(keep) = scheduler.idle_to_keep() {
                idle.truncate(keep);
                held.store(scheduler.in_flight() + idle.len(), Ordering::SeqCst);
                scheduler.gave_back();
            }
            if scheduler.in_flight() < scheduler.max_in_flight(beside.in_flight) {
                let new = || Counting {
                    running: running.clone(),
                    awaited: 0,
                    peak: peak.clone(),
                    most: 0,
                };
                let task = idle.pop().unwrap_or_else(new);
                // The device comes when the first tasks are done. Until then more workers than beside it are at work.
                let awaited = if scheduler.submitted <= beside.workers as u64 { 3 } else { 0 };
                held.fetch_max(scheduler.in_flight() + 1 + idle.len(), Ordering::SeqCst);
                scheduler.submit(Counting { awaited, most: 0, ..task });
                continue;
            }
            let task = scheduler.next().unwrap();
            match when_found {
                None => most_alone = most_alone.max(task.most),
                Some(_) => {
                    after += 1;
                    // The first tasks may have begun before the device was found.
                    if after > 2 * alone.in_flight {
                        most_after = most_after.max(task.most);
                    }
                }
            }
            idle.push(task);
            when_found = when_found.or_else(|| found.try_recv().ok());
        }
        assert!(most_alone > beside.workers, "{most_alone} alone");
        assert!((3..=4).contains(&most_after), "{most_after} afterwards");
        assert!(scheduler.in_flight() + idle.len() <= afterwards.in_flight);
        let [running, held] = when_found.unwrap();
        assert!(running <= beside.workers && held <= narrow, "{running} running, {held} held");
        scheduler.end();
    }
}

#[test]
fn more_workers_may_do_what_a_device_leaves() {
    for is_left in [true, false] {
        let mut scheduler = Scheduler::new(Arc::new(CpuEngine::new()), 6);
        let [running, peak] = [(); 2].map(|()| Arc::new(AtomicUsize::new(0)));
        let task =
            || Counting { running: running.clone(), awaited: 0, peak: peak.clone(), most: 0 };
        let tasks = (0..60).map(|number| (number, task()));
        let mut state = scheduler.shared.state.lock();
        // A device with three threads, fast enough that one worker beside it suffices.
        state.memory.device_begins(3, 6);
        state.memory.set_workers(1);
        if is_left {
            state.returned.extend(tasks)
        } else {
            state.queue.extend(tasks)
        }
        drop(state);
        scheduler.submitted = 60;
        let pool = scheduler.pool.clone().unwrap();
        (0..6).for_each(|_| Shared::spawn_one(&scheduler.shared, &pool));
        let done = std::iter::from_fn(|| scheduler.next());
        let most = done.map(|task| task.most).max().unwrap();
        assert!(most <= 3 && (most > 1) == is_left, "{most} at once");
    }
}

#[test]
fn dropping_with_tasks_in_flight_does_not_hang() {
    let mut scheduler = Scheduler::new(Arc::new(CpuEngine::new()), 2);
    for value in 20..60 {
        scheduler.submit(Number { value, panicked: false });
    }
    drop(scheduler);
}
