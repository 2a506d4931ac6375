//! Predicts how long a job takes with a device and without, for `pz cost`.

use super::auto::Auto;
use super::memory::Share;
use super::options::{DecodeOptions, Options};
use super::sample::Sample;
use super::throughput::{Throughput, WithDevice};
use super::workload::{ComputeRate, Direction, HostLimits, Workload};
use super::{Gpu, Level};
use crate::error::Error;
use crate::format::Pipeline;
use crate::gpu::device::Limits;

/// The kind of a frame: how its blocks are coded, and how long they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameKind {
    /// How its blocks are coded.
    pub pipeline: Pipeline,
    /// The level that it was encoded at, if known.
    pub level: Option<Level>,
    /// Bytes of a block.
    pub block_size: u64,
}

/// A prediction of how long a job takes.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// Bytes of contents a second of all CPU threads, without reading and writing.
    pub cpu_rate: f64,
    /// Seconds on the CPU alone, with reading and writing.
    pub cpu_seconds: f64,
    /// Bytes of contents a second of the device alone, in memory, or the reason why it does not do this work. `None` if
    /// no device was named.
    pub device_rate: Option<Result<f64, String>>,
    /// Seconds until the device begins its first batch.
    pub opening: f64,
    /// Seconds with the device beside the CPU. The CPU begins while the device opens.
    pub seconds: f64,
    /// Whether a job would open the device if a user named it; otherwise the CPU does everything.
    pub takes_part: bool,
    /// Bytes of host memory that the CPU threads and their blocks take.
    pub cpu_memory: u64,
    /// The most of its own memory, in bytes, that the device may use.
    pub device_memory: Option<u64>,
    /// Seconds of each stage if the device did the whole job; empty if it cannot measure stages.
    pub stages: Vec<(String, f64)>,
}

impl Auto {
    /// Predicts the time that a job with `options` takes to compress `bytes` bytes on `gpu` and the CPU. `sample` holds
    /// some of the blocks. Measures unknown rates, which takes a moment, and keeps them.
    ///
    /// # Errors
    /// If the options are invalid, or permit too little memory.
    pub fn predict(
        &self,
        gpu: Option<&Gpu>,
        options: &Options,
        bytes: u64,
        sample: Option<&Sample>,
    ) -> Result<Prediction, Error> {
        let limits =
            HostLimits { threads: options.resources.threads, memory: options.resources.memory };
        self.predict_workload(gpu, &Workload::encoding(options)?, bytes, &limits, sample)
    }

    /// Predicts the same for decompressing frames of a kind to `bytes` bytes. The sample is of the contents, not the
    /// payloads.
    ///
    /// # Errors
    /// If the options permit too little memory.
    pub fn predict_decoding(
        &self,
        gpu: Option<&Gpu>,
        kind: FrameKind,
        options: &DecodeOptions,
        bytes: u64,
        sample: Option<&Sample>,
    ) -> Result<Prediction, Error> {
        let limits =
            HostLimits { threads: options.resources.threads, memory: options.resources.memory };
        self.predict_workload(gpu, &Workload::decoding_of(kind), bytes, &limits, sample)
    }

    /// The rate at which a device with these limits encodes with `options`, from its memory to its memory. `None` if it
    /// does not do this work, or if it has not been measured.
    ///
    /// # Errors
    /// If the options are invalid.
    pub fn encode_rate(
        &self,
        limits: &Limits,
        options: &Options,
    ) -> Result<Option<ComputeRate>, Error> {
        let workload = Workload::encoding(options)?;
        Ok(workload.compute_rate(limits, &self.knowledge().of_device(limits)))
    }

    /// The rate at which a device decodes, like [`Self::encode_rate`] for encoding.
    pub fn decode_rate(&self, limits: &Limits, kind: FrameKind) -> Option<ComputeRate> {
        let workload = Workload::decoding_of(kind);
        workload.compute_rate(limits, &self.knowledge().of_device(limits))
    }

    fn predict_workload(
        &self,
        gpu: Option<&Gpu>,
        workload: &Workload,
        bytes: u64,
        limits: &HostLimits,
        sample: Option<&Sample>,
    ) -> Result<Prediction, Error> {
        let (Share { workers, .. }, cpu_memory) = workload.host_share(bytes, limits)?;
        let cpu = match sample {
            Some(sample) => self.knowledge().cpu_with(workload, workers, sample),
            None => self.knowledge().cpu(workload, workers),
        };
        let cpu_seconds = cpu.alone(bytes as f64);
        let mut prediction = Prediction {
            cpu_rate: cpu.all_workers(),
            cpu_seconds,
            device_rate: None,
            opening: 0.0,
            seconds: cpu_seconds,
            takes_part: false,
            cpu_memory,
            device_memory: None,
            stages: Vec::new(),
        };
        if let Some(gpu) = gpu {
            self.predict_device(&mut prediction, gpu, workload, bytes, cpu, sample);
        }
        Ok(prediction)
    }

    fn predict_device(
        &self,
        prediction: &mut Prediction,
        gpu: &Gpu,
        workload: &Workload,
        bytes: u64,
        cpu: Throughput,
        sample: Option<&Sample>,
    ) {
        prediction.device_rate = Some(self.knowledge().measure(workload, gpu, sample));
        let Some(limits) = gpu.limits() else { return };
        prediction.device_memory = workload.device_memory(gpu, limits);
        let Some(device) = self.knowledge().device(workload, limits, &cpu) else { return };
        prediction.opening = device.joins_after();
        let bytes = bytes as f64;
        // A job does not even look for a device unless the work takes long enough for an unknown one. An encoder
        // estimates the time from earlier runs, and looks if there were none. A decoder estimates it from the rate of
        // its first blocks, which does not include the overhead.
        let known = match workload.direction() {
            Direction::Encode => self.knowledge().known_cpu(workload, cpu.workers),
            Direction::Decode => Some(Throughput { overhead: 0.0, ..cpu }),
        };
        let is_sought = known.is_none_or(|cpu| cpu.pays(bytes, &WithDevice::unknown(None)));
        prediction.takes_part = is_sought && cpu.pays(bytes, &device);
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
