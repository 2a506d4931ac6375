//! The choice between the processor alone and a GPU beside it.

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Gpu;
use super::knowledge::{Knowledge, Run, subject};
use super::rate_cache::Store;
use super::registry::{Candidate, Machine, Registry, is_eligible};
use super::throughput::{Throughput, WithDevice};
use super::workload::Workload;

/// Chooses for each job whether a GPU is used beside the processor's threads: the one with which the job will be done
/// soonest, by prediction, if that is clearly sooner than without any. The output is the same either way.
///
/// To look for a GPU and to open it takes longer than most files do, so what decides is known before:
///
/// 1. An input of no more blocks than there are threads stays on the processor: every block has a core at once.
/// 2. How long the processor takes follows from earlier runs, or from a sample of 256 KiB.
/// 3. If no device could be opened in that time and save some of it, the input stays there.
/// 4. If all devices that were there the last time are known to be too slow, it stays there, too.
/// 5. Only then are drivers asked what there is. A device that has never been measured is measured if the job takes so long that it
///    pays. Software devices are never chosen.
///
/// Every run teaches, on whatever it ran. What is learned is kept in the user's cache folder (`$XDG_CACHE_HOME/pz`, or where the
/// system has such things), by device, driver and version of pz. A cache that is damaged or cannot be written is no error.
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
pub struct Auto {
    shared: Arc<Shared>,
    /// The most bytes of device memory to take.
    memory: Option<u64>,
    /// Whether devices are chosen; otherwise runs only teach.
    chooses: bool,
    /// Whether the caller says how long a run took.
    is_timed_by_caller: bool,
}

struct Shared {
    registry: Box<dyn Registry>,
    knowledge: Knowledge,
    /// Devices that were opened, by subject.
    opened: Mutex<Vec<(String, Gpu)>>,
    /// The last run, if its caller is still to say how long it took.
    last: Mutex<Option<Run>>,
}

/// The best device so far.
struct Best {
    seconds: f64,
    name: String,
    device: Chosen,
}

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

/// A job must take the CPU so many seconds for a device to be measured first: opening, compiling and running take one or two.
const WORTH_MEASURING: f64 = 10.0;

impl Auto {
    /// A choice among the devices of this machine.
    pub fn new() -> Self {
        Self::with(Box::new(Machine), Store::of_user(), None)
    }

    /// Sets the most bytes of device memory to take.
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Keeps rates in `folder` instead of the user's cache folder; nowhere if that is `None`.
    pub fn cache(self, folder: Option<PathBuf>) -> Self {
        Self {
            shared: Self::with(Box::new(Machine), Store::in_folder(folder), None).shared,
            ..self
        }
    }

    /// Chooses no device: runs on the CPU teach how long it takes.
    pub fn only_learning(self) -> Self {
        Self { chooses: false, ..self }
    }

    /// Learns from a run only when [`Self::run_took`] says how long all of it took, with what the caller does before and after: opening
    /// files, giving them their names.
    pub fn timed_by_caller(self) -> Self {
        Self { is_timed_by_caller: true, ..self }
    }

    pub(crate) fn with(registry: Box<dyn Registry>, store: Store, memory: Option<u64>) -> Self {
        let (opened, last) = Default::default();
        let shared = Shared { registry, knowledge: Knowledge::new(store), opened, last };
        Self { shared: Arc::new(shared), memory, chooses: true, is_timed_by_caller: false }
    }

    pub(crate) fn chooses(&self) -> bool {
        self.chooses
    }

    pub(super) fn knowledge(&self) -> &Knowledge {
        &self.shared.knowledge
    }

    /// Decides on a job of `bytes` bytes of contents.
    pub(crate) fn choose(&self, workload: &Workload, bytes: u64, workers: usize) -> Choice {
        let on_cpu = |why: String| Choice { gpu: None, why };
        if bytes.div_ceil(workload.block_size()) <= workers as u64 {
            return on_cpu("the CPU: there is a thread for each block".into());
        }
        let cpu = self.knowledge().cpu(workload, workers);
        let alone = cpu.alone(bytes as f64);
        let opening = self.least_opening();
        if alone < opening {
            return on_cpu(format!(
                "the CPU: {alone:.2} s predicted, less than it takes to open a device"
            ));
        }
        let could_pay = cpu.pays(bytes as f64, &WithDevice { opening, rate: None });
        let best = if could_pay { self.best(workload, bytes as f64, &cpu) } else { None };
        let Some(Best { seconds, name, device }) = best else {
            return on_cpu(format!(
                "the CPU: {alone:.2} s predicted, and not clearly less with a device"
            ));
        };
        let gpu = match device {
            Chosen::Open(gpu) => gpu,
            Chosen::Closed(subject, candidate) => self.open(&subject, candidate),
        };
        let why = format!("{name}: {seconds:.2} s predicted, {alone:.2} s without it");
        Choice { why, gpu: Some(gpu) }
    }

