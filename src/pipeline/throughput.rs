//! The model of throughput: the time that work takes on the CPU alone, and with a device beside it.
//!
//! It answers four questions: whether `auto` opens a device, whether a device that the user named is worth opening now,
//! whether a working device is worth the cores it takes, and what `pz cost` predicts.
//!
//! The CPU has a rate for each worker and an overhead: the seconds of a whole run that remain when the workers' own
//! time is taken away. These are reading, writing and waiting, as far as they did not overlap with the work. A device
//! has the time until its first batch, the rate of device and workers together from then on, and the time to close it.
//! Both overlaps are measured in whole runs, never assumed.

use crate::gpu::device::Api;

/// The speed of the CPU's workers. All amounts are bytes of contents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Throughput {
    pub(crate) workers: usize,
    /// Bytes a second of one worker while it codes.
    pub(crate) worker: f64,
    /// Seconds of overhead for each byte.
    pub(crate) overhead: f64,
    /// Bytes of a block. One worker does a whole block.
    pub(crate) block: f64,
}

/// The time at which a device joins the CPU, and the speed of both from then on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WithDevice {
    /// Seconds to find and open it.
    pub(crate) opening: f64,
    /// Seconds from then until its first batch begins.
    pub(crate) starting: f64,
    /// Bytes a second of device and workers together from then on; `None` if unknown.
    pub(crate) rate: Option<f64>,
    /// Seconds to close it.
    pub(crate) closing: f64,
}

/// A device pays only if the job is predicted to take at most this fraction of the CPU's time: predictions are not
/// exact.
const MAX_TIME_RATIO: f64 = 0.9;

/// In whole runs a device delivers about this fraction of its rate from memory to memory: its threads copy and check
/// blocks, too. (0.4 to 0.6 were measured.)
const IN_RUNS: f64 = 0.5;

/// Closing a device takes this fraction of the time to open it: the driver frees everything, mostly when the program
/// ends.
const CLOSING: f64 = 0.4;

/// The same through WebGPU, whose driver opens faster and frees more slowly.
const CLOSING_WEBGPU: f64 = 1.5;

impl WithDevice {
    /// A device without known rates. It is worth trying for work that takes the CPU alone a second; through WebGPU,
    /// which sets up a graphics driver and translates the kernels, a second and a half.
    pub(crate) fn unknown(api: Option<Api>) -> Self {
        let opening = if api == Some(Api::WebGpu) { 0.97 } else { 0.65 };
        Self::known(None, opening, None)
    }

    /// A device that takes `opening` seconds to open, where device and workers together do `rate` bytes a second.
    pub(crate) fn known(api: Option<Api>, opening: f64, rate: Option<f64>) -> Self {
        let factor = if api == Some(Api::WebGpu) { CLOSING_WEBGPU } else { CLOSING };
        let closing = factor * opening;
        Self { opening, starting: 0.0, rate, closing }
    }

    /// Seconds until its first batch begins.
    pub(crate) fn joins_after(&self) -> f64 {
        self.opening + self.starting
    }
}

impl Throughput {
    /// Bytes a second of all workers together.
    pub(crate) fn all_workers(&self) -> f64 {
        self.workers as f64 * self.worker
    }

    /// Seconds that the CPU alone takes.
    pub(crate) fn alone(&self, bytes: f64) -> f64 {
        // The last blocks may leave workers idle.
        let block = self.block.min(bytes).max(1.0);
        let blocks = (bytes / block).ceil();
        let rounds = (blocks / self.workers.max(1) as f64).ceil();
        rounds * block / self.worker + bytes * self.overhead
    }

    /// Seconds with a device beside the CPU. The CPU begins alone, and may have done everything before the device is
    /// open.
    pub(crate) fn with_device(&self, bytes: f64, device: &WithDevice) -> f64 {
        let (alone, joined) = (self.alone(bytes), device.joins_after());
        if alone <= joined {
            return alone;
        }
        let before = bytes * joined / alone;
        let rate = device.rate.unwrap_or_else(|| self.max_with_device());
        joined + (bytes - before) / rate + device.closing
    }

    /// Whether a device clearly pays for the remaining `bytes` bytes.
    pub(crate) fn pays(&self, bytes: f64, device: &WithDevice) -> bool {
        self.with_device(bytes, device) < MAX_TIME_RATIO * self.alone(bytes)
    }

