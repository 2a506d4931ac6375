//! Counts of a run: the blocks of each engine, the times, and the device memory.

use std::sync::Arc;
use std::time::Duration;

use super::engine::{DecodeJob, EncodeJob, Engine};
use crate::clock::Instant;
use crate::codec::Recipe;
use crate::format::Pipeline;
use crate::gpu::coder::StageTime;
use crate::gpu::device::{Api, Limits};
use crate::sync::Lock;

/// Counts the work of each run that gets it through [`Options::statistics`](crate::Options::statistics) or
/// [`DecodeOptions::statistics`](crate::DecodeOptions::statistics). Clones share the counts. The counts are complete
/// when the encoder has finished or the decoder has reached the end.
///
/// ```
/// let statistics = pz::Statistics::new();
/// let options = pz::Options::new().statistics(&statistics);
/// pz::compress(b"some contents", &options)?;
/// assert_eq!(statistics.cpu().blocks, 1);
/// assert!(statistics.device().is_none());
/// # Ok::<(), pz::Error>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Statistics(Arc<Lock<Counts>>);

#[derive(Debug, Default)]
struct Counts {
    cpu: EngineStatistics,
    verified: EngineStatistics,
    device: Option<DeviceStatistics>,
    reading: Duration,
    writing: Duration,
    choice: Option<String>,
    idle: Option<String>,
    wants_stages: bool,
}

/// The work of one engine.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStatistics {
    /// The number of blocks.
    pub blocks: u64,
    /// Bytes of their contents; of blocks with distant matches, those that were coded.
    pub bytes: u64,
    /// Time that threads spent on them, summed over all threads.
    pub busy: Duration,
}

impl EngineStatistics {
    fn add(&mut self, blocks: u64, bytes: u64, busy: Duration) {
        self.blocks += blocks;
        self.bytes += bytes;
        self.busy += busy;
    }
}

/// The work of a device.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStatistics {
    /// The device's name.
    pub name: String,
    /// The driver's name and version.
    pub driver: String,
    /// The interface to the driver.
    pub api: Api,
    /// Blocks that the device did, and did right. The CPU did the other blocks of its batches.
    pub done: EngineStatistics,
    /// Time from the start of the first batch to the end of the last.
    pub span: Duration,
    /// The most bytes of device memory that its batches may take at once, as its kernels' costs predict.
    pub planned_memory: u64,
    /// The most bytes that its batches took at once, by the same prediction: less than planned if there was not work
    /// for all slots.
    pub predicted_memory: u64,
    /// The most bytes of device memory in use at once.
    pub peak_memory: u64,
    /// Time to open the device in the background.
    pub opening: Duration,
    /// Time to compile its kernels after that, or to fetch them from the cache.
    pub preparing: Duration,
    /// Time to allocate memory for its batches after that.
    pub allocating: Duration,
    /// The most batches at once.
    pub slots: u32,
    /// The most blocks in a batch.
    pub batch: u32,
    /// Batches that the device got.
    pub batches: u64,
    /// Blocks that the device got and did not do, or did wrong.
    pub left: u64,
    /// Time that the device's threads spent copying to it, summed over all threads. Each slot has one thread.
    pub upload: Duration,
    /// Time that they waited for the device to compute.
    pub compute: Duration,
    /// Time that they spent copying from the device.
    pub download: Duration,
    /// Time that they spent checking the device's output, mostly by having the device decode it again.
    pub verify: Duration,
    /// Time that they waited for blocks.
    pub waiting: Duration,
    /// What went wrong with the device, one line each.
    pub notes: Vec<String>,
    /// Time on the device itself, by stage; empty if the device cannot measure it.
    pub stages: Vec<StageTime>,
    begun: Option<Instant>,
    /// Bytes that the CPU had done when the first batch began.
    pub(crate) bytes_before: u64,
    /// Predicted bytes of the batches that exist now.
    predicted_now: u64,
}

