//! What earlier runs have shown of the CPU and of devices.
//!
//! Every run teaches it, whatever it ran on: a run on the CPU alone shows a worker's rate and the overhead of whole runs, a run with a
//! device how long that took to join, and what device and workers delivered together from then on.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Gpu;
use super::memory::cores;
use super::rate_cache::{Rates, Store};
use super::sample::Sample;
use super::statistics::{DeviceStatistics, Statistics};
use super::throughput::{Throughput, WithDevice};
use super::workload::Workload;
use crate::gpu::device::{Api, Limits};

/// The rates of earlier runs.
pub(super) struct Knowledge {
    store: Store,
    /// What has been read of it, by subject.
    read: Mutex<Vec<(String, Rates)>>,
}

/// A run that is over.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) workload: Workload,
    pub(crate) statistics: Statistics,
    /// The CPU's workers, if there is no device.
    pub(crate) workers: usize,
    pub(crate) begun: Instant,
    /// How long it took.
    pub(crate) wall: Duration,
}

/// The name of the devices that were there the last time, each with the seconds that it took to open.
const DEVICES: &str = "devices";

/// What is kept there if there was no device, with the seconds that it took to see that.
const NONE: &str = "none";

/// Seconds to find and open a device.
const TO_OPEN: &str = "seconds to open";

/// Seconds of work that can be learned from: less says more of the clock and of starting threads.
const MIN_SECONDS: f64 = 0.05;

impl Knowledge {
    pub(super) fn new(store: Store) -> Self {
        Self { store, read: Mutex::default() }
    }

    /// What `workers` workers of this machine deliver, as far as it is known; measured on something made up otherwise.
    pub(super) fn cpu(&self, workload: &Workload, workers: usize) -> Throughput {
        let mut rates = self.rates(&cpu());
        let worker = rates.get(&workload.name()).unwrap_or_else(|| {
            let measured = workload.measure_cpu(None, 1);
            rates.set(workload.name(), measured);
            self.keep(&cpu(), rates.clone());
            measured.max(1.0)
        });
        let overhead = overhead(&rates, workload, workers).unwrap_or(0.0);
        Throughput { workers, worker, overhead, block: workload.block_size() as f64 }
    }

    /// The same for the file from which `sample` was taken.
    pub(super) fn cpu_with(
        &self,
        workload: &Workload,
        workers: usize,
        sample: &Sample,
    ) -> Throughput {
        let worker = workload.measure_cpu(Some(sample), workers).max(1.0);
        let overhead = overhead(&self.rates(&cpu()), workload, workers).unwrap_or(0.0);
        Throughput { workers, worker, overhead, block: workload.block_size() as f64 }
    }

    /// What a device adds to `cpu`; `None` if it has never done such work.
    pub(super) fn device(
        &self,
        workload: &Workload,
        limits: &Limits,
        cpu: &Throughput,
    ) -> Option<WithDevice> {
        self.device_of(workload, &subject(limits), cpu)
    }

    /// The same of a device of that name.
    pub(super) fn device_of(
        &self,
        workload: &Workload,
        subject: &str,
        cpu: &Throughput,
    ) -> Option<WithDevice> {
        let rates = self.rates(subject);
        let whole = rates.get(&workload.name_with(cpu.workers));
        let measured = || Some(cpu.expected_with(rates.get(&workload.name())?));
        let rate = whole.or_else(measured)?;
        let opening = self.opening(subject)
            + rates.get(&preparing(workload)).unwrap_or(0.0)
            + rates.get(&waiting(workload, cpu.workers)).unwrap_or(0.0);
        Some(WithDevice { opening, rate: Some(rate) })
    }

    /// Seconds to find and open a device.
    pub(super) fn opening(&self, subject: &str) -> f64 {
        let known = self.rates(subject).get(TO_OPEN);
        known
            .or_else(|| self.rates(DEVICES).get(subject))
            .unwrap_or(WithDevice::unknown(None).opening)
    }

    /// A device stays closed because of what is known of it. That fades, so that one bad run does not keep it closed for ever.
    pub(super) fn fade(&self, workload: &Workload, limits: &Limits, workers: usize) {
        let mut rates = self.rates(&subject(limits));
        let name = workload.name_with(workers);
        if let Some(rate) = rates.get(&name) {
            rates.set(name, rate * FADING);
            self.keep(&subject(limits), rates);
        }
    }

    /// What is known of a device, by name.
    pub(super) fn of_device(&self, limits: &Limits) -> Rates {
        self.rates(&subject(limits))
    }

    /// Bytes a second of a device alone; measured if they are not known, or if there is a sample to measure them with.
    ///
    /// # Errors
    /// Why it does not do this work.
    pub(super) fn measure(
        &self,
        workload: &Workload,
        gpu: &Gpu,
        sample: Option<&Sample>,
    ) -> Result<f64, String> {
        let pool = gpu.pool().map_err(ToString::to_string)?;
        let limits = crate::gpu::device::Device::limits(&**pool);
        let mut rates = self.rates(&subject(limits));
        if let (Some(rate), None) = (rates.get(&workload.name()), sample) {
            return Ok(rate);
        }
        let measured = workload.measure_device(gpu, sample)?;
        workload.set_device_rates(&mut rates, Some(limits), &measured.found, false);
        // In the cache there may be kernels by now that had to be compiled before.
        rates.learn_least(&preparing(workload), measured.preparing.as_secs_f64());
        self.keep(&subject(limits), rates.clone());
        rates.get(&workload.name()).ok_or_else(|| "it took no time to measure".into())
    }

