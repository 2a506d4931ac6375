//! How long work takes on the CPU alone, and with a device beside it.
//!
//! This is the only model of throughput. It answers four questions: whether `auto` opens a device, whether a device that the user
//! named is worth opening now, whether a device at work is worth the cores it takes, and what `pz cost` predicts.
//!
//! The CPU's part is a rate for each worker, and an overhead: the seconds of a whole run that remain when the workers' own time
//! is taken away. Reading, writing and waiting for each other are in it, as far as they did not overlap with the work. A device's
//! part is the time until its first batch, and the rate of the device and the workers together from then on. Both overlaps are
//! measured in whole runs, never assumed.

use crate::gpu::device::Api;

/// What the CPU's workers deliver. All amounts are bytes of contents.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Throughput {
    pub(crate) workers: usize,
    /// Bytes a second of one worker while it codes.
    pub(crate) worker: f64,
    /// Seconds of a whole run for each byte, besides the workers' time.
    pub(crate) overhead: f64,
    /// Bytes of a block, which one worker does.
    pub(crate) block: f64,
}

/// What a device adds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WithDevice {
    /// Seconds until its first batch begins.
    pub(crate) opening: f64,
    /// Bytes a second of device and workers together from then on; `None` if nobody knows.
    pub(crate) rate: Option<f64>,
}

/// A device must be expected to need no more than this part of the CPU's time: predictions are not exact.
const MAX_TIME_RATIO: f64 = 0.9;

/// Closing a device takes this part of the time that it took to open: the driver gives everything back.
const CLOSING: f64 = 0.3;

impl WithDevice {
    /// A device of which nothing is known, or only its interface. It is worth trying for what takes the CPU alone a second, or
    /// through WebGPU, which sets up a graphics driver and translates the kernels, a second and a half.
    pub(crate) fn unknown(api: Option<Api>) -> Self {
        let opening = if api == Some(Api::WebGpu) { 1.05 } else { 0.7 };
        Self { opening, rate: None }
    }
}

impl Throughput {
    /// Bytes a second that the workers code together.
    pub(crate) fn of_workers(&self) -> f64 {
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

    /// Seconds with a device beside the CPU, which begins alone and may have done everything before the device is there.
    pub(crate) fn with_device(&self, bytes: f64, device: &WithDevice) -> f64 {
        let alone = self.alone(bytes);
        if alone <= device.opening {
            return alone;
        }
        let before = bytes * device.opening / alone;
        let rate = device.rate.unwrap_or_else(|| self.most_with_any_device());
        device.opening * (1.0 + CLOSING) + (bytes - before) / rate
    }

    /// Whether a device clearly pays for `bytes` bytes that are still to be done.
    pub(crate) fn pays(&self, bytes: f64, device: &WithDevice) -> bool {
        self.with_device(bytes, device) < MAX_TIME_RATIO * self.alone(bytes)
    }

    /// Whether a device delivers at least as much as the workers that make way for it.
    pub(crate) fn outdoes_displaced(&self, device: f64, displaced: usize) -> bool {
        device >= displaced as f64 * self.worker
    }

    /// Bytes a second with a device that delivers `device` alone, in memory, if no whole run with it is known.
    pub(crate) fn expected_with(&self, device: f64) -> f64 {
        (device + self.of_workers()).min(self.most_with_any_device())
    }

    /// Bytes a second with the fastest of devices. It saves nothing of the overhead, and adds to it: its threads read and write too.
    fn most_with_any_device(&self) -> f64 {
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
            // One round, and two of them, of which the second is not full.
            (5e4, 0.0, 0.01),
            (11e4, 0.0, 0.02),
            // Less than a block.
            (1e3, 0.0, 0.001),
        ] {
            near(cpu(overhead).alone(bytes), seconds);
        }
    }

    #[test]
    fn a_device_joins_when_it_is_open() {
        let device = WithDevice { opening: 0.5, rate: Some(4e7) };
        // Done before it is open.
        near(cpu(0.0).with_device(4e6, &device), 0.4);
        // Half of it is.
        near(cpu(0.0).with_device(1e7, &device), 0.65 + 5e6 / 4e7);
        // An unknown device might take no time at all for the rest, but for what it cannot speed up.
        let unknown = WithDevice { opening: 0.5, rate: None };
        near(cpu(0.0).with_device(1e7, &unknown), 0.65);
        let left = 1e7 * (1.0 - 0.5 / 1.1);
        near(cpu(1e-8).with_device(1e7, &unknown), 0.65 + left * 2e-8);
        near(cpu(0.0).expected_with(5e6), 1.5e7);
        near(cpu(1e-7).expected_with(5e6), 5e6);
    }

    #[test]
    fn a_device_pays_if_it_clearly_saves_time() {
        let unknown = WithDevice::unknown(None);
        let slow = WithDevice { opening: 0.1, rate: Some(1.05e7) };
        let fast = WithDevice { opening: 0.1, rate: Some(4e7) };
        for (bytes, overhead, device, pays) in [
            // A tenth of a second on the CPU for each million.
            (5e6, 0.0, unknown, false),
            (0.99e7, 0.0, unknown, false),
            (1.05e7, 0.0, unknown, true),
            (1.4e7, 0.0, WithDevice::unknown(Some(Api::WebGpu)), false),
            (1.6e7, 0.0, WithDevice::unknown(Some(Api::WebGpu)), true),
            (1e9, 0.0, slow, false),
            (5e6, 0.0, fast, true),
            (5e5, 0.0, fast, false),
            // Nothing is left to do.
            (0.0, 0.0, fast, false),
            // Storage takes most of the time.
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