    /// The least seconds in which a device can be expected to be open.
    fn least_opening(&self) -> f64 {
        let known = self.knowledge().devices().unwrap_or_default();
        let least = known.iter().map(|(_, seconds)| *seconds).reduce(f64::min);
        least.unwrap_or(WithDevice::unknown(None).opening)
    }

    /// The device with which the CPU is done soonest, if it pays.
    fn best(&self, workload: &Workload, bytes: f64, cpu: &Throughput) -> Option<Best> {
        let is_worth_measuring = cpu.alone(bytes) >= WORTH_MEASURING;
        // Drivers are asked only if one of the devices that were there the last time might pay, or if there were others.
        if let Some(known) = self.knowledge().devices() {
            let may_pay = |(subject, _): &(String, f64)| {
                let device = self.knowledge().device_of(workload, subject, cpu);
                device.map_or(is_worth_measuring, |device| cpu.pays(bytes, &device))
            };
            if !(known.iter().any(may_pay) || known.is_empty() && is_worth_measuring) {
                return None;
            }
        }
        let begun = Instant::now();
        let candidates = self.shared.registry.candidates();
        let finding = begun.elapsed();
        let mut best: Option<Best> = None;
        let mut there = Vec::new();
        for candidate in candidates.into_iter().filter(|found| is_eligible(found.limits())) {
            let (subject, name) = (subject(candidate.limits()), candidate.limits().name.clone());
            there.push((subject.clone(), self.knowledge().opening(&subject)));
            if self.is_broken(&subject) {
                continue;
            }
            let (device, chosen) = match self.knowledge().device_of(workload, &subject, cpu) {
                Some(device) => (device, Chosen::Closed(subject, candidate)),
                None if is_worth_measuring => {
                    let begun = Instant::now();
                    let gpu = self.open(&subject, candidate);
                    let Ok(rate) = self.knowledge().measure(workload, &gpu, None) else { continue };
                    if let Some(last) = there.last_mut() {
                        last.1 = (finding + begun.elapsed()).as_secs_f64();
                    }
                    // It is open now.
                    let rate = Some(cpu.expected_with(rate));
                    (WithDevice { opening: 0.0, rate }, Chosen::Open(gpu))
                }
                None => continue,
            };
            let seconds = cpu.with_device(bytes, &device);
            if cpu.pays(bytes, &device) && best.as_ref().is_none_or(|best| seconds < best.seconds) {
                best = Some(Best { seconds, name, device: chosen });
            }
        }
        self.knowledge().set_devices(&there, finding);
        best
    }

    /// Learns from a run, or keeps it until its caller says how long it took.
    pub(crate) fn learn(&self, run: Run) {
        if self.is_timed_by_caller {
            *lock(&self.shared.last) = Some(run);
        } else {
            self.knowledge().learn(&run);
        }
    }

    /// Says how long the last run took, if that is left to the caller ([`Self::timed_by_caller`]).
    pub fn run_took(&self, wall: Duration) {
        if let Some(run) = lock(&self.shared.last).take() {
            self.knowledge().learn(&Run { wall, ..run });
        }
    }

    /// Takes note of how long it took to find and open a device.
    pub fn opened(&self, gpu: &Gpu, time: Duration) {
        if let Some(limits) = gpu.limits() {
            self.knowledge().opened(limits, time, is_eligible(limits));
        }
    }

    /// Whether a device could not be opened.
    fn is_broken(&self, subject: &str) -> bool {
        let opened = lock(&self.shared.opened);
        let found = opened.iter().find(|(other, _)| other == subject);
        found.is_some_and(|(_, gpu)| gpu.limits().is_none())
    }

    /// A device, which is opened once, in the background.
    fn open(&self, subject: &str, candidate: Box<dyn Candidate>) -> Gpu {
        let mut opened = lock(&self.shared.opened);
        if let Some((_, gpu)) = opened.iter().find(|(other, _)| other == subject) {
            return gpu.clone();
        }
        let gpu = Gpu::opening(candidate.limits().clone(), move || candidate.open());
        let gpu = self.memory.map_or(gpu.clone(), |bytes| gpu.memory(bytes));
        opened.push((subject.into(), gpu.clone()));
        gpu
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for Auto {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Auto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Auto").field("memory", &self.memory).finish_non_exhaustive()
    }
}

impl PartialEq for Auto {
    /// Whether they are clones of one.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Auto {}

#[cfg(test)]
#[path = "auto_tests.rs"]
mod tests;
