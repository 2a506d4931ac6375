//! The choice between the processor alone and a GPU beside it.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Gpu;
use super::load::{ComputeRate, Load};
use super::memory::cores;
use super::options::Options;
use super::rates::{Rates, Store};
use super::registry::{Candidate, Machine, Registry, is_eligible};
use super::statistics::Statistics;
use crate::error::Error;
use crate::format::Pipeline;
use crate::gpu::device::{Api, Limits};

/// Chooses for each job whether a GPU is used beside the processor's threads: the one with which the job will be done
/// soonest, by prediction, if that is clearly sooner than without any. The output is the same either way.
///
/// To look for a GPU and to open it takes longer than most files do, so what decides is known before:
///
/// 1. An input of no more blocks than there are threads stays on the processor: every block has a core at once.
/// 2. How long the processor takes follows from the rate that it had in earlier runs, or on a sample of 256 KiB.
/// 3. If that is less than opening a device took the last time (a second, if there was no last time), it stays there.
/// 4. If all devices that were there the last time are known too slow, it stays there.
/// 5. Then only are drivers asked what there is. A device that has never been measured is if the job takes so long that it
///    pays. Programs that play a device are never chosen.
///
/// What devices and processor deliver is measured once for each kind of work, learned from each run, and kept in the user's
/// cache folder (`$XDG_CACHE_HOME/pz`, or where the system has such things), by device, driver and version of pz. A cache
/// that is damaged or cannot be written is no error.
///
/// A stream whose length is not known begins on the processor, and stays there until it has become so long that as much
/// again would be done sooner with a device.
///
/// ```
/// let options = pz::Options::new().auto(&pz::Auto::new());
/// let small = pz::compress(b"too little to open a device for", &options)?;
/// # assert_eq!(pz::decompress(&small, &pz::DecodeOptions::new())?.len(), 31);
/// # Ok::<(), pz::Error>(())
/// ```
#[derive(Clone)]
pub struct Auto(Arc<Shared>);

struct Shared {
    registry: Box<dyn Registry>,
    store: Store,
    memory: Option<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Rates that were looked up, by subject.
    rates: Vec<(String, Rates)>,
    /// Devices that were opened, by subject.
    opened: Vec<(String, Gpu)>,
}

/// A device that is the best so far.
enum Chosen {
    Open(Gpu),
    /// It need not be open before the work begins.
    Closed(String, Box<dyn Candidate>),
}

/// What was chosen, and why.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) gpu: Option<Gpu>,
    pub(crate) why: String,
}

/// How long something takes, by prediction.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// Bytes of contents a second: of all threads of the processor.
    pub cpu_rate: f64,
    /// Seconds on the processor alone.
    pub cpu_seconds: f64,
    /// Bytes of contents a second that the device delivers, in memory; `None` if it does not do this work.
    pub device_rate: Option<f64>,
    /// Seconds to find and open the device.
    pub opening: f64,
    /// Seconds with the device beside the processor, which begins while the device is opened.
    pub seconds: f64,
    /// Seconds of each stage on the device itself, if it did all of it; empty where it cannot measure.
    pub stages: Vec<(String, f64)>,
}

/// The name under which the devices are kept that were there the last time, each with the seconds it took to open.
const DEVICES: &str = "devices";

/// The seconds that it takes to find and open a device, among its rates.
const TO_OPEN: &str = "seconds to open";

/// What is kept there if there was no device, with the seconds it took to see that.
const NONE: &str = "none";

/// Seconds that finding and opening a device takes, if it is not known.
const OPENING: f64 = 1.0;

/// A job must take so many seconds on the processor for a device to be measured first: opening, compiling and running take
/// one or two.
const WORTH_MEASURING: f64 = 10.0;

/// A device must be expected to need no more than this part of the processor's time: predictions are not exact.
const CLEARLY: f64 = 0.9;

/// A run must have kept processor or device at work for so many seconds for its rate to be learned.
const WORTH_LEARNING: f64 = 0.2;

impl Auto {
    /// A choice among the devices of this machine.
    pub fn new() -> Self {
        Self::with(Box::new(Machine), Store::of_user(), None)
    }

    /// Sets the most bytes of device memory to take.
    pub fn memory(self, bytes: u64) -> Self {
        let store = self.0.store.clone();
        Self::with(Box::new(Machine), store, Some(bytes))
    }

