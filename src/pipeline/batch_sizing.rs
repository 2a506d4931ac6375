//! Sizes each GPU batch to finish before the workers run out of blocks.
//!
//! Workers take single blocks as they come. A device takes batches. The output is in order, so a long batch holds up
//! the writer and then the reader: the device must finish it before the workers have done all other blocks that may be
//! in flight. At the end of the input, neither side should have to wait for the other. The rates of workers and device
//! are measured all the time. A device without a measured rate gets only part of a batch. Unmeasured concurrency is
//! assumed to scale time linearly: some devices overlap batches, others are threads on the workers' own cores.

use std::time::Duration;

use super::throughput::Throughput;

/// The first batch is this fraction of a full one, to measure the device's speed.
const PROBE_FRACTION: usize = 8;

/// Even the smallest batch takes this part of a full batch's time.
const MIN_PART: f64 = 0.6;

/// The current rates of workers and device.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct EngineRates {
    /// Seconds that a worker takes for a block, if known.
    worker: Option<f64>,
    /// How many of those seconds it spends writing.
    writing: f64,
    device: Option<FinishedBatch>,
}

/// A finished batch of the device.
#[derive(Debug, Clone, Copy)]
struct FinishedBatch {
    blocks: usize,
    seconds: f64,
    /// How many batches the device had at once, with this one.
    at_once: usize,
}

/// The inputs of the decision on the next step.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SchedulingState {
    /// Blocks in the queue.
    pub(crate) queued: usize,
    /// Blocks that may be in flight.
    pub(crate) window: usize,
    /// Blocks in the device's batches.
    pub(crate) on_device: usize,
    /// Batches that the device has.
    pub(crate) batches: usize,
    /// The most blocks in a batch.
    pub(crate) batch: usize,
    /// The most batches that a device may have.
    pub(crate) slots: usize,
    /// Workers beside the device.
    pub(crate) workers: usize,
    /// The number of further workers there would be if the device left.
    pub(crate) displaced: usize,
    /// Whether the input has ended.
    pub(crate) is_ended: bool,
    /// Whether the owner is waiting for a block to finish.
    pub(crate) is_awaited: bool,
}

/// What an idle thread of the device does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DeviceStep {
    /// Take this many blocks, at least one.
    Take(usize),
    /// Wait until something changes.
    Wait,
    /// Stop: no blocks are left, or the device is too slow.
    Leave,
}

impl EngineRates {
    /// Records that a worker did a block, and spent `writing` of the time writing it.
    pub(crate) fn worker_took(&mut self, time: Duration, writing: Duration) {
        let [time, writing] = [time, writing].map(|time| time.as_secs_f64());
        let part = if self.worker.is_some() { 1.0 / 8.0 } else { 1.0 };
        self.writing += (writing - self.writing) * part;
        let mean = self.worker.unwrap_or_default();
        self.worker = Some(mean + (time - mean) * part);
    }

    /// Records that the device did a batch, one of `at_once`.
    pub(crate) fn device_took(&mut self, blocks: usize, time: Duration, at_once: usize) {
        self.device = Some(FinishedBatch { blocks, seconds: time.as_secs_f64(), at_once });
    }

    /// Whether the device's rate is known.
    pub(crate) fn knows_device(&self) -> bool {
        self.device.is_some()
    }

    /// What `workers` workers deliver in blocks of `block_len` bytes, if known. Writing counts as overhead: a device
    /// does not speed it up.
    pub(crate) fn throughput(&self, workers: usize, block_len: u32) -> Option<Throughput> {
        let (workers, block) = (workers.max(1), f64::from(block_len));
        let working = (self.worker? - self.writing).max(1e-9);
        let overhead = self.writing / workers as f64 / block;
        Some(Throughput { workers, worker: block / working, overhead, block })
    }

    /// Whether a worker's rate is known.
    pub(crate) fn knows_worker(&self) -> bool {
        self.worker.is_some()
    }

    /// How many workers should work beside the device, of `all` and at most `most`. The faster the device, the fewer.
    ///
    /// Workers slow down the device's threads, which copy and check, and the owner, which reads and writes. On a
    /// machine with 16 cores, each worker cost a device 4% of its throughput. Workers therefore help only beside a
    /// device that does at most 1.6 times as much as they do. The limit here is higher: the rates are those of a device
    /// that never waits, and it delivers somewhat less.
    pub(crate) fn workers_beside(&self, most: usize, all: usize) -> usize {
        let (Some(worker), Some(device)) = (self.worker, self.device) else { return most };
        let worker_rate = all as f64 / worker;
        let device_rate = (device.blocks * device.at_once) as f64 / device.seconds;
        let part = (2.5 - device_rate / worker_rate).clamp(0.0, 1.0);
        ((most as f64 * part).round() as usize).clamp(1, most.max(1))
    }

