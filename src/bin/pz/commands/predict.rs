//! `pz cost FILE`, `pz cost --size SIZE`: how long a file will take, and on what.

use std::fs::File;
use std::path::Path;
use std::time::{Duration, Instant};

use pz::gpu::discovery::Found;
use pz::{Auto, Gpu, Level, Options, Pipeline, Prediction};
use serde::Serialize;

use crate::args::Cost;
use crate::failure::{Failure, show};
use crate::settings;
use crate::sizes::{Human, Size};
use crate::table::Table;

/// What a file takes on the processor and on each device.
#[derive(Serialize)]
pub struct Forecast {
    file: Option<String>,
    /// Bytes of its contents.
    bytes: u64,
    threads: usize,
    work: Vec<Work>,
}

/// One direction at one level.
#[derive(Serialize)]
struct Work {
    direction: &'static str,
    pipeline: String,
    level: Option<u8>,
    /// Bytes of a block.
    block: u64,
    engines: Vec<Engine>,
}

/// What is predicted for the processor alone, or with a device beside it.
#[derive(Serialize)]
struct Engine {
    device: String,
    name: String,
    /// Seconds in all, and those of them that it takes to find and open the device; nothing if the device does not do this.
    seconds: Option<f64>,
    opening: f64,
    /// Bytes of contents a second that it delivers alone, from memory to memory.
    bytes_per_second: Option<f64>,
    /// Seconds on the device itself, if it did all of it.
    stages: Vec<Stage>,
}

#[derive(Serialize)]
struct Stage {
    stage: String,
    seconds: f64,
}

/// A device that is open.
struct Opened {
    device: String,
    gpu: Gpu,
}

/// What is to be predicted.
enum Subject {
    Encode(Options),
    Decode(Pipeline, u8, u64),
}

/// Predicts what the file or size that `args` name takes; `None` if they name neither.
pub fn predict(
    args: &Cost,
    (found, finding): (&[Found], Duration),
    memory: Option<u64>,
) -> Result<Option<Forecast>, Failure> {
    let (bytes, subjects) = match (&args.file, args.size) {
        (Some(path), _) => of_file(path, args)?,
        (None, Some(Size(bytes))) => (bytes, both_ways(args)?),
        (None, None) => return Ok(None),
    };
    let auto = settings::auto(memory);
    let opened = open(&auto, found, finding, memory)?;
    let threads = args.threads.filter(|&n| n > 0).unwrap_or_else(settings::all_cores);
    let work = subjects.iter().map(|subject| subject.predict(&auto, &opened, bytes, threads));
    Ok(Some(Forecast {
        file: args.file.as_deref().map(show),
        bytes,
        threads,
        work: work.collect::<Result<_, _>>()?,
    }))
}

/// Opens devices, and has it kept how long that takes, with finding them.
fn open(
    auto: &Auto,
    found: &[Found],
    finding: Duration,
    memory: Option<u64>,
) -> Result<Vec<Opened>, Failure> {
    let open = |found: &Found| {
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

/// A compressed file is decompressed; another is compressed and then decompressed.
fn of_file(path: &Path, args: &Cost) -> Result<(u64, Vec<Subject>), Failure> {
    let of =
        |failure: Failure| Failure { what: format!("{}: {}", show(path), failure.what), ..failure };
    let mut file = File::open(path).map_err(|error| of(error.into()))?;
    if path.extension().is_some_and(|extension| extension == "pz") {
        let frames = pz::list(&mut file, false).map_err(|error| of(error.into()))?;
        let bytes = frames.iter().map(|frame| frame.content_size).sum();
        let Some(frame) = frames.first() else { return Ok((0, Vec::new())) };
        let level = frame.level.map_or(0, Level::get);
        return Ok((bytes, vec![Subject::Decode(frame.pipeline, level, frame.block_size)]));
    }
    let bytes = file.metadata().map_err(|error| of(error.into()))?.len();
    Ok((bytes, both_ways(args)?))
}

fn both_ways(args: &Cost) -> Result<Vec<Subject>, Failure> {
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
        let block = options.chosen_block_size()?;
        let decode = Subject::Decode(options.chosen_pipeline(), level.get(), block);
        subjects.extend([Subject::Encode(options), decode]);
    }
    Ok(subjects)
}

impl Subject {
    fn predict(
        &self,
        auto: &Auto,
        opened: &[Opened],
        bytes: u64,
        threads: usize,
    ) -> Result<Work, Failure> {
        let predict = |gpu: Option<&Gpu>| match self {
            Subject::Encode(options) => Ok(auto.predict(gpu, options, bytes)?),
            Subject::Decode(pipeline, level, block) => {
                let kind = (*pipeline, *level, *block);
                Ok::<_, Failure>(auto.predict_decoding(gpu, kind, bytes, threads))
            }
        };
        let alone = predict(None)?;
        let mut engines = vec![Engine {
            device: "cpu".into(),
            name: format!("the CPU, {threads} thread{}", if threads == 1 { "" } else { "s" }),
            seconds: Some(alone.cpu_seconds),
            opening: 0.0,
            bytes_per_second: Some(alone.cpu_rate),
            stages: Vec::new(),
        }];
        for Opened { device, gpu } in opened {
            engines.push(Engine::new(device, gpu, predict(Some(gpu))?));
        }
        let (direction, pipeline, level, block) = match self {
            Subject::Encode(options) => {
                let level = options.chosen_level().get();
                ("compress", options.chosen_pipeline(), level, options.chosen_block_size()?)
            }
            Subject::Decode(pipeline, level, block) => ("decompress", *pipeline, *level, *block),
        };
        let (pipeline, level) = (pipeline.to_string(), (level > 0).then_some(level));
        Ok(Work { direction, pipeline, level, block, engines })
    }
}

impl Engine {
    fn new(device: &str, gpu: &Gpu, prediction: Prediction) -> Self {
        Self {
            device: device.into(),
            name: gpu.limits().map_or_else(String::new, |limits| limits.name.clone()),
            seconds: prediction.device_rate.map(|_| prediction.seconds),
            opening: prediction.opening,
            bytes_per_second: prediction.device_rate,
            stages: prediction
                .stages
                .into_iter()
                .map(|(stage, seconds)| Stage { stage, seconds })
                .collect(),
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
            let mut table = Table::new(&["<  on", "seconds", "to open it", "MB/s alone", "<"]);
            for engine in &work.engines {
                let with = if engine.device == "cpu" { "" } else { ", with the CPU" };
                table.row(vec![
                    format!("  {}{with}", engine.device),
                    engine.seconds.map_or("-".into(), |seconds| format!("{seconds:.3}")),
                    format!("{:.3}", engine.opening),
                    engine.bytes_per_second.map_or("-".into(), |rate| format!("{:.0}", rate / 1e6)),
                    match engine.seconds {
                        Some(_) => engine.name.clone(),
                        None => format!("{}: does not do this", engine.name),
                    },
                ]);
            }
            text += &table.to_text();
            for engine in work.engines.iter().filter(|engine| !engine.stages.is_empty()) {
                let stages = engine.stages.iter();
                let stages: Vec<_> =
                    stages.map(|s| format!("{} {:.3} s", s.stage, s.seconds)).collect();
                text += &format!("  {} alone would be at: {}\n", engine.device, stages.join(", "));
            }
        }
        text
    }
}