    /// The devices that were there the last time; `None` if nobody has looked.
    pub(super) fn devices(&self) -> Option<Vec<(String, f64)>> {
        let rates = self.rates(DEVICES);
        let devices = rates.iter().filter(|(name, _)| *name != NONE);
        (!rates.is_empty()).then(|| devices.map(|(name, time)| (name.into(), time)).collect())
    }

    /// Takes note of the devices that are there, each with the seconds that it takes to open, and of how long it took to see that.
    pub(super) fn set_devices(&self, devices: &[(String, f64)], finding: Duration) {
        let mut rates = Rates::default();
        for (name, seconds) in devices {
            rates.set(&**name, *seconds);
        }
        if devices.is_empty() {
            rates.set(NONE, finding.as_secs_f64());
        }
        self.keep(DEVICES, rates);
    }

    /// Takes note of how long it took to find and open a device with nothing else to do. Runs, which have more to do, know better.
    pub(super) fn opened(&self, limits: &Limits, time: Duration, is_eligible: bool) {
        let subject = subject(limits);
        let mut rates = self.rates(&subject);
        if rates.get(TO_OPEN).is_none() {
            rates.set(TO_OPEN, time.as_secs_f64());
            self.keep(&subject, rates);
        }
        let mut known = self.rates(DEVICES);
        if is_eligible && known.get(&subject).is_none() {
            known.set(subject, time.as_secs_f64());
            self.keep(DEVICES, known);
        }
    }

    /// Learns from a run.
    pub(super) fn learn(&self, run: &Run) {
        if run.wall.as_secs_f64() < MIN_SECONDS {
            return;
        }
        match run.statistics.device() {
            Some(device) => self.learn_device(run, &device),
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
        let name = overhead_name(workload, *workers);
        // Until then the rate is that of something made up.
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
        let [opening, prepared] = [device.opening, device.preparing].map(|time| time.as_secs_f64());
        if opening > 0.0 {
            rates.learn(TO_OPEN, opening);
            let mut known = self.rates(DEVICES);
            if known.get(&subject).is_some() {
                known.learn(&subject, opening + prepared);
                self.keep(DEVICES, known);
            }
        }
        rates.learn_least(&preparing(workload), prepared);
        if let Some(begun) = device.begun() {
            let joined = begun.saturating_duration_since(run.begun).as_secs_f64();
            if opening > 0.0 {
                rates.learn(&waiting(workload, *workers), (joined - opening - prepared).max(0.0));
            }
            let together = run.wall.as_secs_f64() - joined;
            let bytes = (device.done.bytes + run.statistics.cpu().bytes) - device.before;
            // The end of a run in which the device had hardly begun says nothing of others.
            if together >= MIN_SECONDS && device.done.bytes > 0 {
                workload.set_device_rates(&mut rates, None, device, true);
                rates.learn(&workload.name_with(*workers), bytes as f64 / together);
            }
        }
        self.keep(&subject, rates);
    }

    fn rates(&self, subject: &str) -> Rates {
        let read = self.lock().iter().find(|(s, _)| s == subject).map(|(_, rates)| rates.clone());
        read.unwrap_or_else(|| {
            let rates = self.store.load(subject);
            self.lock().push((subject.into(), rates.clone()));
            rates
        })
    }

    fn keep(&self, subject: &str, rates: Rates) {
        let mut read = self.lock();
        if read.iter().any(|(other, known)| other == subject && *known == rates) {
            return;
        }
        read.retain(|(other, _)| other != subject);
        read.push((subject.into(), rates.clone()));
        drop(read);
        self.store.save(subject, &rates);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, Rates)>> {
        self.read.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn get(&self, subject: &str, name: &str) -> Option<f64> {
        self.rates(subject).get(name)
    }

    #[cfg(test)]
    pub(super) fn set(&self, subject: &str, name: String, rate: f64) {
        let mut rates = self.rates(subject);
        rates.set(name, rate);
        self.keep(subject, rates);
    }
}

/// What a device was too slow for, it is expected to do so much faster the next time.
const FADING: f64 = 1.03;

/// Seconds for each byte where no overhead shows. It is not 0 so that it can be kept.
const MIN_OVERHEAD: f64 = 1e-14;

fn overhead_name(workload: &Workload, workers: usize) -> String {
    format!("{} overhead", workload.name_with(workers))
}

/// The overhead of runs on so many workers, or on the number of them that comes closest.
fn overhead(rates: &Rates, workload: &Workload, workers: usize) -> Option<f64> {
    let prefix = format!("{} -T", workload.name());
    let of = |(name, rate): (&str, f64)| {
        let number = name.strip_prefix(&prefix)?.strip_suffix(" overhead")?;
        Some((number.parse::<usize>().ok()?.abs_diff(workers), rate))
    };
    rates.iter().filter_map(of).min_by_key(|(distance, _)| *distance).map(|(_, rate)| rate)
}

/// The name of the seconds in which a device's kernels are compiled, or fetched from the cache.
fn preparing(workload: &Workload) -> String {
    format!("{} preparing", workload.name())
}

/// The name of the seconds that pass until a device's first batch, besides opening and preparing.
fn waiting(workload: &Workload, workers: usize) -> String {
    format!("{} waiting", workload.name_with(workers))
}

/// The name under which a device's rates are kept.
pub(super) fn subject(limits: &Limits) -> String {
    subject_of(limits.api, &limits.name, &limits.driver)
}

fn subject_of(api: Api, name: &str, driver: &str) -> String {
    format!("{api} {name} {driver}")
}

/// The same of the CPU.
pub(super) fn cpu() -> String {
    format!("CPU {} {}", crate::codec::vector_instructions(), cores())
}
