//! The rates of the CPU and of devices, as earlier runs have shown them.
//!
//! A run on the CPU alone shows a worker's rate and the overhead of whole runs. A run with a device shows when the
//! device joined, and what device and workers delivered together from then on.

use std::time::Duration;

use super::Gpu;
use super::memory::cores;
use super::rate_cache::{Rates, Store};
use super::sample::Sample;
use super::statistics::{DeviceStatistics, Statistics};
use super::throughput::{Throughput, WithDevice};
use super::workload::Workload;
use crate::clock::Instant;
use crate::gpu::device::{Api, Limits};
use crate::sync::Lock;

/// Learned rates, in memory and in the cache.
pub(super) struct Knowledge {
    store: Store,
    /// The rates read so far, by subject.
    read: Lock<Vec<(String, Rates)>>,
}

/// A finished run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) workload: Workload,
    pub(crate) statistics: Statistics,
    /// The number of workers without a device.
    pub(crate) workers: usize,
    pub(crate) begun: Instant,
    /// Whether the run began to open a device.
    pub(crate) opened_device: bool,
    /// Time that the run took, without closing the device.
    pub(crate) wall: Duration,
}

/// The subject that lists the devices that the last search found, each with the seconds that it took to open.
const DEVICES: &str = "devices";

/// The entry of that list if no device was found, with the seconds that the search took.
const NO_DEVICE: &str = "none";

/// The name of the seconds to find and open a device.
const OPENING: &str = "seconds to open";

/// Shorter runs teach nothing: they would mostly measure the clock and the start of threads.
const MIN_SECONDS: f64 = 0.05;

impl Knowledge {
    pub(super) fn new(store: Store) -> Self {
        Self { store, read: Lock::new() }
    }

    /// What `workers` workers of this machine deliver. If that is unknown, measures it on synthetic contents.
    pub(super) fn cpu(&self, workload: &Workload, workers: usize) -> Throughput {
        let mut rates = self.rates(&cpu());
        let worker = rates.get(&workload.name()).unwrap_or_else(|| {
            let measured = workload.measure_cpu(None, 1);
            rates.set(workload.name(), measured);
            self.keep(&cpu(), rates.clone());
            measured.max(1.0)
        });
        throughput(&rates, workload, workers, worker)
    }

    /// The same if earlier runs have shown it.
    pub(super) fn known_cpu(&self, workload: &Workload, workers: usize) -> Option<Throughput> {
        let rates = self.rates(&cpu());
        let worker = rates.get(&workload.name())?;
        // Without it, the rate is that of synthetic contents.
        overhead(&rates, workload, workers)?;
        Some(throughput(&rates, workload, workers, worker))
    }

    /// The same, measured on `sample`.
    pub(super) fn cpu_with(
        &self,
        workload: &Workload,
        workers: usize,
        sample: &Sample,
    ) -> Throughput {
        let worker = workload.measure_cpu(Some(sample), workers).max(1.0);
        throughput(&self.rates(&cpu()), workload, workers, worker)
    }

    /// What a device adds to `cpu`; `None` if the device has never done such work.
    pub(super) fn device(
        &self,
        workload: &Workload,
        limits: &Limits,
        cpu: &Throughput,
    ) -> Option<WithDevice> {
        self.device_of(workload, &subject(limits), cpu)
    }

    /// The same, for the device with that subject.
    pub(super) fn device_of(
        &self,
        workload: &Workload,
        subject: &str,
        cpu: &Throughput,
    ) -> Option<WithDevice> {
        let rates = self.rates(subject);
        let of_runs = |what| rates.get(&name_with(workload, cpu.workers, what));
        let seconds = |what| rates.get(&part_of(workload, what)).unwrap_or(0.0);
        let (waiting, rate) = match of_runs(TOGETHER) {
            Some(together) => (of_runs(WAITING).unwrap_or(0.0), together),
            None => {
                let rate = match rates.get(&part_of(workload, BESIDE)) {
                    Some(beside) => cpu.joined_by(beside),
                    None => cpu.expected_with(rates.get(&workload.name())?),
                };
                // It begins when workers have finished their blocks and made room.
                (cpu.block / cpu.worker, rate)
            }
        };
        let starting = seconds(PREPARING) + seconds(ALLOCATING) + waiting;
        let known = WithDevice::known(api_of(subject), self.opening(subject), Some(rate));
        Some(WithDevice { starting, ..known })
    }