    /// Keeps rates in `folder` instead of the user's cache folder; nowhere if that is `None`.
    pub fn cache(self, folder: Option<PathBuf>) -> Self {
        let memory = self.0.memory;
        Self::with(Box::new(Machine), Store::in_folder(folder), memory)
    }

    pub(crate) fn with(registry: Box<dyn Registry>, store: Store, memory: Option<u64>) -> Self {
        Self(Arc::new(Shared { registry, store, memory, state: Mutex::default() }))
    }

    /// How long `gpu` and the processor take to compress `bytes` bytes as `options` say. Rates that are not known are
    /// measured, which takes a moment, and kept.
    ///
    /// # Errors
    /// If the options make no sense.
    pub fn predict(
        &self,
        gpu: Option<&Gpu>,
        options: &Options,
        bytes: u64,
    ) -> Result<Prediction, Error> {
        Ok(self.predict_load(gpu, &Load::encoding(options)?, bytes, options.threads))
    }

    /// The same for decompression of blocks of `block_size` bytes of a pipeline, made at `level` (0 if it is not known), on
    /// `threads` threads.
    pub fn predict_decoding(
        &self,
        gpu: Option<&Gpu>,
        (pipeline, level, block_size): (Pipeline, u8, u64),
        bytes: u64,
        threads: usize,
    ) -> Prediction {
        let load = Load::decoding_of(pipeline, level, block_size);
        self.predict_load(gpu, &load, bytes, threads)
    }

    /// How fast a device of such limits computes what `options` say, bytes in its memory to bytes in its memory; `None` if
    /// it does not, or if nothing has been measured on it.
    ///
    /// # Errors
    /// If the options make no sense.
    pub fn encode_rate(
        &self,
        limits: &Limits,
        options: &Options,
    ) -> Result<Option<ComputeRate>, Error> {
        let load = Load::encoding(options)?;
        Ok(load.compute_rate(limits, &self.rates(&subject(limits))))
    }

    /// The same for decoding.
    pub fn decode_rate(
        &self,
        limits: &Limits,
        (pipeline, level, block_size): (Pipeline, u8, u64),
    ) -> Option<ComputeRate> {
        let load = Load::decoding_of(pipeline, level, block_size);
        load.compute_rate(limits, &self.rates(&subject(limits)))
    }

    fn predict_load(
        &self,
        gpu: Option<&Gpu>,
        load: &Load,
        bytes: u64,
        threads: usize,
    ) -> Prediction {
        let workers = if threads == 0 { cores() } else { threads };
        let cpu_rate = self.cpu_rate(load);
        let cpu_seconds = self.alone(load, bytes, workers, cpu_rate);
        let mut prediction = Prediction {
            cpu_rate: cpu_rate * workers as f64,
            cpu_seconds,
            device_rate: None,
            opening: 0.0,
            seconds: cpu_seconds,
            stages: Vec::new(),
        };
        let Some((gpu, limits)) = gpu.and_then(|gpu| Some((gpu, gpu.limits()?))) else {
            return prediction;
        };
        let subject = subject(limits);
        prediction.opening = self.rates(&subject).get(TO_OPEN).unwrap_or(OPENING);
        if let Some(rate) = self.device_rate(load, gpu) {
            let device = (prediction.opening, rate);
            prediction.device_rate = Some(rate);
            let whole = self.rates(&subject).get(&load.name_with(workers));
            let cpu = (workers, cpu_rate);
            prediction.seconds = load.with_device_seconds(bytes, cpu, device, whole);
            let prefix = format!("{}: ", load.name());
            let stage = |(name, rate): (&str, f64)| {
                Some((name.strip_prefix(&prefix)?.to_string(), bytes as f64 / rate))
            };
            prediction.stages = self.rates(&subject).iter().filter_map(stage).collect();
        }
        prediction
    }

