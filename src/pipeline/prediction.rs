//! How long something will take, on what: what `pz cost` shows.

use super::Gpu;
use super::auto::Auto;
use super::memory::cores;
use super::options::Options;
use super::sample::Sample;
use super::throughput::{Throughput, WithDevice};
use super::workload::{ComputeRate, Direction, Workload};
use crate::error::Error;
use crate::format::Pipeline;
use crate::gpu::device::Limits;

/// How long something takes, by prediction.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// Bytes of contents a second of all threads of the processor, without reading and writing.
    pub cpu_rate: f64,
    /// Seconds on the processor alone, with reading and writing.
    pub cpu_seconds: f64,
    /// Bytes of contents a second that the device alone delivers, in memory; or why it does not do this work. `None` if no device
    /// was named.
    pub device_rate: Option<Result<f64, String>>,
    /// Seconds until the device takes part.
    pub opening: f64,
    /// Seconds with the device beside the processor, which begins while the device is opened.
    pub seconds: f64,
    /// Whether the device is opened at all, if a user names it: otherwise the processor does everything.
    pub takes_part: bool,
    /// Bytes of the host's memory that the processor's threads and their blocks take.
    pub cpu_memory: u64,
    /// Bytes of the device's memory that it is given at most.
    pub device_memory: Option<u64>,
    /// Seconds of each stage on the device itself, if it did all of it; empty where it cannot measure.
    pub stages: Vec<(String, f64)>,
}

impl Auto {
    /// How long `gpu` and the processor take to compress `bytes` bytes as `options` say, of which `sample` are some. What is not known is
    /// measured, which takes a moment, and kept.
    ///
    /// # Errors
    /// If the options make no sense.
    pub fn predict(
        &self,
        gpu: Option<&Gpu>,
        options: &Options,
        bytes: u64,
        sample: Option<&Sample>,
    ) -> Result<Prediction, Error> {
        let workload = Workload::encoding(options)?;
        Ok(self.predict_workload(gpu, &workload, bytes, options.threads, sample))
    }

    /// The same for decompression of blocks of `block_size` bytes of a pipeline, made at `level` (0 if it is not known), on
    /// `threads` threads. The sample is of the contents.
    pub fn predict_decoding(
        &self,
        gpu: Option<&Gpu>,
        (pipeline, level, block_size): (Pipeline, u8, u64),
        bytes: u64,
        threads: usize,
        sample: Option<&Sample>,
    ) -> Prediction {
        let workload = Workload::decoding_of(pipeline, level, block_size);
        self.predict_workload(gpu, &workload, bytes, threads, sample)
    }

    /// How fast a device of such limits computes what `options` say, bytes in its memory to bytes in its memory; `None` if
    /// it does not, or if nothing has been measured on it.
    ///
    /// # Errors
    /// If the options make no sense.
    pub fn encode_rate(
        &self,
        limits: &Limits,
        options: &Options,
    ) -> Result<Option<ComputeRate>, Error> {
        let workload = Workload::encoding(options)?;
        Ok(workload.compute_rate(limits, &self.knowledge().of_device(limits)))
    }

    /// The same for decoding.
    pub fn decode_rate(
        &self,
        limits: &Limits,
        (pipeline, level, block_size): (Pipeline, u8, u64),
    ) -> Option<ComputeRate> {
        let workload = Workload::decoding_of(pipeline, level, block_size);
        workload.compute_rate(limits, &self.knowledge().of_device(limits))
    }

    fn predict_workload(
        &self,
        gpu: Option<&Gpu>,
        workload: &Workload,
        bytes: u64,
        threads: usize,
        sample: Option<&Sample>,
    ) -> Prediction {
        let threads = if threads == 0 { cores() } else { threads };
        // Threads that would find nothing to do are not started.
        let blocks = bytes.div_ceil(workload.block_size()).max(1);
        let workers = threads.min(usize::try_from(blocks).unwrap_or(usize::MAX));
        let cpu = match sample {
            Some(sample) => self.knowledge().cpu_with(workload, workers, sample),
            None => self.knowledge().cpu(workload, workers),
        };
        let cpu_seconds = cpu.alone(bytes as f64);
        let mut prediction = Prediction {
            cpu_rate: cpu.of_workers(),
            cpu_seconds,
            device_rate: None,
            opening: 0.0,
            seconds: cpu_seconds,
            takes_part: false,
            cpu_memory: workload.cpu_memory(workers),
            device_memory: None,
            stages: Vec::new(),
        };
        if let Some(gpu) = gpu {
            self.predict_device(&mut prediction, gpu, workload, (bytes, cpu), sample);
        }
        prediction
    }

    fn predict_device(
        &self,
        prediction: &mut Prediction,
        gpu: &Gpu,
        workload: &Workload,
        (bytes, cpu): (u64, Throughput),
        sample: Option<&Sample>,
    ) {
        prediction.device_rate = Some(self.knowledge().measure(workload, gpu, sample));
        let Some(limits) = gpu.limits() else { return };
        prediction.device_memory = workload.device_memory(gpu, limits);
        let Some(device) = self.knowledge().device(workload, limits, &cpu) else { return };
        prediction.opening = device.opening;
        // A device to decode with is not even looked for before it is known to be worth it, whichever it is.
        let first = match workload.direction() {
            Direction::Encode => None,
            Direction::Decode => Some(WithDevice::unknown(None)),
        };
        let bytes = bytes as f64;
        let pays = |device: &WithDevice| cpu.pays(bytes, device);
        prediction.takes_part = pays(&device) && first.as_ref().is_none_or(pays);
        if prediction.takes_part {
            prediction.seconds = cpu.with_device(bytes, &device);
        }
        let rates = self.knowledge().of_device(limits);
        let prefix = format!("{}: ", workload.name());
        let stage = |(name, rate): (&str, f64)| {
            Some((name.strip_prefix(&prefix)?.to_string(), bytes / rate))
        };
        prediction.stages = rates.iter().filter_map(stage).collect();
    }
}