impl DeviceStatistics {
    /// When the first batch began.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.begun
    }

    /// Records that a batch's memory, `predicted` bytes, replaces memory of `before` bytes.
    pub(crate) fn takes(&mut self, before: u64, predicted: u64) {
        self.predicted_now = (self.predicted_now + predicted).saturating_sub(before);
        self.predicted_memory = self.predicted_memory.max(self.predicted_now);
    }

    /// The work since `before`.
    pub(crate) fn since(mut self, before: &Self) -> Self {
        self.done.blocks -= before.done.blocks;
        self.done.bytes -= before.done.bytes;
        self.done.busy -= before.done.busy;
        self.span = self.done.busy;
        self.upload -= before.upload;
        self.compute -= before.compute;
        self.download -= before.download;
        self.verify -= before.verify;
        for stage in &mut self.stages {
            let other = before.stages.iter().find(|other| other.stage == stage.stage);
            stage.time -= other.map_or(Duration::ZERO, |other| other.time);
        }
        self
    }
}

impl Statistics {
    /// Empty counts.
    pub fn new() -> Self {
        let statistics = Self::default();
        statistics.0.lock().wants_stages = true;
        statistics
    }

    /// Empty counts that leave out the times of device stages, because measuring those costs time.
    pub(crate) fn without_stages() -> Self {
        Self::default()
    }

    /// Counts blocks that a test makes up as done by the processor's threads.
    #[cfg(test)]
    pub(crate) fn cpu_did(&self, blocks: u64, bytes: u64, busy: Duration) {
        self.0.lock().cpu.add(blocks, bytes, busy);
    }

    /// The work of the CPU's threads.
    pub fn cpu(&self) -> EngineStatistics {
        self.0.lock().cpu
    }

    /// The blocks that the CPU's threads decoded to check what a device had encoded.
    pub fn verified(&self) -> EngineStatistics {
        self.0.lock().verified
    }

    /// The work of the device, if one took part.
    pub fn device(&self) -> Option<DeviceStatistics> {
        self.0.lock().device.clone()
    }

    /// Time spent reading the input, by all threads together that read it.
    pub fn reading(&self) -> Duration {
        self.0.lock().reading
    }

    /// Time that the calling thread spent writing the output.
    pub fn writing(&self) -> Duration {
        self.0.lock().writing
    }

    /// Why [`Auto`](crate::Auto) used a GPU or did not, if it chose.
    pub fn choice(&self) -> Option<String> {
        self.0.lock().choice.clone()
    }

    /// Why the requested device did not take part: one line, with the device's name if it is known.
    pub fn idle_device(&self) -> Option<String> {
        self.0.lock().idle.clone()
    }

    /// Records why the requested device has not taken part so far.
    pub(crate) fn device_is_idle(&self, limits: Option<&Limits>, why: &str) {
        let mut counts = self.0.lock();
        if counts.device.is_none() {
            let why = why.lines().next().unwrap_or_default();
            let name = limits.map_or("the device".into(), |l| format!("{} ({})", l.name, l.api));
            counts.idle = Some(format!("{name} takes no part: {why}"));
        }
    }

    /// Records why a device was or was not chosen.
    pub(crate) fn chose(&self, why: &str) {
        self.0.lock().choice = Some(why.into());
    }

    /// Whether to measure the times of device stages.
    pub(crate) fn wants_stages(&self) -> bool {
        self.0.lock().wants_stages
    }

    /// Records that a device takes part, with `planned_memory` bytes of its memory.
    pub(crate) fn device_joins(&self, limits: &Limits, planned_memory: u64) {
        let mut counts = self.0.lock();
        counts.idle = None;
        let device = counts.device.get_or_insert_with(|| DeviceStatistics {
            name: limits.name.clone(),
            driver: limits.driver.clone(),
            api: limits.api,
            done: EngineStatistics::default(),
            span: Duration::ZERO,
            planned_memory: 0,
            predicted_memory: 0,
            peak_memory: 0,
            opening: Duration::ZERO,
            preparing: Duration::ZERO,
            allocating: Duration::ZERO,
            slots: 0,
            batch: 0,
            batches: 0,
            left: 0,
            upload: Duration::ZERO,
            compute: Duration::ZERO,
            download: Duration::ZERO,
            verify: Duration::ZERO,
            waiting: Duration::ZERO,
            notes: Vec::new(),
            stages: Vec::new(),
            begun: None,
            bytes_before: 0,
            predicted_now: 0,
        });
        device.planned_memory = device.planned_memory.max(planned_memory);
    }

