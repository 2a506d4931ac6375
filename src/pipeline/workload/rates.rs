//! The rates of devices on a workload, kept from run to run.

use super::Workload;
use crate::gpu::device::Limits;
use crate::gpu::model::predict::{Figures, pair};
use crate::pipeline::rate_cache::Rates;
use crate::pipeline::statistics::DeviceStatistics;

/// How many bytes of contents a device processes per second, not counting copies.
#[derive(Debug, Clone, Copy, PartialEq)]
#[non_exhaustive]
pub struct ComputeRate {
    /// Bytes a second.
    pub rate: f64,
    /// Whether this work was measured on the device; otherwise the rate is predicted from its kernels' costs.
    pub is_measured: bool,
}

/// Names of the two figures of a device: work items a second, and bytes of buffers a second.
const THREADS: &str = "work items";
const BYTES: &str = "bytes of buffers";

impl Workload {
    /// Bytes of contents a second that the device computes, without copies. Uses the measured times of the stages or
    /// else, less exactly, the two figures of the device and the kernels' costs.
    pub(crate) fn compute_rate(&self, limits: &Limits, rates: &Rates) -> Option<ComputeRate> {
        let prefix = format!("{}: ", self.name());
        let stages = rates.iter().filter(|(name, _)| name.starts_with(&prefix));
        let measured: f64 = stages.map(|(_, rate)| 1.0 / rate).sum();
        if measured > 0.0 {
            return Some(ComputeRate { rate: 1.0 / measured, is_measured: true });
        }
        let inverse = |rate: Option<f64>| rate.map_or(0.0, |rate| 1.0 / rate);
        let (thread, byte) = (inverse(rates.get(THREADS)), inverse(rates.get(BYTES)));
        let figures = Figures { thread, byte };
        let seconds: f64 = self.stages(limits).iter().map(|work| figures.seconds(work)).sum();
        (seconds > 0.0)
            .then(|| ComputeRate { rate: self.block_size as f64 / seconds, is_measured: false })
    }

    /// Sets in `rates` the rates that a device with these limits showed, from memory to memory, for this work and its
    /// stages.
    pub(crate) fn set_measured_rates(
        &self,
        rates: &mut Rates,
        limits: &Limits,
        found: &DeviceStatistics,
    ) {
        if found.span.is_zero() || found.done.bytes == 0 {
            return;
        }
        rates.set(self.name(), steady_rate(found));
        if rates.get(THREADS).is_none() && rates.get(BYTES).is_none() {
            let measured = pair(&self.stages(limits), found.done.blocks, &found.stages);
            if let Some(figures) = Figures::fit(&measured) {
                rates.set(THREADS, 1.0 / figures.thread);
                rates.set(BYTES, 1.0 / figures.byte);
            }
        }
        self.set_stage_rates(rates, found);
    }

    /// Sets in `rates` how fast each stage of this work ran on a device.
    pub(crate) fn set_stage_rates(&self, rates: &mut Rates, found: &DeviceStatistics) {
        for stage in &found.stages {
            let rate = found.done.bytes as f64 / stage.time.as_secs_f64();
            rates.set(format!("{}: {}", self.name(), stage.stage), rate);
        }
    }
}

/// Bytes a second of a device in a long run, derived from a measurement of a few batches that hardly overlapped. The
/// slowest of copying in, computing and copying out limits the rate, and so does the time of the device's threads.
fn steady_rate(found: &DeviceStatistics) -> f64 {
    let [upload, compute, download, verify] =
        [found.upload, found.compute, found.download, found.verify].map(|time| time.as_secs_f64());
    let alone = (compute + verify).max(upload).max(download);
    let together = (upload + compute + download + verify) / f64::from(found.slots.max(1));
    let seconds = alone.max(together);
    let seconds = if seconds > 0.0 { seconds } else { found.span.as_secs_f64() };
    found.done.bytes as f64 / seconds
}