    /// Whether `device`, in bytes a second, is at least the rate of the `displaced` workers.
    pub(crate) fn outdoes_displaced(&self, device: f64, displaced: usize) -> bool {
        device >= displaced as f64 * self.worker
    }

    /// Bytes a second with a device that delivers `device` beside the workers. Used until a whole run with the device
    /// and the same number of workers is known.
    pub(crate) fn joined_by(&self, device: f64) -> f64 {
        (device + self.all_workers()).min(self.max_with_device())
    }

    /// Bytes a second with a device, of which only `in_memory` is known: its rate alone, from memory to memory.
    pub(crate) fn expected_with(&self, in_memory: f64) -> f64 {
        self.joined_by(IN_RUNS * in_memory)
    }

    /// Bytes a second with the fastest possible device. It saves none of the overhead, and adds to it: its threads read
    /// and write too.
    fn max_with_device(&self) -> f64 {
        1.0 / (2.0 * self.overhead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(overhead: f64) -> Throughput {
        Throughput { workers: 10, worker: 1e6, overhead, block: 1e4 }
    }

    fn near(found: f64, expected: f64) {
        assert!((found / expected - 1.0).abs() < 1e-6, "{found} instead of {expected}");
    }

    #[test]
    fn the_cpu_alone_takes_work_and_overhead() {
        for (bytes, overhead, seconds) in [
            (1e7, 0.0, 1.0),
            (1e7, 1e-8, 1.1),
            // One round, and two rounds with the second not full.
            (5e4, 0.0, 0.01),
            (11e4, 0.0, 0.02),
            // Less than one block.
            (1e3, 0.0, 0.001),
        ] {
            near(cpu(overhead).alone(bytes), seconds);
        }
    }

    #[test]
    fn a_device_joins_when_it_is_open() {
        let device = WithDevice { starting: 0.1, ..WithDevice::known(None, 0.4, Some(4e7)) };
        // The job ends before the device is open.
        near(cpu(0.0).with_device(4e6, &device), 0.4);
        // Half of the job is done by then.
        near(cpu(0.0).with_device(1e7, &device), 0.66 + 5e6 / 4e7);
        // An unknown device might do the rest in no time, except for the overhead.
        let unknown = WithDevice::known(None, 0.5, None);
        near(cpu(0.0).with_device(1e7, &unknown), 0.7);
        let left = 1e7 * (1.0 - 0.5 / 1.1);
        near(cpu(1e-8).with_device(1e7, &unknown), 0.7 + left * 2e-8);
        near(cpu(0.0).joined_by(5e6), 1.5e7);
        near(cpu(0.0).expected_with(5e6), 1.25e7);
        near(cpu(1e-7).joined_by(5e6), 5e6);
    }

    #[test]
    fn a_device_pays_if_it_clearly_saves_time() {
        let unknown = WithDevice::unknown(None);
        let slow = WithDevice::known(None, 0.1, Some(1.05e7));
        let fast = WithDevice::known(None, 0.1, Some(4e7));
        for (bytes, overhead, device, pays) in [
            // The CPU takes a tenth of a second for each million bytes.
            (5e6, 0.0, unknown, false),
            (0.99e7, 0.0, unknown, false),
            (1.05e7, 0.0, unknown, true),
            (1.4e7, 0.0, WithDevice::unknown(Some(Api::WebGpu)), false),
            (1.6e7, 0.0, WithDevice::unknown(Some(Api::WebGpu)), true),
            (1e9, 0.0, slow, false),
            (5e6, 0.0, fast, true),
            (5e5, 0.0, fast, false),
            // No work is left.
            (0.0, 0.0, fast, false),
            // Reading and writing take most of the time.
            (1e9, 1e-7, unknown, false),
        ] {
            assert_eq!(cpu(overhead).pays(bytes, &device), pays, "{bytes} {overhead} {device:?}");
        }
    }

    #[test]
    fn a_device_does_more_than_the_workers_that_make_way() {
        assert!(cpu(0.0).outdoes_displaced(4e6, 4));
        assert!(!cpu(0.0).outdoes_displaced(3.9e6, 4));
        assert!(cpu(0.0).outdoes_displaced(0.0, 0));
    }
}
