//! `pz bench`: measures ratio and speed of each level and filter, in memory.

use std::fs;
use std::hint::black_box;
use std::io::Cursor;
use std::path::Path;
use std::time::{Duration, Instant};

use pz::{DecodeOptions, Decoder, Encoder, FilterChain, Gpu, Level, Options, Statistics};
use serde::Serialize;

use super::{door, load, resident};
use crate::args::Bench;
use crate::device::Device;
use crate::failure::{Failure, show};
use crate::filters::{Candidate, Filters};
use crate::messages;
use crate::session::Session;
use crate::settings;
use crate::sizes::{self, Human};
use crate::source::Input;
use crate::table;

/// Runs each direction again and again for this time. The fastest run counts.
const MEASURING_TIME: Duration = Duration::from_secs(1);

/// Measures each file at each level with each filter on each number of threads, or on devices alone.
pub fn run(args: &Bench, session: &mut Session) -> Result<(), Failure> {
    let devices = settings::devices(args.device.as_ref())?;
    let devices = devices.open(settings::gpu_memory(args.gpu_memory)?)?;
    let levels: Vec<Level> = match &args.encoding.levels.0 {
        given if !given.is_empty() => given.clone(),
        _ if !args.filter.is_empty() => vec![Level::DEFAULT],
        _ => Level::all().collect(),
    };
    let filters = Filters::load(&args.filter, &args.lanes)?;
    if args.load {
        return run_load(&devices, args, session);
    }
    if args.door {
        return run_door(&devices, args, session);
    }
    if args.resident {
        return run_resident(&devices, &levels, &filters, args, session);
    }
    let mut settings = Vec::new();
    for &level in &levels {
        for filter in &filters {
            for &threads in &args.threads {
                settings.extend(devices.iter().map(|(device, gpu)| Setting {
                    level,
                    filter,
                    threads,
                    device: *device,
                    gpu: gpu.as_ref(),
                }));
            }
        }
    }
    let mut rows = Vec::new();
    for path in &args.files {
        let Some((input, data)) = read(path, session) else { continue };
        for setting in &settings {
            let measured = measure(&show(path), &data, setting, args);
            match measured.map_err(|failure| setting.filter.filter.name_modules(failure)) {
                Ok(mut row) => {
                    row.compare(&rows);
                    if !args.json {
                        print_row(&row, rows.is_empty(), args)?;
                    }
                    rows.push(row);
                }
                Err(failure) => session.fail(&input, failure),
            }
        }
    }
    if args.json { table::print_json(&rows) } else { Ok(()) }
}

/// A file and its contents. Tells the user if it cannot be read.
fn read(path: &Path, session: &mut Session) -> Option<(Input, Vec<u8>)> {
    let input = Input::Path(path.to_path_buf());
    match fs::read(path) {
        Ok(data) => Some((input, data)),
        Err(error) => {
            session.fail(&input, error.into());
            None
        }
    }
}

/// The options of one measurement.
struct Setting<'a> {
    level: Level,
    filter: &'a Candidate,
    threads: usize,
    device: Device,
    gpu: Option<&'a Gpu>,
}

/// Measures each file at each level with each filter on each device alone.
fn run_resident(
    devices: &[(Device, Option<Gpu>)],
    levels: &[Level],
    filters: &[Candidate],
    args: &Bench,
    session: &mut Session,
) -> Result<(), Failure> {
    let gpus = gpus(devices, "--resident")?;
    if args.csv {
        table::print(resident::CSV_HEAD)?;
    }
    let mut rows = Vec::new();
    for path in &args.files {
        let Some((input, data)) = read(path, session) else { continue };
        for (device, gpu) in &gpus {
            let opened = gpu.device().map_err(|error| Failure::environment(error.to_string()))?;
            let on = (&*device.to_string(), opened);
            for filter in filters {
                let how = (levels, filter);
                let measured = resident::measure(&show(path), &data, how, on, args, &mut rows);
                measured.unwrap_or_else(|failure| session.fail(&input, failure));
            }
        }
    }
    if args.json { table::print_json(&rows) } else { Ok(()) }
}

/// The GPUs among `devices`, which `option` needs.
fn gpus<'d>(
    devices: &'d [(Device, Option<Gpu>)],
    option: &str,
) -> Result<Vec<(&'d Device, &'d Gpu)>, Failure> {
    let gpus: Vec<_> =
        devices.iter().filter_map(|(device, gpu)| Some((device, gpu.as_ref()?))).collect();
    if gpus.is_empty() {
        let why = format!("{option} needs a GPU: --device cuda, opencl or webgpu");
        return Err(Failure::environment(why));
    }
    Ok(gpus)
}