    /// Records that a device is about to run a batch.
    pub(crate) fn device_begins(&self) {
        let mut counts = self.0.lock();
        let before = counts.cpu.bytes;
        if let Some(device) = counts.device.as_mut().filter(|device| device.begun.is_none()) {
            (device.begun, device.bytes_before) = (Some(Instant::now()), before);
        }
    }

    /// Records that a device has run a batch since `begun`, did `blocks` blocks of `bytes` bytes right, and has used at
    /// most `peak_memory` bytes of its memory.
    pub(crate) fn device_batch(&self, begun: Instant, blocks: u64, bytes: u64, peak_memory: u64) {
        if let Some(device) = &mut self.0.lock().device {
            device.done.add(blocks, bytes, begun.elapsed());
            let first = *device.begun.get_or_insert(begun);
            device.begun = Some(first.min(begun));
            device.span = first.min(begun).elapsed();
            device.peak_memory = device.peak_memory.max(peak_memory);
        }
    }

    /// Records what went wrong with the device. The same note from several threads counts once.
    pub(crate) fn note_of_device(&self, note: &str) {
        let note = note.lines().next().unwrap_or_default();
        self.on_device(|device| {
            if !device.notes.iter().any(|other| other == note) {
                device.notes.push(note.into());
            }
        });
    }

    /// Updates the device's statistics, if there is a device.
    pub(crate) fn on_device(&self, take: impl FnOnce(&mut DeviceStatistics)) {
        if let Some(device) = &mut self.0.lock().device {
            take(device);
        }
    }

    /// Adds the stage times of a batch.
    pub(crate) fn device_stages(&self, stages: Vec<StageTime>) {
        if let Some(device) = &mut self.0.lock().device {
            for StageTime { stage, time } in stages {
                match device.stages.iter_mut().find(|other| other.stage == stage) {
                    Some(other) => other.time += time,
                    None => device.stages.push(StageTime { stage, time }),
                }
            }
        }
    }

    /// Adds the time since `begun` to the reading time.
    pub(crate) fn read_since(&self, begun: Instant) {
        self.0.lock().reading += begun.elapsed();
    }

    /// Adds the time since `begun` to the writing time.
    pub(crate) fn written_since(&self, begun: Instant) {
        self.0.lock().writing += begun.elapsed();
    }
}