    /// Decides on a job of `bytes` bytes of contents.
    pub(crate) fn choose(&self, load: &Load, bytes: u64, workers: usize) -> Choice {
        let on_cpu = |why: String| Choice { gpu: None, why };
        if bytes.div_ceil(load.block_size()) <= workers as u64 {
            return on_cpu("the CPU: there is a thread for each block".into());
        }
        let cpu_rate = self.cpu_rate(load);
        let alone = self.alone(load, bytes, workers, cpu_rate);
        let known = self.rates(DEVICES);
        let opening = known.iter().filter(|(name, _)| *name != NONE).map(|(_, seconds)| seconds);
        let opening = opening.reduce(f64::min);
        if alone < opening.unwrap_or(OPENING) {
            return on_cpu(format!(
                "the CPU: {alone:.2} s predicted, less than it takes to open a device"
            ));
        }
        let with = |subject: &str, opening, rate| {
            let whole = self.rates(subject).get(&load.name_with(workers));
            load.with_device_seconds(bytes, (workers, cpu_rate), (opening, rate), whole)
        };
        let too_slow = |(subject, opening)| match self.rates(subject).get(&load.name()) {
            Some(rate) => with(subject, opening, rate) > CLEARLY * alone,
            // Not worth measuring; or there was none, and it is not worth looking again.
            None => alone < WORTH_MEASURING,
        };
        if !known.is_empty() && known.iter().all(too_slow) {
            return on_cpu(format!(
                "the CPU: {alone:.2} s predicted, and not clearly less with a device"
            ));
        }
        let mut best: Option<(f64, String, Chosen)> = None;
        let mut there = Rates::default();
        let begun = Instant::now();
        let candidates = self.0.registry.candidates();
        let finding = begun.elapsed().as_secs_f64();
        for candidate in candidates.into_iter().filter(|found| is_eligible(found.limits())) {
            let (subject, name) = (subject(candidate.limits()), candidate.limits().name.clone());
            let opening = known.get(&subject).unwrap_or(OPENING);
            there.set(&*subject, opening);
            let rate = self.rates(&subject).get(&load.name());
            let is_candidate = match rate {
                Some(rate) => with(&subject, opening, rate) <= CLEARLY * alone,
                None => alone >= WORTH_MEASURING,
            };
            if !is_candidate || self.is_broken(&subject) {
                continue;
            }
            let (seconds, device) = match rate {
                Some(rate) => (with(&subject, opening, rate), Chosen::Closed(subject, candidate)),
                None => {
                    let begun = Instant::now();
                    let gpu = self.open(&subject, candidate);
                    let Some(rate) = self.device_rate(load, &gpu) else { continue };
                    there.set(&*subject, finding + begun.elapsed().as_secs_f64());
                    // It is open now.
                    (with(&subject, 0.0, rate), Chosen::Open(gpu))
                }
            };
            if seconds <= CLEARLY * alone
                && best.as_ref().is_none_or(|(least, ..)| seconds < *least)
            {
                best = Some((seconds, name, device));
            }
        }
        if there.is_empty() {
            there.set(NONE, finding);
        }
        self.keep(DEVICES, there);
        match best {
            None => on_cpu(format!(
                "the CPU: {alone:.2} s predicted, and not clearly less with a device"
            )),
            Some((seconds, name, device)) => {
                let gpu = match device {
                    Chosen::Open(gpu) => gpu,
                    Chosen::Closed(subject, candidate) => self.open(&subject, candidate),
                };
                let why = format!("{name}: {seconds:.2} s predicted, {alone:.2} s without it");
                Choice { why, gpu: Some(gpu) }
            }
        }
    }

    /// Learns from a job that has been done.
    pub(crate) fn learn(
        &self,
        load: &Load,
        statistics: &Statistics,
        workers: usize,
        wall: Duration,
    ) {
        let wall = wall.as_secs_f64();
        match statistics.device() {
            Some(device) => {
                let subject = subject_of(device.api, &device.name, &device.driver);
                let mut known = self.rates(DEVICES);
                let opening = (device.opening + device.preparing).as_secs_f64();
                if known.get(&subject).is_some() {
                    known.learn(&subject, opening);
                    self.keep(DEVICES, known);
                }
                if device.span.as_secs_f64() >= WORTH_LEARNING {
                    let mut rates = self.rates(&subject);
                    load.set_device_rates(&mut rates, None, &device, true);
                    // A run that was over when the device was there says nothing of others.
                    if device.span.as_secs_f64() >= wall / 2.0 {
                        let bytes = device.done.bytes + statistics.cpu().bytes;
                        rates.learn(&load.name_with(workers), bytes as f64 / wall);
                    }
                    self.keep(&subject, rates);
                }
            }
            // Beside a device, threads work on what it leaves them, and check what it does.
            None => {
                let cpu = statistics.cpu();
                let seconds = cpu.busy.as_secs_f64();
                if seconds >= WORTH_LEARNING {
                    let mut rates = self.rates(&cpu_subject());
                    rates.learn(&load.name(), cpu.bytes as f64 / seconds);
                    if wall >= WORTH_LEARNING {
                        rates.learn(&load.name_with(workers), cpu.bytes as f64 / wall);
                    }
                    self.keep(&cpu_subject(), rates);
                }
            }
        }
    }