/// Measures how fast each file gets into the memory of each device.
fn run_load(
    devices: &[(Device, Option<Gpu>)],
    args: &Bench,
    session: &mut Session,
) -> Result<(), Failure> {
    let gpus = gpus(devices, "--load")?;
    let mut rows = Vec::new();
    for path in &args.files {
        for (device, gpu) in &gpus {
            let opened = gpu.device().map_err(|error| Failure::environment(error.to_string()))?;
            match load::measure(path, (&*device.to_string(), opened), args, &mut rows) {
                Ok(text) if !args.json => table::print(&text)?,
                Ok(_) => {}
                Err(failure) => session.fail(Input::Path(path.clone()), failure),
            }
        }
    }
    if args.json { table::print_json(&rows) } else { Ok(()) }
}

/// Measures how fast the host answers kernels of each device that ask for parts of each file.
fn run_door(
    devices: &[(Device, Option<Gpu>)],
    args: &Bench,
    session: &mut Session,
) -> Result<(), Failure> {
    let mut rows = Vec::new();
    for path in &args.files {
        for (device, gpu) in devices {
            let opened = gpu.as_ref().map(Gpu::device).transpose();
            let opened = opened.map_err(|error| Failure::environment(error.to_string()))?;
            match door::measure(path, (&*device.to_string(), opened), args, &mut rows) {
                Ok(text) if !args.json => table::print(&text)?,
                Ok(_) => {}
                Err(failure) => session.fail(Input::Path(path.clone()), failure),
            }
        }
    }
    if args.json { table::print_json(&rows) } else { Ok(()) }
}

/// One measurement. Speeds are in 10^6 bytes of contents per second.
#[derive(Serialize)]
struct Row {
    file: String,
    engine: String,
    level: u8,
    pipeline: String,
    block_size: u64,
    threads: usize,
    bytes: u64,
    compressed: u64,
    ratio: f64,
    compress_mb_s: f64,
    decompress_mb_s: f64,
    /// Speed divided by that of the CPU alone on as many threads, if that was measured before.
    compress_vs_cpu: Option<f64>,
    decompress_vs_cpu: Option<f64>,
    /// The filter's name, and the chain of filters that most blocks got, if any.
    filter: String,
    chain: Option<String>,
}

fn measure(file: &str, data: &[u8], setting: &Setting, args: &Bench) -> Result<Row, Failure> {
    let &Setting { level, filter, threads, device, gpu } = setting;
    let plain = settings::encode_with(&args.encoding, level, threads, args.memory)?;
    let Candidate { name, filter } = filter;
    let mut options = filter.apply(plain.clone()).content_size(data.len() as u64);
    let mut decoding = DecodeOptions::new()
        .threads(threads)
        .max_memory(settings::memory(args.memory))
        .modules(filter.trusted());
    if let Some(gpu) = gpu {
        // The CPU applies modules, and devices undo them. A message below reports a device that took no part.
        let asked = if filter.has_modules() { &plain } else { &options };
        settings::check_gpu(device, gpu, asked)?;
        options = options.gpu(gpu.clone());
        decoding = decoding.gpu(gpu.clone());
    }
    let counted = [Statistics::new(), Statistics::new()];
    let packed = pz::compress(data, &options.clone().statistics(&counted[0]))?;
    if pz::decompress(&packed, &decoding.clone().statistics(&counted[1]))? != data {
        return Err(Failure::bug(format!(
            "level {level}: the decompressed data differs from the input"
        )));
    }
    for (counted, what) in counted.iter().zip(["compressing", "decompressing"]) {
        let blocks = counted.device().map_or(0, |device| device.done.blocks);
        if gpu.is_some() && blocks == 0 {
            messages::say(format_args!(
                "{file}: level {level}, {what}: {device} did none of the blocks; the speed is the CPU's"
            ));
        }
    }
    let mut buffer = Vec::with_capacity(packed.len());
    let compress = fastest(|| compress(data, &options, &mut buffer))?;
    let decompress = fastest(|| Decoder::new(&packed[..], &decoding)?.verify())?;
    let speed = |time: Duration| data.len() as f64 / time.as_secs_f64().max(1e-9) / 1e6;
    Ok(Row {
        file: file.to_string(),
        engine: if gpu.is_some() { device.to_string() } else { "cpu".into() },
        level: level.get(),
        pipeline: options.chosen_pipeline().to_string(),
        block_size: options.chosen_block_size()?,
        threads: if threads == 0 { settings::all_cores() } else { threads },
        bytes: data.len() as u64,
        compressed: packed.len() as u64,
        ratio: sizes::ratio(data.len() as u64, packed.len() as u64),
        compress_mb_s: speed(compress),
        decompress_mb_s: speed(decompress),
        compress_vs_cpu: None,
        decompress_vs_cpu: None,
        filter: name.clone(),
        chain: usual_chain(&packed)?.map(|chain| chain.to_string()),
    })
}

