//! Chooses between the CPU alone and a GPU beside it.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Gpu;
use super::knowledge::{Knowledge, Run, subject};
use super::rate_cache::Store;
use super::registry::{Candidate, Machine, Registry, is_eligible};
use super::throughput::{Throughput, WithDevice};
use super::workload::Workload;
use crate::clock::Instant;
use crate::sync::Lock;

/// Chooses for each job whether to use a GPU beside the CPU's threads. It takes the GPU with the shortest predicted
/// time, if that is clearly shorter than the CPU's alone. The output is the same either way.
///
/// Finding and opening a GPU takes longer than most files do, so `Auto` decides mostly from what it already knows:
///
/// 1. An input with no more blocks than there are threads stays on the CPU: every block has a core at once.
/// 2. Earlier runs, or a sample of 256 KiB, tell how long the CPU takes.
/// 3. If no device could open in that time and still save some of it, the input stays on the CPU.
/// 4. If every device that the last search found is known to be too slow, it also stays there.
/// 5. Only then does `Auto` ask the drivers for devices. It measures a new device if the job takes long enough for that
///    to pay. It never chooses software devices.
///
/// `Auto` learns from every run, with a device or without. It keeps what it learns in the user's cache folder
/// (`$XDG_CACHE_HOME/pz`, or the system's equivalent), by device, driver and version of pz. A cache that is damaged or
/// cannot be written is no error.
///
/// A stream of unknown length begins on the CPU. It stays there until it is so long that as much again would finish
/// sooner with a device.
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
    /// Whether to choose devices; otherwise runs only teach.
    chooses: bool,
    /// Whether the caller reports how long each run took.
    is_timed_by_caller: bool,
}

struct Shared {
    registry: Box<dyn Registry>,
    knowledge: Knowledge,
    /// Opened devices, by subject.
    opened: Lock<Vec<(String, Gpu)>>,
    /// The last run, until its caller reports how long it took.
    last: Lock<Option<Run>>,
}

/// The best device so far.
struct Best {
    seconds: f64,
    name: String,
    device: Chosen,
}

enum Chosen {
    Open(Gpu),
    /// The subject of a device that opens while the work begins.
    Closed(String, Box<dyn Candidate>),
}

/// The chosen device, if any, and the reason.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Choice {
    pub(crate) gpu: Option<Gpu>,
    pub(crate) why: String,
}

/// Measure a device only for jobs that take the CPU at least this many seconds: opening, compiling and running take one
/// or two.
const MIN_SECONDS_TO_MEASURE: f64 = 10.0;

impl Auto {
    /// Chooses among the devices of this machine.
    pub fn new() -> Self {
        Self::with(Box::new(Machine), Store::of_user(), None)
    }

    /// Sets the most bytes of device memory to take.
    pub fn memory(self, bytes: u64) -> Self {
        Self { memory: Some(bytes), ..self }
    }

    /// Keeps rates in `folder` instead of the user's cache folder; `None` keeps them nowhere.
    pub fn cache(self, folder: Option<PathBuf>) -> Self {
        Self {
            shared: Self::with(Box::new(Machine), Store::in_folder(folder), None).shared,
            ..self
        }
    }

    /// Chooses no device, and only learns how long runs on the CPU take.
    pub fn only_learning(self) -> Self {
        Self { chooses: false, ..self }
    }

    /// Learns from a run only when the caller reports its time with [`Self::run_took`]. That time includes what the
    /// caller does before and after, such as opening and renaming files.
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