    /// Takes note of how long it took to find and open a device.
    pub fn opened(&self, gpu: &Gpu, time: Duration) {
        let Some(limits) = gpu.limits() else { return };
        let subject = subject(limits);
        let mut rates = self.rates(&subject);
        rates.set(TO_OPEN, time.as_secs_f64());
        self.keep(&subject, rates);
        if is_eligible(limits) {
            let mut known = self.rates(DEVICES);
            known.set(subject, time.as_secs_f64());
            self.keep(DEVICES, known);
        }
    }

    /// Seconds on the processor alone: as runs on so many threads took, with all reading and writing; or else as its threads
    /// would, if nobody had to read and write.
    fn alone(&self, load: &Load, bytes: u64, workers: usize, cpu_rate: f64) -> f64 {
        let seconds = load.cpu_seconds(bytes, workers, cpu_rate);
        let whole = self.rates(&cpu_subject()).get(&load.name_with(workers));
        whole.map_or(seconds, |rate| (bytes as f64 / rate).max(seconds))
    }

    /// Bytes a second of one thread of the processor.
    fn cpu_rate(&self, load: &Load) -> f64 {
        let mut rates = self.rates(&cpu_subject());
        if let Some(rate) = rates.get(&load.name()) {
            return rate;
        }
        let measured = load.measure_cpu();
        rates.set(load.name(), measured);
        self.keep(&cpu_subject(), rates);
        measured.max(1.0)
    }

    /// Bytes a second of a device, measured if they are not known.
    fn device_rate(&self, load: &Load, gpu: &Gpu) -> Option<f64> {
        let limits = gpu.limits()?;
        let subject = subject(limits);
        let mut rates = self.rates(&subject);
        if rates.get(&load.name()).is_none() {
            let found = load.measure_device(gpu)?;
            load.set_device_rates(&mut rates, Some(limits), &found, false);
            self.keep(&subject, rates.clone());
        }
        rates.get(&load.name())
    }

    /// Whether a device could not be opened.
    fn is_broken(&self, subject: &str) -> bool {
        let state = self.state();
        let found = state.opened.iter().find(|(other, _)| other == subject);
        found.is_some_and(|(_, gpu)| gpu.limits().is_none())
    }

    /// A device, which is opened once, in the background.
    fn open(&self, subject: &str, candidate: Box<dyn Candidate>) -> Gpu {
        let mut state = self.state();
        if let Some((_, gpu)) = state.opened.iter().find(|(other, _)| other == subject) {
            return gpu.clone();
        }
        let gpu = Gpu::opening(candidate.limits().clone(), move || candidate.open());
        let gpu = self.0.memory.map_or(gpu.clone(), |bytes| gpu.memory(bytes));
        state.opened.push((subject.into(), gpu.clone()));
        gpu
    }

    /// What is known of a subject.
    fn rates(&self, subject: &str) -> Rates {
        let known = self.state().rates.iter().find(|(s, _)| s == subject).map(|(_, r)| r.clone());
        known.unwrap_or_else(|| {
            let rates = self.0.store.load(subject);
            self.state().rates.push((subject.into(), rates.clone()));
            rates
        })
    }

    fn keep(&self, subject: &str, rates: Rates) {
        let mut state = self.state();
        let known = state.rates.iter().find(|(other, _)| other == subject);
        if known.is_some_and(|(_, known)| *known == rates) {
            return;
        }
        state.rates.retain(|(other, _)| other != subject);
        state.rates.push((subject.into(), rates.clone()));
        drop(state);
        self.0.store.save(subject, &rates);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Auto {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Auto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auto").field("memory", &self.0.memory).finish_non_exhaustive()
    }
}

impl PartialEq for Auto {
    /// Whether they are clones of one.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Auto {}

/// The name under which a device's rates are kept.
fn subject(limits: &Limits) -> String {
    subject_of(limits.api, &limits.name, &limits.driver)
}

fn subject_of(api: Api, name: &str, driver: &str) -> String {
    format!("{api} {name} {driver}")
}

/// The same of the processor.
fn cpu_subject() -> String {
    format!("CPU {} {}", crate::codec::vector_instructions(), cores())
}

#[cfg(test)]
#[path = "auto_tests.rs"]
mod tests;