/// The chain of filters that most blocks got.
fn usual_chain(packed: &[u8]) -> Result<Option<FilterChain>, pz::Error> {
    let mut counts: Vec<(usize, Option<FilterChain>)> = Vec::new();
    for frame in pz::list(&mut Cursor::new(packed), true)? {
        for block in frame.blocks {
            match counts.iter_mut().find(|(_, chain)| *chain == block.filters) {
                Some((count, _)) => *count += 1,
                None => counts.push((1, block.filters)),
            }
        }
    }
    Ok(counts.into_iter().max_by_key(|(count, _)| *count).and_then(|(_, chain)| chain))
}

fn compress(mut data: &[u8], options: &Options, buffer: &mut Vec<u8>) -> Result<u64, pz::Error> {
    buffer.clear();
    let mut encoder = Encoder::new(buffer, options)?;
    let bytes = encoder.read_from(&mut data)?;
    encoder.finish()?;
    Ok(bytes)
}

/// The time of the fastest run.
fn fastest(mut run: impl FnMut() -> Result<u64, pz::Error>) -> Result<Duration, Failure> {
    let begun = Instant::now();
    let mut best = Duration::MAX;
    while best == Duration::MAX || begun.elapsed() < MEASURING_TIME {
        let start = Instant::now();
        black_box(run()?);
        best = best.min(start.elapsed());
    }
    Ok(best)
}

const COLUMNS: [&str; 15] = [
    "file",
    "engine",
    "level",
    "pipeline",
    "block_size",
    "threads",
    "bytes",
    "compressed",
    "ratio",
    "compress_mb_s",
    "decompress_mb_s",
    "compress_vs_cpu",
    "decompress_vs_cpu",
    "filter",
    "chain",
];

impl Row {
    /// Compares the speeds with the CPU's in the same run of the program.
    fn compare(&mut self, rows: &[Row]) {
        let same = |row: &&Row| {
            let key = |row: &Row| {
                (row.level, row.threads, row.block_size, row.file.clone(), row.filter.clone())
            };
            row.engine == "cpu" && key(row) == key(self)
        };
        if let Some(cpu) = rows.iter().rev().find(same) {
            self.compress_vs_cpu = Some(self.compress_mb_s / cpu.compress_mb_s);
            self.decompress_vs_cpu = Some(self.decompress_mb_s / cpu.decompress_mb_s);
        }
    }

    fn cells(&self) -> [String; 15] {
        let times = |ratio: Option<f64>| ratio.map_or(String::new(), |ratio| format!("{ratio:.2}"));
        [
            self.file.clone(),
            self.engine.clone(),
            self.level.to_string(),
            self.pipeline.clone(),
            self.block_size.to_string(),
            self.threads.to_string(),
            self.bytes.to_string(),
            self.compressed.to_string(),
            format!("{:.3}", self.ratio),
            format!("{:.1}", self.compress_mb_s),
            format!("{:.1}", self.decompress_mb_s),
            times(self.compress_vs_cpu),
            times(self.decompress_vs_cpu),
            self.filter.clone(),
            self.chain.clone().unwrap_or_default(),
        ]
    }

    fn to_csv(&self) -> String {
        self.cells().map(|cell| csv_field(&cell)).join(",")
    }

    fn to_text(&self) -> String {
        let times =
            |ratio: Option<f64>| ratio.map_or(String::new(), |ratio| format!(" x{ratio:.2}"));
        format!(
            "-{}  {:<5} {:>8}  {:<8}  {:>3}  {:>11}  {:>7.3}  {:>10.1}{:>6}  {:>10.1}{:>6}  {}",
            self.level,
            self.pipeline,
            Human(self.block_size).to_string(),
            self.engine,
            self.threads,
            self.compressed,
            self.ratio,
            self.compress_mb_s,
            times(self.compress_vs_cpu),
            self.decompress_mb_s,
            times(self.decompress_vs_cpu),
            self.file,
        )
    }
}

const TEXT_HEAD: &str =
    "level     block  device    thr   compressed    ratio  comp. MB/s        dec. MB/s        file";

/// Prints a row at once, so that a long run shows its results as they come.
fn print_row(row: &Row, first: bool, args: &Bench) -> Result<(), Failure> {
    let (mut head, mut line) = match args.csv {
        true => (COLUMNS.join(","), row.to_csv()),
        false => (TEXT_HEAD.to_string(), row.to_text()),
    };
    if !args.csv && !args.filter.is_empty() {
        head += "  filter";
        line = format!("{line}  {}", row.filter);
        let chain = row.chain.as_deref().unwrap_or("none");
        if chain != row.filter {
            line = format!("{line}: {chain}");
        }
    }
    let head = if first { head + "\n" } else { String::new() };
    table::print(&format!("{head}{line}\n"))
}

/// Quotes a field as RFC 4180 says.
pub fn csv_field(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_string()
    }
}