    /// Decides what an idle thread of the device does next.
    pub(crate) fn next(&self, now: &SchedulingState) -> DeviceStep {
        let (count, may_wait) = if now.workers == 0 {
            // Without workers, the device must do every block.
            let is_enough = now.queued >= now.batch || now.is_awaited || now.is_ended;
            (if is_enough { now.queued.min(now.batch) } else { 0 }, !now.is_ended)
        } else if self.is_being_probed(now) {
            (0, true)
        } else if self.is_too_slow(now) {
            (0, false)
        } else {
            let most = self.max_batch(now);
            let count = if now.is_ended {
                self.final_batch(now, most.min(now.queued))
            } else if now.queued >= most {
                most
            } else {
                0
            };
            (count, !now.is_ended)
        };
        match count {
            0 if may_wait => DeviceStep::Wait,
            0 => DeviceStep::Leave,
            count => DeviceStep::Take(count),
        }
    }

    /// Whether the device is still running its first, measuring batch. Until that is done it gets no second one: every
    /// thread might have to wait for a slow device.
    fn is_being_probed(&self, now: &SchedulingState) -> bool {
        now.workers > 0 && self.device.is_none() && now.on_device > 0
    }

    /// Whether the device is too slow: it only holds up the workers, or the workers that it displaces would do more.
    fn is_too_slow(&self, now: &SchedulingState) -> bool {
        let Some(known) = self.device.filter(|_| now.workers > 0) else { return false };
        // At best, the device does a full batch in every slot in that time.
        let at_best = (now.slots * now.batch) as f64 / known.seconds;
        let cpu = self.throughput(now.workers, 1);
        cpu.is_some_and(|cpu| !cpu.outdoes_displaced(at_best, now.displaced))
            || self.max_batch(&SchedulingState { on_device: 0, batches: 0, ..*now }) == 0
    }

    /// Seconds that the device would take for `blocks` blocks beside its other batches.
    fn device_time(&self, blocks: usize, now: &SchedulingState) -> Option<f64> {
        let known = self.device?;
        let part = (blocks as f64 / known.blocks.max(1) as f64).max(MIN_PART);
        let at_once = ((now.batches + 1) as f64 / known.at_once.max(1) as f64).max(1.0);
        Some(known.seconds * part * at_once)
    }

    /// The largest batch that the device finishes before the workers run out of other blocks.
    fn max_batch(&self, now: &SchedulingState) -> usize {
        let probe = now.batch.div_ceil(PROBE_FRACTION);
        if self.device.is_none() {
            return probe;
        }
        let Some(worker) = self.worker else { return now.batch };
        let fits = |blocks: &usize| {
            let others = now.window.saturating_sub(now.on_device + blocks) as f64;
            let meanwhile = others * worker / now.workers as f64;
            self.device_time(*blocks, now).is_none_or(|time| time <= meanwhile)
        };
        largest(now.batch, fits)
    }

    /// How many of the last blocks the device can do while the workers do the rest.
    fn final_batch(&self, now: &SchedulingState, most: usize) -> usize {
        let Some(worker) = self.worker else { return most.min(now.queued.div_ceil(2)) };
        let rounds = |blocks: usize| (now.queued - blocks).div_ceil(now.workers);
        let fits = |blocks: &usize| {
            self.device_time(*blocks, now)
                .is_none_or(|time| time <= rounds(*blocks) as f64 * worker)
        };
        // Leave the workers as many blocks as they can do in that time.
        now.queued.saturating_sub(rounds(largest(most, fits)) * now.workers).min(most)
    }
}