    /// The seconds that finding and opening a device is expected to take.
    pub(super) fn opening(&self, subject: &str) -> f64 {
        let known = self.rates(subject).get(OPENING);
        known
            .or_else(|| self.rates(DEVICES).get(subject))
            .unwrap_or(WithDevice::unknown(None).opening)
    }

    /// Raises the rate of a device that stays closed because it was slow. This way, one bad run does not keep it closed
    /// for ever.
    pub(super) fn fade(&self, workload: &Workload, limits: &Limits, workers: usize) {
        let mut rates = self.rates(&subject(limits));
        let name = name_with(workload, workers, TOGETHER);
        if let Some(rate) = rates.get(&name) {
            rates.set(name, rate * FADE_FACTOR);
            self.keep(&subject(limits), rates);
        }
    }

    /// The rates of a device, by name.
    pub(super) fn of_device(&self, limits: &Limits) -> Rates {
        self.rates(&subject(limits))
    }

    /// Bytes a second of a device alone. Measures them if they are unknown, or if there is a sample.
    ///
    /// # Errors
    /// Why the device does not do this work.
    pub(super) fn measure(
        &self,
        workload: &Workload,
        gpu: &Gpu,
        sample: Option<&Sample>,
    ) -> Result<f64, String> {
        let pool = gpu.pool().map_err(|error| error.to_string())?;
        let limits = crate::gpu::device::Device::limits(&**pool);
        let mut rates = self.rates(&subject(limits));
        if let (Some(rate), None) = (rates.get(&workload.name()), sample) {
            return Ok(rate);
        }
        let measured = workload.measure_device(gpu, sample)?;
        workload.set_measured_rates(&mut rates, limits, &measured.found);
        learn_preparing(&mut rates, workload, measured.preparing.as_secs_f64());
        self.keep(&subject(limits), rates.clone());
        rates.get(&workload.name()).ok_or_else(|| "it took no time to measure".into())
    }

    /// The devices that the last search found, each with the seconds that it took to open; `None` if no run has
    /// searched.
    pub(super) fn devices(&self) -> Option<Vec<(String, f64)>> {
        let rates = self.rates(DEVICES);
        let devices = rates.iter().filter(|(name, _)| *name != NO_DEVICE);
        (!rates.is_empty()).then(|| devices.map(|(name, time)| (name.into(), time)).collect())
    }

    /// Records the devices found, each with the seconds that it takes to open, and how long the search took.
    pub(super) fn set_devices(&self, devices: &[(String, f64)], finding: Duration) {
        let mut rates = Rates::default();
        for (name, seconds) in devices {
            rates.set(&**name, *seconds);
        }
        if devices.is_empty() {
            rates.set(NO_DEVICE, finding.as_secs_f64());
        }
        self.keep(DEVICES, rates);
    }

    /// Records how long it took to find and open a device while the machine was otherwise idle. The times of real runs
    /// take precedence.
    pub(super) fn opened(&self, limits: &Limits, time: Duration, is_eligible: bool) {
        let subject = subject(limits);
        let mut rates = self.rates(&subject);
        if rates.get(OPENING).is_none() {
            rates.set(OPENING, time.as_secs_f64());
            self.keep(&subject, rates);
        }
        let mut known = self.rates(DEVICES);
        if is_eligible && known.get(&subject).is_none() {
            known.set(subject, time.as_secs_f64());
            self.keep(DEVICES, known);
        }
    }