impl PartialEq for Statistics {
    /// Whether both share the same counts.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Statistics {}

/// Wraps a CPU engine and counts its work.
pub(crate) struct Counted {
    engine: Arc<dyn Engine>,
    statistics: Statistics,
    /// Whether the job encodes, so that blocks are decoded only to check them.
    verifies: bool,
}

impl Counted {
    /// Wraps `engine` to count its work in `statistics`, if there are any. `encodes` says that the job encodes.
    #[allow(clippy::new_ret_no_self, reason = "without statistics the engine needs no wrapper")]
    pub(crate) fn new(
        engine: Arc<dyn Engine>,
        statistics: Option<&Statistics>,
        encodes: bool,
    ) -> Arc<dyn Engine> {
        match statistics {
            None => engine,
            Some(statistics) => {
                Arc::new(Self { engine, statistics: statistics.clone(), verifies: encodes })
            }
        }
    }
}

impl Engine for Counted {
    fn encode(&self, recipe: &Recipe, batch: &mut [EncodeJob<'_>]) {
        let begun = Instant::now();
        self.engine.encode(recipe, batch);
        let bytes = batch.iter().map(|job| job.contents.len() as u64).sum();
        self.statistics.0.lock().cpu.add(batch.len() as u64, bytes, begun.elapsed());
    }

    fn decode(&self, batch: &mut [DecodeJob<'_>]) {
        let begun = Instant::now();
        self.engine.decode(batch);
        let bytes = batch.iter().map(|job| job.contents.len() as u64).sum();
        let mut counts = self.statistics.0.lock();
        let counted = if self.verifies { &mut counts.verified } else { &mut counts.cpu };
        counted.add(batch.len() as u64, bytes, begun.elapsed());
    }

    fn release(&self) {
        self.engine.release();
    }

    fn encode_memory(&self, recipe: &Recipe, block_size: usize) -> u64 {
        self.engine.encode_memory(recipe, block_size)
    }

    fn decode_memory(&self, pipeline: Pipeline, block_size: usize) -> u64 {
        self.engine.decode_memory(pipeline, block_size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DecodeOptions, Decoder, Encoder, Gpu, Options};
    use std::io::Read;

    #[test]
    fn blocks_of_the_cpu_are_counted() {
        let contents: Vec<u8> = (0..500_000_u32).map(|i| (i / 999) as u8).collect();
        for threads in [1, 3] {
            let counted = Statistics::new();
            let options = Options::new().block_size(1 << 16).threads(threads).statistics(&counted);
            let packed = crate::compress(&contents, &options).unwrap();
            assert_eq!((counted.cpu().blocks, counted.cpu().bytes), (8, 500_000));
            assert!(counted.device().is_none() && !counted.cpu().busy.is_zero());

            let counted = Statistics::new();
            let options = DecodeOptions::new().threads(threads).statistics(&counted);
            let mut decoder = Decoder::new(&packed[..], &options).unwrap();
            decoder.copy_to(&mut std::io::sink()).unwrap();
            assert_eq!((counted.cpu().blocks, counted.cpu().bytes), (8, 500_000));
            crate::decompress(&packed, &options).unwrap();
            assert_eq!(counted.cpu().blocks, 16);
        }
    }

    /// The peak of the device memory in use is what the kernels' costs predict, and the counts cover all blocks.
    #[test]
    fn devices_take_the_predicted_memory() {
        use crate::gpu::device::discovery::devices;
        let contents: Vec<u8> = (0..3_u32 << 18).map(|i| (i.wrapping_mul(i) >> 17) as u8).collect();
        // Other tests check that there are devices.
        let all = Api::ALL.into_iter().filter_map(|api| devices(api).ok());
        for found in all.flatten() {
            // A new `Gpu` for each job, which holds no memory from another.
            let device = found.open().unwrap();
            let gpu = || Gpu::new(device.clone()).memory(64 << 20);
            let counted = Statistics::new();
            let options = Options::new().block_size(1 << 16).threads(1).gpu(gpu());
            let mut encoder = Encoder::new(Vec::new(), &options.statistics(&counted)).unwrap();
            encoder.read_from(&mut &contents[..]).unwrap();
            let packed = encoder.finish().unwrap();
            let check = |counted: &Statistics| {
                let device = counted.device().unwrap();
                assert_eq!(counted.cpu().blocks + device.done.blocks, 12, "{counted:?}");
                assert!(device.planned_memory <= 64 << 20, "{device:?}");
                assert!(device.predicted_memory <= device.planned_memory, "{device:?}");
                assert_eq!(device.peak_memory, device.predicted_memory, "{device:?}");
                device
            };
            let device = check(&counted);
            assert!(device.done.blocks > 0 && device.peak_memory > 0, "{device:?}");
            assert!(!device.stages.is_empty() && !device.span.is_zero(), "{device:?}");

            let counted = Statistics::new();
            let options = DecodeOptions::new().threads(1).gpu(gpu()).statistics(&counted);
            let mut restored = Vec::new();
            let mut decoder = Decoder::new(&packed[..], &options).unwrap();
            decoder.read_to_end(&mut restored).unwrap();
            assert!(restored == contents);
            check(&counted);
        }
    }
}
