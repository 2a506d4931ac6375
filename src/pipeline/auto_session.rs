//! One job of [`Auto`]: chooses its device and learns from it.

use super::Gpu;
use super::auto::{Auto, Choice};
use super::gpu::MIN_HOST_MEMORY;
use super::knowledge::Run;
use super::options::Resources;
use super::statistics::Statistics;
use super::workload::Workload;
use crate::clock::Instant;

/// A job for which [`Auto`] may choose a device, and from which it learns.
#[derive(Debug)]
pub(crate) struct AutoSession {
    auto: Auto,
    workload: Workload,
    statistics: Statistics,
    workers: usize,
    /// Bytes of host memory that the job may take.
    memory: u64,
    begun: Instant,
    /// The device that the user named or that [`Auto`] chose.
    gpu: Option<Gpu>,
    /// The length at which to choose again; `None` if the choice is final.
    next_look: Option<u64>,
}

impl AutoSession {
    /// A job with these resources; `None` if they have no [`Auto`].
    pub(crate) fn new(resources: &Resources, workload: Workload) -> Option<Self> {
        let Resources { memory, auto, statistics, .. } = resources.clone();
        let statistics = statistics.unwrap_or_else(Statistics::without_stages);
        let (auto, begun, gpu, next_look) = (auto?, Instant::now(), None, None);
        Some(Self { auto, workload, statistics, workers: 1, memory, begun, gpu, next_look })
    }

    /// The counts of this job.
    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The device for a job of `bytes` bytes on `workers` workers: the one that the user named, or else the choice of
    /// [`Auto`]. For a job of unknown length, [`Self::look`] chooses later.
    pub(crate) fn choose(
        &mut self,
        named: Option<&Gpu>,
        bytes: Option<u64>,
        workers: usize,
    ) -> Option<Gpu> {
        self.workers = workers;
        self.gpu = match bytes {
            _ if named.is_some() || !self.auto.chooses() => named.cloned(),
            Some(bytes) => self.take(bytes),
            None => {
                self.statistics.chose("the CPU, as the length is not known");
                self.next_look = Some(FIRST_LOOK);
                None
            }
        };
        self.gpu.clone()
    }

    /// Chooses again for a stream that is now `bytes` bytes long, expecting as much again.
    pub(crate) fn look(&mut self, bytes: u64) -> Option<Gpu> {
        if self.next_look.is_none_or(|look| bytes < look) {
            return None;
        }
        self.next_look = Some(bytes.saturating_mul(2));
        self.gpu = Some(self.take(bytes)?);
        self.next_look = None;
        self.gpu.clone()
    }

    fn take(&self, bytes: u64) -> Option<Gpu> {
        if self.memory < MIN_HOST_MEMORY {
            // Measuring a device would take that memory too.
            self.statistics.chose("the CPU: the memory limit leaves no room for a device's driver");
            return None;
        }
        let Choice { gpu, why } = self.auto.choose(&self.workload, bytes, self.workers);
        self.statistics.chose(&why);
        gpu
    }

    /// Learns from the finished job.
    pub(crate) fn learn(&self) {
        self.auto.learn(Run {
            workload: self.workload.clone(),
            statistics: self.statistics.clone(),
            workers: self.workers,
            begun: self.begun,
            opened_device: self.gpu.as_ref().is_some_and(|gpu| !gpu.is_closed()),
            wall: self.begun.elapsed(),
        });
    }
}

/// Length of a stream of unknown length at which a device is first considered.
pub(super) const FIRST_LOOK: u64 = 1 << 24;
