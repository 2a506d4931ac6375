//! Checks options and environment variables, and turns them into the library's.

use std::fmt::Display;
use std::thread;

use pz::{Auto, DecodeOptions, Gpu, Level, Options, Statistics};

use crate::args::{self, Decoding, Encoding, Machine};
use crate::device::{Device, Several};
use crate::environment::from_environment;
use crate::failure::Failure;
use crate::filtering::Loaded;
use crate::memory;
use crate::session::Session;
use crate::sizes::{self, Size};
use crate::source::Source;

fn parse_level(text: &str) -> Result<Level, String> {
    let level = text.parse().map_err(|_| "a level is a number from 1 to 9".to_string())?;
    Level::new(level).map_err(|error| error.to_string())
}

/// The level to use if the command line names none.
fn default_level() -> Result<Level, Failure> {
    Ok(from_environment("PZ_LEVEL", parse_level)?.unwrap_or_default())
}

/// The processor that the user asked for.
pub fn device(device: Option<Device>) -> Result<Device, Failure> {
    match device {
        Some(device) => Ok(device),
        None => Ok(from_environment("PZ_DEVICE", str::parse)?.unwrap_or_default()),
    }
}

/// The processors that `pz bench` compares.
pub fn devices(devices: Option<&Several>) -> Result<Several, Failure> {
    match devices {
        Some(devices) => Ok(devices.clone()),
        None => Ok(Several::These(vec![device(None)?])),
    }
}

/// The memory limit of each GPU in bytes. An invalid limit is an error even if no GPU is used.
pub fn gpu_memory(gpu_memory: Option<Size>) -> Result<Option<u64>, Failure> {
    let memory = match gpu_memory {
        Some(memory) => Some(memory),
        None => from_environment("PZ_GPU_MEMORY", sizes::nonzero)?,
    };
    Ok(memory.map(|Size(bytes)| bytes))
}

/// Makes the chooser of a GPU for each file.
pub fn auto(memory: Option<u64>) -> Auto {
    memory.map_or_else(Auto::new, |bytes| Auto::new().memory(bytes))
}

/// Checks that a device that the user named can do this work. No other device takes its place.
pub fn check_gpu(device: Device, gpu: &Gpu, options: &Options) -> Result<(), Failure> {
    let failed = |why: &dyn Display| Failure::environment(format!("device {device}: {why}"));
    let limits = gpu.found().map_err(|why| failed(&why))?;
    let memory = pz::gpu::coder::Encoder::memory_for(limits, &options.encoding()?, 1);
    memory.map(|_| ()).map_err(|why| failed(&why))
}

/// The number of threads; 0 is one for each core. The library counts the cores if there is more than one block: that
/// takes half as long as compressing a small file.
fn threads(machine: &Machine) -> Result<usize, Failure> {
    let threads = match machine.threads {
        Some(threads) => Some(threads),
        None => from_environment("PZ_THREADS", args::threads)?,
    };
    Ok(threads.unwrap_or(0))
}

/// The number of threads that `0` means.
pub fn all_cores() -> usize {
    thread::available_parallelism().map_or(1, |cores| cores.get())
}

/// The GPU that the user named. It is searched for in the background.
fn gpu(machine: &Machine, device: Device, session: &mut Session) -> Result<Option<Gpu>, Failure> {
    let threads = match threads(machine)? {
        // Only `-v` prints their number.
        0 if session.is_verbose() => all_cores(),
        threads => threads,
    };
    let gpu = device.open_in_background(gpu_memory(machine.gpu_memory)?);
    session.use_device(device, gpu.as_ref(), threads);
    Ok(gpu)
}

/// The limit on host memory in bytes.
pub fn memory(memory: Option<Size>) -> u64 {
    memory.map_or_else(memory::default_share, |Size(bytes)| bytes)
}

/// Makes the object that records the timings of each run, and chooses a GPU if the user named none.
fn learning(machine: &Machine, device: Device, session: &mut Session) -> Result<Auto, Failure> {
    let auto = auto(gpu_memory(machine.gpu_memory)?).timed_by_caller();
    let auto = if device == Device::Auto { auto } else { auto.only_learning() };
    session.learn_with(&auto);
    Ok(auto)
}

/// The library's options for compression.
pub fn encode(
    encoding: &Encoding,
    filter: Option<&Loaded>,
    machine: &Machine,
    session: &mut Session,
) -> Result<Options, Failure> {
    let device = device(machine.device)?;
    let level = match encoding.levels.0.last() {
        Some(&level) => level,
        None => default_level()?,
    };
    let threads = threads(machine)?;
    let mut options = encode_with(encoding, level, threads, machine.memory)?;
    if let Some(filter) = filter {
        options = filter.apply(options);
    }
    if let Some(gpu) = gpu(machine, device, session)? {
        options = options.gpu(gpu);
    }
    Ok(options.auto(&learning(machine, device, session)?))
}

/// The library's options for compression at one level.
pub fn encode_with(
    encoding: &Encoding,
    level: Level,
    threads: usize,
    memory: Option<Size>,
) -> Result<Options, Failure> {
    let mut options = Options::new().level(level).threads(threads).verify(!encoding.no_verify);
    if let Some(pipeline) = encoding.pipeline {
        options = options.pipeline(pipeline);
    }
    if let Some(Size(bytes)) = encoding.block_size {
        options = options.block_size(bytes);
    }
    if let Some(Size(bytes)) = encoding.window {
        options = options.window(bytes);
    }
    if let Some(Size(bytes)) = encoding.long {
        options = options.long_distance(bytes);
    }
    options = options.rsyncable(encoding.rsyncable).memory(self::memory(memory));
    options.chosen_block_size()?;
    Ok(options)
}

/// The limits of decoders.
#[derive(Clone)]
pub struct DecodeSettings {
    /// For our own format.
    pub options: DecodeOptions,
    /// For the formats of other programs: most memory to take, in bytes.
    pub memory: u64,
}

impl DecodeSettings {
    /// The settings for one input. They include its length, if known, and counters, if wanted, and leave out the memory
    /// for reading it ahead.
    pub fn of_input(&self, source: &mut Source, statistics: Option<&Statistics>) -> Self {
        let mut settings = self.clone();
        settings.memory -= source.limit_read_ahead(self.memory / 8).min(self.memory);
        settings.options = settings.options.max_memory(settings.memory);
        if let Some(len) = source.len() {
            settings.options = settings.options.input_size(len);
        }
        if let Some(statistics) = statistics {
            settings.options = settings.options.statistics(statistics);
        }
        settings
    }
}

/// The library's options for decompression, and the limits for the formats of other programs.
pub fn decode(args: &Decoding, session: &mut Session) -> Result<DecodeSettings, Failure> {
    let machine = &args.machine;
    let device = device(machine.device)?;
    let mut settings = decode_quietly(machine)?;
    settings.options = settings.options.modules(args.trust.modules());
    if let Some(gpu) = gpu(machine, device, session)? {
        settings.options = settings.options.gpu(gpu);
    }
    settings.options = settings.options.auto(&learning(machine, device, session)?);
    Ok(settings)
}

/// Like [`decode`], but on the CPU, without modules, and without messages about devices.
pub fn decode_quietly(machine: &Machine) -> Result<DecodeSettings, Failure> {
    let threads = threads(machine)?;
    let memory = memory(machine.memory);
    let options = DecodeOptions::new().threads(threads).max_memory(memory);
    Ok(DecodeSettings { options, memory })
}
