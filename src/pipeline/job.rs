//! One job: what is chosen for it, and learned from it.

use std::time::Instant;

use super::Gpu;
use super::auto::{Auto, Choice};
use super::gpu::LEAST_MEMORY;
use super::load::Load;
use super::statistics::Statistics;

/// A job for which a GPU may be chosen, and from which is learned.
#[derive(Debug)]
pub(crate) struct Job {
    auto: Auto,
    load: Load,
    statistics: Statistics,
    workers: usize,
    /// Host memory that the job may take.
    memory: u64,
    begun: Instant,
    /// At how many bytes to choose again; `None` if the choice is made.
    next_look: Option<u64>,
}

impl Job {
    /// A job in `memory` bytes of host memory that `auto` chooses for, counted in `statistics` if there are any.
    pub(crate) fn new(
        auto: &Auto,
        load: Load,
        memory: u64,
        statistics: Option<&Statistics>,
    ) -> Self {
        let statistics = statistics.cloned().unwrap_or_else(Statistics::without_stages);
        let (auto, begun) = (auto.clone(), Instant::now());
        Self { auto, load, statistics, workers: 1, memory, begun, next_look: None }
    }

    /// What is counted.
    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The GPU for a job of `bytes` bytes on `workers` threads, if there is to be one. Nothing is chosen yet if the length is
    /// not known.
    pub(crate) fn choose(&mut self, bytes: Option<u64>, workers: usize) -> Option<Gpu> {
        self.workers = workers;
        match bytes {
            Some(bytes) => self.take(bytes),
            None => {
                self.statistics.chose("the CPU, as the length is not known");
                self.next_look = Some(FIRST_LOOK);
                None
            }
        }
    }

    /// The same for a stream that has come so far: as much again is expected.
    pub(crate) fn look(&mut self, bytes: u64) -> Option<Gpu> {
        if self.next_look.is_none_or(|look| bytes < look) {
            return None;
        }
        self.next_look = Some(bytes.saturating_mul(2));
        let gpu = self.take(bytes)?;
        self.next_look = None;
        Some(gpu)
    }

    fn take(&self, bytes: u64) -> Option<Gpu> {
        if self.memory < LEAST_MEMORY {
            // Nothing is measured either: that would take memory, too.
            self.statistics.chose("the CPU: the memory limit leaves no room for a device's driver");
            return None;
        }
        let Choice { gpu, why } = self.auto.choose(&self.load, bytes, self.workers);
        self.statistics.chose(&why);
        gpu
    }

    /// Learns from the job, which is done.
    pub(crate) fn learn(&self) {
        self.auto.learn(&self.load, &self.statistics, self.workers, self.begun.elapsed());
    }
}

/// At how many bytes it is first thought about a stream whose length is not known.
pub(super) const FIRST_LOOK: u64 = 1 << 24;