    /// Learns from a finished run, unless it was too short.
    pub(super) fn learn(&self, run: &Run) {
        if run.wall.as_secs_f64() < MIN_SECONDS {
            return;
        }
        match run.statistics.device() {
            Some(device) => self.learn_device(run, &device),
            // Workers made way for a device that came too late.
            None if run.opened_device => {}
            None => self.learn_cpu(run),
        }
    }

    fn learn_cpu(&self, run: &Run) {
        let (done, Run { workload, workers, .. }) = (run.statistics.cpu(), run);
        let (bytes, busy) = (done.bytes as f64, done.busy.as_secs_f64());
        if bytes <= 0.0 || busy <= 0.0 {
            return;
        }
        let worker = bytes / busy;
        let block = workload.block_size() as f64;
        let compute = Throughput { workers: *workers, worker, overhead: 0.0, block }.alone(bytes);
        let overhead = (run.wall.as_secs_f64() - compute) / bytes;
        let mut rates = self.rates(&cpu());
        let name = name_with(workload, *workers, OVERHEAD);
        // So far the rate is that of synthetic contents.
        if rates.get(&name).is_none() {
            rates.set(workload.name(), worker);
        } else {
            rates.learn(&workload.name(), worker);
        }
        rates.learn(&name, overhead.max(MIN_OVERHEAD));
        self.keep(&cpu(), rates);
    }

    fn learn_device(&self, run: &Run, device: &DeviceStatistics) {
        let Run { workload, workers, .. } = run;
        let subject = subject_of(device.api, &device.name, &device.driver);
        let mut rates = self.rates(&subject);
        let [opening, prepared, allocated] =
            [device.opening, device.preparing, device.allocating].map(|time| time.as_secs_f64());
        learn_preparing(&mut rates, workload, prepared);
        rates.learn(&part_of(workload, ALLOCATING), allocated);
        if opening > 0.0 {
            rates.learn(OPENING, opening);
            let mut known = self.rates(DEVICES);
            if known.get(&subject).is_some() {
                let prepared = rates.get(&part_of(workload, PREPARING)).unwrap_or(0.0);
                known.learn(&subject, opening + prepared);
                self.keep(DEVICES, known);
            }
        }
        if let Some(begun) = device.begun() {
            let joined = begun.saturating_duration_since(run.begun).as_secs_f64();
            if opening > 0.0 {
                let waited = (joined - opening - prepared - allocated).max(0.0);
                rates.learn(&name_with(workload, *workers, WAITING), waited);
            }
            let wall = run.wall.as_secs_f64();
            let together = wall - joined;
            let bytes = (device.done.bytes + run.statistics.cpu().bytes) - device.bytes_before;
            // A run that ended before each thread of the device had a second batch says nothing about other runs: the
            // first ones take longer.
            let is_long = together >= MIN_SECONDS && device.batches >= 2 * u64::from(device.slots);
            if is_long && device.done.bytes > 0 {
                let seconds = device.span.as_secs_f64();
                if seconds > 0.0 {
                    rates.learn(&part_of(workload, BESIDE), device.done.bytes as f64 / seconds);
                }
                workload.set_stage_rates(&mut rates, device);
                let name = name_with(workload, *workers, TOGETHER);
                rates.learn(&name, bytes as f64 / together);
            }
        }
        self.keep(&subject, rates);
    }

    fn rates(&self, subject: &str) -> Rates {
        let read =
            self.read.lock().iter().find(|(s, _)| s == subject).map(|(_, rates)| rates.clone());
        read.unwrap_or_else(|| {
            let rates = self.store.load(subject);
            self.read.lock().push((subject.into(), rates.clone()));
            rates
        })
    }

    fn keep(&self, subject: &str, rates: Rates) {
        let mut read = self.read.lock();
        if read.iter().any(|(other, known)| other == subject && *known == rates) {
            return;
        }
        read.retain(|(other, _)| other != subject);
        read.push((subject.into(), rates.clone()));
        drop(read);
        self.store.save(subject, &rates);
    }

    #[cfg(test)]
    pub(super) fn get(&self, subject: &str, name: &str) -> Option<f64> {
        self.rates(subject).get(name)
    }

