//! What a run did: which engine did how much, where the time went, and how much device memory it took.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::engine::{DecodeJob, EncodeJob, Engine};
use super::level::Recipe;
use crate::format::Pipeline;
use crate::gpu::coder::StageTime;
use crate::gpu::device::{Api, Limits};

/// Counts what runs do that are given it by [`Options::statistics`](crate::Options::statistics) or
/// [`DecodeOptions::statistics`](crate::DecodeOptions::statistics). Clones share the counts. They are complete when the
/// encoder has finished or the decoder is at its end.
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
pub struct Statistics(Arc<Mutex<Counts>>);

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

/// What an engine did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct EngineStatistics {
    /// Blocks.
    pub blocks: u64,
    /// Bytes of their contents.
    pub bytes: u64,
    /// Time in which a thread was at work on them, added up over threads.
    pub busy: Duration,
}

impl EngineStatistics {
    fn add(&mut self, blocks: u64, bytes: u64, busy: Duration) {
        self.blocks += blocks;
        self.bytes += bytes;
        self.busy += busy;
    }
}

/// What a device did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceStatistics {
    /// Its name.
    pub name: String,
    /// Its driver.
    pub driver: String,
    /// The interface.
    pub api: Api,
    /// Blocks that it did, and that were right. What else it was given, the CPU did.
    pub done: EngineStatistics,
    /// From the first batch's beginning to the last one's end.
    pub span: Duration,
    /// Bytes of device memory that all its batches at once are planned to take at most, as the costs of its kernels predict.
    pub planned_memory: u64,
    /// The most that those batches take that there were at once: fewer, where there was not work for all.
    pub predicted_memory: u64,
    /// The most bytes of device memory that were in use at a time.
    pub peak_memory: u64,
    /// How long it took to open the device in the background.
    pub opening: Duration,
    /// How long its kernels took to be compiled after that.
    pub preparing: Duration,
    /// Batches at once, at most.
    pub slots: u32,
    /// Blocks of a batch, at most.
    pub batch: u32,
    /// Batches that it was given.
    pub batches: u64,
    /// Blocks that it was given and did not do, or not right.
    pub left: u64,
    /// Time in which the device's threads, of which there is one for each batch at once, copied to it, added up over
    /// threads.
    pub upload: Duration,
    /// Time in which they waited for what it computed.
    pub compute: Duration,
    /// Time in which they copied from it.
    pub download: Duration,
    /// Time in which they checked what it had encoded, most of it by having it decoded again.
    pub verify: Duration,
    /// Time in which they waited for blocks.
    pub waiting: Duration,
    /// What went wrong with it, each in a line.
    pub notes: Vec<String>,
    /// Time on the device itself, by stage; empty where the device cannot measure.
    pub stages: Vec<StageTime>,
    begun: Option<Instant>,
    /// Bytes that the CPU had done by then.
    pub(crate) before: u64,
    /// What the batches that there are at present take.
    predicted_now: u64,
}

impl DeviceStatistics {
    /// When it was given its first batch.
    pub(crate) fn begun(&self) -> Option<Instant> {
        self.begun
    }

    /// Memory for a batch, of so many bytes as is predicted, has been taken in place of another's.
    pub(crate) fn takes(&mut self, before: u64, predicted: u64) {
        self.predicted_now = (self.predicted_now + predicted).saturating_sub(before);
        self.predicted_memory = self.predicted_memory.max(self.predicted_now);
    }

    /// What has been done since `before`.
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
    /// Nothing counted.
    pub fn new() -> Self {
        let statistics = Self::default();
        statistics.counts().wants_stages = true;
        statistics
    }

    /// The same without times of stages on devices, whose measurement takes time itself.
    pub(crate) fn without_stages() -> Self {
        Self::default()
    }

    /// What the processor's threads did.
    pub fn cpu(&self) -> EngineStatistics {
        self.counts().cpu
    }

    /// What the processor's threads decoded to check what a device had encoded.
    pub fn verified(&self) -> EngineStatistics {
        self.counts().verified
    }

    /// What the device did, if there was one.
    pub fn device(&self) -> Option<DeviceStatistics> {
        self.counts().device.clone()
    }

    /// How long the calling thread was busy reading the input.
    pub fn reading(&self) -> Duration {
        self.counts().reading
    }

    /// How long the calling thread was busy writing the output.
    pub fn writing(&self) -> Duration {
        self.counts().writing
    }

    /// Why a GPU was used, or was not, where [`Auto`](crate::Auto) chose.
    pub fn choice(&self) -> Option<String> {
        self.counts().choice.clone()
    }

    /// Why a device that was to take part did not, in one line that names it, if it was known by then which it is.
    pub fn idle_device(&self) -> Option<String> {
        self.counts().idle.clone()
    }

