//! `pz cost FILE`, `pz cost --size SIZE`: predicts how long a file will take on each processor.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use pz::gpu::device::discovery::DeviceEntry;
use pz::{Auto, DecodeOptions, FrameKind, Gpu, Level, Options, Prediction, Sample, SeekableReader};
use serde::Serialize;

use crate::args::Cost;
use crate::failure::{Failure, show};
use crate::settings;
use crate::sizes::{Human, Size};
use crate::table::Table;
use crate::trust::Trust;

/// The prediction for a file, on the CPU and on each device.
#[derive(Serialize)]
pub struct Forecast {
    file: Option<String>,
    /// Bytes of its contents.
    bytes: u64,
    threads: usize,
    work: Vec<Operation>,
}

/// One direction at one level.
#[derive(Serialize)]
struct Operation {
    direction: &'static str,
    pipeline: String,
    level: Option<u8>,
    /// Bytes of a block.
    block: u64,
    engines: Vec<Engine>,
}

/// The prediction for the CPU alone, or for a device together with the CPU.
#[derive(Serialize)]
struct Engine {
    device: String,
    name: String,
    /// Seconds of the whole run; `None` if the device cannot do this work.
    seconds: Option<f64>,
    /// Seconds until the device is open.
    opening: f64,
    /// Whether the device takes part. If not, the CPU alone is as fast.
    takes_part: bool,
    /// Why the device cannot do this work.
    problem: Option<String>,
    /// Bytes of memory that it needs: host memory for the CPU, device memory for a device.
    memory: Option<u64>,
    /// Bytes of contents per second that it delivers alone, from memory to memory.
    bytes_per_second: Option<f64>,
    /// Seconds of each stage on the device, if the device does all the blocks.
    stages: Vec<Stage>,
}

#[derive(Serialize)]
struct Stage {
    stage: String,
    seconds: f64,
}

/// An open device.
struct Opened {
    device: String,
    gpu: Gpu,
}

/// The contents, and the threads that work on them.
struct Job<'a> {
    path: Option<&'a Path>,
    /// Bytes of the contents.
    bytes: u64,
    threads: usize,
}

/// The work to predict: encoding, or decoding with the pipeline, level and block size of the file.
enum Subject {
    Encode(Options),
    Decode(FrameKind),
}

/// Predicts the work on the file or size that `args` names; `None` if it names neither.
pub fn predict(
    args: &Cost,
    (found, finding): (&[DeviceEntry], Duration),
    memory: Option<u64>,
) -> Result<Option<Forecast>, Failure> {
    let (bytes, subjects) = match (&args.file, args.size) {
        (Some(path), _) => of_file(path, args)?,
        (None, Some(Size(bytes))) => (bytes, both_directions(args)?),
        (None, None) => return Ok(None),
    };
    let auto = settings::auto(memory);
    let opened = open(&auto, found, finding, memory)?;
    let threads = args.threads.filter(|&n| n > 0).unwrap_or_else(settings::all_cores);
    let job = Job { path: args.file.as_deref(), bytes, threads };
    let work = subjects.iter().map(|subject| subject.predict(&auto, &opened, &job));
    Ok(Some(Forecast {
        file: args.file.as_deref().map(show),
        bytes,
        threads,
        work: work.collect::<Result<_, _>>()?,
    }))
}

/// Opens the devices and records how long finding and opening each of them takes.
fn open(
    auto: &Auto,
    found: &[DeviceEntry],
    finding: Duration,
    memory: Option<u64>,
) -> Result<Vec<Opened>, Failure> {
    let open = |found: &DeviceEntry| {
        let device = format!("{}:{}", found.api().name(), found.number());
        let begun = Instant::now();
        let opened = found.open();
        let opened =
            opened.map_err(|error| Failure::environment(format!("device {device}: {error}")))?;
        let gpu = Gpu::new(opened);
        auto.opened(&gpu, finding + begun.elapsed());
        Ok(Opened { device, gpu: memory.map_or(gpu.clone(), |bytes| gpu.memory(bytes)) })
    };
    found.iter().map(open).collect()
}

/// The length of a file's contents, and the work to predict: decompression for a compressed file, both directions
/// for any other.
fn of_file(path: &Path, args: &Cost) -> Result<(u64, Vec<Subject>), Failure> {
    let mut file = File::open(path).map_err(|error| of(path, error.into()))?;
    if is_compressed(path) {
        let frames = pz::list(&mut file, false).map_err(|error| of(path, error.into()))?;
        let bytes = frames.iter().map(|frame| frame.content_size).sum();
        let Some(frame) = frames.first() else { return Ok((0, Vec::new())) };
        let (pipeline, block_size) = (frame.pipeline, frame.block_size);
        let kind = FrameKind { pipeline, level: frame.level, block_size };
        return Ok((bytes, vec![Subject::Decode(kind)]));
    }
    let bytes = file.metadata().map_err(|error| of(path, error.into()))?.len();
    Ok((bytes, both_directions(args)?))
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "pz")
}

/// Adds the file's name to a failure.
fn of(path: &Path, failure: Failure) -> Failure {
    Failure { what: format!("{}: {}", show(path), failure.what), ..failure }
}

fn both_directions(args: &Cost) -> Result<Vec<Subject>, Failure> {
    let levels = match &args.levels.0 {
        given if given.is_empty() => vec![Level::DEFAULT],
        given => given.clone(),
    };
    let mut subjects = Vec::new();
    for level in levels {
        let mut options = Options::new().level(level).threads(args.threads.unwrap_or(0));
        if let Some(Size(block)) = args.block_size {
            options = options.block_size(block);
        }
        let block_size = options.chosen_block_size()?;
        let kind =
            FrameKind { pipeline: options.chosen_pipeline(), level: Some(level), block_size };
        subjects.extend([Subject::Encode(options), Subject::Decode(kind)]);
    }
    Ok(subjects)
}