    #[cfg(test)]
    pub(super) fn forget(&self, subject: &str) {
        self.keep(subject, Rates::default());
    }

    #[cfg(test)]
    pub(super) fn set(&self, subject: &str, name: String, rate: f64) {
        let mut rates = self.rates(subject);
        rates.set(name, rate);
        self.keep(subject, rates);
    }
}

/// Seconds to prepare a device whose kernels are in the cache, at most.
const PREPARED_FROM_CACHE: f64 = 0.1;

/// Learns how long it takes to prepare a device. The first run compiles the kernels and leaves them in the cache, so
/// its time says nothing about later runs. If the driver keeps nothing, later runs take as long again, and they teach
/// it.
fn learn_preparing(rates: &mut Rates, workload: &Workload, seconds: f64) {
    let name = part_of(workload, PREPARING);
    match rates.get(&name) {
        None => rates.set(name, seconds.min(PREPARED_FROM_CACHE)),
        Some(_) => rates.learn_falling(&name, seconds),
    }
}

/// Each time a device stays closed for being slow, its rate is raised by this factor.
const FADE_FACTOR: f64 = 1.03;

/// Seconds for each byte if no overhead shows. Not 0, because rates must be positive.
const MIN_OVERHEAD: f64 = 1e-14;

/// Seconds of overhead for each byte.
const OVERHEAD: &str = "overhead";

/// Bytes a second of the device in whole runs, beside any number of workers.
const BESIDE: &str = "beside workers";

/// Bytes a second of device and workers together.
const TOGETHER: &str = "together";

/// Seconds until a device's first batch, besides opening and preparing it.
const WAITING: &str = "waiting";

/// Seconds to compile a device's kernels, or to fetch them from the cache.
const PREPARING: &str = "preparing";

/// Seconds to allocate the memory for a device's batches.
const ALLOCATING: &str = "allocating";

/// The name of what whole runs on `workers` workers show: [`OVERHEAD`], [`TOGETHER`] or [`WAITING`].
fn name_with(workload: &Workload, workers: usize, what: &str) -> String {
    format!("{} -T{workers} {what}", workload.name())
}

/// The overhead of runs on `workers` workers, or on the nearest known number of them.
fn overhead(rates: &Rates, workload: &Workload, workers: usize) -> Option<f64> {
    let prefix = format!("{} -T", workload.name());
    let of = |(name, rate): (&str, f64)| {
        let (number, what) = name.strip_prefix(&prefix)?.split_once(' ')?;
        let number: usize = number.parse().ok().filter(|_| what == OVERHEAD)?;
        Some((number.abs_diff(workers), rate))
    };
    rates.iter().filter_map(of).min_by_key(|(distance, _)| *distance).map(|(_, rate)| rate)
}

/// What `workers` workers deliver if each does `worker` bytes a second, with the overhead in `rates`.
fn throughput(rates: &Rates, workload: &Workload, workers: usize, worker: f64) -> Throughput {
    let overhead = overhead(rates, workload, workers).unwrap_or(0.0);
    Throughput { workers, worker, overhead, block: workload.block_size() as f64 }
}

/// The name of what whole runs show of a device, whatever the number of workers: [`PREPARING`], [`ALLOCATING`] or
/// [`BESIDE`].
fn part_of(workload: &Workload, what: &str) -> String {
    format!("{} {what}", workload.name())
}

/// The subject under which a device's rates are kept.
pub(super) fn subject(limits: &Limits) -> String {
    subject_of(limits.api, &limits.name, &limits.driver)
}

fn subject_of(api: Api, name: &str, driver: &str) -> String {
    format!("{api} {name} {driver}")
}

/// The interface to the device with that subject.
fn api_of(subject: &str) -> Option<Api> {
    Api::ALL.into_iter().find(|api| subject.starts_with(&format!("{api} ")))
}

/// The subject under which the CPU's rates are kept.
pub(super) fn cpu() -> String {
    format!("CPU {} {}", crate::codec::vector_instructions(), cores())
}

#[cfg(test)]
mod tests;
