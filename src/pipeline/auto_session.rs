//! One job of [`Auto`]: which device it is given, and what is learned from it.

use std::time::Instant;

use super::Gpu;
use super::auto::{Auto, Choice};
use super::gpu::LEAST_MEMORY;
use super::knowledge::Run;
use super::statistics::Statistics;
use super::workload::Workload;

/// A job that may be given a device, and that teaches how long such jobs take.
#[derive(Debug)]
pub(crate) struct AutoSession {
    auto: Auto,
    workload: Workload,
    statistics: Statistics,
    workers: usize,
    /// Host memory that the job may take.
    memory: u64,
    begun: Instant,
    /// At how many bytes to choose again; `None` if the choice is made.
    next_look: Option<u64>,
}

impl AutoSession {
    /// A job in `memory` bytes of host memory, counted in `statistics` if there are any.
    pub(crate) fn new(
        auto: &Auto,
        workload: Workload,
        memory: u64,
        statistics: Option<&Statistics>,
    ) -> Self {
        let statistics = statistics.cloned().unwrap_or_else(Statistics::without_stages);
        let (auto, begun) = (auto.clone(), Instant::now());
        Self { auto, workload, statistics, workers: 1, memory, begun, next_look: None }
    }

    /// What is counted.
    pub(crate) fn statistics(&self) -> &Statistics {
        &self.statistics
    }

    /// The device for a job of `bytes` bytes on `workers` workers: the one that the user named, or one that is chosen. Nothing is chosen
    /// yet if the length is not known.
    pub(crate) fn choose(
        &mut self,
        named: Option<&Gpu>,
        bytes: Option<u64>,
        workers: usize,
    ) -> Option<Gpu> {
        self.workers = workers;
        match bytes {
            _ if named.is_some() || !self.auto.chooses() => named.cloned(),
            Some(bytes) => self.take(bytes),
            None => {
                self.statistics.chose("the CPU, as the length is not known");
                self.next_look = Some(FIRST_LOOK);
                None
            }
        }
    }

    /// Chooses again for a stream that has come so far: as much again is expected.
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
        let Choice { gpu, why } = self.auto.choose(&self.workload, bytes, self.workers);
        self.statistics.chose(&why);
        gpu
    }

    /// Learns from the job, which is done.
    pub(crate) fn learn(&self) {
        self.auto.learn(Run {
            workload: self.workload.clone(),
            statistics: self.statistics.clone(),
            workers: self.workers,
            begun: self.begun,
            wall: self.begun.elapsed(),
        });
    }
}

/// Bytes of a stream of unknown length after which a device is first considered.
pub(super) const FIRST_LOOK: u64 = 1 << 24;