/// The largest number up to `most` that `fits`; 0 if none does. If a number fits, all smaller ones must fit too.
fn largest(most: usize, fits: impl Fn(&usize) -> bool) -> usize {
    let (mut low, mut high) = (0, most);
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        if fits(&middle) { low = middle } else { high = middle - 1 }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::throughput::WithDevice;

    const MILLISECOND: Duration = Duration::from_millis(1);

    fn plenty() -> SchedulingState {
        SchedulingState {
            queued: 1000,
            window: 250,
            on_device: 0,
            batches: 0,
            batch: 40,
            slots: 6,
            workers: 16,
            displaced: 4,
            is_ended: false,
            is_awaited: false,
        }
    }

    fn take(rates: &EngineRates, now: &SchedulingState) -> usize {
        match rates.next(now) {
            DeviceStep::Take(count) => count,
            DeviceStep::Wait | DeviceStep::Leave => 0,
        }
    }

    #[test]
    fn a_fast_device_gets_full_batches_soon() {
        let mut rates = EngineRates::default();
        assert_eq!(take(&rates, &plenty()), 5);
        // No second batch before the first shows how long it takes.
        let second = SchedulingState { on_device: 5, batches: 1, ..plenty() };
        assert_eq!(rates.next(&second), DeviceStep::Wait);
        assert_eq!(rates.next(&SchedulingState { is_ended: true, ..second }), DeviceStep::Wait);
        assert_eq!(take(&rates, &SchedulingState { workers: 0, ..second }), 40);
        rates.worker_took(45 * MILLISECOND, Duration::ZERO);
        rates.device_took(5, 20 * MILLISECOND, 1);
        let next = take(&rates, &SchedulingState { on_device: 10, batches: 1, ..plenty() });
        assert!(next > 30, "{next}");
        rates.device_took(next, 60 * MILLISECOND, 2);
        assert_eq!(take(&rates, &SchedulingState { on_device: 80, batches: 2, ..plenty() }), 40);
        // The device waits for a full batch.
        assert_eq!(rates.next(&SchedulingState { queued: 39, ..plenty() }), DeviceStep::Wait);
    }

    #[test]
    fn no_device_speeds_up_writing() {
        let mut rates = EngineRates::default();
        assert_eq!(rates.throughput(10, 1000), None);
        rates.worker_took(10 * MILLISECOND, MILLISECOND);
        let unknown = WithDevice::known(None, 0.5, None);
        let cpu = rates.throughput(10, 1000).unwrap();
        assert!((cpu.alone(1e6) - 1.0).abs() < 1e-9);
        assert!(cpu.pays(2e6, &unknown));
        for _ in 0..100 {
            rates.worker_took(10 * MILLISECOND, 6 * MILLISECOND);
        }
        let cpu = rates.throughput(10, 1000).unwrap();
        assert!(cpu.alone(1e6) > 0.9);
        assert!(!cpu.pays(1e9, &unknown));
    }

    #[test]
    fn a_slow_device_holds_up_no_worker() {
        let mut rates = EngineRates::default();
        rates.worker_took(45 * MILLISECOND, Duration::ZERO);
        rates.device_took(5, 5000 * MILLISECOND, 1);
        assert_eq!(rates.next(&plenty()), DeviceStep::Leave);
        rates.device_took(5, 500 * MILLISECOND, 1);
        let few = take(&rates, &plenty());
        assert!((3..15).contains(&few), "{few}");
        // Until two batches at once are measured, the second is expected to take longer.
        let beside = SchedulingState { on_device: few, batches: 1, ..plenty() };
        let second = take(&rates, &beside);
        assert!(second < few * 3 / 4, "{second} of {few}");
        rates.device_took(5, 500 * MILLISECOND, 2);
        assert!(take(&rates, &beside) > second);
        // Without workers the device does everything.
        assert_eq!(take(&rates, &SchedulingState { workers: 0, ..plenty() }), 40);
    }

    #[test]
    fn a_device_does_more_than_the_workers_whose_cores_it_takes() {
        let mut rates = EngineRates::default();
        rates.worker_took(40 * MILLISECOND, Duration::ZERO);
        rates.device_took(1, 5000 * MILLISECOND, 1);
        // The displaced worker would do 125 blocks in that time. Six batches hold fewer, even if the device overlaps
        // all of them.
        let few = SchedulingState { batch: 5, workers: 1, displaced: 1, ..plenty() };
        assert_eq!(rates.next(&few), DeviceStep::Leave);
        assert_eq!(rates.next(&SchedulingState { is_ended: true, ..few }), DeviceStep::Leave);
        assert!(take(&rates, &SchedulingState { batch: 30, ..few }) > 0);
        assert!(take(&rates, &SchedulingState { displaced: 0, ..few }) > 0);
    }

    #[test]
    fn fewer_workers_work_beside_a_fast_device() {
        let mut rates = EngineRates::default();
        assert_eq!(rates.workers_beside(10, 16), 10);
        rates.worker_took(40 * MILLISECOND, Duration::ZERO);
        assert_eq!(rates.workers_beside(10, 16), 10);
        // All 16 do 400 blocks a second.
        for (blocks, at_once, workers) in
            [(1, 1, 10), (60, 1, 10), (30, 2, 10), (70, 1, 8), (40, 2, 5), (50, 2, 1), (40, 6, 1)]
        {
            rates.device_took(blocks, 100 * MILLISECOND, at_once);
            assert_eq!(rates.workers_beside(10, 16), workers, "{blocks} blocks, {at_once} at once");
            assert_eq!(rates.workers_beside(1, 2), 1);
        }
    }

    #[test]
    fn the_last_blocks_are_shared() {
        let mut rates = EngineRates::default();
        rates.worker_took(45 * MILLISECOND, Duration::ZERO);
        rates.device_took(40, 60 * MILLISECOND, 1);
        let end = |queued| SchedulingState { queued, is_ended: true, ..plenty() };
        assert_eq!(take(&rates, &end(200)), 40);
        // 15 of 30 blocks are one round of the workers. The device does them in less time.
        let some = take(&rates, &end(30));
        assert!((14..30).contains(&some), "{some}");
        assert_eq!(rates.next(&end(0)), DeviceStep::Leave);
        let mut slow = rates;
        slow.device_took(40, 900 * MILLISECOND, 1);
        assert_eq!(slow.next(&end(30)), DeviceStep::Leave);
        // Without workers the device takes whatever is left.
        assert_eq!(take(&rates, &SchedulingState { workers: 0, ..end(3) }), 3);
        assert_eq!(rates.next(&SchedulingState { workers: 0, ..end(0) }), DeviceStep::Leave);
        assert_eq!(rates.next(&SchedulingState { workers: 0, ..plenty() }), DeviceStep::Take(40));
        assert_eq!(
            rates.next(&SchedulingState { workers: 0, queued: 0, ..plenty() }),
            DeviceStep::Wait
        );
    }
}