impl Job<'_> {
    /// Sample blocks of the contents; `None` if there is no file.
    fn sample(&self, block: u64) -> Result<Option<Sample>, Failure> {
        let Some(path) = self.path else { return Ok(None) };
        let read = || {
            let mut file = File::open(path)?;
            if is_compressed(path) {
                let options = DecodeOptions::new().modules(Trust::default().modules());
                let mut contents = SeekableReader::new(file, &options)?;
                return Ok(Sample::of(&mut contents, self.bytes, block, self.threads)?);
            }
            Ok(Sample::of(&mut file, self.bytes, block, self.threads)?)
        };
        let sample: Result<Sample, pz::Error> = read();
        sample.map(Some).map_err(|error| of(path, error.into()))
    }
}

impl Subject {
    fn predict(&self, auto: &Auto, opened: &[Opened], job: &Job<'_>) -> Result<Operation, Failure> {
        let (direction, pipeline, level, block) = match self {
            Subject::Encode(options) => {
                let level = Some(options.chosen_level());
                ("compress", options.chosen_pipeline(), level, options.chosen_block_size()?)
            }
            Subject::Decode(FrameKind { pipeline, level, block_size }) => {
                ("decompress", *pipeline, *level, *block_size)
            }
        };
        let sample = job.sample(block)?;
        let Job { bytes, threads, .. } = *job;
        let predict = |gpu: Option<&Gpu>| match self {
            Subject::Encode(options) => {
                Ok::<_, Failure>(auto.predict(gpu, options, bytes, sample.as_ref())?)
            }
            Subject::Decode(kind) => {
                let options = DecodeOptions::new().threads(threads);
                Ok(auto.predict_decoding(gpu, *kind, &options, bytes, sample.as_ref())?)
            }
        };
        let mut engines = vec![Engine::cpu(threads, &predict(None)?)];
        for Opened { device, gpu } in opened {
            engines.push(Engine::device(device, gpu, predict(Some(gpu))?));
        }
        let (pipeline, level) = (pipeline.to_string(), level.map(Level::get));
        Ok(Operation { direction, pipeline, level, block, engines })
    }
}

impl Engine {
    fn cpu(threads: usize, prediction: &Prediction) -> Self {
        Self {
            device: "cpu".into(),
            name: format!("the CPU, {threads} thread{}", if threads == 1 { "" } else { "s" }),
            seconds: Some(prediction.cpu_seconds),
            opening: 0.0,
            takes_part: true,
            problem: None,
            memory: Some(prediction.cpu_memory),
            bytes_per_second: Some(prediction.cpu_rate),
            stages: Vec::new(),
        }
    }

    fn device(device: &str, gpu: &Gpu, prediction: Prediction) -> Self {
        let (bytes_per_second, problem) = match prediction.device_rate {
            Some(Ok(rate)) => (Some(rate), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
        let stages = prediction.stages.into_iter();
        Self {
            device: device.into(),
            name: gpu.limits().map_or_else(String::new, |limits| limits.name.clone()),
            seconds: problem.is_none().then_some(prediction.seconds),
            opening: prediction.opening,
            takes_part: prediction.takes_part,
            problem,
            memory: prediction.device_memory,
            bytes_per_second,
            stages: stages.map(|(stage, seconds)| Stage { stage, seconds }).collect(),
        }
    }

    /// The engine's name; if it takes no part, also the reason.
    fn remark(&self) -> String {
        match (&self.problem, self.takes_part) {
            (Some(why), _) => format!("{}: cannot do this: {why}", self.name),
            (None, false) => format!("{}: not opened, since the CPU alone is as fast", self.name),
            (None, true) => self.name.clone(),
        }
    }
}

impl Forecast {
    /// The predictions as text.
    pub fn to_text(&self) -> String {
        let name = self.file.as_deref().unwrap_or("A file");
        let mut text = format!("{name} of {} ({} bytes):\n", Human(self.bytes), self.bytes);
        for work in &self.work {
            let level = work.level.map(|level| format!(" -{level}")).unwrap_or_default();
            text += &format!(
                "\n{}{level} ({}), blocks of {}\n",
                work.direction,
                work.pipeline,
                Human(work.block)
            );
            let head = ["<  on", "seconds", "MB/s", "memory", "to open it", "MB/s alone", "<"];
            let mut table = Table::new(&head);
            for engine in &work.engines {
                let with = if engine.device == "cpu" { "" } else { ", with the CPU" };
                let whole = engine.seconds.map(|seconds| self.bytes as f64 / seconds.max(1e-9));
                let rate = |rate: Option<f64>| {
                    rate.map_or("-".into(), |rate| format!("{:.0}", rate / 1e6))
                };
                table.row(vec![
                    format!("  {}{with}", engine.device),
                    engine.seconds.map_or("-".into(), |seconds| format!("{seconds:.3}")),
                    rate(whole),
                    engine.memory.map_or("-".into(), |bytes| Human(bytes).to_string()),
                    format!("{:.3}", engine.opening),
                    rate(engine.bytes_per_second),
                    engine.remark(),
                ]);
            }
            text += &table.to_text();
            for engine in work.engines.iter().filter(|engine| !engine.stages.is_empty()) {
                let stages = engine.stages.iter();
                let stages: Vec<_> =
                    stages.map(|s| format!("{} {:.3} s", s.stage, s.seconds)).collect();
                text += &format!("  {} alone, by stage: {}\n", engine.device, stages.join(", "));
            }
        }
        text
    }
}