    /// Chooses for a job of `bytes` bytes of contents.
    pub(crate) fn choose(&self, workload: &Workload, bytes: u64, workers: usize) -> Choice {
        let on_cpu = |why: String| Choice { gpu: None, why };
        if bytes.div_ceil(workload.block_size()) <= workers as u64 {
            return on_cpu("the CPU: there is a thread for each block".into());
        }
        let cpu = self.knowledge().cpu(workload, workers);
        let alone = cpu.alone(bytes as f64);
        let opening = self.min_opening();
        if alone < opening {
            return on_cpu(format!(
                "the CPU: {alone:.2} s predicted, less than it takes to open a device"
            ));
        }
        let could_pay = cpu.pays(bytes as f64, &WithDevice::known(None, opening, None));
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

    /// The fewest seconds that opening any device is expected to take.
    fn min_opening(&self) -> f64 {
        let known = self.knowledge().devices().unwrap_or_default();
        let least = known.iter().map(|(_, seconds)| *seconds).reduce(f64::min);
        least.unwrap_or(WithDevice::unknown(None).opening)
    }

    /// The device with the shortest predicted time, if using it pays.
    fn best(&self, workload: &Workload, bytes: f64, cpu: &Throughput) -> Option<Best> {
        let is_worth_measuring = cpu.alone(bytes) >= MIN_SECONDS_TO_MEASURE;
        // Ask the drivers only if a device that the last search found might pay. If it found none, ask only if the job
        // is long enough to measure a new device.
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
        let mut seen = Vec::new();
        for candidate in candidates.into_iter().filter(|found| is_eligible(found.limits())) {
            let (subject, name) = (subject(candidate.limits()), candidate.limits().name.clone());
            seen.push((subject.clone(), self.knowledge().opening(&subject)));
            if self.is_broken(&subject) {
                continue;
            }
            let (device, chosen) = match self.knowledge().device_of(workload, &subject, cpu) {
                Some(device) => (device, Chosen::Closed(subject, candidate)),
                None if is_worth_measuring => {
                    let begun = Instant::now();
                    let gpu = self.open(&subject, candidate);
                    let Ok(rate) = self.knowledge().measure(workload, &gpu, None) else { continue };
                    if let Some(last) = seen.last_mut() {
                        last.1 = (finding + begun.elapsed()).as_secs_f64();
                    }
                    // The device is open now.
                    let rate = Some(cpu.expected_with(rate));
                    (WithDevice::known(None, 0.0, rate), Chosen::Open(gpu))
                }
                None => continue,
            };
            let seconds = cpu.with_device(bytes, &device);
            if cpu.pays(bytes, &device) && best.as_ref().is_none_or(|best| seconds < best.seconds) {
                best = Some(Best { seconds, name, device: chosen });
            }
        }
        self.knowledge().set_devices(&seen, finding);
        best
    }

    /// Learns from a run, or keeps it until the caller reports how long it took.
    pub(crate) fn learn(&self, run: Run) {
        if self.is_timed_by_caller {
            *self.shared.last.lock() = Some(run);
        } else {
            self.knowledge().learn(&run);
        }
    }

    /// Reports how long the last run took. See [`Self::timed_by_caller`].
    pub fn run_took(&self, wall: Duration) {
        if let Some(run) = self.shared.last.lock().take() {
            self.knowledge().learn(&Run { wall, ..run });
        }
    }

    /// Records how long it took to find and open a device.
    pub fn opened(&self, gpu: &Gpu, time: Duration) {
        if let Some(limits) = gpu.limits() {
            self.knowledge().opened(limits, time, is_eligible(limits));
        }
    }

    /// Whether opening the device has failed.
    fn is_broken(&self, subject: &str) -> bool {
        let opened = self.shared.opened.lock();
        let found = opened.iter().find(|(other, _)| other == subject);
        found.is_some_and(|(_, gpu)| gpu.limits().is_none())
    }

    /// The device of `candidate`. Opens it in the background, unless that has begun.
    fn open(&self, subject: &str, candidate: Box<dyn Candidate>) -> Gpu {
        let mut opened = self.shared.opened.lock();
        if let Some((_, gpu)) = opened.iter().find(|(other, _)| other == subject) {
            return gpu.clone();
        }
        let gpu = Gpu::opening(candidate.limits().clone(), move || candidate.open());
        let gpu = self.memory.map_or(gpu.clone(), |bytes| gpu.memory(bytes));
        opened.push((subject.into(), gpu.clone()));
        gpu
    }
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
    /// Whether both are clones of the same `Auto`.
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl Eq for Auto {}

#[cfg(test)]
mod tests;