    /// A device that was to take part has not done so yet; with such limits, if they are known.
    pub(crate) fn device_is_idle(&self, limits: Option<&Limits>, why: &str) {
        let mut counts = self.counts();
        if counts.device.is_none() {
            let why = why.lines().next().unwrap_or_default();
            let name = limits.map_or("the device".into(), |l| format!("{} ({})", l.name, l.api));
            counts.idle = Some(format!("{name} takes no part: {why}"));
        }
    }

    /// Takes note of a choice.
    pub(crate) fn chose(&self, why: &str) {
        self.counts().choice = Some(why.into());
    }

    fn counts(&self) -> MutexGuard<'_, Counts> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether times of stages on devices are wanted.
    pub(crate) fn wants_stages(&self) -> bool {
        self.counts().wants_stages
    }

    /// A device is going to take part, and take so much memory.
    pub(crate) fn device_joins(&self, limits: &Limits, planned_memory: u64) {
        let mut counts = self.counts();
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
            before: 0,
            predicted_now: 0,
        });
        device.planned_memory = device.planned_memory.max(planned_memory);
    }

    /// A device is about to run a batch.
    pub(crate) fn device_begins(&self) {
        let mut counts = self.counts();
        let before = counts.cpu.bytes;
        if let Some(device) = counts.device.as_mut().filter(|device| device.begun.is_none()) {
            (device.begun, device.before) = (Some(Instant::now()), before);
        }
    }

    /// A device has run a batch since `begun`, of which so many blocks were right, and has used at most so much memory.
    pub(crate) fn device_batch(&self, begun: Instant, blocks: u64, bytes: u64, peak_memory: u64) {
        if let Some(device) = &mut self.counts().device {
            device.done.add(blocks, bytes, begun.elapsed());
            let first = *device.begun.get_or_insert(begun);
            device.begun = Some(first.min(begun));
            device.span = first.min(begun).elapsed();
            device.peak_memory = device.peak_memory.max(peak_memory);
        }
    }

    /// Takes note of what goes wrong with the device: once, though it has several threads.
    pub(crate) fn note_of_device(&self, note: &str) {
        let note = note.lines().next().unwrap_or_default();
        self.on_device(|device| {
            if !device.notes.iter().any(|other| other == note) {
                device.notes.push(note.into());
            }
        });
    }

    /// Takes note of what the device does.
    pub(crate) fn on_device(&self, take: impl FnOnce(&mut DeviceStatistics)) {
        if let Some(device) = &mut self.counts().device {
            take(device);
        }
    }

    /// A batch has taken so long on a device.
    pub(crate) fn device_stages(&self, stages: Vec<StageTime>) {
        if let Some(device) = &mut self.counts().device {
            for StageTime { stage, time } in stages {
                match device.stages.iter_mut().find(|other| other.stage == stage) {
                    Some(other) => other.time += time,
                    None => device.stages.push(StageTime { stage, time }),
                }
            }
        }
    }

    /// Part of the input has been read since `begun`.
    pub(crate) fn read_since(&self, begun: Instant) {
        self.counts().reading += begun.elapsed();
    }

    /// Part of the output has been written since `begun`.
    pub(crate) fn written_since(&self, begun: Instant) {
        self.counts().writing += begun.elapsed();
    }
}

impl PartialEq for Statistics {
    /// Whether they share their counts.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Statistics {}

/// An engine of the processor whose work is counted.
pub(crate) struct Counted {
    engine: Arc<dyn Engine>,
    statistics: Statistics,
    /// Whether blocks are decoded only to check what has been encoded.
    verifies: bool,
}

impl Counted {
    /// `engine`, counted in `statistics` if there are any. `encodes`: what it decodes is decoded to be checked.
    #[allow(clippy::new_ret_no_self, reason = "what counts nothing is the engine itself")]
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
        self.statistics.counts().cpu.add(batch.len() as u64, bytes, begun.elapsed());
    }

    fn decode(&self, batch: &mut [DecodeJob<'_>]) {
        let begun = Instant::now();
        self.engine.decode(batch);
        let bytes = batch.iter().map(|job| job.contents.len() as u64).sum();
        let mut counts = self.statistics.counts();
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

    /// What a device has in use at most is what its kernels' costs predict, and all blocks are accounted for.
    #[test]
    fn devices_take_what_is_predicted() {
        use crate::gpu::discovery::devices;
        let contents: Vec<u8> = (0..3_u32 << 18).map(|i| (i.wrapping_mul(i) >> 17) as u8).collect();
        // Whether there must be devices, other tests say.
        let all = [Api::OpenCl, Api::WebGpu].into_iter().filter_map(|api| devices(api).ok());
        for found in all.flatten() {
            // Each job has one that keeps no memory of another.
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
